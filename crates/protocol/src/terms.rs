//! What messages, events and methods all speak of.

use crate::agent::Agent;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// SHA-256 of some bytes.
pub type Sha256 = [u8; 32];

/// A server and the blocks of parameters it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRange {
    /// Number of the server.
    pub server: u32,
    /// Where it listens.
    pub address: String,
    /// Its blocks of 4,096 parameters.
    pub blocks: Range<u32>,
}

/// Some steps of one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    pub epoch: u64,
    /// Batches of the epoch.
    pub batches: Range<u64>,
    /// Step, over the whole run, of the first of them.
    pub first_step: u64,
}

impl Steps {
    /// The steps, over the whole run.
    pub fn steps(&self) -> Range<u64> {
        self.first_step..self.first_step + (self.batches.end - self.batches.start)
    }
}

/// Which worker computes which shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Number of the worker.
    pub worker: u32,
    pub shards: Range<u32>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All epochs were done.
    Completed,
    /// Ctrl-C or SIGTERM; `planaria resume` goes on.
    Interrupted,
    /// Early stopping ended it.
    StoppedEarly,
    /// Also what a build that knows other ends has written.
    #[serde(other)]
    Failed,
}

impl Outcome {
    /// As documents name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::StoppedEarly => "stopped_early",
            Self::Failed => "failed",
        }
    }

    /// As a person reads it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::StoppedEarly => "stopped early",
            Self::Failed => "failed",
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

/// A part of the data that is held out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeldOut {
    /// Scored after each epoch.
    Validation,
    /// Scored at the end.
    Test,
}

impl std::fmt::Display for HeldOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Validation => "validation",
            Self::Test => "test",
        })
    }
}

/// A process that was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    pub agent: Agent,
    /// What became of it, as a sentence.
    pub message: String,
}

/// Why a process cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What failed, which value, where.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Whether the user must change something (and not try again).
    pub fix_input: bool,
    /// Whether it is a matter of the process' machine: another may have what this one lacks.
    #[serde(default)]
    pub of_machine: bool,
    /// The process that could not go on, where that is another than the one that says so.
    #[serde(default)]
    pub agent: Option<String>,
}

impl Trouble {
    /// Something failed; trying again may help.
    pub fn new(what: impl std::fmt::Display) -> Self {
        let message = what.to_string();
        Self { message, hint: None, fix_input: false, of_machine: false, agent: None }
    }

    /// The user must change something.
    pub fn wrong_input(what: impl std::fmt::Display) -> Self {
        Self { fix_input: true, ..Self::new(what) }
    }

    /// What to do about it.
    pub fn hint(self, hint: impl std::fmt::Display) -> Self {
        Self { hint: Some(hint.to_string()), ..self }
    }
}
