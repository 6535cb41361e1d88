//! `planaria agent host RUN`: the one process of a controller on a machine of its pool.
//!
//! Owns what the machine is; the work is in [`planaria_fleet::host::serve`]. Its standard input and
//! output are the channel, so nothing else may write to them. Of a detached run it becomes a process
//! without a channel: one that calls the run's controller, and may succeed it, or is it.

use crate::machine::{disk_free_bytes, gateway, interfaces};
use crate::memory::usable_bytes;
use planaria_fleet::files::copy;
use planaria_fleet::home::{FOLDER, user_home};
use planaria_fleet::host::calling::{Calling, Reached};
use planaria_fleet::host::carried;
use planaria_fleet::host::gpus;
use planaria_fleet::host::serve::{self, Detaching, Leave, Setting};
use planaria_fleet::host::succeeding::Successor;
use planaria_fleet::local::{OWN, inherited, passed_on};
use planaria_fleet::messages::{Hello, Next, VERSION};
use planaria_fleet::provider::{Ends, is_name};
use planaria_fleet::providers;
use planaria_protocol::clock::Clock;
use planaria_runs::clock::{self, SystemClock};
use planaria_runs::failure::{Context, Failure, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::de::DeserializeOwned;
use std::fs::{File, read_to_string};
use std::io::{Read, Seek, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a host calls a controller that does not answer, longer than it takes another to succeed
/// it; and for how long where it has a copy of the run, which may be all that is left of it.
const ALONE_MAX: Duration = Duration::from_secs(300);
const ALONE_WITH_COPY_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Time between two calls.
const CALL_EVERY: Duration = Duration::from_millis(500);
/// Longest orders, in bytes.
const ORDERS_BYTES_MAX: u64 = 64 << 20;

/// Serves a controller until it is gone.
pub fn run(run: &str, build: &str) -> Result<()> {
    let (reading, writing) = (std::io::stdin(), std::io::stdout());
    match serve::run(
        setting(run, build, providers::ends())?,
        reading,
        writing,
        &SystemClock::start(),
    ) {
        Ok(Leave::Detach(detaching)) => Err(replace(run, detaching)),
        served => served.map(drop).context(|| "cannot serve as a host".into()),
    }
}

/// Calls a controller and serves it, again and again, until it needs no host any more or is gone for
/// good. `place` is where others call this host, which may succeed the controller then.
pub fn call(run: &str, place: Option<&str>, build: &str) -> Result<()> {
    let calling: Calling = orders()?;
    let clock = SystemClock::start();
    let mut answered = clock.now();
    let folder = user_home().join(FOLDER).join("runs").join(run);
    let mut successor = match place {
        None => None,
        Some(place) => {
            let listener = passed(place)?;
            Successor::new(&calling, listener, &folder).context(|| "cannot listen".into())?
        }
    };
    // It may be all that is left of the run.
    let is_needed = successor.is_some();
    let patience =
        || if is_needed || copy::is_in(&folder) { ALONE_WITH_COPY_MAX } else { ALONE_MAX };
    while clock.now() - answered < patience() {
        // Why it cannot be reached does not matter: it is tried until it is given up.
        if let Ok(Reached { controller, own, sender, receiver }) = calling.call(build) {
            let setting = setting(run, build, Ends { controller: Some(controller), own })?;
            let (reading, writing) = carried::halves(sender.clone(), receiver);
            let served = serve::run(setting, reading, writing, &clock);
            sender.close();
            if let Leave::Told = served.context(|| "cannot serve as a host".into())? {
                return Ok(());
            }
            answered = clock.now();
            successor.iter().for_each(Successor::heard);
        }
        let silent = clock.now() - answered;
        if let Some(due) = successor.take_if(|one| one.is_due(silent, copy::is_in(&folder))) {
            let detaching = due.take_place().context(|| "cannot succeed the controller".into())?;
            return Err(replace(run, detaching));
        }
        std::thread::park_timeout(CALL_EVERY);
    }
    Ok(())
}

/// The place to listen that a process was given.
pub fn passed(place: &str) -> Result<TcpListener> {
    let listener = inherited(place).ok_or_else(|| Failure::user("there is no place to listen"))?;
    listener.context(|| "cannot listen".into())
}

/// Reads one JSON document from standard input, to its end.
pub fn orders<T: DeserializeOwned>() -> Result<T> {
    let mut text = Vec::new();
    let read = std::io::stdin().lock().take(ORDERS_BYTES_MAX).read_to_end(&mut text);
    read.context(|| "cannot read orders from standard input".into())?;
    serde_json::from_slice(&text)
        .map_err(|e| Failure::user(format!("standard input holds no orders: {e}")))
}

/// Becomes the process that a host is told to become: same number, no channel. Returns only where
/// that fails.
fn replace(run: &str, detaching: Detaching) -> Failure {
    let Detaching { orders, next, listener } = detaching;
    let mut command = Command::new(OWN);
    command.arg0(std::env::args_os().next().unwrap_or_default()).args(["agent", "host", run]);
    let mut replaced = || -> std::io::Result<()> {
        // A file without a name, so that no other process can read the orders.
        let mut file = File::from(memfd_create("orders", MemfdFlags::CLOEXEC)?);
        file.write_all(&orders)?;
        file.rewind()?;
        command.arg(if next == Next::Controller { "--control" } else { "--dial" });
        if let Some(listener) = &listener {
            command.args(["--at", &passed_on(listener)?]);
        }
        // The command that started it may end now, and so may the one that started that.
        rustix::process::set_parent_process_death_signal(None)?;
        command.stdin(file).stdout(Stdio::null()).stderr(Stdio::null());
        Err(command.exec())
    };
    let why = replaced().err();
    Failure::failed(format!("cannot go on without a channel: {why:?}"))
}

fn setting(run: &str, build: &str, ends: Ends) -> Result<Setting> {
    if !is_name(run) {
        return Err(Failure::user(format!("`{run}` cannot be the name of a run")));
    }
    let home = user_home().join(FOLDER);
    std::fs::create_dir_all(&home).context(|| format!("cannot create `{}`", home.display()))?;
    let hello = hello(&home, build, ends);
    Ok(Setting { program: OWN.into(), run: run.to_owned(), home, hello, is_alone: true })
}

fn hello(home: &Path, build: &str, ends: Ends) -> Hello {
    let Ends { controller, own } = ends;
    let others = interfaces().into_iter().filter(|address| Some(address) != own.as_ref());
    let addresses = own.iter().cloned().chain(others).collect();
    Hello {
        version: VERSION,
        build: build.into(),
        pid: std::process::id(),
        hostname: read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().into(),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        gpus: gpus::count(),
        memory_bytes: usable_bytes().unwrap_or(0),
        disk_free_bytes: disk_free_bytes(home).unwrap_or(u64::MAX),
        unix_seconds: clock::unix_seconds(),
        addresses,
        controller: controller.or_else(gateway),
        folder: String::new(),
        probe: None,
    }
}
