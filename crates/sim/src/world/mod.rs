//! A run in one thread: a clock that jumps from one thing to the next, processes, links and a disk.
//!
//! Owns time, the order of what happens, who lives, and what is sent. What processes do is in their
//! own files (`coordinator`, `server`, `worker`, `foreground`), wired to the world as their shells
//! are; `links` is what they send each other, `injection` what faults do, `sessions` the user. What
//! must hold is [`Verdict`]'s.

mod coordinator;
mod foreground;
mod injection;
mod links;
mod server;
mod sessions;
mod worker;

use crate::coin::Coin;
use crate::disk::Disk;
use crate::faults::Plan;
use crate::fuse::{self, Fuse};
use crate::lab::Bench;
use crate::lab::truth::Broken;
use crate::net::{Hole, Link, LinkId, Msg, Pid};
use crate::verdict::Verdict;
use coordinator::Coordinator;
use foreground::Foreground;
use planaria_fleet::ending::Ending;
use planaria_protocol::message::Agent;
use server::Server;
use std::collections::BTreeMap;
use std::time::Duration;
use worker::Worker;

/// The process in front of the user.
pub const FOREGROUND: Pid = 0;
/// No process' events: what happens to the world.
const FATE: Pid = Pid::MAX;
/// How long an address that does not answer is tried.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a new connection may take to authenticate.
const JOIN: Duration = Duration::from_secs(3);
/// How long a run may take when nothing goes wrong any more.
pub const HEALING: Duration = Duration::from_secs(400);
/// Things that may happen in a world.
const EVENTS_MAX: u64 = 3_000_000;

/// Something that happens to a process.
#[derive(Debug)]
pub enum Event {
    /// A frame has come.
    Frame(LinkId, u64, Msg),
    /// The other end of a link is gone.
    Fin(LinkId),
    /// A connection that was asked for arrives where it leads, which is of this generation if one
    /// is named.
    Dialing(Dial, Option<u64>),
    /// It is made, or not.
    Dialed(Dial, Result<LinkId, String>),
    /// Time has come for this.
    Timer(Timer),
    /// A process has ended.
    Exited(Agent, Pid, Ending),
    /// What happens to the world: the faults, in order.
    Fault(usize),
    /// Nothing goes wrong any more.
    Heal,
    /// A pause of a process is over.
    Continue(Pid),
    /// A worker is as fast as before.
    Hurry(Pid),
    /// The user takes the run up again.
    Resume,
}

/// Whom to connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dial {
    Coordinator,
    Process(Pid),
}

/// What time comes for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// The process begins.
    Start,
    /// The coordinator, or the foreground, looks around.
    Tick,
    /// It says that it lives.
    Alive,
    /// Something is tried again.
    Retry,
    /// Computing has come so far.
    Computed(u64),
    /// Data and engine are there.
    Prepared,
    /// A copy of values is on the disk, and then: its server learns of it.
    Copied(u64),
    /// As for a copy.
    CopyTold(u64),
    /// A file of the coordinator's is on the disk, and then: the coordinator learns of it.
    Written(u64),
    /// As for a file.
    WrittenTold(u64),
    /// A process that has connected must have joined.
    JoinBy(LinkId),
    /// A worker whose link this is may follow.
    Follow(LinkId),
    /// A link must have been heard on.
    Silent(LinkId),
    /// Time for something that is a worker's method's own.
    Own,
}

/// What a process does.
pub enum Body {
    Coordinator(Box<Coordinator>),
    Server(Box<Server>),
    Worker(Box<Worker>),
    /// Starts and ends the others.
    Foreground(Box<Foreground>),
}

/// A process that lives.
pub struct Process {
    /// Who it is.
    pub agent: Agent,
    /// Of links that it takes.
    pub generation: u64,
    /// Whether others can connect to it.
    pub listens: bool,
    /// Whether it is suspended.
    pub paused: bool,
    /// How many times slower than usual it computes.
    pub slow: u32,
    fuse: Fuse,
    backlog: Vec<Event>,
    body: Option<Body>,
}

/// How a world came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What did not hold, if anything.
    pub broken: Option<Broken>,
    /// A hash of all that happened.
    pub hash: u64,
    /// Things that happened.
    pub events: u64,
    pub time: Duration,
    pub sessions: u32,
    /// What went wrong, by name.
    pub faults: Vec<&'static str>,
}

/// Hears everything that happens.
pub type Trace<'a> = Box<dyn FnMut(&str) + 'a>;

pub struct World<'a> {
    /// What is computed.
    pub bench: &'a mut Bench,
    pub coin: Coin,
    pub now: Duration,
    /// What must hold.
    pub verdict: Verdict,
    pub disk: Disk,
    /// What the seed has chosen.
    pub plan: Plan,
    /// Whether nothing goes wrong any more.
    pub healed: bool,
    processes: BTreeMap<Pid, Process>,
    links: Vec<Link>,
    holes: BTreeMap<Pid, Hole>,
    queue: BTreeMap<(Duration, u64, u64), (Pid, Event)>,
    serial: u64,
    pids: Pid,
    hash: u64,
    broken: Option<Broken>,
    sessions: u32,
    done: bool,
    failures_after_healing: u32,
    struck: Vec<&'static str>,
    trace: Option<Trace<'a>>,
}

impl<'a> World<'a> {
    /// The world of a plan.
    pub fn new(seed: u64, plan: Plan, bench: &'a mut Bench, trace: Option<Trace<'a>>) -> Self {
        Self {
            coin: Coin::new(seed ^ 0x77),
            bench,
            now: Duration::ZERO,
            verdict: Verdict::default(),
            disk: Disk::new(&plan),
            plan,
            healed: false,
            processes: BTreeMap::new(),
            links: Vec::new(),
            holes: BTreeMap::new(),
            queue: BTreeMap::new(),
            serial: 0,
            pids: 100,
            hash: 0xCBF2_9CE4_8422_2325,
            broken: None,
            sessions: 0,
            done: false,
            failures_after_healing: 0,
            struck: Vec::new(),
            trace,
        }
    }

    /// Lets everything happen until the run is complete or something does not hold.
    pub fn live(mut self) -> Outcome {
        for (number, (at, _)) in self.plan.faults.clone().into_iter().enumerate() {
            self.schedule(at, FATE, Event::Fault(number));
        }
        let heal = self.plan.heal;
        self.schedule(heal, FATE, Event::Heal);
        self.begin_session();
        let mut events = 0;
        while !self.done && self.broken.is_none() {
            let Some(((at, ..), (pid, event))) = self.queue.pop_first() else {
                self.fail("nothing happens any more, and the run is not complete".into());
                break;
            };
            events += 1;
            self.now = at;
            if at > heal + HEALING || events > EVENTS_MAX {
                let (step, seconds) = (self.verdict.end(), HEALING.as_secs());
                let why = format!("{seconds} s after the last fault it stands at step {step}");
                self.fail(why);
                break;
            }
            self.mix(at.as_micros() as u64);
            self.mix(u64::from(pid));
            self.happen(pid, event);
        }
        Outcome {
            broken: self.broken,
            hash: self.hash,
            events,
            time: self.now,
            sessions: self.sessions,
            faults: self.struck,
        }
    }

    fn happen(&mut self, pid: Pid, event: Event) {
        if pid == FATE {
            return self.strike(event);
        }
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if process.paused {
            process.backlog.push(event);
            return;
        }
        let event = match self.prepare(pid, event) {
            Some(event) => event,
            None => return,
        };
        self.hand(pid, event);
    }

    /// What links do before a process hears of anything.
    fn prepare(&mut self, pid: Pid, event: Event) -> Option<Event> {
        match event {
            Event::Frame(link, number, msg) => {
                self.mix(link as u64 ^ (number << 32));
                let held = &mut self.links[link];
                let end = held.end(pid);
                if held.closed[end] {
                    return None;
                }
                match held.take(end, number, &msg) {
                    Ok(()) => {
                        if let Some((_, heard)) = &mut held.silence[end] {
                            *heard = self.now;
                        }
                        held.joined |= matches!(msg, Msg::Join(_));
                        Some(Event::Frame(link, number, msg))
                    }
                    Err(why) => {
                        self.say(pid, || format!("ends link {link}: {why}"));
                        self.close(pid, link);
                        Some(Event::Fin(link))
                    }
                }
            }
            Event::Fin(link) => {
                let held = &mut self.links[link];
                let end = held.end(pid);
                let news = !std::mem::replace(&mut held.closed[end], true);
                news.then_some(Event::Fin(link))
            }
            Event::Timer(Timer::JoinBy(link)) => {
                if !self.links[link].joined {
                    self.close(pid, link);
                }
                None
            }
            Event::Timer(Timer::Silent(link)) => self.silent(pid, link),
            Event::Dialing(dial, generation) => self.dialing(pid, dial, generation),
            other => Some(other),
        }
    }

    /// Ends a link on which nothing was heard for too long.
    fn silent(&mut self, pid: Pid, link: LinkId) -> Option<Event> {
        let held = &self.links[link];
        let end = held.end(pid);
        let (silence, heard) = held.silence[end].filter(|_| !held.closed[end])?;
        let due = heard + silence;
        if self.now < due {
            self.schedule(due, pid, Event::Timer(Timer::Silent(link)));
            return None;
        }
        self.say(pid, || format!("ends link {link}: it is silent"));
        self.close(pid, link);
        Some(Event::Fin(link))
    }

    fn dialing(&mut self, pid: Pid, dial: Dial, generation: Option<u64>) -> Option<Event> {
        let refused = |why: &str| Some(Event::Dialed(dial, Err(why.to_owned())));
        let to = match dial {
            Dial::Process(to) => Some(to),
            Dial::Coordinator => self.find(Agent::Coordinator),
        };
        let Some(process) = to.and_then(|to| self.processes.get(&to)) else {
            return refused("connection refused");
        };
        let to = to?;
        if !process.listens {
            return refused("connection refused");
        }
        let held = |pid: Pid| self.holes.get(&pid).is_some_and(|hole| !hole.loses);
        if process.paused || held(pid) || held(to) {
            let event = Event::Dialed(dial, Err("it does not answer".into()));
            self.schedule(self.now + CONNECT, pid, event);
            return None;
        }
        if generation.is_some_and(|generation| generation != process.generation) {
            return refused("it is of another generation");
        }
        let link = Link::new([pid, to], process.generation, &mut self.coin);
        let id = self.links.len();
        self.links.push(link);
        self.schedule(self.now + JOIN, to, Event::Timer(Timer::JoinBy(id)));
        Some(Event::Dialed(dial, Ok(id)))
    }

    /// Lets a process take something in.
    fn hand(&mut self, pid: Pid, event: Event) {
        let Some(mut body) = self.processes.get_mut(&pid).and_then(|p| p.body.take()) else {
            return;
        };
        self.say(pid, || format!("{event:?}"));
        let done = fuse::watch(|| match &mut body {
            Body::Coordinator(coordinator) => coordinator.take(self, pid, event),
            Body::Server(server) => server.take(self, pid, event),
            Body::Worker(worker) => worker.take(self, pid, event),
            Body::Foreground(foreground) => foreground.take(self, event),
        });
        if let Err(ending) = done {
            self.end(pid, ending);
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            process.body = Some(body);
        }
    }

    fn strike(&mut self, event: Event) {
        match event {
            Event::Fault(number) if !self.healed => {
                let (_, fault) = self.plan.faults[number].clone();
                self.note(|| format!("FAULT {fault:?}"));
                if let Some(name) = injection::inject(self, &fault) {
                    self.struck.push(name);
                }
            }
            Event::Heal => {
                self.note(|| "HEALED".into());
                self.healed = true;
                self.holes.clear();
                self.disk.mend();
                self.processes.values().for_each(|process| process.fuse.put_out());
                for pid in self.processes.keys().copied().collect::<Vec<_>>() {
                    self.hurry(pid);
                    self.wake(pid);
                }
            }
            Event::Continue(pid) => self.wake(pid),
            Event::Hurry(pid) => self.hurry(pid),
            Event::Resume => self.begin_session(),
            _ => {}
        }
    }

    // What processes and faults use.

    /// Something does not hold.
    pub fn fail(&mut self, why: String) {
        if self.broken.is_none() {
            self.note(|| format!("BROKEN {why}"));
        }
        self.broken.get_or_insert(Broken(why));
    }

    /// Notes whether something holds.
    pub fn must(&mut self, held: Result<(), Broken>) {
        if let Err(Broken(why)) = held {
            self.fail(why);
        }
    }

    /// Puts something in the order of what happens.
    pub fn schedule(&mut self, at: Duration, pid: Pid, event: Event) {
        self.serial += 1;
        // What happens at the same time happens in any order.
        let tie = self.coin.number();
        self.queue.insert((at, tie, self.serial), (pid, event));
    }

    /// Lets a process hear from itself later.
    pub fn timer(&mut self, pid: Pid, after: Duration, timer: Timer) {
        self.schedule(self.now + after, pid, Event::Timer(timer));
    }

    /// A process does one more thing that others see, or ends here: its time may have come.
    pub fn act(&mut self, pid: Pid) {
        self.fuse(pid).burn();
    }

    /// What a process ends by.
    pub fn fuse(&self, pid: Pid) -> Fuse {
        self.processes.get(&pid).map(|process| process.fuse.clone()).unwrap_or_default()
    }

    /// Whether a process lives.
    pub fn lives(&self, pid: Pid) -> bool {
        self.processes.contains_key(&pid)
    }

    /// The process of an agent.
    pub fn find(&self, agent: Agent) -> Option<Pid> {
        self.processes.iter().find(|(_, process)| process.agent == agent).map(|(pid, _)| *pid)
    }

    /// All live processes.
    pub fn everyone(&self) -> Vec<(Pid, Agent)> {
        self.processes.iter().map(|(pid, process)| (*pid, process.agent)).collect()
    }

    /// A process, to change how it is.
    pub fn process(&mut self, pid: Pid) -> Option<&mut Process> {
        self.processes.get_mut(&pid)
    }

    /// Starts a process.
    pub fn spawn(&mut self, agent: Agent, generation: u64, body: Body) -> Pid {
        self.pids += 1;
        let pid = self.pids;
        self.put(pid, agent, generation, body);
        let after = self.coin.between(Duration::from_millis(2), Duration::from_millis(60));
        self.timer(pid, after, Timer::Start);
        pid
    }

    fn put(&mut self, pid: Pid, agent: Agent, generation: u64, body: Body) {
        let (listens, paused) = (false, false);
        let (slow, fuse, backlog, body) = (1, Fuse::default(), Vec::new(), Some(body));
        let process = Process { agent, generation, listens, paused, slow, fuse, backlog, body };
        self.processes.insert(pid, process);
    }

    /// Ends a process from outside.
    pub fn kill(&mut self, pid: Pid) {
        self.end(pid, Ending::Signal(9));
    }

    /// Ends a process.
    pub fn end(&mut self, pid: Pid, ending: Ending) {
        let Some(process) = self.processes.remove(&pid) else { return };
        self.note(|| format!("{} ({pid}) ended: {ending}", process.agent));
        if process.agent == Agent::Coordinator {
            self.verdict.coordinator_lost();
        }
        self.holes.remove(&pid);
        for link in 0..self.links.len() {
            if self.links[link].has(pid) {
                self.close(pid, link);
            }
        }
        let after = self.coin.between(Duration::from_millis(1), Duration::from_millis(30));
        let exited = Event::Exited(process.agent, pid, ending);
        self.schedule(self.now + after, FOREGROUND, exited);
    }

    /// The user, at the keyboard.
    pub fn ask(&mut self, ask: impl FnOnce(&mut Foreground, &mut Self)) {
        let body = self.processes.get_mut(&FOREGROUND).and_then(|p| p.body.take());
        if let Some(Body::Foreground(mut foreground)) = body {
            ask(&mut foreground, self);
            if let Some(process) = self.processes.get_mut(&FOREGROUND) {
                process.body = Some(Body::Foreground(foreground));
            }
        }
    }

    /// Makes something part of what the world is known by.
    pub fn mix(&mut self, value: u64) {
        for byte in value.to_le_bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    /// Logs a line of a process, where a log is wanted.
    pub fn say(&mut self, pid: Pid, text: impl FnOnce() -> String) {
        if self.trace.is_some() {
            let agent = self.processes.get(&pid).map(|process| process.agent);
            self.note(|| match agent {
                Some(agent) => format!("{agent} ({pid}) {}", text()),
                None => format!("({pid}) {}", text()),
            });
        }
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let text = text();
            let text = self.disk.nameless(&text);
            let cut = text.char_indices().nth(400).map_or(text.len(), |(at, _)| at);
            trace(&format!("{:10.6} {}", self.now.as_secs_f64(), &text[..cut]));
        }
    }
}
