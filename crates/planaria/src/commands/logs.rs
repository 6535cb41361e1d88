//! `planaria logs`: what the processes of a run have logged.
//!
//! Lines of several processes are merged by the time they begin with; a line without one follows
//! the line before it. Control characters are made harmless. Logs of a script's run are as the script
//! wrote them, and are shown in a way of their own.

mod script;

use crate::cli;
use crate::commands::print_on;
use planaria_control::detached::{self, Away, Following};
use planaria_control::talk::Talk;
use planaria_protocol::plain;
use planaria_recipe::JobKind;
use planaria_runs::failure::{Context, Failure, Result, plain};
use planaria_runs::run_dir::lock::Holder;
use planaria_runs::run_dir::{self, LOGS, find, find_or_newest};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Poll interval for new lines.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Poll interval for logs of a run on other machines.
const FETCH_EVERY: Duration = Duration::from_secs(1);
/// Characters of a time, as in `2025-01-31T12:00:00.000Z`.
const TIME: usize = 24;
/// Bytes of a log that are read at a time; what lies further back is left out.
const READ_MAX: u64 = 64 << 20;

/// What processes of runs are called, before their number.
const ROLES: [&str; 8] =
    ["worker", "server", "coordinator", "controller", "ps", "chief", "master", "evaluator"];

/// `planaria logs worker-1` is of a process of the newest run, unless a run is called so.
fn of_newest(options: &cli::Logs) -> cli::Logs {
    let mut options = options.clone();
    let is_process = |name: &String| {
        let role = name.split_once('-').map_or(name.as_str(), |(role, _)| role);
        ROLES.contains(&role) && find(name).is_err()
    };
    if options.process.is_none() {
        options.process = options.run.take_if(|name| is_process(name));
    }
    options
}

/// Prints, and follows if asked to.
pub fn run(options: &cli::Logs, talk: Talk) -> Result<()> {
    let options = &of_newest(options);
    let folder = find_or_newest(options.run.as_deref())?;
    if run_dir::kind(&folder) == JobKind::Script {
        return script::run(options, &folder);
    }
    let mut away = Away::find(&folder)?;
    let mut logs = Logs::new(&folder, options.process.clone());
    // First the lock: what is logged before it is let go of is read after that.
    let mut live = is_live(&folder, &mut away, talk)?;
    let follow = options.follow && live;
    // A run that has only just been asked for will have logs, or say that it is one process.
    if !follow || detached::history(&folder)?.generation > 0 {
        logs.check()?;
    }
    let mut lines = logs.read(!follow)?;
    if let Some(tail) = options.tail {
        lines.drain(..lines.len().saturating_sub(tail));
    }
    loop {
        let text: String = lines.iter().map(|line| logs.text(line)).collect();
        if !print_on(&text)? || !follow || !live {
            return Ok(());
        }
        std::thread::park_timeout(if away.is_some() { FETCH_EVERY } else { LOOK_EVERY });
        let controller = away.as_ref().map(|away| away.detached.head.name.clone());
        live = is_live(&folder, &mut away, talk)?;
        if controller != away.as_ref().map(|away| away.detached.head.name.clone()) {
            // Another machine has succeeded the controller, and has logs of its own.
            logs.read.clear();
        }
        lines = logs.read(!live)?;
    }
}

/// Whether a run lives; what is new of one that is left to machines is fetched.
fn is_live(folder: &Path, away: &mut Option<Away>, talk: Talk) -> Result<bool> {
    match away {
        Some(away) => Ok(matches!(away.follow(talk)?, Following::Lives | Following::Passing)),
        None => Ok(Holder::of(folder)?.is_live()),
    }
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    /// The time it begins with, or that of a line before it.
    time: String,
    process: String,
    text: String,
}

/// The logs of a run, each read up to somewhere.
struct Logs {
    run: PathBuf,
    only: Option<String>,
    read: BTreeMap<String, Log>,
}

#[derive(Debug, Default)]
struct Log {
    read: u64,
    /// What was read of a line that has not ended yet.
    rest: Vec<u8>,
    /// The newest time in it.
    time: String,
}

impl Logs {
    fn new(run: &Path, only: Option<String>) -> Self {
        let only = only.map(|name| name.trim_end_matches(".log").to_owned());
        Self { run: run.to_path_buf(), only, read: BTreeMap::new() }
    }

    /// Processes that have logged something, workers by number.
    fn processes(&self) -> Result<Vec<String>> {
        let folder = self.run.join(LOGS);
        let entries = match std::fs::read_dir(&folder) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.context(|| format!("cannot read `{}`", folder.display()))?,
        };
        let name = |path: PathBuf| {
            let is_log = path.extension().is_some_and(|e| e == "log");
            path.file_stem().filter(|_| is_log).map(|name| name.to_string_lossy().into_owned())
        };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| name(entry.path())).collect();
        names.sort_by_key(|name| {
            let (kind, number) = name.split_once('-').unwrap_or((name, ""));
            (kind.to_owned(), number.parse::<u32>().unwrap_or(0), name.clone())
        });
        Ok(names)
    }

    /// Refuses a run without logs, and a process that there is not.
    fn check(&self) -> Result<()> {
        let (names, path) = (self.processes()?, self.run.display());
        if names.is_empty() {
            return Err(Failure::user(format!(
                "run `{path}` has no logs: it is one process, which says everything on stderr"
            ))
            .hint(format!("`{path}/events.jsonl` tells all that happened")));
        }
        match &self.only {
            Some(only) if !names.contains(only) => {
                Err(Failure::user(format!("run `{path}` has no process `{only}`"))
                    .hint(format!("there are {}", names.join(", "))))
            }
            _ => Ok(()),
        }
    }

    /// New lines of all processes, by time; with `rest`, also those that have not ended.
    fn read(&mut self, rest: bool) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for name in self.processes()? {
            if self.only.as_ref().is_some_and(|only| *only != name) {
                continue;
            }
            let path = self.run.join(LOGS).join(format!("{name}.log"));
            let log = self.read.entry(name.clone()).or_default();
            let more = log.more(&path).context(|| format!("cannot read `{}`", path.display()))?;
            lines.extend(log.lines(&name, &more, rest));
        }
        // Lines of one moment stay in the order in which each process wrote them.
        lines.sort_by(|a, b| a.time.cmp(&b.time));
        Ok(lines)
    }

    fn text(&self, line: &Line) -> String {
        let width = self.read.keys().map(|name| name.chars().count()).max().unwrap_or(0);
        match self.only {
            Some(_) => format!("{}\n", line.text),
            None => format!("{:<width$}  {}\n", line.process, line.text),
        }
    }
}

impl Log {
    /// What was written since the last time.
    fn more(&mut self, path: &Path) -> std::io::Result<Vec<u8>> {
        let mut file = plain::open(path)?;
        let length = file.metadata()?.len();
        if length < self.read {
            // It was begun anew.
            (self.read, self.rest) = (0, Vec::new());
        }
        let from = self.read.max(length.saturating_sub(READ_MAX));
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(READ_MAX).read_to_end(&mut bytes)?;
        self.read = from + bytes.len() as u64;
        Ok(bytes)
    }

    fn lines(&mut self, process: &str, more: &[u8], rest: bool) -> Vec<Line> {
        self.rest.extend(more);
        let end = match rest {
            true => self.rest.len(),
            false => self.rest.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1),
        };
        let whole: Vec<u8> = self.rest.drain(..end).collect();
        let text = String::from_utf8_lossy(&whole);
        let line = |text: &str| {
            if let Some(time) = text.get(..TIME).filter(|time| is_time(time)) {
                time.clone_into(&mut self.time);
            }
            Line { time: self.time.clone(), process: process.into(), text: plain(text) }
        };
        text.lines().map(line).collect()
    }
}

/// Whether a text looks like `2025-01-31T12:00:00.000Z`.
fn is_time(text: &str) -> bool {
    let like = |(c, form): (char, char)| match form {
        '0' => c.is_ascii_digit(),
        form => c == form,
    };
    text.chars().count() == TIME && text.chars().zip("0000-00-00T00:00:00.000Z".chars()).all(like)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(logs: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(LOGS)).unwrap();
        for (name, text) in logs {
            std::fs::write(dir.path().join(LOGS).join(format!("{name}.log")), text).unwrap();
        }
        dir
    }

    const A: &str = "2025-01-31T12:00:00.000Z started\n2025-01-31T12:00:02.000Z ready\n";
    const B: &str =
        "2025-01-31T12:00:01.000Z started\n  at \x1b[31mline 7\n2025-01-31T12:00:03.000Z done";

    #[test]
    fn lines_are_merged_by_time_and_harmless() {
        let dir = place(&[("worker-10", A), ("worker-2", B)]);
        std::fs::write(dir.path().join("logs/notes.txt"), "?").unwrap();
        let mut logs = Logs::new(dir.path(), None);
        assert_eq!(logs.processes().unwrap(), ["worker-2", "worker-10"]);
        let lines = logs.read(true).unwrap();
        let text: String = lines.iter().map(|line| logs.text(line)).collect();
        assert_eq!(
            text,
            "worker-10  2025-01-31T12:00:00.000Z started\n\
             worker-2   2025-01-31T12:00:01.000Z started\n\
             worker-2     at ·[31mline 7\n\
             worker-10  2025-01-31T12:00:02.000Z ready\n\
             worker-2   2025-01-31T12:00:03.000Z done\n"
        );
    }

    #[test]
    fn following_waits_for_whole_lines() {
        let dir = place(&[("worker-2", B)]);
        let mut logs = Logs::new(dir.path(), Some("worker-2".into()));
        assert_eq!(logs.read(false).unwrap().len(), 2);
        std::fs::write(dir.path().join("logs/worker-2.log"), format!("{B}, really\n")).unwrap();
        let lines = logs.read(false).unwrap();
        assert_eq!(lines.len(), 1);
        assert_eq!(logs.text(&lines[0]), "2025-01-31T12:00:03.000Z done, really\n");
    }

    #[test]
    fn what_there_is_not_is_named() {
        let check = |dir: &tempfile::TempDir, only: &str| {
            Logs::new(dir.path(), Some(only.into())).check().unwrap_err().to_string()
        };
        let none = place(&[]);
        assert!(check(&none, "worker-0").contains("has no logs: it is one process"));
        let some = place(&[("worker-0", A), ("coordinator", A)]);
        let said = check(&some, "worker-1");
        assert!(said.contains("no process `worker-1`"), "{said}");
        assert!(said.contains("there are coordinator, worker-0"), "{said}");
    }
}
