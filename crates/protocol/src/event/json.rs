//! Where events become JSON and back.
//!
//! Other crates call these: each call of `serde_json` elsewhere would compile the whole of it again.

use super::{Pulse, What};

impl What {
    /// None where it is of a build that knows other events.
    pub fn from_json(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    pub fn list_to_json(events: &[&Self]) -> Vec<u8> {
        serde_json::to_vec(events).expect("an event has string keys only")
    }

    /// Empty where it cannot be read.
    pub fn list_from_json(text: &[u8]) -> Vec<Self> {
        serde_json::from_slice(text).unwrap_or_default()
    }
}

impl Pulse {
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a pulse has string keys only")
    }
}
