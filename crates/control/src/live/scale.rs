//! Asks a live run to go on with more or fewer workers.

use crate::live::console::{Console, News};
use planaria_protocol::event::What;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Failure, Result};
use std::time::Duration;

/// What came of it: workers before, and after.
#[derive(Debug, PartialEq, Eq)]
pub struct Scaled {
    pub before: Option<u32>,
    pub workers: u32,
}

/// Asks one coordinator; nothing if it goes away or says nothing.
pub fn ask(
    console: &Console,
    workers: u32,
    since: &Stopwatch,
    within: Duration,
) -> Result<Option<Scaled>> {
    let (mut before, mut is_asked) = (None, false);
    loop {
        let left = within.saturating_sub(since.elapsed());
        if left.is_zero() {
            return Ok(None);
        }
        match console.next(left) {
            News::Event(event) => match event.what {
                What::Started(started) => before = Some(started.workers),
                What::Scaled { workers: now } if is_asked && now == workers => {
                    return Ok(Some(Scaled { before, workers }));
                }
                // It may also come from another who asks at the same time.
                What::Scaled { workers: now } => before = Some(now),
                What::Ended { .. } => {
                    return Err(Failure::user("the run has just ended"));
                }
                _ => {}
            },
            // What has happened is told before where the run is: `before` is right.
            News::Pulse(_) if !is_asked => {
                if before == Some(workers) {
                    return Ok(Some(Scaled { before, workers }));
                }
                console.scale(workers);
                is_asked = true;
            }
            News::Pulse(_) | News::Pool(_) | News::Resize(_) | News::Kill { .. } => {}
            News::Nothing | News::Finish | News::Gone(_) => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::console::Watching;
    use crate::live::console::tests::fake;
    use planaria_protocol::message::FromConsole;

    const WITHIN: Duration = Duration::from_secs(20);

    #[test]
    fn a_coordinator_is_asked_once_and_its_answer_waited_for() {
        let answer = |said: &FromConsole| match said {
            FromConsole::Scale { workers } => Some(What::Scaled { workers: *workers }),
            _ => None,
        };
        // That there were four once is no answer.
        let events = [4, 3].map(|workers| What::Scaled { workers }).to_vec();
        let (address, passport, _listening, heard) = fake(events, answer);
        let join = || Console::join(&address, &passport, "b", Watching::default()).unwrap();
        let since = Stopwatch::start();
        let scaled = ask(&join(), 4, &since, WITHIN).unwrap();
        assert_eq!(scaled, Some(Scaled { before: Some(3), workers: 4 }));
        // Who has as many says so, and is not asked.
        let scaled = ask(&join(), 3, &since, WITHIN).unwrap();
        assert_eq!(scaled, Some(Scaled { before: Some(3), workers: 3 }));
        let asked = heard.try_iter().filter(|said| matches!(said, FromConsole::Scale { .. }));
        assert_eq!(asked.count(), 1);
    }
}
