//! How much memory training will take, and how much there is.
//!
//! An estimate, so that a network that cannot fit is refused before it is begun instead of being
//! killed on the way. Never allocates anything itself.

use planaria_numerics::optimizer::slots;
use planaria_recipe::Plan;
use planaria_recipe::train::LinearPrecision;
use planaria_runs::failure::{Failure, Result};
use planaria_runs::number::bytes;
use std::fs::read_to_string;

const FLOAT_BYTES: u64 = 4;

/// About the most memory that training takes at once, without the data.
///
/// For each parameter: itself, packed once more for the kernels, the gradient's sum, one gradient
/// for each shard, the optimizer's slots; while a checkpoint is written, parameters and slots twice
/// more (a copy, and as bytes). For each thread: every layer's output for one shard, and the two
/// largest once more for the gradients that go back through them.
pub fn estimate_bytes(plan: &Plan, threads: usize) -> u64 {
    let train = &plan.recipe.train;
    let kept = 1 + slots(&train.optimizer) as u64;
    let copies = 3 * kept + 2 + train.shards as u64;
    let busy = threads.min(train.shards).max(1) as u64;
    let activations = activations(plan).saturating_mul(busy);
    let parameters = plan.parameters.saturating_add(plan.state).saturating_mul(copies);
    let network = parameters.saturating_add(activations).saturating_mul(FLOAT_BYTES);
    match train.traits().is_linear {
        // All rows in numbers of eight bytes, as far as they are kept; nothing else is of their size.
        true => (plan.examples as u64)
            .saturating_mul(plan.input.len() as u64 + 1)
            .saturating_mul(8)
            .min(planaria_data::Memory::of_process().limit())
            .saturating_add(plan.parameters.saturating_mul(8 * copies)),
        false => network,
    }
}

/// About the most memory that all processes of a cluster take together, without the data.
///
/// Servers hold parameters and slots twice (before and after a step), a copy of both while a
/// checkpoint is written, and one gradient for each worker. A worker holds the parameters twice, packed
/// once more, and one gradient for each of its shards.
pub fn estimate_cluster_bytes(plan: &Plan, workers: usize, threads: usize) -> u64 {
    let train = &plan.recipe.train;
    let kept = 1 + slots(&train.optimizer) as u64;
    let workers = workers.max(1) as u64;
    let computing = workers.min(train.shards as u64);
    if let Some(rows) = train.rows_per_worker(plan.examples) {
        // Each stores its block; the source has some pieces of it on their way to each.
        return (rows as u64)
            .saturating_mul(plan.input.len() as u64 + 1)
            .saturating_mul(row_value_bytes(plan) * workers);
    }
    // With redundancy several bring the same.
    let brought = computing.saturating_mul(1 + train.redundancy as u64);
    let copies = 3 * kept + 1 + brought + 3 * workers + train.shards as u64;
    let parameters = plan.parameters.saturating_add(plan.state).saturating_mul(copies);
    let busy = computing.saturating_mul(threads as u64).min(train.shards as u64);
    parameters.saturating_add(activations(plan).saturating_mul(busy)).saturating_mul(FLOAT_BYTES)
}

/// Refuses a plan that does not fit.
pub fn check(plan: &Plan, needed: u64) -> Result<()> {
    match shortage(plan, needed, available_bytes()) {
        Some((message, hint)) => Err(Failure::user(message).hint(hint)),
        None => Ok(()),
    }
}

/// What to say of a plan that does not fit into what is available, and what to do about it.
pub fn shortage(
    plan: &Plan,
    needed: u64,
    available: Option<u64>,
) -> Option<(String, &'static str)> {
    let available = available.filter(|available| needed > *available)?;
    let message = format!(
        "training takes about {} of memory, but {} is available",
        bytes(needed),
        bytes(available)
    );
    Some((message, plan.recipe.train.traits().memory_hint))
}

/// Bytes of a number of a stored row.
fn row_value_bytes(plan: &Plan) -> u64 {
    let precision = plan.recipe.train.code().map(|code| code.precision);
    if precision == Some(LinearPrecision::F32) { FLOAT_BYTES } else { 8 }
}

/// Values that one thread computes for one shard.
fn activations(plan: &Plan) -> u64 {
    let outputs = || plan.layers.iter().map(|row| row.output.len() as u64);
    let largest = outputs().max().unwrap_or(0);
    let example = outputs().fold(largest.saturating_mul(2), u64::saturating_add);
    let shard = plan.shards.iter().max().copied().unwrap_or(0) as u64;
    example.saturating_mul(shard)
}

/// All the memory of this machine, where it tells.
pub fn total_bytes() -> Option<u64> {
    field(&read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:", 1024)
}

/// What the system would still give this process, where it tells.
pub fn available_bytes() -> Option<u64> {
    let text = |path: &str| read_to_string(path).unwrap_or_default();
    let machine = field(&text("/proc/meminfo"), "MemAvailable:", 1024).map(|free| {
        free.saturating_add(field(&text("/proc/meminfo"), "SwapFree:", 1024).unwrap_or(0))
    });
    let limit = field(&text("/proc/self/limits"), "Max address space", 1);
    let used = field(&text("/proc/self/status"), "VmSize:", 1024).unwrap_or(0);
    let own = limit.map(|limit| limit.saturating_sub(used));
    machine.into_iter().chain(own).min()
}

/// The first number after a label; nothing where there is a word (`unlimited`) instead.
fn field(text: &str, label: &str, unit_bytes: u64) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    number.checked_mul(unit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let limits = "Max cpu time    unlimited  unlimited  seconds\nMax address space   4096  8192  bytes\n";
        assert_eq!(field(limits, "Max address space", 1), Some(4096));
        assert_eq!(field(limits, "Max cpu time", 1), None);
        assert_eq!(field("MemAvailable:   12 kB\n", "MemAvailable:", 1024), Some(12_288));
    }

    fn plan(train: &str) -> Plan {
        let recipe = format!(
            "{{name: x, data: {{train: digits}}, model: {{layers: [Flatten, {{Dense: {{units: 10}}}}]}}, \
             train: {{{train} epochs: 1}}}}"
        );
        let facts = |_: &planaria_recipe::Recipe| {
            let input = planaria_recipe::Shape::Vector(64);
            Ok(planaria_recipe::DataFacts { input, classes: Some(10), examples: 1000 })
        };
        let planned = planaria_recipe::Source::parse_and_plan("x", recipe.as_bytes(), &[], facts);
        planned.unwrap_or_else(|mistakes| panic!("{mistakes}")).1
    }

    #[test]
    fn what_does_not_fit_is_refused_with_both_figures() {
        let network = plan("");
        assert_eq!(shortage(&network, 10, Some(10)), None);
        assert_eq!(shortage(&network, 10, None), None);
        let (message, hint) = shortage(&network, 12_000_000_000, Some(1_000_000_000)).unwrap();
        assert!(message.contains("about 12.0 GB of memory, but 1.0 GB is available"), "{message}");
        assert!(hint.contains("train.batch"), "{hint}");
        let coded = plan("method: coded, coded: {threshold: 2, machines: 3},");
        let (_, hint) = shortage(&coded, 2, Some(1)).unwrap();
        assert!(hint.contains("sparse") && hint.contains("threshold"), "{hint}");
    }
}
