//! The newest whole set is kept here, and machines go back to it.
//!
//! Owns `.whole/HASH` beside the folder of outputs: links to contents, of one set and no other. A file
//! is replaced by renaming, so a link keeps what it was.

use super::loss::{Known, Seen, Verdict, decide, gone};
use super::whole::{self, Laid, Look, Member, Moment, Set};
use super::{Bundle, GROWN_TIMES, Hash, Held, Key, NEW, Outputs, WHOLE, What, about, make_way};
use planaria_store::hash::hex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;

/// What is known of all machines together.
#[derive(Debug, Default)]
pub(super) struct Whole {
    /// The newest whole set.
    set: Option<Set>,
    /// What machines were given the last time, and have not written since.
    laid: Laid,
    /// What was last seen of each machine since then.
    seen: BTreeMap<String, Seen>,
}

impl Whole {
    /// Machines were looked at, while processes run there: one that is new has none yet.
    pub(super) fn saw(&mut self, looks: &[Look], are_running: bool) {
        for look in looks {
            let paths: BTreeSet<String> = look.files.iter().map(|file| file.path.clone()).collect();
            self.laid.retain(|(path, _), _| !paths.contains(path));
            match self.seen.get_mut(&look.machine) {
                // One that came again is another: what the former had is what is asked about.
                Some(seen) if seen.session != look.session => {}
                Some(seen) => seen.paths = paths,
                None if are_running => {
                    let seen = Seen { session: look.session, paths };
                    self.seen.insert(look.machine.clone(), seen);
                }
                None => {}
            }
        }
    }

    /// When the set was had, by the clock here.
    pub(super) fn at_ns(&self) -> Option<i128> {
        self.set.as_ref().map(|set| set.at_ns)
    }
}

/// What machines are given in place of what they have.
pub(super) struct Return {
    /// Files of the set.
    pub(super) paths: BTreeSet<String>,
    /// Files that are newer than the set, and are taken off.
    pub(super) newer: Vec<String>,
    /// Files that are not those of the set.
    pub(super) replaced: usize,
}

impl Outputs {
    pub(super) fn whole_folder(&self) -> PathBuf {
        self.folder.with_file_name(WHOLE)
    }

    /// Whether a file only grows.
    pub(super) fn is_log(&self, path: &str) -> bool {
        self.held_of(path).any(|(_, held)| held.grown_times >= GROWN_TIMES)
    }

    /// What is held of a path, by machine.
    fn held_of(&self, path: &str) -> impl Iterator<Item = (&Key, &Held)> {
        let all = self.held.range((path.to_owned(), String::new())..);
        all.take_while(move |((of, _), _)| of == path)
    }

    /// What the times of files say of a moment.
    pub(super) fn moment(&self, looks: &[Look]) -> Moment {
        whole::moment(looks, &self.whole.laid, &|path| self.is_log(path))
    }

    /// Keeps what machines have as the newest whole set, if it is one: all of it is held, and it was the
    /// same at both looks. Says whether it is.
    pub(super) fn keep_whole(&mut self, one: &[Look], other: &[Look]) -> bool {
        if !whole::is_same(one, other, &|path| self.is_log(path)) {
            return false;
        }
        let Some(set) = self.set_of(other) else { return false };
        let sources: BTreeMap<Hash, PathBuf> =
            set.files.keys().filter_map(|key| self.content(key)).collect();
        self.keep_set(set, &sources);
        true
    }

    /// Whether a second look at machines may give a newer set: not where they still have the one that is
    /// kept, nor where no file is a part and some are still being written.
    pub(super) fn is_worth_another(&mut self, looks: &[Look]) -> bool {
        let Some(set) = self.set_of(looks) else { return self.moment(looks) != Moment::Plain };
        let kept = self.whole.set.as_mut().filter(|kept| kept.has_files_of(&set));
        kept.map(|kept| kept.at_ns = set.at_ns).is_none()
    }

    /// The set that a look gives, if machines had it at one moment and all of it is held.
    fn set_of(&self, looks: &[Look]) -> Option<Set> {
        if self.moment(looks) == Moment::Torn {
            return None;
        }
        let held = |key: &Key| {
            let Held { hash, bytes, mtime_ns, .. } = *self.held.get(key)?;
            Some(Member { hash, bytes, mtime_ns, written_ns: 0 })
        };
        let before = self.whole.set.as_ref();
        whole::whole(before, &self.whole.laid, looks, &held, &|path| self.is_log(path))
    }

    /// The hash of a machine's file, and where its content is.
    fn content(&self, key: &Key) -> Option<(Hash, PathBuf)> {
        let held = self.held.get(key)?;
        let place = match &held.place {
            Some(place) => place,
            None => {
                let owner = self.owners.get(&key.0)?;
                let owned = self.held.get(&(key.0.clone(), owner.clone()))?;
                owned.place.as_ref().filter(|_| owned.hash == held.hash)?
            }
        };
        Some((held.hash, self.folder.join(place)))
    }

    /// Keeps the contents of a set and no others. Where they cannot be kept there is no newer set.
    fn keep_set(&mut self, set: Set, sources: &BTreeMap<Hash, PathBuf>) {
        if let Some(known) = self.whole.set.as_mut().filter(|known| known.has_files_of(&set)) {
            known.at_ns = set.at_ns;
            return;
        }
        let folder = self.whole_folder();
        let hashes: BTreeSet<Hash> = set.files.values().map(|member| member.hash).collect();
        let keep = |hash: &Hash| {
            let to = folder.join(hex(hash));
            if fs::symlink_metadata(&to).is_ok() {
                return Ok(());
            }
            let from = sources.get(hash).ok_or(io::ErrorKind::NotFound)?;
            fs::create_dir_all(&folder)?;
            fs::hard_link(from, &to).or_else(|_| fs::copy(from, &to).map(drop))
        };
        if hashes.iter().try_for_each(keep).is_err() {
            return;
        }
        let names: BTreeSet<String> = hashes.iter().map(|hash| hex(hash)).collect();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if !entry.file_name().to_str().is_some_and(|name| names.contains(name)) {
                let _ = fs::remove_file(entry.path());
            }
        }
        self.whole.set = Some(set);
    }

    /// What machines that are gone mean for the files of those that are here.
    pub(super) fn verdict(&self, looks: &[Look]) -> Verdict {
        decide(&self.known(looks, &|key| Some(self.held.get(key)?.hash), &|path| self.is_log(path)))
    }

    fn known<'a>(
        &'a self,
        looks: &'a [Look],
        held: &'a dyn Fn(&Key) -> Option<Hash>,
        is_log: &'a dyn Fn(&str) -> bool,
    ) -> Known<'a> {
        Known { set: self.whole.set.as_ref(), seen: &self.whole.seen, looks, held, is_log }
    }

    /// Has the files of the set under their names, as `chosen` by path and machine; what had them, and
    /// what is newer, is kept apart.
    pub(super) fn go_back(
        &mut self,
        looks: &[Look],
        chosen: &BTreeMap<String, String>,
    ) -> io::Result<Return> {
        let set = self.whole.set.clone().unwrap_or_default();
        let mut replaced = 0;
        for (path, machine) in chosen {
            if let Some(member) = set.files.get(&(path.clone(), machine.clone())) {
                replaced += usize::from(self.reinstate(path, machine, member)?);
            }
        }
        let found = looks.iter().flat_map(|look| look.files.iter().map(|file| &file.path));
        let seen = self.whole.seen.values().flat_map(|seen| &seen.paths);
        let newer: BTreeSet<String> = found.chain(seen).cloned().collect();
        let is_newer = |path: &String| !chosen.contains_key(path) && !self.is_log(path);
        let newer: Vec<String> = newer.into_iter().filter(is_newer).collect();
        newer.iter().try_for_each(|path| self.withdraw(path))?;
        let _ = fs::remove_file(self.folder.join(NEW));
        Ok(Return { paths: chosen.keys().cloned().collect(), newer, replaced })
    }

    /// Versions of the set's files, logs aside: path, machine, when written and content.
    pub(super) fn set_versions(&self) -> Vec<(String, String, i128, Hash)> {
        let files = self.whole.set.iter().flat_map(|set| &set.files);
        let files = files.filter(|((path, _), _)| !self.is_log(path));
        let version = |(key, member): (&Key, &Member)| {
            (key.0.clone(), key.1.clone(), member.written_ns, member.hash)
        };
        files.map(version).collect()
    }

    /// A file of the set has its name again. Says whether another had it.
    fn reinstate(&mut self, path: &str, machine: &str, member: &Member) -> io::Result<bool> {
        let owner = self.owners.get(path).cloned().unwrap_or_default();
        let owned = self.held.get(&(path.to_owned(), owner));
        if owned.is_some_and(|held| held.hash == member.hash && held.place.is_some()) {
            return Ok(false);
        }
        self.withdraw(path)?;
        let key = (path.to_owned(), machine.to_owned());
        let place = self.free_place(&key, true)?;
        let (kept, new) = (self.whole_folder().join(hex(&member.hash)), self.folder.join(NEW));
        let _ = fs::remove_file(&new);
        let linked = fs::hard_link(&kept, &new).or_else(|_| fs::copy(&kept, &new).map(drop));
        linked.map_err(|e| about(&new, &e))?;
        self.move_in(&place)?;
        self.owners.insert(path.to_owned(), machine.to_owned());
        let Member { hash, bytes, mtime_ns, .. } = *member;
        self.hold(key, Held { bytes, mtime_ns, hash, place: Some(place), grown_times: 0 });
        Ok(true)
    }

    /// A path's file is kept apart, and is not given to machines any more.
    fn withdraw(&mut self, path: &str) -> io::Result<()> {
        if let Some(owner) = self.owners.remove(path) {
            let key = (path.to_owned(), owner);
            let place = self.held.get(&key).and_then(|held| held.place.clone());
            if let Some(place) = place.filter(|place| place == path) {
                let apart = self.free_place(&key, false)?;
                let to = make_way(&self.folder, &apart)?;
                fs::rename(self.folder.join(&place), &to).map_err(|e| about(&to, &e))?;
                self.places.remove(&place);
                self.places.insert(apart);
            }
        }
        let keys: Vec<Key> = self.held_of(path).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| drop(self.held.remove(key)));
        Ok(())
    }

    /// All machines have what they were given: that is the newest whole set from now on.
    pub(super) fn settled(&mut self, bundle: &Bundle, looks: &[Look], at_ns: i128) {
        let machines: BTreeMap<String, u64> =
            looks.iter().map(|look| (look.machine.clone(), look.session)).collect();
        let replacements = self.replacements(looks);
        let mut files = BTreeMap::new();
        for entry in bundle.entries.iter().filter(|entry| !self.is_log(&entry.path)) {
            let What::File { hash, bytes } = entry.what else { continue };
            let mtime_ns = entry.mtime_ns.unwrap_or_default();
            let member = Member { hash, bytes, mtime_ns, written_ns: at_ns };
            let writers = self.writers(&entry.path, looks);
            let names: Vec<&String> = match writers.len() {
                // What several wrote all have, also those that are new.
                2.. => machines.keys().collect(),
                _ => writers.iter().map(|name| replacements.get(name).unwrap_or(name)).collect(),
            };
            for name in names {
                files.insert((entry.path.clone(), name.clone()), member.clone());
            }
        }
        let sources =
            bundle.sources.iter().map(|(hash, (path, _))| (*hash, path.clone())).collect();
        let seen = |look: &Look| {
            (look.machine.clone(), Seen { session: look.session, paths: BTreeSet::new() })
        };
        self.whole.seen = looks.iter().map(seen).collect();
        self.whole.laid = files.clone();
        self.whole.set = None;
        self.keep_set(Set { files, machines, at_ns }, &sources);
    }

    /// Machines that made a path's file.
    fn writers(&self, path: &str, looks: &[Look]) -> Vec<String> {
        let has =
            |look: &&Look| look.files.binary_search_by(|file| file.path.as_str().cmp(path)).is_ok();
        let found: Vec<String> =
            looks.iter().filter(has).map(|look| look.machine.clone()).collect();
        let in_set = || {
            let set = self.whole.set.as_ref()?;
            let with = set.machines_with(path);
            (!with.is_empty()).then(|| with.into_iter().map(str::to_owned).collect())
        };
        match found.is_empty() {
            false => found,
            true => {
                in_set().unwrap_or_else(|| self.owners.get(path).cloned().into_iter().collect())
            }
        }
    }

    /// Which machine goes on with the files of each that is gone: one that is new, or else another.
    fn replacements(&self, looks: &[Look]) -> BTreeMap<String, String> {
        let known = self.known(looks, &|_| None, &|_| false);
        let gone = gone(&known);
        let is_new = |look: &&Look| {
            self.whole.seen.get(&look.machine).is_none_or(|seen| seen.session != look.session)
        };
        let new: Vec<&Look> = looks.iter().filter(is_new).collect();
        let replacements = if new.is_empty() { looks.iter().collect() } else { new };
        let named = gone.iter().zip(replacements.iter().cycle());
        named.map(|(gone, replacement)| ((*gone).to_owned(), replacement.machine.clone())).collect()
    }
}
