//! The link from a command to a run's coordinator: events and pulses come in, a stop can go out.

use crate::failure::{Failure, Result};
use planaria_protocol::event::{Event, Pulse};
use planaria_protocol::launch::Launch;
use planaria_protocol::message::{Agent, FromConsole, Join, ToConsole};
use planaria_protocol::{Error, Receiver, Secret, Sender, connect};
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// News that may wait to be shown.
const NEWS_MAX: usize = 4096;
/// Largest piece of news, in bytes.
const NEWS_BYTES_MAX: usize = 64 << 20;

/// What the coordinator told.
#[derive(Debug)]
pub enum News {
    /// Something happened.
    Event(Box<Event>),
    /// Where the run is.
    Pulse(Box<Pulse>),
    /// Nothing, for as long as was waited.
    Nothing,
    /// The run is over.
    Finish,
    /// The coordinator went away without a word.
    Gone(String),
}

/// A link to a coordinator.
pub struct Console {
    sender: Sender,
    news: Inbox<News>,
}

impl Console {
    /// Connects and begins to watch.
    pub fn connect(address: &str, secret: &Secret, launch: &Launch) -> Result<Self> {
        Self::join(address, secret, launch.generation, &launch.build)
    }

    /// Connects with what a control file holds.
    pub fn join(address: &str, secret: &Secret, generation: u64, build: &str) -> Result<Self> {
        let (sender, receiver) =
            connect(address, secret, Some(generation)).map_err(Failure::failed)?;
        let join = Join {
            agent: Agent::Console,
            build: build.to_owned(),
            pid: std::process::id(),
            address: None,
            kept: None,
        };
        let said =
            sender.send(&join).and_then(|()| sender.send(&FromConsole::Watch { supervises: true }));
        said.map_err(Failure::failed)?;
        let (pass, news) = sync_channel(NEWS_MAX);
        std::thread::spawn(move || read(receiver, &pass));
        Ok(Self { sender, news })
    }

    /// The next piece of news, waited for at most so long.
    pub fn next(&self, wait: Duration) -> News {
        match self.news.recv_timeout(wait) {
            Ok(news) => news,
            Err(RecvTimeoutError::Timeout) => News::Nothing,
            Err(RecvTimeoutError::Disconnected) => News::Gone("it went away".into()),
        }
    }

    /// Asks the run to end as soon as everything is saved.
    pub fn stop(&self, reason: &str) {
        // If the coordinator is gone, the next piece of news says so.
        let _ = self.sender.send(&FromConsole::Stop { reason: reason.to_owned() });
    }

    /// Says that a process has ended.
    pub fn ended(&self, agent: Agent, pid: u32, how: &str) {
        let _ = self.sender.send(&FromConsole::Ended { agent, pid, how: how.to_owned() });
    }
}

impl Console {
    /// Asks that a process suffers a fault; says whether the coordinator could be asked.
    pub fn chaos(&self, agent: Agent, weather: planaria_protocol::message::Weather) -> bool {
        self.sender.send(&FromConsole::Chaos { agent, weather }).is_ok()
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.sender.close();
    }
}

fn read(mut receiver: Receiver, pass: &SyncSender<News>) {
    loop {
        let news = match next(&mut receiver) {
            Ok(Some(news)) => news,
            Ok(None) => News::Gone("it went away".into()),
            Err(e) => News::Gone(e.to_string()),
        };
        let last = matches!(news, News::Finish | News::Gone(_));
        if pass.send(news).is_err() || last {
            return;
        }
    }
}

fn next(receiver: &mut Receiver) -> Result<Option<News>, Error> {
    let Some(incoming) = receiver.receive::<ToConsole>()? else { return Ok(None) };
    let bulk = receiver.bulk_vec(NEWS_BYTES_MAX)?;
    Ok(Some(match incoming.message {
        ToConsole::Event { .. } => match serde_json::from_slice(&bulk) {
            Ok(event) => News::Event(event),
            Err(e) => News::Gone(format!("it told an event that cannot be read: {e}")),
        },
        ToConsole::Pulse => match serde_json::from_slice(&bulk) {
            Ok(pulse) => News::Pulse(pulse),
            Err(e) => News::Gone(format!("it told a pulse that cannot be read: {e}")),
        },
        ToConsole::Pool { .. } | ToConsole::Kill { .. } => News::Nothing,
        ToConsole::Finish => News::Finish,
    }))
}
