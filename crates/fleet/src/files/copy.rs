//! A second copy of a run's files, on a machine that is not its controller's.
//!
//! Owns its folder on the machine, beside the host's, which stays when the host ends: it is there for
//! when the controller's machine is lost. Gone when the machine is given back. Never decides what is
//! copied.

use super::about;
use crate::messages::PIECE_BYTES;
use crate::messages::questions::{Ask, Said};
use crate::provider::{Fault, is_name};
use crate::remote::Remote;
use planaria_store::durable::Draft;
use planaria_store::transfer::{Announced, Incoming};
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Its name in the run's folder on a machine.
pub const FOLDER: &str = "copy";
/// Names of the copies of the newest checkpoint, in turn.
pub const SLOTS: [&str; 2] = ["one", "two"];
/// Name of the copy of the best.
pub const BEST: &str = "best";
/// Folders that a file may be in.
const DEPTH_MAX: usize = 3;
/// How long a piece may take.
const PIECE_WITHIN: Duration = Duration::from_secs(60);

/// The machine's end.
pub(super) struct Copy {
    folder: PathBuf,
    /// The file that is on its way.
    incoming: Option<(String, Incoming)>,
}

impl Copy {
    /// In the run's folder on the machine.
    pub fn new(run: &Path) -> Self {
        Self { folder: run.join(FOLDER), incoming: None }
    }

    /// Takes a piece of a file; the last one completes it, and until then the one before stays.
    pub fn take(&mut self, name: &str, at: u64, bytes: &[u8], length: u64) -> io::Result<()> {
        if at == 0 {
            self.incoming = None;
            let path = self.place(name)?;
            let temporary = self.folder.join(".part");
            let draft = Draft::at(temporary, &path).map_err(|e| about(&path, &e))?;
            let announced = Announced { bytes: Some(length), sha256: None };
            self.incoming = Some((name.to_owned(), Incoming::new(draft, announced)));
        }
        let Some((due, incoming)) = &mut self.incoming else {
            return Err(io::Error::other(format!("a piece of `{name}` came out of order")));
        };
        if due != name {
            return Err(io::Error::other(format!("a piece of `{name}` came instead of `{due}`")));
        }
        incoming.take(at, bytes)?;
        if incoming.is_whole() {
            incoming.check()?;
            let whole = self.incoming.take();
            whole.map_or(Ok(()), |(_, incoming)| incoming.keep())?;
        }
        Ok(())
    }

    /// Where a file goes; nothing leads out of the folder.
    fn place(&self, name: &str) -> io::Result<PathBuf> {
        let words: Vec<&str> = name.split('/').collect();
        if words.len() > DEPTH_MAX + 1 || !words.iter().all(|word| is_name(word)) {
            return Err(io::Error::other(format!("`{name}` cannot be copied")));
        }
        let path = self.folder.join(name);
        let folder = path.parent().unwrap_or(&self.folder);
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        Ok(path)
    }
}

/// Whether a run's folder on this machine has a copy.
pub fn is_in(run: &Path) -> bool {
    run.join(FOLDER).is_dir()
}

impl Remote {
    /// Copies a file to the machine, under this name. One piece is on its way at a time, so that
    /// agents' messages never wait for many.
    pub fn copy(&self, from: &Path, name: &str) -> Result<(), Fault> {
        let unread = |e: io::Error| Fault::fix(self.machine(), format!("`{name}`: {e}"), "");
        let open = || -> io::Result<(File, u64)> {
            let file = File::open(from)?;
            let length = file.metadata()?.len();
            Ok((file, length))
        };
        let (mut file, length) = open().map_err(unread)?;
        let mut at = 0;
        loop {
            let mut bytes = Vec::new();
            let most = (length - at).min(PIECE_BYTES as u64);
            (&mut file).take(most).read_to_end(&mut bytes).map_err(unread)?;
            let read = bytes.len() as u64;
            if read < most {
                return Err(unread(io::ErrorKind::UnexpectedEof.into()));
            }
            let asked = self.ask(Ask::Keep { name: name.to_owned(), at, bytes, length })?;
            if let Said::Failed { why, .. } = self.wait(asked, PIECE_WITHIN)? {
                return Err(Fault::replace(self.machine(), why, "is the disk full?"));
            }
            at += read;
            if at == length {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_there_whole_or_as_it_was() {
        let run = tempfile::tempdir().unwrap();
        let mut copy = Copy::new(run.path());
        let read = |name: &str| fs::read_to_string(run.path().join(FOLDER).join(name)).ok();
        assert!(!is_in(run.path()));
        copy.take("checkpoints/one/part-0", 0, b"abc", 3).unwrap();
        assert_eq!(read("checkpoints/one/part-0").as_deref(), Some("abc"));
        assert!(is_in(run.path()));
        copy.take("checkpoints/one/part-0", 0, b"de", 4).unwrap();
        assert_eq!(read("checkpoints/one/part-0").as_deref(), Some("abc"));
        assert!(copy.take("checkpoints/one/part-1", 2, b"fg", 4).is_err(), "another file");
        copy.take("checkpoints/one/part-0", 2, b"fg", 4).unwrap();
        assert_eq!(read("checkpoints/one/part-0").as_deref(), Some("defg"));
        copy.take("empty", 0, b"", 0).unwrap();
        assert_eq!(read("empty").as_deref(), Some(""));
        assert!(copy.take("empty", 5, b"x", 6).is_err(), "nothing is on its way");
        for name in ["../x", "/x", "a//b", "a/../../b", "a/b/c/d/e", ""] {
            assert!(copy.take(name, 0, b"x", 1).is_err(), "{name}");
        }
    }
}
