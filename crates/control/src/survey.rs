//! A recipe's data, opened while the recipe is still being checked.
//!
//! Owns how errors of the data become mistakes in the recipe. Never reads an example.

use crate::size::threads;
use crate::talk::{Talk, patiently};
use planaria_data::{DataSet, Error, Facts, Kind};
use planaria_recipe::{DataFacts, Diagnostics, Finding, Recipe, Source};
use planaria_runs::failure::{Failure, Result};
use planaria_store::Location;
use planaria_worker::features;
use std::path::Path;

/// What the recipe checker needs to know of opened data.
pub fn data_facts(facts: &Facts) -> DataFacts {
    DataFacts {
        input: facts.input,
        classes: facts.classes(),
        examples: usize::try_from(facts.train).unwrap_or(usize::MAX),
    }
}

/// Keeps what opening the data gave while the recipe is still being checked.
#[derive(Debug, Default)]
pub struct Survey {
    pub data: Option<DataSet>,
    broken: Option<Failure>,
}

impl Survey {
    /// Opens the data of a recipe: facts of it, or a mistake at the key that named it.
    pub fn open(&mut self, recipe: &Recipe, talk: Talk) -> Result<DataFacts, Vec<Finding>> {
        let text = format!("reading {}", recipe.data.train);
        let opened = patiently(talk, &text, || features::open(recipe, threads(None, 0)));
        let facts = finding(opened, recipe, &mut self.broken).map(|data| self.data.insert(data))?;
        Ok(data_facts(&facts.facts))
    }

    /// The failure to report: one of the machine comes before mistakes in the recipe.
    pub fn failure(self, diagnostics: &Diagnostics) -> Failure {
        self.broken.unwrap_or_else(|| diagnostics.into())
    }
}

/// Refuses an `output.dir` that cannot hold runs.
pub fn check_output(source: &Source) -> Result<()> {
    let dir = &source.recipe().output.dir;
    let in_the_way = Path::new(dir).ancestors().find(|p| p.exists()).filter(|p| p.is_file());
    let Some(file) = in_the_way else { return Ok(()) };
    let message = format!("`{}` is a file, where a folder for runs is needed", file.display());
    let hint = "name another folder, such as `dir: runs`";
    Err(source.diagnose("output.dir", message, Some(hint)).into())
}

/// Turns an error of the user's data into a mistake in the recipe, and keeps any other in `broken`.
pub fn finding<T>(
    result: Result<T, Error>,
    recipe: &Recipe,
    broken: &mut Option<Failure>,
) -> Result<T, Vec<Finding>> {
    result.map_err(|error| match error.kind() {
        Kind::FixInput => {
            let missing = planaria_data::missing(&recipe.data, recipe.seed);
            let errors = if missing.is_empty() { vec![error] } else { missing };
            errors.iter().map(mistake).collect()
        }
        Kind::Retry => {
            *broken = Some(Failure::failed(error));
            Vec::new()
        }
    })
}

fn mistake(error: &Error) -> Finding {
    let mut finding = Finding::new(error.key().unwrap_or("data.train"), error.to_string());
    finding.hint = whereabouts(error);
    finding
}

/// Where what is missing was looked for, as its store says it.
fn whereabouts(error: &Error) -> Option<String> {
    match error {
        Error::At { cause, .. } => whereabouts(cause),
        Error::Missing { path, .. } => path.to_str().and_then(Location::missing),
        _ => None,
    }
}
