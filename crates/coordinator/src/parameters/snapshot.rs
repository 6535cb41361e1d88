//! A server's part of a checkpoint, on its way to the disk.

use super::region::Third;
use planaria_protocol::checkpoint::{self, PartInfo, PartView};
use planaria_protocol::message::FromServer;
use std::io::{self, Read};
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
        let _alone = self.writing.lock().expect("no thread panics while it writes");
        let folder = Path::new(&self.folder);
        match self.with_view(|view| checkpoint::write_part(folder, self.index, view)) {
            Ok(PartInfo { file, sha256, bytes }) => FromServer::Saved { step, file, sha256, bytes },
            Err(e) => FromServer::NotSaved { step, why: e.to_string() },
        }
    }

    /// Its part, read as it would be from its file.
    pub fn stream<T>(&self, send: impl FnOnce(PartInfo, &mut dyn Read) -> T) -> io::Result<T> {
        self.with_view(|view| {
            let (info, mut read) = checkpoint::stream_part(self.index, view)?;
            Ok(send(info, &mut read))
        })
    }
}
