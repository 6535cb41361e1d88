//! A recipe's data, opened while the recipe is still being checked.
//!
//! Owns how errors of the data become mistakes in the recipe, or failures. Never reads an example.

use crate::memory;
use crate::size::{cluster_size, memory_bytes, threads, training_threads};
use crate::talk::{Talk, patiently};
use planaria_data::{DataSet, Error, Facts, Kind};
use planaria_fleet::provider::Fault;
use planaria_fleet::setup::Setup;
use planaria_recipe::setup::Step;
use planaria_recipe::table::Column;
use planaria_recipe::{DataFacts, Diagnostics, Finding, Recipe, Root, Sound, Source, planned};
use planaria_runs::failure::{Failure, Result};
use planaria_store::Location;
use planaria_text::number::grouped;
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

/// What to say of labels that are classes but look like numbers to predict.
pub fn label_remark(recipe: &Recipe, facts: &Facts) -> Option<String> {
    let count = grouped(facts.numeric_classes? as u64);
    let label = recipe.data.table.as_ref().and_then(|table| table.label.as_ref());
    let label = match label {
        Some(Column::Name(name)) => format!("label `{name}`"),
        _ => "the label".into(),
    };
    Some(format!(
        "{label} has {count} different numbers, each a class of its own: to predict a number write \
         `table: {{target: number}}`"
    ))
}

/// An error of the data as the command's failure.
pub fn data_failure(error: Error) -> Failure {
    match error.kind() {
        Kind::FixInput => Failure::user(error),
        Kind::Retry => Failure::failed(error),
    }
}

/// Keeps what opening the data gave while the recipe is still being checked.
#[derive(Debug, Default)]
pub struct Survey {
    pub data: Option<DataSet>,
    /// What to say of the labels.
    pub remark: Option<String>,
    broken: Option<Failure>,
}

impl Survey {
    /// Opens the data of a recipe: facts of it, or a mistake at the key that named it.
    pub fn open(&mut self, recipe: &Recipe, talk: Talk) -> Result<DataFacts, Vec<Finding>> {
        self.open_if(recipe, talk, |_| None)
    }

    /// The same, unless learning from it takes more memory than this machine has: the findings say
    /// so before the data is unpacked or encoded.
    pub fn open_fitting(&mut self, recipe: &Recipe, talk: Talk) -> Result<DataFacts, Vec<Finding>> {
        self.open_if(recipe, talk, |facts| memory_shortage(recipe, facts))
    }

    fn open_if(
        &mut self,
        recipe: &Recipe,
        talk: Talk,
        refuse: impl FnOnce(&Facts) -> Option<Failure>,
    ) -> Result<DataFacts, Vec<Finding>> {
        let text = format!("reading {}", recipe.data.train);
        let mut refused = None;
        let is_wanted = |facts: &Facts| {
            refused = refuse(facts);
            refused.is_none()
        };
        let open = || features::open_if(recipe, threads(None, 0), is_wanted);
        let opened = patiently(talk, &text, open);
        let Some(data) = finding(opened, recipe, &mut self.broken)? else {
            self.broken = refused;
            return Err(Vec::new());
        };
        self.remark = label_remark(recipe, &data.facts);
        Ok(data_facts(&self.data.insert(data).facts))
    }

    /// The failure to report: one of the machine comes before mistakes in the recipe.
    pub fn failure(self, diagnostics: &Diagnostics) -> Failure {
        self.broken.unwrap_or_else(|| mistaken(diagnostics, self.remark))
    }
}

/// Mistakes in a recipe; what was seen of the labels may be the cause.
pub fn mistaken(diagnostics: &Diagnostics, remark: Option<String>) -> Failure {
    Failure { hint: remark, ..Failure::from(diagnostics) }
}

/// Why data of which this is known cannot be learned from on this machine, for want of memory. What
/// is wrong with the recipe besides is for others to tell.
fn memory_shortage(recipe: &Recipe, facts: &Facts) -> Option<Failure> {
    if recipe.pool.has_machines() {
        return None;
    }
    let plan = planned(recipe, &data_facts(facts))?;
    // No thread more than there must be: the number may still be chosen.
    let (threads, size) = (training_threads(Some(1), &plan), cluster_size(Some(1), &plan));
    memory::check(&plan, memory_bytes(&plan, threads, size)).err()
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

/// Refuses steps of a set-up that name what is not here, each where the recipe has it.
pub fn check_setup<R: Root>(source: &Sound<R>, steps: &[Step]) -> Result<()> {
    let faults = Setup::faults(steps);
    if faults.is_empty() {
        return Ok(());
    }
    let finding = |(at, fault): (usize, Fault)| {
        let mut finding =
            Finding::new(format!("setup.{at}"), format!("step {}: {}", at + 1, fault.what));
        finding.hint = fault.hint.filter(|hint| !hint.is_empty());
        finding
    };
    Err(source.diagnose_all(faults.into_iter().map(finding).collect()).into())
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
