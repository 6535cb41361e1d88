//! Ctrl-C, SIGTERM and SIGHUP: the first asks for a clean stop, the second ends the process at once.
//!
//! Owns the signal handler and what it says. A signal that was ignored when the process began, as
//! under `nohup` or for a script's background job, stays ignored. Never saves anything; the run loop
//! looks at the flag after each step.

use crate::clock::Stopwatch;
use crate::cluster::control;
use crate::failure::Exit;
use crate::progress::{Style, say};
use crate::screen;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long a terminal may take to take a line.
const PATIENCE: Duration = Duration::from_millis(200);

/// Why a run stops that was sent a signal.
pub const REASON: &str = "a signal asked for it";

static LISTENING: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);
/// Whether the run is a script, of which only it knows how to save.
static IS_SCRIPT: AtomicBool = AtomicBool::new(false);
static RUN: Mutex<Option<PathBuf>> = Mutex::new(None);
/// When the first signal came.
static FIRST: OnceLock<Stopwatch> = OnceLock::new();

/// Signals closer together than this are one: `timeout` sends one to the process and one to its
/// group, and a terminal that is closed sends two kinds.
const ALIKE: Duration = Duration::from_millis(50);

/// Starts listening. Called once, by commands that will have something to save.
pub fn listen(style: Style) {
    let ignored = ignored_signals();
    // Without a handler Ctrl-C still ends the process; only the clean stop is lost.
    let listening = ctrlc::set_handler(move || act(style)).is_ok();
    LISTENING.fetch_or(listening, Ordering::SeqCst);
    ignore_again(ignored);
}

/// Whether a signal leads to a clean stop.
pub fn is_listening() -> bool {
    LISTENING.load(Ordering::SeqCst)
}

/// From here on there is a run to save.
pub fn begin(run: &Path) {
    *RUN.lock().unwrap_or_else(PoisonError::into_inner) = Some(run.to_path_buf());
}

/// From here on there is a script to end.
pub fn begin_script(run: &Path) {
    IS_SCRIPT.store(true, Ordering::SeqCst);
    begin(run);
}

/// Whether a stop was asked for.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// What a signal leads to; runs on a thread of its own.
fn act(style: Style) {
    let run = RUN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if FIRST.get().is_some_and(|first| first.elapsed() < ALIKE) {
        return;
    }
    FIRST.get_or_init(Stopwatch::start);
    let is_script = IS_SCRIPT.load(Ordering::SeqCst);
    match (run, ASKED.swap(true, Ordering::SeqCst)) {
        (Some(_), false) if is_script => {
            if style != Style::Quiet {
                let text = "ending the script's processes, then bringing outputs back; Ctrl-C \
                            again quits at once\n";
                soon(move || say(text));
            }
            return;
        }
        (Some(run), true) if is_script => {
            quit(&format!(
                "quit at once; planaria down {} gives back what is left\n",
                run.display()
            ));
        }
        (None, _) => quit("stopped before the first step; nothing was left behind\n"),
        (Some(_), false) => {
            if style != Style::Quiet {
                let text = "finishing this step, then saving; Ctrl-C again quits without saving\n";
                soon(move || say(text));
            }
            return;
        }
        (Some(run), true) => {
            // Only a run on many processes has one; it holds a secret that is of no more use.
            let _ = std::fs::remove_file(run.join(control::FILE));
            quit(&format!(
                "quit without saving; planaria resume {} goes on from the last checkpoint\n",
                run.display()
            ))
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

/// Says something, but does not wait for a terminal that takes nothing (Ctrl-S, a stalled pipe): the
/// next signal must be heard.
fn soon(talk: impl FnOnce() + Send + 'static) {
    let (done, waiting) = channel();
    let said = std::thread::Builder::new().name("talk".into()).spawn(move || {
        talk();
        // Nobody waits any longer when it took too long.
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
