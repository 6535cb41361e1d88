//! Links to the coordinator, each read on a thread of its own, which passes messages to the
//! deciding thread. Never answers.

use super::coordinator::{Event, LinkId};
use crate::run::Scored;
use planaria_learn::Scores;
use planaria_protocol::link::{Receiver, Sender};
use planaria_protocol::message::{Agent, FromConsole, FromServer, FromWorker, Join, Trouble};
use planaria_protocol::{Error, bytes};
use std::sync::mpsc::SyncSender;

/// Largest score of a batch, in bytes.
const SCORES_BYTES_MAX: usize = 64 << 20;

/// Largest bulk that a worker may send, in bytes.
const BULK_BYTES_MAX: usize = 1 << 30;

/// What reaches the deciding thread.
pub(super) enum Mail {
    /// A process has joined, over this link.
    Linked(LinkId, Join, Sender),
    /// Anything else.
    Event(Event),
}

/// Reads a link on the thread that was given for it.
pub(super) fn read_link(
    post: &SyncSender<Mail>,
    link: LinkId,
    join: Join,
    sender: Sender,
    mut receiver: Receiver,
) {
    let agent = join.agent;
    if post.send(Mail::Linked(link, join, sender)).is_err() {
        return;
    }
    let mut tell = |event| post.send(Mail::Event(event)).is_ok();
    let ended = match agent {
        Agent::Worker(worker) => read_worker(link, worker, &mut receiver, &mut tell),
        Agent::Server(_) => read_server(link, &mut receiver, &mut tell),
        Agent::Console => read_console(link, &mut receiver, &mut tell),
        // These have nothing to say to a coordinator.
        Agent::Coordinator | Agent::Task(_) | Agent::Host | Agent::Controller => Ok(()),
    };
    let how = ended.err().map_or_else(|| "it went away".to_owned(), |e| e.to_string());
    // After the end nothing reads the inbox.
    tell(Event::Gone(link, how));
}

fn read_worker(
    link: LinkId,
    worker: u32,
    receiver: &mut Receiver,
    tell: &mut impl FnMut(Event) -> bool,
) -> Result<(), Error> {
    while let Some(incoming) = receiver.receive::<FromWorker>()? {
        let event = match incoming.message {
            FromWorker::Evaluated { part, step, batch } => {
                let bulk = receiver.bulk_vec(SCORES_BYTES_MAX)?;
                // Here and not where is decided: they may be long.
                match Scores::from_json(&bulk) {
                    Ok(scores) => {
                        let scored = Scored { worker, part, step, batch, scores };
                        Event::Scored(link, Box::new(scored))
                    }
                    Err(e) => {
                        let trouble = Trouble::new(format!("its scores cannot be read: {e}"));
                        Event::Worker(link, FromWorker::Failed(trouble), Vec::new())
                    }
                }
            }
            said => Event::Worker(link, said, receiver.bulk_vec(BULK_BYTES_MAX)?),
        };
        if !tell(event) {
            break;
        }
    }
    Ok(())
}

fn read_server(
    link: LinkId,
    receiver: &mut Receiver,
    tell: &mut impl FnMut(Event) -> bool,
) -> Result<(), Error> {
    while let Some(incoming) = receiver.receive::<FromServer>()? {
        let mut squares = vec![0f64; incoming.bulk_bytes / 8];
        receiver.read_bulk(bytes::as_bytes_mut(&mut squares))?;
        if !tell(Event::Server(link, incoming.message, squares)) {
            break;
        }
    }
    Ok(())
}

fn read_console(
    link: LinkId,
    receiver: &mut Receiver,
    tell: &mut impl FnMut(Event) -> bool,
) -> Result<(), Error> {
    while let Some(incoming) = receiver.receive::<FromConsole>()? {
        if !tell(Event::Console(link, incoming.message)) {
            break;
        }
    }
    Ok(())
}
