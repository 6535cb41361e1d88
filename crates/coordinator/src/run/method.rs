//! What a training method is to a run.
//!
//! A method says what workers are given, what a contribution is, when a step counts, what is saved
//! and how a run starts from it. Membership, losses, scoring, when to save and how to end are the
//! same for all methods, and are [`Run`]'s.

use super::{Run, WORKERS_MAX};
use planaria_protocol::event::{Doing, WorkerPulse};
use planaria_protocol::message::{FromServer, HeldOut, Trouble};
use planaria_protocol::methods::Report;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

/// A training method. Its functions get the whole run, to change it and to give orders through it.
pub trait Method: Debug + Sized {
    /// Whether the only worker is in this process: then nothing is kept for another coordinator, and
    /// time that passes while nothing is heard is the worker's, who computes.
    const IS_ONE_PROCESS: bool = false;

    // Where the run goes on from.

    /// Whether the method itself has what it needs to go on from the newest record.
    fn has_kept(_run: &Run<Self>) -> bool {
        true
    }

    /// What the method itself must keep of the committed step, for the next coordinator.
    fn state_to_keep(_run: &Run<Self>) -> Option<Vec<u8>> {
        None
    }

    // Members.

    /// Workers without which nothing is trained.
    fn workers_min(run: &Run<Self>) -> u32 {
        run.config.workers_min.max(1)
    }

    /// Most workers that can take part.
    fn workers_max(_run: &Run<Self>) -> u32 {
        WORKERS_MAX
    }

    /// A worker has joined, and every server is ready.
    fn welcome(_run: &mut Run<Self>, _worker: u32) {}

    /// A worker says that it is ready; nothing where it cannot be.
    fn arrived(run: &mut Run<Self>, worker: u32) -> Option<Arrival>;

    /// A worker said something of this method, with its bulk.
    fn reported(
        run: &mut Run<Self>,
        now: Duration,
        worker: u32,
        report: Report,
        bulk: &[u8],
    ) -> Result<(), Trouble>;

    /// A server said something of a step, with the squares that came with it.
    fn server_reported(
        _run: &mut Run<Self>,
        _now: Duration,
        _server: u32,
        _said: FromServer,
        _squares: Vec<f64>,
    ) -> Result<(), Trouble> {
        Ok(())
    }

    /// Other workers can be given work than before: pauses or goes on, and gives out what no worker
    /// has.
    fn changed(run: &mut Run<Self>, now: Duration) -> Result<(), Trouble>;

    /// Takes away what a worker has. Where the step under way needs some of it again: how many
    /// shards that is.
    fn release(run: &mut Run<Self>, worker: u32) -> Option<u32>;

    /// A worker's work is revoked.
    fn revoked(_run: &mut Run<Self>, _worker: u32) {}

    /// A worker is gone; what is known of it is to be forgotten.
    fn left(_run: &mut Run<Self>, _worker: u32) {}

    /// Whether work is waited for that a worker has.
    fn holds(_run: &Run<Self>, _worker: u32) -> bool {
        false
    }

    /// A worker is late by so many seconds. Shards that it has of the step under way.
    fn late(run: &mut Run<Self>, now: Duration, worker: u32, seconds: f64) -> u32;

    /// Looks for workers that hold the step under way up.
    fn look_for_late(run: &mut Run<Self>, now: Duration) -> Result<(), Trouble>;

    /// This process did not run for a while, for which others are not to blame.
    fn slept(_run: &mut Run<Self>, _slept: Duration) {}

    // Steps.

    /// Goes on with what is under way. False where nothing is, because nothing was begun or because
    /// the step has come to its end.
    fn advance(run: &mut Run<Self>, now: Duration) -> Result<bool, Trouble>;

    /// Begins the next step, or several. False where it cannot be done now.
    fn begin(run: &mut Run<Self>, now: Duration) -> Result<bool, Trouble>;

    /// A stop was asked for: what need not be waited for is given up.
    fn stop(run: &mut Run<Self>);

    /// Seconds that a shard takes a worker, if that was measured.
    fn shard_seconds(_run: &Run<Self>) -> Option<f64> {
        None
    }

    /// Tells figures of its own that no event has told.
    fn tell_figures(_run: &mut Run<Self>) {}

    // Scoring.

    /// Workers beyond the first that do everything as well.
    fn copies(_run: &Run<Self>) -> u32 {
        0
    }

    /// Lets a worker score batches with the weights as they are.
    fn evaluate(run: &mut Run<Self>, worker: u32, batches: Batches, why: &'static str);

    // Checkpoints.

    /// Parts of a checkpoint.
    fn parts(run: &Run<Self>) -> u32 {
        run.config.servers
    }

    /// Whether the state after `step` steps can still be written.
    fn can_save(_run: &mut Run<Self>, _step: u64) -> bool {
        true
    }

    /// Lets the parts of a checkpoint be written to this folder.
    fn write_parts(run: &mut Run<Self>, step: u64, folder: &str);

    // For display.

    /// How much each worker has to do.
    fn loads(run: &Run<Self>) -> BTreeMap<u32, u32>;

    /// What a worker is doing instead of getting ready or computing.
    fn doing(_run: &Run<Self>, _worker: u32) -> Option<Doing> {
        None
    }

    /// Adds what only this method knows.
    fn describe(_run: &Run<Self>, _worker: u32, _pulse: &mut WorkerPulse) {}
}

/// How a worker has become ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes of data that it was sent for it, where that is known.
    pub downloaded: Option<u64>,
    pub reason: Cow<'static, str>,
}

/// Batches of a held-out part to score.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batches {
    pub part: HeldOut,
    /// Whose weights: after so many steps.
    pub step: u64,
    pub batches: Range<u64>,
}
