//! How much memory training will take, and how much there is.
//!
//! An estimate, so that a network that cannot fit is refused before it is begun instead of being
//! killed on the way. Never allocates anything itself.

use planaria_numerics::optimizer::slots;
use planaria_protocol::launch::Size;
use planaria_recipe::train::StoredRows;
use planaria_recipe::{Plan, Recipe};
use planaria_runs::failure::{Failure, Result};
use planaria_text::number::bytes;

pub use planaria_store::memory::{available_bytes, usable_bytes};

const FLOAT_BYTES: u64 = 4;

/// About the most memory that training takes at once, without data that is kept in memory.
///
/// The batches that are read ahead. For each parameter: itself, packed once more for the kernels, the gradient's sum, one gradient
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
    let network = network.saturating_add(reading(plan));
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
    if let Some(stored) = train.stored_rows(plan.examples) {
        // Each stores its block; the source has some pieces of it on their way to each.
        return stored_bytes(plan, stored).saturating_mul(workers);
    }
    // With redundancy several bring the same.
    let brought = computing.saturating_mul(1 + train.redundancy as u64);
    let copies = 3 * kept + 1 + brought + 3 * workers + train.shards as u64;
    let parameters = plan.parameters.saturating_add(plan.state).saturating_mul(copies);
    let busy = computing.saturating_mul(threads as u64).min(train.shards as u64);
    let computed = parameters.saturating_add(activations(plan).saturating_mul(busy));
    computed.saturating_mul(FLOAT_BYTES).saturating_add(reading(plan))
}

/// About the most memory that the processes on one machine of a pool take together, without the
/// data: its workers, and its share of the servers.
pub fn estimate_machine_bytes(plan: &Plan, size: Size) -> u64 {
    let (train, pool) = (&plan.recipe.train, &plan.recipe.pool);
    let there = pool.slot_count().max(1) as u64;
    if let Some(stored) = train.stored_rows(plan.examples) {
        return stored_bytes(plan, stored).saturating_mul(there);
    }
    let kept = 1 + slots(&train.optimizer) as u64;
    let workers = u64::from(size.workers).max(1);
    let shards = (train.shards as u64).div_ceil(workers);
    let worker_copies = 3 + shards;
    let brought = workers.min(train.shards as u64).saturating_mul(1 + train.redundancy as u64);
    let server_copies = 3 * kept + 1 + brought;
    let values = plan.parameters.saturating_add(plan.state);
    let servers = u64::from(size.servers);
    let servers_there = servers.div_ceil(pool.machine_count().max(1) as u64);
    let served = match servers {
        0 => 0,
        _ => values.div_ceil(servers).saturating_mul(server_copies).saturating_mul(servers_there),
    };
    let busy = u64::from(size.threads).clamp(1, shards.max(1));
    let worker = values.saturating_mul(worker_copies);
    let worker = worker.saturating_add(activations(plan).saturating_mul(busy));
    let computed = worker.saturating_mul(there).saturating_add(served);
    let read = reading(plan).saturating_mul(there) / workers;
    computed.saturating_mul(FLOAT_BYTES).saturating_add(read)
}

/// What to say of a plan that does not fit into a machine of its pool, and what to do about it.
pub fn machine_shortage(plan: &Plan, size: Size) -> Option<(String, String)> {
    let needed = estimate_machine_bytes(plan, size);
    let (limit, key) = plan.recipe.pool.memory_limit().filter(|(limit, _)| needed > *limit)?;
    let message = format!(
        "training takes about {} of memory on a machine, but `{key}` leaves it {}",
        bytes(needed),
        bytes(limit)
    );
    Some((message, remedy(&plan.recipe)))
}

/// What to do where processes on machines of a pool need more memory than they may use.
pub fn remedy(recipe: &Recipe) -> String {
    let more = match recipe.pool.memory_limit() {
        Some((_, key)) => format!("raise `{key}`"),
        None => "use machines with more memory".to_owned(),
    };
    format!("{more}, or {}", recipe.train.traits().memory_hint)
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

/// Bytes of the rows that a worker stores, each with a number for the bias.
fn stored_bytes(plan: &Plan, stored: StoredRows) -> u64 {
    let row = (plan.input.len() as u64 + 1).saturating_mul(stored.value_bytes);
    (stored.count as u64).saturating_mul(row)
}

/// Bytes of the batches that are read ahead; workers read only their shards of them.
fn reading(plan: &Plan) -> u64 {
    planaria_data::reading_bytes(plan.recipe.train.batch, plan.input.len())
}

/// Values that one thread computes for one shard.
fn activations(plan: &Plan) -> u64 {
    let outputs = || plan.layers.iter().map(|row| row.output.len() as u64);
    let largest = outputs().max().unwrap_or(0);
    let example = outputs().fold(largest.saturating_mul(2), u64::saturating_add);
    let shard = plan.shards.iter().max().copied().unwrap_or(0) as u64;
    example.saturating_mul(shard)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(train: &str) -> Plan {
        pooled("workers: 1", train)
    }

    fn pooled(pool: &str, train: &str) -> Plan {
        let recipe = format!(
            "{{name: x, pool: {{{pool}}}, data: {{train: digits}}, model: {{layers: [Flatten, {{Dense: {{units: 10}}}}]}}, \
             train: {{{train} epochs: 1}}}}"
        );
        let facts = |_: &mut planaria_recipe::Recipe| {
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

    #[test]
    fn a_machine_with_less_memory_than_its_processes_take_is_told_of() {
        let size = Size { workers: 2, workers_min: 1, servers: 1, threads: 1 };
        let pool =
            |mib: u64| format!("provider: docker, workers: 2, docker: {{memory_mib: {mib}}}");
        let large = |pool: &str| Plan { parameters: 4_000_000, ..pooled(pool, "") };
        let short = machine_shortage(&large(&pool(64)), size);
        let (message, hint) = short.expect("several copies are larger");
        assert!(message.contains("but `pool.docker.memory_mib` leaves it 67.1 MB"), "{message}");
        let expect = "raise `pool.docker.memory_mib`, or lower `train.batch`";
        assert!(hint.starts_with(expect), "{hint}");
        assert_eq!(machine_shortage(&pooled(&pool(64), ""), size), None);
        assert_eq!(machine_shortage(&large("provider: docker, workers: 2"), size), None);
        assert!(remedy(&plan("").recipe).starts_with("use machines with more memory, or"));
    }
}
