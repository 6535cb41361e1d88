//! Asks a live run to go on with more or fewer workers or machines.

use crate::live::console::{Console, News};
use planaria_protocol::event::What;
use planaria_runs::failure::{Failure, Result};
use std::time::Duration;

/// What came of it: workers before, and after.
#[derive(Debug, PartialEq, Eq)]
pub struct Scaled {
    pub before: Option<u32>,
    pub workers: u32,
}

/// Asks one coordinator for so many workers; nothing if it goes away or says nothing.
pub fn ask(console: &Console, workers: u32, within: Duration) -> Result<Option<Scaled>> {
    let (mut before, mut is_asked) = (None, false);
    let answer = console.wait_for(within, |news| {
        match news {
            News::Event(event) => match &event.what {
                What::Started(started) => before = Some(started.workers),
                What::Scaled { workers: now } if is_asked && *now == workers => {
                    return Some(Ok(Scaled { before, workers }));
                }
                // It may also come from another command that asks at the same time.
                What::Scaled { workers: now } => before = Some(*now),
                What::Ended { .. } => return Some(Err(just_ended())),
                _ => {}
            },
            // What has happened is told before where the run is: `before` is right.
            News::Pulse(_) if before == Some(workers) && !is_asked => {
                return Some(Ok(Scaled { before, workers }));
            }
            News::Pulse(_) if !std::mem::replace(&mut is_asked, true) => console.scale(workers),
            _ => {}
        }
        None
    });
    answer.transpose()
}

/// Asks one coordinator for so many machines; nothing if it goes away or says nothing.
pub fn ask_machines(console: &Console, machines: u32, within: Duration) -> Result<Option<()>> {
    let mut is_asked = false;
    let answer = console.wait_for(within, |news| {
        match news {
            News::Event(event) => match event.what {
                What::Resized { machines: now } if is_asked && now == machines => {
                    return Some(Ok(()));
                }
                What::Ended { .. } => return Some(Err(just_ended())),
                _ => {}
            },
            News::Pulse(_) if !std::mem::replace(&mut is_asked, true) => console.resize(machines),
            _ => {}
        }
        None
    });
    answer.transpose()
}

fn just_ended() -> Failure {
    Failure::user("the run has just ended")
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
        let (address, credentials, _listening, heard) = fake(events, answer);
        let join = || Console::join(&address, &credentials, "b", Watching::default()).unwrap();
        let scaled = ask(&join(), 4, WITHIN).unwrap();
        assert_eq!(scaled, Some(Scaled { before: Some(3), workers: 4 }));
        // A run that has as many already is not asked.
        let scaled = ask(&join(), 3, WITHIN).unwrap();
        assert_eq!(scaled, Some(Scaled { before: Some(3), workers: 3 }));
        let asked = heard.try_iter().filter(|said| matches!(said, FromConsole::Scale { .. }));
        assert_eq!(asked.count(), 1);
    }
}
