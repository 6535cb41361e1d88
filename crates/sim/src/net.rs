//! Links between simulated processes: streams of numbered frames.
//!
//! Owns what becomes of a frame on its way. As on real links, frames of a direction arrive in order
//! or the receiver ends the link: its number shows a frame that is lost, doubled or out of order
//! ([`Header::expect`]).

use crate::coin::Coin;
use planaria_protocol::event::{Event, Pulse};
use planaria_protocol::frame::Header;
use planaria_protocol::message::{
    FromConsole, FromServer, FromWorker, Join, Pull, Push, ToConsole, ToServer, ToWorker,
};
use planaria_worker::methods::coded::unacknowledged::PeerMessage;
use std::sync::Arc;
use std::time::Duration;

pub type Pid = u32;

pub type LinkId = usize;

/// What crosses a link.
#[derive(Debug, Clone)]
pub enum Msg {
    /// The first of every link.
    Join(Join),
    /// Coordinator to worker, with its bulk.
    ToWorker(ToWorker, Arc<Vec<u8>>),
    /// Worker to coordinator, with its bulk.
    FromWorker(FromWorker, Vec<u8>),
    /// Worker to worker, in a coded run.
    ToPeer(Arc<PeerMessage>),
    /// So many of those have arrived.
    Received(u64),
    /// Coordinator to server.
    ToServer(ToServer),
    /// Server to coordinator, with squares.
    FromServer(FromServer, Vec<f64>),
    /// Worker to server, with values.
    Push(Push, Arc<[f32]>),
    /// Server to worker, with values.
    Pull(Pull, Arc<[f32]>),
    /// Console to coordinator.
    FromConsole(FromConsole),
    /// Coordinator to console, with what it tells.
    ToConsole(ToConsole, Option<Box<News>>),
}

/// What a console is told.
#[derive(Debug, Clone)]
pub enum News {
    Event(Event),
    /// Where the run is.
    Pulse(Pulse),
}

impl Msg {
    /// Bytes on the way, about.
    pub fn bytes(&self) -> usize {
        64 + match self {
            Self::Push(_, values) | Self::Pull(_, values) => 4 * values.len(),
            Self::FromServer(_, squares) => 8 * squares.len(),
            Self::ToWorker(_, bulk) => bulk.len(),
            Self::FromWorker(_, bulk) => bulk.len(),
            Self::ToPeer(message) => message.1.len(),
            _ => 0,
        }
    }
}

/// What happens to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// It is lost.
    Drop,
    /// It comes twice.
    Double,
    /// It comes after the next one.
    Late,
    /// It and all after it take longer.
    Delay(Duration),
}

/// What keeps a process from being heard or from hearing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// Whether frames are lost, or come when it is over.
    pub loses: bool,
    /// What it sends.
    pub out: bool,
    /// What is sent to it.
    pub into: bool,
    /// When it is over.
    pub until: Duration,
}

#[derive(Debug)]
pub struct Link {
    /// Who made it, and who took it.
    pub ends: [Pid; 2],
    /// Of the one who took it.
    pub generation: u64,
    /// By end: whether it takes part no more.
    pub closed: [bool; 2],
    /// Whether the one who took it knows who made it.
    pub joined: bool,
    /// By end: what awaits the next frame that it sends.
    pub mishap: [Option<Mishap>; 2],
    /// By end: bytes it has sent that are not taken.
    pub waiting: [usize; 2],
    /// By end: how long it may hear nothing, and when it last heard something.
    pub silence: [Option<(Duration, Duration)>; 2],
    sent: [u64; 2],
    heard: [u64; 2],
    last: [Duration; 2],
    held_back: [Option<(u64, Msg)>; 2],
    latency: Duration,
    bytes_per_micro: u64,
}

/// A frame on its way: when it comes, and its number.
pub type Flight = (Duration, u64, Msg);

impl Link {
    /// A new one; how fast it is follows from the coin.
    pub fn new(ends: [Pid; 2], generation: u64, coin: &mut Coin) -> Self {
        let latency = coin.pick(&[20, 100, 100, 1000]);
        Self {
            ends,
            generation,
            closed: [false; 2],
            joined: false,
            mishap: [None; 2],
            waiting: [0; 2],
            silence: [None; 2],
            sent: [0; 2],
            heard: [0; 2],
            last: [Duration::ZERO; 2],
            held_back: [None, None],
            latency: coin.about(Duration::from_micros(latency)),
            bytes_per_micro: coin.pick(&[20, 200, 2000]),
        }
    }

    /// Which end a process is.
    pub fn end(&self, pid: Pid) -> usize {
        usize::from(self.ends[0] != pid)
    }

    /// Whether a process has part in it.
    pub fn has(&self, pid: Pid) -> bool {
        self.ends.contains(&pid)
    }

    /// Puts a frame on its way; says when what comes of it arrives at the other end.
    pub fn send(
        &mut self,
        end: usize,
        msg: Msg,
        now: Duration,
        holes: &[Hole],
        coin: &mut Coin,
    ) -> Vec<Flight> {
        let number = self.sent[end];
        self.sent[end] += 1;
        if holes.iter().any(|hole| hole.loses) {
            return Vec::new();
        }
        let bytes = msg.bytes();
        self.waiting[end] += bytes;
        let mut delay = Duration::from_micros(bytes as u64 / self.bytes_per_micro)
            + coin.between(self.latency, self.latency * 2);
        let late = self.held_back[end].take();
        let mut copies = 1;
        match self.mishap[end].take() {
            None => {}
            Some(Mishap::Drop) => copies = 0,
            Some(Mishap::Double) => copies = 2,
            Some(Mishap::Delay(time)) => delay += time,
            Some(Mishap::Late) => {
                self.held_back[end] = Some((number, msg));
                return Vec::new();
            }
        }
        let mut flights = Vec::new();
        for _ in 0..copies {
            flights.push((self.arrival(end, now + delay, holes), number, msg.clone()));
        }
        if let Some((number, msg)) = late {
            flights.push((self.arrival(end, now + delay, holes), number, msg));
        }
        flights
    }

    /// When something that is sent now arrives at the other end, after all before it.
    pub fn arrival(&mut self, end: usize, at: Duration, holes: &[Hole]) -> Duration {
        let held = holes.iter().filter(|hole| !hole.loses).map(|hole| hole.until).max();
        let at = at.max(held.unwrap_or_default());
        let at = at.max(self.last[end] + Duration::from_micros(1));
        self.last[end] = at;
        at
    }

    /// The time a word takes.
    pub fn latency(&self) -> Duration {
        self.latency
    }

    /// Takes a frame that has come to an end; an error if it is not the next.
    pub fn take(&mut self, end: usize, number: u64, msg: &Msg) -> Result<(), String> {
        let header = Header {
            control_bytes: 0,
            bulk_bytes: 0,
            generation: self.generation,
            sequence: number,
        };
        let sender = 1 - end;
        self.waiting[sender] = self.waiting[sender].saturating_sub(msg.bytes());
        header.expect(self.generation, self.heard[end]).map_err(|e| e.to_string())?;
        self.heard[end] += 1;
        Ok(())
    }
}
