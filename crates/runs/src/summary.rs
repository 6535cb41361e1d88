//! What the events of a run add up to so far: one fold, which `status`, `runs`, the screen, pages,
//! reports and audits read.
//!
//! Pure: events go in, in their order; the caller shows or writes what has come of them.

use crate::frame::Frame;
use crate::lineage::Lineage;
use crate::machines::{Count, Machines};
use crate::outcome::{Outcome, positive};
use crate::processes::Processes;
use crate::run_dir::metrics::Line;
use planaria_learn::Scores;
use planaria_numerics::digest::Digest;
use planaria_numerics::regression::Errors;
use planaria_protocol::event::{Event, Figures, MachineState, Started, What};
use planaria_protocol::message::{HeldOut, Trouble};
use planaria_protocol::state::State;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What a loss and an accuracy are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scored {
    Training,
    #[serde(untagged)]
    On(HeldOut),
}

impl fmt::Display for Scored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Training => f.write_str("training"),
            Self::On(part) => part.fmt(f),
        }
    }
}

/// A run so far.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// What does not change in the newest session.
    pub started: Option<Started>,
    /// Of the newest event.
    pub generation: u64,
    /// Steps done.
    pub step: u64,
    /// Whole epochs done.
    pub epochs_done: u64,
    /// The newest loss and accuracy, and what they are of.
    pub loss: Option<f64>,
    pub accuracy: Option<f64>,
    /// Of numbers to predict, on a held-out part.
    pub errors: Option<Errors>,
    pub scored_on: Option<Scored>,
    /// Of the newest epoch that was validated.
    pub validation_loss: Option<f64>,
    /// The newest training speed.
    pub examples_per_second: Option<f64>,
    /// Steps done at the newest checkpoint.
    pub saved_step: Option<u64>,
    /// Why the newest checkpoint could not be written, where that is so.
    pub not_saved: Option<String>,
    /// Workers wanted.
    pub workers: u32,
    /// Whether a stop was asked for.
    pub stopping: bool,
    /// Too few workers are left: how many there are, and the least to go on with.
    pub paused: Option<(u32, u32)>,
    /// Machines that were asked for while it ran.
    pub machines_wanted: Option<u32>,
    /// The machines of its pool, by name.
    pub pool: BTreeMap<String, PoolMachine>,
    /// Engine and instruction set of the newest worker.
    pub engine: String,
    /// Threads of each worker, by its name; one that was replaced counts once.
    pub threads: BTreeMap<String, u32>,
    /// Scores of the final weights.
    pub scores: Option<(HeldOut, Scores)>,
    /// How the newest session ended.
    pub ended: Option<Ended>,
    /// The figures along the way; of steps that were done again only the later.
    pub lines: Vec<Line>,
    /// Which committed steps count.
    pub lineage: Lineage,
    /// By epoch from 0: what its own event says was read, and whether it was exact.
    pub read: BTreeMap<u64, (Digest, bool)>,
    /// Of a script's run.
    pub processes: Processes,
    count: Count,
}

/// A machine of a run's pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolMachine {
    pub state: MachineState,
    /// What it is, what it waits for, or why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it has been ready in this session.
    #[serde(skip)]
    pub was_ready: bool,
}

/// A machine that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    pub machine: String,
    pub reason: String,
}

/// How a session ended.
#[derive(Debug, Clone)]
pub struct Ended {
    pub outcome: Outcome,
    /// Steps done.
    pub step: u64,
    pub reason: Option<String>,
    pub trouble: Option<Trouble>,
    /// How far the run had come.
    pub state: Option<State>,
}

impl Summary {
    /// Of all events of a run.
    pub fn of(events: &[Event]) -> Self {
        let mut summary = Self::default();
        events.iter().for_each(|event| summary.take(event));
        summary
    }

    /// What is shown of it beside its pulse.
    pub fn frame(&self) -> Frame {
        let frame = self.started.as_ref().map(Frame::of).unwrap_or_default();
        Frame { validation_loss: self.validation_loss, ..frame }
    }

    /// Who was lost, who joined, and what that cost.
    pub fn machines(&self) -> Machines {
        self.count.machines()
    }

    /// Machines of the last session that were given up, and why; at its end those too that had not
    /// become ready.
    pub fn given_up(&self) -> Vec<GivenUp> {
        use MachineState::{Failed, GivenUp as Given, Pending, Raising};
        let is_missed =
            |one: &PoolMachine| matches!(one.state, Failed | Pending | Raising) && !one.was_ready;
        let given_up = self.pool.iter().filter(|(_, one)| one.state == Given || is_missed(one));
        let given_up = given_up.map(|(machine, one)| {
            let late = || "it was not ready when the run ended".to_owned();
            let reason = one.reason.clone().unwrap_or_else(late);
            GivenUp { machine: machine.clone(), reason }
        });
        given_up.collect()
    }

    /// F1 of the positive class, of two, of the final weights.
    pub fn f1(&self) -> Option<f64> {
        let (_, scores) = self.scores.as_ref()?;
        positive(scores, &[]).map(|positive| positive.f1)
    }

    /// The next event.
    pub fn take(&mut self, event: &Event) {
        self.generation = event.generation;
        self.count.take(event);
        self.processes.take(&event.what);
        self.lineage.take(event);
        self.keep_line(event);
        match &event.what {
            What::Started(started) => self.begin(started),
            What::Recovered { step, .. } => {
                self.step = *step;
                // Its coordinator may have been lost with the last word.
                self.ended = None;
                self.epochs_done = self.epochs_done.min(step / self.steps_per_epoch());
            }
            What::Joined { agent, engine: Some(engine), threads, .. } => {
                self.engine.clone_from(engine);
                self.threads.insert(agent.clone(), threads.unwrap_or(0));
            }
            What::Released { agent } => {
                self.threads.remove(agent);
            }
            What::Paused { workers, min } => self.paused = Some((*workers, *min)),
            What::Unpaused { .. } => self.paused = None,
            What::Scaled { workers } => self.workers = *workers,
            What::Resized { machines } => self.machines_wanted = Some(*machines),
            What::Machine { machine, state, reason } => {
                let (state, reason) = (*state, reason.clone());
                let before = self.pool.get(machine).is_some_and(|one| one.was_ready);
                let was_ready = before || state == MachineState::Ready;
                self.pool.insert(machine.clone(), PoolMachine { state, reason, was_ready });
            }
            What::NotSaved { reason, .. } => self.not_saved = Some(reason.clone()),
            What::Saved { step, .. } => {
                (self.saved_step, self.not_saved) = (Some(*step), None);
            }
            What::Steps(figures) => self.trained(figures),
            What::Epoch {
                figures,
                validation_loss,
                validation_accuracy,
                validation_errors,
                read,
                exact,
            } => {
                self.trained(figures);
                self.read.insert(figures.epoch.saturating_sub(1), (*read, *exact));
                self.epochs_done = figures.epoch;
                self.validation_loss = *validation_loss;
                if validation_loss.is_some() {
                    (self.loss, self.accuracy) = (*validation_loss, *validation_accuracy);
                    self.errors = *validation_errors;
                    (self.scored_on, self.scores) = (Some(Scored::On(HeldOut::Validation)), None);
                }
            }
            What::Scored { part, loss, accuracy, errors, scores, .. } => {
                (self.loss, self.accuracy, self.errors) = (*loss, *accuracy, *errors);
                let scores = serde_json::from_value(scores.clone()).ok();
                self.scores = scores.map(|scores| (*part, scores));
                self.scored_on = Some(Scored::On(*part));
            }
            What::Stopping { .. } => self.stopping = true,
            What::Ended { outcome, reason, step, trouble, state, .. } => {
                self.step = *step;
                self.ended = Some(Ended {
                    outcome: *outcome,
                    step: *step,
                    reason: reason.clone(),
                    trouble: trouble.clone(),
                    state: state
                        .as_ref()
                        .map(|state| State { seconds_total: event.seconds, ..(**state).clone() }),
                });
            }
            _ => {}
        }
    }

    /// A session that goes on forgets how the one before it ended.
    fn begin(&mut self, started: &Started) {
        self.step = started.step;
        self.epochs_done = started.step / started.steps_per_epoch.max(1);
        self.workers = started.workers;
        (self.ended, self.stopping, self.paused, self.not_saved) = (None, false, None, None);
        (self.machines_wanted, self.pool) = (None, BTreeMap::new());
        self.threads.clear();
        self.started = Some(started.clone());
    }

    fn steps_per_epoch(&self) -> u64 {
        self.started.as_ref().map_or(1, |started| started.steps_per_epoch.max(1))
    }

    fn trained(&mut self, figures: &Figures) {
        self.step = figures.step;
        self.examples_per_second = figures.examples_per_second;
        // What was scored on other examples says more than the training loss, while it is new.
        if matches!(self.scored_on, None | Some(Scored::Training)) {
            (self.loss, self.accuracy) = (figures.loss, figures.accuracy);
            self.scored_on = Some(Scored::Training);
        }
    }

    /// What a session did beyond the step that a later one began from was done again, and the later
    /// counts.
    fn keep_line(&mut self, event: &Event) {
        if let What::Recovered { step, .. } = &event.what {
            self.lines.retain(|line| line.step <= *step);
        }
        let Some(next) = Line::of(event) else { return };
        let same = |line: &Line| line.span == next.span;
        if self.lines.iter().rfind(|line| same(line)).is_some_and(|last| last.step >= next.step) {
            self.lines.retain(|line| !same(line) || line.step < next.step);
        }
        self.lines.push(next);
    }
}
