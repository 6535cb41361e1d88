//! The same training with more and more workers.
//!
//! Owns the order of the runs and the folder they share. Each is an ordinary run. Never computes a
//! figure; [`Study`] does.

use crate::library::Planaria;
use planaria_control::stopping;
use planaria_control::talk::{Progress, Talk};
use planaria_runs::clock;
use planaria_runs::failure::{Failure, Result};
use planaria_runs::run_dir::{plain_name, write};
use planaria_runs::traces::report::Outcome;
use planaria_runs::traces::scaling::Study;
use planaria_text::number::counted;
use std::path::{Path, PathBuf};

/// A study that was done, as far as it came.
#[derive(Debug)]
pub struct Studied {
    /// What is in `scaling.json`.
    pub study: Study,
    /// The folder of it all.
    pub folder: PathBuf,
}

/// Trains once for each number of workers; one worker is this process unless servers are asked
/// for. Ends after the run under way when a stop is asked for.
pub fn run(training: &Planaria, workers: &[u16], talk: Talk) -> Result<Studied> {
    let source = training.source()?;
    let recipe = source.recipe();
    // Servers that are asked for are used with one worker too.
    let servers = recipe.pool.servers.filter(|servers| *servers > 0);
    let now = clock::unix_seconds() as u64;
    let name = format!("{}-scaling-{}", plain_name(&recipe.name), clock::stamp(now));
    let folder = Path::new(&recipe.output.dir).join(name);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut study = Study::new(&recipe.name, clock::iso8601(now), cores);
    let mut progress = Progress::new(talk);
    for (i, &n) in workers.iter().enumerate() {
        let of = workers.len();
        let name = counted(n.into(), "worker");
        progress.note(&format!("{name} ({} of {of})", i + 1));
        let path = folder.join(name.replace(' ', "-").replace(',', ""));
        let mut one = training.clone().workers(n.into()).folder(path.clone());
        one = one.servers(servers.unwrap_or(usize::from(n > 1)));
        // Workers are what scales, so each has as many threads as any other.
        let threads = one.threads.unwrap_or(1);
        let finished = one.threads(threads).since_now().run()?;
        match finished.failure {
            Some(failure) => return Err(failure),
            None if finished.report.outcome == Outcome::Interrupted => break,
            None => study.push(n.into(), path.display().to_string(), &finished.report),
        }
        study.complete = study.runs.len() == workers.len();
        keep(&folder, &study)?;
        if stopping::asked() {
            break;
        }
    }
    Ok(Studied { study, folder })
}

fn keep(folder: &Path, study: &Study) -> Result<()> {
    write(&folder.join("scaling.html"), study.page().as_bytes())?;
    write(&folder.join("scaling.json"), study.to_json().as_bytes())
}

/// The numbers of workers in a text such as `1,2,4`.
pub fn worker_counts(text: &str) -> Result<Vec<u16>> {
    let wrong = |what: &str| {
        Failure::user(format!("`--scaling {text}`: {what}"))
            .hint("write numbers of workers from 1 to 4096, such as `--scaling 1,2,4`")
    };
    let counts = text
        .split(',')
        .map(|n| n.trim().parse::<u16>().ok().filter(|n| (1..=4096).contains(n)))
        .collect::<Option<Vec<u16>>>()
        .ok_or_else(|| wrong("not a list of numbers"))?;
    let repeated = (1..counts.len()).any(|i| counts[..i].contains(&counts[i]));
    if repeated { Err(wrong("a number is there twice")) } else { Ok(counts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        assert_eq!(worker_counts("1, 2,4").unwrap(), [1, 2, 4]);
        for wrong in ["", "0", "1,,2", "two", "1,1", "5000", "-1"] {
            let refused = worker_counts(wrong).unwrap_err();
            assert_eq!(refused.exit, planaria_runs::failure::Exit::User, "{wrong}");
        }
    }
}
