//! Watches a run that is left to its machines, and takes it over where its controller is lost.
//!
//! Owns the decision that it is lost. There is one place that can succeed a controller, the run's folder
//! where it was begun, and what a controller that was merely cut off still writes never comes here: so
//! taking over by mistake costs work and no bits. Never takes over because this machine is the one that is
//! cut off.

use super::{Away, Detached, Following, succession};
use crate::stopping;
use crate::talk::{Progress, Talk};
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir::lock::{Holder, Lock};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Time between two polls of the run's controller.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Poll interval for a signal meanwhile.
const STOP_EVERY: Duration = Duration::from_millis(100);
/// How long a controller's machine may not answer. Its hosts know after 30 s that it is gone.
const SILENT_MAX: Duration = Duration::from_secs(60);
/// Folder of the watcher's lock, in the run's.
const FOLDER: &str = "watch";

/// What a watcher comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// There is nothing to go on with: the run has ended, or others have it.
    Over,
    /// Its controller is lost and what was left of it is here.
    TakenOver,
}

/// What is known of the machine of a controller that does not answer here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It may come back.
    Wait,
    /// None of the other machines answers here: it may be this one that is cut off.
    CutOff,
    /// Another machine has a link to it.
    Lives,
    /// Another machine is about to take its place.
    Passes,
    Lost,
}

/// Decides about a controller's machine that has not answered for so long; `linked` is what other
/// machines say that answer.
fn judge(silent: Duration, linked: &[bool]) -> Verdict {
    match (linked.iter().any(|is| *is), linked.is_empty()) {
        (true, _) => Verdict::Lives,
        (false, true) => Verdict::CutOff,
        (false, false) if silent < SILENT_MAX => Verdict::Wait,
        (false, false) => Verdict::Lost,
    }
}

/// Watches until the run is over, or was taken over from a controller that is lost.
pub fn watch(folder: &Path, talk: Talk) -> Result<Watched> {
    let Some(mut away) = Away::find(folder)? else {
        let message = format!("run `{}` is not left to machines", folder.display());
        return Err(Failure::user(message).hint("`planaria resume` without `--watch` goes on"));
    };
    let place = folder.join(FOLDER);
    fs::create_dir_all(&place).context(|| format!("cannot create `{}`", place.display()))?;
    let lock = Lock::take(&place)?;
    let watched = follow(&mut away, folder, talk);
    drop(lock);
    let _ = fs::remove_dir_all(place);
    watched
}

fn follow(away: &mut Away, folder: &Path, talk: Talk) -> Result<Watched> {
    let mut progress = Progress::new(talk);
    let head = &away.detached.head.name;
    progress.note(&format!("watching run {}; its controller is on {head}", folder.display()));
    let (mut answered, mut said) = (Stopwatch::steady(), None);
    loop {
        // Another command may have fetched the results, or resumed the run.
        let is_away = Detached::read(folder)?.is_some_and(|detached| !detached.is_fetched);
        if !is_away || Holder::of(folder)?.is_live() {
            progress.note("another command has taken the run; no longer watching");
            return Ok(Watched::Over);
        }
        let verdict = match away.follow(talk) {
            Ok(Following::Ended) => return Ok(Watched::Over),
            Ok(Following::Lost) => return Ok(Watched::TakenOver),
            Ok(Following::Lives) => {
                answered = Stopwatch::steady();
                None
            }
            Ok(Following::Passing) => Some(Verdict::Passes),
            Err(_) => {
                let others = away.others()?;
                let linked: Vec<bool> = others.iter().map(|one| one.heard.host.is_linked).collect();
                Some(judge(answered.elapsed(), &linked))
            }
        };
        if verdict != said
            && let Some(verdict) = verdict
        {
            progress.note(&match verdict {
                Verdict::Passes => succession::passing(&away.detached.head.name, folder),
                verdict => words(verdict, &away.detached.head.name),
            });
        }
        said = verdict;
        if verdict == Some(Verdict::Lost) {
            away.recover(&mut progress)?;
            return Ok(Watched::TakenOver);
        }
        if is_stopped() {
            progress.note("no longer watching; the run goes on without this command");
            return Ok(Watched::Over);
        }
    }
}

/// Waits until the next look; whether this command was told to stop.
fn is_stopped() -> bool {
    for _ in 0..LOOK_EVERY.as_millis() / STOP_EVERY.as_millis() {
        if stopping::asked() {
            return true;
        }
        std::thread::park_timeout(STOP_EVERY);
    }
    stopping::asked()
}

fn words(verdict: Verdict, head: &str) -> String {
    match verdict {
        Verdict::Wait => format!(
            "{head} answers neither this machine nor the others; after {} s without an answer the \
             run is taken over",
            SILENT_MAX.as_secs()
        ),
        Verdict::CutOff => {
            "no machine of the run answers; this machine may have lost its network, \
                            so nothing is taken over"
                .to_owned()
        }
        Verdict::Lives | Verdict::Passes => format!(
            "{head} does not answer this machine, but other machines reach it; the run goes on there"
        ),
        Verdict::Lost => {
            format!("{head} is lost; the run is taken over, from copies on other machines")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_lost_where_others_have_lost_it_too() {
        for (silent, linked, expect) in [
            (0, &[false][..], Verdict::Wait),
            (59, &[false, false], Verdict::Wait),
            (60, &[false, false], Verdict::Lost),
            (60, &[false, true], Verdict::Lives),
            (3600, &[true], Verdict::Lives),
            (3600, &[], Verdict::CutOff),
            (0, &[], Verdict::CutOff),
        ] {
            assert_eq!(judge(Duration::from_secs(silent), linked), expect, "{silent} {linked:?}");
        }
    }
}
