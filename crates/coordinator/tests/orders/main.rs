//! A server without links: what it says to whom, and how another goes on in its place.

mod sessions;
mod taking_over;

#[path = "../support/values.rs"]
mod values;

use planaria_coordinator::parameters::region::{Backing, Identity, Place, Shared};
use planaria_coordinator::parameters::server::{Outlet, Peer, Server, Used};
use planaria_coordinator::parameters::snapshot::Snapshot;
use planaria_numerics::optimizer;
use planaria_protocol::checkpoint::{FORMAT, Manifest, Part, PartInfo};
use planaria_protocol::launch::Facts;
use planaria_protocol::message::{
    FromServer, Kept, Pull, Push, Share, Source, Steps, ToServer, Trouble,
};
use planaria_protocol::state::State;
use planaria_recipe::Recipe;
use planaria_recipe::shape::Shape;
use planaria_store::hash::sha256;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use values::Values;

/// 3 → 1,300 and back again, with normalisation between: 3 blocks of parameters, and a state.
const PARAMETERS: usize = 3 * 1300 + 1300 + 2 * 1300 + 3 * 1300 + 3;
const STATE: usize = 2 * 1300;
const STATS: usize = 3 * 1300;
const BLOCKS: std::ops::Range<u32> = 0..3;

fn recipe(clip: bool) -> Recipe {
    let clip = if clip { r#", "clip_norm": 0.5"# } else { "" };
    let text = format!(
        r#"{{"name": "server", "data": {{"train": "digits"}},
            "model": {{"layers": [{{"Dense": {{"units": 1300}}}}, {{"BatchNormalization": {{}}}},
                                  {{"Dense": {{"units": 3}}}}]}},
            "train": {{"shards": 2, "batch": 10, "epochs": 9{clip}}}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn facts() -> Facts {
    Facts {
        input: Shape::Vector(3),
        classes: 0,
        examples: 100,
        digest: Default::default(),
        validation: 0,
        test: 0,
        parameters: PARAMETERS as u64,
        marks: Vec::new(),
        coding: None,
    }
}

fn server(shared: &Shared, clip: bool) -> Server {
    let identity = Identity { tag: [u8::from(clip); 32], boot: [0; 16] };
    let place = Place { index: 0, identity, backing: Backing::Shared(shared.clone()) };
    Server::new(&recipe(clip), &facts(), place, Arc::new(|_: &str| {})).unwrap()
}

/// What was said.
#[derive(Default)]
struct Heard {
    coordinator: Mutex<Vec<(FromServer, Vec<f64>)>>,
    workers: Mutex<Vec<(Peer, Pull, Vec<f32>)>>,
    behind: Mutex<BTreeSet<Peer>>,
    closed: Mutex<Vec<u64>>,
}

impl Heard {
    fn said(&self) -> Vec<FromServer> {
        let said = std::mem::take(&mut *self.coordinator.lock().unwrap());
        said.into_iter().map(|(message, _)| message).collect()
    }

    fn pulls(&self) -> Vec<(Peer, Pull, Vec<f32>)> {
        std::mem::take(&mut *self.workers.lock().unwrap())
    }
}

impl Outlet for Heard {
    fn coordinator(&self, message: &FromServer, squares: &[f64]) {
        self.coordinator.lock().unwrap().push((message.clone(), squares.to_vec()));
    }

    fn answer(&self, to: Peer, message: &Pull, values: &[f32]) -> bool {
        self.workers.lock().unwrap().push((to, message.clone(), values.to_vec()));
        true
    }

    fn close(&self, link: u64) {
        self.closed.lock().unwrap().push(link);
    }

    fn used(&self) -> Used {
        Used::default()
    }

    fn hand_out(&self, to: Peer, message: &Pull, values: &[f32], _waiting_max: usize) -> bool {
        !self.behind.lock().unwrap().contains(&to) && self.answer(to, message, values)
    }
}

fn order(server: &Server, order: ToServer, heard: &Heard) -> Option<Snapshot> {
    server.order(&order, heard).unwrap()
}

fn begin(server: &Server, source: Source, step: u64, heard: &Heard) {
    order(server, ToServer::Begin { blocks: BLOCKS, source, step }, heard);
    assert_eq!(heard.said().last(), Some(&FromServer::Ready));
    round(server, step, 0..1, heard);
}

fn round(server: &Server, step: u64, first: std::ops::Range<u32>, heard: &Heard) {
    let steps = Steps { epoch: 0, batches: step..10, first_step: step };
    let second = first.end..2;
    let shares = vec![Share { worker: 0, shards: first }, Share { worker: 1, shards: second }];
    order(server, ToServer::Round { steps, shares }, heard);
}

fn push(server: &Server, from: Peer, push: Push, values: &[f32], heard: &Heard) {
    assert!(!server.would_wait(&push), "{push:?}");
    tried(server, from, push, values, heard).unwrap();
}

fn tried(
    server: &Server,
    from: Peer,
    push: Push,
    values: &[f32],
    heard: &Heard,
) -> Result<(), Trouble> {
    server.push(from, &push, &mut Values(values), heard)
}

fn gradient(step: u64, first_shard: u32, shards: u32) -> (Push, Vec<f32>) {
    let value = |shard: u32| (step + u64::from(shard)) as f32 * 0.1 + 0.1;
    let sum = (first_shard + 1..first_shard + shards).fold(value(first_shard), |a, s| a + value(s));
    let push = Push::Gradient { step, first_shard, shards, first_block: 0 };
    (push, vec![sum; PARAMETERS])
}

fn shard(step: u64, shard: u32) -> (Push, Vec<f32>) {
    let read = [step * 2 + u64::from(shard)].into_iter().collect();
    let push = Push::Shard { step, shard, loss_sum: 1.5, correct: 2, read };
    (push, vec![step as f32 + 2.0; STATS])
}

const A: Peer = Peer { worker: 0, link: 0, session: 0 };
const B: Peer = Peer { worker: 1, link: 1, session: 0 };

/// One worker brings all of a step, which is then committed.
fn take(server: &Server, step: u64, heard: &Heard) {
    for s in 0..2 {
        for (message, values) in [gradient(step, s, 1), shard(step, s)] {
            push(server, A, message, &values, heard);
        }
    }
    order(server, ToServer::Commit { step }, heard);
}

/// Parameters, optimizer and state as they would be saved.
fn values(server: &Server, step: u64) -> Vec<u32> {
    let save = ToServer::Save { step, folder: String::new() };
    let snapshot = order(server, save, &Heard::default()).unwrap();
    snapshot.with_view(|view| {
        let all = view.parameters.iter().chain(view.slots.iter().copied().flatten());
        all.chain(view.state).map(|v| v.to_bits()).collect()
    })
}

#[test]
fn a_step_is_counted_applied_and_handed_out() {
    for clip in [false, true] {
        let (server, heard) = (server(&Shared::default(), clip), Heard::default());
        assert_eq!(server.kept(), None);
        begin(&server, Source::Seed, 0, &heard);
        push(&server, B, Push::Follow { step: 0 }, &[], &heard);
        let pulls = heard.pulls();
        assert_eq!(pulls.len(), 1);
        assert_eq!(pulls[0].1, Pull::Parameters { step: 0, first_block: 0 });
        let bytes: Vec<u8> = pulls[0].2.iter().flat_map(|v| v.to_le_bytes()).collect();
        let sha256 = sha256(bytes);
        assert_eq!(heard.said(), [FromServer::Pulled { worker: 1, step: 0, sha256 }]);

        let missing = |shards: &[u32], segments: &[(u32, u32)]| {
            order(&server, ToServer::Missing { step: 0 }, &heard);
            let (shards, segments) = (shards.to_vec(), segments.to_vec());
            assert_eq!(heard.said(), [FromServer::Missing { step: 0, segments, shards }]);
        };
        missing(&[0, 1], &[(0, 1), (1, 1)]);
        let (message, values) = gradient(0, 1, 1);
        push(&server, A, message, &values, &heard);
        missing(&[0, 1], &[(0, 1)]);
        let (message, values) = shard(0, 0);
        push(&server, B, message, &values, &heard);
        missing(&[1], &[(0, 1)]);
        let (message, values) = gradient(0, 0, 1);
        push(&server, B, message, &values, &heard);
        if clip {
            assert_eq!(heard.coordinator.lock().unwrap()[0].1.len(), 3, "the squares");
            assert_eq!(heard.said(), [FromServer::Summed { step: 0 }]);
            assert!(heard.pulls().is_empty());
            order(&server, ToServer::Clip { step: 0, factor: 0.5 }, &heard);
        }
        missing(&[1], &[]);
        let pulls = heard.pulls();
        assert_eq!(pulls.len(), 1, "it is handed out to the worker that follows");
        assert_eq!((pulls[0].0, &pulls[0].1), (B, &Pull::Parameters { step: 1, first_block: 0 }));
        assert_eq!(server.kept().unwrap().steps, [0], "the state is not there yet");
        let (message, values) = shard(0, 1);
        push(&server, A, message, &values, &heard);
        assert_eq!(server.kept().unwrap().steps, [0, 1]);
        let squares = heard.coordinator.lock().unwrap()[1].1.len();
        assert_eq!(squares, if clip { 0 } else { 3 });
        let said = heard.said();
        assert!(matches!(said[0], FromServer::Counted { step: 0, correct: 4, .. }), "{said:?}");
        assert_eq!(said[1..], [FromServer::Applied { step: 0 }]);

        // The next step waits for the commit, as do requests for its parameters.
        let next = gradient(1, 0, 1);
        assert!(server.would_wait(&next.0) && server.would_wait(&Push::State { step: 1 }));
        order(&server, ToServer::Commit { step: 0 }, &heard);
        assert!(!server.would_wait(&next.0) && !server.would_wait(&Push::State { step: 1 }));
        assert_eq!(server.kept().unwrap().steps, [1]);
        order(&server, ToServer::Missing { step: 0 }, &heard);
        let (segments, shards) = (vec![], vec![]);
        assert_eq!(heard.said(), [FromServer::Missing { step: 0, segments, shards }]);

        // What comes too late is read and forgotten.
        assert_eq!(server.take_late(), 0);
        for (message, values) in [gradient(0, 0, 1), shard(0, 1)] {
            push(&server, A, message, &values, &heard);
        }
        assert_eq!(server.take_late(), 2);
        let (message, values) = gradient(1, 0, 2);
        assert!(tried(&server, A, message, &values, &heard).is_err(), "no segment of the round");
        let (message, values) = shard(1, 1);
        assert!(tried(&server, A, message, &values[1..], &heard).is_err());
        assert!(tried(&server, A, shard(1, 2).0, &values, &heard).is_err());
        assert!(server.order(&ToServer::Commit { step: 1 }, &heard).is_err());
    }
}

#[test]
fn asking_for_a_step_that_is_over_ends_following() {
    let (server, heard) = (server(&Shared::default(), false), Heard::default());
    begin(&server, Source::Seed, 0, &heard);
    push(&server, B, Push::Follow { step: 0 }, &[], &heard);
    take(&server, 0, &heard);
    assert_eq!(heard.pulls().len(), 2);
    for message in [Push::Follow { step: 0 }, Push::State { step: 0 }] {
        push(&server, B, message, &[], &heard);
        assert_eq!(heard.pulls(), [(B, Pull::Gone { step: 0 }, vec![])]);
    }
    take(&server, 1, &heard);
    assert!(heard.pulls().is_empty());
    push(&server, B, Push::State { step: 2 }, &[], &heard);
    let pulls = heard.pulls();
    assert!(pulls[0].1 == Pull::State { step: 2 } && pulls[0].2.len() == STATE);

    // A worker that is behind is left out, and so is one that has gone.
    let c = Peer { worker: 1, link: 9, session: 0 };
    for peer in [A, B, c] {
        push(&server, peer, Push::Follow { step: 2 }, &[], &heard);
    }
    heard.pulls();
    heard.behind.lock().unwrap().insert(A);
    take(&server, 2, &heard);
    let told: Vec<Peer> = heard.pulls().iter().map(|pull| pull.0).collect();
    assert_eq!(told, [B, c]);
    heard.behind.lock().unwrap().clear();
    server.left(c);
    take(&server, 3, &heard);
    let told: Vec<Peer> = heard.pulls().iter().map(|pull| pull.0).collect();
    assert_eq!(told, [B]);
    push(&server, B, Push::Unfollow, &[], &heard);
    take(&server, 4, &heard);
    assert!(heard.pulls().is_empty());
}

#[test]
fn a_late_follower_gets_what_is_applied_but_not_committed() {
    for clip in [false, true] {
        let (server, heard) = (server(&Shared::default(), clip), Heard::default());
        begin(&server, Source::Seed, 0, &heard);
        push(&server, A, Push::Follow { step: 0 }, &[], &heard);
        for s in 0..2 {
            let (message, values) = gradient(0, s, 1);
            push(&server, A, message, &values, &heard);
        }
        if clip {
            order(&server, ToServer::Clip { step: 0, factor: 0.5 }, &heard);
        }
        let early = heard.pulls();
        assert_eq!(early.len(), 2, "one was handed the step after it");
        // That is not handed out again: it must come with what was asked for.
        push(&server, B, Push::Follow { step: 0 }, &[], &heard);
        let late = heard.pulls();
        let of = |pulls: Vec<(Peer, Pull, Vec<f32>)>| -> Vec<(Pull, Vec<f32>)> {
            pulls.into_iter().map(|(_, pull, values)| (pull, values)).collect()
        };
        assert!(late.iter().all(|pull| pull.0 == B));
        assert!(of(early) == of(late), "the same as earlier followers got");
        for s in 0..2 {
            let (message, values) = shard(0, s);
            push(&server, A, message, &values, &heard);
        }
        order(&server, ToServer::Commit { step: 0 }, &heard);
        assert!(heard.pulls().is_empty());
        // What is committed is not sent as what comes after it.
        let c = Peer { worker: 2, link: 2, session: 0 };
        push(&server, c, Push::Follow { step: 1 }, &[], &heard);
        let pulls: Vec<Pull> = heard.pulls().into_iter().map(|pull| pull.1).collect();
        assert_eq!(pulls, [Pull::Parameters { step: 1, first_block: 0 }]);
    }
}

#[test]
fn a_wish_for_a_step_to_come_keeps_its_link_open() {
    let (server, heard) = (server(&Shared::default(), false), Heard::default());
    begin(&server, Source::Seed, 0, &heard);
    let serve = |expected: &[Peer]| {
        assert_eq!(server.due(), expected);
        for peer in server.due() {
            server.begin_following(peer, &heard).unwrap();
        }
        let of = |(peer, pull, _): (Peer, Pull, Vec<f32>)| match pull {
            Pull::Parameters { step, .. } => (peer, step),
            other => panic!("{other:?}"),
        };
        heard.pulls().into_iter().map(of).collect::<Vec<_>>()
    };
    // B waits for a step that needs what B brings.
    push(&server, B, Push::Follow { step: 1 }, &[], &heard);
    assert_eq!(serve(&[]), []);
    for s in 0..2 {
        for (message, values) in [gradient(0, s, 1), shard(0, s)] {
            push(&server, B, message, &values, &heard);
        }
    }
    assert_eq!(serve(&[]), [], "it is not committed");
    order(&server, ToServer::Commit { step: 0 }, &heard);
    heard.said();
    assert_eq!(serve(&[B]), [(B, 1)]);
    assert!(matches!(heard.said()[..], [FromServer::Pulled { worker: 1, step: 1, .. }]));
    take(&server, 1, &heard);
    assert_eq!(serve(&[]), [(B, 2)], "it follows");
    // What it wants next replaces what it wanted.
    push(&server, A, Push::Follow { step: 4 }, &[], &heard);
    push(&server, A, Push::Follow { step: 2 }, &[], &heard);
    push(&server, B, Push::Follow { step: 3 }, &[], &heard);
    push(&server, B, Push::Unfollow, &[], &heard);
    assert_eq!(serve(&[]), [(A, 2)]);
    take(&server, 2, &heard);
    assert_eq!(serve(&[]), [(A, 3)]);
    take(&server, 3, &heard);
    assert_eq!(serve(&[]), [(A, 4)]);
    // One that is overtaken hears so, and who is gone or of an older beginning waits no more.
    push(&server, B, Push::Follow { step: 5 }, &[], &heard);
    take(&server, 4, &heard);
    take(&server, 5, &heard);
    heard.pulls();
    server.begin_following(B, &heard).unwrap();
    assert_eq!(heard.pulls(), [(B, Pull::Gone { step: 5 }, vec![])]);
    push(&server, B, Push::Follow { step: 7 }, &[], &heard);
    push(&server, A, Push::Follow { step: 7 }, &[], &heard);
    server.left(B);
    begin(&server, Source::Kept, 6, &heard);
    take(&server, 6, &heard);
    assert_eq!(serve(&[]), []);
}

#[test]
fn a_link_of_an_older_session_brings_nothing_to_a_newer_one() {
    let (server, heard) = (server(&Shared::default(), false), Heard::default());
    begin(&server, Source::Seed, 0, &heard);
    assert_eq!(server.session(), A.session);
    server.close();
    begin(&server, Source::Kept, 0, &heard);
    for (message, values) in [gradient(0, 0, 1), shard(0, 0), (Push::Follow { step: 0 }, vec![])] {
        let trouble = tried(&server, A, message, &values, &heard).unwrap_err();
        assert!(trouble.message.contains("older generation"), "{}", trouble.message);
    }
    let newer = Peer { worker: 0, link: 5, session: server.session() };
    push(&server, newer, Push::Follow { step: 0 }, &[], &heard);
    assert_eq!(heard.pulls().len(), 1);
}

#[test]
fn what_was_said_of_a_step_is_said_again_and_applied_once() {
    for clip in [false, true] {
        let (server, heard) = (server(&Shared::default(), clip), Heard::default());
        begin(&server, Source::Seed, 0, &heard);
        let again = || {
            heard.said();
            order(&server, ToServer::Missing { step: 0 }, &heard);
            let squares = heard.coordinator.lock().unwrap().iter().map(|said| said.1.len()).sum();
            let mut said = heard.said();
            assert!(matches!(said.pop(), Some(FromServer::Missing { step: 0, .. })));
            (said, squares)
        };
        for s in 0..2 {
            let (message, values) = gradient(0, s, 1);
            push(&server, A, message, &values, &heard);
        }
        let summed = if clip { (vec![FromServer::Summed { step: 0 }], 3) } else { (vec![], 0) };
        assert_eq!(again(), summed);
        let clips = || order(&server, ToServer::Clip { step: 0, factor: 0.5 }, &heard);
        if clip {
            clips();
            clips();
            assert_eq!(server.kept().unwrap().steps, [0], "the state is not there");
            assert_eq!(again(), (vec![], 0));
        }
        for s in 0..2 {
            let (message, values) = shard(0, s);
            push(&server, A, message, &values, &heard);
        }
        let said = heard.said();
        assert!(matches!(said[0], FromServer::Counted { step: 0, .. }), "{said:?}");
        assert_eq!(again(), (said, if clip { 0 } else { 3 }));
        if clip {
            clips();
            assert!(heard.said().is_empty());
        }
        order(&server, ToServer::Commit { step: 0 }, &heard);
        assert_eq!(again(), (vec![], 0));
    }
}

/// An outlet on which a step is taken while parameters are sent.
struct Overtaking<'a>(&'a Server, &'a Heard);

/// Units of the network in which that happens: three chunks of parameters.
const WIDE: usize = 40_000;
const WIDE_PARAMETERS: usize = 9 * WIDE + 3;

impl Outlet for Overtaking<'_> {
    fn coordinator(&self, message: &FromServer, squares: &[f64]) {
        self.1.coordinator(message, squares);
    }

    fn answer(&self, to: Peer, message: &Pull, values: &[f32]) -> bool {
        let &Self(server, heard) = self;
        if *message == (Pull::Parameters { step: 0, first_block: 0 }) {
            for s in 0..2 {
                push(server, A, gradient(0, s, 1).0, &vec![0.5; WIDE_PARAMETERS], heard);
                push(server, A, shard(0, s).0, &vec![1.0; 3 * WIDE], heard);
            }
            order(server, ToServer::Commit { step: 0 }, heard);
        }
        heard.answer(to, message, values)
    }

    fn close(&self, _link: u64) {}

    fn used(&self) -> Used {
        Used::default()
    }

    fn hand_out(&self, to: Peer, message: &Pull, values: &[f32], waiting_max: usize) -> bool {
        self.1.hand_out(to, message, values, waiting_max)
    }
}

#[test]
fn steps_that_overtake_an_entering_worker_are_noticed() {
    let text = serde_json::to_string(&recipe(false)).unwrap().replace("1300", "40000");
    let recipe: Recipe = serde_json::from_str(&text).unwrap();
    let identity = Identity { tag: [0; 32], boot: [0; 16] };
    let place = Place { index: 0, identity, backing: Backing::Memory };
    let server = Server::new(&recipe, &facts(), place, Arc::new(|_: &str| {})).unwrap();
    let heard = Heard::default();
    let blocks = 0..WIDE_PARAMETERS.div_ceil(4096) as u32;
    order(&server, ToServer::Begin { blocks, source: Source::Seed, step: 0 }, &heard);
    round(&server, 0, 0..1, &heard);
    let outlet = Overtaking(&server, &heard);
    server.push(B, &Push::Follow { step: 0 }, &mut Values(&[]), &outlet).unwrap();
    let pulls = heard.pulls();
    assert_eq!(pulls.last().unwrap().1, Pull::Gone { step: 0 });
    let of = |step| {
        let is_of = |pull: &Pull| matches!(pull, Pull::Parameters { step: s, .. } if *s == step);
        pulls.iter().filter(|(_, pull, _)| is_of(pull)).count()
    };
    assert_eq!((of(0), of(1)), (1, 3), "what follows was handed out meanwhile");
    let is_pulled = |m: &FromServer| matches!(m, FromServer::Pulled { .. });
    assert!(!heard.said().iter().any(is_pulled));
}
