//! `planaria down`: gives back what runs hold.
//!
//! A live run is stopped first. What cannot be given back stays written down, so that it can be
//! tried again.

use crate::cli;
use crate::commands::{print, runs_in};
use planaria_control::holdings::{self, Account, Holding};
use planaria_control::talk::{Progress, Talk};
use planaria_runs::failure::{Failure, Result};
use planaria_runs::run_dir::{DEFAULT_RUNS, find};
use planaria_text::number::counted;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What became of all runs that were asked for.
#[derive(Default, Serialize)]
struct Summary {
    runs: Vec<Account>,
    failed: Vec<Failed>,
}

/// A run that could not be gone through.
#[derive(Serialize)]
struct Failed {
    run: PathBuf,
    why: String,
    hint: Option<String>,
}

/// Gives back, and says what.
pub fn run(options: &cli::Down, talk: Talk) -> Result<()> {
    let mut progress = Progress::new(talk);
    let folders = folders(options)?;
    let mut summary = Summary::default();
    for folder in &folders {
        match holdings::give_back(folder, options.forget, &mut |word| progress.note(word)) {
            Ok(account) => summary.runs.push(account),
            // Where there is one alone its failure is the command's.
            Err(failure) if folders.len() == 1 && !options.json => return Err(failure),
            Err(Failure { message: why, hint, .. }) => {
                summary.failed.push(Failed { run: folder.clone(), why, hint });
            }
        }
    }
    if options.json {
        let text = serde_json::to_string_pretty(&summary).expect("plain values");
        print(&(text + "\n"))?;
    }
    if let Some(failure) = summary.failure() {
        return Err(failure);
    }
    if summary.runs.iter().all(|account| account.given_back.is_empty()) {
        progress.note(&match &folders[..] {
            [folder] => format!("run {} holds nothing", folder.display()),
            _ => format!("no run in `{}` holds anything", options.dir.display()),
        });
    }
    Ok(())
}

/// The runs that are meant.
fn folders(options: &cli::Down) -> Result<Vec<PathBuf>> {
    if let Some(run) = &options.run {
        return named(run, &options.dir).map(|folder| vec![folder]);
    }
    let holding = match runs_in(&options.dir)? {
        true => Holding::all(&options.dir)?,
        false => Vec::new(),
    };
    let most = if options.all { usize::MAX } else { 1 };
    Ok(holding.into_iter().take(most).map(|holding| holding.folder).collect())
}

/// The run named by a path, or by its id in the folder of runs.
fn named(run: &str, dir: &Path) -> Result<PathBuf> {
    let inside = dir.join(run);
    match dir != Path::new(DEFAULT_RUNS) && !Path::new(run).is_dir() && inside.is_dir() {
        true => find(&inside.to_string_lossy()),
        false => find(run),
    }
}

impl Summary {
    /// All that could not be given back, if anything, with each reason and remedy.
    fn failure(&self) -> Option<Failure> {
        let mut lines = Vec::new();
        let (mut count, mut again) = (0, Vec::new());
        for Account { run, kept, .. } in self.runs.iter().filter(|account| !account.kept.is_empty())
        {
            count += kept.len();
            again.push(format!("`planaria down {}`", run.display()));
            for one in kept {
                lines.push(format!("  {} of {}: {}", one.machine, run.display(), one.why));
                lines.push(format!("    {}", one.hint));
            }
        }
        for Failed { run, why, hint } in &self.failed {
            again.push(format!("`planaria down {}`", run.display()));
            lines.push(format!("  {}: {why}", run.display()));
            lines.extend(hint.iter().map(|hint| format!("    {hint}")));
        }
        if lines.is_empty() {
            return None;
        }
        let what = match (count, self.failed.len()) {
            (0, runs) => counted(runs as u64, "run"),
            (machines, 0) => counted(machines as u64, "machine"),
            (machines, runs) => {
                format!(
                    "{} and {}",
                    counted(machines as u64, "machine"),
                    counted(runs as u64, "run")
                )
            }
        };
        let message = format!("{what} could not be given back\n{}", lines.join("\n"));
        let again = again.join(", ");
        let hint = format!(
            "then try again: {again}; or, where a machine is gone for good, with `--forget`"
        );
        Some(Failure::failed(message).hint(hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_control::holdings::Kept;

    #[test]
    fn what_is_kept_is_told_with_reason_and_remedy() {
        let kept = |machine: &str| Kept {
            machine: machine.into(),
            why: "no answer".into(),
            hint: "switch it on".into(),
        };
        let account = |run: &str, kept| Account { run: run.into(), given_back: vec![], kept };
        let mut summary = Summary { runs: vec![account("runs/a", vec![])], failed: vec![] };
        assert!(summary.failure().is_none());
        summary.runs.push(account("runs/b", vec![kept("node1"), kept("node2")]));
        let expect = "\
error: 2 machines could not be given back
  node1 of runs/b: no answer
    switch it on
  node2 of runs/b: no answer
    switch it on

hint: then try again: `planaria down runs/b`; or, where a machine is gone for good, with \
`--forget`";
        assert_eq!(summary.failure().unwrap().to_string(), expect);
    }
}
