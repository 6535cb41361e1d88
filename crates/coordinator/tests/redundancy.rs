//! Each shard on several workers: as many as are asked for may be lost or late, and no step waits.

use planaria_coordinator::methods::sync::{self as method, Settings, SyncRun};
use planaria_coordinator::run::course::Setup;
use planaria_coordinator::run::watch::Rule;
use planaria_coordinator::run::{Action, Config, Input, Left, Origin, Session};
use planaria_protocol::event::What;
use planaria_protocol::message::{Agent, FromServer, FromWorker, Join, ToServer, ToWorker};
use planaria_protocol::methods::{self, sync};
use planaria_recipe::train::{Monitor, Train};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

const SHARDS: u32 = 6;
const STEP: Duration = Duration::from_millis(100);

struct Run {
    cluster: SyncRun,
    now: Duration,
    step: u64,
    /// Workers that say nothing.
    silent: Vec<u32>,
    workers: u32,
}

impl Run {
    /// Everyone has joined and has leases.
    fn start(workers: u32, redundancy: u32) -> (Self, Vec<Action>) {
        let setup = Setup {
            epochs: 1,
            steps_per_epoch: 1000,
            classification: true,
            has_validation: false,
            checkpoint_epochs: 1,
            checkpoint_steps: 0,
            rule: Rule { monitor: Monitor::Loss, patience: None, min_delta: 0.0 },
            examples: Default::default(),
            remedy: Default::default(),
            train: Train::default(),
        };
        let config = Config {
            workers,
            workers_min: 1,
            servers: 1,
            blocks: 1,
            held_out: [0, 0],
            build: "b".into(),
        };
        let settings =
            Settings { shards: SHARDS, redundancy, batch: u64::from(SHARDS), clip_norm: None };
        let session = Session { config, setup, origin: Origin::default(), seconds_before: 0.0 };
        let cluster = method::run(session, settings);
        let mut run = Self { cluster, now: Duration::ZERO, step: 0, silent: vec![], workers };
        let mut all = run.tell(joined(Agent::Server(0)));
        all.extend(run.tell(Input::Server(0, FromServer::Ready, vec![])));
        for worker in 0..workers {
            all.extend(run.tell(joined(Agent::Worker(worker))));
            let ready = FromWorker::Ready { engine: "e".into(), threads: 1 };
            all.extend(run.tell(Input::worker(worker, ready)));
        }
        (run, all)
    }

    fn tell(&mut self, input: Input) -> Vec<Action> {
        self.cluster.step(self.now, input).into_iter().map(|d| d.action).collect()
    }

    /// A step's time passes, and then it is committed: each segment has come from some worker.
    /// Workers that are not silent are done with their leases then.
    fn step(&mut self) -> Vec<Action> {
        let mut all = self.pass(STEP);
        let step = self.step;
        let read = Default::default();
        let counted = FromServer::Counted { step, loss_sum: 1.0, correct: 1, read };
        for worker in (0..self.workers).filter(|w| !self.silent.contains(w)).collect::<Vec<_>>() {
            let (busy_seconds, waiting_seconds) = (0.1, 0.0);
            let pace = FromWorker::from(sync::Report::Pace {
                step: step + 1,
                examples: 2,
                busy_seconds,
                waiting_seconds,
            });
            all.extend(self.tell(Input::worker(worker, pace)));
        }
        all.extend(self.tell(Input::Server(0, counted, vec![])));
        all.extend(self.tell(Input::Server(0, FromServer::Applied { step }, vec![1.0])));
        assert!(all.contains(&Action::ToServer(0, ToServer::Commit { step })), "{all:?}");
        self.step += 1;
        all
    }

    /// Time passes, and workers that are not silent send heartbeats.
    fn pass(&mut self, time: Duration) -> Vec<Action> {
        let until = self.now + time;
        let mut all = Vec::new();
        while self.now < until {
            self.now += Duration::from_millis(50);
            for worker in (0..self.workers).filter(|w| !self.silent.contains(w)).collect::<Vec<_>>()
            {
                all.extend(self.tell(Input::worker(worker, FromWorker::Alive)));
            }
            all.extend(self.tell(Input::Server(0, FromServer::Alive, vec![])));
            all.extend(self.tell(Input::Tick));
        }
        all
    }
}

fn joined(agent: Agent) -> Input {
    Input::Joined(Join { address: Some("127.0.0.1:1".into()), ..Join::new(agent, "b", 7) })
}

/// First and end of the shards that each worker is given of a step, in the order in which it is.
fn leased(all: &[Action], step: u64) -> BTreeMap<u32, Vec<(u32, u32)>> {
    let mut leased: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
    for action in all {
        if let Action::ToWorker { worker, message, .. } = action
            && let ToWorker::Method(methods::Command::Sync(command)) = message
            && let sync::Command::Lease { steps, shards, .. } = command
            && steps.steps().contains(&step)
        {
            leased.entry(*worker).or_default().push((shards.start, shards.end));
        }
    }
    leased
}

fn reasons(all: &[Action]) -> Vec<&str> {
    let mut reasons = Vec::new();
    for action in all {
        if let Action::Record(What::Dealt { reason, .. }) = action {
            reasons.push(reason.as_str());
        }
    }
    reasons
}

fn is_recorded(all: &[Action], is: impl Fn(&What) -> bool) -> bool {
    all.iter().any(|action| matches!(action, Action::Record(what) if is(what)))
}

#[test]
fn everyone_has_its_own_first_and_then_what_another_has() {
    let (_, all) = Run::start(3, 1);
    let expected =
        [(0, vec![(0, 2), (4, 6)]), (1, vec![(2, 4), (0, 2)]), (2, vec![(4, 6), (2, 4)])]
            .into_iter()
            .collect();
    assert_eq!(leased(&all, 0), expected);
    // What servers wait for is each shard once.
    let shares = all.iter().find_map(|action| match action {
        Action::ToServer(0, ToServer::Round { shares, .. }) => Some(shares),
        _ => None,
    });
    let shards: Vec<Range<u32>> = shares.unwrap().iter().map(|s| s.shards.clone()).collect();
    assert_eq!(shards, [0..2, 2..4, 4..6]);
    let plain = leased(&Run::start(3, 0).1, 0);
    assert_eq!(
        plain,
        [(0, vec![(0, 2)]), (1, vec![(2, 4)]), (2, vec![(4, 6)])].into_iter().collect()
    );
}

#[test]
fn how_often_each_shard_is_dealt_is_told() {
    for (workers, redundancy, expected) in [
        (3, 0, "workers count as equally fast until they are measured"),
        (3, 1, "workers count as equally fast until they are measured; each shard is on 2 workers"),
        (
            2,
            2,
            "workers count as equally fast until they are measured; \
             each shard is on 2 of the 3 workers asked for",
        ),
        (
            1,
            1,
            "workers count as equally fast until they are measured; \
             each shard is on 1 of the 2 workers asked for",
        ),
    ] {
        let (_, all) = Run::start(workers, redundancy);
        assert_eq!(reasons(&all), [expected]);
    }
}

#[test]
fn a_silent_worker_is_not_waited_for() {
    let (mut run, _) = Run::start(3, 1);
    (0..20).for_each(|_| drop(run.step()));
    run.silent = vec![1];
    // Steps go on, and no lease is given because of it.
    let mut all = Vec::new();
    while !is_recorded(&all, |what| matches!(what, What::Suspected { .. })) {
        all.extend(run.step());
        assert!(run.step < 60, "a worker that has come to a halt is found");
    }
    assert!(run.step > 20 + 10, "the halt holds up no step");
    let asks = |action: &Action| matches!(action, Action::ToServer(_, ToServer::Missing { .. }));
    assert!(!all.iter().any(asks), "no step was asked after");
    let expected = Action::to_worker(1, ToWorker::Revoke { ticket: 1 });
    assert!(all.contains(&expected), "{all:?}");
    // It is given nothing more, and its absence has delayed no step.
    let later: Vec<Action> = (0..20).flat_map(|_| run.step()).collect();
    assert!(leased(&later, run.step).keys().eq(&[0, 2]), "{later:?}");
    assert!(!is_recorded(&later, |what| matches!(what, What::Healed { .. })));
    // It answers, and takes part again.
    run.silent.clear();
    let mut all = run.tell(Input::worker(1, FromWorker::Revoked { ticket: 1 }));
    assert!(is_recorded(&all, |what| matches!(what, What::Regained { .. })));
    all.extend((0..20).flat_map(|_| run.step()).collect::<Vec<_>>());
    assert!(leased(&all, run.step).contains_key(&1));
}

#[test]
fn the_loss_of_as_many_as_asked_for_gives_nothing_away_and_one_more_does() {
    let (mut run, first) = Run::start(3, 1);
    let steps = first.iter().find_map(|action| match action {
        Action::ToServer(0, ToServer::Round { steps, .. }) => Some(steps.steps()),
        _ => None,
    });
    assert!(steps.unwrap().contains(&0));
    let left = |worker| {
        Input::Left(Left {
            agent: Agent::Worker(worker),
            pid: 7,
            how: "killed".into(),
            ended: true,
        })
    };
    let all = run.tell(left(0));
    assert_eq!(leased(&all, 0), BTreeMap::new(), "others have all of it");
    run.silent.push(0);
    let all = run.tell(left(1));
    assert_eq!(leased(&all, 0), [(2, vec![(0, 2)])].into_iter().collect(), "what both had");
    run.silent.push(1);
    let all = run.step();
    let healed = |what: &What| matches!(what, What::Healed { recomputed_shards: 2, .. });
    assert!(is_recorded(&all, healed), "{all:?}");
}
