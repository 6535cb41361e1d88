//! A whole set of outputs: what all machines had at one moment.
//!
//! Owns which moments count. Files that each machine writes under a name of its own, such as one
//! shard of a checkpoint for each rank, belong together: no run can go on from a moment at which
//! only some have written theirs. Names that differ in numbers alone are a family. A moment counts
//! when nothing of a family was written for longer than the last writes of its machines are apart:
//! that is right wherever ranks are less than half a period of saving apart, however long the
//! period. Files that only grow are logs, and count for nothing. Pure.

use super::{Hash, Key};
use crate::messages::questions::Found;
use std::collections::{BTreeMap, BTreeSet};

/// What a machine had when it was asked.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// Its place among all that were asked.
    pub(super) at: usize,
    pub(super) machine: String,
    /// Which of the machines that had this name.
    pub(super) session: u64,
    /// By the clock here; the machine looked some time between the two.
    pub(super) asked_ns: i128,
    pub(super) answered_ns: i128,
    pub(super) files: Vec<Found>,
    /// Whether it has more.
    pub(super) is_cut: bool,
}

/// A file of a set, on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) hash: Hash,
    pub(super) bytes: u64,
    pub(super) mtime_ns: i64,
    /// By the clock here.
    pub(super) written_ns: i128,
}

/// What all machines had at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Set {
    pub(super) files: BTreeMap<Key, Member>,
    /// The machines, with their sessions.
    pub(super) machines: BTreeMap<String, u64>,
    /// When that was, by the clock here.
    pub(super) at_ns: i128,
}

/// What the times of files say of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// No family has files of several machines.
    Plain,
    /// Each machine has written its part.
    Quiet,
    /// Some may have written their part, and others not yet.
    Torn,
}

/// Files that the controller gave a machine and that the machine has not written since. The machine
/// does not report them, because it reports only what the script made.
pub(super) type Laid = BTreeMap<Key, Member>;

/// The family of a path.
pub(super) fn family(path: &str) -> String {
    let mut family = String::with_capacity(path.len());
    for c in path.chars() {
        match c {
            '0'..='9' if family.ends_with('#') => {}
            '0'..='9' => family.push('#'),
            c => family.push(c),
        }
    }
    family
}

/// What the times of files say.
pub(super) fn moment(looks: &[Look], laid: &Laid, is_log: &dyn Fn(&str) -> bool) -> Moment {
    /// When a file was written, at the earliest and at the latest.
    type When = (i128, i128);
    let mut writes: BTreeMap<&str, Vec<(&str, When)>> = BTreeMap::new();
    for look in looks {
        for file in &look.files {
            let age_ns = i128::from(file.age_ns);
            let when = (look.asked_ns - age_ns, look.answered_ns - age_ns);
            writes.entry(&file.path).or_default().push((&look.machine, when));
        }
    }
    let found: BTreeSet<&str> = writes.keys().copied().collect();
    for ((path, machine), member) in laid.iter().filter(|((path, _), _)| !found.contains(&**path)) {
        let when = (member.written_ns, member.written_ns);
        writes.entry(path).or_default().push((machine, when));
    }
    let mut families: BTreeMap<String, BTreeMap<&str, When>> = BTreeMap::new();
    for (path, of) in &writes {
        // A path of several machines belongs to none of them.
        let [(machine, when)] = of[..] else { continue };
        if !is_log(path) {
            let newest = families.entry(family(path)).or_default().entry(machine).or_insert(when);
            *newest = (newest.0.max(when.0), newest.1.max(when.1));
        }
    }
    families.retain(|_, machines| machines.len() > 1);
    let now = looks.iter().map(|look| look.asked_ns).min().unwrap_or_default();
    let is_quiet = |machines: &BTreeMap<&str, When>| {
        let newest = machines.values().map(|when| when.1).max().unwrap_or(now);
        let oldest = machines.values().map(|when| when.0).min().unwrap_or(now);
        now - newest >= newest - oldest
    };
    match families.values().all(is_quiet) {
        _ if families.is_empty() => Moment::Plain,
        true => Moment::Quiet,
        false => Moment::Torn,
    }
}

/// Whether machines have the same at two looks, logs aside.
pub(super) fn is_same(one: &[Look], other: &[Look], is_log: &dyn Fn(&str) -> bool) -> bool {
    let of = |look: &Look| -> BTreeSet<(String, u64, i64)> {
        let files = look.files.iter().filter(|file| !is_log(&file.path));
        files.map(|file| (file.path.clone(), file.bytes, file.mtime_ns)).collect()
    };
    let is_one = |(one, other): (&Look, &Look)| {
        (&one.machine, one.session) == (&other.machine, other.session) && of(one) == of(other)
    };
    one.len() == other.len() && one.iter().zip(other).all(is_one)
}

/// The set of a moment, where all of it is held here. `held` is what is held of a machine's file.
pub(super) fn whole(
    before: Option<&Set>,
    laid: &Laid,
    looks: &[Look],
    held: &dyn Fn(&Key) -> Option<Member>,
    is_log: &dyn Fn(&str) -> bool,
) -> Option<Set> {
    let mut files = BTreeMap::new();
    for look in looks {
        for file in look.files.iter().filter(|file| !is_log(&file.path)) {
            let key = (file.path.clone(), look.machine.clone());
            let is_found =
                |held: &Member| (held.bytes, held.mtime_ns) == (file.bytes, file.mtime_ns);
            let written_ns = look.asked_ns - i128::from(file.age_ns);
            let member = Member { written_ns, ..held(&key).filter(is_found)? };
            files.insert(key, member);
        }
        if look.is_cut {
            return None;
        }
    }
    let paths: BTreeSet<String> = files.keys().map(|(path, _)| path.clone()).collect();
    let unwritten = laid.iter().filter(|((path, _), _)| !paths.contains(path) && !is_log(path));
    files.extend(unwritten.map(|(key, member)| (key.clone(), member.clone())));
    let machines: BTreeMap<String, u64> =
        looks.iter().map(|look| (look.machine.clone(), look.session)).collect();
    // What is missing was removed by the script, if its machine is still the same.
    let is_removed = |(_, machine): &Key| {
        before.is_some_and(|set| set.machines.get(machine) == machines.get(machine))
            && machines.contains_key(machine)
    };
    let has = |key: &Key| paths.contains(&key.0) || files.contains_key(key) || is_log(&key.0);
    let at_ns = looks.iter().map(|look| look.asked_ns).min().unwrap_or_default();
    let is_whole = before.is_none_or(|set| set.files.keys().all(|key| has(key) || is_removed(key)));
    is_whole.then_some(Set { files, machines, at_ns })
}

impl Set {
    /// Whether the files of another set are the same.
    pub(super) fn has_files_of(&self, other: &Self) -> bool {
        let of = |(key, member): (&Key, &Member)| (key.clone(), member.hash, member.mtime_ns);
        let (one, two) = (self.files.iter().map(of), other.files.iter().map(of));
        self.machines == other.machines && one.eq(two)
    }

    /// Machines that have a path.
    pub(super) fn machines_with(&self, path: &str) -> Vec<&str> {
        let all = self.files.range((path.to_owned(), String::new())..);
        let of_path = all.take_while(|((of, _), _)| of == path);
        of_path.map(|((_, machine), _)| &**machine).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Looks at machines: `MACHINE PATH AGE`, in seconds, at a time.
    pub(crate) fn looks(now: i128, files: &[(&str, &str, u64)]) -> Vec<Look> {
        let mut by_machine: BTreeMap<&str, Vec<Found>> = BTreeMap::new();
        for &(machine, path, age) in files {
            by_machine.entry(machine).or_default().push(Found {
                path: path.to_owned(),
                bytes: 1,
                mtime_ns: (now as i64 - age as i64) * 1_000_000_000,
                age_ns: age * 1_000_000_000,
            });
        }
        let look = |(at, (machine, files)): (usize, (&str, Vec<Found>))| Look {
            at,
            machine: machine.to_owned(),
            session: at as u64,
            asked_ns: now * 1_000_000_000,
            answered_ns: now * 1_000_000_000,
            files,
            is_cut: false,
        };
        by_machine.into_iter().enumerate().map(look).collect()
    }

    fn member(at: i128) -> Member {
        Member { hash: [at as u8; 32], bytes: 1, mtime_ns: 0, written_ns: at * 1_000_000_000 }
    }

    #[track_caller]
    fn check(files: &[(&str, &str, u64)], expect: Moment) {
        let is_log = |path: &str| path.ends_with(".log");
        assert_eq!(moment(&looks(100, files), &Laid::new(), &is_log), expect, "{files:?}");
    }

    #[test]
    fn names_that_differ_in_numbers_are_a_family() {
        for (path, expect) in [
            ("ckpt-0.txt", "ckpt-#.txt"),
            ("step_1200/rank-13.pt", "step_#/rank-#.pt"),
            ("model.pt", "model.pt"),
        ] {
            assert_eq!(family(path), expect);
        }
    }

    #[test]
    fn a_moment_is_torn_until_it_was_quiet_for_as_long_as_machines_are_apart() {
        check(&[], Moment::Plain);
        check(&[("a", "ckpt-0", 5), ("a", "ckpt-1", 90)], Moment::Plain);
        check(&[("a", "ckpt-0", 5), ("b", "ckpt-1", 6)], Moment::Quiet);
        // The first has written its next part, which is ten seconds after all had written theirs.
        check(&[("a", "ckpt-0", 1), ("b", "ckpt-1", 11)], Moment::Torn);
        check(&[("a", "ckpt-0", 10), ("b", "ckpt-1", 20)], Moment::Quiet);
        check(&[("a", "ckpt-0", 1), ("b", "ckpt-1", 2), ("c", "ckpt-2", 30)], Moment::Torn);
        // With the step in the name, the newest of each machine counts.
        let step = [("a", "1/r0", 50), ("b", "1/r1", 50), ("a", "2/r0", 3)];
        check(&step, Moment::Torn);
        check(&[&step[..], &[("b", "2/r1", 4)]].concat(), Moment::Quiet);
    }

    #[test]
    fn files_that_all_have_and_logs_tear_nothing() {
        check(&[("a", "model", 1), ("b", "model", 50)], Moment::Plain);
        check(&[("a", "1.log", 1), ("b", "2.log", 50)], Moment::Plain);
        // Different names have times of their own.
        check(&[("a", "model", 1), ("b", "optim", 50)], Moment::Plain);
    }

    #[test]
    fn how_long_machines_took_to_answer_counts_against_a_moment() {
        let mut slow = looks(100, &[("a", "c-0", 5), ("b", "c-1", 5)]);
        slow[1].answered_ns += 2_000_000_000;
        assert_eq!(moment(&slow, &Laid::new(), &|_| false), Moment::Quiet);
        slow[1].answered_ns += 2_000_000_000;
        assert_eq!(moment(&slow, &Laid::new(), &|_| false), Moment::Torn);
    }

    #[test]
    fn what_was_given_is_had_until_it_is_written_again() {
        let key = |path: &str, machine: &str| (path.to_owned(), machine.to_owned());
        let laid = Laid::from([(key("c-0", "a"), member(90)), (key("c-1", "b"), member(90))]);
        let of = |files: &[(&str, &str, u64)]| moment(&looks(100, files), &laid, &|_| false);
        assert_eq!(of(&[("a", "c-0", 1)]), Moment::Torn);
        assert_eq!(of(&[("a", "c-0", 1), ("b", "c-1", 1)]), Moment::Quiet);
        let held =
            |key: &Key| Some(Member { mtime_ns: 99_000_000_000, ..member(key.1.len() as i128) });
        let set = whole(None, &laid, &looks(100, &[("a", "c-0", 1)]), &held, &|_| false).unwrap();
        let files: Vec<(&str, &str)> =
            set.files.keys().map(|(path, machine)| (&**path, &**machine)).collect();
        assert_eq!(files, [("c-0", "a"), ("c-1", "b")]);
    }

    #[test]
    fn a_set_is_whole_where_all_is_held_and_nothing_is_missing() {
        let held = |key: &Key| {
            let known = Member { mtime_ns: 95_000_000_000, ..member(1) };
            (key.0 != "c-9").then_some(known)
        };
        let of = |before: Option<&Set>, files: &[(&str, &str, u64)]| {
            whole(before, &Laid::new(), &looks(100, files), &held, &|path| path == "log")
        };
        let set = of(None, &[("a", "c-0", 5), ("b", "c-1", 5), ("b", "log", 1)]).unwrap();
        assert_eq!(set.files.len(), 2, "logs are in no set");
        assert!(of(None, &[("a", "c-0", 4), ("b", "c-1", 5)]).is_none(), "written since");
        assert!(of(None, &[("a", "c-0", 5), ("b", "c-9", 5)]).is_none(), "not fetched");
        // One that its machine removed is not missed; one that went with its machine is.
        assert!(of(Some(&set), &[("a", "c-0", 5), ("b", "c-2", 5)]).is_some());
        let mut other = set.clone();
        other.machines.insert("b".into(), 7);
        assert!(of(Some(&other), &[("a", "c-0", 5), ("b", "c-2", 5)]).is_none());
        assert!(of(Some(&other), &[("a", "c-0", 5), ("b", "c-1", 5)]).is_some());
    }
}
