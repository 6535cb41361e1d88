//! How many connections may be asked who they are at a time, and who goes when there are too many.
//!
//! Owns the places of connections that are not authenticated yet. Some are kept for addresses that
//! a peer has been let in from. When all are taken, the address with the most places gives up its
//! oldest: a flood from one machine of the pool keeps no other machine out, and its own peers,
//! which need milliseconds, are long known before 256 newer connections have come. Pure: no socket,
//! no clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub(crate) const PLACES: usize = 256;

/// Of these, so many are for addresses that a peer has been let in from.
const KEPT: usize = 64;

/// Places that one address may have that no peer has been let in from; a machine of a pool has that
/// many processes at most when it comes, or some of them try again.
const ALIKE: usize = 64;

/// Addresses that are remembered.
const KNOWN_MAX: usize = 4096;

/// One of the places, by a number that is given once.
pub(crate) type Place = u64;

#[derive(Debug, Default)]
pub(crate) struct Places {
    next: Place,
    /// In the order in which they were taken.
    taken: BTreeMap<Place, IpAddr>,
    known: BTreeSet<IpAddr>,
}

/// What becomes of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// It has this place.
    Free(Place),
    /// It has this place, and the one at the other is to go.
    Instead(Place, Place),
    /// There is none.
    Full,
}

impl Places {
    /// A place for a connection from this address.
    pub(crate) fn take(&mut self, from: IpAddr) -> Taking {
        let is_known = self.known.contains(&from);
        let own = self.taken.values().filter(|other| **other == from).count();
        let strangers = self.taken.values().filter(|other| !self.known.contains(other)).count();
        let is_too_many = !is_known && own >= ALIKE;
        let is_free =
            self.taken.len() < PLACES && (is_known || (!is_too_many && strangers < PLACES - KEPT));
        if is_free {
            return Taking::Free(self.put(from));
        }
        // A stranger takes no place of a known machine, and one of many from an address its own.
        let may_go = |other: &IpAddr| match (is_known, is_too_many) {
            (_, true) => *other == from,
            (false, _) => !self.known.contains(other),
            (true, _) => true,
        };
        match self.oldest_of_the_most(may_go) {
            Some(goes) => {
                self.taken.remove(&goes);
                Taking::Instead(self.put(from), goes)
            }
            None => Taking::Full,
        }
    }

    /// The oldest place of the address that has the most.
    fn oldest_of_the_most(&self, may_go: impl Fn(&IpAddr) -> bool) -> Option<Place> {
        let mut by_address: BTreeMap<IpAddr, (usize, Reverse<Place>)> = BTreeMap::new();
        for (place, from) in self.taken.iter().filter(|(_, from)| may_go(from)) {
            by_address.entry(*from).or_insert((0, Reverse(*place))).0 += 1;
        }
        by_address.into_values().max().map(|(_, Reverse(oldest))| oldest)
    }

    fn put(&mut self, from: IpAddr) -> Place {
        self.next += 1;
        self.taken.insert(self.next, from);
        self.next
    }

    /// Whether the one at this place has not had to go.
    pub(crate) fn has(&self, place: Place) -> bool {
        self.taken.contains_key(&place)
    }

    /// It is known who is at this place, or it is gone.
    pub(crate) fn leave(&mut self, place: Place) {
        self.taken.remove(&place);
    }

    /// A peer was let in from this address.
    pub(crate) fn let_in(&mut self, from: IpAddr) {
        if self.known.len() < KNOWN_MAX {
            self.known.insert(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn a_new_peer_gets_a_place_in_a_crowd() {
        let mut places = Places::default();
        // Eight addresses with 64 connections each.
        for n in 0..8 {
            (0..64).for_each(|_| assert_ne!(places.take(address(n)), Taking::Full));
        }
        assert_eq!(places.taken.len(), PLACES - KEPT);
        // One that was never seen before comes in, and the oldest of those with the most goes.
        let Taking::Instead(place, goes) = places.take(address(99)) else { panic!("no place") };
        assert!(!places.has(goes));
        assert!(places.has(place));
        assert_eq!(places.taken.len(), PLACES - KEPT);
    }

    #[test]
    fn places_are_kept_for_machines_that_were_let_in() {
        let mut places = Places::default();
        places.let_in(address(1));
        for n in 10..20 {
            (0..64).for_each(|_| assert_ne!(places.take(address(n)), Taking::Full));
        }
        let kept: Vec<Taking> = (0..KEPT).map(|_| places.take(address(1))).collect();
        assert!(kept.iter().all(|taking| matches!(taking, Taking::Free(_))), "{kept:?}");
        assert_eq!(places.taken.len(), PLACES);
        // A stranger takes a stranger's place, never one of theirs.
        let Taking::Instead(_, goes) = places.take(address(99)) else { panic!("no place") };
        assert!(!kept.contains(&Taking::Free(goes)));
    }

    #[test]
    fn a_crowd_from_a_known_machine_keeps_no_other_out() {
        let mut places = Places::default();
        (1..4).for_each(|n| places.let_in(address(n)));
        let Taking::Free(other) = places.take(address(2)) else { panic!("no place") };
        (0..2 * PLACES).for_each(|_| assert_ne!(places.take(address(1)), Taking::Full));
        assert!(places.has(other), "it has the only place of its address");
        let Taking::Instead(place, goes) = places.take(address(3)) else { panic!("no place") };
        assert_ne!(goes, other);
        // Its own are displaced by newer ones, the oldest first.
        let Taking::Instead(own, _) = places.take(address(1)) else { panic!("no place") };
        (0..PLACES / 2).for_each(|_| assert_ne!(places.take(address(1)), Taking::Full));
        assert!(places.has(own) && places.has(place));
    }

    #[test]
    fn one_address_has_a_share_of_the_places() {
        let mut places = Places::default();
        let first = places.take(address(1));
        (1..ALIKE).for_each(|_| assert_ne!(places.take(address(1)), Taking::Full));
        let Taking::Free(first) = first else { panic!("no place") };
        assert_eq!(places.take(address(1)), Taking::Instead(ALIKE as u64 + 1, first));
        assert_eq!(places.taken.len(), ALIKE);
        places.leave(2);
        assert!(matches!(places.take(address(1)), Taking::Free(_)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut places = Places::default();
        for n in 0..u32::try_from(KNOWN_MAX).expect("few") + 100 {
            places.let_in(IpAddr::from(n.to_be_bytes()));
        }
        assert_eq!(places.known.len(), KNOWN_MAX);
    }
}
