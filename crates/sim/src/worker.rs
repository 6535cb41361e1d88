//! A simulated worker: the real value ([`planaria_worker::session::Worker`]) and the real parameter
//! buffers, with the world around them as the process has it.
//!
//! What a thread would read is taken at once; what the main thread does waits while that computes,
//! dials or prepares.

use crate::lab::{Pushed, hashes};
use crate::net::{LinkId, Msg, Pid};
use crate::world::{Dial, Event, Timer, World};
use planaria_fleet::ending::Ending;
use planaria_protocol::message::{Agent, FromWorker, Join, Pull, Push, Shelf};
use planaria_worker::gradient::Task;
use planaria_worker::gradient::parameters::{Parameters, Report, View, Writer, Wrong};
use planaria_worker::methods::sync::duty::{Input, Work};
use planaria_worker::methods::sync::{self, Do, Engine, Sync};
use planaria_worker::session::inbox::{Beat, Heard};
use planaria_worker::session::{self, ALIVE, Batch, Effect, Inbox};
use std::sync::Arc;
use std::time::Duration;

/// A worker's process.
pub struct Worker {
    index: u32,
    value: session::Worker<Sync>,
    session: Option<Session>,
    /// What the main thread does this moment; then nothing else is done.
    busy: Option<Busy>,
    /// When it is woken next.
    wake: Option<Duration>,
}

/// Joined once.
struct Session {
    coordinator: LinkId,
    inbox: Arc<Inbox<sync::Event>>,
    has_hung_up: bool,
    waited_since: Duration,
    /// The servers, as far as it is connected.
    shelves: Vec<Shelf>,
    links: Vec<LinkId>,
    lost: Vec<bool>,
    writers: Vec<Writer>,
    parameters: Option<Arc<Parameters>>,
    state: Option<(u64, Arc<[f32]>)>,
}

enum Busy {
    /// Connecting to the coordinator or a server.
    Dialing,
    Preparing,
    Task {
        task: Task,
        pushes: Arc<Vec<Pushed>>,
        sent: usize,
        view: View,
        began: Duration,
    },
    Batch(Batch),
}

impl Worker {
    /// A worker that is about to begin.
    pub fn new(index: u32, now: Duration) -> Self {
        let value = session::Worker::new(Sync::default(), "the coordinator", now);
        Self { index, value, session: None, busy: None, wake: None }
    }

    /// Takes in what happens.
    pub fn take(&mut self, world: &mut World<'_>, pid: Pid, event: Event) {
        match event {
            Event::Timer(Timer::Start) => world.timer(pid, ALIVE, Timer::Alive),
            Event::Timer(Timer::Retry) => self.wake = None,
            Event::Timer(Timer::Alive) => self.beat(world, pid),
            Event::Timer(Timer::Prepared) => {
                self.busy = None;
                let name = world.bench.engine.clone();
                self.value.prepared(Engine { name, threads: 1 });
            }
            Event::Timer(Timer::Computed(_)) => self.computed(world, pid),
            Event::Dialed(Dial::Coordinator, link) => self.joined(world, pid, link),
            Event::Dialed(Dial::Server(_), link) => self.reached(world, pid, link),
            Event::Frame(link, _, msg) => self.hear(world, pid, link, msg),
            Event::Fin(link) => self.ended(world, pid, link, "it went away"),
            _ => {}
        }
        self.pump(world, pid);
    }

    /// The main thread: one effect after another, until one takes time or nothing is left.
    fn pump(&mut self, world: &mut World<'_>, pid: Pid) {
        while world.lives(pid) && self.busy.is_none() {
            let Some(effect) = self.value.next(world.now) else { break };
            world.say(pid, || format!("does {effect:?}"));
            self.act(world, pid, effect);
        }
        let at = self.value.wake_at().filter(|_| world.lives(pid) && self.busy.is_none());
        if let Some(at) = at.filter(|at| self.wake.is_none_or(|wake| *at < wake)) {
            self.wake = Some(at);
            world.timer(pid, at.saturating_sub(world.now), Timer::Retry);
        }
    }

    fn act(&mut self, world: &mut World<'_>, pid: Pid, effect: Effect<Do>) {
        match effect {
            Effect::Join => {
                self.busy = Some(Busy::Dialing);
                world.dial(pid, Dial::Coordinator, None);
            }
            Effect::Prepare => {
                self.busy = Some(Busy::Preparing);
                let time = world.coin.between(Duration::from_millis(1), Duration::from_millis(200));
                world.timer(pid, time, Timer::Prepared);
            }
            Effect::Tell(message, bulk) => {
                if let Some(session) = &self.session {
                    let scores = serde_json::from_slice(&bulk).ok().map(Box::new);
                    world.send(pid, session.coordinator, Msg::FromWorker(message, scores));
                }
            }
            Effect::Score(batch) => self.score(world, pid, batch),
            Effect::Log(_) => {}
            Effect::Own(effect) => self.act_on_servers(world, pid, effect),
            Effect::Leave => {
                if let Some(mut session) = self.session.take() {
                    session.hang_up(world, pid);
                    world.close(pid, session.coordinator);
                }
            }
            Effect::End(how) => world.end(pid, Ending::Code(how.map_or(1, |()| 0))),
        }
    }

    fn act_on_servers(&mut self, world: &mut World<'_>, pid: Pid, effect: Do) {
        let Some(session) = &mut self.session else { return };
        match effect {
            Do::Open(shelves) => session.open(shelves, world),
            Do::Reach { at } => {
                let to = session.shelves.get(at).map_or(0, |s| s.address.parse().unwrap_or(0));
                let generation = world.generation(session.coordinator);
                self.busy = Some(Busy::Dialing);
                world.dial(pid, Dial::Server(to), Some(generation));
            }
            Do::Follow { step } => {
                session.parameters.iter().for_each(|parameters| parameters.ask_again());
                session.tell_all(world, pid, &Push::Follow { step });
            }
            Do::Unfollow => session.tell_all(world, pid, &Push::Unfollow),
            Do::State { step } => {
                let first = session.shelves.iter().position(|s| s.server == 0).unwrap_or(0);
                session.tell(world, pid, first, Push::State { step }, Arc::default());
            }
            Do::Hash { step } => {
                let view = session.parameters.as_ref().and_then(|parameters| parameters.see(step));
                let input = match view {
                    None => Input::Over { step },
                    Some(view) => {
                        world.must(world.bench.check_parameters(step, &view));
                        Input::Hashes { step, sha256: hashes(&view, &session.shelves) }
                    }
                };
                self.value.answer(sync::Event::Duty(input));
            }
            Do::Compute(task) => self.compute(world, pid, task),
            Do::Skip(_) | Do::Forget { .. } => {}
        }
    }

    fn joined(&mut self, world: &mut World<'_>, pid: Pid, link: Result<LinkId, String>) {
        self.busy = None;
        let link = match link {
            Ok(link) => link,
            Err(why) => return self.value.not_joined(world.now, &why),
        };
        if !world.send(pid, link, Msg::Join(join(self.index, pid))) {
            return self.value.not_joined(world.now, "it cannot be told");
        }
        self.session = Some(Session {
            coordinator: link,
            inbox: self.value.inbox().clone(),
            has_hung_up: false,
            waited_since: world.now,
            shelves: Vec::new(),
            links: Vec::new(),
            lost: Vec::new(),
            writers: Vec::new(),
            parameters: None,
            state: None,
        });
        self.value.joined();
    }

    fn beat(&mut self, world: &mut World<'_>, pid: Pid) {
        world.timer(pid, ALIVE, Timer::Alive);
        let Some(session) = &self.session else { return };
        let coordinator = session.coordinator;
        match session.inbox.beat(world.now) {
            Beat::Alive => {
                world.send(pid, coordinator, Msg::FromWorker(FromWorker::Alive, None));
            }
            Beat::Silent => {
                world.close(pid, coordinator);
                self.ended(world, pid, coordinator, "it is silent");
            }
        }
    }

    fn hear(&mut self, world: &mut World<'_>, pid: Pid, link: LinkId, msg: Msg) {
        let Some(session) = &mut self.session else { return };
        match msg {
            Msg::ToWorker(order) if link == session.coordinator => {
                world.say(pid, || format!("hears {order:?}"));
                if session.inbox.hear(world.now, order, Vec::new()) == Heard::Last {
                    session.hang_up(world, pid);
                }
            }
            Msg::Pull(pull, values) => {
                let Some(at) = session.links.iter().position(|l| *l == link) else { return };
                if let Err(why) = session.fill(at, pull, values) {
                    world.close(pid, link);
                    self.ended(world, pid, link, &why);
                }
            }
            _ => {}
        }
    }

    fn ended(&mut self, world: &mut World<'_>, pid: Pid, link: LinkId, why: &str) {
        let Some(session) = &mut self.session else { return };
        if link == session.coordinator {
            session.inbox.orphan();
            session.hang_up(world, pid);
        } else if let Some(at) = session.links.iter().position(|l| *l == link) {
            session.cut(at, why);
        }
    }

    fn compute(&mut self, world: &mut World<'_>, pid: Pid, task: Task) {
        let Some(session) = &self.session else { return };
        let view = session.parameters.as_ref().and_then(|parameters| parameters.see(task.step));
        let Some(view) = view else {
            return self.value.answer(sync::Event::Duty(Input::Over { step: task.step }));
        };
        if let Err(broken) = world.bench.check_parameters(task.step, &view) {
            return world.fail(format!("worker-{} computes {task:?}: {broken}", self.index));
        }
        let pushes = world.bench.compute(&task, &session.shelves);
        let shards = task.shards.end - task.shards.start;
        self.busy = Some(Busy::Task { task, pushes, sent: 0, view, began: world.now });
        self.take_time(world, pid, shards);
    }

    fn score(&mut self, world: &mut World<'_>, pid: Pid, batch: Batch) {
        let Some(session) = &self.session else { return };
        let step = batch.step;
        let view = session.parameters.as_ref().and_then(|parameters| parameters.see(step));
        let state = session.state.as_ref().filter(|(of, _)| *of == step);
        let (Some(view), Some((_, state))) = (view, state) else {
            return self.value.scored(batch, None);
        };
        world.must(world.bench.check_parameters(step, &view));
        world.must(world.bench.check_state(step, state));
        self.busy = Some(Busy::Batch(batch));
        self.take_time(world, pid, 1);
    }

    fn take_time(&mut self, world: &mut World<'_>, pid: Pid, shards: u32) {
        let slow = world.process(pid).map_or(1, |process| process.slow);
        let time = world.plan.shard * shards * slow / 2;
        let time = world.coin.about(time);
        world.timer(pid, time, Timer::Computed(0));
    }

    /// Computing has come to its middle, or to its end.
    fn computed(&mut self, world: &mut World<'_>, pid: Pid) {
        let Some(session) = &mut self.session else { return };
        match self.busy.take() {
            Some(Busy::Task { task, pushes, sent, view, began }) => {
                let parameters = session.parameters.as_ref();
                // Asked before every shard but the first; what was sent in the middle stays sent.
                let is_over =
                    task.shards.len() > 1 && parameters.is_some_and(|p| p.is_past(task.step));
                let middle = sent == 0 && pushes.len() > 1 && !is_over;
                let until = if middle { pushes.len() / 2 } else { pushes.len() };
                let until = if is_over { sent } else { until };
                for (at, push, values) in &pushes[sent..until] {
                    session.tell(world, pid, *at, push.clone(), values.clone());
                }
                if middle {
                    let shards = task.shards.end - task.shards.start;
                    self.busy = Some(Busy::Task { task, pushes, sent: until, view, began });
                    return self.take_time(world, pid, shards);
                }
                drop(view);
                let half = is_over && sent == 0;
                let examples = world.bench.examples(&task) / if half { 2 } else { 1 };
                let waiting = began.saturating_sub(session.waited_since);
                session.waited_since = world.now;
                let busy = world.now.saturating_sub(began);
                let work = Work { examples, busy, waiting };
                self.value.answer(sync::Event::Duty(Input::Done(work)));
            }
            Some(Busy::Batch(batch)) => {
                session.waited_since = world.now;
                let scores = world.bench.score(batch.part, batch.step, batch.batch);
                let scores = serde_json::to_vec(&scores).expect("scores have string keys only");
                self.value.scored(batch, Some(scores));
            }
            other => self.busy = other,
        }
    }

    fn reached(&mut self, world: &mut World<'_>, pid: Pid, link: Result<LinkId, String>) {
        self.busy = None;
        let Some(session) = &mut self.session else { return };
        let event = match link {
            Ok(link) => {
                session.links.push(link);
                session.lost.push(false);
                world.send(pid, link, Msg::Join(join(self.index, pid)));
                if session.has_hung_up {
                    world.close(pid, link);
                }
                sync::Event::Reached
            }
            Err(why) => sync::Event::NotReached { why },
        };
        self.value.answer(event);
    }
}

impl Session {
    fn put(&self, input: Input) {
        self.inbox.put(sync::Event::Duty(input));
    }

    fn open(&mut self, shelves: Vec<Shelf>, world: &World<'_>) {
        let inbox = self.inbox.clone();
        let parameters = Parameters::new(world.bench.facts.parameters as usize, move |report| {
            inbox.put(sync::Event::Duty(match report {
                Report::Complete(step) => Input::Complete { step },
                Report::Missed(step) => Input::Missed { step },
            }));
        });
        let ranges: Vec<_> =
            shelves.iter().map(|s| s.blocks.start as usize..s.blocks.end as usize).collect();
        self.writers = parameters.writers(&ranges).expect("the servers' blocks follow each other");
        (self.parameters, self.shelves) = (Some(parameters), shelves);
        self.links.clear();
    }

    /// What comes from the server in this place.
    fn fill(&mut self, at: usize, pull: Pull, values: Arc<[f32]>) -> Result<(), String> {
        match pull {
            Pull::Parameters { step, first_block } => self.writers[at]
                .fill(step, first_block as usize, 4 * values.len(), |into| {
                    if let Some(into) = into {
                        into.copy_from_slice(&values);
                    }
                    Ok(())
                })
                .map_err(|wrong: Wrong| wrong.to_string())?,
            Pull::Gone { step } => self.put(Input::Gone { step }),
            Pull::State { step } => {
                self.state = Some((step, values));
                self.put(Input::State { step });
            }
        }
        Ok(())
    }

    fn tell_all(&mut self, world: &mut World<'_>, pid: Pid, push: &Push) {
        for at in 0..self.links.len() {
            self.tell(world, pid, at, push.clone(), Arc::default());
        }
    }

    fn tell(&mut self, world: &mut World<'_>, pid: Pid, at: usize, push: Push, values: Arc<[f32]>) {
        let Some(link) = self.links.get(at).copied() else { return };
        if !world.send(pid, link, Msg::Push(push, values)) && world.lives(pid) {
            self.cut(at, "it cannot be told");
        }
    }

    fn cut(&mut self, at: usize, why: &str) {
        if !std::mem::replace(&mut self.lost[at], true) {
            let (server, why) = (self.shelves[at].server, why.to_owned());
            self.put(Input::Ended { server, why });
        }
    }

    fn hang_up(&mut self, world: &mut World<'_>, pid: Pid) {
        self.has_hung_up = true;
        for link in self.links.clone() {
            world.close(pid, link);
        }
    }
}

fn join(index: u32, pid: Pid) -> Join {
    let (agent, build) = (Agent::Worker(index), "sim".to_owned());
    Join { agent, build, pid, machine: None, address: None, kept: None, errand: Default::default() }
}
