//! Small runs by table: the questions and answers of a course.

use super::*;

/// Examples 0..6, two to a batch.
const BATCHES: u64 = 3;

fn setup(epochs: u64, checkpoint_steps: u64, patience: Option<u64>) -> Setup {
    Setup {
        epochs,
        steps_per_epoch: BATCHES,
        classification: true,
        has_validation: true,
        checkpoint_epochs: 1,
        checkpoint_steps,
        rule: Rule { monitor: Monitor::Accuracy, patience, min_delta: 0.0 },
        examples: (0..2 * BATCHES).collect(),
        remedy: Default::default(),
        train: Train::default(),
    }
}

fn batch(number: u64) -> Digest {
    [2 * number, 2 * number + 1].into_iter().collect()
}

/// When a stop is asked for.
#[derive(Clone, Copy, PartialEq)]
enum Stop {
    Never,
    AtStep(u64),
    /// While this epoch, from 0, is validated.
    InValidation(u64),
}

/// The questions and answers of a run: `t0-2` batches 0 and 1, `v` validation, `s` a save,
/// `b` one of the best, then how it ends. `figures` are the validation's, epoch by epoch.
fn drive(course: &mut Course, figures: &[f64], stop: Stop) -> (String, Vec<State>, Vec<What>) {
    let (mut words, mut saved, mut events) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        assert_eq!(course.next(), course.next(), "asking changes nothing");
        match course.next() {
            Next::Train(steps) => {
                assert_eq!(steps.first_step, course.state().step);
                words.push(format!("t{}-{}", steps.batches.start, steps.batches.end));
                for number in steps.batches {
                    let done = Done {
                        loss_sum: 1.0 + number as f64,
                        correct: 1,
                        examples: 2,
                        seconds: 0.5,
                        read: batch(number),
                    };
                    let now = course.state().seconds_total + 1.0;
                    events.extend(course.stepped(now, &done));
                    if stop == Stop::AtStep(course.state().step) {
                        course.stop();
                        break;
                    }
                }
            }
            Next::Validate => {
                words.push("v".into());
                let epoch = course.state().epoch;
                if stop == Stop::InValidation(epoch) {
                    course.stop();
                    continue;
                }
                let accuracy = figures.get(epoch as usize).copied();
                let figure = Validation { loss: Some(0.5), accuracy, errors: None };
                let figure = course.setup().has_validation.then_some(figure);
                let now = course.state().seconds_total + 1.0;
                events.push(course.validated(now, figure));
            }
            Next::Save { is_best, .. } => {
                words.push(if is_best { "b" } else { "s" }.into());
                saved.push(course.state().clone());
                course.saved();
            }
            Next::End(end) => {
                words.push(match end {
                    End::Completed => "completed".into(),
                    End::StoppedEarly(reason) => format!("stopped: {reason}"),
                    End::Interrupted => "interrupted".into(),
                });
                return (words.join(" "), saved, events);
            }
        }
    }
}

#[track_caller]
fn check(setup: Setup, figures: &[f64], stop: Stop, expect: &str) {
    let mut course = Course::new(setup, State::default());
    assert_eq!(drive(&mut course, figures, stop).0, expect);
}

#[test]
fn sequences() {
    let rising = [0.1, 0.2, 0.3];
    check(setup(2, 0, None), &rising, Stop::Never, "t0-3 v b t0-3 v b completed");
    check(setup(2, 0, None), &[0.2, 0.1], Stop::Never, "t0-3 v b t0-3 v s completed");
    // Steps 2 and 4; step 6 is the end of an epoch, which writes its own.
    check(setup(2, 2, None), &rising, Stop::Never, "t0-2 s t2-3 v b t0-1 s t1-3 v b completed");
    check(setup(1, 3, None), &rising, Stop::Never, "t0-3 v b completed");
    check(
        setup(9, 0, Some(1)),
        &[0.2, 0.1, 0.3],
        Stop::Never,
        "t0-3 v b t0-3 v s stopped: accuracy has not improved for 1 epoch; best 0.2000 in \
         epoch 1",
    );
    // Early stopping in the last epoch is completion.
    check(setup(2, 0, Some(1)), &[0.2, 0.1], Stop::Never, "t0-3 v b t0-3 v s completed");
}

#[test]
fn stops() {
    let rising = [0.1, 0.2, 0.3];
    check(setup(2, 0, None), &rising, Stop::AtStep(2), "t0-3 s interrupted");
    // A checkpoint that is due anyway is not written twice.
    check(setup(2, 2, None), &rising, Stop::AtStep(2), "t0-2 s interrupted");
    // At the end of an epoch: validation is left to the resumed run.
    check(setup(2, 0, None), &rising, Stop::AtStep(3), "t0-3 s interrupted");
    check(setup(2, 0, None), &rising, Stop::InValidation(1), "t0-3 v b t0-3 v s interrupted");

    // Before the first step, and of a run that has ended.
    let mut course = Course::new(setup(2, 0, None), State::default());
    course.stop();
    assert_eq!(drive(&mut course, &rising, Stop::Never).0, "s interrupted");
    let mut course = Course::new(setup(1, 0, None), State::default());
    drive(&mut course, &rising, Stop::Never);
    course.stop();
    assert_eq!(drive(&mut course, &rising, Stop::Never).0, "completed");
    // Right after a checkpoint there is nothing to save.
    let state = State { step: 4, epoch: 1, batch: 1, ..State::default() };
    let mut course = Course::new(setup(2, 0, None), state);
    course.stop();
    assert_eq!(drive(&mut course, &rising, Stop::Never).0, "interrupted");
}

#[test]
fn any_checkpoint_leads_to_the_same_end() {
    let figures = [0.3, 0.2, 0.4, 0.1, 0.1];
    for patience in [None, Some(2)] {
        let setup = setup(5, 1, patience);
        let mut whole = Course::new(setup.clone(), State::default());
        let (words, states, events) = drive(&mut whole, &figures, Stop::Never);
        for (number, state) in states.into_iter().enumerate() {
            let step = state.step;
            let mut resumed = Course::new(setup.clone(), state);
            let (rest, _, later) = drive(&mut resumed, &figures, Stop::Never);
            assert!(words.ends_with(&rest), "{words} does not end with {rest}");
            assert_eq!(resumed.state(), whole.state(), "from checkpoint {number}");
            assert!(events.ends_with(&later), "from step {step}");
        }
    }
    // Stopped in the middle of validation: it is done again.
    let setup = setup(2, 0, None);
    let mut stopped = Course::new(setup.clone(), State::default());
    let (_, states, _) = drive(&mut stopped, &figures, Stop::InValidation(0));
    let mut resumed = Course::new(setup, states.last().cloned().unwrap());
    assert_eq!(drive(&mut resumed, &figures, Stop::Never).0, "v b t0-3 v s completed");
    // One that early stopping has ended stays ended.
    let state = State { epoch: 1, stopped: Some("why".into()), ..State::default() };
    let mut ended = Course::new(stopped.setup().clone(), state);
    assert_eq!(drive(&mut ended, &figures, Stop::Never).0, "stopped: why");
}

#[test]
fn epochs_are_accounted_for() {
    let mut course = Course::new(setup(2, 0, None), State::default());
    let (_, _, events) = drive(&mut course, &[0.5, 0.5], Stop::Never);
    let exact = events.iter().filter(|e| matches!(e, What::Epoch { exact: true, .. })).count();
    assert_eq!((exact, course.state().exact_epochs, course.state().epoch), (2, 2, 2));
    assert_eq!(course.state().read, Digest::default());
    assert_eq!(course.state().seconds_to_first_step, Some(1.0));

    // An example that the part does not have.
    let other = Setup { examples: (1..=2 * BATCHES).collect(), ..setup(1, 0, None) };
    let mut course = Course::new(other, State::default());
    let (_, _, events) = drive(&mut course, &[0.5], Stop::Never);
    assert!(matches!(events.last(), Some(What::Epoch { exact: false, .. })));
    assert_eq!(course.state().exact_epochs, 0);
}

#[test]
fn without_validation_the_training_figures_decide() {
    let alone = Setup { has_validation: false, ..setup(2, 0, None) };
    let mut course = Course::new(alone, State::default());
    // Half of the answers are right in both epochs: the first is the best.
    assert_eq!(drive(&mut course, &[], Stop::Never).0, "t0-3 v b t0-3 v s completed");
    assert_eq!(course.state().watch.best.unwrap().value, 0.5);
}

#[test]
fn lines_are_as_many_as_a_chart_can_show() {
    let setup = Setup { steps_per_epoch: 1000, ..setup(2, 0, None) };
    assert_eq!(setup.line_every(), 5);
    let mut course = Course::new(setup, State::default());
    let done =
        Done { loss_sum: 2.0, correct: 1, examples: 2, seconds: 0.1, read: Digest::default() };
    let lines: Vec<_> = (0..10).filter_map(|n| course.stepped(f64::from(n), &done)).collect();
    assert_eq!(lines.len(), 2);
    let What::Steps(figures) = &lines[1] else { panic!("{lines:?}") };
    assert_eq!((figures.step, figures.loss, figures.accuracy), (10, Some(1.0), Some(0.5)));
    assert!((figures.training_seconds - 0.5).abs() < 1e-9);
}

#[test]
fn a_pulse_says_how_long_it_will_take() {
    let state = State { step: 3, epoch: 1, seconds_total: 100.0, ..State::default() };
    let mut course = Course::new(setup(3, 0, None), state);
    assert_eq!(course.pulse(Activity::Training, "training", 101.0).seconds_left, None);
    let done =
        Done { loss_sum: 2.0, correct: 1, examples: 2, seconds: 1.0, read: Digest::default() };
    course.stepped(105.0, &done);
    let pulse = course.pulse(Activity::Training, "training", 106.0);
    assert_eq!((pulse.step, pulse.epoch, pulse.seconds_left), (4, 2, Some(10.0)));
}

#[test]
fn checkpoints_come_every_so_many_epochs_and_at_the_end() {
    let saves = |setup: Setup, stop_at: Option<u64>| {
        let mut course = Course::new(setup, State::default());
        let mut saved = Vec::new();
        for _ in 0..100 {
            match course.next() {
                Next::Train(_) => {
                    let read = course.setup().examples;
                    let done = Done { loss_sum: 1.0, correct: 1, examples: 1, seconds: 0.1, read };
                    course.stepped(1.0, &done);
                    if stop_at == Some(course.state().step) {
                        course.stop();
                    }
                }
                Next::Validate => {
                    course.validated(1.0, None);
                }
                Next::Save { .. } => {
                    saved.push(course.state().step);
                    course.saved();
                }
                Next::End(_) => return saved,
            }
        }
        saved
    };
    let every = |checkpoint_epochs| Setup {
        checkpoint_epochs,
        has_validation: false,
        steps_per_epoch: 1,
        ..setup(7, 0, None)
    };
    assert_eq!(saves(every(1), None), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(saves(every(3), None), [3, 6, 7]);
    assert_eq!(saves(every(100), None), [7]);
    assert_eq!(saves(every(3), Some(5)), [3, 5], "nothing is lost by a stop");
}
