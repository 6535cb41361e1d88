//! A coordinator and servers that do what a test says, on links of their own, and a worker between
//! them.

use planaria_learn::Network;
use planaria_protocol::clock::Clock;
use planaria_protocol::hash::sha256;
use planaria_protocol::launch::{Facts, Launch, Size};
use planaria_protocol::listen::{self, Listening};
use planaria_protocol::message::{
    FromWorker, Join, Pull, Push, ServerRange, Steps, ToWorker, Trouble,
};
use planaria_protocol::methods::sync;
use planaria_protocol::{Credentials, Receiver, Secret, Sender, bytes};
use planaria_recipe::Source;
use std::net::TcpListener;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long anything may take.
pub const LIMIT: Duration = Duration::from_secs(20);

/// How long nothing must happen.
pub const QUIET: Duration = Duration::from_millis(150);

pub const BLOCK: usize = 4096;

const RECIPE: &str = "
name: small
seed: 3
data: {train: digits, examples: 640, validation: 0.5}
model: {layers: [Flatten, {Dense: {units: 10}}]}
train: {epochs: 1, batch: 16, shards: 4}
";

/// Real time, so many times as fast.
pub struct TestClock {
    began: Instant,
    times: u32,
}

impl TestClock {
    #[expect(clippy::disallowed_methods, reason = "a clock")]
    pub fn new(times: u32) -> Self {
        Self { began: Instant::now(), times }
    }
}

impl Clock for TestClock {
    fn now(&self) -> Duration {
        self.began.elapsed() * self.times
    }

    fn unix_seconds(&self) -> f64 {
        0.0
    }

    fn cpu(&self) -> Duration {
        Duration::ZERO
    }
}

/// One that listens, and hands out the links that come in.
pub struct Host {
    pub address: String,
    pub generation: Arc<AtomicU64>,
    links: mpsc::Receiver<(Join, Sender, Receiver)>,
    _listening: Listening,
}

impl Host {
    pub fn new(secret: &str, generation: u64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let credentials = Credentials::plain(Secret::from_hex(secret).unwrap());
        let generation = Arc::new(AtomicU64::new(generation));
        let (pass, links) = mpsc::channel();
        let pass = Mutex::new(pass);
        let on_link = move |join, sender, receiver| {
            // The test may be over.
            let _ = pass.lock().unwrap().send((join, sender, receiver));
        };
        let listening =
            listen::serve(listener, credentials, generation.clone(), on_link, |_| {}).unwrap();
        let address = listening.address().to_string();
        Self { address, generation, links, _listening: listening }
    }

    fn accept(&self) -> (Join, Sender, Receiver) {
        let (join, sender, mut receiver) = self.links.recv_timeout(LIMIT).expect("a link");
        receiver.set_timeout(Some(LIMIT)).unwrap();
        (join, sender, receiver)
    }
}

/// The coordinator's end of a worker's link.
pub struct Boss {
    pub join: Join,
    pub sender: Sender,
    receiver: Receiver,
}

impl Boss {
    pub fn order(&self, order: ToWorker) {
        self.sender.send(&order).unwrap();
    }

    pub fn lease(&self, steps: Range<u64>, shards: Range<u32>, enter: bool) {
        let first_step = steps.start;
        let steps = Steps { epoch: 0, batches: steps, first_step };
        self.order(ToWorker::from(sync::Command::Lease { steps, shards, enter }));
    }

    /// What it says next, but for its signs of life.
    pub fn hear(&mut self) -> FromWorker {
        loop {
            match self.hear_all() {
                FromWorker::Alive => {}
                message => return message,
            }
        }
    }

    /// What it says next.
    pub fn hear_all(&mut self) -> FromWorker {
        let incoming = self.receiver.receive::<FromWorker>().unwrap().expect("the link is there");
        self.receiver.skip_bulk().unwrap();
        incoming.message
    }

    /// Reads until the worker hangs up.
    pub fn drain(&mut self) {
        while let Ok(Some(_)) = self.receiver.receive::<FromWorker>() {
            if self.receiver.skip_bulk().is_err() {
                return;
            }
        }
    }
}

/// A server's end of a worker's link.
pub struct Shop {
    pub sender: Sender,
    pub pushes: mpsc::Receiver<(Push, usize)>,
    blocks: Range<u32>,
    parameters: usize,
}

impl Shop {
    /// What is said to it next, and how much bulk came with it.
    pub fn hear(&self) -> (Push, usize) {
        self.pushes.recv_timeout(LIMIT).expect("a push")
    }

    pub fn is_quiet(&self) -> bool {
        matches!(self.pushes.recv_timeout(QUIET), Err(RecvTimeoutError::Timeout))
    }

    /// Hands out the parameters after so many steps.
    pub fn hand_out(&self, step: u64) {
        for block in self.blocks.clone() {
            let message = Pull::Parameters { step, first_block: block };
            let values = values(step, block..block + 1, self.parameters);
            self.sender.send_with(&message, bytes::as_bytes(&values)).unwrap();
        }
    }

    /// The hash of those.
    pub fn hash(&self, step: u64) -> [u8; 32] {
        sha256(bytes::as_bytes(&values(step, self.blocks.clone(), self.parameters)))
    }
}

/// Parameters of some blocks that tell step and place.
fn values(step: u64, blocks: Range<u32>, parameters: usize) -> Vec<f32> {
    let place = |block: u32| (block as usize * BLOCK).min(parameters);
    let value = |i: usize| ((i * 31 + step as usize * 7) % 101) as f32 * 1e-3;
    (place(blocks.start)..place(blocks.end)).map(value).collect()
}

/// A coordinator, two servers, and a worker that runs until it is told to end.
pub struct World {
    pub coordinator: Host,
    pub servers: Vec<Host>,
    pub launch: Launch,
    pub log: Arc<Mutex<Vec<String>>>,
    worker: Option<JoinHandle<Result<(), Trouble>>>,
}

impl World {
    pub fn new() -> Self {
        let mut launch = launch();
        let coordinator = Host::new(&launch.secret, 1);
        let servers = (0..2).map(|_| Host::new(&launch.secret, 1)).collect();
        launch.coordinator = Some(coordinator.address.clone());
        Self { coordinator, servers, launch, log: Arc::default(), worker: None }
    }

    /// Starts the worker.
    pub fn start(&mut self) {
        let (launch, log) = (self.launch.clone(), self.log.clone());
        let work = move || {
            let log = Arc::new(move |line: &str| log.lock().unwrap().push(line.to_owned()));
            planaria_worker::methods::run(&launch, 4, &TestClock::new(1), log)
        };
        self.worker = Some(std::thread::spawn(work));
    }

    /// Waits for the worker to join.
    pub fn boss(&self) -> Boss {
        let (join, sender, receiver) = self.coordinator.accept();
        Boss { join, sender, receiver }
    }

    /// Server 0 holds the last blocks, so that their order is not that of their numbers.
    pub fn server_ranges(&self) -> Vec<ServerRange> {
        let server_range = |server: usize, blocks| ServerRange {
            server: server as u32,
            address: self.servers[server].address.clone(),
            blocks,
        };
        vec![server_range(0, 1..2), server_range(1, 0..1)]
    }

    /// Waits for the worker to connect to the servers.
    pub fn shops(&self) -> Vec<Shop> {
        let shops =
            self.server_ranges().into_iter().zip(&self.servers).map(|(server_range, host)| {
                let (_, sender, mut receiver) = host.accept();
                receiver.set_timeout(None).unwrap();
                let (pass, pushes) = mpsc::channel();
                let parameters = self.launch.facts.parameters as usize;
                std::thread::spawn(move || {
                    while let Ok(Some(incoming)) = receiver.receive::<Push>() {
                        let bulk = incoming.bulk_bytes;
                        if receiver.skip_bulk().is_err()
                            || pass.send((incoming.message, bulk)).is_err()
                        {
                            return;
                        }
                    }
                });
                Shop { sender, pushes, blocks: server_range.blocks, parameters }
            });
        shops.collect()
    }

    /// A worker that is ready.
    pub fn ready(&self) -> (Boss, Vec<Shop>) {
        let mut boss = self.boss();
        boss.order(ToWorker::from(sync::Command::Begin { servers: self.server_ranges() }));
        let shops = self.shops();
        assert!(matches!(boss.hear(), FromWorker::Ready { threads: 2, .. }));
        (boss, shops)
    }

    /// How the worker ended.
    pub fn end(&mut self) -> Result<(), Trouble> {
        self.worker.take().expect("started").join().unwrap()
    }
}

/// The worker follows from here on, and is given what it asks for.
pub fn follow(shops: &[Shop], step: u64) {
    for shop in shops {
        assert_eq!(shop.hear(), (Push::Follow { step }, 0));
        shop.hand_out(step);
    }
}

/// The worker enters after so many steps.
pub fn enter(boss: &mut Boss, shops: &[Shop], step: u64) {
    follow(shops, step);
    let sha256 = shops.iter().map(|shop| shop.hash(step)).collect();
    assert_eq!(boss.hear(), FromWorker::from(sync::Report::Holds { step, sha256 }));
    boss.order(ToWorker::from(sync::Command::Entered { step }));
}

/// All shards of a task are pushed, and nothing else.
pub fn pushed(shops: &[Shop], step: u64, shards: Range<u32>) {
    for shop in shops {
        let expected = Push::Gradient {
            step,
            first_shard: shards.start,
            shards: shards.len() as u32,
            first_block: shop.blocks.start,
        };
        let last = shop.parameters.min(shop.blocks.end as usize * BLOCK);
        let values = last - shop.blocks.start as usize * BLOCK;
        assert_eq!(shop.hear(), (expected, values * 4));
    }
    for expected in shards {
        match shops[0].hear().0 {
            Push::Shard { step: s, shard, .. } => assert_eq!((s, shard), (step, expected)),
            other => panic!("{other:?} instead of shard {expected} of step {step}"),
        }
    }
}

fn launch() -> Launch {
    let recipe = Source::parse("small.yaml", RECIPE.as_bytes(), &[]).unwrap().recipe().clone();
    let data = planaria_data::open(&recipe.data, recipe.seed).unwrap();
    let input = data.facts.input;
    let network = Network::of(&recipe, input).unwrap();
    let facts = Facts {
        input,
        classes: 10,
        examples: data.train.len(),
        digest: data.train.digest(),
        validation: data.validation.map_or(0, |part| part.len()),
        test: 0,
        parameters: network.parameter_count() as u64,
        marks: data.marks.iter().map(|m| (m.name.clone(), m.content.clone())).collect(),
        coding: None,
    };
    assert_eq!((facts.parameters as usize).div_ceil(BLOCK), 2);
    Launch {
        secret: "ab".repeat(32),
        generation: 1,
        build: "test".into(),
        coordinator: None,
        recipe,
        facts,
        size: Size { workers: 1, workers_min: 1, servers: 2, threads: 2 },
        state: None,
        station: Default::default(),
        course: None,
    }
}
