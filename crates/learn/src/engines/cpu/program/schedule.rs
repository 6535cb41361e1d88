//! Operations to stages, and every tensor to its place.

use super::conv::Conv;
use super::operation::{INPUT, Operation, Slot};
use super::{Norm, Program, Size};
use crate::engines::cpu::kernels::simd::LANES;
use std::collections::BTreeSet;
use std::ops::Range;

/// Operations run image by image, or one operation on the whole shard.
#[derive(Debug)]
pub struct Stage {
    /// Whether `operations` is one operation on the whole shard.
    pub whole_shard: bool,
    pub operations: Vec<Operation>,
    /// What is done once all images have passed.
    pub finish: Vec<Finish>,
}

/// What ends a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finish {
    /// Mean and deviation from the sums of a normalisation.
    Norm(usize),
    /// Coefficients of a normalisation's input gradient, and its parameters' gradients.
    NormBackward(usize),
    /// Weight gradient of a convolution from gathered tiles.
    Weights(usize),
}

impl Finish {
    /// The parameters whose gradient it writes.
    pub fn writes(self, convs: &[Conv], norms: &[Norm]) -> Vec<Range<usize>> {
        match self {
            Self::Norm(_) => vec![],
            Self::NormBackward(n) => {
                vec![norms[n].plan.gamma.clone(), norms[n].plan.beta.clone()]
            }
            Self::Weights(conv) => vec![convs[conv].kernel.clone()],
        }
    }
}

/// Where a slot lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The examples as given.
    Input,
    /// At this offset × examples of the arena, one image after another.
    Arena(usize),
    /// At this offset of the scratch image.
    Scratch(usize),
    Nowhere,
}

/// Schedules `operations`. `views` are slots that lie where another one does. `gathers` tells which convolutions gather tiles over images for their
/// weight gradients: they share one gathering place, so that a stage holds one of them.
pub fn schedule(
    operations: Vec<Operation>,
    sizes: Vec<Size>,
    views: &[(Slot, Slot)],
    output: Slot,
    gathers: impl Fn(usize) -> bool,
) -> Program {
    let stages = split(operations, gathers);
    let (places, arena_len, scratch_len) = place(&stages, &sizes, views, output);
    Program { stages, sizes, places, arena_len, scratch_len, output }
}

fn split(operations: Vec<Operation>, gathers: impl Fn(usize) -> bool) -> Vec<Stage> {
    let mut stages: Vec<Stage> = vec![];
    let mut open: Vec<Operation> = vec![];
    let mut pending: BTreeSet<(usize, bool)> = BTreeSet::new();
    let mut gathering: Option<usize> = None;
    let mut close = |open: &mut Vec<Operation>,
                     pending: &mut BTreeSet<(usize, bool)>,
                     gathering: &mut Option<usize>| {
        let mut finish: Vec<Finish> = std::mem::take(pending)
            .into_iter()
            .map(|(n, back)| if back { Finish::NormBackward(n) } else { Finish::Norm(n) })
            .collect();
        finish.extend(gathering.take().map(Finish::Weights));
        if !open.is_empty() {
            let operations = std::mem::take(open);
            stages.push(Stage { whole_shard: operations[0].is_whole_shard(), operations, finish });
        }
    };
    for operation in operations {
        let gather = match operation {
            Operation::ConvWeights { conv, .. } if gathers(conv) => Some(conv),
            Operation::PooledWeights { conv, .. } => Some(conv),
            _ => None,
        };
        let clash = gather.is_some() && gathering.is_some_and(|g| Some(g) != gather);
        if operation.is_whole_shard()
            || clash
            || operation.needs_sums().iter().any(|n| pending.contains(n))
        {
            close(&mut open, &mut pending, &mut gathering);
        }
        pending.extend(operation.sums_into());
        gathering = gathering.or(gather);
        let whole = operation.is_whole_shard();
        open.push(operation);
        if whole {
            close(&mut open, &mut pending, &mut gathering);
        }
    }
    close(&mut open, &mut pending, &mut gathering);
    stages
}

/// Where and when a slot is used: (stage, operation).
#[derive(Clone, Copy)]
struct Life {
    first: (usize, usize),
    last: (usize, usize),
}

fn place(
    stages: &[Stage],
    sizes: &[Size],
    views: &[(Slot, Slot)],
    output: Slot,
) -> (Vec<Place>, usize, usize) {
    let mut roots: Vec<usize> = (0..sizes.len()).collect();
    for (view, of) in views {
        roots[view.0] = roots[of.0];
    }
    let mut lives: Vec<Option<Life>> = vec![None; sizes.len()];
    for (s, stage) in stages.iter().enumerate() {
        for (o, operation) in stage.operations.iter().enumerate() {
            for slot in operation.slots() {
                let at = (s, o);
                let life = lives[roots[slot.0]].get_or_insert(Life { first: at, last: at });
                life.last = at;
            }
        }
    }
    if let Some(life) = &mut lives[roots[output.0]] {
        // The result is read after the last stage.
        life.last = (stages.len(), 0);
    }
    let mut places = vec![Place::Nowhere; sizes.len()];
    let mut arena = vec![];
    let mut scratch = vec![vec![]; stages.len()];
    for (slot, life) in lives.iter().enumerate() {
        let Some(life) = *life else { continue };
        if slot == INPUT.0 {
            places[slot] = Place::Input;
        } else if life.first.0 == life.last.0 && !stages[life.first.0].whole_shard {
            scratch[life.first.0].push((slot, life.first.1, life.last.1));
        } else {
            arena.push((slot, life.first.0, life.last.0));
        }
    }
    let arena_len = pack(arena, sizes, |slot, at| places[slot] = Place::Arena(at));
    let mut scratch_len = 0;
    for stage in scratch {
        let len = pack(stage, sizes, |slot, at| places[slot] = Place::Scratch(at));
        scratch_len = scratch_len.max(len);
    }
    for slot in 0..places.len() {
        places[slot] = places[roots[slot]];
    }
    (places, arena_len, scratch_len)
}

/// Gives each (slot, first, last) the lowest free stretch of its lifetime, larger slots first;
/// returns the length needed.
fn pack(
    mut slots: Vec<(usize, usize, usize)>,
    sizes: &[Size],
    mut put: impl FnMut(usize, usize),
) -> usize {
    let length = |slot: usize| sizes[slot].len().next_multiple_of(LANES);
    slots.sort_by_key(|(slot, first, _)| (std::cmp::Reverse(length(*slot)), *first));
    let mut placed: Vec<(usize, usize, usize, usize)> = vec![];
    let mut total = 0;
    for (slot, first, last) in slots {
        let mut at = 0;
        let mut busy: Vec<(usize, usize)> = placed
            .iter()
            .filter(|(_, _, f, l)| *f <= last && first <= *l)
            .map(|(from, to, ..)| (*from, *to))
            .collect();
        busy.sort_unstable();
        for (from, to) in busy {
            if at + length(slot) <= from {
                break;
            }
            at = at.max(to);
        }
        placed.push((at, at + length(slot), first, last));
        total = total.max(at + length(slot));
        put(slot, at);
    }
    total
}
