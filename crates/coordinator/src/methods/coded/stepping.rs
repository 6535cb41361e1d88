//! Steps: planned, worked off, committed.

use super::iteration::{self, Counted, Iteration, Order};
use super::seat::Fetched;
use super::{Coded, CodedRun};
use crate::run::{self, Action, Shortage};
use planaria_numerics::coding::{Error, Paused, Slot, Standing};
use planaria_protocol::event::{Products, What};
use planaria_protocol::message::{ToWorker, Trouble};
use planaria_protocol::methods::coded::{Command, Effort, Peer, Report, Share};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Rounds of one coordinator; above them is its generation.
const ROUND_BITS: u32 = 40;

/// A step under way.
#[derive(Debug)]
pub(super) struct Work {
    pub iteration: Iteration,
    pub round: u64,
    /// The weights, as they are sent.
    weights: Arc<Vec<u8>>,
    /// Since when it is waited for.
    pub since: Duration,
    /// Times it was late.
    pub times: u32,
}

impl CodedRun {
    /// Begins the next step, if there are enough workers.
    pub(super) fn begin_round(&mut self, now: Duration) -> Result<bool, Trouble> {
        let present: BTreeSet<Slot> = self.seated().into_keys().collect();
        let batch = self.course.state().batch as usize;
        let places = self.method.settings.batches.places(batch);
        let arranged = match self.arrange(places, &present).map_err(trouble)? {
            Standing::Paused(paused) => {
                self.pause(paused.into());
                return Ok(false);
            }
            Standing::Ready(arranged) => arranged,
        };
        self.go_on_again(now);
        let (code, learner) = (&*self.method.settings.code, &self.method.learner);
        let weights = learner.weights(code, self.method.bounds.as_ref());
        let weights = Arc::new(weights.map_err(|e| learner.explained(&e))?);
        let iteration = Iteration::new(arranged.plan.clone(), code);
        self.count_moved(&arranged);
        self.method.previous = Some(arranged);
        self.method.rounds += 1;
        // Later ones have larger numbers, whichever coordinator gives them.
        let round = (self.method.settings.generation << ROUND_BITS) | self.method.rounds;
        self.method.work = Some(Work { iteration, round, weights, since: now, times: 0 });
        Ok(true)
    }

    /// Asks for what can be asked for; false where nothing is under way, or the step is done.
    pub(super) fn advance_round(&mut self, now: Duration) -> Result<bool, Trouble> {
        let seated = self.seated();
        let alive: BTreeSet<Slot> = seated.keys().copied().collect();
        let Some(work) = &mut self.method.work else { return Ok(false) };
        if work.iteration.is_finished() {
            self.commit(now)?;
            return Ok(false);
        }
        let orders = work.iteration.orders(&*self.method.settings.code, &alive);
        let (orders, paused) = orders.map_err(trouble)?;
        let (weights, round) = (work.weights.clone(), work.round);
        match paused {
            Some(paused) => self.pause(paused.into()),
            None => self.go_on_again(now),
        }
        for (slot, order) in orders {
            let Some(worker) = seated.get(&slot).copied() else { continue };
            self.inform(worker, round, &weights);
            let address = |slot: Slot| {
                let seat = seated.get(&slot).and_then(|worker| self.method.seats.get(worker));
                seat.map_or_else(String::new, |seat| seat.address.clone())
            };
            let command = command(round, order, address);
            self.order(worker, command, None, "it is its turn");
        }
        Ok(true)
    }

    /// There are enough workers for what is left.
    fn go_on_again(&mut self, now: Duration) {
        let workers = if self.paused.is_some() { self.seated().len() } else { return };
        if self.unpause(now, workers as u32)
            && let Some(work) = &mut self.method.work
        {
            work.since = now;
        }
    }

    /// Sends a worker the weights of the step, if it does not have them.
    fn inform(&mut self, worker: u32, round: u64, weights: &Arc<Vec<u8>>) {
        let Some(seat) = self.method.seats.get_mut(&worker) else { return };
        if seat.knows.replace(round) != Some(round) {
            let weights = weights.clone();
            self.method.worked.weights_bytes += weights.len() as u64;
            let why = "the step before is committed";
            self.order(worker, Command::Weights { round }, Some(weights), why);
        }
    }

    pub(super) fn order(
        &mut self,
        worker: u32,
        command: Command,
        bulk: Option<Arc<Vec<u8>>>,
        why: &'static str,
    ) {
        let message = ToWorker::from(command);
        self.decide(Action::ToWorker { worker, message, bulk }, why);
    }

    /// Takes in what a worker has computed.
    pub(super) fn take_report(
        &mut self,
        worker: u32,
        report: Report,
        bulk: &[u8],
    ) -> Result<(), Trouble> {
        let slot = self.method.seats.get(&worker).and_then(|seat| seat.slot);
        let (Some(slot), Some(work)) = (slot, self.method.work.as_mut()) else {
            return self.take_other(worker, report, bulk);
        };
        let own = work.round;
        match report {
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
                let count = self.method.learner.len();
                if !self.method.settings.code.are_numbers(count, bulk) {
                    let what = format!("worker-{worker} sent a sum that is not {count} numbers");
                    return Err(Trouble::new(what));
                }
                work.iteration.sum(slot, ticket, bulk.to_vec());
                self.method.worked.weights_bytes += bulk.len() as u64;
                self.paced(worker, &done);
            }
            report => return self.take_other(worker, report, bulk),
        }
        Ok(())
    }

    /// What is said by those who come, and what comes too late to count.
    fn take_other(&mut self, worker: u32, report: Report, bulk: &[u8]) -> Result<(), Trouble> {
        match report {
            Report::Offer { slots, address } => self.offered(worker, slots, address),
            Report::Rows { slot, cached, downloaded } => {
                return self.fetched(worker, Slot(slot), Fetched { cached, downloaded }, bulk);
            }
            Report::Sum { done, .. } | Report::Decoded { done, .. } => self.paced(worker, &done),
            Report::Multiplied { .. } | Report::Arrived { .. } => {}
        }
        Ok(())
    }

    fn paced(&mut self, worker: u32, done: &Effort) {
        let worked = &mut self.method.worked;
        worked.rows += done.rows;
        worked.sent_bytes += done.sent_bytes;
        worked.busy_seconds += done.busy_seconds;
        worked.decode_seconds += done.decode_seconds;
        let Some(seat) = self.method.seats.get_mut(&worker) else { return };
        let Some(member) = self.members.workers.get_mut(&worker) else { return };
        member.keep_up();
        if let Some(pace) = seat.pace(done) {
            member.pace(pace);
        }
    }

    /// All has come: the weights follow, and the step counts.
    fn commit(&mut self, now: Duration) -> Result<(), Trouble> {
        let Some(work) = self.method.work.take() else { return Ok(()) };
        self.go_on_again(now);
        self.forget_idle(work.iteration.plan());
        let rows = work.iteration.rows();
        self.method.worked.extra_rows += rows.extra;
        let (sums, counted) = work.iteration.finish();
        let Counted { loss_sum, correct, read, sizes } = counted;
        let loss_sum = loss_sum.value();
        if let Some(bounds) = &self.method.bounds {
            for (largest, sum) in sizes {
                let checked = bounds.columns().check_sizes(largest, sum);
                checked.map_err(|e| self.method.learner.explained(&e))?;
            }
        }
        self.check_loss(loss_sum)?;
        let step = self.course.state().step;
        let rate = self.course.learning_rate(step);
        let Coded { settings, learner, .. } = &mut self.method;
        learner.learn(&*settings.code, step, rate, read.count, &sums)?;
        self.committed(now, run::Counted { loss_sum, correct, read });
        Ok(())
    }

    /// Tells what workers did.
    pub(super) fn tell_worked(&mut self) {
        let worked = std::mem::take(&mut self.method.worked);
        if worked != Products::default() {
            self.record(What::Worked(worked), "a while is over");
        }
    }
}

impl From<Paused> for Shortage {
    fn from(paused: Paused) -> Self {
        Self { have: paused.have as u32, need: paused.need as u32 }
    }
}

fn command(round: u64, order: Order, address: impl Fn(Slot) -> String) -> Command {
    let wide = |places: Range<usize>| places.start as u64..places.end as u64;
    let peer = |slot: Slot| Peer { slot: slot.0, address: address(slot) };
    let share = |share: iteration::Share| Share {
        of: share.of.0,
        coefficient: share.coefficient,
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
