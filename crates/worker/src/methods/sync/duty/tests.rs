//! Orders and arrivals by hand.

use super::*;
use planaria_protocol::message::Steps;

/// Tells a duty things, one after the other, and looks at what it says.
#[derive(Default)]
struct Bench {
    duty: Duty,
    out: Vec<Output>,
}

impl Bench {
    fn say(&mut self, input: Input) -> Vec<Output> {
        self.out.clear();
        self.duty.on(input, &mut self.out);
        self.out.clone()
    }

    fn complete(&mut self, step: u64) -> Vec<Output> {
        self.say(Input::Complete { step })
    }

    fn done(&mut self) -> Vec<Output> {
        self.say(Input::Done(WORK))
    }

    /// Entered at a step, with a lease of some steps from it on.
    fn entered(steps: Range<u64>) -> Self {
        let mut bench = Self::default();
        bench.say(lease(steps.clone(), 0..2, true));
        bench.complete(steps.start);
        bench.say(hashes(steps.start));
        let began = bench.say(Input::Command(Command::Entered { step: steps.start }));
        assert_eq!(began, [compute(steps.start, 0, 0..2)]);
        bench
    }
}

pub(super) const WORK: Work =
    Work { examples: 8, busy: Duration::from_secs(2), waiting: Duration::from_secs(1) };

/// The epoch began with step 0.
pub(super) fn lease(steps: Range<u64>, shards: Range<u32>, enter: bool) -> Input {
    let first_step = steps.start;
    Input::Command(Command::Lease {
        steps: Steps { epoch: 3, batches: steps, first_step },
        shards,
        enter,
    })
}

pub(super) fn evaluate(step: u64, batches: Range<u64>, enter: bool) -> Input {
    Input::Evaluate { part: HeldOut::Validation, step, batches, enter }
}

pub(super) fn hashes(step: u64) -> Input {
    Input::Hashes { step, sha256: vec![[step as u8; 32]] }
}

pub(super) fn holds(step: u64) -> Output {
    Output::Tell(Report::Holds { step, sha256: vec![[step as u8; 32]] })
}

fn compute(step: u64, lease: u64, shards: Range<u32>) -> Output {
    Output::Compute(Task { step, lease, epoch: 3, batch: step, shards })
}

fn skip(step: u64, lease: u64, shards: Range<u32>) -> Output {
    Output::Skip(Task { step, lease, epoch: 3, batch: step, shards })
}

fn score(step: u64, batch: u64) -> Output {
    Output::Evaluate(Batch { part: HeldOut::Validation, step, batch })
}

/// Of so many tasks of [`WORK`].
fn pace(step: u64, tasks: u64) -> Output {
    Output::Tell(Report::Pace {
        step,
        examples: 8 * tasks,
        busy_seconds: 2.0 * tasks as f64,
        waiting_seconds: tasks as f64,
    })
}

fn behind(step: u64) -> Output {
    Output::Tell(Report::Behind { step })
}

fn forget(leases: u64) -> Output {
    Output::Forget { leases }
}

pub(super) fn ended(server: u32) -> Input {
    Input::Ended { server, why: "it went away".into() }
}

#[test]
fn a_lease_is_entered_computed_step_by_step_and_reported() {
    let mut bench = Bench::default();
    assert_eq!(bench.say(lease(5..7, 0..2, true)), [Output::Follow { step: 5 }]);
    assert_eq!(bench.complete(5), [Output::Hash { step: 5 }]);
    assert_eq!(bench.say(hashes(5)), [holds(5)]);
    // More comes before the word does.
    assert_eq!(bench.say(lease(7..9, 0..2, false)), []);
    assert_eq!(bench.say(Input::Command(Command::Entered { step: 4 })), [], "of something else");
    assert_eq!(bench.say(Input::Command(Command::Entered { step: 5 })), [compute(5, 0, 0..2)]);
    assert_eq!(bench.complete(6), []);
    assert_eq!(bench.done(), [compute(6, 0, 0..2)]);
    assert_eq!(bench.done(), [pace(7, 2)]);
    assert_eq!(bench.complete(7), [compute(7, 1, 0..2)]);
    assert_eq!(bench.done(), []);
    assert_eq!(bench.complete(8), [compute(8, 1, 0..2)]);
    assert_eq!(bench.done(), [pace(9, 2)]);
    assert_eq!(bench.complete(9), []);
}

#[test]
fn servers_are_connected_to_once() {
    let mut bench = Bench::default();
    let begin = Input::Command(Command::Begin { servers: vec![] });
    assert_eq!(bench.say(begin.clone()), [Output::Connect(vec![])]);
    assert_eq!(bench.say(begin), [forget(0), Output::Rejoin]);
    assert_eq!(bench.say(lease(0..1, 0..1, true)), [], "the session is over");
}

#[test]
fn an_extra_lease_of_the_same_step_is_taken_up_while_later_parameters_are_waited_for() {
    let mut bench = Bench::entered(5..8);
    bench.done();
    bench.complete(6);
    assert_eq!(bench.done(), [], "the parameters after 7 are not there");
    assert_eq!(bench.say(lease(6..7, 4..6, false)), [compute(6, 1, 4..6)]);
    // Nothing of step 5 is needed: the parameters after it are there.
    assert_eq!(bench.say(lease(5..7, 6..8, false)), [skip(5, 2, 6..8)], "one at a time");
    assert_eq!(bench.done(), [pace(7, 3), compute(6, 2, 6..8)]);
    assert_eq!(bench.complete(7), []);
    assert_eq!(bench.done(), [pace(7, 1), compute(7, 0, 0..2)]);
    assert_eq!(bench.done(), [pace(8, 1)]);
}

#[test]
fn its_own_come_first_and_what_others_have_done_is_given_up() {
    let mut bench = Bench::entered(5..7);
    assert_eq!(bench.say(lease(5..7, 6..8, false)), []);
    assert_eq!(bench.say(lease(5..7, 3..5, false)), []);
    assert_eq!(bench.done(), [compute(5, 1, 6..8)]);
    // The rest is not needed; what is being computed ends by itself, soon.
    assert_eq!(bench.complete(6), [skip(5, 2, 3..5)]);
    assert_eq!(bench.done(), [compute(6, 0, 0..2)]);
    let over = [skip(6, 1, 6..8), pace(7, 2), skip(6, 2, 3..5), pace(7, 0)];
    assert_eq!(bench.complete(7), over, "it keeps up");
    assert_eq!(bench.done(), [pace(7, 1)]);
}

#[test]
fn within_a_step_what_came_first_is_done_first() {
    let mut bench = Bench::entered(5..6);
    bench.say(evaluate(5, 0..1, false));
    bench.say(lease(5..6, 2..4, false));
    bench.say(lease(5..6, 4..6, false));
    assert_eq!(bench.done(), [pace(6, 1), Output::State { step: 5 }]);
    assert_eq!(bench.say(Input::State { step: 5 }), [score(5, 0)]);
    assert_eq!(bench.say(Input::Scored), [compute(5, 1, 2..4)]);
    assert_eq!(bench.done(), [pace(6, 1), compute(5, 2, 4..6)]);
}

#[test]
fn a_task_whose_parameters_are_written_over_is_over() {
    let mut bench = Bench::entered(5..7);
    bench.say(lease(5..6, 2..4, false));
    // So is step 6, though its parameters may still come.
    let over = [skip(5, 1, 2..4), pace(6, 0), skip(6, 0, 0..2)];
    assert_eq!(bench.complete(7), over);
    assert_eq!(bench.done(), [pace(7, 1)]);
}

#[test]
fn parameters_that_are_gone_when_they_are_looked_at_are_over() {
    let mut bench = Bench::entered(5..7);
    assert_eq!(bench.say(lease(5..6, 2..4, false)), []);
    assert_eq!(bench.say(Input::Over { step: 5 }), [skip(5, 1, 2..4), pace(6, 0)]);
    assert_eq!(bench.complete(6), [compute(6, 0, 0..2)]);
}

#[test]
fn parameters_written_over_before_they_are_hashed_are_missed() {
    let mut bench = Bench::default();
    bench.say(lease(5..7, 0..2, true));
    assert_eq!(bench.complete(5), [Output::Hash { step: 5 }]);
    assert_eq!(bench.say(Input::Over { step: 5 }), [skip(5, 0, 0..2), behind(5)]);
    assert_eq!(bench.say(Input::Command(Command::Entered { step: 5 })), []);
    assert_eq!(bench.complete(6), [], "it has not entered");
}

#[test]
fn a_worker_that_said_what_it_holds_has_entered_even_if_that_is_over() {
    let mut bench = Bench::default();
    bench.say(lease(5..7, 0..2, true));
    bench.complete(5);
    bench.say(hashes(5));
    bench.complete(6);
    let entered = bench.say(Input::Command(Command::Entered { step: 5 }));
    assert_eq!(entered, [skip(5, 0, 0..2), compute(6, 0, 0..2)]);
}

#[test]
fn after_revoking_nothing_is_computed_before_entering_again() {
    let mut bench = Bench::entered(5..9);
    bench.complete(6);
    let answer = bench.say(Input::Revoke);
    assert_eq!(answer, [forget(1), Output::Unfollow]);
    // What was being computed ends; its figures are kept.
    assert_eq!(bench.done(), []);
    assert_eq!(bench.say(Input::Command(Command::Entered { step: 5 })), []);
    // Parameters that are there still need not come again, but are hashed.
    let again = bench.say(lease(6..7, 3..4, true));
    assert_eq!(again, [Output::Follow { step: 6 }, Output::Hash { step: 6 }]);
    assert_eq!(bench.say(hashes(6)), [holds(6)]);
    assert_eq!(bench.say(Input::Command(Command::Entered { step: 6 })), [compute(6, 1, 3..4)]);
    assert_eq!(bench.done(), [pace(7, 2)]);
    let answer = bench.say(Input::Revoke);
    assert_eq!(answer, [forget(2), Output::Unfollow]);
}

#[test]
fn entering_again_starts_over() {
    let mut bench = Bench::entered(5..9);
    assert_eq!(bench.say(lease(6..9, 2..4, true)), [Output::Follow { step: 6 }]);
    assert_eq!(bench.done(), [], "nothing before the word");
    assert_eq!(bench.complete(6), [Output::Hash { step: 6 }]);
    let again = bench.say(evaluate(6, 0..1, true));
    assert_eq!(again, [Output::Follow { step: 6 }, Output::Hash { step: 6 }]);
    assert_eq!(bench.say(hashes(6)), [holds(6)]);
    assert_eq!(bench.say(hashes(6)), [], "twice the same");
    assert_eq!(bench.say(Input::Command(Command::Entered { step: 6 })), [compute(6, 0, 0..2)]);
    assert_eq!(bench.done(), [compute(6, 1, 2..4)]);
    assert_eq!(bench.done(), [Output::State { step: 6 }]);
}

#[test]
fn a_worker_that_enters_later_goes_on_with_what_comes_before() {
    let mut bench = Bench::default();
    assert_eq!(bench.say(lease(5..7, 0..2, true)), [Output::Follow { step: 5 }]);
    assert_eq!(bench.say(lease(7..8, 0..2, true)), [], "one at a time");
    bench.complete(5);
    bench.say(hashes(5));
    let entered = bench.say(Input::Command(Command::Entered { step: 5 }));
    assert_eq!(entered, [Output::Follow { step: 7 }, compute(5, 0, 0..2)]);
    assert_eq!(bench.done(), []);
    assert_eq!(bench.complete(6), [compute(6, 0, 0..2)]);
    assert_eq!(bench.done(), [pace(7, 2)]);
    // The others wait for this, so it must not wait for them.
    assert_eq!(bench.say(lease(6..7, 4..6, false)), [compute(6, 2, 4..6)]);
    assert_eq!(bench.done(), [pace(7, 1)]);
    assert_eq!(bench.complete(7), [Output::Hash { step: 7 }]);
    assert_eq!(bench.say(hashes(7)), [holds(7)]);
    assert_eq!(bench.say(Input::Command(Command::Entered { step: 7 })), [compute(7, 1, 0..2)]);
    // Earlier than where it is entering: that comes first, and then the other again.
    let mut bench = Bench::default();
    assert_eq!(bench.say(lease(7..8, 0..2, true)), [Output::Follow { step: 7 }]);
    assert_eq!(bench.say(lease(6..7, 0..2, true)), [Output::Follow { step: 6 }]);
    bench.complete(6);
    bench.say(hashes(6));
    let entered = bench.say(Input::Command(Command::Entered { step: 6 }));
    assert_eq!(entered, [Output::Follow { step: 7 }, compute(6, 1, 0..2)]);
}

#[test]
fn what_was_missed_before_comes_with_what_is_followed_from_an_earlier_step() {
    let mut bench = Bench::entered(5..9);
    bench.say(Input::Missed { step: 6 });
    bench.say(Input::Revoke);
    bench.done();
    bench.say(lease(5..9, 0..2, true));
    bench.say(hashes(5));
    assert_eq!(bench.say(Input::Command(Command::Entered { step: 5 })), [compute(5, 1, 0..2)]);
    assert_eq!(bench.done(), [], "it is on its way");
    assert_eq!(bench.complete(6), [compute(6, 1, 0..2)]);
}

#[test]
fn what_is_missed_is_told_once_and_may_be_asked_for_again() {
    let mut bench = Bench::entered(5..9);
    bench.done();
    assert_eq!(bench.say(Input::Missed { step: 6 }), [skip(6, 0, 0..2), behind(6)]);
    assert_eq!(bench.say(Input::Missed { step: 6 }), []);
    // What does come is still computed, until it is revoked.
    assert_eq!(bench.complete(7), [compute(7, 0, 0..2)]);
    assert_eq!(bench.say(Input::Missed { step: 8 }), [skip(8, 0, 0..2)]);
    assert_eq!(bench.done(), [pace(9, 2)]);
    bench.say(Input::Revoke);
    assert_eq!(bench.say(lease(8..9, 0..2, true)), [Output::Follow { step: 8 }]);
    assert_eq!(bench.complete(8), [Output::Hash { step: 8 }]);
}

#[test]
fn what_is_missed_and_not_needed_is_not_told_until_it_is() {
    let mut bench = Bench::entered(5..6);
    bench.done();
    assert_eq!(bench.say(Input::Missed { step: 6 }), []);
    let answer = bench.say(lease(6..8, 0..2, false));
    assert_eq!(answer, [skip(6, 1, 0..2), behind(6)]);
}

#[test]
fn parameters_from_before_it_followed_do_not_come() {
    let mut bench = Bench::entered(5..6);
    let answer = bench.say(lease(4..5, 2..4, false));
    assert_eq!(answer, [skip(4, 1, 2..4), pace(5, 0)], "nothing of step 4 is needed");
    // Where nothing is known of the parameters after it.
    let mut bench = Bench::entered(5..6);
    let answer = bench.say(lease(2..3, 2..4, false));
    assert_eq!(answer, [skip(2, 1, 2..4), pace(3, 0), behind(2)]);
}

#[test]
fn gone_is_told_once_whichever_server_says_it() {
    let mut bench = Bench::default();
    bench.say(lease(5..9, 0..2, true));
    assert_eq!(bench.say(Input::Gone { step: 3 }), [], "of something else");
    assert_eq!(bench.say(Input::Gone { step: 5 }), [skip(5, 0, 0..2), behind(5)]);
    assert_eq!(bench.say(Input::Gone { step: 5 }), []);
    assert_eq!(bench.say(lease(9..10, 0..2, false)), []);
    bench.say(Input::Revoke);
    assert_eq!(bench.say(lease(9..10, 0..2, false)), [behind(9)], "it says `enter`");
    // Where the state is gone, so is what it was asked for.
    let mut bench = Bench::entered(5..6);
    bench.say(evaluate(5, 0..9, false));
    assert_eq!(bench.done(), [pace(6, 1), Output::State { step: 5 }]);
    assert_eq!(bench.say(Input::Gone { step: 5 }), [behind(5)]);
    assert_eq!(bench.say(Input::State { step: 5 }), []);
}

#[test]
fn a_lost_server_is_told_once_and_then_the_session_ends() {
    let mut bench = Bench::entered(5..9);
    assert_eq!(bench.say(Input::Lingered), [], "nothing was lost");
    let cut = Output::Tell(Report::Cut { server: 2, why: "it went away".into() });
    assert_eq!(bench.say(ended(2)), [forget(1), cut, Output::Linger]);
    assert_eq!(bench.say(ended(1)), []);
    assert_eq!(bench.done(), []);
    assert_eq!(bench.say(lease(5..9, 0..2, true)), []);
    assert_eq!(bench.say(Input::Revoke), [forget(2)]);
    assert_eq!(bench.say(Input::Lingered), [forget(2), Output::Rejoin]);
    assert_eq!(bench.say(Input::Revoke), [], "it goes on after the end");
}

#[test]
fn scores_are_made_batch_by_batch_with_the_state() {
    let mut bench = Bench::default();
    assert_eq!(bench.say(evaluate(9, 4..7, true)), [Output::Follow { step: 9 }]);
    bench.complete(9);
    bench.say(hashes(9));
    assert_eq!(
        bench.say(Input::Command(Command::Entered { step: 9 })),
        [Output::State { step: 9 }]
    );
    assert_eq!(bench.say(Input::State { step: 8 }), [], "of something else");
    assert_eq!(bench.say(Input::State { step: 9 }), [score(9, 4)]);
    // The state is there for those that follow.
    assert_eq!(bench.say(evaluate(9, 1..2, false)), []);
    assert_eq!(bench.say(Input::Scored), [score(9, 5)]);
    assert_eq!(bench.say(Input::Scored), [score(9, 6)]);
    assert_eq!(bench.say(Input::Scored), [score(9, 1)]);
    // An order in between is heard.
    let answer = bench.say(Input::Revoke);
    assert_eq!(answer, [forget(0), Output::Unfollow]);
    assert_eq!(bench.say(Input::Scored), []);
    assert_eq!(bench.say(evaluate(9, 0..0, false)), [behind(9)]);
}

#[test]
fn orders_are_bounded() {
    let mut bench = Bench::entered(0..1);
    for _ in 1..ORDERS_MAX {
        assert_eq!(bench.say(lease(3..4, 0..1, false)), []);
    }
    let seen = ORDERS_MAX as u64 + 1;
    assert_eq!(bench.say(lease(3..4, 0..1, false)), [forget(seen), Output::Rejoin]);
}
