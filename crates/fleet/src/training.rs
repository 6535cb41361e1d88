//! The controller of a training run as a value: what happens goes in, what is to be done comes out.
//!
//! Owns what the command knows of its run: whether there is a link to the coordinator and what that
//! has said, whether a stop was asked for and told, which processes have ended, and when the run is
//! over. What to start, end and give up is [`Supervisor`]'s to say. Holds no process, link or clock.
//!
//! # Layout
//! - [`policy`]: what the end of a process means

pub mod policy;

use crate::local::Exit;
use crate::supervise::{Action, Input};
use planaria_protocol::event::{Doing, Event, Pulse, What};
use planaria_protocol::message::{Agent, FromConsole, Loss};
use policy::{RunInput, Supervisor};
use std::time::Duration;

/// Poll interval for processes that have ended: it takes [`Happening::Look`] as often.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a coordinator that has told the end may take to take its leave.
const LEAVE: Duration = Duration::from_secs(10);
/// How long a stop may wait for a coordinator to be told.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// Exits that are remembered, to explain a failure by.
const EXITS_MAX: usize = 64;

/// Something that happens to a controller.
#[derive(Debug, Clone)]
pub enum Happening<'a> {
    /// Nothing but that time has passed.
    Look,
    /// A process was started, as was asked for.
    Started { agent: Agent, pid: u32 },
    /// A process could not be started.
    NotStarted { agent: Agent, why: String },
    /// No machine has room for a process yet.
    NoRoom { agent: Agent },
    /// A process has ended.
    Exited(Exit),
    /// There is a link to the coordinator that was started last.
    Linked,
    /// It has ended, and all that was said on it is heard.
    LinkGone,
    /// The coordinator told an event that was not told before.
    Event(&'a Event),
    /// The coordinator told where the run is.
    Pulse(&'a Pulse),
    /// The coordinator wants so many workers.
    Pool { workers: u32 },
    /// The coordinator finds that a process does not answer.
    Kill { agent: Agent, pid: u32, why: String },
    /// The coordinator has nothing more to say: the run is over.
    Finish,
    /// The user wants the run to stop.
    Stop { reason: &'a str },
}

/// What is to be done, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Start a process, and say at once what became of it.
    Start { agent: Agent },
    /// Start a coordinator, say at once what became of it, and reach it.
    Coordinate { generation: u64, after: Option<Loss> },
    /// End a process at once.
    Kill { agent: Agent, pid: u32, why: String },
    /// So many workers need room.
    MakeRoom { workers: u32 },
    /// To the coordinator.
    Tell(FromConsole),
    /// The command is done with its processes.
    End(Result<(), Failed>),
}

/// Why a run cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// Too much was lost.
    Lost(Loss),
    /// No coordinator could be told to stop for so long.
    StopUnheard(Duration),
}

#[derive(Debug, Clone)]
pub struct Controller {
    supervisor: Supervisor,
    is_linked: bool,
    /// Steps done, as this coordinator told last.
    step: Option<u64>,
    /// Why the run is to stop, and whether this coordinator was told so.
    stopping: Option<String>,
    told_stop: bool,
    /// Since when there was no coordinator to be told so.
    unheard: Option<Duration>,
    /// Since when it is known that the run is over.
    over: Option<Duration>,
    is_finished: bool,
    failed: Option<Failed>,
    /// Processes that have ended since the last step, in that order.
    exits: Vec<Exit>,
    /// Processes that have ended while there was no coordinator to be told.
    untold: Vec<Exit>,
}

impl Controller {
    /// Of a run of which nothing is started yet.
    pub fn new(generation: u64, servers: u32, workers: u32) -> Self {
        Self {
            supervisor: Supervisor::training(generation, servers, workers),
            is_linked: false,
            step: None,
            stopping: None,
            told_stop: false,
            unheard: None,
            over: None,
            is_finished: false,
            failed: None,
            exits: Vec::new(),
            untold: Vec::new(),
        }
    }

    /// Of the last coordinator.
    pub fn generation(&self) -> u64 {
        self.supervisor.policy.generation()
    }

    /// Workers wanted.
    pub fn workers(&self) -> u32 {
        self.supervisor.policy.workers()
    }

    /// Whether a coordinator lives.
    pub fn coordinates(&self) -> bool {
        self.supervisor.places.process(Agent::Coordinator).is_some()
    }

    /// Processes that have not joined, and so have not heard that the run is over.
    pub fn unready(&self) -> Vec<(Agent, u32)> {
        self.supervisor.unready()
    }

    /// Processes that have ended since the last step, in that order.
    pub fn exits(&self) -> &[Exit] {
        &self.exits
    }

    /// Takes in what happens at `now`.
    pub fn on(&mut self, now: Duration, happening: Happening<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let out = &mut effects;
        match happening {
            Happening::Look => self.tell(now, Input::Look, out),
            Happening::Started { agent, pid } => {
                self.tell(now, Input::Started { agent, pid }, out);
            }
            Happening::NotStarted { agent, why } => {
                self.tell(now, Input::NotStarted { agent, why }, out);
            }
            Happening::NoRoom { agent } => self.tell(now, Input::NoRoom { agent }, out),
            Happening::Exited(exit) => self.exited(now, exit, out),
            Happening::Linked => {
                let untold = self.untold.drain(..);
                out.extend(untold.map(ended));
                (self.is_linked, self.told_stop) = (true, false);
                self.tell(now, RunInput::Linked, out);
            }
            Happening::LinkGone => {
                self.is_linked = false;
                self.tell(now, RunInput::LinkGone, out);
            }
            Happening::Stop { reason } => {
                self.stopping.get_or_insert_with(|| reason.to_owned());
            }
            said => {
                self.tell(now, RunInput::Heard, out);
                self.hear(now, said, out);
            }
        }
        self.ask_to_stop(now, out);
        let waited = self.over.map(|since| now.saturating_sub(since));
        let is_left = !self.is_linked || waited.is_some_and(|waited| waited > LEAVE);
        match self.failed.take() {
            Some(failed) => out.push(Effect::End(Err(failed))),
            None if self.is_finished || self.over.is_some() && is_left => {
                out.push(Effect::End(Ok(())));
            }
            None => {}
        }
        effects
    }

    /// Takes in what the coordinator said.
    fn hear(&mut self, now: Duration, said: Happening<'_>, out: &mut Vec<Effect>) {
        match said {
            Happening::Event(event) => self.follow(now, event, out),
            Happening::Pulse(pulse) => {
                self.reached(now, pulse.step, out);
                self.tell(now, RunInput::Absent(absent(pulse)), out);
            }
            Happening::Pool { workers } => {
                out.push(Effect::MakeRoom { workers });
                self.tell(now, RunInput::Pool { workers }, out);
            }
            Happening::Kill { agent, pid, why } => {
                self.tell(now, Input::Kill { agent, pid, why }, out);
            }
            Happening::Finish => self.is_finished = true,
            _ => {}
        }
    }

    /// What an event means for the processes.
    fn follow(&mut self, now: Duration, event: &Event, out: &mut Vec<Effect>) {
        match &event.what {
            What::Joined { agent, pid, .. } => {
                if let Some(agent) = Agent::named(agent) {
                    self.tell(now, Input::Ready { agent, pid: *pid }, out);
                }
            }
            What::Lost { agent: name, reason, .. } => {
                if let Some(agent @ Agent::Server(_)) = Agent::named(name) {
                    let message = format!("{name} was lost: {reason}");
                    self.tell(now, RunInput::ServerLost(Loss { agent, message }), out);
                }
            }
            What::Started(started) => self.step = Some(started.step),
            What::Recovered { step, .. } => self.step = Some(*step),
            What::Steps(figures) => self.reached(now, figures.step, out),
            What::Committed { end_step, .. } => self.reached(now, *end_step, out),
            What::Stopping { reason } => {
                self.stopping = Some(reason.clone());
                // What one said that is gone, another has not been told.
                self.told_stop |= event.generation == self.generation();
            }
            What::Ended { .. } => self.is_over(now, out),
            _ => {}
        }
    }

    fn is_over(&mut self, now: Duration, out: &mut Vec<Effect>) {
        self.over.get_or_insert(now);
        self.tell(now, RunInput::Over, out);
    }

    /// The run has come so far.
    fn reached(&mut self, now: Duration, step: u64, out: &mut Vec<Effect>) {
        if self.step.is_some_and(|before| before < step) {
            // What was lost before no longer counts.
            self.exits.clear();
            self.tell(now, RunInput::Progress, out);
        }
        self.step = Some(step);
    }

    fn exited(&mut self, now: Duration, exit: Exit, out: &mut Vec<Effect>) {
        if !exit.is_well() && exit.agent != Agent::Coordinator {
            if self.is_linked {
                out.push(ended(exit));
            } else if self.untold.len() < EXITS_MAX {
                self.untold.push(exit);
            }
        }
        // It ends well only when it has written down how the run ended.
        if exit.agent == Agent::Coordinator && exit.is_well() {
            self.is_over(now, out);
        }
        if self.exits.len() >= EXITS_MAX {
            self.exits.remove(0);
        }
        self.exits.push(exit);
        let Exit { agent, pid, ending } = exit;
        self.tell(now, Input::Ended { agent, pid, ending }, out);
    }

    /// Tells the supervisor, and passes on what it decides.
    fn tell(&mut self, now: Duration, input: impl Into<Input<RunInput>>, out: &mut Vec<Effect>) {
        for action in self.supervisor.step(now, input.into()) {
            out.push(match action {
                Action::Start { agent: Agent::Coordinator } => {
                    (self.is_linked, self.step) = (false, None);
                    let after = self.supervisor.policy.after().cloned();
                    Effect::Coordinate { generation: self.generation(), after }
                }
                Action::Start { agent } => Effect::Start { agent },
                Action::Kill { agent, pid, why } => Effect::Kill { agent, pid, why },
                Action::Over(loss) => {
                    self.failed = Some(Failed::Lost(loss));
                    continue;
                }
                // The processes of a training run are never started or ended all together.
                Action::StartAll | Action::Stop { .. } => continue,
            });
        }
    }

    /// Tells a coordinator that a stop was asked for, each that takes the place of another anew.
    fn ask_to_stop(&mut self, now: Duration, out: &mut Vec<Effect>) {
        let Some(reason) = &self.stopping else {
            self.unheard = None;
            return;
        };
        if self.is_linked {
            self.unheard = None;
            if !std::mem::replace(&mut self.told_stop, true) {
                out.push(Effect::Tell(FromConsole::Stop { reason: reason.clone() }));
            }
            return;
        }
        let since = *self.unheard.get_or_insert(now);
        if now.saturating_sub(since) > STOP_WITHIN {
            self.failed = Some(Failed::StopUnheard(STOP_WITHIN));
        }
    }
}

fn ended(exit: Exit) -> Effect {
    Effect::Tell(FromConsole::Ended { agent: exit.agent, pid: exit.pid, how: exit.how() })
}

/// Processes that the coordinator waits for to join.
fn absent(pulse: &Pulse) -> Vec<Agent> {
    let workers = pulse.workers.iter().filter(|w| w.state == Doing::Starting);
    let servers = pulse.servers.iter().filter(|s| s.state == Doing::Starting);
    let servers = servers.map(|s| Agent::Server(s.server));
    workers.map(|w| Agent::Worker(w.worker)).chain(servers).collect()
}

#[cfg(test)]
mod tests;
