//! The host's process: takes messages from its channel, and does what they say until the channel ends.
//!
//! Owns the agents of one machine, and a folder there that is gone when it ends. Ends when the
//! channel does, when it is told to, or when it has heard nothing for [`LEASE`]; all that it started
//! ends with it. Never decides what runs.

use crate::files::service::FileService;
use crate::guard;
use crate::guarded::Guards;
use crate::host::tasks::{FilePiece, ShellCommand, Tasks};
use crate::local::{Exit, Local};
use crate::messages::questions::Ask;
use crate::messages::{
    AgentNews, FromHost, Hello, Next, PIECE_BYTES, ToHost, read_message, write_message,
};
use planaria_protocol::clock::Clock;
use planaria_protocol::message::Agent;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::ops::Bound;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Without a message for so long, the controller is gone.
pub const LEASE: Duration = Duration::from_secs(30);
/// Poll interval for ended agents and their logs.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often logs are passed on, and how often the host sends a heartbeat.
const LOGS_EVERY: Duration = Duration::from_millis(200);
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// Messages that may wait to be written.
const MESSAGES_MAX: usize = 256;
/// Attempts to pass on agents' last output, before the host reports how much of it was lost.
const LAST_LOOKS: u32 = 200;
/// How long agents may take to end by themselves when all is over.
const END_WITHIN: Duration = Duration::from_millis(500);

/// What a host needs to begin.
pub struct Setting {
    /// The program that agents are processes of.
    pub program: PathBuf,
    pub run: String,
    /// All that is ours in this user's home.
    pub home: PathBuf,
    /// What the machine is; its folder is filled in here.
    pub hello: Hello,
    /// Whether all that is below this process is the host's, so that it may end what agents left.
    pub is_alone: bool,
}

/// Why a host has left its channel.
pub enum Leave {
    /// It was told to end.
    Told,
    /// The channel has ended, or nothing came of it for too long.
    Gone,
    /// It was told to become another process.
    Detach(Detaching),
}

/// What a host is to become.
pub struct Detaching {
    /// For the standard input of that process.
    pub orders: Vec<u8>,
    pub next: Next,
    /// Where it is called, if others call it.
    pub listener: Option<TcpListener>,
}

/// Serves a channel to its end, and leaves nothing behind.
pub fn run(
    setting: Setting,
    reading: impl Read + Send + 'static,
    writing: impl Write + Send + 'static,
    clock: &dyn Clock,
) -> io::Result<Leave> {
    let Setting { program, run, home, mut hello, is_alone } = setting;
    if is_alone {
        guard::adopt();
    }
    let place = Folder::make(&home, &run)?;
    hello.folder = place.path.display().to_string();
    hello.probe = probe();
    let logs = place.path.join("logs");
    fs::create_dir_all(&logs)?;
    let (messages, written) = sync_channel(MESSAGES_MAX);
    let (heard, inbox) = sync_channel(MESSAGES_MAX);
    std::thread::Builder::new().name("reading".into()).spawn(move || listen(reading, &heard))?;
    let writer = std::thread::Builder::new()
        .name("writing".into())
        .spawn(move || talk(writing, &written))?;
    let fleet = Local::new(&program, &logs);
    let guards = Guards::new(&program, &run);
    let tasks = Tasks::new(&home, &place.path, guards, messages.clone());
    let service = FileService::open(&home, &place.run, messages.clone())?;
    let logs = Logs { folder: logs, read: BTreeMap::new(), served: None };
    let (processes, ended) = (BTreeMap::new(), Vec::new());
    let mut host = Host { run, fleet, tasks, service, messages, logs, processes, ended, is_alone };
    host.say(FromHost::Hello(hello));
    let leave = host.work(&inbox, clock);
    host.end();
    drop(place);
    host.say(FromHost::Bye);
    drop(host);
    // What was said last is written; where it is not read, the process ends all the same.
    for _ in 0..50 {
        if writer.is_finished() {
            break;
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
    Ok(leave)
}

/// Listens for others who try whether they reach this machine: they are let in and out again. One
/// place for the life of the process.
fn probe() -> Option<u16> {
    static PORT: OnceLock<Option<u16>> = OnceLock::new();
    let listen = || {
        let listener = TcpListener::bind(("0.0.0.0", 0)).ok()?;
        let port = listener.local_addr().ok()?.port();
        let welcome = move || listener.incoming().for_each(drop);
        std::thread::Builder::new().name("probe".into()).spawn(welcome).ok()?;
        Some(port)
    };
    *PORT.get_or_init(listen)
}

struct Host {
    run: String,
    fleet: Local,
    tasks: Tasks,
    service: FileService,
    messages: SyncSender<FromHost>,
    logs: Logs,
    /// By number here, what the controller calls each process.
    processes: BTreeMap<u32, u32>,
    /// Agents that have ended and whose logs are still on their way.
    ended: Vec<Exit>,
    is_alone: bool,
}

impl Host {
    fn work(&mut self, inbox: &Receiver<ToHost>, clock: &dyn Clock) -> Leave {
        let (mut heard, mut alive, mut logged) = (clock.now(), Duration::ZERO, Duration::ZERO);
        loop {
            match inbox.recv_timeout(LOOK_EVERY) {
                Ok(ToHost::End) => return Leave::Told,
                Err(RecvTimeoutError::Disconnected) => return Leave::Gone,
                Ok(ToHost::Detach { orders, next }) => return self.detach(orders, next),
                Ok(message) => {
                    heard = clock.now();
                    self.obey(message);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.reap();
            let now = clock.now();
            if now - logged >= LOGS_EVERY {
                logged = now;
                self.pass_logs();
            }
            if now - alive >= ALIVE_EVERY {
                alive = now;
                // Where messages wait the controller does not read, and its lease will tell.
                let _ = self.messages.try_send(FromHost::Alive);
            }
            if now - heard >= LEASE {
                return Leave::Gone;
            }
        }
    }

    fn obey(&mut self, message: ToHost) {
        match message {
            ToHost::Start { process, agent, orders } => {
                let started = self.fleet.start_with(agent, &self.run, orders);
                match started {
                    Ok(started) => {
                        self.processes.insert(started.pid, process);
                        self.tell(AgentNews::Started { process, pid: started.pid });
                    }
                    Err(e) => self.tell(AgentNews::NotStarted { process, why: e.to_string() }),
                }
            }
            ToHost::Say { process, line } => {
                for (pid, _) in self.processes.iter().filter(|(_, known)| **known == process) {
                    self.fleet.say(*pid, &line);
                }
            }
            ToHost::Kill { process } => {
                for (pid, _) in self.processes.iter().filter(|(_, known)| **known == process) {
                    self.fleet.kill_process(*pid);
                }
            }
            ToHost::Dismiss { process } => {
                for (pid, _) in self.processes.iter().filter(|(_, known)| **known == process) {
                    self.fleet.dismiss(*pid);
                }
            }
            ToHost::Reach { addresses } => self.tasks.reach(addresses),
            ToHost::Put { task, path, mode, piece, is_first, is_last } => {
                let piece = FilePiece { path, mode, bytes: piece, is_first, is_last };
                self.tasks.put(task, piece);
            }
            ToHost::Do { task, mark, command, env, seconds_max } => {
                let within = Duration::from_secs(seconds_max);
                self.tasks.run(task, ShellCommand { mark, command, env, within });
            }
            ToHost::Done { task, mark } => self.tasks.is_done(task, &mark),
            ToHost::Ask { task, ask } => match ask {
                Ask::Ports { .. } | Ask::Release { .. } | Ask::Meets { .. } | Ask::Peers { .. } => {
                    self.tasks.look(task, ask);
                }
                Ask::IsIntact { .. } | Ask::Seal { .. } => self.tasks.made(task, ask),
                about_files => self.service.ask(task, about_files),
            },
            ToHost::Alive | ToHost::End | ToHost::Detach { .. } => {}
        }
    }

    /// Says that it becomes another process, and where that is called. Where it cannot be, the end
    /// of the channel is the answer.
    fn detach(&self, orders: Vec<u8>, next: Next) -> Leave {
        let is_called = next != Next::Host;
        let listener = is_called.then(|| TcpListener::bind(("0.0.0.0", 0))).transpose();
        let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
        let Ok(listener) = listener else { return Leave::Gone };
        let Ok(port) = listener.as_ref().map(port).transpose() else { return Leave::Gone };
        self.say(FromHost::Detaching { port: port.unwrap_or(0) });
        Leave::Detach(Detaching { orders, next, listener })
    }

    /// Tells of agents that have ended, after all that they logged.
    fn reap(&mut self) {
        let exits = self.fleet.exits(Duration::ZERO);
        if !exits.is_empty() {
            self.end_orphans();
            self.ended.extend(exits);
        }
        if self.ended.is_empty() {
            return;
        }
        let behind = self.pass_logs();
        let (waiting, over): (Vec<Exit>, Vec<Exit>) = std::mem::take(&mut self.ended)
            .into_iter()
            .partition(|exit| behind.contains(&exit.agent));
        self.ended = waiting;
        for Exit { pid, ending, .. } in over {
            if let Some(process) = self.processes.remove(&pid) {
                self.tell(AgentNews::Ended { process, ending });
            }
        }
    }

    fn end_orphans(&self) {
        if self.is_alone {
            guard::end_orphans();
        }
    }

    /// Passes on what fits; says of whom there is more.
    fn pass_logs(&mut self) -> BTreeSet<Agent> {
        let Self { logs, messages, .. } = self;
        let pass = |agent, bytes| {
            let sent = messages.try_send(FromHost::Agent(AgentNews::Log { agent, bytes }));
            // Where the channel is closed there is nothing to keep it for.
            !matches!(sent, Err(TrySendError::Full(_)))
        };
        logs.pass(pass)
    }

    /// Passes on all that is left, for a bounded time; what is not passed on is told.
    fn pass_last_logs(&mut self) {
        for _ in 0..LAST_LOOKS {
            if self.pass_logs().is_empty() {
                return;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
        for agent in self.pass_logs() {
            let left = self.logs.left(agent);
            let bytes = format!("\nplanaria: not passed on of what it wrote last: {left} bytes\n");
            self.tell(AgentNews::Log { agent, bytes: bytes.into_bytes() });
        }
    }

    fn tell(&self, news: AgentNews) {
        self.say(FromHost::Agent(news));
    }

    /// Words are few and short; where none can be written the other end is gone, and the reading
    /// thread or the lease sees it.
    fn say(&self, message: FromHost) {
        let mut message = message;
        for _ in 0..LEASE.as_millis() / LOOK_EVERY.as_millis() {
            match self.messages.try_send(message) {
                Err(TrySendError::Full(back)) => message = back,
                _ => return,
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    fn end(&mut self) {
        self.tasks.end();
        self.fleet.hang_up();
        drop(self.fleet.end(END_WITHIN));
        self.end_orphans();
        // Where agents worked; all have ended.
        self.service.end();
        self.pass_last_logs();
    }
}

fn listen(mut reading: impl Read, heard: &SyncSender<ToHost>) {
    // What cannot be understood ends the channel like its end.
    while let Ok(Some(message)) = read_message(&mut reading) {
        if heard.send(message).is_err() {
            return;
        }
    }
}

fn talk(mut writing: impl Write, messages: &Receiver<FromHost>) {
    while let Ok(message) = messages.recv() {
        let is_last = message == FromHost::Bye;
        if write_message(&mut writing, &message).is_err() || is_last {
            return;
        }
    }
}

/// What agents have logged, and how much of it was passed on.
struct Logs {
    folder: PathBuf,
    read: BTreeMap<Agent, u64>,
    /// Whose turn was the last: the next is another's, so that one that writes without end keeps no
    /// other waiting.
    served: Option<Agent>,
}

impl Logs {
    /// Passes on what is new, a piece of each at a time, as long as it is taken. Says of whom there
    /// is more.
    fn pass(&mut self, mut take: impl FnMut(Agent, Vec<u8>) -> bool) -> BTreeSet<Agent> {
        let mut behind = self.agents();
        while !behind.is_empty() {
            let after = self.served.map_or(Bound::Unbounded, Bound::Excluded);
            let next = behind.range((after, Bound::Unbounded)).next().or_else(|| behind.first());
            let Some(agent) = next.copied() else { break };
            let at = self.read.entry(agent).or_default();
            match piece(&log_of(&self.folder, agent), *at) {
                Ok(bytes) if !bytes.is_empty() => {
                    let read = bytes.len() as u64;
                    if !take(agent, bytes) {
                        return behind;
                    }
                    *at += read;
                }
                _ => drop(behind.remove(&agent)),
            }
            self.served = Some(agent);
        }
        behind
    }

    /// Bytes of an agent's log that were not passed on.
    fn left(&self, agent: Agent) -> u64 {
        let length = fs::metadata(log_of(&self.folder, agent)).map_or(0, |meta| meta.len());
        length.saturating_sub(self.read.get(&agent).copied().unwrap_or(0))
    }

    fn agents(&self) -> BTreeSet<Agent> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let agent = |name: &str| Agent::named(name.strip_suffix(".log")?);
        entries.filter_map(|entry| agent(entry.file_name().to_str()?)).collect()
    }
}

fn log_of(folder: &Path, agent: Agent) -> PathBuf {
    folder.join(format!("{agent}.log"))
}

fn piece(path: &Path, at: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(PIECE_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Name of the file, in a run's folder on a machine, with the number of the host's process while it
/// serves a controller.
const PID_FILE: &str = "host.pid";

/// Whether a host serves a controller, by the run's folder on this machine.
pub fn is_linked(run: &Path) -> bool {
    let pid = fs::read_to_string(run.join(PID_FILE)).ok().and_then(|pid| pid.parse::<u32>().ok());
    // What a killed one has left says nothing.
    pid.is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

/// The host's folder on its machine, gone when this is dropped.
struct Folder {
    path: PathBuf,
    run: PathBuf,
    pid_file: PathBuf,
}

impl Folder {
    fn make(home: &Path, run: &str) -> io::Result<Self> {
        let own = std::process::id();
        let run_folder = home.join("runs").join(run);
        let path = run_folder.join(format!("host-{own}"));
        fs::create_dir_all(&path)?;
        // For its user alone: logs, outputs, and the socket of a tunnel.
        fs::set_permissions(&run_folder, fs::Permissions::from_mode(0o700))?;
        let pid_file = run_folder.join(PID_FILE);
        fs::write(&pid_file, own.to_string())?;
        Ok(Self { path, run: run_folder, pid_file })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed goes when the machine is given back.
        let _ = fs::remove_dir_all(&self.path);
        let own = std::process::id().to_string();
        if fs::read_to_string(&self.pid_file).is_ok_and(|pid| pid == own) {
            let _ = fs::remove_file(&self.pid_file);
        }
        let _ = fs::remove_dir(&self.run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_taken_comes_later_and_no_agent_waits_for_another() {
        let folder = tempfile::tempdir().unwrap();
        let (loud, quiet) = (Agent::Task(0), Agent::Task(1));
        fs::write(log_of(folder.path(), loud), vec![b'x'; 5 * PIECE_BYTES + 7]).unwrap();
        fs::write(log_of(folder.path(), quiet), "word").unwrap();
        let mut logs =
            Logs { folder: folder.path().to_path_buf(), read: BTreeMap::new(), served: None };
        let mut got: BTreeMap<Agent, usize> = BTreeMap::new();
        // There is room for one piece at a time.
        let mut behind = BTreeSet::from([loud, quiet]);
        let mut looks = 0;
        while !behind.is_empty() {
            let mut room = 1;
            behind = logs.pass(|agent, bytes| {
                let is_taken = room > 0;
                room -= i32::from(is_taken);
                *got.entry(agent).or_default() += if is_taken { bytes.len() } else { 0 };
                is_taken
            });
            looks += 1;
            assert!(looks <= 8, "{got:?}");
            assert!(looks < 3 || got.get(&quiet) == Some(&4), "its word is not behind: {got:?}");
        }
        assert_eq!(got, BTreeMap::from([(loud, 5 * PIECE_BYTES + 7), (quiet, 4)]));
        assert_eq!((logs.left(loud), logs.left(quiet)), (0, 0));
    }
}
