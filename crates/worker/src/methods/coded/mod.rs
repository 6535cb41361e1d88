//! A worker of a coded run: holds the coded rows of one slot and multiplies them.
//!
//! Owns its block, which outlives it in the machine's cache, the plain labels, and held-out rows that
//! it was told to score: all it ever has of the data, and all from the source. Products, entries and
//! sums leave at once; weights come with every step. Never opens data, and never decides whose turn
//! it is.
//!
//! # Layout
//! - [`Coded`]: what it does and when, as a value; [`round`]: what is done of a step; pure
//! - [`block`]: what it has of the data; [`source`]: where that comes from; [`cache`]: blocks on the
//!   disk
//! - [`rows`]: the arithmetic on them
//! - [`peers`]: links to the other workers; [`unacknowledged`]: messages on their way to one of
//!   them
//! - [`shell`]: the process around the value
//! - [`serving`]: the other end of [`source`], in the coordinator's process

pub mod block;
pub mod cache;
pub mod peers;
pub mod round;
pub mod rows;
pub mod serving;
pub mod shell;
pub mod source;
pub mod unacknowledged;

use crate::session::method::{Effect, Incoming, Input, Method, Session, Todo, Waiting};
use crate::session::scoring::Scoring;
use crate::session::shell::Setting;
use planaria_learn::linear::number::Number;
use planaria_numerics::coding::Slot;
use planaria_numerics::coding::exact::Residue;
use planaria_numerics::coding::generator::Generator;
use planaria_numerics::coding::scalar::Element;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::{FromWorker, ToWorker, Trouble};
use planaria_protocol::methods;
use planaria_protocol::methods::coded::{Coefficient, Command, Report, ToPeer, Travel};
use planaria_recipe::train::LinearPrecision;
use round::{Answer, Arithmetic, Round};
use std::collections::VecDeque;
use std::time::Duration;

/// Works until the coordinator says that the run is over.
pub fn run(launch: &Launch, setting: &Setting<'_>) -> Result<(), Trouble> {
    let code = launch.recipe.train.code().ok_or_else(|| Trouble::new("the recipe has no code"))?;
    match code.precision {
        LinearPrecision::F32 => shell::run::<f32>(launch, setting),
        LinearPrecision::F64 => shell::run::<f64>(launch, setting),
        LinearPrecision::Exact => shell::run::<Residue>(launch, setting),
    }
}

/// What coded products are computed in, how it travels, and which code it has.
pub trait Value: Number + Travel + Element<Scalar: Coefficient> {
    /// The code of these sizes.
    fn code(
        threshold: usize,
        machines: usize,
    ) -> Result<Generator<<Self as Element>::Scalar>, planaria_numerics::coding::Error>;
}

impl Value for f32 {
    fn code(
        threshold: usize,
        machines: usize,
    ) -> Result<Generator<f64>, planaria_numerics::coding::Error> {
        Generator::stored(threshold, machines)
    }
}

impl Value for f64 {
    fn code(
        threshold: usize,
        machines: usize,
    ) -> Result<Generator<f64>, planaria_numerics::coding::Error> {
        Generator::stored(threshold, machines)
    }
}

impl Value for Residue {
    fn code(
        threshold: usize,
        machines: usize,
    ) -> Result<Generator<Residue>, planaria_numerics::coding::Error> {
        Generator::cauchy(threshold, machines)
    }
}

/// A worker's part in a coded run. What it computes, it computes as it is told, with `rows`.
pub struct Coded<E: Value, A> {
    rows: A,
    round: Round<E>,
    slot: Slot,
    /// The step whose weights are there to be scored with.
    model: Option<u64>,
    scoring: Scoring,
    /// A batch is being scored.
    is_scoring: bool,
}

/// What this method asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Do {
    /// Look which slots' rows the machine has; [`Event::Found`].
    Look,
    /// Get the rows of a slot; [`Event::Seated`] or [`Event::SourceLost`].
    Sit { slot: u16 },
    /// Keep weights to score with, as they came.
    KeepModel { step: u64, weights: Vec<u8> },
    /// Send a message to the worker at this address.
    Send { address: String, message: ToPeer, bulk: Vec<u8> },
    /// Drop the messages of older rounds.
    Retire { round: u64 },
}

/// What comes of it, and what comes from other workers.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The machine has the rows of these slots, and others reach this worker at this address.
    Found {
        slots: Vec<u16>,
        address: String,
    },
    /// The rows of a slot are there.
    Seated(Seated),
    /// The source cannot be reached.
    SourceLost,
    FromPeer(ToPeer, Vec<u8>),
}

/// How a worker came by the rows of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seated {
    pub slot: u16,
    /// Its machine had them.
    pub cached: bool,
    /// Bytes of rows, bounds and labels that came from the source.
    pub downloaded: u64,
    /// What bounds products, as JSON; nothing for floats.
    pub bounds: Vec<u8>,
    pub engine: String,
}

impl<E: Value, A: Arithmetic<E>> Coded<E, A> {
    /// Computes with these rows.
    pub fn new(rows: A) -> Self {
        Self {
            rows,
            round: Round::default(),
            slot: Slot(0),
            model: None,
            scoring: Scoring::default(),
            is_scoring: false,
        }
    }

    fn obey(
        &mut self,
        command: Command,
        bulk: Vec<u8>,
        todo: &mut Todo<Self>,
    ) -> Result<(), Trouble> {
        let answers = match command {
            Command::Seat { slot } => {
                self.slot = Slot(slot);
                todo.push_back(Effect::Log(format!("taking slot {slot}")));
                todo.push_back(Effect::Own(Do::Sit { slot }));
                return Ok(());
            }
            Command::Model { step } => {
                self.model = Some(step);
                todo.push_back(Effect::Own(Do::KeepModel { step, weights: bulk }));
                return Ok(());
            }
            Command::Weights { round } => {
                todo.push_back(Effect::Own(Do::Retire { round }));
                self.round.begin(round, self.slot, numbers(&bulk)?, &mut self.rows)?
            }
            command => self.round.order(command, &mut self.rows)?,
        };
        send(answers, todo);
        Ok(())
    }

    /// Scores one batch after another, as long as the weights are those that were asked about.
    fn score(&mut self, todo: &mut Todo<Self>) {
        while let Some((step, _)) = self.scoring.first().filter(|_| !self.is_scoring) {
            if self.model != Some(step) {
                self.scoring.skip();
            } else if let Some(batch) = self.scoring.take() {
                self.is_scoring = true;
                todo.push_back(Effect::Score(batch));
            }
        }
    }
}

impl<E: Value, A: Arithmetic<E>> Method for Coded<E, A> {
    type Event = Event;
    type Effect = Do;
    type Prepared = ();

    fn prepared(&mut self, (): ()) {}

    fn joined(&mut self, todo: &mut Todo<Self>) {
        self.round = Round::default();
        (self.model, self.is_scoring) = (None, false);
        self.scoring.clear();
        todo.push_back(Effect::Own(Do::Look));
    }

    fn on(
        &mut self,
        _now: Duration,
        input: Input<Event>,
        todo: &mut Todo<Self>,
    ) -> Result<Session, Trouble> {
        match input {
            Input::Command(methods::Command::Coded(command), bulk) => {
                self.obey(command, bulk, todo)?;
            }
            // Of another method.
            Input::Command(..) | Input::Woken => {}
            Input::Evaluate { part, step, batches, .. } => {
                self.scoring.add(part, step, batches, 0);
            }
            Input::Scored { is_scored: true, .. } => self.is_scoring = false,
            Input::Scored { .. } | Input::Own(Event::SourceLost) => return Ok(Session::IsOver),
            Input::Own(Event::Found { slots, address }) => {
                tell(Report::Offer { slots, address }, Vec::new(), todo);
            }
            Input::Own(Event::Seated(seated)) => ready(seated, todo),
            Input::Own(Event::FromPeer(message, bulk)) => {
                send(self.round.receive(message, bulk, &mut self.rows)?, todo);
            }
        }
        self.score(todo);
        let times = self.rows.times();
        self.round.spend(times);
        Ok(Session::GoesOn)
    }

    fn revoke(&mut self, _todo: &mut Todo<Self>) {
        self.round.give_up();
        self.scoring.clear();
    }

    /// What waits of the round before is not wanted any more.
    fn arrived(order: &ToWorker, waiting: &mut Waiting<Event>) {
        let (ToWorker::Revoke { .. }
        | ToWorker::Method(methods::Command::Coded(Command::Weights { .. }))) = order
        else {
            return;
        };
        waiting.retain(|incoming| match incoming {
            Incoming::Order(ToWorker::Method(methods::Command::Coded(command)), _) => {
                matches!(command, Command::Seat { .. } | Command::Model { .. })
            }
            _ => true,
        });
    }
}

fn ready(seated: Seated, todo: &mut VecDeque<Effect<Do>>) {
    let Seated { slot, cached, downloaded, bounds, engine } = seated;
    let from = if cached { "as they were kept" } else { "from the source" };
    todo.push_back(Effect::Log(format!(
        "ready with the rows of slot {slot}, {from}; bytes downloaded: {downloaded}"
    )));
    tell(Report::Rows { slot, cached, downloaded }, bounds, todo);
    todo.push_back(Effect::Tell(FromWorker::Ready { engine, threads: 1 }, Vec::new()));
}

fn send(answers: Vec<Answer>, todo: &mut VecDeque<Effect<Do>>) {
    for answer in answers {
        match answer {
            Answer::Tell(report, bulk) => tell(report, bulk, todo),
            Answer::Send(address, message, bulk) => {
                todo.push_back(Effect::Own(Do::Send { address, message, bulk }));
            }
        }
    }
}

fn tell(report: Report, bulk: Vec<u8>, todo: &mut VecDeque<Effect<Do>>) {
    todo.push_back(Effect::Tell(report.into(), bulk));
}

fn numbers<T: Travel>(bulk: &[u8]) -> Result<Vec<T>, Trouble> {
    T::take(bulk).ok_or_else(|| Trouble::new("the coordinator sent NaN or infinity"))
}
