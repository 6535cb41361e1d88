//! Which worker computes which shards, by how fast each is: a pure function with its reason.

use planaria_protocol::message::Share;

/// Share of a step's time that a new deal must save to be worth changing all workers' memory.
const GAIN_MIN: f64 = 0.15;

/// Shares of `shards` for workers that compute so many shards per second, in the order of workers:
/// the shards go one by one to the worker that would be done with one more the soonest, so that the slowest
/// is done as soon as possible. Workers without a shard stand by.
pub fn deal(shards: u32, speeds: &[(u32, f64)]) -> Vec<Share> {
    let mut counts = vec![0u32; speeds.len()];
    for _ in 0..shards {
        let done = |i: usize| f64::from(counts[i] + 1) / speeds[i].1.max(f64::MIN_POSITIVE);
        let soonest = (0..speeds.len()).min_by(|a, b| done(*a).total_cmp(&done(*b)));
        if let Some(i) = soonest {
            counts[i] += 1;
        }
    }
    let mut next = 0;
    let share = |(&(worker, _), count): (&(u32, f64), u32)| {
        let shards = next..next + count;
        next += count;
        Share { worker, shards }
    };
    speeds.iter().zip(counts).map(share).collect()
}

/// The shares to go on with: a new deal and why, or nothing if the old one is about as good.
pub fn redeal(shards: u32, speeds: &[(u32, f64)], old: &[Share]) -> Option<(Vec<Share>, String)> {
    let time = |shares: &[Share]| {
        let each = shares.iter().zip(speeds).map(|(s, (_, v))| s.shards.len() as f64 / v);
        each.fold(0.0, f64::max)
    };
    let new = deal(shards, speeds);
    let (before, after) = (time(old), time(&new));
    if new.len() == old.len() && after > before * (1.0 - GAIN_MIN) {
        return None;
    }
    let counts = |shares: &[Share]| {
        shares.iter().map(|s| s.shards.len().to_string()).collect::<Vec<_>>().join("/")
    };
    let saved = 100.0 * (1.0 - after / before);
    let reason = format!(
        "measured speeds make {} instead of {} shards {saved:.0}% faster",
        counts(&new),
        counts(old)
    );
    Some((new, reason))
}

/// Each share once more for `redundancy` other workers, or for all others where there are not so
/// many: each goes to the worker that, with all that it has, would be done with it the soonest, and
/// among equals to the next in the order of workers. So an even deal stays even, and any
/// `redundancy` of the workers can be missing with every shard still leased to another.
pub fn copies(shares: &[Share], speeds: &[(u32, f64)], redundancy: u32) -> Vec<Share> {
    let count = speeds.len();
    let mut loads: Vec<u32> = shares.iter().map(|share| share.shards.len() as u32).collect();
    let mut holders: Vec<Vec<usize>> = (0..count).map(|owner| vec![owner]).collect();
    let mut copies = Vec::new();
    for _ in 0..(redundancy as usize).min(count.saturating_sub(1)) {
        for (owner, share) in shares.iter().enumerate().filter(|(_, s)| !s.shards.is_empty()) {
            let more = share.shards.len() as u32;
            let done = |i: usize| f64::from(loads[i] + more) / speeds[i].1.max(f64::MIN_POSITIVE);
            let others = (owner + 1..owner + count).map(|i| i % count);
            let others = others.filter(|i| !holders[owner].contains(i));
            let Some(soonest) = others.min_by(|a, b| done(*a).total_cmp(&done(*b))) else {
                continue;
            };
            loads[soonest] += more;
            holders[owner].push(soonest);
            copies.push(Share { worker: speeds[soonest].0, shards: share.shards.clone() });
        }
    }
    copies
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(shards: u32, speeds: &[f64]) -> Vec<usize> {
        let speeds: Vec<_> = (0..).zip(speeds.iter().copied()).collect();
        deal(shards, &speeds).iter().map(|s| s.shards.len()).collect()
    }

    #[test]
    fn shards_follow_speed() {
        assert_eq!(counts(8, &[1.0, 1.0]), [4, 4]);
        assert_eq!(counts(8, &[1.0, 1.0, 1.0]), [3, 3, 2]);
        assert_eq!(counts(8, &[3.0, 1.0]), [6, 2]);
        assert_eq!(counts(2, &[1.0, 1.0, 1.0]), [1, 1, 0]);
        assert_eq!(counts(8, &[1.0]), [8]);
    }

    #[test]
    fn small_gains_change_nothing() {
        let even = deal(8, &[(0, 1.0), (1, 1.0)]);
        assert_eq!(redeal(8, &[(0, 1.0), (1, 1.1)], &even), None);
        let (new, reason) = redeal(8, &[(0, 3.0), (1, 1.0)], &even).unwrap();
        assert_eq!(new[0].shards, 0..6);
        assert_eq!(reason, "measured speeds make 6/2 instead of 4/4 shards 50% faster");
    }

    #[test]
    fn copies_are_as_even_as_the_shares() {
        let copied = |shards, speeds: &[f64], redundancy| {
            let speeds: Vec<_> = (0..).zip(speeds.iter().copied()).collect();
            let copies = copies(&deal(shards, &speeds), &speeds, redundancy);
            copies.into_iter().map(|c| (c.worker, c.shards)).collect::<Vec<_>>()
        };
        assert_eq!(copied(6, &[1.0; 3], 0), []);
        assert_eq!(copied(6, &[1.0; 3], 1), [(1, 0..2), (2, 2..4), (0, 4..6)]);
        let twice = [(1, 0..2), (2, 2..4), (0, 4..6), (2, 0..2), (0, 2..4), (1, 4..6)];
        assert_eq!(copied(6, &[1.0; 3], 2), twice);
        assert_eq!(copied(6, &[1.0; 3], 9), twice, "there are no more workers");
        assert_eq!(copied(6, &[1.0], 1), []);
        assert_eq!(copied(2, &[1.0; 4], 1), [(2, 0..1), (3, 1..2)], "the one that stands by first");
        assert_eq!(copied(6, &[1.0, 4.0, 1.0], 1), [(1, 0..1), (2, 1..5), (1, 5..6)]);
    }

    proptest! {
        #[test]
        fn any_of_them_can_be_missing(
            shards in 1u32..40,
            speeds in prop::collection::vec(0.1f64..10.0, 1..8),
            redundancy in 0u32..5,
        ) {
            let speeds: Vec<_> = (0..).zip(speeds).collect();
            let shares = deal(shards, &speeds);
            let copies = copies(&shares, &speeds, redundancy);
            let each = (redundancy as usize).min(speeds.len() - 1) + 1;
            for share in shares.iter().filter(|s| !s.shards.is_empty()) {
                let others = copies.iter().filter(|c| c.shards == share.shards).map(|c| c.worker);
                let mut holders: Vec<u32> = others.chain([share.worker]).collect();
                holders.sort_unstable();
                holders.dedup();
                prop_assert_eq!(holders.len(), each);
            }
        }

        #[test]
        fn every_shard_is_dealt_once(shards in 1u32..100, speeds in prop::collection::vec(0.01f64..100.0, 1..20)) {
            let speeds: Vec<_> = (0..).zip(speeds).collect();
            let mut next = 0;
            for share in deal(shards, &speeds) {
                prop_assert_eq!(share.shards.start, next);
                next = share.shards.end;
            }
            prop_assert_eq!(next, shards);
        }
    }
}
