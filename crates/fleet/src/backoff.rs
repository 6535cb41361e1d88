//! Pauses between attempts, each twice as long as the one before. Pure.

use std::time::Duration;

/// How long is waited before something is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first attempt.
    pub first: Duration,
    pub longest: Duration,
}

impl Backoff {
    /// The pause after so many attempts in a row; none before the first.
    pub fn pause(self, attempts: u32) -> Duration {
        match attempts {
            0 => Duration::ZERO,
            n => self.first.saturating_mul(1 << (n - 1).min(16)).min(self.longest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };
        let pauses = [0, 1, 2, 3, 5, 6, u32::MAX].map(|n| backoff.pause(n).as_secs());
        assert_eq!(pauses, [0, 1, 2, 4, 16, 30, 30]);
    }
}
