//! The link from a command to a run's coordinator: events and pulses come in, requests go out.

use planaria_protocol::event::{Event, Pulse, Seen, What};
use planaria_protocol::message::{Agent, FromConsole, Join, ToConsole};
use planaria_protocol::{Credentials, Error, Receiver, Sender, connect};
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Context, Failure, Result};
use std::cell::Cell;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// News that may wait to be shown.
const NEWS_MAX: usize = 4096;
/// Largest piece of news, in bytes.
const NEWS_BYTES_MAX: usize = 64 << 20;

/// What the coordinator told.
#[derive(Debug)]
pub enum News {
    Event(Box<Event>),
    /// Where the run is.
    Pulse(Box<Pulse>),
    /// So many workers are wanted.
    Pool(u32),
    /// So many machines are wanted.
    Resize(u32),
    /// A process does not answer and is to be ended.
    Kill {
        agent: Agent,
        pid: u32,
        /// How that was seen.
        why: String,
    },
    /// Nothing, for as long as was waited.
    Nothing,
    /// The run is over.
    Finish,
    /// The coordinator went away without a word.
    Gone(String),
}

/// How a console watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watching {
    /// Whether it starts and ends the processes.
    pub supervises: bool,
    /// What it has seen.
    pub seen: Seen,
}

/// A piece of news, with its place in `events.jsonl` if it is an event.
type Told = (Option<u64>, News);

/// A link to a coordinator.
pub struct Console {
    sender: Sender,
    news: Inbox<Told>,
    /// The events that were taken.
    seen: Cell<Seen>,
}

impl Console {
    /// Connects to whichever coordinator listens there, and begins to watch. The coordinator tells
    /// the events of its session from the first; those that were seen are left out.
    pub fn join(
        address: &str,
        credentials: &Credentials,
        build: &str,
        watching: Watching,
    ) -> Result<Self> {
        let (sender, receiver) =
            connect(address, credentials, Agent::Coordinator, None).map_err(Failure::failed)?;
        let join = Join::new(Agent::Console, build.to_owned(), std::process::id());
        let Watching { supervises, seen } = watching;
        let said =
            sender.send(&join).and_then(|()| sender.send(&FromConsole::Watch { supervises }));
        said.map_err(Failure::failed)?;
        let (pass, news) = sync_channel(NEWS_MAX);
        let asking = sender.clone();
        let read = move || read(receiver, &asking, seen, &pass);
        let reading = std::thread::Builder::new().name("news".into()).spawn(read);
        reading.context(|| "cannot start a thread".into())?;
        Ok(Self { sender, news, seen: Cell::new(seen) })
    }

    /// Which generation the coordinator is.
    pub fn generation(&self) -> u64 {
        self.sender.generation()
    }

    /// The events that were taken, and those seen before.
    pub fn seen(&self) -> Seen {
        self.seen.get()
    }

    /// The next piece of news, waited for at most so long.
    pub fn next(&self, wait: Duration) -> News {
        match self.news.recv_timeout(wait) {
            Ok((index, news)) => {
                if let (Some(place), News::Event(event)) = (index, &news) {
                    let mut seen = self.seen.get();
                    seen.add(place, event);
                    self.seen.set(seen);
                }
                news
            }
            Err(RecvTimeoutError::Timeout) => News::Nothing,
            Err(RecvTimeoutError::Disconnected) => News::Gone("it went away".into()),
        }
    }

    /// Hears news until `take` makes something of it; nothing where time is up, or the coordinator goes
    /// away before.
    pub fn wait_for<T>(
        &self,
        within: Duration,
        mut take: impl FnMut(&News) -> Option<T>,
    ) -> Option<T> {
        let since = Stopwatch::start();
        loop {
            let news = self.next(within.saturating_sub(since.elapsed()));
            let is_last = matches!(news, News::Nothing | News::Finish | News::Gone(_));
            let taken = take(&news);
            if taken.is_some() || is_last || since.elapsed() >= within {
                return taken;
            }
        }
    }

    /// Asks the run to end as soon as everything is saved.
    pub fn stop(&self, reason: &str) {
        // If the coordinator is gone, the next piece of news says so.
        let _ = self.sender.send(&FromConsole::Stop { reason: reason.to_owned() });
    }

    /// Asks for so many workers.
    pub fn scale(&self, workers: u32) {
        let _ = self.sender.send(&FromConsole::Scale { workers });
    }

    /// Asks for so many machines.
    pub fn resize(&self, machines: u32) {
        self.tell(&FromConsole::Resize { machines });
    }

    /// Tells what happened to machines, to be written down.
    pub fn report(&self, what: &What) {
        let event = serde_json::to_string(what).expect("an event has string keys only");
        self.tell(&FromConsole::Report { event });
    }

    /// Says this; if the coordinator is gone, the next piece of news says so.
    pub fn tell(&self, message: &FromConsole) {
        let _ = self.sender.send(message);
    }
}

impl Console {
    /// Asks that a process suffers a fault; says whether the coordinator could be asked.
    pub fn chaos(&self, agent: Agent, frame_loss: planaria_protocol::message::FrameLoss) -> bool {
        self.sender.send(&FromConsole::Chaos { agent, frame_loss }).is_ok()
    }
}

impl Console {
    /// Asks that a process is killed by the command that started it; says whether the coordinator could be
    /// asked.
    pub fn kill(&self, agent: Agent) -> bool {
        self.sender.send(&FromConsole::Kill { agent }).is_ok()
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.sender.close();
    }
}

fn read(mut receiver: Receiver, asking: &Sender, seen: Seen, pass: &SyncSender<Told>) {
    loop {
        let told = match next(&mut receiver, asking) {
            Ok(Some((Some(place), News::Event(event)))) if !seen.is_new(place, &event) => continue,
            Ok(Some(told)) => told,
            Ok(None) => (None, News::Gone("it went away".into())),
            Err(e) => (None, News::Gone(e.to_string())),
        };
        let last = matches!(told.1, News::Finish | News::Gone(_));
        if pass.send(told).is_err() || last {
            return;
        }
    }
}

/// The next piece of news. Asks for more events where there are.
fn next(receiver: &mut Receiver, asking: &Sender) -> Result<Option<Told>, Error> {
    loop {
        let Some(incoming) = receiver.receive::<ToConsole>()? else { return Ok(None) };
        let bulk = receiver.bulk_vec(NEWS_BYTES_MAX)?;
        let news = match incoming.message {
            ToConsole::Event { index } => match serde_json::from_slice(&bulk) {
                Ok(event) => return Ok(Some((Some(index), News::Event(event)))),
                Err(e) => News::Gone(format!("it told an event that cannot be read: {e}")),
            },
            ToConsole::More { from } => {
                asking.send(&FromConsole::More { from })?;
                continue;
            }
            ToConsole::Pulse => match serde_json::from_slice(&bulk) {
                Ok(pulse) => News::Pulse(pulse),
                Err(e) => News::Gone(format!("it told a pulse that cannot be read: {e}")),
            },
            ToConsole::Pool { workers } => News::Pool(workers),
            ToConsole::Resize { machines } => News::Resize(machines),
            ToConsole::Kill { agent, pid, why } => News::Kill { agent, pid, why },
            ToConsole::Finish => News::Finish,
        };
        return Ok(Some((None, news)));
    }
}

#[cfg(test)]
pub mod tests;
