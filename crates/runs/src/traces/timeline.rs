//! What happened along the steps of a run, from its events: what was lost, where it was resumed, and
//! which workers were there.
//!
//! A fold, as [`Summary`](crate::summary::Summary) is, of what pages draw over their curves. Pure.

use crate::sentence::sentence;
use crate::traces::strip::{self, Presence, ROWS_MAX, Row};
use planaria_protocol::event::{Event, MachineState, Started, What};
use planaria_protocol::message::Agent;
use planaria_text::number::grouped;
use std::collections::{BTreeMap, BTreeSet};

/// Marks that are remembered: the first ones.
const MARKS_MAX: usize = 400;

/// What a mark is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Best,
    Resumed,
    Lost,
}

impl Kind {
    pub fn class(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Resumed => "resumed",
            Self::Lost => "lost",
        }
    }

    /// As the key of a chart has it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Best => "best epoch",
            Self::Resumed => "resumed",
            Self::Lost => "a process or machine was lost",
        }
    }
}

/// Something at a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Steps done by then.
    pub step: u64,
    pub kind: Kind,
    pub text: String,
}

/// All of it, event by event.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    pub marks: Vec<Mark>,
    /// Steps of the whole run.
    steps: u64,
    /// Steps done.
    step: u64,
    is_begun: bool,
    workers: BTreeMap<u32, Worker>,
    /// The column that every worker's row has, as each is there now.
    filled: Option<u64>,
    /// Columns in which it waited for machines.
    paused: BTreeSet<u64>,
}

/// A worker at this moment, and before.
#[derive(Debug, Clone, Default)]
struct Worker {
    now: Option<Presence>,
    row: Row,
}

impl Timeline {
    /// Of all events of a run.
    pub fn of(events: &[Event]) -> Self {
        let mut timeline = Self::default();
        events.iter().for_each(|event| timeline.take(event));
        timeline
    }

    /// The next event.
    pub fn take(&mut self, event: &Event) {
        match &event.what {
            What::Started(started) => self.begin(started),
            What::Committed { end_step, .. } => self.advance(*end_step),
            What::Steps(figures) | What::Epoch { figures, .. } => self.advance(figures.step),
            What::Joined { agent, .. } => self.becomes(agent, Some(Presence::Ready)),
            What::Regained { agent } => self.becomes(agent, Some(Presence::Ready)),
            What::Suspected { agent, .. } => self.becomes(agent, Some(Presence::Late)),
            What::Released { agent } => self.becomes(agent, None),
            What::Lost { agent, .. } if Agent::named(agent) != Some(Agent::Coordinator) => {
                self.mark(Kind::Lost, sentence(event));
                self.becomes(agent, Some(Presence::Lost));
            }
            What::Recovered { step, lost, .. } => {
                if lost.as_deref().and_then(Agent::named) == Some(Agent::Coordinator) {
                    self.mark(Kind::Lost, sentence(event));
                }
                self.step = *step;
            }
            What::Machine { state: MachineState::Lost, .. } => {
                self.mark(Kind::Lost, sentence(event));
            }
            What::Paused { .. } => {
                self.paused.insert(strip::column(self.step, self.steps));
            }
            What::Ended { step, .. } => {
                self.advance(*step);
                self.workers.values_mut().for_each(|worker| worker.now = None);
            }
            _ => {}
        }
    }

    /// The workers of the run as a strip, where it had any.
    pub fn strip(&self) -> Option<maud::Markup> {
        let rows =
            self.workers.iter().take(ROWS_MAX).map(|(number, worker)| (*number, &worker.row));
        (rows.len() > 0).then(|| strip::drawing(self.steps, rows, &self.paused))
    }

    /// A session begins; one that was there before was resumed, at the step this one begins with.
    fn begin(&mut self, started: &Started) {
        self.steps = started.epochs * started.steps_per_epoch;
        self.step = started.step;
        if std::mem::replace(&mut self.is_begun, true) {
            let text = format!("resumed after step {}", grouped(started.step));
            self.mark(Kind::Resumed, Some(text));
        }
        self.workers.values_mut().for_each(|worker| worker.now = None);
    }

    /// Those who are there at this moment are there until this step.
    fn advance(&mut self, step: u64) {
        let column = |step| strip::column(step, self.steps);
        // A column is of the steps that were taken in it; the last step done begins the next.
        let (from, to) = (column(self.step), column(step.saturating_sub(1)));
        self.step = step;
        if from == to && self.filled.replace(to) == Some(to) {
            return;
        }
        for worker in self.workers.values_mut() {
            let now = worker.now.into_iter();
            now.for_each(|now| (from..=to).for_each(|column| worker.row.mark(column, now)));
        }
    }

    fn becomes(&mut self, agent: &str, presence: Option<Presence>) {
        let Some(Agent::Worker(number)) = Agent::named(agent) else { return };
        let column = strip::column(self.step, self.steps);
        self.filled = None;
        let worker = self.workers.entry(number).or_default();
        worker.now = presence;
        // What lasts for less than a step is seen too.
        presence.into_iter().for_each(|presence| worker.row.mark(column, presence));
    }

    fn mark(&mut self, kind: Kind, text: Option<String>) {
        if self.marks.len() < MARKS_MAX {
            let text = text.unwrap_or_default();
            self.marks.push(Mark { step: self.step, kind, text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_protocol::event::Figures;

    fn event(what: What) -> Event {
        Event { seconds: 0.0, unix_seconds: 0.0, generation: 1, what }
    }

    fn started(step: u64) -> What {
        What::Started(Started {
            run_id: "net-1".into(),
            recipe: "net".into(),
            version: String::new(),
            recipe_sha256: String::new(),
            step,
            epochs: 10,
            steps_per_epoch: 10,
            examples: 100,
            parameters: 50,
            classification: true,
            workers: 2,
            servers: 1,
            shards: 8,
            batch: 10,
            digest: Default::default(),
        })
    }

    fn joined(agent: &str) -> What {
        What::Joined {
            agent: agent.into(),
            pid: 7,
            engine: None,
            threads: None,
            machine: None,
            downloaded: None,
        }
    }

    fn lost(agent: &str) -> What {
        let reason = "killed by signal 9".into();
        What::Lost { agent: agent.into(), pid: 7, reason }
    }

    fn steps(step: u64) -> What {
        What::Steps(Figures {
            step,
            epoch: 1,
            loss: Some(0.5),
            accuracy: None,
            learning_rate: 0.1,
            examples_per_second: None,
            training_seconds: 1.0,
        })
    }

    fn of(whats: Vec<What>) -> Timeline {
        Timeline::of(&whats.into_iter().map(event).collect::<Vec<_>>())
    }

    #[test]
    fn losses_and_resumes_are_marked_at_their_steps() {
        let timeline = of(vec![
            started(0),
            joined("worker-0"),
            joined("server-0"),
            steps(30),
            lost("worker-0"),
            steps(40),
            lost("server-0"),
            // Its successor says so.
            lost("coordinator"),
            What::Recovered {
                step: 35,
                superseded: 5,
                source: "kept".into(),
                reason: "coordinator was lost".into(),
                lost: Some("coordinator".into()),
            },
            started(35),
        ]);
        let marks: Vec<(u64, Kind)> = timeline.marks.iter().map(|m| (m.step, m.kind)).collect();
        let expect = [(30, Kind::Lost), (40, Kind::Lost), (40, Kind::Lost), (35, Kind::Resumed)];
        assert_eq!(marks, expect);
        assert!(timeline.marks[0].text.starts_with("worker-0 was lost (killed by signal 9)"));
        assert_eq!(timeline.marks[3].text, "resumed after step 35");
        assert!(of(vec![started(0)]).marks.is_empty(), "the first session resumes nothing");
    }

    #[test]
    fn who_was_there_follows_from_events() {
        let timeline = of(vec![
            started(0),
            joined("worker-0"),
            joined("worker-1"),
            steps(30),
            lost("worker-1"),
            steps(50),
            joined("worker-1"),
            What::Suspected { agent: "worker-0".into(), step: 50, shards: 1, seconds: 1.0 },
            steps(60),
            What::Released { agent: "worker-0".into() },
            steps(100),
        ]);
        let row = |number: u32| timeline.workers[&number].row.presences().collect::<Vec<_>>();
        let times = |presence, count| std::iter::repeat_n(presence, count);
        // A column for each of the hundred steps.
        let expect: Vec<Presence> =
            times(Presence::Ready, 50).chain(times(Presence::Late, 10)).collect();
        assert_eq!(row(0), expect);
        let expect = times(Presence::Ready, 30).chain(times(Presence::Lost, 20));
        assert_eq!(row(1), expect.chain(times(Presence::Ready, 50)).collect::<Vec<_>>());
        assert!(of(vec![started(0), steps(9)]).strip().is_none(), "a run of one process");
        assert!(timeline.strip().unwrap().into_string().contains("worker-1: lost, steps 31 to 50"));
    }
}
