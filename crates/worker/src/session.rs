//! A worker joined once: from joining the coordinator to the end of the run or of a link.
//!
//! Does what [`Duty`] says. Its threads end with it, and what they have filled is dropped, so that
//! nothing of one session is left in the next. Links that break end a session, never the process.

use crate::ahead::Wanted;
use crate::bench::Bench;
use crate::board::{Board, Report};
use crate::duty::{Duty, Input, Output, Work};
use crate::links::{Ear, Filler, Links, SILENCE, StateBox};
use crate::mail::Mail;
use crate::run::{Log, RETRY};
use crate::step::{Outlet, Servers};
use planaria_numerics::aggregate::BLOCK;
use planaria_protocol::clock::Clock;
use planaria_protocol::link::{self, Receiver, Sender};
use planaria_protocol::message::{FromWorker, Join, Push, Sha256, Shelf, Trouble};
use planaria_protocol::methods::{self, sync};
use planaria_protocol::{Error, Passport, bytes};
use sha2::Digest as _;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// How long a server may take to be reached, or to be of this generation.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a worker that has lost a server waits for the word to join again.
const LINGER: Duration = Duration::from_secs(1);

/// How long a last word may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long to wait for mail when there is nothing else to do.
const IDLE: Duration = Duration::from_secs(3600);

/// What every session of a process has in common.
pub struct Setting<'a> {
    /// Where the coordinator listens.
    pub address: &'a str,
    /// What is shown to the others.
    pub passport: &'a Passport,
    /// What is said on connecting.
    pub join: &'a Join,
    /// Shards of a step.
    pub shards: u32,
    pub clock: &'a dyn Clock,
    pub log: &'a Log,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The run is over.
    Finished,
    Again,
}

/// A worker joined once.
pub struct Session<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    setting: &'env Setting<'env>,
    links: Arc<Links>,
    mail: Arc<Mail>,
    wanted: Wanted,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
    /// Once connected to the servers.
    hall: Option<Hall>,
    /// Answers to what was done.
    answers: VecDeque<Input>,
    /// When a worker that has lost a server is to join again.
    leave_at: Option<Duration>,
    waited_since: Duration,
    shards_last: Range<u32>,
}

/// The servers, and what comes from them.
struct Hall {
    servers: Servers,
    board: Arc<Board>,
    state: Arc<StateBox>,
}

impl<'scope, 'env> Session<'scope, 'env> {
    /// Joins the coordinator. From now on it hears that this process lives.
    pub fn join(
        scope: &'scope Scope<'scope, 'env>,
        setting: &'env Setting<'env>,
        wanted: &Wanted,
    ) -> Result<Self, Error> {
        let (coordinator, mut orders) = link::connect(setting.address, setting.passport, None)?;
        orders.set_timeout(Some(SILENCE))?;
        coordinator.send(setting.join)?;
        let (links, mail) = (Links::new(coordinator), Arc::new(Mail::default()));
        let mut session = Self {
            scope,
            setting,
            links: links.clone(),
            mail: mail.clone(),
            wanted: wanted.clone(),
            threads: Vec::new(),
            hall: None,
            answers: VecDeque::new(),
            leave_at: None,
            waited_since: setting.clock.now(),
            shards_last: 0..0,
        };
        let (wanted, hearing) = (wanted.clone(), links.clone());
        let hear = move || {
            let ear = Ear { links: &hearing, mail: &mail, wanted: &wanted };
            let why = ear.obey(orders, setting.shards, setting.clock);
            // One that lets nobody in is tried many times.
            if hearing.was_spoken_to() {
                (setting.log)(&format!("the coordinator is not heard any more: {why}"));
            }
        };
        session.spawn("orders".into(), hear)?;
        session.spawn("alive".into(), move || links.live(setting.clock))?;
        Ok(session)
    }

    /// Whether the coordinator has said anything.
    pub fn was_spoken_to(&self) -> bool {
        self.links.was_spoken_to()
    }

    /// Works until the run or the session is over. Fails if the process cannot go on.
    pub fn work(&mut self, bench: &mut Bench) -> Result<End, Trouble> {
        bench.forget_weights();
        self.waited_since = self.setting.clock.now();
        let (mut duty, mut out) = (Duty::new(), Vec::new());
        loop {
            duty.on(self.next(), &mut out);
            for output in out.drain(..) {
                match output {
                    Output::Finish => {
                        self.links.flush(FAREWELL);
                        return Ok(End::Finished);
                    }
                    Output::Rejoin => return Ok(End::Again),
                    output => self.act(output, bench)?,
                }
            }
        }
    }

    /// The process cannot go on: tells the coordinator.
    pub fn fail(&self, trouble: &Trouble) {
        self.links.tell(&FromWorker::Failed(trouble.clone()), &[]);
        self.links.flush(FAREWELL);
    }

    /// What has happened: what others say before what this worker has done, so that it does not go
    /// on with what is no longer wanted.
    fn next(&mut self) -> Input {
        loop {
            if let Some(input) = self.mail.take().or_else(|| self.answers.pop_front()) {
                return input;
            }
            let now = self.setting.clock.now();
            let left = self.leave_at.map_or(IDLE, |at| at.saturating_sub(now));
            match self.mail.wait(left) {
                Some(input) => return input,
                None if self.leave_at.is_some() => {
                    self.leave_at = None;
                    return Input::Lingered;
                }
                None => {}
            }
        }
    }

    fn act(&mut self, output: Output, bench: &mut Bench) -> Result<(), Trouble> {
        let log = self.setting.log;
        match output {
            Output::Connect(shelves) => return self.connect(shelves, bench),
            Output::Tell(message) => {
                match &message {
                    FromWorker::Method(methods::Report::Sync(report)) => log_report(report, log),
                    FromWorker::Revoked { .. } => log("all leases are revoked"),
                    _ => {}
                }
                self.links.tell(&message, &[]);
            }
            Output::Skip(task) => self.wanted.skip(&task),
            Output::Forget { leases } => self.wanted.forget(leases),
            Output::Linger => self.leave_at = Some(self.setting.clock.now() + LINGER),
            Output::Finish | Output::Rejoin => {}
            output => {
                let hall = self.hall.as_ref();
                // Without servers there is nothing to follow and nothing to compute with.
                let Some(hall) = hall else { return Ok(()) };
                match output {
                    Output::Follow { step } => {
                        log(&format!("entering after step {step}"));
                        hall.board.ask_again();
                        hall.servers.tell_all(&Push::Follow { step });
                    }
                    Output::Unfollow => hall.servers.tell_all(&Push::Unfollow),
                    Output::State { step } => hall.servers.tell_first(&Push::State { step }, &[]),
                    Output::Hash { step } => self.answers.push_back(hall.hash(step)),
                    Output::Compute(task) => {
                        if self.shards_last != task.shards {
                            let (shards, step) = (&task.shards, task.step);
                            log(&format!("computing shards {shards:?} from step {step}"));
                            self.shards_last = shards.clone();
                        }
                        let clock = self.setting.clock;
                        let done = bench.compute(&task, &hall.servers, &hall.board, clock)?;
                        self.answers.push_back(match done {
                            None => Input::Over { step: task.step },
                            Some(done) => {
                                let waiting = done.began.saturating_sub(self.waited_since);
                                self.waited_since = done.ended;
                                // What was given up at once says nothing of the pace.
                                let busy = match done.examples {
                                    0 => Duration::ZERO,
                                    _ => done.ended.saturating_sub(done.began),
                                };
                                Input::Done(Work { examples: done.examples, busy, waiting })
                            }
                        });
                    }
                    Output::Evaluate { part, step, batch } => {
                        let scored = hall.state.with(step, |state| {
                            bench.score((part, step, batch), &hall.board, state)
                        });
                        self.answers.push_back(match scored.transpose()?.flatten() {
                            None => Input::Over { step },
                            Some(scores) => {
                                let told = FromWorker::Evaluated { part, step, batch };
                                self.links.tell(&told, &scores);
                                Input::Scored
                            }
                        });
                        self.waited_since = self.setting.clock.now();
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Connects to every server; a thread for each fills the board.
    fn connect(&mut self, mut shelves: Vec<Shelf>, bench: &Bench) -> Result<(), Trouble> {
        shelves.sort_by_key(|s| (s.blocks.start, s.blocks.end));
        let network = bench.engine().network();
        let mail = self.mail.clone();
        let board = Board::new(network.parameter_count(), move |report| {
            mail.put(match report {
                Report::Complete(step) => Input::Complete { step },
                Report::Missed(step) => Input::Missed { step },
            });
        });
        let ranges: Vec<Range<usize>> =
            shelves.iter().map(|s| s.blocks.start as usize..s.blocks.end as usize).collect();
        let writers =
            board.writers(&ranges).ok_or_else(|| Trouble::new("the servers' blocks overlap"))?;
        let state = Arc::new(StateBox::default());
        let mut senders = Vec::new();
        let until = self.setting.clock.now() + CONNECT;
        for (shelf, writer) in shelves.iter().zip(writers) {
            let (sender, receiver) = match self.reach(shelf, until) {
                Ok(link) => link,
                Err(error) => {
                    let (server, why) = (shelf.server, error.to_string());
                    self.answers.push_back(Input::Ended { server, why });
                    return Ok(());
                }
            };
            self.links.add(sender.clone());
            senders.push(sender.clone());
            let filler = Filler {
                server: shelf.server,
                writer,
                state: state.clone(),
                state_count: network.state_count(),
                mail: self.mail.clone(),
            };
            self.spawn(format!("pull-{}", shelf.server), move || filler.hear(receiver, &sender))
                .map_err(Trouble::new)?;
        }
        let servers = Servers::new(shelves, senders, self.mail.clone());
        self.hall = Some(Hall { servers, board, state });
        let (engine, threads) = (bench.engine().name(), bench.engine().threads());
        let ready = FromWorker::Ready { engine: engine.to_owned(), threads: threads as u32 };
        self.links.tell(&ready, &[]);
        let generation = self.links.generation();
        (self.setting.log)(&format!(
            "ready in generation {generation} with {engine}, threads: {threads}; connected to all \
             servers, waiting for shards"
        ));
        Ok(())
    }

    /// A link to a server. One that is of another generation, or not there yet, is tried again.
    fn reach(&self, shelf: &Shelf, until: Duration) -> Result<(Sender, Receiver), Error> {
        let setting = self.setting;
        loop {
            let generation = Some(self.links.generation());
            let connected = link::connect(&shelf.address, setting.passport, generation);
            let joined = connected.and_then(|(sender, receiver)| {
                sender.send(setting.join)?;
                Ok((sender, receiver))
            });
            match joined {
                Ok(link) => return Ok(link),
                Err(error) if setting.clock.now() >= until || self.links.pause(RETRY) => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
    }

    fn spawn(&mut self, name: String, f: impl FnOnce() + Send + 'scope) -> Result<(), Error> {
        let thread = std::thread::Builder::new().name(name).spawn_scoped(self.scope, f);
        let failed = |source| Error::Io { what: "starting a thread", source };
        self.threads.push(thread.map_err(failed)?);
        Ok(())
    }
}

impl Hall {
    /// The hashes of the parameters after `step` steps, by server.
    fn hash(&self, step: u64) -> Input {
        let Some(parameters) = self.board.see(step) else { return Input::Over { step } };
        let mut shelves: Vec<&Shelf> = self.servers.shelves().iter().collect();
        shelves.sort_by_key(|shelf| shelf.server);
        let hash = |shelf: &&Shelf| -> Sha256 {
            let place = |block: u32| (block as usize * BLOCK).min(parameters.len());
            let values = &parameters[place(shelf.blocks.start)..place(shelf.blocks.end)];
            sha2::Sha256::digest(bytes::as_bytes(values)).into()
        };
        Input::Hashes { step, sha256: shelves.iter().map(hash).collect() }
    }
}

impl Drop for Session<'_, '_> {
    fn drop(&mut self) {
        self.links.end();
        for thread in self.threads.drain(..) {
            // It has no result, and its panic has been shown.
            let _ = thread.join();
        }
        self.wanted.forget(u64::MAX);
    }
}

fn log_report(report: &sync::Report, log: &Log) {
    match report {
        sync::Report::Cut { server, why } => log(&format!("lost server-{server}: {why}")),
        sync::Report::Behind { step } => log(&format!("missed the parameters after step {step}")),
        sync::Report::Holds { step, .. } => log(&format!("holds the parameters after step {step}")),
        sync::Report::Pace { .. } => {}
    }
}
