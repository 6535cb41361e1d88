//! Room for what agents wrote on its way through the controller: the thread that reads a host's channel
//! waits for it, and so in the end does the host, whose disk has it all.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Bytes that may wait.
const BYTES_MAX: usize = 4 << 20;
/// How long they are waited for; a controller that takes nothing for so long does something else, and
/// must hear of other things than logs meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Room {
    inside: Mutex<Inside>,
    left: Condvar,
}

#[derive(Default)]
struct Inside {
    bytes: usize,
    /// Whether nothing has to wait any more.
    is_open: bool,
}

impl Room {
    /// Takes room for so many bytes, once there is some.
    pub(super) fn enter(&self, bytes: usize) {
        let inside = self.inside.lock().expect("no thread panics with it");
        let is_full = |inside: &mut Inside| {
            !inside.is_open && inside.bytes > 0 && inside.bytes + bytes > BYTES_MAX
        };
        let waited = self.left.wait_timeout_while(inside, WAIT_MAX, is_full);
        waited.expect("no thread panics with it").0.bytes += bytes;
    }

    /// All is over, and what comes now is little: nothing has to wait.
    pub(super) fn open(&self) {
        self.inside.lock().expect("no thread panics with it").is_open = true;
        self.left.notify_all();
    }

    pub(super) fn leave(&self, bytes: usize) {
        let mut inside = self.inside.lock().expect("no thread panics with it");
        inside.bytes = inside.bytes.saturating_sub(bytes);
        self.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn no_more_waits_than_there_is_room_for() {
        let (room, entered) = (Arc::new(Room::default()), Arc::new(AtomicUsize::new(0)));
        let piece = BYTES_MAX / 4;
        let writer = {
            let (room, entered) = (room.clone(), entered.clone());
            std::thread::spawn(move || {
                for _ in 0..40 {
                    room.enter(piece);
                    entered.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        let mut taken = 0;
        while taken < 40 {
            let now = entered.load(Ordering::SeqCst);
            assert!(now - taken <= 4, "{now} pieces, of which {taken} were taken");
            if now > taken {
                taken += 1;
                room.leave(piece);
            }
            std::thread::yield_now();
        }
        writer.join().unwrap();
        // One piece that is larger than all of it goes through alone.
        room.enter(2 * BYTES_MAX);
    }
}
