//! The machines of a run: raised, watched, replaced and given back.
//!
//! Owns every machine that a provider made for the run, from before it exists until it is gone, and
//! the processes on them. Whom to raise and who lives where is [`roster`]'s to say. Never decides
//! what a process does.
//!
//! # Layout
//! - [`roster`]: decisions; pure
//! - [`resources`]: what is held, on disk before it is held
//! - [`raise`]: from a name to a machine that is ready; `raising`: many of them, on threads
//! - `room`: how much of what agents wrote may wait here; `logs`: what they log
//! - [`giving_back`]: the end

pub mod giving_back;
mod logs;
pub mod raise;
mod raising;
pub mod resources;
mod room;
pub mod roster;

use crate::ending::{Ending, UNFIT};
use crate::local::Exit;
use crate::messages::{AgentNews, ToHost};
use crate::provider::{Fault, Machine, Notice, Provider};
use crate::remote::{Remote, Told};
use logs::Logs;
use planaria_protocol::Credentials;
use planaria_protocol::event::MachineState;
use planaria_protocol::message::Agent;
use raise::{Progress, Raised, Route};
use resources::Resources;
use room::Room;
use roster::{Action, Input, Roster, Where};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use raise::{Means, Reach};

/// A host that has said nothing for so long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// A look counts for so much time at most, so that a controller that was itself suspended takes no
/// host for lost.
const LOOK_MAX: Duration = Duration::from_millis(500);
/// Interval of the controller's heartbeats to hosts.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// How long hosts may take to end what they started.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Poll interval for a provider's notices.
const NOTICES_EVERY: Duration = Duration::from_secs(1);
/// Poll interval for the end of all machines.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Numbers of processes on machines begin above any that a kernel gives.
pub const FIRST_PROCESS: u32 = 1 << 23;

/// The machines of a run.
pub struct Pool {
    means: Arc<Means>,
    resources: Arc<Mutex<Resources>>,
    roster: Roster,
    live: BTreeMap<u32, Live>,
    /// Hosts of machines that are being set up.
    opened: BTreeMap<u32, Arc<Remote>>,
    /// By number, the flag that ends the attempt at that machine.
    raising: BTreeMap<u32, Arc<AtomicBool>>,
    /// Threads that raise machines or give them back.
    at_work: Arc<AtomicUsize>,
    announce: Sender<News>,
    inbox: Receiver<News>,
    attempts: u64,
    processes: BTreeMap<u32, (u32, Agent)>,
    /// Numbers on their machines of processes that run.
    pids: BTreeMap<u32, u32>,
    /// What guards of scripts have passed on.
    said: Vec<(Agent, Vec<u8>)>,
    /// For what agents wrote and nothing has taken yet.
    room: Arc<Room>,
    next_process: u32,
    exits: Vec<Exit>,
    notes: Vec<String>,
    changes: Vec<Change>,
    /// The last change that was reported of each machine, by name.
    states: BTreeMap<String, Change>,
    failed: Option<Fault>,
    over: Arc<AtomicBool>,
    logs: Logs,
    looked: Option<Duration>,
    /// When hosts were last told that the controller lives.
    told: Duration,
}

/// What became of a machine, for the run's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub machine: String,
    pub state: MachineState,
    /// Why, where there is something to say.
    pub why: Option<String>,
}

/// What comes from threads.
enum News {
    /// Of an attempt at a machine.
    Progress { number: u32, attempt: u64, progress: Progress },
    /// What came of an attempt.
    Raised { number: u32, attempt: u64, raised: Box<Result<Raised, Fault>> },
    /// A machine that was no longer wanted is given back.
    Released(u32),
    /// A machine is about to go.
    Notice(Notice),
}

struct Live {
    machine: Machine,
    attempt: u64,
    remote: Arc<Remote>,
    route: Route,
    heard: u64,
    silent: Duration,
}

/// A machine that is ready.
#[derive(Clone)]
pub struct ReadyMachine {
    /// Its number in the pool.
    pub number: u32,
    pub machine: Machine,
    /// How processes on it meet others.
    pub route: Route,
    pub remote: Arc<Remote>,
}

/// Where a process may be started.
#[derive(Debug, Clone, PartialEq)]
pub enum Spot {
    /// On the controller's machine.
    Here,
    /// On this machine, which reaches the others so.
    There(u32, Box<Route>),
    /// There is no room yet.
    Nowhere,
}

impl Pool {
    /// Nothing is raised yet.
    pub fn new(means: Means, resources: Resources, roster: Roster, logs: PathBuf) -> Self {
        let (announce, inbox) = channel();
        let notes = means.provider.remarks();
        let pool = Self {
            means: Arc::new(means),
            resources: Arc::new(Mutex::new(resources)),
            roster,
            live: BTreeMap::new(),
            opened: BTreeMap::new(),
            raising: BTreeMap::new(),
            at_work: Arc::default(),
            announce,
            inbox,
            attempts: 0,
            processes: BTreeMap::new(),
            pids: BTreeMap::new(),
            said: Vec::new(),
            room: Arc::default(),
            next_process: FIRST_PROCESS,
            exits: Vec::new(),
            notes,
            changes: Vec::new(),
            states: BTreeMap::new(),
            failed: None,
            over: Arc::default(),
            logs: Logs::new(logs),
            looked: None,
            told: Duration::ZERO,
        };
        pool.listen_for_notices();
        pool
    }

    /// Takes in what has happened, and does what follows from it.
    pub fn look(&mut self, now: Duration) {
        while let Ok(news) = self.inbox.try_recv() {
            self.hear(now, news);
        }
        self.watch(now);
        self.step(now, Input::Look);
    }

    /// By what the run's servers are asked who they are, where a machine is led to them.
    pub fn identify_servers_by(&self, credentials: Credentials) {
        self.means.gate.identify_by(credentials);
    }

    /// So many workers are wanted from now on.
    pub fn set_workers(&mut self, workers: u32) {
        self.roster.set_workers(workers);
    }

    /// So many machines are wanted from now on: others are raised where the provider has them, or
    /// some given back.
    pub fn resize(&mut self, now: Duration, machines: usize) {
        self.step(now, Input::Resize { machines });
    }

    /// Where a process goes; it takes the place.
    pub fn place(&mut self, now: Duration, agent: Agent) -> Spot {
        match self.roster.place(now, agent) {
            Where::Here => Spot::Here,
            Where::Nowhere => Spot::Nowhere,
            Where::There(number) => match self.live.get(&number) {
                Some(live) => Spot::There(number, Box::new(live.route.clone())),
                None => {
                    self.roster.left(agent);
                    Spot::Nowhere
                }
            },
        }
    }

    /// An address of the controller's machine, as machines without a tunnel reach it. Through a tunnel
    /// any of them leads to the same process.
    pub fn controller(&self) -> String {
        let direct = self.live.values().find(|live| live.route.via.is_none());
        direct.map_or_else(|| "127.0.0.1".to_owned(), |live| live.route.controller.clone())
    }

    /// The number that the next process on a machine will be known by.
    pub fn next_process(&self) -> u32 {
        self.next_process
    }

    /// Starts a process on a machine, with [`Pool::next_process`] as its number.
    pub fn start(&mut self, number: u32, agent: Agent, orders: Vec<u8>) -> Result<u32, String> {
        let process = self.next_process;
        self.next_process += 1;
        let word = ToHost::Start { process, agent, orders };
        match self.live.get(&number) {
            Some(live) if live.remote.say(word) => {
                self.logs.place(live.attempt, agent);
                self.processes.insert(process, (number, agent));
                Ok(process)
            }
            _ => {
                self.roster.left(agent);
                Err("its machine takes no orders".into())
            }
        }
    }

    /// Where its machines come from.
    pub fn provider(&self) -> Arc<dyn Provider> {
        self.means.provider.clone()
    }

    /// Machines that are ready, by their numbers.
    pub fn standing(&self) -> Vec<ReadyMachine> {
        let standing = |(number, live): (&u32, &Live)| ReadyMachine {
            number: *number,
            machine: live.machine.clone(),
            route: live.route.clone(),
            remote: live.remote.clone(),
        };
        self.live.iter().map(standing).collect()
    }

    /// Machines that are wanted and may still become ready.
    pub fn coming(&self) -> usize {
        self.roster.coming()
    }

    /// Those of them that have not failed again and again.
    pub fn hopeful(&self) -> usize {
        self.roster.hopeful()
    }

    /// The number of a process on its machine, once it runs.
    pub fn pid(&self, process: u32) -> Option<u32> {
        self.pids.get(&process).copied()
    }

    /// What the processes of scripts have written since the last time.
    pub fn take_said(&mut self) -> Vec<(Agent, Vec<u8>)> {
        let said = std::mem::take(&mut self.said);
        self.room.leave(said.iter().map(|(_, bytes)| bytes.len()).sum());
        said
    }

    /// Asks a process to end by itself.
    pub fn dismiss(&self, process: u32) {
        if let Some((number, _)) = self.processes.get(&process)
            && let Some(live) = self.live.get(number)
        {
            live.remote.say(ToHost::Dismiss { process });
        }
    }

    /// Processes that run, and the names of their machines.
    pub fn processes(&self) -> Vec<(Agent, u32, String)> {
        let machine = |number: &u32| self.live.get(number).map(|live| live.machine.name.clone());
        let processes = self.processes.iter();
        processes
            .filter_map(|(process, (number, agent))| Some((*agent, *process, machine(number)?)))
            .collect()
    }

    /// Writes a line to a process' standard input.
    pub fn say(&self, process: u32, line: &[u8]) {
        if let Some((number, _)) = self.processes.get(&process)
            && let Some(live) = self.live.get(number)
        {
            live.remote.say(ToHost::Say { process, line: line.to_vec() });
        }
    }

    /// Ends a process at once; [`Pool::take_exits`] tells when it has ended.
    pub fn kill(&self, process: u32) {
        if let Some((number, _)) = self.processes.get(&process)
            && let Some(live) = self.live.get(number)
        {
            live.remote.say(ToHost::Kill { process });
        }
    }

    /// Processes that have ended since the last time.
    pub fn take_exits(&mut self) -> Vec<Exit> {
        std::mem::take(&mut self.exits)
    }

    /// What people are to be told, since the last time.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// What became of machines, since the last time.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The first fault there was.
    pub fn first_fault(&self) -> Option<&Fault> {
        self.roster.first_fault()
    }

    /// Lets go of the machines that are ready, to be taken over: nothing is given back.
    pub fn let_go(mut self) -> Vec<ReadyMachine> {
        self.stop_raising();
        self.settle();
        self.standing()
    }

    /// Why no machine is available.
    pub fn take_failure(&mut self) -> Option<Fault> {
        self.failed.take()
    }

    /// Processes that run.
    pub fn running(&self) -> usize {
        self.processes.len()
    }

    fn hear(&mut self, now: Duration, news: News) {
        match news {
            News::Progress { number, attempt, progress } => {
                self.progress(now, number, attempt, progress);
            }
            News::Raised { number, attempt, raised } => {
                self.raising.remove(&number);
                self.opened.remove(&number);
                match *raised {
                    Ok(raised) => self.ready(now, number, attempt, raised),
                    Err(fault) => {
                        self.change(&fault.machine, MachineState::Failed, Some(fault.what.clone()));
                        self.step(now, Input::Failed { number, fault });
                    }
                }
            }
            News::Released(number) => self.step(now, Input::Released { number }),
            News::Notice(notice) => self.leaving(now, notice),
        }
    }

    fn progress(&mut self, now: Duration, number: u32, attempt: u64, progress: Progress) {
        match progress {
            Progress::Note(note) => self.notes.push(note),
            Progress::Pending(why) => {
                let Some(name) = self.roster.name(number) else { return };
                let change = self.change(&name, MachineState::Pending, Some(why.clone()));
                if change {
                    self.notes.push(format!("{name}: pending: {why}"));
                }
            }
            Progress::Opened { is_direct, remote } => {
                self.opened.insert(number, remote);
                self.step(now, Input::Opened { number, is_direct });
            }
            Progress::Told(told) => self.told(now, number, attempt, told),
        }
    }

    /// Notes what became of a machine; says whether that is new.
    fn change(&mut self, machine: &str, state: MachineState, why: Option<String>) -> bool {
        let change = Change { machine: machine.to_owned(), state, why };
        let is_new = self.states.get(machine) != Some(&change);
        if is_new {
            self.states.insert(machine.to_owned(), change.clone());
            self.changes.push(change);
        }
        is_new
    }

    fn leaving(&mut self, now: Duration, notice: Notice) {
        let Notice { machine, within, why } = notice;
        let mut live = self.live.iter().filter(|(_, live)| live.machine.name == machine);
        let Some(number) = live.next().map(|(number, _)| *number) else { return };
        if self.states.get(&machine).is_some_and(|change| change.state == MachineState::Leaving) {
            return;
        }
        let words = format!("about to go in {} s: {why}", within.as_secs());
        self.notes.push(format!("{machine}: {words}; another is asked for"));
        self.change(&machine, MachineState::Leaving, Some(words));
        self.step(now, Input::Leaving { number });
    }

    fn ready(&mut self, now: Duration, number: u32, attempt: u64, raised: Raised) {
        let Raised { machine, remote, route } = raised;
        self.notes.push(format!("{}: ready, {}", machine.name, route.what));
        self.change(&machine.name, MachineState::Ready, Some(route.what.clone()));
        let (heard, silent) = (remote.heard(), Duration::ZERO);
        let live = Live { machine, attempt, remote, route, heard, silent };
        self.live.insert(number, live);
        self.step(now, Input::Ready { number });
    }

    fn told(&mut self, now: Duration, number: u32, attempt: u64, told: Told) {
        // A machine may be what it should not be: it has no say about processes of others.
        let is_there = |process: u32| self.processes.get(&process).is_some_and(|p| p.0 == number);
        match told {
            Told::Agent(AgentNews::Started { process, pid }) if is_there(process) => {
                self.started(number, process, pid);
            }
            Told::Agent(AgentNews::Log { agent, bytes }) => self.logged(attempt, agent, bytes),
            Told::Agent(AgentNews::NotStarted { process, why }) if is_there(process) => {
                self.notes.push(format!("a process could not be started: {why}"));
                self.ended(process, Ending::Code(127));
            }
            Told::Agent(AgentNews::Ended { process, ending }) if is_there(process) => {
                // A user's script may exit as it likes.
                let is_ours = |(_, agent): &(u32, Agent)| !matches!(agent, Agent::Task(_));
                match self.processes.get(&process).is_some_and(is_ours) {
                    true if ending == Ending::Code(UNFIT) => self.unfit(now, process),
                    _ => self.ended(process, ending),
                }
            }
            Told::Agent(_) => {}
            Told::Gone(why) => {
                if self.live.get(&number).is_some_and(|live| live.attempt == attempt) {
                    self.lose(now, number, &why);
                }
            }
        }
    }

    /// A machine passes on what an agent has logged; only of agents that were placed there.
    fn logged(&mut self, attempt: u64, agent: Agent, bytes: Vec<u8>) {
        match agent {
            // It leaves the room when it is taken.
            Agent::Task(_) if self.logs.is_placed(attempt, agent) => {
                return self.said.push((agent, bytes));
            }
            _ if self.logs.is_placed(attempt, agent) => self.logs.add(agent, &bytes),
            _ => {}
        }
        self.room.leave(bytes.len());
    }

    fn started(&mut self, number: u32, process: u32, pid: u32) {
        self.pids.insert(process, pid);
        if let (Some((_, agent @ Agent::Server(_))), Some(live)) =
            (self.processes.get(&process), self.live.get(&number))
        {
            let Route { advertise, machine, .. } = &live.route;
            self.means.gate.serves(process, advertise, *agent, machine);
        }
    }

    fn ended(&mut self, process: u32, ending: Ending) {
        self.pids.remove(&process);
        self.means.gate.ended(process);
        if let Some((_, agent)) = self.processes.remove(&process) {
            self.roster.left(agent);
            self.exits.push(Exit { agent, pid: process, ending });
        }
    }

    /// Finds hosts that have been silent for too long, and sends heartbeats to the others.
    fn watch(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.looked.replace(now).unwrap_or(now)).min(LOOK_MAX);
        let mut silent = Vec::new();
        for (number, live) in &mut self.live {
            let heard = live.remote.heard();
            live.silent = if heard == live.heard { live.silent + passed } else { Duration::ZERO };
            live.heard = heard;
            if live.silent >= SILENCE_MAX {
                silent.push(*number);
            }
        }
        if now.saturating_sub(self.told) >= ALIVE_EVERY {
            self.told = now;
            // Those too that are being set up, which may take longer than their lease.
            let live = self.live.values().map(|live| &live.remote);
            for remote in live.chain(self.opened.values()) {
                remote.say(ToHost::Alive);
            }
        }
        for number in silent {
            self.lose(now, number, &format!("it said nothing for {} s", SILENCE_MAX.as_secs()));
        }
    }

    fn lose(&mut self, now: Duration, number: u32, why: &str) {
        let Some(live) = self.live.remove(&number) else { return };
        live.remote.close();
        self.forget_place(&live.route);
        let why = why.lines().last().unwrap_or_default();
        self.notes.push(format!("{}: lost: {why}", live.machine.name));
        self.change(&live.machine.name, MachineState::Lost, Some(why.to_owned()));
        self.end_processes(number);
        self.step(now, Input::Lost { number });
    }

    /// Machines that come later must not try to reach one that is gone.
    fn forget_place(&self, route: &Route) {
        let mut first = self.means.first.lock().expect("no thread panics with it");
        first.take_if(|place| place.starts_with(&format!("{}:", route.advertise)));
    }

    /// All processes of a machine count as ended with it.
    fn end_processes(&mut self, number: u32) {
        let there = self.processes.iter().filter(|(_, (machine, _))| *machine == number);
        let there: Vec<u32> = there.map(|(process, _)| *process).collect();
        there.into_iter().for_each(|process| self.ended(process, Ending::MachineLost));
    }

    fn step(&mut self, now: Duration, input: Input) {
        let means = self.means.clone();
        let plan = move |number: u32| means.provider.plan(&means.run, number);
        let mut due = Vec::new();
        for action in self.roster.step(now, input, &plan) {
            match action {
                Action::Raise { number, machine } => due.push(self.attempt(number, machine)),
                Action::Release { number } => self.release(number),
                Action::GiveUp { machine, why } => {
                    self.change(&machine, MachineState::GivenUp, Some(why));
                }
                Action::Note(note) => self.notes.push(note),
                Action::Fail(fault) => self.failed = Some(fault),
            }
        }
        if !due.is_empty() {
            self.raise(due);
        }
    }

    /// Asks the provider for notices as long as the pool lives.
    fn listen_for_notices(&self) {
        if !self.means.provider.gives_notice() {
            return;
        }
        let means = self.means.clone();
        let (over, announce) = (self.over.clone(), self.announce.clone());
        let work = move || {
            while !over.load(Ordering::SeqCst) {
                // A provider that cannot be asked will tell when machines are asked for.
                for notice in means.provider.notices(&means.run).unwrap_or_default() {
                    if announce.send(News::Notice(notice)).is_err() {
                        return;
                    }
                }
                std::thread::park_timeout(NOTICES_EVERY);
            }
        };
        let _ = std::thread::Builder::new().name("notices".into()).spawn(work);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.over.load(Ordering::SeqCst) {
            self.end();
        }
    }
}
