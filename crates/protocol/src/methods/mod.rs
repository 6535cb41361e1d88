//! What only processes of one training method say to each other. One file per method.
//!
//! Owns the list of methods that have words of their own. The envelope around them, which all
//! methods share, is [`message`](crate::message): a [`Command`] travels in [`ToWorker::Method`], a
//! [`Report`] in [`FromWorker::Method`].

pub mod coded;
pub mod solo;
pub mod sync;

use crate::message::{FromWorker, ToWorker};
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

macro_rules! enveloped {
    ($method:ident: $command:ty, $report:ty) => {
        impl From<$command> for ToWorker {
            fn from(command: $command) -> Self {
                Self::Method(Command::$method(command))
            }
        }

        impl From<$report> for FromWorker {
            fn from(report: $report) -> Self {
                Self::Method(Report::$method(report))
            }
        }
    };
}

enveloped!(Sync: sync::Command, sync::Report);
enveloped!(Coded: coded::Command, coded::Report);
enveloped!(Solo: solo::Command, solo::Report);
