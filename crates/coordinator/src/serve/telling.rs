//! What consoles are told: events, pulses and last words.

use super::coordinator::{Coordinator, EVENTS_MAX, Effect, LinkId, Message, Moment, Watcher};
use planaria_protocol::event::{Event, What};
use planaria_protocol::message::{Outcome, ToConsole, Trouble, event_bulk};
use std::sync::Arc;

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

    /// Tells a console all events so far.
    pub(super) fn tell_all(&mut self, link: LinkId) {
        for (at, event) in (0..).zip(&self.events) {
            let index = if at == 0 { 0 } else { at + self.left_out };
            let message = Message::Console(ToConsole::Event { index });
            self.effects.push(Effect::Send(link, message, Some(event.clone())));
        }
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
        self.show_all(&ToConsole::Finish);
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

    /// Tells every console.
    pub(super) fn show_all(&mut self, message: &ToConsole) {
        self.send_to(message, None, |_| true);
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
