//! How a run ends: it waits for the disk, and then tells all members.

use super::course::End;
use super::method::Method;
use super::saving::Save;
use super::{Action, Phase, Run};
use planaria_protocol::event::What;
use planaria_protocol::message::{Outcome, ToServer, ToWorker, Trouble};

impl<M: Method> Run<M> {
    /// Ends as soon as nothing is on its way to the disk.
    pub(super) fn finish(&mut self, end: End) {
        match self.save {
            Some(_) => self.phase = Phase::Ending(end),
            None => self.end(end),
        }
    }

    pub(super) fn end(&mut self, end: End) {
        let (outcome, reason) = match &end {
            End::Completed => (Outcome::Completed, None),
            End::StoppedEarly(reason) => (Outcome::StoppedEarly, Some(reason.clone())),
            End::Interrupted => (Outcome::Interrupted, None),
        };
        if let Some((part, scores)) = &self.scores {
            let scored = What::Scored {
                part: *part,
                examples: scores.examples(),
                loss: scores.loss(),
                accuracy: scores.accuracy(),
                errors: scores.errors(),
                scores: scores.to_value(),
            };
            self.record(scored, "the last weights are scored");
        }
        self.over(outcome, reason, None);
    }

    /// Ends the run with an error. A checkpoint whose parts are all on the disk is finished first:
    /// it is what the run will go on from.
    pub(super) fn fail(&mut self, trouble: Trouble) {
        if self.save.as_ref().is_some_and(Save::is_whole) {
            self.phase = Phase::Failing(trouble);
        } else {
            self.failed(trouble);
        }
    }

    pub(super) fn failed(&mut self, trouble: Trouble) {
        self.over(Outcome::Failed, Some(trouble.message.clone()), Some(trouble));
    }

    fn over(&mut self, outcome: Outcome, reason: Option<String>, trouble: Option<Trouble>) {
        self.tell_pending();
        M::tell_figures(self);
        self.tell_losses();
        self.phase = Phase::Over;
        let state = self.course.state().clone();
        let (step, state) = (state.step, Some(Box::new(state)));
        let ended = What::Ended { outcome, reason, step, weights_sha256: None, trouble, state };
        self.record(ended, "nothing is left to do");
        let workers: Vec<u32> = self.members.workers.keys().copied().collect();
        for worker in workers {
            self.tell_worker(worker, ToWorker::Finish, "the run is over");
        }
        for server in 0..self.config.servers {
            self.tell_server(server, ToServer::Finish, "the run is over");
        }
        self.decide(Action::End, "the run is over");
    }
}
