//! A run in one process: the same coordinator and the same worker as on many, as two values that
//! hand each other what they say.
//!
//! Owns the files, the clock and the screen around both. All decisions are the coordinator's; what is
//! trained is the worker's. All that happens goes to the [`Journal`] and from there to the
//! [`Recorder`].
//!
//! # Layout
//! - `ending`: what is written when it is over
//! - [`evaluation`]: a network over a part of the data, for `planaria evaluate`

mod ending;
pub mod evaluation;

use crate::jobs::train::ending::{Ended, Finished};
use crate::jobs::train::identity::{Identity, Lengths};
use crate::jobs::train::recorder::Recorder;
use crate::jobs::train::{Job, network, unwritten};
use crate::stopping;
use crate::talk::Progress;
use planaria_coordinator::methods::Built;
use planaria_coordinator::methods::solo::{self, WORKER};
use planaria_coordinator::run::Scored;
use planaria_coordinator::serve::coordinator::{
    Beginning, Coordinator, Effect, Event, LinkId, Message, Moment, Untold,
};
use planaria_coordinator::serve::files::{Files, Rest};
use planaria_coordinator::serve::start;
use planaria_learn::{Scores, Weights};
use planaria_protocol::checkpoint::Checkpoint;
use planaria_protocol::event::{self, What};
use planaria_protocol::journal::{self, Journal};
use planaria_protocol::message::{
    Agent, FromConsole, FromWorker, HeldOut, Join, ToWorker, Trouble,
};
use planaria_protocol::state::State;
use planaria_runs::clock::{self, Stopwatch};
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir::RunDir;
use planaria_worker::methods::facts;
use planaria_worker::methods::solo::learner::Learner;
use planaria_worker::methods::solo::process::{Process, Said};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Time between two updates of the picture; people cannot read faster.
const PULSE_EVERY: Duration = Duration::from_millis(100);
/// Time between looks at what follows from time alone, while there is nothing to do.
const TICK_EVERY: Duration = Duration::from_millis(20);

/// The only worker's link, and that of this process, which stops the run.
const LINK: LinkId = 0;
const CONSOLE: LinkId = 1;

/// A run under way.
pub struct Session {
    job: Job,
    recorder: Recorder,
    files: Files,
    coordinator: Coordinator,
    worker: Process,
    /// What the coordinator has still to be told.
    events: VecDeque<Event>,
    /// What it wants done first.
    first: Vec<Effect>,
    /// Scores of the last weights, once it has ended.
    last_scores: Option<(HeldOut, Scores)>,
    /// How it has ended.
    ended: Option<Ended>,
    /// Started with this session.
    clock: Stopwatch,
    is_stopping: bool,
    /// When the last pulse was shown.
    pulsed: Option<Duration>,
}

impl Session {
    /// Sets a run up from its start, or from a checkpoint.
    pub fn new(job: Job, checkpoint: Option<Checkpoint>) -> Result<Self> {
        let (plan, recipe) = (&job.plan, &job.plan.recipe);
        let mut learner = Learner::new(plan, &job.data, job.threads)?;
        let identity =
            Identity::new(job.run.file("recipe.yaml"), &job.recipe_text, recipe, &job.data);
        let (state, generation) = match checkpoint {
            None => {
                let examples_per_epoch = job.data.train.len();
                (State { examples_per_epoch, ..State::default() }, 0)
            }
            Some(Checkpoint { manifest, weights }) => {
                identity.check(&manifest)?;
                learner.restore(&Weights {
                    parameters: weights.parameters,
                    state: weights.state,
                    optimizer: weights.optimizer,
                })?;
                let resumes = manifest.state.resumes + 1;
                (State { resumes, ..manifest.state }, manifest.generation)
            }
        };
        let progress = Progress::new(job.talk);
        let recorder = Recorder::open(&job.run, recipe, (state.step, state.epoch), progress)?;
        let journal = open_journal(&job.run, generation)?;
        let facts = facts(plan, &job.data, &network(plan)?);
        let session = start::Session {
            run_id: job.run.id(),
            recipe_sha256: identity.recipe_sha256.clone(),
            workers: 0,
            servers: 0,
        };
        let started = What::Started(start::started(recipe, &facts, session, state.step));
        let manifest =
            identity.manifest(journal.generation(), state.clone(), lengths(&learner), Vec::new());
        let seconds_before = state.seconds_total + job.process.seconds();
        let Built { run, ranges, manifest } =
            solo::build(recipe, &facts, state, manifest, seconds_before);
        let generation = journal.generation();
        let beginning = Beginning { run, generation, manifest, ranges, told: Vec::new() };
        let untold = Untold { started: Some(started), ..Untold::default() };
        let checkpoint_folder = job.run.checkpoint_folder(recipe.output.keep);
        let files = Files { journal, checkpoint_folder, keeping: None, log: Arc::new(|_| ()) };
        let clock = Stopwatch::start();
        let (coordinator, first) = Coordinator::begin(moment(&clock), beginning, untold);
        Ok(Self {
            recorder,
            files,
            coordinator,
            worker: Process::new(learner),
            events: VecDeque::new(),
            first,
            last_scores: None,
            ended: None,
            clock,
            is_stopping: false,
            pulsed: None,
            job,
        })
    }

    /// Trains to the end and writes what is left to write.
    pub fn run(mut self) -> Result<Finished> {
        let first = std::mem::take(&mut self.first);
        self.carry_out(first)?;
        if let Some(remark) = self.learner().remark() {
            self.recorder.note(&remark);
        }
        let ended = self.train();
        if ended.is_err() {
            self.give_up()?;
        }
        self.finish(ended)
    }

    /// What is trained.
    fn learner(&self) -> &Learner {
        &self.worker.learner
    }

    /// Something happened that the coordinator does not tell.
    fn emit(&mut self, what: What) -> Result<()> {
        let now = self.now();
        let seconds = self.coordinator.run().seconds(now.at);
        let (unix_seconds, generation) = (now.unix_seconds, self.files.journal.generation());
        self.write(&event::Event { seconds, unix_seconds, generation, what })
    }

    /// How far the run has come, up to this moment.
    fn state(&self) -> State {
        let run = self.coordinator.run();
        State { seconds_total: run.seconds(self.clock.elapsed()), ..run.state().clone() }
    }

    /// Hands over what worker and coordinator say, until the run is over.
    fn train(&mut self) -> Result<Ended> {
        loop {
            if let Some(ended) = self.ended.take() {
                return Ok(ended);
            }
            match self.worker.next(self.clock.elapsed()) {
                Ok(Some(said)) => self.worker_said(said)?,
                Ok(None) => self.wait()?,
                Err(trouble) => return Err(self.explained(trouble)),
            }
        }
    }

    /// Passes the worker's report to the coordinator, and only then a stop: during a step that the
    /// coordinator does not know of yet, the parameters are not those of its last step.
    fn worker_said(&mut self, said: Said) -> Result<()> {
        self.tell(match said {
            Said::Join => Event::Linked(LINK, join()),
            Said::Scored(batch, scores) => {
                let (part, step, batch) = (batch.part, batch.step, batch.batch);
                let scored = Scored { worker: WORKER, part, step, batch, scores };
                Event::Scored(LINK, Box::new(scored))
            }
            Said::Message(said) => Event::Worker(LINK, said, Vec::new()),
        })?;
        self.pulse();
        if stopping::asked() && !std::mem::replace(&mut self.is_stopping, true) {
            let reason = stopping::REASON.into();
            self.tell(Event::Console(CONSOLE, FromConsole::Stop { reason }))?;
        }
        Ok(())
    }

    /// A checkpoint waits to be tried again.
    fn wait(&mut self) -> Result<()> {
        std::thread::park_timeout(TICK_EVERY);
        self.tell(Event::Worker(LINK, FromWorker::Alive, Vec::new()))?;
        self.tell(Event::Tick)
    }

    /// It cannot go on: the run is over, and what was committed is told.
    fn give_up(&mut self) -> Result<()> {
        let trouble = Trouble::wrong_input("it cannot go on");
        self.tell(Event::Worker(LINK, FromWorker::Failed(trouble), Vec::new()))
    }

    /// Tells the coordinator what has happened, and does what it decides.
    fn tell(&mut self, event: Event) -> Result<()> {
        self.events.push_back(event);
        while let Some(event) = self.events.pop_front() {
            let effects = self.coordinator.on(self.now(), event);
            self.carry_out(effects)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> Result<()> {
        for effect in effects {
            if let Effect::Write(event) = effect {
                self.happened(*event)?;
                continue;
            }
            if matches!(effect, Effect::BeginCheckpoint { .. }) {
                self.job.run.check()?;
                self.recorder.sync();
            }
            match self.files.carry_out(self.clock.elapsed(), effect)? {
                Rest::Tell(event) => self.events.push_back(event),
                // The worker is this thread, and has no copy of what is written.
                Rest::Slow(slow) => self.events.push_back((slow.work)()),
                Rest::Other(Effect::Send(_, Message::Worker(order), _)) => self.order(order),
                // There are no other processes.
                Rest::Other(_) | Rest::Nothing => {}
            }
        }
        Ok(())
    }

    fn order(&mut self, order: ToWorker) {
        if begins_test(&order) {
            self.recorder.note("evaluating on the test part");
        }
        self.worker.hear(self.clock.elapsed(), order);
    }

    /// Writes an event down. The end, and the scores of the last weights, are told when all files
    /// are written.
    fn happened(&mut self, event: event::Event) -> Result<()> {
        match event.what {
            What::Scored { part, scores, .. } => {
                let scores = serde_json::from_value(scores).map_err(Failure::failed)?;
                self.last_scores = Some((part, scores));
                Ok(())
            }
            What::Ended { outcome, reason, trouble, .. } => {
                self.ended = Some(Ended { outcome, reason, failure: trouble.map(Failure::from) });
                Ok(())
            }
            _ => self.write(&event),
        }
    }

    fn write(&mut self, event: &event::Event) -> Result<()> {
        self.files.journal.write(event).context(unwritten)?;
        self.recorder.take(event);
        if let Some(trouble) = self.files.journal.trouble() {
            self.recorder.warn(&format!("{}: {trouble}", unwritten()));
        }
        Ok(())
    }

    fn pulse(&mut self) {
        let now = self.clock.elapsed();
        if self.pulsed.is_none_or(|at| now.saturating_sub(at) >= PULSE_EVERY) {
            self.pulsed = Some(now);
            let mut pulse = self.coordinator.run().pulse(now);
            pulse.workers.clear();
            self.recorder.pulse(&pulse);
        }
    }

    fn now(&self) -> Moment {
        moment(&self.clock)
    }

    /// Why the worker cannot go on, and what there is to go on from.
    fn explained(&self, trouble: Trouble) -> Failure {
        let Some(hint) = &trouble.hint else { return trouble.into() };
        let saved = match self.files.checkpoint_folder.newest_manifest() {
            Ok(Some(found)) => {
                format!("; step {} is kept in `{}`", found.checkpoint.step, found.path.display())
            }
            _ => String::new(),
        };
        let hint = Some(format!("{hint}{saved}"));
        Trouble { hint, ..trouble }.into()
    }
}

fn moment(clock: &Stopwatch) -> Moment {
    Moment { at: clock.elapsed(), unix_seconds: clock::unix_seconds() }
}

fn begins_test(order: &ToWorker) -> bool {
    matches!(order, ToWorker::Evaluate { part: HeldOut::Test, batches, .. } if batches.start == 0)
}

fn join() -> Join {
    Join::new(Agent::Worker(WORKER), String::new(), std::process::id())
}

fn lengths(learner: &Learner) -> Lengths {
    let snapshot = learner.snapshot();
    Lengths {
        parameters: snapshot.parameters.len() as u64,
        state: snapshot.state.len() as u64,
        slots: snapshot.slots.len() as u32,
    }
}

/// The run's events, open for those of a new generation; `before` is known to have been.
fn open_journal(run: &RunDir, before: u64) -> Result<Journal> {
    let path = run.file(journal::FILE);
    let open = |generation| Journal::open(&path, generation);
    journal::next_generation(&path, before).and_then(open).context(unwritten)
}
