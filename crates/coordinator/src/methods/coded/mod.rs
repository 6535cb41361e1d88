//! Coded training: a linear model whose workers hold coded data and may leave and come at any moment.
//!
//! The weights are small and live here. Products pass from worker to worker; the coordinator keeps
//! what has come until the step counts: a loss costs the unfinished work of the lost worker and
//! nothing else. With as many workers as the threshold all work goes on; with fewer it is paused, and
//! nothing is updated. Never sees data.
//!
//! # Layout
//! - [`iteration`]: both products of one step, and losses in the middle; pure
//! - [`arithmetic`]: the numbers of a code, the same to all others
//! - [`learner`]: weights and their optimizer
//! - [`seat`]: what is known of a worker; `seating`: who sits in which slot; `arranging`: who computes
//!   which rows of a step; `stepping`: steps are planned, worked off and committed
//! - [`build`](mod@build): from a recipe and what others have left

pub mod arithmetic;
mod arranging;
pub mod build;
pub mod iteration;
mod lateness;
pub mod learner;
pub mod seat;
mod seating;
mod stepping;

use crate::run::{Action, Arrival, Batches, Method, Run, Session, Snapshot};
use arithmetic::Arithmetic;
use arranging::Arranged;
use learner::Learner;
use planaria_learn::linear;
use planaria_learn::linear::number::Bounds;
use planaria_numerics::coding::Slot;
use planaria_protocol::event::{Doing, Products, WorkerPulse};
use planaria_protocol::message::{ToWorker, Trouble};
use planaria_protocol::methods::Report as AnyReport;
use planaria_protocol::methods::coded::{Command, Travel};
use seat::Seat;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stepping::Work;

/// What a recipe says of coded training.
#[derive(Debug)]
pub struct Settings {
    pub code: Box<dyn Arithmetic>,
    /// The steps of an epoch.
    pub batches: linear::Batches,
    /// Which coordinator of the run this is.
    pub generation: u64,
}

pub type CodedRun = Run<Coded>;

/// What a coded run knows beyond every run.
#[derive(Debug)]
pub struct Coded {
    settings: Settings,
    learner: Learner,
    /// Whether the learner has the weights that another coordinator has kept.
    has_kept: bool,
    seats: BTreeMap<u32, Seat>,
    /// What bounds products, once a worker has said it.
    bounds: Option<Bounds>,
    work: Option<Work>,
    /// Rounds that were begun.
    rounds: u64,
    /// What workers did and no event has told.
    worked: Products,
    /// The plan before.
    previous: Option<Arranged>,
    /// Weights on their way to a checkpoint, after so many steps.
    snapshot: Option<(u64, Arc<Snapshot>)>,
}

/// A coded run that is about to begin. `has_kept` says whether the learner has the weights of the
/// record.
pub fn run(session: Session, settings: Settings, learner: Learner, has_kept: bool) -> CodedRun {
    let method = Coded {
        settings,
        learner,
        has_kept,
        seats: BTreeMap::new(),
        bounds: None,
        work: None,
        rounds: 0,
        worked: Products::default(),
        previous: None,
        snapshot: None,
    };
    Run::new(session, method)
}

impl Method for Coded {
    fn has_kept(run: &Run<Self>) -> bool {
        run.method.has_kept
    }

    fn state_to_keep(run: &Run<Self>) -> Option<Vec<u8>> {
        Some(run.method.learner.to_bytes())
    }

    fn workers_min(run: &Run<Self>) -> u32 {
        run.method.settings.code.threshold() as u32
    }

    fn workers_max(run: &Run<Self>) -> u32 {
        run.method.settings.code.machines() as u32
    }

    fn arrived(run: &mut Run<Self>, worker: u32) -> Option<Arrival> {
        let seat = run.method.seats.get(&worker)?;
        let (Slot(slot), fetched) = seat.slot.zip(seat.fetched)?;
        let from = if fetched.cached { "its machine had them" } else { "from the source" };
        let downloaded = fetched.downloaded;
        let reason = format!("it has the rows of slot {slot}: {from}, {downloaded} bytes sent");
        Some(Arrival { downloaded: Some(downloaded), reason: reason.into() })
    }

    fn reported(
        run: &mut Run<Self>,
        _now: Duration,
        worker: u32,
        report: AnyReport,
        bulk: &[u8],
    ) -> Result<(), Trouble> {
        match report {
            AnyReport::Coded(report) => run.take_report(worker, report, bulk),
            _ => Ok(()),
        }
    }

    fn changed(run: &mut Run<Self>, _now: Duration) -> Result<(), Trouble> {
        run.seat();
        Ok(())
    }

    fn release(run: &mut Run<Self>, worker: u32) -> Option<u32> {
        let slot = run.method.seats.get(&worker).and_then(|seat| seat.slot);
        let work = run.method.work.as_mut()?;
        if let Some(slot) = slot {
            work.iteration.lost(slot);
        }
        // Rows are counted with what workers did; there are no shards.
        Some(0)
    }

    fn revoked(run: &mut Run<Self>, worker: u32) {
        if let Some(seat) = run.method.seats.get_mut(&worker) {
            seat.knows = None;
        }
    }

    fn left(run: &mut Run<Self>, worker: u32) {
        run.method.seats.remove(&worker);
    }

    fn late(_run: &mut Run<Self>, _now: Duration, _worker: u32, _seconds: f64) -> u32 {
        1
    }

    fn look_for_late(run: &mut Run<Self>, now: Duration) -> Result<(), Trouble> {
        run.look_for_late_slots(now)
    }

    fn slept(run: &mut Run<Self>, slept: Duration) {
        if let Some(work) = &mut run.method.work {
            work.since += slept;
        }
    }

    fn advance(run: &mut Run<Self>, now: Duration) -> Result<bool, Trouble> {
        run.advance_round(now)
    }

    fn begin(run: &mut Run<Self>, now: Duration) -> Result<bool, Trouble> {
        run.begin_round(now)
    }

    fn stop(run: &mut Run<Self>) {
        // The state before what is under way is saved.
        run.method.work = None;
    }

    fn tell_figures(run: &mut Run<Self>) {
        run.tell_worked();
    }

    fn evaluate(run: &mut Run<Self>, worker: u32, batches: Batches, why: &'static str) {
        let Batches { part, step, batches } = batches;
        let known = run.method.seats.get_mut(&worker).and_then(|s| s.scores_with.replace(step));
        if known != Some(step) {
            let values = Arc::new(f64::bytes(run.method.learner.values()));
            run.order(worker, Command::Model { step }, Some(values), why);
        }
        let enter = false;
        run.tell_worker(worker, ToWorker::Evaluate { part, step, batches, enter }, why);
    }

    fn parts(_run: &Run<Self>) -> u32 {
        1
    }

    fn can_save(run: &mut Run<Self>, step: u64) -> bool {
        let method = &mut run.method;
        if run.course.state().step == step {
            let (parameters, state) = method.learner.to_parts();
            method.snapshot = Some((step, Arc::new(Snapshot { parameters, state })));
        }
        method.snapshot.as_ref().is_some_and(|(of, _)| *of == step)
    }

    fn write_parts(run: &mut Run<Self>, step: u64, _folder: &str) {
        if let Some((of, snapshot)) = &run.method.snapshot
            && *of == step
        {
            let snapshot = snapshot.clone();
            run.decide(Action::WritePart { step, snapshot }, "the checkpoint has a folder");
        }
    }

    fn loads(run: &Run<Self>) -> BTreeMap<u32, u32> {
        run.active().into_iter().map(|worker| (worker, 1)).collect()
    }

    fn doing(run: &Run<Self>, worker: u32) -> Option<Doing> {
        let seat = run.method.seats.get(&worker)?;
        let is_ready = run.members.workers.get(&worker).is_some_and(|m| m.is_ready());
        (!is_ready && seat.slot.is_some()).then_some(Doing::FetchingRows)
    }

    fn describe(run: &Run<Self>, worker: u32, pulse: &mut WorkerPulse) {
        let seat = run.method.seats.get(&worker);
        pulse.slot = seat.and_then(|seat| seat.slot).map(|slot| slot.0);
        let joined = run.members.workers.get(&worker).is_some_and(|m| m.has_joined());
        pulse.rows = joined.then(|| seat.map_or(0, |seat| seat.rows));
    }
}

#[cfg(test)]
mod tests;
