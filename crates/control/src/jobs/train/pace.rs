//! Which epochs have a line of their own: at most a few a second, and always the last.
//!
//! Small networks finish a hundred epochs a second, which neither a terminal nor a log is for. Epochs
//! without a line are summed up by the next one. Pure: time comes with the events.

use planaria_protocol::event::{Event, What};

/// Seconds between lines, at least.
const PAUSE_SECONDS: f64 = 0.25;

/// What was shown, and what waits.
#[derive(Debug, Default)]
pub struct Pace {
    shown_at: Option<f64>,
    waiting: Option<Epochs>,
}

/// Epochs that one line is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Epochs {
    /// The first of them, from 1.
    pub first: u64,
    /// The event of the last.
    pub last: Event,
}

impl Pace {
    /// What is to be shown now that an epoch of so many is done; nothing for other events.
    pub fn take(&mut self, event: &Event, epochs: u64) -> Option<Epochs> {
        let What::Epoch { figures, .. } = &event.what else { return None };
        let first = self.waiting.take().map_or(figures.epoch, |waiting| waiting.first);
        let done = Epochs { first: first.min(figures.epoch), last: event.clone() };
        let passed = self.shown_at.map(|at| (event.seconds - at).abs());
        if figures.epoch < epochs && passed.is_some_and(|passed| passed < PAUSE_SECONDS) {
            self.waiting = Some(done);
            return None;
        }
        self.shown_at = Some(event.seconds);
        Some(done)
    }

    /// What still waits: something else is about to be said, or the run is over.
    pub fn rest(&mut self) -> Option<Epochs> {
        self.waiting.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_protocol::event::Figures;

    fn epoch(epoch: u64, seconds: f64) -> Event {
        let figures = Figures {
            step: 10 * epoch,
            epoch,
            loss: Some(0.5),
            accuracy: None,
            learning_rate: 0.1,
            examples_per_second: None,
            training_seconds: 0.01,
        };
        let (validation_loss, validation_accuracy) = (None, None);
        let read = Default::default();
        let validation_errors = None;
        let what = What::Epoch {
            figures,
            validation_loss,
            validation_accuracy,
            validation_errors,
            read,
            exact: true,
        };
        Event { seconds, unix_seconds: 0.0, generation: 1, what }
    }

    #[test]
    fn epochs_come_at_most_four_times_a_second_and_the_last_always() {
        let mut pace = Pace::default();
        // A hundred epochs a second.
        let all = (1..=100).map(|n| epoch(n, n as f64 * 0.01));
        let shown: Vec<(u64, Event)> =
            all.filter_map(|event| pace.take(&event, 100)).map(|e| (e.first, e.last)).collect();
        let expect = [(1, 1), (2, 26), (27, 51), (52, 76), (77, 100)];
        let expect = expect.map(|(first, last)| (first, epoch(last, last as f64 * 0.01)));
        assert_eq!(shown, expect);
        assert_eq!(pace.rest(), None);
    }

    #[test]
    fn slow_epochs_have_a_line_each_and_what_waits_can_be_had() {
        let mut pace = Pace::default();
        let firsts: Vec<Option<u64>> = [(1, 1.0), (2, 1.3), (3, 1.4), (4, 1.5)]
            .map(|(n, seconds)| pace.take(&epoch(n, seconds), 9).map(|shown| shown.first))
            .into();
        assert_eq!(firsts, [Some(1), Some(2), None, None]);
        assert_eq!(pace.rest(), Some(Epochs { first: 3, last: epoch(4, 1.5) }));
        assert_eq!(pace.rest(), None);
        // Epochs that are done again after a loss.
        assert!(pace.take(&epoch(5, 1.51), 9).is_none());
        assert_eq!(pace.take(&epoch(4, 1.9), 9).map(|shown| shown.first), Some(4));
    }
}
