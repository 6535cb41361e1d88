//! What tests of pools share: real components, started here and gone afterwards.

pub mod engine;
pub mod frameworks;
pub mod pooled;
pub mod workspace;

use std::io::Write;
use std::time::Duration;

/// Says that a test does not run, and why. Where all must run that is an error.
#[track_caller]
pub fn skip(why: &str) {
    let must = std::env::var_os("PLANARIA_REQUIRE_HOSTS").is_some_and(|value| value == "1");
    assert!(!must, "PLANARIA_REQUIRE_HOSTS=1, but {why}");
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Waits until something is so; three minutes at most, because frameworks take their time to start on
/// a busy machine.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..3600 {
        if is_so() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    panic!("{what} did not come about");
}
