//! A server among processes that come and go: which coordinator it obeys, whose links it takes, and
//! how long it waits. Owns the time-outs; asks no clock and holds no socket.

use super::super::part_files::Folder;
use super::super::snapshot::Snapshot;
use super::{Outlet, Peer, Server, Used};
use planaria_protocol::message::{Agent, FrameLoss, FromServer, Kept, ToServer, Trouble};
use planaria_protocol::retry::retry_after;
use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::time::Duration;

/// Heartbeat interval of a server: it takes [`Event::Tick`] as often.
pub const ALIVE_EVERY: Duration = Duration::from_millis(250);
/// A coordinator that has said nothing for so long is lost.
pub const SILENCE: Duration = Duration::from_secs(10);
/// How long a server goes on without a coordinator.
const LEASE: Duration = Duration::from_secs(30);
/// Least time between reports of a server's load.
const LOAD_EVERY: Duration = Duration::from_millis(100);

/// Something that happens to a server, other than what a worker [pushes](Server::push).
#[derive(Debug)]
pub enum Event {
    /// The process begins, and needs a coordinator.
    Begun,
    /// The pause that it asked for is over.
    Due,
    /// Time for a heartbeat.
    Tick,
    /// A coordinator is at the other end of the link that was asked for.
    Reached,
    /// No coordinator is reached.
    Unreachable(String),
    /// The coordinator of this generation was told who this is.
    Joined { generation: u64 },
    /// The coordinator says so; what was fetched to this machine for it, if anything.
    Order(ToServer, Option<Folder>),
    /// The process cannot do what an order needs.
    Failed(Trouble),
    /// The link to the coordinator has ended.
    Lost(String),
    /// A process has connected, over a link of this number.
    Connected { link: u64, agent: Agent, generation: u64 },
    /// A worker's link has ended.
    Disconnected(Peer),
    /// What became of a copy that was [written](Effect::Write) in this session.
    Written { session: u64, message: FromServer },
}

/// What the process does next, in order.
#[derive(Debug)]
pub enum Effect {
    /// Connects to the coordinator: [`Event::Reached`] or [`Event::Unreachable`] follows.
    Dial,
    /// Waits: [`Event::Due`] follows.
    Pause(Duration),
    /// Says who it is, as the first word to a coordinator, and what it has kept: [`Event::Joined`]
    /// follows.
    Join(Option<Kept>),
    /// Reads what this worker pushes from now on.
    Admit(Peer),
    /// Ends a link that is not taken, for this reason.
    Refuse(String),
    /// Writes a copy while training goes on: [`Event::Written`] follows.
    Write(Snapshot),
    /// Lets a worker [follow](Server::begin_following), on a thread of its own where threads are.
    Follow(Peer),
    /// Suffers what was asked for.
    LoseFrames(FrameLoss),
    /// Ends; all links are closed.
    End(Result<(), Trouble>),
}

/// Which coordinator a server obeys, and whose links it has.
#[derive(Debug, Default)]
pub(super) struct Standing {
    coordinator: Coordinator,
    /// By worker: the link that counts.
    links: BTreeMap<u32, u64>,
    reported: (Duration, Used),
}

#[derive(Debug, Default)]
enum Coordinator {
    #[default]
    None,
    /// It has been looked for since then.
    Wanted {
        since: Duration,
    },
    Joined {
        generation: u64,
    },
}

impl Server {
    /// Takes in what happens at `now`.
    pub fn on(&self, now: Duration, event: Event, outlet: &dyn Outlet) -> Vec<Effect> {
        match event {
            Event::Begun => self.look_for_coordinator(now),
            Event::Due => vec![Effect::Dial],
            Event::Unreachable(error) => self.try_again(now, &error, outlet),
            Event::Reached => vec![Effect::Join(self.kept())],
            Event::Joined { generation } => {
                let mut standing = self.standing();
                standing.coordinator = Coordinator::Joined { generation };
                standing.reported = (now, outlet.used());
                Vec::new()
            }
            Event::Tick => {
                if self.generation().is_some() {
                    outlet.coordinator(&FromServer::Alive, &[]);
                }
                Vec::new()
            }
            Event::Order(order, fetched) => match self.obey(now, &order, outlet) {
                Ok(effects) => effects,
                Err(trouble) => {
                    self.fail(fetched.map_or(trouble.clone(), |f| f.explain(trouble)), outlet)
                }
            },
            Event::Failed(trouble) => self.fail(trouble, outlet),
            Event::Lost(why) => {
                (self.log)(&format!("{why}; joining again"));
                // What is kept is to stay what the next coordinator is told.
                self.end_session(outlet);
                self.compare();
                self.look_for_coordinator(now)
            }
            Event::Connected { link, agent, generation } => {
                self.connected(link, agent, generation, outlet)
            }
            Event::Disconnected(peer) => {
                let mut standing = self.standing();
                if standing.links.get(&peer.worker) == Some(&peer.link) {
                    standing.links.remove(&peer.worker);
                }
                drop(standing);
                self.left(peer);
                Vec::new()
            }
            Event::Written { session, message } => {
                if session == self.session() {
                    outlet.coordinator(&message, &[]);
                }
                Vec::new()
            }
        }
    }

    fn look_for_coordinator(&self, now: Duration) -> Vec<Effect> {
        self.standing().coordinator = Coordinator::Wanted { since: now };
        vec![Effect::Dial]
    }

    fn try_again(&self, now: Duration, error: &str, outlet: &dyn Outlet) -> Vec<Effect> {
        let since = match self.standing().coordinator {
            Coordinator::Wanted { since } => since,
            _ => now,
        };
        let away = now.saturating_sub(since);
        if away < LEASE {
            return vec![Effect::Pause(retry_after(away))];
        }
        self.end_session(outlet);
        vec![Effect::End(Err(Trouble::new(format!(
            "there is no coordinator: it was not reached for {} s: {error}",
            LEASE.as_secs()
        ))))]
    }

    fn obey(
        &self,
        now: Duration,
        order: &ToServer,
        outlet: &dyn Outlet,
    ) -> Result<Vec<Effect>, Trouble> {
        match order {
            ToServer::Begin { blocks, source, step } => {
                (self.log)(&format!("taking blocks {blocks:?} after step {step} from {source:?}"));
            }
            ToServer::Save { step, folder } => {
                (self.log)(&format!("saving step {step} to {folder}"));
            }
            ToServer::FrameLoss(frame_loss) => {
                (self.log)(&format!("asked to lose frames: {frame_loss:?}"));
                return Ok(vec![Effect::LoseFrames(*frame_loss)]);
            }
            ToServer::Finish => {
                // What is kept is removed by the process that knows how the run has ended: a run whose last
                // checkpoint could not be written goes on from it.
                self.end_session(outlet);
                return Ok(vec![Effect::End(Ok(()))]);
            }
            _ => {}
        }
        let mut effects = Vec::new();
        effects.extend(self.order(order, outlet)?.map(Effect::Write));
        match order {
            ToServer::Begin { .. } => (self.log)("ready; serving workers"),
            ToServer::Commit { .. } => {
                effects.extend(self.due().into_iter().map(Effect::Follow));
                self.report_load(now, outlet);
            }
            _ => {}
        }
        Ok(effects)
    }

    /// The process cannot go on: tells the coordinator, and ends.
    fn fail(&self, trouble: Trouble, outlet: &dyn Outlet) -> Vec<Effect> {
        outlet.coordinator(&FromServer::Failed(trouble.clone()), &[]);
        self.end_session(outlet);
        vec![Effect::End(Err(trouble))]
    }

    fn report_load(&self, now: Duration, outlet: &dyn Outlet) {
        let mut standing = self.standing();
        let (at, before) = standing.reported;
        if now.saturating_sub(at) < LOAD_EVERY {
            return;
        }
        let used = outlet.used();
        standing.reported = (now, used);
        drop(standing);
        let report = FromServer::Load {
            seconds: (now - at).as_secs_f64(),
            busy_seconds: used.cpu.saturating_sub(before.cpu).as_secs_f64(),
            bytes_out: used.bytes_out.saturating_sub(before.bytes_out),
            late: self.take_late(),
        };
        outlet.coordinator(&report, &[]);
    }

    /// Takes a worker's link, if it is of the generation in force; an older one of it ends.
    fn connected(
        &self,
        link: u64,
        agent: Agent,
        generation: u64,
        outlet: &dyn Outlet,
    ) -> Vec<Effect> {
        let Agent::Worker(worker) = agent else {
            return vec![Effect::Refuse(format!("{agent} is no worker"))];
        };
        let mut standing = self.standing();
        if !matches!(standing.coordinator, Coordinator::Joined { generation: own } if own == generation)
        {
            return vec![Effect::Refuse(format!("worker-{worker} is of generation {generation}"))];
        }
        let older = standing.links.insert(worker, link);
        // Of this session: one ends only after the coordinator is no longer joined.
        let peer = Peer { worker, link, session: self.session() };
        drop(standing);
        if let Some(older) = older {
            outlet.close(older);
        }
        vec![Effect::Admit(peer)]
    }

    /// Ends all links of the generation in force; threads that wait for a step are let go.
    fn end_session(&self, outlet: &dyn Outlet) {
        let mut standing = self.standing();
        standing.coordinator = Coordinator::None;
        let links = std::mem::take(&mut standing.links);
        drop(standing);
        // First, so that no thread hangs in sending with what closing needs.
        links.values().for_each(|link| outlet.close(*link));
        self.close();
    }

    /// Of the coordinator that is joined.
    fn generation(&self) -> Option<u64> {
        match self.standing().coordinator {
            Coordinator::Joined { generation } => Some(generation),
            _ => None,
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().expect("no thread panics with the standing")
    }
}
