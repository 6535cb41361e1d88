//! Whenever a server is killed, what its region's marks name is whole, and another goes on from it.

#[path = "support/values.rs"]
mod values;

use planaria_coordinator::parameters::Log;
use planaria_coordinator::parameters::chunk::FromLink;
use planaria_coordinator::parameters::region::{
    Backing, Identity, Marked, Place, Region, Shape, Shared,
};
use planaria_coordinator::parameters::store::{Progress, Settings, Store};
use planaria_coordinator::parameters::tally::Counted;
use planaria_learn::{Network, Statistics};
use planaria_numerics::aggregate::BLOCK;
use planaria_numerics::tree::Segment;
use planaria_protocol::message::{Share, Steps};
use planaria_recipe::model::{BatchNormalization, Layer};
use planaria_recipe::shape;
use planaria_recipe::train::{Optimizer, Sgd, Train};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use values::Values;

const PARAMETERS: usize = 33 * BLOCK + 5;
const SHARDS: usize = 2;

/// Splitmix64.
struct Coin(u64);

impl Coin {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn identity() -> Identity {
    Identity { tag: [3; 32], boot: [5; 16] }
}

fn place(folder: &Path) -> Place {
    let backing = Backing::Folder(folder.to_path_buf());
    Place { index: 0, identity: identity(), backing }
}

/// A log that is kept.
fn log() -> (Log, Arc<Mutex<Vec<String>>>) {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = lines.clone();
    (Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_string())), lines)
}

fn settings() -> Settings {
    let optimizer = Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::default() });
    let train = Train { shards: SHARDS, batch: 4, epochs: 1, optimizer, ..Train::default() };
    Settings { blocks: 0..34, parameters: PARAMETERS, train, examples: 400 }
}

fn network() -> Network {
    let layers = [Layer::BatchNormalization(BatchNormalization { momentum: 0.9, epsilon: 1e-3 })];
    Network::new(&layers, shape::Shape::Image { height: 2, width: 2, channels: 3 }).unwrap()
}

fn own_shape() -> Shape {
    settings().shape(network().state_count())
}

/// Parameters, one slot of the optimizer, and the state.
type All = (Vec<f32>, Vec<f32>, Vec<f32>);

fn first() -> All {
    let parameters = (0..PARAMETERS).map(|i| (i % 97) as f32 * 0.01).collect();
    (parameters, vec![0.0; PARAMETERS], network().initialise(1).1)
}

fn begin(store: &Store, step: u64, (parameters, slot, state): &All) {
    store.begin_with(step, parameters, std::slice::from_ref(slot), state).unwrap();
    plan(store, step);
}

/// The steps to come, which workers compute a shard each of.
fn plan(store: &Store, step: u64) {
    let steps = Steps { epoch: 0, batches: step..100, first_step: step };
    let shares = [Share { worker: 0, shards: 0..1 }, Share { worker: 1, shards: 1..2 }];
    store.plan(steps, &shares).unwrap();
}

/// Brings all of a step; `between` is called whenever something was written.
fn take(store: &Store, step: u64, mut between: impl FnMut()) {
    let entered = store.enter(store.era(), step).unwrap().unwrap();
    let mut progress = Progress::Gathering;
    let shard_of = |shard: usize| {
        let stats = vec![(step + shard as u64) as f32 + 2.0; Statistics::new(&network()).len()];
        let counted = Counted { loss_sum: 1.0, correct: 1, read: Default::default() };
        store.count(entered.turn, shard, counted, &stats)
    };
    assert!(shard_of(0).is_none());
    for shard in 0..SHARDS {
        let gradient = vec![(step * 7 + shard as u64) as f32 * 0.1 + 0.3; PARAMETERS];
        let segment = entered.round.segment(Segment { first: shard, count: 1 }).unwrap();
        let bulk = &mut Values(&gradient);
        let from = FromLink { link: shard as u64, segment };
        let taken = store.gradient(&entered, from, 0, bulk, |_, _| between());
        progress = taken.unwrap();
    }
    assert_eq!(progress, Progress::Gathering, "the state is not there");
    between();
    assert!(matches!(shard_of(1), Some((_, Progress::Applied))));
    between();
}

/// What the values are after each step.
fn expected(steps: u64) -> Vec<All> {
    let place = Place { index: 0, identity: identity(), backing: Backing::Memory };
    let region = Region::make(&place, own_shape(), &log().0).unwrap();
    let store = Store::new(settings(), region, Some(Statistics::new(&network())));
    begin(&store, 0, &first());
    let mut all = vec![first()];
    for step in 0..steps {
        take(&store, step, || {});
        store.commit(step).unwrap();
        let third = store.snapshot(step + 1).unwrap();
        let (values, state) = third.values();
        let slot = values.optimizer()[0].to_vec();
        all.push((values.parameters.to_vec(), slot, state.to_vec()));
    }
    all
}

fn flip(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 16], at).unwrap();
}

/// Opens what is left in a folder as a new process would, and compares all that is marked.
fn reopen(folder: &Path, expected: &[All], what: &str) -> Option<Marked> {
    let (log, lines) = log();
    let region = Region::adopt(&place(folder), |shape| *shape == own_shape(), &log);
    let Some(region) = region else {
        let lines = lines.lock().unwrap();
        let reasons = ["no whole step", "another process is writing"];
        let known = |line: &String| reasons.iter().any(|reason| line.contains(reason));
        assert!(lines.len() == 1 && known(&lines[0]), "{what}: {lines:?}");
        return None;
    };
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "{what}: only the new file is left");
    let pieces = region.into_pieces(PARAMETERS);
    let marked = pieces.marks.read();
    for step in [marked.committed, marked.applied].into_iter().flatten() {
        let slot = pieces.runs[0].after(step);
        let state = pieces.state.after(step).parameters;
        compare((slot.parameters, slot.optimizer()[0], state), &expected[step as usize], what);
    }
    if let Some(step) = marked.snapshot {
        let (slot, state) = pieces.third.values();
        compare((slot.parameters, slot.optimizer()[0], state), &expected[step as usize], what);
    }
    Some(marked)
}

fn compare(found: (&[f32], &[f32], &[f32]), expected: &All, what: &str) {
    let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
    assert!(same(found.0, &expected.0), "{what}: parameters");
    assert!(same(found.1, &expected.1), "{what}: optimizer");
    assert!(same(found.2, &expected.2), "{what}: state");
}

#[test]
fn what_marks_name_is_whole_whenever_a_process_is_killed() {
    const STEPS: u64 = 6;
    let expected = expected(STEPS);
    for seed in 0..12 {
        let coin = &mut Coin(seed);
        let (own, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let region = Region::make(&place(own.path()), own_shape(), &log().0).unwrap();
        let store = Store::new(settings(), region, Some(Statistics::new(&network())));
        // What the file is at an instant is what a process killed then leaves.
        let kill = |coin: &mut Coin, committed: Option<u64>, what: &str| {
            if coin.below(3) > 0 {
                return;
            }
            for old in fs::read_dir(image.path()).unwrap() {
                fs::remove_file(old.unwrap().path()).unwrap();
            }
            let file = fs::read_dir(own.path()).unwrap().next().unwrap().unwrap().path();
            fs::copy(&file, image.path().join(file.file_name().unwrap())).unwrap();
            let what = format!("seed {seed}, {what}");
            let marked = reopen(image.path(), &expected, &what);
            assert_eq!(marked.and_then(|m| m.committed), committed, "{what}");
        };
        kill(coin, None, "before it begins");
        let mut step = coin.below(2);
        begin(&store, step, &expected[step as usize]);
        kill(coin, Some(step), "begun");
        while step < STEPS {
            match coin.below(8) {
                0 => {
                    let third = store.snapshot(step);
                    assert!(third.is_ok());
                    kill(coin, Some(step), "copied");
                }
                1 => {
                    // A step that was applied and is taken again.
                    take(&store, step, || kill(coin, Some(step), "between chunks, in vain"));
                    store.begin_kept(step).unwrap();
                    kill(coin, Some(step), "begun again");
                    plan(&store, step);
                }
                2 => {
                    // Committed everywhere but here when the coordinator was lost.
                    take(&store, step, || {});
                    step += 1;
                    store.begin_kept(step).unwrap();
                    kill(coin, Some(step), "begun with what was applied");
                    plan(&store, step);
                }
                3 => {
                    step = coin.below(step + 1);
                    begin(&store, step, &expected[step as usize]);
                    kill(coin, Some(step), "gone back");
                }
                _ => {
                    take(&store, step, || kill(coin, Some(step), "between chunks"));
                    kill(coin, Some(step), "applied");
                    store.commit(step).unwrap();
                    step += 1;
                    kill(coin, Some(step), "committed");
                }
            }
        }
    }
}

/// Not a test: the process that is killed, see below.
#[test]
fn victim() {
    let Ok(folder) = std::env::var("PLANARIA_TEST_VICTIM") else { return };
    let goes_back = std::env::var("PLANARIA_TEST_GOES_BACK").is_ok();
    let expected = expected(3);
    let region = Region::make(&place(Path::new(&folder)), own_shape(), &log().0).unwrap();
    let store = Store::new(settings(), region, Some(Statistics::new(&network())));
    begin(&store, 0, &first());
    fs::write(Path::new(&folder).join("begun"), "").unwrap();
    for step in 0..99 {
        if goes_back {
            // The same slot, with other values.
            let step = 2 * (step % 2);
            begin(&store, step, &expected[step as usize]);
            drop(store.snapshot(step).unwrap());
            continue;
        }
        take(&store, step, || {});
        store.commit(step).unwrap();
        drop(store.snapshot(step + 1).unwrap());
    }
}

#[test]
fn a_real_process_is_killed_at_any_moment() {
    let expected = expected(99);
    for seed in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let mut victim = std::process::Command::new(std::env::current_exe().unwrap());
        victim.args(["--exact", "victim"]).env("PLANARIA_TEST_VICTIM", folder.path());
        if seed % 2 == 1 {
            victim.env("PLANARIA_TEST_GOES_BACK", "");
        }
        let mut child = victim.stdout(std::process::Stdio::null()).spawn().unwrap();
        let begun = folder.path().join("begun");
        while !begun.exists() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let (_keep, pause) = std::sync::mpsc::channel::<()>();
        let wait = std::time::Duration::from_micros(Coin(seed).below(60_000));
        let _ = pause.recv_timeout(wait);
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_file(begun).unwrap();
        // Nothing is there where it was killed while it went back.
        let marked = reopen(folder.path(), &expected, &format!("killed after {wait:?}"));
        assert!(seed % 2 == 1 || marked.is_some());
    }
}

#[test]
fn what_is_taken_over_from_a_process_that_still_writes_is_whole() {
    const STEPS: u64 = 60;
    let expected = expected(STEPS);
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let region = Region::make(&place(own.path()), own_shape(), &log().0).unwrap();
    let store = Store::new(settings(), region, Some(Statistics::new(&network())));
    begin(&store, 0, &first());
    let file = fs::read_dir(own.path()).unwrap().next().unwrap().unwrap().path();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for step in 0..STEPS {
                take(&store, step, || {});
                store.commit(step).unwrap();
                drop(store.snapshot(step + 1).unwrap());
            }
        });
        let mut taken_over = 0;
        while !writer.is_finished() || taken_over == 0 {
            fs::hard_link(&file, other.path().join("server-0-1-1.slots")).unwrap();
            if reopen(other.path(), &expected, "while it writes").is_some() {
                taken_over += 1;
            }
            // A file that could not be copied just now is left for the next process.
            let left = fs::read_dir(other.path()).unwrap().next().unwrap().unwrap().path();
            fs::remove_file(left).unwrap();
        }
    });
}

/// What a file begins with, marks among it.
fn marks_of(file: &std::path::Path) -> Vec<u8> {
    let bytes = fs::read(file).unwrap();
    bytes[..bytes.len().min(4096)].to_vec()
}

#[test]
fn a_copy_that_is_being_overwritten_is_not_marked() {
    let expected = expected(3);
    let (own, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let region = Region::make(&place(own.path()), own_shape(), &log().0).unwrap();
    let store = Store::new(settings(), region, Some(Statistics::new(&network())));
    begin(&store, 0, &first());
    take(&store, 0, || {});
    store.commit(0).unwrap();
    drop(store.snapshot(1).unwrap());
    take(&store, 1, || {});
    store.commit(1).unwrap();
    let file = fs::read_dir(own.path()).unwrap().next().unwrap().unwrap().path();
    std::thread::scope(|scope| {
        let mut chunks = 0;
        // The second chunk is held while this runs: a copy stops there, after the first.
        take(&store, 2, || {
            chunks += 1;
            if chunks != 2 {
                return;
            }
            scope.spawn(|| drop(store.snapshot(2).unwrap()));
            // Killed now, and now, and now.
            let unmarked = (0..10_000).any(|_| {
                // A copy is made over some time, and a kill is one moment: where marks changed
                // meanwhile it is of no moment at all.
                let before = marks_of(&file);
                fs::copy(&file, image.path().join("server-0-1-1.slots")).unwrap();
                if marks_of(&file) != before {
                    return false;
                }
                let marked = reopen(image.path(), &expected, "while it copies");
                for left in fs::read_dir(image.path()).unwrap() {
                    fs::remove_file(left.unwrap().path()).unwrap();
                }
                marked.is_some_and(|marked| marked.snapshot.is_none())
            });
            assert!(unmarked, "what the copy was of is still marked");
        });
    });
}

#[test]
fn what_cannot_be_believed_is_ignored() {
    let fits = |shape: &Shape| *shape == own_shape();
    let folder = tempfile::tempdir().unwrap();
    let leave = |place: &Place, step: u64| {
        let region = Region::make(place, own_shape(), &log().0).unwrap();
        let store = Store::new(settings(), region, Some(Statistics::new(&network())));
        begin(&store, step, &first());
    };
    let own = place(folder.path());
    let file = || fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let check = |reason: &str| {
        let (log, lines) = log();
        assert!(Region::adopt(&own, fits, &log).is_none(), "{reason}");
        let lines = lines.lock().unwrap();
        assert!(lines.len() == 1 && lines[0].contains(reason), "{reason}: {lines:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{reason}");
    };
    leave(&own, 4);
    let marked = Region::adopt(&own, fits, &log().0).unwrap().into_pieces(1 << 30).marks.read();
    assert_eq!(marked, Marked { committed: Some(4), applied: Some(4), snapshot: None });
    fs::remove_file(file()).unwrap();

    leave(&Place { identity: Identity { tag: [4; 32], ..identity() }, ..own.clone() }, 4);
    check("another run");
    leave(&Place { identity: Identity { boot: [4; 16], ..identity() }, ..own.clone() }, 4);
    check("started anew");
    leave(&own, 4);
    let whole = fs::metadata(file()).unwrap().len();
    fs::File::options().write(true).open(file()).unwrap().set_len(whole - 1).unwrap();
    check("length");
    leave(&own, 4);
    fs::File::options().write(true).open(file()).unwrap().set_len(100).unwrap();
    check("cut short");
    fs::write(folder.path().join("server-0-7-1.slots"), vec![7; 9000]).unwrap();
    check("not a server's values");
    drop(Region::make(&own, own_shape(), &log().0).unwrap());
    check("no whole step");
    drop(Region::make(&own, Shape { state: 1, ..own_shape() }, &log().0).unwrap());
    check("other parameters");

    // A bit of any kind of value, of a sum, or of a mark.
    let shape = own_shape();
    let section = (4 * shape.parameters as u64).next_multiple_of(64);
    let state = 4096 + 2 * section;
    let sums = state + (4 * shape.state as u64).next_multiple_of(64);
    let last = |from: u64, bytes: usize| from + bytes as u64 - 1;
    let places = [
        4096,
        last(4096, 4 * shape.parameters),
        4096 + section,
        last(4096 + section, 4 * shape.parameters),
        state,
        last(state, 4 * shape.state),
        sums,
        last(sums, 8 * 35),
    ];
    for at in places {
        leave(&own, 4);
        flip(&file(), at);
        check("after 4 steps do not match their sums: bytes were changed");
    }
    for (mark, reason) in [(256, "after 4100 steps do not match"), (320, "make no sense")] {
        leave(&own, 4);
        flip(&file(), mark + 1);
        check(reason);
    }
    // Both marks are 6 where 4 steps were done.
    leave(&own, 4);
    for mark in [256, 320] {
        fs::File::options().write(true).open(file()).unwrap().write_all_at(&[7], mark).unwrap();
    }
    check("after 6 steps do not match their sums");

    // Another server's, and one that is whole behind one that is not.
    leave(&Place { index: 1, ..own.clone() }, 9);
    leave(&own, 6);
    drop(Region::make(&own, own_shape(), &log().0).unwrap());
    let region = Region::adopt(&own, fits, &log().0).unwrap();
    assert_eq!(region.into_pieces(1 << 30).marks.read().committed, Some(6));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn without_a_file_it_is_memory_and_the_log_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let (log, lines) = log();
    let region = Region::make(&place(&missing), own_shape(), &log).unwrap();
    let store = Store::new(settings(), region, Some(Statistics::new(&network())));
    begin(&store, 0, &first());
    take(&store, 0, || {});
    store.commit(0).unwrap();
    let lines = lines.lock().unwrap();
    assert!(lines.len() == 1 && lines[0].contains("will go back to the last checkpoint"));
    assert!(lines[0].contains("missing"), "{lines:?}");
}

#[test]
fn what_could_only_be_copied_to_memory_stays_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let region = Region::make(&place(folder.path()), own_shape(), &log().0).unwrap();
    let store = Store::new(settings(), region, Some(Statistics::new(&network())));
    begin(&store, 0, &first());
    take(&store, 0, || {});
    drop(store);
    // No file can be newer than this one.
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let last = folder.path().join(format!("server-0-{}-1.slots", u64::MAX));
    fs::rename(file, &last).unwrap();
    for _ in 0..2 {
        let (log, lines) = log();
        let region = Region::adopt(&place(folder.path()), |s| *s == own_shape(), &log).unwrap();
        let applied = Marked { committed: Some(0), applied: Some(1), snapshot: None };
        assert_eq!(region.into_pieces(PARAMETERS).marks.read(), applied);
        let lines = lines.lock().unwrap();
        assert!(lines.len() == 1 && lines[0].contains("in memory alone"), "{lines:?}");
        assert!(last.exists());
    }
}

#[test]
fn an_old_process_that_goes_on_touches_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let shared = Backing::Shared(Shared::default());
    for backing in [Backing::Folder(folder.path().to_path_buf()), shared] {
        let place = Place { index: 0, identity: identity(), backing };
        let region = Region::make(&place, own_shape(), &log().0).unwrap();
        let old = Store::new(settings(), region, Some(Statistics::new(&network())));
        begin(&old, 0, &first());
        take(&old, 0, || {});
        let adopt = || Region::adopt(&place, |shape| *shape == own_shape(), &log().0);
        let pieces = adopt().unwrap().into_pieces(PARAMETERS);
        let before = pieces.runs[0].after(0).parameters.to_vec();
        old.commit(0).unwrap();
        take(&old, 1, || {});
        old.commit(1).unwrap();
        drop(old.snapshot(2).unwrap());
        let applied = Marked { committed: Some(0), applied: Some(1), snapshot: None };
        assert_eq!(pieces.marks.read(), applied);
        assert_eq!(pieces.runs[0].after(0).parameters, before);
        drop(old);
        let again = adopt().unwrap().into_pieces(PARAMETERS);
        assert_eq!(again.marks.read(), applied);
        again.marks.remove();
        assert!(adopt().is_none());
    }
}

#[test]
fn a_live_server_finds_out_as_well() {
    let folder = tempfile::tempdir().unwrap();
    for (what, slot) in [("after 1 steps", 1), ("after 1 steps", 2)] {
        let region = Region::make(&place(folder.path()), own_shape(), &log().0).unwrap();
        let store = Store::new(settings(), region, Some(Statistics::new(&network())));
        begin(&store, 0, &first());
        take(&store, 0, || {});
        store.commit(0).unwrap();
        drop(store.snapshot(1).unwrap());
        store.close();
        assert_eq!(store.compare(), Ok(()));
        let marked = Marked { committed: Some(1), applied: Some(1), snapshot: Some(1) };
        assert_eq!(store.marked(), marked);
        let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let slot_bytes = (fs::metadata(&file).unwrap().len() - 4096) / 3;
        flip(&file, 4096 + slot * slot_bytes + 77);
        let why = store.compare().unwrap_err();
        assert!(why.contains(what), "{why}");
        assert_eq!(store.marked(), Marked::default());
        store.remove();
    }
}
