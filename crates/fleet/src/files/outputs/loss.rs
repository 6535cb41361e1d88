//! Whether machines go back to the newest whole set when they are given the same files.
//!
//! Owns what a lost machine means for the files of the others. Where it had files of its own, which
//! no machine that is left has, the newer ones of the others are of a moment that is lost. Pure.

use super::whole::{Look, Set, family};
use super::{Hash, Key};
use std::collections::{BTreeMap, BTreeSet};

/// What was last seen of a machine.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) session: u64,
    /// Files that it had made.
    pub(super) paths: BTreeSet<String>,
}

/// Files that went with machines, by machine.
pub(super) type Lost = BTreeMap<String, Vec<String>>;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No file that matters is lost.
    GoOn,
    /// All machines go back to the set.
    Back(Lost),
    /// They would have to, and there is no set with the lost machine's files.
    Unwhole(Lost),
}

/// What is known when machines are given the same files.
pub(super) struct Known<'a> {
    pub(super) set: Option<&'a Set>,
    /// What was last seen of machines, also of those that are gone.
    pub(super) seen: &'a BTreeMap<String, Seen>,
    /// Machines that are here.
    pub(super) looks: &'a [Look],
    /// The newest that is held here of a machine's file.
    pub(super) held: &'a dyn Fn(&Key) -> Option<Hash>,
    pub(super) is_log: &'a dyn Fn(&str) -> bool,
}

pub(super) fn decide(known: &Known<'_>) -> Verdict {
    let found = found(known);
    if found.is_empty() {
        return Verdict::GoOn;
    }
    let gone = gone(known);
    let own: Lost = gone
        .iter()
        .map(|machine| ((*machine).to_owned(), own_files(known, machine, &found)))
        .filter(|(_, paths)| !paths.is_empty())
        .collect();
    if let Some(set) = known.set
        && !own.is_empty()
        && is_of_all(set, &own)
    {
        return match is_as_set(known, set, &found, &own) {
            true => Verdict::GoOn,
            false => Verdict::Back(own),
        };
    }
    let unwhole = unwhole(known, &gone, own, &found);
    if unwhole.is_empty() { Verdict::GoOn } else { Verdict::Unwhole(unwhole) }
}

/// Machines that are gone, or came again as others.
pub(super) fn gone<'a>(known: &Known<'a>) -> Vec<&'a str> {
    let is_here = |name: &str, session: u64| {
        known.looks.iter().any(|look| look.machine == name && look.session == session)
    };
    let seen = known.seen.iter().filter(|(name, seen)| !is_here(name, seen.session));
    seen.map(|(name, _)| &**name).collect()
}

/// By path, the machines.
type Found<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// What machines that are here have, logs aside.
fn found<'a>(known: &Known<'a>) -> Found<'a> {
    let mut found = Found::new();
    for look in known.looks {
        for file in look.files.iter().filter(|file| !(known.is_log)(&file.path)) {
            found.entry(&file.path).or_default().push(&look.machine);
        }
    }
    found
}

/// Files that only a machine had that is gone.
fn own_files(known: &Known<'_>, machine: &str, found: &Found<'_>) -> Vec<String> {
    let in_set = known.set.iter().flat_map(|set| set.files.keys());
    let in_set = in_set.filter(|(_, of)| of == machine).map(|(path, _)| path);
    let seen = known.seen.get(machine).into_iter().flat_map(|seen| &seen.paths);
    let is_alone = |path: &str| {
        known.set.is_none_or(|set| set.machines_with(path).iter().all(|name| *name == machine))
    };
    let paths: BTreeSet<&String> = in_set.chain(seen).collect();
    let is_own =
        |path: &&String| !(known.is_log)(path) && !found.contains_key(&***path) && is_alone(path);
    paths.into_iter().filter(is_own).cloned().collect()
}

/// Whether a set has files of every machine that lost some, wherever it has others of their family.
fn is_of_all(set: &Set, own: &Lost) -> bool {
    let mut families: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (path, machine) in set.files.keys() {
        families.entry(family(path)).or_default().insert(machine);
    }
    let has_part = |machine: &str, path: &str| {
        families.get(&family(path)).is_none_or(|machines| machines.contains(machine))
    };
    own.iter().all(|(machine, paths)| paths.iter().all(|path| has_part(machine, path)))
}

/// Whether the others still have what they had in the set, and the newest of the lost machines is in it.
fn is_as_set(known: &Known<'_>, set: &Set, found: &Found<'_>, own: &Lost) -> bool {
    let is_same = |key: &Key| {
        let hash = (known.held)(key);
        hash.is_some() && set.files.get(key).map(|member| member.hash) == hash
    };
    let key = |path: &str, machine: &str| (path.to_owned(), machine.to_owned());
    let mut here = found.iter().flat_map(|(p, machines)| machines.iter().map(|m| key(p, m)));
    let mut lost = own.iter().flat_map(|(m, paths)| paths.iter().map(|p| key(p, m)));
    // One that is in the set and not held any more was given back before, and not written since.
    let is_given = |key: &Key| (known.held)(key).is_none() && set.files.contains_key(key);
    here.all(|key| is_same(&key)) && lost.all(|key| is_given(&key) || is_same(&key))
}

/// Machines that had a part of what others have parts of, as far as can be seen.
fn unwhole(known: &Known<'_>, gone: &[&str], own: Lost, found: &Found<'_>) -> Lost {
    let mut families: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (path, machines) in found.iter().filter(|(_, machines)| machines.len() == 1) {
        families.entry(family(path)).or_default().extend(machines);
    }
    let mut lost = own;
    lost.retain(|_, paths| {
        paths.retain(|path| families.contains_key(&family(path)));
        !paths.is_empty()
    });
    // One that was gone before it was looked at has written its part too, as all others have.
    if families.values().any(|machines| machines.len() > 1) {
        let is_unseen = |name: &&&str| known.seen.get(**name).is_some_and(|s| s.paths.is_empty());
        let in_set = |name: &str| {
            known.set.is_some_and(|set| set.files.keys().any(|(_, machine)| machine == name))
        };
        for name in gone.iter().filter(is_unseen).filter(|name| !in_set(name)) {
            lost.entry((*name).to_owned()).or_default();
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::super::whole::{Member, tests::looks};
    use super::*;

    /// Files as `MACHINE PATH CONTENT`: of the set, of machines that are left, and of what is held of
    /// the third, `c`, which is gone.
    struct Case<'a> {
        set: Option<&'a [(&'a str, &'a str, u8)]>,
        left: &'a [(&'a str, &'a str, u8)],
        of_gone: &'a [(&'a str, u8)],
    }

    impl Case<'_> {
        fn verdict(&self) -> Verdict {
            let key = |path: &str, machine: &str| (path.to_owned(), machine.to_owned());
            let member =
                |hash: u8| Member { hash: [hash; 32], bytes: 1, mtime_ns: 0, written_ns: 0 };
            let set = self.set.map(|files| Set {
                files: files.iter().map(|(m, p, hash)| (key(p, m), member(*hash))).collect(),
                ..Set::default()
            });
            let found: Vec<(&str, &str, u64)> =
                self.left.iter().map(|(m, p, _)| (*m, *p, 1)).collect();
            let looks = looks(9, &found);
            let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
            for look in &looks {
                seen.insert(
                    look.machine.clone(),
                    Seen { session: look.session, ..Seen::default() },
                );
            }
            let paths = self.of_gone.iter().map(|(path, _)| (*path).to_owned()).collect();
            seen.insert("c".into(), Seen { session: 99, paths });
            let held = |(path, machine): &Key| {
                let left = self.left.iter().find(|(m, p, _)| (m, p) == (&&**machine, &&**path));
                let gone = self.of_gone.iter().find(|(p, _)| machine == "c" && p == path);
                left.map(|file| file.2).or(gone.map(|file| file.1)).map(|hash| [hash; 32])
            };
            let is_log = |path: &str| path.ends_with("log");
            let known = Known {
                set: set.as_ref(),
                seen: &seen,
                looks: &looks,
                held: &held,
                is_log: &is_log,
            };
            decide(&known)
        }
    }

    fn lost(paths: &[&str]) -> Lost {
        Lost::from([("c".to_owned(), paths.iter().map(|path| (*path).to_owned()).collect())])
    }

    const SET: &[(&str, &str, u8)] = &[("a", "k-0", 4), ("b", "k-1", 4), ("c", "k-2", 4)];

    #[test]
    fn others_go_back_where_a_part_is_lost() {
        let newer: &[_] = &[("a", "k-0", 5), ("b", "k-1", 5)];
        let case = Case { set: Some(SET), left: newer, of_gone: &[("k-2", 4)] };
        assert_eq!(case.verdict(), Verdict::Back(lost(&["k-2"])));
        // The lost machine was ahead, as far as was brought here.
        let same: &[_] = &[("a", "k-0", 4), ("b", "k-1", 4)];
        let ahead = Case { left: same, of_gone: &[("k-2", 5)], ..case };
        assert_eq!(ahead.verdict(), Verdict::Back(lost(&["k-2"])));
        let as_set = Case { of_gone: &[("k-2", 4)], ..ahead };
        assert_eq!(as_set.verdict(), Verdict::GoOn);
    }

    #[test]
    fn a_later_step_without_all_its_parts_is_none() {
        let set: &[_] = &[("a", "1/r0", 1), ("b", "1/r1", 1), ("c", "1/r2", 1)];
        let left: &[_] = &[("a", "1/r0", 1), ("a", "2/r0", 2), ("b", "1/r1", 1)];
        let case = Case { set: Some(set), left, of_gone: &[("1/r2", 1)] };
        assert_eq!(case.verdict(), Verdict::Back(lost(&["1/r2"])));
    }

    #[test]
    fn what_all_have_is_not_lost() {
        let set: &[_] =
            &[("a", "model", 4), ("b", "model", 4), ("c", "model", 4), ("c", "2.log", 1)];
        let left: &[_] = &[("a", "model", 5), ("b", "model", 5)];
        let case = Case { set: Some(set), left, of_gone: &[("model", 6), ("2.log", 3)] };
        assert_eq!(case.verdict(), Verdict::GoOn);
        assert_eq!(Case { set: None, ..case }.verdict(), Verdict::GoOn);
        // Others that have made nothing have nothing to go back from.
        let alone = Case { set: Some(&[("c", "model", 4)]), left: &[], of_gone: &[("model", 5)] };
        assert_eq!(alone.verdict(), Verdict::GoOn);
    }

    #[test]
    fn where_there_is_no_set_that_is_said() {
        let left: &[_] = &[("a", "k-0", 5), ("b", "k-1", 5)];
        let none = Case { set: None, left, of_gone: &[("k-2", 4)] };
        assert_eq!(none.verdict(), Verdict::Unwhole(lost(&["k-2"])));
        // A set of a moment before it had written.
        let early = Case { set: Some(&[("a", "k-0", 1)]), ..none };
        assert_eq!(early.verdict(), Verdict::Unwhole(lost(&["k-2"])));
        // It was gone before it was looked at.
        let unseen = Case { of_gone: &[], ..early };
        assert_eq!(unseen.verdict(), Verdict::Unwhole(lost(&[])));
        // Files of other names need not belong together.
        let other = Case { set: None, left: &[("a", "model", 5)], of_gone: &[("note", 1)] };
        assert_eq!(other.verdict(), Verdict::GoOn);
    }
}
