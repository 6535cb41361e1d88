//! Whom a process believes at this moment: its newest certificate, and machines that were given up.
//!
//! Owns what of that changes while a process lives, which it is told over the pipe of its orders
//! ([`Word`]); all its credentials share it. Links of a machine that is given up end at once. Never
//! asks a clock: the time of the run is in the certificates.

use crate::error::Error;
use crate::identity::Identity;
use crate::outbox::Outbox;
use crate::tls::Trusted;
use crate::trust::Trust;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Machines that are remembered: a run has fewer, and one that is forgotten is the first by name.
const MACHINES_MAX: usize = 16 << 10;

/// Longest line of a word: what a pipe takes at once, or not at all.
pub const WORD_BYTES_MAX: usize = 4096;

/// What a process is told while it lives: a line of JSON on its standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// Show this from now on.
    Trust(Trust),
    /// Believe no certificate of a machine any more that has a smaller number.
    GivenUp { machine: String, before: u64 },
}

impl Word {
    /// For the pipe; nothing where it is longer than a pipe takes at once.
    pub fn line(&self) -> Option<Vec<u8>> {
        let mut line = serde_json::to_vec(self).expect("plain strings and numbers");
        line.push(b'\n');
        (line.len() <= WORD_BYTES_MAX).then_some(line)
    }
}

/// See the module. Clones share what they know.
#[derive(Clone, Default)]
pub struct Standing(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    trusted: Option<Trusted>,
    /// By machine: certificates with smaller numbers are not believed.
    given_up: BTreeMap<String, u64>,
    /// Links whose other end has shown who it is.
    links: Vec<(Identity, Weak<Outbox>)>,
}

impl Standing {
    /// Takes in what the process was told.
    pub fn hear(&self, word: &Word) -> Result<(), Error> {
        match word {
            Word::Trust(trust) => self.renew(trust),
            Word::GivenUp { machine, before } => {
                self.give_up(machine, *before);
                Ok(())
            }
        }
    }

    /// Shows this certificate from now on.
    pub fn renew(&self, trust: &Trust) -> Result<(), Error> {
        let trusted = Trusted::new(trust)?;
        self.state().trusted = Some(trusted);
        Ok(())
    }

    /// Believes no certificate of this machine with a smaller number, and ends links under them.
    pub fn give_up(&self, machine: &str, before: u64) {
        let mut state = self.state();
        let most = state.given_up.entry(machine.to_owned()).or_default();
        *most = before.max(*most);
        while state.given_up.len() > MACHINES_MAX {
            state.given_up.pop_first();
        }
        let State { given_up, links, .. } = &mut *state;
        links.retain(|(identity, link)| match link.upgrade() {
            Some(link) if is_given_up(given_up, identity) => {
                link.close();
                false
            }
            link => link.is_some(),
        });
    }

    /// Refuses certificates of machines that were given up.
    pub(crate) fn check(&self, identity: &Identity) -> Result<(), Error> {
        match is_given_up(&self.state().given_up, identity) {
            true => Err(Error::GivenUp(identity.to_string())),
            false => Ok(()),
        }
    }

    /// Remembers a link, so that it ends when the other end's machine is given up; refuses it where
    /// that has happened meanwhile.
    pub(crate) fn keep(&self, identity: Identity, link: &Arc<Outbox>) -> Result<(), Error> {
        let mut state = self.state();
        if is_given_up(&state.given_up, &identity) {
            return Err(Error::GivenUp(identity.to_string()));
        }
        state.links.retain(|(_, link)| link.strong_count() > 0);
        state.links.push((identity, Arc::downgrade(link)));
        Ok(())
    }

    pub(crate) fn trusted(&self) -> Option<Trusted> {
        self.state().trusted.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics with it")
    }
}

fn is_given_up(given_up: &BTreeMap<String, u64>, identity: &Identity) -> bool {
    let before = identity.machine.as_ref().and_then(|machine| given_up.get(machine));
    before.is_some_and(|before| identity.number < *before)
}

impl std::fmt::Debug for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Standing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Agent;

    #[test]
    fn a_machine_that_was_given_up_is_believed_again_with_a_new_certificate_only() {
        let of = |machine: Option<&str>, number| Identity {
            agent: Agent::Worker(1),
            machine: machine.map(str::to_owned),
            number,
        };
        let standing = Standing::default();
        standing.hear(&Word::GivenUp { machine: "node1".into(), before: 5 }).expect("heard");
        assert!(standing.check(&of(Some("node1"), 4)).is_err());
        standing.check(&of(Some("node1"), 5)).expect("it came back");
        standing.check(&of(Some("node2"), 4)).expect("another machine");
        standing.check(&of(None, 4)).expect("the controller's own");
        // What comes late takes nothing back.
        standing.give_up("node1", 2);
        assert!(standing.check(&of(Some("node1"), 4)).is_err());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let standing = Standing::default();
        (0..MACHINES_MAX + 10).for_each(|n| standing.give_up(&format!("node{n:06}"), 1));
        assert_eq!(standing.state().given_up.len(), MACHINES_MAX);
    }

    #[test]
    fn words_are_lines_that_a_pipe_takes_at_once() {
        let word = Word::GivenUp { machine: "node\n1".into(), before: 3 };
        let line = word.line().expect("short");
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(serde_json::from_slice::<Word>(&line).expect("read"), word);
        assert_eq!(Word::GivenUp { machine: "x".repeat(5000), before: 3 }.line(), None);
    }
}
