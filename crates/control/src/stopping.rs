//! Whether this process was asked to stop, and what it would stop.
//!
//! Owns the flag that controllers look at. Never listens for signals: the command that wants Ctrl-C
//! to save does, and sets the flag.

use planaria_recipe::JobKind;
use planaria_runs::run_dir::quit;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Why a run stops that was sent a signal.
pub const REASON: &str = "a signal asked for it";

static ASKED: AtomicBool = AtomicBool::new(false);
static RUN: Mutex<Option<Run>> = Mutex::new(None);

/// What a stop is a stop of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub folder: PathBuf,
    pub kind: JobKind,
}

/// From here on there is a run to save or to end.
pub fn begin(folder: &Path, kind: JobKind) {
    quit::forget(folder);
    let run = Run { folder: folder.to_path_buf(), kind };
    *RUN.lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
}

/// What there is to stop.
pub fn run() -> Option<Run> {
    RUN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether a stop was asked for.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Asks for a stop; whether that was done before.
pub fn ask() -> bool {
    ASKED.swap(true, Ordering::SeqCst)
}
