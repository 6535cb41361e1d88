//! A simulated coordinator: the decisions, and the world around them as its process has it.
//!
//! Mirrors `planaria_coordinator::serve` and the agent that starts it, without threads.

use crate::disk::BOOT;
use crate::net::{LinkId, Msg, News, Pid};
use crate::verdict::Counts;
use crate::world::{Event, Timer, World};
use planaria_coordinator::methods::sync::{self, SyncRun};
use planaria_coordinator::record::{self, RecordFile};
use planaria_coordinator::run::course::Setup;
use planaria_coordinator::run::record::{Record, told_steps};
use planaria_coordinator::run::{
    Action, Begun, Decision, Input, Left, Origin, Saving, Scored, Session,
};
use planaria_fleet::ending::{ANOTHER, Ending};
use planaria_protocol::checkpoint::{self, Manifest, Part};
use planaria_protocol::event::{self, Started, What};
use planaria_protocol::message::{
    Agent, FromConsole, FromWorker, Join, ToConsole, ToServer, ToWorker,
};
use planaria_protocol::state::State;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// As in `planaria_coordinator::serve`.
const TICK_EVERY: Duration = Duration::from_millis(10);
const ALIVE_EVERY: Duration = Duration::from_millis(500);
const PULSE_EVERY: Duration = Duration::from_millis(100);
const AGAIN_EVERY: Duration = Duration::from_secs(1);

/// What a coordinator is told when it is started.
#[derive(Debug, Clone)]
pub struct Course {
    pub generation: u64,
    /// How far the run had come when the session began.
    pub state: State,
    /// The checkpoint that the session began from.
    pub checkpoint: Option<String>,
    /// What was lost, where it takes the place of another.
    pub after: Option<String>,
    /// Workers to begin with.
    pub workers: u32,
    /// When the session began.
    pub commanded: Duration,
}

/// A coordinator's process.
pub struct Coordinator {
    course: Course,
    desk: Option<Desk>,
}

/// What it has once it has begun.
struct Desk {
    run: SyncRun,
    generation: u64,
    ranges: Vec<Range<u64>>,
    manifest: Manifest,
    record: Option<RecordFile>,
    /// When it could not be kept.
    failed: Option<Duration>,
    /// Events that the disk has not taken.
    unwritten: VecDeque<(event::Event, Counts)>,
    events: Vec<event::Event>,
    began: Duration,
    alive: Duration,
    pulsed: Duration,
    links: BTreeMap<Agent, LinkId>,
    known: BTreeMap<LinkId, (Agent, Pid)>,
    consoles: BTreeMap<LinkId, (bool, bool)>,
    folder: Option<PathBuf>,
    own: VecDeque<Input>,
    writing: Option<(PathBuf, Manifest, bool)>,
    written: Option<Result<String, String>>,
}

impl Coordinator {
    /// One that is about to begin.
    pub fn new(course: Course) -> Self {
        Self { course, desk: None }
    }

    /// Takes in what happens.
    pub fn take(&mut self, world: &mut World<'_>, pid: Pid, event: Event) {
        let Some(desk) = &mut self.desk else {
            if let Event::Timer(Timer::Start) = event {
                self.begin(world, pid);
            }
            return;
        };
        match event {
            Event::Timer(Timer::Tick) => {
                world.timer(pid, TICK_EVERY, Timer::Tick);
                desk.decide(world, pid, Input::Tick);
                desk.look_around(world, pid);
            }
            Event::Timer(Timer::Manifest) => desk.finish_manifest(world, pid),
            Event::Timer(Timer::ManifestTold) => {
                if let Some(written) = desk.written.take() {
                    desk.decide(world, pid, Input::ManifestWritten(written));
                }
            }
            Event::Frame(link, _, msg) => {
                if let Some(input) = desk.open(world, pid, link, msg) {
                    desk.decide(world, pid, input);
                }
            }
            Event::Fin(link) => {
                if let Some(input) = desk.gone(link) {
                    desk.decide(world, pid, input);
                }
            }
            _ => {}
        }
        while let Some(input) = desk.own.pop_front() {
            desk.decide(world, pid, input);
        }
    }

    fn begin(&mut self, world: &mut World<'_>, pid: Pid) {
        let Course { generation, state, checkpoint, after, workers, commanded } =
            self.course.clone();
        let mut told = world.disk.session();
        let record = record::read(&world.disk.state(), BOOT);
        let record = record.filter(|record| record.state.step >= state.step);
        let mut origin =
            Origin { checkpoint, state: state.clone(), record, told: 0, after: after.clone() };
        if after.is_some()
            && let Ok(Some(found)) = world.disk.shelf().newest_manifest()
        {
            let folder = found.path.canonicalize().unwrap_or(found.path);
            origin.checkpoint = Some(folder.display().to_string());
            let resumes = origin.state.resumes;
            origin.state = State { resumes, ..found.checkpoint.state };
        }
        let said: Vec<What> = told.iter().map(|event| event.what.clone()).collect();
        let untold = origin.record.as_mut().map_or_else(Vec::new, |r| r.take_untold(&said));
        let base = match (&origin.record, &after) {
            (Some(record), None) => record.state.clone(),
            _ => state.clone(),
        };
        let setup = Setup::of(&world.bench.recipe, &world.bench.facts);
        let config = world.bench.config(&world.plan, workers);
        let settings = world.bench.settings(&world.plan);
        let ranges = config.ranges(world.bench.facts.parameters);
        let started = Started {
            run_id: "sim".into(),
            recipe: "sim".into(),
            version: "sim".into(),
            recipe_sha256: String::new(),
            step: base.step,
            epochs: setup.epochs,
            steps_per_epoch: setup.steps_per_epoch,
            examples: world.bench.facts.examples,
            parameters: world.bench.facts.parameters,
            classification: setup.classification,
            workers,
            servers: config.servers,
            shards: settings.shards,
            batch: settings.batch,
            digest: world.bench.facts.digest,
        };
        let started = after.is_none().then(|| {
            told.clear();
            What::Started(started)
        });
        origin.told = told_steps(said.iter().chain(&untold).chain(&started));
        let left = origin.record.clone();
        world.say(pid, || format!("begins from {origin:?}"));
        let before = base.seconds_total + (world.now - commanded).as_secs_f64();
        let full = world.disk.full;
        let folder = world.disk.state();
        let session = Session { config, setup, origin, seconds_before: before };
        let mut desk = Desk {
            run: sync::run(session, settings),
            generation,
            ranges,
            manifest: world.bench.manifest(generation, state),
            record: match full {
                false => RecordFile::create(&folder, BOOT).ok(),
                true => None,
            }
            .or_else(|| RecordFile::reuse(&folder, BOOT).ok()),
            failed: None,
            unwritten: VecDeque::new(),
            events: told,
            began: world.now,
            alive: world.now,
            pulsed: world.now,
            links: BTreeMap::new(),
            known: BTreeMap::new(),
            consoles: BTreeMap::new(),
            folder: None,
            own: VecDeque::new(),
            writing: None,
            written: None,
        };
        for what in untold {
            world.act(pid);
            desk.tell(world, pid, what, true);
        }
        if let Some(left) = left {
            desk.keep(world, left);
        }
        if let Some(started) = started {
            world.act(pid);
            desk.record(world, pid, started);
        }
        if let Some(process) = world.process(pid) {
            process.listens = true;
        }
        world.timer(pid, TICK_EVERY, Timer::Tick);
        self.desk = Some(desk);
    }
}

impl Desk {
    fn decide(&mut self, world: &mut World<'_>, pid: Pid, input: Input) {
        if !world.lives(pid) {
            return;
        }
        let now = world.now - self.began;
        if input != Input::Tick {
            world.say(pid, || format!("decides on {input:?}"));
        }
        for decision in self.run.step(now, input) {
            world.say(pid, || format!("DECIDES {:?}: {}", decision.action, decision.reason));
            world.act(pid);
            if !self.act(world, pid, decision) {
                return;
            }
        }
    }

    /// False if the process has ended.
    fn act(&mut self, world: &mut World<'_>, pid: Pid, decision: Decision) -> bool {
        match decision.action {
            Action::Keep(record) => self.keep(world, *record),
            Action::ToWorker { worker, message, .. } => {
                if let Some(link) = self.links.get(&Agent::Worker(worker)) {
                    world.send(pid, *link, Msg::ToWorker(message));
                }
            }
            Action::ToServer(server, message) => self.tell_server(world, pid, server, message),
            Action::Record(what) => self.record(world, pid, what),
            Action::BeginCheckpoint { step } => self.begin_checkpoint(world, step),
            // Those of coded runs.
            Action::KeepState { .. } | Action::WritePart { .. } => {}
            Action::Abandon => {
                if let Some(folder) = self.folder.take() {
                    world.disk.shelf().abandon(&folder);
                }
            }
            Action::WriteManifest(saving) => self.write_manifest(world, pid, &saving),
            Action::Pool(workers) => {
                self.tell_supervisor(world, pid, &ToConsole::Pool { workers });
            }
            Action::Kill(agent, target) => {
                let why = decision.reason.into_owned();
                self.tell_supervisor(world, pid, &ToConsole::Kill { agent, pid: target, why });
                if let Some(link) = self.links.remove(&agent) {
                    world.close(pid, link);
                }
            }
            Action::Forget => {
                self.record = None;
                let _ = record::discard(&world.disk.state());
                world.verdict.record_lost();
            }
            Action::Restart => {
                world.end(pid, Ending::Code(ANOTHER));
                return false;
            }
            Action::End => {
                for link in self.consoles.keys().copied().collect::<Vec<_>>() {
                    world.send(pid, link, Msg::ToConsole(ToConsole::Finish, None));
                }
                world.end(pid, Ending::Code(0));
                return false;
            }
        }
        world.lives(pid)
    }

    /// What a frame means for the run, if anything.
    fn open(&mut self, world: &mut World<'_>, pid: Pid, link: LinkId, msg: Msg) -> Option<Input> {
        let known = self.known.get(&link).map(|(agent, _)| *agent);
        let current = known.is_some_and(|agent| self.links.get(&agent) == Some(&link));
        match msg {
            Msg::Join(Join { agent: Agent::Console, .. }) => {
                self.consoles.insert(link, (false, false));
                None
            }
            Msg::Join(join) => {
                self.known.insert(link, (join.agent, join.pid));
                if let Some(old) = self.links.insert(join.agent, link) {
                    world.close(pid, old);
                }
                Some(Input::Joined(join))
            }
            Msg::FromWorker(said, scores) => {
                let Some(Agent::Worker(worker)) = known.filter(|_| current) else { return None };
                match (said, scores) {
                    (FromWorker::Evaluated { part, step, batch }, Some(scores)) => {
                        let scores = *scores;
                        Some(Input::Scored(Box::new(Scored { worker, part, step, batch, scores })))
                    }
                    (said, _) => Some(Input::worker(worker, said)),
                }
            }
            Msg::FromServer(said, squares) => {
                let Some(Agent::Server(server)) = known.filter(|_| current) else { return None };
                Some(Input::Server(server, said, squares))
            }
            Msg::FromConsole(said) => self.console_said(world, pid, link, said),
            _ => None,
        }
    }

    fn console_said(
        &mut self,
        world: &mut World<'_>,
        pid: Pid,
        link: LinkId,
        said: FromConsole,
    ) -> Option<Input> {
        match said {
            FromConsole::Watch { supervises } => {
                self.consoles.insert(link, (true, supervises));
                for (index, event) in (0..).zip(self.events.clone()) {
                    let news = Box::new(News::Event(event));
                    world.send(pid, link, Msg::ToConsole(ToConsole::Event { index }, Some(news)));
                }
                None
            }
            FromConsole::Stop { reason } => Some(Input::Stop(reason)),
            FromConsole::Ended { agent, pid, how } => {
                Some(Input::Left(Left { agent, pid, how, ended: true }))
            }
            FromConsole::Scale { workers } => Some(Input::Scale(workers)),
            // There are no machines here, and nobody asks for faults.
            FromConsole::Resize { .. }
            | FromConsole::Report { .. }
            | FromConsole::Chaos { .. }
            | FromConsole::Kill { .. } => None,
        }
    }

    fn gone(&mut self, link: LinkId) -> Option<Input> {
        if self.consoles.remove(&link).is_some() {
            return None;
        }
        let (agent, pid) = self.known.remove(&link)?;
        self.links.get(&agent).filter(|own| **own == link)?;
        self.links.remove(&agent);
        let how = "it went away".into();
        Some(Input::Left(Left { agent, pid, how, ended: false }))
    }

    fn look_around(&mut self, world: &mut World<'_>, pid: Pid) {
        if world.now.saturating_sub(self.alive) >= ALIVE_EVERY {
            self.alive = world.now;
            for (agent, link) in self.links.clone() {
                let alive = match agent {
                    Agent::Worker(_) => Msg::ToWorker(ToWorker::Alive),
                    _ => Msg::ToServer(ToServer::Alive),
                };
                world.send(pid, link, alive);
            }
        }
        if world.now.saturating_sub(self.pulsed) >= PULSE_EVERY {
            self.pulsed = world.now;
            self.flush(world);
            let pulse = self.run.pulse(world.now - self.began);
            for (link, (watches, _)) in self.consoles.clone() {
                if watches {
                    let news = Some(Box::new(News::Pulse(pulse.clone())));
                    world.send(pid, link, Msg::ToConsole(ToConsole::Pulse, news));
                }
            }
        }
    }

    fn tell_server(&self, world: &mut World<'_>, pid: Pid, server: u32, message: ToServer) {
        if let Some(link) = self.links.get(&Agent::Server(server)) {
            world.send(pid, *link, Msg::ToServer(message));
        }
    }

    fn tell_supervisor(&self, world: &mut World<'_>, pid: Pid, message: &ToConsole) {
        for (link, (_, supervises)) in self.consoles.clone() {
            if supervises {
                world.send(pid, link, Msg::ToConsole(message.clone(), None));
            }
        }
    }

    fn keep(&mut self, world: &mut World<'_>, record: Record) {
        let is_soon = |at: Duration| world.now.saturating_sub(at) < AGAIN_EVERY;
        if self.record.is_none() && self.failed.is_some_and(is_soon) {
            return;
        }
        let folder = world.disk.state();
        let step = record.state.step;
        let waiting: Vec<What> =
            self.unwritten.iter().map(|(event, _)| event.what.clone()).collect();
        let record = record.with_waiting(&waiting);
        if self.record.is_none() && !world.disk.full {
            self.record = RecordFile::create(&folder, BOOT).ok();
        }
        // Its room was taken when it was made, so a full disk takes it.
        let kept = self.record.as_mut().is_some_and(|file| file.write(&folder, &record).is_ok());
        if kept {
            self.failed = None;
            world.verdict.kept(self.generation, step);
        } else {
            (self.record, self.failed) = (None, Some(world.now));
            // Where even that fails, what is left behind must not be told again.
            let _ = record::discard(&folder);
            world.verdict.record_lost();
        }
    }

    fn record(&mut self, world: &mut World<'_>, pid: Pid, what: What) {
        self.tell(world, pid, what, false);
    }

    fn tell(&mut self, world: &mut World<'_>, pid: Pid, what: What, is_retold: bool) {
        let seconds = self.run.seconds(world.now - self.began);
        let (unix_seconds, generation) = (world.now.as_secs_f64(), self.generation);
        let event = event::Event { seconds, unix_seconds, generation, what };
        let text = serde_json::to_string(&event.what).unwrap_or_default();
        for byte in world.disk.nameless(&text).bytes() {
            world.mix(u64::from(byte));
        }
        let counts = world.verdict.decided(&event.what, is_retold);
        self.unwritten.push_back((event.clone(), counts));
        self.flush(world);
        let index = self.events.len() as u64;
        for (link, (watches, _)) in self.consoles.clone() {
            if watches {
                let news = Some(Box::new(News::Event(event.clone())));
                world.send(pid, link, Msg::ToConsole(ToConsole::Event { index }, news));
            }
        }
        self.events.push(event);
    }

    /// Writes the events that the disk has not taken; they count when they are written.
    fn flush(&mut self, world: &mut World<'_>) {
        while !world.disk.full
            && let Some((event, counts)) = self.unwritten.pop_front()
        {
            let held = world.verdict.recorded(world.bench, &event.what, counts);
            world.must(held);
            world.disk.events.push(event);
        }
        world.verdict.waits(!self.unwritten.is_empty());
    }

    fn begin_checkpoint(&mut self, world: &mut World<'_>, step: u64) {
        let begun = match world.disk.full {
            true => Err(std::io::Error::other("No space left on device")),
            false => world.disk.shelf().begin(step),
        };
        self.folder = begun.as_ref().ok().cloned();
        let folder = begun.map(|f| f.display().to_string()).map_err(|e| e.to_string());
        self.own.push_back(Input::CheckpointBegun(Begun { step, folder, vanished: None }));
    }

    fn write_manifest(&mut self, world: &mut World<'_>, pid: Pid, saving: &Saving) {
        let Some(folder) = self.folder.take() else { return };
        let parts = saving.parts.iter().zip(&self.ranges).map(|(info, range)| {
            let info = info.clone().expect("every part is there");
            Part { info, start: range.start, end: range.end }
        });
        let manifest = Manifest {
            step: saving.state.step,
            state: saving.state.clone(),
            parts: parts.collect(),
            ..self.manifest.clone()
        };
        self.writing = Some((folder, manifest, saving.is_best));
        let time = world.coin.between(Duration::from_millis(1), Duration::from_millis(60));
        world.timer(pid, time, Timer::Manifest);
    }

    fn finish_manifest(&mut self, world: &mut World<'_>, pid: Pid) {
        let Some((folder, manifest, is_best)) = self.writing.take() else { return };
        let finished = match world.disk.full || !self.unwritten.is_empty() {
            true => Err(std::io::Error::other("No space left on device")),
            false => world.disk.shelf().finish(&folder, &manifest, is_best),
        };
        if finished.is_ok() {
            world.verdict.finished(manifest.step);
            match checkpoint::read(&folder) {
                Ok(read) => {
                    let held = world.verdict.saved(world.bench, &read);
                    world.must(held);
                }
                // It may have been damaged meanwhile, which shows when it is gone back to.
                Err(why) => world.say(pid, || format!("the checkpoint is damaged: {why}")),
            }
        }
        let name = folder.file_name().unwrap_or_default().display().to_string();
        let written = finished.map(|()| format!("checkpoints/{name}")).map_err(|e| e.to_string());
        self.written = Some(written);
        let time = world.coin.between(Duration::ZERO, Duration::from_millis(10));
        world.timer(pid, time, Timer::ManifestTold);
    }
}
