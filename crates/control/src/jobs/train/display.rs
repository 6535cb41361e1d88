//! What events and pulses of a run on many processes become: its traces, its page, the screen.

use crate::jobs::train::page::Page;
use crate::jobs::train::recorder::Recorder;
use planaria_protocol::event::{Event, Pulse};
use planaria_runs::failure::plain;

pub struct Display {
    pub recorder: Recorder,
    pub page: Page,
}

impl Display {
    pub fn event(&mut self, event: &Event) {
        self.recorder.take(event);
        self.page.take(event, self.recorder.lines());
    }

    pub fn pulse(&mut self, pulse: &Pulse) {
        self.recorder.pulse(pulse);
        self.page.pulse(pulse, self.recorder.lines());
    }

    pub fn note(&mut self, note: &str) {
        // What machines say must not steer the terminal.
        self.recorder.note(&plain(note));
    }
}
