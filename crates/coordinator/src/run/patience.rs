//! How long a step may take before the servers are asked what it waits for: learned from the steps.

use std::time::Duration;

/// Least patience: a busy machine may leave a process alone for so long.
const LEAST: f64 = 0.1;
/// Patience before any step was measured.
const FIRST: f64 = 5.0;
const MOST: f64 = 120.0;
/// How much longer than usual is late: so many times as long, and so many deviations.
const TIMES: f64 = 3.0;
const DEVIATIONS: f64 = 4.0;
/// Weight of the newest step.
const NEWEST: f64 = 0.1;

/// Measured durations of steps, and what follows from them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Patience {
    typical: Option<f64>,
    deviation: f64,
    /// False suspicions, lately.
    false_alarms: f64,
}

impl Patience {
    /// Steps are known to have taken so long.
    pub fn new(typical: Option<f64>) -> Self {
        Self { typical, deviation: typical.unwrap_or(0.0), false_alarms: 0.0 }
    }

    /// A step took so long. One that was waited for far too long says nothing of the others.
    pub fn measured(&mut self, seconds: f64) {
        let typical = self.typical.get_or_insert(seconds);
        let off = (seconds - *typical).abs().min(10.0 * *typical);
        self.deviation += NEWEST * (off - self.deviation);
        *typical += NEWEST * (seconds.min(10.0 * *typical) - *typical);
        self.false_alarms *= 0.99;
    }

    /// A worker was suspected that was only slow.
    pub fn false_alarm(&mut self) {
        self.false_alarms = (self.false_alarms + 1.0).min(4.0);
    }

    /// How long a step usually takes.
    pub fn typical(&self) -> Option<f64> {
        self.typical
    }

    /// How long a step may take, `times` it was asked after already.
    pub fn limit(&self, times: u32) -> Duration {
        let usual = match self.typical {
            None => FIRST,
            Some(typical) => TIMES * typical + DEVIATIONS * self.deviation,
        };
        let doubled = f64::from(1u32 << times.min(6)) * (1.0 + self.false_alarms);
        Duration::from_secs_f64((usual.max(LEAST) * doubled).min(MOST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_the_steps() {
        let mut patience = Patience::default();
        assert_eq!(patience.limit(0), Duration::from_secs(5), "nothing is known yet");
        (0..100).for_each(|_| patience.measured(0.5));
        let steady = patience.limit(0).as_secs_f64();
        assert!((1.5..2.0).contains(&steady), "{steady}");
        assert!(patience.limit(1) == 2 * patience.limit(0), "it grows when it was used up");
        // One step that hung does not teach that steps take long.
        patience.measured(60.0);
        assert!(patience.limit(0).as_secs_f64() < 6.0);
        (0..50).for_each(|i| patience.measured(if i % 2 == 0 { 0.2 } else { 0.8 }));
        assert!(patience.limit(0).as_secs_f64() > steady, "unsteady steps are given longer");
        (0..200).for_each(|_| patience.measured(0.001));
        assert_eq!(patience.limit(0), Duration::from_secs_f64(LEAST));
        patience.false_alarm();
        assert!(patience.limit(0) > Duration::from_secs_f64(LEAST));
    }
}
