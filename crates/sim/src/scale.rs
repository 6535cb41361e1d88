//! What decisions cost with many workers: the decisions alone, with all other processes a stub that
//! answers at once.
//!
//! Every worker has one shard. A worker that enters holds what the servers say. A step takes so long that
//! each is leased on its own, which is the most that there can be to decide. Time is told by the
//! caller: only `main` asks a real clock.

use planaria_coordinator::methods::sync::{self as method, Settings, SyncRun};
use planaria_coordinator::run::course::Setup;
use planaria_coordinator::run::watch::Rule;
use planaria_coordinator::run::{Action, Config, Decision, Input, Origin, Session};
use planaria_protocol::message::{Agent, FromServer, FromWorker, Join, ToServer, ToWorker};
use planaria_protocol::methods::{self, sync};
use planaria_recipe::train::{Monitor, Train};
use std::collections::VecDeque;
use std::time::Duration;

/// Servers of every run.
const SERVERS: u32 = 4;

/// Time that a step takes.
const STEP: Duration = Duration::from_millis(50);

/// What decisions cost.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub workers: u32,
    pub steps: u64,
    /// Time spent in decisions.
    pub time: Duration,
}

impl Cost {
    /// Microseconds of a step.
    pub fn per_step(&self) -> f64 {
        self.time.as_secs_f64() * 1e6 / self.steps as f64
    }

    /// Microseconds of a step for each worker.
    pub fn per_worker(&self) -> f64 {
        self.per_step() / f64::from(self.workers)
    }
}

/// A run of so many workers; `clock` tells how much time was spent.
pub fn measure(workers: u32, steps: u64, clock: impl Fn() -> Duration) -> Cost {
    let setup = Setup {
        epochs: 1,
        steps_per_epoch: steps,
        classification: true,
        has_validation: false,
        checkpoint_epochs: 1,
        checkpoint_steps: 0,
        rule: Rule { monitor: Monitor::Loss, patience: None, min_delta: 0.0 },
        examples: (0..steps * u64::from(workers)).collect(),
        remedy: Default::default(),
        train: Train::default(),
    };
    let config = Config {
        workers,
        workers_min: 1,
        servers: SERVERS,
        blocks: 64,
        held_out: [0, 0],
        build: "sim".into(),
    };
    let blocks: Vec<usize> = (0..SERVERS).map(|s| config.blocks_of(s).len()).collect();
    let settings =
        Settings { shards: workers, redundancy: 0, batch: u64::from(workers), clip_norm: None };
    let session = Session { config, setup, origin: Origin::default(), seconds_before: 0.0 };
    let cluster = method::run(session, settings);
    let mut stage = Stage {
        cluster,
        now: Duration::ZERO,
        inputs: VecDeque::new(),
        blocks,
        workers,
        planned: VecDeque::new(),
        gathered: None,
        committed: 0,
        over: false,
        spent: Duration::ZERO,
    };
    stage.everyone_joins();
    while let (false, Some(input)) = (stage.over, stage.inputs.pop_front()) {
        stage.decide(input, &clock);
        if stage.inputs.is_empty() && !stage.over {
            stage.now += Duration::from_millis(10);
            stage.inputs.push_back(Input::Tick);
        }
    }
    // The cost of all workers' joining is included, as in every run.
    Cost { workers, steps: stage.committed, time: stage.spent }
}

/// Stubs around the decisions.
struct Stage {
    cluster: SyncRun,
    now: Duration,
    inputs: VecDeque<Input>,
    blocks: Vec<usize>,
    workers: u32,
    /// Steps that are leased and not gathered.
    planned: VecDeque<u64>,
    gathered: Option<u64>,
    committed: u64,
    over: bool,
    spent: Duration,
}

impl Stage {
    fn everyone_joins(&mut self) {
        let servers = (0..SERVERS).map(Agent::Server);
        for agent in servers.chain((0..self.workers).map(Agent::Worker)) {
            let (build, address) = ("sim".to_owned(), Some("here".to_owned()));
            let join = Join { address, ..Join::new(agent, build, 1) };
            self.inputs.push_back(Input::Joined(join));
        }
    }

    fn decide(&mut self, input: Input, clock: &impl Fn() -> Duration) {
        self.now += Duration::from_micros(5);
        let input_is_tick = input == Input::Tick;
        let before = clock();
        let decisions = self.cluster.step(self.now, input);
        if input_is_tick {
            drop(self.cluster.pulse(self.now));
        }
        self.spent += clock().saturating_sub(before);
        decisions.into_iter().for_each(|decision| self.act(decision));
        self.gather();
    }

    fn act(&mut self, Decision { action, .. }: Decision) {
        let ready = FromWorker::Ready { engine: "none".into(), threads: 1 };
        match action {
            Action::ToServer(server, ToServer::Begin { .. }) => {
                self.inputs.push_back(Input::Server(server, FromServer::Ready, Vec::new()));
            }
            Action::ToServer(0, ToServer::Round { steps, .. }) => {
                self.planned.extend(steps.steps());
            }
            Action::ToServer(0, ToServer::Commit { step }) => {
                self.committed = step + 1;
                self.now += STEP;
                // The polls of that time, and what is shown.
                self.inputs.extend(std::iter::repeat_n(Input::Tick, 5));
                self.gathered = None;
            }
            Action::ToServer(server, ToServer::Save { step, .. }) => self.saved(server, step),
            Action::BeginCheckpoint { step } => {
                (0..SERVERS).for_each(|server| self.saved(server, step));
            }
            Action::ToWorker {
                worker,
                message: ToWorker::Method(methods::Command::Sync(sync::Command::Begin { .. })),
                ..
            } => {
                self.inputs.push_back(Input::worker(worker, ready));
            }
            Action::ToWorker {
                worker,
                message:
                    ToWorker::Method(methods::Command::Sync(sync::Command::Lease {
                        steps, enter, ..
                    })),
                ..
            } => {
                if enter {
                    self.enter(worker, steps.first_step);
                }
                let pace = FromWorker::from(sync::Report::Pace {
                    step: steps.steps().end,
                    examples: steps.steps().end - steps.first_step,
                    busy_seconds: 0.01,
                    waiting_seconds: 0.0,
                });
                self.inputs.push_back(Input::worker(worker, pace));
            }
            Action::ToWorker { worker, message: ToWorker::Revoke { ticket }, .. } => {
                self.inputs.push_back(Input::worker(worker, FromWorker::Revoked { ticket }));
            }
            Action::WriteManifest(_) => {
                self.inputs.push_back(Input::ManifestWritten(Ok("there".into())));
            }
            Action::End | Action::Restart => self.over = true,
            _ => {}
        }
    }

    fn saved(&mut self, server: u32, step: u64) {
        let (file, sha256) = (format!("part-{server}"), String::new());
        let saved = FromServer::Saved { step, file, sha256, bytes: 1 };
        self.inputs.push_back(Input::Server(server, saved, Vec::new()));
    }

    fn enter(&mut self, worker: u32, step: u64) {
        let sha256 = vec![[0; 32]; SERVERS as usize];
        self.inputs.push_back(Input::worker(
            worker,
            FromWorker::from(sync::Report::Holds { step, sha256 }),
        ));
        for server in 0..SERVERS {
            let pulled = FromServer::Pulled { worker, step, sha256: [0; 32] };
            self.inputs.push_back(Input::Server(server, pulled, Vec::new()));
        }
    }

    /// The next step is summed, applied and counted.
    fn gather(&mut self) {
        if self.gathered.is_some() || self.planned.front() != Some(&self.committed) {
            return;
        }
        let Some(step) = self.planned.pop_front() else { return };
        self.gathered = Some(step);
        let first = step * u64::from(self.workers);
        let read = (first..first + u64::from(self.workers)).collect();
        let counted = FromServer::Counted { step, loss_sum: 1.0, correct: 0, read };
        self.inputs.push_back(Input::Server(0, counted, Vec::new()));
        for (server, blocks) in (0..SERVERS).zip(self.blocks.clone()) {
            let applied = FromServer::Applied { step };
            self.inputs.push_back(Input::Server(server, applied, vec![1.0; blocks]));
        }
    }
}
