//! Processes on this machine: children of the command, told what to do through their standard
//! input, gone when it is.
//!
//! A child lives no longer than the pipe to it: it reads its standard input to the end and then
//! ends itself, so that nothing is left however this process ends. The kernel sees to it also where
//! a child cannot, because it is stopped or stuck. Each child is a process group of its own, so that
//! Ctrl-C reaches only the command.

use crate::Error;
use crate::ending::Ending;
use crate::oom::Kills;
use crate::process::{self, Signal, die_with, wait_without_reaping};
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Agent;
use planaria_protocol::standing::WORD_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::marker::PhantomData;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What every pipe holds without being asked to.
const PIPE_BYTES: usize = 60_000;

/// The program that this process is, even if its file has become another since.
pub const OWN: &str = "/proc/self/exe";
/// What a process of it is called.
const OWN_NAME: &str = "planaria";

/// A child that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    pub agent: Agent,
    pub pid: u32,
    pub ending: Ending,
}

impl Exit {
    /// Whether it ended as it should.
    pub fn is_well(&self) -> bool {
        self.ending.is_well()
    }

    /// How it ended, in words.
    pub fn how(&self) -> String {
        self.ending.to_string()
    }
}

/// A child that was started.
#[derive(Debug)]
pub struct Started {
    pub pid: u32,
    /// Of the coordinator, which says on it where it listens.
    pub stdout: Option<ChildStdout>,
}

/// The children of a command.
///
/// A child is killed when the *thread* that started it ends, not the process: that is how the kernel
/// counts (`PR_SET_PDEATHSIG`). So all are started from the one thread that supervises, which lives
/// as long as the run, and a fleet cannot be sent to another.
pub struct Local {
    program: PathBuf,
    logs: PathBuf,
    children: Vec<Running>,
    /// Where coordinators listen, one after another.
    listener: Option<TcpListener>,
    /// Variables that no child inherits.
    hidden: Vec<String>,
    exits: Receiver<Exit>,
    announce: Sender<Exit>,
    kills: Arc<Kills>,
    stays_on_its_thread: PhantomData<*const ()>,
}

struct Running {
    agent: Agent,
    pid: u32,
    /// Whether it has been waited for: then its number may be another's.
    reaped: Arc<Mutex<bool>>,
    /// Open for as long as the child is to live.
    stdin: Option<ChildStdin>,
}

impl Local {
    /// Starts `program` for every child, with logs in a folder.
    pub fn new(program: &Path, logs: &Path) -> Self {
        process::hear_of_children();
        let (announce, exits) = channel();
        Self {
            program: program.to_path_buf(),
            logs: logs.to_path_buf(),
            children: Vec::new(),
            listener: None,
            hidden: Vec::new(),
            exits,
            announce,
            kills: Arc::default(),
            stays_on_its_thread: PhantomData,
        }
    }

    /// No child is to inherit these variables: they hold secrets.
    pub fn hide(&mut self, variables: Vec<String>) {
        self.hidden = variables;
    }

    /// Holds the place where coordinators listen, so that no other process takes it while none
    /// lives; each inherits it. Returns what to tell them ([`inherited`]).
    pub fn hold(&mut self, listener: TcpListener) -> String {
        let word = format!("{INHERITED}{}", listener.as_raw_fd());
        self.listener = Some(listener);
        word
    }

    /// Starts a child for `run` and tells it what to do. It may take the place of one that has
    /// ended; its log goes on in the same file.
    pub fn start(&mut self, agent: Agent, run: &str, launch: &Launch) -> Result<Started, Error> {
        let orders =
            serde_json::to_vec(launch).map_err(|e| Error::Start { agent, why: e.into() })?;
        self.start_with(agent, run, orders)
    }

    /// The same with orders that are written out already.
    pub fn start_with(
        &mut self,
        agent: Agent,
        run: &str,
        mut orders: Vec<u8>,
    ) -> Result<Started, Error> {
        let path = self.logs.join(format!("{agent}.log"));
        // What a user's script writes may be anything.
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let log = log.map_err(|why| Error::Log { path: path.display().to_string(), why })?;
        let started = |why| Error::Start { agent, why };
        let mut command = Command::new(&self.program);
        if self.program == Path::new(OWN) {
            command.arg0(OWN_NAME);
        }
        command.arg("agent");
        for name in &self.hidden {
            command.env_remove(name);
        }
        match agent {
            // Consoles, hosts and controllers are started otherwise.
            Agent::Coordinator | Agent::Console | Agent::Host | Agent::Controller => {
                command.arg("coordinator")
            }
            Agent::Server(n) => command.args(["server", &n.to_string()]),
            Agent::Worker(n) => command.args(["worker", &n.to_string()]),
            Agent::Task(n) => command.args(["task", &n.to_string()]),
        };
        let stdout = match agent {
            Agent::Coordinator => Stdio::piped(),
            _ => log.try_clone().map_err(started)?.into(),
        };
        command.arg(run).stdin(Stdio::piped()).stdout(stdout).stderr(log).process_group(0);
        let parent = std::process::id();
        let held = self.listener.as_ref().filter(|_| agent == Agent::Coordinator);
        let held = held.map(AsRawFd::as_raw_fd);
        // SAFETY: between fork and exec only system calls are made, which allocate nothing.
        unsafe {
            command.pre_exec(move || match agent {
                // A guard ends its script first; the end of its pipe tells it to.
                Agent::Task(_) => Ok(()),
                _ => die_with(parent).and_then(|()| pass_on(held)),
            });
        }
        self.kills.begin();
        let mut child = command.spawn().map_err(started)?;
        let (pid, stdin, stdout) = (child.id(), child.stdin.take(), child.stdout.take());
        self.watch(agent, child, stdin).map_err(started)?;
        orders.push(b'\n');
        self.tell(&orders).map_err(started)?;
        Ok(Started { pid, stdout })
    }

    /// Children that have ended since the last time, waiting for one at most so long.
    pub fn exits(&mut self, wait: Duration) -> Vec<Exit> {
        let first = match wait.is_zero() {
            true => self.exits.try_recv().ok(),
            false => self.exits.recv_timeout(wait).ok(),
        };
        let exits: Vec<Exit> = first.into_iter().chain(self.exits.try_iter()).collect();
        if !exits.is_empty() {
            self.children.retain(|child| !child.is_reaped());
        }
        exits
    }

    /// Children that have not been seen to end.
    pub fn running(&self) -> usize {
        self.children.iter().filter(|c| !c.is_reaped()).count()
    }

    /// Ends one child at once, if it is this process; [`Local::exits`] tells when it has ended.
    pub fn kill(&self, agent: Agent, pid: u32) {
        let same = |child: &&Running| (child.agent, child.pid) == (agent, pid);
        self.children.iter().filter(same).for_each(Running::kill);
    }

    /// Ends the child of this number at once.
    pub fn kill_process(&self, pid: u32) {
        self.children.iter().filter(|child| child.pid == pid).for_each(Running::kill);
    }

    /// Children that have not been seen to end.
    pub fn processes(&self) -> Vec<(Agent, u32)> {
        let living = self.children.iter().filter(|child| !child.is_reaped());
        living.map(|child| (child.agent, child.pid)).collect()
    }

    /// Writes a line to the child of this number, if its pipe takes it at once: one that does not
    /// read is stopped or stuck, and is not waited for.
    pub fn say(&mut self, pid: u32, line: &[u8]) {
        let child = self.children.iter_mut().find(|child| child.pid == pid);
        let Some(stdin) = child.and_then(|child| child.stdin.as_mut()) else { return };
        let is_room = {
            let mut room = [PollFd::new(&*stdin, PollFlags::OUT)];
            poll(&mut room, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        };
        if is_room && line.len() <= WORD_BYTES_MAX {
            // One that has ended already is noticed by its exit.
            let _ = stdin.write_all(line);
        }
    }

    /// Tells the child of this number that it is not needed any more: it ends by itself.
    pub fn dismiss(&mut self, pid: u32) {
        let child = self.children.iter_mut().find(|child| child.pid == pid);
        child.into_iter().for_each(|child| child.stdin = None);
    }

    /// Tells all children that they are not needed any more: they end by themselves.
    pub fn hang_up(&mut self) {
        self.children.iter_mut().for_each(|child| child.stdin = None);
    }

    /// Waits for all children to end by themselves, kills those that do not in time, and says how
    /// those ended that did.
    pub fn end(&mut self, patience: Duration) -> Vec<Exit> {
        let mut exits = Vec::new();
        while self.running() > 0 {
            let more = self.exits(patience);
            if more.is_empty() {
                break;
            }
            exits.extend(more);
        }
        exits.extend(self.exits(Duration::ZERO));
        self.kill_all();
        exits
    }

    /// Kills all that are left and waits for them; [`Local::exits`] does not tell of these.
    pub fn kill_all(&mut self) {
        for child in &mut self.children {
            child.stdin = None;
            child.kill();
        }
        while self.running() > 0 {
            // Nothing stops SIGKILL; a child in the middle of a system call takes a moment.
            if self.exits(Duration::from_secs(10)).is_empty() {
                break;
            }
        }
        // That those have ended is no news.
        drop(self.exits(Duration::ZERO));
    }

    /// Writes the newest child's orders; a child that ended already is noticed by its exit.
    fn tell(&mut self, line: &[u8]) -> std::io::Result<()> {
        let Some(stdin) = self.children.last_mut().and_then(|c| c.stdin.as_mut()) else {
            return Ok(());
        };
        if line.len() > PIPE_BYTES {
            // So that it is written at once, even to a child that is stopped. Where the system
            // refuses, the child has to read.
            let _ = rustix::pipe::fcntl_setpipe_size(&*stdin, line.len() + 4096);
        }
        match stdin.write_all(line) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
            told => told,
        }
    }

    fn watch(
        &mut self,
        agent: Agent,
        mut child: Child,
        stdin: Option<ChildStdin>,
    ) -> std::io::Result<()> {
        let (pid, reaped) = (child.id(), Arc::new(Mutex::new(false)));
        let (announce, kills) = (self.announce.clone(), self.kills.clone());
        let known = reaped.clone();
        let wait = move || {
            wait_without_reaping(pid);
            let mut reaped = reaped.lock().expect("no thread panics with a child");
            let status = child.wait();
            *reaped = true;
            // Before the lock is released: where nothing runs, every exit must be there.
            if let Ok(status) = status {
                // The receiver is gone with the fleet.
                let _ = announce.send(Exit { agent, pid, ending: kills.explain(status.into()) });
            }
        };
        let waiting = std::thread::Builder::new().name(format!("wait-{agent}")).spawn(wait);
        if let Err(error) = waiting {
            // Its end would not be seen. It has been told nothing yet, and its number is its own.
            process::kill_and_reap(pid);
            return Err(error);
        }
        self.children.push(Running { agent, pid, reaped: known, stdin });
        Ok(())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.kill_all();
    }
}

impl Running {
    fn is_reaped(&self) -> bool {
        *self.reaped.lock().expect("no thread panics with a child")
    }

    fn kill(&self) {
        let reaped = self.reaped.lock().expect("no thread panics with a child");
        if !*reaped {
            // The child has not been waited for, so the number is still its own.
            process::signal(self.pid, Signal::KILL);
        }
    }
}

/// What a coordinator is told that inherits where it listens; its descriptor follows.
const INHERITED: &str = "descriptor ";

/// In a coordinator: the place where it listens, if it was passed on under this word.
pub fn inherited(word: &str) -> Option<std::io::Result<TcpListener>> {
    use std::os::fd::FromRawFd;
    let descriptor: RawFd = word.strip_prefix(INHERITED)?.parse().ok()?;
    // SAFETY: it is only asked whether it is open, which fails where it is not.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    if let Err(e) = fcntl_setfd(borrowed, FdFlags::CLOEXEC) {
        return Some(Err(e.into()));
    }
    // SAFETY: it is open, and nothing else in this process knows of it.
    let listener = unsafe { TcpListener::from_raw_fd(descriptor) };
    Some(listener.local_addr().map(|_| listener))
}

/// Keeps a place to listen open over exec, and says under which word it is passed on.
pub fn passed_on(listener: &TcpListener) -> std::io::Result<String> {
    pass_on(Some(listener.as_raw_fd()))?;
    Ok(format!("{INHERITED}{}", listener.as_raw_fd()))
}

/// In the child: keeps a descriptor open over exec.
fn pass_on(descriptor: Option<RawFd>) -> std::io::Result<()> {
    let Some(descriptor) = descriptor else { return Ok(()) };
    // SAFETY: the caller holds it open meanwhile.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    fcntl_setfd(borrowed, FdFlags::empty())?;
    Ok(())
}

#[cfg(test)]
mod tests;
