//! Ctrl-C and SIGTERM: the first asks for a clean stop, the second ends the process at once.
//!
//! Owns the signal handler. Never saves anything; the run loop looks at the flag after each step.

use crate::failure::Exit;
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Starts listening. Called once, by commands that have something to save.
pub fn listen() {
    let listening = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(Exit::Interrupted as i32);
        }
    });
    // Without a handler Ctrl-C still ends the process; only the clean stop is lost.
    drop(listening);
}

/// Whether a stop was asked for.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
