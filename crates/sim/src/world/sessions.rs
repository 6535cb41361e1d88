//! Sessions of a run: how one ends, and the user who takes the run up again.

use super::foreground::{Foreground, Start};
use super::{Body, Event, FATE, FOREGROUND, Timer, World};
use crate::faults::Fault;
use planaria_protocol::message::{Agent, Outcome};
use std::time::Duration;

impl World<'_> {
    /// Everything is killed; the user takes the run up again later.
    pub fn kill_everything(&mut self) {
        for (pid, _) in self.everyone() {
            self.kill(pid);
        }
        self.resume_later();
    }

    /// The foreground is done.
    pub fn session_over(&mut self, failed: Option<String>) {
        let ended = self.verdict.ended.clone();
        self.note(|| format!("SESSION OVER {failed:?} {ended:?}"));
        for (pid, _) in self.everyone() {
            self.kill(pid);
        }
        let outcome = self.verdict.ended.as_ref().map(|ended| ended.outcome);
        match outcome {
            Some(Outcome::Completed) => {
                self.done = true;
                return;
            }
            Some(Outcome::Interrupted)
                if self.plan.faults.iter().any(|(_, f)| *f == Fault::Stop) =>
            {
                // It has ended as it should: the next goes on from its checkpoint.
                self.disk.lose_kept();
                self.verdict.record_lost();
            }
            _ if !self.healed => {}
            // What was wrong may have come to light only now, once.
            _ if self.failures_after_healing == 0 => self.failures_after_healing += 1,
            outcome => {
                let why = format!(
                    "a run fails in which nothing goes wrong any more: {outcome:?} {failed:?} {:?}",
                    self.verdict.ended
                );
                return self.fail(why);
            }
        }
        self.resume_later();
    }

    fn resume_later(&mut self) {
        let after = self.coin.about(Duration::from_millis(500));
        self.schedule(self.now + after, FATE, Event::Resume);
    }

    pub(super) fn begin_session(&mut self) {
        if self.processes.contains_key(&FOREGROUND) || self.done {
            return;
        }
        // Nothing of another session is under way.
        self.queue.retain(|_, (pid, _)| *pid == FATE);
        self.sessions += 1;
        self.verdict.session_begins();
        let start = Start::new(self);
        self.note(|| {
            format!("SESSION of generation {} from {:?}", start.generation, start.checkpoint)
        });
        let foreground = Foreground::new(self, start);
        self.put(FOREGROUND, Agent::Console, 0, Body::Foreground(Box::new(foreground)));
        self.timer(FOREGROUND, Duration::ZERO, Timer::Tick);
    }
}
