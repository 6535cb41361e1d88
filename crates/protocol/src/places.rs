//! How many connections may be asked who they are at a time, and who goes when there are too many.
//!
//! Owns the places of those who have not shown yet who they are. Some are kept for addresses that a
//! peer has been let in from. Whoever connects finds a place as long as somebody before it has said
//! nothing: who has waited longest goes. Pure: no socket, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Places.
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

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Places {
    next: Place,
    /// In the order in which they were taken.
    taken: BTreeMap<Place, Taken>,
    known: BTreeSet<IpAddr>,
}

#[derive(Debug)]
struct Taken {
    from: IpAddr,
    has_spoken: bool,
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
        let own = self.taken.values().filter(|taken| taken.from == from).count();
        let strangers =
            self.taken.values().filter(|taken| !self.known.contains(&taken.from)).count();
        let is_too_many = !is_known && own >= ALIKE;
        let is_free = match is_known {
            true => self.taken.len() < PLACES,
            false => !is_too_many && strangers < PLACES - KEPT && self.taken.len() < PLACES,
        };
        if is_free {
            return Taking::Free(self.put(from));
        }
        let mut silent = self.taken.iter().filter(|(_, taken)| !taken.has_spoken);
        // A stranger takes no place of a known machine, and one of many from an address its own.
        let goes = silent.find(|(_, taken)| match (is_known, is_too_many) {
            (_, true) => taken.from == from,
            (false, _) => !self.known.contains(&taken.from),
            (true, _) => true,
        });
        match goes.map(|(place, _)| *place) {
            Some(goes) => {
                self.taken.remove(&goes);
                Taking::Instead(self.put(from), goes)
            }
            None => Taking::Full,
        }
    }

    fn put(&mut self, from: IpAddr) -> Place {
        self.next += 1;
        self.taken.insert(self.next, Taken { from, has_spoken: false });
        self.next
    }

    /// The one at this place has said something; false where it had to go.
    pub(crate) fn speaks(&mut self, place: Place) -> bool {
        match self.taken.get_mut(&place) {
            Some(taken) => {
                taken.has_spoken = true;
                true
            }
            None => false,
        }
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
    fn silent_connections_keep_nobody_out() {
        let mut places = Places::default();
        // Eight addresses with 64 connections each, all of them silent.
        for n in 0..8 {
            (0..64).for_each(|_| assert_ne!(places.take(address(n)), Taking::Full));
        }
        assert_eq!(places.taken.len(), PLACES - KEPT);
        // One that nobody has seen before comes in, and who has waited longest goes.
        let oldest = *places.taken.keys().next().expect("there are some");
        let Taking::Instead(place, goes) = places.take(address(99)) else { panic!("no place") };
        assert_eq!(goes, oldest);
        assert!(!places.speaks(goes));
        assert!(places.speaks(place));
        assert_eq!(places.taken.len(), PLACES - KEPT);
    }

    #[test]
    fn places_are_kept_for_machines_that_were_let_in() {
        let mut places = Places::default();
        places.let_in(address(1));
        // Strangers who say a byte and no more cannot be told from slow peers.
        for n in 10..20 {
            for _ in 0..64 {
                if let Taking::Free(place) = places.take(address(n)) {
                    assert!(places.speaks(place));
                }
            }
        }
        assert_eq!(places.take(address(99)), Taking::Full);
        let kept: Vec<Taking> = (0..KEPT).map(|_| places.take(address(1))).collect();
        assert!(kept.iter().all(|taking| matches!(taking, Taking::Free(_))), "{kept:?}");
        // They are silent for a moment; a stranger does not put them out.
        assert_eq!(places.take(address(99)), Taking::Full);
        assert_eq!(places.taken.len(), PLACES);
    }

    #[test]
    fn one_address_has_a_share_of_the_places() {
        let mut places = Places::default();
        let first = places.take(address(1));
        (1..ALIKE).for_each(|_| assert_ne!(places.take(address(1)), Taking::Full));
        let Taking::Free(first) = first else { panic!("no place") };
        assert_eq!(places.take(address(1)), Taking::Instead(ALIKE as u64 + 1, first));
        assert_eq!(places.taken.len(), ALIKE);
        for place in places.taken.values_mut() {
            place.has_spoken = true;
        }
        assert_eq!(places.take(address(1)), Taking::Full);
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
