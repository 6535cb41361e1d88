//! `planaria runs`: all runs of a folder, newest first.

use crate::cli;
use crate::commands::{ago, print, runs_in};
use planaria_control::detached;
use planaria_control::talk::{Progress, Talk};
use planaria_runs::clock;
use planaria_runs::failure::{Result, plain};
use planaria_runs::history::{History, Standing};
use planaria_runs::run_dir;
use planaria_runs::run_dir::DEFAULT_RUNS;
use planaria_text::number::{loss, out_of, percent};
use std::path::Path;

/// Lists and prints.
pub fn run(options: &cli::Runs, talk: Talk) -> Result<()> {
    let dir = &options.dir;
    let is_default = dir == Path::new(DEFAULT_RUNS);
    let folders = if runs_in(dir)? { run_dir::list(dir)? } else { Vec::new() };
    folders.iter().for_each(|folder| detached::refresh(folder, talk));
    let runs =
        folders.iter().map(|folder| detached::history(folder)).collect::<Result<Vec<_>>>()?;
    if options.json {
        let text = serde_json::to_string_pretty(&runs).expect("histories have string keys only");
        return print(&(text + "\n"));
    }
    if runs.is_empty() {
        let text = format!(
            "no runs in `{}`; `planaria train RECIPE` and `planaria run` make one",
            dir.display()
        );
        Progress::new(talk).note(&text);
        return Ok(());
    }
    // What is printed can be given to the other commands as it is.
    let shown = |run: &History| match is_default {
        true => run.folder.strip_prefix(dir).unwrap_or(&run.folder).display().to_string(),
        false => run.folder.display().to_string(),
    };
    let names: Vec<String> = runs.iter().map(shown).collect();
    print(&table(&names, &runs, clock::unix_seconds()))
}

/// Columns of numbers, which end below each other.
const NUMBERS: std::ops::RangeInclusive<usize> = 3..=7;
/// The column that is there where a run has a figure for it.
const F1: usize = 5;

fn table(names: &[String], runs: &[History], now: f64) -> String {
    let head = [
        "run",
        "recipe",
        "state",
        "steps",
        "accuracy",
        "positive F1",
        "loss",
        "workers",
        "started",
    ];
    let mut rows = vec![head.map(String::from)];
    rows.extend(names.iter().zip(runs).map(|(name, run)| row(name, run, now)));
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: [usize; 9] = std::array::from_fn(width);
    let has_f1 = runs.iter().any(|run| run.f1.is_some());
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).enumerate().filter(|(i, _)| has_f1 || *i != F1);
        let cells = cells.map(|(i, (cell, width))| match NUMBERS.contains(&i) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

fn row(name: &str, run: &History, now: f64) -> [String; 9] {
    let steps = match run.steps {
        0 if run.step == 0 => String::new(),
        // How many there will be is for a script alone to know.
        steps => out_of(run.step, steps),
    };
    [
        plain(name),
        plain(&run.recipe),
        state(run),
        steps,
        run.accuracy.map_or_else(String::new, percent),
        run.f1.map_or_else(String::new, percent),
        run.loss.map_or_else(String::new, loss),
        if run.workers == 0 { String::new() } else { run.workers.to_string() },
        run.started.map_or_else(String::new, |started| ago(now - started)),
    ]
}

fn state(run: &History) -> String {
    match &run.detached {
        Some(machine) => format!("{} (detached on {})", run.state.text(), plain(machine)),
        None if run.was_quit => "stopped at once".into(),
        None if run.events_missing => match run.state {
            // Nothing says that it was.
            Standing::Killed => "events missing".into(),
            state => format!("{} (events missing)", state.text()),
        },
        None => run.state.text().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_runs::run_dir::lock::Holder;

    #[test]
    fn missing_events_are_told() {
        let mut run = History::of(Path::new("/r/net-1"), Holder::Free, &[]);
        run.events_missing = true;
        assert_eq!(state(&run), "events missing");
        run.state = Standing::Completed;
        assert_eq!(state(&run), "completed (events missing)");
        run.was_quit = true;
        assert_eq!(state(&run), "stopped at once");
    }

    #[test]
    fn columns_are_lined_up() {
        let mut run = History::of(Path::new("/r/net-1"), Holder::Free, &[]);
        let empty = run.clone();
        run.recipe = "a longer name".into();
        (run.step, run.steps, run.workers) = (12, 1200, 3);
        (run.accuracy, run.loss, run.started) = (Some(0.98765), Some(0.05), Some(1000.0));
        let names = ["net-1".into(), "s/2-workers".into()];
        let mut binary = run.clone();
        binary.f1 = Some(0.474);
        let text = table(&names, &[binary, empty.clone()], 1090.0);
        assert!(text.contains("accuracy  positive F1    loss"), "{text}");
        assert!(text.contains("98.77%       47.40%  0.0500"), "{text}");
        let text = table(&names, &[run, empty], 1090.0);
        assert_eq!(
            text,
            "run          recipe         state      steps  accuracy    loss  workers  started\n\
             net-1        a longer name  killed  12/1,200    98.77%  0.0500        3  1 min ago\n\
             s/2-workers  net-1          killed\n"
        );
    }
}
