//! What each epoch read, compared with the data. Pure.

use super::EpochAudit;
use crate::lineage::Tile;
use crate::summary::Summary;
use planaria_numerics::digest::Digest;
use planaria_protocol::event::Started;
use planaria_text::number::counted;
use std::collections::BTreeMap;
use std::ops::Range;

/// What counts of an epoch.
#[derive(Default)]
struct Sum {
    steps: u64,
    /// What these steps read.
    read: Digest,
}

/// Adds every epoch's ranges up and compares them with the data; `untold` steps are known to be
/// missing.
pub fn epochs(
    summary: &Summary,
    untold: &[Range<u64>],
    reasons: &mut Vec<String>,
) -> Vec<EpochAudit> {
    let tiles = &summary.lineage.tiles;
    let Some(setup) = &summary.started else { return by_their_own_events(summary) };
    let per_epoch = setup.steps_per_epoch.max(1);
    for tile in tiles {
        let (first, last) = (tile.first / per_epoch, (tile.end.max(1) - 1) / per_epoch);
        if (first, last) != (tile.epoch, tile.epoch) {
            reasons.push(format!(
                "{tile} say that they are of epoch {}, which they are not",
                tile.epoch + 1
            ));
        }
    }
    let check = |(epoch, sum): (u64, Sum)| {
        let own = epoch * per_epoch..(epoch + 1) * per_epoch;
        let lacks = untold.iter().any(|gap| gap.start < own.end && own.start < gap.end);
        let mut wrong = Vec::new();
        wrong.extend(wrong_count(setup, epoch, &sum, lacks));
        let whole = sum.steps == per_epoch;
        wrong.extend(wrong_event(summary, epoch, &sum, whole));
        let exact = wrong.is_empty();
        reasons.extend(wrong);
        EpochAudit { epoch: epoch + 1, steps: sum.steps, examples: sum.read.count, whole, exact }
    };
    sums(tiles).into_iter().map(check).collect()
}

/// By epoch.
fn sums(tiles: &[Tile]) -> BTreeMap<u64, Sum> {
    let mut sums: BTreeMap<u64, Sum> = BTreeMap::new();
    for tile in tiles {
        let sum = sums.entry(tile.epoch).or_default();
        sum.steps += tile.end - tile.first;
        sum.read = sum.read.combine(tile.read);
    }
    sums
}

/// Whether an epoch's steps read as many examples as they have, and a whole epoch each one.
fn wrong_count(setup: &Started, epoch: u64, sum: &Sum, lacks: bool) -> Option<String> {
    let Sum { steps, read } = *sum;
    let whole = steps == setup.steps_per_epoch.max(1);
    let expected = match whole {
        true => setup.digest.count,
        false => (steps.saturating_mul(setup.batch)).min(setup.digest.count),
    };
    let number = epoch + 1;
    // Which of an epoch's steps is shorter than the others is known for the first ones only.
    if read.count != expected && !(lacks && read.count < expected) {
        let (count, steps) = (counted(read.count, "example"), counted(steps, "step"));
        return Some(format!("epoch {number} read {count} in {steps} instead of {expected}"));
    }
    (whole && read != setup.digest)
        .then(|| format!("epoch {number} read {} examples, but not each exactly once", read.count))
}

/// Whether the event of a whole epoch tells the same.
fn wrong_event(summary: &Summary, epoch: u64, sum: &Sum, whole: bool) -> Option<String> {
    let (said, exact) = summary.read.get(&epoch).filter(|_| whole)?;
    let number = epoch + 1;
    if *said != sum.read {
        return Some(format!(
            "the event of epoch {number} says other examples than those of its steps"
        ));
    }
    (!exact).then(|| format!("the event of epoch {number} says that it is not exact"))
}

/// Where no event says which examples there are: epochs whose own event says what was read in
/// them, and whose ranges read that.
fn by_their_own_events(summary: &Summary) -> Vec<EpochAudit> {
    let audit = |(epoch, Sum { steps, read }): (u64, Sum)| {
        let said = summary.read.get(&epoch).filter(|(said, _)| *said == read);
        EpochAudit {
            epoch: epoch + 1,
            steps,
            examples: read.count,
            whole: said.is_some(),
            exact: said.is_some_and(|(_, exact)| *exact),
        }
    };
    sums(&summary.lineage.tiles).into_iter().map(audit).collect()
}
