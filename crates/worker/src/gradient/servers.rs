//! Links to servers: what is sent to them, and the threads that read what they send.
//!
//! Each server has one thread, which reads parameters straight into their place
//! ([`super::parameters`]) and reports what has come. A link that breaks is reported once.

use super::compute::Outlet;
use super::parameters::{self, Writer, Wrong};
use planaria_protocol::link::{Receiver, Sender};
use planaria_protocol::message::{Pull, Push, ServerRange};
use planaria_protocol::{Error, bytes};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// What has come from servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// What became of the parameters after some step.
    Parameters(parameters::Report),
    /// The state after `step` steps is there.
    State { step: u64 },
    /// A server says that more than `step` steps are committed, so it has them no more.
    Gone { step: u64 },
    /// The link to a server has ended.
    Ended { server: u32, why: String },
}

/// Where it is reported.
pub type Reports = Arc<dyn Fn(Arrival) + Send + Sync>;

/// The links to the servers of a session, to be closed by any thread.
#[derive(Default)]
pub struct Links(Mutex<State>);

#[derive(Default)]
struct State {
    servers: Vec<Sender>,
    has_hung_up: bool,
}

impl Links {
    /// One more; it is closed at once if the others were.
    pub fn add(&self, server: Sender) {
        let mut state = self.state();
        if state.has_hung_up {
            server.close();
        }
        state.servers.push(server);
    }

    /// Closes all, so that a sender blocked on one is released.
    pub fn hang_up(&self) {
        let mut state = self.state();
        state.has_hung_up = true;
        state.servers.iter().for_each(Sender::close);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics with the links")
    }
}

/// The servers, in the order of their blocks.
pub struct Servers {
    server_ranges: Vec<ServerRange>,
    senders: Vec<Sender>,
    /// Which could not be told something.
    lost: Vec<AtomicBool>,
    reports: Reports,
}

impl Servers {
    pub fn new(server_ranges: Vec<ServerRange>, senders: Vec<Sender>, reports: Reports) -> Self {
        let lost = senders.iter().map(|_| AtomicBool::new(false)).collect();
        Self { server_ranges, senders, lost, reports }
    }

    /// Tells all of them.
    pub fn tell_all(&self, message: &Push) {
        (0..self.senders.len()).for_each(|at| self.tell(at, message, &[]));
    }
}

impl Outlet for Servers {
    fn server_ranges(&self) -> &[ServerRange] {
        &self.server_ranges
    }

    /// A link that breaks is reported once, and what was to be said is not missed: the process that
    /// takes the place of that server knows nothing of it, and asks for it anew.
    fn tell(&self, at: usize, message: &Push, bulk: &[u8]) {
        let (Some(sender), Some(lost)) = (self.senders.get(at), self.lost.get(at)) else { return };
        if let Err(error) = sender.send_with(message, bulk)
            && !lost.swap(true, Ordering::Relaxed)
        {
            let (server, why) = (self.server_ranges[at].server, error.to_string());
            (self.reports)(Arrival::Ended { server, why });
            sender.close();
        }
    }
}

/// The state that server 0 sent last.
#[derive(Default)]
pub struct StateBox(Mutex<(Option<u64>, Vec<f32>)>);

impl StateBox {
    /// Does something with the state after `step` steps, if that is what it is.
    pub fn with<R>(&self, step: u64, f: impl FnOnce(&[f32]) -> R) -> Option<R> {
        let state = self.0.lock().expect("no thread panics with the state");
        (state.0 == Some(step)).then(|| f(&state.1))
    }

    fn put(
        &self,
        step: u64,
        read: impl FnOnce(&mut Vec<f32>) -> Result<(), Unread>,
    ) -> Result<(), Unread> {
        let mut state = self.0.lock().expect("no thread panics with the state");
        state.0 = None;
        read(&mut state.1)?;
        state.0 = Some(step);
        Ok(())
    }
}

/// Reads what comes from one server.
pub struct Reader {
    pub server: u32,
    /// The place of its parameters.
    pub writer: Writer,
    pub state: Arc<StateBox>,
    /// Values of the state.
    pub state_count: usize,
    pub reports: Reports,
}

impl Reader {
    /// The thread of one server.
    pub fn run(mut self, mut receiver: Receiver, sender: &Sender) {
        let why = match self.read(&mut receiver) {
            Ok(()) => "it went away".into(),
            Err(why) => why.0,
        };
        (self.reports)(Arrival::Ended { server: self.server, why });
        // A sender that is blocked on it is released.
        sender.close();
    }

    fn read(&mut self, receiver: &mut Receiver) -> Result<(), Unread> {
        while let Some(incoming) = receiver.receive::<Pull>()? {
            let bytes = incoming.bulk_bytes;
            match incoming.message {
                Pull::Parameters { step, first_block } => {
                    self.writer.fill(step, first_block as usize, bytes, |values| {
                        match values {
                            Some(values) => receiver.read_bulk(bytes::as_bytes_mut(values))?,
                            None => receiver.skip_bulk()?,
                        }
                        Ok::<(), Unread>(())
                    })?;
                }
                Pull::Gone { step } => {
                    receiver.skip_bulk()?;
                    (self.reports)(Arrival::Gone { step });
                }
                Pull::State { step } => {
                    if bytes != self.state_count * 4 {
                        return Err(Unread(format!("a state of {bytes} bytes")));
                    }
                    self.state.put(step, |values| {
                        values.resize(self.state_count, 0.0);
                        Ok(receiver.read_bulk(bytes::as_bytes_mut(values))?)
                    })?;
                    (self.reports)(Arrival::State { step });
                }
            }
        }
        Ok(())
    }
}

/// Why reading a server ended.
struct Unread(String);

impl From<Wrong> for Unread {
    fn from(wrong: Wrong) -> Self {
        Self(wrong.to_string())
    }
}

impl From<Error> for Unread {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}
