//! Which events are worth a line to people, and what an event means after those before it.
//!
//! The words are [`sentence`]'s; this remembers who is gone, so that a return can be told, and which
//! checkpoints are missing. Pure: the caller shows it.

use crate::sentence::{is_worker, sentence};
use planaria_protocol::event::{Event, What};
use planaria_text::number::{counted, grouped};
use std::collections::{BTreeMap, BTreeSet};

/// A step that is later than this is worth a line.
const STALL_SECONDS: f64 = 0.1;
/// Processes up to which each has a line when it joins.
const JOINED_LINES_MAX: u32 = 16;

/// A line for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Worth a line that stays.
    Note(String),
    /// Worth one where no picture shows it anyway.
    Plain(String),
}

/// What has been told so far.
#[derive(Debug, Default)]
pub struct Notices {
    /// Agents that were lost and are not back.
    lost: BTreeSet<String>,
    /// Processes that have joined.
    known: BTreeSet<(String, u32)>,
    /// The newest process of each agent.
    newest: BTreeMap<String, u32>,
    /// Processes of the session, and those of them that are still to join.
    processes: u32,
    awaited: u32,
    /// Steps done at the newest checkpoint of this session.
    saved: Option<u64>,
    /// Checkpoints since then that could not be written.
    unsaved: u64,
}

impl Notices {
    /// What happened, if it is worth a line.
    pub fn of(&mut self, event: &Event) -> Option<Notice> {
        use Notice::{Note, Plain};
        let text = sentence(event)?;
        match &event.what {
            What::Started(started) => {
                self.processes = started.workers + started.servers;
                self.awaited = self.processes;
                None
            }
            What::Joined { agent, pid, .. } => self.joined(agent, *pid, text),
            What::Lost { agent, pid, .. } => {
                if self.newest.get(agent).is_some_and(|newest| newest != pid) {
                    // Another has taken its place already, which was told.
                    return None;
                }
                self.lost.insert(agent.clone());
                // What becomes of a server's loss is told with `Recovered`.
                is_worker(agent).then_some(Note(text))
            }
            What::Released { agent } => {
                self.lost.remove(agent);
                Some(Plain(text))
            }
            What::Healed { stalled_seconds, .. } => {
                (*stalled_seconds >= STALL_SECONDS).then_some(Plain(text))
            }
            What::Vanished { .. } => {
                self.saved = None;
                Some(Note(format!("warning: {text}")))
            }
            What::NotSaved { .. } => {
                self.unsaved += 1;
                // The first of a row is a warning; more of it would hide everything else.
                (self.unsaved == 1).then(|| Note(self.not_saved(&text)))
            }
            What::Saved { step, .. } => {
                self.saved = Some(*step);
                let missed = std::mem::take(&mut self.unsaved);
                (missed > 0).then(|| {
                    let (step, missed) = (grouped(*step), counted(missed, "checkpoint"));
                    Note(format!("step {step} is saved; {missed} before it could not be"))
                })
            }
            What::Suspected { .. }
            | What::Regained { .. }
            | What::Scaled { .. }
            | What::Resized { .. }
            | What::Paused { .. }
            | What::Unpaused { .. }
            | What::Recovered { .. }
            | What::Stopping { .. } => Some(Note(text)),
            What::Dealt { .. } => Some(Plain(text)),
            // Shown as figures, or told with the report.
            What::Committed { .. }
            | What::Steps(_)
            | What::Epoch { .. }
            | What::Scored { .. }
            | What::Restarted { .. }
            | What::Machine { .. }
            | What::Worked(_)
            | What::Ended { .. } => None,
        }
    }

    fn joined(&mut self, agent: &str, pid: u32, text: String) -> Option<Notice> {
        let is_new = self.known.insert((agent.to_owned(), pid));
        let before = self.newest.insert(agent.to_owned(), pid);
        if self.lost.remove(agent) {
            return Some(Notice::Note(format!("{agent} is back")));
        }
        if before.is_some_and(|before| before != pid) {
            return Some(Notice::Note(format!("{agent} was lost and is back")));
        }
        if !is_new {
            // A process that has joined again, under a new generation.
            return None;
        }
        self.awaited = self.awaited.saturating_sub(1);
        match self.awaited {
            _ if self.processes <= JOINED_LINES_MAX => Some(Notice::Plain(text)),
            0 => Some(Notice::Plain("every process has joined".into())),
            _ => None,
        }
    }

    fn not_saved(&self, text: &str) -> String {
        let kept = match self.saved {
            Some(saved) => format!("that of step {} is kept", grouped(saved)),
            None => "none was written in this session yet".into(),
        };
        format!(
            "warning: {text}; {kept}, training goes on, and it is tried again; free some space or \
             make the folder writable meanwhile"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: What) -> Event {
        Event { seconds: 0.0, unix_seconds: 0.0, generation: 3, what }
    }

    fn told(notices: &mut Notices, what: What) -> Option<String> {
        notices.of(&event(what)).map(|notice| match notice {
            Notice::Note(text) | Notice::Plain(text) => text,
        })
    }

    fn lost(agent: &str, pid: u32) -> What {
        What::Lost { agent: agent.into(), pid, reason: "killed by signal 9".into() }
    }

    fn joined(agent: &str, pid: u32) -> What {
        What::Joined {
            agent: agent.into(),
            pid,
            engine: None,
            threads: None,
            machine: None,
            downloaded: None,
        }
    }

    #[test]
    fn a_row_of_missing_checkpoints_is_told_once() {
        let mut notices = Notices::default();
        let saved = |step| What::Saved {
            step,
            is_best: false,
            folder: String::new(),
            reason: String::new(),
        };
        let not_saved = |step| What::NotSaved { step, reason: "no space".into() };
        let warning = "warning: no checkpoint of step 1,300: no space; that of step 1,200 is kept, \
                       training goes on, and it is tried again; free some space or make the \
                       folder writable meanwhile";
        for (what, expect) in [
            (saved(1200), None),
            (not_saved(1300), Some(warning)),
            (not_saved(1400), None),
            (saved(1500), Some("step 1,500 is saved; 2 checkpoints before it could not be")),
            (saved(1600), None),
        ] {
            assert_eq!(told(&mut notices, what).as_deref(), expect);
        }
    }

    #[test]
    fn who_was_lost_is_told_to_be_back() {
        let mut notices = Notices::default();
        let text = "worker-2 was lost (killed by signal 9); its work goes to the others";
        assert_eq!(told(&mut notices, lost("worker-2", 7)).as_deref(), Some(text));
        assert_eq!(told(&mut notices, lost("server-0", 7)), None);
        assert_eq!(told(&mut notices, joined("worker-2", 9)).as_deref(), Some("worker-2 is back"));
        assert_eq!(told(&mut notices, joined("worker-2", 9)), None, "again, in a new generation");
        assert!(told(&mut notices, joined("worker-3", 8)).is_some());
        // The cause of a loss may be known only when another has come.
        let back = Some("worker-3 was lost and is back");
        assert_eq!(told(&mut notices, joined("worker-3", 9)).as_deref(), back);
        assert_eq!(told(&mut notices, lost("worker-3", 8)), None);
        assert_eq!(told(&mut notices, joined("worker-3", 9)), None);
    }
}
