//! When gradients are final: which blocks no later stage of a program writes.
//!
//! Owns the lists, made when a network is compiled. Never looks at gradients themselves.

use super::conv::Conv;
use super::schedule::Stage;
use super::{Dense, Norm};
use planaria_numerics::aggregate::BLOCK;
use std::ops::Range;

/// For each stage, the runs of blocks that are final once it is done; every block is in one.
pub type Finals = Vec<Vec<Range<usize>>>;

/// The blocks of `parameters` gradients that are final after each stage. What no stage writes is
/// final after the first.
pub fn after_stages(
    stages: &[Stage],
    convs: &[Conv],
    denses: &[Dense],
    norms: &[Norm],
    parameters: usize,
) -> Finals {
    let mut last = vec![0; parameters.div_ceil(BLOCK)];
    for (number, stage) in stages.iter().enumerate() {
        let operations = stage.operations.iter().flat_map(|o| o.writes(convs, denses));
        let finish = stage.finish.iter().flat_map(|f| f.writes(convs, norms));
        for range in operations.chain(finish) {
            last[range.start / BLOCK..range.end.div_ceil(BLOCK)].fill(number);
        }
    }
    let mut finals = vec![vec![]; stages.len()];
    for (block, stage) in last.into_iter().enumerate() {
        join(&mut finals[stage], block..block + 1);
    }
    finals
}

/// The same with small lists held back until `least` blocks wait or the program ends, and long runs
/// cut into pieces of about `least` blocks.
pub fn in_pieces(finals: &Finals, least: usize) -> Finals {
    let mut waiting: Vec<Range<usize>> = vec![];
    let mut pieces = vec![vec![]; finals.len()];
    for (stage, ranges) in finals.iter().enumerate() {
        waiting.extend(ranges.iter().cloned());
        let count: usize = waiting.iter().map(ExactSizeIterator::len).sum();
        if count >= least || stage + 1 == finals.len() {
            waiting.sort_unstable_by_key(|r| r.start);
            let mut runs = vec![];
            waiting.drain(..).for_each(|range| join(&mut runs, range));
            pieces[stage] = runs.into_iter().flat_map(|run| cut(run, least)).collect();
        }
    }
    pieces
}

/// Adds a range that begins at or after the last one's end.
fn join(runs: &mut Vec<Range<usize>>, range: Range<usize>) {
    match runs.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => runs.push(range),
    }
}

/// Even pieces, as many as have at least `least` blocks.
fn cut(run: Range<usize>, least: usize) -> impl Iterator<Item = Range<usize>> {
    let (start, len) = (run.start, run.len());
    let count = (len / least).max(1);
    (0..count).map(move |i| start + i * len / count..start + (i + 1) * len / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_lists_wait_and_long_runs_are_cut() {
        let finals = vec![vec![], vec![90..91], vec![80..90], vec![70..80, 0..1], vec![1..70]];
        let wanted = vec![
            vec![],
            vec![],
            vec![],
            // 21 blocks are one piece.
            vec![0..1, 70..91],
            vec![1..18, 18..35, 35..52, 52..70],
        ];
        assert_eq!(in_pieces(&finals, 16), wanted);
        let held = in_pieces(&vec![vec![0..1, 3..4], vec![]], 16);
        assert_eq!(held, [vec![], vec![0..1, 3..4]]);
    }
}
