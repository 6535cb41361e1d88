//! Machines that come, fail and are lost, in a world without any.

use super::placing::SETTLING;
use super::*;

fn machine(number: u32, groups: &[&str]) -> Machine {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    Machine::new(format!("m{number}"), "", groups)
}

fn endless(number: u32) -> Option<Machine> {
    Some(machine(number, &[]))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn raised(actions: &[Action]) -> Vec<u32> {
    let number = |action: &Action| match action {
        Action::Raise { number, .. } => Some(*number),
        _ => None,
    };
    actions.iter().filter_map(number).collect()
}

/// All machines ready, without tunnels.
fn ready(roster: &mut Roster, plan: &dyn Fn(u32) -> Option<Machine>) {
    for number in raised(&roster.step(Duration::ZERO, Input::Look, plan)) {
        roster.step(Duration::ZERO, Input::Opened { number, is_direct: true }, plan);
        roster.step(Duration::ZERO, Input::Ready { number }, plan);
    }
}

#[test]
fn workers_are_spread_evenly_and_wait_for_room() {
    let mut roster = Roster::new(3, 5, None);
    ready(&mut roster, &endless);
    let places: Vec<Where> =
        (0..7).map(|n| roster.place(Duration::ZERO, Agent::Worker(n))).collect();
    let there = Where::There;
    let spread = [there(0), there(1), there(2), there(0), there(1), there(2)];
    assert_eq!((&places[..6], places[6]), (&spread[..], Where::Nowhere));
    roster.left(Agent::Worker(1));
    assert_eq!(roster.place(Duration::ZERO, Agent::Worker(6)), Where::There(1));
    roster.set_workers(9);
    assert_eq!(roster.place(Duration::ZERO, Agent::Worker(7)), Where::There(0));
}

#[test]
fn a_lost_machine_is_raised_again_and_its_places_are_free() {
    let mut roster = Roster::new(1, 1, None);
    ready(&mut roster, &endless);
    assert_eq!(roster.place(Duration::ZERO, Agent::Worker(0)), Where::There(0));
    assert!(raised(&roster.step(seconds(1), Input::Lost { number: 0 }, &endless)).is_empty());
    assert_eq!(roster.place(seconds(1), Agent::Worker(0)), Where::Nowhere);
    assert_eq!(raised(&roster.step(seconds(2), Input::Look, &endless)), [0]);
    roster.step(seconds(3), Input::Ready { number: 0 }, &endless);
    assert_eq!(roster.place(seconds(3), Agent::Worker(0)), Where::There(0));
}

#[test]
fn one_that_will_not_do_is_replaced_where_there_is_another() {
    let two = |number: u32| (number < 2).then(|| machine(number, &[]));
    let mut roster = Roster::new(1, 1, None);
    assert_eq!(raised(&roster.step(Duration::ZERO, Input::Look, &two)), [0]);
    let fault = Fault::replace("m0", "it is another kind of machine", "build there");
    let failed = Input::Failed { number: 0, fault: fault.clone() };
    assert_eq!(raised(&roster.step(Duration::ZERO, failed, &two)), [1]);
    let other = Fault::replace("m1", "the disk is full", "make room");
    let actions = roster.step(Duration::ZERO, Input::Failed { number: 1, fault: other }, &two);
    assert_eq!(actions.last(), Some(&Action::Fail(fault)), "the first reason is told");
}

#[test]
fn attempts_are_bounded() {
    let one = |number: u32| (number < 1).then(|| machine(number, &[]));
    let mut roster = Roster::new(1, 1, None);
    let (mut now, mut tried) = (Duration::ZERO, 0);
    loop {
        let actions = roster.step(now, Input::Look, &one);
        if raised(&actions).is_empty() {
            now += seconds(1);
            continue;
        }
        tried += 1;
        let fault = Fault::retry("m0", "it timed out");
        let actions = roster.step(now, Input::Failed { number: 0, fault }, &one);
        if matches!(actions.last(), Some(Action::Fail(_))) {
            break;
        }
    }
    assert_eq!(tried, FIRST_ATTEMPTS_MAX);
}

#[test]
fn one_that_was_given_up_is_tried_again_where_no_other_is_to_be_had() {
    let two = |number: u32| (number < 2).then(|| machine(number, &[]));
    let mut roster = Roster::new(2, 2, None);
    assert_eq!(raised(&roster.step(Duration::ZERO, Input::Look, &two)), [0, 1]);
    let fail = |roster: &mut Roster, now| {
        let fault = Fault::retry("m1", "connection refused");
        roster.step(now, Input::Failed { number: 1, fault }, &two)
    };
    // Before any is ready it is given up soon.
    let mut now = Duration::ZERO;
    while !fail(&mut roster, now).iter().any(|a| matches!(a, Action::GiveUp { .. })) {
        now += seconds(5);
        assert_eq!(raised(&roster.step(now, Input::Look, &two)), [1]);
    }
    now += seconds(60);
    assert!(raised(&roster.step(now, Input::Look, &two)).is_empty(), "none works yet");
    // Then it is tried again, bounded, with pauses.
    let mut actions = roster.step(now, Input::Ready { number: 0 }, &two);
    let mut tried = 0;
    for _ in 0..10_000 {
        if raised(&actions) == [1] {
            tried += 1;
            fail(&mut roster, now);
        }
        now += seconds(1);
        actions = roster.step(now, Input::Look, &two);
    }
    assert_eq!(tried, ATTEMPTS_MAX - FIRST_ATTEMPTS_MAX);
    assert_eq!(roster.coming(), 0);
    // Who asks for machines may have it at once; so may it return by itself.
    assert_eq!(raised(&roster.step(now, Input::Resize { machines: 2 }, &two)), [1]);
    roster.step(now, Input::Opened { number: 1, is_direct: true }, &two);
    roster.step(now, Input::Ready { number: 1 }, &two);
    assert_eq!(roster.ready(), 2);
}

#[test]
fn what_the_user_must_mend_ends_it_at_once() {
    let mut roster = Roster::new(4, 4, None);
    roster.step(Duration::ZERO, Input::Look, &endless);
    let fault = Fault::fix("docker", "the image is missing", "build it");
    let actions =
        roster.step(Duration::ZERO, Input::Failed { number: 2, fault: fault.clone() }, &endless);
    assert!(actions.contains(&Action::Fail(fault)));
    assert!(raised(&roster.step(seconds(99), Input::Look, &endless)).is_empty());
}

#[test]
fn servers_go_to_their_group_or_stay_here_when_a_machine_needs_a_tunnel() {
    let plan = |number: u32| Some(machine(number, if number == 1 { &["server"] } else { &[] }));
    let mut roster = Roster::new(2, 1, None);
    let numbers = raised(&roster.step(Duration::ZERO, Input::Look, &plan));
    assert_eq!(roster.place(Duration::ZERO, Agent::Server(0)), Where::Nowhere);
    for number in numbers {
        roster.step(Duration::ZERO, Input::Opened { number, is_direct: true }, &plan);
        roster.step(Duration::ZERO, Input::Ready { number }, &plan);
    }
    assert_eq!(roster.place(Duration::ZERO, Agent::Server(0)), Where::There(1));
    assert_eq!(roster.place(Duration::ZERO, Agent::Worker(0)), Where::There(0));
    let mut roster = Roster::new(2, 2, None);
    roster.step(Duration::ZERO, Input::Look, &plan);
    roster.step(Duration::ZERO, Input::Opened { number: 0, is_direct: false }, &plan);
    assert_eq!(roster.place(Duration::ZERO, Agent::Server(0)), Where::Nowhere);
    roster.step(Duration::ZERO, Input::Opened { number: 1, is_direct: true }, &plan);
    assert_eq!(roster.place(Duration::ZERO, Agent::Server(0)), Where::Here);
    let mut roster = Roster::new(2, 2, None);
    roster.step(Duration::ZERO, Input::Look, &plan);
    let fault = Fault::retry("m1", "it cannot be reached");
    roster.step(Duration::ZERO, Input::Failed { number: 1, fault }, &plan);
    assert_eq!(roster.place(Duration::ZERO, Agent::Server(0)), Where::Nowhere);
    roster.step(Duration::ZERO, Input::Opened { number: 0, is_direct: true }, &plan);
    roster.step(Duration::ZERO, Input::Ready { number: 0 }, &plan);
    let there = Where::There(0);
    assert_eq!(
        roster.place(Duration::ZERO, Agent::Server(0)),
        there,
        "the other is not waited for"
    );
}

fn released(actions: &[Action]) -> Vec<u32> {
    let number = |action: &Action| match action {
        Action::Release { number } => Some(*number),
        _ => None,
    };
    actions.iter().filter_map(number).collect()
}

#[test]
fn a_pool_grows_and_shrinks_and_has_spares_again() {
    // Three hosts, of which two are wanted.
    let hosts = |number: u32| (number < 3).then(|| machine(number, &[]));
    let mut roster = Roster::new(2, 2, None);
    ready(&mut roster, &hosts);
    let grown = roster.step(seconds(1), Input::Resize { machines: 5 }, &hosts);
    assert_eq!(raised(&grown), [2], "there is one more");
    roster.step(seconds(1), Input::Ready { number: 2 }, &hosts);
    roster.set_workers(3);
    for worker in 0..3 {
        roster.place(seconds(1), Agent::Worker(worker));
    }
    roster.left(Agent::Worker(1));
    let shrunk = roster.step(seconds(2), Input::Resize { machines: 2 }, &hosts);
    assert_eq!(released(&shrunk), [1], "the one with the fewest processes");
    let early = roster.step(seconds(3), Input::Resize { machines: 3 }, &hosts);
    assert!(raised(&early).is_empty(), "it is not given back yet");
    let again = roster.step(seconds(4), Input::Released { number: 1 }, &hosts);
    assert_eq!(raised(&again), [1]);
}

#[test]
fn a_machine_that_is_not_wanted_any_more_is_released_once_it_is_there() {
    let mut roster = Roster::new(1, 1, None);
    ready(&mut roster, &endless);
    let raising = raised(&roster.step(seconds(1), Input::Resize { machines: 3 }, &endless));
    assert_eq!(raising, [1, 2]);
    let shrunk = roster.step(seconds(2), Input::Resize { machines: 1 }, &endless);
    assert_eq!(released(&shrunk), [2, 1], "the ready one stays");
    let late = roster.step(seconds(3), Input::Ready { number: 1 }, &endless);
    assert_eq!(released(&late), [1]);
    let fault = Fault::retry("m2", "it is not needed any more");
    let quiet = roster.step(seconds(3), Input::Failed { number: 2, fault }, &endless);
    assert_eq!((quiet, roster.coming()), (Vec::new(), 0));
}

#[test]
fn a_machine_that_is_about_to_go_is_replaced_before_it_is_gone() {
    let mut roster = Roster::new(2, 2, None);
    ready(&mut roster, &endless);
    roster.place(Duration::ZERO, Agent::Worker(0));
    let told = roster.step(seconds(1), Input::Leaving { number: 0 }, &endless);
    assert_eq!(raised(&told), [2]);
    assert_eq!(roster.place(seconds(1), Agent::Worker(1)), Where::There(1));
    assert_eq!(roster.place(seconds(1), Agent::Worker(2)), Where::Nowhere, "not there any more");
    let gone = roster.step(seconds(9), Input::Lost { number: 0 }, &endless);
    assert_eq!(
        (raised(&gone), raised(&roster.step(seconds(99), Input::Look, &endless))),
        (vec![], vec![])
    );
}

fn given_up(actions: &[Action]) -> Vec<&str> {
    let mut names = Vec::new();
    for action in actions {
        if let Action::GiveUp { machine, .. } = action {
            names.push(machine.as_str());
        }
    }
    names
}

fn failed(actions: &[Action]) -> Option<&Fault> {
    actions.iter().find_map(|action| match action {
        Action::Fail(fault) => Some(fault),
        _ => None,
    })
}

#[test]
fn an_unfit_machine_is_given_up_and_its_spare_used_until_too_few_are_left() {
    let three = |number: u32| (number < 3).then(|| machine(number, &[]));
    let mut roster = Roster::new(2, 2, Some(1)).needing(2);
    ready(&mut roster, &three);
    roster.place(Duration::ZERO, Agent::Worker(0));
    let unfit = |number: u32| {
        let fault = Fault::replace(format!("m{number}"), "`/d/x` is missing", "");
        Input::Unfit { number, fault }
    };
    let actions = roster.step(seconds(1), unfit(0), &three);
    assert_eq!((given_up(&actions), raised(&actions)), (vec!["m0"], vec![2]));
    assert_eq!(failed(&actions), None);
    roster.step(seconds(2), Input::Ready { number: 2 }, &three);
    assert_eq!(roster.place(seconds(2), Agent::Worker(0)), Where::There(1));
    let actions = roster.step(seconds(3), unfit(2), &three);
    let fault = failed(&actions).expect("too few are left");
    assert!(
        fault.what.contains("is missing") && fault.what.contains("`workers.min` is 2"),
        "{fault}"
    );
    // With room for all workers on any machine, one is enough.
    let mut roster = Roster::new(2, 2, None).needing(2);
    ready(&mut roster, &three);
    roster.step(seconds(1), unfit(0), &three);
    roster.step(seconds(2), Input::Ready { number: 2 }, &three);
    assert_eq!(failed(&roster.step(seconds(3), unfit(1), &three)), None);
    assert!(failed(&roster.step(seconds(3), unfit(2), &three)).is_some());
}

#[test]
fn machines_that_fail_for_the_same_reason_are_not_made_for_ever() {
    for becomes_ready in [false, true] {
        let mut roster = Roster::new(2, 2, None);
        let (mut waiting, mut made, mut fault) = (Vec::new(), 0, None);
        for second in 0..1000 {
            let now = seconds(second);
            waiting.extend(raised(&roster.step(now, Input::Look, &endless)));
            let Some(number) = waiting.pop() else { continue };
            made += 1;
            let name = format!("m{number}");
            let why = Fault::replace(&name, format!("step 1 failed on {name}"), "");
            if becomes_ready {
                roster.step(now, Input::Ready { number }, &endless);
            }
            let input = match becomes_ready {
                true => Input::Unfit { number, fault: why },
                false => Input::Failed { number, fault: why },
            };
            let actions = roster.step(now, input, &endless);
            waiting.extend(raised(&actions));
            fault = failed(&actions).cloned().or(fault);
        }
        // Two that are wanted, three more, and one that was under way.
        assert_eq!(made, 6);
        let fault = fault.expect("no machine is left");
        assert!(fault.what.contains("6 machines in a row went the same way"), "{fault}");
    }
}

#[test]
fn a_step_that_fails_on_this_computer_is_not_tried_under_another_name() {
    let mut roster = Roster::new(1, 1, None);
    assert_eq!(raised(&roster.step(Duration::ZERO, Input::Look, &endless)), [0]);
    let why = Fault::replace("m0", "step 1 `exit 7` failed with exit code 7", "see its log");
    let fault = Fault { is_everywhere: true, ..why };
    let actions = roster.step(seconds(1), Input::Failed { number: 0, fault }, &endless);
    assert!(raised(&actions).is_empty(), "{actions:?}");
    let ended = failed(&actions).expect("no machine is left");
    assert_eq!(ended.what, "step 1 `exit 7` failed with exit code 7");
}

#[test]
fn servers_do_not_wait_for_a_machine_that_does_not_answer() {
    let begun = |workers_min| {
        let mut roster = Roster::new(3, 3, None).needing(workers_min);
        roster.step(Duration::ZERO, Input::Look, &endless);
        for number in 0..2 {
            roster.step(seconds(1), Input::Opened { number, is_direct: true }, &endless);
            roster.step(seconds(1), Input::Ready { number }, &endless);
        }
        roster
    };
    let mut roster = begun(2);
    assert_eq!(roster.place(seconds(1), Agent::Server(0)), Where::Nowhere);
    let told = roster.step(seconds(2), Input::Look, &endless);
    let note = "no answer yet from m2; without one that stays silent the run begins, and takes it in \
                when it comes";
    assert_eq!(told, [Action::Note(note.into())]);
    assert_eq!(roster.place(seconds(2), Agent::Server(0)), Where::There(0));
    assert_eq!(roster.step(seconds(3), Input::Look, &endless), []);
    let mut roster = begun(3);
    let told = roster.step(seconds(2), Input::Look, &endless);
    assert!(
        matches!(&told[..], [Action::Note(note)] if note.contains("the run waits")),
        "{told:?}"
    );
    assert_eq!(roster.place(seconds(2), Agent::Server(0)), Where::Nowhere);
    assert_eq!(roster.place(SETTLING, Agent::Server(0)), Where::There(0));
}

#[test]
fn servers_do_not_wait_for_a_machine_of_theirs_that_does_not_answer() {
    let mut roster = Roster::new(3, 2, None).needing(2);
    let one_serves =
        |number| Some(machine(number, if number == 2 { &["server"] } else { &["worker"] }));
    roster.step(Duration::ZERO, Input::Look, &one_serves);
    for number in 0..2 {
        roster.step(seconds(1), Input::Opened { number, is_direct: true }, &one_serves);
        roster.step(seconds(1), Input::Ready { number }, &one_serves);
    }
    assert_eq!(roster.place(seconds(1), Agent::Server(0)), Where::Nowhere);
    assert_eq!(roster.place(seconds(2), Agent::Server(0)), Where::There(0));
}
