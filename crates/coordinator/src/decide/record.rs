//! What a coordinator writes down before it lets a step count, so that another can go on from it.

use super::cluster::Saving;
use planaria_numerics::digest::Digest;
use planaria_protocol::event::What;
use planaria_protocol::state::State;
use serde::{Deserialize, Serialize};

/// The decisions of a run as far as they must outlive their process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// How far the run has come.
    pub state: State,
    /// A checkpoint that is due: whether it is the best, and why.
    pub due: Option<(bool, String)>,
    /// Whether something has happened that no checkpoint holds.
    pub unsaved: bool,
    /// The checkpoint on its way to the disk.
    pub saving: Option<Saving>,
    /// Committed steps that no event has told yet.
    pub pending: Option<Pending>,
    /// How long a step usually takes.
    pub step_seconds: Option<f64>,
    /// Workers wanted.
    pub workers: u32,
    /// Events that are being written with this, as JSON; nothing where there are none.
    pub events: Vec<u8>,
}

/// Steps that count by what a session's events tell.
pub fn told_steps<'a>(told: impl IntoIterator<Item = &'a What>) -> u64 {
    told.into_iter().fold(0, |step, what| match what {
        What::Started(started) => started.step,
        What::Recovered { step, .. } => *step,
        What::Committed { end_step, .. } => *end_step,
        _ => step,
    })
}

/// Committed steps of one epoch that no event has told yet.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// Epoch.
    pub epoch: u64,
    /// First of them.
    pub first_step: u64,
    /// The one after the last.
    pub end_step: u64,
    /// The examples that were read for them.
    pub read: Digest,
}

impl Pending {
    /// As an event.
    pub fn event(&self) -> What {
        let Self { epoch, first_step, end_step, read } = *self;
        What::Committed { epoch, first_step, end_step, read }
    }
}

impl Record {
    /// Without events.
    pub fn new(state: State) -> Self {
        Self {
            state,
            due: None,
            unsaved: false,
            saving: None,
            pending: None,
            step_seconds: None,
            workers: 0,
            events: Vec::new(),
        }
    }

    /// Adds the events that are being written with it.
    pub fn with_events(mut self, events: &[&What]) -> Self {
        if !events.is_empty() {
            self.events = serde_json::to_vec(events).unwrap_or_default();
        }
        self
    }

    /// Adds the events that wait for the disk, which come before those that are written with it.
    pub fn with_waiting(mut self, waiting: &[What]) -> Self {
        if !waiting.is_empty() {
            let later: Vec<What> = serde_json::from_slice(&self.events).unwrap_or_default();
            let all: Vec<&What> = waiting.iter().chain(&later).collect();
            self = self.with_events(&all);
        }
        self
    }

    /// Takes out the events that were being written with it and do not stand in `told`, and the
    /// steps that none has told.
    pub fn take_untold(&mut self, told: &[What]) -> Vec<What> {
        let events = std::mem::take(&mut self.events);
        let events: Vec<What> = serde_json::from_slice(&events).unwrap_or_default();
        let pending = self.pending.take().map(|pending| pending.event());
        // Steps that are taken again are told again, in the same words.
        let anew = |what: &What| matches!(what, What::Started(_) | What::Recovered { .. });
        let is_own = |what: &What| events.iter().any(|own| is_same(own, what));
        let began = told.iter().rposition(|what| anew(what) && !is_own(what));
        let told = &told[began.unwrap_or(0)..];
        let mut begins_anew = false;
        let untold = events.into_iter().chain(pending).filter(|what| {
            let is_untold = begins_anew || !told.iter().any(|told| is_same(told, what));
            begins_anew |= is_untold && anew(what);
            is_untold
        });
        untold.collect()
    }
}

/// Whether two events of one lineage tell the same. Figures may have lost their last bit on their
/// way through text.
fn is_same(a: &What, b: &What) -> bool {
    match (a, b) {
        (What::Steps(a), What::Steps(b)) => a.step == b.step,
        (What::Epoch { figures: a, .. }, What::Epoch { figures: b, .. }) => a.epoch == b.epoch,
        (a, b) => a == b,
    }
}
