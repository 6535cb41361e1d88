//! Which epoch was best, and whether to stop: a pure decision with its reason.
//!
//! Owns the rule and the verdict; what was seen is the run's state. Never sees weights or files; the
//! course acts on the verdict.

use planaria_protocol::state::{Best, Watch};
use planaria_recipe::train::{EarlyStopping, Monitor};

/// What is watched, and how patiently.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Which figure decides.
    pub monitor: Monitor,
    /// Epochs without improvement before training ends; `None` never ends it.
    pub patience: Option<u64>,
    /// Smallest change that keeps the patience up.
    pub min_delta: f64,
}

impl Rule {
    /// The recipe's rule, or the best by accuracy (loss for regression) without an end.
    pub fn new(early_stopping: Option<&EarlyStopping>, classification: bool) -> Self {
        match early_stopping {
            Some(rule) => Self {
                monitor: if classification { rule.monitor } else { Monitor::Loss },
                patience: Some(rule.patience as u64),
                min_delta: f64::from(rule.min_delta),
            },
            None => Self {
                monitor: if classification { Monitor::Accuracy } else { Monitor::Loss },
                patience: None,
                min_delta: 0.0,
            },
        }
    }
}

/// What follows from an epoch's figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// It is the best so far.
    pub is_best: bool,
    /// Why training ends here.
    pub stop: Option<String>,
}

/// Takes in the figure of an epoch; one that is not finite never counts as better.
pub fn observe(
    watch: &mut Watch,
    rule: &Rule,
    value: Option<f64>,
    epoch: u64,
    step: u64,
) -> Verdict {
    let gain = |from: f64, to: f64| match rule.monitor {
        Monitor::Loss => from - to,
        Monitor::Accuracy => to - from,
    };
    let is_best = value.is_some_and(|v| watch.best.is_none_or(|b| gain(b.value, v) > 0.0));
    if let (true, Some(value)) = (is_best, value) {
        watch.best = Some(Best { value, epoch, step });
    }
    let improved =
        value.is_some_and(|v| watch.reference.is_none_or(|r| gain(r, v) > rule.min_delta));
    if improved {
        watch.reference = value;
        watch.epochs_waited = 0;
    } else {
        watch.epochs_waited += 1;
    }
    let stop = rule.patience.filter(|p| watch.epochs_waited >= *p).map(|patience| {
        let what = match rule.monitor {
            Monitor::Loss => "loss",
            Monitor::Accuracy => "accuracy",
        };
        let epochs = if patience == 1 { "epoch" } else { "epochs" };
        let by = match rule.min_delta {
            delta if delta > 0.0 => format!(" by more than {}", rule.min_delta as f32),
            _ => String::new(),
        };
        match watch.best {
            Some(b) => format!(
                "{what} has not improved{by} for {patience} {epochs}; best {:.4} in epoch {}",
                b.value, b.epoch
            ),
            None => format!("{what} was never a number in {patience} {epochs}"),
        }
    });
    Verdict { is_best, stop }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(monitor: Monitor, patience: u64, min_delta: f64, values: &[f64], expect: &str) {
        let rule = Rule { monitor, patience: Some(patience), min_delta };
        let mut watch = Watch::default();
        let mut seen = String::new();
        for (epoch, value) in (1..).zip(values) {
            let value = value.is_finite().then_some(*value);
            let verdict = observe(&mut watch, &rule, value, epoch, epoch * 10);
            seen.push(match (verdict.is_best, verdict.stop.is_some()) {
                (true, false) => 'b',
                (true, true) => 'B',
                (false, true) => 'S',
                (false, false) => '.',
            });
        }
        assert_eq!(seen, expect, "{values:?}");
    }

    #[test]
    fn verdicts() {
        let nan = f64::NAN;
        check(Monitor::Loss, 2, 0.0, &[3.0, 2.0, 2.0, 1.0, 1.5, 1.2], "bb.b.S");
        check(Monitor::Accuracy, 2, 0.0, &[0.5, 0.6, 0.6, 0.6], "bb.S");
        // Small gains make a best checkpoint but do not keep the patience up.
        check(Monitor::Accuracy, 2, 0.1, &[0.5, 0.55, 0.58], "bbB");
        check(Monitor::Loss, 2, 0.0, &[nan, 1.0, nan, nan], ".b.S");
        check(Monitor::Loss, 1, 0.0, &[nan], "S");
    }

    #[test]
    fn the_reason_names_the_best_epoch() {
        let rule = Rule { monitor: Monitor::Loss, patience: Some(1), min_delta: 0.0 };
        let mut watch = Watch::default();
        observe(&mut watch, &rule, Some(0.25), 1, 5);
        let stop = observe(&mut watch, &rule, Some(0.5), 2, 10).stop.unwrap();
        assert_eq!(stop, "loss has not improved for 1 epoch; best 0.2500 in epoch 1");
    }
}
