//! What is written down and told to those who watch: events, pulses and last words.

use super::Shell;
use super::desk::{Desk, Watcher};
use planaria_protocol::event::{Event, What};
use planaria_protocol::message::{ToConsole, Trouble, event_bulk};
use planaria_runs::sentence::sentence;
use std::time::Duration;

/// How long a last word may take.
const FAREWELL: Duration = Duration::from_secs(5);
/// Bytes of events that may wait for a console.
const CONSOLE_BYTES_MAX: usize = 16 << 20;
/// Events that are kept for whoever begins to watch; a run has about a thousand.
const EVENTS_MAX: usize = 100_000;

impl Desk {
    pub(super) fn record(
        &mut self,
        shell: &mut Shell,
        what: What,
        reason: &str,
    ) -> Result<(), Trouble> {
        let event = event(shell, what);
        if let Some(line) = sentence(&event) {
            match line.contains(reason) {
                true => (shell.log)(&line),
                false => (shell.log)(&format!("{line}: {reason}")),
            }
        }
        let had = shell.journal.trouble().is_some();
        let written = shell.journal.write(&event);
        match shell.journal.trouble() {
            Some(why) if !had => (shell.log)(&format!("events wait for the disk: {why}")),
            None if had => (shell.log)("the events that waited are written"),
            _ => {}
        }
        // Whoever watches is told even what the disk does not take.
        self.tell(&event);
        written.map_err(|e| Trouble::new(format!("cannot write events.jsonl: {e}")))
    }

    fn tell(&mut self, event: &Event) {
        self.told_end |= matches!(event.what, What::Ended { .. });
        let bulk = event_bulk(event);
        let index = self.left_out + self.events.len() as u64;
        self.show(&ToConsole::Event { index }, &bulk);
        if self.events.len() == EVENTS_MAX {
            // The first one says what the run is.
            self.events.remove(1);
            self.left_out += 1;
        }
        self.events.push(bulk);
    }

    /// Tells an end that the coordinator itself is the cause of, and that cannot be written down.
    pub(super) fn tell_end(&mut self, shell: &Shell, trouble: &Trouble) {
        if self.told_end {
            return;
        }
        let ended = What::Ended {
            outcome: "failed".into(),
            reason: Some(trouble.message.clone()),
            step: shell.run.state().step,
            weights_sha256: None,
            trouble: Some(trouble.clone()),
            state: Some(Box::new(shell.run.state().clone())),
        };
        self.tell(&event(shell, ended));
    }

    pub(super) fn pulse(&mut self, shell: &Shell, now: Duration) {
        if self.consoles.values().any(|w| w.watches)
            && let Ok(bulk) = serde_json::to_vec(&shell.run.pulse(now))
        {
            self.show(&ToConsole::Pulse, &bulk);
        }
    }

    /// Tells every console that watches. One that does not read, because it was suspended say, is
    /// sent no pulses, and is let go when too many events wait for it.
    fn show(&mut self, message: &ToConsole, bulk: &[u8]) {
        let is_pulse = *message == ToConsole::Pulse;
        self.consoles.retain(|_, Watcher { sender, watches, .. }| {
            let waiting = sender.bytes_waiting();
            if !*watches || (is_pulse && waiting > 0) {
                return true;
            }
            waiting < CONSOLE_BYTES_MAX && sender.send_with(message, bulk).is_ok()
        });
    }

    pub(super) fn say_goodbye(&mut self, over: bool) {
        for Watcher { sender, .. } in self.consoles.values() {
            if over {
                let _ = sender.send(&ToConsole::Finish);
            }
            let _ = sender.flush_and_close(FAREWELL);
        }
        for link in self.links.values() {
            let _ = link.sender.flush_and_close(FAREWELL);
        }
    }
}

/// What happens now, as an event.
fn event(shell: &Shell, what: What) -> Event {
    Event {
        seconds: shell.run.seconds(shell.clock.now()),
        unix_seconds: shell.clock.unix_seconds(),
        generation: shell.generation,
        what,
    }
}
