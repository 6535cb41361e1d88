//! Machines of a code in one process: they store what their slots do, and are lost at any time.

use crate::numbers::Numbers;
use planaria_numerics::{
    coding::{
        Paused, Slot, Standing,
        blocks::{Blocks, Encoder, Rows},
        gathering::{Gathering, Taken},
        generator::Generator,
        owed::{self, Owed},
        plan::{Plan, SubBlock},
        product,
    },
    random::Stream,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// What went on, for the bounds that hold on it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub rows: [usize; 2],
    pub extra: [usize; 2],
    pub losses: [usize; 2],
    pub decode_macs: [u64; 2],
    pub pauses: usize,
    pub discarded: usize,
}

/// Who is there, and how machines are lost in the middle of an iteration.
pub struct Losses {
    pub alive: BTreeSet<Slot>,
    pub draws: Stream,
    /// One in so many sub-blocks is followed by a loss; 0 for none.
    pub one_in: u64,
    /// Losses that may still come.
    pub left: usize,
}

impl Losses {
    pub fn calm(alive: BTreeSet<Slot>) -> Self {
        Self { alive, draws: crate::numbers::stream(0, 0), one_in: 0, left: 0 }
    }

    fn strikes(&mut self) -> bool {
        let strikes = self.left > 0 && !self.alive.is_empty() && self.draws.below(self.one_in) == 0;
        self.left -= usize::from(strikes);
        strikes
    }

    pub fn lose(&mut self) -> Slot {
        let at = self.draws.below(self.alive.len() as u64) as usize;
        let slot = *self.alive.iter().nth(at).expect("one is alive");
        self.alive.remove(&slot);
        slot
    }

    pub fn join(&mut self, machines: usize) {
        let free: Vec<Slot> =
            (0..machines as u16).map(Slot).filter(|s| !self.alive.contains(s)).collect();
        if !free.is_empty() {
            self.alive.insert(free[self.draws.below(free.len() as u64) as usize]);
        }
    }
}

pub struct Cluster<E: Numbers> {
    pub generator: Generator<E::Scalar>,
    pub blocks: Blocks,
    pub width: usize,
    stored: Vec<Vec<E>>,
}

/// The groups of product 1 when all has come, with members as they ended up.
pub struct Gathered<E> {
    pub groups: Vec<(Range<usize>, Vec<Slot>)>,
    pub products: Vec<E>,
}

impl<E: Numbers> Cluster<E> {
    pub fn new(threshold: usize, machines: usize, width: usize, data: &[E]) -> Self {
        let generator = E::generator(threshold, machines);
        let blocks = Blocks::new(data.len() / width, threshold).expect("rows");
        let encode = |slot| {
            let all = 0..blocks.height();
            let mut encoder = Encoder::new(&generator, slot, blocks, width, all).expect("a slot");
            encoder.push(0, &Rows::Dense { width, values: data }).expect("all rows");
            encoder.finish().expect("all rows came")
        };
        let stored = generator.slots().map(encode).collect();
        Self { generator, blocks, width, stored }
    }

    fn rows(&self, slot: Slot, places: &Range<usize>) -> &[E] {
        &self.stored[slot.index()][places.start * self.width..places.end * self.width]
    }

    /// Xw, row by row, under losses. Machines come back when there are too few.
    pub fn first(
        &self,
        plan: &Plan,
        weights: &[E],
        losses: &mut Losses,
        tally: &mut Tally,
    ) -> Gathered<E> {
        let columns = weights.len() / self.width;
        let mut gathering = Gathering::new(plan);
        let mut came: BTreeMap<SubBlock, Vec<E>> = BTreeMap::new();
        self.repair(&mut gathering, losses, tally);
        while !gathering.is_finished() {
            let owing = gathering.owing();
            let next = owing[losses.draws.below(owing.len() as u64) as usize];
            let places = gathering.places(next.group);
            let mut out = vec![E::default(); places.len() * columns];
            product::rows_times(self.width, self.rows(next.slot, &places), weights, &mut out);
            assert_eq!(gathering.take(next), Taken::New);
            assert_eq!(gathering.take(next), Taken::Again);
            tally.rows[0] += places.len();
            came.insert(next, out);
            if losses.strikes() {
                losses.lose();
                tally.losses[0] += 1;
                self.repair(&mut gathering, losses, tally);
            }
        }
        let products = self.decode(&gathering, plan, &mut came, columns, tally);
        tally.discarded += came.len();
        let group = |j| (gathering.places(j), gathering.members(j).to_vec());
        Gathered { groups: (0..plan.groups().len()).map(group).collect(), products }
    }

    fn repair(&self, gathering: &mut Gathering, losses: &mut Losses, tally: &mut Tally) {
        loop {
            let repaired = gathering.repair(&self.generator, E::PRECISION, &losses.alive);
            match repaired.expect("some group is good enough") {
                Standing::Ready(new) => {
                    tally.extra[0] +=
                        new.iter().map(|s| gathering.places(s.group).len()).sum::<usize>();
                    return;
                }
                Standing::Paused(paused) => self.pause(paused, losses, tally),
            }
        }
    }

    fn pause(&self, paused: Paused, losses: &mut Losses, tally: &mut Tally) {
        let need = self.generator.threshold();
        assert_eq!(paused, Paused { have: losses.alive.len(), need });
        tally.pauses += 1;
        losses.join(self.generator.machines());
    }

    fn decode(
        &self,
        gathering: &Gathering,
        plan: &Plan,
        came: &mut BTreeMap<SubBlock, Vec<E>>,
        columns: usize,
        tally: &mut Tally,
    ) -> Vec<E> {
        let mut products = vec![E::default(); self.blocks.rows() * columns];
        for group in (0..plan.groups().len()).filter(|g| !gathering.places(*g).is_empty()) {
            let places = gathering.places(group);
            let decoder = gathering.decoder(&self.generator, E::PRECISION, group).expect("good");
            let own: Vec<Vec<E>> = decoder
                .members()
                .iter()
                .map(|slot| came.remove(&SubBlock { group, slot: *slot }).expect("all came"))
                .collect();
            let views: Vec<&[E]> = own.iter().map(Vec::as_slice).collect();
            let length = places.len() * columns;
            let mut blocks = vec![E::default(); length * views.len()];
            tally.decode_macs[0] += decoder.decode(&views, &mut blocks);
            for (block, values) in blocks.chunks_exact(length).enumerate() {
                let rows = self.blocks.data_rows(block, &places);
                products[rows.start * columns..rows.end * columns]
                    .copy_from_slice(&values[..rows.len() * columns]);
            }
        }
        products
    }

    /// Xᵀg under losses: what a lost machine has not delivered others make up for.
    pub fn second(
        &self,
        gathered: &Gathered<E>,
        slopes: &[E],
        losses: &mut Losses,
        tally: &mut Tally,
    ) -> Vec<E> {
        let columns = slopes.len() / self.blocks.rows();
        let mut owed = self.entries(gathered, slopes, columns, tally);
        let mut sums: BTreeMap<Slot, Vec<E>> = BTreeMap::new();
        owed = self.hand_on(owed, losses, tally);
        while !owed.is_empty() {
            let next = match losses.left {
                0 => owed.remove(0),
                _ => owed.swap_remove(losses.draws.below(owed.len() as u64) as usize),
            };
            let sum =
                sums.entry(next.slot).or_insert_with(|| vec![E::default(); self.width * columns]);
            let rows = self.rows(next.slot, &next.places);
            product::add_rows_scaled(self.width, rows, &next.entries, sum);
            tally.rows[1] += next.places.len();
            if losses.strikes() {
                losses.lose();
                tally.losses[1] += 1;
                owed = self.hand_on(owed, losses, tally);
            }
        }
        let parts: Vec<&[E]> = sums.values().map(Vec::as_slice).collect();
        let mut out = vec![E::default(); self.width * columns];
        product::total(&parts, &mut out);
        out
    }

    fn entries(
        &self,
        gathered: &Gathered<E>,
        slopes: &[E],
        columns: usize,
        tally: &mut Tally,
    ) -> Vec<Owed<E>> {
        let mut owed = vec![];
        for (places, members) in gathered.groups.iter().filter(|(places, _)| !places.is_empty()) {
            let length = places.len() * columns;
            let mut blocks = vec![E::default(); length * members.len()];
            for (block, values) in blocks.chunks_exact_mut(length).enumerate() {
                let rows = self.blocks.data_rows(block, places);
                values[..rows.len() * columns]
                    .copy_from_slice(&slopes[rows.start * columns..rows.end * columns]);
            }
            let (decoder, _) = planaria_numerics::coding::group::decoder_within(
                &self.generator,
                members,
                E::PRECISION,
            )
            .expect("it decoded before");
            let mut entries = vec![E::default(); blocks.len()];
            tally.decode_macs[1] += decoder.transform(&blocks, &mut entries);
            for (slot, entries) in members.iter().zip(entries.chunks_exact(length)) {
                owed.push(Owed { slot: *slot, places: places.clone(), entries: entries.to_vec() });
            }
        }
        owed
    }

    fn hand_on(&self, owed: Vec<Owed<E>>, losses: &mut Losses, tally: &mut Tally) -> Vec<Owed<E>> {
        let mut next = vec![];
        for share in owed {
            loop {
                if losses.alive.contains(&share.slot) {
                    next.push(share);
                    break;
                }
                let handed = share.hand_on(&self.generator, E::PRECISION, &losses.alive);
                match handed.expect("some group is good enough") {
                    Standing::Paused(paused) => self.pause(paused, losses, tally),
                    Standing::Ready(others) => {
                        tally.extra[1] += others.iter().map(|o| o.places.len()).sum::<usize>();
                        next.extend(others);
                        break;
                    }
                }
            }
        }
        owed::merged(next)
    }
}

/// One machine that has all the data.
pub fn alone<E: Numbers>(width: usize, data: &[E], weights: &[E]) -> Vec<E> {
    let columns = weights.len() / width;
    let mut out = vec![E::default(); data.len() / width * columns];
    product::rows_times(width, data, weights, &mut out);
    out
}

pub fn alone_second<E: Numbers>(width: usize, data: &[E], slopes: &[E]) -> Vec<E> {
    let columns = slopes.len() * width / data.len();
    let mut out = vec![E::default(); width * columns];
    product::add_rows_scaled(width, data, slopes, &mut out);
    out
}
