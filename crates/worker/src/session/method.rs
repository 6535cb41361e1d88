//! The seam between a worker's session and a method of training.
//!
//! A method is a value: told what has happened, it says what to do, and owns no thread, link or
//! clock. What every method shares (joining, heartbeats, revoking, scores, the end) is the
//! session's, so a method sees only its own commands, its own events, and held-out batches to score.

use planaria_protocol::message::{FromWorker, HeldOut, ToWorker, Trouble};
use planaria_protocol::methods::Command;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

/// What a method has to do, in order.
pub type Todo<M> = VecDeque<Effect<<M as Method>::Effect>>;

/// What has come and is not taken in yet.
pub type Waiting<E> = VecDeque<Incoming<E>>;

/// A method of training, as a worker takes part in it. One value for the life of the process.
pub trait Method: Sized {
    /// What its own links, threads and effects report.
    type Event: Debug + Send + 'static;
    /// What it asks for, beyond what every method may.
    type Effect: Debug;
    /// What is known once data and engine are there.
    type Prepared: Debug;

    /// Data and engine are there.
    fn prepared(&mut self, prepared: Self::Prepared);

    /// A session has begun. Nothing of an earlier one holds.
    fn joined(&mut self, todo: &mut Todo<Self>);

    fn on(
        &mut self,
        now: Duration,
        input: Input<Self::Event>,
        todo: &mut Todo<Self>,
    ) -> Result<Session, Trouble>;

    /// Everything ordered is void: others have it. The session says that it was heard.
    fn revoke(&mut self, todo: &mut Todo<Self>);

    /// When it wants [`Input::Woken`].
    fn wake_at(&self) -> Option<Duration> {
        None
    }

    /// An order has come and waits behind these: some may be void by it.
    fn arrived(_order: &ToWorker, _waiting: &mut Waiting<Self::Event>) {}
}

/// What a method is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Input<E> {
    /// The coordinator's command, with its bulk.
    Command(Command, Vec<u8>),
    /// Score the parameters after `step` steps on these batches.
    Evaluate { part: HeldOut, step: u64, batches: Range<u64>, enter: bool },
    /// The answer to [`Effect::Score`]: whether there are scores. Where not, its parameters or its
    /// data are out of reach.
    Scored { step: u64, is_scored: bool },
    /// What the method's own links, threads and effects report.
    Own(E),
    /// The time of [`Method::wake_at`] has come.
    Woken,
}

/// Whether the session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    GoesOn,
    /// End all links, and join again.
    IsOver,
}

/// Something to do, by the process or the simulation around the value.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect<F> {
    /// Connect to the coordinator and say who this is, then call [`super::Worker::joined`] or
    /// [`super::Worker::not_joined`].
    Join,
    /// Open the data and compile the network, then call [`super::Worker::prepared`].
    Prepare,
    /// Tell the coordinator, with this bulk.
    Tell(FromWorker, Vec<u8>),
    /// Score one batch of a held-out part with the parameters after `step` steps, then call
    /// [`super::Worker::scored`].
    Score(Batch),
    /// One line for the log.
    Log(String),
    /// The method's own. What comes of it is told to [`super::Worker::answer`].
    Own(F),
    /// Close all links of the session.
    Leave,
    /// Send what waits to be sent, close all links, and end the process.
    End(Result<(), Trouble>),
}

/// A batch of a held-out part, to be scored with the parameters after `step` steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    pub part: HeldOut,
    pub step: u64,
    pub batch: u64,
}

/// What has come and is not taken in yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming<E> {
    /// From the coordinator, with its bulk.
    Order(ToWorker, Vec<u8>),
    /// From the method's own links and threads.
    Own(E),
    /// The link to the coordinator has ended.
    Orphaned,
}
