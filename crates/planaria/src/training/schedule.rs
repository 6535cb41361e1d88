//! The learning rate of a step.
//!
//! A pure function of the recipe and the step, with the same bits on every machine (`libm`).

use planaria_recipe::train::Schedule;

/// Where a step lies in its run.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The step, from 0.
    pub step: u64,
    /// Steps of one epoch.
    pub steps_per_epoch: u64,
    /// Steps of the whole run.
    pub steps: u64,
}

/// Linear from zero over `warmup_steps`, then `base` as the schedule bends it. The cosine spans
/// what is left after the warm-up (Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts).
pub fn learning_rate(schedule: &Schedule, base: f32, warmup_steps: u64, at: Place) -> f32 {
    if at.step < warmup_steps {
        return (f64::from(base) * ((at.step + 1) as f64 / warmup_steps as f64)) as f32;
    }
    let factor = match schedule {
        Schedule::Constant => return base,
        Schedule::Step(drop) => {
            let epoch = at.step / at.steps_per_epoch.max(1);
            let drops = epoch / drop.epochs.max(1) as u64;
            libm::pow(f64::from(drop.factor), drops as f64)
        }
        Schedule::Cosine(cosine) => {
            let span = at.steps.saturating_sub(warmup_steps).max(1) as f64;
            let done = ((at.step - warmup_steps) as f64 / span).min(1.0);
            let last = f64::from(cosine.final_factor);
            last + (1.0 - last) * 0.5 * (1.0 + libm::cos(std::f64::consts::PI * done))
        }
    };
    (f64::from(base) * factor) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_recipe::train::{CosineSchedule, StepSchedule};

    fn check(schedule: Schedule, warmup_steps: u64, expect: &[(u64, f32)]) {
        for (step, rate) in expect {
            let at = Place { step: *step, steps_per_epoch: 10, steps: 100 };
            let seen = learning_rate(&schedule, 0.4, warmup_steps, at);
            assert!((seen - rate).abs() < 1e-6, "step {step}: {seen}, not {rate}");
        }
    }

    #[test]
    fn rates() {
        check(Schedule::Constant, 0, &[(0, 0.4), (99, 0.4)]);
        check(Schedule::Constant, 4, &[(0, 0.1), (1, 0.2), (3, 0.4), (4, 0.4)]);
        let drop = StepSchedule { epochs: 2, factor: 0.5 };
        check(Schedule::Step(drop), 0, &[(0, 0.4), (19, 0.4), (20, 0.2), (45, 0.1)]);
        let cosine = || Schedule::Cosine(CosineSchedule { final_factor: 0.1 });
        check(cosine(), 0, &[(0, 0.4), (50, 0.22), (100, 0.04), (500, 0.04)]);
        check(cosine(), 20, &[(9, 0.2), (20, 0.4), (60, 0.22), (100, 0.04)]);
    }
}
