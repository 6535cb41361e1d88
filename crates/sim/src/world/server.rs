//! A simulated server: [`parameters::Server`](planaria_coordinator::parameters::Server), wired to
//! the world. What would wait for a step's turn stays at the head of its link.

use super::{Dial, Event, Timer, World};
use crate::fuse::{self, Fuse};
use crate::net::{LinkId, Msg, Pid};
use planaria_coordinator::parameters::chunk::Bulk;
use planaria_coordinator::parameters::region::{Identity, Place};
use planaria_coordinator::parameters::server::{
    ALIVE_EVERY, Effect, Event as Happening, Outlet, Peer, SILENCE, Server as Value, Used,
};
use planaria_coordinator::parameters::snapshot::Snapshot;
use planaria_fleet::ending::Ending;
use planaria_protocol::Error;
use planaria_protocol::message::{Agent, FromServer, Join, Pull, Push, ToServer, Trouble};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server's process.
pub struct Server {
    index: u32,
    value: Option<Value>,
    coordinator: Option<LinkId>,
    /// Links of workers that it reads.
    peers: BTreeMap<LinkId, WorkerLink>,
    /// By number: copies on their way to the disk, their session, and what came of it.
    copies: BTreeMap<u64, (Snapshot, u64, Option<FromServer>)>,
    copied: u64,
    log: Lines,
}

type Lines = Arc<Mutex<Vec<String>>>;

struct WorkerLink {
    peer: Peer,
    waiting: VecDeque<(Push, Arc<[f32]>)>,
    /// Whether the link has ended behind what waits.
    is_over: bool,
}

/// What a server says, in order.
enum Said {
    Coordinator(FromServer, Vec<f64>),
    Pull(LinkId, Pull, Arc<[f32]>),
    Close(LinkId),
}

/// Collects what a server says. Its process may be killed at any message.
struct Collector {
    said: Mutex<Vec<Said>>,
    fuse: Fuse,
    /// By link that is open: bytes that wait.
    waiting: BTreeMap<LinkId, usize>,
}

impl Collector {
    fn say(&self, said: Said) {
        self.fuse.burn();
        self.said.lock().expect("one thread").push(said);
    }
}

impl Outlet for Collector {
    fn coordinator(&self, message: &FromServer, squares: &[f64]) {
        self.say(Said::Coordinator(message.clone(), squares.to_vec()));
    }

    fn answer(&self, to: Peer, message: &Pull, values: &[f32]) -> bool {
        let link = to.link as LinkId;
        let known = self.waiting.contains_key(&link);
        if known {
            self.say(Said::Pull(link, message.clone(), values.into()));
        }
        known
    }

    fn hand_out(&self, to: Peer, message: &Pull, values: &[f32], waiting_max: usize) -> bool {
        let waiting = self.waiting.get(&(to.link as LinkId));
        waiting.is_some_and(|waiting| *waiting <= waiting_max) && self.answer(to, message, values)
    }

    fn close(&self, link: u64) {
        self.say(Said::Close(link as LinkId));
    }

    fn used(&self) -> Used {
        Used::default()
    }
}

/// Values of a frame.
struct Values<'a>(&'a [f32]);

impl Bulk for Values<'_> {
    fn bytes(&self) -> usize {
        4 * self.0.len()
    }

    fn read(&mut self, into: &mut [f32]) -> Result<(), Error> {
        let (now, rest) = self.0.split_at(into.len().min(self.0.len()));
        into[..now.len()].copy_from_slice(now);
        self.0 = rest;
        Ok(())
    }

    fn skip(&mut self, values: usize) -> Result<(), Error> {
        self.0 = &self.0[values.min(self.0.len())..];
        Ok(())
    }
}

impl Server {
    /// A server that is about to begin.
    pub fn new(index: u32) -> Self {
        Self {
            index,
            value: None,
            coordinator: None,
            peers: BTreeMap::new(),
            copies: BTreeMap::new(),
            copied: 0,
            log: Lines::default(),
        }
    }

    /// Takes in what happens.
    pub fn take(&mut self, world: &mut World<'_>, pid: Pid, event: Event) {
        match event {
            Event::Timer(Timer::Start) => self.start(world, pid),
            Event::Timer(Timer::Retry) => self.on(world, pid, Happening::Due),
            Event::Timer(Timer::Alive) => {
                world.timer(pid, ALIVE_EVERY, Timer::Alive);
                self.on(world, pid, Happening::Tick);
            }
            Event::Timer(Timer::Copied(number)) => self.copied(world, pid, number),
            Event::Timer(Timer::CopyTold(number)) => {
                if let Some((snapshot, session, Some(message))) = self.copies.remove(&number) {
                    drop(snapshot);
                    self.on(world, pid, Happening::Written { session, message });
                }
            }
            Event::Timer(Timer::Follow(link)) => self.begin_following(world, pid, link),
            Event::Dialed(Dial::Coordinator, Ok(link)) => {
                self.coordinator = Some(link);
                self.on(world, pid, Happening::Reached);
            }
            Event::Dialed(_, Err(why)) => self.on(world, pid, Happening::Unreachable(why)),
            Event::Frame(link, _, Msg::ToServer(order)) if Some(link) == self.coordinator => {
                self.obey(world, pid, link, order);
            }
            Event::Frame(link, _, Msg::Join(join)) => {
                let (agent, generation) = (join.agent, world.generation(link));
                let connected = Happening::Connected { link: link as u64, agent, generation };
                self.with_value(world, pid, link, |value, now, collector| {
                    value.on(now, connected, collector)
                });
            }
            Event::Frame(link, _, Msg::Push(push, values)) => {
                if let Some(worker) = self.peers.get_mut(&link) {
                    worker.waiting.push_back((push, values));
                }
            }
            Event::Fin(link) if Some(link) == self.coordinator => {
                self.coordinator = None;
                self.on(world, pid, Happening::Lost("the coordinator hung up".into()));
            }
            Event::Fin(link) => {
                if let Some(worker) = self.peers.get_mut(&link) {
                    worker.is_over = true;
                }
            }
            _ => {}
        }
        self.serve(world, pid);
    }

    fn start(&mut self, world: &mut World<'_>, pid: Pid) {
        let identity = Identity { tag: [7; 32], boot: [1; 16] };
        let backing = world.disk.backing(world.fuse(pid));
        let place = Place { index: self.index, identity, backing };
        let lines = self.log.clone();
        let log = Arc::new(move |line: &str| {
            lines.lock().expect("one thread").push(line.to_owned());
        });
        match Value::new(&world.bench.recipe, &world.bench.facts, place, log) {
            Ok(value) => self.value = Some(value.with_spare_bytes(world.plan.spare_bytes)),
            Err(trouble) => return world.fail(format!("a server cannot begin: {trouble:?}")),
        }
        if let Some(process) = world.process(pid) {
            process.listens = true;
        }
        world.timer(pid, ALIVE_EVERY, Timer::Alive);
        self.on(world, pid, Happening::Begun);
    }

    fn on(&mut self, world: &mut World<'_>, pid: Pid, event: Happening) {
        let link = self.coordinator.unwrap_or(LinkId::MAX);
        self.with_value(world, pid, link, |value, now, collector| value.on(now, event, collector));
    }

    /// Lets the value take something in that has to do with a link, and does what it says.
    fn with_value(
        &mut self,
        world: &mut World<'_>,
        pid: Pid,
        link: LinkId,
        work: impl FnOnce(&Value, Duration, &Collector) -> Vec<Effect>,
    ) {
        let effects = self.listen(world, pid, work).unwrap_or_default();
        for effect in effects {
            world.act(pid);
            self.act(world, pid, link, effect);
        }
    }

    /// Lets the value do something, and sends what it says on the way, also where it ends there.
    fn listen<T>(
        &mut self,
        world: &mut World<'_>,
        pid: Pid,
        work: impl FnOnce(&Value, Duration, &Collector) -> T,
    ) -> Option<T> {
        let value = self.value.as_ref()?;
        let open = self.peers.keys().filter(|link| world.is_open(pid, **link));
        let waiting = open.map(|link| (*link, world.waiting(pid, *link)));
        let collector =
            Collector { said: Mutex::default(), fuse: world.fuse(pid), waiting: waiting.collect() };
        let now = world.now;
        let done = fuse::watch(|| work(value, now, &collector));
        for said in collector.said.into_inner().unwrap_or_default() {
            match said {
                Said::Coordinator(message, squares) => {
                    if let Some(link) = self.coordinator {
                        world.deliver(pid, link, Msg::FromServer(message, squares));
                    }
                }
                Said::Pull(link, pull, values) => {
                    world.deliver(pid, link, Msg::Pull(pull, values));
                }
                Said::Close(link) => {
                    world.close(pid, link);
                    if let Some(worker) = self.peers.get_mut(&link) {
                        worker.is_over = true;
                    }
                }
            }
        }
        self.read_log(world, pid);
        match done {
            Ok(done) => Some(done),
            Err(ending) => fuse::exit(ending),
        }
    }

    /// Nothing on a simulated disk changes the bytes of a region: what is marked is whole.
    fn read_log(&mut self, world: &mut World<'_>, pid: Pid) {
        for line in std::mem::take(&mut *self.log.lock().expect("one thread")) {
            if line.contains("do not match their sums") {
                world.fail(format!("what is marked is not whole: {line}"));
            }
            world.say(pid, || line);
        }
    }

    fn act(&mut self, world: &mut World<'_>, pid: Pid, link: LinkId, effect: Effect) {
        match effect {
            Effect::Dial => world.dial(pid, Dial::Coordinator, None),
            Effect::Pause(time) => world.timer(pid, time, Timer::Retry),
            Effect::Join(kept) => {
                let generation = world.generation(link);
                if let Some(process) = world.process(pid) {
                    process.generation = generation;
                }
                world.expect(pid, link, SILENCE);
                let join = Join {
                    address: Some(pid.to_string()),
                    kept,
                    ..Join::new(Agent::Server(self.index), "sim", pid)
                };
                world.deliver(pid, link, Msg::Join(join));
                self.on(world, pid, Happening::Joined { generation });
            }
            Effect::Admit(peer) => {
                let worker = WorkerLink { peer, waiting: VecDeque::new(), is_over: false };
                self.peers.insert(link, worker);
            }
            Effect::Refuse(why) => {
                world.say(pid, || format!("refuses link {link}: {why}"));
                world.close(pid, link);
            }
            Effect::Write(snapshot) => {
                let session = self.value.as_ref().map_or(0, Value::session);
                self.copied += 1;
                self.copies.insert(self.copied, (snapshot, session, None));
                let time = world.coin.between(Duration::from_millis(1), Duration::from_millis(80));
                world.timer(pid, time, Timer::Copied(self.copied));
            }
            Effect::Follow(peer) => {
                let time = world.coin.between(Duration::ZERO, Duration::from_millis(1));
                world.timer(pid, time, Timer::Follow(peer.link as LinkId));
            }
            Effect::LoseFrames(_) => {}
            Effect::End(ended) => {
                if let Err(trouble) = &ended {
                    world.say(pid, || format!("cannot go on: {trouble:?}"));
                }
                fuse::exit(Ending::Code(i32::from(ended.is_err())))
            }
        }
    }

    fn obey(&mut self, world: &mut World<'_>, pid: Pid, link: LinkId, order: ToServer) {
        let committed = match order {
            ToServer::Commit { step } => Some(step),
            _ => None,
        };
        self.on(world, pid, Happening::Order(order, None));
        if let Some(step) = committed {
            let generation = world.generation(link);
            let held = world.verdict.server_committed(generation, step);
            world.must(held);
        }
    }

    /// Takes what workers push, as far as it is its turn.
    fn serve(&mut self, world: &mut World<'_>, pid: Pid) {
        let mut links: VecDeque<LinkId> = self.peers.keys().copied().collect();
        // Links take turns at being first, as threads do.
        let turn = world.coin.below(links.len().max(1) as u64) as usize;
        links.rotate_left(turn);
        while let Some(link) = links.pop_front() {
            let Some(value) = &self.value else { return };
            let Some(worker) = self.peers.get_mut(&link) else { continue };
            let peer = worker.peer;
            match worker.waiting.front() {
                Some((push, _)) if value.would_wait(push) => continue,
                Some(_) => {}
                None if worker.is_over => {
                    self.leave(world, pid, link);
                    continue;
                }
                None => continue,
            }
            let Some((push, values)) = worker.waiting.pop_front() else { continue };
            let pushed = self.listen(world, pid, |value, _, collector| {
                value.push(peer, &push, &mut Values(&values), collector)
            });
            match pushed {
                None => return,
                Some(Ok(())) => links.push_front(link),
                Some(Err(Trouble { message, .. })) => {
                    world.say(pid, || format!("ends the link of {peer:?}: {message}"));
                    self.leave(world, pid, link);
                }
            }
        }
    }

    fn leave(&mut self, world: &mut World<'_>, pid: Pid, link: LinkId) {
        world.close(pid, link);
        if let Some(worker) = self.peers.remove(&link) {
            self.on(world, pid, Happening::Disconnected(worker.peer));
        }
    }

    fn begin_following(&mut self, world: &mut World<'_>, pid: Pid, link: LinkId) {
        let Some(peer) = self.peers.get(&link).map(|worker| worker.peer) else { return };
        let begun =
            self.listen(world, pid, |value, _, collector| value.begin_following(peer, collector));
        if let Some(Err(Trouble { message, .. })) = begun {
            world.say(pid, || format!("cannot let {peer:?} follow: {message}"));
            world.close(pid, link);
        }
    }

    fn copied(&mut self, world: &mut World<'_>, pid: Pid, number: u64) {
        world.act(pid);
        let Some((snapshot, _, told)) = self.copies.get_mut(&number) else { return };
        let step = snapshot.step;
        *told = Some(match world.disk.space.check() {
            Err(e) => FromServer::NotSaved { step, why: e.to_string() },
            Ok(()) => snapshot.write(),
        });
        let time = world.coin.between(Duration::ZERO, Duration::from_millis(10));
        world.timer(pid, time, Timer::CopyTold(number));
    }
}
