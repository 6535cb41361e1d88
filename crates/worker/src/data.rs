//! A run's data as a worker has it: what of it the engine takes, whether it is the run's, and its
//! errors as reasons to end.

use planaria_data::{DataSet, Kind, Targets as Read};
use planaria_learn::Targets;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Trouble;

/// A batch's targets as the engine takes them.
pub fn targets(read: &Read) -> Targets<'_> {
    match read {
        Read::Classes(classes) => Targets::Classes(classes),
        Read::Values(values) => Targets::Values(values),
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
    })
}

/// An error of the data as this process' trouble.
pub fn data_trouble(error: planaria_data::Error) -> Trouble {
    Trouble { fix_input: error.kind() == Kind::FixInput, ..Trouble::new(error) }
}
