//! TensorBoard on the files that a job brings back.
//!
//! Owns its process, which ends with this one. Never reads what it shows.

use planaria_fleet::process::{Signal, end_with_parent, signal_group};
use planaria_runs::failure::{Failure, Result};
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The program's name.
const NAME: &str = "tensorboard";

/// Poll interval for its end, and how many polls at most.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const ENDING_LOOKS: u32 = 100;

/// A TensorBoard that runs.
pub struct Board {
    child: Child,
    /// Where it can be looked at.
    pub address: String,
}

/// The program, on `PATH` or beside the Python there.
pub fn find() -> Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|folder| folder.join(NAME));
    found.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Failure::user(format!("there is no `{NAME}` on PATH here"))
            .hint("install it with `pip install tensorboard`, or leave `tensorboard` out")
    })
}

impl Board {
    /// Starts it on a folder, on a free port of this machine alone.
    pub fn start(program: &Path, folder: &Path, log: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let log = File::create(log)?;
        let mut command = Command::new(program);
        command.arg("--logdir").arg(folder).args(["--host", "127.0.0.1", "--reload_interval", "2"]);
        command.args(["--port", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        end_with_parent(&mut command);
        let child = command.spawn()?;
        Ok(Self { child, address: format!("http://127.0.0.1:{port}/") })
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // The leader has not been waited for, so the group is still its own.
        signal_group(self.child.id(), Signal::TERM);
        for _ in 0..ENDING_LOOKS {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
        signal_group(self.child.id(), Signal::KILL);
        let _ = self.child.wait();
    }
}
