//! What a coordinator writes down before it lets a step count, so that another can go on from it.

use super::Saving;
use planaria_numerics::digest::Digest;
use planaria_protocol::event::What;
use planaria_protocol::journal::is_figure;
use planaria_protocol::state::State;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Bytes of waiting events that a record may hold; it has room for twice as many.
const WAITING_BYTES_MAX: usize = 32 << 10;
/// The shortest event is longer than this.
const EVENT_BYTES_MIN: usize = 32;

/// The decisions of a run as far as they must outlive their process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// How far the run has come.
    pub state: State,
    /// A checkpoint that is due: whether it is the best, and why.
    pub due: Option<(bool, String)>,
    /// Whether something has happened that no checkpoint holds.
    pub unsaved: bool,
    /// The checkpoint on its way to the disk.
    pub saving: Option<Saving>,
    /// Committed steps that no event has told yet.
    pub pending: Option<Pending>,
    /// How long a step usually takes.
    pub step_seconds: Option<f64>,
    /// Workers wanted.
    pub workers: u32,
    /// Events that are being written with this, as JSON.
    pub events: Vec<u8>,
}

/// Steps that count by what a session's events tell.
pub fn told_steps<'a>(told: impl IntoIterator<Item = &'a What>) -> u64 {
    told.into_iter().fold(0, |step, what| match what {
        What::Started(started) => started.step,
        What::Recovered { step, .. } => *step,
        What::Committed { end_step, .. } => *end_step,
        _ => step,
    })
}

/// Committed steps of one epoch that no event has told yet.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    pub epoch: u64,
    /// First of them.
    pub first_step: u64,
    /// The one after the last.
    pub end_step: u64,
    /// The examples that were read for them.
    pub read: Digest,
}

impl Pending {
    /// As an event.
    pub fn event(&self) -> What {
        let Self { epoch, first_step, end_step, read } = *self;
        What::Committed { epoch, first_step, end_step, read }
    }
}

impl Record {
    /// A record without events.
    pub fn new(state: State) -> Self {
        Self {
            state,
            due: None,
            unsaved: false,
            saving: None,
            pending: None,
            step_seconds: None,
            workers: 0,
            events: Vec::new(),
        }
    }

    /// Adds the events that are being written with it.
    pub fn with_events(mut self, events: &[&What]) -> Self {
        if !events.is_empty() {
            self.events = What::list_to_json(events);
        }
        self
    }

    /// Adds the events that wait for the disk, which come before those that are written with it.
    pub fn with_waiting(self, waiting: &[What]) -> Self {
        self.with_summary(&summary(waiting))
    }

    /// Adds the [`summary`] of the events that wait for the disk.
    pub fn with_summary(mut self, summary: &[u8]) -> Self {
        match (summary, &self.events[..]) {
            ([], _) => {}
            (_, []) => self.events = summary.to_vec(),
            // Two lists in brackets, neither of them empty.
            ([before @ .., _], [_, after @ ..]) => {
                self.events = [before, b",", after].concat();
            }
        }
        self
    }

    /// Takes out the events that were being written with it and do not stand in `told`, and the
    /// steps that none has told.
    pub fn take_untold(&mut self, told: &[What]) -> Vec<What> {
        let events = std::mem::take(&mut self.events);
        let events = What::list_from_json(&events);
        let pending = self.pending.take().map(|pending| pending.event());
        // Steps that are taken again are told again, in the same words.
        let anew = |what: &What| matches!(what, What::Started(_) | What::Recovered { .. });
        let is_own = |what: &What| events.iter().any(|own| is_same(own, what));
        let began = told.iter().rposition(|what| anew(what) && !is_own(what));
        let steps = told_steps(told);
        let mut told = &told[began.unwrap_or(0)..];
        let begins = |what: &What| anew(what) && !told.iter().any(|told| is_same(told, what));
        if steps > self.state.step && !events.iter().any(begins) {
            // Later events were told: a coordinator that could not write its record left this
            // behind.
            return Vec::new();
        }
        let mut untold = Vec::new();
        for what in events.into_iter().chain(pending) {
            let place = told.iter().position(|told| is_same(told, &what));
            match (anew(&what), place) {
                (true, Some(place)) => told = &told[place + 1..],
                (true, None) => {
                    told = &[];
                    untold.push(what);
                }
                (false, Some(_)) => {}
                (false, None) => untold.extend(rest_of(what, told)),
            }
        }
        untold
    }
}

/// What of an event is not in `told`: of steps, those that come after.
fn rest_of(what: What, told: &[What]) -> Option<What> {
    let What::Committed { epoch, mut first_step, end_step, mut read } = what else {
        return Some(what);
    };
    for told in told {
        if let What::Committed { epoch: of, first_step: from, end_step: to, read: part } = told
            && (*of, *from) == (epoch, first_step)
            && *to <= end_step
        {
            first_step = *to;
            read.count = read.count.wrapping_sub(part.count);
            read.sum = read.sum.wrapping_sub(part.sum);
        }
    }
    (first_step < end_step).then_some(What::Committed { epoch, first_step, end_step, read })
}

/// What events that wait for the disk tell, as JSON, in their order and in little room: steps that
/// follow each other with nothing between them are told as one. Where that is not enough, figures go
/// first and then all that no audit needs. Empty where there is nothing to tell.
pub fn summary<'a>(waiting: impl IntoIterator<Item = &'a What>) -> Vec<u8> {
    // The next coordinator is asked itself to stop, and ends in its own way.
    let lasts = |what: &&What| !matches!(what, What::Stopping { .. } | What::Ended { .. });
    let mut waiting: Vec<&What> = waiting.into_iter().filter(lasts).collect();
    let needed = |what: &What| {
        matches!(what, What::Started(_) | What::Recovered { .. } | What::Committed { .. })
    };
    let keep: [&dyn Fn(&What) -> bool; 3] = [&|_| true, &|what| !is_figure(what), &needed];
    for keep in keep {
        waiting.retain(|what| keep(what));
        let events = merged(&waiting);
        if events.is_empty() {
            break;
        }
        if events.len() > WAITING_BYTES_MAX / EVENT_BYTES_MIN {
            continue;
        }
        let text = What::list_to_json(&events.iter().map(|event| &**event).collect::<Vec<_>>());
        if text.len() <= WAITING_BYTES_MAX {
            return text;
        }
    }
    Vec::new()
}

/// Tells neighbouring steps as one. Steps with something between them stay apart: what lies between
/// would else be told after steps that came later.
fn merged<'a>(waiting: &[&'a What]) -> Vec<Cow<'a, What>> {
    let mut events: Vec<Cow<'a, What>> = Vec::new();
    for what in waiting {
        if let What::Committed { epoch, first_step, end_step, read } = what
            && let Some(last) = events.last_mut()
            && let What::Committed { epoch: of, end_step: to, .. } = **last
            && (of, to) == (*epoch, *first_step)
            && let What::Committed { end_step: to, read: sum, .. } = last.to_mut()
        {
            (*to, *sum) = (*end_step, sum.combine(*read));
            continue;
        }
        events.push(Cow::Borrowed(what));
    }
    events
}

/// Whether two events of one lineage tell the same. Figures may have lost their last bit on their
/// way through text.
fn is_same(a: &What, b: &What) -> bool {
    match (a, b) {
        (What::Steps(a), What::Steps(b)) => a.step == b.step,
        (What::Epoch { figures: a, .. }, What::Epoch { figures: b, .. }) => a.epoch == b.epoch,
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_protocol::event::Figures;

    fn committed(first_step: u64, end_step: u64) -> What {
        What::Committed { epoch: 0, first_step, end_step, read: (first_step..end_step).collect() }
    }

    fn recovered(step: u64) -> What {
        let text = || "x".to_owned();
        What::Recovered { step, superseded: 1, source: text(), reason: text(), lost: None }
    }

    fn steps(step: u64) -> What {
        What::Steps(Figures {
            step,
            epoch: 1,
            loss: Some(0.5),
            accuracy: None,
            learning_rate: 0.1,
            examples_per_second: Some(1e3),
            training_seconds: 2.5,
        })
    }

    fn record(step: u64) -> Record {
        Record::new(State { step, ..State::default() })
    }

    #[test]
    fn a_thousand_waiting_events_are_told_in_little_room() {
        let waiting: Vec<What> =
            (0..1000).flat_map(|i| [committed(10 * i, 10 * i + 10), steps(10 * i + 10)]).collect();
        let kept = record(10_010).with_events(&[&committed(10_000, 10_010)]);
        let kept = kept.with_summary(&summary(&waiting));
        assert!(kept.events.len() <= WAITING_BYTES_MAX + 1000, "{}", kept.events.len());
        let untold = kept.clone().take_untold(&[]);
        assert_eq!(untold, [committed(0, 10_000), committed(10_000, 10_010)]);
        // The disk has taken some of them after all, then all, then even more.
        let untold = kept.clone().take_untold(&waiting[..7]);
        assert_eq!(untold, [committed(40, 10_000), committed(10_000, 10_010)]);
        assert_eq!(kept.clone().take_untold(&waiting), [committed(10_000, 10_010)]);
        let told = [&waiting[..], &[committed(10_000, 10_010)]].concat();
        assert_eq!(kept.clone().take_untold(&told), []);

        // Few are kept as they are; who comes next is asked to stop itself.
        let few = [committed(0, 1), steps(1), What::Stopping { reason: "asked".into() }];
        assert_eq!(record(1).with_waiting(&few).take_untold(&[]), &few[..2]);
        assert!(summary(&few[2..]).is_empty());
        // What cannot be told in little room is left out.
        let lost = |i: u32| What::Lost { agent: format!("{i}"), pid: i, reason: "x".repeat(99) };
        let many: Vec<What> = (0..500).map(lost).chain([committed(0, 1)]).collect();
        assert_eq!(record(1).with_waiting(&many).take_untold(&[]), [committed(0, 1)]);
        let many: Vec<What> = (0..2000).map(recovered).collect();
        assert!(summary(&many).is_empty());
    }

    #[test]
    fn what_waits_is_told_in_its_order() {
        let lost = || What::Lost { agent: "worker-0".into(), pid: 1, reason: "x".into() };
        let waiting = [committed(0, 1), steps(1), committed(1, 2), steps(2), lost()];
        let waiting = [&waiting[..], &[committed(2, 3), committed(3, 4), steps(4)]].concat();
        let kept = record(4).with_waiting(&waiting);
        let merged = [&waiting[..5], &[committed(2, 4), steps(4)]].concat();
        assert_eq!(kept.clone().take_untold(&[]), merged);
        // Whatever the disk has taken after all, the rest follows it.
        for told in 0..=waiting.len() {
            let untold = kept.clone().take_untold(&waiting[..told]);
            let expected = if told <= 5 { &merged[told..] } else { &waiting[told..] };
            assert_eq!(untold, expected, "{told}");
        }
        // Without figures for want of room, the others keep their places.
        let before = (0..1000).flat_map(|i| [committed(i, i + 1), steps(i + 1)]);
        let many: Vec<What> = before.chain([lost(), committed(1000, 1001)]).collect();
        let untold = record(1001).with_waiting(&many).take_untold(&[]);
        assert_eq!(untold, [committed(0, 1000), lost(), committed(1000, 1001)]);
    }

    #[test]
    fn a_record_that_was_left_behind_tells_nothing_again() {
        let mut old = record(20).with_waiting(&[committed(0, 10), committed(10, 20)]);
        old.pending =
            Some(Pending { epoch: 0, first_step: 15, end_step: 20, read: Digest::default() });
        let told = [committed(0, 10), committed(10, 15), committed(15, 30)];
        assert_eq!(old.clone().take_untold(&told), []);
        // One that goes back is not behind.
        let mut back = record(5).with_events(&[&recovered(5)]);
        assert_eq!(back.clone().take_untold(&told), [recovered(5)]);
        let told = [&told[..], &[recovered(5)]].concat();
        assert_eq!(back.take_untold(&told), []);
    }

    #[test]
    fn steps_that_are_taken_again_are_told_again() {
        let waiting = [committed(0, 5), committed(5, 10), recovered(5), committed(5, 10)];
        let kept = record(10).with_waiting(&waiting);
        for told in 0..=waiting.len() {
            let untold = kept.clone().take_untold(&waiting[..told]);
            let expected = match told {
                0 => vec![committed(0, 10), recovered(5), committed(5, 10)],
                told => waiting[told..].to_vec(),
            };
            assert_eq!(untold, expected, "{told}");
        }
    }
}
