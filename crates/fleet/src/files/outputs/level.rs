//! All machines get the same files before processes that train together start again.
//!
//! Owns which version of a file counts where machines have different ones. They stay a whole set: all
//! of them are those of one machine, the one that wrote last. Nothing may run on the machines meanwhile.

use super::{Bundle, Entry, Hash, Outputs, What, about, make_way};
use crate::provider::Fault;
use crate::remote::Remote;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::time::Duration;

/// What levelling did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Levelled {
    /// The machine whose files the others got, where they had different ones.
    pub from: Option<String>,
    /// Files that machines had different versions of.
    pub differed: usize,
    /// Contents that were sent, to all machines together.
    pub contents_sent: usize,
}

/// A file as one machine has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    path: String,
    /// Place of the machine among all.
    machine: usize,
    /// When it was written, by the controller's clock: those of machines may differ.
    written_ns: i128,
    hash: Hash,
}

/// Whose version of each file all machines get.
#[derive(Debug, Default, PartialEq, Eq)]
struct Choice {
    /// The machine that wrote last, where versions differ.
    leader: Option<usize>,
    differed: usize,
    by_path: BTreeMap<String, usize>,
}

impl Outputs {
    /// Gives all machines the same files: of those that machines have different versions of, all are
    /// the versions of the machine that wrote one of them last; a file that no machine has any more is
    /// the one that was fetched. The preferred machine is the first. `now` is the time here.
    pub fn level(
        &mut self,
        machines: &[(&str, &Remote)],
        now: &dyn Fn() -> Duration,
    ) -> Result<Levelled, Fault> {
        let round = self.round(machines, true);
        if let Some(fault) = round.faults.into_iter().next() {
            return Err(fault);
        }
        if round.unfetched > 0 {
            let what = round.notes.join("; ");
            let hint = "make room here: what one machine made goes to the others through this one";
            return Err(Fault::fix("here", what, hint));
        }
        if round.unsettled > 0 {
            return Err(Fault::retry("here", "outputs change though nothing of the job runs"));
        }
        let mut versions = Vec::new();
        for (machine, (name, remote)) in machines.iter().enumerate() {
            let asked = now();
            let (found, _) = remote.find(&self.patterns)?;
            for file in found {
                // One that cannot be kept here was told of.
                let Some(held) = self.held.get(&(file.path.clone(), (*name).to_owned())) else {
                    continue;
                };
                if (held.bytes, held.mtime_ns) != (file.bytes, file.mtime_ns) {
                    let what = format!("`{}` changes though nothing of the job runs", file.path);
                    return Err(Fault::retry(*name, what));
                }
                let written_ns = asked.as_nanos() as i128 - i128::from(file.age_ns);
                versions.push(Version { path: file.path, machine, written_ns, hash: held.hash });
            }
        }
        let choice = choose(&versions);
        for (path, machine) in &choice.by_path {
            let name = machines[*machine].0;
            self.promote(path, name).map_err(|e| {
                Fault::fix("here", e.to_string(), "check the run's folder: is it writable?")
            })?;
        }
        let bundle = self.owned();
        let mut contents_sent = 0;
        for (_, remote) in machines {
            contents_sent += remote.replace(&bundle)?.contents_sent;
        }
        let from = choice.leader.map(|machine| machines[machine].0.to_owned());
        Ok(Levelled { from, differed: choice.differed, contents_sent })
    }

    /// The owner's file, for each path.
    fn owned(&self) -> Bundle {
        let mut bundle = Bundle::default();
        for (path, owner) in &self.owners {
            let Some(held) = self.held.get(&(path.clone(), owner.clone())) else { continue };
            let Some(place) = &held.place else { continue };
            let what = What::File { hash: held.hash, bytes: held.bytes };
            let mtime_ns = Some(held.mtime_ns);
            bundle.entries.push(Entry { path: path.clone(), mode: 0o644, mtime_ns, what });
            bundle.sources.entry(held.hash).or_insert((self.folder.join(place), held.bytes));
        }
        bundle
    }

    /// A machine's version has the path's name from now on; what had it is kept apart.
    fn promote(&mut self, path: &str, machine: &str) -> io::Result<()> {
        let own = (path.to_owned(), machine.to_owned());
        let Some(owner) = self.owners.get(path).filter(|owner| *owner != machine) else {
            return Ok(());
        };
        let owned = (path.to_owned(), owner.clone());
        let place_of = |key| self.held.get(key).and_then(|held| held.place.clone());
        let (Some(apart), Some(place)) = (place_of(&own), place_of(&owned)) else { return Ok(()) };
        let moved = self.free_place(&owned, false)?;
        let (from, to) = (self.folder.join(&place), make_way(&self.folder, &moved)?);
        fs::rename(&from, &to).map_err(|e| about(&to, &e))?;
        fs::rename(self.folder.join(&apart), &from).map_err(|e| about(&from, &e))?;
        self.places.remove(&apart);
        self.places.insert(moved.clone());
        if let Some(held) = self.held.get_mut(&owned) {
            held.place = Some(moved);
        }
        if let Some(held) = self.held.get_mut(&own) {
            held.place = Some(place);
            let hash = held.hash;
            self.own(&own, hash);
        }
        Ok(())
    }
}

/// Whose version of each file counts. Where versions differ, a set of one machine is whole and a mix is
/// not: a model of one epoch and the optimizer of another would train on without a word.
fn choose(versions: &[Version]) -> Choice {
    let mut by_path: BTreeMap<&str, Vec<&Version>> = BTreeMap::new();
    for version in versions {
        by_path.entry(&version.path).or_default().push(version);
    }
    let differs =
        |of: &&Vec<&Version>| of.iter().map(|v| v.hash).collect::<BTreeSet<_>>().len() > 1;
    let newest = |of: &mut dyn Iterator<Item = &Version>| {
        let last = of.max_by_key(|v| (v.written_ns, std::cmp::Reverse(v.machine)));
        last.map(|version| version.machine)
    };
    let leader = newest(&mut by_path.values().filter(differs).flatten().copied());
    let differed = by_path.values().filter(differs).count();
    let chosen = by_path.iter().filter_map(|(path, of)| {
        let is_leader = |v: &&&Version| Some(v.machine) == leader;
        let machine = match of.iter().find(is_leader) {
            Some(version) => version.machine,
            None => newest(&mut of.iter().copied())?,
        };
        Some(((*path).to_owned(), machine))
    });
    Choice { leader, differed, by_path: chosen.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `MACHINE PATH CONTENT WRITTEN`, one after another; whose each path is then.
    #[track_caller]
    fn check(
        versions: &[(usize, &str, u8, i128)],
        leader: Option<usize>,
        expect: &[(&str, usize)],
    ) {
        let version = |&(machine, path, content, written_ns): &(usize, &str, u8, i128)| Version {
            path: path.to_owned(),
            machine,
            written_ns,
            hash: [content; 32],
        };
        let choice = choose(&versions.iter().map(version).collect::<Vec<_>>());
        let by_path: Vec<(&str, usize)> =
            choice.by_path.iter().map(|(path, machine)| (path.as_str(), *machine)).collect();
        assert_eq!((choice.leader, by_path), (leader, expect.to_vec()), "{versions:?}");
    }

    #[test]
    fn a_whole_set_is_chosen() {
        check(&[], None, &[]);
        // The same content everywhere, and files of one machine alone, are in no one's way.
        check(&[(0, "a", 1, 5), (1, "a", 1, 9), (1, "b", 2, 3)], None, &[("a", 1), ("b", 1)]);
        check(&[(0, "ckpt", 30, 5), (1, "ckpt", 40, 9)], Some(1), &[("ckpt", 1)]);
        // The second wrote the model last; its optimizer goes with it, though the first's is newer.
        let torn = [(0, "model", 1, 5), (0, "optim", 1, 8), (1, "model", 2, 9), (1, "optim", 2, 7)];
        check(&torn, Some(1), &[("model", 1), ("optim", 1)]);
        // What the leader does not have is the newest of the others.
        let three =
            [(0, "a", 1, 9), (1, "a", 2, 5), (1, "b", 3, 1), (2, "b", 4, 2), (2, "c", 5, 1)];
        check(&three, Some(0), &[("a", 0), ("b", 2), ("c", 2)]);
        // At the same moment, the first machine.
        check(&[(0, "a", 1, 5), (1, "a", 2, 5)], Some(0), &[("a", 0)]);
    }
}
