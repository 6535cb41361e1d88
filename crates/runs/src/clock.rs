//! The only place that asks what time it is.
//!
//! Owns elapsed time, wall-clock time and how dates are written. Never decides anything by time.

use std::time::{Duration, Instant, SystemTime};

/// Measures elapsed time, going on from what an earlier session had measured.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    started: Instant,
    before: Duration,
}

impl Stopwatch {
    /// Starts at zero.
    pub fn start() -> Self {
        Self::resume(Duration::ZERO)
    }

    /// Starts at `before`.
    #[expect(clippy::disallowed_methods, reason = "the clock module asks the system")]
    pub fn resume(before: Duration) -> Self {
        Self { started: Instant::now(), before }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.before + self.started.elapsed()
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64()
    }
}

/// The system's clock, zero when it was started.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock(Stopwatch);

impl SystemClock {
    /// Starts at zero.
    pub fn start() -> Self {
        Self(Stopwatch::start())
    }
}

impl planaria_protocol::clock::Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn unix_seconds(&self) -> f64 {
        unix_seconds()
    }

    fn cpu(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
    }
}

/// Seconds since 1970, UTC.
#[expect(clippy::disallowed_methods, reason = "the clock module asks the system")]
pub fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// `yyyymmdd-hhmmss`, UTC: what run directories are named by.
pub fn stamp(unix_seconds: u64) -> String {
    let (y, m, d, h, min, s) = civil(unix_seconds);
    format!("{y:04}{m:02}{d:02}-{h:02}{min:02}{s:02}")
}

/// `yyyy-mm-ddThh:mm:ssZ`.
pub fn iso8601(unix_seconds: u64) -> String {
    let (y, m, d, h, min, s) = civil(unix_seconds);
    format!("{y:04}-{m:02}-{d:02}T{h:02}:{min:02}:{s:02}Z")
}

/// `yyyy-mm-ddThh:mm:ss.mmmZ`: sorts by time.
pub fn iso8601_millis(unix_seconds: f64) -> String {
    let millis = (unix_seconds.max(0.0) * 1000.0) as u64;
    let text = iso8601(millis / 1000);
    format!("{}.{:03}Z", text.trim_end_matches('Z'), millis % 1000)
}

/// Year, month, day, hour, minute, second (Howard Hinnant, "chrono-compatible low-level date
/// algorithms", `civil_from_days`, for dates after 1970).
fn civil(unix_seconds: u64) -> (u64, u64, u64, u64, u64, u64) {
    let days = unix_seconds / 86_400;
    let rest = unix_seconds % 86_400;
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day, rest / 3600, rest % 3600 / 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (seconds, expect) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(iso8601(seconds), expect);
        }
        assert_eq!(stamp(1_000_000_000), "20010909-014640");
        assert_eq!(iso8601_millis(951_782_400.062_5), "2000-02-29T00:00:00.062Z");
    }
}
