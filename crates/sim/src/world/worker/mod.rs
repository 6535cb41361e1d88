//! A simulated worker: the real value ([`planaria_worker::session::Worker`]), wired to the world.
//!
//! What a thread would read is taken at once; what the main thread does waits while that computes,
//! dials or prepares. What a method's part of the process does is in its own file, as in the real
//! one: [`Hands`].

mod coded;
mod sync;

use super::{Dial, Event, Timer, World};
use crate::fuse;
use crate::net::{LinkId, Msg, Pid};
use planaria_fleet::ending::Ending;
use planaria_protocol::message::{Agent, FromWorker, Join, LinkPurpose};
use planaria_worker::session::inbox::{Beat, Heard};
use planaria_worker::session::{self, ALIVE, Batch, Effect, Inbox, Method};
use std::sync::Arc;
use std::time::Duration;

/// A worker's process.
pub enum Worker {
    Sync(Box<Process<sync::Servers>>),
    Coded(Box<Process<coded::Peers>>),
}

impl Worker {
    /// A worker of the bench's method that is about to begin.
    pub fn new(world: &World<'_>, index: u32) -> Self {
        match world.bench.is_coded() {
            false => Self::Sync(Box::new(Process::new(sync::Servers::new(), index, world.now))),
            true => {
                let peers = coded::Peers::new(world, index);
                Self::Coded(Box::new(Process::new(peers, index, world.now)))
            }
        }
    }

    /// Takes in what happens.
    pub fn take(&mut self, world: &mut World<'_>, pid: Pid, event: Event) {
        match self {
            Self::Sync(process) => process.take(world, pid, event),
            Self::Coded(process) => process.take(world, pid, event),
        }
    }
}

/// Does what a method asks for.
pub trait Hands: Sized {
    type Method: Method;
    /// What takes time.
    type Work;

    /// The method's value.
    fn method(&self) -> Self::Method;

    /// The process has begun.
    fn start(&mut self, _world: &mut World<'_>, _me: Me) {}

    /// Data and engine are there.
    fn prepare(&mut self, world: &mut World<'_>) -> <Self::Method as Method>::Prepared;

    /// A session has begun.
    fn begin(&mut self, session: &Session<Self>, now: Duration);

    /// Does what the method asks for.
    fn act(
        &mut self,
        world: &mut World<'_>,
        me: Me,
        effect: <Self::Method as Method>::Effect,
    ) -> Done<Self>;

    /// Begins to score a batch; nothing where it cannot be.
    fn score(&mut self, world: &mut World<'_>, batch: Batch) -> Option<Self::Work>;

    /// How long something takes a worker that is not slow.
    fn time(&self, world: &World<'_>, work: &Self::Work) -> Duration;

    /// The time for it has passed.
    fn worked(&mut self, world: &mut World<'_>, me: Me, work: Self::Work) -> Done<Self>;

    /// A link that was asked for is made, or not.
    fn dialed(
        &mut self,
        world: &mut World<'_>,
        me: Me,
        dial: Dial,
        link: Result<LinkId, String>,
    ) -> Done<Self>;

    /// Something has come over a link that is not the coordinator's.
    fn hear(&mut self, world: &mut World<'_>, me: Me, link: LinkId, msg: Msg);

    /// A link that is not the coordinator's has ended.
    fn ended(&mut self, world: &mut World<'_>, me: Me, link: LinkId, why: &str);

    /// Time for something of its own.
    fn due(&mut self, _world: &mut World<'_>, _me: Me) {}

    /// What has come makes the main thread compute for so long, before it does anything.
    fn pace(&mut self, _world: &World<'_>) -> Option<Duration> {
        None
    }

    /// No more orders come: closes links on which a sender may be blocked.
    fn hang_up(&mut self, _world: &mut World<'_>, _me: Me) {}

    /// The session is over.
    fn leave(&mut self, world: &mut World<'_>, me: Me);
}

/// What came of something that the main thread does.
pub enum Done<H: Hands> {
    Nothing,
    /// The method is told so.
    Answer(<H::Method as Method>::Event),
    /// [`Hands::dialed`] follows; the main thread waits for it.
    Dialing,
    /// It takes time; [`Hands::worked`] follows.
    Busy(H::Work),
    /// The scores of a batch, as JSON.
    Scores(Batch, Vec<u8>),
}

/// Which process it is.
#[derive(Debug, Clone, Copy)]
pub struct Me {
    pub pid: Pid,
    pub index: u32,
}

impl Me {
    /// What it says on connecting.
    pub fn join(self, purpose: LinkPurpose) -> Msg {
        Msg::Join(Join { purpose, ..Join::new(Agent::Worker(self.index), "sim", self.pid) })
    }
}

/// From joining a coordinator until the next join.
pub struct Session<H: Hands> {
    pub coordinator: LinkId,
    pub inbox: Arc<Inbox<<H::Method as Method>::Event>>,
    pub generation: u64,
}

/// See [`Worker`].
pub struct Process<H: Hands> {
    index: u32,
    value: session::Worker<H::Method>,
    hands: H,
    session: Option<Session<H>>,
    /// What the main thread does this moment; then nothing else is done.
    busy: Option<Busy<H::Work>>,
    /// Whether something has come since the main thread last had something to do.
    has_come: bool,
    /// When it is woken next.
    wake: Option<Duration>,
}

enum Busy<W> {
    /// Connecting to the coordinator, or where the method wants to.
    Joining,
    Dialing,
    Preparing,
    /// It computes what has come.
    Computing,
    Work(W),
}

impl<H: Hands> Process<H> {
    fn new(hands: H, index: u32, now: Duration) -> Self {
        let value = session::Worker::new(hands.method(), "the coordinator", now);
        Self { index, value, hands, session: None, busy: None, has_come: false, wake: None }
    }

    fn take(&mut self, world: &mut World<'_>, pid: Pid, event: Event) {
        let me = Me { pid, index: self.index };
        match event {
            Event::Timer(Timer::Start) => {
                self.hands.start(world, me);
                world.timer(pid, ALIVE, Timer::Alive);
            }
            Event::Timer(Timer::Retry) => self.wake = None,
            Event::Timer(Timer::Alive) => self.beat(world, me),
            Event::Timer(Timer::Prepared) => {
                self.busy = None;
                let prepared = self.hands.prepare(world);
                self.value.prepared(prepared);
            }
            Event::Timer(Timer::Computed(_)) => match self.busy.take() {
                Some(Busy::Computing) => return self.pump(world, me),
                Some(Busy::Work(work)) => {
                    let done = self.hands.worked(world, me, work);
                    self.done(world, me, done);
                }
                other => self.busy = other,
            },
            Event::Timer(Timer::Own) => self.hands.due(world, me),
            Event::Dialed(dial, link) => self.dialed(world, me, dial, link),
            Event::Frame(link, _, msg) => {
                self.has_come = true;
                self.hear(world, me, link, msg);
            }
            Event::Fin(link) => self.ended(world, me, link, "it went away"),
            _ => {}
        }
        if self.busy.is_none()
            && std::mem::take(&mut self.has_come)
            && let Some(time) = self.hands.pace(world)
        {
            self.busy = Some(Busy::Computing);
            return self.take_time(world, me, time);
        }
        self.pump(world, me);
    }

    /// The main thread: one effect after another, until one takes time or nothing is left.
    fn pump(&mut self, world: &mut World<'_>, me: Me) {
        while self.busy.is_none() {
            let Some(effect) = self.value.next(world.now) else { break };
            world.say(me.pid, || format!("does {effect:?}"));
            self.act(world, me, effect);
        }
        let at = self.value.wake_at().filter(|_| self.busy.is_none());
        if let Some(at) = at.filter(|at| self.wake.is_none_or(|wake| *at < wake)) {
            self.wake = Some(at);
            world.timer(me.pid, at.saturating_sub(world.now), Timer::Retry);
        }
    }

    fn act(
        &mut self,
        world: &mut World<'_>,
        me: Me,
        effect: Effect<<H::Method as Method>::Effect>,
    ) {
        match effect {
            Effect::Join => {
                self.busy = Some(Busy::Joining);
                world.dial(me.pid, Dial::Coordinator, None);
            }
            Effect::Prepare => {
                self.busy = Some(Busy::Preparing);
                let time = world.coin.between(Duration::from_millis(1), Duration::from_millis(200));
                world.timer(me.pid, time, Timer::Prepared);
            }
            Effect::Tell(message, bulk) => {
                if let Some(session) = &self.session {
                    world.send(me.pid, session.coordinator, Msg::FromWorker(message, bulk));
                }
            }
            Effect::Score(batch) => match self.hands.score(world, batch) {
                Some(work) => self.done(world, me, Done::Busy(work)),
                None => self.value.scored(batch, None),
            },
            Effect::Log(_) => {}
            Effect::Own(effect) => {
                let done = self.hands.act(world, me, effect);
                self.done(world, me, done);
            }
            Effect::Leave => {
                self.hands.leave(world, me);
                if let Some(session) = self.session.take() {
                    world.close(me.pid, session.coordinator);
                }
            }
            Effect::End(how) => fuse::exit(Ending::Code(how.map_or(1, |()| 0))),
        }
    }

    fn done(&mut self, world: &mut World<'_>, me: Me, done: Done<H>) {
        match done {
            Done::Nothing => {}
            Done::Answer(event) => self.value.answer(event),
            Done::Dialing => self.busy = Some(Busy::Dialing),
            Done::Busy(work) => {
                let time = self.hands.time(world, &work);
                self.busy = Some(Busy::Work(work));
                self.take_time(world, me, time);
            }
            Done::Scores(batch, scores) => self.value.scored(batch, Some(scores)),
        }
    }

    fn take_time(&mut self, world: &mut World<'_>, me: Me, time: Duration) {
        let slow = world.process(me.pid).map_or(1, |process| process.slow);
        let time = world.coin.about(time * slow);
        world.timer(me.pid, time, Timer::Computed(0));
    }

    fn dialed(&mut self, world: &mut World<'_>, me: Me, dial: Dial, link: Result<LinkId, String>) {
        if dial != Dial::Coordinator {
            if matches!(self.busy, Some(Busy::Dialing)) {
                self.busy = None;
            }
            let done = self.hands.dialed(world, me, dial, link);
            return self.done(world, me, done);
        }
        self.busy = None;
        let link = match link {
            Ok(link) => link,
            Err(why) => return self.value.not_joined(world.now, &why),
        };
        if !world.send(me.pid, link, me.join(LinkPurpose::Work)) {
            return self.value.not_joined(world.now, "it cannot be told");
        }
        let generation = world.generation(link);
        let session = Session { coordinator: link, inbox: self.value.inbox().clone(), generation };
        self.hands.begin(&session, world.now);
        self.session = Some(session);
        self.value.joined();
    }

    fn beat(&mut self, world: &mut World<'_>, me: Me) {
        world.timer(me.pid, ALIVE, Timer::Alive);
        let Some(session) = &self.session else { return };
        let coordinator = session.coordinator;
        match session.inbox.beat(world.now) {
            Beat::Alive => {
                world.send(me.pid, coordinator, Msg::FromWorker(FromWorker::Alive, Vec::new()));
            }
            Beat::Silent => {
                world.close(me.pid, coordinator);
                self.ended(world, me, coordinator, "it is silent");
            }
        }
    }

    fn hear(&mut self, world: &mut World<'_>, me: Me, link: LinkId, msg: Msg) {
        let coordinator = self.session.as_ref().map(|session| session.coordinator);
        match (msg, &self.session) {
            (Msg::ToWorker(order, bulk), Some(session)) if Some(link) == coordinator => {
                world.say(me.pid, || format!("hears {order:?}"));
                if session.inbox.hear(world.now, order, bulk.to_vec()) == Heard::Last {
                    self.hands.hang_up(world, me);
                }
            }
            (msg, _) => self.hands.hear(world, me, link, msg),
        }
    }

    fn ended(&mut self, world: &mut World<'_>, me: Me, link: LinkId, why: &str) {
        match &self.session {
            Some(session) if link == session.coordinator => {
                session.inbox.orphan();
                self.hands.hang_up(world, me);
            }
            _ => self.hands.ended(world, me, link, why),
        }
    }
}
