//! What a supervisor hears, and what it asks for.

use crate::ending::Ending;
use planaria_protocol::message::Agent;

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Nothing but that time has passed.
    Look,
    /// A process was started, as was asked for.
    Started {
        /// Which.
        agent: Agent,
        /// Its process.
        pid: u32,
    },
    /// A process could not be started.
    NotStarted {
        /// Which.
        agent: Agent,
        /// Why.
        why: String,
    },
    /// No machine has room for a process yet.
    NoRoom {
        /// Which.
        agent: Agent,
    },
    /// A process has ended.
    Ended {
        /// Which.
        agent: Agent,
        /// Its process.
        pid: u32,
        /// How.
        ending: Ending,
    },
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
    Ready {
        /// Which.
        agent: Agent,
        /// Its process.
        pid: u32,
    },
    /// The coordinator wants so many workers.
    Pool {
        /// Workers wanted.
        workers: u32,
    },
    /// The coordinator finds that a process does not answer.
    Kill {
        /// Which.
        agent: Agent,
        /// Its process.
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
        /// Which.
        agent: Agent,
    },
    /// Start the coordinator.
    Coordinate {
        /// Its generation.
        generation: u64,
        /// What was lost, where it takes the place of another.
        after: Option<String>,
    },
    /// End this process at once.
    Kill {
        /// Which.
        agent: Agent,
        /// Its process.
        pid: u32,
        /// Why.
        why: String,
    },
    /// Give up.
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
