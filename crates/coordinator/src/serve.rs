//! The coordinator: a thin shell around [`decide::cluster`](crate::decide::cluster).
//!
//! One thread decides; threads that read links pass it what was said, and everything it decides is
//! sent, written or recorded from here. Never decides anything itself.

use crate::decide::cluster::{Action, Cluster, Decision, Input, Saving};
use crate::decide::record::Record;
use crate::journal::Journal;
use crate::narrate;
use crate::record::RecordFile;
use planaria_learn::Scores;
use planaria_protocol::bytes;
use planaria_protocol::checkpoint::{Manifest, Part, PartInfo, Shelf};
use planaria_protocol::clock::Clock;
use planaria_protocol::event::{Event, What};
use planaria_protocol::link::{Receiver, Sender};
use planaria_protocol::message::{
    Agent, FromConsole, FromServer, FromWorker, Join, ToConsole, ToServer, ToWorker, Trouble,
    Weather, event_bulk,
};
use planaria_protocol::{Error, Secret, listen, weather};
use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Messages that may wait for the deciding thread.
const INBOX_MAX: usize = 1024;
/// Time between pulses to whoever watches.
const PULSE_EVERY: Duration = Duration::from_millis(100);
/// How long a last word may take.
const FAREWELL: Duration = Duration::from_secs(5);
/// Bytes of events that may wait for a console.
const CONSOLE_BYTES_MAX: usize = 16 << 20;
/// Largest score of a batch, in bytes.
const SCORES_BYTES_MAX: usize = 64 << 20;

/// Events that are kept for whoever begins to watch; a run has about a thousand.
const EVENTS_MAX: usize = 100_000;
/// Time between looks at what follows from time alone.
const TICK_EVERY: Duration = Duration::from_millis(10);
/// Time between words to processes that would otherwise hear nothing.
const ALIVE_EVERY: Duration = Duration::from_millis(500);

/// Where log lines go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// What a coordinator works with.
pub struct Shell {
    /// Decides.
    pub cluster: Cluster,
    /// Where it listens.
    pub listener: TcpListener,
    /// Who knows it may join.
    pub secret: Secret,
    /// Of this session.
    pub generation: u64,
    /// `events.jsonl`.
    pub journal: Journal,
    /// What was written in this session before this process began.
    pub told: Vec<Event>,
    /// Where the record is kept, if it can be.
    pub record: Option<(PathBuf, RecordFile)>,
    /// The record that another coordinator has left, without what it says to be told.
    pub left: Option<Record>,
    /// The run's checkpoints.
    pub shelf: Shelf,
    /// What every manifest says alike: everything but step, state and parts.
    pub manifest: Manifest,
    /// By server: first parameter and the one after the last.
    pub ranges: Vec<(u64, u64)>,
    /// Tells the time; zero is when the coordinator began.
    pub clock: Arc<dyn Clock>,
    /// Where log lines go.
    pub log: Log,
}

/// How the coordinator's process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// The run is over.
    Over,
    /// Another coordinator is to take its place.
    Restart,
}

/// What reaches the deciding thread.
enum Mail {
    /// Somebody has joined, over the link of this number.
    Linked(u64, Join, Sender),
    /// Somebody said something, over this link.
    Said(u64, Agent, Input),
    /// The console on this link wants to watch, and whether it starts and ends processes.
    Watch(u64, bool),
    /// A console wants a process to suffer.
    Weather(Agent, Weather),
    /// This link has ended, and how.
    Gone(u64, Agent, u32, String),
}

/// Decides until the run is over, or another coordinator must take over. What another coordinator
/// has left `untold` is written down before anything else, and then that the session has `started`,
/// where it begins.
pub fn run(mut shell: Shell, untold: Vec<What>, started: Option<What>) -> Result<Leave, Trouble> {
    let (post, inbox) = sync_channel(INBOX_MAX);
    let (posting, log) = (post.clone(), shell.log.clone());
    let links = AtomicU64::new(0);
    let listener = shell.listener.try_clone().map_err(Trouble::new)?;
    let listening = listen::serve(
        listener,
        shell.secret.clone(),
        Arc::new(AtomicU64::new(shell.generation)),
        move |join, sender, receiver| {
            let number = links.fetch_add(1, Ordering::Relaxed);
            read_link(&posting, number, join, sender, receiver);
        },
        move |reason| log(&format!("refused a connection: {reason}")),
    )
    .map_err(Trouble::new)?;
    let mut desk = Desk {
        links: BTreeMap::new(),
        consoles: BTreeMap::new(),
        post,
        folder: None,
        own: VecDeque::new(),
        events: shell.told.iter().map(event_bulk).collect(),
        left_out: 0,
        told_end: false,
        ticked: Duration::ZERO,
        alive: Duration::ZERO,
    };
    let began = desk.begin(&mut shell, untold, started);
    let over = began.and_then(|()| desk.work(&mut shell, &inbox));
    if let Err(trouble) = &over {
        desk.tell_end(&shell, trouble);
    }
    drop(listening);
    desk.say_goodbye(over != Ok(Leave::Restart));
    over
}

/// Reads a link on the thread that was given for it; `number` tells consoles apart.
fn read_link(
    post: &SyncSender<Mail>,
    number: u64,
    join: Join,
    sender: Sender,
    mut receiver: Receiver,
) {
    let (agent, pid) = (join.agent, join.pid);
    if post.send(Mail::Linked(number, join, sender)).is_err() {
        return;
    }
    let ended = match agent {
        Agent::Worker(worker) => read_worker(post, number, worker, &mut receiver),
        Agent::Server(server) => read_server(post, number, server, &mut receiver),
        Agent::Console => read_console(post, number, &mut receiver),
        Agent::Coordinator => Ok(()),
    };
    let how = ended.err().map_or_else(|| "it went away".to_owned(), |e| e.to_string());
    // After the end nobody listens.
    let _ = post.send(Mail::Gone(number, agent, pid, how));
}

fn read_worker(
    post: &SyncSender<Mail>,
    number: u64,
    worker: u32,
    link: &mut Receiver,
) -> Result<(), Error> {
    while let Some(incoming) = link.receive::<FromWorker>()? {
        let input = match incoming.message {
            FromWorker::Evaluated { part, batch } => {
                let bulk = link.bulk_vec(SCORES_BYTES_MAX)?;
                match serde_json::from_slice::<Scores>(&bulk) {
                    Ok(scores) => Input::Scored(worker, part, batch, scores),
                    Err(e) => {
                        let message = format!("its scores cannot be read: {e}");
                        let trouble = Trouble::new(message);
                        Input::Worker(worker, FromWorker::Failed(trouble))
                    }
                }
            }
            said => Input::Worker(worker, said),
        };
        if post.send(Mail::Said(number, Agent::Worker(worker), input)).is_err() {
            break;
        }
    }
    Ok(())
}

fn read_server(
    post: &SyncSender<Mail>,
    number: u64,
    server: u32,
    link: &mut Receiver,
) -> Result<(), Error> {
    while let Some(incoming) = link.receive::<FromServer>()? {
        let mut squares = vec![0f64; incoming.bulk_bytes / 8];
        link.read_bulk(bytes::as_bytes_mut(&mut squares))?;
        let said = Input::Server(server, incoming.message, squares);
        if post.send(Mail::Said(number, Agent::Server(server), said)).is_err() {
            break;
        }
    }
    Ok(())
}

fn read_console(post: &SyncSender<Mail>, console: u64, link: &mut Receiver) -> Result<(), Error> {
    while let Some(incoming) = link.receive::<FromConsole>()? {
        let said = |input| Mail::Said(console, Agent::Console, input);
        let mail = match incoming.message {
            FromConsole::Watch { supervises } => Mail::Watch(console, supervises),
            FromConsole::Stop { reason } => said(Input::Stop(reason)),
            FromConsole::Ended { agent, pid, how } => {
                said(Input::Left { agent, pid, how, ended: true })
            }
            FromConsole::Scale { workers } => said(Input::Scale(workers)),
            FromConsole::Chaos { agent, weather } => Mail::Weather(agent, weather),
        };
        if post.send(mail).is_err() {
            break;
        }
    }
    Ok(())
}

/// A link to a worker or a server.
struct Member {
    number: u64,
    sender: Sender,
}

/// A link to a console.
struct Watcher {
    sender: Sender,
    watches: bool,
    supervises: bool,
}

/// Everyone the coordinator talks to.
struct Desk {
    links: BTreeMap<Agent, Member>,
    consoles: BTreeMap<u64, Watcher>,
    post: SyncSender<Mail>,
    /// Of the checkpoint being written.
    folder: Option<PathBuf>,
    /// What the deciding thread has found out itself.
    own: VecDeque<Input>,
    /// This session's events so far, for whoever begins to watch.
    events: Vec<Vec<u8>>,
    /// How many of them were let go of, after the first.
    left_out: u64,
    /// Whether those who watch know that the run is over.
    told_end: bool,
    /// When it last looked at the clock for its own sake, and last said that it lives.
    ticked: Duration,
    alive: Duration,
}

impl Desk {
    fn begin(
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
            keep(shell, left);
        }
        started.map_or(Ok(()), |what| self.record(shell, what, "the command asked for it"))
    }

    fn work(&mut self, shell: &mut Shell, inbox: &Inbox<Mail>) -> Result<Leave, Trouble> {
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
        for decision in shell.cluster.step(now, input) {
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
            Mail::Linked(number, Join { agent: Agent::Console, .. }, sender) => {
                let watcher = Watcher { sender, watches: false, supervises: false };
                self.consoles.insert(number, watcher);
                None
            }
            Mail::Linked(number, join, sender) => {
                let Join { agent, build, pid, address, kept } = join;
                if let Some(old) = self.links.insert(agent, Member { number, sender }) {
                    old.sender.close();
                }
                Some(Input::Joined { agent, pid, build, address, kept })
            }
            Mail::Gone(number, Agent::Console, ..) => {
                self.consoles.remove(&number);
                None
            }
            Mail::Gone(number, agent, pid, how) => {
                self.links.get(&agent).filter(|link| link.number == number)?;
                self.links.remove(&agent);
                Some(Input::Left { agent, pid, how, ended: false })
            }
        }
    }

    fn act(&mut self, shell: &mut Shell, decision: Decision) -> Result<Option<Leave>, Trouble> {
        match decision.action {
            Action::Keep(record) => keep(shell, *record),
            // Whoever cannot be reached is reported by the thread that reads its link.
            Action::ToWorker(worker, message) => {
                if let Some(link) = self.links.get(&Agent::Worker(worker)) {
                    let _ = link.sender.send(&message);
                }
            }
            Action::ToServer(server, message) => self.tell_server(server, &message),
            Action::Record(what) => self.record(shell, what, &decision.reason)?,
            Action::Save(step) => {
                (shell.log)(&format!("saving step {step}: {}", decision.reason));
                match shell.shelf.begin(step) {
                    Ok(folder) => {
                        let text = folder.display().to_string();
                        for server in 0..shell.ranges.len() as u32 {
                            let save = ToServer::Save { step, folder: text.clone() };
                            self.tell_server(server, &save);
                        }
                        self.folder = Some(folder);
                    }
                    Err(e) => {
                        self.written(Err(format!("cannot make a checkpoint of step {step}: {e}")))
                    }
                }
            }
            Action::Abandon => {
                if let Some(folder) = self.folder.take() {
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
        let Some(folder) = self.folder.take() else { return };
        let parts = saving.parts.iter().zip(&shell.ranges).map(|(part, (start, end))| {
            let (file, sha256, bytes) = part.clone().expect("every part is there");
            Part { info: PartInfo { file, sha256, bytes }, start: *start, end: *end }
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

    /// What this thread has to tell itself; its box may be full, and only it empties the box.
    fn written(&mut self, result: Result<String, String>) {
        self.own.push_back(Input::ManifestWritten(result));
    }

    fn record(&mut self, shell: &mut Shell, what: What, reason: &str) -> Result<(), Trouble> {
        if let Some(line) = narrate::line(&what, reason) {
            (shell.log)(&line);
        }
        let event = event(shell, what);
        let had = shell.journal.trouble().is_some();
        let written = shell.journal.write(&event);
        match shell.journal.trouble() {
            Some(why) if !had => (shell.log)(&format!("events wait for the disk: {why}")),
            None if had => (shell.log)("the events that waited are written"),
            _ => {}
        }
        // Whoever watches is told even what the disk does not take.
        self.tell(&event);
        written.map_err(|e| Trouble::new(format!("cannot write events.jsonl: {e}")))
    }

    fn tell(&mut self, event: &Event) {
        self.told_end |= matches!(event.what, What::Ended { .. });
        let bulk = event_bulk(event);
        let index = self.left_out + self.events.len() as u64;
        self.show(&ToConsole::Event { index }, &bulk);
        if self.events.len() == EVENTS_MAX {
            // The first one says what the run is.
            self.events.remove(1);
            self.left_out += 1;
        }
        self.events.push(bulk);
    }

    /// Tells an end that the coordinator itself is the cause of, and that cannot be written down.
    fn tell_end(&mut self, shell: &Shell, trouble: &Trouble) {
        if self.told_end {
            return;
        }
        let ended = What::Ended {
            outcome: "failed".into(),
            reason: Some(trouble.message.clone()),
            step: shell.cluster.state().step,
            weights_sha256: None,
            trouble: Some(trouble.clone()),
            state: Some(Box::new(shell.cluster.state().clone())),
        };
        self.tell(&event(shell, ended));
    }

    fn pulse(&mut self, shell: &Shell, now: Duration) {
        if self.consoles.values().any(|w| w.watches)
            && let Ok(bulk) = serde_json::to_vec(&shell.cluster.pulse(now))
        {
            self.show(&ToConsole::Pulse, &bulk);
        }
    }

    /// Tells every console that watches. One that does not read, because it was suspended say, is
    /// sent no pulses, and is let go when too many events wait for it.
    fn show(&mut self, message: &ToConsole, bulk: &[u8]) {
        let is_pulse = *message == ToConsole::Pulse;
        self.consoles.retain(|_, Watcher { sender, watches, .. }| {
            let waiting = sender.bytes_waiting();
            if !*watches || (is_pulse && waiting > 0) {
                return true;
            }
            waiting < CONSOLE_BYTES_MAX && sender.send_with(message, bulk).is_ok()
        });
    }

    fn say_goodbye(&mut self, over: bool) {
        for Watcher { sender, .. } in self.consoles.values() {
            if over {
                let _ = sender.send(&ToConsole::Finish);
            }
            let _ = sender.flush_and_close(FAREWELL);
        }
        for link in self.links.values() {
            let _ = link.sender.flush_and_close(FAREWELL);
        }
    }
}

/// Writes the record; if that fails, a loss of this process will go back to the last checkpoint.
fn keep(shell: &mut Shell, mut record: Record) {
    // What the disk has not taken is lost with this process, unless the record holds it.
    if shell.journal.pending() > 0 {
        record = record.with_waiting(&shell.journal.waiting());
    }
    if let Some((folder, file)) = &mut shell.record
        && let Err(e) = file.write(folder, &record)
    {
        (shell.log)(&format!(
            "the record cannot be kept ({e}): if the coordinator is lost, the run goes back to its \
             last checkpoint"
        ));
        shell.record = None;
    }
}

/// What happens now, as an event.
fn event(shell: &Shell, what: What) -> Event {
    Event {
        seconds: shell.cluster.seconds(shell.clock.now()),
        unix_seconds: shell.clock.unix_seconds(),
        generation: shell.generation,
        what,
    }
}
