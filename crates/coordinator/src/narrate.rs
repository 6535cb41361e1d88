//! Events as lines of the coordinator's log. Pure text; what comes at every few steps has none.

use planaria_protocol::event::What;

/// What happened and why, in one line, if it is worth one.
pub fn line(what: &What, reason: &str) -> Option<String> {
    Some(match what {
        What::Started(started) => format!(
            "run {} begins after step {}: {} epochs of {} steps, {} shards, workers: {}, servers: {}",
            started.run_id,
            started.step,
            started.epochs,
            started.steps_per_epoch,
            started.shards,
            started.workers,
            started.servers
        ),
        What::Joined { agent, pid, machine, .. } => {
            let machine = machine.as_ref().map_or_else(String::new, |name| format!(" on {name}"));
            format!("{agent} joined{machine}, process {pid}: {reason}")
        }
        What::Lost { agent, reason, .. } => format!("{agent} was lost: {reason}"),
        What::Suspected { agent, step, shards, seconds } => format!(
            "{agent} is late by {seconds:.3} s at step {step}; others compute its shards ({shards})"
        ),
        What::Regained { agent } => format!("{agent} answers again"),
        What::Healed { step, after, stalled_seconds, .. } => {
            format!("step {step} is committed, {stalled_seconds:.3} s late, after this: {after}")
        }
        What::Scaled { workers } => format!("workers wanted from now on: {workers}"),
        What::Resized { machines } => format!("machines wanted from now on: {machines}"),
        What::Machine { machine, state, reason } => {
            let reason = reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            format!("{machine} is {}{reason}", state.text())
        }
        What::Released { agent } => format!("{agent} is no longer needed"),
        What::Paused { workers, min } => {
            format!("paused, have {workers}, need {min}: waiting for the pool")
        }
        What::Unpaused { workers } => format!("going on with workers: {workers}"),
        What::Recovered { step, superseded, source, reason } => {
            format!(
                "going on after step {step} from {source}, steps taken again: {superseded}; {reason}"
            )
        }
        What::Committed { .. } => return None,
        What::Vanished { folder } => format!("checkpoint `{folder}` is gone: something removed it"),
        What::Worked(done) => format!(
            "workers multiplied {} rows, of them {} in place of others, in {:.3} s; {:.3} s of \
             these were for decoding",
            done.rows, done.extra_rows, done.busy_seconds, done.decode_seconds
        ),
        What::NotSaved { step, reason } => format!("step {step} is not saved: {reason}"),
        What::Dealt { step, shares, reason } => {
            let counts: Vec<String> = shares.iter().map(|s| s.shards.len().to_string()).collect();
            format!("dealt {} shards from step {step}: {reason}", counts.join("/"))
        }
        What::Steps(_) => return None,
        What::Epoch { figures, validation_loss, validation_accuracy, exact, .. } => {
            let figure = |name: &str, value: Option<f64>| {
                value.map_or_else(String::new, |value| format!(", {name} {value:.4}"))
            };
            format!(
                "epoch {} is done after step {}{}{}{}{}",
                figures.epoch,
                figures.step,
                figure("loss", figures.loss),
                figure("validation loss", *validation_loss),
                figure("validation accuracy", *validation_accuracy),
                if *exact { "" } else { "; not every example was read exactly once" }
            )
        }
        What::Saved { step, folder, reason, .. } => {
            format!("step {step} is saved in {folder}: {reason}")
        }
        What::Scored { part, examples, .. } => {
            format!("{examples} {part} examples are scored: {reason}")
        }
        What::Restarted { agent, reason, .. } => match agent {
            Some(agent) => format!("{agent} is started again: {reason}"),
            None => format!("all processes are started again: {reason}"),
        },
        What::Stopping { reason } => format!("stopping: {reason}"),
        What::Ended { outcome, reason, step, .. } => {
            let why = reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            format!("{outcome} after step {step}{why}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_protocol::message::Share;

    #[test]
    fn events_are_told_with_their_reasons() {
        let shares = vec![Share { worker: 0, shards: 0..3 }, Share { worker: 1, shards: 3..5 }];
        let joined = |machine| What::Joined {
            agent: "worker-0".into(),
            pid: 7,
            engine: None,
            threads: None,
            machine,
            downloaded: None,
        };
        for (what, expect) in [
            (joined(None), "worker-0 joined, process 7: why"),
            (joined(Some("lab-1".into())), "worker-0 joined on lab-1, process 7: why"),
            (
                What::Dealt { step: 9, shares, reason: "speeds".into() },
                "dealt 3/2 shards from step 9: speeds",
            ),
            (What::Stopping { reason: "asked".into() }, "stopping: asked"),
            (
                What::Lost { agent: "worker-2".into(), pid: 7, reason: "it went away".into() },
                "worker-2 was lost: it went away",
            ),
            (What::Paused { workers: 1, min: 2 }, "paused, have 1, need 2: waiting for the pool"),
            (
                What::Recovered {
                    step: 9,
                    superseded: 2,
                    source: "checkpoints/step-9".into(),
                    reason: "server-0 was lost".into(),
                },
                "going on after step 9 from checkpoints/step-9, steps taken again: 2; server-0 was lost",
            ),
            (
                What::NotSaved { step: 9, reason: "no space".into() },
                "step 9 is not saved: no space",
            ),
        ] {
            assert_eq!(line(&what, "why").as_deref(), Some(expect));
        }
    }
}
