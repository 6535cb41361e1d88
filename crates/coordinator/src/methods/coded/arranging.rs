//! Which worker computes which rows of a step: as many each, unless some are much faster than
//! others.
//!
//! A plan stays while the workers, and their speeds, are about the same. Never asks for speeds:
//! each sum says how many rows its worker has multiplied in which time.

use super::CodedRun;
use planaria_numerics::coding::plan::Plan;
use planaria_numerics::coding::{Error, Slot, Standing, handover};
use std::collections::BTreeSet;
use std::ops::Range;

/// How many times the slowest is slower than the fastest where all compute as much. Processes
/// that share a machine's cores seem that different now and then.
const EVEN: f64 = 3.0;

/// By how much a speed may change before there is another plan.
const CHANGED: f64 = 1.5;

/// A plan, and what it was made for.
#[derive(Debug, Clone)]
pub(super) struct Arranged {
    pub plan: Plan,
    present: BTreeSet<Slot>,
    /// Where they are not even.
    speeds: Option<Vec<(Slot, f64)>>,
}

impl CodedRun {
    /// The plan of a step for those who are there.
    pub(super) fn arrange(
        &self,
        places: Range<usize>,
        present: &BTreeSet<Slot>,
    ) -> Result<Standing<Arranged>, Error> {
        let speeds = self.uneven(present);
        let previous = self.method.previous.as_ref();
        if let Some(before) = previous.filter(|before| before.still_fits(present, &speeds)) {
            if before.plan.places() == places {
                return Ok(Standing::Ready(before.clone()));
            }
            let (present, speeds) = (present.clone(), before.speeds.clone());
            return Ok(self.plan(places, &present, speeds.as_deref())?.map(|plan| Arranged {
                plan,
                present,
                speeds,
            }));
        }
        let plan = self.plan(places, present, speeds.as_deref())?;
        Ok(plan.map(|plan| Arranged { plan, present: present.clone(), speeds }))
    }

    fn plan(
        &self,
        places: Range<usize>,
        present: &BTreeSet<Slot>,
        speeds: Option<&[(Slot, f64)]>,
    ) -> Result<Standing<Plan>, Error> {
        let code = &self.method.settings.code;
        // Where speeds lead to groups that are conditioned too badly, the ring has others.
        if let Some(speeds) = speeds
            && let Ok(plan) = code.arrange_by_speed(places.clone(), speeds)
        {
            return Ok(plan);
        }
        match &self.method.previous {
            Some(before) if before.present == *present => {
                Plan::cyclic(before.plan.threshold(), places, before.plan.ring())
            }
            previous => {
                let before = previous.as_ref().map(|before| &before.plan);
                code.arrange_in_ring(places, present, before)
            }
        }
    }

    /// Counts the rows that change hands because machines or speeds are others than before.
    pub(super) fn count_moved(&mut self, after: &Arranged) {
        let Some(before) = &self.method.previous else { return };
        if before.present == after.present && before.speeds == after.speeds {
            return;
        }
        // Another batch has other places: what counts is who would have had which of these.
        let places = after.plan.places();
        let old = match before.plan.places() == places {
            true => Some(before.plan.clone()),
            false => {
                let ring = before.plan.ring();
                Plan::cyclic(before.plan.threshold(), places, ring).ok().and_then(Standing::ready)
            }
        };
        let Some(old) = old else { return };
        let (moved, wasted) = handover::moved(&old, &after.plan);
        self.method.worked.moved_rows += moved as u64;
        self.method.worked.wasted_rows += wasted as u64;
    }

    /// Who had no rows in a step is to have some in the next, to see how fast it is now.
    pub(super) fn forget_idle(&mut self, plan: &Plan) {
        for (slot, worker) in self.seated() {
            if plan.load(slot) == 0
                && let Some(member) = self.members.workers.get_mut(&worker)
            {
                member.rate = None;
            }
        }
    }

    /// The speeds of those who are there, where all are known and differ much.
    fn uneven(&self, present: &BTreeSet<Slot>) -> Option<Vec<(Slot, f64)>> {
        let seated = self.seated();
        let speed = |slot: &Slot| self.members.workers.get(seated.get(slot)?)?.rate;
        let speeds: Option<Vec<(Slot, f64)>> =
            present.iter().map(|slot| Some((*slot, speed(slot)?))).collect();
        let speeds = speeds?;
        let slowest = speeds.iter().map(|(_, speed)| *speed).fold(f64::INFINITY, f64::min);
        let fastest = speeds.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
        (slowest > 0.0 && fastest > EVEN * slowest).then_some(speeds)
    }
}

impl Arranged {
    fn still_fits(&self, present: &BTreeSet<Slot>, speeds: &Option<Vec<(Slot, f64)>>) -> bool {
        if self.present != *present {
            return false;
        }
        match (&self.speeds, speeds) {
            (None, None) => true,
            (Some(before), Some(now)) => {
                // What counts is how they compare, not the unit.
                let total = |speeds: &[(Slot, f64)]| speeds.iter().map(|(_, s)| s).sum::<f64>();
                let unit = total(before) / total(now);
                before.iter().zip(now).all(|((_, before), (_, now))| {
                    let change = now * unit / before;
                    (1.0 / CHANGED..=CHANGED).contains(&change)
                })
            }
            _ => false,
        }
    }
}
