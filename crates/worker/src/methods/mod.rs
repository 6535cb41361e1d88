//! Methods of training, as a worker takes part in them. One folder each; a new one is a folder and a
//! line here.

pub mod coded;
pub mod solo;
pub mod sync;

use crate::session::shell::{Log, Setting};
use planaria_protocol::clock::Clock;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Trouble;
use planaria_recipe::train::Method;

/// Works in a run, by its method, until the coordinator says that the run is over.
pub fn run(launch: &Launch, index: u32, clock: &dyn Clock, log: Log) -> Result<(), Trouble> {
    let setting = Setting::of(launch, index, clock, log)?;
    match launch.recipe.train.method {
        Method::Sync => sync::run(launch, &setting),
        Method::Coded => coded::run(launch, &setting),
    }
}
