//! What a training method adds to a plan: a file for each that adds anything.

mod coded;
mod sync;

use planaria_control::size::threads;
use planaria_control::survey::data_failure;
use planaria_protocol::launch::Size;
use planaria_recipe::Plan;
use planaria_recipe::train::{LinearPrecision, Method};
use planaria_runs::failure::{Failure, Result};
use planaria_worker::{features, methods};
use serde_json::Value;

/// Costs that only runs of a method have.
pub struct Costs {
    /// As a person reads them.
    pub text: String,
    /// The key of the same as data, and the data.
    pub document: (&'static str, Value),
}

/// Those of a plan's method, where it has any.
pub fn costs(plan: &Plan) -> Result<Option<Costs>> {
    match plan.recipe.train.method {
        Method::Sync => Ok(None),
        Method::Coded => coded::costs(plan),
    }
}

/// Refuses the examples that training would refuse, with its words. Exact arithmetic cannot hold
/// every number: all examples are read for that, and for nothing else.
pub fn check_examples(plan: &Plan) -> Result<()> {
    let precision = plan.recipe.train.code().map(|code| code.precision);
    if precision != Some(LinearPrecision::Exact) {
        return Ok(());
    }
    let data = features::open(&plan.recipe, threads(None, 0)).map_err(data_failure)?;
    methods::check(&plan.recipe, plan.input, &data).map_err(Failure::from)
}

/// Shards of each worker at the start; none where the method has no shards.
pub fn first_shards(plan: &Plan, size: Size) -> Vec<usize> {
    match plan.recipe.train.method {
        Method::Sync => sync::first_deal(plan, size),
        Method::Coded => Vec::new(),
    }
}

/// How the work is shared out among workers at the start, where that can be said.
pub fn shares(plan: &Plan, size: Size) -> String {
    match plan.recipe.train.method {
        Method::Sync => sync::shares(plan, size),
        Method::Coded => String::new(),
    }
}
