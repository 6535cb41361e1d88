//! All machines get the same files before processes that train together start again.
//!
//! Owns which version of a file counts where machines have different ones. They stay a whole set: all
//! of them are those of one machine, the one that wrote last. Where a machine is lost with files of its
//! own, they are the newest whole set of all machines. Nothing may run on the machines meanwhile.

use super::loss::{Lost, Verdict};
use super::whole::Look;
use super::{Bundle, Entry, Hash, Outputs, Round, What, about, make_way};
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
    /// Where a machine was lost with files of its own that others have the like of.
    pub loss: Option<Loss>,
}

/// What a lost machine means for the files of all.
#[derive(Debug, PartialEq, Eq)]
pub struct Loss {
    /// By machine, files that were its own.
    pub lost: BTreeMap<String, Vec<String>>,
    /// The set that all go on from; nothing where there is none.
    pub back: Option<Back>,
}

/// A set that machines went back to.
#[derive(Debug, PartialEq, Eq)]
pub struct Back {
    /// How long ago machines had it.
    pub age: Duration,
    /// Files that were replaced by older ones, and that were taken off, as they were newer.
    pub replaced: usize,
    /// The same, of those that were taken off.
    pub removed: usize,
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
    /// the one that was fetched. Where that would be a mix of moments, all are those of the newest whole
    /// set. The preferred machine is the first. `now` is the time here, by the clock of the rounds.
    pub fn level(
        &mut self,
        machines: &[(&str, &Remote)],
        now: &dyn Fn() -> Duration,
    ) -> Result<Levelled, Fault> {
        let round = self.round(machines, true, now);
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
        let mut again = Round::default();
        let looks = self.look(machines, now, &mut again);
        self.whole.saw(&looks, false);
        if let Some(fault) = again.faults.into_iter().next() {
            return Err(fault);
        }
        let versions = self.versions(&looks)?;
        let unkept = |e: io::Error| {
            Fault::fix("here", e.to_string(), "check the run's folder: is it writable?")
        };
        let mut levelled = Levelled::default();
        let bundle = match self.verdict(&looks) {
            Verdict::Back(lost) => {
                let names: Vec<&str> = machines.iter().map(|(name, _)| *name).collect();
                let (bundle, newer) = self
                    .return_all(&looks, &versions, &names, lost, now, &mut levelled)
                    .map_err(unkept)?;
                for (_, remote) in machines.iter().filter(|_| !newer.is_empty()) {
                    remote.remove(&newer)?;
                }
                bundle
            }
            verdict => {
                if let Verdict::Unwhole(lost) = verdict {
                    levelled.loss = Some(Loss { lost, back: None });
                }
                let choice = choose(&versions);
                self.promote_all(&choice, machines).map_err(unkept)?;
                levelled.from = choice.leader.map(|machine| machines[machine].0.to_owned());
                levelled.differed = choice.differed;
                self.owned()
            }
        };
        for (_, remote) in machines {
            levelled.contents_sent += remote.replace(&bundle)?.contents_sent;
        }
        self.settled(&bundle, &looks, now().as_nanos() as i128);
        Ok(levelled)
    }

    /// What machines have, all of which is held.
    fn versions(&self, looks: &[Look]) -> Result<Vec<Version>, Fault> {
        let mut versions = Vec::new();
        for look in looks {
            for file in &look.files {
                // One that cannot be kept here was told of.
                let Some(held) = self.held.get(&(file.path.clone(), look.machine.clone())) else {
                    continue;
                };
                if (held.bytes, held.mtime_ns) != (file.bytes, file.mtime_ns) {
                    let what = format!("`{}` changes though nothing of the job runs", file.path);
                    return Err(Fault::retry(&look.machine, what));
                }
                let (path, machine) = (file.path.clone(), look.at);
                let written_ns = look.asked_ns - i128::from(file.age_ns);
                versions.push(Version { path, machine, written_ns, hash: held.hash });
            }
        }
        Ok(versions)
    }

    /// All go back to the newest whole set: what machines are given, and what is taken off them. Logs go
    /// on as they are.
    fn return_all(
        &mut self,
        looks: &[Look],
        versions: &[Version],
        names: &[&str],
        lost: Lost,
        now: &dyn Fn() -> Duration,
        levelled: &mut Levelled,
    ) -> io::Result<(Bundle, Vec<String>)> {
        let set = self.set_versions();
        // The preferred machine first, as among those that are here.
        let mut of_set: Vec<&str> = names.to_vec();
        let others: BTreeSet<&str> = set.iter().map(|(_, machine, ..)| &**machine).collect();
        of_set.extend(others.into_iter().filter(|name| !names.contains(name)));
        let place = |name: &str| of_set.iter().position(|of| *of == name).unwrap_or_default();
        let version = |(path, machine, written_ns, hash): &(String, String, i128, Hash)| Version {
            path: path.clone(),
            machine: place(machine),
            written_ns: *written_ns,
            hash: *hash,
        };
        let choice = choose(&set.iter().map(version).collect::<Vec<_>>());
        let chosen: BTreeMap<String, String> = choice
            .by_path
            .iter()
            .map(|(path, machine)| (path.clone(), of_set[*machine].to_owned()))
            .collect();
        let at_ns = self.whole.at_ns().unwrap_or_default();
        let returned = self.go_back(looks, &chosen)?;
        let is_log = |version: &&Version| self.is_log(&version.path);
        let logs = choose(&versions.iter().filter(is_log).cloned().collect::<Vec<_>>());
        for (path, machine) in &logs.by_path {
            self.promote(path, names[*machine])?;
        }
        let mut bundle = self.owned();
        let is_given = |path: &str| returned.paths.contains(path) || self.is_log(path);
        bundle.entries.retain(|entry| is_given(&entry.path));
        let age_ns = (now().as_nanos() as i128).saturating_sub(at_ns);
        let back = Back {
            age: Duration::from_nanos(u64::try_from(age_ns).unwrap_or(0)),
            replaced: returned.replaced,
            removed: returned.newer.len(),
        };
        levelled.loss = Some(Loss { lost, back: Some(back) });
        Ok((bundle, returned.newer))
    }

    fn promote_all(&mut self, choice: &Choice, machines: &[(&str, &Remote)]) -> io::Result<()> {
        choice.by_path.iter().try_for_each(|(path, at)| self.promote(path, machines[*at].0))
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
        // The same content everywhere, and files of one machine alone, conflict with nothing.
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
