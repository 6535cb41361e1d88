//! Real time, for tests of processes that wait for each other. Never decides anything by it.

use planaria_protocol::clock::Clock;
use std::time::{Duration, Instant};

/// The system's clock, from a moment on.
pub struct SystemClock(pub Instant);

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn unix_seconds(&self) -> f64 {
        0.0
    }

    fn cpu(&self) -> Duration {
        Duration::ZERO
    }
}

#[expect(clippy::disallowed_methods, reason = "a test of processes waits in real time")]
pub fn now() -> Instant {
    Instant::now()
}
