//! A worker of a synchronous run: computes shards of each step with parameters from servers, and
//! sends them the gradients.
//!
//! Owns the order of that as a value ([`Sync`]): connecting to the servers one after another, then
//! what [`duty`] says. Never waits or sends itself.
//!
//! # Layout
//! - [`duty`]: which leases it holds, which parameters are there, what comes next; pure
//! - [`resources`]: data, engine and read-ahead, for the life of the process
//! - [`shell`]: links to servers and their threads

pub mod duty;
pub mod resources;
pub mod shell;

use crate::gradient::Task;
use crate::session::method::{Effect, Input, Method, Session, Todo};
use crate::session::shell::Setting;
use duty::{Duty, Output};
use planaria_protocol::launch::Launch;
use planaria_protocol::message::{FromWorker, ServerRange, Trouble};
use planaria_protocol::methods::Command;
use planaria_protocol::methods::sync::Report;
use planaria_protocol::retry::RETRY;
use std::ops::Range;
use std::time::Duration;

/// How long a server may take to be reached, or to be of this generation.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a worker that has lost a server waits for the order to join again.
const LINGER: Duration = Duration::from_secs(1);

/// Works until the coordinator says that the run is over.
pub fn run(launch: &Launch, setting: &Setting<'_>) -> Result<(), Trouble> {
    let mut hands = shell::Process::new(launch, setting);
    crate::session::shell::run(setting, Sync::default(), &mut hands)
}

/// A worker's part in a synchronous run.
#[derive(Debug, Default)]
pub struct Sync {
    duty: Duty,
    out: Vec<Output>,
    engine: Engine,
    servers: Servers,
    /// When a worker that has lost a server is to join again.
    leave_at: Option<Duration>,
    /// The shards that were computed last.
    shards: Range<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Engine {
    /// Engine and instruction set.
    pub name: String,
    pub threads: u32,
}

/// The way to the servers.
#[derive(Debug, Default)]
enum Servers {
    #[default]
    Unknown,
    /// Some are reached; the next one is tried again at this time.
    Reaching {
        server_ranges: Vec<ServerRange>,
        reached: usize,
        try_at: Option<Duration>,
        until: Duration,
    },
    Reached,
}

impl Servers {
    fn give_up(&mut self) {
        if matches!(self, Self::Reaching { .. }) {
            *self = Self::Unknown;
        }
    }
}

/// What this method asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Do {
    /// Make room for the parameters of these servers, which are in the order of their blocks.
    Open(Vec<ServerRange>),
    /// Connect to the server in this place; [`Event::Reached`] or [`Event::NotReached`].
    Reach { at: usize },
    /// Tell all servers to send the parameters from here on.
    Follow { step: u64 },
    /// Tell all servers to send no more.
    Unfollow,
    /// Ask server 0 for the state.
    State { step: u64 },
    /// Hash the parameters; [`duty::Input::Hashes`] or [`duty::Input::Over`].
    Hash { step: u64 },
    /// Compute and push this; [`duty::Input::Done`] or [`duty::Input::Over`].
    Compute(Task),
    /// A task is not needed any more: forget what was read for it.
    Skip(Task),
    /// Forget what was read ahead for the first so many leases of this session.
    Forget { leases: u64 },
}

/// What comes of it, and what comes from servers.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The server in this place is connected.
    Reached,
    /// It is not.
    NotReached {
        why: String,
    },
    Duty(duty::Input),
}

impl Method for Sync {
    type Event = Event;
    type Effect = Do;
    type Prepared = Engine;

    fn prepared(&mut self, engine: Engine) {
        self.engine = engine;
    }

    fn joined(&mut self, _todo: &mut Todo<Self>) {
        let engine = std::mem::take(&mut self.engine);
        *self = Self { engine, ..Self::default() };
    }

    fn on(
        &mut self,
        now: Duration,
        input: Input<Event>,
        todo: &mut Todo<Self>,
    ) -> Result<Session, Trouble> {
        let input = match input {
            Input::Command(Command::Sync(command), _) => duty::Input::Command(command),
            // Of another method.
            Input::Command(..) => return Ok(Session::GoesOn),
            Input::Evaluate { part, step, batches, enter } => {
                duty::Input::Evaluate { part, step, batches, enter }
            }
            Input::Scored { is_scored: true, .. } => duty::Input::Scored,
            Input::Scored { step, .. } => duty::Input::Over { step },
            Input::Own(Event::Reached) => return Ok(self.reached(todo)),
            Input::Own(Event::NotReached { why }) => return Ok(self.not_reached(now, why, todo)),
            Input::Own(Event::Duty(input)) => input,
            Input::Woken => return Ok(self.woken(now, todo)),
        };
        Ok(self.tell_duty(now, input, todo))
    }

    fn revoke(&mut self, todo: &mut Todo<Self>) {
        self.tell_duty(Duration::ZERO, duty::Input::Revoke, todo);
    }

    fn wake_at(&self) -> Option<Duration> {
        let try_at = match &self.servers {
            Servers::Reaching { try_at, .. } => *try_at,
            _ => None,
        };
        try_at.into_iter().chain(self.leave_at).min()
    }
}

impl Sync {
    fn tell_duty(&mut self, now: Duration, input: duty::Input, todo: &mut Todo<Self>) -> Session {
        if matches!(input, duty::Input::Ended { .. }) {
            // One is lost: those that are not reached yet are not needed.
            self.servers.give_up();
        }
        let mut out = std::mem::take(&mut self.out);
        self.duty.on(input, &mut out);
        let mut session = Session::GoesOn;
        for output in out.drain(..) {
            match output {
                Output::Connect(server_ranges) => self.connect(now, server_ranges, todo),
                Output::Tell(report) => {
                    if let Some(line) = line(&report) {
                        todo.push_back(Effect::Log(line));
                    }
                    todo.push_back(Effect::Tell(report.into(), Vec::new()));
                }
                Output::Linger => self.leave_at = Some(now + LINGER),
                Output::Rejoin => session = Session::IsOver,
                Output::Evaluate(batch) => self.with_servers(Effect::Score(batch), todo),
                Output::Follow { step } => self.act(Do::Follow { step }, todo),
                Output::Unfollow => self.act(Do::Unfollow, todo),
                Output::State { step } => self.act(Do::State { step }, todo),
                Output::Hash { step } => self.act(Do::Hash { step }, todo),
                Output::Compute(task) => self.act(Do::Compute(task), todo),
                Output::Skip(task) => self.act(Do::Skip(task), todo),
                Output::Forget { leases } => self.act(Do::Forget { leases }, todo),
            }
        }
        self.out = out;
        session
    }

    fn act(&mut self, effect: Do, todo: &mut Todo<Self>) {
        match &effect {
            Do::Skip(_) | Do::Forget { .. } => return todo.push_back(Effect::Own(effect)),
            Do::Follow { step } => {
                todo.push_back(Effect::Log(format!("entering after step {step}")))
            }
            Do::Compute(Task { shards, step, .. }) if self.shards != *shards => {
                let line = format!("computing shards {shards:?} from step {step}");
                todo.push_back(Effect::Log(line));
                self.shards = shards.clone();
            }
            _ => {}
        }
        self.with_servers(Effect::Own(effect), todo);
    }

    /// Without servers there is nothing to follow and nothing to compute with.
    fn with_servers(&mut self, effect: Effect<Do>, todo: &mut Todo<Self>) {
        if matches!(self.servers, Servers::Reached) {
            todo.push_back(effect);
        }
    }

    fn connect(
        &mut self,
        now: Duration,
        mut server_ranges: Vec<ServerRange>,
        todo: &mut Todo<Self>,
    ) {
        server_ranges.sort_by_key(|s| (s.blocks.start, s.blocks.end));
        todo.push_back(Effect::Own(Do::Open(server_ranges.clone())));
        todo.push_back(Effect::Own(Do::Reach { at: 0 }));
        let until = now + CONNECT;
        self.servers = Servers::Reaching { server_ranges, reached: 0, try_at: None, until };
    }

    fn reached(&mut self, todo: &mut Todo<Self>) -> Session {
        if let Servers::Reaching { server_ranges, reached, .. } = &mut self.servers {
            *reached += 1;
            match *reached < server_ranges.len() {
                true => todo.push_back(Effect::Own(Do::Reach { at: *reached })),
                false => self.ready(todo),
            }
        }
        Session::GoesOn
    }

    fn not_reached(&mut self, now: Duration, why: String, todo: &mut Todo<Self>) -> Session {
        let Servers::Reaching { server_ranges, reached, try_at, until } = &mut self.servers else {
            return Session::GoesOn;
        };
        if now < *until {
            *try_at = Some(now + RETRY);
            return Session::GoesOn;
        }
        let server = server_ranges.get(*reached).map_or(0, |server_range| server_range.server);
        self.tell_duty(now, duty::Input::Ended { server, why }, todo)
    }

    fn ready(&mut self, todo: &mut Todo<Self>) {
        self.servers = Servers::Reached;
        let Engine { name, threads } = self.engine.clone();
        todo.push_back(Effect::Log(format!(
            "ready with {name}, threads: {threads}; connected to all servers, waiting for shards"
        )));
        todo.push_back(Effect::Tell(FromWorker::Ready { engine: name, threads }, Vec::new()));
    }

    fn woken(&mut self, now: Duration, todo: &mut Todo<Self>) -> Session {
        if let Servers::Reaching { reached, try_at, .. } = &mut self.servers
            && try_at.is_some_and(|at| now >= at)
        {
            *try_at = None;
            todo.push_back(Effect::Own(Do::Reach { at: *reached }));
        }
        if self.leave_at.is_some_and(|at| now >= at) {
            self.leave_at = None;
            return self.tell_duty(now, duty::Input::Lingered, todo);
        }
        Session::GoesOn
    }
}

/// What the log says of a report.
fn line(report: &Report) -> Option<String> {
    Some(match report {
        Report::Cut { server, why } => format!("lost server-{server}: {why}"),
        Report::Behind { step } => format!("missed the parameters after step {step}"),
        Report::Holds { step, .. } => format!("holds the parameters after step {step}"),
        Report::Pace { .. } => return None,
    })
}
