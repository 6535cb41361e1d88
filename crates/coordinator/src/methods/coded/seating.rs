//! Workers that come, and where they sit.

use super::CodedRun;
use super::seat::{Fetched, Seat};
use planaria_numerics::coding::{Slot, handover};
use planaria_protocol::message::Trouble;
use planaria_protocol::methods::coded::Command;
use std::collections::{BTreeMap, BTreeSet};

impl CodedRun {
    /// A worker has opened its data.
    pub(super) fn offered(&mut self, worker: u32, slots: Vec<u16>, address: String) {
        let is_new = !self.method.seats.contains_key(&worker);
        if is_new && self.members.workers.get(&worker).is_some_and(|m| m.has_joined()) {
            let kept = slots.into_iter().map(Slot).collect();
            self.method.seats.insert(worker, Seat::new(address, kept));
            self.seat();
        }
    }

    /// Gives every worker that has none a slot: one whose rows its machine has, else the lowest.
    pub(super) fn seat(&mut self) {
        let mut taken: BTreeSet<Slot> = self.method.seats.values().filter_map(|s| s.slot).collect();
        let machines = self.method.settings.code.machines();
        let mut seated = Vec::new();
        for (worker, seat) in self.method.seats.range_mut(..self.wanted) {
            if seat.slot.is_some() {
                continue;
            }
            let Some(slot) = handover::seat(machines, &taken, &seat.kept) else { break };
            taken.insert(slot);
            seat.slot = Some(slot);
            seated.push((*worker, slot));
        }
        for (worker, slot) in seated {
            self.order(worker, Command::Seat { slot: slot.0 }, None, "the slot is free");
        }
    }

    /// A worker's rows are there, and with them what bounds products.
    pub(super) fn fetched(
        &mut self,
        worker: u32,
        slot: Slot,
        rows: Fetched,
        bounds: &[u8],
    ) -> Result<(), Trouble> {
        let Some(seat) = self.method.seats.get_mut(&worker) else { return Ok(()) };
        if seat.slot != Some(slot) {
            return Ok(());
        }
        seat.fetched = Some(rows);
        if self.method.bounds.is_none() && !bounds.is_empty() {
            let bounds = serde_json::from_slice(bounds).map_err(|e| {
                Trouble::new(format!("worker-{worker}: its columns cannot be read: {e}"))
            })?;
            self.method.bounds = Some(bounds);
        }
        Ok(())
    }

    /// Those who can be given work, by slot.
    pub(super) fn seated(&self) -> BTreeMap<Slot, u32> {
        let active = self.active().into_iter();
        active.filter_map(|worker| Some((self.method.seats.get(&worker)?.slot?, worker))).collect()
    }
}
