//! What the processes of a script have written: as it is kept, but progress bars in their last state.
//!
//! Nothing tells when a line was written, so each process stands by itself; followed, lines come as
//! they are written.

use super::{LOOK_EVERY, Log, Logs};
use crate::cli;
use crate::commands::print_on;
use planaria_control::detached;
use planaria_control::jobs::script::lines::Lines;
use planaria_control::jobs::script::show::{Name, said};
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Context, Failure, Result, plain};
use planaria_runs::processes::title;
use planaria_runs::run_dir::LOGS;
use planaria_runs::run_dir::lock::Holder;
use planaria_text::paint::{bare, width};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

/// How often an unfinished line is shown while it changes.
const OPEN_EVERY: Duration = Duration::from_secs(10);
/// Logs that are shown only when they are asked for: what TensorBoard writes, and what the controller of a
/// job that was left behind would have shown, which has the lines of all processes again.
const APART: [&str; 2] = ["tensorboard", "controller"];

/// Prints, and follows if asked to.
pub(super) fn run(options: &cli::Logs, folder: &Path) -> Result<()> {
    // First the lock: what is written before it is let go of is read after that.
    let mut live = Holder::of(folder)?.is_live();
    let follow = options.follow && live;
    let mut writing = Writing::new(folder, options.process.as_deref());
    if !follow || !writing.processes()?.is_empty() {
        writing.check()?;
    }
    let mut text = writing.read(!follow, options.tail)?;
    let mut since = Stopwatch::start();
    loop {
        if !print_on(&text)? || !follow || !live {
            return Ok(());
        }
        std::thread::park_timeout(LOOK_EVERY);
        live = Holder::of(folder)?.is_live();
        text = writing.read(!live, None)?;
        if since.elapsed() > OPEN_EVERY {
            since = Stopwatch::start();
            text += &writing.open();
        }
    }
}

/// The logs of a run, each read up to somewhere.
struct Writing {
    logs: Logs,
    colours: bool,
    readers: BTreeMap<String, Reader>,
}

struct Reader {
    name: Name,
    log: Log,
    lines: Lines,
    /// What of its open lines was shown last.
    shown: Vec<String>,
}

impl Writing {
    fn new(folder: &Path, only: Option<&str>) -> Self {
        // `worker 1` is how it is called on the screen.
        let only = only.map(|name| name.trim().replace(' ', "-"));
        let stdout = std::io::stdout();
        let colours = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { logs: Logs::new(folder, only), colours, readers: BTreeMap::new() }
    }

    /// Processes that have written something.
    fn processes(&self) -> Result<Vec<String>> {
        let mut names = self.logs.processes()?;
        let is_asked = |name: &str| self.logs.only.as_deref() == Some(name);
        names.retain(|name| !APART.contains(&&**name) || is_asked(name));
        Ok(names)
    }

    fn check(&self) -> Result<()> {
        let (names, path) = (self.processes()?, self.logs.run.display());
        match &self.logs.only {
            _ if names.is_empty() => {
                let message = format!("run `{path}` has no logs: no process was started");
                Err(Failure::user(message).hint(format!("`planaria status {path}` tells why")))
            }
            Some(only) if !names.contains(only) => {
                let message = format!("run `{path}` has no process `{}`", plain(only));
                Err(Failure::user(message).hint(format!("there are {}", names.join(", "))))
            }
            _ => Ok(()),
        }
    }

    /// What is new, process by process: with `rest`, also what is not finished; with `tail`, the last
    /// lines of each.
    fn read(&mut self, rest: bool, tail: Option<usize>) -> Result<String> {
        let mut new = Vec::new();
        for process in self.processes()? {
            if self.logs.only.as_ref().is_some_and(|only| *only != process) {
                continue;
            }
            if !self.readers.contains_key(&process) {
                let name = name(&self.logs.run, &process);
                let (log, lines, shown) = (Log::default(), Lines::new(), Vec::new());
                self.readers.insert(process.clone(), Reader { name, log, lines, shown });
            }
            let reader = self.readers.get_mut(&process).expect("it was just put there");
            let path = self.logs.run.join(LOGS).join(format!("{process}.log"));
            let more = reader.log.more(&path);
            let more = more.context(|| format!("cannot read `{}`", path.display()))?;
            let mut lines = reader.lines.push(&more);
            if rest {
                lines.extend(reader.lines.end());
            }
            if !lines.is_empty() {
                reader.shown.clear();
            }
            let skip = tail.map_or(0, |tail| lines.len().saturating_sub(tail));
            new.extend(lines.into_iter().skip(skip).map(|line| (process.clone(), line)));
        }
        Ok(new.iter().map(|(process, line)| self.text(process, line)).collect())
    }

    /// Lines that are not finished, where they have changed.
    fn open(&mut self) -> String {
        let mut new = Vec::new();
        for (process, reader) in &mut self.readers {
            let open = reader.lines.open();
            if open != reader.shown {
                new.extend(open.iter().map(|line| (process.clone(), line.clone())));
                reader.shown = open;
            }
        }
        new.iter().map(|(process, line)| self.text(process, line)).collect()
    }

    fn text(&self, process: &str, line: &str) -> String {
        if self.logs.only.is_some() {
            return if self.colours { format!("{line}\n") } else { format!("{}\n", bare(line)) };
        }
        let widest = self.readers.values().map(|reader| width(&reader.name.text())).max();
        let prefix = self.readers.get(process).map(|reader| reader.name.text()).unwrap_or_default();
        let space = " ".repeat(widest.unwrap_or(0).saturating_sub(width(&prefix)));
        said(&(prefix + &space), line, self.colours)
    }
}

/// What a process is called, with its machine where there are several.
fn name(folder: &Path, process: &str) -> Name {
    let story = detached::history(folder).ok().and_then(|history| history.script);
    let machine = story
        .filter(|story| !story.is_here)
        .and_then(|story| story.processes.into_iter().find(|one| one.process == process)?.machine);
    Name { process: title(process), machine: machine.unwrap_or_default() }
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

    const BAR: &str = "begin\n 10%\r 50%\r100%\ndone\n";

    #[test]
    fn bars_are_in_their_last_state() {
        let controller = ("controller", "[worker 10] a\n");
        let dir =
            place(&[("worker-0", BAR), ("worker-10", "a\n"), ("tensorboard", "?\n"), controller]);
        let mut all = Writing::new(dir.path(), None);
        assert_eq!(
            all.read(true, None).unwrap(),
            "[worker 0]  begin\n[worker 0]  100%\n[worker 0]  done\n[worker 10] a\n"
        );
        let mut one = Writing::new(dir.path(), Some("worker 0"));
        one.check().unwrap();
        assert_eq!(one.read(true, Some(2)).unwrap(), "100%\ndone\n");
    }

    #[test]
    fn what_is_not_finished_waits_for_its_end() {
        let dir = place(&[("worker-0", "a\n 10%\r 50%")]);
        let mut writing = Writing::new(dir.path(), None);
        assert_eq!(writing.read(false, None).unwrap(), "[worker 0] a\n");
        assert_eq!(writing.open(), "[worker 0]  50%\n");
        assert_eq!(writing.open(), "");
        let log = dir.path().join("logs/worker-0.log");
        std::fs::write(log, "a\n 10%\r 50%\r 90%").unwrap();
        assert_eq!(writing.read(true, None).unwrap(), "[worker 0]  90%\n");
    }

    #[test]
    fn what_there_is_not_is_named() {
        let check = |dir: &tempfile::TempDir, only: &str| {
            Writing::new(dir.path(), Some(only)).check().unwrap_err().to_string()
        };
        assert!(check(&place(&[]), "worker-0").contains("no process was started"));
        let said = check(&place(&[("worker-0", "")]), "ps-0");
        assert!(said.contains("no process `ps-0`"), "{said}");
        assert!(said.contains("there are worker-0"), "{said}");
    }
}
