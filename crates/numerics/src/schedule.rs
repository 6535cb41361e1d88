//! The learning rate of each step.

use planaria_recipe::train::{Schedule, Train};

/// How far training is: steps from 0 over the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub step: u64,
    /// Steps in an epoch.
    pub steps_per_epoch: u64,
    /// Steps in the whole run.
    pub steps: u64,
}

/// Learning rate of a step: warm-up, then the schedule.
pub fn learning_rate(train: &Train, at: Progress) -> f32 {
    let base = f64::from(train.optimizer.learning_rate());
    if at.step < train.warmup_steps {
        return (base * (at.step + 1) as f64 / train.warmup_steps as f64) as f32;
    }
    let factor = match &train.schedule {
        Schedule::Constant => 1.0,
        Schedule::Step(s) => {
            let epoch = at.step / at.steps_per_epoch.max(1);
            libm::pow(f64::from(s.factor), (epoch / s.epochs.max(1) as u64) as f64)
        }
        Schedule::Cosine(c) => {
            // Loshchilov and Hutter 2017, without restarts; runs from the end of warm-up.
            let run = at.steps.saturating_sub(train.warmup_steps).max(1);
            let done = (at.step - train.warmup_steps).min(run) as f64 / run as f64;
            let low = f64::from(c.final_factor);
            low + (1.0 - low) * 0.5 * (1.0 + libm::cos(std::f64::consts::PI * done))
        }
    };
    (base * factor) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_recipe::train::{CosineSchedule, Optimizer, Sgd, StepSchedule};

    fn check(schedule: Schedule, warmup_steps: u64, step: u64, expect: f32) {
        let optimizer = Optimizer::Sgd(Sgd { learning_rate: 0.8, ..Sgd::default() });
        let train = Train { schedule, warmup_steps, optimizer, ..Train::default() };
        let rate = learning_rate(&train, Progress { step, steps_per_epoch: 10, steps: 100 });
        assert!((rate - expect).abs() < 1e-6, "step {step}: {rate} instead of {expect}");
    }

    #[test]
    fn rates() {
        check(Schedule::Constant, 0, 0, 0.8);
        check(Schedule::Constant, 4, 0, 0.2);
        check(Schedule::Constant, 4, 3, 0.8);
        let drop = || Schedule::Step(StepSchedule { epochs: 2, factor: 0.5 });
        check(drop(), 0, 19, 0.8);
        check(drop(), 0, 20, 0.4);
        check(drop(), 0, 99, 0.05);
        let cosine = |f| Schedule::Cosine(CosineSchedule { final_factor: f });
        check(cosine(0.0), 0, 0, 0.8);
        check(cosine(0.0), 0, 50, 0.4);
        check(cosine(0.5), 0, 100, 0.4);
        check(cosine(0.0), 20, 60, 0.4);
    }
}
