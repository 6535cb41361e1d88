//! What consoles are told: events, pulses and last words.

use super::coordinator::{Coordinator, EVENTS_MAX, Effect, LinkId, Message, Moment, Watcher};
use planaria_protocol::event::{Event, What};
use planaria_protocol::message::{Outcome, ToConsole, Trouble, event_bulk};
use std::sync::Arc;

/// Events that a console is sent at a time.
const PAGE: usize = 1000;

impl Coordinator {
    /// Tells an event to consoles that watch, even where the disk does not take it.
    pub(super) fn tell(&mut self, event: &Event) {
        self.told_end |= matches!(event.what, What::Ended { .. });
        let bulk = Arc::new(event_bulk(event));
        let index = self.left_out + self.events.len() as u64;
        self.show(&ToConsole::Event { index }, Some(&bulk));
        if self.events.len() == EVENTS_MAX {
            // The first one says what the run is.
            self.events.remove(1);
            self.left_out += 1;
        }
        self.events.push(bulk);
    }

    /// Sends a console a page of events; once it has all of them it gets new ones as they happen.
    pub(super) fn tell_page(&mut self, link: LinkId, from: u64) {
        let next = self.tell_from(link, from, PAGE);
        let is_last = next == self.left_out + self.events.len() as u64;
        if let Some(watcher) = self.consoles.get_mut(&link) {
            (watcher.next, watcher.watches) = (next, is_last);
        }
        if !is_last {
            let message = Message::Console(ToConsole::More { from: next });
            self.effects.push(Effect::Send(link, message, None));
        }
    }

    /// Tells a console so many events at most, and says which one is next. After the first one, some
    /// may have been let go of.
    fn tell_from(&mut self, link: LinkId, from: u64, most: usize) -> u64 {
        let first = match from {
            0 => 0,
            from => (from.saturating_sub(self.left_out) as usize).clamp(1, self.events.len()),
        };
        let last = self.events.len().min(first + most);
        for at in first..last {
            let index = if at == 0 { 0 } else { at as u64 + self.left_out };
            let message = Message::Console(ToConsole::Event { index });
            self.effects.push(Effect::Send(link, message, Some(self.events[at].clone())));
        }
        last as u64 + self.left_out
    }

    /// Tells every console that the run is over, after all events.
    pub(super) fn finish(&mut self) {
        let behind = self.consoles.iter().filter(|(_, watcher)| !watcher.watches);
        let behind: Vec<(LinkId, u64)> = behind.map(|(link, w)| (*link, w.next)).collect();
        for (link, next) in behind.into_iter().filter(|(_, next)| *next > 0) {
            self.tell_from(link, next, EVENTS_MAX);
        }
        self.send_to(&ToConsole::Finish, None, |_| true);
    }

    /// Tells an end that the coordinator itself is the cause of, and that cannot be written down.
    pub(super) fn tell_end(&mut self, now: Moment, trouble: &Trouble) {
        if !self.told_end {
            let ended = What::Ended {
                outcome: Outcome::Failed,
                reason: Some(trouble.message.clone()),
                step: self.run.state().step,
                weights_sha256: None,
                trouble: Some(trouble.clone()),
                state: Some(Box::new(self.run.state().clone())),
            };
            let event = self.event(now, ended);
            self.tell(&event);
        }
        self.finish();
    }

    pub(super) fn pulse(&mut self, now: Moment) {
        if self.consoles.values().any(|w| w.watches) {
            let bulk = self.run.pulse(now.at).to_json();
            self.show(&ToConsole::Pulse, Some(&Arc::new(bulk)));
        }
    }

    pub(super) fn tell_supervisor(&mut self, message: &ToConsole) {
        self.send_to(message, None, |watcher| watcher.supervises);
    }

    /// Tells every console that watches.
    fn show(&mut self, message: &ToConsole, bulk: Option<&Arc<Vec<u8>>>) {
        self.send_to(message, bulk, |watcher| watcher.watches);
    }

    fn send_to(
        &mut self,
        message: &ToConsole,
        bulk: Option<&Arc<Vec<u8>>>,
        is_meant: impl Fn(&Watcher) -> bool,
    ) {
        let meant = self.consoles.iter().filter(|(_, watcher)| is_meant(watcher));
        self.effects.extend(meant.map(|(link, _)| {
            Effect::Send(*link, Message::Console(message.clone()), bulk.cloned())
        }));
    }

    /// What happens now, as an event.
    pub(super) fn event(&self, now: Moment, what: What) -> Event {
        Event {
            seconds: self.run.seconds(now.at),
            unix_seconds: now.unix_seconds,
            generation: self.generation,
            what,
        }
    }
}
