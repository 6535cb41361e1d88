//! A run's data as a worker has it: what of it the engine takes, whether it is the run's, and its
//! errors as reasons to end.

use planaria_data::{DataSet, Kind, Targets as Read};
use planaria_learn::{Network, Targets};
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Trouble;
use planaria_recipe::Plan;
use planaria_recipe::train::Loss;

/// A batch's targets as the engine takes them.
pub fn targets(read: &Read) -> Targets<'_> {
    match read {
        Read::Classes(classes) => Targets::Classes(classes),
        Read::Values(values) => Targets::Values(values),
    }
}

/// Classes that outputs are told apart by; 0 for regression, which a single output with a squared
/// error is, whatever the labels.
pub fn classes(plan: &Plan, network: &Network) -> usize {
    let outputs = network.output().len();
    match (plan.classes, plan.recipe.train.loss) {
        (None, _) => 0,
        (Some(_), Loss::Mse) if outputs == 1 => 0,
        (Some(classes), _) => classes.max(outputs),
    }
}

/// Refuses other data than the run was planned with.
pub fn same_data(launch: &Launch, data: &DataSet) -> Result<(), Trouble> {
    let marks = data.marks.iter().map(|m| (m.name.clone(), m.content.clone()));
    let facts = &launch.facts;
    if data.train.len() == facts.examples && marks.eq(facts.marks.iter().cloned()) {
        return Ok(());
    }
    Err(Trouble {
        message: format!(
            "the data in `{}` is not what the run began with",
            launch.recipe.data.train
        ),
        hint: Some("put it back as it was, or start a new run".into()),
        fix_input: true,
        of_machine: true,
        agent: None,
    })
}

/// An error of the data as this process' trouble: it was sound where the run was planned, so what
/// is missing or damaged is missing or damaged on this machine.
pub fn data_trouble(error: planaria_data::Error) -> Trouble {
    let is_unfit = error.kind() == Kind::FixInput;
    Trouble { fix_input: is_unfit, of_machine: is_unfit, ..Trouble::new(error) }
}
