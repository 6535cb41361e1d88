//! `planaria agent host RUN --control --at WHERE`: the controller of a detached run, on one of its
//! machines; or the one that succeeds it there.
//!
//! Owns the run's folder there, takes the calls of the machines' hosts and trains with them as any
//! command does with the machines of its pool, or resumes from the copies that its machine has. When the run is over it keeps the folder until it is
//! fetched from where the run was started, and ends. Never gives a machine back.

use crate::commands::{detach, train};
use crate::library::Planaria;
use crate::library::resuming::Resuming;
use crate::screen;
use crate::signals;
use planaria_control::agents::host;
use planaria_control::detached::{ENDED, Ended, Orders, succession};
use planaria_control::jobs::Machines;
use planaria_control::stopping;
use planaria_fleet::home::FOLDER;
use planaria_fleet::home::user_home;
use planaria_fleet::host::calling::Calling;
use planaria_fleet::local::OWN;
use planaria_fleet::provider::is_name;
use planaria_fleet::providers::dialled::Dialled;
use planaria_protocol::clock::Clock;
use planaria_protocol::{Credentials, Secret};
use planaria_runs::clock::{Stopwatch, SystemClock};
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir;
use planaria_runs::run_dir::lock::Lock;
use std::fs::{self, DirBuilder};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How long the folder is kept when the run is over.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Poll interval for the end of that.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Trains, and keeps what came of it.
pub fn run(run: &str, place: &str) -> Result<()> {
    if !is_name(run) {
        return Err(Failure::user(format!("`{run}` cannot be the name of a run")));
    }
    let orders: Orders = host::orders()?;
    let listener = host::passed(place)?;
    let home = user_home().join(FOLDER).join("runs").join(run);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&home);
    made.context(|| format!("cannot create `{}`", home.display()))?;
    signals::listen(screen::PLAIN);
    // It lives, from before there is a run's folder to when all is said.
    let lock = Lock::take(&home)?;
    let ended = match control(run, &home, orders, listener) {
        Ok(()) => Ended { exit: 0, message: String::new(), hint: None, is_diagnosis: false },
        Err(failure) => {
            screen::say(&format!("{failure}\n"));
            Ended::of(&failure)
        }
    };
    let text = serde_json::to_vec(&ended).expect("plain strings and numbers");
    run_dir::write(&home.join(ENDED), &text)?;
    drop(lock);
    keep(&home);
    Ok(())
}

/// The folder of a run's controller on its machine, below the one of all that is the run's there.
pub fn folder(home: &Path, run: &str) -> PathBuf {
    home.join(run)
}

/// Trains to the end, however that comes.
fn control(run: &str, home: &Path, orders: Orders, listener: TcpListener) -> Result<()> {
    let Orders { recipe, threads, machines, secret, trust, mut own, succeeds } = orders;
    let port = listener.local_addr().context(|| "cannot listen".into())?.port();
    own.addresses.iter_mut().for_each(|address| *address = format!("{address}:{port}"));
    let secret = Secret::from_hex(&secret).map_err(Failure::failed)?;
    let credentials = Credentials::new(secret, Some(&trust), None).map_err(Failure::failed)?;
    let refused = |why: String| screen::say(&format!("not let in: {why}\n"));
    let dialled =
        Dialled::new(machines, listener, credentials, refused).map_err(Failure::failed)?;
    start_own(run, &own)?;
    let machines = Machines { provider: Arc::new(dialled), own: own.machine.clone() };
    if let Some(lost) = succeeds {
        let run = succession::inherit(home, folder(home, run), &recipe, &lost)?;
        let begin = Some(detach::settle as _);
        let resuming = Resuming { threads, begin, machines: Some(machines), ..Resuming::default() };
        let finished = resuming.run(run, screen::PLAIN, Stopwatch::start())?;
        return train::conclude(finished, false, screen::PLAIN).map(drop);
    }
    let file = home.join("recipe.yaml");
    run_dir::write(&file, recipe.as_bytes())?;
    let mut training = Planaria::from_recipe(file)
        .folder(folder(home, run))
        .machines(machines)
        .talking(screen::PLAIN, Stopwatch::start())
        .beginning(detach::settle);
    if let Some(threads) = threads {
        training = training.threads(threads);
    }
    train::conclude(training.run()?, false, screen::PLAIN).map(drop)
}

/// Starts the host of this machine. It ends when the controller tells it to, or is gone.
fn start_own(run: &str, own: &Calling) -> Result<()> {
    let orders = serde_json::to_vec(own).expect("plain strings");
    let mut command = Command::new(OWN);
    command.arg0(std::env::args_os().next().unwrap_or_default());
    command.args(["agent", "host", run, "--dial"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut start = || {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&orders)?;
        }
        // It is waited for, so that nothing is left of it.
        let wait = move || drop(child.wait());
        std::thread::Builder::new().name("own-host".into()).spawn(wait)
    };
    let started: std::io::Result<_> = start();
    started.map(drop).context(|| "cannot start a host on the controller's machine".into())
}

/// Keeps the folder until it is given back, or too old.
fn keep(home: &Path) {
    let clock = SystemClock::start();
    // A signal that stopped the run is over; the next is meant for this.
    let before = stopping::asked();
    while clock.now() < KEPT && (before || !stopping::asked()) {
        std::thread::park_timeout(LOOK_EVERY);
        if !home.exists() {
            return;
        }
    }
    if clock.now() >= KEPT {
        // What cannot be removed is removed when the machine is given back.
        let _ = fs::remove_dir_all(home);
    }
}
