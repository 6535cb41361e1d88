//! How fast a parameter set of 100 MB is exchanged with a real server, beside a plain copy over
//! loopback TCP: one worker pushes a whole gradient and pulls the updated parameters, again and
//! again. Prints one JSON object; `bench/cluster` runs it. With a folder, the server keeps its values
//! in a file there, as in a run. With `--tls` the same is done under TLS as well.

use planaria_coordinator::parameters;
use planaria_numerics::aggregate::BLOCK;
use planaria_protocol::clock::Clock;
use planaria_protocol::launch::{Facts, Launch, Size, Station, Trust};
use planaria_protocol::message::{
    Agent, FromServer, Join, Pull, Push, ServerRange, Share, Source, Steps, ToServer,
};
use planaria_protocol::tls::Authority;
use planaria_protocol::{Credentials, Receiver, Secret, Sender, bytes, connect, listen};
use planaria_recipe::Recipe;
use planaria_recipe::shape::Shape;
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Inbox, channel};
use std::time::{Duration, Instant};

/// Inputs and units of the one dense layer: 25 million weights, 100 MB.
const WIDTH: usize = 5_000;
/// Blocks sent at a time, as a worker does.
const PIECE_BLOCKS: usize = 24;
/// Steps before the clock starts, and after.
const WARM_UP: u64 = 2;
const STEPS: u64 = 8;
/// Bytes of one write of the plain copy.
const PLAIN_BYTES: usize = PIECE_BLOCKS * BLOCK * 4;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn unix_seconds(&self) -> f64 {
        0.0
    }

    fn cpu(&self) -> Duration {
        self.0.elapsed()
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn clock() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_macros, reason = "a benchmark prints")]
fn main() {
    let is_tls = std::env::args().any(|argument| argument == "--tls");
    let folder = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let (open, allocations) = measure(launch(Station::default(), folder.clone()), None);
    let sealed = is_tls.then(|| {
        let (station, ends) = sealed();
        measure(launch(station, folder), Some(ends))
    });
    let tcp = plain(2 * (WIDTH * WIDTH + WIDTH) * 4);
    let tls = sealed.map_or_else(String::new, |(bytes, allocations)| {
        format!(
            ", \"tls_bytes_per_second\": {bytes:.0}, \"tls_allocations_per_step\": {allocations}"
        )
    });
    println!(
        "{{\"exchange_bytes_per_second\": {open:.0}, \"tcp_bytes_per_second\": {tcp:.0}, \
         \"allocations_per_step\": {allocations}{tls}}}"
    );
}

/// A server's station whose links are under TLS, and what its coordinator and its worker show.
fn sealed() -> (Station, [Trust; 2]) {
    let authority = Authority::new("exchange", 1.8e9).expect("an authority");
    let issue = |agent| authority.issue(agent, None, Duration::ZERO).expect("a certificate");
    let station = Station { trust: Some(issue(Agent::Server(0))), ..Station::default() };
    (station, [issue(Agent::Coordinator), issue(Agent::Worker(0))])
}

/// Bytes per second of an exchange, both ways, and allocations per step.
fn measure(launch: Launch, trusts: Option<[Trust; 2]>) -> (f64, u64) {
    let plain = Credentials::of(&launch).expect("a credentials");
    let [coordinator, worker] = match trusts {
        None => [plain.clone(), plain],
        Some(trusts) => trusts.map(|trust| {
            Credentials::new(plain.secret().clone(), Some(&trust), None).expect("a credentials")
        }),
    };
    let (server, orders, said) = start(&launch, &coordinator);
    let blocks = launch.facts.parameters.div_ceil(BLOCK as u64) as u32;
    let (sender, receiver, address) = orders;
    sender
        .send(&ToServer::Begin { blocks: 0..blocks, source: Source::Seed, step: 0 })
        .expect("sent");
    assert!(matches!(said.recv(), Ok(FromServer::Ready)), "the server is ready");
    let steps = Steps { epoch: 0, batches: 0..WARM_UP + STEPS, first_step: 0 };
    let shares = vec![Share { worker: 0, shards: 0..1 }];
    sender.send(&ToServer::Round { steps, shares }).expect("sent");
    let server_range = ServerRange { server: 0, address, blocks: 0..blocks };
    let parameters = launch.facts.parameters as usize;
    let measured = exchange(&worker, &server_range, parameters, &sender, &said);
    sender.send(&ToServer::Finish).expect("sent");
    drop(receiver);
    server.join().expect("the server ends").expect("the server ends well");
    measured
}

/// Pushes and pulls; bytes per second both ways, and allocations per step.
fn exchange(
    credentials: &Credentials,
    server_range: &ServerRange,
    parameters: usize,
    orders: &Sender,
    said: &Inbox<FromServer>,
) -> (f64, u64) {
    let (sender, mut receiver) =
        connect(&server_range.address, credentials, Agent::Server(0), Some(1)).expect("connected");
    sender.send(&join(Agent::Worker(0), None)).expect("sent");
    let gradient = vec![1e-3f32; parameters];
    let (filled, full) = channel();
    let pull = std::thread::spawn(move || {
        let mut values = vec![0f32; parameters];
        let mut missing = parameters;
        while let Ok(Some(incoming)) = receiver.receive::<Pull>() {
            let Pull::Parameters { first_block, .. } = incoming.message else { continue };
            let from = first_block as usize * BLOCK;
            let part = &mut values[from..from + incoming.bulk_bytes / 4];
            receiver.read_bulk(bytes::as_bytes_mut(part)).expect("read");
            missing -= part.len();
            if missing == 0 {
                missing = parameters;
                if filled.send(()).is_err() {
                    break;
                }
            }
        }
    });
    sender.send(&Push::Follow { step: 0 }).expect("sent");
    full.recv().expect("all parameters");
    let (mut began, mut allocated) = (clock(), 0);
    for step in 0..WARM_UP + STEPS {
        if step == WARM_UP {
            (began, allocated) = (clock(), ALLOCATIONS.load(Ordering::Relaxed));
        }
        for (piece, values) in gradient.chunks(PIECE_BLOCKS * BLOCK).enumerate() {
            let first_block = (piece * PIECE_BLOCKS) as u32;
            let push = Push::Gradient { step, first_shard: 0, shards: 1, first_block };
            sender.send_with(&push, bytes::as_bytes(values)).expect("sent");
        }
        let read = Default::default();
        let shard = Push::Shard { step, shard: 0, loss_sum: 0.0, correct: 0, read };
        sender.send(&shard).expect("sent");
        full.recv().expect("all parameters");
        assert!(matches!(said.recv(), Ok(FromServer::Applied { .. })), "the step is applied");
        orders.send(&ToServer::Commit { step }).expect("sent");
    }
    let seconds = began.elapsed().as_secs_f64();
    let allocations = (ALLOCATIONS.load(Ordering::Relaxed) - allocated) / STEPS;
    sender.close();
    pull.join().expect("the reader ends");
    ((2 * parameters * 4) as f64 * STEPS as f64 / seconds, allocations)
}

/// The same bytes, written and read as they are; the best of a few.
fn plain(bytes: usize) -> f64 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let read = std::thread::spawn(move || {
        let mut stream = listener.accept().expect("a connection").0;
        let mut buffer = vec![0u8; PLAIN_BYTES];
        while stream.read_exact(&mut buffer).is_ok() {}
    });
    let mut stream = TcpStream::connect(address).expect("connected");
    let buffer = vec![1u8; PLAIN_BYTES];
    let writes = bytes / PLAIN_BYTES;
    let mut best: f64 = 0.0;
    for _ in 0..STEPS {
        let began = clock();
        for _ in 0..writes {
            stream.write_all(&buffer).expect("written");
        }
        best = best.max((writes * PLAIN_BYTES) as f64 / began.elapsed().as_secs_f64());
    }
    drop(stream);
    read.join().expect("the reader ends");
    best
}

/// What came of starting a server: its thread, the link to it and where it listens, what it says.
type Started = (
    std::thread::JoinHandle<Result<(), planaria_protocol::message::Trouble>>,
    (Sender, listen::Listening, String),
    Inbox<FromServer>,
);

/// Starts a server on a thread, with this thread as its coordinator.
fn start(launch: &Launch, credentials: &Credentials) -> Started {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (pass, joined) = channel();
    let (tell, said) = channel();
    let on_link = move |join: Join, sender: Sender, mut receiver: Receiver| {
        pass.send((join, sender)).expect("somebody waits");
        while let Ok(Some(incoming)) = receiver.receive::<FromServer>() {
            receiver.skip_bulk().expect("read");
            if !matches!(incoming.message, FromServer::Ready | FromServer::Applied { .. }) {
                continue;
            }
            if tell.send(incoming.message).is_err() {
                break;
            }
        }
    };
    let generation = Arc::new(AtomicU64::new(1));
    let listening = listen::serve(listener, credentials.clone(), generation, on_link, |_| {})
        .expect("listening");
    let launch = Launch { coordinator: Some(address), ..launch.clone() };
    let server = std::thread::spawn(move || {
        parameters::serve::run(&launch, 0, Arc::new(SystemClock(clock())), Arc::new(|_: &str| {}))
    });
    let (join, sender) = joined.recv().expect("the server joins");
    (server, (sender, listening, join.address.expect("it listens")), said)
}

fn join(agent: Agent, address: Option<String>) -> Join {
    let (build, pid) = ("bench", std::process::id());
    Join { address, ..Join::new(agent, build, pid) }
}

fn recipe() -> Recipe {
    let text = format!(
        r#"{{"name": "exchange", "data": {{"train": "digits"}},
            "model": {{"layers": [{{"Dense": {{"units": {WIDTH}}}}}]}},
            "train": {{"shards": 1, "batch": 100, "epochs": 1}}}}"#
    );
    serde_json::from_str(&text).expect("a recipe")
}

fn launch(station: Station, state: Option<String>) -> Launch {
    let facts = Facts {
        input: Shape::Vector(WIDTH),
        classes: 0,
        examples: 100 * (WARM_UP + STEPS),
        digest: Default::default(),
        validation: 0,
        test: 0,
        parameters: (WIDTH * WIDTH + WIDTH) as u64,
        marks: Vec::new(),
        coding: None,
    };
    Launch {
        secret: Secret::random().expect("random numbers").to_hex(),
        generation: 1,
        build: "bench".into(),
        coordinator: None,
        recipe: recipe(),
        facts,
        size: Size { workers: 1, workers_min: 1, servers: 1, threads: 1 },
        state,
        station,
        course: None,
    }
}
