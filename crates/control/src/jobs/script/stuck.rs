//! Who waits for whom in a job that goes on without getting anywhere.
//!
//! Owns the words. What is known of each process is its connections, whether it computes, and its last
//! line: the two ends of one connection have each other's ports. Pure, but for [`Looking`], which asks
//! machines on threads.

use planaria_fleet::messages::questions::{Peer, PeerState};
use planaria_fleet::remote::Remote;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// Characters of a last line that are shown.
const LINE_MAX: usize = 120;
/// Processes that are named at most.
const TOLD_MAX: usize = 16;

/// A process of the job.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    pub id: u32,
    /// `worker 0 on h1`.
    pub title: String,
    /// Whether it has ended well.
    pub is_done: bool,
    /// Its connections, and whether it computes; nothing where its machine did not say.
    pub peers: Option<(Vec<Peer>, bool)>,
    pub last_line: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The process that the others wait for, where that can be seen.
    pub first: Option<u32>,
    /// Whether all wait, each for others that do.
    pub is_mutual: bool,
    /// A line for each process.
    pub lines: Vec<String>,
}

/// Says who waits for whom.
pub fn explain(all: &[Known]) -> Found {
    // Blamed are processes that have left; else those that never joined; else those that do not
    // read what others sent; else those that compute while others wait.
    let running = || all.iter().filter(|known| !known.is_done);
    let is_joined = |known: &&Known| !known.partners(all).is_empty();
    let left = all.iter().find(|known| known.is_done);
    let alone =
        || running().find(|known| !is_joined(known)).filter(|_| running().any(|k| is_joined(&k)));
    let deaf = || running().find(|known| known.unread(all).next().is_some());
    let busy = || running().find(|known| known.peers.as_ref().is_some_and(|(_, busy)| *busy));
    // Of one there is nothing to choose.
    let named = left.or_else(alone).or_else(deaf).or_else(busy).filter(|_| all.len() > 1);
    let waits = |known: &Known| matches!(known.peers, Some((_, false))) && is_joined(&known);
    let is_mutual = named.is_none() && all.len() > 1 && all.iter().all(waits);
    let mut lines: Vec<String> = all.iter().take(TOLD_MAX).map(|known| known.line(all)).collect();
    if let Some(more) = all.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
        lines.push(format!("and {more} more"));
    }
    Found { first: named.map(|known| known.id), is_mutual, lines }
}

impl Known {
    /// Its connections with other processes of the job.
    fn partners<'a>(&'a self, all: &'a [Self]) -> Vec<(&'a Self, &'a Peer)> {
        let connected = |peer: &&Peer| peer.state == PeerState::Connected;
        let other_end = |peer: &'a Peer| {
            let is_end = |other: &&'a Self| {
                let theirs = other.peers.iter().flat_map(|(peers, _)| peers).filter(connected);
                let ports = (peer.remote_port, peer.local_port);
                other.id != self.id
                    && theirs.clone().any(|p| (p.local_port, p.remote_port) == ports)
            };
            all.iter().find(is_end).map(|other| (other, peer))
        };
        let own = self.peers.iter().flat_map(|(peers, _)| peers);
        own.filter(connected).filter_map(other_end).collect()
    }

    /// Others that have sent it what it has not read, with the bytes.
    fn unread<'a>(&'a self, all: &'a [Self]) -> impl Iterator<Item = (&'a str, u64)> {
        let mut by_other: BTreeMap<u32, (&str, u64)> = BTreeMap::new();
        for (other, peer) in self.partners(all) {
            by_other.entry(other.id).or_insert((&other.title, 0)).1 += u64::from(peer.unread_bytes);
        }
        by_other.into_values().filter(|(_, bytes)| *bytes > 0)
    }

    fn line(&self, all: &[Self]) -> String {
        let last = self.last_line.as_deref().unwrap_or("nothing");
        let last: String = last.chars().take(LINE_MAX).collect();
        format!("{}: {}; it wrote last: {last}", self.title, self.does(all))
    }

    fn does(&self, all: &[Self]) -> String {
        let Some((peers, is_busy)) = &self.peers else {
            return match self.is_done {
                true => "has ended well".into(),
                false => "its machine does not say what it does".into(),
            };
        };
        let others: BTreeMap<u32, &str> =
            self.partners(all).iter().map(|(other, _)| (other.id, &*other.title)).collect();
        let others: Vec<&str> = others.into_values().collect();
        let mut does = if *is_busy { "computes" } else { "waits" }.to_owned();
        does += match others.is_empty() {
            true if all.len() == 1 => "",
            true => ", connected to none of the others",
            false => ", connected to ",
        };
        does += &others.join(", ");
        for (other, bytes) in self.unread(all) {
            does += &format!(", has not read {bytes} bytes from {other}");
        }
        let count = |state| peers.iter().filter(|peer| peer.state == state).count();
        for (state, how) in
            [(PeerState::Connecting, "unanswered"), (PeerState::Closed, "closed by the other end")]
        {
            if count(state) > 0 {
                does += &format!(", {} of its connections {how}", count(state));
            }
        }
        does
    }
}

/// A process whose machine is asked: what is known of it, and where it runs.
pub type Question = (Known, Option<At>);

/// Where a process runs: its machine by number and by its link, and the process's number there.
pub struct At {
    pub machine: u32,
    pub remote: Arc<Remote>,
    pub pid: u32,
}

/// Machines that are asked.
pub struct Looking(Receiver<Found>);

impl Looking {
    /// Asks all machines at the same time.
    pub fn begin(questions: Vec<Question>) -> Self {
        let (tell, told) = channel();
        let mut by_machine: BTreeMap<Option<u32>, Vec<Question>> = BTreeMap::new();
        for question in questions {
            let machine = question.1.as_ref().map(|at| at.machine);
            by_machine.entry(machine).or_default().push(question);
        }
        let work = move || {
            let mut all: Vec<Known> = std::thread::scope(|scope| {
                let ask = |questions: Vec<Question>| scope.spawn(move || asked(questions));
                let asking: Vec<_> = by_machine.into_values().map(ask).collect();
                asking.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
            });
            all.sort_by_key(|known| known.id);
            let _ = tell.send(explain(&all));
        };
        // Without a thread the sender is dropped, and nothing is found.
        let _ = std::thread::Builder::new().name("stuck".into()).spawn(work);
        Self(told)
    }

    /// What was found, once it is.
    pub fn take(&self) -> Option<Found> {
        match self.0.try_recv() {
            Ok(found) => Some(found),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Found::default()),
        }
    }
}

/// Asks one machine about its processes; after one question without an answer there is no other.
fn asked(questions: Vec<Question>) -> Vec<Known> {
    let mut is_silent = false;
    let ask = |(known, at): Question| {
        let Some(at) = at.filter(|_| !is_silent) else { return known };
        let peers = at.remote.peers(at.pid).ok();
        is_silent = peers.is_none();
        Known { peers, ..known }
    };
    questions.into_iter().map(ask).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process with connections: port here, port there, bytes unread.
    fn known(id: u32, ports: &[(u16, u16, u32)], is_busy: bool) -> Known {
        let peer = |&(local_port, remote_port, unread_bytes): &(u16, u16, u32)| Peer {
            local_port,
            remote_port,
            state: PeerState::Connected,
            unread_bytes,
        };
        let peers = Some((ports.iter().map(peer).collect(), is_busy));
        let last_line = Some(format!("step {id}"));
        Known { id, title: format!("worker {id}"), is_done: false, peers, last_line }
    }

    #[test]
    fn who_computes_while_others_wait_is_named() {
        let ring = [
            known(0, &[(1, 9, 0), (2, 8, 0)], false),
            known(1, &[(9, 1, 0)], true),
            known(2, &[(8, 2, 0)], false),
        ];
        let found = explain(&ring);
        assert_eq!(found.first, Some(1));
        assert_eq!(
            found.lines,
            [
                "worker 0: waits, connected to worker 1, worker 2; it wrote last: step 0",
                "worker 1: computes, connected to worker 0; it wrote last: step 1",
                "worker 2: waits, connected to worker 0; it wrote last: step 2",
            ]
        );
    }

    #[test]
    fn who_does_not_read_what_was_sent_is_named() {
        let pair = [known(0, &[(1, 9, 0)], true), known(1, &[(9, 1, 64), (7, 7, 5)], false)];
        let found = explain(&pair);
        assert_eq!(found.first, Some(1));
        assert!(found.lines[1].contains(", has not read 64 bytes from worker 0;"), "{found:?}");
    }

    #[test]
    fn who_never_joined_or_has_left_is_named() {
        let mut all = [
            known(0, &[(1, 9, 0)], true),
            known(1, &[(9, 1, 0)], false),
            known(2, &[(5, 6, 0)], false),
        ];
        let found = explain(&all);
        assert_eq!(found.first, Some(2));
        assert!(found.lines[2].contains("connected to none of the others"), "{found:?}");
        all[0] = Known { is_done: true, peers: None, ..all[0].clone() };
        let found = explain(&all);
        assert_eq!(found.first, Some(0));
        assert!(found.lines[0].starts_with("worker 0: has ended well;"), "{found:?}");
        all[0].is_done = false;
        assert!(explain(&all).lines[0].contains("its machine does not say"));
    }

    #[test]
    fn where_nothing_points_at_one_none_is_named() {
        let pair = [known(0, &[(1, 9, 0)], false), known(1, &[(9, 1, 0)], false)];
        let found = explain(&pair);
        assert_eq!((found.first, found.is_mutual), (None, true));
        // Strangers to each other wait for something else.
        let found = explain(&[known(0, &[], false), known(1, &[], false)]);
        assert_eq!((found.first, found.is_mutual), (None, false));
        let found = explain(&[known(0, &[], true)]);
        assert_eq!((found.first, found.is_mutual), (None, false));
        assert_eq!(found.lines, ["worker 0: computes; it wrote last: step 0"]);
    }
}
