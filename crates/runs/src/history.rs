//! What became of a run so far: its [`Summary`], and its lock for whether it lives.
//!
//! Owns the words for a run's state. Never writes, and never asks a live run anything.
//!
//! # Layout
//! - `remains`: what is known of a run whose events were deleted

mod remains;

use crate::failure::{Context, Result};
use crate::machines::Machines;
use crate::outcome::Outcome;
use crate::run_dir::lock::Holder;
use crate::run_dir::quit;
use crate::run_dir::run_id;
use crate::story::Story;
use crate::summary::{PoolMachine, Scored, Summary};
use planaria_numerics::regression::Errors;
use planaria_protocol::event::{Event, Started};
use planaria_protocol::journal;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// A process is at work on it.
    Running,
    /// All epochs were done.
    Completed,
    /// Early stopping ended it.
    StoppedEarly,
    /// It was stopped, and saved.
    Interrupted,
    Failed,
    /// Its process is gone without a word.
    Killed,
}

impl Standing {
    /// As a person reads it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::StoppedEarly => "stopped early",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::Killed => "killed",
        }
    }

    /// Whether nothing is left to do.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Completed | Self::StoppedEarly)
    }
}

/// A run so far.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct History {
    /// Name of the run's folder.
    pub run_id: String,
    pub folder: PathBuf,
    /// The recipe's name.
    pub recipe: String,
    /// Where it stands.
    pub state: Standing,
    /// Why, where the state does not say it all.
    pub reason: Option<String>,
    /// What to do about a failure, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The process at work on it.
    pub pid: Option<u32>,
    /// The machine of its controller, where that is not this one.
    pub detached: Option<String>,
    /// When it began, in seconds since 1970.
    pub started: Option<f64>,
    /// When something last happened, in seconds since 1970.
    pub updated: Option<f64>,
    /// Seconds of it, pauses left out.
    pub seconds: f64,
    /// Whole epochs done.
    pub epochs_done: u64,
    /// Epochs in all.
    pub epochs: u64,
    /// Steps done, as far as events tell.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// The newest loss.
    pub loss: Option<f64>,
    /// The newest accuracy, of classification.
    pub accuracy: Option<f64>,
    /// The newest errors, of numbers to predict.
    #[serde(flatten)]
    pub errors: Option<Errors>,
    /// F1 of the positive class, of two, where these two are of final weights.
    pub f1: Option<f64>,
    /// What these are of.
    pub scored_on: Option<Scored>,
    /// Of the newest epoch that was validated.
    pub validation_loss: Option<f64>,
    /// The newest training speed.
    pub examples_per_second: Option<f64>,
    /// Steps done at the newest checkpoint.
    pub saved_step: Option<u64>,
    pub examples: u64,
    pub parameters: u64,
    /// Worker processes; 0 where the run is one process.
    pub workers: u32,
    pub servers: u32,
    /// How many times it was started or resumed.
    pub generation: u64,
    /// Whether a stop was asked for.
    pub stopping: bool,
    /// Too few workers are left: how many there are, and the least to go on with.
    pub paused: Option<(u32, u32)>,
    /// Who was lost, who joined, and what that cost.
    #[serde(flatten)]
    pub machines: Machines,
    /// Machines that were asked for while it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines_wanted: Option<u32>,
    /// The machines of its pool, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pool: BTreeMap<String, PoolMachine>,
    /// Why the newest checkpoint could not be written, where that is so.
    pub not_saved: Option<String>,
    /// Whether a second Ctrl-C or signal ended it at once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub was_quit: bool,
    /// Whether its events were deleted, so that this is what its report and its checkpoints tell.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub events_missing: bool,
    /// Of a script's run: all that others do not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<Story>,
}

impl History {
    /// Reads the run in `folder`, which `holder` works on; `detached` is the machine of its
    /// controller, where that is another.
    pub fn read(folder: &Path, holder: Holder, detached: Option<String>) -> Result<Self> {
        let path = folder.join(journal::FILE);
        let events =
            journal::read(&path).context(|| format!("cannot read `{}`", path.display()))?;
        let summary = Summary::of(&events);
        let story = Story::read(folder, &summary);
        let is_headless = summary.started.is_none();
        let mut history = Self { detached, ..Self::of_summary(folder, holder, &events, summary) };
        if let Some(story) = story {
            history.is_of(story);
        }
        if is_headless {
            remains::fill(&mut history);
        }
        history.was_quit = history.state == Standing::Killed && quit::is_there(folder);
        Ok(history)
    }

    /// It is a script's: what others have by steps of ours it has by what the script has told.
    pub fn is_of(&mut self, story: Story) {
        let either = |names: [&str; 2]| names.iter().find_map(|name| story.figure(name));
        self.loss = either(["validation_loss", "loss"]);
        let accuracy = either(["validation_accuracy", "accuracy"]);
        // Some scripts count in hundredths, which cannot be known.
        self.accuracy = accuracy.filter(|share| (0.0..=1.0).contains(share));
        self.step = story.figure("step").map_or(0, |step| step.max(0.0) as u64);
        if !story.processes.is_empty() {
            self.workers = story.processes.len() as u32;
        }
        // Its processes are not ours to count as machines.
        let Machines { machines_lost, machines_joined, .. } = self.machines;
        self.machines = Machines { machines_lost, machines_joined, ..Machines::default() };
        self.script = Some(story);
    }

    /// What the events of a run tell.
    pub fn of(folder: &Path, holder: Holder, events: &[Event]) -> Self {
        Self::of_summary(folder, holder, events, Summary::of(events))
    }

    fn of_summary(folder: &Path, holder: Holder, events: &[Event], summary: Summary) -> Self {
        let started = summary.started.as_ref();
        let of = |figure: fn(&Started) -> u64| started.map_or(0, figure);
        let state = match &summary.ended {
            // The process may still be writing the last files, but nothing more will happen.
            Some(ended) => ended.outcome.into(),
            None if holder.is_live() => Standing::Running,
            None => Standing::Killed,
        };
        Self {
            run_id: run_id(folder),
            folder: folder.to_path_buf(),
            recipe: started.map_or_else(|| run_id(folder), |started| started.recipe.clone()),
            state,
            reason: summary.ended.as_ref().and_then(|ended| ended.reason.clone()),
            hint: summary.ended.as_ref().and_then(|ended| ended.trouble.as_ref()?.hint.clone()),
            pid: holder.pid(),
            detached: None,
            started: events.first().map(|e| e.unix_seconds),
            updated: events.last().map(|e| e.unix_seconds),
            seconds: events.last().map_or(0.0, |e| e.seconds),
            epochs_done: summary.epochs_done,
            epochs: of(|started| started.epochs),
            step: summary.step,
            steps: summary.frame().steps,
            loss: summary.loss,
            accuracy: summary.accuracy,
            errors: summary.errors,
            f1: summary.f1(),
            scored_on: summary.scored_on,
            validation_loss: summary.validation_loss,
            examples_per_second: summary.examples_per_second,
            saved_step: summary.saved_step,
            examples: of(|started| started.examples),
            parameters: of(|started| started.parameters),
            workers: summary.workers,
            servers: of(|started| started.servers.into()) as u32,
            generation: summary.generation,
            stopping: summary.stopping,
            paused: summary.paused,
            machines: summary.machines(),
            machines_wanted: summary.machines_wanted,
            pool: summary.pool,
            not_saved: summary.not_saved,
            was_quit: false,
            events_missing: false,
            script: None,
        }
    }
}

impl From<Outcome> for Standing {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Self::Completed,
            Outcome::StoppedEarly => Self::StoppedEarly,
            Outcome::Interrupted => Self::Interrupted,
            Outcome::Failed => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_protocol::event::{Figures, What};
    use planaria_protocol::message::HeldOut;

    fn event(generation: u64, what: What) -> Event {
        Event { seconds: 1.5, unix_seconds: 1e9, generation, what }
    }

    fn started(step: u64) -> What {
        What::Started(Started {
            run_id: "net-1".into(),
            recipe: "net".into(),
            version: String::new(),
            recipe_sha256: String::new(),
            step,
            epochs: 3,
            steps_per_epoch: 10,
            examples: 100,
            parameters: 50,
            classification: true,
            workers: 2,
            servers: 1,
            shards: 8,
            batch: 10,
            digest: Default::default(),
        })
    }

    fn steps(step: u64) -> What {
        What::Steps(Figures {
            step,
            epoch: 1,
            loss: Some(0.5),
            accuracy: Some(0.8),
            learning_rate: 0.1,
            examples_per_second: Some(100.0),
            training_seconds: 1.0,
        })
    }

    fn ended(outcome: Outcome) -> What {
        What::Ended {
            outcome,
            reason: (outcome == Outcome::Failed).then(|| "the loss is NaN".into()),
            step: 12,
            weights_sha256: None,
            trouble: None,
            state: None,
        }
    }

    #[test]
    fn states_follow_from_events_and_the_lock() {
        let (live, dead) = (Holder::Process { pid: 7, listens: true }, Holder::Free);
        use Standing::{Completed, Failed, Interrupted, Killed, Running, StoppedEarly};
        for (holder, events, state, step) in [
            (live, vec![], Running, 0),
            (dead, vec![], Killed, 0),
            (live, vec![started(0), steps(7)], Running, 7),
            (dead, vec![started(0), steps(7)], Killed, 7),
            (dead, vec![started(0), steps(7), ended(Outcome::Completed)], Completed, 12),
            (dead, vec![started(0), ended(Outcome::StoppedEarly)], StoppedEarly, 12),
            (dead, vec![started(0), ended(Outcome::Interrupted)], Interrupted, 12),
            (dead, vec![started(0), ended(Outcome::Failed)], Failed, 12),
            // Taken up again.
            (live, vec![started(0), ended(Outcome::Interrupted), started(10)], Running, 10),
            (dead, vec![started(0), ended(Outcome::Interrupted), started(10)], Killed, 10),
        ] {
            let events: Vec<Event> = events.into_iter().map(|what| event(1, what)).collect();
            let history = History::of(Path::new("/r/net-1"), holder, &events);
            assert_eq!((history.state, history.step), (state, step), "{events:?}");
            assert_eq!(history.reason.is_some(), state == Failed);
            assert_eq!(history.pid, holder.pid());
        }
    }

    #[test]
    fn losses_are_counted_and_a_recovery_may_go_back() {
        let lost = What::Lost { agent: "server-0".into(), pid: 9, reason: "killed".into() };
        let recovered = What::Recovered {
            step: 10,
            superseded: 7,
            source: "checkpoints/x".into(),
            reason: "server-0 was lost".into(),
            lost: None,
        };
        let events = [
            event(1, started(0)),
            event(1, steps(17)),
            event(1, What::NotSaved { step: 15, reason: "no space".into() }),
            event(1, lost),
            event(1, What::Paused { workers: 1, min: 2 }),
            event(2, recovered),
        ];
        let history = History::of(Path::new("/r/net-1"), Holder::Free, &events);
        assert_eq!((history.step, history.generation), (10, 2));
        assert_eq!((history.machines.processes_lost, history.paused), (1, Some((1, 2))));
        assert_eq!(history.not_saved.as_deref(), Some("no space"));
    }

    #[test]
    fn one_that_was_quit_is_told_from_one_that_was_killed() {
        let dir = tempfile::tempdir().unwrap();
        let busy = Holder::Process { pid: 7, listens: true };
        let was_quit = |holder| History::read(dir.path(), holder, None).unwrap().was_quit;
        assert!(!was_quit(Holder::Free));
        quit::write(dir.path()).unwrap();
        assert_eq!((was_quit(Holder::Free), was_quit(busy)), (true, false));
        quit::forget(dir.path());
        assert!(!was_quit(Holder::Free), "another session has begun");
    }

    #[test]
    fn held_out_figures_come_before_those_of_training() {
        let scored = What::Scored {
            part: HeldOut::Test,
            examples: 10,
            loss: Some(0.1),
            accuracy: Some(0.9),
            errors: None,
            scores: serde_json::Value::Null,
        };
        let events = [event(1, started(0)), event(1, steps(5)), event(1, scored)];
        let at = |n: usize| History::of(Path::new("/r/net-1"), Holder::Free, &events[..n]);
        assert_eq!((at(2).loss, at(2).scored_on), (Some(0.5), Some(Scored::Training)));
        assert_eq!((at(3).accuracy, at(3).scored_on), (Some(0.9), Some(Scored::On(HeldOut::Test))));
    }
}
