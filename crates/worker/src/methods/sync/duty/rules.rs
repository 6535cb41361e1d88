//! Orders and arrivals at random, sensible or not, and the rules that are kept whatever happens.

use super::tests::{WORK, ended, evaluate, hashes, holds, lease};
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A board as the duty sees it, and the rules that it keeps.
#[derive(Default)]
struct Rules {
    duty: Duty,
    out: Vec<Output>,
    /// By buffer: which parameters are whole, on the board itself.
    board: [Option<u64>; 2],
    /// Tasks that it holds, and in which order they came.
    held: BTreeMap<(u64, u64), Range<u32>>,
    leases: u64,
    computed: BTreeSet<(u64, u64)>,
    /// What it may compute: steps below.
    entered: Option<u64>,
    followed: Option<u64>,
    hashing: Option<u64>,
    doing: Option<u64>,
    is_cut: bool,
    is_over: bool,
}

/// Something that a coordinator, servers and links may do, sensible or not.
#[derive(Debug, Clone)]
enum Event {
    Lease { first: u64, steps: u64, enter: bool },
    Evaluate { step: u64, enter: bool },
    Entered,
    Revoke,
    Complete(u64),
    Missed(u64),
    Gone(u64),
    State(u64),
    Answer,
    Ended,
    Rejoin,
}

fn event() -> impl Strategy<Value = Event> {
    let step = 0u64..12;
    prop_oneof![
        6 => (step.clone(), 0u64..4, prop::bool::weighted(0.3))
            .prop_map(|(first, steps, enter)| Event::Lease { first, steps, enter }),
        2 => (step.clone(), any::<bool>())
            .prop_map(|(step, enter)| Event::Evaluate { step, enter }),
        8 => Just(Event::Entered),
        2 => Just(Event::Revoke),
        20 => step.clone().prop_map(Event::Complete),
        1 => step.clone().prop_map(Event::Missed),
        1 => step.clone().prop_map(Event::Gone),
        4 => step.prop_map(Event::State),
        20 => Just(Event::Answer),
        1 => Just(Event::Ended),
        1 => Just(Event::Rejoin),
    ]
}

impl Rules {
    fn happen(&mut self, event: Event) {
        match event {
            Event::Lease { first, steps, enter } => {
                if !self.is_cut && !self.is_over {
                    for step in first..first + steps {
                        self.held.insert((step, self.leases), 0..2);
                    }
                    self.enters(first, enter);
                }
                self.leases += 1;
                self.say(lease(first..first + steps, 0..2, enter));
            }
            Event::Evaluate { step, enter } => {
                self.enters(step, enter);
                self.say(evaluate(step, 0..2, enter));
            }
            Event::Entered => {
                if let Some(step) = self.followed {
                    // The word comes for what was hashed.
                    self.entered = Some(u64::MAX);
                    self.say(Input::Command(Command::Entered { step }));
                }
            }
            Event::Revoke => {
                self.entered = None;
                self.followed = None;
                self.held.clear();
                self.say(Input::Revoke);
            }
            Event::Complete(step) => {
                let held = &mut self.board[step as usize % 2];
                // What is seen is not written, and the later one wins.
                if self.doing.is_none_or(|doing| doing % 2 != step % 2) && *held <= Some(step) {
                    *held = Some(step);
                    self.say(Input::Complete { step });
                } else {
                    self.say(Input::Missed { step });
                }
            }
            Event::Missed(step) => self.say(Input::Missed { step }),
            Event::Gone(step) => {
                self.say(Input::Gone { step });
            }
            Event::State(step) => self.say(Input::State { step }),
            Event::Answer => {
                if self.doing.take().is_some() {
                    self.say(Input::Done(WORK));
                }
            }
            Event::Ended => {
                self.is_cut = true;
                self.entered = None;
                self.held.clear();
                self.say(ended(0));
            }
            Event::Rejoin => {
                self.is_over = true;
                self.held.clear();
                // To begin a second time is to have forgotten the first.
                self.duty.has_begun = true;
                self.say(Input::Command(Command::Begin { servers: vec![] }));
            }
        }
    }

    fn say(&mut self, input: Input) {
        let was_over = self.is_over && !matches!(input, Input::Command(Command::Begin { .. }));
        self.out.clear();
        self.duty.on(input, &mut self.out);
        assert!(!was_over || self.out.is_empty(), "it goes on after the end");
        for output in self.out.clone() {
            self.check(output);
        }
        if let Some(step) = self.hashing.take() {
            self.followed = Some(step);
            let said = self.out.clone();
            self.say(hashes(step));
            assert!(self.out.contains(&holds(step)), "it does not say what it holds");
            self.out.extend(said);
        }
    }

    fn check(&mut self, output: Output) {
        match output {
            Output::Compute(task) => {
                let key = (task.step, task.lease);
                self.check_entered(task.step);
                assert_eq!(self.board[task.step as usize % 2], Some(task.step), "parameters");
                assert!(self.doing.is_none(), "two at a time");
                assert_eq!(self.held.keys().next(), Some(&key), "lowest step first");
                assert!(self.computed.insert(key), "computed twice");
                self.held.remove(&key);
                self.doing = Some(task.step);
            }
            Output::Evaluate(Batch { step, .. }) => {
                self.check_entered(step);
                assert!(self.doing.is_none(), "two at a time");
                assert_eq!(self.board[step as usize % 2], Some(step), "parameters");
                let lowest = self.held.keys().next();
                assert!(lowest.is_none_or(|(first, _)| *first >= step), "lowest step first");
                self.doing = Some(step);
            }
            Output::Skip(task) => {
                let skipped = self.held.remove(&(task.step, task.lease));
                assert!(skipped.is_some(), "it skips what it does not hold");
            }
            Output::Hash { step } => {
                assert_eq!(self.board[step as usize % 2], Some(step), "parameters");
                self.hashing = Some(step);
            }
            Output::Follow { step } => {
                self.enters(step, true);
                self.followed = None;
            }
            _ => {}
        }
        if self.duty.standing == Standing::Out {
            self.entered = None;
            self.followed = None;
        }
    }

    /// What it has entered for already goes on, below where it enters again.
    fn enters(&mut self, step: u64, enter: bool) {
        self.entered = self.entered.map(|below| if enter { below.min(step) } else { below });
    }

    fn check_entered(&self, step: u64) {
        assert!(!self.is_cut, "it computes after a link has ended");
        assert!(self.entered.is_some_and(|below| step < below), "it has not entered");
    }

    /// Everything that is still held gets its parameters, and is computed, unless it waits for
    /// something that will not come.
    fn work_off(&mut self) {
        while let Some((&(step, _), _)) = self.held.iter().next()
            && self.duty.standing == Standing::In
            && self.duty.scoring.is_empty()
        {
            let before = self.held.len();
            self.happen(Event::Answer);
            self.happen(Event::Complete(step));
            self.happen(Event::Answer);
            assert!(self.held.len() < before, "step {step} is neither computed nor dropped");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn the_rules_are_kept_whatever_happens(
        events in prop::collection::vec(event(), 1..120)
    ) {
        let mut rules = Rules::default();
        for event in events {
            rules.happen(event);
        }
        rules.work_off();
    }
}
