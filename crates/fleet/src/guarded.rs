//! Programs of others that this process starts, each with a guard around it.
//!
//! Owns the start of the guard and the pipe that is its life. A guard outlives the process that
//! started it for as long as it takes to end the program and all that came of it, so nothing is left
//! also where this process is killed. What the guard itself does is in [`guard`](crate::guard).

use crate::guard::Orders;
use crate::local::OWN;
use crate::process::hear_of_children;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// How guards are started.
#[derive(Debug, Clone)]
pub struct Guards {
    program: PathBuf,
    arguments: Vec<String>,
}

/// A guard that was started.
pub struct Guarded {
    pub child: Child,
    /// Its end asks the guard to end the program.
    pub life: Option<ChildStdin>,
}

impl Guards {
    /// Processes of this program, for a run.
    pub fn new(program: &Path, run: &str) -> Self {
        let arguments = ["agent", "command", run].map(str::to_owned);
        Self { program: program.to_path_buf(), arguments: arguments.into() }
    }

    /// Starts a program with a guard around it; what it writes, both streams, goes to `output`.
    pub fn start(&self, orders: &Orders, output: impl Into<Stdio>) -> io::Result<Guarded> {
        hear_of_children();
        let mut command = Command::new(&self.program);
        if self.program == Path::new(OWN) {
            command.arg0("planaria");
        }
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(output);
        // Signals from a terminal are for this process, which tells the guard.
        let mut child = command.process_group(0).spawn()?;
        let mut life = child.stdin.take();
        let mut line = serde_json::to_vec(orders).map_err(io::Error::other)?;
        line.push(b'\n');
        if let Some(life) = &mut life {
            life.write_all(&line)?;
        }
        Ok(Guarded { child, life })
    }
}

/// What a guard of these does with its streams before it starts anything: its standard error is the
/// program's output, and nothing else may be in it.
pub fn take_streams() -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdout(rustix::stdio::stderr())?)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::guard;
    use crate::process::{self, Signal};
    use std::time::Duration;

    /// Guards that are processes of this test's program.
    pub(crate) fn guards() -> Guards {
        let arguments = ["--exact", "guarded::tests::as_a_guard"].map(str::to_owned);
        Guards { program: std::env::current_exe().unwrap(), arguments: arguments.into() }
    }

    /// Not a test by itself: the guard of others.
    #[test]
    fn as_a_guard() {
        let mut stdin = io::stdin();
        let Ok(orders) = guard::orders(&mut stdin) else { return };
        take_streams().unwrap();
        guard::end_as(guard::run(&orders, stdin));
    }

    /// Not a test by itself: the process that is killed in the one below.
    #[test]
    fn one_that_is_killed() {
        let Some(folder) = std::env::var_os("PLANARIA_TEST_GUARDED") else { return };
        let text = "setsid sh -c 'echo $$ >b.part; mv b.part b; exec sleep 1000' & \
                    echo $$ >a.part; mv a.part a; sleep 1000";
        let orders = Orders::command(["sh", "-c", text], folder.to_str().unwrap());
        let _guarded = guards().start(&orders, Stdio::null()).unwrap();
        // Bounded, should the test that waits for it be gone.
        std::thread::park_timeout(Duration::from_secs(60));
    }

    #[test]
    fn nothing_outlives_a_process_that_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut starter = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "guarded::tests::one_that_is_killed"])
            .env("PLANARIA_TEST_GUARDED", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let read = |name| std::fs::read_to_string(folder.path().join(name)).ok();
        let eventually = |what: &str, is_so: &dyn Fn() -> bool| {
            let waits = (0..2000).any(|_| {
                std::thread::park_timeout(Duration::from_millis(10));
                is_so()
            });
            assert!(waits, "{what}");
        };
        eventually("both run", &|| read("a").is_some() && read("b").is_some());
        let pids = ["a", "b"].map(|name| read(name).unwrap().trim().parse::<u32>().unwrap());
        let is_alive = |pid: &u32| process::all().iter().any(|one| one.pid == *pid);
        assert!(pids.iter().all(is_alive));
        process::signal(starter.id(), Signal::KILL);
        starter.wait().unwrap();
        eventually("the program, and what has left its group, end", &|| !pids.iter().any(is_alive));
    }
}
