//! What a job leaves: outputs, the report, and why it failed.

use super::{Finished, LINES_SHOWN, Running, ended_how, ordered, sources};
use crate::jobs::script::layout::TORCHRUN;
use crate::jobs::script::policy::{self, Outcome, Why};
use crate::jobs::script::report::{Failed, Report};
use crate::jobs::script::variables::Meeting;
use planaria_fleet::ending::Ending;
use planaria_protocol::event::What;
use planaria_protocol::message::Outcome as Ended;
use planaria_runs::failure::{Exit, Failure, Result};
use std::collections::BTreeMap;
use std::time::Duration;

/// Processes that ran for less time may have met others unseen.
const STRANGERS_AFTER: Duration = Duration::from_secs(5);

impl Running<'_> {
    /// Says what came of it; nothing runs any more.
    pub(super) fn conclude(mut self, end: Result<Outcome>) -> Result<Finished> {
        drop(self.board.take());
        let (outcome, failed, failure) = match end {
            Err(failure) => (Ended::Failed, None, Some(failure)),
            Ok(Outcome::Completed) => {
                let message = "the script is done, but not all of its outputs came back";
                let hint = "what is missing is told above; make room for it, and run it again";
                let lost = || Failure::failed(message).hint(hint);
                (Ended::Completed, None, (!self.is_whole).then(lost))
            }
            Ok(Outcome::Interrupted) => (Ended::Interrupted, None, None),
            Ok(Outcome::Failed(failed)) => {
                (Ended::Failed, self.failed(&failed), Some(self.failure(&failed)))
            }
        };
        let report = self.report(outcome, failed);
        self.folder.write("report.json", report.to_json().as_bytes())?;
        self.record(What::Ended {
            outcome,
            reason: failure
                .as_ref()
                .map(|failure| failure.message.lines().next().unwrap_or_default().to_owned()),
            step: 0,
            weights_sha256: None,
            trouble: None,
            state: None,
        });
        let _ = self.journal.sync();
        let path = self.folder.path().to_path_buf();
        let summary = report.summary(self.transcript.latest(), &path.display().to_string());
        Ok(Finished { report, path, summary, failure })
    }

    /// Tells of processes that have trained, each by itself, as scripts do that know of no other process.
    pub(super) fn tell_strangers(&mut self) {
        let began = self.round_began.unwrap_or_default();
        let strangers = self.supervisor.policy.never_met(&self.supervisor.places);
        // What ends soon may have met others between two looks.
        if strangers.is_empty() || self.clock.elapsed() - began < STRANGERS_AFTER {
            return;
        }
        let names = strangers.iter().filter_map(|id| Some(self.process(*id)?.title()));
        let names = names.collect::<Vec<_>>().join(", ");
        let framework = self.prepared.framework.as_str();
        self.progress.note(&format!(
            "{names}: not seen to join the others; a script that does not start {framework}'s own \
             way of training together trains as often as it has processes"
        ));
    }

    /// Whether all that matches came back.
    pub(super) fn bring_back(&mut self) -> bool {
        let standing = self.machines.pool().standing();
        let from =
            self.layout.as_ref().map_or_else(|| sources(&standing), |l| ordered(l, &standing));
        let round = self.fetching.finish(&from);
        round.notes.iter().for_each(|note| self.progress.note(note));
        for fault in &round.faults {
            self.progress.note(&format!("outputs of {fault}"));
        }
        let asked = self.prepared.job.script.output_patterns();
        let found = self.fetching.outputs.lock().expect("no thread panics with them").files();
        let is_whole = round.faults.is_empty() && round.unfetched == 0;
        if found == 0 && !asked.is_empty() && round.matched == 0 && round.faults.is_empty() {
            let patterns = asked.join("`, `");
            let code = self.prepared.job.script.code_folder();
            self.progress.note(&format!(
                "nothing matches `script.outputs` (`{patterns}`): patterns are relative to the \
                 code's folder, `{code}`, in which the script is started"
            ));
        }
        is_whole
    }

    fn failed(&self, failed: &policy::Failed) -> Option<Failed> {
        let layout = self.layout.as_ref()?;
        let process = layout.processes.get(failed.process as usize)?;
        Some(Failed {
            process: process.slug(),
            machine: layout.seat(process).name.clone(),
            how: failed.ending.map_or_else(|| failed.why.to_string(), ended_how),
            exit_code: failed.ending.map(exit_code),
            why: failed.why.to_string(),
            last_lines: self.transcript.last_lines(&process.slug()),
        })
    }

    fn failure(&self, failed: &policy::Failed) -> Failure {
        let Some(told) = self.failed(failed) else { return Failure::failed(failed.why) };
        let title = told.process.replacen('-', " ", 1);
        let place =
            if self.machines.are_here { String::new() } else { format!(" on {}", told.machine) };
        let mut message = match failed.ending {
            Some(_) => format!("{title}{place} {} ({})", told.how, told.why),
            None => format!("{title}{place}: {}", self.explained(failed)),
        };
        if !told.last_lines.is_empty() {
            message += "; its last lines:";
            // What failed is told long before the end by launchers.
            let most = if title.starts_with(TORCHRUN) { 3 * LINES_SHOWN } else { LINES_SHOWN };
            let skip = told.last_lines.len().saturating_sub(most);
            for line in told.last_lines.iter().skip(skip) {
                message += &format!("\n  {line}");
            }
        }
        let log = format!("{}/logs/{}.log", self.folder.path().display(), told.process);
        let exit = match failed.ending {
            Some(Ending::Code(code)) => Exit::Script(u8::try_from(code).unwrap_or(1).max(1)),
            Some(Ending::Signal(signal)) => Exit::Script(u8::try_from(128 + signal).unwrap_or(1)),
            _ => Exit::Failed,
        };
        let hint = match failed.ending {
            _ if failed.why == Why::MissingModule => format!(
                "add it to `setup`, such as `- {{pip: [numpy]}}`, or name a Python that has it by \
                 `script.python`; on {} it is `{}`",
                told.machine,
                self.prepared.job.python()
            ),
            Some(Ending::Code(127)) => format!(
                "`{}` must be there on every machine: `script.python` names it, a `pip` step of \
                 `setup` makes one",
                self.prepared.job.python()
            ),
            _ => format!("all that it wrote is in `{log}`"),
        };
        Failure { exit, ..Failure::failed(message) }.hint(hint)
    }

    /// Why a process that did not end has failed.
    fn explained(&self, failed: &policy::Failed) -> String {
        let seconds = self.prepared.job.script.connect_seconds;
        match self.told.get(failed.process as usize).and_then(|told| told.meeting) {
            Some(Meeting::Listens(port)) if failed.why == Why::NeverMet => format!(
                "it did not listen on port {port} within {seconds} s (`connect_seconds`): it never \
                 joined the others"
            ),
            Some(Meeting::Connects(port)) if failed.why == Why::NeverMet => format!(
                "it did not connect to the first process, on port {port}, within {seconds} s \
                 (`connect_seconds`): it never joined the others"
            ),
            _ => format!("{} ({seconds} s)", failed.why),
        }
    }

    fn report(&self, outcome: Ended, failed: Option<Failed>) -> Report {
        let job = &self.prepared.job;
        let machines = self.layout.as_ref().map_or_else(BTreeMap::new, |layout| {
            let used = layout.seats.iter().enumerate().filter(|(n, _)| layout.on_seat(*n) > 0);
            used.map(|(_, seat)| (seat.name.clone(), seat.address.clone())).collect()
        });
        let mut roles: BTreeMap<String, usize> = BTreeMap::new();
        for process in self.layout.iter().flat_map(|layout| &layout.processes) {
            *roles.entry(process.role.clone()).or_default() += 1;
        }
        let running = self.round_began.map(|began| (self.clock.elapsed() - began).as_secs_f64());
        Report {
            run_id: self.folder.id(),
            recipe: job.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            outcome,
            framework: self.prepared.framework.as_str(),
            roles,
            machines,
            restarts: self.supervisor.policy.restarts(),
            machines_lost: self.machines.pool().machines_lost(),
            seconds: self.since_command.seconds(),
            seconds_to_start: self.first_start,
            seconds_running: running,
            figures: serde_json::to_value(self.transcript.latest().figures()).unwrap_or_default(),
            points: self.transcript.points(),
            outputs: self.fetching.outputs.lock().expect("no thread panics with them").files(),
            failed,
        }
    }
}

/// Why a process would fail every time, where its last line tells.
pub(super) fn hopeless(ending: Ending, lines: &[String]) -> Option<Why> {
    let last = lines.iter().rev().find(|line| !line.trim().is_empty())?;
    let is_about = |names: &[&str]| names.iter().any(|name| last.starts_with(name));
    match ending {
        Ending::Code(0) | Ending::Signal(_) | Ending::MachineLost => None,
        Ending::Code(_) if is_about(&["ModuleNotFoundError:", "ImportError:"]) => {
            Some(Why::MissingModule)
        }
        Ending::Code(_) if is_about(&["SyntaxError:", "IndentationError:", "TabError:"]) => {
            Some(Why::NotPython)
        }
        Ending::Code(2) if last.contains(": error: ") => Some(Why::WrongArguments),
        Ending::Code(_) => None,
    }
}

fn exit_code(ending: Ending) -> i32 {
    match ending {
        Ending::Code(code) => code,
        Ending::Signal(signal) => 128 + signal,
        Ending::MachineLost => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_fail_every_time_is_not_tried_again() {
        let last = |line: &str| vec!["Traceback".to_owned(), line.to_owned(), String::new()];
        for (line, code, is_hopeless) in [
            ("ModuleNotFoundError: No module named 'torch'", 1, true),
            ("train.py: error: unrecognized arguments: --x", 2, true),
            ("SyntaxError: invalid syntax", 1, true),
            ("RuntimeError: connection reset", 1, false),
            ("ValueError: ImportError: x", 1, false),
        ] {
            let found = hopeless(Ending::Code(code), &last(line));
            assert_eq!(found.is_some(), is_hopeless, "{line}");
        }
        assert_eq!(hopeless(Ending::Signal(9), &last("ImportError: x")), None);
    }
}
