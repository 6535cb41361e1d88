//! What must hold of every decision, whatever happens.

use super::{Ground, Shape};
use planaria_coordinator::decide::cluster::{Action, Decision, Input, Saving};
use planaria_protocol::event::What;
use planaria_protocol::message::{FromServer, HeldOut, Share, Steps, ToServer, ToWorker};
use planaria_protocol::state::State;

pub struct Check {
    shape: Shape,
    pub over: bool,
    pub lost: bool,
    /// By server: commits.
    committed: Vec<u64>,
    /// By server: steps applied, as the coordinator has heard.
    applied: Vec<u64>,
    counted: u64,
    /// Steps leased so far.
    leased: u64,
    /// The round whose leases are being told: whom it gives which shards.
    round: Option<(Steps, Vec<Share>)>,
    told: Vec<(u32, std::ops::Range<u32>)>,
    /// Whole epochs, as recorded.
    epochs: u64,
    /// Batches of the validation part scored in this epoch.
    validated: u64,
    saving: Option<u64>,
    manifest: Option<Saving>,
    saved: Option<State>,
    finished: (Vec<u32>, Vec<u32>),
    ended: Option<(String, Option<String>, State)>,
    stopping: bool,
    start: u64,
}

impl Check {
    pub fn new(shape: Shape, state: State) -> Self {
        let n = shape.servers as usize;
        Self {
            over: false,
            lost: false,
            committed: vec![state.step; n],
            applied: vec![state.step; n],
            counted: state.step,
            leased: state.step,
            round: None,
            told: Vec::new(),
            epochs: state.epoch,
            validated: 0,
            saving: None,
            manifest: None,
            start: state.step,
            saved: (state.step > 0).then_some(state),
            finished: (vec![], vec![]),
            ended: None,
            stopping: false,
            shape,
        }
    }

    pub fn hears(&mut self, input: &Input) {
        match input {
            Input::Server(s, FromServer::Applied { step }, _) => {
                self.applied[*s as usize] = step + 1;
            }
            Input::Server(_, FromServer::Counted { step, .. }, _) => self.counted = step + 1,
            Input::Scored(HeldOut::Validation, ..) => self.validated += 1,
            Input::ManifestWritten(written) => {
                self.saving = None;
                let manifest = self.manifest.take().expect("a manifest was asked for");
                if written.is_ok() {
                    self.saved = Some(manifest.state);
                }
            }
            Input::Stop(_) => self.stopping = true,
            _ => {}
        }
    }

    pub fn decided(&mut self, seed: u64, decision: &Decision) {
        let Decision { action, reason } = decision;
        assert!(!reason.trim().is_empty(), "seed {seed}: no reason for {action:?}");
        assert!(!self.over, "seed {seed}: {action:?} after the end");
        if self.ended.is_some() {
            let last = matches!(
                action,
                Action::ToWorker(_, ToWorker::Finish)
                    | Action::ToServer(_, ToServer::Finish)
                    | Action::End
            );
            assert!(last, "seed {seed}: {action:?} after the run has ended");
        }
        if !matches!(action, Action::ToWorker(_, ToWorker::Lease { .. })) {
            self.close_round(seed, action);
        }
        match action {
            Action::ToServer(server, said) => self.server_told(seed, *server, said),
            Action::ToWorker(worker, said) => self.worker_told(seed, *worker, said),
            Action::Record(what) => self.recorded(seed, what),
            Action::Save(step) => {
                assert_eq!(self.saving, None, "seed {seed}: two saves at once");
                assert!(self.committed.iter().all(|c| c == step), "seed {seed}: {step}");
                assert_eq!(self.leased, *step, "seed {seed}: nothing is leased beyond a save");
                self.saving = Some(*step);
            }
            Action::WriteManifest(saving) => {
                assert_eq!(self.saving, Some(saving.state.step), "seed {seed}");
                assert!(saving.parts.iter().all(Option::is_some), "seed {seed}");
                assert!(!saving.reason.is_empty());
                self.manifest = Some((**saving).clone());
            }
            Action::End => {
                let all = |n: u32| (0..n).collect::<Vec<_>>();
                let told = (all(self.shape.workers), all(self.shape.servers));
                assert_eq!(self.finished, told, "seed {seed}: everyone hears the end, once");
                assert!(self.ended.is_some(), "seed {seed}: an end without a word");
                self.over = true;
            }
        }
    }

    fn server_told(&mut self, seed: u64, server: u32, said: &ToServer) {
        let at = server as usize;
        match said {
            ToServer::Commit { step } => {
                assert_eq!(self.committed[at], *step, "seed {seed}: commits in order, once");
                self.committed[at] += 1;
                let holds = |s: usize| self.shape.holds(s);
                for (s, applied) in self.applied.iter().enumerate() {
                    assert!(!holds(s) || *applied == step + 1, "seed {seed}: server {s} has not");
                }
                assert_eq!(self.counted, step + 1, "seed {seed}: counted");
            }
            ToServer::Round { steps, shares } => {
                assert_eq!(steps.first_step, self.round_start(), "seed {seed}: rounds in order");
                assert_eq!(steps.batches.start, steps.first_step % self.shape.batches);
                assert!(steps.batches.end <= self.shape.batches, "seed {seed}: {steps:?}");
                assert_eq!(steps.epoch, self.epochs, "seed {seed}: {steps:?} before validation");
                let mut next = 0;
                for share in shares {
                    assert_eq!(share.shards.start, next, "seed {seed}: {shares:?}");
                    next = share.shards.end;
                }
                assert_eq!(next, self.shape.shards, "seed {seed}: every shard once");
                assert!(!self.stopping, "seed {seed}: a round after a stop");
                match &self.round {
                    None => self.round = Some((steps.clone(), shares.clone())),
                    Some(round) => assert_eq!((steps, shares), (&round.0, &round.1)),
                }
            }
            ToServer::Finish => self.finished.1.push(server),
            _ => {}
        }
    }

    fn worker_told(&mut self, seed: u64, worker: u32, said: &ToWorker) {
        match said {
            ToWorker::Lease { steps, shards } => {
                let (round, _) = self.round.as_ref().expect("servers hear of a round first");
                assert_eq!(steps, round, "seed {seed}");
                self.told.push((worker, shards.clone()));
            }
            ToWorker::Evaluate { part: HeldOut::Validation, step, .. } => {
                assert!(self.committed.iter().all(|c| c == step), "seed {seed}");
                assert_eq!(self.leased, *step, "seed {seed}: leases beyond a validation");
            }
            ToWorker::Finish => self.finished.0.push(worker),
            _ => {}
        }
    }

    fn recorded(&mut self, seed: u64, what: &What) {
        match what {
            What::Epoch { figures, exact, .. } => {
                self.epochs += 1;
                assert_eq!(figures.epoch, self.epochs, "seed {seed}");
                assert_eq!(figures.step, self.epochs * self.shape.batches, "seed {seed}");
                assert!(exact, "seed {seed}: every example once in epoch {}", self.epochs);
                assert!(self.validated >= self.shape.held_out[0], "seed {seed}: not validated");
                self.validated = 0;
            }
            What::Saved { step, folder, reason, .. } => {
                assert_eq!(Some(*step), self.saved.as_ref().map(|s| s.step), "seed {seed}");
                assert!(!folder.is_empty() && !reason.is_empty());
            }
            What::Ended { outcome, reason, step, trouble, state, .. } => {
                assert!(self.ended.is_none(), "seed {seed}: ended twice");
                assert_eq!(outcome == "failed", trouble.is_some(), "seed {seed}");
                if outcome != "failed" {
                    assert_eq!(self.saving, None, "seed {seed}: a checkpoint is on its way");
                }
                let state = (**state.as_ref().expect("where it stood")).clone();
                assert_eq!(*step, state.step);
                self.ended = Some((outcome.clone(), reason.clone(), state));
            }
            _ => {}
        }
    }

    /// The leases of a round have all been told.
    fn close_round(&mut self, seed: u64, action: &Action) {
        let same = matches!(action, Action::ToServer(_, ToServer::Round { steps, .. })
            if self.round.as_ref().is_some_and(|(round, _)| round == steps));
        if same {
            return;
        }
        let Some((steps, shares)) = self.round.take() else { return };
        let told = std::mem::take(&mut self.told);
        let shares: Vec<_> = shares
            .into_iter()
            .filter(|s| !s.shards.is_empty())
            .map(|s| (s.worker, s.shards))
            .collect();
        assert_eq!(told, shares, "seed {seed}: leases are what servers expect");
        self.leased = steps.steps().end;
    }

    fn round_start(&self) -> u64 {
        self.round.as_ref().map_or(self.leased, |(steps, _)| steps.first_step)
    }

    pub fn ground(self) -> Ground {
        let (outcome, reason, state) = self.ended.expect("the run has ended");
        if outcome == "completed" {
            assert!(self.committed.iter().all(|c| *c == self.shape.steps()));
        }
        assert!(outcome != "failed" || self.lost || reason.is_some());
        let place = |s: &State| (s.step, s.epoch, s.batch);
        let saved_all = self.saved.as_ref().map(place) == Some(place(&state))
            || state.step == self.start && state.step == 0;
        Ground {
            outcome,
            reason,
            step: state.step,
            epochs: self.shape.epochs,
            exact_epochs: state.exact_epochs,
            saved_all,
            saved_state: self.saved,
        }
    }
}

impl Shape {
    fn holds(&self, server: usize) -> bool {
        let (blocks, servers) = (self.blocks as usize, self.servers as usize);
        !planaria_numerics::aggregate::shard_range(blocks, servers, server).is_empty()
    }
}
