//! A worker's links, and the order of things: begin, leases, evaluations, the end.
//!
//! One thread reads orders from the coordinator and announces leases to the read-ahead; one thread
//! per server fills the board; the main thread computes.

use crate::ahead::{Ahead, Cut};
use crate::board::{Board, Broken, Writer};
use crate::evaluate::Evaluator;
use crate::step::{Servers, compute};
use planaria_data::{DataSet, Kind, Loader};
use planaria_learn::{Network, Runner, Settings};
use planaria_protocol::bytes;
use planaria_protocol::clock::Clock;
use planaria_protocol::launch::Launch;
use planaria_protocol::link::{self, Receiver, Sender};
use planaria_protocol::message::{
    Agent, FromWorker, HeldOut, Join, Pull, Push, Shelf, Steps, ToWorker, Trouble,
};
use planaria_protocol::{Error, Secret};
use std::ops::Range;
use std::sync::mpsc::{Receiver as Orders, Sender as Announcer, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Where log lines go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Works until the coordinator says that the run is over.
pub fn run(launch: &Launch, index: u32, clock: &dyn Clock, log: Log) -> Result<(), Trouble> {
    let secret = Secret::from_hex(&launch.secret).map_err(Trouble::new)?;
    let address = launch.coordinator.as_deref().unwrap_or_default();
    let (coordinator, mut orders) = link::connect(address, &secret, None).map_err(Trouble::new)?;
    let join = join(launch, index);
    coordinator.send(&join).map_err(Trouble::new)?;
    log(&format!("joined the coordinator at {address}; opening `{}`", launch.recipe.data.train));
    let worked = prepare(launch).and_then(|bench| {
        log(&format!("{} training examples; waiting for the servers", launch.facts.examples));
        let Some((shelves, step)) = begin(&mut orders)? else { return Ok(()) };
        let (secret, join) = (&secret, &join);
        let links = Links { launch, secret, coordinator: &coordinator, join, log: &log };
        bench.work(&links, orders, shelves, step, clock)
    });
    if let Err(trouble) = &worked {
        // The coordinator may be what went away.
        let _ = coordinator.send(&FromWorker::Failed(trouble.clone()));
        let _ = coordinator.flush_and_close(FAREWELL);
    }
    worked
}

/// How long a last word may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// What a worker says when it connects.
fn join(launch: &Launch, index: u32) -> Join {
    Join {
        agent: Agent::Worker(index),
        build: launch.build.clone(),
        pid: std::process::id(),
        address: None,
        kept: None,
    }
}

/// Who is spoken to.
struct Links<'a> {
    launch: &'a Launch,
    secret: &'a Secret,
    coordinator: &'a Sender,
    join: &'a Join,
    log: &'a Log,
}

/// Waits for the coordinator's first order; nothing if the run is over before it began.
fn begin(orders: &mut Receiver) -> Result<Option<(Vec<Shelf>, u64)>, Trouble> {
    match orders.receive::<ToWorker>().map_err(Trouble::new)? {
        None => Err(Trouble::new("the coordinator went away")),
        Some(order) => match order.message {
            ToWorker::Begin { servers } => Ok(Some((servers, 0))),
            ToWorker::Finish => Ok(None),
            other => Err(Trouble::new(format!("the coordinator said {other:?} before it began"))),
        },
    }
}

/// What a worker computes with and on.
struct Bench {
    runner: Runner,
    ahead: Ahead,
    validation: Option<Loader>,
    test: Option<Loader>,
    shards: usize,
    classes: usize,
}

/// Opens the data and compiles the network.
fn prepare(launch: &Launch) -> Result<Bench, Trouble> {
    let recipe = &launch.recipe;
    let data = planaria_data::open(&recipe.data, recipe.seed).map_err(data_trouble)?;
    same_data(launch, &data)?;
    let network = Network::of(recipe, launch.facts.input).map_err(Trouble::new)?;
    let runner = Runner::new(network, Settings::of(recipe, launch.size.threads as usize));
    let (normalize, augment) = (&recipe.data.normalize, &recipe.data.augment);
    let loader = Loader::training(data.train, recipe.seed, normalize, augment);
    let cut = Cut { batch: recipe.train.batch, shards: recipe.train.shards };
    let ahead = Ahead::start(loader.map_err(data_trouble)?, cut)
        .map_err(|e| Trouble::new(format!("cannot start a thread: {e}")))?;
    let held_out = |part: Option<planaria_data::Part>| {
        part.map(|part| Loader::evaluation(part, normalize)).transpose().map_err(data_trouble)
    };
    Ok(Bench {
        runner,
        ahead,
        validation: held_out(data.validation)?,
        test: held_out(data.test)?,
        shards: recipe.train.shards,
        classes: launch.facts.classes as usize,
    })
}

/// Refuses other data than the run was planned with.
fn same_data(launch: &Launch, data: &DataSet) -> Result<(), Trouble> {
    let marks = data.marks.iter().map(|m| (m.name.clone(), m.content.clone()));
    let facts = &launch.facts;
    if data.train.len() == facts.examples && marks.eq(facts.marks.iter().cloned()) {
        return Ok(());
    }
    Err(Trouble {
        message: format!(
            "the data in `{}` is not what the run began with",
            launch.recipe.data.train
        ),
        hint: Some("put it back as it was, or start a new run".into()),
        fix_input: true,
    })
}

/// The state that server 0 sent last.
#[derive(Default)]
struct StateBox {
    state: Mutex<(Option<u64>, Vec<f32>)>,
    came: Condvar,
}

impl Bench {
    fn work(
        mut self,
        links: &Links<'_>,
        orders: Receiver,
        shelves: Vec<Shelf>,
        step: u64,
        clock: &dyn Clock,
    ) -> Result<(), Trouble> {
        let board = Board::new(self.runner.network().parameter_count());
        let state = Arc::new(StateBox::default());
        let servers = connect(links, &board, &state, shelves)?;
        let log = links.log;
        let count = servers.all().len();
        log(&format!(
            "connected to all servers ({count}); waiting for the parameters after step {step}"
        ));
        pull(&servers, step)?;
        board.view(step).map_err(Trouble::new)?;
        let ready = FromWorker::Ready {
            engine: self.runner.engine().to_owned(),
            threads: self.runner.threads() as u32,
        };
        links.coordinator.send(&ready).map_err(Trouble::new)?;
        let (engine, threads) = (self.runner.engine(), self.runner.threads());
        log(&format!("ready with {engine}, threads: {threads}; waiting for shards"));
        let mut computing = 0..0;
        let orders = listen(orders, self.ahead.announcer(), board.clone())?;
        let mut pace = Pace { waited_since: clock.now(), ..Pace::default() };
        // Steps whose parameters are here or on their way without having to be asked for.
        let mut coming = step;
        for order in &orders {
            match order.map_err(Trouble::new)? {
                ToWorker::Lease { steps, shards, .. } => {
                    let shards = shards.start as usize..shards.end as usize;
                    if computing != shards {
                        let from = steps.first_step;
                        log(&format!("computing shards {shards:?} from step {from}"));
                        computing = shards.clone();
                    }
                    if coming != steps.first_step {
                        pull_after(&servers, &board, coming, steps.first_step)?;
                    }
                    for step in steps.steps() {
                        self.step(&servers, &board, step, &shards, (clock, &mut pace))?;
                    }
                    coming = steps.steps().end;
                    let report = pace.report(coming);
                    links.coordinator.send(&report).map_err(Trouble::new)?;
                }
                ToWorker::Evaluate { part, step, batches, .. } => {
                    log(&format!("scoring {part} batches {batches:?} after step {step}"));
                    // Who stood by has not been sent them.
                    if coming != step {
                        pull_after(&servers, &board, coming, step)?;
                        coming = step;
                    }
                    self.evaluate(links, &servers, (&board, &state), (part, step, batches))?;
                    pace.waited_since = clock.now();
                }
                ToWorker::Finish => return Ok(()),
                ToWorker::Begin { .. } => return Err(Trouble::new("the coordinator began twice")),
                _ => {}
            }
        }
        Err(Trouble::new("the coordinator went away"))
    }

    fn step(
        &mut self,
        servers: &Servers,
        board: &Board,
        step: u64,
        shards: &Range<usize>,
        (clock, pace): (&dyn Clock, &mut Pace),
    ) -> Result<(), Trouble> {
        let portion = match self.ahead.next() {
            Some(portion) => portion.map_err(data_trouble)?,
            None => return Err(Trouble::new("reading ahead broke down")),
        };
        debug_assert_eq!((portion.step, &portion.shards), (step, shards));
        let parameters = board.view(step).map_err(Trouble::new)?;
        let began = clock.now();
        compute(&mut self.runner, servers, &parameters, &portion, self.shards)
            .map_err(Trouble::new)?;
        drop(parameters);
        pace.count(began, clock.now(), portion.batch.ids.len() as u64);
        self.ahead.recycle(portion);
        Ok(())
    }

    fn evaluate(
        &mut self,
        links: &Links<'_>,
        servers: &Servers,
        (board, state): (&Board, &StateBox),
        (part, step, batches): (HeldOut, u64, Range<u64>),
    ) -> Result<(), Trouble> {
        servers.first().send(&Push::State { step }).map_err(Trouble::new)?;
        let parameters = board.view(step).map_err(Trouble::new)?;
        let state = state.wait(step, board)?;
        let loader = match part {
            HeldOut::Validation => &self.validation,
            HeldOut::Test => &self.test,
        };
        let loader =
            loader.as_ref().ok_or_else(|| Trouble::new("there is no such held-out part"))?;
        self.runner.forget();
        let mut evaluator = Evaluator::default();
        for batch in batches {
            let weights = (&*parameters, state.as_slice());
            let scores = evaluator
                .score(&mut self.runner, weights, (loader, batch), self.classes)
                .map_err(data_trouble)?;
            let bulk = serde_json::to_vec(&scores).map_err(Trouble::new)?;
            let message = FromWorker::Evaluated { part, batch };
            links.coordinator.send_with(&message, &bulk).map_err(Trouble::new)?;
        }
        Ok(())
    }
}

impl StateBox {
    fn put(
        &self,
        step: u64,
        read: impl FnOnce(&mut Vec<f32>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut state = self.state.lock().expect("no thread panics with the state");
        read(&mut state.1)?;
        state.0 = Some(step);
        self.came.notify_all();
        Ok(())
    }

    fn wait(&self, step: u64, board: &Board) -> Result<Vec<f32>, Trouble> {
        let mut state = self.state.lock().expect("no thread panics with the state");
        while state.0 != Some(step) {
            if let Some(why) = board.closed() {
                return Err(Trouble::new(why));
            }
            let waited = self.came.wait_timeout(state, Duration::from_millis(100));
            state = waited.expect("no thread panics with the state").0;
        }
        Ok(state.1.clone())
    }
}

/// What a worker did since its last report.
#[derive(Default)]
struct Pace {
    waited_since: Duration,
    examples: u64,
    busy: Duration,
    waiting: Duration,
}

impl Pace {
    fn count(&mut self, began: Duration, ended: Duration, examples: u64) {
        self.waiting += began.saturating_sub(self.waited_since);
        self.busy += ended.saturating_sub(began);
        self.examples += examples;
        self.waited_since = ended;
    }

    fn report(&mut self, step: u64) -> FromWorker {
        let pace = std::mem::take(self);
        self.waited_since = pace.waited_since;
        FromWorker::Pace {
            step,
            examples: pace.examples,
            busy_seconds: pace.busy.as_secs_f64(),
            waiting_seconds: pace.waiting.as_secs_f64(),
        }
    }
}

/// Asks for the parameters after `step` steps, once those after `coming` steps, which are on their
/// way, are here: so that what comes late is not taken for what was asked for.
fn pull_after(servers: &Servers, board: &Board, coming: u64, step: u64) -> Result<(), Trouble> {
    drop(board.view(coming).map_err(Trouble::new)?);
    pull(servers, step)
}

/// Asks every server for the parameters after `step` steps.
fn pull(servers: &Servers, step: u64) -> Result<(), Trouble> {
    servers.all().iter().try_for_each(|s| s.send(&Push::Follow { step })).map_err(Trouble::new)
}

/// Connects to every server; a thread for each fills the board.
fn connect(
    links: &Links<'_>,
    board: &Arc<Board>,
    state: &Arc<StateBox>,
    mut shelves: Vec<Shelf>,
) -> Result<Servers, Trouble> {
    shelves.sort_by_key(|s| (s.blocks.start, s.blocks.end));
    let ranges: Vec<Range<usize>> =
        shelves.iter().map(|s| s.blocks.start as usize..s.blocks.end as usize).collect();
    let writers =
        board.writers(&ranges).ok_or_else(|| Trouble::new("the servers' blocks overlap"))?;
    let mut senders = Vec::new();
    for (shelf, writer) in shelves.iter().zip(writers) {
        let connected = link::connect(&shelf.address, links.secret, Some(links.launch.generation));
        let (sender, receiver) = connected.map_err(Trouble::new)?;
        sender.send(links.join).map_err(Trouble::new)?;
        let (board, state, server) = (board.clone(), state.clone(), shelf.server);
        let fill = move || {
            let ended = fill(receiver, writer, &state);
            let why =
                ended.err().map_or_else(|| "went away".into(), |e| format!("was lost: {}", e.0));
            board.close(&format!("server-{server} {why}"));
        };
        std::thread::Builder::new()
            .name(format!("pull-{server}"))
            .spawn(fill)
            .map_err(|e| Trouble::new(format!("cannot start a thread: {e}")))?;
        senders.push(sender);
    }
    Ok(Servers::new(shelves, senders))
}

/// Why filling the board ended.
struct Unfilled(String);

impl From<Broken> for Unfilled {
    fn from(broken: Broken) -> Self {
        Self(broken.to_string())
    }
}

impl From<Error> for Unfilled {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

fn fill(mut receiver: Receiver, mut writer: Writer, state: &StateBox) -> Result<(), Unfilled> {
    while let Some(incoming) = receiver.receive::<Pull>()? {
        match incoming.message {
            Pull::Parameters { step, first_block } => {
                writer.fill(step, first_block as usize, incoming.bulk_bytes, |values| {
                    Ok::<(), Unfilled>(receiver.read_bulk(bytes::as_bytes_mut(values))?)
                })?;
            }
            Pull::Gone { .. } => {}
            Pull::State { step } => state.put(step, |values| {
                values.resize(incoming.bulk_bytes / 4, 0.0);
                receiver.read_bulk(bytes::as_bytes_mut(values))
            })?,
        }
    }
    Ok(())
}

/// A thread that reads orders, and announces leases to the read-ahead as they come.
fn listen(
    mut orders: Receiver,
    announcer: Announcer<(Steps, Range<usize>)>,
    board: Arc<Board>,
) -> Result<Orders<Result<ToWorker, Error>>, Trouble> {
    // The coordinator leases a round or two ahead, which bounds what can wait here.
    let (pass, passed) = channel();
    let read = move || {
        loop {
            let order = match orders.receive::<ToWorker>() {
                Ok(Some(incoming)) => Ok(incoming.message),
                Ok(None) => break,
                Err(e) => Err(e),
            };
            if let Ok(ToWorker::Lease { steps, shards, .. }) = &order {
                let shards = shards.start as usize..shards.end as usize;
                // The main thread notices if reading ahead has broken down.
                let _ = announcer.send((steps.clone(), shards));
            }
            let last = order.is_err();
            if pass.send(order).is_err() || last {
                break;
            }
        }
        board.close("the coordinator went away");
    };
    std::thread::Builder::new()
        .name("orders".into())
        .spawn(read)
        .map_err(|e| Trouble::new(format!("cannot start a thread: {e}")))?;
    Ok(passed)
}

fn data_trouble(error: planaria_data::Error) -> Trouble {
    Trouble { fix_input: error.kind() == Kind::FixInput, ..Trouble::new(error) }
}
