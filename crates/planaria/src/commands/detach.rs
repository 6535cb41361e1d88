//! `--detach` of `train`, `run` and `resume`: a run that needs neither this command nor its terminal.
//!
//! Owns the process that is left behind: it is started in a session of its own, so that no terminal
//! can end it, talks as any training does until it has a run's folder, and from then on to a log in
//! it. Never trains itself.

use crate::commands::print;
use crate::library::Planaria;
use crate::screen::{self, say};
use crate::signals;
use planaria_control::talk::{Progress, Style, Talk};
use planaria_fleet::local::OWN;
use planaria_fleet::process::{self, Signal};
use planaria_protocol::event::What;
use planaria_protocol::journal;
use planaria_runs::failure::{Context, Exit, Failure, Result};
use planaria_runs::run_dir::{DEFAULT_RUNS, LOGS, run_id};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The log of the process that is left behind.
pub const LOG: &str = "controller.log";
/// Poll interval for the beginning of the run.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest name of a folder, in bytes.
const FOLDER_BYTES_MAX: u64 = 64 << 10;

/// Leaves a training behind, on this machine or on those of its pool, and says how to find it. `input`
/// is the recipe, where it came from standard input.
pub fn run(training: Planaria, talk: Talk, input: Option<Vec<u8>>) -> Result<Option<Exit>> {
    // What is wrong with the recipe is told by the process that trains.
    if !training.source().is_ok_and(|source| source.recipe().pool.has_machines()) {
        return here(talk, None, input);
    }
    signals::listen(talk);
    let folder = training.detach()?;
    let name = name(&folder);
    let text = format!(
        "run {} goes on by itself; `planaria logs {name} -f` follows it, `planaria stop {name}` \
         ends it, and when it has ended either fetches it and gives its machines back; `planaria \
         resume {name} --watch` goes on with it should the machine of its controller be lost",
        folder.display()
    );
    Progress::new(talk).note(&text);
    print(&format!("{name}\n")).map(|()| None)
}

/// Leaves what this command does to a process on this machine, which is the controller of its machines;
/// `known` is the run that it goes on with, `input` what it reads on its standard input.
pub fn here(talk: Talk, known: Option<&Path>, input: Option<Vec<u8>>) -> Result<Option<Exit>> {
    let before = known.map_or(0, sessions);
    let mut child = start(input)?;
    pass_signals_on(&child);
    let Some(folder) = folder(&mut child)? else {
        // It has said why.
        return Ok(exit(end_of(&mut child)?));
    };
    if let Some(status) = wait_for_begin(&mut child, &folder, before)? {
        let log = fs::read_to_string(folder.join(LOGS).join(LOG)).unwrap_or_default();
        if let Some(exit) = exit(status) {
            say(&log);
            return Ok(Some(exit));
        }
    }
    let name = name(&folder);
    let text = format!(
        "run {} goes on by itself, as process {}; `planaria logs {name} -f` follows it, \
         `planaria stop {name}` ends it",
        folder.display(),
        child.id()
    );
    Progress::new(talk).note(&text);
    print(&format!("{name}\n")).map(|()| None)
}

/// What the process that is left behind does as soon as there is a run: it lets go of what it
/// shares with the command.
pub fn settle(run: &Path) -> Result<()> {
    let logs = run.join(LOGS);
    let path = logs.join(LOG);
    let open = || {
        fs::create_dir_all(&logs)?;
        OpenOptions::new().create(true).append(true).mode(0o600).open(&path)
    };
    let log = open().context(|| format!("cannot write `{}`", path.display()))?;
    let told = writeln!(std::io::stdout(), "{}", run.display());
    told.and_then(|()| std::io::stdout().flush()).context(|| "cannot write to stdout".into())?;
    screen::stamp();
    let moved = rustix::stdio::dup2_stdout(&log).and_then(|()| rustix::stdio::dup2_stderr(&log));
    moved.map_err(|why| Failure::failed(format!("cannot write to `{}`: {why}", path.display())))
}

/// How a process talks that may be one left behind: nothing is drawn without a terminal.
pub fn talk(is_detached: bool, talk: Talk) -> Talk {
    if is_detached && talk.style == Style::Live { screen::PLAIN } else { talk }
}

/// What other commands find a run by.
fn name(folder: &Path) -> String {
    match folder.parent() == Some(Path::new(DEFAULT_RUNS)) {
        true => run_id(folder),
        false => folder.display().to_string(),
    }
}

/// Starts this command again, without the terminal.
fn start(input: Option<Vec<u8>>) -> Result<Child> {
    let mut words = std::env::args_os();
    let mut command = Command::new(OWN);
    command.arg0(words.next().unwrap_or_else(|| "planaria".into())).args(again(words));
    // Until it has a folder it says on this command's stderr what is wrong.
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped());
    let begin = || Ok(rustix::process::setsid().map(drop)?);
    // SAFETY: between fork and exec only a system call is made, which allocates nothing.
    unsafe { command.pre_exec(begin) };
    let mut child = command.spawn().context(|| "cannot start a process".into())?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // One that has ended before it read all says why.
        let _ = stdin.write_all(&input);
    }
    Ok(child)
}

/// The words of the command that is left behind. What comes after `--` is a script's.
fn again(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    let own = words.iter().position(|word| word == "--").unwrap_or(words.len());
    for word in &mut words[..own] {
        if word == "--detach" {
            *word = "--detached".into();
        }
    }
    words
}

/// Sessions that a run has begun.
fn sessions(folder: &Path) -> usize {
    // What cannot be read yet is not written yet.
    let events = journal::read(&folder.join(journal::FILE)).unwrap_or_default();
    events.iter().filter(|event| matches!(event.what, What::Started(_))).count()
}

/// As long as this command waits, Ctrl-C is meant for what it waits for.
fn pass_signals_on(child: &Child) {
    // A child keeps its number until it is waited for, which this process does at its end.
    let pid = child.id();
    let pass = move || process::signal(pid, Signal::TERM);
    // Without a handler Ctrl-C ends this command alone, and the run can be stopped as any other.
    let _ = ctrlc::set_handler(pass);
}

/// The folder of the run, once there is one; nothing where it came to none.
fn folder(child: &mut Child) -> Result<Option<PathBuf>> {
    use std::io::Read;
    let Some(stdout) = child.stdout.take() else { return Ok(None) };
    let mut line = Vec::new();
    BufReader::new(stdout.take(FOLDER_BYTES_MAX))
        .read_until(b'\n', &mut line)
        .context(|| "cannot hear from the process that was started".into())?;
    let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
    Ok((!text.is_empty()).then(|| PathBuf::from(text)))
}

/// Waits until more sessions than before have begun; how the process has ended, where it has first.
fn wait_for_begin(child: &mut Child, folder: &Path, before: usize) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait().context(|| "cannot wait for a process".into())? {
            return Ok(Some(status));
        }
        if sessions(folder) > before {
            return Ok(None);
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

fn end_of(child: &mut Child) -> Result<ExitStatus> {
    child.wait().context(|| "cannot wait for a process".into())
}

fn exit(status: ExitStatus) -> Option<Exit> {
    Exit::of_code(status.code().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_keeps_its_own_words() {
        let words = ["run", "a.py", "--detach", "--", "--detach"].map(OsString::from);
        let expect = ["run", "a.py", "--detached", "--", "--detach"];
        assert_eq!(again(words.into_iter()), expect);
    }
}
