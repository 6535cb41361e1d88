//! Where a script's run stands, in words. Pure.

use super::{started, state};
use planaria_control::jobs::about;
use planaria_recipe::JobKind;
use planaria_runs::failure::plain;
use planaria_runs::history::{History, Standing};
use planaria_runs::processes::Restarted;
use planaria_runs::story::{Story, named};
use planaria_text::number::{bytes, counted, duration};
use std::fmt::Write;

/// Machines, restarts and last lines that are shown.
const MACHINES_MAX: usize = 16;
const RESTARTS_MAX: usize = 5;
const LINES_MAX: usize = 5;
/// Columns of labels.
const LABEL: usize = 11;

pub(super) fn text(run: &History, story: &Story, columns: usize, now: f64) -> String {
    let path = plain(&run.folder.display().to_string());
    let mut text = String::new();
    let mut add = |label: &str, value: String| {
        let _ = writeln!(text, "{label:<LABEL$}{}", plain(&value).replace('\n', " "));
    };
    add("run", path.clone());
    add("state", state(run));
    if let Some(reason) = &run.reason {
        add("reason", reason.clone());
    }
    if run.events_missing {
        add("events", super::EVENTS_MISSING.into());
    }
    let framework = story.framework.map_or_else(String::new, |name| format!(" ({name})"));
    add("script", format!("{}{framework}, recipe {}", story.file, run.recipe));
    for (i, line) in processes(run, story).into_iter().enumerate() {
        add(if i == 0 { "processes" } else { "" }, line);
    }
    for (i, line) in restarts(story).into_iter().enumerate() {
        add(if i == 0 { "restarts" } else { "" }, line);
    }
    if let Some(started) = started(run, now) {
        add("started", started);
    }
    if run.state != Standing::Running && run.seconds > 0.0 {
        add("took", duration(run.seconds));
    }
    let figures = story.figures.line(columns.saturating_sub(LABEL).max(40));
    if !figures.is_empty() {
        add("figures", figures);
    }
    if story.outputs.files > 0 {
        let files = counted(story.outputs.files as u64, "file");
        add("outputs", format!("{path}/outputs: {files}, {}", bytes(story.outputs.bytes)));
    }
    for (i, line) in last_lines(story).into_iter().enumerate() {
        add(if i == 0 { "last lines" } else { "" }, line);
    }
    add("next", next(run, story, &path));
    text
}

/// Who there is, and where.
fn processes(run: &History, story: &Story) -> Vec<String> {
    let machines = story.machines();
    let count = many(story.processes.len());
    let mut lines = match &machines[..] {
        [] if run.state == Standing::Running => vec!["none yet: machines are made ready".into()],
        [] if run.events_missing => vec!["not known: its events are missing".into()],
        [] => vec!["none was started".into()],
        [(_, processes)] if story.is_here => {
            vec![format!("{count} on this machine: {}", named(processes))]
        }
        machines => vec![format!("{count} on {}", counted(machines.len() as u64, "machine"))],
    };
    if !story.is_here {
        let line = |(name, all): &(&str, Vec<_>)| format!("{name}: {}", named(all));
        lines.extend(machines.iter().take(MACHINES_MAX).map(line));
        let more = machines.len().saturating_sub(MACHINES_MAX);
        if more > 0 {
            lines.push(format!("and {} more", counted(more as u64, "machine")));
        }
    }
    if run.state == Standing::Running && !run.stopping {
        let lost = story.processes.iter().filter_map(|one| Some((one, one.lost.as_ref()?)));
        lines.extend(lost.map(|(one, how)| format!("{} does not run: {how}", one.title())));
    }
    lines
}

fn restarts(story: &Story) -> Vec<String> {
    if story.restarts == 0 {
        return Vec::new();
    }
    let mut lines = vec![format!("{} of at most {}", story.restarts, story.max_restarts)];
    let skip = story.restarted.len().saturating_sub(RESTARTS_MAX);
    lines.extend(story.restarted.iter().skip(skip).map(Restarted::text));
    lines
}

/// What the process that failed wrote last.
fn last_lines(story: &Story) -> Vec<String> {
    let failed = story.failed.as_ref();
    let lines = failed.and_then(|failed| failed["last_lines"].as_array()).into_iter().flatten();
    let lines: Vec<String> = lines.filter_map(|line| line.as_str()).map(str::to_owned).collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].to_vec()
}

/// What can be done about it.
fn next(run: &History, story: &Story, path: &str) -> String {
    let again = about(JobKind::Script).again(path);
    let failed = story.failed.as_ref().and_then(|failed| failed["process"].as_str());
    match (run.state, failed) {
        (Standing::Running, _) if run.stopping => format!("planaria logs {path} -f follows it"),
        (Standing::Running, _) => {
            format!("planaria logs {path} -f follows it; planaria stop {path} ends it")
        }
        (Standing::Completed | Standing::StoppedEarly, _) if story.outputs.files > 0 => {
            format!("its files are in {path}/outputs")
        }
        (Standing::Completed | Standing::StoppedEarly, _) => {
            format!("planaria logs {path} prints all that it wrote")
        }
        (Standing::Interrupted, _) => format!("{again} runs it once more"),
        (Standing::Killed, _) => format!(
            "planaria down {path} gives back what it may still hold; {again} runs it once more"
        ),
        (Standing::Failed, Some(process)) => format!(
            "planaria logs {path} {process} prints all that it wrote; once that is put right, {again}"
        ),
        (Standing::Failed, None) => format!("once what the reason tells is put right, {again}"),
    }
}

fn many(processes: usize) -> String {
    match processes {
        1 => "1 process".into(),
        n => format!("{n} processes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::samples::{events, job, joined, restarted};
    use planaria_protocol::event::What;
    use planaria_runs::run_dir::lock::Holder;
    use planaria_runs::summary::Summary;
    use serde_json::json;
    use std::path::Path;

    fn run(recipe: &str, holder: Holder, whats: Vec<What>) -> History {
        let events = events(whats);
        let mut run = History::of(Path::new("runs/x-1"), holder, &events);
        run.is_of(Story::of(&job(recipe), &Summary::of(&events)));
        run
    }

    fn said(run: &History) -> String {
        text(run, run.script.as_ref().unwrap(), 80, 1e9 + 60.0)
    }

    const ALIVE: Holder = Holder::Process { pid: 7, listens: true };

    #[test]
    fn a_live_run_is_told_with_its_machines() {
        let recipe = "script: {file: a.py, framework: tensorflow, roles: {chief: 1, worker: 2, \
                      ps: 1}}, pool: {provider: ssh, hosts: [h1, h2]}";
        let whats = vec![
            joined("chief-0", "h1"),
            joined("worker-0", "h1"),
            joined("worker-1", "h2"),
            joined("ps-0", "h2"),
            restarted(Some("worker-1"), 1, "worker 1 was ended by signal 9"),
            joined("worker-1", "h2"),
        ];
        let run = run(recipe, ALIVE, whats);
        assert_eq!(
            said(&run),
            "run        runs/x-1\n\
             state      running, process 7\n\
             script     a.py (tensorflow), recipe x-1\n\
             processes  4 processes on 2 machines\n\
             \x20          h1: chief 0, worker 0\n\
             \x20          h2: worker 1, ps 0\n\
             restarts   1 of at most 3\n\
             \x20          worker 1 was ended by signal 9: worker 1 is started again\n\
             started    2001-09-09 01:46:40 UTC, 1 min ago\n\
             next       planaria logs runs/x-1 -f follows it; planaria stop runs/x-1 ends it\n"
        );
    }

    #[test]
    fn a_failed_run_shows_the_last_lines() {
        let mut run = run("script: {file: a.py}", Holder::Free, vec![joined("worker-0", "m1")]);
        run.state = Standing::Failed;
        let story = run.script.as_mut().unwrap();
        story.failed = Some(json!({"process": "worker-0", "last_lines": ["a\u{1b}[2J", "b"]}));
        let text = said(&run);
        for line in [
            "processes  1 process on this machine: worker 0\n",
            "took       1.5 s\n",
            "last lines a·[2J\n           b\n",
            "next       planaria logs runs/x-1 worker-0 prints all that it wrote; once that is \
             put right, planaria run runs/x-1/recipe.yaml\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains("step"), "{text}");
    }

    #[test]
    fn every_state_says_what_to_do_next() {
        for (state, expect) in [
            (Standing::Running, "planaria logs runs/x-1 -f follows it; planaria stop"),
            (Standing::Completed, "planaria logs runs/x-1 prints all that it wrote"),
            (Standing::Interrupted, "planaria run runs/x-1/recipe.yaml runs it once more"),
            (Standing::Killed, "planaria down runs/x-1 gives back"),
            (
                Standing::Failed,
                "once what the reason tells is put right, planaria run runs/x-1/recipe.yaml",
            ),
        ] {
            let mut run = run("script: {file: a.py}", Holder::Free, vec![]);
            run.state = state;
            let text = said(&run);
            assert!(text.contains(&format!("\nnext       {expect}")), "{text}");
            assert!(!text.contains("resume"), "{text}");
        }
    }
}
