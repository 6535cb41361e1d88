//! Messages to one other worker that it has not acknowledged yet. Pure.
//!
//! After a broken link they are sent again on a new one, until their round is over. So a message
//! arrives once or more often, never in part; its receiver recognises it by the numbers in it.

use planaria_protocol::methods::coded::ToPeer;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What comes from a peer, and its bulk.
pub type PeerMessage = (ToPeer, Vec<u8>);

#[derive(Debug, Default)]
pub struct Unacknowledged {
    /// By numbers that grow.
    messages: BTreeMap<u64, Arc<PeerMessage>>,
    numbers: u64,
    is_linked: bool,
    /// Numbers of the messages that were sent on this link and are not acknowledged.
    sent: VecDeque<u64>,
    /// How many were acknowledged on this link, now and when a round last ended.
    received: u64,
    received_before: Option<u64>,
}

impl Unacknowledged {
    /// Adds a message, and returns it where there is a link to send it on.
    pub fn put(&mut self, message: PeerMessage) -> Option<Arc<PeerMessage>> {
        self.numbers += 1;
        let message = Arc::new(message);
        self.messages.insert(self.numbers, message.clone());
        self.is_linked.then(|| {
            self.sent.push_back(self.numbers);
            message
        })
    }

    /// There is a new link: all messages, in order, to be sent on it.
    pub fn linked(&mut self) -> Vec<Arc<PeerMessage>> {
        self.is_linked = true;
        self.sent = self.messages.keys().copied().collect();
        (self.received, self.received_before) = (0, None);
        self.messages.values().cloned().collect()
    }

    /// The link has ended.
    pub fn unlinked(&mut self) {
        self.is_linked = false;
    }

    /// The receiver has acknowledged so many on this link.
    pub fn received(&mut self, count: u64) {
        while self.received < count {
            let Some(number) = self.sent.pop_front() else { break };
            self.received += 1;
            self.messages.remove(&number);
        }
    }

    /// Drops the messages of older rounds. Says whether to close the link: nothing on it was
    /// acknowledged for a whole round, so the receiver may be gone.
    pub fn retire(&mut self, round: u64) -> bool {
        self.messages.retain(|_, message| message.0.round() >= round);
        let received = self.received;
        let is_silent = self.received_before.replace(received) == Some(received);
        is_silent && !self.sent.is_empty()
    }

    /// How many were sent on this link and are not acknowledged.
    pub fn on_their_way(&self) -> usize {
        self.sent.len()
    }

    /// Whether all are acknowledged.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(round: u64, slot: u16) -> PeerMessage {
        (ToPeer::Product { round, group: 0, slot }, Vec::new())
    }

    #[test]
    fn unacknowledged_messages_are_sent_again() {
        let mut unacknowledged = Unacknowledged::default();
        assert!(unacknowledged.put(message(1, 0)).is_none(), "there is no link");
        assert!(unacknowledged.put(message(1, 1)).is_none());
        assert_eq!(unacknowledged.linked().len(), 2);
        assert!(unacknowledged.put(message(1, 2)).is_some());
        unacknowledged.received(1);
        unacknowledged.unlinked();
        assert!(unacknowledged.put(message(2, 3)).is_none());
        let again: Vec<u64> =
            unacknowledged.linked().iter().map(|message| message.0.round()).collect();
        assert_eq!(again, [1, 1, 2]);
        unacknowledged.received(3);
        assert!(unacknowledged.is_empty());
    }

    #[test]
    fn messages_of_old_rounds_are_given_up_and_so_is_a_silent_link() {
        let mut unacknowledged = Unacknowledged::default();
        unacknowledged.put(message(1, 0));
        unacknowledged.put(message(2, 0));
        unacknowledged.linked();
        assert!(!unacknowledged.retire(2), "a round must have passed");
        unacknowledged.received(1);
        assert!(!unacknowledged.retire(3));
        assert!(unacknowledged.is_empty());
        assert!(unacknowledged.retire(4), "one of those sent was never acknowledged");
    }
}
