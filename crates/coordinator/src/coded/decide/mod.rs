//! What a coded run does next: who sits where, which step is under way, what a loss changes. Pure:
//! time and what has happened go in, actions with their reasons come out.
//!
//! Owns members and slots, and the [`Course`] and the [`Learner`] of the run. What one step consists
//! of is [`super::iteration`]'s. Never waits for anybody who is not needed: with as many workers as
//! the threshold all work goes on; with fewer it is paused, and nothing is updated.
//!
//! # Layout
//! - `arranging`: who computes which rows of a step
//! - `member`: one worker; `joining`: who comes, and where it sits; `losing`: who goes, hangs or is
//!   late; `training`: steps; `scoring`: held-out parts; `saving`: checkpoints and the end

mod arranging;
mod joining;
mod losing;
mod member;
mod saving;
mod scoring;
mod training;

use super::iteration::Code;
use super::learner::{Learner, Value};
use crate::decide::cluster::{Action, Decision, Input};
use crate::decide::course::{Course, End, Next, Setup};
use crate::decide::patience::Patience;
use crate::decide::record::{Pending, Record};
use crate::decide::scoring::Scoring;
use arranging::Arranged;
use losing::Mourned;
use member::Member;
use planaria_learn::Scores;
use planaria_learn::linear::Batches;
use planaria_learn::linear::number::Bounds;
use planaria_numerics::coding::{Paused, Slot};
use planaria_protocol::event::{Products, Pulse, What};
use planaria_protocol::message::{Agent, FromWorker, HeldOut, ToWorker, Trouble};
use planaria_protocol::methods::coded::Command;
use planaria_protocol::state::State;
use saving::Save;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use training::Work;

/// Between two things that happen; if more, this process did not run, and nobody is to blame.
const ASLEEP: Duration = Duration::from_millis(500);
/// How long others are waited for when enough are ready: at the beginning, and after a loss.
const GRACE: Duration = Duration::from_secs(2);
const GRACE_AFTER_LOSS: Duration = Duration::from_millis(300);

/// What does not change in a session.
#[derive(Debug)]
pub struct Setting<S> {
    pub code: Code<S>,
    /// The steps of an epoch.
    pub batches: Batches,
    /// Workers that are wanted to begin with.
    pub workers: u32,
    /// Batches to score after an epoch, and at the end.
    pub held_out: [u64; 2],
    /// Which build everyone must be.
    pub build: String,
    /// Which coordinator of the run this is.
    pub generation: u64,
}

/// Where a run goes on from.
#[derive(Debug, Default)]
pub struct Start {
    /// The run as it stands with the learner's weights.
    pub state: State,
    /// What another coordinator has left, where its weights are the learner's.
    pub record: Option<Record>,
    /// `kept`, the checkpoint's folder, or `the seed`.
    pub source: String,
    /// Steps that were told and are taken again.
    pub superseded: u64,
    /// What was lost, where this coordinator takes the place of another.
    pub after: Option<String>,
}

/// What the run is doing.
#[derive(Debug)]
enum Phase {
    Gathering,
    Training,
    /// A part is being scored; with an end, it is the last thing to do.
    Scoring(Scoring, Option<End>),
    /// All is decided; the last checkpoint is being written.
    Ending(End),
    Over,
}

/// A coded run.
#[derive(Debug)]
pub struct Coded<E: Value> {
    setting: Setting<E::Scalar>,
    course: Course,
    learner: Learner<E>,
    phase: Phase,
    members: BTreeMap<u32, Member>,
    /// Workers wanted.
    wanted: u32,
    /// What bounds products, once a worker has said it.
    bounds: Option<Bounds>,
    work: Option<Work<E>>,
    /// Rounds that were begun.
    rounds: u64,
    /// What workers did and no event has told.
    worked: Products,
    /// The plan before.
    previous: Option<Arranged>,
    paused: Option<Paused>,
    /// What to say first, where this coordinator goes on after another.
    recovered: Option<What>,
    grace: Duration,
    enough_since: Option<Duration>,
    patience: Patience,
    /// The first thing that has held a step up.
    wound: Option<String>,
    tickets: u64,
    mourned: Vec<Mourned>,
    buried: VecDeque<(Agent, u32)>,
    save: Option<Save>,
    scores: Option<(HeldOut, Scores)>,
    longest_batch: Option<Duration>,
    pending: Option<Pending>,
    /// When the last step was committed, or training went on.
    stepped: Duration,
    now: Duration,
    /// The run's seconds when this machine's clock stood at zero.
    before: f64,
    unkept: bool,
    decisions: Vec<Decision>,
}

impl<E: Value> Coded<E> {
    /// A run that is about to begin; `before` is how many seconds of it are past at time zero.
    pub fn new(
        setting: Setting<E::Scalar>,
        setup: Setup,
        learner: Learner<E>,
        start: Start,
        before: f64,
    ) -> Self {
        let Start { state, record, source, superseded, after } = start;
        let grace = if after.is_some() { GRACE_AFTER_LOSS } else { GRACE };
        // A session that follows another is as large as its command says.
        let wanted = record.as_ref().filter(|_| after.is_some()).map_or(0, |r| r.workers);
        let wanted = if wanted > 0 { wanted } else { setting.workers };
        let step = state.step;
        let course = match &record {
            Some(record) => {
                let state = State { resumes: state.resumes, ..record.state.clone() };
                Course::restored(setup, &Record { state, ..record.clone() })
            }
            None => Course::new(setup, state),
        };
        let recovered = after.map(|reason| What::Recovered { step, superseded, source, reason });
        let saving = record.as_ref().and_then(|record| record.saving.clone());
        Self {
            course,
            learner,
            phase: Phase::Gathering,
            members: (0..wanted).map(|worker| (worker, Member::default())).collect(),
            wanted,
            bounds: None,
            work: None,
            rounds: 0,
            worked: Products::default(),
            previous: None,
            paused: None,
            recovered,
            grace,
            enough_since: None,
            patience: Patience::new(record.as_ref().and_then(|record| record.step_seconds)),
            wound: None,
            tickets: 0,
            mourned: Vec::new(),
            buried: VecDeque::new(),
            save: saving.map(Save::again),
            scores: None,
            longest_batch: None,
            pending: record.as_ref().and_then(|record| record.pending),
            stepped: Duration::ZERO,
            now: Duration::ZERO,
            before,
            // What another has left was told, and must not be told again by whoever comes next.
            unkept: true,
            decisions: Vec::new(),
            setting,
        }
    }

    /// What follows from something that happened at `now`.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Decision> {
        self.awake(now);
        if let Some(what) = self.recovered.take() {
            self.record(what, "another coordinator was lost");
        }
        if !matches!(self.phase, Phase::Over)
            && let Err(trouble) = self.take(now, input).and_then(|()| self.drive(now))
        {
            self.failed(trouble);
        }
        self.keep();
        std::mem::take(&mut self.decisions)
    }

    /// How far the run has come.
    pub fn state(&self) -> &State {
        self.course.state()
    }

    /// Seconds of the run, pauses left out.
    pub fn seconds(&self, now: Duration) -> f64 {
        self.before + now.as_secs_f64()
    }

    /// Where the run is at `now`.
    pub fn pulse(&self, now: Duration) -> Pulse {
        let phase: Cow<'_, str> = match (&self.phase, self.paused) {
            (Phase::Training | Phase::Scoring(..), Some(paused)) => paused.to_string().into(),
            (Phase::Gathering, _) => {
                let ready = self.members.range(..self.wanted).filter(|(_, m)| m.is_ready());
                let missing = self.wanted as usize - ready.count();
                format!("waiting for {missing} of {} workers", self.wanted).into()
            }
            (Phase::Training, None) => "training".into(),
            (Phase::Scoring(scoring, _), None) if scoring.part == HeldOut::Test => "testing".into(),
            (Phase::Scoring(..), None) => "validating".into(),
            (Phase::Ending(_), _) => "saving".into(),
            (Phase::Over, _) => "over".into(),
        };
        let mut pulse = self.course.pulse(&phase, self.seconds(now));
        // Nobody knows when there are enough again.
        pulse.seconds_left = pulse.seconds_left.filter(|_| self.paused.is_none());
        let seen = |(worker, m): &(&u32, &Member)| **worker < self.wanted || m.has_joined();
        let members = self.members.iter().filter(seen);
        pulse.workers = members.map(|(w, m)| m.pulse(*w, *w >= self.wanted, &phase)).collect();
        pulse
    }

    /// Notes that it is `now`. If this process did not run for a while, others are not blamed.
    fn awake(&mut self, now: Duration) {
        let slept = now.saturating_sub(self.now);
        self.now = now.max(self.now);
        if slept < ASLEEP {
            return;
        }
        self.members.values_mut().for_each(|member| member.heard += slept);
        self.stepped += slept;
        if let Some(work) = &mut self.work {
            work.since += slept;
        }
        if let Phase::Scoring(scoring, _) = &mut self.phase {
            scoring.progressed += slept;
        }
    }

    fn take(&mut self, now: Duration, input: Input) -> Result<(), Trouble> {
        match input {
            Input::Joined(join) => self.joined(now, join),
            Input::Left { agent, pid, how, ended } => {
                self.left(now, agent, pid, how, ended);
                Ok(())
            }
            Input::Worker(worker, said) => self.said(now, worker, said),
            Input::Coded(worker, said, bulk) => self.answered(now, worker, said, &bulk),
            Input::Scored(worker, part, step, batch, scores) => {
                self.heard(worker, now);
                self.scored(now, part, (step, batch), scores)
            }
            Input::ManifestWritten(written) => {
                self.manifest_written(now, written);
                Ok(())
            }
            Input::Scale(workers) => {
                self.scale(workers);
                Ok(())
            }
            Input::Report(what) => {
                self.record(*what, "the controller tells it");
                Ok(())
            }
            Input::Stop(reason) => {
                self.stop(reason);
                Ok(())
            }
            Input::Tick => self.tick(now),
            // There are no servers.
            Input::Server(..) => Ok(()),
        }
    }

    fn said(&mut self, now: Duration, worker: u32, said: FromWorker) -> Result<(), Trouble> {
        self.heard(worker, now);
        match said {
            FromWorker::Failed(trouble) if trouble.fix_input => Err(Trouble {
                message: format!("worker-{worker} cannot go on: {}", trouble.message),
                ..trouble
            }),
            // It ends now; that it did, and why, is told by its link.
            FromWorker::Failed(trouble) => {
                self.lose(now, worker, trouble.message, false);
                Ok(())
            }
            FromWorker::Revoked { ticket } => {
                self.revoked(worker, ticket);
                Ok(())
            }
            FromWorker::Ready { engine, threads } => {
                self.ready(worker, engine, threads);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn stop(&mut self, reason: String) {
        if !self.course.stopping() {
            self.course.stop();
            self.record(What::Stopping { reason: reason.clone() }, reason);
        }
        match &self.phase {
            // The weights are saved; `resume` scores them.
            Phase::Scoring(_, Some(_)) => self.finish(End::Interrupted),
            // Nothing is under way that could be finished.
            Phase::Gathering if self.course.state().step == 0 => self.finish(End::Interrupted),
            Phase::Gathering | Phase::Training | Phase::Scoring(_, None) => {
                // The state before what is under way is saved.
                (self.work, self.phase) = (None, Phase::Training);
            }
            Phase::Ending(_) | Phase::Over => {}
        }
    }

    fn tick(&mut self, now: Duration) -> Result<(), Trouble> {
        self.bury_late(now);
        self.maybe_begin(now);
        self.look_for_hung(now);
        self.look_for_late(now);
        self.save_again(now);
        Ok(())
    }

    /// Goes on as far as can be gone on with those who are there.
    fn drive(&mut self, now: Duration) -> Result<(), Trouble> {
        self.seat();
        self.score_again(now);
        loop {
            if !matches!(self.phase, Phase::Training) {
                return Ok(());
            }
            if self.work.is_some() {
                if !self.advance(now)? {
                    return Ok(());
                }
                continue;
            }
            match self.course.next() {
                Next::Train(_) => {
                    if !self.begin(now)? {
                        return Ok(());
                    }
                }
                Next::Validate if self.setting.held_out[0] == 0 => {
                    self.tell_pending();
                    let what = self.course.validated(self.seconds(now), None);
                    self.unkept = true;
                    self.record(what, "every batch of the epoch is committed");
                }
                Next::Validate => {
                    self.score(now, HeldOut::Validation, None, "the epoch's steps are committed");
                }
                Next::Save { is_best, reason } => {
                    if self.save.as_ref().is_some_and(|save| !save.has_failed()) {
                        return Ok(());
                    }
                    self.save(is_best, reason);
                }
                Next::End(End::Interrupted) => self.finish(End::Interrupted),
                Next::End(end) => match self.last_part() {
                    Some(part) => self.score(now, part, Some(end), "the last step is committed"),
                    None => self.finish(end),
                },
            }
        }
    }

    /// Puts the weights and the record, if they have changed, before everything that relies on them.
    fn keep(&mut self) {
        if !std::mem::take(&mut self.unkept) {
            return;
        }
        let told = self.decisions.iter().filter_map(|d| match &d.action {
            Action::Record(
                what @ (What::Steps(_)
                | What::Epoch { .. }
                | What::Committed { .. }
                | What::Recovered { .. }
                | What::Saved { .. }),
            ) => Some(what),
            _ => None,
        });
        let told: Vec<&What> = told.collect();
        let record = Record {
            saving: self.save.as_ref().map(|save| save.saving.clone()),
            pending: self.pending,
            step_seconds: self.patience.typical(),
            workers: self.wanted,
            ..self.course.record()
        };
        let record = Action::Keep(Box::new(record.with_events(&told)));
        let step = self.course.state().step;
        let weights = Action::KeepWeights(step, self.learner.to_bytes());
        for action in [record, weights] {
            let reason = Cow::Borrowed("the run has come further");
            self.decisions.insert(0, Decision { action, reason });
        }
    }

    fn record(&mut self, what: What, reason: impl Into<Cow<'static, str>>) {
        self.decide(Action::Record(what), reason);
    }

    fn decide(&mut self, action: Action, reason: impl Into<Cow<'static, str>>) {
        self.decisions.push(Decision { action, reason: reason.into() });
    }

    fn tell(&mut self, worker: u32, message: ToWorker, reason: impl Into<Cow<'static, str>>) {
        self.decide(Action::ToWorker(worker, message), reason);
    }

    fn order(&mut self, worker: u32, message: Command, bulk: Arc<Vec<u8>>, why: &'static str) {
        self.decide(Action::ToCoded(worker, message, bulk), why);
    }

    /// Those who can be given work, by slot.
    fn seated(&self) -> BTreeMap<Slot, u32> {
        let ready =
            self.members.iter().filter(|(worker, m)| **worker < self.wanted && m.is_active());
        ready.filter_map(|(worker, member)| Some((member.slot?, *worker))).collect()
    }
}

#[cfg(test)]
mod tests;
