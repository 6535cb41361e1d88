//! The only place that asks what time it is.
//!
//! Owns elapsed time, wall-clock time and how dates are written. Never decides anything by time.
//! Wall-clock time is written down and shown; nothing is decided by it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Longest time between two readings that counts for decisions. In a process that decides, some
/// thread reads the clock several times a second; where none did for longer, the process did not run
/// or the clock was set, and in neither case did others have so much time.
const GAP_MAX: Duration = Duration::from_secs(5);

/// What the readings of this process add up to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Passed {
    /// All the time that has passed. A clock that goes back stands still for one reading.
    all: Duration,
    /// The same with gaps of [`GAP_MAX`] at most.
    awake: Duration,
}

impl Passed {
    /// After another reading, so long after the one before; nothing where the clock has gone back.
    fn and(self, since: Option<Duration>) -> Self {
        let since = since.unwrap_or_default();
        Self { all: self.all + since, awake: self.awake + since.min(GAP_MAX) }
    }
}

static READINGS: Mutex<(Option<Instant>, Passed)> =
    Mutex::new((None, Passed { all: Duration::ZERO, awake: Duration::ZERO }));

/// Reads the system's clock.
#[expect(clippy::disallowed_methods, reason = "the clock module asks the system")]
fn passed() -> Passed {
    let mut readings = READINGS.lock().unwrap_or_else(PoisonError::into_inner);
    // Inside the lock, or a thread that is late would see the clock go back.
    let now = Instant::now();
    let last = readings.0.replace(now).unwrap_or(now);
    readings.1 = readings.1.and(now.checked_duration_since(last));
    readings.1
}

/// Measures elapsed time, going on from what an earlier session had measured.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    started: Duration,
    before: Duration,
    is_steady: bool,
}

impl Stopwatch {
    /// Starts at zero.
    pub fn start() -> Self {
        Self::resume(Duration::ZERO)
    }

    /// Starts at `before`.
    pub fn resume(before: Duration) -> Self {
        Self { started: passed().all, before, is_steady: false }
    }

    /// Starts at zero and leaves out times in which this process did not run, and jumps of the
    /// clock: for decisions about others, in a process that looks at it all the time.
    pub fn steady() -> Self {
        Self { started: passed().awake, before: Duration::ZERO, is_steady: true }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        let passed = passed();
        let now = if self.is_steady { passed.awake } else { passed.all };
        self.before + (now - self.started)
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64()
    }
}

/// The clock of decisions, zero when it was started: see [`Stopwatch::steady`].
#[derive(Debug, Clone, Copy)]
pub struct SystemClock(Stopwatch);

impl SystemClock {
    /// Starts at zero.
    pub fn start() -> Self {
        Self(Stopwatch::steady())
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

/// Seconds by a clock that all processes of this machine share until it is started again, and that no
/// one can set.
pub fn machine_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
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
    fn jumps_of_the_clock_are_no_time_for_others() {
        let (tick, day) = (Duration::from_millis(100), Duration::from_secs(86_400));
        let mut passed = Passed::default();
        for _ in 0..10 {
            passed = passed.and(Some(tick));
        }
        assert_eq!((passed.all, passed.awake), (tick * 10, tick * 10));
        let forward = passed.and(Some(10 * day));
        assert_eq!((forward.all, forward.awake), (tick * 10 + 10 * day, tick * 10 + GAP_MAX));
        // Back: it stands still once, and goes on from there.
        let back = passed.and(None);
        assert_eq!(back, passed);
        assert_eq!(back.and(Some(tick)).awake, tick * 11);
    }

    #[test]
    fn time_passes_for_every_stopwatch() {
        let (plain, steady) = (Stopwatch::resume(Duration::from_secs(7)), Stopwatch::steady());
        std::thread::park_timeout(Duration::from_millis(2));
        assert!(plain.elapsed() > Duration::from_secs(7));
        assert!(steady.elapsed() > Duration::ZERO);
        assert!(machine_seconds() > 0.0);
    }

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
