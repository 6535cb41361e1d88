//! The coordinator as a value: told what has happened ([`Event`]), it says what to do ([`Effect`]).
//!
//! Owns who is linked, what their words mean for the run, the events of the session, and what is
//! done about every decision. Holds no socket, file, thread or clock; the process and the simulation
//! drive the same one. Effects are carried out one after another, in order, and each is one write or
//! one message, so that a process may end between any two. Never decides anything itself: that is
//! the [run](crate::run)'s.

use crate::run::record::Record;
use crate::run::{Action, Begun, Decider, Decision, Input, Left, Saving, Scored, Snapshot};
use planaria_protocol::checkpoint::{Manifest, Part, PartInfo};
use planaria_protocol::event::{self, What};
use planaria_protocol::message::{
    Agent, FrameLoss, FromConsole, FromServer, FromWorker, Join, ToConsole, ToServer, ToWorker,
    Trouble, event_bulk,
};
use planaria_protocol::planted::{self, Planted};
use planaria_runs::sentence::sentence;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Time between pulses to consoles that watch.
const PULSE_EVERY: Duration = Duration::from_millis(100);
/// Time between heartbeats to processes that would otherwise hear nothing.
const ALIVE_EVERY: Duration = Duration::from_millis(500);
/// Time between ticks, at most.
pub const TICK_EVERY: Duration = Duration::from_millis(10);
/// Events that are kept for consoles that begin to watch; a run has about a thousand.
pub(super) const EVENTS_MAX: usize = 100_000;

/// A link to the coordinator, by a number that is given once.
pub type LinkId = u64;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// Since the coordinator began.
    pub at: Duration,
    pub unix_seconds: f64,
}

/// Something that has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A process has joined over this link.
    Linked(LinkId, Join),
    /// A worker said something, with its bulk.
    Worker(LinkId, FromWorker, Vec<u8>),
    /// A worker has scored a batch.
    Scored(LinkId, Box<Scored>),
    /// A server said something, with the squares that came with it.
    Server(LinkId, FromServer, Vec<f64>),
    /// A console said something.
    Console(LinkId, FromConsole),
    /// A link has ended, and how.
    Gone(LinkId, String),
    /// Time has passed: at least every [`TICK_EVERY`], unless the process could not run.
    Tick,
    /// Answers [`Effect::BeginCheckpoint`].
    CheckpointBegun(CheckpointBegun),
    /// Answers [`Effect::WritePart`].
    PartWritten { step: u64, written: Result<PartInfo, String> },
    /// Answers [`Effect::WriteManifest`]: the checkpoint's name, or why there is none.
    ManifestWritten(Result<String, String>),
}

/// What came of making a folder for a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointBegun {
    pub step: u64,
    /// The folder; or why there is none.
    pub folder: Result<PathBuf, String>,
    /// A checkpoint that something has removed.
    pub vanished: Option<String>,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send this over a link, with its bulk. A link that has ended takes nothing.
    Send(LinkId, Message, Option<Arc<Vec<u8>>>),
    /// End a link.
    Close(LinkId),
    /// Add this to the journal.
    Write(Box<event::Event>),
    /// Write the record where another coordinator finds it.
    KeepRecord(Box<Record>),
    /// Write the method's own state after so many steps where another coordinator finds it.
    KeepState { step: u64, state: Vec<u8> },
    /// Take the record away.
    ForgetRecord,
    /// Make a folder for a checkpoint.
    BeginCheckpoint { step: u64 },
    /// Write the method's own part of a checkpoint, without keeping others waiting.
    WritePart { folder: PathBuf, step: u64, snapshot: Arc<Snapshot> },
    /// Make the parts in a folder a checkpoint, without keeping others waiting. It counts on the
    /// events so far: they are made to last first.
    WriteManifest { folder: PathBuf, manifest: Box<Manifest>, is_best: bool },
    /// Remove the folder of a checkpoint that does not come about.
    Abandon(PathBuf),
    /// Lose frames of this process on purpose.
    FrameLoss(FrameLoss),
    /// A line of the log.
    Log(String),
    /// End the process.
    Leave(Leave),
}

/// What is sent over a link.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    Worker(ToWorker),
    Server(ToServer),
    Console(ToConsole),
}

/// How the coordinator's process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// The run is over.
    Over,
    /// Another coordinator is to take its place.
    Restart,
}

/// What a coordinator begins with.
pub struct Beginning {
    pub run: Box<dyn Decider>,
    pub generation: u64,
    /// What every manifest says alike: everything but step, state and parts.
    pub manifest: Manifest,
    /// By part of a checkpoint: first parameter and the one after the last.
    pub ranges: Vec<Range<u64>>,
    /// What was told in this session before this process began.
    pub told: Vec<event::Event>,
}

/// What is to be written down before anything else.
#[derive(Debug, Default)]
pub struct Untold {
    /// What another coordinator has decided and not told.
    pub events: Vec<What>,
    /// Its record, without what it says to be told.
    pub record: Option<Record>,
    /// The session has started, where it begins.
    pub started: Option<What>,
}

/// A link to a worker or a server.
struct Member {
    link: LinkId,
    pid: u32,
}

/// A link to a console.
#[derive(Default)]
pub(super) struct Watcher {
    /// Whether it has all events so far, and gets new ones as they happen.
    pub watches: bool,
    pub supervises: bool,
    /// Index of the first event that it was not told.
    pub next: u64,
}

pub struct Coordinator {
    pub(super) run: Box<dyn Decider>,
    pub(super) generation: u64,
    manifest: Manifest,
    ranges: Vec<Range<u64>>,
    /// Who is linked, by the newest link of each.
    members: BTreeMap<Agent, Member>,
    /// Whose a link is.
    agents: BTreeMap<LinkId, Agent>,
    pub(super) consoles: BTreeMap<LinkId, Watcher>,
    /// Folder of the checkpoint under way.
    folder: Option<PathBuf>,
    /// This session's events so far, for consoles that begin to watch.
    pub(super) events: Vec<Arc<Vec<u8>>>,
    /// How many of them were let go of, after the first.
    pub(super) left_out: u64,
    /// Whether consoles know that the run is over.
    pub(super) told_end: bool,
    alive: Duration,
    pulsed: Duration,
    pub(super) effects: Vec<Effect>,
}

impl Coordinator {
    /// One that is about to begin, and what it does first.
    pub fn begin(now: Moment, beginning: Beginning, untold: Untold) -> (Self, Vec<Effect>) {
        let Beginning { run, generation, manifest, ranges, told } = beginning;
        let mut coordinator = Self {
            run,
            generation,
            manifest,
            ranges,
            members: BTreeMap::new(),
            agents: BTreeMap::new(),
            consoles: BTreeMap::new(),
            folder: None,
            events: told.iter().map(|event| Arc::new(event_bulk(event))).collect(),
            left_out: 0,
            told_end: false,
            alive: now.at,
            pulsed: now.at,
            effects: Vec::new(),
        };
        for what in untold.events {
            coordinator.record(now, what, "it was decided before the coordinator was lost");
        }
        // The next coordinator must not tell it again.
        let left = untold.record.map(|left| Effect::KeepRecord(Box::new(left)));
        coordinator.effects.extend(left);
        if let Some(started) = untold.started {
            coordinator.record(now, started, "the command asked for it");
        }
        let effects = std::mem::take(&mut coordinator.effects);
        (coordinator, effects)
    }

    /// What follows from something that has happened.
    pub fn on(&mut self, now: Moment, event: Event) -> Vec<Effect> {
        let is_tick = matches!(event, Event::Tick);
        if let Some(input) = self.meaning(event) {
            for decision in self.run.step(now.at, input) {
                self.act(now, decision);
            }
        }
        if is_tick {
            self.look_around(now);
        }
        if planted::is(Planted::CommitBeforeRecord) {
            self.effects.sort_by_key(|effect| matches!(effect, Effect::KeepRecord(_)));
        }
        std::mem::take(&mut self.effects)
    }

    /// What follows from a fault of the process itself, which cannot be written down.
    pub fn fail(&mut self, now: Moment, trouble: &Trouble) -> Vec<Effect> {
        self.tell_end(now, trouble);
        std::mem::take(&mut self.effects)
    }

    /// How far the run has come.
    pub fn run(&self) -> &dyn Decider {
        &*self.run
    }

    /// What an event means for the run, if anything. What comes over a link whose place another has
    /// taken means nothing.
    fn meaning(&mut self, event: Event) -> Option<Input> {
        Some(match event {
            Event::Linked(link, join) => return self.linked(link, join),
            Event::Worker(link, said, bulk) => {
                let Agent::Worker(worker) = self.current(link)? else { return None };
                Input::Worker { worker, said, bulk }
            }
            Event::Scored(link, scored) => {
                let Agent::Worker(worker) = self.current(link)? else { return None };
                Input::Scored(Box::new(Scored { worker, ..*scored }))
            }
            Event::Server(link, said, squares) => {
                let Agent::Server(server) = self.current(link)? else { return None };
                Input::Server(server, said, squares)
            }
            Event::Console(link, said) => return self.console_said(link, said),
            Event::Gone(link, how) => return self.gone(link, how),
            Event::Tick => Input::Tick,
            Event::CheckpointBegun(begun) => {
                let CheckpointBegun { step, folder, vanished } = begun;
                self.folder = folder.as_ref().ok().cloned();
                let folder = folder.map(|folder| folder.display().to_string());
                Input::CheckpointBegun(Begun { step, folder, vanished })
            }
            Event::PartWritten { step, written } => Input::PartWritten { step, written },
            Event::ManifestWritten(written) => Input::ManifestWritten(written),
        })
    }

    fn linked(&mut self, link: LinkId, join: Join) -> Option<Input> {
        if join.agent == Agent::Console {
            self.consoles.insert(link, Watcher::default());
            return None;
        }
        // Its link is closed, and the run continues without it.
        if let Some(why) = self.run.refusal(&join) {
            let refused = format!("{} (process {}) was refused: {why}", join.agent, join.pid);
            self.effects.extend([Effect::Log(refused), Effect::Close(link)]);
            return None;
        }
        self.agents.insert(link, join.agent);
        let member = Member { link, pid: join.pid };
        if let Some(old) = self.members.insert(join.agent, member) {
            self.agents.remove(&old.link);
            self.effects.push(Effect::Close(old.link));
        }
        Some(Input::Joined(join))
    }

    fn gone(&mut self, link: LinkId, how: String) -> Option<Input> {
        if self.consoles.remove(&link).is_some() {
            return None;
        }
        let agent = self.agents.remove(&link)?;
        let Member { pid, .. } = self.members.remove(&agent)?;
        Some(Input::Left(Left { agent, pid, how, ended: false }))
    }

    /// Whose a link is, unless another has taken its place.
    fn current(&self, link: LinkId) -> Option<Agent> {
        self.agents.get(&link).copied()
    }

    fn console_said(&mut self, link: LinkId, said: FromConsole) -> Option<Input> {
        match said {
            FromConsole::Watch { supervises } => {
                if let Some(watcher) = self.consoles.get_mut(&link) {
                    *watcher = Watcher { supervises, ..Watcher::default() };
                    self.tell_page(link, 0);
                }
                None
            }
            FromConsole::More { from } => {
                self.tell_page(link, from);
                None
            }
            FromConsole::Stop { reason } => Some(Input::Stop(reason)),
            FromConsole::Ended { agent, pid, how } => {
                Some(Input::Left(Left { agent, pid, how, ended: true }))
            }
            FromConsole::Scale { workers } => Some(Input::Scale(workers)),
            FromConsole::Resize { machines } => {
                self.tell_supervisor(&ToConsole::Resize { machines });
                None
            }
            // One of another build that cannot be read is nothing that is known here.
            FromConsole::Report { event } => {
                What::from_json(event.as_bytes()).map(Box::new).map(Input::Report)
            }
            FromConsole::Chaos { agent, frame_loss } => {
                self.frame_loss(agent, frame_loss);
                None
            }
            FromConsole::Kill { agent } => {
                if let Some(pid) = self.members.get(&agent).map(|member| member.pid) {
                    let why = "a fault on purpose".to_owned();
                    self.tell_supervisor(&ToConsole::Kill { agent, pid, why });
                }
                None
            }
        }
    }

    fn act(&mut self, now: Moment, decision: Decision) {
        let Decision { action, reason } = decision;
        match action {
            Action::Keep(record) => self.effects.push(Effect::KeepRecord(record)),
            Action::KeepState { step, state } => {
                self.effects.push(Effect::KeepState { step, state });
            }
            Action::ToWorker { worker, message, bulk } => {
                self.send(Agent::Worker(worker), Message::Worker(message), bulk);
            }
            Action::ToServer(server, message) => {
                self.send(Agent::Server(server), Message::Server(message), None);
            }
            Action::Record(what) => self.record(now, what, &reason),
            Action::BeginCheckpoint { step } => {
                self.log(format!("saving step {step}: {reason}"));
                self.effects.push(Effect::BeginCheckpoint { step });
            }
            Action::WritePart { step, snapshot } => {
                let folder = self.folder.clone();
                let write = folder.map(|folder| Effect::WritePart { folder, step, snapshot });
                self.effects.extend(write);
            }
            Action::Abandon => {
                let folder = self.folder.take();
                self.effects.extend(folder.map(Effect::Abandon));
            }
            Action::WriteManifest(saving) => self.write_manifest(*saving),
            Action::Pool(workers) => self.tell_supervisor(&ToConsole::Pool { workers }),
            Action::Kill(agent, pid) => self.kill(agent, pid, reason.into_owned()),
            Action::Forget => {
                self.log(format!("the record is not used: {reason}"));
                self.effects.push(Effect::ForgetRecord);
            }
            Action::Restart => {
                self.log(format!("ending, so that another coordinator takes over: {reason}"));
                self.effects.push(Effect::Leave(Leave::Restart));
            }
            Action::End => {
                self.finish();
                self.effects.push(Effect::Leave(Leave::Over));
            }
        }
    }

    fn kill(&mut self, agent: Agent, pid: u32, why: String) {
        self.log(format!("asking for the end of {agent} (process {pid}): {why}"));
        self.tell_supervisor(&ToConsole::Kill { agent, pid, why });
        if let Some(member) = self.members.remove(&agent) {
            self.agents.remove(&member.link);
            self.effects.push(Effect::Close(member.link));
        }
    }

    fn write_manifest(&mut self, saving: Saving) {
        let Some(folder) = self.folder.take() else { return };
        let parts = saving.parts.into_iter().zip(&self.ranges).map(|(info, range)| {
            let info = info.expect("every part is there");
            Part { info, start: range.start, end: range.end }
        });
        let (step, is_best) = (saving.state.step, saving.is_best);
        let parts = parts.collect();
        let manifest = Manifest { step, state: saving.state, parts, ..self.manifest.clone() };
        let manifest = Box::new(manifest);
        self.effects.push(Effect::WriteManifest { folder, manifest, is_best });
    }

    /// What follows from time alone, besides the run.
    fn look_around(&mut self, now: Moment) {
        if now.at.saturating_sub(self.alive) >= ALIVE_EVERY {
            self.alive = now.at;
            // So that silence is not taken for death.
            let agents: Vec<Agent> = self.members.keys().copied().collect();
            for agent in agents {
                let alive = match agent {
                    Agent::Worker(_) => Message::Worker(ToWorker::Alive),
                    _ => Message::Server(ToServer::Alive),
                };
                self.send(agent, alive, None);
            }
        }
        if now.at.saturating_sub(self.pulsed) >= PULSE_EVERY {
            self.pulsed = now.at;
            self.pulse(now);
        }
    }

    fn frame_loss(&mut self, agent: Agent, frame_loss: FrameLoss) {
        match agent {
            Agent::Coordinator => self.effects.push(Effect::FrameLoss(frame_loss)),
            Agent::Worker(_) => {
                self.send(agent, Message::Worker(ToWorker::FrameLoss(frame_loss)), None);
            }
            _ => self.send(agent, Message::Server(ToServer::FrameLoss(frame_loss)), None),
        }
    }

    /// Sends something to a process that is linked.
    fn send(&mut self, agent: Agent, message: Message, bulk: Option<Arc<Vec<u8>>>) {
        if let Some(member) = self.members.get(&agent) {
            self.effects.push(Effect::Send(member.link, message, bulk));
        }
    }

    pub(super) fn log(&mut self, line: String) {
        self.effects.push(Effect::Log(line));
    }

    /// Writes an event down, and tells it to consoles that watch.
    fn record(&mut self, now: Moment, what: What, reason: &str) {
        let event = self.event(now, what);
        if let Some(line) = sentence(&event) {
            match line.contains(reason) {
                true => self.log(line),
                false => self.log(format!("{line}: {reason}")),
            }
        }
        self.effects.push(Effect::Write(Box::new(event.clone())));
        self.tell(&event);
    }
}

#[cfg(test)]
mod tests;
