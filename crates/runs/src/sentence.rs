//! What happened, in one sentence: the same in the coordinator's log, on the screen and on pages.
//!
//! In words, step n is the n-th: once it is done, n are. (In events a step that is under way has its
//! number, which counts from 0.) Pure text, and the only place that has words for an event.

use crate::outcome::errors_brief;
use crate::processes::Restarted;
use planaria_protocol::event::{Event, Figures, Products, What};
use planaria_protocol::message::Agent;
use planaria_text::number::{counted, duration, grouped, loss};
use planaria_text::paint::fit;

/// Shares that are listed one by one.
const SHARES_MAX: usize = 16;

/// Whether this is the name of a worker.
pub fn is_worker(agent: &str) -> bool {
    matches!(Agent::named(agent), Some(Agent::Worker(_)))
}

/// What happened and why; nothing for what comes every few steps.
pub fn sentence(event: &Event) -> Option<String> {
    Some(match &event.what {
        What::Committed { .. } | What::Steps(_) => return None,
        What::Started(started) => format!(
            "run {} begins after step {}: {} of {}, {}, {}, {}",
            started.run_id,
            grouped(started.step),
            counted(started.epochs, "epoch"),
            counted(started.steps_per_epoch, "step"),
            counted(started.shards.into(), "shard"),
            counted(started.workers.into(), "worker"),
            counted(started.servers.into(), "server")
        ),
        What::Joined { agent, pid, engine, threads, machine, .. } => {
            let means = engine.as_ref().map(|engine| {
                format!("{engine}, {}", counted(threads.unwrap_or(1).into(), "thread"))
            });
            // On another machine its number is the controller's own, and means nothing there.
            let process = machine.is_none().then(|| format!("process {pid}"));
            let machine = machine.as_ref().map_or_else(String::new, |name| format!(" on {name}"));
            let words: Vec<String> = process.into_iter().chain(means).collect();
            match words.is_empty() {
                true => format!("{agent} joined{machine}"),
                false => format!("{agent} joined{machine} ({})", words.join(", ")),
            }
        }
        What::Lost { agent, reason, .. } if is_worker(agent) => {
            format!("{agent} was lost ({}); its work goes to the others", short(reason))
        }
        What::Lost { agent, reason, .. } => format!("{agent} was lost ({})", short(reason)),
        What::Suspected { agent, step, seconds, .. } => format!(
            "{agent} is late (by {} at step {}); its work goes to the others",
            duration(*seconds),
            grouped(*step)
        ),
        What::Regained { agent } => format!("{agent} answers again"),
        What::Healed { step, stalled_seconds, .. } => {
            format!("going on: step {} was {} late", grouped(*step), duration(*stalled_seconds))
        }
        What::Scaled { workers } | What::Unpaused { workers } => {
            format!("going on with {}", counted((*workers).into(), "worker"))
        }
        What::Resized { machines } => {
            format!("going on with {}", counted((*machines).into(), "machine"))
        }
        What::Machine { machine, state, reason } => {
            let reason = reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            format!("{machine} is {}{reason}", state.text())
        }
        What::Released { agent } => format!("{agent} is no longer needed"),
        What::Paused { workers, min } => {
            format!("paused, have {workers}, need {min}: waiting for the pool")
        }
        What::Recovered { step, superseded, reason, .. } => {
            let again = match superseded {
                0 => String::new(),
                1 => "; 1 step is taken again".into(),
                n => format!("; {} are taken again", counted(*n, "step")),
            };
            let (reason, step, generation) = (short(reason), grouped(*step), event.generation);
            format!("{reason}; going on after step {step} under generation {generation}{again}")
        }
        What::NotSaved { step, reason } => {
            format!("no checkpoint of step {}: {reason}", grouped(*step))
        }
        What::Vanished { folder } => {
            format!("checkpoint `{folder}` is gone: something removed it; another is made")
        }
        What::Dealt { step, shares, reason } => {
            let counts: Vec<String> = shares.iter().map(|s| s.shards.len().to_string()).collect();
            format!(
                "shards are dealt from step {}, {}: {reason}",
                grouped(*step),
                shortened(&counts)
            )
        }
        What::Epoch { exact, .. } => {
            let text = epoch(event, None, usize::MAX).unwrap_or_default();
            text + if *exact { "" } else { "; not every example was read exactly once" }
        }
        What::Saved { step, folder, reason, .. } => {
            format!("step {} is saved in {folder}: {reason}", grouped(*step))
        }
        What::Scored { part, examples: 1, .. } => format!("1 {part} example is scored"),
        What::Scored { part, examples, .. } => {
            format!("{} {part} examples are scored", grouped(*examples))
        }
        What::Restarted { agent, reason, .. } => {
            Restarted { process: agent.clone(), reason: reason.clone() }.text()
        }
        What::Worked(done) => format!(
            "workers multiplied {}, of them {} in place of others, in {}; {} of these were \
             for decoding{}",
            counted(done.rows, "row"),
            grouped(done.extra_rows),
            duration(done.busy_seconds),
            duration(done.decode_seconds),
            moved(done)
        ),
        What::Stopping { reason } => format!("stopping: {reason}"),
        What::Ended { outcome, reason, step, .. } => {
            let why = reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            format!("{} after step {}{why}", outcome.text(), grouped(*step))
        }
    })
}

fn moved(done: &Products) -> String {
    match done.moved_rows {
        0 => String::new(),
        moved => format!(
            "; {} changed hands, {} of them without need",
            counted(moved, "row"),
            grouped(done.wasted_rows)
        ),
    }
}

/// The figures of an epoch that is done, in fewer than so many columns; `within` is the first epoch
/// that the line is about, and how many there are in all, where that is known. Nothing for other
/// events.
pub fn epoch(event: &Event, within: Option<(u64, u64)>, columns: usize) -> Option<String> {
    let What::Epoch { figures, validation_loss, validation_accuracy, validation_errors, .. } =
        &event.what
    else {
        return None;
    };
    let Figures { epoch, loss: trained, accuracy, examples_per_second, .. } = figures;
    let name = match within {
        Some((first, epochs)) if first < *epoch => format!("epochs {first}–{epoch}/{epochs}"),
        Some((_, epochs)) => format!("epoch {epoch}/{epochs}"),
        None => format!("epoch {epoch}"),
    };
    let mut parts = vec![(6, name)];
    let mut add = |rank, text: Option<String>| parts.extend(text.map(|text| (rank, text)));
    add(3, trained.map(|v| format!("loss {}", loss(v))));
    add(2, accuracy.map(|v| format!("acc {:.1}%", 100.0 * v)));
    add(4, validation_loss.map(|v| format!("val loss {}", loss(v))));
    add(5, validation_accuracy.map(|v| format!("val acc {:.2}%", 100.0 * v)));
    add(5, validation_errors.map(|errors| format!("val {}", errors_brief(&errors))));
    add(1, examples_per_second.map(|v| format!("{} ex/s", grouped(v.round() as u64))));
    add(0, Some(duration(figures.training_seconds)));
    Some(fit(parts, columns))
}

/// How something ended, without the guess at its cause: `killed by signal 9`.
fn short(reason: &str) -> &str {
    match reason.rfind(" (") {
        Some(at) if reason.ends_with(')') => &reason[..at],
        _ => reason,
    }
}

/// `3/3/2`, of many only the first.
fn shortened(counts: &[String]) -> String {
    let shown = counts[..counts.len().min(SHARES_MAX)].join("/");
    if counts.len() > SHARES_MAX { format!("{shown}/…") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_protocol::message::Share;

    #[test]
    fn every_event_has_one_sentence() {
        let shares = vec![Share { worker: 0, shards: 0..3 }, Share { worker: 1, shards: 3..5 }];
        let joined = |machine| What::Joined {
            agent: "worker-0".into(),
            pid: 7,
            engine: Some("cpu-avx2".into()),
            threads: Some(2),
            machine,
            downloaded: None,
        };
        let lost = |agent: &str, reason: &str| What::Lost {
            agent: agent.into(),
            pid: 7,
            reason: reason.into(),
        };
        let recovered = |superseded| What::Recovered {
            step: 1234,
            superseded,
            source: "kept".into(),
            reason: "server-0 was lost".into(),
            lost: None,
        };
        for (what, expect) in [
            (joined(None), "worker-0 joined (process 7, cpu-avx2, 2 threads)"),
            (joined(Some("lab-1".into())), "worker-0 joined on lab-1 (cpu-avx2, 2 threads)"),
            (
                What::Dealt { step: 10, shares, reason: "speeds".into() },
                "shards are dealt from step 10, 3/2: speeds",
            ),
            (
                lost("worker-2", "killed by signal 9 (out of memory, or kill -9)"),
                "worker-2 was lost (killed by signal 9); its work goes to the others",
            ),
            (lost("server-0", "it went away"), "server-0 was lost (it went away)"),
            (
                What::Suspected { agent: "worker-1".into(), step: 1234, shards: 2, seconds: 1.5 },
                "worker-1 is late (by 1.5 s at step 1,234); its work goes to the others",
            ),
            (recovered(0), "server-0 was lost; going on after step 1,234 under generation 3"),
            (
                recovered(1),
                "server-0 was lost; going on after step 1,234 under generation 3; 1 step is taken \
                 again",
            ),
            (What::Paused { workers: 1, min: 2 }, "paused, have 1, need 2: waiting for the pool"),
            (What::Unpaused { workers: 2 }, "going on with 2 workers"),
            (
                What::NotSaved { step: 1300, reason: "no space".into() },
                "no checkpoint of step 1,300: no space",
            ),
            (What::Stopping { reason: "asked".into() }, "stopping: asked"),
        ] {
            let event = Event { seconds: 0.0, unix_seconds: 0.0, generation: 3, what };
            assert_eq!(sentence(&event).as_deref(), Some(expect));
        }
    }
}
