//! A coded run, as its recipe and what others have left make it.
//!
//! Owns where such a run goes on from: the weights that another coordinator has kept, a checkpoint,
//! or the beginning. Reads files; never decides what comes next.

use super::arithmetic::{Arithmetic, Code};
use super::learner::Learner;
use super::{Settings, run};
use crate::kept;
use crate::methods::Built;
use crate::run::{Origin, Session};
use planaria_learn::linear::Batches;
use planaria_numerics::coding::exact::Residue;
use planaria_numerics::coding::generator::Generator;
use planaria_numerics::coding::{Error, Precision, quality};
use planaria_protocol::checkpoint::{self, Manifest};
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Trouble;
use planaria_recipe::train::LinearPrecision;
use std::path::Path;

/// The run of a recipe, and how its checkpoints are laid out: one part, the coordinator's.
pub fn build(launch: &Launch, session: Session, manifest: Manifest) -> Result<Built, Trouble> {
    let code = launch.recipe.train.code().ok_or_else(|| Trouble::new("the recipe has no code"))?;
    quality::of(code).map_err(unfit)?;
    let (threshold, machines) = (code.threshold, code.machines);
    let real = || Generator::stored(threshold, machines).map_err(unfit);
    let code: Box<dyn Arithmetic> = match code.precision {
        LinearPrecision::F32 => {
            Box::new(Code::<f32> { generator: real()?, precision: Precision::F32 })
        }
        LinearPrecision::F64 => {
            Box::new(Code::<f64> { generator: real()?, precision: Precision::F64 })
        }
        LinearPrecision::Exact => {
            let generator = Generator::cauchy(threshold, machines).map_err(unfit)?;
            Box::new(Code::<Residue> { generator, precision: Precision::Exact })
        }
    };
    let (recipe, facts) = (&launch.recipe, &launch.facts);
    let batches = Batches::of(&recipe.train, facts.examples as usize).map_err(Trouble::new)?;
    let settings = Settings { code, batches, generation: launch.generation };
    let columns = launch.course.as_ref().map_or_else(Vec::new, |course| course.columns.clone());
    let mut learner = Learner::new(recipe, facts.input)?.naming(columns);
    let has_kept = restore(launch.state.as_deref(), &session.origin, &mut learner)?;
    let (parameters, state) = learner.to_parts();
    let (parameters, state_values) = (parameters.len() as u64, state.len() as u64);
    let manifest = Manifest { parameters, state_values, slots: 0, ..manifest };
    let run = Box::new(run(session, settings, learner, has_kept));
    let ranges = std::iter::once(0..parameters).collect();
    Ok(Built { run, ranges, manifest })
}

/// Gives the learner the weights to go on with: what was kept, where it is of the step that counts
/// (then true), else the checkpoint's.
fn restore(folder: Option<&str>, origin: &Origin, learner: &mut Learner) -> Result<bool, Trouble> {
    let step = origin.newest_record().map(|record| record.state.step);
    let kept = folder.zip(step).and_then(|(folder, step)| kept::read(Path::new(folder), step));
    if kept.is_some_and(|weights| learner.restore_bytes(&weights)) {
        return Ok(true);
    }
    if let Some(folder) = &origin.checkpoint {
        let read = checkpoint::read(Path::new(folder)).map_err(Trouble::new)?;
        learner.restore(&read.weights.state)?;
    }
    Ok(false)
}

fn unfit(error: Error) -> Trouble {
    Trouble { fix_input: true, ..Trouble::new(error) }
}
