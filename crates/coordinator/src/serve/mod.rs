//! The coordinator: a thin shell around a [run](crate::run).
//!
//! One thread decides; threads that read links pass it what was said, and everything it decides is
//! sent, written or recorded from here. Never decides anything itself.
//!
//! # Layout
//! - [`keeping`]: the record is written; `links`: threads that read; `desk`: mail is opened and
//!   decisions are acted on; `telling`: events and pulses for those who watch
//! - [`parcels`]: files of checkpoints for servers that do not have the run's folder; links for rows
//!   of a coded run are [served](Serving) by whoever has the data

mod desk;
pub mod keeping;
mod links;
pub mod parcels;
mod telling;

use crate::run::Decider;
use crate::run::record::Record;
use desk::Desk;
use keeping::Keeping;
use parcels::Parcels;
use planaria_protocol::checkpoint::{Manifest, Shelf};
use planaria_protocol::clock::Clock;
use planaria_protocol::event::{Event, What};
use planaria_protocol::journal::Journal;
use planaria_protocol::link::{Receiver, Sender};
use planaria_protocol::message::{Errand, Join, Trouble, event_bulk};
use planaria_protocol::{Passport, listen};
use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// Messages that may wait for the deciding thread.
const INBOX_MAX: usize = 1024;

/// Where log lines go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// What a link that is not the deciding thread's is given to, on a thread of its own.
pub type Serving = Arc<dyn Fn(&Join, Sender, Receiver) + Send + Sync>;

/// What a coordinator works with.
pub struct Shell {
    pub run: Box<dyn Decider>,
    /// Where it listens.
    pub listener: TcpListener,
    /// What whoever joins must show.
    pub passport: Passport,
    /// Of this session.
    pub generation: u64,
    pub journal: Journal,
    /// What was written in this session before this process began.
    pub told: Vec<Event>,
    /// Where the record is kept, if it is.
    pub keeping: Option<Keeping>,
    /// The record that another coordinator has left, without what it says to be told.
    pub left: Option<Record>,
    /// The run's checkpoints.
    pub shelf: Shelf,
    /// What every manifest says alike: everything but step, state and parts.
    pub manifest: Manifest,
    /// By part of a checkpoint: first parameter and the one after the last.
    pub ranges: Vec<Range<u64>>,
    /// Serves links for the rows of a coded run.
    pub rows: Option<Serving>,
    /// Tells the time; zero is when the coordinator began.
    pub clock: Arc<dyn Clock>,
    /// Where log lines go.
    pub log: Log,
}

impl Shell {
    /// Keeps the method's own state beside the record.
    fn keep_state(&mut self, step: u64, state: &[u8]) {
        if let Some(keeping) = &mut self.keeping {
            keeping.keep_state(step, state, &self.log);
        }
    }

    /// Writes the record.
    fn keep(&mut self, record: Record) {
        if let Some(keeping) = &mut self.keeping {
            keeping.keep(self.clock.now(), record, &self.journal, &self.log);
        }
    }
}

/// How the coordinator's process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// The run is over.
    Over,
    /// Another coordinator is to take its place.
    Restart,
}

/// Decides until the run is over, or another coordinator must take over. What another coordinator
/// has left `untold` is written down before anything else, and then that the session has `started`,
/// where it begins.
pub fn run(mut shell: Shell, untold: Vec<What>, started: Option<What>) -> Result<Leave, Trouble> {
    let (post, inbox) = sync_channel(INBOX_MAX);
    let (posting, log) = (post.clone(), shell.log.clone());
    let numbers = AtomicU64::new(0);
    let listener = shell.listener.try_clone().map_err(Trouble::new)?;
    let parcels = Parcels::new(shell.shelf.clone(), &shell.manifest, &shell.ranges, log.clone());
    let parcels = Arc::new(parcels);
    let (serving, rows) = (parcels.clone(), shell.rows.take());
    let listening = listen::serve(
        listener,
        shell.passport.clone(),
        Arc::new(AtomicU64::new(shell.generation)),
        move |join, sender, receiver| {
            match (join.errand, &rows) {
                (Errand::Parts, _) => serving.serve(&join, sender, receiver),
                (Errand::Blocks, Some(rows)) => rows(&join, sender, receiver),
                // It has the wrong address.
                (Errand::Blocks, None) | (Errand::Peer, _) => {}
                (Errand::Work, _) => {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    links::read_link(&posting, number, join, sender, receiver);
                }
            }
        },
        move |reason| log(&format!("refused a connection: {reason}")),
    )
    .map_err(Trouble::new)?;
    let mut desk = Desk {
        links: BTreeMap::new(),
        consoles: BTreeMap::new(),
        post,
        parcels,
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
