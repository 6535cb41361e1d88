//! The desk of the deciding thread: who is linked, what their mail means, and what is done about
//! every decision. Never decides anything itself.

use super::links::Mail;
use super::parcels::Parcels;
use super::{Leave, Shell};
use crate::run::{Action, Begun, Decision, Input, Left, Saving, Snapshot};
use planaria_protocol::checkpoint::{Manifest, Part, PartView, write_part};
use planaria_protocol::event::What;
use planaria_protocol::link::Sender;
use planaria_protocol::message::{Agent, Join, ToConsole, ToServer, ToWorker, Trouble, Weather};
use planaria_protocol::weather;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, SyncSender};
use std::time::Duration;

/// Time between pulses to whoever watches.
const PULSE_EVERY: Duration = Duration::from_millis(100);
/// Time between looks at what follows from time alone.
const TICK_EVERY: Duration = Duration::from_millis(10);
/// Time between words to processes that would otherwise hear nothing.
const ALIVE_EVERY: Duration = Duration::from_millis(500);

/// A link to a worker or a server.
pub(super) struct Member {
    number: u64,
    pid: u32,
    pub(super) sender: Sender,
}

/// A link to a console.
pub(super) struct Watcher {
    pub(super) sender: Sender,
    pub(super) watches: bool,
    pub(super) supervises: bool,
}

/// Everyone the coordinator talks to.
pub(super) struct Desk {
    pub(super) links: BTreeMap<Agent, Member>,
    pub(super) consoles: BTreeMap<u64, Watcher>,
    pub(super) post: SyncSender<Mail>,
    /// The checkpoint being written.
    pub(super) parcels: Arc<Parcels>,
    /// What the deciding thread has found out itself.
    pub(super) own: VecDeque<Input>,
    /// This session's events so far, for whoever begins to watch.
    pub(super) events: Vec<Vec<u8>>,
    /// How many of them were let go of, after the first.
    pub(super) left_out: u64,
    /// Whether those who watch know that the run is over.
    pub(super) told_end: bool,
    /// When it last looked at the clock for its own sake, and last said that it lives.
    pub(super) ticked: Duration,
    pub(super) alive: Duration,
}

impl Desk {
    pub(super) fn begin(
        &mut self,
        shell: &mut Shell,
        untold: Vec<What>,
        started: Option<What>,
    ) -> Result<(), Trouble> {
        for what in untold {
            self.record(shell, what, "it was decided before the coordinator was lost")?;
        }
        // Whoever takes this one's place must not tell it again.
        if let Some(left) = shell.left.take() {
            shell.keep(left);
        }
        started.map_or(Ok(()), |what| self.record(shell, what, "the command asked for it"))
    }

    pub(super) fn work(
        &mut self,
        shell: &mut Shell,
        inbox: &Inbox<Mail>,
    ) -> Result<Leave, Trouble> {
        let mut pulsed = shell.clock.now();
        loop {
            let input = match self.own.pop_front() {
                Some(input) => Some(input),
                None => self.next(inbox)?,
            };
            let now = shell.clock.now();
            if let Some(input) = input
                && let Some(leave) = self.decide(shell, now, input)?
            {
                return Ok(leave);
            }
            if now.saturating_sub(self.ticked) >= TICK_EVERY {
                self.ticked = now;
                weather::tick(now);
                if let Some(leave) = self.decide(shell, now, Input::Tick)? {
                    return Ok(leave);
                }
            }
            if now.saturating_sub(self.alive) >= ALIVE_EVERY {
                self.alive = now;
                self.say_alive();
            }
            if now.saturating_sub(pulsed) >= PULSE_EVERY {
                pulsed = now;
                self.pulse(shell, now);
            }
        }
    }

    fn decide(
        &mut self,
        shell: &mut Shell,
        now: Duration,
        input: Input,
    ) -> Result<Option<Leave>, Trouble> {
        for decision in shell.run.step(now, input) {
            if let Some(leave) = self.act(shell, decision)? {
                return Ok(Some(leave));
            }
        }
        Ok(None)
    }

    /// The next thing that happens, waited for at most until it is time to look around.
    fn next(&mut self, inbox: &Inbox<Mail>) -> Result<Option<Input>, Trouble> {
        match inbox.recv_timeout(TICK_EVERY) {
            Ok(mail) => Ok(self.open(mail)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Trouble::new("nobody is left")),
        }
    }

    /// What a piece of mail means for the run, if anything. What comes over a link whose place
    /// another has taken means nothing.
    fn open(&mut self, mail: Mail) -> Option<Input> {
        match mail {
            Mail::Said(_, Agent::Console, input) => Some(input),
            Mail::Said(number, agent, input) => {
                let current = self.links.get(&agent).is_some_and(|link| link.number == number);
                current.then_some(input)
            }
            Mail::Watch(console, supervises) => {
                if let Some(watcher) = self.consoles.get_mut(&console) {
                    (watcher.watches, watcher.supervises) = (true, supervises);
                    for (at, event) in (0..).zip(&self.events) {
                        let index = if at == 0 { 0 } else { at + self.left_out };
                        // A console that cannot be reached is let go with the next event.
                        let _ = watcher.sender.send_with(&ToConsole::Event { index }, event);
                    }
                }
                None
            }
            Mail::Weather(Agent::Coordinator, storm) => {
                weather::set(storm, self.ticked);
                None
            }
            Mail::Weather(agent, weather) => {
                self.weather(agent, weather);
                None
            }
            Mail::Kill(agent) => {
                if let Some(pid) = self.links.get(&agent).map(|member| member.pid) {
                    let why = "a fault on purpose".to_owned();
                    self.tell_supervisor(&ToConsole::Kill { agent, pid, why });
                }
                None
            }
            Mail::Resize(machines) => {
                self.tell_supervisor(&ToConsole::Resize { machines });
                None
            }
            Mail::Linked(number, Join { agent: Agent::Console, .. }, sender) => {
                let watcher = Watcher { sender, watches: false, supervises: false };
                self.consoles.insert(number, watcher);
                None
            }
            Mail::Linked(number, join, sender) => {
                if let Some(old) =
                    self.links.insert(join.agent, Member { number, pid: join.pid, sender })
                {
                    old.sender.close();
                }
                Some(Input::Joined(join))
            }
            Mail::Gone(number, Agent::Console, ..) => {
                self.consoles.remove(&number);
                None
            }
            Mail::Gone(number, agent, pid, how) => {
                self.links.get(&agent).filter(|link| link.number == number)?;
                self.links.remove(&agent);
                Some(Input::Left(Left { agent, pid, how, ended: false }))
            }
        }
    }

    fn act(&mut self, shell: &mut Shell, decision: Decision) -> Result<Option<Leave>, Trouble> {
        match decision.action {
            Action::Keep(record) => shell.keep(*record),
            // Whoever cannot be reached is reported by the thread that reads its link.
            Action::ToWorker { worker, message, bulk } => {
                if let Some(link) = self.links.get(&Agent::Worker(worker)) {
                    let bulk = bulk.as_ref().map_or(&[][..], |bulk| bulk);
                    let _ = link.sender.send_with(&message, bulk);
                }
            }
            Action::KeepState { step, state } => shell.keep_state(step, &state),
            Action::ToServer(server, message) => self.tell_server(server, &message),
            Action::Record(what) => self.record(shell, what, &decision.reason)?,
            Action::BeginCheckpoint { step } => {
                (shell.log)(&format!("saving step {step}: {}", decision.reason));
                let begun = self.begin_checkpoint(shell, step);
                self.own.push_back(Input::CheckpointBegun(begun));
            }
            Action::WritePart { step, snapshot } => self.write_part(step, snapshot),
            Action::Abandon => {
                if let Some(folder) = self.parcels.close() {
                    shell.shelf.abandon(&folder);
                }
            }
            Action::WriteManifest(saving) => self.write_manifest(shell, &saving),
            Action::Pool(workers) => self.tell_supervisor(&ToConsole::Pool { workers }),
            Action::Kill(agent, pid) => {
                let why = decision.reason.into_owned();
                (shell.log)(&format!("{agent} (process {pid}) is to be ended: {why}"));
                self.tell_supervisor(&ToConsole::Kill { agent, pid, why });
                if let Some(link) = self.links.remove(&agent) {
                    link.sender.close();
                }
            }
            Action::Forget => {
                (shell.log)(&format!("the record is not gone on from: {}", decision.reason));
                if let Some(keeping) = &mut shell.keeping {
                    keeping.forget(&shell.log);
                }
            }
            Action::Restart => {
                (shell.log)(&format!("another coordinator is to go on: {}", decision.reason));
                return Ok(Some(Leave::Restart));
            }
            Action::End => return Ok(Some(Leave::Over)),
        }
        Ok(None)
    }

    fn tell_supervisor(&self, message: &ToConsole) {
        for watcher in self.consoles.values().filter(|w| w.supervises) {
            let _ = watcher.sender.send(message);
        }
    }

    /// So that nobody takes silence for death.
    fn say_alive(&self) {
        for (agent, link) in &self.links {
            let _ = match agent {
                Agent::Worker(_) => link.sender.send(&ToWorker::Alive),
                _ => link.sender.send(&ToServer::Alive),
            };
        }
    }

    fn weather(&self, agent: Agent, weather: Weather) {
        let Some(link) = self.links.get(&agent) else { return };
        let _ = match agent {
            Agent::Worker(_) => link.sender.send(&ToWorker::Weather(weather)),
            _ => link.sender.send(&ToServer::Weather(weather)),
        };
    }

    fn tell_server(&self, server: u32, message: &ToServer) {
        if let Some(link) = self.links.get(&Agent::Server(server)) {
            let _ = link.sender.send(message);
        }
    }

    /// Writes the manifest on a thread of its own: the disk may take longer than a step.
    fn write_manifest(&mut self, shell: &Shell, saving: &Saving) {
        let Some(folder) = self.parcels.close() else { return };
        let parts = saving.parts.iter().zip(&shell.ranges).map(|(info, range)| {
            let info = info.clone().expect("every part is there");
            Part { info, start: range.start, end: range.end }
        });
        let manifest = Manifest {
            step: saving.state.step,
            state: saving.state.clone(),
            parts: parts.collect(),
            ..shell.manifest.clone()
        };
        let (shelf, is_best, post) = (shell.shelf.clone(), saving.is_best, self.post.clone());
        let events = shell.journal.handle();
        let write = move || {
            let name = folder.display().to_string();
            // A checkpoint counts on the events before it.
            let written = events
                .and_then(|events| events.sync_data())
                .and_then(|()| shelf.finish(&folder, &manifest, is_best))
                .map(|()| {
                    format!("checkpoints/{}", folder.file_name().unwrap_or_default().display())
                })
                .map_err(|e| format!("cannot write checkpoint `{name}`: {e}"));
            // After the end nobody listens.
            let written = Input::ManifestWritten(written);
            let _ = post.send(Mail::Said(0, Agent::Console, written));
        };
        let thread = std::thread::Builder::new().name("manifest".into()).spawn(write);
        if let Err(e) = thread {
            self.written(Err(format!("cannot start a thread: {e}")));
        }
    }

    /// Makes a folder for a checkpoint, which parts may go to from then on.
    fn begin_checkpoint(&self, shell: &Shell, step: u64) -> Begun {
        let vanished = shell.shelf.vanished();
        let folder = shell.shelf.begin(step).map_err(|e| e.to_string()).map(|folder| {
            let text = folder.display().to_string();
            self.parcels.open(folder);
            text
        });
        Begun { step, folder, vanished }
    }

    /// Writes the method's own part on a thread of its own: the disk may take longer than a step.
    fn write_part(&mut self, step: u64, snapshot: Arc<Snapshot>) {
        let Some(folder) = self.parcels.folder() else { return };
        let post = self.post.clone();
        let write = move || {
            let view = PartView {
                step,
                start: 0,
                parameters: &snapshot.parameters,
                slots: &[],
                state: &snapshot.state,
            };
            let written = write_part(&folder, 0, &view)
                .map_err(|e| format!("cannot write a checkpoint of step {step}: {e}"));
            // After the end nobody listens.
            let written = Input::PartWritten { step, written };
            let _ = post.send(Mail::Said(0, Agent::Console, written));
        };
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(write);
        if let Err(e) = thread {
            self.written(Err(format!("cannot start a thread: {e}")));
        }
    }

    /// What this thread has to tell itself; its box may be full, and only it empties the box.
    fn written(&mut self, result: Result<String, String>) {
        self.own.push_back(Input::ManifestWritten(result));
    }
}
