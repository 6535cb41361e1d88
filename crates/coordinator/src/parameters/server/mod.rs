//! A server as a value: events go in, what is to be sent and done comes out.
//!
//! [`Server::on`] takes what happens among processes (a coordinator, links, time; see `session`),
//! [`Server::push`] what a worker brings, straight from its link into the blocks, from one thread
//! or many. What is sent goes through an [`Outlet`] at once, from the memory it lies in; what needs
//! a thread, a wait or a socket is returned as [`Effect`]s. So the same server runs in a process of
//! its own and in a simulation. Owns the blocks, who follows them, and the way from a region that
//! was left to one that goes on. Never decides when a step counts.

mod orders;
mod pushes;
mod session;

pub use super::outlet::{Outlet, Peer, Used};
pub use session::{ALIVE_EVERY, Effect, Event, SILENCE};

use super::Log;
use super::followers::Followers;
use super::region::{Place, Region};
use super::store::{Settings, Store};
use planaria_learn::{Network, Statistics};
use planaria_numerics::aggregate::BLOCK;
use planaria_protocol::launch::Facts;
use planaria_protocol::message::{Kept, Sha256, Trouble};
use planaria_recipe::Recipe;
use session::Standing;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// More than this never waits for a worker: links hold back senders at 64 MiB.
const WAITING_BYTES_MAX: usize = 48 << 20;
/// What may wait for a worker besides two steps' parameters.
const WAITING_BYTES_SPARE: usize = 1 << 20;

pub struct Server {
    place: Place,
    log: Log,
    network: Network,
    recipe: Recipe,
    examples: u64,
    store: Mutex<Option<Arc<Store>>>,
    /// Times it was closed.
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
    /// Bytes that may wait for a worker besides two steps' parameters.
    spare_bytes: usize,
    /// Bytes that may wait for a worker that follows.
    waiting_max: AtomicUsize,
    /// Which coordinator it obeys, and whose links it has.
    standing: Mutex<Standing>,
}

impl Server {
    /// A server of this run. Takes over what a process before it has left in its place.
    pub fn new(recipe: &Recipe, facts: &Facts, place: Place, log: Log) -> Result<Self, Trouble> {
        let network = Network::of(recipe, facts.input).map_err(Trouble::new)?;
        let server = Self {
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
            spare_bytes: WAITING_BYTES_SPARE,
            waiting_max: AtomicUsize::new(0),
            standing: Mutex::default(),
        };
        let fits = |shape: &super::region::Shape| {
            server.is_in_network(&shape.blocks)
                && *shape == server.settings(&shape.blocks).shape(server.state_count())
        };
        if let Some(region) = Region::adopt(&server.place, fits, &server.log) {
            let settings = server.settings(&region.shape().blocks);
            let store = Store::new(settings, region, server.statistics());
            *server.lock_store() = Some(Arc::new(store));
        }
        if let Some(kept) = server.kept() {
            (server.log)(&format!(
                "found the values of blocks {:?} after {:?} steps",
                kept.blocks, kept.steps
            ));
        }
        Ok(server)
    }

    /// The values that a new session can start from.
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

    /// Compares the kept values with their checksums, after [`Server::close`]. Values that have
    /// changed are dropped, and the log says so.
    pub fn compare(&self) {
        let Some(store) = self.lock_store().clone() else { return };
        if let Err(why) = store.compare() {
            (self.log)(&format!("{why}: bytes were changed, and the values are dropped"));
        }
    }

    /// Answers that came late, for what was there already, since this was last asked.
    pub fn take_late(&self) -> u64 {
        self.store().map_or(0, |store| store.take_late())
    }

    /// The same server, with so many bytes that may wait for a worker besides two steps' parameters.
    pub fn with_spare_bytes(self, spare_bytes: usize) -> Self {
        Self { spare_bytes, ..self }
    }

    /// Of links that are made from now on. After [`Server::close`] it is another, and links of before
    /// are refused, whatever they still bring.
    pub fn session(&self) -> u64 {
        self.session.load(Ordering::SeqCst)
    }

    /// Takes nothing more until the server begins again, and nothing ever from links of before;
    /// waiting threads are let go. What is kept stays.
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
