//! A recipe's data, opened while the recipe is still being checked.
//!
//! Owns how errors of the data become mistakes in the recipe, or failures. Never reads an example.

use crate::memory;
use crate::size::{cluster_size, memory_bytes, threads, training_threads};
use crate::talk::{Talk, patiently};
use planaria_data::{DataSet, Error, Facts, Kind, Mistake};
use planaria_fleet::provider::Fault;
use planaria_fleet::setup::Setup;
use planaria_recipe::setup::Step;
use planaria_recipe::table::Column;
use planaria_recipe::{DataFacts, Diagnostics, Finding, Recipe, Root, Sound, planned};
use planaria_runs::failure::{Failure, Result};
use planaria_text::number::grouped;
use planaria_worker::features;
use rustix::fs::{Access, access};
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
    let hint = error.hint();
    let failure = match error.kind() {
        Kind::FixInput => Failure::user(error),
        Kind::Retry => Failure::failed(error),
    };
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
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

/// Makes paths of data absolute, so that a run finds it again wherever it is resumed from. On a pool
/// they stay as they are written: its machines have folders of their own.
pub fn anchor(recipe: &mut Recipe) {
    if recipe.pool.has_machines() {
        return;
    }
    for path in recipe.data.paths_mut() {
        // What is not there is told of by the name that it has in the recipe.
        let anchored = Path::new(&*path).exists().then(|| std::path::absolute(&*path).ok());
        if let Some(text) = anchored.flatten().and_then(|path| path.to_str().map(str::to_owned)) {
            *path = text;
        }
    }
}

/// Refuses an `output.dir` that cannot hold runs.
pub fn check_output<R: Root>(source: &Sound<R>, dir: &str) -> Result<()> {
    let parents = Path::new(dir).ancestors();
    // The empty path is the current directory.
    let parents = parents.map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    let Some(nearest) = parents.into_iter().find(|p| p.exists()) else { return Ok(()) };
    if nearest.is_file() {
        let message =
            format!("`{}` is a file, where a folder for runs is needed", nearest.display());
        let hint = "name another folder, such as `dir: runs`";
        return Err(source.diagnose("output.dir", message, Some(hint)).into());
    }
    let Err(cause) = access(nearest, Access::WRITE_OK | Access::EXEC_OK) else { return Ok(()) };
    let cause = std::io::Error::from(cause);
    let folder = std::path::absolute(nearest).unwrap_or_else(|_| nearest.to_path_buf());
    let folder = folder.display();
    if source.is_written("output.dir") {
        let message = format!(
            "runs cannot be written to `{dir}`: no file can be made in `{folder}` ({cause})"
        );
        let hint = "name a folder that you may write to";
        return Err(source.diagnose("output.dir", message, Some(hint)).into());
    }
    Err(Failure::user(format!(
        "runs cannot be written to `{dir}`, which `output.dir` is where the recipe does not set it: \
         no file can be made in `{folder}` ({cause})"
    ))
    .hint("name a folder that you may write to, such as `--set output.dir=/tmp/runs`"))
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
            errors.iter().flat_map(Error::mistakes).map(found).collect()
        }
        Kind::Retry => {
            *broken = Some(Failure::failed(error));
            Vec::new()
        }
    })
}

fn found(mistake: Mistake) -> Finding {
    let mut finding = Finding::new(mistake.key, mistake.message);
    finding.hint = mistake.hint;
    finding
}
