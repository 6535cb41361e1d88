//! The command in front of a simulated user: the supervisor, and the world around it.
//!
//! Mirrors `planaria`'s `cluster::foreground`, without threads.

use crate::coordinator::{Coordinator, Course};
use crate::net::{LinkId, Msg, News, Pid};
use crate::server::Server;
use crate::worker::Worker;
use crate::world::{Body, Dial, Event, FOREGROUND, Timer, World};
use planaria_fleet::ending::Ending;
use planaria_fleet::supervise::{Action, Input, Supervisor};
use planaria_protocol::event::What;
use planaria_protocol::message::{Agent, Errand, FromConsole, Join, ToConsole};
use planaria_protocol::state::State;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a coordinator that has told the end may take to take its leave.
const LEAVE: Duration = Duration::from_secs(10);

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
        let found = world.disk.shelf().newest().ok().flatten();
        let told = world.disk.events.iter().map(|event| event.generation).max().unwrap_or(0);
        match found {
            None => {
                let examples_per_epoch = world.bench.facts.examples;
                let state = State { examples_per_epoch, ..State::default() };
                Self { generation: told + 1, state, checkpoint: None }
            }
            Some(found) => {
                let held = world.verdict.saved(world.bench, &found.checkpoint);
                world.must(held);
                let manifest = found.checkpoint.manifest;
                let resumes = manifest.state.resumes + 1;
                let folder = found.path.canonicalize().unwrap_or(found.path);
                Self {
                    generation: told.max(manifest.generation) + 1,
                    state: State { resumes, ..manifest.state },
                    checkpoint: Some(folder.display().to_string()),
                }
            }
        }
    }
}

/// The command.
pub struct Foreground {
    supervisor: Supervisor,
    first: Course,
    began: Duration,
    link: Option<LinkId>,
    is_dialing: bool,
    /// The generation that is being reached.
    meets: Option<u64>,
    step: Option<u64>,
    stopping: bool,
    told_stop: bool,
    scaling: Option<u32>,
    over: Option<Duration>,
    failed: Option<String>,
    seen: u64,
}

impl Foreground {
    /// Nothing is started yet.
    pub fn new(world: &World<'_>, start: Start) -> Self {
        let (workers, servers) = (world.plan.workers, world.bench.servers);
        let first = Course {
            generation: start.generation,
            state: start.state,
            checkpoint: start.checkpoint,
            after: None,
            workers,
            commanded: world.now,
        };
        Self {
            supervisor: Supervisor::new(start.generation, servers, workers),
            first,
            began: world.now,
            link: None,
            is_dialing: false,
            meets: None,
            step: None,
            stopping: false,
            told_stop: false,
            scaling: None,
            over: None,
            failed: None,
            seen: 0,
        }
    }

    /// Takes in what happens.
    pub fn take(&mut self, world: &mut World<'_>, event: Event) {
        match event {
            Event::Timer(Timer::Tick) => {
                world.timer(FOREGROUND, LOOK_EVERY, Timer::Tick);
                self.tell(world, Input::Look);
                self.meet(world);
            }
            Event::Dialed(_, link) => self.met(world, link),
            Event::Frame(link, _, Msg::ToConsole(message, news)) if Some(link) == self.link => {
                self.tell(world, Input::Heard);
                if self.hear(world, message, news.map(|news| *news)) {
                    return world.session_over(None);
                }
            }
            Event::Fin(link) if Some(link) == self.link => {
                self.link = None;
                self.tell(world, Input::LinkGone);
            }
            Event::Exited(agent, pid, ending) => self.exited(world, agent, pid, ending),
            _ => {}
        }
        self.ask(world);
        if let Some(why) = self.failed.take() {
            return world.session_over(Some(why));
        }
        let waited = self.over.map(|since| world.now.saturating_sub(since));
        let is_left = self.link.is_none() || waited.is_some_and(|waited| waited > LEAVE);
        if self.over.is_some() && is_left {
            world.session_over(None);
        }
    }

    /// The user presses Ctrl-C.
    pub fn stop(&mut self, world: &mut World<'_>) {
        self.stopping = true;
        self.ask(world);
    }

    /// The user wants so many workers.
    pub fn scale(&mut self, world: &mut World<'_>, workers: u32) {
        self.scaling = Some(workers);
        self.ask(world);
    }

    fn ask(&mut self, world: &mut World<'_>) {
        let Some(link) = self.link else { return };
        if self.stopping && !self.told_stop {
            self.told_stop = true;
            let stop = FromConsole::Stop { reason: "Ctrl-C".into() };
            world.send(FOREGROUND, link, Msg::FromConsole(stop));
        }
        if let Some(workers) = self.scaling.take() {
            let scale = FromConsole::Scale { workers };
            world.send(FOREGROUND, link, Msg::FromConsole(scale));
        }
    }

    fn meet(&mut self, world: &mut World<'_>) {
        let lives = self.supervisor.pid(Agent::Coordinator).is_some();
        if self.link.is_some() || self.is_dialing || !lives {
            return;
        }
        self.is_dialing = true;
        world.dial(FOREGROUND, Dial::Coordinator, self.meets);
    }

    fn met(&mut self, world: &mut World<'_>, link: Result<LinkId, String>) {
        self.is_dialing = false;
        let Ok(link) = link else { return };
        let join = Join {
            agent: Agent::Console,
            build: "sim".into(),
            pid: FOREGROUND,
            machine: None,
            address: None,
            kept: None,
            errand: Errand::Work,
        };
        world.send(FOREGROUND, link, Msg::Join(join));
        let watch = FromConsole::Watch { supervises: true };
        world.send(FOREGROUND, link, Msg::FromConsole(watch));
        (self.link, self.told_stop) = (Some(link), false);
        self.tell(world, Input::Linked);
    }

    /// Whether it was the last word.
    fn hear(&mut self, world: &mut World<'_>, message: ToConsole, news: Option<News>) -> bool {
        match (message, news) {
            (ToConsole::Event { index }, Some(News::Event(event))) if index >= self.seen => {
                self.seen = index + 1;
                self.follow(world, &event.what);
            }
            (ToConsole::Pulse, Some(News::Pulse(pulse))) => self.reached(world, pulse.step),
            (ToConsole::Pool { workers }, _) => self.tell(world, Input::Pool { workers }),
            (ToConsole::Kill { agent, pid, why }, _) => {
                self.tell(world, Input::Kill { agent, pid, why });
            }
            (ToConsole::Finish, _) => return true,
            _ => {}
        }
        false
    }

    fn follow(&mut self, world: &mut World<'_>, what: &What) {
        match what {
            What::Joined { agent, pid, .. } => {
                if let Some(agent) = Agent::named(agent) {
                    self.tell(world, Input::Ready { agent, pid: *pid });
                }
            }
            What::Started(started) => self.step = Some(started.step),
            What::Recovered { step, .. } => self.step = Some(*step),
            What::Steps(figures) => self.reached(world, figures.step),
            What::Committed { end_step, .. } => self.reached(world, *end_step),
            What::Stopping { .. } => (self.stopping, self.told_stop) = (true, true),
            What::Ended { .. } => {
                self.over.get_or_insert(world.now);
                self.tell(world, Input::Over);
            }
            _ => {}
        }
    }

    fn reached(&mut self, world: &mut World<'_>, step: u64) {
        if self.step.is_some_and(|before| before < step) {
            self.tell(world, Input::Progress);
        }
        self.step = Some(step);
    }

    fn exited(&mut self, world: &mut World<'_>, agent: Agent, pid: Pid, ending: Ending) {
        if let (Some(link), false) = (self.link, ending.is_well())
            && agent != Agent::Coordinator
        {
            let ended = FromConsole::Ended { agent, pid, how: ending.to_string() };
            world.send(FOREGROUND, link, Msg::FromConsole(ended));
        }
        self.tell(world, Input::Ended { agent, pid, ending });
    }

    fn tell(&mut self, world: &mut World<'_>, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            if !matches!(input, Input::Look | Input::Heard) {
                world.say(FOREGROUND, || format!("supervises {input:?}"));
            }
            let now = world.now - self.began;
            for action in self.supervisor.step(now, input) {
                world.say(FOREGROUND, || format!("SUPERVISES {action:?}"));
                inputs.extend(self.act(world, action));
            }
        }
    }

    fn act(&mut self, world: &mut World<'_>, action: Action) -> Option<Input> {
        match action {
            Action::Start { agent } => {
                let body = match agent {
                    Agent::Server(index) => Body::Server(Box::new(Server::new(index))),
                    Agent::Worker(index) => Body::Worker(Box::new(Worker::new(index, world.now))),
                    _ => return None,
                };
                let pid = world.spawn(agent, self.supervisor.generation(), body);
                Some(Input::Started { agent, pid })
            }
            Action::Coordinate { generation, after } => {
                if let Some(link) = self.link.take() {
                    world.close(FOREGROUND, link);
                }
                (self.step, self.meets) = (None, Some(generation));
                let workers = self.supervisor.workers();
                let course = Course { generation, after, workers, ..self.first.clone() };
                let body = Body::Coordinator(Box::new(Coordinator::new(course)));
                let pid = world.spawn(Agent::Coordinator, generation, body);
                Some(Input::Started { agent: Agent::Coordinator, pid })
            }
            Action::Kill { pid, .. } => {
                world.kill(pid);
                None
            }
            Action::Fail(loss) => {
                self.failed = Some(loss.message);
                None
            }
        }
    }
}
