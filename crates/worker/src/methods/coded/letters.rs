//! Letters to one other worker: what was sent and is not known to have come. Pure.
//!
//! A link that breaks is made again, and what was on it is sent again, until its round is over. So a
//! letter comes once or more often, never in part; its reader knows it by its names.

use planaria_protocol::methods::coded::ToPeer;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What comes from a peer, and its bulk.
pub type Letter = (ToPeer, Vec<u8>);

/// See the module.
#[derive(Debug, Default)]
pub struct Letters {
    /// What is not known to have come, by numbers that grow.
    letters: BTreeMap<u64, Arc<Letter>>,
    numbers: u64,
    is_linked: bool,
    /// Numbers of what was sent on this link and is not known to have come.
    sent: VecDeque<u64>,
    /// How many are known to have come on this link, now and when a round last ended.
    received: u64,
    received_before: Option<u64>,
}

impl Letters {
    /// One more; it is to be sent at once where it is returned.
    pub fn put(&mut self, letter: Letter) -> Option<Arc<Letter>> {
        self.numbers += 1;
        let letter = Arc::new(letter);
        self.letters.insert(self.numbers, letter.clone());
        self.is_linked.then(|| {
            self.sent.push_back(self.numbers);
            letter
        })
    }

    /// There is a new link: what is to be sent on it, in order.
    pub fn linked(&mut self) -> Vec<Arc<Letter>> {
        self.is_linked = true;
        self.sent = self.letters.keys().copied().collect();
        (self.received, self.received_before) = (0, None);
        self.letters.values().cloned().collect()
    }

    /// The link has ended.
    pub fn unlinked(&mut self) {
        self.is_linked = false;
    }

    /// So many have come on this link.
    pub fn received(&mut self, count: u64) {
        while self.received < count {
            let Some(number) = self.sent.pop_front() else { break };
            self.received += 1;
            self.letters.remove(&number);
        }
    }

    /// What is of older rounds need not come any more. Says whether the link is to be given up: for a
    /// whole round nothing was taken in on it, and whether the reader is there is found out when it
    /// is needed again.
    pub fn retire(&mut self, round: u64) -> bool {
        self.letters.retain(|_, letter| letter.0.round() >= round);
        let received = self.received;
        let is_silent = self.received_before.replace(received) == Some(received);
        is_silent && !self.sent.is_empty()
    }

    /// Those that were sent on this link and are not known to have come.
    pub fn on_their_way(&self) -> usize {
        self.sent.len()
    }

    /// Whether all have come.
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(round: u64, slot: u16) -> Letter {
        (ToPeer::Product { round, group: 0, slot }, Vec::new())
    }

    #[test]
    fn what_is_not_known_to_have_come_is_sent_again() {
        let mut letters = Letters::default();
        assert!(letters.put(letter(1, 0)).is_none(), "there is no link");
        assert!(letters.put(letter(1, 1)).is_none());
        assert_eq!(letters.linked().len(), 2);
        assert!(letters.put(letter(1, 2)).is_some());
        letters.received(1);
        letters.unlinked();
        assert!(letters.put(letter(2, 3)).is_none());
        let again: Vec<u64> = letters.linked().iter().map(|letter| letter.0.round()).collect();
        assert_eq!(again, [1, 1, 2]);
        letters.received(3);
        assert!(letters.is_empty());
    }

    #[test]
    fn letters_of_old_rounds_are_given_up_and_so_is_a_link_that_takes_nothing() {
        let mut letters = Letters::default();
        letters.put(letter(1, 0));
        letters.put(letter(2, 0));
        letters.linked();
        assert!(!letters.retire(2), "a round must have passed");
        letters.received(1);
        assert!(!letters.retire(3));
        assert!(letters.is_empty());
        assert!(letters.retire(4), "one of those sent was never taken");
    }
}
