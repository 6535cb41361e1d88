//! Files on their way to a machine, and from it: the controller's side.
//!
//! Owns how much is under way at a time: a few pieces, so that other words get through. Each content
//! is read from disk when it is sent, and is sent once for all files that have it.

use super::find::FOUND_MAX;
use super::{Bundle, Code, Hash, Patterns, size};
use crate::messages::PIECE_BYTES;
use crate::messages::questions::{Ask, Found, Laying, Meeting, Peer, Piece, Said, Taken};
use crate::provider::{Fault, Remedy};
use crate::remote::{Asked, Remote};
use planaria_store::transfer::{self, Announced, Outgoing, WINDOW};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// Pieces in one question: many small files go together.
const PIECES_MAX: usize = 1024;
/// Entries in one question, by number and by the length of their paths.
const ENTRIES_AT_ONCE: usize = 2000;
/// How long a question about files may take.
const WITHIN: Duration = Duration::from_secs(300);
/// How long a question about sockets may take.
const SOCKETS_WITHIN: Duration = Duration::from_secs(20);
/// The same about a job that is about to be ended.
const PEERS_WITHIN: Duration = Duration::from_secs(5);
/// Attempts to send contents again that vanished from the machine meanwhile.
const ATTEMPTS: usize = 3;

/// What laying out took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Where it is on the machine.
    pub folder: String,
    pub files: usize,
    /// Length of all of them.
    pub bytes_total: u64,
    /// Contents that were sent, and their length.
    pub contents_sent: usize,
    /// The same in bytes.
    pub bytes_sent: u64,
}

/// What came of fetching a file.
#[derive(Debug)]
pub enum Fetched {
    /// All of it.
    Whole,
    /// It is not what it was; what was written is worth nothing.
    Changed,
    /// It could not be written here.
    Unkept(io::Error),
}

impl Remote {
    /// Lays a script's code out in the machine's work folder, sending what it does not have.
    /// `progress` is told how many bytes were sent so far, and of how many.
    pub fn lay_out(&self, code: &Code, progress: &mut dyn FnMut(u64, u64)) -> Result<Sent, Fault> {
        self.lay(&code.bundle, Laying::Code, progress)
    }

    /// Lays files out that are not there, or are as they were laid out before.
    pub fn supply(&self, bundle: &Bundle) -> Result<Sent, Fault> {
        self.lay(bundle, Laying::Missing, &mut |_, _| {})
    }

    /// Lays files out so that each has this content, also where the script made another of it.
    pub fn replace(&self, bundle: &Bundle) -> Result<Sent, Fault> {
        self.lay(bundle, Laying::Same, &mut |_, _| {})
    }

    /// Takes files off, also those that the script made.
    pub fn remove(&self, paths: &[String]) -> Result<(), Fault> {
        let mut window = Window { remote: self, waiting: VecDeque::new() };
        for paths in paths.chunks(ENTRIES_AT_ONCE) {
            window.push(Ask::Remove { paths: paths.to_vec() })?;
        }
        window.settle()
    }

    fn lay(
        &self,
        bundle: &Bundle,
        how: Laying,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Sent, Fault> {
        let layout = self.number();
        let mut window = Window { remote: self, waiting: VecDeque::new() };
        for entries in bundle.entries.chunks(ENTRIES_AT_ONCE) {
            window.push(Ask::Entries { layout, entries: entries.to_vec() })?;
        }
        window.settle()?;
        let (mut contents_sent, mut bytes_sent) = (0, 0);
        for _ in 0..ATTEMPTS {
            match self.answer(Ask::Lay { layout, how }, WITHIN)? {
                Said::Laid { folder } => {
                    let (files, bytes_total) = (bundle.files(), bundle.bytes());
                    return Ok(Sent { folder, files, bytes_total, contents_sent, bytes_sent });
                }
                Said::Lacks(hashes) => {
                    contents_sent += hashes.len();
                    bytes_sent += self.send_contents(bundle, &hashes, progress)?;
                }
                other => return Err(self.unexpected(&other)),
            }
        }
        Err(Fault::retry(self.machine(), "what was sent to it vanishes again"))
    }

    fn send_contents(
        &self,
        bundle: &Bundle,
        hashes: &[Hash],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<u64, Fault> {
        let length = |hash| bundle.sources.get(hash).map_or(0, |(_, bytes)| *bytes);
        let total = hashes.iter().map(length).sum();
        let window = Window { remote: self, waiting: VecDeque::new() };
        let mut batch = Batch { window, pieces: Vec::new(), bytes: 0, sent: 0 };
        let mut last = None;
        for hash in hashes {
            let Some((path, bytes)) = bundle.sources.get(hash) else {
                return Err(Fault::retry(
                    self.machine(),
                    "it asks for files that were not offered",
                ));
            };
            let sent = batch.send(path, *hash, *bytes, &mut |sent| progress(sent, total));
            sent.map_err(|fault| match fault.remedy {
                Remedy::Replace => sending(path, *bytes, fault),
                _ => fault,
            })?;
            last = Some((path, *bytes));
        }
        let settled = batch.flush().and_then(|()| batch.window.settle());
        settled.map_err(|fault| match (last, fault.remedy) {
            (Some((path, bytes)), Remedy::Replace) => sending(path, bytes, fault),
            _ => fault,
        })?;
        Ok(total)
    }

    /// Files of the machine's work folder that match and that the script made or changed, and
    /// whether there are more.
    pub fn find(&self, patterns: &Patterns) -> Result<(Vec<Found>, bool), Fault> {
        let patterns = patterns.texts().to_vec();
        match self.answer(Ask::Find { patterns }, WITHIN)? {
            // A machine may be what it should not be: what it says is bounded here as well.
            Said::Found { mut files, is_cut } => {
                let is_long = files.len() > FOUND_MAX;
                files.truncate(FOUND_MAX);
                Ok((files, is_cut || is_long))
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Fetches a file as it was found, if it is still the same.
    pub fn fetch(&self, file: &Found, sink: &mut dyn Write) -> Result<Fetched, Fault> {
        let (mut asked_to, mut waiting) = (0, VecDeque::new());
        loop {
            while asked_to < file.bytes && waiting.len() < WINDOW {
                let (path, bytes, mtime_ns) = (file.path.clone(), file.bytes, file.mtime_ns);
                let asked = self.ask(Ask::Read { path, bytes, mtime_ns, at: asked_to })?;
                let due = (file.bytes - asked_to).min(PIECE_BYTES as u64);
                waiting.push_back((asked, due));
                asked_to += due;
            }
            let Some((asked, due)) = waiting.pop_front() else { return Ok(Fetched::Whole) };
            match self.wait(asked, WITHIN)? {
                Said::Piece(bytes) if bytes.len() as u64 != due => {
                    return Err(self.other_length(file, bytes.len(), due));
                }
                Said::Piece(bytes) => {
                    if let Err(e) = sink.write_all(&bytes) {
                        return Ok(Fetched::Unkept(e));
                    }
                }
                Said::Changed => return Ok(Fetched::Changed),
                other => return Err(self.unexpected(&other)),
            }
        }
    }

    fn other_length(&self, file: &Found, came: usize, due: u64) -> Fault {
        let what = format!(
            "it sent {came} bytes of `{}` where {due} were due: it announced {} in all",
            file.path.escape_debug(),
            file.bytes
        );
        Fault::replace(self.machine(), what, "what comes from this machine cannot be trusted")
    }

    /// Free ports of the machine: of those that are wanted, and so many others. Also which of the
    /// wanted ones are taken.
    pub fn ports(&self, count: u16, wanted: &[u16]) -> Result<(Vec<u16>, Vec<Taken>), Fault> {
        match self.answer(Ask::Ports { count, wanted: wanted.to_vec() }, SOCKETS_WITHIN)? {
            Said::Ports { free, taken } => Ok((free, taken)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Ports that are not needed any more.
    pub fn release(&self, ports: &[u16]) -> Result<(), Fault> {
        match self.answer(Ask::Release { ports: ports.to_vec() }, SOCKETS_WITHIN)? {
            Said::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Whether a process there, or one that came of it, listens on a port or is connected by it.
    pub fn meets(&self, pid: u32, port: u16, meeting: Meeting) -> Result<bool, Fault> {
        match self.answer(Ask::Meets { pid, port, meeting }, SOCKETS_WITHIN)? {
            Said::Meets(met) => Ok(met),
            other => Err(self.unexpected(&other)),
        }
    }

    /// What a process there, and those that came of it, are connected to, and whether it computes.
    pub fn peers(&self, pid: u32) -> Result<(Vec<Peer>, bool), Fault> {
        match self.answer(Ask::Peers { pid }, PEERS_WITHIN)? {
            Said::Peers { peers, is_busy } => Ok((peers, is_busy)),
            other => Err(self.unexpected(&other)),
        }
    }

    fn answer(&self, ask: Ask, within: Duration) -> Result<Said, Fault> {
        let asked = self.ask(ask)?;
        self.wait(asked, within)
    }

    fn unexpected(&self, said: &Said) -> Fault {
        match said {
            Said::Failed { why, is_full: true } => Fault::replace(
                self.machine(),
                format!("its disk is full: {why}"),
                "free some space on it (`~/.cache/planaria/files` may be removed), or leave large \
                 files out with `.gitignore` or `.planariaignore`",
            ),
            Said::Failed { why, .. } => Fault::replace(
                self.machine(),
                why,
                "check the folder `~/.cache/planaria` on it: is it another user's?",
            ),
            _ => Fault::retry(self.machine(), "it answered something else than it was asked"),
        }
    }
}

/// Questions that are answered with "done", a few at a time.
struct Window<'a> {
    remote: &'a Remote,
    waiting: VecDeque<Asked>,
}

impl Window<'_> {
    fn push(&mut self, ask: Ask) -> Result<(), Fault> {
        while self.waiting.len() >= WINDOW {
            self.settle_one()?;
        }
        self.waiting.push_back(self.remote.ask(ask)?);
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Fault> {
        while !self.waiting.is_empty() {
            self.settle_one()?;
        }
        Ok(())
    }

    fn settle_one(&mut self) -> Result<(), Fault> {
        let Some(asked) = self.waiting.pop_front() else { return Ok(()) };
        match self.remote.wait(asked, WITHIN)? {
            Said::Done => Ok(()),
            other => Err(self.remote.unexpected(&other)),
        }
    }
}

/// A fault that came while a file was sent: the machine knows only its content.
fn sending(path: &Path, bytes: u64, fault: Fault) -> Fault {
    let what = format!("{} (while `{}`, {}, was sent)", fault.what, path.display(), size(bytes));
    Fault { what, ..fault }
}

/// Pieces that go together.
struct Batch<'a> {
    window: Window<'a>,
    pieces: Vec<Piece>,
    bytes: usize,
    sent: u64,
}

impl Batch<'_> {
    /// Sends a file's content, which must be what it was when it was listed.
    fn send(
        &mut self,
        path: &Path,
        hash: Hash,
        length: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Fault> {
        let machine = self.window.remote.machine().to_owned();
        let unread = |e: io::Error| {
            let what = format!("cannot read `{}` here: {e}", path.display());
            Fault::fix(&machine, what, "check the file, and run the command again")
        };
        let announced = Announced { bytes: Some(length), sha256: Some(hash) };
        let mut file = Outgoing::new(File::open(path).map_err(unread)?, announced);
        loop {
            let room = PIECE_BYTES.saturating_sub(self.bytes).max(1);
            let at = file.at();
            let bytes = file.next(room).map_err(|fault| match fault {
                transfer::Fault::Io(e) => unread(e),
                _ => {
                    let what = format!("`{}` changed after it was listed", path.display());
                    Fault::fix(&machine, what, "run the command again when nothing writes to it")
                }
            })?;
            self.bytes += bytes.len();
            self.sent += bytes.len() as u64;
            self.pieces.push(Piece { hash, at, bytes, length });
            if self.bytes >= PIECE_BYTES || self.pieces.len() >= PIECES_MAX {
                self.flush()?;
                progress(self.sent);
            }
            if file.is_over() {
                progress(self.sent);
                return Ok(());
            }
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.bytes = 0;
        match std::mem::take(&mut self.pieces) {
            pieces if pieces.is_empty() => Ok(()),
            pieces => self.window.push(Ask::Contents { pieces }),
        }
    }
}
