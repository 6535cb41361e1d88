//! What a run in one process makes of a recipe, and what of it can be compared.

use planaria_coordinator::run::course::{Course, Done, Next, Validation};
use planaria_learn::{Scores, Weights};
use planaria_protocol::event::{Figures, What};
use planaria_protocol::message::HeldOut;
use planaria_protocol::state::{State, Tally};

/// What a run in one process makes of a recipe.
#[derive(Debug, Default)]
pub struct Truth {
    /// What training had changed after each step.
    pub weights: Vec<Weights>,
    /// How far it had come in the end, times left out.
    pub state: State,
    /// Its figures, times left out.
    pub figures: Vec<What>,
    /// The scores of its last weights.
    pub scores: Option<(HeldOut, Scores)>,
}

/// A run in one process, as far as its course needs it.
pub trait PlainRun {
    /// Takes a step on a batch.
    fn step(&mut self, at: At, learning_rate: f32) -> Done;
    /// What training has changed so far.
    fn weights(&self) -> Weights;
    /// Scores of the weights after `step` steps, where there is such a part.
    fn score(&mut self, part: HeldOut, step: u64) -> Option<Scores>;
}

/// A step and what it is taken on.
#[derive(Debug, Clone, Copy)]
pub struct At {
    pub epoch: u64,
    /// Over the whole run.
    pub step: u64,
    /// In the epoch.
    pub batch: u64,
}

/// What comes of a run that follows this course from its start.
///
/// Drives the course itself and not a whole run, so that the truth stands apart from what it is
/// compared with: a fault in what surrounds the course (leases, commits, the record of what counts)
/// would otherwise be in both, and no comparison would show it.
pub fn follow(mut course: Course, run: &mut impl PlainRun) -> Truth {
    let mut truth = Truth { weights: vec![run.weights()], ..Truth::default() };
    loop {
        match course.next() {
            Next::Train(steps) => {
                for (step, batch) in steps.steps().zip(steps.batches.clone()) {
                    let at = At { epoch: steps.epoch, step, batch };
                    let done = run.step(at, course.learning_rate(step));
                    truth.weights.push(run.weights());
                    truth.figures.extend(course.stepped(0.0, &done).map(timeless_what));
                }
            }
            Next::Validate => {
                let scores = run.score(HeldOut::Validation, course.state().step);
                let figures = scores.as_ref().map(Validation::of);
                truth.scores = scores.map(|scores| (HeldOut::Validation, scores));
                truth.figures.push(timeless_what(course.validated(0.0, figures)));
            }
            Next::Save { .. } => course.saved(),
            Next::End(_) => break,
        }
    }
    if let Some(scores) = run.score(HeldOut::Test, course.state().step) {
        truth.scores = Some((HeldOut::Test, scores));
    }
    truth.state = timeless_state(course.state().clone());
    truth
}

/// Something that must hold and does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub String);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A state without what depends on time and on how often the run was resumed.
pub fn timeless_state(state: State) -> State {
    let still = |tally: Tally| Tally { seconds: 0.0, ..tally };
    State {
        this_epoch: still(state.this_epoch),
        since_line: still(state.since_line),
        seconds_training: 0.0,
        seconds_total: 0.0,
        seconds_to_first_step: None,
        resumes: 0,
        ..state
    }
}

/// Figures without what depends on time.
pub fn timeless_what(what: What) -> What {
    let still =
        |figures: Figures| Figures { examples_per_second: None, training_seconds: 0.0, ..figures };
    match what {
        What::Steps(figures) => What::Steps(still(figures)),
        What::Epoch {
            figures,
            validation_loss,
            validation_accuracy,
            validation_errors,
            read,
            exact,
        } => What::Epoch {
            figures: still(figures),
            validation_loss,
            validation_accuracy,
            validation_errors,
            read,
            exact,
        },
        other => other,
    }
}
