//! Which worker computes which shards, by how fast each is: a pure function with its reason.

use planaria_protocol::message::Share;

/// Share of a step's time that a new deal must save to be worth changing everyone's memory.
const GAIN_MIN: f64 = 0.15;

/// Shares of `shards` for workers that compute so many shards per second, in the order of workers:
/// the shards go one by one to whoever would be done with one more the soonest, so that the slowest
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

    proptest! {
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
