//! `planaria scale`: asks a live run to go on with more or fewer workers or machines.

mod machines;

use crate::cli;
use crate::commands::print;
use crate::commands::stop::not_running;
use planaria_control::detached::{self, Away};
use planaria_control::jobs::{about::Command, permit};
use planaria_control::live::console::Console;
use planaria_control::live::control;
use planaria_control::live::scale::{Scaled, ask};
use planaria_control::talk::{Progress, Talk};
use planaria_protocol::plain;
use planaria_recipe::Source;
use planaria_recipe::train::Traits;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Failure, Result};
use planaria_runs::history::History;
use planaria_runs::run_dir::find_or_newest;
use planaria_runs::run_dir::lock::Holder;
use planaria_text::number::counted;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// How long it may take in all; a coordinator that is being replaced is back by then.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two attempts.
const BETWEEN: Duration = Duration::from_millis(100);
/// Workers that can be asked for.
const WORKERS_MAX: u32 = 1024;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// So many workers.
    Workers(u32),
    /// So many machines, and as many more or fewer workers as go with them.
    Machines(Amount),
}

/// A number, or by how much it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Amount {
    To(u32),
    By(i32),
}

/// Scales and says so.
pub fn run(options: &cli::Scale, talk: Talk) -> Result<()> {
    let (run, change) = match &options.words[..] {
        [run, change] => (Some(run.as_str()), change),
        [change] => (None, change),
        _ => unreachable!("one word or two, as the command line says"),
    };
    let asked_for = change;
    let change = parse(asked_for)?;
    let folder = find_or_newest(run)?;
    let workers = match change {
        Change::Workers(workers) => Some(workers),
        Change::Machines(_) => None,
    };
    let is_live = detached::holder(&folder)?.is_live();
    permit(&folder, Command::Scale { workers, is_live })?;
    let workers = match change {
        Change::Workers(workers) => workers,
        Change::Machines(amount) => return machines::run(&folder, amount, options.json, talk),
    };
    if let Some(mut away) = Away::find(&folder)? {
        if !away.lives(talk)? {
            return Err(not_running(&detached::history(&folder)?));
        }
        return pass_on(&away, asked_for, options.json, talk);
    }
    let traits = traits(&folder);
    if let Some(most) = traits.and_then(|traits| traits.workers_max) {
        within(most, workers)?;
    }
    let scaled = scale(&folder, workers)?;
    let path = folder.display();
    if options.json {
        let document =
            json!({ "run": path.to_string(), "workers": scaled.workers, "before": scaled.before });
        return print(&format!("{document:#}\n"));
    }
    Progress::new(talk).note(&format!("run {path} {}", text(&scaled)));
    if let Some(needed) = traits.map(|traits| traits.workers_needed)
        && (workers as usize) < needed
    {
        let note = format!("with fewer than {needed} workers it waits for more");
        Progress::new(talk).note(&note);
    }
    Ok(())
}

/// Has the controller's machine do it.
fn pass_on(away: &Away, change: &str, json: bool, talk: Talk) -> Result<()> {
    let json: &[&str] = if json { &["--json"] } else { &[] };
    let ran = away.ask(&[&["scale", "RUN", change], json].concat())?;
    Progress::new(talk).note(String::from_utf8_lossy(&ran.stderr).trim());
    print(&String::from_utf8_lossy(&ran.stdout))
}

/// What follows from the run's training method.
fn traits(folder: &Path) -> Option<Traits> {
    let text = plain::read(&folder.join("recipe.yaml")).ok()?;
    let source = Source::parse("recipe.yaml", &text, &[]).ok()?;
    Some(source.recipe().train.traits())
}

/// Refuses more workers than can take part.
fn within(most: usize, workers: u32) -> Result<()> {
    if workers as usize <= most {
        return Ok(());
    }
    let message = format!(
        "at most {} can take part in the run, not {workers}",
        counted(most as u64, "worker")
    );
    let hint = format!("ask for {most} or fewer; the run's method fixed it when it began");
    Err(Failure::user(message).hint(hint))
}

/// `workers=4`, `machines=4`, `machines=+2`.
fn parse(change: &str) -> Result<Change> {
    let example = "write `workers=4` or `machines=+2`, say";
    let Some((key, value)) = change.split_once('=') else {
        return Err(Failure::user(format!("`{change}` does not say what to scale")).hint(example));
    };
    if key.trim() == "machines" {
        return Ok(Change::Machines(machines::parse(change, value.trim())?));
    }
    if key.trim() != "workers" {
        let message = format!(
            "`{change}`: only `workers` and `machines` can be scaled, not `{}`",
            key.trim()
        );
        return Err(Failure::user(message).hint(example));
    }
    match value.trim().parse() {
        Ok(workers @ 1..=WORKERS_MAX) => Ok(Change::Workers(workers)),
        _ => {
            let message = format!(
                "`{change}`: `workers` must be a whole number from 1 to {WORKERS_MAX}, but is `{}`",
                value.trim()
            );
            Err(Failure::user(message).hint(example))
        }
    }
}

fn text(scaled: &Scaled) -> String {
    let workers = counted(scaled.workers.into(), "worker");
    match scaled.before {
        Some(before) if before == scaled.workers => format!("has {workers} already"),
        Some(before) => format!("goes on with {workers} instead of {before}"),
        None => format!("goes on with {workers}"),
    }
}

fn scale(folder: &Path, workers: u32) -> Result<Scaled> {
    let alone = |history: &History| alone(history, workers);
    insist(folder, alone, |console, within| ask(console, workers, within))
}

/// Asks until there is an answer. To ask twice is to ask once: a run that has as many as were asked
/// for says so. `alone` is told where there is no coordinator to ask.
fn insist<T>(
    folder: &Path,
    alone: impl Fn(&History) -> Result<()>,
    ask: impl Fn(&Console, Duration) -> Result<Option<T>>,
) -> Result<T> {
    let since = Stopwatch::start();
    let path = folder.display();
    loop {
        if !Holder::of(folder)?.is_live() {
            return Err(not_running(&detached::history(folder)?));
        }
        let left = PATIENCE.saturating_sub(since.elapsed());
        match control::connect(folder) {
            Ok(Some(console)) => {
                if let Some(answer) = ask(&console, left)? {
                    return Ok(answer);
                }
            }
            Ok(None) => alone(&detached::history(folder)?)?,
            // It is about to begin or to end, or is being replaced.
            Err(_) => {}
        }
        if left.is_zero() {
            let message = format!("run `{path}` did not answer within {} s", PATIENCE.as_secs());
            let hint = format!("try again in a moment; `planaria logs {path}` tells what it does");
            return Err(Failure::failed(message).hint(hint));
        }
        std::thread::park_timeout(BETWEEN.min(left));
    }
}

/// The mistake of asking a run for workers that is one process.
fn alone(history: &History, workers: u32) -> Result<()> {
    // Without a step to come nothing is known of it: it is only just beginning.
    if history.steps == 0 || history.workers > 0 {
        return Ok(());
    }
    let path = history.folder.display();
    let message = format!("run `{path}` is one process, and has no workers to scale");
    Err(Failure::user(message).hint(format!(
        "stop it by `planaria stop {path} --wait`, then `planaria resume {path} --workers {workers}`"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_runs::failure::Exit;

    #[test]
    fn what_to_scale_is_read_or_refused() {
        for (change, expect) in [("workers=1", 1), ("workers=1024", 1024), (" workers = 8 ", 8)] {
            assert_eq!(parse(change).unwrap(), Change::Workers(expect));
        }
        for (change, expect) in [
            ("4", "`4` does not say what to scale"),
            (
                "servers=2",
                "`servers=2`: only `workers` and `machines` can be scaled, not `servers`",
            ),
            ("workers=0", "whole number from 1 to 1024, but is `0`"),
            ("workers=1025", "whole number from 1 to 1024, but is `1025`"),
            ("workers=", "whole number from 1 to 1024, but is ``"),
            ("workers=-1", "whole number from 1 to 1024, but is `-1`"),
            ("workers=two", "whole number from 1 to 1024, but is `two`"),
        ] {
            let failure = parse(change).unwrap_err();
            assert!(failure.message.contains(expect), "{}", failure.message);
            assert_eq!((failure.exit, failure.hint.is_some()), (Exit::User, true));
        }
    }

    #[test]
    fn no_more_workers_than_can_take_part() {
        assert!(within(4, 4).is_ok() && within(4, 1).is_ok());
        let failure = within(4, 5).unwrap_err();
        assert!(
            failure.message.contains("at most 4 workers can take part in the run, not 5"),
            "{}",
            failure.message
        );
    }

    #[test]
    fn what_came_of_it_reads_well() {
        for (before, workers, expect) in [
            (Some(3), 4, "goes on with 4 workers instead of 3"),
            (Some(3), 1, "goes on with 1 worker instead of 3"),
            (Some(4), 4, "has 4 workers already"),
            (None, 2, "goes on with 2 workers"),
        ] {
            assert_eq!(text(&Scaled { before, workers }), expect);
        }
    }

    #[test]
    fn a_run_of_one_process_has_nothing_to_scale() {
        let mut history = History::of(Path::new("runs/net-1"), Holder::Free, &[]);
        assert!(alone(&history, 4).is_ok(), "only just beginning");
        history.steps = 10;
        let failure = alone(&history, 4).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "error: run `runs/net-1` is one process, and has no workers to scale\n\nhint: stop it by \
             `planaria stop runs/net-1 --wait`, then `planaria resume runs/net-1 --workers 4`"
        );
        history.workers = 2;
        assert!(alone(&history, 4).is_ok(), "only just beginning or ending");
    }
}
