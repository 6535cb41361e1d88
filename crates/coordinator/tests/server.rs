//! A server's process over real links, while coordinators and workers come and go.

#[path = "support/clock.rs"]
mod clock;

use clock::{SystemClock, now};
use planaria_coordinator::parameters;
use planaria_protocol::launch::{Facts, Launch, Size, Station};
use planaria_protocol::message::{
    Agent, FromServer, Join, Kept, Pull, Push, Share, Source, Steps, ToServer, Trouble,
};
use planaria_protocol::tls::Authority;
use planaria_protocol::{Credentials, Receiver, Secret, Sender, bytes, connect, link};
use planaria_recipe::shape::Shape;
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc::{Receiver as Inbox, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// 500 → 500 without more: 250,500 parameters in two chunks, 1 MB.
const PARAMETERS: usize = 500 * 500 + 500;
const BLOCKS: std::ops::Range<u32> = 0..62;
const PATIENCE: Duration = Duration::from_secs(20);

fn launch(secret: &Secret, address: &str, state: Option<&Path>) -> Launch {
    let recipe = r#"{"name": "server", "data": {"train": "digits"},
        "model": {"layers": [{"Dense": {"units": 500}}]},
        "train": {"shards": 1, "batch": 10, "epochs": 100}}"#;
    Launch {
        secret: secret.to_hex(),
        generation: 1,
        build: "test".into(),
        coordinator: Some(address.into()),
        recipe: serde_json::from_str(recipe).unwrap(),
        facts: Facts {
            input: Shape::Vector(500),
            classes: 0,
            examples: 10_000,
            digest: Default::default(),
            validation: 0,
            test: 0,
            parameters: PARAMETERS as u64,
            marks: Vec::new(),
            coding: None,
        },
        size: Size { workers: 1, workers_min: 1, servers: 1, threads: 1 },
        state: state.map(|folder| folder.to_str().unwrap().into()),
        station: Default::default(),
        course: None,
    }
}

/// Where the coordinators of a run listen, one after another.
struct World {
    credentials: Credentials,
    workers: Credentials,
    /// Of the server.
    station: Station,
    listener: TcpListener,
    log: Arc<Mutex<Vec<String>>>,
}

/// A coordinator that a server has joined.
struct Coordinator {
    join: Join,
    orders: Sender,
    said: Inbox<FromServer>,
}

impl World {
    fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let credentials = Credentials::plain(Secret::from_hex(&"ab".repeat(32)).unwrap());
        let workers = credentials.clone();
        Self { credentials, workers, station: Station::default(), listener, log: Arc::default() }
    }

    fn start(&self, state: Option<&Path>) -> JoinHandle<Result<(), Trouble>> {
        let address = self.listener.local_addr().unwrap().to_string();
        let mut launch = launch(self.credentials.secret(), &address, state);
        launch.station = self.station.clone();
        let log = self.log.clone();
        let log = Arc::new(move |line: &str| log.lock().unwrap().push(line.to_string()));
        std::thread::spawn(move || {
            parameters::serve::run(&launch, 0, Arc::new(SystemClock(now())), log)
        })
    }

    /// Takes the server's next connection in.
    fn coordinate(&self, generation: u64) -> Coordinator {
        let (stream, _) = self.listener.accept().unwrap();
        let (orders, mut receiver) = link::accept(stream, &self.credentials, generation).unwrap();
        let join = receiver.receive::<Join>().unwrap().unwrap().message;
        let (tell, said) = channel();
        std::thread::spawn(move || {
            while let Ok(Some(incoming)) = receiver.receive::<FromServer>() {
                receiver.skip_bulk().unwrap();
                if tell.send(incoming.message).is_err() {
                    break;
                }
            }
        });
        Coordinator { join, orders, said }
    }

    fn work(&self, server: &Join, generation: u64, worker: u32) -> (Sender, Receiver) {
        let address = server.address.as_deref().unwrap();
        let (sender, mut receiver) =
            connect(address, &self.workers, Agent::Server(0), Some(generation)).unwrap();
        receiver.set_timeout(Some(PATIENCE)).unwrap();
        let agent = Agent::Worker(worker);
        let (build, pid) = ("test", std::process::id());
        sender.send(&Join::new(agent, build, pid)).unwrap();
        (sender, receiver)
    }

    fn has_logged(&self, what: &str) -> bool {
        self.log.lock().unwrap().iter().any(|line| line.contains(what))
    }
}

impl Coordinator {
    fn begin(&self, source: Source, step: u64) {
        self.orders.send(&ToServer::Begin { blocks: BLOCKS, source, step }).unwrap();
        self.wait(|message| *message == FromServer::Ready);
        let steps = Steps { epoch: 0, batches: step..1000, first_step: step };
        let shares = vec![Share { worker: 0, shards: 0..1 }];
        self.orders.send(&ToServer::Round { steps, shares }).unwrap();
    }

    fn wait(&self, is: impl Fn(&FromServer) -> bool) {
        let until = now() + PATIENCE;
        while !is(&self.said.recv_timeout(until - now()).expect("the server says it")) {}
    }

    /// A step that this worker computes; it is committed.
    fn step(&self, step: u64, worker: &Sender) {
        push(step, worker);
        self.wait(|message| *message == FromServer::Applied { step });
        self.orders.send(&ToServer::Commit { step }).unwrap();
    }
}

fn push(step: u64, worker: &Sender) {
    let gradient = Push::Gradient { step, first_shard: 0, shards: 1, first_block: 0 };
    let values = vec![0.25f32; PARAMETERS];
    worker.send_with(&gradient, bytes::as_bytes(&values)).unwrap();
    let read = Default::default();
    let shard = Push::Shard { step, shard: 0, loss_sum: 0.0, correct: 0, read };
    worker.send(&shard).unwrap();
}

/// Waits for all parameters after a step.
fn pull(receiver: &mut Receiver, step: u64) {
    let mut missing = PARAMETERS * 4;
    while missing > 0 {
        let incoming = receiver.receive::<Pull>().unwrap().expect("the link is open");
        receiver.skip_bulk().unwrap();
        let Pull::Parameters { step: found, .. } = incoming.message else {
            panic!("{:?}", incoming.message)
        };
        assert_eq!(found, step);
        missing -= incoming.bulk_bytes;
    }
}

fn is_over(receiver: &mut Receiver) -> bool {
    !matches!(receiver.receive::<Pull>(), Ok(Some(_)))
}

#[test]
fn a_server_outlives_its_coordinators() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let server = world.start(Some(folder.path()));
    let first = world.coordinate(1);
    assert_eq!(first.join.kept, None);
    first.begin(Source::Seed, 0);
    let (worker, mut pulls) = world.work(&first.join, 1, 0);
    worker.send(&Push::Follow { step: 0 }).unwrap();
    pull(&mut pulls, 0);
    first.wait(|m| matches!(m, FromServer::Pulled { worker: 0, step: 0, .. }));
    first.wait(|m| *m == FromServer::Alive);
    for step in 0..3 {
        first.step(step, &worker);
        pull(&mut pulls, step + 1);
    }
    // Of two links of a worker the newer counts.
    let (newer, mut newer_pulls) = world.work(&first.join, 1, 0);
    assert!(is_over(&mut pulls));
    newer.send(&Push::Follow { step: 3 }).unwrap();
    pull(&mut newer_pulls, 3);
    first.step(3, &newer);
    pull(&mut newer_pulls, 4);
    // One waits for a step that never comes.
    newer.send(&Push::State { step: 9 }).unwrap();
    push(4, &newer);
    drop(first);

    let second = world.coordinate(2);
    let kept = Kept { blocks: BLOCKS, steps: vec![4], snapshot: None };
    assert_eq!(second.join.kept, Some(kept));
    assert!(is_over(&mut newer_pulls), "links of the old generation end");
    let address = second.join.address.as_deref().unwrap();
    assert!(connect(address, &world.credentials, Agent::Server(0), Some(1)).is_err());
    second.begin(Source::Kept, 4);
    let (worker, mut pulls) = world.work(&second.join, 2, 0);
    worker.send(&Push::Follow { step: 4 }).unwrap();
    pull(&mut pulls, 4);
    for step in 4..6 {
        second.step(step, &worker);
        pull(&mut pulls, step + 1);
    }
    second.orders.send(&ToServer::Finish).unwrap();
    server.join().unwrap().unwrap();
    let kept = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(kept, 1, "the process that started it knows whether it is needed");
    assert!(world.has_logged("joining again"));
}

#[test]
fn a_server_on_another_machine_says_where_it_is_and_insists_on_tls() {
    let mut world = World::new();
    let plain = world.credentials.clone();
    let authority = Authority::new("run-1", 1.8e9).unwrap();
    let issue = |agent, machine| authority.issue(agent, machine, Duration::ZERO).unwrap();
    let sealed =
        |agent| Credentials::new(plain.secret().clone(), Some(&issue(agent, None)), None).unwrap();
    (world.credentials, world.workers) = (sealed(Agent::Coordinator), sealed(Agent::Worker(0)));
    world.station = Station {
        machine: Some("lab-1".into()),
        process: Some(4242),
        bind: Some("0.0.0.0".into()),
        advertise: Some("localhost".into()),
        trust: Some(issue(Agent::Server(0), Some("lab-1"))),
        ..Station::default()
    };
    let server = world.start(None);
    let coordinator = world.coordinate(1);
    let join = &coordinator.join;
    assert_eq!((join.pid, join.machine.as_deref()), (4242, Some("lab-1")));
    let address = join.address.as_deref().unwrap();
    assert!(address.starts_with("localhost:"), "{address}");
    coordinator.begin(Source::Seed, 0);
    let refused =
        connect(address, &plain, Agent::Server(0), Some(1)).err().expect("refused").to_string();
    assert!(refused.contains("speaks TLS"), "{refused}");
    let until = now() + PATIENCE;
    while !world.has_logged("speaks without TLS") && now() < until {
        std::thread::park_timeout(Duration::from_millis(10));
    }
    assert!(world.has_logged("speaks without TLS"));
    let (worker, mut pulls) = world.work(join, 1, 0);
    worker.send(&Push::Follow { step: 0 }).unwrap();
    pull(&mut pulls, 0);
    coordinator.step(0, &worker);
    pull(&mut pulls, 1);
    coordinator.orders.send(&ToServer::Finish).unwrap();
    server.join().unwrap().unwrap();
}

#[test]
fn a_stuck_reader_holds_nothing_up() {
    let world = World::new();
    let server = world.start(None);
    let coordinator = world.coordinate(1);
    coordinator.begin(Source::Seed, 0);
    let (worker, mut pulls) = world.work(&coordinator.join, 1, 0);
    worker.send(&Push::Follow { step: 0 }).unwrap();
    pull(&mut pulls, 0);
    let (deaf, mut unread) = world.work(&coordinator.join, 1, 1);
    deaf.send(&Push::Follow { step: 0 }).unwrap();
    coordinator.wait(|m| matches!(m, FromServer::Pulled { worker: 1, .. }));
    let began = now();
    for step in 0..30 {
        coordinator.step(step, &worker);
        pull(&mut pulls, step + 1);
    }
    assert!(began.elapsed() < PATIENCE, "30 steps took {:?}", began.elapsed());
    // It is heard again as soon as it listens, and enters again.
    deaf.send(&Push::Follow { step: 30 }).unwrap();
    let mut seen = 0;
    while seen < 30 {
        let incoming = unread.receive::<Pull>().unwrap().expect("its link goes on");
        unread.skip_bulk().unwrap();
        let Pull::Parameters { step, .. } = incoming.message else { panic!() };
        assert!(step == 30 || step < 29, "it was left out, not kept up to date");
        seen = step;
    }
    coordinator.orders.send(&ToServer::Finish).unwrap();
    server.join().unwrap().unwrap();
}
