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
use planaria_text::number::{amount, loss, out_of, percent, short};
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

/// Columns.
const COLUMNS: usize = 11;
/// Columns of numbers, which end below each other.
const NUMBERS: std::ops::RangeInclusive<usize> = 3..=9;
/// Columns that are there where a run has a figure for them: F1, and errors of numbers to predict.
const SOMETIMES: [usize; 3] = [5, 6, 7];

fn table(names: &[String], runs: &[History], now: f64) -> String {
    let head = [
        "run",
        "recipe",
        "state",
        "steps",
        "accuracy",
        "positive F1",
        "RMSE",
        "R²",
        "loss",
        "workers",
        "started",
    ];
    let mut rows = vec![head.map(String::from)];
    rows.extend(names.iter().zip(runs).map(|(name, run)| row(name, run, now)));
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let has_figure = |i: &usize| rows[1..].iter().any(|row| !row[*i].is_empty());
    let is_shown: [bool; COLUMNS] =
        std::array::from_fn(|i| !SOMETIMES.contains(&i) || has_figure(&i));
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).enumerate().filter(|(i, _)| is_shown[*i]);
        let cells = cells.map(|(i, (cell, width))| match NUMBERS.contains(&i) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

fn row(name: &str, run: &History, now: f64) -> [String; COLUMNS] {
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
        run.errors.map_or_else(String::new, |errors| amount(errors.rmse)),
        run.errors.and_then(|errors| errors.r2).map_or_else(String::new, short),
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
    use planaria_numerics::regression::Errors;
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
        let mut number = run.clone();
        (number.accuracy, number.errors) =
            (None, Some(Errors { rmse: 31_204.4, mae: 20_000.0, r2: Some(0.81) }));
        let text = table(&names, &[number, empty.clone()], 1090.0);
        assert!(text.contains("accuracy    RMSE    R²    loss"), "{text}");
        assert!(text.contains("          31,204  0.81  0.0500"), "{text}");
        let text = table(&names, &[run, empty], 1090.0);
        assert_eq!(
            text,
            "run          recipe         state      steps  accuracy    loss  workers  started\n\
             net-1        a longer name  killed  12/1,200    98.77%  0.0500        3  1 min ago\n\
             s/2-workers  net-1          killed\n"
        );
    }
}
