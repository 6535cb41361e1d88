//! What is written when a session ends, however it ends: model, report, page.
//!
//! Owns the order in which the last files are written; the report comes last, so that its presence
//! means the others are there. Never trains.

use crate::clock;
use crate::failure::{Failure, Result};
use crate::run_dir::model_file::Description;
use crate::traces::html;
use crate::traces::report::{Ending, Facts, Outcome, Report, peak_memory_bytes, weights_sha256};
use crate::training::run_loop::{End, Session};
use planaria_learn::Scores;

/// A session's result.
#[derive(Debug)]
pub struct Finished {
    /// What is in `report.json`.
    pub report: Report,
    /// The run's folder.
    pub path: std::path::PathBuf,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

/// Writes the last files.
pub fn finish(mut session: Session, end: Result<End>) -> Result<Finished> {
    let (outcome, reason, failure) = match end {
        Ok(End::Completed) => (Outcome::Completed, None, None),
        Ok(End::StoppedEarly(reason)) => (Outcome::StoppedEarly, Some(reason), None),
        Ok(End::Interrupted) => (Outcome::Interrupted, None, None),
        Err(failure) => (Outcome::Failed, Some(failure.message.clone()), Some(failure)),
    };
    let before = clock::Stopwatch::start();
    let scored = match outcome {
        Outcome::Completed | Outcome::StoppedEarly => session.final_scores()?,
        Outcome::Interrupted | Outcome::Failed => session.validation.take().map(validated),
    };
    // A second Ctrl-C ends the process; a first one during the final scores leaves the run to be
    // finished by `resume`.
    let (outcome, scored) = match scored {
        Some((_, None)) => (Outcome::Interrupted, None),
        Some((part, Some(scores))) => (outcome, Some((part, scores))),
        None => (outcome, None),
    };
    session.state.seconds_total += before.seconds();
    let (parameters, state) = (session.trainer.parameters(), session.trainer.state());
    let ending = Ending {
        outcome,
        reason,
        scores: scored.as_ref().map(|(part, scores)| (*part, scores)),
        weights_sha256: weights_sha256(parameters, state),
        peak_memory_bytes: peak_memory_bytes(),
    };
    let lines = session.recorder.lines();
    let report = Report::new(&session.facts(), &session.state, lines, ending);
    let written = session.write(&report);
    let path = session.job.run.path().to_path_buf();
    match (written, failure) {
        (Err(unwritten), None) => Err(unwritten),
        (_, failure) => Ok(Finished { report, path, failure }),
    }
}

type Scored = (&'static str, Option<Scores>);

fn validated(scores: Scores) -> Scored {
    ("validation", Some(scores))
}

impl Session {
    /// Scores of the final weights on the test part, else on the validation part.
    fn final_scores(&mut self) -> Result<Option<Scored>> {
        let data = &self.job.data;
        if let Some(test) = data.test.clone() {
            self.recorder.note("evaluating on the test part");
            return Ok(Some(("test", self.evaluate(&test)?)));
        }
        if let Some(scores) = self.validation.take() {
            return Ok(Some(validated(scores)));
        }
        match data.validation.clone() {
            Some(part) => Ok(Some(("validation", self.evaluate(&part)?))),
            None => Ok(None),
        }
    }

    fn facts(&self) -> Facts {
        let recipe = self.recipe();
        Facts {
            run_id: self.job.run.id(),
            recipe: recipe.name.clone(),
            started: clock::iso8601(
                (clock::unix_seconds() - self.job.process.seconds()).max(0.0) as u64
            ),
            seed: recipe.seed,
            engine: self.trainer.engine().to_owned(),
            threads: self.trainer.threads(),
            shards: recipe.train.shards,
            batch: recipe.train.batch,
            parameters: self.trainer.network().parameter_count(),
            classes: self.class_names(),
            rule: self.rule.clone(),
        }
    }

    /// Classes have numbers for names until a format brings names along.
    fn class_names(&self) -> Vec<String> {
        (0..self.classes()).map(|n| n.to_string()).collect()
    }

    fn write(&self, report: &Report) -> Result<()> {
        let run = &self.job.run;
        if report.outcome != Outcome::Failed {
            let description = Description::new(&self.job.plan, self.class_names());
            let network = self.trainer.network();
            let (parameters, state) = (self.trainer.parameters(), self.trainer.state());
            let tensors = description.tensors(network, parameters, state, &report.run_id);
            run.write("model.safetensors", &tensors)?;
            run.write("model.yaml", description.to_yaml().as_bytes())?;
        }
        let page = html::page(report, self.recorder.lines(), &self.job.recipe_text);
        run.write("report.html", page.as_bytes())?;
        run.write("report.json", report.to_json().as_bytes())
    }
}
