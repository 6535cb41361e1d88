//! Files of checkpoints for servers whose machines do not have the run's folder.
//!
//! Each such server has one more link, which is served here on a thread of its own: what it puts is
//! written into the checkpoint under way, what it gets is read from one that is whole, a piece at a
//! time. Owns which checkpoint is under way. Never holds a part in memory, never keeps the deciding
//! thread waiting, and never believes a name: a server can write its own part and nothing else.

use super::Log;
use planaria_protocol::checkpoint::{CheckpointFolder, Manifest, manifest, part};
use planaria_protocol::durable::Draft;
use planaria_protocol::link::{Receiver, Sender};
use planaria_protocol::message::{Agent, Join, Trouble};
use planaria_protocol::plain;
use planaria_protocol::transfer::files::Ask;
use planaria_protocol::transfer::{Fault, Length, Line};
use planaria_store::transfer::{Announced, Incoming};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The checkpoint under way, and the folder of those that are whole.
pub struct PartFiles {
    checkpoint_folder: CheckpointFolder,
    /// By server: most bytes of its part.
    parts_max: Vec<u64>,
    log: Log,
    /// Folder of the checkpoint under way. Held while a file gets a name in it.
    folder: Mutex<Option<PathBuf>>,
    /// So far; two drafts of one file have two names.
    drafts: AtomicU64,
}

/// What a server wants to put.
struct Put {
    checkpoint: String,
    file: String,
    bytes: u64,
    sha256: String,
}

impl PartFiles {
    /// For servers with these ranges of the parameters.
    pub fn new(
        checkpoint_folder: CheckpointFolder,
        manifest: &Manifest,
        ranges: &[Range<u64>],
        log: Log,
    ) -> Self {
        let state = |server: usize| if server == 0 { manifest.state_values } else { 0 };
        let bytes_max = |(server, range): (usize, &Range<u64>)| {
            part::bytes_max(range.end - range.start, manifest.slots, state(server))
        };
        let parts_max = ranges.iter().enumerate().map(bytes_max).collect();
        Self {
            checkpoint_folder,
            parts_max,
            log,
            folder: Mutex::default(),
            drafts: AtomicU64::new(0),
        }
    }

    /// From now on parts go to this folder.
    pub fn open(&self, folder: PathBuf) {
        *self.lock() = Some(folder);
    }

    /// Where parts go.
    pub fn folder(&self) -> Option<PathBuf> {
        self.lock().clone()
    }

    /// From now on nothing more gets a name in the folder, which the caller has alone.
    pub fn close(&self) -> Option<PathBuf> {
        self.lock().take()
    }

    /// Serves a link for parts until it ends.
    pub fn serve(&self, join: &Join, sender: Sender, receiver: Receiver) {
        let who = join.agent;
        let Ok(mut line) = Line::new(sender, receiver) else { return };
        let served = match who {
            Agent::Server(server) if (server as usize) < self.parts_max.len() => {
                self.answer(server, &mut line)
            }
            _ => Err(Fault::refused(format!("{who} has no part of a checkpoint"))),
        };
        match served {
            Ok(()) => {}
            Err(Fault::Link(error)) => (self.log)(&format!("{who}: sending parts: {error}")),
            Err(fault) => {
                (self.log)(&format!("{who}: refused a part: {fault}"));
                line.refuse(Trouble::new(fault));
            }
        }
    }

    fn answer(&self, server: u32, line: &mut Line<Ask>) -> Result<(), Fault> {
        while let Some(asked) = line.hear()? {
            match asked {
                Ask::Put { checkpoint, file, bytes, sha256 } => {
                    self.put(server, line, &Put { checkpoint, file, bytes, sha256 })?;
                    line.say_stored()?;
                }
                Ask::Get { checkpoint, file } => self.get(line, &checkpoint, &file)?,
            }
        }
        Ok(())
    }

    /// Writes a server's part; it has its name only if it is what was announced.
    fn put(&self, server: u32, line: &mut Line<Ask>, put: &Put) -> Result<(), Fault> {
        let (own, most) = (part::name(server), self.parts_max[server as usize]);
        if put.file != own {
            return refused(format!("server-{server} writes `{own}`, not `{}`", put.file));
        }
        if put.bytes > most {
            return refused(format!("{} bytes are more than the {most} of `{own}`", put.bytes));
        }
        let sha256 = Some(unhex(&put.sha256).ok_or_else(|| Fault::refused("no SHA-256"))?);
        let announced = Announced { bytes: Some(put.bytes), sha256 };
        let mut incoming = Incoming::new(self.draft(&put.checkpoint, &own)?, announced);
        line.take(put.bytes, |at, piece| Ok(incoming.take(at, piece)?))?;
        incoming.check().map_err(|fault| match fault.into() {
            Fault::Refused(trouble) => Fault::refused(format!("`{own}`: {}", trouble.message)),
            fault => fault,
        })?;
        // A checkpoint that was given up, or is whole, takes no part any more.
        let folder = self.lock();
        match folder.as_deref().filter(|folder| is_named(folder, &put.checkpoint)) {
            Some(_) => Ok(incoming.keep()?),
            None => refused(over(&put.checkpoint)),
        }
    }

    fn draft(&self, checkpoint: &str, file: &str) -> Result<Draft, Fault> {
        let folder = self.lock();
        let Some(folder) = folder.as_deref().filter(|folder| is_named(folder, checkpoint)) else {
            return refused(over(checkpoint));
        };
        let number = self.drafts.fetch_add(1, Ordering::Relaxed);
        Ok(Draft::new(&folder.join(file), number)?)
    }

    /// Sends a file of a checkpoint that is whole.
    fn get(&self, line: &mut Line<Ask>, checkpoint: &str, file: &str) -> Result<(), Fault> {
        let Some(folder) = self.checkpoint_folder.folder_of(checkpoint) else {
            return refused(format!(
                "there is no checkpoint `{checkpoint}` in the folder of checkpoints"
            ));
        };
        if file != manifest::FILE && !part::is_name(file) {
            return refused(format!("`{file}` is no file of a checkpoint"));
        }
        let unreadable =
            |e: std::io::Error| Fault::refused(format!("cannot read `{checkpoint}/{file}`: {e}"));
        let mut from = plain::open(&folder.join(file)).map_err(unreadable)?;
        let bytes = from.metadata().map_err(unreadable)?.len();
        line.say_comes(Length::bytes(bytes), &[])?;
        line.send_file(&mut from, bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.folder.lock().expect("no thread panics with the folder")
    }
}

fn is_named(folder: &Path, name: &str) -> bool {
    folder.file_name().is_some_and(|own| own == name)
}

fn over(checkpoint: &str) -> String {
    format!("checkpoint `{checkpoint}` is not being written")
}

fn refused<T>(why: String) -> Result<T, Fault> {
    Err(Fault::refused(why))
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.as_chunks::<2>().0.iter().map(|[a, b]| a << 4 | b).collect();
    bytes.try_into().ok().filter(|_| digits.len() == 64)
}
