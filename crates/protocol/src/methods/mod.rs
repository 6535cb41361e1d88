//! What only processes of one training method say to each other. One file per method.
//!
//! Owns the list of methods that have words of their own. The envelope around them, which all
//! methods share, is [`message`](crate::message): a [`Command`] travels in `ToWorker::Method`, a [`Report`] in
//! `FromWorker::Method`.

pub mod coded;
pub mod solo;
pub mod sync;

use serde::{Deserialize, Serialize};

/// From the coordinator to a worker of one method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    Sync(sync::Command),
    Coded(coded::Command),
    Solo(solo::Command),
}

/// From a worker of one method to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Report {
    Sync(sync::Report),
    Coded(coded::Report),
    Solo(solo::Report),
}

/// What the coordinator says in one method.
pub trait OwnCommand: Into<Command> {}

/// What a worker says in one method.
pub trait OwnReport: Into<Report> {}

macro_rules! own {
    ($method:ident: $command:ty, $report:ty) => {
        impl OwnCommand for $command {}
        impl From<$command> for Command {
            fn from(command: $command) -> Self {
                Self::$method(command)
            }
        }

        impl OwnReport for $report {}
        impl From<$report> for Report {
            fn from(report: $report) -> Self {
                Self::$method(report)
            }
        }
    };
}

own!(Sync: sync::Command, sync::Report);
own!(Coded: coded::Command, coded::Report);
own!(Solo: solo::Command, solo::Report);
