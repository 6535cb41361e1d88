//! Processes that the system ended for want of memory: told apart from those that were killed.
//!
//! Owns how many of the kills that a control group counts are known already. All processes of a
//! machine's host are in one group, and share its limit.

use crate::ending::Ending;
use crate::process::SIGKILL;
use planaria_store::memory;
use std::sync::Mutex;

/// Kills for want of memory that need no explanation any more.
#[derive(Debug, Default)]
pub(crate) struct Kills(Mutex<u64>);

impl Kills {
    /// A process is about to be started: what was killed until now is not it.
    pub fn begin(&self) {
        let mut known = self.0.lock().expect("no thread panics with the count");
        *known = (*known).max(memory::kills().unwrap_or(0));
    }

    /// How a process has really ended.
    pub fn explain(&self, ending: Ending) -> Ending {
        if ending != Ending::Signal(SIGKILL) {
            return ending;
        }
        let mut known = self.0.lock().expect("no thread panics with the count");
        explained(ending, memory::kills(), &mut known, memory::usable_bytes())
    }
}

/// A process that was killed was so for want of memory, where more were than are known of.
fn explained(ending: Ending, kills: Option<u64>, known: &mut u64, usable: Option<u64>) -> Ending {
    match kills {
        Some(kills) if kills > *known => {
            *known += 1;
            Ending::OutOfMemory { limit_mib: usable.unwrap_or(0) >> 20 }
        }
        _ => ending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_short_of_memory_as_the_system_counts() {
        let (killed, mut known) = (Ending::Signal(SIGKILL), 3);
        let mut end = |kills| explained(killed, kills, &mut known, Some(96 << 20));
        assert_eq!((end(None), end(Some(3))), (killed, killed));
        let starved = Ending::OutOfMemory { limit_mib: 96 };
        assert_eq!([5, 5, 5].map(|kills| end(Some(kills))), [starved, starved, killed]);
        assert_eq!(starved.to_string(), "killed for want of memory: limit 96 MiB");
    }
}
