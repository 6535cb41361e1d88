//! Copies a detached run's folder from the machine of its controller to where it was started:
//! frames as [`messages`](planaria_fleet::messages) has them.
//!
//! Owns which files are copied, and that no name leads out of the run's folder here. Never asks a
//! machine.

use planaria_fleet::messages::{FRAME_BYTES_MAX, read_message};
use planaria_fleet::provider::is_name;
use planaria_protocol::journal;
use planaria_runs::run_dir::{CHECKPOINTS, LOGS};
use planaria_store::transfer::{self, Incoming, Outgoing, PIECE_BYTES};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Most bytes that are told at a time.
pub const BYTES_MAX: u64 = 32 << 20;
/// The figures along the way.
pub const METRICS: &str = "metrics.jsonl";
/// Most bytes of a file that grows while the run lives: a log, events, figures.
const GROWING_BYTES_MAX: u64 = 4 << 30;
/// Files that are copied at most.
const FILES_MAX: usize = 10_000;
/// Folders below the run's.
const DEPTH_MAX: usize = 3;
/// What a file is called that has not come to its end yet.
const PART: &str = ".part";

/// How much of which files is known, by their names in the run's folder.
pub type Known = BTreeMap<String, u64>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub known: Known,
    /// Whether only the run's state is asked for, and no files.
    #[serde(default)]
    pub is_brief: bool,
}

impl From<Known> for Question {
    fn from(known: Known) -> Self {
        Self { known, is_brief: false }
    }
}

/// What the host of a detached run does on its machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    /// It has a link to the run's controller.
    pub is_linked: bool,
    /// It takes the controller's place should that be lost.
    pub may_succeed: bool,
}

/// A message of the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Told {
    /// The first: whether the run lives, and how it ended where its controller has said so.
    Run {
        /// A process works on it.
        is_live: bool,
        /// JSON of how it ended.
        ended: Option<String>,
        /// What the machine's host does.
        host: HostState,
    },
    /// A piece of a file.
    Piece {
        /// Its name in the run's folder.
        name: String,
        /// Where it begins.
        at: u64,
        bytes: Vec<u8>,
        /// Length of the whole file.
        length: u64,
    },
    /// A link to something beside it.
    Link {
        /// Its name in the run's folder.
        name: String,
        /// What it leads to.
        target: String,
    },
    /// The last: whether there is more to tell.
    Over {
        /// Whether it has to be asked for again.
        is_more: bool,
    },
}

/// Names of all files that are told: those that only ever grow while the run lives, and the others
/// once it does not. Links have no length.
pub fn names(run: &Path, is_live: bool) -> Vec<String> {
    let mut names = Vec::new();
    collect(run, "", 0, &mut names);
    names.retain(|name| is_told(name, is_live));
    names
}

fn collect(run: &Path, below: &str, depth: usize, names: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(run.join(below)) else { return };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let file_name = entry.file_name();
        let Some(word) = file_name.to_str().filter(|word| is_name(word)) else { continue };
        let name = if below.is_empty() { word.to_owned() } else { format!("{below}/{word}") };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < DEPTH_MAX => {
                collect(run, &name, depth + 1, names);
            }
            Ok(kind) if (kind.is_file() || kind.is_symlink()) && names.len() < FILES_MAX => {
                names.push(name);
            }
            _ => {}
        }
    }
}

/// Whether a file of this name is copied, and may be written here.
fn is_told(name: &str, is_live: bool) -> bool {
    let words: Vec<&str> = name.split('/').collect();
    if !words.iter().all(|word| is_name(word)) || words.len() > DEPTH_MAX + 1 {
        return false;
    }
    match words[..] {
        [file] if file == journal::FILE || file == METRICS => true,
        [folder, log] if folder == LOGS => log.ends_with(".log"),
        ["report.json" | "report.html"] => !is_live,
        [file] => !is_live && file.starts_with("model."),
        ["tensorboard", _] | ["tensorboard", "train" | "validation", _] => !is_live,
        [folder, ..] if folder == CHECKPOINTS => !is_live,
        _ => false,
    }
}

/// Whether a file only ever grows, so that what there is of it can be used.
fn grows(name: &str) -> bool {
    is_told(name, true)
}

/// Tells all that is new, by `say`, in so many bytes; says whether there is more.
pub fn tell(
    run: &Path,
    known: &Known,
    is_live: bool,
    mut say: impl FnMut(Told) -> io::Result<()>,
) -> io::Result<bool> {
    let mut left = BYTES_MAX;
    for name in names(run, is_live) {
        let path = run.join(&name);
        if let Ok(target) = fs::read_link(&path) {
            let target = target.to_string_lossy().into_owned();
            if known.get(&name) != Some(&0) && is_name(&target) {
                say(Told::Link { name, target })?;
            }
            continue;
        }
        let file = match File::open(&path) {
            // Checkpoints come and go.
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            file => file?,
        };
        let length = file.metadata()?.len();
        let mut at = known.get(&name).copied().filter(|at| *at <= length).unwrap_or(0);
        let mut is_untold = !known.contains_key(&name);
        let mut pieces = Outgoing::resume(file, length, at)?;
        while !pieces.is_over() || is_untold {
            if left == 0 {
                return Ok(true);
            }
            let bytes = match pieces.next(PIECE_BYTES.min(left as usize)) {
                // It is another file by now; its next telling begins at its beginning.
                Err(transfer::Fault::Changed) => break,
                bytes => bytes?,
            };
            let read = bytes.len() as u64;
            say(Told::Piece { name: name.clone(), at, bytes, length })?;
            (at, left, is_untold) = (at + read, left - read, false);
        }
    }
    Ok(false)
}

/// How much of which files is here.
pub fn known(run: &Path, is_live: bool) -> Known {
    let mut known = Known::new();
    let length = |path: &Path| fs::symlink_metadata(path).map(|found| found.len());
    for name in names(run, is_live) {
        if let Some(whole) = name.strip_suffix(PART) {
            known.entry(whole.to_owned()).or_insert(length(&run.join(&name)).unwrap_or(0));
        } else if run.join(&name).is_symlink() {
            known.insert(name, 0);
        } else if let Ok(length) = length(&run.join(&name)) {
            known.insert(name, length);
        }
    }
    known
}

/// What was heard of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    /// A process works on it.
    pub is_live: bool,
    /// JSON of how it ended.
    pub ended: Option<String>,
    /// What the host of the machine that tells does.
    pub host: HostState,
    /// Whether there is more to be asked for.
    pub is_more: bool,
}

/// Takes in what was told, into the run's folder here.
pub fn take(run: &Path, mut told: &[u8]) -> io::Result<Heard> {
    let unheard = || io::Error::new(ErrorKind::InvalidData, "what was told is cut off");
    let Some(Told::Run { is_live, ended, host }) = read_message(&mut told)? else {
        return Err(unheard());
    };
    let mut left = BYTES_MAX;
    loop {
        match read_message(&mut told)?.ok_or_else(unheard)? {
            Told::Run { .. } => return Err(unheard()),
            Told::Over { is_more } => return Ok(Heard { is_live, ended, host, is_more }),
            Told::Link { name, target } => take_link(run, &name, &target)?,
            Told::Piece { name, at, bytes, length } => {
                // The machine may have been taken over: it cannot fill this disk in one answer.
                left = left.checked_sub(bytes.len() as u64).ok_or_else(|| {
                    io::Error::new(ErrorKind::InvalidData, "more was told than was asked for")
                })?;
                take_piece(run, &name, (at, length), &bytes)?;
            }
        }
    }
}

/// The path of a file that may be written here, its folder made; no link is at it.
fn place(run: &Path, name: &str) -> io::Result<PathBuf> {
    let path = room(run, name)?;
    if path.is_symlink() {
        let what = format!("`{}` is a link", path.display());
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    Ok(path)
}

/// The same, also where a link is at it.
fn room(run: &Path, name: &str) -> io::Result<PathBuf> {
    if !is_told(name, false) {
        let what = format!("`{name}` is not one of a run's files");
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    let mut folder = run.to_path_buf();
    let words: Vec<&str> = name.split('/').collect();
    for word in &words[..words.len() - 1] {
        folder.push(word);
        match fs::symlink_metadata(&folder) {
            Err(e) if e.kind() == ErrorKind::NotFound => fs::create_dir(&folder)?,
            Err(e) => return Err(e),
            Ok(found) if !found.is_dir() => {
                // Not through a link: it might lead anywhere.
                let what = format!("`{}` is not a folder", folder.display());
                return Err(io::Error::new(ErrorKind::NotADirectory, what));
            }
            Ok(_) => {}
        }
    }
    Ok(run.join(name))
}

fn take_piece(run: &Path, name: &str, (at, length): (u64, u64), bytes: &[u8]) -> io::Result<()> {
    debug_assert!(bytes.len() <= FRAME_BYTES_MAX);
    let path = place(run, name)?;
    let part = PathBuf::from(format!("{}{PART}", path.display()));
    if part.is_symlink() {
        return Err(io::Error::new(ErrorKind::InvalidData, "a part of a file is a link"));
    }
    let end = at.saturating_add(bytes.len() as u64);
    let is_too_much = match grows(name) {
        true => end > GROWING_BYTES_MAX,
        false => length.saturating_sub(at) > free_bytes(run)?,
    };
    if is_too_much {
        let what = format!("`{name}` has more bytes than there is room for here");
        return Err(io::Error::new(ErrorKind::StorageFull, what));
    }
    // What grows has its name from the beginning, and is used as far as it has come.
    let (growing, length) = if grows(name) { (path.clone(), end) } else { (part, length) };
    // From the beginning again where it is another file than it was.
    let mut incoming =
        Incoming::resume(growing, &path, length, at).map_err(|fault| match fault {
            transfer::Fault::Io(e) => e,
            fault => io::Error::new(ErrorKind::InvalidData, format!("`{name}`: {fault}")),
        })?;
    incoming.take(at, bytes)?;
    if !grows(name) && incoming.is_whole() {
        incoming.check()?;
        incoming.keep()?;
    }
    Ok(())
}

/// Free bytes of the disk that holds the run's folder.
fn free_bytes(run: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(run)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn take_link(run: &Path, name: &str, target: &str) -> io::Result<()> {
    if !is_name(target) || !name.starts_with(CHECKPOINTS) {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("`{name}` leads elsewhere")));
    }
    let path = room(run, name)?;
    if path.is_symlink() {
        fs::remove_file(&path)?;
    }
    symlink(target, path)
}

#[cfg(test)]
mod tests;
