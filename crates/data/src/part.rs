//! Parts: which examples of a source are learned from and which are held out, by the seed alone.
//!
//! Where a share is held out or `data.examples` takes fewer than there are, a permutation drawn from
//! the seed and the number of examples in the source decides: its first places are the validation
//! part, the next the test part, the next the training part, and what is left is not used. So each id
//! is in one part at most, and a larger validation share keeps what a smaller one held. Otherwise a
//! part holds its source as it is.

use crate::error::Error;
use crate::order::Permutation;
use crate::source::Source;
use planaria_numerics::digest::Digest;
use planaria_numerics::random::{Purpose, Stream};
use std::ops::Range;
use std::sync::Arc;

/// Examples that are used together. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Part {
    source: Arc<dyn Source>,
    ids: Ids,
}

/// Which examples of a source of `n` belong to a part, without the source.
#[derive(Debug, Clone)]
pub struct Ids {
    order: Permutation,
    range: Range<u64>,
}

impl Ids {
    /// All of `n`, in their order.
    pub fn whole(n: u64) -> Self {
        Self { order: Permutation::identity(n), range: 0..n }
    }

    /// Those at `range` of the permutation drawn for `n`.
    fn drawn(n: u64, seed: u64, range: Range<u64>) -> Self {
        let order = Permutation::new(n, Stream::new(seed, Purpose::Split, n, 0));
        Self { order, range }
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Example id at `place`; `place` < len.
    pub fn at(&self, place: u64) -> u64 {
        self.order.at(self.range.start + place)
    }

    /// Every id, in the part's order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).map(|place| self.at(place))
    }

    /// Those at `places` of the part.
    pub fn slice(&self, places: Range<u64>) -> Self {
        let end = self.range.end.min(self.range.start.saturating_add(places.end));
        let start = end.min(self.range.start.saturating_add(places.start));
        Self { order: self.order.clone(), range: start..end }
    }
}

impl Part {
    /// All examples of a source, in its order.
    pub fn whole(source: Arc<dyn Source>) -> Self {
        let ids = Ids::whole(source.len());
        Self { source, ids }
    }

    /// Number of examples.
    pub fn len(&self) -> u64 {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Example id at `place` of the part; `place` < len.
    pub fn id(&self, place: u64) -> u64 {
        self.ids.at(place)
    }

    /// Where the examples are.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Digest of all example ids, which each epoch's must equal.
    pub fn digest(&self) -> Digest {
        (0..self.len()).map(|place| self.id(place)).collect()
    }
}

/// Sizes of the parts cut from one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Examples in the source.
    pub total: u64,
    /// To learn from.
    pub train: u64,
    /// Held out for validation.
    pub validation: u64,
    /// Held out for test.
    pub test: u64,
}

impl Cut {
    /// Sizes for at most `limit` of `total` examples with the shares held out. A held-out part has
    /// at least one example.
    pub fn new(
        total: u64,
        limit: Option<u64>,
        validation: Option<f64>,
        test: Option<f64>,
    ) -> Result<Self, Error> {
        let used = limit.map_or(total, |l| l.min(total));
        let size = |name: &'static str, share: Option<f64>| match share {
            None => Ok(0),
            Some(s) if s > 0.0 && s < 1.0 => Ok(((s * used as f64 + 0.5) as u64).max(1)),
            Some(s) => {
                let message = format!("a share must be above 0 and below 1, but is {s}");
                Err(Error::setting(message).at(name))
            }
        };
        let validation = size("data.validation", validation)?;
        let test = size("data.test", test)?;
        match used.checked_sub(validation.saturating_add(test)) {
            Some(train) if train > 0 => Ok(Self { total, train, validation, test }),
            _ => Err(Error::setting(format!(
                "of {used} examples, {validation} are held out for validation and {test} for test: \
                 none is left to learn from"
            ))),
        }
    }

    /// The training part and, where they are not empty, the validation and test parts.
    pub fn apply(self, source: Arc<dyn Source>, seed: u64) -> (Part, Option<Part>, Option<Part>) {
        let (train, validation, test) = self.ids(seed);
        let part = |ids: Ids| Part { source: source.clone(), ids };
        (part(train), validation.map(part), test.map(part))
    }

    /// The same parts without their source.
    pub fn ids(self, seed: u64) -> (Ids, Option<Ids>, Option<Ids>) {
        if self.train == self.total {
            return (Ids::whole(self.total), None, None);
        }
        let held = self.validation + self.test;
        let ids = |range: Range<u64>| Ids::drawn(self.total, seed, range);
        let some = |range: Range<u64>| (!range.is_empty()).then(|| ids(range));
        (ids(held..held + self.train), some(0..self.validation), some(self.validation..held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::digits::Digits;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn each_id_is_in_one_part(
            n in 3u64..400,
            limit in prop::option::of(3u64..500),
            validation in prop::option::of(0.01f64..0.3),
            test in prop::option::of(0.01f64..0.3),
            seed: u64,
        ) {
            let source: Arc<dyn Source> = Arc::new(Digits::new(1, 0, n));
            let cut = Cut::new(n, limit, validation, test).unwrap();
            let used = limit.map_or(n, |l| l.min(n));
            prop_assert_eq!(cut.train + cut.validation + cut.test, used);
            let (train, v, t) = cut.apply(source, seed);
            prop_assert_eq!((v.is_some(), t.is_some()), (validation.is_some(), test.is_some()));
            let mut seen = BTreeSet::new();
            for part in [Some(train), v, t].into_iter().flatten() {
                for place in 0..part.len() {
                    let id = part.id(place);
                    prop_assert!(id < n && seen.insert(id));
                }
            }
            prop_assert_eq!(seen.len() as u64, used);
        }
    }

    #[test]
    fn sizes_and_refusals() {
        let check = |limit, validation, test, expect: Option<(u64, u64, u64)>| {
            let cut = Cut::new(1000, limit, validation, test);
            assert_eq!(cut.ok().map(|c| (c.train, c.validation, c.test)), expect);
        };
        check(None, None, None, Some((1000, 0, 0)));
        check(None, Some(0.1), None, Some((900, 100, 0)));
        check(Some(100), Some(0.1), Some(0.2), Some((70, 10, 20)));
        check(Some(5000), Some(0.0001), None, Some((999, 1, 0)));
        check(None, Some(0.5), Some(0.5), None);
        check(None, Some(0.0), None, None);
        check(None, None, Some(1.0), None);
        check(None, Some(f64::NAN), None, None);
        check(Some(1), Some(0.1), None, None);
        let error = Cut::new(10, None, None, Some(2.0)).unwrap_err();
        assert_eq!(error.key(), Some("data.test"));
    }

    #[test]
    fn seeds_hold_out_different_examples_and_shares_nest() {
        let source: Arc<dyn Source> = Arc::new(Digits::new(1, 0, 1000));
        let held = |share, seed| -> BTreeSet<u64> {
            let cut = Cut::new(1000, None, Some(share), None).unwrap();
            let part = cut.apply(source.clone(), seed).1.unwrap();
            (0..part.len()).map(|p| part.id(p)).collect()
        };
        assert_ne!(held(0.1, 1), held(0.1, 2));
        assert_eq!(held(0.1, 1), held(0.1, 1));
        assert!(held(0.2, 1).is_superset(&held(0.1, 1)));
    }
}
