//! Generated histories: right ones pass, and every kind of tampering is found.

use super::*;
use planaria_numerics::digest::Digest;
use planaria_protocol::event::{Event, Figures, Started, What};
use proptest::prelude::*;

/// A run's shape.
#[derive(Debug, Clone, Copy)]
struct Shape {
    examples: u64,
    batch: u64,
    epochs: u64,
}

impl Shape {
    fn steps_per_epoch(self) -> u64 {
        self.examples.div_ceil(self.batch)
    }

    fn steps(self) -> u64 {
        self.epochs * self.steps_per_epoch()
    }

    /// What a step reads: an order of its own in every epoch.
    fn read(self, step: u64) -> Digest {
        let (epoch, batch) = (step / self.steps_per_epoch(), step % self.steps_per_epoch());
        let places = batch * self.batch..((batch + 1) * self.batch).min(self.examples);
        places.map(|place| (place + 7 * epoch) % self.examples).collect()
    }

    fn committed(self, steps: std::ops::Range<u64>) -> What {
        let read = steps.clone().map(|step| self.read(step));
        What::Committed {
            epoch: steps.start / self.steps_per_epoch(),
            first_step: steps.start,
            end_step: steps.end,
            read: read.fold(Digest::default(), Digest::combine),
        }
    }

    fn started(self, step: u64) -> What {
        What::Started(Started {
            run_id: "net-1".into(),
            recipe: "net".into(),
            version: String::new(),
            recipe_sha256: String::new(),
            step,
            epochs: self.epochs,
            steps_per_epoch: self.steps_per_epoch(),
            examples: self.examples,
            parameters: 5,
            classification: true,
            workers: 2,
            servers: 1,
            shards: 4,
            batch: self.batch,
            digest: (0..self.examples).collect(),
        })
    }
}

/// What interrupts a run.
#[derive(Debug, Clone, Copy)]
enum Mishap {
    /// Everything is lost; a new session goes on from the last checkpoint.
    Killed,
    /// A loss after which all goes on at the committed step; the lost one had not told its last
    /// steps, which the new one tells before or after its own first words.
    Kept { told_late: bool },
    /// As before, but the lost one had told them: they are told twice.
    ToldTwice,
    /// A loss after which all go back to the last checkpoint.
    Back,
}

/// Writes the events of a run that goes right, whatever happens to it.
struct Writer {
    shape: Shape,
    events: Vec<Event>,
    generation: u64,
    /// Steps done, of which those up to `told` are in an event.
    step: u64,
    told: u64,
    /// The newest checkpoint.
    saved: (u64, u64),
    /// Steps that were committed and taken again, as far as events can tell.
    superseded: u64,
}

impl Writer {
    fn emit(&mut self, what: What) {
        let generation = self.generation;
        self.events.push(Event { seconds: 0.0, unix_seconds: 0.0, generation, what });
    }

    fn tell(&mut self) {
        if self.told < self.step {
            self.emit(self.shape.committed(self.told..self.step));
            self.told = self.step;
        }
    }

    fn save(&mut self) {
        self.tell();
        self.saved = (self.step, self.generation);
        let (step, folder) = (self.step, "checkpoints/x".into());
        self.emit(What::Saved { step, is_best: false, folder, reason: String::new() });
    }

    fn step(&mut self) {
        self.step += 1;
        if !self.step.is_multiple_of(self.shape.steps_per_epoch()) {
            return;
        }
        self.tell();
        let per_epoch = self.shape.steps_per_epoch();
        let epoch = self.step / per_epoch;
        let steps = (epoch - 1) * per_epoch..self.step;
        let read = steps.map(|step| self.shape.read(step));
        let read = read.fold(Digest::default(), Digest::combine);
        let figures = Figures {
            step: self.step,
            epoch,
            loss: None,
            accuracy: None,
            learning_rate: 0.1,
            examples_per_second: None,
            training_seconds: 1.0,
        };
        self.emit(What::Epoch {
            figures,
            validation_loss: None,
            validation_accuracy: None,
            validation_errors: None,
            read,
            exact: true,
        });
        self.save();
    }

    fn recovered(&mut self, superseded: u64, reason: &str) {
        let (step, source) = (self.step, "kept".into());
        self.emit(What::Recovered { step, superseded, source, reason: reason.into(), lost: None });
    }

    fn suffer(&mut self, mishap: Mishap) {
        match mishap {
            Mishap::Killed => {
                // Steps that were in no event leave no trace.
                self.superseded += self.told - self.saved.0;
                (self.step, self.told) = (self.saved.0, self.saved.0);
                self.generation += 1;
                self.emit(self.shape.started(self.step));
            }
            Mishap::Kept { told_late } => {
                self.generation += 1;
                if !told_late {
                    self.tell();
                }
                self.recovered(0, "the coordinator was lost");
                self.tell();
            }
            Mishap::ToldTwice => {
                let before = self.told;
                self.tell();
                self.generation += 1;
                self.told = before;
                self.recovered(0, "the coordinator was lost");
                self.tell();
            }
            Mishap::Back => {
                let superseded = self.step - self.saved.0;
                self.superseded += superseded;
                (self.step, self.told) = (self.saved.0, self.saved.0);
                self.generation += 1;
                self.recovered(superseded, "server-0 was lost");
            }
        }
    }
}

fn history(shape: Shape, mishaps: &[(u64, Mishap)], every: u64) -> Writer {
    let mut writer = Writer {
        shape,
        events: Vec::new(),
        generation: 1,
        step: 0,
        told: 0,
        saved: (0, 1),
        superseded: 0,
    };
    writer.emit(shape.started(0));
    let mut mishaps = mishaps.iter();
    let mut next = mishaps.next();
    // Each mishap comes so many steps after the one before.
    let mut wait = 0;
    while writer.step < shape.steps() {
        writer.step();
        if every > 0 && writer.step.is_multiple_of(every) {
            writer.save();
        }
        wait += 1;
        if let Some((after, mishap)) = next
            && wait > *after
            && writer.step < shape.steps()
        {
            writer.suffer(*mishap);
            (wait, next) = (0, mishaps.next());
        }
    }
    let outcome = planaria_protocol::message::Outcome::Completed;
    let ended = What::Ended {
        outcome,
        reason: None,
        step: writer.step,
        weights_sha256: None,
        trouble: None,
        state: None,
    };
    writer.emit(ended);
    writer
}

fn shapes() -> impl Strategy<Value = Shape> {
    (1..40u64, 1..12u64, 1..4u64).prop_map(|(examples, batch, epochs)| Shape {
        examples,
        batch,
        epochs,
    })
}

fn mishaps() -> impl Strategy<Value = Vec<(u64, Mishap)>> {
    let kind = prop_oneof![
        Just(Mishap::Killed),
        any::<bool>().prop_map(|told_late| Mishap::Kept { told_late }),
        Just(Mishap::ToldTwice),
        Just(Mishap::Back),
    ];
    proptest::collection::vec((0..8u64, kind), 0..6)
}

fn ranges(events: &[Event]) -> Vec<usize> {
    let is_range = |e: &Event| matches!(e.what, What::Committed { .. });
    (0..events.len()).filter(|n| is_range(&events[*n])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_went_right_is_exact(shape in shapes(), mishaps in mishaps(), every in 0..5u64) {
        let run = history(shape, &mishaps, every);
        let checkpoint = Checkpoint {
            step: run.saved.0,
            generation: run.saved.1,
            epochs: shape.epochs,
            exact_epochs: shape.epochs,
            weights_sha256: "a".into(),
        };
        let reported = Reported { steps: run.step, weights_sha256: "a".into() };
        let audit = audited(&run.events, Some(&checkpoint), Some(&reported));
        prop_assert_eq!(&audit.reasons, &Vec::<String>::new());
        prop_assert!(audit.exactly_once && audit.ended && !audit.before_audits);
        prop_assert_eq!(audit.steps, shape.steps());
        prop_assert_eq!(audit.superseded_steps, run.superseded);
        prop_assert_eq!(audit.generations.len() as u64, run.generation);
        prop_assert_eq!(audit.generations.iter().map(|g| g.steps).sum::<u64>(), shape.steps());
        prop_assert!(audit.epochs.iter().all(|e| e.whole && e.exact));
        prop_assert_eq!(audit.weights_match, Some(true));
        // Without its end it is as right so far.
        for n in 0..run.events.len() {
            let part = audited(&run.events[..n], None, None);
            prop_assert_eq!(&part.reasons, &Vec::<String>::new(), "{} events", n);
        }
    }

    #[test]
    fn every_tampering_with_what_counts_is_found(
        shape in shapes(),
        mishaps in mishaps(),
        every in 0..5u64,
        which in any::<prop::sample::Index>(),
        how in 0..6,
    ) {
        let run = history(shape, &mishaps, every);
        let mut events = run.events;
        // Of the ranges, one that counts: superseded ones may say anything.
        let lineage = Summary::of(&events).lineage;
        let tile = lineage.tiles[which.index(lineage.tiles.len())];
        let counts = |n: &usize| match &events[*n].what {
            What::Committed { first_step, end_step, .. } => {
                (events[*n].generation, *first_step, *end_step)
                    == (tile.generation, tile.first, tile.end)
            }
            _ => false,
        };
        let at = ranges(&events).into_iter().rfind(counts).expect("it is there");
        let What::Committed { epoch, first_step, end_step, read } = &mut events[at].what else {
            unreachable!()
        };
        match how {
            0 => drop(events.remove(at)),
            1 => events.insert(at, events[at].clone()),
            2 => (*first_step, *end_step) = (*first_step + 1, *end_step + 1),
            3 => read.sum = read.sum.wrapping_add(1),
            4 => read.add(0),
            _ => *epoch += 1,
        }
        let audit = audited(&events, None, None);
        // A range that was told twice may be told once; moved on, the second may in turn be taken
        // for one that a later generation tells again, and more.
        let twice = matches!(how, 0 | 2) && Summary::of(&events).lineage.end() == shape.steps()
            && mishaps.iter().any(|(_, m)| matches!(m, Mishap::ToldTwice));
        prop_assert!(!audit.exactly_once || twice, "{} {:?}", how, tile);
    }

    #[test]
    fn a_missing_epoch_is_found(
        shape in shapes(),
        every in 0..5u64,
        which in any::<prop::sample::Index>(),
    ) {
        let mut events = history(shape, &[], every).events;
        let gone = which.index(shape.epochs as usize) as u64;
        events.retain(|e| !matches!(&e.what, What::Committed { epoch, .. } if *epoch == gone));
        prop_assert!(!audited(&events, None, None).exactly_once);
    }
}

const SHAPE: Shape = Shape { examples: 10, batch: 4, epochs: 2 };

fn newest(step: u64, generation: u64) -> Checkpoint {
    let epochs = step / SHAPE.steps_per_epoch();
    Checkpoint { step, generation, epochs, exact_epochs: epochs, weights_sha256: "a".into() }
}

fn audited(
    events: &[Event],
    checkpoint: Option<&Checkpoint>,
    reported: Option<&Reported>,
) -> Audit {
    audit(&Summary::of(events), &[], checkpoint, reported)
}

fn reasons(events: &[Event]) -> Vec<String> {
    audited(events, None, None).reasons
}

fn told(all: Vec<(u64, What)>) -> Vec<Event> {
    let event = |(generation, what)| Event { seconds: 0.0, unix_seconds: 0.0, generation, what };
    all.into_iter().map(event).collect()
}

#[test]
fn reasons_name_what_is_wrong() {
    let check = |all: Vec<(u64, What)>, expect: &[&str]| {
        let found = reasons(&told(all));
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.contains(expect), "{found}");
        }
    };
    let recovered = |step| What::Recovered {
        step,
        superseded: 0,
        source: "kept".into(),
        reason: "server-0 was lost".into(),
        lost: None,
    };
    check(
        vec![(1, SHAPE.started(0)), (1, SHAPE.committed(0..1)), (1, SHAPE.committed(2..3))],
        &["step 2 was committed in no range", "epoch 1 read 6 examples in 2 steps instead of 8"],
    );
    check(
        vec![(1, SHAPE.started(0)), (1, SHAPE.committed(0..2)), (2, recovered(1))],
        &["generation 2 went on after step 1, in the middle of steps 1 to 2", "epoch 1 read 8"],
    );
    check(
        vec![(1, SHAPE.started(0)), (1, SHAPE.committed(0..2)), (1, SHAPE.committed(1..3))],
        &[
            "steps 2 to 3 of generation 1 overlap what was committed up to step 2",
            "epoch 1 read 6 examples",
        ],
    );
    // From a coordinator that did not know yet that another had taken its place.
    check(
        vec![
            (1, SHAPE.started(0)),
            (1, SHAPE.committed(0..1)),
            (2, recovered(1)),
            (1, SHAPE.committed(1..2)),
            (2, SHAPE.committed(1..3)),
        ],
        &[],
    );
}

#[test]
fn a_generation_may_go_back_twice() {
    // Taken up with steps that a lost coordinator had left to be told, and then what was kept
    // turns out not to be whole.
    let recovered = What::Recovered {
        step: 2,
        superseded: 2,
        source: "checkpoints/x".into(),
        reason: "what was kept is not whole".into(),
        lost: None,
    };
    let events = told(vec![
        (1, SHAPE.started(0)),
        (1, SHAPE.committed(0..2)),
        (2, SHAPE.committed(2..3)),
        (2, SHAPE.committed(3..4)),
        (2, SHAPE.started(4)),
        (2, recovered),
        (2, SHAPE.committed(2..3)),
        (2, SHAPE.committed(3..6)),
    ]);
    let audit = audited(&events, None, None);
    assert_eq!(audit.reasons, Vec::<String>::new());
    assert_eq!((audit.generations.len(), audit.superseded_steps, audit.steps), (2, 2, 6));
    assert_eq!(audit.generations[1].steps, 4);
}

#[test]
fn a_checkpoint_of_what_was_given_up_is_found() {
    let run = history(SHAPE, &[(3, Mishap::Back)], 2);
    let newest = newest(6, 2);
    assert!(audited(&run.events, Some(&newest), None).exactly_once);
    let beyond = Checkpoint { step: 5, generation: 1, ..newest.clone() };
    let found = audited(&run.events, Some(&beyond), None).reasons;
    assert!(found[0].contains("the newest checkpoint is of step 5 of generation 1"), "{found:?}");
    let other = Reported { steps: 6, weights_sha256: "b".into() };
    let found = audited(&run.events, Some(&newest), Some(&other));
    assert_eq!((found.weights_match, found.exactly_once), (Some(false), false));
}

#[test]
fn a_run_from_before_audits_is_not_judged() {
    let mut events = history(SHAPE, &[], 0).events;
    events.retain(|e| !matches!(e.what, What::Committed { .. }));
    for event in &mut events {
        if let What::Started(started) = &mut event.what {
            started.digest = Digest::default();
        }
    }
    let audit = audited(&events, None, None);
    assert!(audit.before_audits && !audit.exactly_once && audit.reasons.is_empty());
    assert!(page::text(&audit, "runs/x").contains("this run was made before audits"));
}

#[test]
fn the_page_reads_well() {
    let run = history(SHAPE, &[(3, Mishap::Back)], 2);
    let newest = newest(6, 2);
    let reported = Reported { steps: 6, weights_sha256: "a".into() };
    let audit = audited(&run.events, Some(&newest), Some(&reported));
    assert_eq!(
        page::text(&audit, "runs/net-1"),
        "run           runs/net-1\n\
         exactly once  yes\n\
         epochs        2 whole, 2 exact\n\
         steps         6/6, each committed once; 20 examples read\n\
         generation    1 after step 0: started\n\
         generation    2 after step 4: server-0 was lost\n\
         taken again   0 steps\n\
         survived      0 processes lost, 0 joined, late 0 times\n\
         checkpoint    step 6; the report's weights are its weights\n"
    );
}

#[test]
fn what_is_missing_is_named_and_so_is_what_is_proven_without_it() {
    let run = history(SHAPE, &[], 1);
    let whole = ranges(&run.events);
    let check = |events: &[Event], damage: &[&str], missing: &[&str], proven: &[&str]| {
        let damage: Vec<String> = damage.iter().map(|d| (*d).to_owned()).collect();
        let reported = Reported { steps: 6, weights_sha256: "a".into() };
        let (summary, newest) = (Summary::of(events), newest(6, 1));
        let audit = audit(&summary, &damage, Some(&newest), Some(&reported));
        assert_eq!((audit.verdict, audit.exactly_once), (Verdict::Incomplete, false), "{audit:#?}");
        assert_eq!(audit.reasons, Vec::<String>::new());
        for (found, expect) in [(&audit.missing, missing), (&audit.proven, proven)] {
            assert_eq!(found.len(), expect.len(), "{found:#?}");
            for (found, expect) in found.iter().zip(expect) {
                assert!(found.contains(expect), "{found}");
            }
        }
        let page = page::text(&audit, "runs/x");
        assert!(page.contains("exactly once  not proven") && page.contains("\nproven "), "{page}");
    };
    let saved =
        ["the checkpoint of step 6, which is whole: 2 whole epochs", "the report's weights"];
    // Cut off in the middle of the run, at its end, at its beginning, and gone.
    let torn = [&run.events[..whole[3]], &run.events[whole[4]..]].concat();
    let proven = ["in epoch 1", "step 1 to 3, 5 to 6", saved[0], saved[1]];
    check(&torn, &["line 9"], &["step 4 was committed in no range", "line 9"], &proven);
    let proven = ["in epoch 1", "step 1 to 4", saved[0], saved[1]];
    let missing = ["steps 5 to 6 were committed in no range, but the newest checkpoint has them"];
    check(&run.events[..whole[4]], &[], &missing, &proven);
    let proven = ["in epoch 2", "step 3 to 6", saved[0], saved[1]];
    let missing = ["steps 1 to 2 were committed in no range", "no event says how the run began"];
    check(&run.events[whole[2]..], &[], &missing, &proven);
    let missing = ["steps 1 to 6 were committed in no range", "is not there"];
    check(&[], &["`events.jsonl` is not there"], &missing, &saved);

    // A damaged line that is told again costs nothing; a range less in a whole file is no accident.
    let audit = audit(&Summary::of(&run.events), &["line 3".into()], None, None);
    assert_eq!((audit.verdict, audit.missing.len()), (Verdict::Yes, 1));
    assert_eq!(audited(&torn, None, None).verdict, Verdict::No);
}
