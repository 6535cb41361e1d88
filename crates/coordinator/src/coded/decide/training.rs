//! Steps: planned, worked off, committed.

use super::member::{Fetched, Member};
use super::{Coded, Phase, Value};
use crate::coded::iteration::{self, Counted, Iteration, Order};
use crate::decide::course::Done;
use crate::decide::record::Pending;
use planaria_numerics::coding::{Error, Paused, Slot, Standing};
use planaria_protocol::event::{Products, What};
use planaria_protocol::message::Trouble;
use planaria_protocol::methods::coded::{Coefficient, Command, Effort, Peer, Report, Share};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Rounds of one coordinator; above them is its generation.
const ROUND_BITS: u32 = 40;

/// A step under way.
#[derive(Debug)]
pub(super) struct Work<E: Value> {
    pub iteration: Iteration<E>,
    pub round: u64,
    /// The weights, as they are sent.
    weights: Arc<Vec<u8>>,
    /// Since when it is waited for.
    pub since: Duration,
    /// How often it was late.
    pub times: u32,
}

impl<E: Value> Coded<E> {
    /// Begins the next step, if there are enough workers.
    pub(super) fn begin(&mut self, now: Duration) -> Result<bool, Trouble> {
        let present: BTreeSet<Slot> = self.seated().into_keys().collect();
        let batch = self.course.state().batch as usize;
        let places = self.setting.batches.places(batch);
        let arranged = match self.arrange(places, &present).map_err(trouble)? {
            Standing::Paused(paused) => {
                self.pause(paused);
                return Ok(false);
            }
            Standing::Ready(arranged) => arranged,
        };
        self.unpause(now);
        let weights = self.learner.weights(self.bounds.as_ref());
        let weights = weights.map_err(|e| self.learner.explained(&e))?;
        let iteration = Iteration::new(arranged.plan.clone());
        self.previous = Some(arranged);
        let weights = Arc::new(E::bytes(&weights));
        self.rounds += 1;
        // Later ones have larger numbers, whoever gives them.
        let round = (self.setting.generation << ROUND_BITS) | self.rounds;
        self.work = Some(Work { iteration, round, weights, since: now, times: 0 });
        Ok(true)
    }

    /// Asks for what can be asked for; true where the step has come to its end.
    pub(super) fn advance(&mut self, now: Duration) -> Result<bool, Trouble> {
        let seated = self.seated();
        let alive: BTreeSet<Slot> = seated.keys().copied().collect();
        let Some(work) = &mut self.work else { return Ok(false) };
        if work.iteration.is_finished() {
            self.commit(now)?;
            return Ok(true);
        }
        let (orders, paused) =
            work.iteration.orders(&self.setting.code, &alive).map_err(trouble)?;
        let (weights, round) = (work.weights.clone(), work.round);
        match paused {
            Some(paused) => self.pause(paused),
            None => self.unpause(now),
        }
        for (slot, order) in orders {
            let Some(worker) = seated.get(&slot).copied() else { continue };
            self.inform(worker, round, &weights);
            let address = |slot: Slot| {
                let worker = seated.get(&slot).and_then(|worker| self.members.get(worker));
                worker.map_or_else(String::new, |member| member.address.clone())
            };
            let message = message(round, order, address);
            self.order(worker, message, Arc::default(), "it is its turn");
        }
        Ok(false)
    }

    /// Sends a worker the weights of the step, if it does not have them.
    fn inform(&mut self, worker: u32, round: u64, weights: &Arc<Vec<u8>>) {
        let Some(member) = self.members.get_mut(&worker) else { return };
        if member.knows.replace(round) != Some(round) {
            let weights = weights.clone();
            self.worked.weights_bytes += weights.len() as u64;
            self.order(worker, Command::Weights { round }, weights, "the step before is committed");
        }
    }

    /// Takes in what a worker has computed.
    pub(super) fn answered(
        &mut self,
        now: Duration,
        worker: u32,
        said: Report,
        bulk: &[u8],
    ) -> Result<(), Trouble> {
        self.heard(worker, now);
        let slot = self.members.get(&worker).and_then(|member| member.slot);
        let values = || {
            E::take(bulk)
                .ok_or_else(|| Trouble::new(format!("worker-{worker} sent numbers that are none")))
        };
        let (Some(slot), Some(work)) = (slot, self.work.as_mut()) else {
            return self.settled(worker, said, bulk);
        };
        let own = work.round;
        match said {
            Report::Multiplied { round, group } if round == own => {
                work.iteration.multiplied(group as usize, slot);
            }
            Report::Arrived { round, group, slot: of } if round == own => {
                work.iteration.arrived(group as usize, Slot(of), slot);
            }
            Report::Decoded { round, group, attempt, counted, done } if round == own => {
                let counted = Counted {
                    loss_sum: counted.loss_sum,
                    correct: counted.correct,
                    read: counted.read,
                    sizes: counted.sizes,
                };
                work.iteration.decoded(group as usize, attempt, slot, counted);
                self.paced(worker, &done);
            }
            Report::Sum { round, ticket, done } if round == own => {
                work.iteration.sum(slot, ticket, values()?);
                self.worked.weights_bytes += bulk.len() as u64;
                self.paced(worker, &done);
            }
            said => return self.settled(worker, said, bulk),
        }
        Ok(())
    }

    /// What is said by those who come, and what comes too late to count.
    fn settled(&mut self, worker: u32, said: Report, bulk: &[u8]) -> Result<(), Trouble> {
        match said {
            Report::Offer { slots, address } => self.offered(worker, slots, address),
            Report::Rows { slot, cached, downloaded } => {
                let rows = Fetched { cached, downloaded };
                return self.fetched(worker, Slot(slot), rows, bulk);
            }
            Report::Sum { done, .. } | Report::Decoded { done, .. } => {
                self.paced(worker, &done);
            }
            Report::Multiplied { .. } | Report::Arrived { .. } => {}
        }
        Ok(())
    }

    fn paced(&mut self, worker: u32, done: &Effort) {
        self.worked.rows += done.rows;
        self.worked.sent_bytes += done.sent_bytes;
        self.worked.busy_seconds += done.busy_seconds;
        self.worked.decode_seconds += done.decode_seconds;
        if let Some(member) = self.members.get_mut(&worker) {
            Member::pace(member, done.rows, done.busy_seconds, done.waiting_seconds);
        }
    }

    /// All has come: the weights follow, and the step counts.
    fn commit(&mut self, now: Duration) -> Result<(), Trouble> {
        let Some(work) = self.work.take() else { return Ok(()) };
        self.forget_idle(work.iteration.plan());
        let rows = work.iteration.rows();
        self.worked.extra_rows += rows.extra;
        let (sums, counted) = work.iteration.finish(self.learner.len());
        let Counted { loss_sum, correct, read, sizes } = counted;
        let (step, epoch) = (self.course.state().step, self.course.state().epoch);
        if let Some(bounds) = &self.bounds {
            for (largest, sum) in sizes {
                let checked = bounds.columns().check_sizes(largest, sum);
                checked.map_err(|e| self.learner.explained(&e))?;
            }
        }
        let rate = self.course.learning_rate(step);
        if !loss_sum.is_finite() {
            return Err(Trouble {
                message: format!("training failed at step {}: the loss is {loss_sum}", step + 1),
                hint: Some(format!("lower the learning rate (it was {rate})")),
                fix_input: false,
            });
        }
        self.learner.learn(step, rate, read.count, &sums)?;
        self.unkept = true;
        self.scores = None;
        let seconds = now.saturating_sub(self.stepped).as_secs_f64();
        match self.wound.take() {
            None => self.patience.measured(seconds),
            Some(after) => {
                let usual = self.patience.typical().unwrap_or(0.0);
                let healed = What::Healed {
                    step,
                    after,
                    stalled_seconds: (seconds - usual).max(0.0),
                    // There are none; rows are counted with what workers did.
                    recomputed_shards: 0,
                    shard_seconds: 0.0,
                };
                self.record(healed, "it is the first step after that");
            }
        }
        self.stepped = now;
        let done = Done { loss_sum, correct, examples: read.count, seconds, read };
        let line = self.course.stepped(self.seconds(now), &done);
        self.count(Pending { epoch, first_step: step, end_step: step + 1, read });
        if let Some(what) = line {
            self.tell_pending();
            self.record(what, "a line is due");
        }
        Ok(())
    }

    /// Adds a step to those that an event is to tell.
    fn count(&mut self, step: Pending) {
        match &mut self.pending {
            Some(pending) if pending.epoch == step.epoch && pending.end_step == step.first_step => {
                pending.end_step = step.end_step;
                pending.read = pending.read.combine(step.read);
            }
            _ => {
                self.tell_pending();
                self.pending = Some(step);
            }
        }
    }

    /// Tells the committed steps that no event has told.
    pub(super) fn tell_pending(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.unkept = true;
            self.record(pending.event(), "they are committed");
        }
    }

    /// Tells what workers did.
    pub(super) fn tell_worked(&mut self) {
        let worked = std::mem::take(&mut self.worked);
        if worked != Products::default() {
            self.record(What::Worked(worked), "a while is over");
        }
    }

    pub(super) fn pause(&mut self, paused: Paused) {
        let is_busy = matches!(self.phase, Phase::Training | Phase::Scoring(..));
        if is_busy && self.paused != Some(paused) {
            let was_paused = self.paused.replace(paused).is_some();
            if !was_paused {
                let (workers, min) = (paused.have as u32, paused.need as u32);
                self.record(What::Paused { workers, min }, paused.to_string());
            }
        }
    }

    pub(super) fn unpause(&mut self, now: Duration) {
        if self.paused.take().is_none() {
            return;
        }
        self.stepped = now;
        if let Some(work) = &mut self.work {
            work.since = now;
        }
        let workers = self.seated().len() as u32;
        self.record(What::Unpaused { workers }, "there are enough workers");
    }
}

fn message<S: Coefficient + Copy>(
    round: u64,
    order: Order<S>,
    address: impl Fn(Slot) -> String,
) -> Command {
    let wide = |places: Range<usize>| places.start as u64..places.end as u64;
    let peer = |slot: Slot| Peer { slot: slot.0, address: address(slot) };
    let share = |share: iteration::Share<S>| Share {
        of: share.of.0,
        coefficient: share.coefficient.to_wire(),
        to: peer(share.to),
        debt: share.debt,
    };
    let names = |slots: Vec<Slot>| slots.into_iter().map(|slot| slot.0).collect();
    match order {
        Order::Multiply { group, places, to } => {
            Command::Multiply { round, group: group as u32, places: wide(places), to: peer(to) }
        }
        Order::Decode { group, places, attempt, inputs, outputs, shares } => Command::Decode {
            round,
            group: group as u32,
            places: wide(places),
            attempt,
            inputs: names(inputs),
            outputs: names(outputs),
            shares: shares.into_iter().map(share).collect(),
        },
        Order::Share { group, shares } => Command::Share {
            round,
            group: group as u32,
            shares: shares.into_iter().map(share).collect(),
        },
        Order::Deliver { ticket, debts } => Command::Deliver { round, ticket, debts },
    }
}

/// What the user must change.
fn trouble(error: Error) -> Trouble {
    Trouble { fix_input: true, ..Trouble::new(error) }
}
