//! `planaria status`: where a run stands, and what can be done next.

mod script;

use crate::cli;
use crate::commands::{ago, print};
use crate::picture;
use crate::screen;
use planaria_control::detached;
use planaria_control::jobs::train::kept;
use planaria_control::leftovers;
use planaria_control::live::console::News;
use planaria_control::live::control;
use planaria_control::talk::{Progress, Room, Talk};
use planaria_protocol::event::{MachineState, Pulse};
use planaria_recipe::words::listed;
use planaria_runs::clock;
use planaria_runs::failure::{Result, plain};
use planaria_runs::frame::Frame;
use planaria_runs::history::{History, Standing};
use planaria_runs::outcome::errors_text;
use planaria_runs::run_dir::find_or_newest;
use planaria_text::number::{counted, duration, grouped, loss, out_of, percent};
use serde_json::json;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// How long a live run may take to say where it is.
const PATIENCE: Duration = Duration::from_secs(3);

/// Looks and prints.
pub fn run(options: &cli::Status, talk: Talk) -> Result<()> {
    let folder = find_or_newest(options.run.as_deref())?;
    detached::refresh(&folder, talk);
    leftovers::look(&folder, &mut |text| Progress::new(talk).note(text));
    let mut history = detached::history(&folder)?;
    let pulse = match history.state {
        Standing::Running => pulse(&folder, PATIENCE),
        _ => None,
    };
    if let Some(pulse) = &pulse {
        // Events come every few steps only.
        history.step = history.step.max(pulse.step);
    }
    if let (Some(story), false) = (&history.script, options.json) {
        let columns = screen::room_of_stdout().columns;
        return print(&script::text(&history, story, columns, clock::unix_seconds()));
    }
    let kept = kept_step(&history);
    if options.json {
        let mut document = serde_json::to_value(&history).expect("string keys only");
        document["pulse"] = json!(pulse);
        document["kept_step"] = json!(kept);
        return print(&format!("{document:#}\n"));
    }
    let columns = screen::room_of_stdout().columns;
    print(&text(&history, kept, pulse.as_deref(), columns, clock::unix_seconds()))
}

/// Where a live run on several processes is at this moment; nothing where it does not answer
/// within the time.
pub fn pulse(folder: &Path, patience: Duration) -> Option<Box<Pulse>> {
    let console = control::connect(folder).ok().flatten()?;
    console.wait_for(patience, |news| match news {
        News::Pulse(pulse) => Some(pulse.clone()),
        _ => None,
    })
}

/// Steps that the processes of a run which is gone have kept beyond its last checkpoint.
fn kept_step(run: &History) -> Option<u64> {
    let is_gone = matches!(run.state, Standing::Killed | Standing::Failed) && run.workers > 0;
    let step = is_gone.then(|| kept::record(&run.folder)).flatten()?.state.step;
    (step > run.saved_step.unwrap_or(0)).then_some(step)
}

/// Said of a run whose events were deleted.
const EVENTS_MISSING: &str =
    "`events.jsonl` is missing: the rest is from `report.json` and `checkpoints`";

fn text(
    run: &History,
    kept: Option<u64>,
    pulse: Option<&Pulse>,
    columns: usize,
    now: f64,
) -> String {
    let path = plain(&run.folder.display().to_string());
    let mut text = String::new();
    let mut add = |label: &str, value: String| {
        let _ = writeln!(text, "{label:<11}{value}");
    };
    add("run", path.clone());
    add("state", state(run));
    if let Some(reason) = &run.reason {
        add("reason", plain(reason).replace('\n', " "));
    }
    if run.events_missing {
        add("events", EVENTS_MISSING.into());
    }
    if run.steps > 0 {
        let examples = counted(run.examples, "example");
        let parameters = counted(run.parameters, "parameter");
        add("recipe", format!("{}: {examples}, {parameters}", plain(&run.recipe)));
        add("processes", processes(run));
    }
    if let Some(machines) = machines(run) {
        add("machines", machines);
    }
    if let Some(survived) = survived(run) {
        add("survived", survived);
    }
    if let Some(reason) = &run.not_saved {
        add("not saved", plain(reason).replace('\n', " "));
    }
    if let Some(started) = started(run, now) {
        add("started", started);
    }
    match pulse {
        Some(pulse) => {
            let frame = Frame {
                name: run.recipe.clone(),
                epochs: run.epochs,
                steps: run.steps,
                validation_loss: run.validation_loss,
            };
            let room = Room { columns, rows: usize::MAX };
            add("next", next(run, kept, &path));
            let picture = picture::lines(&frame, pulse, room).join("\n");
            return format!("{text}\n{picture}\n");
        }
        None => {
            if let Some(done) = done(run) {
                add("done", done);
            }
            if let Some(part) = run.scored_on {
                let accuracy = run.accuracy.map(|v| format!("accuracy {}, ", percent(v)));
                let errors = run.errors.map(|errors| errors_text(&errors) + ", ");
                let errors = errors.unwrap_or_default();
                let f1 = run.f1.map(|v| format!("F1 of the positive class {}, ", percent(v)));
                let f1 = f1.unwrap_or_default();
                let loss = run.loss.map_or_else(String::new, |v| format!("loss {}", loss(v)));
                add(&part.to_string(), accuracy.unwrap_or_default() + &errors + &f1 + &loss);
            }
            if let Some(step) = run.saved_step {
                add("saved", format!("step {}", grouped(step)));
            }
            add("next", next(run, kept, &path));
        }
    }
    text
}

/// How far it has come, with the totals where they are known.
fn done(run: &History) -> Option<String> {
    let (epochs, steps) = (out_of(run.epochs_done, run.epochs), out_of(run.step, run.steps));
    let is_known = run.steps > 0 || run.events_missing;
    is_known.then(|| format!("epoch {epochs}, step {steps} in {}", duration(run.seconds)))
}

fn started(run: &History, now: f64) -> Option<String> {
    run.started.map(|started| {
        let at = clock::iso8601(started.max(0.0) as u64).replace('T', " ").replace('Z', " UTC");
        let again = match run.generation {
            0 | 1 => String::new(),
            n => format!(", generation {}", grouped(n)),
        };
        format!("{at}, {}{again}", ago(now - started))
    })
}

fn state(run: &History) -> String {
    match (run.state, run.pid) {
        (Standing::Running, pid) => {
            let doing = match run.paused {
                _ if run.stopping => "stopping".into(),
                Some((workers, min)) => {
                    format!("paused, have {workers}, need {min}: waiting for the pool")
                }
                None => "running".to_owned(),
            };
            match (pid, &run.detached) {
                (Some(pid), _) => format!("{doing}, process {pid}"),
                (None, Some(machine)) => format!("{doing}, detached on {}", plain(machine)),
                (None, None) => doing,
            }
        }
        (Standing::Killed, _) if run.was_quit => {
            "stopped at once by a second Ctrl-C or signal, without saving".into()
        }
        (Standing::Killed, _) if run.events_missing => {
            "not running; how it ended is not known: its events are missing".into()
        }
        (Standing::Killed, _) => "killed: its process is gone and has not said how it ended".into(),
        (state, _) => state.text().into(),
    }
}

fn processes(run: &History) -> String {
    match run.workers {
        0 => "1".into(),
        workers => format!(
            "{}, {}, 1 coordinator",
            counted(workers.into(), "worker"),
            counted(run.servers.into(), "server")
        ),
    }
}

/// The machines of its pool, while it has any.
fn machines(run: &History) -> Option<String> {
    if run.state != Standing::Running || run.pool.is_empty() {
        return None;
    }
    let is_ready = |state| state == MachineState::Ready;
    let ready = run.pool.iter().filter(|(_, one)| is_ready(one.state));
    let ready: Vec<String> = ready.map(|(name, _)| plain(name)).collect();
    let mut parts = vec![match ready.len() {
        0 => "none ready".to_owned(),
        count => format!("{count} ready: {}", listed(ready)),
    }];
    let others = run.pool.iter().filter(|(_, one)| !is_ready(one.state));
    let others = others.filter(|(_, one)| one.state != MachineState::Released);
    parts.extend(others.map(|(name, one)| {
        let why = one.reason.as_deref().unwrap_or_default().replace('\n', " ");
        let why = if why.is_empty() { why } else { format!(": {}", plain(&why)) };
        format!("{} {}{why}", plain(name), one.state.text())
    }));
    Some(parts.join("; "))
}

/// What was lost so far, and what became of it.
fn survived(run: &History) -> Option<String> {
    let machines = &run.machines;
    let moved = machines.processes_lost + machines.processes_joined + machines.machines_lost;
    let late = machines.suspicions;
    if moved + machines.machines_joined + late == 0 {
        return None;
    }
    let late = match late {
        0 => String::new(),
        n => format!(", late {}", counted(n, "time")),
    };
    let shards = counted(machines.recomputed_shards, "shard");
    Some(format!("{}{late}; {shards} given to others", machines.moves()))
}

/// What can be done about it.
fn next(run: &History, kept: Option<u64>, path: &str) -> String {
    match (run.state, kept.or(run.saved_step)) {
        (Standing::Running, _) if run.workers > 0 => {
            format!("planaria stop {path} saves and stops it; planaria logs {path} -f follows it")
        }
        (Standing::Running, _) => format!("planaria stop {path} saves and stops it"),
        (Standing::Completed | Standing::StoppedEarly, _) => format!("{path}/report.html"),
        (Standing::Interrupted, _) => {
            format!("planaria resume {path} goes on and ends with the same weights")
        }
        (Standing::Killed, Some(step)) => {
            format!("planaria resume {path} goes on after step {}", grouped(step))
        }
        (Standing::Killed, None) => {
            format!("planaria resume {path} starts it from step 0: nothing was saved yet")
        }
        (Standing::Failed, Some(step)) => {
            format!("{}planaria resume {path} goes on after step {}", mend(run), grouped(step))
        }
        (Standing::Failed, None) => format!("{}train again: nothing was saved", mend(run)),
    }
}

/// What is to be done about a failure before anything else.
fn mend(run: &History) -> String {
    let hint = run.hint.as_deref().map(|hint| plain(hint).replace('\n', " "));
    let hint = hint.unwrap_or_else(|| "put right what the reason tells".into());
    format!("{hint}; then ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_coordinator::record::{RecordFile, Stamp};
    use planaria_coordinator::run::record::Record;
    use planaria_protocol::message::HeldOut;
    use planaria_protocol::state::State;
    use planaria_runs::run_dir::lock::Holder;
    use planaria_runs::summary::Scored;

    fn run(state: Standing) -> History {
        let mut run =
            History::of(Path::new("runs/net-1"), Holder::Process { pid: 7, listens: true }, &[]);
        run.state = state;
        (run.step, run.steps, run.epochs_done, run.epochs) = (12, 30, 1, 3);
        (run.examples, run.parameters, run.seconds) = (1000, 2345, 4.5);
        (run.loss, run.accuracy, run.scored_on) =
            (Some(0.5), Some(0.9), Some(Scored::On(HeldOut::Validation)));
        (run.started, run.generation, run.saved_step) = (Some(1e9), 2, Some(10));
        run
    }

    #[test]
    fn every_state_says_what_to_do_next() {
        for (state, expect) in [
            (Standing::Running, "planaria stop runs/net-1 saves and stops it"),
            (Standing::Completed, "runs/net-1/report.html"),
            (Standing::StoppedEarly, "runs/net-1/report.html"),
            (Standing::Interrupted, "planaria resume runs/net-1 goes on and ends with the same"),
            (Standing::Killed, "planaria resume runs/net-1 goes on after step 10"),
            (Standing::Failed, "put right what the reason tells; then planaria resume runs/net-1"),
        ] {
            let text = text(&run(state), None, None, 80, 1e9 + 60.0);
            assert!(text.contains(&format!("\nnext       {expect}")), "{text}");
        }
    }

    #[test]
    fn what_was_kept_is_where_a_killed_run_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let folder = kept::prepare(dir.path()).unwrap();
        let mut killed = run(Standing::Killed);
        (killed.folder, killed.workers) = (dir.path().to_owned(), 2);
        assert_eq!(kept_step(&killed), None);
        let stamp = Stamp { boot: kept::boot_id(), data: String::new() };
        let mut file = RecordFile::create(&folder, &stamp).unwrap();
        for (step, expect) in [(9, None), (17, Some(17))] {
            let state = State { step, ..State::default() };
            file.write(&folder, &Record::new(state)).unwrap();
            assert_eq!(kept_step(&killed), expect);
        }
        let said = text(&killed, Some(17), None, 80, 1e9);
        assert!(said.contains(" goes on after step 17\n"), "{said}");
        killed.state = Standing::Running;
        assert_eq!(kept_step(&killed), None, "it is still at it");
    }

    #[test]
    fn a_dead_run_is_told_from_its_events() {
        let mut failed = run(Standing::Failed);
        failed.reason = Some("the loss is \x1b[31mNaN".into());
        failed.hint = Some("lower the learning rate".into());
        assert_eq!(
            text(&failed, None, None, 80, 1e9 + 60.0),
            "run        runs/net-1\n\
             state      failed\n\
             reason     the loss is ·[31mNaN\n\
             recipe     net-1: 1,000 examples, 2,345 parameters\n\
             processes  1\n\
             started    2001-09-09 01:46:40 UTC, 1 min ago, generation 2\n\
             done       epoch 1/3, step 12/30 in 4.5 s\n\
             validation accuracy 90.00%, loss 0.5000\n\
             saved      step 10\n\
             next       lower the learning rate; then planaria resume runs/net-1 goes on after step 10\n"
        );
    }

    #[test]
    fn missing_events_are_told_and_what_there_is() {
        let mut gone = run(Standing::Completed);
        (gone.events_missing, gone.steps, gone.epochs) = (true, 0, 0);
        let said = text(&gone, None, None, 80, 1e9 + 60.0);
        for line in [
            "state      completed",
            "events     `events.jsonl` is missing: the rest is from `report.json` and `checkpoints`",
            "done       epoch 1, step 12 in 4.5 s",
            "saved      step 10",
        ] {
            assert!(said.contains(&format!("{line}\n")), "{said}");
        }
        gone.state = Standing::Killed;
        let said = text(&gone, None, None, 80, 1e9 + 60.0);
        assert!(said.contains("state      not running; how it ended is not known"), "{said}");
        assert!(said.contains("goes on after step 10\n"), "{said}");
    }

    #[test]
    fn a_run_that_was_quit_is_not_called_killed() {
        let mut quit = run(Standing::Killed);
        quit.was_quit = true;
        let said = text(&quit, None, None, 80, 1e9);
        assert!(said.contains("state      stopped at once by a second Ctrl-C"), "{said}");
        assert!(said.contains("resume runs/net-1 goes on after step 10\n"), "{said}");
        assert!(!said.contains("killed"), "{said}");
    }

    #[test]
    fn losses_are_told() {
        let mut live = run(Standing::Running);
        (live.workers, live.servers, live.paused) = (2, 1, Some((1, 2)));
        (live.machines.processes_lost, live.machines.processes_joined) = (3, 2);
        live.machines.recomputed_shards = 12;
        let text = text(&live, None, None, 80, 1e9 + 60.0);
        for line in [
            "state      paused, have 1, need 2: waiting for the pool, process 7",
            "survived   3 processes lost, 2 joined; 12 shards given to others",
            "started    2001-09-09 01:46:40 UTC, 1 min ago, generation 2",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{text}");
        }
    }
}
