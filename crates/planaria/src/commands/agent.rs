//! `planaria agent …`: a process of a run, started by the command that the user gave.
//!
//! Owns what an agent has in common: it reads its orders and later words from standard input, ends
//! when that ends, and logs to standard error, which is a file. The work is in the coordinator's and the worker's
//! crates.

pub mod controller;

use crate::cli::Role;
use crate::commands::print;
use crate::screen::say;
use planaria_control::agents::{self, Log, coordinator, host, mirror, task};
use planaria_control::data_there;
use planaria_coordinator::serve::Leave;
use planaria_fleet::ending::{ANOTHER, UNFIT};
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Trouble;
use planaria_protocol::standing::{Standing, WORD_BYTES_MAX, Word};
use planaria_runs::clock;
use planaria_runs::failure::{Context, Exit, Failure, Result, plain};
use std::io::{BufRead, Read};
use std::sync::Arc;
use std::time::Duration;

/// How long others wait when the command is gone: the coordinator goes first, or it would write
/// down that it has lost them.
const AFTER_THE_COORDINATOR: Duration = Duration::from_millis(200);

/// Longest orders, in bytes; a recipe is a few thousand.
const ORDERS_BYTES_MAX: u64 = 64 << 20;

/// Runs an agent to its end. What went wrong is in its log.
pub fn run(role: &Role) -> Result<Option<Exit>> {
    // Else it may be called `exe`, after where it was started from.
    let _ = std::fs::write("/proc/self/comm", "planaria");
    if matches!(role, Role::Build) {
        return print(&format!("{}\n", crate::BUILD)).map(|()| None);
    }
    match role {
        Role::Data => return print(&data_there::answer()?).map(|()| None),
        Role::Host { run, control: true, at: Some(place), .. } => {
            return controller::run(run, place).map(|()| None);
        }
        Role::Host { run, dial: true, at, .. } => {
            return host::call(run, at.as_deref(), crate::BUILD).map(|()| None);
        }
        Role::Host { run, .. } => return host::run(run, crate::BUILD).map(|()| None),
        Role::Task { .. } => return task::run(),
        Role::Command { .. } => return task::command(),
        Role::Rendezvous { port } => return task::rendezvous(*port),
        Role::Mirror { folder } => return mirror::run(folder).map(|()| None),
        _ => {}
    }
    let is_coordinator = matches!(role, Role::Coordinator { .. });
    let mut launch = orders(if is_coordinator { Duration::ZERO } else { AFTER_THE_COORDINATOR })?;
    log(&format!("started as process {}, build {}", std::process::id(), crate::BUILD));
    launch.station.given_up.keys().for_each(|machine| log_given_up(machine));
    let asked = std::mem::replace(&mut launch.build, crate::BUILD.into());
    let lines: Log = Arc::new(log);
    let is_on_machine = launch.station.machine.is_some();
    let ended = match role {
        Role::Build
        | Role::Command { .. }
        | Role::Data
        | Role::Host { .. }
        | Role::Mirror { .. }
        | Role::Rendezvous { .. }
        | Role::Task { .. } => Ok(()),
        _ if asked != crate::BUILD => Err(Trouble {
            hint: Some("the program was replaced while the run went on: resume the run".into()),
            ..Trouble::new(format!("this is build {}, and the run's is {asked}", crate::BUILD))
        }),
        Role::Coordinator { .. } => match coordinator::run(launch, &lines) {
            Ok(Leave::Over) => Ok(()),
            Ok(Leave::Restart) => {
                log("ended: another coordinator is to take its place");
                // SAFETY: as in `orders`; everything was said and flushed.
                unsafe { libc::_exit(ANOTHER) };
            }
            Err(trouble) => Err(trouble),
        },
        Role::Server { index, .. } => agents::serve(&launch, *index, lines),
        Role::Worker { index, .. } => agents::work(&launch, *index, lines),
    };
    let is_unfit = ended.as_ref().is_err_and(|trouble| trouble.of_machine && is_on_machine);
    match ended.map_err(Failure::from) {
        Err(failure) if is_unfit => {
            log(&format!("ended: {failure}"));
            // SAFETY: as in `orders`; everything was said and flushed.
            unsafe { libc::_exit(UNFIT) };
        }
        Ok(()) => {
            log("ended: the run is over");
            Ok(None)
        }
        Err(failure) => {
            log(&format!("ended: {failure}"));
            Ok(Some(failure.exit))
        }
    }
}

/// Reads the orders, and watches the pipe they came through: its end is this process' end, however
/// the one that started it has ended.
fn orders(patience: Duration) -> Result<Launch> {
    let mut line = Vec::new();
    std::io::stdin()
        .lock()
        .take(ORDERS_BYTES_MAX)
        .read_until(b'\n', &mut line)
        .context(|| "cannot read orders from standard input".into())?;
    let launch: Launch = serde_json::from_slice(&line).map_err(|e| {
        Failure::user(format!("standard input holds no orders: {e}"))
            .hint("`planaria agent` is started by `planaria train`")
    })?;
    let standing = launch.station.standing.clone();
    let watch = move || {
        hear_words(&mut std::io::stdin().lock(), &standing);
        std::thread::park_timeout(patience);
        log("ended: the command that started it is gone");
        // SAFETY: ends the process without running anything more of it: it may be in the
        // middle of anything, and no process waits for it any longer.
        unsafe { libc::_exit(Exit::Failed.code().into()) };
    };
    std::thread::Builder::new()
        .name("pipe".into())
        .spawn(watch)
        .context(|| "cannot start a thread".into())?;
    Ok(launch)
}

/// Takes in what the process is told while it lives, to the end of the pipe.
fn hear_words(pipe: &mut impl BufRead, standing: &Standing) {
    let mut line = Vec::new();
    while let Ok(1..) = pipe.take(WORD_BYTES_MAX as u64).read_until(b'\n', &mut line) {
        // The line itself is never shown: it may hold a key.
        let heard = serde_json::from_slice(&line).map_err(|e| e.to_string());
        match heard.and_then(|word: Word| {
            standing.hear(&word).map_err(|e| e.to_string())?;
            Ok(word)
        }) {
            Ok(Word::Trust(_)) => log("was given a new certificate"),
            Ok(Word::GivenUp { machine, .. }) => log_given_up(&machine),
            Err(why) => log(&format!("ignored an order that cannot be read: {why}")),
        }
        line.clear();
    }
}

fn log_given_up(machine: &str) {
    log(&format!("{machine} was given up: its certificates are not believed any more"));
}

/// One line in the agent's log.
fn log(text: &str) {
    // A line of the log is one line, also where what is said has several.
    let text = plain(text).replace('\n', " ");
    say(&format!("{} {text}\n", clock::iso8601_millis(clock::unix_seconds())));
}
