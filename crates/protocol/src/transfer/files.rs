//! What a server asks about files of checkpoints, which are on the coordinator's machine.

use super::{Fault, Length, Line};
use serde::{Deserialize, Serialize};
use std::io::Read;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Here comes my part of the checkpoint that is being written; pieces follow at once, and the
    /// answer is that it is stored.
    Put {
        /// Name of the checkpoint's folder.
        checkpoint: String,
        /// Name of the file in it.
        file: String,
        bytes: u64,
        sha256: String,
    },
    /// Send me this file of a checkpoint.
    Get {
        /// Name of the checkpoint's folder.
        checkpoint: String,
        /// Name of the file in it.
        file: String,
    },
}

impl Line<Ask> {
    /// Sends the next `bytes` bytes of a file, and waits until all of them are taken.
    pub fn send_file(&mut self, from: &mut impl Read, bytes: u64) -> Result<(), Fault> {
        self.send(0, Length::bytes(bytes), None, |units, piece| {
            piece.resize((units.end - units.start) as usize, 0);
            Ok(from.read_exact(piece)?)
        })
    }
}
