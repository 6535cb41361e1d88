//! The coordinator of a coded run, as its orders and what others have left make it.
//!
//! Owns where such a run goes on from: the weights that another coordinator has kept, a checkpoint,
//! or the beginning. Begins the source of its rows. Never decides what comes next.

use crate::jobs::train::source::Source;
use planaria_coordinator::coded::decide::{Coded, Setting, Start};
use planaria_coordinator::coded::iteration::Code;
use planaria_coordinator::coded::keeping;
use planaria_coordinator::coded::learner::{Learner, Value};
use planaria_coordinator::decide::cluster::Origin;
use planaria_coordinator::decide::course::Setup;
use planaria_coordinator::serve::{Deciding, Log, Serving};
use planaria_learn::linear::{Batches, code_quality};
use planaria_numerics::coding::Precision;
use planaria_numerics::coding::exact::Residue;
use planaria_numerics::coding::generator::Generator;
use planaria_protocol::checkpoint;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::{EVALUATION_BATCH, Trouble};
use planaria_recipe::train::{Coded as Words, CodedPrecision};
use std::path::Path;
use std::sync::Arc;

/// Who decides in a coded run; `before` is how many seconds of it are past.
pub fn decider(
    launch: &Launch,
    words: &Words,
    setup: Setup,
    origin: Origin,
    before: f64,
) -> Result<Box<dyn Deciding>, Trouble> {
    code_quality(words).map_err(unfit)?;
    let (threshold, machines) = (words.threshold, words.machines);
    let real = || Generator::stored(threshold, machines).map_err(unfit);
    Ok(match words.precision {
        CodedPrecision::F32 => {
            let code = Code { generator: real()?, precision: Precision::F32 };
            Box::new(coded::<f32>(launch, code, setup, origin, before)?)
        }
        CodedPrecision::F64 => {
            let code = Code { generator: real()?, precision: Precision::F64 };
            Box::new(coded::<f64>(launch, code, setup, origin, before)?)
        }
        CodedPrecision::Exact => {
            let generator = Generator::cauchy(threshold, machines).map_err(unfit)?;
            let code = Code { generator, precision: Precision::Exact };
            Box::new(coded::<Residue>(launch, code, setup, origin, before)?)
        }
    })
}

/// What serves the rows of a coded run to its workers; nothing for other runs.
pub fn rows(launch: &Launch, log: Log) -> Result<Option<Serving>, Trouble> {
    if launch.recipe.train.code().is_none() {
        return Ok(None);
    }
    let source = Source::open(launch, log)?;
    Ok(Some(Arc::new(move |join, sender, receiver| source.serve(join, sender, receiver))))
}

fn coded<E: Value>(
    launch: &Launch,
    code: Code<E::Scalar>,
    setup: Setup,
    origin: Origin,
    before: f64,
) -> Result<Coded<E>, Trouble> {
    let (recipe, facts) = (&launch.recipe, &launch.facts);
    let batches = Batches::of(&recipe.train, facts.examples as usize).map_err(Trouble::new)?;
    let count = |examples: u64| examples.div_ceil(EVALUATION_BATCH as u64);
    let setting = Setting {
        code,
        batches,
        workers: launch.size.workers,
        held_out: [count(facts.validation), count(facts.test)],
        build: launch.build.clone(),
        generation: launch.generation,
    };
    let columns = launch.course.as_ref().map_or_else(Vec::new, |course| course.columns.clone());
    let mut learner = Learner::new(recipe, facts.input)?.naming(columns);
    let start = start(launch.state.as_deref(), origin, &mut learner)?;
    Ok(Coded::new(setting, setup, learner, start, before))
}

/// The weights to go on with: what was kept, where it is of the step that counts, else the
/// checkpoint's.
fn start<E: Value>(
    folder: Option<&str>,
    origin: Origin,
    learner: &mut Learner<E>,
) -> Result<Start, Trouble> {
    let Origin { checkpoint, state, record, told, after } = origin;
    let before = record.as_ref().map_or(0, |record| record.state.step).max(told);
    // One from before what was told would have steps count twice.
    let kept = record.filter(|record| record.state.step >= told).filter(|record| {
        let weights = folder.and_then(|f| keeping::read(Path::new(f), record.state.step));
        weights.is_some_and(|weights| learner.restore_bytes(&weights))
    });
    if let Some(record) = kept {
        let state = planaria_protocol::state::State {
            step: record.state.step,
            resumes: state.resumes,
            ..record.state.clone()
        };
        let source = "kept".to_owned();
        return Ok(Start { state, record: Some(record), source, superseded: 0, after });
    }
    let source = match &checkpoint {
        None => "the seed".to_owned(),
        Some(folder) => {
            let read = checkpoint::read(Path::new(folder)).map_err(Trouble::new)?;
            learner.restore(&read.weights.state)?;
            folder.clone()
        }
    };
    let lost = before > state.step;
    let after =
        after.or_else(|| lost.then(|| "what was kept does not fit, or is not whole".into()));
    let superseded = before.saturating_sub(state.step);
    Ok(Start { state, record: None, source, superseded, after })
}

fn unfit(error: planaria_numerics::coding::Error) -> Trouble {
    Trouble { fix_input: true, ..Trouble::new(error) }
}
