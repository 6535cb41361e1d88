//! A simulated worker: its duty and its board, and the world around them as its process has it.
//!
//! Mirrors `planaria_worker::session` and `run`, without threads: what a thread reads is taken at
//! once, and what the main thread does waits while that computes.

use crate::lab::{Pushed, hashes};
use crate::net::{LinkId, Msg, Pid};
use crate::world::{Dial, Event, Timer, World};
use planaria_fleet::ending::Ending;
use planaria_protocol::message::{Agent, FromWorker, Join, Pull, Push, Shelf, ToWorker};
use planaria_worker::board::{Board, Report, View, Writer, Wrong};
use planaria_worker::duty::{Duty, Input, Output, Task, Work};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// As in `planaria_worker`.
const RETRY: Duration = Duration::from_millis(20);
const LEASE: Duration = Duration::from_secs(30);
const ALIVE: Duration = Duration::from_millis(250);
const SILENCE: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(5);
const LINGER: Duration = Duration::from_secs(1);

type Mail = Arc<Mutex<VecDeque<Input>>>;

/// A worker's process.
pub struct Worker {
    index: u32,
    session: Option<Session>,
    /// Sessions so far.
    sessions: u64,
    heard: Duration,
    is_prepared: bool,
    /// What it computes this moment; then nothing else is done.
    busy: Option<Busy>,
}

/// Joined once.
struct Session {
    number: u64,
    coordinator: LinkId,
    duty: Duty,
    mail: Mail,
    answers: VecDeque<Input>,
    todo: VecDeque<Output>,
    has_hung_up: bool,
    was_spoken_to: bool,
    heard: Duration,
    waited_since: Duration,
    /// The servers, as far as it is connected.
    shelves: Vec<Shelf>,
    links: Vec<LinkId>,
    lost: Vec<bool>,
    writers: Vec<Writer>,
    board: Option<Arc<Board>>,
    /// When connecting is given up.
    connecting: Option<Duration>,
    state: Option<(u64, Arc<[f32]>)>,
}

enum Busy {
    Preparing,
    Task { task: Task, pushes: Arc<Vec<Pushed>>, sent: usize, view: View, began: Duration },
    Batch { part: planaria_protocol::message::HeldOut, step: u64, batch: u64 },
}

impl Worker {
    /// A worker that is about to begin.
    pub fn new(index: u32, now: Duration) -> Self {
        let (session, busy) = (None, None);
        Self { index, session, sessions: 0, heard: now, is_prepared: false, busy }
    }

    /// Takes in what happens.
    pub fn take(&mut self, world: &mut World<'_>, pid: Pid, event: Event) {
        match event {
            Event::Timer(Timer::Start) => {
                self.heard = world.now;
                world.timer(pid, ALIVE, Timer::Alive);
                world.dial(pid, Dial::Coordinator, None);
            }
            Event::Timer(Timer::Retry) => match &self.session {
                None => world.dial(pid, Dial::Coordinator, None),
                Some(session) if session.connecting.is_some() => self.connect_next(world, pid),
                Some(_) => {}
            },
            Event::Timer(Timer::Alive) => self.live(world, pid),
            Event::Timer(Timer::Prepared) => {
                self.is_prepared = true;
                self.busy = None;
            }
            Event::Timer(Timer::Computed(session)) => self.computed(world, pid, session),
            Event::Timer(Timer::Linger(number)) => {
                if let Some(session) = self.session.as_mut().filter(|s| s.number == number) {
                    session.answers.push_back(Input::Lingered);
                }
            }
            Event::Dialed(Dial::Coordinator, link) => self.joined(world, pid, link),
            Event::Dialed(Dial::Server(_), link) => self.reached(world, pid, link),
            Event::Frame(link, _, msg) => self.hear(world, pid, link, msg),
            Event::Fin(link) => self.ended(world, pid, link, "it went away"),
            _ => {}
        }
        self.pump(world, pid);
    }

    fn joined(&mut self, world: &mut World<'_>, pid: Pid, link: Result<LinkId, String>) {
        let Ok(link) = link else { return self.again(world, pid) };
        let join = join(self.index, pid);
        if !world.send(pid, link, Msg::Join(join)) {
            return;
        }
        self.sessions += 1;
        self.session = Some(Session {
            number: self.sessions,
            coordinator: link,
            duty: Duty::new(),
            mail: Mail::default(),
            answers: VecDeque::new(),
            todo: VecDeque::new(),
            has_hung_up: false,
            was_spoken_to: false,
            heard: world.now,
            waited_since: world.now,
            shelves: Vec::new(),
            links: Vec::new(),
            lost: Vec::new(),
            writers: Vec::new(),
            board: None,
            connecting: None,
            state: None,
        });
        if !self.is_prepared && self.busy.is_none() {
            self.busy = Some(Busy::Preparing);
            let time = world.coin.between(Duration::from_millis(1), Duration::from_millis(200));
            world.timer(pid, time, Timer::Prepared);
        }
    }

    /// Tries again to join, if there is still hope.
    fn again(&mut self, world: &mut World<'_>, pid: Pid) {
        if world.now.saturating_sub(self.heard) > LEASE {
            return world.end(pid, Ending::Code(1));
        }
        world.timer(pid, RETRY, Timer::Retry);
    }

    fn live(&mut self, world: &mut World<'_>, pid: Pid) {
        world.timer(pid, ALIVE, Timer::Alive);
        let Some(session) = &mut self.session else { return };
        let coordinator = session.coordinator;
        if world.now.saturating_sub(session.heard) > SILENCE {
            world.close(pid, coordinator);
            return self.ended(world, pid, coordinator, "it is silent");
        }
        world.send(pid, coordinator, Msg::FromWorker(FromWorker::Alive, None));
    }

    fn hear(&mut self, world: &mut World<'_>, pid: Pid, link: LinkId, msg: Msg) {
        let Some(session) = &mut self.session else { return };
        match msg {
            Msg::ToWorker(order) if link == session.coordinator => {
                session.heard = world.now;
                session.was_spoken_to = true;
                if matches!(order, ToWorker::Alive | ToWorker::Weather(_)) {
                    return;
                }
                let ends = matches!(order, ToWorker::Rejoin | ToWorker::Finish);
                session.put(Input::Order(order));
                if ends {
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
            session.put(Input::Orphaned);
            session.hang_up(world, pid);
        } else if let Some(at) = session.links.iter().position(|l| *l == link) {
            session.cut(at, why);
        }
    }

    /// The main thread: takes in one thing after another until it computes or nothing is left.
    fn pump(&mut self, world: &mut World<'_>, pid: Pid) {
        while world.lives(pid) && self.busy.is_none() {
            let Some(session) = &mut self.session else { return };
            if session.connecting.is_some() {
                return;
            }
            if let Some(output) = session.todo.pop_front() {
                self.act(world, pid, output);
                continue;
            }
            let Some(input) = session.next() else { return };
            world.say(pid, || format!("takes in {input:?}"));
            let mut out = Vec::new();
            session.duty.on(input, &mut out);
            session.todo.extend(out);
        }
    }

    fn act(&mut self, world: &mut World<'_>, pid: Pid, output: Output) {
        let Some(session) = &mut self.session else { return };
        world.say(pid, || format!("does {output:?}"));
        match output {
            Output::Finish => return world.end(pid, Ending::Code(0)),
            Output::Rejoin => return self.leave(world, pid),
            Output::Connect(mut shelves) => {
                shelves.sort_by_key(|s| (s.blocks.start, s.blocks.end));
                session.open(shelves, world);
                session.connecting = Some(world.now + CONNECT);
                return self.connect_next(world, pid);
            }
            Output::Tell(message) => {
                world.send(pid, session.coordinator, Msg::FromWorker(message, None));
                return;
            }
            Output::Linger => return world.timer(pid, LINGER, Timer::Linger(session.number)),
            Output::Skip(_) | Output::Forget { .. } => return,
            _ => {}
        }
        let ready = session.links.len() == session.shelves.len();
        let Some(board) = session.board.clone().filter(|_| ready) else { return };
        match output {
            Output::Follow { step } => {
                board.ask_again();
                session.tell_all(world, pid, &Push::Follow { step });
            }
            Output::Unfollow => session.tell_all(world, pid, &Push::Unfollow),
            Output::State { step } => {
                let first = session.shelves.iter().position(|s| s.server == 0).unwrap_or(0);
                session.tell(world, pid, first, Push::State { step }, Arc::default());
            }
            Output::Hash { step } => {
                let input = match board.see(step) {
                    None => Input::Over { step },
                    Some(view) => {
                        world.must(world.bench.check_parameters(step, &view));
                        Input::Hashes { step, sha256: hashes(&view, &session.shelves) }
                    }
                };
                session.answers.push_back(input);
            }
            Output::Compute(task) => self.compute(world, pid, task, &board),
            Output::Evaluate { part, step, batch } => {
                let state = session.state.as_ref().filter(|(of, _)| *of == step);
                let (Some(view), Some((_, state))) = (board.see(step), state) else {
                    session.answers.push_back(Input::Over { step });
                    return;
                };
                world.must(world.bench.check_parameters(step, &view));
                world.must(world.bench.check_state(step, state));
                self.busy = Some(Busy::Batch { part, step, batch });
                self.take_time(world, pid, 1);
            }
            _ => {}
        }
    }

    fn compute(&mut self, world: &mut World<'_>, pid: Pid, task: Task, board: &Arc<Board>) {
        let Some(session) = &mut self.session else { return };
        let Some(view) = board.see(task.step) else {
            session.answers.push_back(Input::Over { step: task.step });
            return;
        };
        if let Err(broken) = world.bench.check_parameters(task.step, &view) {
            return world.fail(format!("worker-{} computes {task:?}: {broken}", self.index));
        }
        let pushes = world.bench.compute(&task, &session.shelves);
        let shards = task.shards.end - task.shards.start;
        self.busy = Some(Busy::Task { task, pushes, sent: 0, view, began: world.now });
        self.take_time(world, pid, shards);
    }

    fn take_time(&mut self, world: &mut World<'_>, pid: Pid, shards: u32) {
        let slow = world.process(pid).map_or(1, |process| process.slow);
        let time = world.plan.shard * shards * slow / 2;
        let time = world.coin.about(time);
        world.timer(pid, time, Timer::Computed(self.sessions));
    }

    /// Computing has come to its middle, or to its end.
    fn computed(&mut self, world: &mut World<'_>, pid: Pid, number: u64) {
        match self.busy.take() {
            Some(Busy::Task { task, pushes, sent, view, began }) => {
                let board = self.session.as_ref().and_then(|session| session.board.as_ref());
                // Asked before every shard but the first; what was sent in the middle stays sent.
                let is_over = task.shards.len() > 1 && board.is_some_and(|b| b.is_past(task.step));
                let middle = sent == 0 && pushes.len() > 1 && !is_over;
                let until = if middle { pushes.len() / 2 } else { pushes.len() };
                let until = if is_over { sent } else { until };
                for (at, push, values) in &pushes[sent..until] {
                    if let Some(session) = &mut self.session {
                        session.tell(world, pid, *at, push.clone(), values.clone());
                    }
                }
                if middle {
                    let shards = task.shards.end - task.shards.start;
                    self.busy = Some(Busy::Task { task, pushes, sent: until, view, began });
                    return self.take_time(world, pid, shards);
                }
                drop(view);
                let half = is_over && sent == 0;
                let examples = world.bench.examples(&task) / if half { 2 } else { 1 };
                let Some(session) = self.session.as_mut().filter(|s| s.number == number) else {
                    return;
                };
                let waiting = began.saturating_sub(session.waited_since);
                session.waited_since = world.now;
                let busy = world.now.saturating_sub(began);
                session.answers.push_back(Input::Done(Work { examples, busy, waiting }));
            }
            Some(Busy::Batch { part, step, batch }) => {
                let scores = world.bench.score(part, step, batch);
                let Some(session) = self.session.as_mut().filter(|s| s.number == number) else {
                    return;
                };
                let told = FromWorker::Evaluated { part, step, batch };
                let msg = Msg::FromWorker(told, Some(Box::new(scores)));
                world.send(pid, session.coordinator, msg);
                session.answers.push_back(Input::Scored);
                session.waited_since = world.now;
            }
            other => self.busy = other,
        }
    }

    /// Ends the session, and joins again.
    fn leave(&mut self, world: &mut World<'_>, pid: Pid) {
        let Some(mut session) = self.session.take() else { return };
        session.hang_up(world, pid);
        world.close(pid, session.coordinator);
        if session.was_spoken_to {
            self.heard = world.now;
        }
        self.again(world, pid);
    }

    /// Connects to the next server, or is ready.
    fn connect_next(&mut self, world: &mut World<'_>, pid: Pid) {
        let Some(session) = &mut self.session else { return };
        if session.has_hung_up {
            return self.give_up(world.now, "it was hung up");
        }
        match session.shelves.get(session.links.len()) {
            Some(shelf) => {
                let to = shelf.address.parse().unwrap_or(0);
                let generation = world.generation(session.coordinator);
                world.dial(pid, Dial::Server(to), Some(generation));
            }
            None => {
                session.connecting = None;
                let engine = world.bench.engine.clone();
                let ready = FromWorker::Ready { engine, threads: 1 };
                world.send(pid, session.coordinator, Msg::FromWorker(ready, None));
            }
        }
    }

    fn reached(&mut self, world: &mut World<'_>, pid: Pid, link: Result<LinkId, String>) {
        let join = join(self.index, pid);
        let Some(session) = &mut self.session else {
            return link.into_iter().for_each(|link| world.close(pid, link));
        };
        let Some(until) = session.connecting else { return };
        match link {
            Ok(link) => {
                session.links.push(link);
                session.lost.push(false);
                world.send(pid, link, Msg::Join(join));
                if session.has_hung_up {
                    world.close(pid, link);
                }
                self.connect_next(world, pid);
            }
            Err(why) if world.now >= until || session.has_hung_up => self.give_up(world.now, &why),
            Err(_) => world.timer(pid, RETRY, Timer::Retry),
        }
    }

    fn give_up(&mut self, _now: Duration, why: &str) {
        let Some(session) = &mut self.session else { return };
        session.connecting = None;
        let server = session.shelves.get(session.links.len()).map_or(0, |shelf| shelf.server);
        session.answers.push_back(Input::Ended { server, why: why.to_owned() });
    }
}

impl Session {
    fn put(&self, input: Input) {
        self.mail.lock().expect("one thread").push_back(input);
    }

    fn next(&mut self) -> Option<Input> {
        let mail = self.mail.lock().expect("one thread").pop_front();
        mail.or_else(|| self.answers.pop_front())
    }

    fn open(&mut self, shelves: Vec<Shelf>, world: &World<'_>) {
        let mail = self.mail.clone();
        let board = Board::new(world.bench.facts.parameters as usize, move |report| {
            mail.lock().expect("one thread").push_back(match report {
                Report::Complete(step) => Input::Complete { step },
                Report::Missed(step) => Input::Missed { step },
            });
        });
        let ranges: Vec<_> =
            shelves.iter().map(|s| s.blocks.start as usize..s.blocks.end as usize).collect();
        self.writers = board.writers(&ranges).expect("the servers' blocks follow each other");
        (self.board, self.shelves) = (Some(board), shelves);
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
