//! `planaria schema`: the JSON Schema of recipes.

use crate::commands::print;
use planaria_runs::failure::Result;

/// Prints it.
pub fn run() -> Result<()> {
    print(&format!("{:#}\n", planaria_recipe::schema()))
}
