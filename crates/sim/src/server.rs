//! A simulated server: its keeper, and the world around it as its process has it.
//!
//! Mirrors `planaria_coordinator::parameters::serve`, without threads: what would wait for a step's
//! turn stays at the head of its link.

use crate::net::{LinkId, Msg, Pid};
use crate::world::{Dial, Event, Timer, World};
use planaria_coordinator::parameters::chunk::Bulk;
use planaria_coordinator::parameters::keeper::{Keeper, Outlet, Peer};
use planaria_coordinator::parameters::region::{Identity, Place};
use planaria_coordinator::parameters::snapshot::Snapshot;
use planaria_fleet::ending::Ending;
use planaria_protocol::Error;
use planaria_protocol::message::{Agent, Errand, FromServer, Join, Pull, Push, ToServer, Trouble};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// As in `planaria_coordinator::parameters::serve`.
const AGAIN: Duration = Duration::from_millis(20);
const LEASE: Duration = Duration::from_secs(30);
const SILENCE: Duration = Duration::from_secs(10);
const ALIVE: Duration = Duration::from_millis(250);

/// A server's process.
pub struct Server {
    index: u32,
    keeper: Option<Keeper>,
    coordinator: Option<LinkId>,
    heard: Duration,
    /// Since when it looks for a coordinator.
    since: Duration,
    /// Links of workers so far.
    links: u64,
    peers: BTreeMap<LinkId, Visitor>,
    /// By number: copies on their way to the disk, the session they are of, and what came of it.
    copies: BTreeMap<u64, (Snapshot, LinkId, Option<FromServer>)>,
    copied: u64,
}

/// A worker's link.
struct Visitor {
    peer: Peer,
    waiting: VecDeque<(Push, Arc<[f32]>)>,
    /// Whether the link has ended behind what waits.
    is_over: bool,
}

/// What a keeper says, in order.
enum Said {
    Coordinator(FromServer, Vec<f64>),
    Answer(Peer, Pull, Arc<[f32]>),
    HandOut(Peer, Pull, Arc<[f32]>),
}

/// Collects what a keeper says. Its process may be killed at any word.
struct Mouth {
    said: Mutex<Vec<Said>>,
    fuse: Option<u32>,
    /// Who can be handed something out.
    takes: BTreeMap<Peer, usize>,
    waiting_max: usize,
}

/// The process was killed while it did something.
struct Killed;

impl Mouth {
    fn say(&self, said: Said) {
        let mut all = self.said.lock().expect("one thread");
        if self.fuse.is_some_and(|fuse| all.len() >= fuse as usize) {
            drop(all);
            resume_unwind(Box::new(Killed));
        }
        all.push(said);
    }
}

impl Outlet for Mouth {
    fn coordinator(&self, message: &FromServer, squares: &[f64]) {
        self.say(Said::Coordinator(message.clone(), squares.to_vec()));
    }

    fn answer(&self, to: Peer, message: &Pull, values: &[f32]) -> bool {
        let known = self.takes.contains_key(&to);
        if known {
            self.say(Said::Answer(to, message.clone(), values.into()));
        }
        known
    }

    fn hand_out(&self, to: Peer, message: &Pull, values: &[f32]) -> bool {
        let takes = self.takes.get(&to).is_some_and(|waiting| *waiting <= self.waiting_max);
        if takes {
            self.say(Said::HandOut(to, message.clone(), values.into()));
        }
        takes
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
    pub fn new(index: u32, now: Duration) -> Self {
        Self {
            index,
            keeper: None,
            coordinator: None,
            heard: now,
            since: now,
            links: 0,
            peers: BTreeMap::new(),
            copies: BTreeMap::new(),
            copied: 0,
        }
    }

    /// Takes in what happens.
    pub fn take(&mut self, world: &mut World<'_>, pid: Pid, event: Event) {
        match event {
            Event::Timer(Timer::Start) => self.start(world, pid),
            Event::Timer(Timer::Retry) => world.dial(pid, Dial::Coordinator, None),
            Event::Timer(Timer::Alive) => self.live(world, pid),
            Event::Timer(Timer::Copied(number)) => self.copied(world, pid, number),
            Event::Timer(Timer::CopyTold(number)) => self.copy_told(world, pid, number),
            Event::Dialed(Dial::Coordinator, link) => self.joined(world, pid, link),
            Event::Frame(link, _, Msg::ToServer(order)) if Some(link) == self.coordinator => {
                self.heard = world.now;
                self.obey(world, pid, &order);
            }
            Event::Frame(link, _, Msg::Join(join)) => self.welcome(world, pid, link, &join),
            Event::Frame(link, _, Msg::Push(push, values)) => {
                if let Some(visitor) = self.peers.get_mut(&link) {
                    visitor.waiting.push_back((push, values));
                }
            }
            Event::Fin(link) if Some(link) == self.coordinator => self.orphaned(world, pid),
            Event::Fin(link) => {
                if let Some(visitor) = self.peers.get_mut(&link) {
                    visitor.is_over = true;
                }
            }
            _ => {}
        }
        self.serve(world, pid);
    }

    fn start(&mut self, world: &mut World<'_>, pid: Pid) {
        let identity = Identity { tag: [7; 32], boot: [1; 16] };
        let place = Place { index: self.index, identity, backing: world.disk.backing() };
        let log = Arc::new(|_: &str| {});
        match Keeper::new(&world.bench.recipe, &world.bench.facts, place, log) {
            Ok(keeper) => self.keeper = Some(keeper),
            Err(trouble) => return world.fail(format!("a server cannot begin: {trouble:?}")),
        }
        self.since = world.now;
        if let Some(process) = world.process(pid) {
            process.listens = true;
        }
        world.timer(pid, ALIVE, Timer::Alive);
        world.dial(pid, Dial::Coordinator, None);
    }

    fn joined(&mut self, world: &mut World<'_>, pid: Pid, link: Result<LinkId, String>) {
        let Ok(link) = link else {
            if world.now.saturating_sub(self.since) >= LEASE {
                return world.end(pid, Ending::Code(1));
            }
            return world.timer(pid, AGAIN, Timer::Retry);
        };
        let Some(keeper) = &self.keeper else { return };
        let generation = world.generation(link);
        if let Some(process) = world.process(pid) {
            process.generation = generation;
        }
        let join = Join {
            agent: Agent::Server(self.index),
            build: "sim".into(),
            pid,
            machine: None,
            address: Some(pid.to_string()),
            kept: keeper.kept(),
            errand: Errand::Work,
        };
        self.end_session(world, pid);
        self.heard = world.now;
        self.coordinator = Some(link);
        world.send(pid, link, Msg::Join(join));
    }

    /// Ends all links of the generation in force.
    fn end_session(&mut self, world: &mut World<'_>, pid: Pid) {
        if let Some(keeper) = &self.keeper {
            keeper.close();
        }
        for (link, visitor) in std::mem::take(&mut self.peers) {
            world.close(pid, link);
            if let Some(keeper) = &self.keeper {
                keeper.left(visitor.peer);
            }
        }
    }

    fn orphaned(&mut self, world: &mut World<'_>, pid: Pid) {
        if let Some(link) = self.coordinator.take() {
            world.close(pid, link);
        }
        self.since = world.now;
        world.timer(pid, Duration::ZERO, Timer::Retry);
    }

    fn live(&mut self, world: &mut World<'_>, pid: Pid) {
        world.timer(pid, ALIVE, Timer::Alive);
        let Some(link) = self.coordinator else { return };
        if world.now.saturating_sub(self.heard) > SILENCE {
            return self.orphaned(world, pid);
        }
        world.send(pid, link, Msg::FromServer(FromServer::Alive, Vec::new()));
    }

    fn obey(&mut self, world: &mut World<'_>, pid: Pid, order: &ToServer) {
        let Some(link) = self.coordinator else { return };
        if *order == ToServer::Finish {
            if let Some(keeper) = &self.keeper {
                keeper.remove();
            }
            return world.end(pid, Ending::Code(0));
        }
        let done = self.with_keeper(world, pid, |keeper, mouth| keeper.order(order, mouth));
        let Some(done) = done else { return };
        match done {
            Ok(None) => {}
            Ok(Some(snapshot)) => {
                self.copied += 1;
                self.copies.insert(self.copied, (snapshot, link, None));
                let time = world.coin.between(Duration::from_millis(1), Duration::from_millis(80));
                world.timer(pid, time, Timer::Copied(self.copied));
            }
            Err(trouble) => {
                world.say(pid, || format!("cannot go on: {trouble:?}"));
                let failed = FromServer::Failed(trouble);
                world.send(pid, link, Msg::FromServer(failed, Vec::new()));
                return world.end(pid, Ending::Code(1));
            }
        }
        if let ToServer::Commit { step } = order {
            let due = self.keeper.as_ref().map_or_else(Vec::new, Keeper::due);
            for peer in due {
                let done = self
                    .with_keeper(world, pid, |keeper, mouth| keeper.begin_following(peer, mouth));
                match done {
                    None => return,
                    Some(Ok(())) => {}
                    Some(Err(Trouble { message, .. })) => {
                        world.say(pid, || format!("cannot let {peer:?} follow: {message}"));
                    }
                }
            }
            let generation = world.generation(link);
            let held = world.verdict.server_committed(generation, *step);
            world.must(held);
        }
    }

    /// Lets the keeper do something, and sends what it says. Nothing if that ended the process.
    fn with_keeper<T>(
        &mut self,
        world: &mut World<'_>,
        pid: Pid,
        work: impl FnOnce(&Keeper, &Mouth) -> T,
    ) -> Option<T> {
        let keeper = self.keeper.as_ref()?;
        let takes = self.peers.iter().map(|(link, v)| (v.peer, world.waiting(pid, *link)));
        let mouth = Mouth {
            said: Mutex::default(),
            fuse: world.fuse(pid),
            takes: takes.collect(),
            waiting_max: 2 * keeper.parameter_bytes() + world.plan.spare_bytes,
        };
        let done = catch_unwind(AssertUnwindSafe(|| work(keeper, &mouth)));
        let said = mouth.said.into_inner().unwrap_or_default();
        let links: BTreeMap<Peer, LinkId> =
            self.peers.iter().map(|(link, v)| (v.peer, *link)).collect();
        for said in said {
            match said {
                Said::Coordinator(message, squares) => {
                    if let Some(link) = self.coordinator {
                        world.send(pid, link, Msg::FromServer(message, squares));
                    }
                }
                Said::Answer(peer, pull, values) | Said::HandOut(peer, pull, values) => {
                    if let Some(link) = links.get(&peer) {
                        world.send(pid, *link, Msg::Pull(pull, values));
                    }
                }
            }
        }
        match done {
            Ok(done) => world.lives(pid).then_some(done),
            Err(cause) if cause.is::<Killed>() => {
                world.kill(pid);
                None
            }
            Err(cause) => resume_unwind(cause),
        }
    }

    fn welcome(&mut self, world: &mut World<'_>, pid: Pid, link: LinkId, join: &Join) {
        let Agent::Worker(worker) = join.agent else { return world.close(pid, link) };
        let generation = world.generation(link);
        let own = self.coordinator.map(|link| world.generation(link));
        if own != Some(generation) {
            return world.close(pid, link);
        }
        let older = self.peers.iter().find(|(_, v)| v.peer.worker == worker).map(|(l, _)| *l);
        if let Some(older) = older {
            world.close(pid, older);
            self.leave(older);
        }
        let session = self.keeper.as_ref().map_or(0, Keeper::session);
        let peer = Peer { worker, link: self.links, session };
        self.links += 1;
        self.peers.insert(link, Visitor { peer, waiting: VecDeque::new(), is_over: false });
    }

    fn leave(&mut self, link: LinkId) {
        if let (Some(visitor), Some(keeper)) = (self.peers.remove(&link), &self.keeper) {
            keeper.left(visitor.peer);
        }
    }

    /// Takes what workers push, as far as it is its turn.
    fn serve(&mut self, world: &mut World<'_>, pid: Pid) {
        let mut links: VecDeque<LinkId> = self.peers.keys().copied().collect();
        // Whoever is first takes turns, as threads do.
        let turn = world.coin.below(links.len().max(1) as u64) as usize;
        links.rotate_left(turn);
        while let Some(link) = links.pop_front() {
            let Some(keeper) = &self.keeper else { return };
            let Some(visitor) = self.peers.get_mut(&link) else { continue };
            let peer = visitor.peer;
            match visitor.waiting.front() {
                Some((push, _)) if keeper.would_wait(push) => continue,
                Some(_) => {}
                None if visitor.is_over => {
                    world.close(pid, link);
                    self.leave(link);
                    continue;
                }
                None => continue,
            }
            let Some((push, values)) = visitor.waiting.pop_front() else { continue };
            let done = self.with_keeper(world, pid, |keeper, mouth| {
                keeper.push(peer, &push, &mut Values(&values), mouth)
            });
            match done {
                None => return,
                Some(Ok(())) => links.push_front(link),
                Some(Err(Trouble { message, .. })) => {
                    world.say(pid, || format!("ends the link of {peer:?}: {message}"));
                    world.close(pid, link);
                    self.leave(link);
                }
            }
        }
    }

    fn copied(&mut self, world: &mut World<'_>, pid: Pid, number: u64) {
        let full = world.disk.full;
        let Some((snapshot, _, told)) = self.copies.get_mut(&number) else { return };
        let step = snapshot.step;
        *told = Some(match full {
            true => FromServer::NotSaved { step, why: "No space left on device".into() },
            false => snapshot.write(),
        });
        let time = world.coin.between(Duration::ZERO, Duration::from_millis(10));
        world.timer(pid, time, Timer::CopyTold(number));
    }

    fn copy_told(&mut self, world: &mut World<'_>, pid: Pid, number: u64) {
        if let Some((snapshot, link, Some(message))) = self.copies.remove(&number) {
            drop(snapshot);
            world.send(pid, link, Msg::FromServer(message, Vec::new()));
        }
    }
}
