//! `planaria runs`: all runs of a folder, newest first.

use crate::cli;
use crate::commands::{ago, print, runs_in};
use crate::screen;
use planaria_control::detached;
use planaria_control::talk::{Progress, Talk};
use planaria_runs::clock;
use planaria_runs::failure::{Result, plain};
use planaria_runs::history::{History, Standing};
use planaria_runs::run_dir;
use planaria_runs::run_dir::DEFAULT_RUNS;
use planaria_text::number::{amount, loss, out_of, percent, short};
use planaria_text::paint::{cut, shortened, width};
use std::io::IsTerminal;
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
    // A file or a program gets whole names.
    let is_terminal = std::io::stdout().is_terminal();
    let room = if is_terminal { screen::room_of_stdout().columns } else { usize::MAX };
    print(&table(&names, &runs, clock::unix_seconds(), room))
}

/// Columns.
const COLUMNS: usize = 11;
/// Columns of numbers, which end below each other.
const NUMBERS: std::ops::RangeInclusive<usize> = 3..=9;
const HEAD: [&str; COLUMNS] = [
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
/// Columns that are there where a run has a figure for them: F1, and errors of numbers to predict.
const SOMETIMES: [usize; 3] = [5, 6, 7];
/// Columns that are shortened where a terminal is narrow, in this order, and what is left of each at
/// least.
const SHORTENED: [(usize, usize); 3] = [(1, 10), (0, 26), (2, 12)];
/// Columns that are left out where that would not suffice, in this order.
const LEFT_OUT: [usize; 9] = [1, 9, 5, 7, 10, 8, 3, 6, 4];
/// What is between columns.
const GAP: &str = "  ";

/// The runs as text that is at most so many columns wide.
fn table(names: &[String], runs: &[History], now: f64, room: usize) -> String {
    let mut rows = vec![HEAD.map(String::from)];
    rows.extend(names.iter().zip(runs).map(|(name, run)| row(name, run, now)));
    let mut shown: Vec<usize> = (0..COLUMNS).collect();
    let has_figure = |column: usize| rows[1..].iter().any(|row| !row[column].is_empty());
    shown.retain(|column| !SOMETIMES.contains(column) || has_figure(*column));
    // The last column of a terminal stays free: some wrap when it is written.
    let full = widths(&rows);
    let least: [usize; COLUMNS] = std::array::from_fn(|column| {
        let shortest = SHORTENED.iter().find(|(shortened, _)| *shortened == column);
        shortest.map_or(full[column], |(_, least)| full[column].min(*least))
    });
    for column in LEFT_OUT {
        if across(&least, &shown) >= room {
            shown.retain(|kept| *kept != column);
        }
    }
    for (column, _) in SHORTENED.iter().filter(|(column, _)| shown.contains(column)) {
        let excess = (across(&widths(&rows), &shown) + 1).saturating_sub(room);
        let most = full[*column].saturating_sub(excess).max(least[*column]);
        rows.iter_mut().for_each(|row| row[*column] = shortened(&row[*column], most));
    }
    let widths = widths(&rows);
    let line = |row| cut(&line(row, &widths, &shown), room.saturating_sub(1)) + "\n";
    rows.iter().map(line).collect()
}

/// A row, with each cell as wide as its column.
fn line(row: &[String; COLUMNS], widths: &[usize; COLUMNS], shown: &[usize]) -> String {
    let cells = shown.iter().map(|column| {
        let cell = &row[*column];
        let blanks = " ".repeat(widths[*column].saturating_sub(width(cell)));
        if NUMBERS.contains(column) { blanks + cell } else { format!("{cell}{blanks}") }
    });
    cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
}

fn widths(rows: &[[String; COLUMNS]]) -> [usize; COLUMNS] {
    std::array::from_fn(|column| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0))
}

/// How wide these columns are, beside each other.
fn across(widths: &[usize; COLUMNS], shown: &[usize]) -> usize {
    let cells: usize = shown.iter().map(|column| widths[*column]).sum();
    cells + GAP.len() * shown.len().saturating_sub(1)
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
        let text = table(&names, &[binary, empty.clone()], 1090.0, usize::MAX);
        assert!(text.contains("accuracy  positive F1    loss"), "{text}");
        assert!(text.contains("98.77%       47.40%  0.0500"), "{text}");
        let mut number = run.clone();
        (number.accuracy, number.errors) =
            (None, Some(Errors { rmse: 31_204.4, mae: 20_000.0, r2: Some(0.81) }));
        let text = table(&names, &[number, empty.clone()], 1090.0, usize::MAX);
        assert!(text.contains("accuracy    RMSE    R²    loss"), "{text}");
        assert!(text.contains("          31,204  0.81  0.0500"), "{text}");
        let text = table(&names, &[run, empty], 1090.0, usize::MAX);
        assert_eq!(
            text,
            "run          recipe         state      steps  accuracy    loss  workers  started\n\
             net-1        a longer name  killed  12/1,200    98.77%  0.0500        3  1 min ago\n\
             s/2-workers  net-1          killed\n"
        );
    }

    #[test]
    fn what_a_terminal_has_no_room_for_is_shortened_then_left_out() {
        let mut run = History::of(Path::new("/r/net-1"), Holder::Free, &[]);
        run.recipe = "credit-default-three-layers".into();
        (run.step, run.steps, run.workers) = (1200, 120_000, 12);
        (run.accuracy, run.loss, run.started) = (Some(0.98765), Some(0.05), Some(1000.0));
        let name = "credit-default-three-layers-20260131-120000".to_owned();
        let lines = |room| {
            let text = table(std::slice::from_ref(&name), &[run.clone()], 1090.0, room);
            assert!(text.lines().all(|line| width(line) < room), "{room}: {text}");
            text
        };
        assert!(
            lines(usize::MAX).contains(&format!("{name}  credit-default-three-layers  killed"))
        );
        assert_eq!(
            lines(100),
            "run                         recipe      state           steps  accuracy    loss  workers  started\n\
             credit-defaul…60131-120000  credi…yers  killed  1,200/120,000    98.77%  0.0500       12  1 min ago\n"
        );
        let narrow = lines(95);
        assert!(
            !narrow.contains("recipe") && narrow.contains("-20260131-120000  killed"),
            "{narrow}"
        );
        let narrow = lines(70);
        assert!(!narrow.contains("workers") && narrow.contains("131-120000  killed"), "{narrow}");
        assert!(lines(40).ends_with("31-120000  killed\n"), "{}", lines(40));
        assert!(lines(12).starts_with("run"));
    }
}
