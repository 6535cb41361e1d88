//! What came of a job: `report.json`, and the lines that end it.

use planaria_runs::outcome::Outcome;
use planaria_runs::summary::GivenUp;
use planaria_text::figures::Latest;
use planaria_text::number::{counted, duration};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// What came of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Name of the run's folder.
    pub run_id: String,
    /// The recipe's name.
    pub recipe: String,
    /// Version of planaria.
    pub version: String,
    pub outcome: Outcome,
    /// What the script is written for.
    pub framework: &'static str,
    /// Processes by role.
    pub roles: BTreeMap<String, usize>,
    /// Machines by name, with their addresses.
    pub machines: BTreeMap<String, String>,
    /// Times processes were restarted.
    pub restarts: u32,
    /// Machines that were lost on the way.
    pub machines_lost: u64,
    /// Machines that were not tried again, and why.
    pub machines_given_up: Vec<GivenUp>,
    /// Seconds from the command to its end.
    pub seconds: f64,
    /// Seconds from the command until the first processes were started.
    pub seconds_to_start: Option<f64>,
    /// Seconds that processes ran, the last round's.
    pub seconds_running: Option<f64>,
    /// The newest figures of the first process, or, where it tells none, of any.
    pub figures: Value,
    /// Lines of `metrics.jsonl`.
    pub points: u64,
    /// Files that were brought back.
    pub outputs: usize,
    /// The process that failed first.
    pub failed: Option<Failed>,
}

/// A process that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failed {
    pub process: String,
    pub machine: String,
    /// How, in words.
    pub how: String,
    /// Its exit code: 128 and the signal where one ended it.
    pub exit_code: Option<i32>,
    /// Why it was not started again.
    pub why: String,
    /// The process that had ended well before, and that it needed.
    pub left_early: Option<String>,
    /// Who waited for whom where the job was ended because of time, a line for each process.
    pub who_waits: Vec<String>,
    pub last_lines: Vec<String>,
}

impl Report {
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain values") + "\n"
    }

    /// The lines that end a job.
    pub fn summary(&self, latest: &Latest, folder: &str) -> String {
        let processes: usize = self.roles.values().sum();
        let mut text = format!(
            "{}: {} on {} in {}",
            self.outcome.text(),
            if processes == 1 { "1 process".to_owned() } else { format!("{processes} processes") },
            counted(self.machines.len() as u64, "machine"),
            duration(self.seconds)
        );
        if self.restarts > 0 {
            text += &format!(", {}", counted(u64::from(self.restarts), "restart"));
        }
        for GivenUp { machine, reason } in &self.machines_given_up {
            text += &format!("\ngiven up: {machine}: {reason}");
        }
        let figures = latest.line(200);
        if !figures.is_empty() {
            text += &format!("\n{figures}");
        }
        if self.outputs > 0 {
            text += &format!("\n{folder}/outputs: {}", counted(self.outputs as u64, "file"));
        }
        text
    }
}
