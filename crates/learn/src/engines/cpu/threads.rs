//! A pool of threads that do the same work together.
//!
//! Waiting spins for a moment, because steps can be shorter than waking a thread takes, then gives
//! the processor away.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// Turns of a waiting loop before the processor is given away.
const SPINS: u32 = 5_000;

/// A job: called on every thread with the thread's number.
type Job = &'static (dyn Fn(usize) + Sync);

struct Shared {
    threads: usize,
    /// The job and its number; the condition variable wakes sleepers.
    post: Mutex<(u64, Option<Job>)>,
    posted: Condvar,
    /// Number of the last job posted, for spinning.
    number: AtomicUsize,
    running: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
}

/// Threads that wait for jobs; ends and joins them when dropped.
pub struct ThreadPool {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// A pool of `threads`, the caller's thread included.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            threads,
            post: Mutex::new((0, None)),
            posted: Condvar::new(),
            number: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let handles = (1..threads)
            .map(|index| {
                let shared = shared.clone();
                std::thread::Builder::new()
                    .name(format!("shard-{index}"))
                    .spawn(move || shared.serve(index))
                    .expect("the system gives a thread")
            })
            .collect();
        Self { shared, handles }
    }

    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Runs `job(thread)` on every thread and waits for all.
    pub fn run(&self, job: impl Fn(usize) + Sync) {
        if self.shared.threads == 1 {
            job(0);
            return;
        }
        let borrowed: &(dyn Fn(usize) + Sync) = &job;
        // SAFETY: the reference outlives its use, because this function waits until every thread
        // has finished with it, even when the job panics here.
        let job: Job = unsafe { std::mem::transmute(borrowed) };
        self.shared.running.store(self.shared.threads - 1, Ordering::Relaxed);
        {
            let mut post =
                self.shared.post.lock().expect("no thread panics while it holds the post");
            *post = (post.0 + 1, Some(job));
            self.shared.number.store(post.0 as usize, Ordering::Release);
        }
        self.shared.posted.notify_all();
        let own = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(0)));
        wait_until(|| self.shared.running.load(Ordering::Acquire) == 0);
        if let Err(panic) = own {
            std::panic::resume_unwind(panic);
        }
        assert!(!self.shared.panicked.load(Ordering::Relaxed), "a thread of the pool panicked");
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        drop(self.shared.post.lock());
        self.shared.posted.notify_all();
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
    }
}

impl Shared {
    fn serve(&self, index: usize) {
        let mut seen = 0;
        while let Some((number, job)) = self.next(seen) {
            seen = number;
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(index))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.running.fetch_sub(1, Ordering::Release);
        }
    }

    fn next(&self, seen: u64) -> Option<(u64, Job)> {
        for _ in 0..SPINS {
            if self.number.load(Ordering::Acquire) as u64 != seen
                || self.stop.load(Ordering::Acquire)
            {
                break;
            }
            std::hint::spin_loop();
        }
        let mut post = self.post.lock().expect("no thread panics while it holds the post");
        loop {
            if self.stop.load(Ordering::Acquire) {
                return None;
            }
            if post.0 != seen {
                return post.1.map(|job| (post.0, job));
            }
            post = self.posted.wait(post).expect("no thread panics while it holds the post");
        }
    }
}

/// Where the pool's threads meet between parts of a job.
#[derive(Default)]
pub struct Meeting {
    arrived: AtomicUsize,
    round: AtomicUsize,
}

impl Meeting {
    /// Waits until `threads` threads have come.
    pub fn wait(&self, threads: usize) {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round + 1, Ordering::Release);
        } else {
            wait_until(|| self.round.load(Ordering::Acquire) != round);
        }
    }
}

/// Returns once `done`.
pub fn wait_until(done: impl Fn() -> bool) {
    let mut turns = 0;
    while !done() {
        if turns < SPINS {
            turns += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_runs_every_job_once() {
        for threads in [1, 2, 5] {
            let pool = ThreadPool::new(threads);
            let counts: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
            let meeting = Meeting::default();
            let met = AtomicUsize::new(0);
            for _ in 0..200 {
                met.store(0, Ordering::SeqCst);
                pool.run(|t| {
                    counts[t].fetch_add(1, Ordering::SeqCst);
                    met.fetch_add(1, Ordering::SeqCst);
                    meeting.wait(threads);
                    assert_eq!(met.load(Ordering::SeqCst), threads);
                });
            }
            assert!(counts.iter().all(|c| c.load(Ordering::SeqCst) == 200));
        }
    }

    #[test]
    #[should_panic(expected = "a thread of the pool panicked")]
    fn a_panic_on_a_thread_reaches_the_caller() {
        ThreadPool::new(2).run(|t| assert_eq!(t, 0));
    }
}
