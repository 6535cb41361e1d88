//! Links to the coordinator, each read on a thread of its own, whose words go to the deciding
//! thread as mail. Never answers anybody.

use crate::run::{Input, Left, Scored};
use planaria_learn::Scores;
use planaria_protocol::link::{Receiver, Sender};
use planaria_protocol::message::{
    Agent, FromConsole, FromServer, FromWorker, Join, Trouble, Weather,
};
use planaria_protocol::{Error, bytes};
use std::sync::mpsc::SyncSender;

/// Largest score of a batch, in bytes.
const SCORES_BYTES_MAX: usize = 64 << 20;

/// Largest bulk that a worker may send, in bytes.
const BULK_BYTES_MAX: usize = 1 << 30;

/// What reaches the deciding thread.
pub(super) enum Mail {
    /// Somebody has joined, over the link of this number.
    Linked(u64, Join, Sender),
    /// Somebody said something, over this link.
    Said(u64, Agent, Input),
    /// The console on this link wants to watch, and whether it starts and ends processes.
    Watch(u64, bool),
    /// A console wants a process to suffer.
    Weather(Agent, Weather),
    /// A console wants a process to be killed.
    Kill(Agent),
    /// A console wants so many machines.
    Resize(u32),
    /// This link has ended, and how.
    Gone(u64, Agent, u32, String),
}

/// Reads a link on the thread that was given for it; `number` tells consoles apart.
pub(super) fn read_link(
    post: &SyncSender<Mail>,
    number: u64,
    join: Join,
    sender: Sender,
    mut receiver: Receiver,
) {
    let (agent, pid) = (join.agent, join.pid);
    if post.send(Mail::Linked(number, join, sender)).is_err() {
        return;
    }
    let ended = match agent {
        Agent::Worker(worker) => read_worker(post, number, worker, &mut receiver),
        Agent::Server(server) => read_server(post, number, server, &mut receiver),
        Agent::Console => read_console(post, number, &mut receiver),
        // Keepers of scripts have no coordinator.
        Agent::Coordinator | Agent::Task(_) => Ok(()),
    };
    let how = ended.err().map_or_else(|| "it went away".to_owned(), |e| e.to_string());
    // After the end nobody listens.
    let _ = post.send(Mail::Gone(number, agent, pid, how));
}

fn read_worker(
    post: &SyncSender<Mail>,
    number: u64,
    worker: u32,
    link: &mut Receiver,
) -> Result<(), Error> {
    while let Some(incoming) = link.receive::<FromWorker>()? {
        let input = match incoming.message {
            FromWorker::Evaluated { part, step, batch } => {
                let bulk = link.bulk_vec(SCORES_BYTES_MAX)?;
                match serde_json::from_slice::<Scores>(&bulk) {
                    Ok(scores) => {
                        Input::Scored(Box::new(Scored { worker, part, step, batch, scores }))
                    }
                    Err(e) => {
                        let message = format!("its scores cannot be read: {e}");
                        let trouble = Trouble::new(message);
                        Input::worker(worker, FromWorker::Failed(trouble))
                    }
                }
            }
            said => Input::Worker { worker, said, bulk: link.bulk_vec(BULK_BYTES_MAX)? },
        };
        if post.send(Mail::Said(number, Agent::Worker(worker), input)).is_err() {
            break;
        }
    }
    Ok(())
}

fn read_server(
    post: &SyncSender<Mail>,
    number: u64,
    server: u32,
    link: &mut Receiver,
) -> Result<(), Error> {
    while let Some(incoming) = link.receive::<FromServer>()? {
        let mut squares = vec![0f64; incoming.bulk_bytes / 8];
        link.read_bulk(bytes::as_bytes_mut(&mut squares))?;
        let said = Input::Server(server, incoming.message, squares);
        if post.send(Mail::Said(number, Agent::Server(server), said)).is_err() {
            break;
        }
    }
    Ok(())
}

fn read_console(post: &SyncSender<Mail>, console: u64, link: &mut Receiver) -> Result<(), Error> {
    while let Some(incoming) = link.receive::<FromConsole>()? {
        let said = |input| Mail::Said(console, Agent::Console, input);
        let mail = match incoming.message {
            FromConsole::Watch { supervises } => Mail::Watch(console, supervises),
            FromConsole::Stop { reason } => said(Input::Stop(reason)),
            FromConsole::Ended { agent, pid, how } => {
                said(Input::Left(Left { agent, pid, how, ended: true }))
            }
            FromConsole::Scale { workers } => said(Input::Scale(workers)),
            FromConsole::Resize { machines } => Mail::Resize(machines),
            FromConsole::Report { event } => match serde_json::from_str(&event) {
                Ok(what) => said(Input::Report(what)),
                // One of another build; what cannot be read is nothing that is known here.
                Err(_) => continue,
            },
            FromConsole::Chaos { agent, weather } => Mail::Weather(agent, weather),
            FromConsole::Kill { agent } => Mail::Kill(agent),
        };
        if post.send(mail).is_err() {
            break;
        }
    }
    Ok(())
}
