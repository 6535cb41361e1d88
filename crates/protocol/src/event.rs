//! What happens in a run, in the order in which it was decided.
//!
//! `events.jsonl` keeps every [`Event`], one JSON object per line; progress, status, metrics and
//! the report are projections of it. A [`Pulse`] is where a run is at a moment; it is shown and
//! forgotten.

mod json;
mod machine;
mod products;

pub use products::Products;

use crate::state::State;
use crate::terms::{HeldOut, Outcome, Share, Trouble};
pub use machine::MachineState;
use planaria_numerics::digest::Digest;
use planaria_numerics::regression::Errors;
use serde::{Deserialize, Serialize};

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since the run began, pauses left out.
    pub seconds: f64,
    /// Seconds since 1970.
    pub unix_seconds: f64,
    /// How many times the run was started or resumed, from 1.
    pub generation: u64,
    #[serde(flatten)]
    pub what: What,
}

/// How much of a session's events was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// The place after the last of them.
    pub place: u64,
    /// The latest generation among them.
    pub generation: u64,
}

impl Seen {
    /// Whether this event was not seen yet. Where the disk was full, events may be lost with their
    /// coordinator: the next one's places begin earlier again, and its events are new all the same.
    pub fn is_new(&self, place: u64, event: &Event) -> bool {
        place >= self.place || event.generation > self.generation
    }

    /// This one is seen.
    pub fn add(&mut self, place: u64, event: &Event) {
        let after = place.saturating_add(1);
        if event.generation > self.generation {
            *self = Self { place: after, generation: event.generation };
        }
        self.place = self.place.max(after);
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A session began.
    Started(Started),
    /// A process is ready.
    Joined {
        agent: String,
        pid: u32,
        /// Engine and instruction set, of a worker.
        engine: Option<String>,
        /// Threads that compute, of a worker.
        threads: Option<u32>,
        /// Its machine; nothing for the controller's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        machine: Option<String>,
        /// Bytes of the data that it had to be sent; of a worker of a coded run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        downloaded: Option<u64>,
    },
    /// A process was lost.
    Lost {
        agent: String,
        #[serde(default)]
        pid: u32,
        /// How that was seen.
        reason: String,
    },
    /// A worker is late: its shards are computed elsewhere.
    Suspected {
        agent: String,
        /// The step that waited for it, from 1.
        step: u64,
        /// Its shards of that step.
        shards: u32,
        /// How long the step had taken by then. Every event has `seconds` of its own.
        #[serde(rename = "waited_seconds")]
        seconds: f64,
    },
    /// A worker that was suspected answers again.
    Regained { agent: String },
    /// The first step was committed after a loss or a suspicion.
    Healed {
        /// From 1.
        step: u64,
        /// What had happened.
        after: String,
        /// How much longer than usual it took from the step before.
        stalled_seconds: f64,
        /// Shards that were given to others.
        recomputed_shards: u32,
        /// How long a shard usually takes to compute.
        shard_seconds: f64,
    },
    /// The pool was asked to grow or shrink.
    Scaled {
        /// Workers wanted.
        workers: u32,
    },
    /// So many machines are wanted from now on.
    Resized { machines: u32 },
    /// What became of a machine of the pool.
    Machine {
        machine: String,
        state: MachineState,
        /// What it is, what it waits for, or why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A worker is no longer needed and ends.
    Released { agent: String },
    /// Too few workers are left.
    Paused {
        workers: u32,
        /// The least to go on with.
        min: u32,
    },
    /// Enough workers are there again.
    Unpaused { workers: u32 },
    /// A coordinator took up a run after a loss, in the same session.
    Recovered {
        /// Steps done.
        step: u64,
        /// Steps that were committed and are taken again.
        superseded: u64,
        /// `kept`, or the checkpoint's folder, or `the seed`.
        source: String,
        /// What was lost, as a sentence.
        reason: String,
        /// Whose loss it was, where it was that of a process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost: Option<String>,
    },
    /// Some steps of one epoch were committed, each once: the ground of an audit.
    Committed {
        /// Epoch, from 0.
        epoch: u64,
        /// First of the steps.
        first_step: u64,
        /// The one after the last.
        end_step: u64,
        /// The examples that were read for them.
        read: Digest,
    },
    /// A checkpoint could not be written; the one before it stands.
    NotSaved {
        /// Steps done.
        step: u64,
        reason: String,
    },
    /// Something has removed the last checkpoint; another is made.
    Vanished { folder: String },
    /// The shards were dealt out anew.
    Dealt {
        /// First step of the new shares, from 1.
        step: u64,
        /// Who computes which shards.
        shares: Vec<Share>,
        reason: String,
    },
    /// Some steps were committed.
    Steps(Figures),
    /// An epoch was done.
    Epoch {
        #[serde(flatten)]
        figures: Figures,
        /// Mean loss on the validation part.
        validation_loss: Option<f64>,
        /// Accuracy on the validation part.
        validation_accuracy: Option<f64>,
        /// Errors on the validation part, of numbers to predict.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        validation_errors: Option<Errors>,
        /// The examples that were read in it.
        read: Digest,
        /// Whether these were all examples, each once.
        exact: bool,
    },
    /// A checkpoint is whole on the disk.
    Saved {
        /// Steps done.
        step: u64,
        /// Whether it is the best epoch so far.
        is_best: bool,
        folder: String,
        /// Why it was written.
        reason: String,
    },
    /// The final weights were scored.
    Scored {
        /// On which part.
        part: HeldOut,
        /// Examples of it.
        examples: u64,
        loss: Option<f64>,
        accuracy: Option<f64>,
        /// Of numbers to predict.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        errors: Option<Errors>,
        /// All scores, as `planaria_learn::Scores` writes them.
        #[serde(default)]
        scores: serde_json::Value,
    },
    /// The processes of a script are started once more: all of them, or one.
    Restarted {
        /// Which: `worker-0`; nothing where all are.
        agent: Option<String>,
        /// Restarts so far.
        restarts: u32,
        reason: String,
        /// Whether a process was lost together with its machine.
        #[serde(default)]
        with_machine: bool,
    },
    /// What the workers of a coded run did since this was last told.
    Worked(Products),
    /// A stop was asked for.
    Stopping {
        /// By whom or why.
        reason: String,
    },
    /// The session ended.
    Ended {
        outcome: Outcome,
        /// Why, where the outcome does not say it all.
        reason: Option<String>,
        /// Steps done.
        step: u64,
        /// SHA-256 of the weights, where the process that ended the run holds them.
        #[serde(default)]
        weights_sha256: Option<String>,
        /// What failed, and what to do about it.
        #[serde(default)]
        trouble: Option<Trouble>,
        /// How far the run had come.
        #[serde(default)]
        state: Option<Box<State>>,
    },
}

/// What does not change in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// Name of the run's folder.
    pub run_id: String,
    /// The recipe's name.
    pub recipe: String,
    /// Version of planaria.
    pub version: String,
    /// SHA-256 of the resolved recipe.
    pub recipe_sha256: String,
    /// Steps that were done before.
    pub step: u64,
    /// Epochs in all.
    pub epochs: u64,
    /// Steps in one of them.
    pub steps_per_epoch: u64,
    /// Training examples in an epoch.
    pub examples: u64,
    pub parameters: u64,
    /// Whether examples have classes.
    pub classification: bool,
    /// Worker processes; 0 where the run is one process.
    pub workers: u32,
    pub servers: u32,
    /// Shards of each batch.
    pub shards: u32,
    /// Examples per step.
    pub batch: u64,
    /// Digest of the training examples, which each epoch's must equal; empty in runs from before
    /// audits.
    #[serde(default)]
    pub digest: Digest,
}

/// Figures of some steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Steps done.
    pub step: u64,
    /// Epoch the last step belongs to, from 1.
    pub epoch: u64,
    /// Mean training loss.
    pub loss: Option<f64>,
    /// Share of training examples classified right, as they were seen; of classification.
    pub accuracy: Option<f64>,
    /// Learning rate of the last step.
    pub learning_rate: f32,
    pub examples_per_second: Option<f64>,
    /// Seconds of taking these steps.
    pub training_seconds: f64,
}

/// Where a run is at a moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Pulse {
    pub activity: Activity,
    /// The same in words: `training`, `validating`, `waiting for 1 of 3 workers`.
    pub phase: String,
    /// Seconds since the run began, pauses left out.
    pub seconds: f64,
    /// Epoch under way, from 1.
    pub epoch: u64,
    /// Steps done.
    pub step: u64,
    /// Mean loss of the epoch so far.
    pub loss: Option<f64>,
    /// Accuracy of the epoch so far, of classification.
    pub accuracy: Option<f64>,
    /// Training speed of the last moments.
    pub examples_per_second: Option<f64>,
    /// Time to the end of the run.
    pub seconds_left: Option<f64>,
    pub workers: Vec<WorkerPulse>,
    pub servers: Vec<ServerPulse>,
}

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It waits for its processes to join.
    Gathering,
    #[default]
    Training,
    /// Held-out examples are scored.
    Scoring,
    /// Too few workers are left.
    Paused,
    Saving,
    Over,
}

/// What a process of a run is doing, as far as its coordinator knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Doing {
    /// It has not joined yet.
    #[default]
    #[serde(rename = "starting")]
    Starting,
    #[serde(rename = "getting ready")]
    GettingReady,
    /// It pulls the parameters and has them compared.
    #[serde(rename = "entering")]
    Entering,
    /// It gets the rows of its slot, of a coded run.
    #[serde(rename = "fetching rows")]
    FetchingRows,
    #[serde(rename = "ready")]
    Ready,
    #[serde(rename = "standby")]
    Standby,
    #[serde(rename = "computing")]
    Computing,
    #[serde(rename = "evaluating")]
    Evaluating,
    #[serde(rename = "serving")]
    Serving,
    /// Others compute its shards.
    #[serde(rename = "late")]
    Late,
    /// Its link is gone.
    #[serde(rename = "cut off")]
    CutOff,
    /// It is no longer wanted.
    #[serde(rename = "leaving")]
    Leaving,
}

impl Doing {
    /// As people read it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::GettingReady => "getting ready",
            Self::Entering => "entering",
            Self::FetchingRows => "fetching rows",
            Self::Ready => "ready",
            Self::Standby => "standby",
            Self::Computing => "computing",
            Self::Evaluating => "evaluating",
            Self::Serving => "serving",
            Self::Late => "late",
            Self::CutOff => "cut off",
            Self::Leaving => "leaving",
        }
    }
}

/// Where a worker is at a moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkerPulse {
    pub worker: u32,
    pub state: Doing,
    pub shards: u32,
    /// Examples per second while it computes.
    pub examples_per_second: Option<f64>,
    /// Share of the time that it computes.
    pub busy: Option<f64>,
    /// Its machine; nothing for the controller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Of a coded run: the slot whose rows it has, or is getting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
    /// Of a coded run: rows that it has computed since it joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
}

/// Where a server is at a moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ServerPulse {
    pub server: u32,
    pub state: Doing,
    /// Share of a core that it uses.
    pub busy: Option<f64>,
    /// Bytes per second, both ways.
    pub bytes_per_second: Option<f64>,
    /// Its machine; nothing for the controller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_event_reads_back() {
        let agent = || "worker-2".to_owned();
        let text = || "why".to_owned();
        let figures = Figures {
            step: 7,
            epoch: 1,
            loss: Some(0.5),
            accuracy: None,
            learning_rate: 0.1,
            examples_per_second: Some(1e3),
            training_seconds: 2.5,
        };
        let started = Started {
            run_id: text(),
            recipe: text(),
            version: text(),
            recipe_sha256: text(),
            step: 0,
            epochs: 2,
            steps_per_epoch: 3,
            examples: 9,
            parameters: 5,
            classification: true,
            workers: 2,
            servers: 1,
            shards: 4,
            batch: 3,
            digest: (0..9).collect(),
        };
        let read = (0..3).collect();
        for what in [
            What::Started(started),
            What::Joined {
                agent: agent(),
                pid: 1,
                engine: None,
                threads: Some(2),
                machine: Some(text()),
                downloaded: Some(5),
            },
            What::Lost { agent: agent(), pid: 1, reason: text() },
            What::Suspected { agent: agent(), step: 3, shards: 2, seconds: 0.25 },
            What::Regained { agent: agent() },
            What::Healed {
                step: 3,
                after: text(),
                stalled_seconds: 0.5,
                recomputed_shards: 2,
                shard_seconds: 0.1,
            },
            What::Scaled { workers: 3 },
            What::Resized { machines: 3 },
            What::Machine { machine: text(), state: MachineState::Pending, reason: Some(text()) },
            What::Released { agent: agent() },
            What::Paused { workers: 1, min: 2 },
            What::Unpaused { workers: 2 },
            What::Recovered {
                step: 3,
                superseded: 1,
                source: text(),
                reason: text(),
                lost: Some(text()),
            },
            What::Committed { epoch: 0, first_step: 0, end_step: 3, read },
            What::NotSaved { step: 3, reason: text() },
            What::Vanished { folder: text() },
            What::Dealt { step: 3, shares: Vec::new(), reason: text() },
            What::Steps(figures.clone()),
            What::Epoch {
                figures,
                validation_loss: Some(0.5),
                validation_accuracy: None,
                validation_errors: Some(Errors { rmse: 2.5, mae: 1.5, r2: Some(0.1 + 0.2) }),
                read,
                exact: true,
            },
            What::Saved { step: 3, is_best: true, folder: text(), reason: text() },
            What::Scored {
                part: HeldOut::Test,
                examples: 3,
                loss: None,
                accuracy: Some(0.5),
                errors: None,
                scores: serde_json::Value::Null,
            },
            What::Worked(Products { rows: 3, ..Products::default() }),
            What::Stopping { reason: text() },
            What::Ended {
                outcome: Outcome::StoppedEarly,
                reason: None,
                step: 3,
                weights_sha256: None,
                trouble: Some(Trouble::new("x")),
                state: Some(Box::default()),
            },
        ] {
            let event = Event { seconds: 1.5, unix_seconds: 1e9, generation: 3, what };
            let line = serde_json::to_string(&event).unwrap();
            let back: Event = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
            assert_eq!(back, event, "{line}");
        }
    }
}
