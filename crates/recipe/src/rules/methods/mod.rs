//! What a training method asks of the rest of a recipe: a file for each that asks anything.

mod coded;
mod sync;

use crate::diagnostic::Finding;
use crate::sections::Recipe;
use crate::train::Method;

/// Every rule of the method that the recipe breaks.
pub(super) fn check(recipe: &Recipe, found: &mut Vec<Finding>) {
    for (method, key, hint) in recipe.train.keys_of_others() {
        let message = format!("`train.{key}` is for `method: {method}`");
        found.push(Finding::new(format!("train.{key}"), message).hint(hint));
    }
    servers(recipe, found);
    match recipe.train.method {
        Method::Sync => sync::check(recipe, found),
        Method::Coded => coded::check(recipe, found),
    }
}

/// Whether there are servers exactly where the method keeps parameters on them.
fn servers(recipe: &Recipe, found: &mut Vec<Finding>) {
    let (pool, traits) = (&recipe.pool, recipe.train.traits());
    let who = match pool.workers.max() {
        1 if pool.has_machines() => Some("workers on machines".to_owned()),
        1 => None,
        most => Some(format!("{most} workers")),
    };
    let (message, hint) = match (traits.has_servers, pool.servers, who) {
        (true, Some(0), Some(who)) => (
            format!("`pool.servers` is 0, but {who} need one to hold the parameters"),
            "set `servers: 1`, or leave it out",
        ),
        (false, Some(servers @ 1..), _) => (
            format!(
                "`pool.servers` is {servers}, but `method: {}` has none: its coordinator holds \
                 the parameters",
                traits.name
            ),
            "leave it out",
        ),
        _ => return,
    };
    found.push(Finding::new("pool.servers", message).hint(hint));
}
