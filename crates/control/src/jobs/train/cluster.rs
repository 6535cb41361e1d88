//! A run on many processes, seen from the command that started it.
//!
//! Owns what is shown of them, and what is written when they are done. All decisions on the
//! training are the coordinator's. Never trains.

use crate::jobs::controller;
use crate::jobs::train::Job;
use crate::jobs::train::display::Display;
use crate::jobs::train::ending::{self, Ended, Finished, Means, Results};
use crate::jobs::train::foreground::Foreground;
use crate::jobs::train::launch::Beginning;
use crate::jobs::train::origin::Origin;
use crate::jobs::train::page::Page;
use crate::jobs::train::recorder::Recorder;
use crate::jobs::train::{kept, launch, machines};
use crate::talk::Progress;

use planaria_fleet::ending::Ending;
use planaria_fleet::local::Exit;
use planaria_fleet::log_end::last_line;
use planaria_protocol::checkpoint::{Checkpoint, Found};
use planaria_protocol::event::{Event, What};
use planaria_protocol::journal::{self, Journal};
use planaria_protocol::launch::Size;
use planaria_protocol::message::Agent;
use planaria_protocol::state::State;
use planaria_protocol::{Credentials, Secret};
use planaria_runs::clock;
use planaria_runs::failure::{Failure, Result};
use planaria_runs::run_dir::LOGS;
use planaria_runs::summary::{self, Summary};
use planaria_runs::traces::report::{Outcome, peak_memory_of_children};

/// Trains on many processes and writes what is left to write.
pub fn run(job: Job, size: Size, found: Option<Found<Checkpoint>>) -> Result<Finished> {
    let origin = found.map(|found| Origin::new(&job, found)).transpose()?;
    let state = match &origin {
        None => State { examples_per_epoch: job.data.train.len(), ..State::default() },
        Some(origin) => {
            let state = origin.manifest.state.clone();
            State { resumes: state.resumes + 1, ..state }
        }
    };
    let generation = launch::generation(&job.run, origin.as_ref())?;
    let secret = Secret::random().map_err(Failure::failed)?;
    // What a killed session has left is later than its last checkpoint. If it cannot be used
    // after all, an event says so, and the recorder goes back.
    let left = kept::record(job.run.path()).map(|record| record.state);
    let from = left.filter(|left| left.step >= state.step).unwrap_or_else(|| state.clone());
    let (recipe, progress) = (&job.plan.recipe, Progress::new(job.talk));
    let mut recorder = Recorder::open(&job.run, recipe, (from.step, from.epoch), progress)?;
    let kept = kept::prepare(job.run.path());
    if let Err(why) = &kept {
        let folder = job.run.file(kept::FOLDER);
        recorder.note(&format!(
            "warning: cannot use `{}`: {why}; if a server or the coordinator is lost, the run goes \
             back to its last checkpoint",
            folder.display()
        ));
    }
    let beginning = Beginning {
        size,
        secret: &secret,
        generation,
        state: &state,
        origin: origin.as_ref(),
        kept: kept.as_deref().ok(),
    };
    let launch = launch::launch(&job, beginning)?;
    let program = job.program.clone();
    let program = program.ok_or_else(|| Failure::failed("no program was found to start"))?;
    let pooling = machines::pooling(&job, &program)?;
    let page = Page::new(&job.run);
    recorder.note(&format!("page {}", page.path().display()));
    let mut display = Display { recorder, page };
    let credentials = match &pooling {
        None => Credentials::plain(secret),
        Some(pooling) => {
            let trust = pooling.console_trust()?;
            Credentials::new(secret, Some(&trust), None).map_err(Failure::failed)?
        }
    };
    let mut foreground =
        Foreground::new(&job.run, &program, &credentials, launch, pooling, &mut display)?;
    if let Some(machines) = &job.machines {
        foreground = foreground.copying(&machines.own);
    }
    let clock = foreground.clock();
    let trained = controller::follow(&mut foreground, &job.run.id(), clock);
    // Nothing is written of it into a folder that may be another session's.
    job.run.check()?;
    let size = Size { workers: foreground.workers(), ..size };
    let generations = (generation, foreground.generation());
    let exits = foreground.exits();
    let unreported = foreground.take_unreported();
    drop(foreground);
    let summary = display.recorder.summary().clone();
    let mut ended = EndedRun {
        job,
        recorder: display.recorder,
        summary,
        state,
        generations,
        exits,
        unreported,
    };
    ended.catch_up();
    ended.finish(size, trained)
}

/// A run whose processes have ended.
struct EndedRun {
    job: Job,
    recorder: Recorder,
    /// What the events of the session add up to.
    summary: Summary,
    /// How far the run has come.
    state: State,
    /// The first and the last of the session.
    generations: (u64, u64),
    /// Processes that have ended since the last step, in that order.
    exits: Vec<Exit>,
    /// What happened to machines and is not written down yet.
    unreported: Vec<What>,
}

impl EndedRun {
    /// Reads the coordinator's last words where it had no time to say them.
    fn catch_up(&mut self) {
        if self.summary.ended.is_none() {
            // What cannot be read was not written, and then the coordinator was lost indeed.
            let events = journal::read(&self.job.run.file(journal::FILE)).unwrap_or_default();
            let last = |e: &&Event| matches!(e.what, What::Scored { .. } | What::Ended { .. });
            let own = events.iter().filter(|e| e.generation >= self.generations.0);
            own.filter(last).for_each(|event| self.summary.take(event));
        }
        if let Some(state) = self.summary.ended.as_ref().and_then(|ended| ended.state.as_ref()) {
            self.state = state.clone();
        }
    }

    /// Writes the last files from what the events and the last checkpoint hold.
    fn finish(self, size: Size, trained: Result<()>) -> Result<Finished> {
        let ended = self.outcome(trained);
        let hint = ended.hint();
        let Ended { outcome, reason, failure } = ended;
        let Self { job, recorder, summary, mut state, generations, unreported, .. } = self;
        let generation = generations.1;
        let weights = match job.run.checkpoint_folder(job.plan.recipe.output.keep).named("last") {
            Ok(checkpoint) => {
                let saved = checkpoint.manifest.state;
                // Of a run that failed further on: these are not the weights it ended with.
                let is_older = outcome == Outcome::Failed
                    && summary.ended.is_some()
                    && saved.step != state.step;
                if summary.ended.is_none() {
                    state = saved;
                }
                if is_older { Default::default() } else { checkpoint.weights }
            }
            // Without a checkpoint nothing was learned that could be kept.
            Err(_) if outcome == Outcome::Failed || state.step == 0 => Default::default(),
            Err(unreadable) => return Err(Failure::failed(unreadable)),
        };
        if summary.ended.is_none() {
            conclude(&job, generation, &state, unreported, failure.as_ref());
        }
        let means = Means {
            engine: summary.engine,
            threads: summary.threads.values().sum::<u32>() as usize,
            workers: size.workers,
            servers: size.servers,
            generation,
        };
        let facts = ending::facts(&job, means)?;
        let results = Results {
            job: &job,
            facts: &facts,
            state: &state,
            lines: recorder.lines(),
            outcome,
            reason,
            hint,
            scores: summary.scores.as_ref(),
            parameters: &weights.parameters,
            values: &weights.state,
            peak_memory_bytes: peak_memory_of_children(),
        };
        let report = results.report();
        let written = match (outcome, state.step) {
            // There is nothing to report of a run that was stopped before it began.
            (Outcome::Interrupted, 0) => Ok(()),
            _ => results.write(&report),
        };
        if outcome != Outcome::Failed && written.is_ok() {
            kept::remove(job.run.path());
        }
        Finished::new(&job, report, written, failure)
    }

    fn outcome(&self, trained: Result<()>) -> Ended {
        match (self.summary.ended.clone(), trained) {
            (Some(summary::Ended { trouble: Some(trouble), .. }), _) => {
                let agent = trouble.agent.clone();
                Ended::failed(self.explain(trouble.into(), agent.as_deref()))
            }
            (Some(summary::Ended { outcome, reason, .. }), _) => {
                Ended { outcome, reason, failure: None }
            }
            (None, Err(failure)) => Ended::failed(failure),
            (None, Ok(())) => {
                let log = format!("{}.log", Agent::Coordinator);
                let last = last_line(&self.job.run.file(LOGS).join(log));
                let coordinator = Agent::Coordinator.to_string();
                Ended::failed(self.explain(ended_early(last), Some(&coordinator)))
            }
        }
    }

    /// Says how the process that could not go on has ended, and where its log is.
    fn explain(&self, failure: Failure, agent: Option<&str>) -> Failure {
        let is_its = |exit: &&Exit| agent == Some(&*exit.agent.to_string());
        let Some(exit) = self.exits.iter().rev().filter(|e| !e.is_well()).find(is_its) else {
            return failure;
        };
        let log = self.job.run.file(LOGS).join(format!("{}.log", exit.agent));
        let message = match exit.ending {
            // It could still say what was wrong.
            Ending::Code(_) => failure.message,
            // So could the process that came in its place.
            _ if failure.exit == planaria_runs::failure::Exit::User => failure.message,
            Ending::Signal(_) | Ending::MachineLost | Ending::OutOfMemory { .. } => {
                format!("{} (process {}) was lost: {}", exit.agent, exit.pid, exit.how())
            }
        };
        let hint = failure.hint.map_or_else(String::new, |hint| format!("{hint}; "));
        Failure { message, hint: Some(format!("{hint}its log is `{}`", log.display())), ..failure }
    }
}

/// Writes down what became of machines and that the session has failed, where the coordinator could
/// not.
fn conclude(
    job: &Job,
    generation: u64,
    state: &State,
    unreported: Vec<What>,
    failure: Option<&Failure>,
) {
    let ended = What::Ended {
        outcome: Outcome::Failed,
        reason: failure.map(|failure| failure.message.clone()),
        step: state.step,
        weights_sha256: None,
        trouble: failure.map(Failure::trouble),
        state: Some(Box::new(state.clone())),
    };
    let seconds = state.seconds_total.max(job.process.seconds());
    let written =
        Journal::open(&job.run.file(journal::FILE), generation).and_then(|mut journal| {
            let mut all = unreported.into_iter().chain([ended]);
            all.try_for_each(|what| journal.record(seconds, clock::unix_seconds(), what).map(drop))
        });
    // The failure itself is told in any case, and it may be that nothing can be written.
    drop(written);
}

/// Why a run has failed whose coordinator did not say how it ended; `last` is its log's last line.
fn ended_early(last: Option<String>) -> Failure {
    let last =
        last.map_or_else(|| "its log is empty".into(), |line| format!("its last line: {line}"));
    Failure::failed(format!("the coordinator ended before the run did; {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_coordinator_is_told() {
        let said = ended_early(Some("cannot bind port 7".into())).message;
        assert_eq!(
            said,
            "the coordinator ended before the run did; its last line: cannot bind port 7"
        );
        assert!(ended_early(None).message.ends_with("its log is empty"));
    }
}
