//! Everything a server does, without its links.
//!
//! Takes orders and what workers push, from one thread or many, and says what is to be sent through
//! an [`Outlet`]. So the same server runs in a process of its own and in a simulation. Owns the
//! blocks, who follows them, and the way from a region that was left to one that goes on. Never
//! decides when a step counts.

pub use super::outlet::{Outlet, Peer};

use super::Log;
use super::chunk::{Bulk, Turn};
use super::followers::{Followers, alone};
use super::region::{Place, Region};
use super::snapshot::Snapshot;
use super::store::{Progress, Reach, Settings, Store};
use super::tally::Counted;
use planaria_learn::{Network, Statistics};
use planaria_numerics::aggregate::BLOCK;
use planaria_numerics::optimizer;
use planaria_numerics::tree::Segment;
use planaria_protocol::bytes;
use planaria_protocol::checkpoint;
use planaria_protocol::launch::Facts;
use planaria_protocol::message::{FromServer, Kept, Pull, Push, Sha256, Source, ToServer, Trouble};
use planaria_recipe::Recipe;
use sha2::Digest;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a server keeps; see the module.
pub struct Keeper {
    place: Place,
    log: Log,
    network: Network,
    recipe: Recipe,
    examples: u64,
    store: Mutex<Option<Arc<Store>>>,
    /// How often it was closed.
    session: AtomicU64,
    followers: Followers,
    /// Of the parameters after so many steps, for the next who asks.
    hash: Mutex<Option<(u64, Sha256)>>,
    /// Held while a copy is written: two writers would be in each other's way.
    writing: Arc<Mutex<()>>,
    /// Reused for the squares of a step.
    squares: Mutex<Vec<f64>>,
    /// Reused for the statistics of a shard, one for each thread that reads some.
    statistics: Mutex<Vec<Vec<f32>>>,
}

impl Keeper {
    /// A server of this run. Takes over what a process before it has left in its place.
    pub fn new(recipe: &Recipe, facts: &Facts, place: Place, log: Log) -> Result<Self, Trouble> {
        let network = Network::of(recipe, facts.input).map_err(Trouble::new)?;
        let keeper = Self {
            place,
            log,
            network,
            recipe: recipe.clone(),
            examples: facts.examples,
            store: Mutex::default(),
            session: AtomicU64::new(0),
            followers: Followers::default(),
            hash: Mutex::default(),
            writing: Arc::default(),
            squares: Mutex::default(),
            statistics: Mutex::default(),
        };
        let fits = |shape: &super::region::Shape| {
            keeper.is_in_network(&shape.blocks)
                && *shape == keeper.settings(&shape.blocks).shape(keeper.state_count())
        };
        if let Some(region) = Region::adopt(&keeper.place, fits, &keeper.log) {
            let settings = keeper.settings(&region.shape().blocks);
            let store = Store::new(settings, region, keeper.statistics());
            *keeper.lock_store() = Some(Arc::new(store));
        }
        if let Some(kept) = keeper.kept() {
            (keeper.log)(&format!(
                "found the values of blocks {:?} after {:?} steps",
                kept.blocks, kept.steps
            ));
        }
        Ok(keeper)
    }

    /// What could be gone on from.
    pub fn kept(&self) -> Option<Kept> {
        let store = self.lock_store().clone()?;
        let marked = store.marked();
        let committed = marked.committed?;
        let mut steps = vec![committed];
        steps.extend(marked.applied.filter(|applied| *applied != committed));
        let blocks = &store.settings().blocks;
        let blocks = blocks.start as u32..blocks.end as u32;
        Some(Kept { blocks, steps, snapshot: marked.snapshot })
    }

    /// Compares what could be gone on from with its sums, after [`Keeper::close`]. What is not what
    /// it was is not kept any longer, and the log says so.
    pub fn compare(&self) {
        let Some(store) = self.lock_store().clone() else { return };
        if let Err(why) = store.compare() {
            (self.log)(&format!("{why}: bytes were changed, and nothing is kept of them"));
        }
    }

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
            ToServer::Alive | ToServer::Weather(_) | ToServer::Finish => {}
        }
        Ok(None)
    }

    /// Whether [`Keeper::push`] would wait for a step's turn.
    pub fn would_wait(&self, push: &Push) -> bool {
        let Ok(store) = self.store() else { return false };
        match push {
            Push::State { step } => store.reach_would_wait(store.era(), *step),
            Push::Gradient { step, .. } | Push::Shard { step, .. } => store.enter_would_wait(*step),
            // Who wants a step to come is remembered: its link may bring what that step needs.
            Push::Follow { .. } | Push::Unfollow => false,
        }
    }

    /// Takes what a worker pushes. An error ends its link.
    pub fn push(
        &self,
        from: Peer,
        push: &Push,
        bulk: &mut dyn Bulk,
        outlet: &dyn Outlet,
    ) -> Result<(), Trouble> {
        let (store, era) = self.admit(from)?;
        let at = |step| Turn { era, step };
        match *push {
            Push::Follow { step } => self.wish(&store, from, at(step), outlet),
            Push::Unfollow => {
                let desk = self.followers.desk(from);
                let _alone = alone(&desk);
                self.followers.forget(from);
                self.followers.remove(from);
                Ok(())
            }
            Push::State { step } => state(&store, from, at(step), outlet),
            Push::Gradient { step, first_shard, shards, first_block } => {
                let segment = Segment { first: first_shard as usize, count: shards as usize };
                let what = (at(step), segment, first_block as usize);
                self.gradient(&store, from, what, bulk, outlet)
                    .map_err(|e| Trouble::new(format!("cannot take its gradient: {e}")))
            }
            Push::Shard { step, shard, loss_sum, correct, read } => {
                let counted = Counted { loss_sum, correct, read };
                self.count(&store, (at(step), shard), counted, bulk, outlet)
            }
        }
    }

    /// Workers whose wish to follow has waited for a step that is committed by now. Each is to be
    /// given to [`Keeper::begin_following`], on a thread of its own where threads are.
    pub fn due(&self) -> Vec<Peer> {
        self.store().map_or_else(|_| Vec::new(), |store| self.followers.due(store.step()))
    }

    /// Does what a worker has waited for; see [`Keeper::due`]. An error ends its link.
    pub fn begin_following(&self, peer: Peer, outlet: &dyn Outlet) -> Result<(), Trouble> {
        let (store, era) = self.admit(peer)?;
        let desk = self.followers.desk(peer);
        let _alone = alone(&desk);
        // It may have wished for something else meanwhile.
        match self.followers.forget(peer) {
            Some(step) => self.follow_or_wait(&store, peer, Turn { era, step }, outlet),
            None => Ok(()),
        }
    }

    /// A worker's link has ended.
    pub fn left(&self, peer: Peer) {
        self.followers.left(peer);
        if let Ok(store) = self.store() {
            store.leave(peer.link);
        }
    }

    /// Answers that came late, for what was there already, since this was last asked.
    pub fn take_late(&self) -> u64 {
        self.store().map_or(0, |store| store.take_late())
    }

    /// Bytes of the parameters held.
    pub fn parameter_bytes(&self) -> usize {
        self.store().map_or(0, |store| store.settings().range().len() * size_of::<f32>())
    }

    /// Of whoever connects from now on. After [`Keeper::close`] it is another, and links of before
    /// are refused, whatever they still bring.
    pub fn session(&self) -> u64 {
        self.session.load(Ordering::SeqCst)
    }

    /// Takes nothing more until the server begins again, and nothing ever from links of before;
    /// whoever waits is let go. What is kept stays.
    pub fn close(&self) {
        self.session.fetch_add(1, Ordering::SeqCst);
        self.let_go();
    }

    fn let_go(&self) {
        if let Ok(store) = self.store() {
            store.close();
        }
        self.followers.clear();
    }

    /// The run is over: nobody is to go on from what is kept.
    pub fn remove(&self) {
        if let Ok(store) = self.store() {
            store.remove();
        }
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

    /// A worker wants to follow from a step on, and nothing that it wanted before.
    fn wish(
        &self,
        store: &Store,
        from: Peer,
        at: Turn,
        outlet: &dyn Outlet,
    ) -> Result<(), Trouble> {
        let desk = self.followers.desk(from);
        let _alone = alone(&desk);
        self.follow_or_wait(store, from, at, outlet)
    }

    /// Lets it follow, or remembers that it waits; the desk is held.
    fn follow_or_wait(
        &self,
        store: &Store,
        from: Peer,
        at: Turn,
        outlet: &dyn Outlet,
    ) -> Result<(), Trouble> {
        self.followers.wait(from, at.step);
        // Looked at after that is noted: a commit in between finds it.
        if store.reach_would_wait(at.era, at.step) {
            return Ok(());
        }
        self.followers.forget(from);
        self.follow(store, from, at, outlet)
    }

    /// Sends all parameters after a step, and those of every later step from then on.
    fn follow(
        &self,
        store: &Store,
        from: Peer,
        at: Turn,
        outlet: &dyn Outlet,
    ) -> Result<(), Trouble> {
        let step = at.step;
        let mut reached = store.reach(at.era, step);
        if reached == Reach::There {
            // From before the copy on, so that no step falls in between.
            self.followers.add(from);
            let known = *self.hash.lock().expect("no thread panics with the hash");
            let known = known.filter(|(of, _)| *of == step);
            let mut hash = sha2::Sha256::new();
            let (mut values, mut next) = (Vec::new(), Vec::new());
            for chunk in 0..store.chunks() {
                let block;
                (block, reached) = store.parameters(chunk, at, (&mut values, &mut next));
                if reached != Reach::There {
                    break;
                }
                if known.is_none() {
                    hash.update(bytes::as_bytes(&values));
                }
                let first_block = block as u32;
                let now = Pull::Parameters { step, first_block };
                let then = Pull::Parameters { step: step + 1, first_block };
                if !outlet.answer(from, &now, &values)
                    || !next.is_empty() && !outlet.answer(from, &then, &next)
                {
                    self.followers.remove(from);
                    return Ok(());
                }
            }
            if reached == Reach::There {
                let sha256 = known.map_or_else(|| hash.finalize().into(), |(_, sha256)| sha256);
                *self.hash.lock().expect("no thread panics with the hash") = Some((step, sha256));
                let pulled = FromServer::Pulled { worker: from.worker, step, sha256 };
                outlet.coordinator(&pulled, &[]);
                return Ok(());
            }
        }
        self.followers.remove(from);
        gone(reached, from, step, outlet)
    }

    fn gradient(
        &self,
        store: &Store,
        from: Peer,
        (Turn { era, step }, segment, first_block): (Turn, Segment, usize),
        bulk: &mut dyn Bulk,
        outlet: &dyn Outlet,
    ) -> Result<(), super::store::Refused> {
        use super::store::Refused;
        let Some((turn, round)) = store.enter(era, step)? else {
            // Its step is over: counted already, by whoever sent it first.
            store.note_late();
            return Ok(bulk.skip(bulk.bytes() / size_of::<f32>())?);
        };
        let index = round.segment(segment).ok_or(Refused::Segment(segment, step))?;
        let ready = |block: usize, values: &[f32]| self.hand_out(step, block, values, outlet);
        let place = (from.link, index);
        let progress = store.gradient((turn, &round), place, first_block, bulk, ready)?;
        self.report(store, step, progress, outlet);
        Ok(())
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

    fn report(&self, store: &Store, step: u64, progress: Progress, outlet: &dyn Outlet) {
        let message = match progress {
            Progress::Gathering => return,
            Progress::Summed => FromServer::Summed { step },
            Progress::Applied => FromServer::Applied { step },
        };
        let mut squares = self.squares.lock().expect("no thread panics with the squares");
        squares.clear();
        // Where they are clipped, they were told with `Summed`.
        let clips = self.recipe.train.clip_norm.is_some();
        if progress == Progress::Summed || !clips {
            store.squares(&mut squares);
        }
        outlet.coordinator(&message, &squares);
    }

    /// Sends new parameters to everyone who follows.
    fn hand_out(&self, step: u64, block: usize, values: &[f32], outlet: &dyn Outlet) {
        let message = Pull::Parameters { step: step + 1, first_block: block as u32 };
        for peer in self.followers.all().iter() {
            if !outlet.hand_out(*peer, &message, values) {
                self.followers.remove(*peer);
            }
        }
    }

    fn count(
        &self,
        store: &Store,
        (Turn { era, step }, shard): (Turn, u32),
        counted: Counted,
        bulk: &mut dyn Bulk,
        outlet: &dyn Outlet,
    ) -> Result<(), Trouble> {
        if self.place.index != 0 {
            return Err(Trouble::new("only server 0 counts shards"));
        }
        let Some((turn, _)) = store.enter(era, step).map_err(Trouble::new)? else {
            store.note_late();
            return bulk.skip(bulk.bytes() / size_of::<f32>()).map_err(Trouble::new);
        };
        let shards = self.recipe.train.shards;
        if shard as usize >= shards {
            return Err(Trouble::new(format!("shard {shard} of step {step} is not of {shards}")));
        }
        // Read before the tally is taken, so that a slow link keeps nobody else from counting.
        let spare = self.lock_statistics().pop();
        let mut stats = spare.unwrap_or_else(|| vec![0.0; self.network.stats_count()]);
        if stats.len() * size_of::<f32>() != bulk.bytes() {
            let (sent, count) = (bulk.bytes(), stats.len());
            return Err(Trouble::new(format!("{sent} bytes of statistics are not {count} values")));
        }
        let read = bulk.read(&mut stats).map_err(Trouble::new);
        let whole = read.map(|()| store.count(turn, shard as usize, counted, &stats));
        self.lock_statistics().push(stats);
        if let Some((Counted { loss_sum, correct, read }, progress)) = whole? {
            outlet.coordinator(&FromServer::Counted { step, loss_sum, correct, read }, &[]);
            self.report(store, step, progress, outlet);
        }
        Ok(())
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

    fn settings(&self, blocks: &Range<u32>) -> Settings {
        Settings {
            blocks: blocks.start as usize..blocks.end as usize,
            parameters: self.network.parameter_count(),
            train: self.recipe.train.clone(),
            examples: self.examples,
        }
    }

    fn is_in_network(&self, blocks: &Range<u32>) -> bool {
        let all = self.network.parameter_count().div_ceil(BLOCK);
        blocks.start <= blocks.end && blocks.end as usize <= all
    }

    /// Values of the state, on the server that keeps it.
    fn state_count(&self) -> usize {
        if self.place.index == 0 { self.network.state_count() } else { 0 }
    }

    fn statistics(&self) -> Option<Statistics> {
        (self.place.index == 0).then(|| Statistics::new(&self.network))
    }

    /// The store as a link finds it, and its era.
    fn admit(&self, peer: Peer) -> Result<(Arc<Store>, u64), Trouble> {
        let store = self.store()?;
        let era = store.era();
        // Looked at last: if the link is of this session, so is what was read before.
        if self.session() != peer.session {
            return Err(Trouble::new("its link is of an older generation"));
        }
        Ok((store, era))
    }

    fn store(&self) -> Result<Arc<Store>, Trouble> {
        self.lock_store().clone().ok_or_else(|| Trouble::new("the server has not begun"))
    }

    fn lock_store(&self) -> MutexGuard<'_, Option<Arc<Store>>> {
        self.store.lock().expect("no thread panics with the store")
    }

    fn lock_statistics(&self) -> MutexGuard<'_, Vec<Vec<f32>>> {
        self.statistics.lock().expect("no thread panics with the statistics")
    }
}

/// Sends the state after a step.
fn state(store: &Store, from: Peer, at: Turn, outlet: &dyn Outlet) -> Result<(), Trouble> {
    let Turn { era, step } = at;
    let reached = store.reach(era, step);
    if reached != Reach::There {
        return gone(reached, from, step, outlet);
    }
    match store.state(era, step) {
        None => Err(Trouble::new("only server 0 keeps the state")),
        Some((state, Reach::There)) => {
            outlet.answer(from, &Pull::State { step }, &state);
            Ok(())
        }
        Some((_, reached)) => gone(reached, from, step, outlet),
    }
}

/// Tells a worker that what it asked for is over.
fn gone(reached: Reach, from: Peer, step: u64, outlet: &dyn Outlet) -> Result<(), Trouble> {
    if reached == Reach::Over {
        return Err(Trouble::new("the server is ending"));
    }
    outlet.answer(from, &Pull::Gone { step }, &[]);
    Ok(())
}
