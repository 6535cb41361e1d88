//! What a supervisor hears, and what it asks for.

use crate::ending::Ending;
use planaria_protocol::message::Agent;

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Nothing but that time has passed.
    Look,
    /// A process was started, as was asked for.
    Started { agent: Agent, pid: u32 },
    /// A process could not be started.
    NotStarted { agent: Agent, why: String },
    /// No machine has room for a process yet.
    NoRoom { agent: Agent },
    /// A process has ended.
    Ended { agent: Agent, pid: u32, ending: Ending },
    /// There is a link to the coordinator.
    Linked,
    /// The link to the coordinator has ended, and all that was said on it is heard.
    LinkGone,
    /// The coordinator said something, if only that it lives.
    Heard,
    /// A step was committed.
    Progress,
    /// The coordinator waits for these to join.
    Absent(Vec<Agent>),
    /// A process is ready.
    Ready { agent: Agent, pid: u32 },
    /// The coordinator wants so many workers.
    Pool {
        /// Workers wanted.
        workers: u32,
    },
    /// The coordinator finds that a process does not answer.
    Kill {
        agent: Agent,
        pid: u32,
        /// How that was seen.
        why: String,
    },
    /// The coordinator said that the run is over: nothing is started any more.
    Over,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start a process.
    Start {
        agent: Agent,
    },
    /// Start the coordinator.
    Coordinate {
        generation: u64,
        /// What was lost, where it takes the place of another.
        after: Option<String>,
    },
    /// End this process at once.
    Kill {
        agent: Agent,
        pid: u32,
        why: String,
    },
    Fail(Loss),
}

/// What a run fails by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Whose log tells more.
    pub agent: Agent,
    /// Which process it was and how it ended.
    pub message: String,
}
