//! What a worker has to do, and what it does next: leases held, whether it has entered, and which
//! parameters are there.
//!
//! Pure: told what has happened ([`Input`]), it says what to do ([`Output`]), and owns no thread,
//! link or clock. The process and the simulator drive the same one, a new one for each session.
//! Every [`Output::Compute`] and [`Output::Evaluate`] is answered, by [`Input::Done`],
//! [`Input::Scored`] or [`Input::Over`], before the next is said.

mod held;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod tests;

use crate::gradient::{Lease, Task};
use crate::session::method::Batch;
use crate::session::scoring::Scoring;
use held::{Buffers, Place};
use planaria_protocol::message::{HeldOut, ServerRange, Sha256};
use planaria_protocol::methods::sync::{Command, Report};
use std::ops::Range;
use std::time::Duration;

/// Most leases and evaluations that are held at a time. A coordinator that asks for more has lost
/// its way, and is joined again.
pub const ORDERS_MAX: usize = 4096;

/// Something that has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The coordinator said this.
    Command(Command),
    /// Score the parameters after `step` steps on these batches.
    Evaluate { part: HeldOut, step: u64, batches: Range<u64>, enter: bool },
    /// All leases and evaluations are void.
    Revoke,
    /// The parameters after `step` steps are all there.
    Complete {
        /// Steps done.
        step: u64,
    },
    /// Parameters after `step` steps came and could not be taken.
    Missed {
        /// Steps done.
        step: u64,
    },
    /// The parameters after `step` steps, which something was to be done with, are no longer there:
    /// later ones are written over them. What was to be done is not done.
    Over {
        /// Steps done.
        step: u64,
    },
    /// The state after `step` steps is there.
    State {
        /// Steps done.
        step: u64,
    },
    /// A server says that more than `step` steps are committed, so it has them no more.
    Gone {
        /// Steps done.
        step: u64,
    },
    /// The SHA-256 of the parameters after `step` steps, by server.
    Hashes {
        /// Steps done.
        step: u64,
        /// Of each server's blocks, in the order of servers.
        sha256: Vec<Sha256>,
    },
    /// The task is computed.
    Done(Work),
    /// The batch is scored, and its scores are told.
    Scored,
    /// The link to a server has ended.
    Ended { server: u32, why: String },
    /// A second has passed since [`Output::Linger`].
    Lingered,
}

/// What a task cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    pub examples: u64,
    /// Time of computing.
    pub busy: Duration,
    /// Time of waiting before it, for parameters, data or leases.
    pub waiting: Duration,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Connect to these servers, then tell the coordinator `Ready`.
    Connect(Vec<ServerRange>),
    /// Tell all servers to follow from here.
    Follow {
        /// Steps done.
        step: u64,
    },
    /// Tell all servers to send no more.
    Unfollow,
    /// Ask server 0 for the state.
    State {
        /// Steps done.
        step: u64,
    },
    /// Hash the parameters, and say [`Input::Hashes`] (or [`Input::Over`]).
    Hash {
        /// Steps done.
        step: u64,
    },
    /// Tell the coordinator.
    Tell(Report),
    /// Compute and push this, and say [`Input::Done`] (or [`Input::Over`]).
    Compute(Task),
    /// Score one batch, tell the scores, and say [`Input::Scored`] (or [`Input::Over`]).
    Evaluate(Batch),
    /// A task is not needed any more: forget what was read for it.
    Skip(Task),
    /// Forget what was read ahead for the first so many leases of this session.
    Forget { leases: u64 },
    /// Say [`Input::Lingered`] in a second.
    Linger,
    /// End all links, and join again.
    Rejoin,
}

/// What a worker has to do in one session.
#[derive(Debug, Clone, Default)]
pub struct Duty {
    standing: Standing,
    has_begun: bool,
    leases: Vec<Lease>,
    scoring: Scoring,
    /// Leases of this session so far.
    leases_seen: u64,
    buffers: Buffers,
    /// Where it is to enter once it has entered where it does now.
    gates: Vec<u64>,
    /// The first step whose parameters the servers were asked for.
    following: Option<u64>,
    /// Whose state was asked for, and whether it has come.
    state: Option<(u64, bool)>,
    doing: Option<Doing>,
    /// Whether the coordinator knows that parameters were missed.
    is_behind: bool,
    pace: Work,
}

/// How the worker stands to the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Out,
    /// Following. If it was in before, what comes before `step` goes on: the others wait for it.
    Entering { step: u64, wait: Wait, was_in: bool },
    /// Its parameters are the run's.
    In,
    /// A link to a server has ended.
    Cut,
    /// The session is over.
    Over,
}

/// What is waited for while entering, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Parameters,
    Hashes,
    Entered,
}

/// What was said to be done last, and is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Task { step: u64, lease: u64 },
    Batch { step: u64 },
}

/// What comes next, by place in its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Lease(usize),
    Evaluation,
}

impl Duty {
    /// Of a worker that has just joined.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in what has happened, and appends what to do to `out`, in order.
    pub fn on(&mut self, input: Input, out: &mut Vec<Output>) {
        if self.standing == Standing::Over {
            return;
        }
        match input {
            Input::Command(command) => self.obey(command, out),
            Input::Evaluate { part, step, batches, enter } => {
                if self.takes(step, enter, out) {
                    self.scoring.add(part, step, batches, self.leases_seen);
                }
            }
            Input::Revoke => self.revoke(out),
            Input::Complete { step } => self.buffers.complete(step),
            Input::Missed { step } => self.buffers.missed(step),
            Input::Over { step } => {
                self.buffers.over(step);
                self.end_doing(out);
            }
            Input::State { step } => {
                if self.state.is_some_and(|(asked, _)| asked == step) {
                    self.state = Some((step, true));
                }
            }
            Input::Gone { step } => self.gone(step, out),
            Input::Hashes { step, sha256 } => {
                if self.waits_for(Wait::Hashes, step) {
                    self.now_waits_for(Wait::Entered);
                    out.push(Output::Tell(Report::Holds { step, sha256 }));
                }
            }
            Input::Done(work) => {
                self.pace.examples += work.examples;
                self.pace.busy += work.busy;
                self.pace.waiting += work.waiting;
                self.end_doing(out);
            }
            Input::Scored => self.end_doing(out),
            Input::Ended { server, why } => self.cut(server, why, out),
            Input::Lingered if self.standing == Standing::Cut => self.rejoin(out),
            Input::Lingered => {}
        }
        self.go_on(out);
    }

    fn obey(&mut self, command: Command, out: &mut Vec<Output>) {
        match command {
            Command::Begin { servers } if !self.has_begun => {
                self.has_begun = true;
                out.push(Output::Connect(servers));
            }
            // It has forgotten who this is.
            Command::Begin { .. } => self.rejoin(out),
            Command::Lease { steps, shards, enter } => {
                let number = self.leases_seen;
                self.leases_seen += 1;
                let first = steps.first_step;
                let lease = Lease::new(number, steps, shards);
                if self.takes(first, enter, out) && !lease.is_worked_off() {
                    self.leases.push(lease);
                }
            }
            Command::Entered { step } => {
                if matches!(self.standing, Standing::Entering { step: s, .. } if s == step) {
                    self.standing = Standing::In;
                }
            }
        }
    }

    fn revoke(&mut self, out: &mut Vec<Output>) {
        self.forget(out);
        if self.standing != Standing::Cut {
            self.standing = Standing::Out;
            self.following = None;
            self.is_behind = false;
            out.push(Output::Unfollow);
        }
    }

    /// Whether an order that begins at `step` is to be kept. Enters, where that is asked.
    fn takes(&mut self, step: u64, enter: bool, out: &mut Vec<Output>) -> bool {
        if self.standing == Standing::Cut {
            return false;
        }
        if self.leases.len() + self.scoring.len() >= ORDERS_MAX {
            self.rejoin(out);
            return false;
        }
        if enter {
            match self.standing {
                // The earlier first, or the later parameters would never come.
                Standing::Entering { step: now, .. } if now < step => self.gates.push(step),
                Standing::Entering { step: now, .. } => {
                    self.gates.push(now);
                    self.enter(step, out);
                }
                _ => self.enter(step, out),
            }
        } else if self.standing == Standing::Out {
            // Nothing that it needs will come, before it enters.
            self.behind(step, out);
        }
        true
    }

    fn enter(&mut self, step: u64, out: &mut Vec<Output>) {
        let was_in =
            matches!(self.standing, Standing::In | Standing::Entering { was_in: true, .. });
        self.standing = Standing::Entering { step, wait: Wait::Parameters, was_in };
        self.gates.retain(|gate| *gate != step);
        self.following = Some(self.following.filter(|_| was_in).map_or(step, |f| f.min(step)));
        self.is_behind = false;
        self.buffers.ask_again(step);
        out.push(Output::Follow { step });
    }

    fn waits_for(&self, what: Wait, at: u64) -> bool {
        matches!(self.standing, Standing::Entering { step, wait, .. } if (wait, step) == (what, at))
    }

    fn now_waits_for(&mut self, what: Wait) {
        if let Standing::Entering { wait, .. } = &mut self.standing {
            *wait = what;
        }
    }

    /// Does what can be done now.
    fn go_on(&mut self, out: &mut Vec<Output>) {
        if self.standing == Standing::In
            && let Some(gate) = self.gates.iter().copied().min()
        {
            self.enter(gate, out);
        }
        if let Standing::Entering { step, wait, .. } = self.standing {
            match (wait, self.buffers.find(step)) {
                (Wait::Parameters, Place::There) => {
                    self.now_waits_for(Wait::Hashes);
                    out.push(Output::Hash { step });
                }
                (Wait::Parameters, Place::Missed | Place::Over) => self.gone(step, out),
                // They were written over before they were hashed.
                (Wait::Hashes, Place::Over) => self.gone(step, out),
                _ => {}
            }
        }
        self.work(out);
    }

    /// Begins what can be begun, and lets go of what cannot.
    fn work(&mut self, out: &mut Vec<Output>) {
        while let Some((next, step)) = self.next()
            && self.may_compute(step)
        {
            match self.place(step) {
                _ if self.is_past(next, step) => self.skip(next, out),
                Place::There if self.doing.is_none() => return self.begin(next, out),
                Place::There | Place::Coming => return,
                Place::Over => self.skip(next, out),
                Place::Missed => self.gone(step, out),
            }
        }
    }

    /// Whether its parameters after `step` steps are the run's.
    fn may_compute(&self, step: u64) -> bool {
        match self.standing {
            Standing::In => true,
            Standing::Entering { step: gate, was_in, .. } => was_in && step < gate,
            _ => false,
        }
    }

    /// Lowest step first, and within a step in the order in which they came.
    fn next(&self) -> Option<(Next, u64)> {
        let leases = self.leases.iter().enumerate().filter(|(_, lease)| !lease.is_worked_off());
        let leases = leases.map(|(at, lease)| ((lease.next, lease.number, 1), Next::Lease(at)));
        let first = self.scoring.first();
        let evaluation = first.map(|(step, after)| ((step, after, 0), Next::Evaluation));
        let next = leases.chain(evaluation).min_by_key(|(key, _)| *key);
        next.map(|((step, _, _), next)| (next, step))
    }

    /// Whether a step needs no more shards: a worker that has all parameters after it can rely on its
    /// commit. Others have computed what this worker would.
    fn is_past(&self, next: Next, step: u64) -> bool {
        matches!(next, Next::Lease(_)) && self.buffers.find(step + 1) == Place::There
    }

    /// Where the parameters after `step` steps are.
    fn place(&self, step: u64) -> Place {
        match self.buffers.find(step) {
            // The servers were asked for later ones only.
            Place::Coming if self.following.is_none_or(|first| step < first) => Place::Missed,
            place => place,
        }
    }

    fn begin(&mut self, next: Next, out: &mut Vec<Output>) {
        match next {
            Next::Lease(at) => {
                let lease = &mut self.leases[at];
                let task = lease.task();
                lease.next += 1;
                self.doing = Some(Doing::Task { step: task.step, lease: task.lease });
                out.push(Output::Compute(task));
            }
            Next::Evaluation => self.begin_scoring(out),
        }
    }

    /// Scores the next batch, once the state is there.
    fn begin_scoring(&mut self, out: &mut Vec<Output>) {
        let Some((step, _)) = self.scoring.first() else { return };
        match self.state {
            Some((asked, true)) if asked == step => {
                if let Some(batch) = self.scoring.take() {
                    self.doing = Some(Doing::Batch { step });
                    out.push(Output::Evaluate(batch));
                }
            }
            Some((asked, false)) if asked == step => {}
            _ => {
                self.state = Some((step, false));
                out.push(Output::State { step });
            }
        }
    }

    /// Its parameters have been written over, or those after it are there: so its step is committed
    /// without it.
    fn skip(&mut self, next: Next, out: &mut Vec<Output>) {
        match next {
            Next::Lease(at) => {
                out.push(Output::Skip(self.leases[at].task()));
                self.leases[at].next += 1;
                self.tidy(out);
            }
            Next::Evaluation => self.scoring.skip(),
        }
    }

    /// The parameters after `step` steps will not come: what needs them or earlier ones is dropped.
    fn gone(&mut self, step: u64, out: &mut Vec<Output>) {
        let mut needed = false;
        if matches!(self.standing, Standing::Entering { step: s, .. } if s <= step) {
            self.standing = Standing::Out;
            self.gates.clear();
            needed = true;
        }
        while let Some((next, first)) = self.next()
            && first <= step
        {
            needed = true;
            self.skip(next, out);
        }
        if needed {
            self.behind(step, out);
        }
    }

    fn behind(&mut self, step: u64, out: &mut Vec<Output>) {
        if !std::mem::replace(&mut self.is_behind, true) {
            out.push(Output::Tell(Report::Behind { step }));
        }
    }

    fn end_doing(&mut self, out: &mut Vec<Output>) {
        self.doing = None;
        self.tidy(out);
    }

    /// Lets go of leases that are worked off, and says how long that took; also of those that others
    /// have worked off, so that it is known that this worker keeps up.
    fn tidy(&mut self, out: &mut Vec<Output>) {
        let doing = match self.doing {
            Some(Doing::Task { lease, .. }) => Some(lease),
            _ => None,
        };
        let mut ended = None;
        self.leases.retain(|lease| {
            let is_over = lease.is_worked_off() && doing != Some(lease.number);
            if is_over {
                ended = ended.max(Some(lease.steps.steps().end));
            }
            !is_over
        });
        if let Some(step) = ended {
            let work = std::mem::take(&mut self.pace);
            out.push(Output::Tell(Report::Pace {
                step,
                examples: work.examples,
                busy_seconds: work.busy.as_secs_f64(),
                waiting_seconds: work.waiting.as_secs_f64(),
            }));
        }
    }

    fn cut(&mut self, server: u32, why: String, out: &mut Vec<Output>) {
        if self.standing != Standing::Cut {
            self.forget(out);
            self.standing = Standing::Cut;
            out.push(Output::Tell(Report::Cut { server, why }));
            out.push(Output::Linger);
        }
    }

    fn forget(&mut self, out: &mut Vec<Output>) {
        self.leases.clear();
        self.scoring.clear();
        self.gates.clear();
        self.state = None;
        out.push(Output::Forget { leases: self.leases_seen });
    }

    fn rejoin(&mut self, out: &mut Vec<Output>) {
        self.forget(out);
        self.standing = Standing::Over;
        out.push(Output::Rejoin);
    }
}
