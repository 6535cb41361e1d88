//! What a job's machines made: fetched into the run's folder while it runs and at its end.
//!
//! Owns `outputs/` here and knows for each file whose it is. A path found on one machine is
//! `outputs/PATH`; where several have it, that is the preferred machine's, and another's with a
//! different content is `outputs/MACHINE/PATH`. Where another file is there already (a machine may
//! have a folder that is called like another machine), it is `outputs/MACHINE~2/PATH` and so on. A
//! file that takes the place of one from a machine that is gone replaces it; no other is ever
//! overwritten. Never writes outside of its folder: paths that machines send are checked.
//!
//! # Layout
//! - `level`: all machines get the same files
//! - `whole`: which moments of all machines count; `loss`: whether to go back to one; `back`: the newest
//!   is kept, and gone back to

mod back;
mod level;
mod loss;
mod whole;

pub use level::{Back, Levelled, Loss};

use super::send::{Fetched, Sent};
use super::{Bundle, Entry, Hash, Patterns, What, about, is_inside, make_way, set_mtime, size};
use crate::messages::questions::Found;
use crate::provider::{Fault, is_name};
use crate::remote::Remote;
use planaria_store::hash::Hasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use whole::{Look, Moment};

/// While the job runs only files are fetched that were not written for so long.
const STILL_NS: u64 = 2_000_000_000;
/// Space on the disk here that is left to others.
const LEFT_BYTES: u64 = 512 << 20;
/// Notes of one round.
const NOTES_MAX: usize = 20;
/// Where a file is while it is fetched.
const NEW: &str = ".fetching";
/// Beside the folder, where the newest whole set is, by content.
const WHOLE: &str = ".whole";
/// Attempts in one round to list all machines' files at one moment.
const LOOKS_MAX: usize = 3;
/// A file that was fetched so often with nothing but more at its end is a log.
const GROWN_TIMES: u8 = 2;
/// Folders that are tried for a machine's files.
const FOLDERS_MAX: u32 = 1000;

/// A path and a machine: which file it is.
type Key = (String, String);

/// Files of `outputs`, brought here from the machines.
pub struct Outputs {
    folder: PathBuf,
    patterns: Patterns,
    /// By path and machine, what was fetched.
    held: BTreeMap<Key, Held>,
    /// Where those are, in the folder.
    places: BTreeSet<String>,
    /// By path, whose file has that name here.
    owners: BTreeMap<String, String>,
    left_bytes: u64,
    /// Files that were being written the last time, by path and machine.
    busy: BTreeSet<Key>,
    whole: back::Whole,
}

#[derive(Debug, Clone)]
struct Held {
    bytes: u64,
    mtime_ns: i64,
    hash: Hash,
    /// In the folder; nothing where it is the same as the owner's.
    place: Option<String>,
    /// Fetches in a row in which it had only grown at its end.
    grown_times: u8,
}

/// What a round brought.
#[derive(Debug, Default)]
pub struct Round {
    /// Files that were fetched, by where they are in the folder.
    pub fetched: Vec<String>,
    pub bytes: u64,
    /// Files that match, on all machines together, also those fetched before.
    pub matched: usize,
    /// Files that are being written, and come in a later round.
    pub unsettled: usize,
    /// Files that there was no space for.
    pub unfetched: usize,
    /// What could not be kept, in words.
    pub notes: Vec<String>,
    /// Machines that did not answer.
    pub faults: Vec<Fault>,
}

impl Outputs {
    /// Nothing was fetched yet. The folder is made when something is.
    pub fn new(folder: &Path, patterns: Patterns) -> Self {
        let folder = folder.to_path_buf();
        let (held, places, owners) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let (busy, whole) = (BTreeSet::new(), back::Whole::default());
        Self { folder, patterns, held, places, owners, left_bytes: LEFT_BYTES, busy, whole }
    }

    /// Fetches what is new from machines by name, the preferred first; `is_last` also what was
    /// written a moment ago. `now` is the time here, by one clock for all rounds.
    pub fn round(
        &mut self,
        machines: &[(&str, &Remote)],
        is_last: bool,
        now: &dyn Fn() -> Duration,
    ) -> Round {
        let mut round = Round::default();
        let mut looks = self.look(machines, now, &mut round);
        self.whole.saw(&looks, !is_last);
        round.matched = looks.iter().map(|look| look.files.len()).sum();
        for look in looks.iter().filter(|look| look.is_cut) {
            let (machine, most) = (&look.machine, super::find::FOUND_MAX);
            round.note(format!(
                "{machine}: more than {most} files match `outputs`; only some are fetched"
            ));
        }
        let takes_all = is_last || self.moment(&looks) == Moment::Quiet;
        self.take(machines, &looks, takes_all, &mut round);
        // What one machine has alone is at one moment as soon as it was fetched.
        for _ in 0..if is_last || machines.len() < 2 { 0 } else { LOOKS_MAX } {
            let has_all = looks.len() == machines.len() && round.faults.is_empty();
            if !has_all || !self.is_worth_another(&looks) {
                break;
            }
            let again = self.look(machines, now, &mut round);
            self.whole.saw(&again, true);
            if self.keep_whole(&looks, &again) || self.moment(&again) != Moment::Quiet {
                break;
            }
            self.take(machines, &again, true, &mut round);
            looks = again;
        }
        let _ = fs::remove_file(self.folder.join(NEW));
        round
    }

    /// The newest whole set is not needed any more.
    pub fn end(&mut self) {
        self.whole = back::Whole::default();
        let _ = fs::remove_dir_all(self.whole_folder());
    }

    /// Number of files that are held.
    pub fn files(&self) -> usize {
        self.places.len()
    }

    /// Gives a machine what it does not have of all that was fetched: its own, where it had such a
    /// file, else the preferred machine's.
    pub fn give_back(&self, machine: &str, remote: &Remote) -> Result<Sent, Fault> {
        let mut bundle = Bundle::default();
        for (path, owner) in &self.owners {
            let held_by = |name: &str| self.held.get(&(path.clone(), name.to_owned()));
            let own = held_by(machine).filter(|held| held.place.is_some());
            let Some(held) = own.or_else(|| held_by(owner)) else { continue };
            let Some(place) = &held.place else { continue };
            let what = What::File { hash: held.hash, bytes: held.bytes };
            let mtime_ns = Some(held.mtime_ns);
            bundle.entries.push(Entry { path: path.clone(), mode: 0o644, mtime_ns, what });
            let source = (self.folder.join(place), held.bytes);
            bundle.sources.entry(held.hash).or_insert(source);
        }
        remote.supply(&bundle)
    }

    /// Asks machines what they have; those that do not answer are faults.
    fn look(
        &self,
        machines: &[(&str, &Remote)],
        now: &dyn Fn() -> Duration,
        round: &mut Round,
    ) -> Vec<Look> {
        let mut looks = Vec::new();
        for (at, (name, remote)) in machines.iter().enumerate() {
            if !is_name(name) {
                round.note(format!("`{name}` cannot be the name of a folder"));
                continue;
            }
            let asked_ns = now().as_nanos() as i128;
            match remote.find(&self.patterns) {
                Ok((files, is_cut)) => {
                    let answered_ns = now().as_nanos() as i128;
                    let (machine, session) = ((*name).to_owned(), remote.session());
                    let look = Look { at, machine, session, asked_ns, answered_ns, files, is_cut };
                    looks.push(look);
                }
                Err(fault) => round.faults.push(fault),
            }
        }
        looks
    }

    /// Fetches what is new of what was found; all of it, or only what is not being written.
    fn take(
        &mut self,
        machines: &[(&str, &Remote)],
        looks: &[Look],
        takes_all: bool,
        round: &mut Round,
    ) {
        let names: Vec<&str> = machines.iter().map(|(name, _)| *name).collect();
        for look in looks {
            let remote = machines[look.at].1;
            if let Err(fault) = self.fetch_from(look, remote, &names, takes_all, round) {
                round.faults.push(fault);
            }
        }
    }

    fn fetch_from(
        &mut self,
        look: &Look,
        remote: &Remote,
        names: &[&str],
        takes_all: bool,
        round: &mut Round,
    ) -> Result<(), Fault> {
        let machine = &look.machine;
        for file in &look.files {
            let key = (file.path.clone(), machine.clone());
            let known = self.held.get(&key);
            if known.is_some_and(|held| (held.bytes, held.mtime_ns) == (file.bytes, file.mtime_ns))
            {
                continue;
            }
            // One that is written all the time is taken as it is at a moment, if it does not change
            // while it is read: better than nothing, should its machine be lost.
            let is_busy = self.busy.contains(&key);
            if !takes_all && file.age_ns < STILL_NS && !is_busy {
                round.unsettled += 1;
                self.busy.insert(key);
                continue;
            }
            self.busy.remove(&key);
            if !is_inside(&file.path) {
                round.note(format!("{machine}: `{}` is no name for a file here", file.path));
                continue;
            }
            let before = self.held.get(&key).map(|held| (held.bytes, held.hash));
            match self.fetch(remote, file, before, round)? {
                Some(came) => self.keep(key, file, came, names, round),
                None => continue,
            }
        }
        Ok(())
    }

    /// Fetches a file to where it is renamed from; nothing where it could not be.
    fn fetch(
        &self,
        remote: &Remote,
        file: &Found,
        before: Option<(u64, Hash)>,
        round: &mut Round,
    ) -> Result<Option<Came>, Fault> {
        let new = self.folder.join(NEW);
        let made = fs::create_dir_all(&self.folder).and_then(|()| File::create(&new));
        let kept = match made {
            Err(e) => Err(e),
            Ok(_) if file.bytes.saturating_add(self.left_bytes) > free_bytes(&self.folder) => {
                round.unfetched += 1;
                round.note(format!(
                    "`{}` ({}) was not fetched from {}: `{}` has too little space left",
                    file.path,
                    size(file.bytes),
                    remote.machine(),
                    self.folder.display()
                ));
                return Ok(None);
            }
            Ok(kept) => {
                let mut sink = Sink::new(kept, before);
                match remote.fetch(file, &mut sink)? {
                    Fetched::Whole => set_mtime(&sink.file, file.mtime_ns).map(|()| sink.came()),
                    Fetched::Unkept(e) => Err(e),
                    Fetched::Changed => {
                        round.unsettled += 1;
                        return Ok(None);
                    }
                }
            }
        };
        Ok(kept.map_err(|e| round.note(about(&self.folder.join(&file.path), &e).to_string())).ok())
    }

    /// Puts a fetched file where it belongs.
    fn keep(&mut self, key: Key, file: &Found, came: Came, names: &[&str], round: &mut Round) {
        let Came { hash, has_grown } = came;
        let before = self.held.get(&key).filter(|_| has_grown);
        let grown_times = before.map_or(0, |held| held.grown_times.saturating_add(1));
        let (bytes, mtime_ns) = (file.bytes, file.mtime_ns);
        let held = Held { bytes, mtime_ns, hash, place: None, grown_times };
        if let Some(place) = self.inherits(&key, hash, names) {
            self.remove_own(&key);
            self.owners.insert(key.0.clone(), key.1.clone());
            self.hold(key, Held { place: Some(place), ..held });
            return;
        }
        let Settled { place, owns } = match self.settle(&key, hash, names) {
            Ok(settled) => settled,
            Err(e) => return round.note(e.to_string()),
        };
        match &place {
            Some(place) => {
                if let Err(e) = self.move_in(place) {
                    return round.note(e.to_string());
                }
                round.fetched.push(place.clone());
                round.bytes += file.bytes;
            }
            None => self.remove_own(&key),
        }
        if owns {
            self.own(&key, hash);
        }
        self.hold(key, Held { place, ..held });
    }

    /// Where the file is, where a machine is preferred to one that had the same: then that is its own
    /// from now on, and the other has the same as it.
    fn inherits(&mut self, key: &Key, hash: Hash, names: &[&str]) -> Option<String> {
        let rank = |name: &str| names.iter().position(|known| *known == name);
        let (path, machine) = key;
        let owner = self.owners.get(path).filter(|owner| *owner != machine)?;
        let is_preferred = rank(owner).is_none_or(|that| rank(machine) < Some(that));
        let held = self.held.get_mut(&(path.clone(), owner.clone()));
        held.filter(|held| held.hash == hash && is_preferred)?.place.take()
    }

    /// Where a machine's file goes; nowhere where the owner's is the same.
    fn settle(&mut self, key: &Key, hash: Hash, names: &[&str]) -> io::Result<Settled> {
        let rank = |name: &str| names.iter().position(|known| *known == name);
        let (path, machine) = key;
        let own = self.held.get(key).and_then(|held| held.place.clone());
        let Some(owner) = self.owners.get(path).cloned().filter(|owner| owner != machine) else {
            let place = own.map_or_else(|| self.free_place(key, true), Ok)?;
            return Ok(Settled { place: Some(place), owns: true });
        };
        let owned_by = (path.clone(), owner.clone());
        let owned = self.held.get(&owned_by).cloned();
        if owned.as_ref().is_some_and(|owned| owned.hash == hash) {
            return Ok(Settled { place: None, owns: false });
        }
        let is_preferred = match (rank(machine), rank(&owner)) {
            // Its successor's, unless the two had been told apart before.
            (_, None) => own.is_none(),
            (Some(this), Some(that)) => this < that,
            (None, Some(_)) => false,
        };
        if !is_preferred {
            let place = own.map_or_else(|| self.free_place(key, false), Ok)?;
            return Ok(Settled { place: Some(place), owns: false });
        }
        let former = owned.and_then(|owned| owned.place);
        let Some(place) = former else {
            let place = self.free_place(key, true)?;
            return Ok(Settled { place: Some(place), owns: true });
        };
        if rank(&owner).is_some() {
            let apart = self.free_place(&owned_by, false)?;
            let to = make_way(&self.folder, &apart)?;
            fs::rename(self.folder.join(&place), &to).map_err(|e| about(&to, &e))?;
            self.places.insert(apart.clone());
            if let Some(held) = self.held.get_mut(&owned_by) {
                held.place = Some(apart);
            }
        } else {
            self.held.remove(&owned_by);
        }
        self.remove_own(key);
        Ok(Settled { place: Some(place), owns: true })
    }

    /// A place for a file at which there is no other, and no folder of others: its path where it may
    /// have that, else in a folder that is called like its machine.
    fn free_place(&self, (path, machine): &Key, may_own: bool) -> io::Result<String> {
        let apart = (1..=FOLDERS_MAX).map(|number| match number {
            1 => format!("{machine}/{path}"),
            _ => format!("{machine}~{number}/{path}"),
        });
        let mut places = may_own.then(|| path.clone()).into_iter().chain(apart);
        let taken =
            || io::Error::other(format!("there is no place left for `{path}` of {machine}"));
        places.find(|place| self.is_free(place)).ok_or_else(taken)
    }

    fn is_free(&self, place: &str) -> bool {
        let above = place.match_indices('/').map(|(end, _)| &place[..end]);
        let is_taken = |name: &str| name == NEW || self.places.contains(name);
        let below = format!("{place}/");
        let next = self.places.range(below.clone()..).next();
        !above.chain([place]).any(is_taken) && next.is_none_or(|next| !next.starts_with(&below))
    }

    fn hold(&mut self, key: Key, held: Held) {
        self.places.extend(held.place.clone());
        self.held.insert(key, held);
    }

    fn move_in(&self, place: &str) -> io::Result<()> {
        let to = make_way(&self.folder, place)?;
        if fs::symlink_metadata(&to).is_ok_and(|meta| meta.is_dir()) {
            let what = format!("`{}` is a folder, and a file of that name came", to.display());
            return Err(io::Error::other(what));
        }
        fs::rename(self.folder.join(NEW), &to).map_err(|e| about(&to, &e))
    }

    /// A machine's file has the path's name now. Others that had the same as was there before are
    /// looked at again.
    fn own(&mut self, (path, machine): &Key, hash: Hash) {
        self.owners.insert(path.clone(), machine.clone());
        let first = (path.clone(), String::new());
        let others: BTreeSet<Key> = self
            .held
            .range(first..)
            .take_while(|((of, _), _)| of == path)
            .filter(|(_, held)| held.place.is_none() && held.hash != hash)
            .map(|(key, _)| key.clone())
            .collect();
        for key in others {
            self.held.remove(&key);
        }
    }

    /// A machine's file that was kept apart is not needed any more.
    fn remove_own(&mut self, key: &Key) {
        if let Some(place) = self.held.get_mut(key).and_then(|held| held.place.take()) {
            self.places.remove(&place);
            let _ = fs::remove_file(self.folder.join(place));
        }
    }
}

/// Where a file goes.
struct Settled {
    /// Nowhere where the owner's is the same.
    place: Option<String>,
    /// Whether it has the path's name from now on.
    owns: bool,
}

impl Round {
    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }
}

/// What was fetched of a file.
struct Came {
    hash: Hash,
    /// Whether it is what was held before, and more.
    has_grown: bool,
}

/// A file that is hashed as it is written.
struct Sink {
    file: File,
    hash: Hasher,
    bytes: u64,
    /// What was held before: how long that is, and its hash.
    before: Option<(u64, Hash)>,
    has_grown: bool,
}

impl Sink {
    fn new(file: File, before: Option<(u64, Hash)>) -> Self {
        Self { file, hash: Hasher::new(), bytes: 0, before, has_grown: false }
    }

    fn came(self) -> Came {
        Came { hash: self.hash.finish(), has_grown: self.has_grown }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        let mut bytes = &bytes[..written];
        if let Some((length, hash)) = self.before
            && length > 0
            && (self.bytes..self.bytes + written as u64).contains(&length)
        {
            let (first, rest) = bytes.split_at((length - self.bytes) as usize);
            self.hash.update(first);
            self.has_grown = self.hash.clone().finish() == hash;
            bytes = rest;
        }
        self.hash.update(bytes);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Free space on a folder's disk; no bound where it cannot be told.
fn free_bytes(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}
