//! A whole run in one thread, with faults from a seed.
//!
//! The decisions, the parameter store, the worker's session, the supervisor and the engine are the
//! real ones; clock, network, disk and processes are simulated. A seed says what runs, how fast
//! everything is, and what goes wrong when. What must hold is checked at everything that happens,
//! and the same seed always gives the same run.
//!
//! # Layout
//! - [`lab`]: what is computed, and the plain run that everything is compared with
//! - [`faults`]: what goes wrong; [`coin`]: chance
//! - [`world`]: time and processes (`coordinator`, `server`, `worker`, `foreground`, as their shells
//!   are); [`net`]: links; [`disk`]; `fuse`: how a process is killed
//! - [`verdict`]: what must hold
//! - [`scale`]: what decisions cost with many workers

pub mod coin;
pub mod disk;
pub mod faults;
mod fuse;
pub mod lab;
pub mod net;
pub mod scale;
pub mod verdict;
pub mod world;

use faults::Plan;
use lab::Lab;
use world::{Outcome, Trace, World};

/// How a seed is run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Workers, where the seed is not to choose.
    pub workers: Option<u32>,
    /// Workers beyond the first that compute each shard, where the seed is not to choose.
    pub redundancy: Option<u32>,
    /// Whether runs are coded, where the seed is not to choose.
    pub coded: Option<bool>,
    /// Whether nothing goes wrong.
    pub calm: bool,
}

/// Runs the world of a seed; `trace` hears everything that happens in it.
pub fn run<'a>(lab: &'a mut Lab, seed: u64, options: Options, trace: Option<Trace<'a>>) -> Outcome {
    let mut plan = Plan::new(seed, Lab::RECIPES, options.workers, !options.calm);
    plan.redundancy = options.redundancy.unwrap_or(plan.redundancy);
    let code = match options.coded {
        None => Plan::code(seed, Lab::CODED),
        Some(true) => Some(seed as usize % Lab::CODED),
        Some(false) => None,
    };
    if let Some(code) = code {
        let (threshold, machines) = Lab::CODES[code];
        plan = plan.coded(Lab::RECIPES + code, threshold as u32, machines as u32);
    }
    let bench = lab.bench(plan.recipe);
    World::new(seed, plan, bench, trace).live()
}
