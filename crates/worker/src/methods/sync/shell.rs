//! A synchronous worker's links to servers, and the threads that read them: does what [`super::Sync`]
//! says.

use super::duty::{Input, Work};
use super::resources::Resources;
use super::{Do, Engine, Event, Sync};
use crate::gradient::compute::Outlet as _;
use crate::gradient::parameters::{Parameters, Report, Writer};
use crate::gradient::read_ahead::Wanted;
use crate::gradient::servers::{Arrival, Links, Reader, Reports, Servers, StateBox};
use crate::session::Inbox;
use crate::session::method::Batch;
use crate::session::shell::{AtOnce, Hands, Setting};
use planaria_numerics::aggregate::BLOCK;
use planaria_protocol::hash::sha256;
use planaria_protocol::launch::Launch;
use planaria_protocol::link::{self, Receiver, Sender};
use planaria_protocol::message::{Agent, Push, ServerRange, Sha256, ToWorker, Trouble};
use planaria_protocol::methods;
use planaria_protocol::methods::sync::Command;
use planaria_protocol::{Error, bytes};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a synchronous worker has, for the life of its process.
pub struct Process<'a> {
    launch: &'a Launch,
    setting: &'a Setting<'a>,
    wanted: Wanted,
    resources: Option<Resources>,
    session: Option<Session>,
    waited_since: Duration,
}

/// What it has for one session.
struct Session {
    generation: u64,
    reports: Reports,
    links: Arc<Links>,
    threads: Vec<JoinHandle<()>>,
    /// While servers are being reached.
    opening: Option<Opening>,
    /// Once all servers are reached.
    open: Option<Open>,
}

struct Opening {
    server_ranges: Vec<ServerRange>,
    parameters: Arc<Parameters>,
    state: Arc<StateBox>,
    /// Of servers that are not reached, in reverse order.
    writers: Vec<Writer>,
    senders: Vec<Sender>,
}

/// The servers, and what comes from them.
struct Open {
    servers: Servers,
    parameters: Arc<Parameters>,
    state: Arc<StateBox>,
}

impl<'a> Process<'a> {
    pub fn new(launch: &'a Launch, setting: &'a Setting<'a>) -> Self {
        let (wanted, waited_since) = (Wanted::default(), setting.clock.now());
        Self { launch, setting, wanted, resources: None, session: None, waited_since }
    }

    /// Makes room for what the servers send.
    fn open(&mut self, server_ranges: Vec<ServerRange>) -> Result<(), Trouble> {
        let (Some(session), Some(resources)) = (&mut self.session, &self.resources) else {
            return Ok(());
        };
        let reports = session.reports.clone();
        let count = resources.engine().network().parameter_count();
        let parameters = Parameters::new(count, move |r| reports(Arrival::Parameters(r)));
        let ranges: Vec<Range<usize>> =
            server_ranges.iter().map(|s| s.blocks.start as usize..s.blocks.end as usize).collect();
        let writers = parameters.writers(&ranges);
        let mut writers = writers.ok_or_else(|| Trouble::new("the servers' blocks overlap"))?;
        writers.reverse();
        let (state, senders) = (Arc::default(), Vec::new());
        session.opening = Some(Opening { server_ranges, parameters, state, writers, senders });
        Ok(())
    }

    /// Connects to the next server; a thread reads what it sends.
    fn reach(&mut self, at: usize) -> Result<Event, Trouble> {
        let (setting, resources) = (self.setting, &self.resources);
        let Some((session, resources)) = self.session.as_mut().zip(resources.as_ref()) else {
            return Ok(not_reached("there is no session"));
        };
        let (Some(opening), generation) = (&mut session.opening, session.generation) else {
            return Ok(not_reached("there is no room for its parameters"));
        };
        let Some(server_range) = opening.server_ranges.get(at) else {
            return Ok(not_reached("there is no such server"));
        };
        let (sender, receiver) = match connect(setting, server_range, generation) {
            Ok(link) => link,
            Err(error) => return Ok(not_reached(error)),
        };
        let Some(writer) = opening.writers.pop() else {
            return Ok(not_reached("it is reached already"));
        };
        session.links.add(sender.clone());
        opening.senders.push(sender.clone());
        let reader = Reader {
            server: server_range.server,
            writer,
            state: opening.state.clone(),
            state_count: resources.engine().network().state_count(),
            reports: session.reports.clone(),
        };
        let thread = std::thread::Builder::new().name(format!("pull-{}", server_range.server));
        let thread = thread.spawn(move || reader.run(receiver, &sender));
        session
            .threads
            .push(thread.map_err(|e| Trouble::new(format!("cannot start a thread: {e}")))?);
        if opening.writers.is_empty()
            && let Some(Opening { server_ranges, parameters, state, senders, .. }) =
                session.opening.take()
        {
            let servers = Servers::new(server_ranges, senders, session.reports.clone());
            session.open = Some(Open { servers, parameters, state });
        }
        Ok(Event::Reached)
    }

    fn compute(&mut self, task: &crate::gradient::Task) -> Result<Option<Event>, Trouble> {
        let open = self.session.as_ref().and_then(|session| session.open.as_ref());
        let Some((open, resources)) = open.zip(self.resources.as_mut()) else { return Ok(None) };
        let clock = self.setting.clock;
        let done = resources.compute(task, &open.servers, &open.parameters, clock)?;
        Ok(Some(Event::Duty(match done {
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
        })))
    }
}

impl Hands<Sync> for Process<'_> {
    fn prepare(&mut self) -> Result<Engine, Trouble> {
        let (log, data) = (&self.setting.log, &self.launch.recipe.data.train);
        log(&format!("joined the coordinator at {}; opening `{data}`", self.setting.address));
        let resources = Resources::prepare(self.launch, &self.wanted)?;
        let examples = self.launch.facts.examples;
        log(&format!("{examples} training examples; waiting for the servers"));
        let engine = self.resources.insert(resources).engine();
        let (name, threads) = (engine.name().to_owned(), engine.threads() as u32);
        self.waited_since = self.setting.clock.now();
        Ok(Engine { name, threads })
    }

    fn begin(&mut self, inbox: &Arc<Inbox<Event>>, generation: u64) -> Arc<dyn AtOnce> {
        let (inbox, links) = (inbox.clone(), Arc::new(Links::default()));
        self.session = Some(Session {
            generation,
            reports: Arc::new(move |arrival| inbox.put(arrival.into())),
            links: links.clone(),
            threads: Vec::new(),
            opening: None,
            open: None,
        });
        if let Some(resources) = &mut self.resources {
            resources.forget_weights();
        }
        self.waited_since = self.setting.clock.now();
        let shards = self.launch.recipe.train.shards as u32;
        let (wanted, leases) = (self.wanted.clone(), AtomicU64::new(0));
        Arc::new(Announce { wanted, leases, shards, links })
    }

    fn act(&mut self, effect: Do) -> Result<Option<Event>, Trouble> {
        let open = self.session.as_ref().and_then(|session| session.open.as_ref());
        match effect {
            Do::Open(server_ranges) => self.open(server_ranges)?,
            Do::Reach { at } => return self.reach(at).map(Some),
            Do::Compute(task) => return self.compute(&task),
            Do::Skip(task) => self.wanted.skip(&task),
            Do::Forget { leases } => self.wanted.forget(leases),
            effect => {
                let Some(open) = open else { return Ok(None) };
                match effect {
                    Do::Follow { step } => {
                        open.parameters.ask_again();
                        open.servers.tell_all(&Push::Follow { step });
                    }
                    Do::Unfollow => open.servers.tell_all(&Push::Unfollow),
                    Do::State { step } => open.servers.tell_first(&Push::State { step }, &[]),
                    Do::Hash { step } => return Ok(Some(Event::Duty(open.hash(step)))),
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    fn score(&mut self, batch: Batch) -> Result<Option<Vec<u8>>, Trouble> {
        let open = self.session.as_ref().and_then(|session| session.open.as_ref());
        let Some((open, resources)) = open.zip(self.resources.as_mut()) else { return Ok(None) };
        let score = |state: &[f32]| resources.score(batch, &open.parameters, state);
        let scores = open.state.with(batch.step, score).transpose()?.flatten();
        self.waited_since = self.setting.clock.now();
        Ok(scores)
    }

    fn leave(&mut self) {
        let Some(session) = self.session.take() else { return };
        session.links.hang_up();
        for thread in session.threads {
            // It has no result, and its panic has been shown.
            let _ = thread.join();
        }
        self.wanted.forget(u64::MAX);
    }
}

impl Open {
    /// The hashes of the parameters after `step` steps, by server.
    fn hash(&self, step: u64) -> Input {
        let Some(parameters) = self.parameters.see(step) else { return Input::Over { step } };
        let mut server_ranges: Vec<&ServerRange> = self.servers.server_ranges().iter().collect();
        server_ranges.sort_by_key(|server_range| server_range.server);
        let hash = |server_range: &&ServerRange| -> Sha256 {
            let place = |block: u32| (block as usize * BLOCK).min(parameters.len());
            let values =
                &parameters[place(server_range.blocks.start)..place(server_range.blocks.end)];
            sha256(bytes::as_bytes(values))
        };
        Input::Hashes { step, sha256: server_ranges.iter().map(hash).collect() }
    }
}

impl From<Arrival> for Event {
    fn from(arrival: Arrival) -> Self {
        Self::Duty(match arrival {
            Arrival::Parameters(Report::Complete(step)) => Input::Complete { step },
            Arrival::Parameters(Report::Missed(step)) => Input::Missed { step },
            Arrival::State { step } => Input::State { step },
            Arrival::Gone { step } => Input::Gone { step },
            Arrival::Ended { server, why } => Input::Ended { server, why },
        })
    }
}

/// Announces leases to the read-ahead as they come.
struct Announce {
    wanted: Wanted,
    leases: AtomicU64,
    /// Shards of a step.
    shards: u32,
    links: Arc<Links>,
}

impl AtOnce for Announce {
    fn look_at(&self, order: &ToWorker) -> Result<(), &'static str> {
        let ToWorker::Method(methods::Command::Sync(Command::Lease { steps, shards, .. })) = order
        else {
            return Ok(());
        };
        let batches = steps.batches.end.checked_sub(steps.batches.start);
        let end = batches.and_then(|batches| steps.first_step.checked_add(batches));
        if end.is_none() || shards.start > shards.end || shards.end > self.shards {
            return Err("it leases what cannot be");
        }
        self.wanted.lease(self.leases.fetch_add(1, Ordering::Relaxed), steps, shards);
        Ok(())
    }

    fn hang_up(&self) {
        self.links.hang_up();
    }
}

fn not_reached(why: impl std::fmt::Display) -> Event {
    Event::NotReached { why: why.to_string() }
}

/// A link to a server of this generation.
fn connect(
    setting: &Setting<'_>,
    ServerRange { server, address, .. }: &ServerRange,
    generation: u64,
) -> Result<(Sender, Receiver), Error> {
    let server = Agent::Server(*server);
    let (sender, receiver) =
        link::connect(address, &setting.credentials, server, Some(generation))?;
    sender.send(&setting.join)?;
    Ok((sender, receiver))
}
