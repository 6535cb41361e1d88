//! The page of a run on many machines, `live.html` in its folder, written anew while it trains.
//!
//! Owns when it is written. A disk that takes nothing is no trouble of a run that trains: the page is
//! then older than the run. Never decides what is on it.

use planaria_protocol::event::{Event, Pulse, What};
use planaria_runs::run_dir::RunDir;
use planaria_runs::run_dir::metrics::Line;
use planaria_runs::traces::live::Live;
use std::path::{Path, PathBuf};

/// The file in the run's folder.
pub const FILE: &str = "live.html";
/// Seconds of the run between two versions; it shows itself anew as often.
const EVERY_SECONDS: f64 = 1.0;

/// The page and where it is.
#[derive(Debug)]
pub struct Page {
    live: Live,
    run_id: String,
    path: PathBuf,
    written: Option<f64>,
}

impl Page {
    /// Of a run that is about to begin.
    pub fn new(run: &RunDir) -> Self {
        let path = run.file(FILE);
        Self { live: Live::default(), run_id: run.id(), path, written: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Something happened; the end is written at once.
    pub fn take(&mut self, event: &Event, lines: &[Line]) {
        self.live.take(event);
        if matches!(event.what, What::Ended { .. }) {
            self.write(lines);
        }
    }

    /// Where the run is.
    pub fn pulse(&mut self, pulse: &Pulse, lines: &[Line]) {
        self.live.pulse(pulse);
        let is_due = |at: f64| (pulse.seconds - at).abs() >= EVERY_SECONDS;
        if self.written.is_none_or(is_due) {
            self.written = Some(pulse.seconds);
            self.write(lines);
        }
    }

    /// Under another name first, so that a reader always sees a whole page. It need not survive a power
    /// cut, so nothing waits for the disk.
    fn write(&self, lines: &[Line]) {
        let next = self.path.with_extension("html.next");
        let page = self.live.page(&self.run_id, lines);
        let _ = std::fs::write(&next, page).and_then(|()| std::fs::rename(&next, &self.path));
    }
}
