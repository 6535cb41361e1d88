//! A server's links: orders from the coordinator, gradients from the workers.
//!
//! One thread per link reads straight into the store; whoever completes a chunk sends it on. Never
//! decides when a step counts.

use super::store::{Progress, Refused, Round, Settings, Store};
use super::tally::{Counted, Tally};
use planaria_learn::{Network, Statistics};
use planaria_numerics::optimizer;
use planaria_numerics::tree::Segment;
use planaria_protocol::checkpoint::{self, PartView};
use planaria_protocol::clock::Clock;
use planaria_protocol::launch::Launch;
use planaria_protocol::link::{self, Receiver, Sender};
use planaria_protocol::message::{Agent, FromServer, Join, Pull, Push, ToServer, Trouble};
use planaria_protocol::{Error, Secret, bytes, listen};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::TcpListener;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// How long a last word may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// Least time between reports of a server's load.
const LOAD_EVERY: Duration = Duration::from_millis(100);

/// Where log lines go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// What the threads of a server share.
struct Server {
    index: u32,
    log: Log,
    coordinator: Sender,
    /// Shared, so that nobody holds the lock while sending.
    links: Mutex<Arc<BTreeMap<u32, Sender>>>,
    held: OnceLock<Held>,
    /// Reused for the squares of a step.
    squares: Mutex<Vec<f64>>,
}

/// What a server holds once it has begun.
struct Held {
    store: Store,
    /// Server 0's.
    tally: Option<Mutex<Tally>>,
    /// Values of a shard's statistics.
    statistics: usize,
}

/// Serves until the coordinator says that the run is over.
pub fn run(launch: &Launch, index: u32, clock: &dyn Clock, log: Log) -> Result<(), Trouble> {
    let secret = Secret::from_hex(&launch.secret).map_err(Trouble::new)?;
    let address = launch.coordinator.as_deref().unwrap_or_default();
    let listener = TcpListener::bind(("127.0.0.1", 0))
        .map_err(|e| Trouble::new(format!("cannot listen on 127.0.0.1: {e}")))?;
    let own = listener.local_addr().map_err(Trouble::new)?;
    let (coordinator, mut orders) = link::connect(address, &secret, None).map_err(Trouble::new)?;
    let server = Arc::new(Server {
        index,
        log: log.clone(),
        coordinator: coordinator.clone(),
        links: Mutex::default(),
        held: OnceLock::new(),
        squares: Mutex::default(),
    });
    let (serving, refusing) = (server.clone(), log);
    let _listening = listen::serve(
        listener,
        secret,
        Arc::new(std::sync::atomic::AtomicU64::new(launch.generation)),
        move |join, sender, receiver| serving.link(&join, &sender, receiver),
        move |reason| refusing(&format!("refused a connection: {reason}")),
    )
    .map_err(Trouble::new)?;
    let join = Join {
        agent: Agent::Server(index),
        build: launch.build.clone(),
        pid: std::process::id(),
        address: Some(own.to_string()),
        kept: None,
    };
    coordinator.send(&join).map_err(Trouble::new)?;
    (server.log)(&format!("joined the coordinator at {address}; listening on {own}"));
    let ended = server.obey(launch, &mut orders, clock);
    if let Err(trouble) = &ended {
        // The coordinator may be what went away.
        let _ = coordinator.send(&FromServer::Failed(trouble.clone()));
        let _ = coordinator.flush_and_close(FAREWELL);
    }
    server.close();
    ended
}

impl Server {
    fn obey(
        &self,
        launch: &Launch,
        orders: &mut Receiver,
        clock: &dyn Clock,
    ) -> Result<(), Trouble> {
        let mut load = Load::new(clock);
        loop {
            let order = orders.receive::<ToServer>().map_err(Trouble::new)?;
            let Some(order) = order else { return Err(Trouble::new("the coordinator went away")) };
            match order.message {
                ToServer::Begin { blocks, source, step } => {
                    let checkpoint = match source {
                        planaria_protocol::message::Source::Checkpoint(folder) => Some(folder),
                        _ => None,
                    };
                    let blocks = blocks.start as usize..blocks.end as usize;
                    let from = checkpoint.as_deref().unwrap_or("the seed");
                    (self.log)(&format!("taking blocks {blocks:?} after step {step} from {from}"));
                    self.begin(launch, blocks, checkpoint.as_deref(), step)?;
                    self.tell(&FromServer::Ready)?;
                    (self.log)("ready; serving workers");
                }
                ToServer::Round { steps, shares } => {
                    self.held()?.store.plan(steps, &shares).map_err(Trouble::new)?;
                }
                ToServer::Clip { step, factor } => self.clip(step, factor)?,
                ToServer::Commit { step } => {
                    if !self.held()?.store.commit(step) {
                        return Err(Trouble::new(format!("step {step} was committed out of turn")));
                    }
                    if let Some(report) = load.report(clock, || self.bytes_out()) {
                        self.tell(&report)?;
                    }
                }
                ToServer::Save { step, folder } => {
                    (self.log)(&format!("saving step {step} to {folder}"));
                    self.save(step, folder)?;
                }
                ToServer::Missing { .. } | ToServer::Alive | ToServer::Weather(_) => {}
                ToServer::Finish => return Ok(()),
            }
        }
    }

    fn begin(
        &self,
        launch: &Launch,
        blocks: Range<usize>,
        checkpoint: Option<&str>,
        step: u64,
    ) -> Result<(), Trouble> {
        let recipe = &launch.recipe;
        let network = Network::of(recipe, launch.facts.input).map_err(Trouble::new)?;
        let settings = Settings {
            blocks,
            parameters: network.parameter_count(),
            train: recipe.train.clone(),
            examples: launch.facts.examples,
        };
        let range = settings.range();
        let (parameters, slots, state) = match checkpoint {
            None => {
                let (parameters, state) = network.initialise(recipe.seed);
                let slots = optimizer::slots(&recipe.train.optimizer);
                (parameters[range.clone()].to_vec(), vec![vec![0.0; range.len()]; slots], state)
            }
            Some(folder) => {
                let range = range.start as u64..range.end as u64;
                let saved =
                    checkpoint::read_range(Path::new(folder), range).map_err(Trouble::new)?;
                let weights = saved.weights;
                (weights.parameters, weights.optimizer, weights.state)
            }
        };
        let store = Store::new(settings, step, &parameters, &slots);
        let statistics = Statistics::new(&network);
        let values = statistics.len();
        let tally = (self.index == 0)
            .then(|| Mutex::new(Tally::new(recipe.train.shards, statistics, state)));
        if self.held.set(Held { store, tally, statistics: values }).is_err() {
            return Err(Trouble::new("the coordinator began twice"));
        }
        Ok(())
    }

    /// Serves one worker's link until it ends.
    fn link(&self, join: &Join, sender: &Sender, mut receiver: Receiver) {
        let Agent::Worker(worker) = join.agent else {
            return (self.log)(&format!("refused a connection: {} is no worker", join.agent));
        };
        match Arc::make_mut(&mut self.lock_links()).entry(worker) {
            Entry::Vacant(place) => drop(place.insert(sender.clone())),
            // The one that is there goes on; whoever comes second must not take its place.
            Entry::Occupied(_) => {
                sender.close();
                return (self.log)(&format!(
                    "refused a connection: worker-{worker} is here already"
                ));
            }
        }
        (self.log)(&format!("worker-{worker} connected"));
        match self.serve(worker, sender, &mut receiver) {
            Ok(()) => {}
            Err(e) => (self.log)(&format!("worker-{worker}: {}", e.message)),
        }
        Arc::make_mut(&mut self.lock_links()).remove(&worker);
        sender.close();
    }

    fn serve(&self, worker: u32, sender: &Sender, receiver: &mut Receiver) -> Result<(), Trouble> {
        let held = self.held()?;
        // A shard's statistics are read before the tally is taken, so that a slow link keeps
        // nobody else from counting.
        let mut stats = vec![0.0; held.statistics];
        while let Some(incoming) = receiver.receive::<Push>().map_err(Trouble::new)? {
            match incoming.message {
                Push::Unfollow => {}
                Push::Follow { step } => {
                    if !held.store.reach(step) {
                        return Err(Trouble::new(format!("parameters after step {step} are gone")));
                    }
                    for chunk in 0..held.store.chunks() {
                        let (block, values) = held.store.parameters(chunk, step);
                        let message = Pull::Parameters { step, first_block: block as u32 };
                        sender
                            .send_with(&message, bytes::as_bytes(&values))
                            .map_err(Trouble::new)?;
                    }
                }
                Push::State { step } => {
                    if !held.store.reach(step) {
                        return Err(Trouble::new(format!("the state after step {step} is gone")));
                    }
                    let tally = held.tally()?.lock().expect("no thread panics with the tally");
                    let state = tally.state(step).to_vec();
                    drop(tally);
                    let message = Pull::State { step };
                    sender.send_with(&message, bytes::as_bytes(&state)).map_err(Trouble::new)?;
                }
                Push::Gradient { step, first_shard, shards, first_block } => {
                    let segment = Segment { first: first_shard as usize, count: shards as usize };
                    let place = (first_block as usize, incoming.bulk_bytes);
                    self.gradient(worker, receiver, (step, segment), place)
                        .map_err(|e| Trouble::new(format!("cannot take its gradient: {e}")))?;
                }
                Push::Shard { step, shard, loss_sum, correct, read } => {
                    let counted = Counted { loss_sum, correct, read };
                    let bulk = (stats.as_mut_slice(), incoming.bulk_bytes);
                    self.count((worker, receiver), (step, shard), counted, bulk)?;
                }
            }
        }
        Ok(())
    }

    fn gradient(
        &self,
        worker: u32,
        receiver: &mut Receiver,
        (step, segment): (u64, Segment),
        place: (usize, usize),
    ) -> Result<(), Refused<Error>> {
        let store = &self.held.get().ok_or(Refused::Closed)?.store;
        let Some(round) = store.enter(step)? else {
            // Its step is over: counted already, by whoever sent it first.
            return receiver.skip_bulk().map_err(Refused::Read);
        };
        let index = round.segment(worker, segment).ok_or(Refused::Segment(segment, step))?;
        let progress = store.gradient(
            &round,
            (step, index),
            place,
            |values| receiver.read_bulk(bytes::as_bytes_mut(values)),
            |block, values| self.hand_out(&round, step, block, values),
        )?;
        self.report(step, progress).map_err(Refused::Read)
    }

    fn report(&self, step: u64, progress: Progress) -> Result<(), Error> {
        let message = match progress {
            Progress::Gathering => return Ok(()),
            Progress::Summed => FromServer::Summed { step },
            Progress::Applied => FromServer::Applied { step },
        };
        let mut squares = self.squares.lock().expect("no thread panics with the squares");
        squares.clear();
        if let Some(held) = self.held.get() {
            held.store.squares(&mut squares);
        }
        self.coordinator.send_with(&message, bytes::as_bytes(&squares))
    }

    /// Sends new parameters to everyone who needs them.
    fn hand_out(&self, round: &Round, step: u64, block: usize, values: &[f32]) {
        let message = Pull::Parameters { step: step + 1, first_block: block as u32 };
        let links = self.links();
        for sender in round.workers.iter().filter_map(|worker| links.get(worker)) {
            // A worker that cannot be reached is noticed by the one who reads its link.
            let _ = sender.send_with(&message, bytes::as_bytes(values));
        }
    }

    fn clip(&self, step: u64, factor: f32) -> Result<(), Trouble> {
        let store = &self.held()?.store;
        let Some(round) = store.round(step) else {
            return Err(Trouble::new(format!("step {step} was clipped out of turn")));
        };
        store.clip(step, factor, |block, values| self.hand_out(&round, step, block, values));
        self.tell(&FromServer::Applied { step })
    }

    fn count(
        &self,
        (worker, receiver): (u32, &mut Receiver),
        (step, shard): (u64, u32),
        counted: Counted,
        (stats, bulk): (&mut [f32], usize),
    ) -> Result<(), Trouble> {
        let held = self.held()?;
        let Some(round) = held.store.enter::<Error>(step).map_err(Trouble::new)? else {
            // Its step is over: counted already.
            return receiver.skip_bulk().map_err(Trouble::new);
        };
        if round.owner(shard as usize) != Some(worker) {
            return Err(Trouble::new(format!("shard {shard} of step {step} is not this worker's")));
        }
        if stats.len() * 4 != bulk {
            return Err(Trouble::new(format!(
                "{bulk} bytes of statistics are not {}",
                stats.len()
            )));
        }
        receiver.read_bulk(bytes::as_bytes_mut(stats)).map_err(Trouble::new)?;
        let mut tally = held.tally()?.lock().expect("no thread panics with the tally");
        if !tally.count(step, shard as usize, counted, stats) {
            return Ok(());
        }
        let Counted { loss_sum, correct, read } = tally.finish(step);
        self.tell(&FromServer::Counted { step, loss_sum, correct, read })
    }

    /// Copies the committed values and writes them while training goes on.
    fn save(&self, step: u64, folder: String) -> Result<(), Trouble> {
        let held = self.held()?;
        if held.store.step() != step {
            return Err(Trouble::new(format!(
                "step {step} is to be saved but is not the last one"
            )));
        }
        let (parameters, optimizer) = held.store.snapshot(step);
        let state = match &held.tally {
            Some(tally) => {
                tally.lock().expect("no thread panics with the tally").state(step).to_vec()
            }
            None => Vec::new(),
        };
        let start = held.store.settings().range().start as u64;
        let (coordinator, index) = (self.coordinator.clone(), self.index);
        let write = move || {
            let view = PartView {
                step,
                start,
                parameters: &parameters,
                slots: &optimizer.iter().map(Vec::as_slice).collect::<Vec<_>>(),
                state: &state,
            };
            let message = match checkpoint::write_part(Path::new(&folder), index, &view) {
                Ok(part) => FromServer::Saved {
                    step,
                    file: part.file,
                    sha256: part.sha256,
                    bytes: part.bytes,
                },
                Err(e) => FromServer::NotSaved { step, why: e.to_string() },
            };
            // Without a coordinator nobody waits for it.
            let _ = coordinator.send(&message);
        };
        std::thread::Builder::new()
            .name("save".into())
            .spawn(write)
            .map(drop)
            .map_err(|e| Trouble::new(format!("cannot start a thread: {e}")))
    }

    fn held(&self) -> Result<&Held, Trouble> {
        self.held.get().ok_or_else(|| Trouble::new("the server has not begun"))
    }

    fn links(&self) -> Arc<BTreeMap<u32, Sender>> {
        self.lock_links().clone()
    }

    fn lock_links(&self) -> MutexGuard<'_, Arc<BTreeMap<u32, Sender>>> {
        self.links.lock().expect("no thread panics with the links")
    }

    fn tell(&self, message: &FromServer) -> Result<(), Trouble> {
        self.coordinator.send(message).map_err(Trouble::new)
    }

    /// Bytes sent to the workers so far; what comes in is as much again.
    fn bytes_out(&self) -> u64 {
        self.links().values().map(Sender::bytes_sent).sum()
    }

    fn close(&self) {
        if let Some(held) = self.held.get() {
            held.store.close();
        }
        self.links().values().for_each(Sender::close);
    }
}

impl Held {
    fn tally(&self) -> Result<&Mutex<Tally>, Trouble> {
        self.tally.as_ref().ok_or_else(|| Trouble::new("only server 0 counts shards"))
    }
}

/// When load was last reported, and how much there was by then.
struct Load {
    at: Duration,
    cpu: Duration,
    bytes_out: u64,
}

impl Load {
    fn new(clock: &dyn Clock) -> Self {
        Self { at: clock.now(), cpu: clock.cpu(), bytes_out: 0 }
    }

    fn report(&mut self, clock: &dyn Clock, sent: impl FnOnce() -> u64) -> Option<FromServer> {
        let now = clock.now();
        if now - self.at < LOAD_EVERY {
            return None;
        }
        let (cpu, bytes_out) = (clock.cpu(), sent());
        let report = FromServer::Load {
            seconds: (now - self.at).as_secs_f64(),
            busy_seconds: (cpu - self.cpu).as_secs_f64(),
            bytes_out: bytes_out.saturating_sub(self.bytes_out),
            late: 0,
        };
        *self = Self { at: now, cpu, bytes_out };
        Some(report)
    }
}
