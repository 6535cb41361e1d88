//! What once went wrong in simulated runs, and must not again. Each needs several misfortunes at a
//! time, which a seed seldom finds twice.

use planaria_coordinator::methods::sync::{self as method, Settings, SyncRun};
use planaria_coordinator::run::course::Setup;
use planaria_coordinator::run::record::Record;
use planaria_coordinator::run::watch::Rule;
use planaria_coordinator::run::{Action, Config, Input, Left, Origin, Session};
use planaria_protocol::event::What;
use planaria_protocol::message::{
    Agent, FromServer, FromWorker, Join, Kept, Loss, Source, ToServer, ToWorker, Trouble,
};
use planaria_protocol::methods::{self, sync};
use planaria_protocol::state::State;
use planaria_recipe::train::{Monitor, Train};
use std::time::Duration;

const BLOCKS: u32 = 2;

fn after(message: &str) -> Option<Loss> {
    Some(Loss { agent: Agent::Coordinator, message: message.into() })
}

fn setup() -> Setup {
    Setup {
        epochs: 1,
        steps_per_epoch: 8,
        classification: true,
        has_validation: false,
        checkpoint_epochs: 1,
        checkpoint_steps: 1,
        rule: Rule { monitor: Monitor::Loss, patience: None, min_delta: 0.0 },
        examples: Default::default(),
        remedy: Default::default(),
        train: Train::default(),
    }
}

fn config(workers: u32, servers: u32) -> Config {
    Config {
        workers,
        workers_min: workers,
        servers,
        blocks: BLOCKS,
        held_out: [0, 0],
        build: "b".into(),
    }
}

/// What another coordinator has left after so many steps.
fn left(step: u64, workers: u32) -> Record {
    let state = State { step, batch: step, ..State::default() };
    Record { workers, ..Record::new(state) }
}

/// A cluster, the time, and whom it has.
struct Run {
    cluster: SyncRun,
    now: Duration,
    servers: u32,
}

impl Run {
    fn new(config: Config, origin: Origin) -> Self {
        let servers = config.servers;
        let settings = Settings { shards: 4, redundancy: 0, batch: 8, clip_norm: None };
        let session = Session { config, setup: setup(), origin, seconds_before: 0.0 };
        let cluster = method::run(session, settings);
        Self { cluster, now: Duration::ZERO, servers }
    }

    fn tell(&mut self, input: Input) -> Vec<Action> {
        self.cluster.step(self.now, input).into_iter().map(|d| d.action).collect()
    }

    fn tell_all(&mut self, inputs: impl IntoIterator<Item = Input>) -> Vec<Action> {
        inputs.into_iter().flat_map(|input| self.tell(input)).collect()
    }

    fn server(&mut self, said: FromServer) -> Vec<Action> {
        let squares = if matches!(said, FromServer::Applied { .. }) { BLOCKS as usize } else { 0 };
        self.tell(Input::Server(0, said, vec![1.0; squares]))
    }

    /// Everyone joins and is ready.
    fn start(&mut self, workers: u32) -> Vec<Action> {
        let servers = 0..self.servers;
        let mut inputs: Vec<Input> =
            servers.clone().map(|s| joined(Agent::Server(s), None)).collect();
        inputs.extend(servers.map(|s| Input::Server(s, FromServer::Ready, vec![])));
        let mut all = self.tell_all(inputs);
        for worker in 0..workers {
            all.extend(self.worker_ready(worker));
        }
        all
    }

    fn worker_ready(&mut self, worker: u32) -> Vec<Action> {
        let ready = FromWorker::Ready { engine: "e".into(), threads: 1 };
        self.tell_all([joined(Agent::Worker(worker), None), Input::worker(worker, ready)])
    }

    /// All of a step has come, and it is committed.
    fn step(&mut self, step: u64) -> Vec<Action> {
        let read = Default::default();
        let mut all = self.server(FromServer::Counted { step, loss_sum: 1.0, correct: 1, read });
        all.extend(self.server(FromServer::Applied { step }));
        let commit = Action::ToServer(0, ToServer::Commit { step });
        assert!(all.contains(&commit), "step {step}: {all:?}");
        all
    }

    /// Time passes, and everyone lives, until something is decided.
    fn wait(&mut self, workers: u32) -> Vec<Action> {
        for _ in 0..10_000 {
            self.now += Duration::from_millis(100);
            for worker in 0..workers {
                self.tell(Input::worker(worker, FromWorker::Alive));
            }
            for server in 0..self.servers {
                self.tell(Input::Server(server, FromServer::Alive, vec![]));
            }
            let all = self.tell(Input::Tick);
            if !all.is_empty() {
                return all;
            }
        }
        panic!("nothing happens any more");
    }
}

fn joined(agent: Agent, kept: Option<Kept>) -> Input {
    let address = Some("127.0.0.1:1".to_owned());
    Input::Joined(Join { address, kept, ..Join::new(agent, "b", 7) })
}

/// Steps that a worker is given some shards of.
fn leased(all: &[Action]) -> Vec<(u32, u64)> {
    let lease = |action: &Action| match action {
        Action::ToWorker {
            worker,
            message: ToWorker::Method(methods::Command::Sync(sync::Command::Lease { steps, .. })),
            ..
        } => Some((*worker, steps.first_step)),
        _ => None,
    };
    all.iter().filter_map(lease).collect()
}

fn sources(all: &[Action]) -> Vec<(u32, Source, u64)> {
    let begin = |action: &Action| match action {
        Action::ToServer(server, ToServer::Begin { source, step, .. }) => {
            Some((*server, source.clone(), *step))
        }
        _ => None,
    };
    all.iter().filter_map(begin).collect()
}

#[test]
fn server_0_always_has_a_block_and_every_block_a_server() {
    for blocks in 1..40 {
        for servers in 1..12 {
            let config = Config { blocks, ..config(1, servers) };
            assert!(config.blocks_of(0).contains(&0), "{blocks} blocks on {servers} servers");
            let all: Vec<u32> = (0..servers).flat_map(|s| config.blocks_of(s)).collect();
            assert!(all.into_iter().eq(0..blocks), "{blocks} blocks on {servers} servers");
        }
    }
}

#[test]
fn a_pool_scaled_while_servers_join_leaves_the_record_to_go_on_from() {
    let origin = Origin { record: Some(left(3, 2)), after: after("x"), ..Origin::default() };
    let mut run = Run::new(config(2, 2), origin);
    let kept = |blocks| Some(Kept { blocks, steps: vec![3], snapshot: None });
    run.tell(joined(Agent::Server(0), kept(0..1)));
    let all = run.tell(Input::Scale(5));
    let [Action::Keep(record), ..] = &all[..] else { panic!("it is not kept: {all:?}") };
    assert_eq!((record.state.step, record.workers), (3, 5));
    // If this coordinator is lost as well, the next one goes on from there with five workers.
    let after = after("y");
    let origin = Origin { record: Some(*record.clone()), after, ..Origin::default() };
    let mut next = Run::new(config(2, 2), origin);
    next.tell(joined(Agent::Server(0), kept(0..1)));
    for mut run in [run, next] {
        let all = run.tell(joined(Agent::Server(1), kept(1..2)));
        assert_eq!(sources(&all), [(0, Source::Kept, 3), (1, Source::Kept, 3)]);
        assert_eq!(run.cluster.pulse(Duration::ZERO).workers.len(), 5);
    }
}

#[test]
fn a_checkpoint_whose_parts_fail_lets_the_next_one_and_the_run_go_on() {
    let mut run = Run::new(config(1, 1), Origin::default());
    assert_eq!(leased(&run.start(1)), [(0, 0)]);
    let all = run.step(0);
    assert!(all.contains(&Action::BeginCheckpoint { step: 1 }), "{all:?}");
    assert_eq!(leased(&all), [(0, 1)], "training does not wait for it");
    let all = run.step(1);
    assert_eq!(leased(&all), [], "another checkpoint is due: {all:?}");
    assert!(!all.contains(&Action::BeginCheckpoint { step: 2 }), "one at a time: {all:?}");
    let all = run.server(FromServer::NotSaved { step: 1, why: "the disk is full".into() });
    assert!(
        all.contains(&Action::Abandon) && all.contains(&Action::BeginCheckpoint { step: 2 }),
        "{all:?}"
    );
    assert_eq!(leased(&all), [(0, 2)]);
    let told = |a: &Action| matches!(a, Action::Record(What::NotSaved { step: 1, .. }));
    assert!(all.iter().any(told), "{all:?}");
    // The same where every part is there, and the manifest is not.
    run.step(2);
    let (file, sha256) = ("part".to_owned(), "0".to_owned());
    let all = run.server(FromServer::Saved { step: 2, file, sha256, bytes: 1 });
    assert!(matches!(all[..], [Action::WriteManifest(_)]), "{all:?}");
    let all = run.tell(Input::ManifestWritten(Err("the disk is full".into())));
    assert!(all.contains(&Action::BeginCheckpoint { step: 3 }), "{all:?}");
    assert_eq!(leased(&all), [(0, 3)]);
}

#[test]
fn the_least_size_is_never_above_a_pool_that_was_made_smaller() {
    // One that is scaled down while it runs goes on with whom it has.
    let mut run = Run::new(config(3, 1), Origin::default());
    let workers: Vec<u32> = leased(&run.start(3)).iter().map(|(worker, _)| *worker).collect();
    assert_eq!(workers, [0, 1, 2]);
    run.tell(Input::Scale(1));
    run.step(0);
    let all = run.step(1);
    assert_eq!(leased(&all), [], "a checkpoint is due");
    let all = run.server(FromServer::NotSaved { step: 1, why: "x".into() });
    assert_eq!(leased(&all), [(0, 2)]);
    // Lost and back again.
    let (agent, how) = (Agent::Worker(0), String::from("killed"));
    let all = run.tell(Input::Left(Left { agent, pid: 7, how, ended: true }));
    let paused = |a: &Action| matches!(a, Action::Record(What::Paused { workers: 0, min: 1 }));
    assert!(all.iter().any(paused), "{all:?}");
    assert_eq!(leased(&run.worker_ready(0)), [(0, 2)], "one is enough");

    // And so does the next coordinator, which finds the size in the record.
    let after = after("x");
    let origin = Origin { record: Some(left(0, 1)), after, ..Origin::default() };
    let mut next = Run::new(config(3, 1), origin);
    assert_eq!(leased(&next.start(1)), [(0, 0)]);
}

#[test]
fn if_everyone_is_late_they_are_let_in_anew_at_last() {
    let mut run = Run::new(config(2, 1), Origin::default());
    assert_eq!(leased(&run.start(2)), [(0, 0), (1, 0)]);
    for times in 1..=3 {
        let all = run.wait(2);
        assert_eq!(all, [Action::ToServer(0, ToServer::Missing { step: 0 })]);
        let (segments, shards) = (vec![(0, 2), (2, 2)], vec![0, 1, 2, 3]);
        let all = run.server(FromServer::Missing { step: 0, segments, shards });
        if times < 3 {
            assert_eq!(all, [], "it may be the machine");
            continue;
        }
        let revoked = all.iter().filter_map(|action| match action {
            Action::ToWorker { worker, message: ToWorker::Revoke { ticket }, .. } => {
                Some((*worker, *ticket))
            }
            _ => None,
        });
        let revoked: Vec<(u32, u64)> = revoked.collect();
        assert!(revoked.iter().map(|(worker, _)| *worker).eq([0, 1]), "{all:?}");
        let (worker, ticket) = revoked[0];
        let all = run.tell(Input::worker(worker, FromWorker::Revoked { ticket }));
        let enters = |a: &Action| {
            let Action::ToWorker { worker: 0, message, .. } = a else { return false };
            let ToWorker::Method(methods::Command::Sync(command)) = message else { return false };
            matches!(command, sync::Command::Lease { enter: true, steps, .. } if steps.first_step == 0)
        };
        assert!(all.iter().any(enters), "it gets the parameters anew: {all:?}");
    }
}

#[test]
fn a_server_without_blocks_need_not_have_kept_anything() {
    let origin = Origin { record: Some(left(3, 1)), ..Origin::default() };
    let mut run = Run::new(config(1, 3), origin);
    for server in 0..2 {
        let kept = Kept { blocks: server..server + 1, steps: vec![3], snapshot: None };
        run.tell(joined(Agent::Server(server), Some(kept)));
    }
    let all = run.tell(joined(Agent::Server(2), None));
    assert_eq!(sources(&all), [0, 1, 2].map(|server| (server, Source::Kept, 3)));
}

#[test]
fn a_damaged_checkpoint_is_gone_back_from_if_what_was_kept_is_lost_too() {
    let failed = || FromServer::Failed(Trouble::new("checkpoint `c` is damaged"));
    let from = |record: Option<Record>| {
        let (checkpoint, after) = (Some("c".to_owned()), after("all were lost"));
        let mut run =
            Run::new(config(1, 1), Origin { record, checkpoint, after, ..Origin::default() });
        let all = run.tell(joined(Agent::Server(0), None));
        assert_eq!(sources(&all), [(0, Source::Checkpoint("c".into()), 0)]);
        run.server(failed())
    };
    // Its parts were not read: the next coordinator reads them, because it has no record.
    let all = from(Some(left(5, 1)));
    let at = |action: &Action| all.iter().position(|found| found == action);
    assert!(at(&Action::Forget).is_some(), "{all:?}");
    assert!(at(&Action::Forget) < at(&Action::Restart), "{all:?}");
    assert!(!all.iter().any(|action| matches!(action, Action::Keep(_))), "{all:?}");
    // Where they were looked at, there is nothing else to go back to.
    let all = from(None);
    assert!(all.contains(&Action::End) && !all.contains(&Action::Restart), "{all:?}");
}

#[test]
fn a_stop_that_comes_before_the_servers_is_not_forgotten() {
    let record = Record { unsaved: true, ..left(5, 1) };
    let origin =
        Origin { record: Some(record), after: after("all were lost"), ..Origin::default() };
    let mut run = Run::new(config(1, 1), origin);
    run.tell(Input::Stop("asked".into()));
    let kept = Kept { blocks: 0..BLOCKS, steps: vec![5], snapshot: None };
    run.tell(joined(Agent::Server(0), Some(kept)));
    let actions = run.server(FromServer::Ready);
    assert!(actions.contains(&Action::BeginCheckpoint { step: 5 }), "{actions:?}");
}
