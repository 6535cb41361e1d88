//! What is started, ended and given up as processes come and go, for every kind of job. Pure: time
//! is an argument.
//!
//! A job has places; a place is filled by one process at a time. [`Supervisor`] owns the places;
//! its [`Policy`], which each kind of job has, says what the end of a process means: another in its
//! place after a pause, all of them anew, or the end of the job. The shell answers every
//! [`Action::Start`] with [`Input::Started`], [`Input::NotStarted`] or [`Input::NoRoom`], and looks
//! often ([`Input::Look`]): silence is counted in looks, so that a supervisor that was itself
//! suspended or starved blames no process. Never starts or ends anything.
//!
//! # Layout
//! - [`places`]: which process is where, and what is asked for

pub mod places;

use crate::ending::Ending;
use places::{Places, Process};
use planaria_protocol::message::Agent;
use std::time::Duration;

/// A look counts for so much time at most.
const LOOK_MAX: Duration = Duration::from_millis(250);

/// What a kind of job makes of what happens to its processes. Only asked while the job is neither
/// ending nor over.
pub trait Policy {
    /// What only this kind hears.
    type Input;
    /// How the job can be over.
    type Outcome: Clone;

    /// A process is due. Whether it can be started yet.
    fn start(&mut self, _: Agent) -> bool {
        true
    }
    /// A process was started.
    fn started(&mut self, _: Agent) {}
    /// A process is ready.
    fn ready(&mut self, _: Agent) {}
    /// A process has ended, or could not be started.
    fn lost(&mut self, now: Duration, lost: Lost, places: &mut Places<Self::Outcome>);
    /// Time has passed: so much of it counts.
    fn look(&mut self, now: Duration, passed: Duration, places: &mut Places<Self::Outcome>);
    /// Something happened that only this kind hears; it hears it at any time.
    fn on(&mut self, now: Duration, input: Self::Input, places: &mut Places<Self::Outcome>);
}

/// A process that has ended, or could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    pub agent: Agent,
    pub how: How,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    Ended { process: Process, ending: Ending },
    NotStarted(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input<I> {
    /// Nothing but that time has passed.
    Look,
    /// A process was started, as was asked for.
    Started {
        agent: Agent,
        pid: u32,
    },
    /// A process could not be started.
    NotStarted {
        agent: Agent,
        why: String,
    },
    /// No machine has room for a process yet.
    NoRoom {
        agent: Agent,
    },
    Ended {
        agent: Agent,
        pid: u32,
        ending: Ending,
    },
    /// A process is ready: it has joined the others.
    Ready {
        agent: Agent,
        pid: u32,
    },
    /// A process was found not to answer, as `why` says.
    Kill {
        agent: Agent,
        pid: u32,
        why: String,
    },
    /// What only this kind of job hears.
    Own(I),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<O> {
    /// Start a process.
    Start { agent: Agent },
    /// Start all processes, on the machines that are there then.
    StartAll,
    /// Ask this process to end.
    Stop { agent: Agent, pid: u32 },
    /// End this process at once.
    Kill { agent: Agent, pid: u32, why: String },
    /// The job is over.
    Over(O),
}

/// The processes of a job.
#[derive(Debug, Clone)]
pub struct Supervisor<P: Policy> {
    pub policy: P,
    pub places: Places<P::Outcome>,
    looked: Option<Duration>,
}

impl<P: Policy> Supervisor<P> {
    pub fn new(policy: P, places: Places<P::Outcome>) -> Self {
        Self { policy, places, looked: None }
    }

    /// What follows from `input` at the time `now`.
    pub fn step(&mut self, now: Duration, input: Input<P::Input>) -> Vec<Action<P::Outcome>> {
        let Self { policy, places, .. } = self;
        let is_up = places.is_up();
        match input {
            Input::Look => {
                let passed = now.saturating_sub(self.looked.replace(now).unwrap_or(now));
                match is_up {
                    true => policy.look(now, passed.min(LOOK_MAX), places),
                    false => places.look(now),
                }
            }
            Input::Started { agent, pid } => {
                places.started(now, agent, pid);
                policy.started(agent);
            }
            Input::NoRoom { agent } => places.wait_for_room(now, agent),
            Input::NotStarted { agent, why } => {
                if let Some(lost) = places.not_started(agent, why).filter(|_| is_up) {
                    policy.lost(now, lost, places);
                }
            }
            Input::Ended { agent, pid, ending } => {
                if let Some(lost) = places.ended(agent, pid, ending).filter(|_| is_up) {
                    policy.lost(now, lost, places);
                }
            }
            Input::Ready { agent, pid } => {
                if let Some(process) = places.process_mut(agent, pid) {
                    process.ready.get_or_insert(now);
                }
                policy.ready(agent);
            }
            Input::Kill { agent, pid, why } => places.kill(agent, pid, why),
            Input::Own(input) => policy.on(now, input, places),
        }
        places.start_due(now, |agent| policy.start(agent));
        places.take_actions()
    }
}
