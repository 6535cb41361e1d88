//! Ctrl-C, SIGTERM and SIGHUP: the first asks for a clean stop, the second ends the process at once.
//!
//! Owns the signal handler and what it says; whether a stop was asked for is
//! [`stopping`]'s. A signal that was ignored when the process began, as
//! under `nohup` or for a script's background job, stays ignored. Never saves anything; the run loop
//! looks at the flag after each step.

use crate::screen::{self, say};
use planaria_control::jobs::about;
use planaria_control::live::control;
use planaria_control::stopping::{self, Run};
use planaria_control::talk::Talk;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::Exit;
use planaria_runs::run_dir;
use planaria_runs::run_dir::lock;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long a terminal may take to take a line, and a disk to take a note.
const PATIENCE: Duration = Duration::from_millis(200);

/// When the first signal came.
static FIRST: OnceLock<Stopwatch> = OnceLock::new();

/// Signals closer together than this are one: `timeout` sends one to the process and one to its
/// group, and a terminal that is closed sends two kinds.
const ALIKE: Duration = Duration::from_millis(50);

/// Starts listening. Called once, by commands that will have something to save.
pub fn listen(talk: Talk) {
    let ignored = ignored_signals();
    // Without a handler Ctrl-C still ends the process; only the clean stop is lost.
    if ctrlc::set_handler(move || act(talk)).is_ok() {
        lock::listens();
    }
    ignore_again(ignored);
}

/// What a signal leads to; runs on a thread of its own.
fn act(talk: Talk) {
    let run = stopping::run();
    if FIRST.get().is_some_and(|first| first.elapsed() < ALIKE) {
        return;
    }
    FIRST.get_or_init(Stopwatch::start);
    match (run, stopping::ask()) {
        (Some(Run { kind, .. }), false) => {
            if !talk.is_quiet() {
                soon(move || say(&format!("{}\n", about(kind).stopping())));
            }
            return;
        }
        (None, _) => quit("stopped before the first step; nothing was left behind\n"),
        (Some(Run { folder, kind }), true) => {
            // Where there is one, it holds a secret that is of no more use.
            control::forget(&folder);
            leave_word(folder.clone());
            quit(&format!("{}\n", about(kind).quit(&folder.display().to_string())));
        }
    }
    std::process::exit(Exit::Unsaved.code().into());
}

fn quit(text: &str) {
    let text = text.to_owned();
    soon(move || {
        screen::clear();
        say(&text);
    });
}

/// Notes in the run's folder that it was ended so, but does not wait for a disk that takes nothing.
fn leave_word(folder: PathBuf) {
    soon(move || {
        // It then looks like one that was killed.
        let _ = run_dir::quit::write(&folder);
    });
}

/// Does something, but does not wait for a terminal that takes nothing (Ctrl-S, a stalled pipe), or
/// such a disk: the next signal must be heard.
fn soon(work: impl FnOnce() + Send + 'static) {
    let (done, waiting) = channel();
    let said = std::thread::Builder::new().name("talk".into()).spawn(move || {
        work();
        // The receiver is gone when it took too long.
        let _ = done.send(());
    });
    if said.is_ok() {
        let _ = waiting.recv_timeout(PATIENCE);
    }
}

/// Signals that the process was started with as ignored, one bit each, where the system tells.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The handler takes all three signals; those that were ignored before go back to that.
fn ignore_again(ignored: u64) {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        if ignored & 1 << (signal - 1) != 0 {
            // SAFETY: SIG_IGN is a valid disposition of these signals and runs no code of ours.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
}
