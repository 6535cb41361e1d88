//! What a training method asks of the rest of a recipe: a file for each that asks anything.

mod coded;

use crate::diagnostic::Finding;
use crate::sections::Recipe;
use crate::train::Method;

/// Every rule of the method that the recipe breaks.
pub(super) fn check(recipe: &Recipe, found: &mut Vec<Finding>) {
    for (method, key, hint) in recipe.train.keys_of_others() {
        let message = format!("`train.{key}` is for `method: {method}`");
        found.push(Finding::new(format!("train.{key}"), message).hint(hint));
    }
    match recipe.train.method {
        Method::Sync => {}
        Method::Coded => coded::check(recipe, found),
    }
}
