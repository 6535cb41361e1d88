//! How soon a process that cannot reach another tries again. Pure.

use std::time::Duration;

/// Pause of the first tries: a process lost on this machine is restarted within milliseconds.
pub const RETRY_SOON: Duration = Duration::from_millis(4);
pub const RETRY: Duration = Duration::from_millis(20);

/// Time before the next try of a process that has tried for so long: soon at first, so that a loss of
/// a moment costs little more than that moment.
pub fn retry_after(tried_for: Duration) -> Duration {
    (tried_for / 4).clamp(RETRY_SOON, RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_come_soon_at_first_and_then_at_their_pace() {
        let mut now = Duration::ZERO;
        let times = (0..10).map(|_| {
            let before = now;
            now += retry_after(now);
            (now - before).as_millis()
        });
        assert_eq!(times.collect::<Vec<_>>(), [4, 4, 4, 4, 4, 5, 6, 7, 9, 12]);
        assert_eq!(retry_after(Duration::from_secs(29)), RETRY);
    }
}
