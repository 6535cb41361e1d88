//! The host's process: takes messages from its channel, and does what they say until the channel ends.
//!
//! Owns the agents of one machine, and a folder there that is gone when it ends. Ends when the
//! channel does, when it is told to, or when it has heard nothing for [`LEASE`]; all that it started
//! ends with it. Never decides what runs.

use crate::files::service::FileService;
use crate::guard;
use crate::host::tasks::{FilePiece, ShellCommand, Tasks};
use crate::local::{Exit, Local};
use crate::messages::questions::Ask;
use crate::messages::{
    AgentNews, FromHost, Hello, PIECE_BYTES, ToHost, read_message, write_message,
};
use planaria_protocol::clock::Clock;
use planaria_protocol::message::Agent;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Without a message for so long, the controller is gone.
pub const LEASE: Duration = Duration::from_secs(30);
/// How often ended agents and their logs are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often logs are passed on, and how often the host says that it lives.
const LOGS_EVERY: Duration = Duration::from_millis(200);
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// Words that may wait to be written.
const MESSAGES_MAX: usize = 256;
/// How long agents may take to end by themselves when all is over.
const FAREWELL: Duration = Duration::from_millis(500);

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
    /// Where it is called, if it is the run's controller.
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
    let tasks = Tasks::new(&home, &place.path, messages.clone());
    let service = FileService::open(&home, &place.run, messages.clone())?;
    let logs = Logs { folder: logs, read: BTreeMap::new() };
    let processes = BTreeMap::new();
    let mut host = Host { run, fleet, tasks, service, messages, logs, processes, is_alone };
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
    is_alone: bool,
}

impl Host {
    fn work(&mut self, inbox: &Receiver<ToHost>, clock: &dyn Clock) -> Leave {
        let (mut heard, mut alive, mut logged) = (clock.now(), Duration::ZERO, Duration::ZERO);
        loop {
            match inbox.recv_timeout(LOOK_EVERY) {
                Ok(ToHost::End) => return Leave::Told,
                Err(RecvTimeoutError::Disconnected) => return Leave::Gone,
                Ok(ToHost::Detach { orders, controls }) => return self.detach(orders, controls),
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
                Ask::Ports { .. } | Ask::Release { .. } | Ask::Meets { .. } => {
                    self.tasks.look(task, ask);
                }
                about_files => self.service.ask(task, about_files),
            },
            ToHost::Alive | ToHost::End | ToHost::Detach { .. } => {}
        }
    }

    /// Says that it becomes another process, and where that is called. Where it cannot be, the end
    /// of the channel is the answer.
    fn detach(&self, orders: Vec<u8>, controls: bool) -> Leave {
        let listener = controls.then(|| TcpListener::bind(("0.0.0.0", 0))).transpose();
        let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
        let Ok(listener) = listener else { return Leave::Gone };
        let Ok(port) = listener.as_ref().map(port).transpose() else { return Leave::Gone };
        self.say(FromHost::Detaching { port: port.unwrap_or(0) });
        Leave::Detach(Detaching { orders, listener })
    }

    /// Tells of agents that have ended, after all that they logged.
    fn reap(&mut self) {
        let exits = self.fleet.exits(Duration::ZERO);
        if !exits.is_empty() {
            self.pass_logs();
            self.end_orphans();
        }
        for Exit { pid, ending, .. } in exits {
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

    fn pass_logs(&mut self) {
        let Self { logs, messages, .. } = self;
        let pass = |agent, bytes| {
            messages.try_send(FromHost::Agent(AgentNews::Log { agent, bytes })).is_ok()
        };
        logs.pass(pass);
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
        drop(self.fleet.end(FAREWELL));
        self.end_orphans();
        // Where agents worked; all have ended.
        self.service.end();
        self.pass_logs();
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
}

impl Logs {
    /// Passes on what is new, a piece at a time, as long as it is taken.
    fn pass(&mut self, mut take: impl FnMut(Agent, Vec<u8>) -> bool) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let agent = name.to_str().and_then(|name| Agent::named(name.strip_suffix(".log")?));
            let Some(agent) = agent else { continue };
            let at = self.read.entry(agent).or_default();
            while let Ok(bytes) = piece(&entry.path(), *at) {
                let read = bytes.len() as u64;
                if read == 0 || !take(agent, bytes) {
                    break;
                }
                *at += read;
            }
        }
    }
}

fn piece(path: &Path, at: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(PIECE_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
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
        let pid_file = run_folder.join("host.pid");
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
