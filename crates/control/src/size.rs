//! How many processes and threads a plan comes to, and how much memory they take.
//!
//! Pure but for the number of cores. Never starts anything.

use crate::memory;
use planaria_protocol::launch::Size;
use planaria_recipe::Plan;
use planaria_text::number::{counted, grouped};

/// Threads that compute shards; more than there are shards would only wait.
pub fn training_threads(asked: Option<u16>, plan: &Plan) -> usize {
    threads(asked, plan.recipe.pool.threads).min(plan.recipe.train.shards).max(1)
}

/// The processes of a run; nothing where the command trains by itself.
pub fn cluster_size(asked: Option<u16>, plan: &Plan) -> Option<Size> {
    let pool = &plan.recipe.pool;
    if pool.is_one_process() {
        return None;
    }
    let workers = pool.workers.max();
    let threads = match threads(asked, pool.threads) {
        // The cores are shared out unless a number was asked for.
        cores if asked.is_none() && pool.threads == 0 => cores / workers,
        threads => threads,
    };
    let shards = plan.recipe.train.shards.div_ceil(workers);
    Some(Size {
        workers: workers as u32,
        workers_min: pool.workers.min().min(workers) as u32,
        servers: match plan.recipe.train.traits().has_servers {
            true => pool.server_count().max(1) as u32,
            false => 0,
        },
        threads: threads.min(shards).max(1) as u32,
    })
}

/// Workers that would never be given a shard, and what to do about them.
pub fn idle_workers(plan: &Plan, size: Option<Size>) -> Option<(u32, String)> {
    let workers = size?.workers;
    let train = &plan.recipe.train;
    if !train.traits().has_shards {
        return None;
    }
    // With redundancy so many workers compute each shard.
    let busy = u32::try_from(train.shards.saturating_mul(train.redundancy + 1)).ok()?;
    let idle = workers.checked_sub(busy).filter(|idle| *idle > 0)?;
    let text = format!(
        "{} of {} would have nothing to do, because `train.shards` is {}; use at most {}, or more \
         shards (up to `train.batch`, {}; other weights come out)",
        grouped(idle.into()),
        counted(workers.into(), "worker"),
        train.shards,
        counted(busy.into(), "worker"),
        train.batch
    );
    Some((idle, text))
}

/// About the most memory that all processes of a run take together.
pub fn memory_bytes(plan: &Plan, threads: usize, size: Option<Size>) -> u64 {
    match size {
        None => memory::estimate_bytes(plan, threads),
        Some(size) => {
            memory::estimate_cluster_bytes(plan, size.workers as usize, size.threads as usize)
        }
    }
}

/// The number of threads asked for, or one per core.
pub fn threads(asked: Option<u16>, recipe: usize) -> usize {
    match (asked, recipe) {
        (Some(threads), _) => usize::from(threads),
        (None, 0) => std::thread::available_parallelism().map_or(1, usize::from),
        (None, threads) => threads,
    }
}
