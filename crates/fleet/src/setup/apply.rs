//! The steps of one machine, one after another.
//!
//! Owns attempts, what is logged and the words of a failure. Never touches the machine itself: its
//! [`Hands`] do.

use super::prepare::{Prepared, Setup, StepKind};
use super::{Command, Hands, Job, Summary, ansible, plays, script};
use crate::messages::TaskOutcome;
use crate::provider::Fault;
use crate::redact::{Redactor, Secrets};
use std::io::{Cursor, Read, Write};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Lines that are shown of a step that failed.
const LAST_LINES: usize = 10;
/// Bytes that one command may add to the log.
const LOG_BYTES_MAX: usize = 16 << 20;
/// Bytes kept to take those lines from.
const LAST_BYTES: usize = 8 << 10;
/// Pause before another attempt, and the poll interval for whether it is still wanted.
const PAUSE: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(200);
/// How long a machine may take to note a play, or to end what is left of one.
const PLAY_WITHIN: Duration = Duration::from_secs(20);

impl Setup {
    /// Does the machine's steps, each unless it was done before, and logs what they write. Any
    /// number of machines may be set up at the same time.
    pub fn apply(
        &self,
        job: &Job<'_>,
        hands: &mut dyn Hands,
        log: &mut dyn Write,
    ) -> Result<Summary, Fault> {
        let begun = job.clock.now();
        let mut summary = Summary::default();
        for step in self.plan(&job.machine.groups) {
            let mut telling = Telling { log: &mut *log, secrets: &self.secrets, last: Vec::new() };
            let before = job.clock.now();
            let title = self.secrets.redact(&format!("step {}: {}", step.number, step.title));
            telling.line(&format!("== {title}"));
            (job.on_step)(Some(&title));
            let is_done = attempts(step, job, hands, &mut telling)?;
            (job.on_step)(None);
            let seconds = job.clock.now().saturating_sub(before).as_secs_f64();
            match is_done {
                true => telling.line(&format!("== done in {seconds:.1} s")),
                false => telling.line("== skipped: it was done before"),
            }
            summary.done += usize::from(is_done);
            summary.skipped += usize::from(!is_done);
        }
        if summary.done > 0 {
            // Later steps may have changed what earlier ones made.
            self.plan(&job.machine.groups).try_for_each(|step| seal(step, job, hands))?;
        }
        summary.seconds = job.clock.now().saturating_sub(begun).as_secs_f64();
        Ok(summary)
    }
}

/// Has a step's mark say what it made.
fn seal(step: &Prepared, job: &Job<'_>, hands: &mut dyn Hands) -> Result<(), Fault> {
    match (step.mark(job), step.made()) {
        (Some(mark), Some(made)) => hands.seal(&mark, &made),
        _ => Ok(()),
    }
}

/// Whether the step was done now, rather than before.
fn attempts(
    step: &Prepared,
    job: &Job<'_>,
    hands: &mut dyn Hands,
    telling: &mut Telling<'_>,
) -> Result<bool, Fault> {
    let mut number = 1;
    loop {
        let outcome = attempt(step, job, hands, telling).map_err(|fault| {
            let what = format!("step {} `{}`: {}", step.number, step.title, fault.what);
            Fault { what: telling.secrets.redact(&what), ..fault }
        })?;
        let why = match outcome {
            TaskOutcome::Done => {
                seal(step, job, hands)?;
                return Ok(true);
            }
            TaskOutcome::Skipped => return Ok(false),
            TaskOutcome::Failed(code) => format!("ended with exit code {code}"),
            TaskOutcome::TimedOut if (job.is_cancelled)() => "was given up".to_owned(),
            TaskOutcome::TimedOut => format!("did not end within {} s", step.within.as_secs()),
            TaskOutcome::Impossible(ref why) => format!("cannot be done: {why}"),
        };
        let meaning = match (outcome, &step.work) {
            // Of other commands the codes are their own.
            (_, StepKind::Run(_) | StepKind::Check(_) | StepKind::Ansible(_)) => None,
            (TaskOutcome::Failed(code), _) => script::meaning(code, &job.machine.name),
            _ => None,
        };
        let is_last = number > step.retries || meaning.is_some() || (job.is_cancelled)();
        telling.line(&format!("== attempt {number} {why}"));
        if is_last {
            return Err(failure(step, job, number, &why, meaning, telling));
        }
        pause(job);
        number += 1;
        telling.last.clear();
    }
}

fn attempt(
    step: &Prepared,
    job: &Job<'_>,
    hands: &mut dyn Hands,
    telling: &mut Telling<'_>,
) -> Result<TaskOutcome, Fault> {
    let mark = step.mark(job);
    let mark = mark.as_deref();
    let (env, within) = (&step.env[..], step.within);
    let text = match &step.work {
        StepKind::Apt(packages) => {
            let variables: Vec<&str> = env.iter().map(|(name, _)| name.as_str()).collect();
            script::apt(packages, &variables, within.as_secs())
        }
        StepKind::Pip { packages, venv } => script::pip(packages, venv),
        StepKind::Run(command) | StepKind::Check(command) => command.clone(),
        StepKind::Copy { .. } | StepKind::Template { .. } | StepKind::Ansible(_) => {
            // What goes there first is not sent for nothing.
            let mark = mark.unwrap_or_default();
            if hands.is_done(mark)? {
                match step.made() {
                    Some(made) if !hands.is_intact(mark, &made)? => {
                        telling.line("== what it made is gone or was changed: it is done again");
                    }
                    _ => return Ok(TaskOutcome::Skipped),
                }
            }
            match before_mark(step, job, hands, mark, telling)? {
                Ok(text) => text,
                Err(outcome) => return Ok(outcome),
            }
        }
    };
    telling.follow(|output| hands.run(&Command { mark, text: &text, env, within }, output))
}

/// What comes before the command that leaves the mark: the command, or how it has ended already.
fn before_mark(
    step: &Prepared,
    job: &Job<'_>,
    hands: &mut dyn Hands,
    mark: &str,
    telling: &mut Telling<'_>,
) -> Result<Result<String, TaskOutcome>, Fault> {
    // Of its own in the run's folder, and readable by its owner alone.
    let staged = format!("setup-{mark}.part");
    let (mut stream, script): (Box<dyn Read>, String) = match &step.work {
        StepKind::Copy { content, to } => {
            let stream = content.stream().map_err(|e| {
                let hint = "leave the file as it is while machines are set up";
                Fault::fix(&job.machine.name, format!("what is copied cannot be read: {e}"), hint)
            })?;
            let script = match content.mode {
                Some(mode) => script::place_file(&staged, to, mode),
                None => script::place_folder(&staged, to),
            };
            (stream, script)
        }
        StepKind::Template { to, mode, .. } => {
            let text = step.filled(job).unwrap_or_default();
            (Box::new(Cursor::new(text)), script::place_file(&staged, to, *mode))
        }
        StepKind::Ansible(playbook) => {
            return played(playbook, step, job, hands, mark, telling);
        }
        _ => return Ok(Ok("true".into())),
    };
    hands.put(&staged, 0o600, &mut stream)?;
    Ok(Ok(script))
}

/// Plays a playbook: the command that leaves the mark, or how it has ended.
fn played(
    playbook: &ansible::Playbook,
    step: &Prepared,
    job: &Job<'_>,
    hands: &mut dyn Hands,
    mark: &str,
    telling: &mut Telling<'_>,
) -> Result<Result<String, TaskOutcome>, Fault> {
    let play = format!("{}-{mark}", job.run);
    let is_remote = ansible::is_remote(job.machines, &job.machine.name);
    let (env, within) = (&[][..], PLAY_WITHIN);
    let mut printed = Vec::new();
    if is_remote {
        let begin = Command { mark: None, text: &plays::begin(&play), env, within };
        hands.run(&begin, &mut |bytes| printed.extend_from_slice(bytes))?;
    }
    let shell = plays::shell(&printed);
    let call = ansible::Call {
        machine: &job.machine.name,
        machines: job.machines,
        folder: job.folder,
        program: job.ansible,
        guards: job.guards,
        shell: shell.as_deref(),
        env: &step.env,
        within: step.within,
        is_cancelled: job.is_cancelled,
    };
    let outcome = telling.follow(|output| ansible::play(playbook, &call, output));
    match outcome {
        Ok(TaskOutcome::Done) if is_remote => Ok(Ok(plays::end(&play))),
        Ok(TaskOutcome::Done) => Ok(Ok("true".into())),
        outcome => {
            if is_remote {
                let text = plays::give_up();
                // A host that is gone has done so.
                let _ = hands.run(&Command { mark: None, text: &text, env, within }, &mut |_| {});
            }
            outcome.map(Err)
        }
    }
}

fn failure(
    step: &Prepared,
    job: &Job<'_>,
    attempts: u32,
    why: &str,
    meaning: Option<(String, &'static str)>,
    telling: &Telling<'_>,
) -> Fault {
    let (number, title) = (step.number, &step.title);
    let often = if attempts > 1 { format!(", {attempts} times") } else { String::new() };
    let lines = telling.last_lines();
    let tail = if lines.is_empty() { String::new() } else { format!("; its last lines:\n{lines}") };
    let (what, hint) = match meaning {
        Some((what, hint)) => (format!("step {number} `{title}`: {what}{tail}"), hint.to_owned()),
        None => (
            format!("step {number} `{title}` {why}{often}{tail}"),
            format!("all that it wrote is in `logs/setup-{}.log`", job.machine.name),
        ),
    };
    Fault::replace(&job.machine.name, telling.secrets.redact(&what), hint)
}

/// Waits a moment, unless the result is not wanted any more.
fn pause(job: &Job<'_>) {
    let (_alive, never) = channel::<()>();
    let mut left = job.pause.unwrap_or(PAUSE);
    while !left.is_zero() && !(job.is_cancelled)() {
        let wait = TICK.min(left);
        // No message can come; only time passes.
        let _ = never.recv_timeout(wait);
        left -= wait;
    }
}

/// Where what a step writes goes: the log, and the end of it into a fault.
struct Telling<'l> {
    log: &'l mut dyn Write,
    secrets: &'l Secrets,
    last: Vec<u8>,
}

impl Telling<'_> {
    /// A line of our own. A log that cannot be written ends no set-up.
    fn line(&mut self, text: &str) {
        let text = self.secrets.redact(text);
        let newline = if self.last.last().is_none_or(|b| *b == b'\n') { "" } else { "\n" };
        let _ = writeln!(self.log, "{newline}{text}");
        let _ = self.log.flush();
    }

    /// Takes what a command writes, without secrets.
    fn follow<T>(&mut self, command: impl FnOnce(&mut dyn FnMut(&[u8])) -> T) -> T {
        let mut redactor = Redactor::new(self.secrets);
        let (log, last) = (&mut *self.log, &mut self.last);
        let mut room = LOG_BYTES_MAX;
        let mut show = |bytes: &[u8]| {
            let written = bytes.len().min(room);
            let _ = log.write_all(&bytes[..written]);
            if written < bytes.len() && room > 0 {
                let _ = writeln!(log, "\n== the rest of what it writes is left out");
            }
            room -= written;
            last.extend_from_slice(bytes);
            let over = last.len().saturating_sub(LAST_BYTES);
            last.drain(..over);
        };
        let result = command(&mut |bytes| redactor.push(bytes, &mut show));
        redactor.finish(&mut show);
        result
    }

    fn last_lines(&self) -> String {
        let text = String::from_utf8_lossy(&self.last);
        let plain = |c: char| c == '\n' || c == '\t' || !c.is_control();
        let text: String = text.chars().filter(|c| plain(*c)).collect();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(LAST_LINES);
        lines[from..].iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
    }
}
