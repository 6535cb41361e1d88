//! Losses and what became of them, as one calm line each.
//!
//! Owns the words, and remembers who is gone so that a return can be told. Pure text: whoever asks
//! shows it.

use crate::number::{counted, duration, grouped};
use planaria_protocol::event::{Event, What};
use std::collections::{BTreeMap, BTreeSet};

/// A step that is later than this is worth a line.
const STALL_SECONDS: f64 = 0.1;

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tiding {
    /// Worth a line that stays.
    Note(String),
    /// Worth one where no picture shows it anyway.
    Plain(String),
}

/// What has been told so far.
#[derive(Debug, Default)]
pub struct Tidings {
    /// Agents that were lost and are not back.
    lost: BTreeSet<String>,
    /// Processes that have joined.
    known: BTreeSet<(String, u32)>,
    /// The newest process of each agent.
    newest: BTreeMap<String, u32>,
    /// Steps done at the newest checkpoint of this session.
    saved: Option<u64>,
    /// Checkpoints since then that could not be written.
    unsaved: u64,
}

impl Tidings {
    /// What happened, if it is worth a line.
    pub fn of(&mut self, event: &Event) -> Option<Tiding> {
        use Tiding::{Note, Plain};
        match &event.what {
            What::Lost { agent, pid, reason } => {
                if self.newest.get(agent).is_some_and(|newest| newest != pid) {
                    // Another has taken its place already, which was told.
                    return None;
                }
                self.lost.insert(agent.clone());
                let how = short(reason);
                // What becomes of a server's loss is told with `Recovered`.
                agent
                    .starts_with("worker-")
                    .then(|| Note(format!("{agent} was lost ({how}); its work goes to the others")))
            }
            What::Suspected { agent, step, seconds, .. } => Some(Note(format!(
                "{agent} is late (by {} at step {}); its work goes to the others",
                duration(*seconds),
                grouped(step + 1)
            ))),
            What::Regained { agent } => Some(Note(format!("{agent} answers again"))),
            What::Healed { step, stalled_seconds, .. } if *stalled_seconds >= STALL_SECONDS => {
                Some(Plain(format!(
                    "going on: step {} was {} late",
                    grouped(step + 1),
                    duration(*stalled_seconds)
                )))
            }
            What::Scaled { workers } => {
                Some(Note(format!("going on with {}", counted(u64::from(*workers), "worker"))))
            }
            What::Resized { machines } => {
                Some(Note(format!("going on with {}", counted(u64::from(*machines), "machine"))))
            }
            What::Released { agent } => {
                self.lost.remove(agent);
                Some(Plain(format!("{agent} is no longer needed")))
            }
            What::Paused { workers, min } => {
                Some(Note(format!("paused, have {workers}, need {min}: waiting for the pool")))
            }
            What::Unpaused { workers } => {
                Some(Note(format!("going on with {}", counted(u64::from(*workers), "worker"))))
            }
            What::Recovered { step, superseded, reason, .. } => {
                Some(Note(recovered(event.generation, *step, *superseded, reason)))
            }
            What::Vanished { folder } => {
                self.saved = None;
                Some(Note(format!(
                    "warning: checkpoint `{folder}` is gone: something removed it; another is made"
                )))
            }
            What::NotSaved { step, reason } => {
                self.unsaved += 1;
                // The first of a row is a warning; more of it would hide everything else.
                (self.unsaved == 1).then(|| Note(self.not_saved(*step, reason)))
            }
            What::Saved { step, .. } => {
                self.saved = Some(*step);
                let missed = std::mem::take(&mut self.unsaved);
                (missed > 0).then(|| {
                    let missed = counted(missed, "checkpoint");
                    Note(format!(
                        "step {} is saved; {missed} before it could not be",
                        grouped(*step)
                    ))
                })
            }
            _ => None,
        }
    }

    /// A process has joined: whether it is one that has not been told, and the line if it is back.
    pub fn joined(&mut self, agent: &str, pid: u32) -> (bool, Option<String>) {
        let is_new = self.known.insert((agent.to_owned(), pid));
        let before = self.newest.insert(agent.to_owned(), pid);
        let was_lost = self.lost.remove(agent);
        let back = match before {
            _ if was_lost => Some(format!("{agent} is back")),
            Some(before) if before != pid => Some(format!("{agent} was lost and is back")),
            _ => None,
        };
        (is_new, back)
    }

    fn not_saved(&self, step: u64, reason: &str) -> String {
        let kept = match self.saved {
            Some(saved) => format!("that of step {} is kept", grouped(saved)),
            None => "none was written in this session yet".into(),
        };
        format!(
            "warning: no checkpoint of step {}: {reason}; {kept}, training goes on, and it is tried \
             again; free some space or mend the folder meanwhile",
            grouped(step)
        )
    }
}

/// `server-0 was lost; going on after step 1,234 under generation 3`.
fn recovered(generation: u64, step: u64, superseded: u64, reason: &str) -> String {
    let again = match superseded {
        0 => String::new(),
        n => format!("; {} again", taken(n)),
    };
    let (reason, step) = (short(reason), grouped(step));
    format!("{reason}; going on after step {step} under generation {generation}{again}")
}

/// How something ended, without the guess at its end: `killed by signal 9`.
fn short(reason: &str) -> &str {
    match reason.rfind(" (") {
        Some(at) if reason.ends_with(')') => &reason[..at],
        _ => reason,
    }
}

fn taken(n: u64) -> String {
    format!("{} {} taken", counted(n, "step"), if n == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_in_one_line_each() {
        let mut tidings = Tidings::default();
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
        };
        let saved = |step| What::Saved {
            step,
            is_best: false,
            folder: String::new(),
            reason: String::new(),
        };
        for (what, expect) in [
            (
                lost("worker-2", "killed by signal 9 (out of memory, or kill -9)"),
                Some("worker-2 was lost (killed by signal 9); its work goes to the others"),
            ),
            (lost("server-0", "killed by signal 9"), None),
            (recovered(0), Some("server-0 was lost; going on after step 1,234 under generation 3")),
            (
                recovered(1),
                Some(
                    "server-0 was lost; going on after step 1,234 under generation 3; 1 step is \
                     taken again",
                ),
            ),
            (
                What::Paused { workers: 1, min: 2 },
                Some("paused, have 1, need 2: waiting for the pool"),
            ),
            (What::Unpaused { workers: 2 }, Some("going on with 2 workers")),
            (What::Regained { agent: "worker-1".into() }, Some("worker-1 answers again")),
            (saved(1200), None),
            (
                What::NotSaved { step: 1300, reason: "no space".into() },
                Some(
                    "warning: no checkpoint of step 1,300: no space; that of step 1,200 is kept, \
                     training goes on, and it is tried again; free some space or mend the folder \
                     meanwhile",
                ),
            ),
            (What::NotSaved { step: 1400, reason: "no space".into() }, None),
            (saved(1500), Some("step 1,500 is saved; 2 checkpoints before it could not be")),
            (saved(1600), None),
        ] {
            let event = Event { seconds: 0.0, unix_seconds: 0.0, generation: 3, what };
            let told = tidings.of(&event).map(|tiding| match tiding {
                Tiding::Note(text) | Tiding::Plain(text) => text,
            });
            assert_eq!(told.as_deref(), expect);
        }
        assert_eq!(tidings.joined("worker-2", 9), (true, Some("worker-2 is back".into())));
        assert_eq!(tidings.joined("worker-2", 9), (false, None), "again, in a new generation");
        assert_eq!(tidings.joined("worker-3", 8), (true, None));
        // The cause of a loss may be known only when another has come.
        let back = Some("worker-3 was lost and is back".into());
        assert_eq!(tidings.joined("worker-3", 9), (true, back));
        let what = What::Lost { agent: "worker-3".into(), pid: 8, reason: "it went away".into() };
        let late = Event { seconds: 0.0, unix_seconds: 0.0, generation: 3, what };
        assert_eq!(tidings.of(&late), None);
        assert_eq!(tidings.joined("worker-3", 9), (false, None));
    }
}
