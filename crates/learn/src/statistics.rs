//! Batch normalisation's statistics after the shards: merged over them, then into running averages.
//!
//! Needs a network's plan alone, so that a server keeps the averages without an engine. In f64,
//! channel by channel. Never computes a shard's statistics.

use crate::network::{BatchNorm, Network, Op};

/// A batch normalisation, planned.
#[derive(Debug, Clone)]
pub struct Norm {
    /// Where its numbers lie.
    pub plan: BatchNorm,
    /// Where its statistics lie: counts, means, M2s.
    pub stats: usize,
}

impl Norm {
    /// From where the network has its numbers.
    pub fn new(plan: &BatchNorm) -> Self {
        // State holds mean and variance, statistics a count besides.
        Self { plan: plan.clone(), stats: plan.mean.start / 2 * 3 }
    }

    pub fn channels(&self) -> usize {
        self.plan.gamma.len()
    }
}

/// Where each normalisation's count, mean and M2 lie in the flat statistics, and what becomes of
/// them.
#[derive(Debug, Clone)]
pub struct Statistics {
    norms: Vec<Norm>,
    len: usize,
}

impl Statistics {
    pub fn new(network: &Network) -> Self {
        let norms = network.nodes.iter().filter_map(|node| match &node.op {
            Op::BatchNorm(plan) => Some(Norm::new(plan)),
            _ => None,
        });
        Self { norms: norms.collect(), len: network.stats_count() }
    }

    /// Length of a shard's flat statistics.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Merges statistics b into a (Chan, Golub and LeVeque 1979), channel by channel.
    pub fn merge(&self, a: &mut [f32], b: &[f32]) {
        for norm in &self.norms {
            let channels = norm.channels();
            for c in norm.stats..norm.stats + channels {
                let (na, nb) = (f64::from(a[c]), f64::from(b[c]));
                if nb == 0.0 {
                    continue;
                }
                let (mean, m2) = (c + channels, c + 2 * channels);
                let n = na + nb;
                let delta = f64::from(b[mean]) - f64::from(a[mean]);
                a[c] = n as f32;
                a[mean] = (f64::from(a[mean]) + delta * nb / n) as f32;
                a[m2] = (f64::from(a[m2]) + f64::from(b[m2]) + delta * delta * na * nb / n) as f32;
            }
        }
    }

    /// Moves the running averages towards the step's statistics. The variance is the unbiased one.
    pub fn update_running(&self, stats: &[f32], state: &mut [f32]) {
        for norm in &self.norms {
            let (channels, keep) = (norm.channels(), f64::from(norm.plan.momentum));
            for c in 0..channels {
                let count = f64::from(stats[norm.stats + c]);
                if count == 0.0 {
                    continue;
                }
                let mean = f64::from(stats[norm.stats + channels + c]);
                let m2 = f64::from(stats[norm.stats + 2 * channels + c]);
                let variance = m2 / (count - 1.0).max(1.0);
                let mut moved = |at: usize, to: f64| {
                    state[at] = (keep * f64::from(state[at]) + (1.0 - keep) * to) as f32;
                };
                moved(norm.plan.mean.start + c, mean);
                moved(norm.plan.variance.start + c, variance);
            }
        }
    }
}
