//! `planaria agent task N RUN`: the keeper of one process of a user's script.

use crate::failure::{Context, Exit, Result};
use planaria_fleet::keeper;

/// Keeps the process, and ends as it ended.
pub fn run() -> Result<Option<Exit>> {
    let mut stdin = std::io::stdin();
    let orders = keeper::orders(&mut stdin).context(|| "standard input holds no orders".into())?;
    keeper::end_as(keeper::keep(&orders, stdin))
}
