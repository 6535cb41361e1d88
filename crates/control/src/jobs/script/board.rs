//! TensorBoard on the files that a job brings back.
//!
//! Owns its process, which a guard keeps: it ends with this one. Never reads what it shows.

use planaria_fleet::guard::Orders;
use planaria_fleet::guarded::{Guarded, Guards};
use planaria_runs::failure::{Failure, Result};
use std::fs::OpenOptions;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The program's name.
const NAME: &str = "tensorboard";

/// Poll interval for its end, and how many polls at most.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const ENDING_LOOKS: u32 = 150;
/// How long it may take to end by itself.
const STOP_SECONDS: u64 = 2;

/// A TensorBoard that runs.
pub struct Board {
    guarded: Guarded,
    /// Where a browser reaches it.
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
    pub fn start(
        guards: &Guards,
        program: &Path,
        folder: &Path,
        log: &Path,
    ) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let log =
            OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(log)?;
        let (program, folder) = (program.to_string_lossy(), folder.to_string_lossy());
        let number = port.to_string();
        let words = [&*program, "--logdir", &folder, "--host", "127.0.0.1", "--port", &number];
        let mut orders = Orders { stop_seconds: STOP_SECONDS, ..Orders::command(words, ".") };
        orders.command.extend(["--reload_interval", "2"].map(str::to_owned));
        let guarded = guards.start(&orders, log)?;
        Ok(Self { guarded, address: format!("http://127.0.0.1:{port}/") })
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.guarded.life = None;
        for _ in 0..ENDING_LOOKS {
            if !matches!(self.guarded.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
        // Its guard ends it without this process.
    }
}
