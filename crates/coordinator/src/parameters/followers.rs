//! Who is sent every step's parameters, and who waits for a step to begin with.
//!
//! A worker that asks for a step that is still to come is remembered, not waited for: its link must stay
//! open to what that step may need. Owns no values and sends nothing.

use super::outlet::Peer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Debug, Default)]
pub struct Followers {
    /// Shared, so that no thread holds the lock while sending.
    all: Mutex<Arc<Vec<Peer>>>,
    /// The step that each waits for.
    waiting: Mutex<BTreeMap<Peer, u64>>,
    /// One thread at a time does what a link asks for.
    peer_locks: Mutex<BTreeMap<Peer, Arc<Mutex<()>>>>,
}

impl Followers {
    pub fn all(&self) -> Arc<Vec<Peer>> {
        self.lock_all().clone()
    }

    /// From now on it follows.
    pub fn add(&self, peer: Peer) {
        let mut all = self.lock_all();
        if !all.contains(&peer) {
            Arc::make_mut(&mut all).push(peer);
        }
    }

    /// It follows no more.
    pub fn remove(&self, peer: Peer) {
        let mut all = self.lock_all();
        if all.contains(&peer) {
            Arc::make_mut(&mut all).retain(|other| *other != peer);
        }
    }

    /// It waits for a step, and for no other.
    pub fn wait(&self, peer: Peer, step: u64) {
        self.lock_waiting().insert(peer, step);
    }

    /// It waits no more; says for what it did.
    pub fn forget(&self, peer: Peer) -> Option<u64> {
        self.lock_waiting().remove(&peer)
    }

    /// Workers that wait for no more than `step` committed steps.
    pub fn due(&self, step: u64) -> Vec<Peer> {
        let waiting = self.lock_waiting();
        waiting.iter().filter(|(_, wanted)| **wanted <= step).map(|(peer, _)| *peer).collect()
    }

    /// Held by the thread that does what a link asks for, so that an older wish is never served
    /// after a newer one.
    pub fn peer_lock(&self, peer: Peer) -> Arc<Mutex<()>> {
        self.lock_peers().entry(peer).or_default().clone()
    }

    /// Its link has ended.
    pub fn left(&self, peer: Peer) {
        let peer_lock = self.peer_lock(peer);
        let _alone = alone(&peer_lock);
        self.forget(peer);
        self.remove(peer);
        self.lock_peers().remove(&peer);
    }

    /// No worker follows or waits.
    pub fn clear(&self) {
        *self.lock_all() = Arc::default();
        self.lock_waiting().clear();
    }

    fn lock_all(&self) -> MutexGuard<'_, Arc<Vec<Peer>>> {
        self.all.lock().expect("no thread panics with the followers")
    }

    fn lock_waiting(&self) -> MutexGuard<'_, BTreeMap<Peer, u64>> {
        self.waiting.lock().expect("no thread panics with the waiting workers")
    }

    fn lock_peers(&self) -> MutexGuard<'_, BTreeMap<Peer, Arc<Mutex<()>>>> {
        self.peer_locks.lock().expect("no thread panics with the locks")
    }
}

/// Until it is dropped, no other thread serves this peer.
pub fn alone(peer_lock: &Mutex<()>) -> MutexGuard<'_, ()> {
    peer_lock.lock().expect("no thread panics with a peer")
}
