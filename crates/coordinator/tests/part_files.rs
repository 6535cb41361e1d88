//! Servers that do not have the run's folder: their files of checkpoints over real links.

#[path = "support/clock.rs"]
mod clock;

use clock::{SystemClock, now};
use planaria_coordinator::parameters;
use planaria_coordinator::serve::part_files::PartFiles;
use planaria_numerics::optimizer;
use planaria_protocol::checkpoint::{self, CheckpointFolder, FORMAT, Manifest, Part, PartInfo};
use planaria_protocol::launch::{Facts, Launch, Parts, Size, Station};
use planaria_protocol::listen::{self, Listening};
use planaria_protocol::message::{
    Agent, FromServer, Join, LinkPurpose, Push, Share, Source, Steps, ToServer, Trouble,
};
use planaria_protocol::state::State;
use planaria_protocol::transfer::files::Ask;
use planaria_protocol::transfer::{Fault, Line, PIECE_BYTES};
use planaria_protocol::{Credentials, Receiver, Secret, Sender, bytes, connect};
use planaria_recipe::Recipe;
use planaria_recipe::shape::Shape;
use planaria_store::hash::{hex, sha256};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver as Inbox, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// 1,000 → 1,000 without more: 4 MB, and as much for each slot of the optimizer.
const WIDTH: usize = 1000;
const PARAMETERS: usize = WIDTH * WIDTH + WIDTH;
const BLOCKS: u32 = PARAMETERS.div_ceil(4096) as u32;
const GENERATION: u64 = 7;
const PATIENCE: Duration = Duration::from_secs(30);

fn recipe() -> Recipe {
    let text = format!(
        r#"{{"name": "part_files", "data": {{"train": "digits"}},
            "model": {{"layers": [{{"Dense": {{"units": {WIDTH}}}}}]}},
            "train": {{"shards": 1, "batch": 10, "epochs": 100,
                "optimizer": {{"sgd": {{"momentum": 0.9}}}}}}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn manifest(step: u64, parts: Vec<Part>) -> Manifest {
    Manifest {
        format: FORMAT,
        planaria: "0".into(),
        build: "test".into(),
        generation: GENERATION,
        step,
        recipe_sha256: String::new(),
        recipe: String::new(),
        data: Vec::new(),
        state: State { step, ..State::default() },
        parameters: PARAMETERS as u64,
        state_values: 0,
        slots: optimizer::slots(&recipe().train.optimizer) as u32,
        parts,
    }
}

/// A coordinator's machine: the run's folder, and links of both kinds.
struct World {
    dir: tempfile::TempDir,
    checkpoint_folder: CheckpointFolder,
    part_files: Arc<PartFiles>,
    credentials: Credentials,
    listening: Listening,
    joined: Inbox<(Join, Sender, Receiver)>,
    log: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint_folder = CheckpointFolder::new(dir.path().join("checkpoints"), 2);
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let saying = log.clone();
        let say = Arc::new(move |line: &str| saying.lock().unwrap().push(line.to_owned()));
        let ranges = [0..PARAMETERS as u64, PARAMETERS as u64..PARAMETERS as u64];
        let part_files =
            Arc::new(PartFiles::new(checkpoint_folder.clone(), &manifest(0, vec![]), &ranges, say));
        let credentials = Credentials::plain(Secret::from_hex(&"ab".repeat(32)).unwrap());
        let (tell, joined) = channel();
        let serving = part_files.clone();
        let on_link = move |join: Join, sender, receiver| match join.purpose {
            LinkPurpose::Parts => serving.serve(&join, sender, receiver),
            LinkPurpose::Work => tell.send((join, sender, receiver)).unwrap(),
            LinkPurpose::Peer | LinkPurpose::Blocks => {
                panic!("no link of a coded run is opened here")
            }
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let generation = Arc::new(AtomicU64::new(GENERATION));
        let listening =
            listen::serve(listener, credentials.clone(), generation, on_link, |_| {}).unwrap();
        Self { dir, checkpoint_folder, part_files, credentials, listening, joined, log }
    }

    /// A checkpoint is under way.
    fn begin(&self, step: u64) -> PathBuf {
        let folder = self.checkpoint_folder.begin(step).unwrap();
        self.part_files.open(folder.clone());
        folder
    }

    /// A link for parts, by hand.
    fn line(&self, agent: Agent) -> Line<Ask> {
        let address = self.listening.address().to_string();
        let (sender, receiver) =
            connect(&address, &self.credentials, Agent::Coordinator, Some(GENERATION)).unwrap();
        let (build, purpose) = ("test", LinkPurpose::Parts);
        sender.send(&Join { purpose, ..Join::new(agent, build, 1) }).unwrap();
        Line::new(sender, receiver).unwrap()
    }

    fn start(&self, state: Option<&Path>) -> JoinHandle<Result<(), Trouble>> {
        let launch = Launch {
            secret: self.credentials.secret().to_hex(),
            generation: GENERATION,
            build: "test".into(),
            coordinator: Some(self.listening.address().to_string()),
            recipe: recipe(),
            facts: Facts {
                input: Shape::Vector(WIDTH),
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
            station: Station { parts: Parts::Link, ..Station::default() },
            course: None,
        };
        let log = self.log.clone();
        let log = Arc::new(move |line: &str| log.lock().unwrap().push(line.to_owned()));
        std::thread::spawn(move || {
            parameters::serve::run(&launch, 0, Arc::new(SystemClock(now())), log)
        })
    }

    /// The server that joins next, with orders for it and what it says.
    fn server(&self) -> Server {
        let (join, orders, mut receiver) = self.joined.recv_timeout(PATIENCE).unwrap();
        let (tell, said) = channel();
        std::thread::spawn(move || {
            while let Ok(Some(incoming)) = receiver.receive::<FromServer>() {
                receiver.skip_bulk().unwrap();
                if tell.send(incoming.message).is_err() {
                    break;
                }
            }
        });
        Server { join, orders, said }
    }

    fn files(&self, folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().to_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }
}

struct Server {
    join: Join,
    orders: Sender,
    said: Inbox<FromServer>,
}

impl Server {
    fn wait<T>(&self, is: impl Fn(FromServer) -> Option<T>) -> T {
        let until = now() + PATIENCE;
        loop {
            let said = self.said.recv_timeout(until - now()).expect("the server says it");
            if let Some(found) = is(said) {
                return found;
            }
        }
    }

    fn begin(&self, source: Source, step: u64) {
        self.orders.send(&ToServer::Begin { blocks: 0..BLOCKS, source, step }).unwrap();
        self.wait(|said| (said == FromServer::Ready).then_some(()));
        let steps = Steps { epoch: 0, batches: step..1000, first_step: step };
        let shares = vec![Share { worker: 0, shards: 0..1 }];
        self.orders.send(&ToServer::Round { steps, shares }).unwrap();
    }

    /// Some steps of a worker whose gradients are the same every time.
    fn train(&self, credentials: &Credentials, steps: std::ops::Range<u64>) {
        let address = self.join.address.as_deref().unwrap();
        let (worker, _receiver) =
            connect(address, credentials, Agent::Server(0), Some(GENERATION)).unwrap();
        let (agent, build) = (Agent::Worker(0), "test");
        let purpose = LinkPurpose::Work;
        worker.send(&Join { purpose, ..Join::new(agent, build, 1) }).unwrap();
        let values: Vec<f32> = (0..PARAMETERS).map(|i| (i % 17) as f32 * 0.25 - 1.0).collect();
        for step in steps {
            let gradient = Push::Gradient { step, first_shard: 0, shards: 1, first_block: 0 };
            worker.send_with(&gradient, bytes::as_bytes(&values)).unwrap();
            let read = Default::default();
            let shard = Push::Shard { step, shard: 0, loss_sum: 0.0, correct: 0, read };
            worker.send(&shard).unwrap();
            self.wait(|said| (said == FromServer::Applied { step }).then_some(()));
            self.orders.send(&ToServer::Commit { step }).unwrap();
        }
    }

    /// Its part of a checkpoint; what it is told is a folder of another machine.
    fn save(&self, step: u64) -> Result<PartInfo, String> {
        let folder = format!("/nowhere/to/be/found/step-{step:010}");
        self.orders.send(&ToServer::Save { step, folder }).unwrap();
        self.wait(|said| match said {
            FromServer::Saved { file, sha256, bytes, .. } => {
                Some(Ok(PartInfo { file, sha256, bytes }))
            }
            FromServer::NotSaved { why, .. } => Some(Err(why)),
            _ => None,
        })
    }
}

fn put(name: &str, file: &str, content: &[u8]) -> Ask {
    let (checkpoint, file, bytes) = (name.into(), file.into(), content.len() as u64);
    Ask::Put { checkpoint, file, bytes, sha256: hex(&sha256(content)) }
}

/// Sends a part by hand; whether it is stored.
fn send(line: &mut Line<Ask>, ask: &Ask, mut content: &[u8]) -> Result<(), Fault> {
    line.ask(ask.clone())?;
    let bytes = content.len() as u64;
    line.send_file(&mut content, bytes)?;
    line.hear_stored()
}

fn is_refused<T>(answer: Result<T, Fault>, why: &str) -> bool {
    matches!(answer, Err(Fault::Refused(trouble)) if trouble.message.contains(why))
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 % 251) as u8).collect()
}

const STEP_3: &str = "step-0000000003";

#[test]
fn a_part_crosses_and_comes_back() {
    let world = World::new();
    let folder = world.begin(3);
    let sent = content(5 * PIECE_BYTES + 12_345);
    let mut line = world.line(Agent::Server(0));
    send(&mut line, &put(STEP_3, "part-0", &sent), &sent).unwrap();
    assert_eq!(world.files(&folder), ["part-0"]);
    assert!(fs::read(folder.join("part-0")).unwrap() == sent);
    // The same again: another try of the same checkpoint.
    send(&mut line, &put(STEP_3, "part-0", &sent), &sent).unwrap();

    // What is not whole is not handed out.
    let get = Ask::Get { checkpoint: STEP_3.into(), file: "part-0".into() };
    let mut early = world.line(Agent::Server(0));
    early.ask(get.clone()).unwrap();
    assert!(is_refused(early.hear_comes(), "in the folder of checkpoints"));
    fs::write(folder.join("manifest.json"), "{}").unwrap();
    let mut line = world.line(Agent::Server(0));
    line.ask(get).unwrap();
    let bytes = line.hear_comes().unwrap().0.units;
    assert_eq!(bytes, sent.len() as u64);
    let mut came = Vec::new();
    let take = |_: u64, piece: &[u8]| {
        assert!(piece.len() <= PIECE_BYTES);
        came.extend_from_slice(piece);
        Ok(())
    };
    line.take(bytes, take).unwrap();
    assert!(came == sent);
}

#[test]
fn no_name_leads_out_of_the_checkpoints() {
    let world = World::new();
    let folder = world.begin(3);
    fs::write(world.dir.path().join("secret"), "s").unwrap();
    let small = content(100);
    let outside = world.dir.path().join("x");
    let names = ["../x", "/x", outside.to_str().unwrap(), "part-1", "part-", "part-0/x", "", "."];
    for name in names.into_iter().chain(["manifest.json", ".part-0.tmp", "part-0\0", "last"]) {
        let mut line = world.line(Agent::Server(0));
        let answer = send(&mut line, &put(STEP_3, name, &small), &small);
        assert!(matches!(answer, Err(Fault::Refused(_))), "{name}: {answer:?}");
    }
    for checkpoint in ["step-0000000004", "..", "../checkpoints/step-0000000003", "", "last", "."] {
        let mut line = world.line(Agent::Server(0));
        let answer = send(&mut line, &put(checkpoint, "part-0", &small), &small);
        assert!(matches!(answer, Err(Fault::Refused(_))), "{checkpoint}: {answer:?}");
    }
    assert!(world.files(&folder).is_empty() && !outside.exists());
    // Other agents have no part, and none is longer than it can be.
    for agent in [Agent::Server(2), Agent::Worker(0), Agent::Coordinator] {
        let mut line = world.line(agent);
        let answer = send(&mut line, &put(STEP_3, "part-0", &small), &small);
        assert!(matches!(answer, Err(Fault::Refused(_))), "{agent}: {answer:?}");
    }
    let mut line = world.line(Agent::Server(1));
    let long = content(2000);
    let answer = send(&mut line, &put(STEP_3, "part-1", &long), &long);
    assert!(is_refused(answer, "more than"));

    fs::write(folder.join("manifest.json"), "{}").unwrap();
    fs::write(folder.join("notes"), "n").unwrap();
    let of_it =
        [(STEP_3, "notes"), (STEP_3, "../../secret"), (STEP_3, "/etc/passwd"), (STEP_3, "")];
    let others =
        [("..", "secret"), ("../..", "part-0"), ("", "part-0"), ("step-3/../..", "part-0")];
    for (checkpoint, file) in of_it.into_iter().chain(others) {
        let mut line = world.line(Agent::Server(0));
        line.ask(Ask::Get { checkpoint: checkpoint.into(), file: file.into() }).unwrap();
        let answer = line.hear_comes();
        assert!(matches!(answer, Err(Fault::Refused(_))), "{checkpoint}/{file}: {answer:?}");
    }
}

#[test]
fn what_is_changed_cut_or_late_leaves_nothing() {
    let world = World::new();
    let folder = world.begin(3);
    let whole = content(3 * PIECE_BYTES);
    // Changed.
    let mut other = whole.clone();
    other[PIECE_BYTES + 5] ^= 1;
    let mut line = world.line(Agent::Server(0));
    let answer = send(&mut line, &put(STEP_3, "part-0", &whole), &other);
    assert!(is_refused(answer, "SHA-256"));
    drop(line);
    assert!(world.files(&folder).is_empty());

    // Cut in the middle.
    let mut line = world.line(Agent::Server(0));
    line.ask(put(STEP_3, "part-0", &whole)).unwrap();
    line.send_file(&mut &whole[..PIECE_BYTES], PIECE_BYTES as u64).unwrap();
    assert_eq!(world.files(&folder).len(), 1, "under another name");
    assert!(!folder.join("part-0").exists());
    drop(line);
    let until = now() + PATIENCE;
    while !world.files(&folder).is_empty() {
        assert!(now() < until, "{:?}", world.files(&folder));
        std::thread::park_timeout(Duration::from_millis(5));
    }

    // The checkpoint is given up meanwhile.
    let mut line = world.line(Agent::Server(0));
    line.ask(put(STEP_3, "part-0", &whole)).unwrap();
    line.send_file(&mut &whole[..PIECE_BYTES], PIECE_BYTES as u64).unwrap();
    assert_eq!(world.part_files.close().as_deref(), Some(&*folder));
    line.send_file(&mut &whole[PIECE_BYTES..], 2 * PIECE_BYTES as u64).unwrap();
    assert!(is_refused(line.hear_stored(), "being written"));
    assert!(world.files(&folder).is_empty());

    // Of a generation that is over.
    let address = world.listening.address().to_string();
    assert!(
        connect(&address, &world.credentials, Agent::Coordinator, Some(GENERATION - 1)).is_err()
    );
}

#[test]
fn a_server_without_the_runs_folder_saves_and_begins_again() {
    let world = World::new();
    let state = tempfile::tempdir().unwrap();
    let process = world.start(Some(state.path()));
    let server = world.server();
    server.begin(Source::Seed, 0);
    server.train(&world.credentials, 0..3);
    let why = server.save(3).unwrap_err();
    assert!(why.contains("`step-0000000003` is not being written"), "{why}");
    let folder = world.begin(3);
    let info = server.save(3).unwrap();
    let folder = world.part_files.close().filter(|f| *f == folder).unwrap();
    let part = Part { info, start: 0, end: PARAMETERS as u64 };
    world.checkpoint_folder.finish(&folder, &manifest(3, vec![part]), false).unwrap();
    let first = checkpoint::read(&folder).unwrap();
    server.train(&world.credentials, 3..5);
    world.begin(5);
    let end = server.save(5).unwrap();
    world.part_files.close();
    server.orders.send(&ToServer::Finish).unwrap();
    process.join().unwrap().unwrap();
    let left = world.files(state.path());
    assert!(left.iter().all(|name| name.ends_with(".slots")), "{left:?}");

    // Another, on another machine, with rubbish of one that was killed.
    let state = tempfile::tempdir().unwrap();
    fs::create_dir(state.path().join("temporary-0-77-0")).unwrap();
    let process = world.start(Some(state.path()));
    let server = world.server();
    assert_eq!(server.join.kept, None);
    server.begin(Source::Checkpoint("/nowhere/step-0000000003".into()), 3);
    world.begin(3);
    let orders_name = server
        .orders
        .send(&ToServer::Save { step: 3, folder: "/nowhere/step-0000000003-2".into() });
    orders_name.unwrap();
    let sha256 = server.wait(|said| match said {
        FromServer::Saved { sha256, .. } => Some(sha256),
        FromServer::NotSaved { why, .. } => panic!("{why}"),
        _ => None,
    });
    assert_eq!(sha256, first.manifest.parts[0].info.sha256, "what is saved is what was saved");
    world.part_files.close();
    server.train(&world.credentials, 3..5);
    world.begin(5);
    assert_eq!(server.save(5).unwrap(), end, "and it goes on to the same bits");
    server.orders.send(&ToServer::Finish).unwrap();
    process.join().unwrap().unwrap();
    let left = world.files(state.path());
    assert!(left.iter().all(|name| name.ends_with(".slots")), "{left:?}");
}

#[test]
fn a_checkpoint_that_cannot_be_fetched_is_named() {
    let world = World::new();
    let process = world.start(None);
    let server = world.server();
    let source = Source::Checkpoint("/nowhere/step-0000000009".into());
    server.orders.send(&ToServer::Begin { blocks: 0..BLOCKS, source, step: 9 }).unwrap();
    let trouble = server.wait(|said| match said {
        FromServer::Failed(trouble) => Some(trouble),
        _ => None,
    });
    assert!(trouble.message.contains("step-0000000009"), "{trouble:?}");
    assert!(process.join().unwrap().is_err());
}

#[test]
fn a_disk_that_takes_nothing_costs_no_checkpoint() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    // A file where the server's folder should be: nothing can be written there.
    let state = folder.path().join("state");
    fs::write(&state, "").unwrap();
    let process = world.start(Some(&state));
    let server = world.server();
    server.begin(Source::Seed, 0);
    server.train(&world.credentials, 0..2);
    let checkpoint = world.begin(2);
    let info = server.save(2).unwrap();
    world.part_files.close();
    let part = Part { info, start: 0, end: PARAMETERS as u64 };
    world.checkpoint_folder.finish(&checkpoint, &manifest(2, vec![part]), false).unwrap();
    checkpoint::read(&checkpoint).unwrap();
    // What must be fetched needs room: that is this machine's trouble, and not the run's.
    let source = Source::Checkpoint("/nowhere/step-0000000002".into());
    server.orders.send(&ToServer::Begin { blocks: 0..BLOCKS, source, step: 2 }).unwrap();
    let trouble = server.wait(|said| match said {
        FromServer::Failed(trouble) => Some(trouble),
        _ => None,
    });
    assert!(trouble.of_machine, "{trouble:?}");
    assert!(process.join().unwrap().is_err());
}
