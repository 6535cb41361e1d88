//! What only processes of one training method say to each other. One file per method.
//!
//! Owns the list of methods that have words of their own. The envelope around them, which all
//! methods share, is [`message`](crate::message): a [`Command`] travels in `ToWorker::Method`, a [`Report`] in
//! `FromWorker::Method`.

pub mod coded;
pub mod solo;
pub mod sync;

use serde::{Deserialize, Serialize};

/// What the coordinator says in one method.
pub trait OwnCommand: Into<Command> {}

/// What a worker says in one method.
pub trait OwnReport: Into<Report> {}

/// Makes [`Command`] and [`Report`] of what each method says.
macro_rules! methods {
    ($($method:ident => $module:ident),* $(,)?) => {
        /// From the coordinator to a worker of one method.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub enum Command {
            $($method($module::Command)),*
        }

        /// From a worker of one method to the coordinator.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub enum Report {
            $($method($module::Report)),*
        }

        $(
            impl OwnCommand for $module::Command {}
            impl From<$module::Command> for Command {
                fn from(command: $module::Command) -> Self {
                    Self::$method(command)
                }
            }

            impl OwnReport for $module::Report {}
            impl From<$module::Report> for Report {
                fn from(report: $module::Report) -> Self {
                    Self::$method(report)
                }
            }
        )*
    };
}

// The order is part of the wire format: a new one comes last.
methods! {
    Sync => sync,
    Coded => coded,
    Solo => solo,
}
