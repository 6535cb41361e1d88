//! A simulated coordinator: the real one, and the world around it as its process has it.
//!
//! Drives [`planaria_coordinator::serve::coordinator`] in place of sockets and threads. What it goes
//! on from and what it writes is its own code on the simulated disk. Never decides what follows from
//! what.

use super::{Event, Timer, World};
use crate::disk::BOOT;
use crate::fuse;
use crate::net::{self, Msg, News, Pid};
use crate::verdict::Counts;
use planaria_coordinator::record;
use planaria_coordinator::run::Scored;
use planaria_coordinator::serve::coordinator as real;
use planaria_coordinator::serve::coordinator::{
    Effect, Leave, LinkId, Message, Moment, TICK_EVERY,
};
use planaria_coordinator::serve::files::{Files, Rest, Slow};
use planaria_coordinator::serve::start::{Machine, Start, start};
use planaria_fleet::ending::{ANOTHER, Ending};
use planaria_protocol::checkpoint;
use planaria_protocol::event::What;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::{FromWorker, ToConsole, ToServer};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A coordinator's process.
pub struct Coordinator {
    launch: Launch,
    shell: Option<Shell>,
}

/// What it has once it has begun.
struct Shell {
    coordinator: real::Coordinator,
    generation: u64,
    files: Files,
    log: Arc<Mutex<Vec<String>>>,
    /// Events that the disk has not taken.
    unwritten: VecDeque<(What, Counts)>,
    /// Events that another coordinator has decided, and are still to be written.
    retold: usize,
    began: Duration,
    /// What this process has found out itself.
    own: VecDeque<real::Event>,
    /// By number: what is on its way to the disk, and what came of it.
    slow: BTreeMap<u64, Slow>,
    written: BTreeMap<u64, real::Event>,
    slows: u64,
    /// The checkpoint whose manifest is being written: its folder, and its step.
    finishing: Option<(PathBuf, u64)>,
}

impl Coordinator {
    /// One that is about to begin.
    pub fn new(launch: Launch) -> Self {
        Self { launch, shell: None }
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
                shell.on(world, pid, real::Event::Tick);
            }
            Event::Timer(Timer::Written(number)) => shell.write_slowly(world, pid, number),
            Event::Timer(Timer::WrittenTold(number)) => {
                if let Some(written) = shell.written.remove(&number) {
                    shell.on(world, pid, written);
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
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let log = lines.clone();
        let log: planaria_coordinator::serve::Log = Arc::new(move |line: &str| {
            log.lock().expect("one thread").push(line.to_owned());
        });
        let (space, unix_seconds) = (world.disk.space.clone(), world.now.as_secs_f64());
        let machine = Machine { boot: BOOT.into(), space, seconds: unix_seconds };
        let Start { beginning, untold, files } = match start(&self.launch, machine, &log) {
            Ok(start) => start,
            Err(trouble) => {
                world.say(pid, || format!("cannot begin: {trouble:?}"));
                fuse::exit(Ending::Code(1));
            }
        };
        world.say(pid, || format!("begins with {untold:?}"));
        let (generation, retold) = (beginning.generation, untold.events.len());
        let moment = Moment { at: Duration::ZERO, unix_seconds };
        let (coordinator, effects) = real::Coordinator::begin(moment, beginning, untold);
        let mut shell = Shell {
            coordinator,
            generation,
            files,
            log: lines,
            unwritten: VecDeque::new(),
            retold,
            began: world.now,
            own: VecDeque::new(),
            slow: BTreeMap::new(),
            written: BTreeMap::new(),
            slows: 0,
            finishing: None,
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
            self.before(world, &effect);
            let record = match &effect {
                Effect::KeepRecord(record) => Some(Some(record.state.step)),
                Effect::ForgetRecord => Some(None),
                _ => None,
            };
            match self.files.carry_out(world.now - self.began, effect) {
                Ok(Rest::Nothing) => {}
                Ok(Rest::Tell(event)) => self.own.push_back(event),
                Ok(Rest::Slow(slow)) => {
                    self.slows += 1;
                    self.slow.insert(self.slows, slow);
                    let (least, most) = (Duration::from_millis(1), Duration::from_millis(60));
                    let time = world.coin.between(least, most);
                    world.timer(pid, time, Timer::Written(self.slows));
                }
                Ok(Rest::Other(effect)) => self.act(world, pid, effect),
                Err(trouble) => world.fail(format!("events cannot be written: {trouble:?}")),
            }
            if let Some(step) = record {
                self.look_at_record(world, step);
            }
            self.count_written(world);
            for line in std::mem::take(&mut *self.log.lock().expect("one thread")) {
                world.say(pid, || line);
            }
        }
    }

    /// What must hold of what is about to be written.
    fn before(&mut self, world: &mut World<'_>, effect: &Effect) {
        match effect {
            Effect::Write(event) => {
                let text = serde_json::to_string(&event.what).unwrap_or_default();
                for byte in world.disk.nameless(&text).bytes() {
                    world.mix(u64::from(byte));
                }
                let is_retold = self.retold > 0;
                self.retold = self.retold.saturating_sub(1);
                let counts = world.verdict.decided(&event.what, is_retold);
                self.unwritten.push_back((event.what.clone(), counts));
            }
            Effect::KeepState { step, state } => {
                let held = world.verdict.kept_state(world.bench, *step, state);
                world.must(held);
            }
            Effect::WriteManifest { folder, manifest, .. } => {
                self.finishing = Some((folder.clone(), manifest.step));
            }
            _ => {}
        }
    }

    fn act(&mut self, world: &mut World<'_>, pid: Pid, effect: Effect) {
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
            Effect::Leave(Leave::Restart) => fuse::exit(Ending::Code(ANOTHER)),
            Effect::Leave(Leave::Over) => fuse::exit(Ending::Code(0)),
            // Faults that users ask for are not simulated; the files have carried out all others.
            _ => {}
        }
    }

    /// What another coordinator would find now, of a record of so many steps.
    fn look_at_record(&self, world: &mut World<'_>, step: Option<u64>) {
        let found = record::read(&world.disk.state(), BOOT).map(|(record, _)| record.state.step);
        match found {
            Some(found) if Some(found) == step => world.verdict.kept(self.generation, found),
            _ if world.verdict.has_record() => world.verdict.record_lost(),
            _ => {}
        }
    }

    /// Events count when they are written.
    fn count_written(&mut self, world: &mut World<'_>) {
        while self.unwritten.len() > self.files.journal.pending() {
            let Some((what, counts)) = self.unwritten.pop_front() else { break };
            let held = world.verdict.recorded(world.bench, &what, counts);
            world.must(held);
        }
        world.verdict.waits(!self.unwritten.is_empty());
    }

    /// Does what takes the disk long; the coordinator hears of it later.
    fn write_slowly(&mut self, world: &mut World<'_>, pid: Pid, number: u64) {
        let Some(Slow { work, .. }) = self.slow.remove(&number) else { return };
        world.act(pid);
        let written = work();
        if let real::Event::ManifestWritten(written) = &written {
            let finishing = self.finishing.take();
            if let (Ok(_), Some((folder, step))) = (written, finishing) {
                world.verdict.finished(step);
                match checkpoint::read(&folder) {
                    Ok(read) => {
                        let held = world.verdict.saved(world.bench, &read);
                        world.must(held);
                    }
                    // It may have been damaged meanwhile, which shows when it is used.
                    Err(why) => world.say(pid, || format!("the checkpoint is damaged: {why}")),
                }
            }
        }
        self.written.insert(number, written);
        let time = world.coin.between(Duration::ZERO, Duration::from_millis(10));
        world.timer(pid, time, Timer::WrittenTold(number));
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
