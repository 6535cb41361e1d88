//! What a job leaves: outputs, the report, and why it failed.

use super::{Finished, LINES_SHOWN, Running, ended_how, ordered, sources};
use crate::jobs::script::blame::{self, Place, Words};
use crate::jobs::script::layout::{Process, TORCHRUN};
use crate::jobs::script::policy::{self, JobInput, Outcome, Why};
use crate::jobs::script::report::{Failed, Report};
use crate::jobs::script::stuck::{self, At, Known, Looking};
use crate::jobs::script::variables::Meeting;
use planaria_fleet::ending::Ending;
use planaria_protocol::event::What;
use planaria_protocol::message::Agent;
use planaria_protocol::message::Outcome as Ended;
use planaria_runs::failure::{Exit, Failure, Result};
use std::collections::BTreeMap;
use std::time::Duration;

/// Processes that ran for less time may have met others unseen.
const STRANGERS_AFTER: Duration = Duration::from_secs(5);

/// What its last lines follow on, in a message.
const LAST_LINES: &str = "; its last lines:";

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
                .map(|failure| failure.message.lines().next().unwrap_or_default())
                .map(|first| first.strip_suffix(LAST_LINES).unwrap_or(first).to_owned()),
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

    /// Why a process that failed is not worth another try, where its last lines tell.
    pub(super) fn hopeless(&mut self, process: &Process, ending: Ending) -> Option<Why> {
        let lines = self.transcript.last_lines(&process.slug());
        let hopeless = blame::hopeless(&process.role, ending, &lines);
        hopeless.or_else(|| self.same_place(process, ending, &lines))
    }

    /// Whose failure the last lines of a process that has ended tell of.
    pub(super) fn words(&self, process: &Process, ending: Ending, is_stopped: bool) -> Words {
        if ending.is_well() || ending == Ending::MachineLost {
            return Words::Unknown;
        }
        match blame::words(&self.transcript.last_lines(&process.slug())) {
            // Without a word it was ended by something else, but for us.
            Words::Unknown if !is_stopped => Words::Own,
            words => words,
        }
    }

    /// The same, where it fails as one failed before: at the same line, with the same words, and no
    /// further.
    fn same_place(&mut self, process: &Process, ending: Ending, lines: &[String]) -> Option<Why> {
        let is_alone = !self.supervisor.policy.trains_together();
        // Processes that train together fail each time, but not each time the same of them first.
        let who = if is_alone { process.slug() } else { String::new() };
        // Its words count, not whether it ended by a code or, as some do after an exception, a signal.
        let reached = (ending != Ending::MachineLost).then(|| self.transcript.reached());
        let place = Place::of(lines, reached?)?;
        let before = self.failed_at.insert(who, (self.round, place.clone()))?;
        let is_again = is_alone || before.0 < self.round;
        (is_again && before.1 == place).then_some(Why::SamePlace)
    }

    /// The process that others were left waiting for, where one of them failed because of that.
    pub(super) fn left_early(&self, failed: u32, left: Option<u32>) -> Option<Process> {
        let (failed, left) = (self.process(failed)?, self.process(left?)?);
        blame::is_left_alone(&self.transcript.last_lines(&failed.slug())).then_some(left)
    }

    /// Where time is up, finds out who waits for whom before processes are ended.
    pub(super) fn look_who_waits(&mut self, now: Duration) {
        if self.supervisor.policy.take_stuck() {
            self.looking = Some(Looking::begin(self.questions()));
        }
        if let Some(found) = self.looking.as_ref().and_then(Looking::take) {
            self.looking = None;
            let process = found.first.unwrap_or(0);
            self.found = found;
            self.on(now, JobInput::Looked { process });
        }
    }

    fn questions(&self) -> Vec<stuck::Question> {
        let Some(layout) = &self.layout else { return Vec::new() };
        let standing = self.machines.pool().standing();
        let question = |process: &Process| {
            let seat = layout.seat(process);
            let agent = Agent::Task(process.id);
            let on =
                if self.machines.are_here { String::new() } else { format!(" on {}", seat.name) };
            let lines = self.transcript.last_lines(&process.slug());
            let known = Known {
                id: process.id,
                title: format!("{}{on}", process.title()),
                is_done: self.supervisor.places.is_done(agent),
                peers: None,
                last_line: lines.into_iter().rev().find(|line| !line.trim().is_empty()),
            };
            let at = self.supervisor.places.process(agent).and_then(|live| {
                let machine = standing.iter().find(|one| one.number == seat.number)?;
                let pid = self.machines.pool().pid(live.pid)?;
                Some(At { machine: seat.number, remote: machine.remote.clone(), pid })
            });
            (known, at)
        };
        layout.processes.iter().map(question).collect()
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
            left_early: self.left_early(failed.process, failed.left).map(|left| left.slug()),
            who_waits: self.found.lines.clone(),
            last_lines: self.transcript.last_lines(&process.slug()),
        })
    }

    fn failure(&self, failed: &policy::Failed) -> Failure {
        let Some(told) = self.failed(failed) else { return Failure::failed(failed.why) };
        if matches!(failed.why, Why::TimedOut | Why::Silent) {
            return self.out_of_time(failed);
        }
        let title = told.process.replacen('-', " ", 1);
        let place =
            if self.machines.are_here { String::new() } else { format!(" on {}", told.machine) };
        let mut message = match failed.ending {
            Some(_) => format!("{title}{place} {} ({})", told.how, told.why),
            None => format!("{title}{place}: {}", self.explained(failed)),
        };
        if let Some(left) = self.left_early(failed.process, failed.left) {
            let left = left.title();
            message = format!("{left} ended well while others needed it; {message}");
        }
        if !told.last_lines.is_empty() {
            message += LAST_LINES;
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

    /// Why a job that was ended because of time has failed.
    fn out_of_time(&self, failed: &policy::Failed) -> Failure {
        let script = &self.prepared.job.script;
        let mut message = match failed.why {
            Why::TimedOut => {
                let most = script.timeout.unwrap_or_default();
                format!("the job was not done after {most} s (`script.timeout`)")
            }
            _ => {
                let most = script.silence.unwrap_or_default();
                format!("no process wrote anything for {most} s (`script.silence`)")
            }
        };
        if let Some(named) = self.found.first.and_then(|id| self.process(id)) {
            message += &format!("; look at {} first", named.title());
        }
        if self.found.is_mutual {
            message += "; they wait for each other";
        }
        self.found.lines.iter().for_each(|line| message += &format!("\n  {line}"));
        let logs = format!("{}/logs", self.folder.path().display());
        Failure::failed(message).hint(format!("all that they wrote is in `{logs}`"))
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
            _ => match failed.left.and_then(|left| self.process(left)) {
                Some(left) if failed.why == Why::WentOn => format!(
                    "{} had ended well, and it still went on {seconds} s later \
                     (`connect_seconds`)",
                    left.title()
                ),
                _ => format!("{} ({seconds} s)", failed.why),
            },
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
            machines_lost: self.summary.machines().machines_lost,
            machines_given_up: self.summary.given_up(),
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

fn exit_code(ending: Ending) -> i32 {
    match ending {
        Ending::Code(code) => code,
        Ending::Signal(signal) => 128 + signal,
        Ending::MachineLost => 1,
        Ending::OutOfMemory { .. } => ending.exit_code(),
    }
}
