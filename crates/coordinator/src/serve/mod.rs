//! The coordinator's process: a thin loop around a value that says what to do.
//!
//! Threads that read links post what was said; one thread tells it to the
//! [`Coordinator`](coordinator::Coordinator) and carries out what follows.
//!
//! # Layout
//! - [`coordinator`]: the coordinator as a value, `telling` what it tells consoles
//! - [`start`]: what it goes on from; [`files`]: what it writes, of which [`keeping`] is the record
//! - `driver`: sockets and the clock around it; `links`: threads that read
//! - [`part_files`]: files of checkpoints for servers that do not have the run's folder; links for rows
//!   of a coded run are [served](Serving) by the process that has the data

pub mod coordinator;
mod driver;
pub mod files;
pub mod keeping;
mod links;
pub mod part_files;
pub mod start;
mod telling;

use coordinator::Coordinator;
pub use coordinator::Leave;
use driver::Driver;
use part_files::PartFiles;
use planaria_protocol::clock::Clock;
use planaria_protocol::link::{Receiver, Sender};
use planaria_protocol::message::{Join, LinkPurpose, Trouble};
use planaria_protocol::{Credentials, listen};
use start::Start;
use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;
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

/// What a coordinator's process works with.
pub struct Shell {
    pub start: Start,
    /// Where it listens.
    pub listener: TcpListener,
    /// What processes that join must show.
    pub credentials: Credentials,
    /// Serves links for the rows of a coded run.
    pub rows: Option<Serving>,
    /// Tells the time; zero is when the coordinator began.
    pub clock: Arc<dyn Clock>,
}

/// Decides until the run is over, or another coordinator must take over.
pub fn run(shell: Shell) -> Result<Leave, Trouble> {
    let Shell { start, listener, credentials, rows, clock } = shell;
    let Start { beginning, untold, files } = start;
    let log = files.log.clone();
    let (post, inbox) = sync_channel(INBOX_MAX);
    let (manifest, ranges) = (&beginning.manifest, &beginning.ranges);
    let part_files =
        Arc::new(PartFiles::new(files.checkpoint_folder.clone(), manifest, ranges, log.clone()));
    let (serving, posting) = (part_files.clone(), post.clone());
    let numbers = AtomicU64::new(0);
    let listening = listen::serve(
        listener,
        credentials,
        Arc::new(AtomicU64::new(beginning.generation)),
        move |join, sender, receiver| {
            match (join.purpose, &rows) {
                (LinkPurpose::Parts, _) => serving.serve(&join, sender, receiver),
                (LinkPurpose::Blocks, Some(rows)) => rows(&join, sender, receiver),
                // It has the wrong address.
                (LinkPurpose::Blocks, None) | (LinkPurpose::Peer, _) => {}
                (LinkPurpose::Work, _) => {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    links::read_link(&posting, number, join, sender, receiver);
                }
            }
        },
        move |reason| log(&format!("refused a connection: {reason}")),
    )
    .map_err(Trouble::new)?;
    let mut driver = Driver {
        links: BTreeMap::new(),
        post,
        inbox,
        part_files,
        files,
        clock,
        own: VecDeque::new(),
        ticked: Duration::ZERO,
    };
    let (mut coordinator, first) = Coordinator::begin(driver.now(), beginning, untold);
    let left = driver.drive(&mut coordinator, first);
    if let Err(trouble) = &left {
        let effects = coordinator.fail(driver.now(), trouble);
        // They are messages, which cannot fail.
        let _ = driver.carry_out(effects);
    }
    drop(listening);
    driver.flush_and_close_links();
    left
}
