//! Machines that come, fail and are lost, in a world without any.

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
