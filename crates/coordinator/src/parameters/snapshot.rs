//! A server's part of a checkpoint, on its way to the disk.

use super::region::Third;
use planaria_protocol::checkpoint::{self, PartInfo, PartView};
use planaria_protocol::message::FromServer;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A copy of a server's values that is to be written. It is not written over while this lives.
#[derive(Debug)]
pub struct Snapshot {
    /// Steps done.
    pub step: u64,
    /// Where it is to be written.
    pub folder: String,
    pub(super) index: u32,
    pub(super) start: u64,
    pub(super) third: Arc<Third>,
    pub(super) writing: Arc<Mutex<()>>,
}

impl Snapshot {
    /// What its part of a checkpoint holds.
    pub fn with_view<T>(&self, see: impl FnOnce(&PartView<'_>) -> T) -> T {
        let (values, state) = self.third.values();
        see(&PartView {
            step: self.step,
            start: self.start,
            parameters: values.parameters,
            slots: values.optimizer(),
            state,
        })
    }

    /// Writes it to its folder; the answer is for the coordinator.
    pub fn write(&self) -> FromServer {
        let step = self.step;
        match self.write_to(Path::new(&self.folder)) {
            Ok(PartInfo { file, sha256, bytes }) => FromServer::Saved { step, file, sha256, bytes },
            Err(e) => FromServer::NotSaved { step, why: e.to_string() },
        }
    }

    /// Writes it to another folder than its own.
    pub fn write_to(&self, folder: &Path) -> io::Result<PartInfo> {
        let _alone = self.writing.lock().expect("no thread panics while it writes");
        self.with_view(|view| checkpoint::write_part(folder, self.index, view))
    }
}
