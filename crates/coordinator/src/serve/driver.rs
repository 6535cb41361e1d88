//! The loop around a [`Coordinator`]: sockets, files and the clock.
//!
//! One thread carries out effects, in order. What takes the disk long is done on threads of their
//! own, which post what came of it. Never decides anything.

use super::coordinator::{
    CheckpointBegun, Coordinator, Effect, Event, Leave, LinkId, Message, Moment, TICK_EVERY,
};
use super::files::{Files, Rest, Slow};
use super::links::Mail;
use super::part_files::PartFiles;
use planaria_protocol::clock::Clock;
use planaria_protocol::frame_loss;
use planaria_protocol::link::Sender;
use planaria_protocol::message::{ToConsole, Trouble};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, SyncSender};
use std::time::Duration;

/// How long sending what waits may take before a link is closed.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of events that may wait for a console.
const CONSOLE_BYTES_MAX: usize = 16 << 20;

/// What effects are carried out with.
pub(super) struct Driver {
    pub links: BTreeMap<LinkId, Sender>,
    pub post: SyncSender<Mail>,
    pub inbox: Inbox<Mail>,
    pub part_files: Arc<PartFiles>,
    pub files: Files,
    pub clock: Arc<dyn Clock>,
    /// What this thread has found out itself; its inbox may be full, and only it empties the inbox.
    pub own: VecDeque<Event>,
    /// When time was last told.
    pub ticked: Duration,
}

impl Driver {
    /// Drives a coordinator until its process is to end.
    pub fn drive(
        &mut self,
        coordinator: &mut Coordinator,
        first: Vec<Effect>,
    ) -> Result<Leave, Trouble> {
        let mut left = self.carry_out(first)?;
        while left.is_none() {
            let event = match self.own.pop_front() {
                Some(event) => Some(event),
                None => self.next()?,
            };
            if let Some(event) = event {
                left = self.carry_out(coordinator.on(self.now(), event))?;
            }
            let now = self.now();
            if left.is_none() && now.at.saturating_sub(self.ticked) >= TICK_EVERY {
                self.ticked = now.at;
                frame_loss::tick(now.at);
                left = self.carry_out(coordinator.on(now, Event::Tick))?;
            }
        }
        left.ok_or_else(|| Trouble::new("nothing is left to drive"))
    }

    /// What time it is.
    pub fn now(&self) -> Moment {
        Moment { at: self.clock.now(), unix_seconds: self.clock.unix_seconds() }
    }

    /// The next thing that happens, waited for at most until it is time for a tick.
    fn next(&mut self) -> Result<Option<Event>, Trouble> {
        match self.inbox.recv_timeout(TICK_EVERY) {
            Ok(Mail::Linked(link, join, sender)) => {
                self.links.insert(link, sender);
                Ok(Some(Event::Linked(link, join)))
            }
            Ok(Mail::Event(event)) => {
                if let Event::Gone(link, _) = &event {
                    self.links.remove(link);
                }
                Ok(Some(event))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Trouble::new("no link is left")),
        }
    }

    /// Carries effects out, one after another, up to the end of the process.
    pub fn carry_out(&mut self, effects: Vec<Effect>) -> Result<Option<Leave>, Trouble> {
        for effect in effects {
            if matches!(effect, Effect::WriteManifest { .. } | Effect::Abandon(_)) {
                self.part_files.close();
            }
            match self.files.carry_out(self.clock.now(), effect)? {
                Rest::Nothing => {}
                Rest::Tell(event) => {
                    if let Event::CheckpointBegun(CheckpointBegun { folder: Ok(folder), .. }) =
                        &event
                    {
                        self.part_files.open(folder.clone());
                    }
                    self.own.push_back(event);
                }
                Rest::Slow(slow) => self.aside(slow),
                Rest::Other(Effect::Leave(leave)) => return Ok(Some(leave)),
                Rest::Other(effect) => self.act(effect),
            }
        }
        Ok(None)
    }

    fn act(&mut self, effect: Effect) {
        match effect {
            Effect::Send(link, message, bulk) => {
                self.send(link, &message, bulk.as_ref().map_or(&[][..], |bulk| bulk));
            }
            Effect::Close(link) => {
                if let Some(sender) = self.links.remove(&link) {
                    sender.close();
                }
            }
            Effect::FrameLoss(loss) => frame_loss::set(loss, self.clock.now()),
            Effect::Log(line) => (self.files.log)(&line),
            // The files have carried out all others.
            _ => {}
        }
    }

    /// A process that cannot be reached is reported by the thread that reads its link. A console that
    /// does not read, because it was suspended say, is sent no pulses, and is let go when too many
    /// events wait for it.
    fn send(&mut self, link: LinkId, message: &Message, bulk: &[u8]) {
        let Some(sender) = self.links.get(&link) else { return };
        let _ = match message {
            Message::Worker(message) => sender.send_with(message, bulk),
            Message::Server(message) => sender.send_with(message, bulk),
            Message::Console(message) => {
                let waiting = sender.bytes_waiting();
                if *message == ToConsole::Pulse && waiting > 0 {
                    return;
                }
                if waiting >= CONSOLE_BYTES_MAX {
                    sender.close();
                    return;
                }
                sender.send_with(message, bulk)
            }
        };
    }

    /// Does something on a thread of its own: the disk may take longer than a step.
    fn aside(&mut self, Slow { name, work, failed }: Slow) {
        let post = self.post.clone();
        let work = move || {
            // After the end nothing reads the inbox.
            let _ = post.send(Mail::Event(work()));
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(work);
        if let Err(e) = thread {
            self.own.push_back(failed(format!("cannot start a thread: {e}")));
        }
    }

    /// Sends what waits, and closes all links.
    pub fn flush_and_close_links(&self) {
        for sender in self.links.values() {
            let _ = sender.flush_and_close(FLUSH_WITHIN);
        }
    }
}
