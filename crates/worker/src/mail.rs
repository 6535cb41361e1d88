//! What has happened and is not yet dealt with: every thread of a session puts it here, the main
//! thread takes it out, and waits for nothing else.

use crate::duty::Input;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Most that may wait. Whoever sends so much, and is not heard, has lost its way.
const WAITING_MAX: usize = 1 << 14;

/// What waits to be dealt with.
#[derive(Default)]
pub struct Mail {
    waiting: Mutex<Waiting>,
    came: Condvar,
}

#[derive(Default)]
struct Waiting {
    inputs: VecDeque<Input>,
    has_overflowed: bool,
}

impl Mail {
    /// Puts something in. If too much waits already, the session is to end.
    pub fn put(&self, input: Input) {
        let mut waiting = self.waiting();
        if waiting.inputs.len() < WAITING_MAX {
            waiting.inputs.push_back(input);
        } else if !std::mem::replace(&mut waiting.has_overflowed, true) {
            waiting.inputs.push_back(Input::Orphaned);
        }
        self.came.notify_one();
    }

    /// The oldest, if there is one.
    pub fn take(&self) -> Option<Input> {
        self.waiting().inputs.pop_front()
    }

    /// The oldest; waits for it, so long at most.
    pub fn wait(&self, timeout: Duration) -> Option<Input> {
        let empty = |waiting: &mut Waiting| waiting.inputs.is_empty();
        let waited = self.came.wait_timeout_while(self.waiting(), timeout, empty);
        waited.expect("no thread panics with the mail").0.inputs.pop_front()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no thread panics with the mail")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_comes_out_in_order_and_is_bounded() {
        let mail = Mail::default();
        assert_eq!(mail.wait(Duration::from_millis(1)), None);
        for step in 0..2 * WAITING_MAX as u64 {
            mail.put(Input::Complete { step });
        }
        for step in 0..WAITING_MAX as u64 {
            assert_eq!(mail.take(), Some(Input::Complete { step }));
        }
        assert_eq!(mail.take(), Some(Input::Orphaned));
        assert_eq!(mail.take(), None);
    }
}
