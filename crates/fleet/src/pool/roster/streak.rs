//! Machines given up one after another for the same reason: how often that may be before no more
//! are made. Pure.
//!
//! Owns what makes two reasons the same, and the bounds. A provider without an end to its machines
//! would otherwise make new ones for ever, each of which goes the way of the one before.

use crate::provider::{Fault, Machine, Remedy};
use std::time::Duration;

/// Further machines that are tried once as many as are wanted have failed alike.
const MORE: u32 = 3;
/// The same where the next attempt may do better.
const MORE_TRIES: u32 = 20;
/// Machines that work this long before they prove unfit do not count as one after another.
const APART: Duration = Duration::from_secs(600);

/// Machines that were given up one after another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Streak {
    supply: usize,
    reason: String,
    is_retried: bool,
    /// Whether others would be the same computer under other names.
    is_everywhere: bool,
    /// Whether they had become ready before.
    were_ready: bool,
    count: u32,
    last: Duration,
}

impl Streak {
    /// The first, or one more of the same.
    pub fn after(
        before: Option<Self>,
        now: Duration,
        machine: &Machine,
        fault: &Fault,
        was_ready: bool,
    ) -> Self {
        let new = Self {
            supply: machine.supply,
            reason: reason(&fault.what, &machine.name),
            is_retried: fault.remedy == Remedy::Retry,
            is_everywhere: fault.is_everywhere,
            were_ready: was_ready,
            count: 1,
            last: now,
        };
        let is_same = |old: &Self| {
            (old.supply, &old.reason, old.were_ready) == (new.supply, &new.reason, new.were_ready)
                && !(was_ready && now.saturating_sub(old.last) > APART)
        };
        match before.filter(is_same) {
            Some(old) => Self { count: old.count.saturating_add(1), ..new },
            None => new,
        }
    }

    /// Whether a machine that became ready ends it.
    pub fn ends_with_ready(&self) -> bool {
        !self.were_ready
    }

    /// Whether no more machines of this supply are to be made for so many that are wanted.
    pub fn is_enough(&self, supply: usize, wanted: usize) -> bool {
        self.supply == supply && self.is_over(wanted)
    }

    /// Whether no more machines are to be made of its supply.
    pub fn is_over(&self, wanted: usize) -> bool {
        self.is_everywhere || self.beyond(wanted) >= self.more()
    }

    /// How many have failed beyond those that are wanted at a time.
    pub fn beyond(&self, wanted: usize) -> u32 {
        self.count.saturating_sub(u32::try_from(wanted).unwrap_or(u32::MAX))
    }

    /// What is said of it.
    pub fn words(&self) -> String {
        if self.is_everywhere {
            return "others would be this same computer, and none is tried".into();
        }
        format!("{} machines in a row went the same way, and no more are made", self.count)
    }

    fn more(&self) -> u32 {
        if self.is_retried { MORE_TRIES } else { MORE }
    }
}

/// A fault's first line without what differs from one machine to the next: names and numbers.
fn reason(what: &str, machine: &str) -> String {
    let line = what.lines().next().unwrap_or_default().replace(machine, "it");
    let mut plain = String::new();
    for c in line.chars() {
        match c.is_ascii_digit() {
            true if plain.ends_with('#') => {}
            true => plain.push('#'),
            false => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streak(before: Option<Streak>, name: &str, what: &str, seconds: u64) -> Streak {
        let fault = Fault::replace(name, what, "");
        let machine = Machine::new(name, "", vec![]);
        Streak::after(before, Duration::from_secs(seconds), &machine, &fault, true)
    }

    #[test]
    fn the_same_reason_on_other_machines_counts_as_one_after_another() {
        let first = streak(None, "m0", "`/x/m0` cannot be read (process 17)\nmore", 0);
        let second = streak(Some(first.clone()), "m1", "`/x/m1` cannot be read (process 9)", 5);
        assert_eq!((first.count, second.count), (1, 2));
        assert_eq!(streak(Some(second.clone()), "m2", "its disk is full", 6).count, 1);
        assert_eq!(streak(Some(second), "m2", "`/x/m2` cannot be read (process 3)", 9999).count, 1);
    }
}
