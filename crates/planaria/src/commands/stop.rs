//! `planaria stop`: asks a live run to save and end.
//!
//! How it is asked is [`planaria_control::live::stop`]'s.

use crate::cli;
use planaria_control::detached::{self, Away, Following};
use planaria_control::jobs::{about, about_run};
use planaria_control::live::stop;
use planaria_control::talk::{Progress, Talk};
use planaria_recipe::JobKind;
use planaria_runs::failure::{Failure, Result};
use planaria_runs::history::{History, Standing};
use planaria_runs::run_dir::find_or_newest;
use planaria_runs::run_dir::lock::Holder;
use planaria_text::number::grouped;
use std::time::Duration;

/// How long a coordinator may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Poll interval for the end of the run.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Stops and says so.
pub fn run(options: &cli::Stop, talk: Talk) -> Result<()> {
    let folder = find_or_newest(options.run.as_deref())?;
    let path = folder.display();
    if let Some(away) = Away::find(&folder)? {
        return elsewhere(away, options.wait, talk);
    }
    let holder = Holder::of(&folder)?;
    if !holder.is_live() {
        return Err(not_running(&detached::history(&folder)?));
    }
    let mut progress = Progress::new(talk);
    stop::request(&folder, holder)?;
    let does = about_run(&folder).stops();
    if !options.wait {
        progress.note(&format!("run {path} {does}; planaria status {path} tells when"));
        return Ok(());
    }
    progress.note(&format!("run {path} {does}"));
    while Holder::of(&folder)?.is_live() {
        std::thread::park_timeout(LOOK_EVERY);
    }
    progress.note(&ended(&detached::history(&folder)?));
    Ok(())
}

/// How a run ended that was waited for.
fn ended(history: &History) -> String {
    let path = history.folder.display().to_string();
    let step = grouped(history.step);
    match (history.state, &history.script) {
        (Standing::Interrupted, Some(_)) => {
            format!("stopped; run it once more with: {}", about(JobKind::Script).again(&path))
        }
        (state, Some(_)) => format!("run {path} {}", state.text()),
        (Standing::Interrupted, None) => {
            format!("stopped after step {step}; go on with: planaria resume {path}")
        }
        (state, None) => format!("run {path} {} after step {step}", state.text()),
    }
}

/// Stops a run that is left to machines.
fn elsewhere(mut away: Away, wait: bool, talk: Talk) -> Result<()> {
    match away.follow(talk)? {
        Following::Lives => {
            away.ask(&["stop", "RUN"])?;
            let text = format!("run {} is saving and stops", away.folder.display());
            Progress::new(talk).note(&text);
        }
        // Before another machine goes on with it.
        Following::Passing => return away.take_over(talk),
        Following::Ended | Following::Lost => {}
    }
    while wait && away.follow(talk)? == Following::Lives {
        std::thread::park_timeout(PATIENCE / 10);
    }
    Ok(())
}

/// The mistake of asking something of a run that has ended.
pub(crate) fn not_running(history: &History) -> Failure {
    let path = history.folder.display();
    let how = match history.state {
        // Its lock was let go of just now.
        Standing::Running => "it has just ended".into(),
        Standing::Killed if history.was_quit => "a second Ctrl-C or signal ended it at once".into(),
        Standing::Killed => "its process is gone".into(),
        state if history.script.is_some() => format!("it {}", past(state)),
        state => format!("it {} after step {}", past(state), grouped(history.step)),
    };
    let failure = Failure::user(format!("run `{path}` is not running: {how}"));
    match (history.state.is_done(), &history.script) {
        (true, _) => failure,
        (false, Some(_)) => {
            let again = about(JobKind::Script).again(&path.to_string());
            failure.hint(format!("`{again}` runs it once more"))
        }
        (false, None) => failure.hint(format!("go on with it by `planaria resume {path}`")),
    }
}

fn past(state: Standing) -> &'static str {
    match state {
        Standing::Completed => "has completed",
        Standing::StoppedEarly => "has stopped early",
        Standing::Interrupted => "was interrupted",
        Standing::Failed => "has failed",
        Standing::Running | Standing::Killed => "has ended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::samples;
    use planaria_runs::summary::Summary;
    use std::path::Path;

    #[test]
    fn a_run_that_is_not_running_says_how_it_ended() {
        let mut history = History::of(Path::new("runs/net-1"), Holder::Free, &[]);
        for (state, expect, hint) in [
            (Standing::Completed, "it has completed after step 0", false),
            (Standing::Interrupted, "it was interrupted after step 0", true),
            (Standing::Killed, "its process is gone", true),
        ] {
            history.state = state;
            let failure = not_running(&history);
            assert_eq!(failure.message, format!("run `runs/net-1` is not running: {expect}"));
            assert_eq!(
                (failure.exit, failure.hint.is_some()),
                (planaria_runs::failure::Exit::User, hint)
            );
        }
    }

    #[test]
    fn a_script_has_no_steps() {
        let mut history = History::of(Path::new("runs/x-1"), Holder::Free, &[]);
        let job = samples::job("script: {file: a.py}");
        history.is_of(planaria_runs::story::Story::of(&job, &Summary::default()));
        history.state = Standing::Interrupted;
        let again = "planaria run runs/x-1/recipe.yaml";
        assert_eq!(ended(&history), format!("stopped; run it once more with: {again}"));
        let failure = not_running(&history).to_string();
        assert!(failure.contains("is not running: it was interrupted\n"), "{failure}");
        assert!(failure.contains(&format!("`{again}` runs it once more")), "{failure}");
    }
}
