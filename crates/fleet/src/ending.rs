//! How a process has ended.

use crate::process::{SIGKILL, SIGTERM};
use serde::{Deserialize, Serialize};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// What a coordinator exits with that wants another in its place, to go on from what was kept.
pub const ANOTHER: i32 = 75;
/// What a process exits with that its machine cannot do for, where another may.
pub const UNFIT: i32 = 76;
/// What a process exits with whose thread has broken down; Rust's own number for it.
pub const PANICKED: i32 = 101;

/// How a process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// With its machine, which is gone or does not answer.
    MachineLost,
    /// By the system, because it and others together needed more memory than they may have.
    OutOfMemory { limit_mib: u64 },
}

impl Ending {
    /// Whether it ended as it should.
    pub fn is_well(self) -> bool {
        self == Self::Code(0)
    }

    /// As shells have it: 128 and the signal where one ended it.
    pub fn exit_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::MachineLost | Self::OutOfMemory { .. } => 128 + SIGKILL,
        }
    }

    /// Whether it wants another process in its place.
    pub fn asks_for_another(self) -> bool {
        self == Self::Code(ANOTHER)
    }

    /// Whether something outside of it ended it, which says nothing of how another would do.
    pub fn is_from_outside(self) -> bool {
        matches!(self, Self::Signal(SIGKILL | SIGTERM) | Self::MachineLost)
    }

    /// Whether it needed more memory than there is, as another would.
    pub fn is_out_of_memory(self) -> bool {
        matches!(self, Self::OutOfMemory { .. })
    }

    /// Whether it saw that it cannot go on, and said why in its log.
    pub fn is_deliberate(self) -> bool {
        matches!(self, Self::Code(code) if code != ANOTHER && code != PANICKED)
    }
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or(0)),
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Code(ANOTHER) => {
                write!(f, "exit code {ANOTHER}: it asked for another in its place")
            }
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(SIGKILL) => {
                write!(f, "killed by signal 9 (out of memory, or kill -9)")
            }
            Self::Signal(signal) => write!(f, "killed by signal {signal}"),
            Self::MachineLost => write!(f, "its machine was lost"),
            Self::OutOfMemory { limit_mib } => {
                write!(f, "killed for want of memory: limit {limit_mib} MiB")
            }
        }
    }
}
