//! Where a machine of a pool is in its life.

use serde::{Deserialize, Serialize};

/// Where a machine of a pool is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineState {
    /// It is made, opened and set up.
    Raising,
    /// Its provider will have it later.
    Pending,
    /// Processes can be on it.
    Ready,
    /// It is about to go.
    Leaving,
    Lost,
    /// It did not become ready; it is tried again.
    Failed,
    /// It is not tried again: it did not become ready, or lacked what work needs.
    GivenUp,
    /// It was no longer wanted, and is given back.
    Released,
}

impl MachineState {
    /// In words, as in `node1 is …`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Raising => "being raised",
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Leaving => "about to go",
            Self::Lost => "lost",
            Self::Failed => "not ready",
            Self::GivenUp => "given up",
            Self::Released => "released",
        }
    }
}
