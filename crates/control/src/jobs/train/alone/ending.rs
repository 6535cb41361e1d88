//! The end of a run in one process.
//!
//! Owns what is written of it: the last files from what the learner holds, and after them the last
//! events. Never trains.

use super::Session;
use crate::jobs::train::ending::{Ended, Finished, Means, Results, facts};
use crate::jobs::train::unwritten;
use planaria_learn::Scores;
use planaria_protocol::event::What;
use planaria_protocol::message::HeldOut;
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::traces::report::{Outcome, Report, peak_memory_bytes};

impl Session {
    /// Writes the last files.
    pub(super) fn finish(mut self, ended: Result<Ended>) -> Result<Finished> {
        // Nothing is written of it into a folder that may be another session's.
        self.job.run.check()?;
        let ended = ended.unwrap_or_else(Ended::failed);
        let hint = ended.hint();
        let Ended { outcome, reason, failure } = ended;
        let scored = self.last_scores.take();
        let means = Means {
            engine: self.learner().engine(),
            threads: self.learner().threads(),
            workers: 0,
            servers: 0,
            generation: self.files.journal.generation(),
        };
        let facts = facts(&self.job, means)?;
        let state = self.state();
        let (snapshot, values) = (self.learner().snapshot(), self.learner().values());
        let results = Results {
            job: &self.job,
            facts: &facts,
            state: &state,
            lines: self.recorder.lines(),
            outcome,
            reason,
            hint,
            scores: scored.as_ref(),
            parameters: &snapshot.parameters,
            values: &values,
            peak_memory_bytes: peak_memory_bytes(),
        };
        let report = results.report();
        let written = results.write(&report);
        drop((snapshot, values));
        let written =
            written.and_then(|()| self.conclude(&report, scored.as_ref(), failure.as_ref()));
        Finished::new(&self.job, report, written, failure)
    }

    /// The last events of a session.
    fn conclude(
        &mut self,
        report: &Report,
        scored: Option<&(HeldOut, Scores)>,
        failure: Option<&Failure>,
    ) -> Result<()> {
        if let Some((part, scores)) = scored {
            self.emit(What::Scored {
                part: *part,
                examples: scores.examples(),
                loss: scores.loss(),
                accuracy: scores.accuracy(),
                errors: scores.errors(),
                scores: scores.to_value(),
            })?;
        }
        let over = matches!(report.outcome, Outcome::Completed | Outcome::StoppedEarly);
        self.emit(What::Ended {
            outcome: report.outcome,
            reason: report.reason.clone(),
            step: report.steps,
            weights_sha256: report.weights_sha256.clone().filter(|_| over),
            trouble: failure.map(Failure::trouble),
            state: Some(Box::new(self.state())),
        })?;
        self.files.journal.sync().context(unwritten)
    }
}
