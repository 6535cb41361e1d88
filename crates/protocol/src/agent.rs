//! Who a process of a run is.

use serde::{Deserialize, Serialize};

/// Who a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Agent {
    Coordinator,
    /// Holds a range of parameters.
    Server(u32),
    Worker(u32),
    /// Watches, and may ask for a stop.
    Console,
    /// Keeps a process of a user's script.
    Task(u32),
    /// The one process of ours on a machine of a pool, which starts the others there.
    Host,
    /// Owns the run's folder, and takes the calls of hosts where the run is detached.
    Controller,
}

impl Agent {
    /// The agent of this name, as it is displayed; those that keep no log of their own have none.
    pub fn named(name: &str) -> Option<Self> {
        if name == "coordinator" {
            return Some(Self::Coordinator);
        }
        let (kind, number) = name.split_once('-')?;
        let number = number.parse().ok()?;
        match kind {
            "worker" => Some(Self::Worker(number)),
            "server" => Some(Self::Server(number)),
            "task" => Some(Self::Task(number)),
            _ => None,
        }
    }
}

impl std::fmt::Display for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Coordinator => write!(f, "coordinator"),
            Self::Server(n) => write!(f, "server-{n}"),
            Self::Worker(n) => write!(f, "worker-{n}"),
            Self::Console => write!(f, "console"),
            Self::Task(n) => write!(f, "task-{n}"),
            Self::Host => write!(f, "host"),
            Self::Controller => write!(f, "controller"),
        }
    }
}
