//! How a process is killed between any two things it does.
//!
//! Everything that others can see of a process (a frame, a write that outlives it) is counted by its
//! fuse first. When that has burned down the process is unwound from wherever it stands, and nothing
//! of it is left but what it had done.

use planaria_fleet::ending::Ending;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard};

/// See the module. Clones are of the same process.
#[derive(Debug, Clone, Default)]
pub struct Fuse(Arc<Mutex<Option<u32>>>);

/// How a process has ended while it did something.
struct Ended(Ending);

impl Fuse {
    /// The process ends after it has done so many more things.
    pub fn light(&self, left: u32) {
        *self.left() = Some(left);
    }

    /// It goes on.
    pub fn put_out(&self) {
        *self.left() = None;
    }

    /// The process does something; it ends here instead if its time has come.
    pub fn burn(&self) {
        let mut left = self.left();
        match &mut *left {
            None => {}
            Some(0) => {
                drop(left);
                exit(Ending::Signal(9));
            }
            Some(left) => *left -= 1,
        }
    }

    fn left(&self) -> MutexGuard<'_, Option<u32>> {
        self.0.lock().expect("no thread panics with a fuse")
    }
}

/// Ends the process that is doing something.
pub fn exit(ending: Ending) -> ! {
    resume_unwind(Box::new(Ended(ending)))
}

/// Lets a process do something. An error if that was its last.
pub fn watch<T>(work: impl FnOnce() -> T) -> Result<T, Ending> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|cause| match cause.downcast::<Ended>() {
        Ok(ended) => ended.0,
        Err(cause) => resume_unwind(cause),
    })
}
