//! Methods of training, as a worker takes part in them. One folder each; a new one is a folder and a
//! line here.

pub mod coded;
pub mod solo;
pub mod sync;

use crate::data::classes;
use crate::session::shell::{Log, Setting};
use planaria_data::{DataSet, Part};
use planaria_learn::Network;
use planaria_protocol::clock::Clock;
use planaria_protocol::launch::{Facts, Launch};
use planaria_protocol::link::{Receiver, Sender};
use planaria_protocol::message::{Join, Trouble};
use planaria_recipe::train::Method;
use planaria_recipe::{Plan, Recipe, Shape};
use std::sync::Arc;

/// Works in a run, by its method, until the coordinator says that the run is over.
pub fn run(launch: &Launch, index: u32, clock: &dyn Clock, log: Log) -> Result<(), Trouble> {
    let setting = Setting::of(launch, index, clock, log)?;
    match launch.recipe.train.method {
        Method::Sync => sync::run(launch, &setting),
        Method::Coded => coded::run(launch, &setting),
    }
}

/// Finds what a method has to say against the data, before anything is made or asked for.
pub fn check(recipe: &Recipe, input: Shape, data: &DataSet) -> Result<(), Trouble> {
    match recipe.train.method {
        Method::Sync => Ok(()),
        Method::Coded => coded::serving::check(recipe, input, data),
    }
}

/// Serves a link to a worker, on a thread of its own.
pub type Serving = Arc<dyn Fn(&Join, Sender, Receiver) + Send + Sync>;

/// What gives rows to workers that never see the data, where the method has such; for the process
/// that has the data.
pub fn serving(launch: &Launch, log: &Log) -> Result<Option<Serving>, Trouble> {
    match launch.recipe.train.method {
        Method::Sync => Ok(None),
        Method::Coded => coded::serving::serving(launch, log).map(Some),
    }
}

/// What is known of a run's data and network.
pub fn facts(plan: &Plan, data: &DataSet, network: &Network) -> Facts {
    let examples = |part: &Option<Part>| part.as_ref().map_or(0, Part::len);
    let marks: Vec<_> = data.marks.iter().map(|m| (m.name.clone(), m.content.clone())).collect();
    Facts {
        input: plan.input,
        classes: classes(plan, network) as u32,
        examples: data.train.len(),
        digest: data.train.digest(),
        validation: examples(&data.validation),
        test: examples(&data.test),
        parameters: network.parameter_count() as u64,
        coding: match plan.recipe.train.method {
            Method::Sync => None,
            Method::Coded => coded::serving::coding(&plan.recipe, &marks, data),
        },
        marks,
    }
}
