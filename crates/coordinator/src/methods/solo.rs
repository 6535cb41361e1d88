//! Training in one process: the only worker holds the parameters itself and takes whole steps.
//!
//! There is nothing to lease to others and nothing to gather, so a step counts as soon as it is
//! taken. Everything else is every run's: what is scored and saved when, and how it ends.

use super::Built;
use crate::run::course::{Next, Setup};
use crate::run::{Arrival, Batches, Config, Counted, Method, Origin, Run, Session};
use planaria_protocol::checkpoint::Manifest;
use planaria_protocol::launch::{Facts, Size};
use planaria_protocol::message::{ToWorker, Trouble};
use planaria_protocol::methods::Report as AnyReport;
use planaria_protocol::methods::solo::{Command, Report};
use planaria_protocol::state::State;
use planaria_recipe::Recipe;
use std::collections::BTreeMap;
use std::time::Duration;

/// The only worker.
pub const WORKER: u32 = 0;

/// What a run in one process knows beyond every run.
#[derive(Debug, Default)]
pub struct Solo {
    /// The step after the last of those that the worker takes.
    until: Option<u64>,
}

/// A run in one process.
pub type SoloRun = Run<Solo>;

/// A run in one process that is about to begin.
pub fn run(mut session: Session) -> SoloRun {
    let config = &mut session.config;
    (config.workers, config.workers_min, config.servers) = (1, 1, 0);
    Run::new(session, Solo::default())
}

/// The run in one process that a recipe asks for.
pub fn build(
    recipe: &Recipe,
    facts: &Facts,
    state: State,
    manifest: Manifest,
    seconds_before: f64,
) -> Built {
    let size = Size { workers: 1, workers_min: 1, servers: 0, threads: 0 };
    let session = Session {
        config: Config::of(facts, size, ""),
        setup: Setup::of(recipe, facts),
        origin: Origin { state, ..Origin::default() },
        seconds_before,
    };
    let whole = 0..facts.parameters;
    Built { run: Box::new(run(session)), ranges: vec![whole], manifest }
}

impl Method for Solo {
    const IS_ONE_PROCESS: bool = true;

    fn workers_max(_run: &SoloRun) -> u32 {
        1
    }

    fn arrived(_run: &mut SoloRun, _worker: u32) -> Option<Arrival> {
        Some(Arrival { downloaded: None, reason: "it is this process".into() })
    }

    fn reported(
        run: &mut SoloRun,
        now: Duration,
        _worker: u32,
        report: AnyReport,
        _bulk: &[u8],
    ) -> Result<(), Trouble> {
        let AnyReport::Solo(report) = report else { return Ok(()) };
        match report {
            Report::Saved { step, written } => run.part_saved(now, 0, step, written),
            Report::Stepped { step, began, loss_sum, correct, gradient_norm, read } => {
                if step != run.course.state().step {
                    return Err(Trouble::new(format!("step {step} was taken out of turn")));
                }
                run.check_loss(loss_sum)?;
                run.check_finite("the gradient's norm", gradient_norm)?;
                run.stepped = began;
                run.committed(now, Counted { loss_sum, correct, read });
                run.method.until = run.method.until.filter(|until| step + 1 < *until);
            }
        }
        Ok(())
    }

    fn changed(_run: &mut SoloRun, _now: Duration) -> Result<(), Trouble> {
        Ok(())
    }

    fn release(_run: &mut SoloRun, _worker: u32) -> Option<u32> {
        None
    }

    fn late(_run: &mut SoloRun, _now: Duration, _worker: u32, _seconds: f64) -> u32 {
        0
    }

    fn look_for_late(_run: &mut SoloRun, _now: Duration) -> Result<(), Trouble> {
        Ok(())
    }

    fn advance(run: &mut SoloRun, _now: Duration) -> Result<bool, Trouble> {
        Ok(run.method.until.is_some())
    }

    fn begin(run: &mut SoloRun, _now: Duration) -> Result<bool, Trouble> {
        let Next::Train(steps) = run.course.next() else { return Ok(false) };
        run.method.until = Some(steps.steps().end);
        run.tell_worker(WORKER, Command::Train(steps), "it is what comes next");
        Ok(true)
    }

    fn stop(run: &mut SoloRun) {
        run.method.until = None;
        run.tell_worker(WORKER, ToWorker::Revoke { ticket: 0 }, "a stop was asked for");
    }

    fn evaluate(run: &mut SoloRun, worker: u32, batches: Batches, why: &'static str) {
        let Batches { part, step, batches } = batches;
        run.tell_worker(worker, ToWorker::Evaluate { part, step, batches, enter: false }, why);
    }

    fn parts(_run: &SoloRun) -> u32 {
        1
    }

    /// The worker has no copy of what was before.
    fn can_save(run: &mut SoloRun, step: u64) -> bool {
        step == run.course.state().step
    }

    fn write_parts(run: &mut SoloRun, step: u64, folder: &str) {
        let save = Command::Save { step, folder: folder.to_owned() };
        run.tell_worker(WORKER, save, "the checkpoint has a folder");
    }

    fn loads(_run: &SoloRun) -> BTreeMap<u32, u32> {
        BTreeMap::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::watch::Rule;
    use crate::run::{Action, Begun, Decision, Input};
    use planaria_numerics::digest::Digest;
    use planaria_protocol::checkpoint::PartInfo;
    use planaria_protocol::event::What;
    use planaria_protocol::message::{Agent, FromWorker, Join, Outcome};
    use planaria_protocol::methods;
    use planaria_recipe::train::{Monitor, Train};

    fn start() -> SoloRun {
        let setup = Setup {
            epochs: 1,
            steps_per_epoch: 4,
            classification: true,
            has_validation: false,
            checkpoint_epochs: 1,
            checkpoint_steps: 0,
            rule: Rule { monitor: Monitor::Loss, patience: None, min_delta: 0.0 },
            examples: Digest::default(),
            remedy: Default::default(),
            train: Train::default(),
        };
        let config = Config {
            workers: 3,
            workers_min: 3,
            servers: 2,
            blocks: 1,
            held_out: [0, 0],
            build: String::new(),
        };
        run(Session { config, setup, origin: Origin::default(), seconds_before: 0.0 })
    }

    /// Tells the run something, writes what it wants written, and gives what it wants done.
    fn tell(run: &mut SoloRun, now: Duration, input: Input) -> Vec<Action> {
        let mut done = Vec::new();
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for Decision { action, .. } in run.step(now, input) {
                match &action {
                    Action::BeginCheckpoint { step } => {
                        let (folder, vanished) = (Ok("here".into()), None);
                        let begun = Begun { step: *step, folder, vanished };
                        inputs.push(Input::CheckpointBegun(begun));
                    }
                    Action::WriteManifest(_) => {
                        inputs.push(Input::ManifestWritten(Ok("here".into())));
                    }
                    Action::ToWorker {
                        message:
                            ToWorker::Method(methods::Command::Solo(Command::Save { step, .. })),
                        ..
                    } => {
                        let info = PartInfo { file: "a".into(), sha256: "b".into(), bytes: 1 };
                        let saved = Report::Saved { step: *step, written: Ok(info) };
                        inputs.push(Input::worker(WORKER, saved));
                    }
                    _ => {}
                }
                done.push(action);
            }
        }
        done
    }

    fn joined() -> (SoloRun, Vec<Action>) {
        let mut run = start();
        let join = Join::new(Agent::Worker(WORKER), String::new(), 1);
        tell(&mut run, Duration::ZERO, Input::Joined(join));
        let ready = FromWorker::Ready { engine: String::new(), threads: 1 };
        let began = tell(&mut run, Duration::ZERO, Input::worker(WORKER, ready));
        (run, began)
    }

    fn stepped(step: u64, loss_sum: f64) -> Input {
        let read = (step..step + 1).collect();
        // The worker began the step a second before it reports it.
        let began = Duration::from_secs(10 * step + 9);
        let (correct, gradient_norm) = (1, 1.0);
        let report = Report::Stepped { step, began, loss_sum, correct, gradient_norm, read };
        Input::worker(WORKER, report)
    }

    fn recorded(actions: &[Action]) -> Vec<&What> {
        let recorded = actions.iter().filter_map(|action| match action {
            Action::Record(what) => Some(what),
            _ => None,
        });
        recorded.collect()
    }

    #[test]
    fn it_trains_saves_and_ends_without_others() {
        let (mut run, began) = joined();
        let trains = |a: &Action| {
            matches!(a, Action::ToWorker { message: ToWorker::Method(
                methods::Command::Solo(Command::Train(steps))), .. } if steps.steps() == (0..4))
        };
        assert!(began.iter().any(trains), "{began:?}");
        for step in 0..3 {
            // Longer than a process may be silent: it computes.
            let now = Duration::from_secs(10 * (step + 1));
            let actions = tell(&mut run, now, stepped(step, 2.0));
            assert!(!actions.iter().any(|a| matches!(a, Action::Keep(_) | Action::Kill(..))));
        }
        assert_eq!(run.state().this_epoch.seconds, 3.0, "time of computing counts, and no other");
        let actions = tell(&mut run, Duration::from_secs(40), stepped(3, 2.0));
        let recorded = recorded(&actions);
        let is_saved = |what: &&What| matches!(what, What::Saved { step: 4, .. });
        assert_eq!(recorded.iter().filter(|what| is_saved(what)).count(), 1);
        assert!(matches!(recorded.last(), Some(What::Ended { outcome: Outcome::Completed, .. })));
    }

    #[test]
    fn a_stop_revokes_saves_and_ends() {
        let (mut run, _) = joined();
        tell(&mut run, Duration::from_secs(1), stepped(0, 2.0));
        let actions = tell(&mut run, Duration::from_secs(2), Input::Stop("enough".into()));
        let revoke = Action::to_worker(WORKER, ToWorker::Revoke { ticket: 0 });
        assert!(actions.contains(&revoke));
        let recorded = recorded(&actions);
        assert!(recorded.iter().any(|what| matches!(what, What::Saved { step: 1, .. })));
        assert!(matches!(recorded.last(), Some(What::Ended { outcome: Outcome::Interrupted, .. })));
    }

    #[test]
    fn what_is_not_finite_or_out_of_turn_ends_it() {
        for (input, why) in [
            (stepped(0, f64::NAN), "training failed at step 1: the loss is NaN"),
            (stepped(2, 1.0), "step 2 was taken out of turn"),
        ] {
            let (mut run, _) = joined();
            let actions = tell(&mut run, Duration::from_secs(1), input);
            let ended = recorded(&actions).into_iter().find_map(|what| match what {
                What::Ended { reason, .. } => reason.clone(),
                _ => None,
            });
            assert_eq!(ended.as_deref(), Some(why));
        }
    }

    #[test]
    fn losses_whose_sum_overflows_end_it() {
        let (mut run, _) = joined();
        tell(&mut run, Duration::from_secs(1), stepped(0, f64::MAX));
        let actions = tell(&mut run, Duration::from_secs(2), stepped(1, f64::MAX));
        let Some(What::Ended { outcome, reason, .. }) = recorded(&actions).last().copied() else {
            panic!("it goes on: {actions:?}");
        };
        let why = "training failed at step 2: the sum of the epoch's losses is inf";
        assert_eq!((*outcome, reason.as_deref()), (Outcome::Failed, Some(why)));
    }
}
