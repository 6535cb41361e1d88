//! What `train.method: sync` asks of the rest of a recipe.

use crate::diagnostic::Finding;
use crate::sections::Recipe;

/// Whether there are workers for every copy of a shard.
pub(super) fn check(recipe: &Recipe, found: &mut Vec<Finding>) {
    let (key, redundancy) = ("train.redundancy", recipe.train.redundancy);
    if redundancy == 0 {
        return;
    }
    // A run in one process has no other process to lose.
    let workers = recipe.pool.workers.max();
    if !recipe.pool.is_one_process() && workers <= redundancy {
        let needed = redundancy + 1;
        let message =
            format!("`train.redundancy` is {redundancy}, but `pool.workers` is {workers}");
        let hint = format!("set `pool.workers` to {needed} or more: each shard is on {needed}");
        found.push(Finding::new(key, message).hint(hint));
    }
}
