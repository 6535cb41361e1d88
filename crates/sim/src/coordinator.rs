//! A simulated coordinator: the real one, and the world around it as its process has it.
//!
//! Drives [`planaria_coordinator::serve::coordinator`] in place of sockets, files and threads. Never
//! decides what follows from what.

use crate::disk::BOOT;
use crate::fuse;
use crate::net::{self, Msg, News, Pid};
use crate::verdict::Counts;
use crate::world::{Event, Timer, World};
use planaria_coordinator::kept;
use planaria_coordinator::methods::{self, Built};
use planaria_coordinator::record::{self, RecordFile};
use planaria_coordinator::run::course::Setup;
use planaria_coordinator::run::record::{Record, told_steps};
use planaria_coordinator::run::{Origin, Scored, Snapshot};
use planaria_coordinator::serve::coordinator as real;
use planaria_coordinator::serve::coordinator::{
    Beginning, CheckpointBegun, Effect, Leave, LinkId, Message, Moment, TICK_EVERY, Untold,
};
use planaria_coordinator::serve::keeping::AGAIN_EVERY;
use planaria_fleet::ending::{ANOTHER, Ending};
use planaria_protocol::checkpoint::{self, Manifest, PartView};
use planaria_protocol::event::{self, Started, What};
use planaria_protocol::message::{FromWorker, ToConsole, ToServer};
use planaria_protocol::state::State;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
    shell: Option<Shell>,
}

/// What it has once it has begun.
struct Shell {
    coordinator: real::Coordinator,
    generation: u64,
    record: Option<RecordFile>,
    /// When it could not be kept.
    failed: Option<Duration>,
    /// Events that the disk has not taken.
    unwritten: VecDeque<(event::Event, Counts)>,
    /// Events that another coordinator has decided, and are still to be written.
    retold: usize,
    began: Duration,
    /// What this process has found out itself.
    own: VecDeque<real::Event>,
    part: Option<(PathBuf, u64, Arc<Snapshot>)>,
    writing: Option<(PathBuf, Manifest, bool)>,
    written: Option<Result<String, String>>,
}

impl Coordinator {
    /// One that is about to begin.
    pub fn new(course: Course) -> Self {
        Self { course, shell: None }
    }

    /// Takes in what happens.
    pub fn take(&mut self, world: &mut World<'_>, pid: Pid, event: Event) {
        let Some(shell) = &mut self.shell else {
            if let Event::Timer(Timer::Start) = event {
                self.begin(world, pid);
            }
            return;
        };
        match event {
            Event::Timer(Timer::Tick) => {
                world.timer(pid, TICK_EVERY, Timer::Tick);
                shell.flush(world);
                shell.on(world, pid, real::Event::Tick);
            }
            Event::Timer(Timer::Part) => shell.finish_part(world, pid),
            Event::Timer(Timer::Manifest) => shell.finish_manifest(world, pid),
            Event::Timer(Timer::ManifestTold) => {
                if let Some(written) = shell.written.take() {
                    shell.on(world, pid, real::Event::ManifestWritten(written));
                }
            }
            Event::Frame(link, _, msg) => {
                if let Some(event) = heard(link as LinkId, msg) {
                    shell.on(world, pid, event);
                }
            }
            Event::Fin(link) => {
                let gone = real::Event::Gone(link as LinkId, "it went away".into());
                shell.on(world, pid, gone);
            }
            _ => {}
        }
        while let Some(event) = shell.own.pop_front() {
            shell.on(world, pid, event);
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
        let folder = world.disk.state();
        let keeps = Some(folder.display().to_string());
        let launch = world.bench.launch(&world.plan, generation, workers, keeps);
        let train = &world.bench.recipe.train;
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
            servers: world.bench.servers,
            shards: train.shards as u32,
            batch: train.batch as u64,
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
        let manifest = world.bench.manifest(generation, state);
        let Built { run, ranges, manifest } =
            match methods::build(&launch, origin, manifest, before) {
                Ok(built) => built,
                Err(trouble) => {
                    world.say(pid, || format!("cannot begin: {trouble:?}"));
                    fuse::exit(Ending::Code(1));
                }
            };
        let beginning = Beginning { run, generation, manifest, ranges, told };
        let moment = Moment { at: Duration::ZERO, unix_seconds: world.now.as_secs_f64() };
        let retold = untold.len();
        let untold = Untold { events: untold, record: left, started };
        let (coordinator, effects) = real::Coordinator::begin(moment, beginning, untold);
        let fresh = if world.disk.full { None } else { RecordFile::create(&folder, BOOT).ok() };
        let mut shell = Shell {
            coordinator,
            generation,
            record: fresh.or_else(|| RecordFile::reuse(&folder, BOOT).ok()),
            failed: None,
            unwritten: VecDeque::new(),
            retold,
            began: world.now,
            own: VecDeque::new(),
            part: None,
            writing: None,
            written: None,
        };
        shell.carry_out(world, pid, effects);
        if let Some(process) = world.process(pid) {
            process.listens = true;
        }
        world.timer(pid, TICK_EVERY, Timer::Tick);
        self.shell = Some(shell);
    }
}

/// What a frame is to the coordinator.
fn heard(link: LinkId, msg: Msg) -> Option<real::Event> {
    Some(match msg {
        Msg::Join(join) => real::Event::Linked(link, join),
        Msg::FromWorker(FromWorker::Evaluated { part, step, batch }, bulk) => {
            let (worker, scores) = (0, serde_json::from_slice(&bulk).ok()?);
            real::Event::Scored(link, Box::new(Scored { worker, part, step, batch, scores }))
        }
        Msg::FromWorker(said, bulk) => real::Event::Worker(link, said, bulk),
        Msg::FromServer(said, squares) => real::Event::Server(link, said, squares),
        Msg::FromConsole(said) => real::Event::Console(link, said),
        _ => return None,
    })
}

impl Shell {
    fn on(&mut self, world: &mut World<'_>, pid: Pid, event: real::Event) {
        if event != real::Event::Tick {
            world.say(pid, || format!("hears {event:?}"));
        }
        let unix_seconds = world.now.as_secs_f64();
        let moment = Moment { at: world.now - self.began, unix_seconds };
        let effects = self.coordinator.on(moment, event);
        self.carry_out(world, pid, effects);
    }

    /// Carries effects out, one after another; the process may end before each.
    fn carry_out(&mut self, world: &mut World<'_>, pid: Pid, effects: Vec<Effect>) {
        for effect in effects {
            world.say(pid, || match &effect {
                Effect::Write(event) => format!("DOES Write({:?})", event.what),
                Effect::Send(_, message, _) => format!("DOES Send({message:?})"),
                effect => format!("DOES {effect:?}"),
            });
            if !matches!(effect, Effect::Send(..) | Effect::Log(_)) {
                world.act(pid);
            }
            self.carry_out_one(world, pid, effect);
        }
    }

    fn carry_out_one(&mut self, world: &mut World<'_>, pid: Pid, effect: Effect) {
        match effect {
            Effect::Send(link, message, bulk) => {
                if let Message::Server(ToServer::Commit { step }) = &message {
                    let held = world.verdict.commit_said(self.generation, *step);
                    world.must(held);
                }
                if let Some(msg) = framed(message, bulk.unwrap_or_default()) {
                    world.send(pid, link as net::LinkId, msg);
                }
            }
            Effect::Close(link) => world.close(pid, link as net::LinkId),
            Effect::Write(event) => self.write(world, *event),
            Effect::KeepRecord(record) => self.keep(world, *record),
            Effect::ForgetRecord => {
                self.record = None;
                let _ = record::discard(&world.disk.state());
                world.verdict.record_lost();
            }
            Effect::BeginCheckpoint { step } => {
                let folder = match world.disk.full {
                    true => Err("No space left on device".to_owned()),
                    false => world.disk.shelf().begin(step).map_err(|e| e.to_string()),
                };
                let begun = CheckpointBegun { step, folder, vanished: None };
                self.own.push_back(real::Event::CheckpointBegun(begun));
            }
            Effect::WriteManifest { folder, manifest, is_best } => {
                self.writing = Some((folder, *manifest, is_best));
                let time = world.coin.between(Duration::from_millis(1), Duration::from_millis(60));
                world.timer(pid, time, Timer::Manifest);
            }
            Effect::Abandon(folder) => world.disk.shelf().abandon(&folder),
            Effect::KeepState { step, state } => {
                let held = world.verdict.kept_state(world.bench, step, &state);
                world.must(held);
                if !world.disk.full {
                    // Where that fails, a loss of this process goes back to the checkpoint.
                    let _ = kept::keep(&world.disk.state(), step, &state);
                }
            }
            Effect::WritePart { folder, step, snapshot } => {
                self.part = Some((folder, step, snapshot));
                let time = world.coin.between(Duration::from_millis(1), Duration::from_millis(60));
                world.timer(pid, time, Timer::Part);
            }
            Effect::Leave(Leave::Restart) => fuse::exit(Ending::Code(ANOTHER)),
            Effect::Leave(Leave::Over) => fuse::exit(Ending::Code(0)),
            // Faults that users ask for are not simulated.
            Effect::Weather(_) | Effect::Log(_) => {}
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

    fn write(&mut self, world: &mut World<'_>, event: event::Event) {
        let text = serde_json::to_string(&event.what).unwrap_or_default();
        for byte in world.disk.nameless(&text).bytes() {
            world.mix(u64::from(byte));
        }
        let is_retold = self.retold > 0;
        self.retold = self.retold.saturating_sub(1);
        let counts = world.verdict.decided(&event.what, is_retold);
        self.unwritten.push_back((event, counts));
        self.flush(world);
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

    /// The method's own part of a checkpoint is written.
    fn finish_part(&mut self, world: &mut World<'_>, pid: Pid) {
        let Some((folder, step, snapshot)) = self.part.take() else { return };
        world.act(pid);
        let view = PartView {
            step,
            start: 0,
            parameters: &snapshot.parameters,
            slots: &[],
            state: &snapshot.state,
        };
        let written = match world.disk.full {
            true => Err("No space left on device".to_owned()),
            false => checkpoint::write_part(&folder, 0, &view).map_err(|e| e.to_string()),
        };
        self.on(world, pid, real::Event::PartWritten { step, written });
    }

    fn finish_manifest(&mut self, world: &mut World<'_>, pid: Pid) {
        let Some((folder, manifest, is_best)) = self.writing.take() else { return };
        world.act(pid);
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

/// A message as it crosses a link; nothing where its bulk cannot be read.
fn framed(message: Message, bulk: Arc<Vec<u8>>) -> Option<Msg> {
    Some(match message {
        Message::Worker(message) => Msg::ToWorker(message, bulk),
        Message::Server(message) => Msg::ToServer(message),
        Message::Console(message) => {
            let news = match &message {
                ToConsole::Event { .. } => Some(News::Event(serde_json::from_slice(&bulk).ok()?)),
                ToConsole::Pulse => Some(News::Pulse(serde_json::from_slice(&bulk).ok()?)),
                _ => None,
            };
            Msg::ToConsole(message, news.map(Box::new))
        }
    })
}
