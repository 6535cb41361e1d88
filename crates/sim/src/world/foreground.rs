//! The command in front of a simulated user: [`Controller`], wired to the world.

use super::coordinator::Coordinator;
use super::server::Server;
use super::worker::Worker;
use super::{Body, Dial, Event, FOREGROUND, Timer, World};
use crate::net::{LinkId, Msg, News};
use planaria_fleet::local::Exit;
use planaria_fleet::training::{Controller, Effect, Failed, Happening, LOOK_EVERY};
use planaria_protocol::event::Seen;
use planaria_protocol::journal;
use planaria_protocol::launch::{CourseLaunch, Launch};
use planaria_protocol::message::{Agent, FromConsole, Join, ToConsole};
use planaria_protocol::state::State;
use std::collections::VecDeque;
use std::time::Duration;

/// Where a session begins.
#[derive(Debug)]
pub struct Start {
    /// Its first generation.
    pub generation: u64,
    /// How far the run has come.
    pub state: State,
    /// The checkpoint it goes on from.
    pub checkpoint: Option<String>,
}

impl Start {
    /// From the newest checkpoint on the disk.
    pub fn new(world: &mut World<'_>) -> Self {
        let goes_on = world.plan.goes_on;
        world.disk.begin_session(goes_on);
        if !goes_on {
            world.verdict.record_lost();
        }
        let found = world.disk.checkpoint_folder().newest().ok().flatten();
        let saved = found.as_ref().map_or(0, |found| found.checkpoint.manifest.generation);
        let generation = journal::next_generation(&world.disk.events(), saved);
        let generation = generation.expect("events can be read");
        match found {
            None => {
                let examples_per_epoch = world.bench.facts.examples;
                let state = State { examples_per_epoch, ..State::default() };
                Self { generation, state, checkpoint: None }
            }
            Some(found) => {
                let held = world.verdict.saved(world.bench, &found.checkpoint);
                world.must(held);
                let manifest = found.checkpoint.manifest;
                let resumes = manifest.state.resumes + 1;
                let folder = found.path.canonicalize().unwrap_or(found.path);
                Self {
                    generation,
                    state: State { resumes, ..manifest.state },
                    checkpoint: Some(folder.display().to_string()),
                }
            }
        }
    }
}

/// The command.
pub struct Foreground {
    value: Controller,
    first: Launch,
    began: Duration,
    link: Option<LinkId>,
    is_dialing: bool,
    /// The generation that is being reached.
    meets: Option<u64>,
    /// Workers that the user wants, by another command.
    scaling: Option<u32>,
    seen: Seen,
}

impl Foreground {
    /// Nothing is started yet.
    pub fn new(world: &World<'_>, start: Start) -> Self {
        let (workers, servers) = (world.plan.workers, world.bench.servers);
        let course = CourseLaunch {
            run_dir: world.disk.folder().display().to_string(),
            run_id: "sim".into(),
            manifest: world.bench.manifest(start.generation, start.state),
            checkpoint: start.checkpoint,
            commanded: world.now.as_secs_f64(),
            listen: None,
            after: None,
            columns: Vec::new(),
        };
        let first = Launch {
            state: Some(world.disk.state().display().to_string()),
            course: Some(course),
            ..world.bench.launch(&world.plan)
        };
        Self {
            value: Controller::new(start.generation, servers, workers),
            first,
            began: world.now,
            link: None,
            is_dialing: false,
            meets: None,
            scaling: None,
            seen: Seen::default(),
        }
    }

    /// Takes in what happens.
    pub fn take(&mut self, world: &mut World<'_>, event: Event) {
        match event {
            Event::Timer(Timer::Tick) => {
                world.timer(FOREGROUND, LOOK_EVERY, Timer::Tick);
                self.on(world, Happening::Look);
                self.meet(world);
            }
            Event::Dialed(_, link) => self.met(world, link),
            Event::Frame(link, _, Msg::ToConsole(message, news)) if Some(link) == self.link => {
                self.hear(world, message, news.map(|news| *news));
            }
            Event::Fin(link) if Some(link) == self.link => {
                self.link = None;
                self.on(world, Happening::LinkGone);
            }
            Event::Exited(agent, pid, ending) => {
                self.on(world, Happening::Exited(Exit { agent, pid, ending }));
            }
            _ => {}
        }
        self.ask_for_workers(world);
    }

    /// The user presses Ctrl-C.
    pub fn stop(&mut self, world: &mut World<'_>) {
        self.on(world, Happening::Stop { reason: "Ctrl-C" });
    }

    /// The user wants so many workers.
    pub fn scale(&mut self, world: &mut World<'_>, workers: u32) {
        self.scaling = Some(workers);
        self.ask_for_workers(world);
    }

    fn ask_for_workers(&mut self, world: &mut World<'_>) {
        let Some(link) = self.link else { return };
        if let Some(workers) = self.scaling.take() {
            world.send(FOREGROUND, link, Msg::FromConsole(FromConsole::Scale { workers }));
        }
    }

    fn meet(&mut self, world: &mut World<'_>) {
        if self.link.is_some() || self.is_dialing || !self.value.coordinates() {
            return;
        }
        self.is_dialing = true;
        world.dial(FOREGROUND, Dial::Coordinator, self.meets);
    }

    fn met(&mut self, world: &mut World<'_>, link: Result<LinkId, String>) {
        self.is_dialing = false;
        let Ok(link) = link else { return };
        let join = Join::new(Agent::Console, "sim", FOREGROUND);
        world.send(FOREGROUND, link, Msg::Join(join));
        let watch = FromConsole::Watch { supervises: true };
        world.send(FOREGROUND, link, Msg::FromConsole(watch));
        self.link = Some(link);
        self.on(world, Happening::Linked);
    }

    fn hear(&mut self, world: &mut World<'_>, message: ToConsole, news: Option<News>) {
        match (message, news) {
            (ToConsole::Event { index }, Some(News::Event(event)))
                if self.seen.is_new(index, &event) =>
            {
                self.seen.add(index, &event);
                self.on(world, Happening::Event(&event));
            }
            (ToConsole::More { from }, _) => {
                let Some(link) = self.link else { return };
                world.send(FOREGROUND, link, Msg::FromConsole(FromConsole::More { from }));
            }
            (ToConsole::Pulse, Some(News::Pulse(pulse))) => {
                self.on(world, Happening::Pulse(&pulse));
            }
            (ToConsole::Pool { workers }, _) => self.on(world, Happening::Pool { workers }),
            (ToConsole::Kill { agent, pid, why }, _) => {
                self.on(world, Happening::Kill { agent, pid, why });
            }
            (ToConsole::Finish, _) => self.on(world, Happening::Finish),
            _ => {}
        }
    }

    fn on(&mut self, world: &mut World<'_>, happening: Happening<'_>) {
        let now = world.now - self.began;
        let mut effects = VecDeque::from(self.value.on(now, happening));
        while let Some(effect) = effects.pop_front() {
            world.say(FOREGROUND, || format!("SUPERVISES {effect:?}"));
            if let Effect::End(ended) = effect {
                return world.session_over(ended.err().map(|failed| match failed {
                    Failed::Lost(loss) => loss.message,
                    Failed::StopUnheard(_) => "no coordinator could be told to stop".into(),
                }));
            }
            if let Some(happening) = self.act(world, effect) {
                effects.extend(self.value.on(now, happening));
            }
        }
    }

    fn act(&mut self, world: &mut World<'_>, effect: Effect) -> Option<Happening<'static>> {
        let (agent, generation, body) = match effect {
            Effect::Start { agent } => {
                let body = match agent {
                    Agent::Server(index) => Body::Server(Box::new(Server::new(index))),
                    Agent::Worker(index) => Body::Worker(Box::new(Worker::new(world, index))),
                    _ => return None,
                };
                (agent, self.value.generation(), body)
            }
            Effect::Coordinate { generation, after } => {
                if let Some(link) = self.link.take() {
                    world.close(FOREGROUND, link);
                }
                self.meets = Some(generation);
                let launch = self.first.again(generation, after, self.value.workers());
                let body = Body::Coordinator(Box::new(Coordinator::new(launch)));
                (Agent::Coordinator, generation, body)
            }
            Effect::Kill { pid, .. } => {
                world.kill(pid);
                return None;
            }
            Effect::Tell(message) => {
                if let Some(link) = self.link {
                    world.send(FOREGROUND, link, Msg::FromConsole(message));
                }
                return None;
            }
            Effect::MakeRoom { .. } | Effect::End(_) => return None,
        };
        let pid = world.spawn(agent, generation, body);
        Some(Happening::Started { agent, pid })
    }
}
