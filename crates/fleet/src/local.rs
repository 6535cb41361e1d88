//! Processes on this machine: children of the command, told what to do through their standard
//! input, gone when it is.
//!
//! A child lives no longer than the pipe to it: it reads its standard input to the end and then
//! ends itself, so that nothing is left however this process ends. Each child is a process group
//! of its own, so that Ctrl-C reaches only the command.

use crate::Error;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Agent;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A child that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Which.
    pub agent: Agent,
    /// Its process.
    pub pid: u32,
    /// How.
    pub status: ExitStatus,
}

impl Exit {
    /// Whether it ended as it should.
    pub fn is_well(&self) -> bool {
        self.status.success()
    }

    /// How it ended, in words.
    pub fn how(&self) -> String {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(libc::SIGKILL)) => "killed by signal 9 (out of memory, or kill -9)".into(),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "ended".into(),
        }
    }
}

/// The children of a command.
pub struct Local {
    program: PathBuf,
    logs: PathBuf,
    children: Vec<Running>,
    exits: Receiver<Exit>,
    announce: Sender<Exit>,
}

struct Running {
    pid: u32,
    /// Whether it has been waited for: then its number may be another's.
    reaped: Arc<Mutex<bool>>,
    stdin: Option<ChildStdin>,
}

impl Local {
    /// Starts `program` for every child, with logs in a folder.
    pub fn new(program: &Path, logs: &Path) -> Self {
        // Where it is ignored, as it may be inherited, nobody could wait for a child.
        // SAFETY: the default disposition runs no code of ours.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        let (announce, exits) = channel();
        let (program, logs) = (program.to_path_buf(), logs.to_path_buf());
        Self { program, logs, children: Vec::new(), exits, announce }
    }

    /// Starts a child for `run` and tells it what to do. The coordinator's standard output comes
    /// back, on which it says where it listens.
    pub fn start(
        &mut self,
        agent: Agent,
        run: &str,
        launch: &Launch,
    ) -> Result<Option<ChildStdout>, Error> {
        let path = self.logs.join(format!("{agent}.log"));
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(|why| Error::Log { path: path.display().to_string(), why })?;
        let started = |why| Error::Start { agent, why };
        let mut command = Command::new(&self.program);
        command.arg("agent");
        match agent {
            Agent::Coordinator | Agent::Console => command.arg("coordinator"),
            Agent::Server(n) => command.args(["server", &n.to_string()]),
            Agent::Worker(n) => command.args(["worker", &n.to_string()]),
        };
        let stdout = match agent {
            Agent::Coordinator => Stdio::piped(),
            _ => log.try_clone().map_err(started)?.into(),
        };
        command.arg(run).stdin(Stdio::piped()).stdout(stdout).stderr(log).process_group(0);
        let mut child = command.spawn().map_err(started)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        self.watch(agent, child, stdin).map_err(started)?;
        self.tell(launch).map_err(started)?;
        Ok(stdout)
    }

    /// Children that have ended since the last time, waiting for one at most so long.
    pub fn exits(&self, wait: Duration) -> Vec<Exit> {
        let first = match wait.is_zero() {
            true => self.exits.try_recv().ok(),
            false => self.exits.recv_timeout(wait).ok(),
        };
        first.into_iter().chain(self.exits.try_iter()).collect()
    }

    /// Children that have not been seen to end.
    pub fn running(&self) -> usize {
        self.children.iter().filter(|c| !c.is_reaped()).count()
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
        self.kill();
        exits
    }

    /// Ends whatever is left, at once, and waits for it; [`Local::exits`] does not tell of these.
    pub fn kill(&mut self) {
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
    fn tell(&mut self, launch: &Launch) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(launch)?;
        line.push(b'\n');
        let stdin = self.children.last_mut().and_then(|c| c.stdin.as_mut());
        match stdin.map_or(Ok(()), |stdin| stdin.write_all(&line)) {
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
        self.children.push(Running { pid, reaped: reaped.clone(), stdin });
        let announce = self.announce.clone();
        let wait = move || {
            wait_without_reaping(pid);
            let mut reaped = reaped.lock().expect("no thread panics with a child");
            let status = child.wait();
            *reaped = true;
            // Before the lock is let go: whoever sees that nothing runs must find every exit.
            if let Ok(status) = status {
                // Nobody listens any more when the fleet is gone.
                let _ = announce.send(Exit { agent, pid, status });
            }
        };
        std::thread::Builder::new().name(format!("wait-{agent}")).spawn(wait).map(drop)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Running {
    fn is_reaped(&self) -> bool {
        *self.reaped.lock().expect("no thread panics with a child")
    }

    fn kill(&self) {
        let reaped = self.reaped.lock().expect("no thread panics with a child");
        if !*reaped {
            // SAFETY: the child has not been waited for, so the number is still its own.
            unsafe { libc::kill(self.pid as libc::pid_t, libc::SIGKILL) };
        }
    }
}

/// Waits until a child has ended and leaves its number taken.
fn wait_without_reaping(pid: u32) {
    loop {
        // SAFETY: zeroed is a valid `siginfo_t`, and the call only writes to it.
        let failed = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT) != 0
        };
        let interrupted =
            failed && std::io::Error::last_os_error().kind() == ErrorKind::Interrupted;
        if !interrupted {
            return;
        }
    }
}
