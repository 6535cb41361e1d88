//! What a server does when the coordinator says so.

use super::super::region::Region;
use super::super::snapshot::Snapshot;
use super::super::store::{Progress, Store};
use super::super::tally::Counted;
use super::{Outlet, Server, WAITING_BYTES_MAX};
use planaria_numerics::optimizer;
use planaria_numerics::tree::Segment;
use planaria_protocol::checkpoint;
use planaria_protocol::message::{FromServer, Source, ToServer, Trouble};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Server {
    /// Does what the coordinator says. A snapshot is the caller's to write, on another thread, and
    /// to tell the coordinator what came of it.
    pub fn order(
        &self,
        order: &ToServer,
        outlet: &dyn Outlet,
    ) -> Result<Option<Snapshot>, Trouble> {
        match order {
            ToServer::Begin { blocks, source, step } => {
                self.begin(blocks, source, *step)?;
                outlet.coordinator(&FromServer::Ready, &[]);
            }
            ToServer::Round { steps, shares } => {
                self.store()?.plan(steps.clone(), shares).map_err(Trouble::new)?;
            }
            ToServer::Missing { step } => {
                let store = self.store()?;
                self.tell_again(&store, *step, outlet);
                let (segments, shards) = store.missing(*step);
                let pair = |s: Segment| (s.first as u32, s.count as u32);
                let segments = segments.into_iter().map(pair).collect();
                let missing = FromServer::Missing { step: *step, segments, shards };
                outlet.coordinator(&missing, &[]);
            }
            ToServer::Clip { step, factor } => {
                let store = self.store()?;
                let ready = |block: usize, values: &[f32]| {
                    self.hand_out(*step, block, values, outlet);
                };
                let progress = store.clip(*step, *factor, ready).map_err(Trouble::new)?;
                self.report(&store, *step, progress, outlet);
            }
            ToServer::Commit { step } => self.store()?.commit(*step).map_err(Trouble::new)?,
            ToServer::Save { step, folder } => return self.save(*step, folder, outlet),
            ToServer::Alive | ToServer::FrameLoss(_) | ToServer::Finish => {}
        }
        Ok(None)
    }

    fn begin(&self, blocks: &Range<u32>, source: &Source, step: u64) -> Result<(), Trouble> {
        if !self.is_in_network(blocks) {
            return Err(Trouble::new(format!("blocks {blocks:?} are not the network's")));
        }
        // Where there is nothing to keep, nothing can be lost.
        let is_empty = blocks.is_empty() && self.place.index != 0;
        let source = if is_empty { &Source::Seed } else { source };
        self.let_go();
        *self.hash.lock().expect("no thread panics with the hash") = None;
        let store = self.store_of(blocks, source)?;
        let recipe = &self.recipe;
        let range = store.settings().range();
        let two_steps = 2 * range.len() * size_of::<f32>();
        let waiting_max = (two_steps + self.spare_bytes).min(WAITING_BYTES_MAX);
        self.waiting_max.store(waiting_max, Ordering::Relaxed);
        match source {
            Source::Kept => store.begin_kept(step),
            Source::Seed => {
                let (parameters, state) = self.network.initialise(recipe.seed);
                let slots = optimizer::slots(&recipe.train.optimizer);
                let slots = vec![vec![0.0; range.len()]; slots];
                store.begin_with(step, &parameters[range], &slots, &state)
            }
            Source::Checkpoint(folder) => {
                let range = range.start as u64..range.end as u64;
                let saved = checkpoint::read_range(Path::new(folder), range);
                let weights = saved.map_err(Trouble::new)?.weights;
                store.begin_with(step, &weights.parameters, &weights.optimizer, &weights.state)
            }
        }
        .map_err(Trouble::new)
    }

    /// The store of these blocks: the one that is there, or a new one in its place.
    fn store_of(&self, blocks: &Range<u32>, source: &Source) -> Result<Arc<Store>, Trouble> {
        let settings = self.settings(blocks);
        let mut held = self.lock_store();
        if let Some(store) = held.as_ref().filter(|s| s.settings().blocks == settings.blocks) {
            return Ok(store.clone());
        }
        if *source == Source::Kept {
            let kept = match held.as_ref() {
                Some(store) => format!("blocks {:?} are", store.settings().blocks),
                None => "nothing is".into(),
            };
            return Err(Trouble::new(format!("blocks {blocks:?} are not kept here: {kept}")));
        }
        if let Some(other) = held.take() {
            other.remove();
        }
        let region = Region::make(&self.place, settings.shape(self.state_count()), &self.log)
            .map_err(|e| Trouble::new(format!("no memory for blocks {blocks:?}: {e}")))?;
        let store = Arc::new(Store::new(settings, region, self.statistics()));
        Ok(held.insert(store).clone())
    }

    /// Says what was said of a step before: it may not have been heard.
    fn tell_again(&self, store: &Store, step: u64, outlet: &dyn Outlet) {
        let told = store.told(step);
        if told.summed {
            self.report(store, step, Progress::Summed, outlet);
        }
        if let Some(Counted { loss_sum, correct, read }) = told.counted {
            outlet.coordinator(&FromServer::Counted { step, loss_sum, correct, read }, &[]);
        }
        if told.applied {
            self.report(store, step, Progress::Applied, outlet);
        }
    }

    fn save(
        &self,
        step: u64,
        folder: &str,
        outlet: &dyn Outlet,
    ) -> Result<Option<Snapshot>, Trouble> {
        let store = self.store()?;
        match store.snapshot(step) {
            Ok(third) => Ok(Some(Snapshot {
                step,
                folder: folder.to_string(),
                index: self.place.index,
                start: store.settings().range().start as u64,
                third,
                writing: self.writing.clone(),
            })),
            Err(why) => {
                outlet.coordinator(&FromServer::NotSaved { step, why }, &[]);
                Ok(None)
            }
        }
    }
}
