//! The machines of a run: raised, watched, replaced and given back.
//!
//! Owns every machine that a provider made for the run, from before it exists until it is gone, and
//! the processes on them. Whom to raise and who lives where is [`roster`]'s to say. Never decides
//! what a process does.
//!
//! # Layout
//! - [`roster`]: decisions; pure
//! - [`resources`]: what is held, on disk before it is held
//! - [`raise`]: from a name to a machine that is ready, on a thread of its own

pub mod raise;
pub mod resources;
pub mod roster;

use crate::ending::Ending;
use crate::host::remote::{Remote, Told};
use crate::host::words::ToHost;
use crate::local::Exit;
use crate::provider::{Fault, Machine};
use planaria_protocol::message::Agent;
use raise::{News, Raised, Raising, Route};
use resources::Resources;
use roster::{Action, Input, Roster, Where};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use raise::Means;

/// A host that has said nothing for so long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// A look counts for so much time at most, so that a controller that was itself suspended blames
/// nobody.
const LOOK_MAX: Duration = Duration::from_millis(500);
/// How often a host is told that the controller lives.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// How long hosts may take to end what they started.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long giving everything back may take.
const GIVE_BACK: Duration = Duration::from_secs(40);
/// How often it is looked whether all is over.
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
    raising: BTreeMap<u32, std::thread::JoinHandle<()>>,
    announce: Sender<News>,
    inbox: Receiver<News>,
    attempts: u64,
    processes: BTreeMap<u32, (u32, Agent)>,
    /// Numbers on their machines of processes that run.
    pids: BTreeMap<u32, u32>,
    /// What keepers of scripts have passed on.
    said: Vec<(Agent, Vec<u8>)>,
    next_process: u32,
    exits: Vec<Exit>,
    notes: Vec<String>,
    /// Machines that were lost after they had been ready.
    machines_lost: u64,
    failed: Option<Fault>,
    over: Arc<AtomicBool>,
    logs: PathBuf,
    open_logs: BTreeMap<Agent, File>,
    looked: Option<Duration>,
    /// When hosts were last told that the controller lives.
    told: Duration,
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
pub struct Standing {
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
        Self {
            means: Arc::new(means),
            resources: Arc::new(Mutex::new(resources)),
            roster,
            live: BTreeMap::new(),
            opened: BTreeMap::new(),
            raising: BTreeMap::new(),
            announce,
            inbox,
            attempts: 0,
            processes: BTreeMap::new(),
            pids: BTreeMap::new(),
            said: Vec::new(),
            next_process: FIRST_PROCESS,
            exits: Vec::new(),
            notes: Vec::new(),
            machines_lost: 0,
            failed: None,
            over: Arc::default(),
            logs,
            open_logs: BTreeMap::new(),
            looked: None,
            told: Duration::ZERO,
        }
    }

    /// Takes in what has happened, and does what follows from it.
    pub fn look(&mut self, now: Duration) {
        while let Ok(news) = self.inbox.try_recv() {
            self.hear(now, news);
        }
        self.watch(now);
        self.step(now, Input::Look);
    }

    /// So many workers are wanted from now on.
    pub fn set_workers(&mut self, workers: u32) {
        self.roster.set_workers(workers);
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

    /// An address of the controller's machine, as those reach it who do without a tunnel. Whoever
    /// comes through one comes from here, and reaches any.
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
                self.processes.insert(process, (number, agent));
                Ok(process)
            }
            _ => {
                self.roster.left(agent);
                Err("its machine takes no orders".into())
            }
        }
    }

    /// Machines that are ready, by their numbers.
    pub fn standing(&self) -> Vec<Standing> {
        let standing = |(number, live): (&u32, &Live)| Standing {
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

    /// The number of a process on its machine, once it runs.
    pub fn pid(&self, process: u32) -> Option<u32> {
        self.pids.get(&process).copied()
    }

    /// What the processes of scripts have written since the last time.
    pub fn take_said(&mut self) -> Vec<(Agent, Vec<u8>)> {
        std::mem::take(&mut self.said)
    }

    /// Asks a process to end by itself.
    pub fn dismiss(&self, process: u32) {
        if let Some((number, _)) = self.processes.get(&process)
            && let Some(live) = self.live.get(number)
        {
            live.remote.say(ToHost::Dismiss { process });
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

    /// Machines that were lost after they had been ready.
    pub fn machines_lost(&self) -> u64 {
        self.machines_lost
    }

    /// Why no machine can be had.
    pub fn take_failure(&mut self) -> Option<Fault> {
        self.failed.take()
    }

    /// Processes that run.
    pub fn running(&self) -> usize {
        self.processes.len()
    }

    /// Gives every machine back, and says what could not be.
    pub fn end(&mut self) -> Vec<Fault> {
        self.over.store(true, Ordering::SeqCst);
        self.roster.end();
        for live in self.live.values() {
            live.remote.say(ToHost::End);
        }
        // Whoever waits for a step of the set-up is let go.
        std::mem::take(&mut self.opened).into_values().for_each(|remote| remote.close());
        let looks = FAREWELL.as_millis() / LOOK_EVERY.as_millis();
        for _ in 0..looks {
            self.take_in();
            if self.live.values().all(|live| live.remote.has_said_bye()) {
                break;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
        for live in std::mem::take(&mut self.live).into_values() {
            let leaves = self.means.provider.leaves_with_host(&live.machine);
            if leaves && live.remote.has_said_bye() {
                let mut resources = self.resources.lock().expect("no thread panics with them");
                // It is asked for once more otherwise, which is no error.
                let _ = resources.gone(&live.machine.name);
            }
            live.remote.close();
        }
        self.settle();
        self.give_back()
    }

    /// Waits for machines that are being raised: each gives back what it has when it sees that all
    /// is over.
    fn settle(&mut self) {
        let looks = GIVE_BACK.as_millis() / LOOK_EVERY.as_millis();
        for _ in 0..looks {
            self.raising.retain(|_, thread| !thread.is_finished());
            if self.raising.is_empty() {
                return;
            }
            self.take_in();
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Closes what was raised just before all was over.
    fn take_in(&mut self) {
        while let Ok(news) = self.inbox.try_recv() {
            match news {
                News::Ready { raised, .. } => raised.remote.close(),
                News::Opened { remote, .. } => remote.close(),
                News::Told { told: Told::Log(agent, bytes), .. } => self.log(agent, &bytes),
                _ => {}
            }
        }
    }

    fn give_back(&mut self) -> Vec<Fault> {
        let held = self.resources.lock().expect("no thread panics with them").held();
        let (done, results) = channel();
        let mut waiting: BTreeMap<String, Machine> = BTreeMap::new();
        for machine in held {
            waiting.insert(machine.name.clone(), machine.clone());
            let (means, done) = (self.means.clone(), done.clone());
            let destroy = move || {
                let result = means.provider.destroy(&means.run, &machine);
                let _ = done.send((machine, result));
            };
            let _ = std::thread::Builder::new().name("give-back".into()).spawn(destroy);
        }
        drop(done);
        let mut faults = Vec::new();
        while let Ok((machine, result)) = results.recv_timeout(GIVE_BACK) {
            waiting.remove(&machine.name);
            let mut resources = self.resources.lock().expect("no thread panics with them");
            match result {
                Ok(()) => drop(resources.gone(&machine.name)),
                Err(fault) => faults.push(fault),
            }
        }
        let late = |machine: &Machine| Fault::retry(&machine.name, "it could not be given back");
        faults.extend(waiting.values().map(late));
        faults
    }

    fn hear(&mut self, now: Duration, news: News) {
        match news {
            News::Note(note) => self.notes.push(note),
            News::Opened { number, is_direct, remote } => {
                self.opened.insert(number, remote);
                self.step(now, Input::Opened { number, is_direct });
            }
            News::Ready { number, raised } => self.ready(now, number, *raised),
            News::Failed { number, fault } => {
                self.raising.remove(&number);
                self.opened.remove(&number);
                self.step(now, Input::Failed { number, fault });
            }
            News::Told { number, attempt, told } => self.told(now, number, attempt, told),
        }
    }

    fn ready(&mut self, now: Duration, number: u32, raised: Raised) {
        self.raising.remove(&number);
        self.opened.remove(&number);
        let Raised { machine, attempt, remote, route } = raised;
        self.notes.push(format!("{}: ready, {}", machine.name, route.what));
        let (heard, silent) = (remote.heard(), Duration::ZERO);
        let live = Live { machine, attempt, remote, route, heard, silent };
        self.live.insert(number, live);
        self.step(now, Input::Ready { number });
    }

    fn told(&mut self, now: Duration, number: u32, attempt: u64, told: Told) {
        match told {
            Told::Started { process, pid } => drop(self.pids.insert(process, pid)),
            Told::Log(agent, bytes) => self.log(agent, &bytes),
            Told::NotStarted { process, why } => {
                self.notes.push(format!("a process could not be started: {why}"));
                self.ended(process, Ending::Code(127));
            }
            Told::Ended { process, ending } => self.ended(process, ending),
            Told::Gone(why) => {
                if self.live.get(&number).is_some_and(|live| live.attempt == attempt) {
                    self.lose(now, number, &why);
                }
            }
        }
    }

    fn ended(&mut self, process: u32, ending: Ending) {
        self.pids.remove(&process);
        if let Some((_, agent)) = self.processes.remove(&process) {
            self.roster.left(agent);
            self.exits.push(Exit { agent, pid: process, ending });
        }
    }

    /// Sees who has said nothing for too long, and tells the others that the controller lives.
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
        let mut first = self.means.first.lock().expect("no thread panics with it");
        // Whoever comes next must not try to reach one that is gone.
        first.take_if(|place| place.starts_with(&format!("{}:", live.route.advertise)));
        drop(first);
        let why = why.lines().last().unwrap_or_default();
        self.machines_lost += 1;
        self.notes.push(format!("{}: lost: {why}", live.machine.name));
        let lost: Vec<u32> = self
            .processes
            .iter()
            .filter(|(_, (machine, _))| *machine == number)
            .map(|(process, _)| *process)
            .collect();
        lost.into_iter().for_each(|process| self.ended(process, Ending::MachineLost));
        self.step(now, Input::Lost { number });
    }

    fn step(&mut self, now: Duration, input: Input) {
        let means = self.means.clone();
        let plan = move |number: u32| means.provider.plan(&means.run, number);
        for action in self.roster.step(now, input, &plan) {
            match action {
                Action::Raise { number, machine } => self.raise(number, machine),
                Action::Note(note) => self.notes.push(note),
                Action::Fail(fault) => self.failed = Some(fault),
            }
        }
    }

    fn raise(&mut self, number: u32, machine: Machine) {
        self.attempts += 1;
        let raising = Raising {
            number,
            attempt: self.attempts,
            machine,
            means: self.means.clone(),
            resources: self.resources.clone(),
            announce: self.announce.clone(),
            over: self.over.clone(),
            was_left: false,
            probe: None,
        };
        let name = raising.machine.name.clone();
        let thread = std::thread::Builder::new().name("raise".into()).spawn(|| raising.run());
        match thread {
            Ok(thread) => drop(self.raising.insert(number, thread)),
            Err(e) => {
                let fault = Fault::retry(name, format!("cannot start a thread: {e}"));
                // The next look tells the roster.
                let _ = self.announce.send(News::Failed { number, fault });
            }
        }
    }

    /// Adds to an agent's log here what it logged there.
    fn log(&mut self, agent: Agent, bytes: &[u8]) {
        if let Agent::Task(_) = agent {
            return self.said.push((agent, bytes.to_vec()));
        }
        let file = self.open_logs.entry(agent);
        let file = match file {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let path = self.logs.join(format!("{agent}.log"));
                match OpenOptions::new().create(true).append(true).open(path) {
                    Ok(file) => entry.insert(file),
                    // A full disk costs the log.
                    Err(_) => return,
                }
            }
        };
        let _ = file.write_all(bytes);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.over.load(Ordering::SeqCst) {
            self.end();
        }
    }
}
