//! What a server does with what workers bring and ask for. The hot path: gradients are read straight
//! into the blocks, and new parameters are sent from there.

use super::super::chunk::{Bulk, FromLink, Turn};
use super::super::followers::alone;
use super::super::store::{Copied, Entered, Progress, Reach, Refused, Store};
use super::super::tally::Counted;
use super::{Outlet, Peer, Server};
use planaria_numerics::tree::Segment;
use planaria_protocol::bytes;
use planaria_protocol::message::{FromServer, Pull, Push, Trouble};
use planaria_store::hash::Hasher;
use std::sync::atomic::Ordering;

/// Some blocks of a step's gradient.
struct Piece {
    at: Turn,
    segment: Segment,
    first_block: usize,
}

impl Server {
    /// Whether [`Server::push`] would wait for a step's turn.
    pub fn would_wait(&self, push: &Push) -> bool {
        let Ok(store) = self.store() else { return false };
        match push {
            Push::State { step } => store.reach_would_wait(store.era(), *step),
            Push::Gradient { step, .. } | Push::Shard { step, .. } => store.enter_would_wait(*step),
            // Who wants a step to come is remembered: its link may bring what that step needs.
            Push::Follow { .. } | Push::Unfollow => false,
        }
    }

    /// Takes what a worker pushes. An error ends its link.
    pub fn push(
        &self,
        from: Peer,
        push: &Push,
        bulk: &mut dyn Bulk,
        outlet: &dyn Outlet,
    ) -> Result<(), Trouble> {
        let (store, era) = self.admit(from)?;
        let at = |step| Turn { era, step };
        match *push {
            Push::Follow { step } => self.wish(&store, from, at(step), outlet),
            Push::Unfollow => {
                let peer_lock = self.followers.peer_lock(from);
                let _alone = alone(&peer_lock);
                self.followers.forget(from);
                self.followers.remove(from);
                Ok(())
            }
            Push::State { step } => state(&store, from, at(step), outlet),
            Push::Gradient { step, first_shard, shards, first_block } => {
                let segment = Segment { first: first_shard as usize, count: shards as usize };
                let piece = Piece { at: at(step), segment, first_block: first_block as usize };
                self.gradient(&store, from, piece, bulk, outlet)
                    .map_err(|e| Trouble::new(format!("cannot take its gradient: {e}")))
            }
            Push::Shard { step, shard, loss_sum, correct, read } => {
                let counted = Counted { loss_sum, correct, read };
                self.count(&store, at(step), shard, counted, bulk, outlet)
            }
        }
    }

    /// Workers whose wish to follow has waited for a step that is committed by now. Each is to be
    /// given to [`Server::begin_following`], on a thread of its own where threads are.
    pub fn due(&self) -> Vec<Peer> {
        self.store().map_or_else(|_| Vec::new(), |store| self.followers.due(store.step()))
    }

    /// Does what a worker has waited for; see [`Server::due`]. An error ends its link.
    pub fn begin_following(&self, peer: Peer, outlet: &dyn Outlet) -> Result<(), Trouble> {
        let (store, era) = self.admit(peer)?;
        let peer_lock = self.followers.peer_lock(peer);
        let _alone = alone(&peer_lock);
        // It may have wished for something else meanwhile.
        match self.followers.forget(peer) {
            Some(step) => self.follow_or_wait(&store, peer, Turn { era, step }, outlet),
            None => Ok(()),
        }
    }

    /// A worker's link has ended.
    pub fn left(&self, peer: Peer) {
        self.followers.left(peer);
        if let Ok(store) = self.store() {
            store.leave(peer.link);
        }
    }

    /// A worker wants to follow from a step on, and nothing that it wanted before.
    fn wish(
        &self,
        store: &Store,
        from: Peer,
        at: Turn,
        outlet: &dyn Outlet,
    ) -> Result<(), Trouble> {
        let peer_lock = self.followers.peer_lock(from);
        let _alone = alone(&peer_lock);
        self.follow_or_wait(store, from, at, outlet)
    }

    /// Lets it follow, or remembers that it waits; the peer is locked.
    fn follow_or_wait(
        &self,
        store: &Store,
        from: Peer,
        at: Turn,
        outlet: &dyn Outlet,
    ) -> Result<(), Trouble> {
        self.followers.wait(from, at.step);
        // Looked at after that is noted: a commit in between finds it.
        if store.reach_would_wait(at.era, at.step) {
            return Ok(());
        }
        self.followers.forget(from);
        self.follow(store, from, at, outlet)
    }

    /// Sends all parameters after a step, and those of every later step from then on.
    fn follow(
        &self,
        store: &Store,
        from: Peer,
        at: Turn,
        outlet: &dyn Outlet,
    ) -> Result<(), Trouble> {
        let step = at.step;
        let mut reached = store.reach(at.era, step);
        if reached == Reach::There {
            // From before the copy on, so that no step falls in between.
            self.followers.add(from);
            let known = *self.hash.lock().expect("no thread panics with the hash");
            let known = known.filter(|(of, _)| *of == step);
            let mut hash = Hasher::new();
            let mut copied = Copied::default();
            for chunk in 0..store.chunks() {
                let block;
                (block, reached) = store.parameters(chunk, at, &mut copied);
                if reached != Reach::There {
                    break;
                }
                if known.is_none() {
                    hash.update(bytes::as_bytes(&copied.parameters));
                }
                let first_block = block as u32;
                let now = Pull::Parameters { step, first_block };
                let then = Pull::Parameters { step: step + 1, first_block };
                if !outlet.answer(from, &now, &copied.parameters)
                    || !copied.next.is_empty() && !outlet.answer(from, &then, &copied.next)
                {
                    self.followers.remove(from);
                    return Ok(());
                }
            }
            if reached == Reach::There {
                let sha256 = known.map_or_else(|| hash.finish(), |(_, sha256)| sha256);
                *self.hash.lock().expect("no thread panics with the hash") = Some((step, sha256));
                let pulled = FromServer::Pulled { worker: from.worker, step, sha256 };
                outlet.coordinator(&pulled, &[]);
                return Ok(());
            }
        }
        self.followers.remove(from);
        gone(reached, from, step, outlet)
    }

    fn gradient(
        &self,
        store: &Store,
        from: Peer,
        piece: Piece,
        bulk: &mut dyn Bulk,
        outlet: &dyn Outlet,
    ) -> Result<(), Refused> {
        let Piece { at: Turn { era, step }, segment, first_block } = piece;
        let Some(entered) = store.enter(era, step)? else {
            // Its step is over: counted already, from the worker that sent it first.
            store.note_late();
            return Ok(bulk.skip(bulk.bytes() / size_of::<f32>())?);
        };
        let index = entered.round.segment(segment).ok_or(Refused::Segment(segment, step))?;
        let ready = |block: usize, values: &[f32]| self.hand_out(step, block, values, outlet);
        let from = FromLink { link: from.link, segment: index };
        let progress = store.gradient(&entered, from, first_block, bulk, ready)?;
        self.report(store, step, progress, outlet);
        Ok(())
    }

    pub(super) fn report(&self, store: &Store, step: u64, progress: Progress, outlet: &dyn Outlet) {
        let message = match progress {
            Progress::Gathering => return,
            Progress::Summed => FromServer::Summed { step },
            Progress::Applied => FromServer::Applied { step },
        };
        let mut squares = self.squares.lock().expect("no thread panics with the squares");
        squares.clear();
        // Where they are clipped, they were told with `Summed`.
        let clips = self.recipe.train.clip_norm.is_some();
        if progress == Progress::Summed || !clips {
            store.squares(&mut squares);
        }
        outlet.coordinator(&message, &squares);
    }

    /// Sends new parameters to all followers.
    pub(super) fn hand_out(&self, step: u64, block: usize, values: &[f32], outlet: &dyn Outlet) {
        let message = Pull::Parameters { step: step + 1, first_block: block as u32 };
        let waiting_max = self.waiting_max.load(Ordering::Relaxed);
        for peer in self.followers.all().iter() {
            if !outlet.hand_out(*peer, &message, values, waiting_max) {
                self.followers.remove(*peer);
            }
        }
    }

    fn count(
        &self,
        store: &Store,
        Turn { era, step }: Turn,
        shard: u32,
        counted: Counted,
        bulk: &mut dyn Bulk,
        outlet: &dyn Outlet,
    ) -> Result<(), Trouble> {
        if self.place.index != 0 {
            return Err(Trouble::new("only server 0 counts shards"));
        }
        let Some(Entered { turn, .. }) = store.enter(era, step).map_err(Trouble::new)? else {
            store.note_late();
            return bulk.skip(bulk.bytes() / size_of::<f32>()).map_err(Trouble::new);
        };
        let shards = self.recipe.train.shards;
        if shard as usize >= shards {
            return Err(Trouble::new(format!("shard {shard} of step {step} is not of {shards}")));
        }
        // Read before the tally is taken, so that a slow link keeps no other from counting.
        let spare = self.lock_statistics().pop();
        let mut stats = spare.unwrap_or_else(|| vec![0.0; self.network.stats_count()]);
        if stats.len() * size_of::<f32>() != bulk.bytes() {
            let (sent, count) = (bulk.bytes(), stats.len());
            return Err(Trouble::new(format!("{sent} bytes of statistics are not {count} values")));
        }
        let read = bulk.read(&mut stats).map_err(Trouble::new);
        let whole = read.map(|()| store.count(turn, shard as usize, counted, &stats));
        self.lock_statistics().push(stats);
        if let Some((Counted { loss_sum, correct, read }, progress)) = whole? {
            outlet.coordinator(&FromServer::Counted { step, loss_sum, correct, read }, &[]);
            self.report(store, step, progress, outlet);
        }
        Ok(())
    }
}

/// Sends the state after a step.
fn state(store: &Store, from: Peer, at: Turn, outlet: &dyn Outlet) -> Result<(), Trouble> {
    let Turn { era, step } = at;
    let reached = store.reach(era, step);
    if reached != Reach::There {
        return gone(reached, from, step, outlet);
    }
    match store.state(era, step) {
        None => Err(Trouble::new("only server 0 keeps the state")),
        Some((state, Reach::There)) => {
            outlet.answer(from, &Pull::State { step }, &state);
            Ok(())
        }
        Some((_, reached)) => gone(reached, from, step, outlet),
    }
}

/// Tells a worker that what it asked for is over.
fn gone(reached: Reach, from: Peer, step: u64, outlet: &dyn Outlet) -> Result<(), Trouble> {
    if reached == Reach::Over {
        return Err(Trouble::new("the server is ending"));
    }
    outlet.answer(from, &Pull::Gone { step }, &[]);
    Ok(())
}
