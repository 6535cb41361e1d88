//! Log lines about refused connections: one for the first from an address, and then the count when
//! it reaches ten, a hundred, a thousand.
//!
//! Owns the counts, of so many addresses. Pure: says what to write, and writes nothing.

use crate::error::Error;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Counts that are kept; what is beyond has one in common.
const COUNTS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: BTreeMap<(IpAddr, Kind), u64>,
    beyond: u64,
}

/// What a connection was refused for. All messages of strangers count as one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Stranger,
    Version,
    Secret,
    Generation,
    Role,
    GivenUp,
    NotJoined,
    Other,
}

impl Kind {
    fn of(error: &Error) -> Self {
        match error {
            Error::Stranger(_)
            | Error::Plain
            | Error::Sealed
            | Error::Handshake(_)
            | Error::HungUp(_)
            | Error::TooLate { .. }
            | Error::NoPlace(_)
            | Error::Crowded
            | Error::Io { .. } => Self::Stranger,
            Error::Version { .. } => Self::Version,
            Error::WrongSecret => Self::Secret,
            Error::Generation { .. } => Self::Generation,
            Error::Impostor { .. } | Error::WrongRole { .. } => Self::Role,
            Error::GivenUp(_) => Self::GivenUp,
            Error::NotJoined => Self::NotJoined,
            _ => Self::Other,
        }
    }
}

impl Refusals {
    /// Counts one; the line to log, if any.
    pub(crate) fn note(&mut self, from: SocketAddr, error: &Error) -> Option<String> {
        let key = (from.ip(), Kind::of(error));
        let is_beyond = self.counts.len() >= COUNTS_MAX && !self.counts.contains_key(&key);
        let count = match is_beyond {
            true => &mut self.beyond,
            false => self.counts.entry(key).or_default(),
        };
        *count += 1;
        let of = match is_beyond {
            true => format!("others than the first {COUNTS_MAX}"),
            false => format!("{}", from.ip()),
        };
        match *count {
            1 if is_beyond => Some(format!("{from}: {error}; from {of} only counts are told")),
            1 => Some(format!("{from}: {error}")),
            count if is_power_of_ten(count) => {
                Some(format!("{from}: {error} ({count} times from {of})"))
            }
            _ => None,
        }
    }
}

fn is_power_of_ten(mut count: u64) -> bool {
    while count.is_multiple_of(10) && count > 0 {
        count /= 10;
    }
    count == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(n: u16, port: u16) -> SocketAddr {
        let [a, b] = n.to_be_bytes();
        SocketAddr::from(([10, 0, a, b], port))
    }

    #[test]
    fn an_address_is_told_of_once_and_then_with_a_count() {
        let mut refusals = Refusals::default();
        let told: Vec<String> =
            (0..2000).filter_map(|n| refusals.note(from(1, n), &Error::Stranger([0; 4]))).collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].starts_with("10.0.0.1:0: the other end does not speak"), "{told:?}");
        assert!(told[3].ends_with("(1000 times from 10.0.0.1)"), "{told:?}");
        // A peer that has the wrong secret is not lost among strangers.
        assert!(refusals.note(from(1, 1), &Error::WrongSecret).is_some());
        assert!(refusals.note(from(1, 1), &Error::WrongSecret).is_none());
        assert!(refusals.note(from(1, 1), &Error::Plain).is_none());
        assert!(refusals.note(from(2, 1), &Error::Plain).is_some());
    }

    #[test]
    fn the_book_is_bounded() {
        let mut refusals = Refusals::default();
        let told = (0..20_000).filter(|n| refusals.note(from(*n, 1), &Error::Plain).is_some());
        assert!(told.count() <= COUNTS_MAX + 6);
        assert_eq!(refusals.counts.len(), COUNTS_MAX);
    }
}
