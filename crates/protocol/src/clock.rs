//! Time, as it is passed in.
//!
//! Only the binary asks the system; simulations bring a clock of their own.

use std::time::Duration;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Time since some moment; never goes back.
    fn now(&self) -> Duration;

    /// Seconds since 1970, UTC.
    fn unix_seconds(&self) -> f64;

    /// Processor time that this process has used.
    fn cpu(&self) -> Duration;
}
