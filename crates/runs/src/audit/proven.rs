//! What an audit proves, also where events are missing: by events, and by the newest checkpoint. Pure.

use super::{Checkpoint, EpochAudit};
use crate::lineage::Lineage;
use planaria_text::number::{counted, grouped};

/// Sentences, each of something that is proven and by what.
pub fn proven(
    lineage: &Lineage,
    epochs: &[EpochAudit],
    checkpoint: Option<&Checkpoint>,
    weights_match: Option<bool>,
) -> Vec<String> {
    let mut proven = Vec::new();
    let exact = epochs.iter().filter(|e| e.whole && e.exact).map(|e| (e.epoch, e.epoch));
    if let Some(list) = listed(exact, |last, next| last + 1 == next) {
        proven.push(format!("events: each example was read exactly once in epoch {list}"));
    }
    let tiles = lineage.tiles.iter().map(|tile| (tile.first + 1, tile.end));
    if let Some(list) = listed(tiles, |last, next| last + 1 == next) {
        proven.push(format!("events: each was committed once, step {list}"));
    }
    if let Some(Checkpoint { step, epochs, exact_epochs, .. }) = checkpoint {
        let exact = match exact_epochs == epochs {
            true => "in each of them",
            false => &format!("in {} of them", grouped(*exact_epochs)),
        };
        proven.push(format!(
            "the checkpoint of step {}, which is whole: {} before it, {exact} every example was \
             read exactly once, as the coordinator counted",
            grouped(*step),
            counted(*epochs, "whole epoch")
        ));
    }
    if weights_match == Some(true) {
        proven.push("the report's weights are those of the newest checkpoint".into());
    }
    proven
}

/// Ranges in words, neighbours as one: `1 to 4, 6`. Nothing where there is none.
fn listed(
    ranges: impl Iterator<Item = (u64, u64)>,
    follows: impl Fn(u64, u64) -> bool,
) -> Option<String> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(before) if follows(before.1, first) => before.1 = last,
            _ => joined.push((first, last)),
        }
    }
    let word = |(first, last): &(u64, u64)| match first == last {
        true => grouped(*first),
        false => format!("{} to {}", grouped(*first), grouped(*last)),
    };
    (!joined.is_empty()).then(|| joined.iter().map(word).collect::<Vec<_>>().join(", "))
}
