//! What a training method adds to a plan: a file for each that adds anything.

mod coded;

use planaria_recipe::Plan;
use planaria_runs::failure::Result;
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
    coded::costs(plan)
}
