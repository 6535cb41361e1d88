//! `planaria schema`: the JSON Schema of recipes.

use crate::commands::print;
use planaria_runs::failure::Result;

pub fn run() -> Result<()> {
    print(&format!("{:#}\n", planaria_recipe::schema()))
}
