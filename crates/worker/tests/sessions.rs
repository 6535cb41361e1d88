//! A worker's process over real links, with a coordinator and servers that do what a test says.

mod support;

use planaria_protocol::bytes;
use planaria_protocol::message::{Agent, FromWorker, HeldOut, Pull, Push, ToWorker};
use planaria_protocol::methods::{self, sync};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use support::{TestClock, World, enter, follow, pushed};

#[test]
fn it_enters_with_the_hashes_works_its_leases_and_takes_up_extra_ones() {
    let mut world = World::new();
    world.start();
    let (mut boss, shops) = world.ready();
    assert_eq!((boss.join.agent, boss.sender.generation()), (Agent::Worker(4), 1));
    boss.lease(3..5, 0..2, true);
    follow(&shops, 3);
    let sha256 = shops.iter().map(|shop| shop.hash(3)).collect();
    assert_eq!(boss.hear(), FromWorker::from(sync::Report::Holds { step: 3, sha256 }));
    assert!(shops.iter().all(|shop| shop.is_quiet()), "it computes before it has entered");
    boss.order(ToWorker::from(sync::Command::Entered { step: 3 }));
    pushed(&shops, 3, 0..2);
    shops.iter().for_each(|shop| shop.hand_out(4));
    pushed(&shops, 4, 0..2);
    assert!(matches!(
        boss.hear(),
        FromWorker::Method(methods::Report::Sync(sync::Report::Pace { step: 5, examples: 16, .. }))
    ));
    // Shards of one that was lost: of a step that it has done its own of, and of its next.
    boss.lease(5..6, 0..2, false);
    boss.lease(4..6, 2..4, false);
    pushed(&shops, 4, 2..4);
    // Nothing is needed of a step whose successor's parameters are there.
    boss.lease(3..4, 2..4, false);
    assert!(matches!(
        boss.hear(),
        FromWorker::Method(methods::Report::Sync(sync::Report::Pace { step: 4, .. }))
    ));
    shops.iter().for_each(|shop| shop.hand_out(5));
    pushed(&shops, 5, 0..2);
    pushed(&shops, 5, 2..4);
    boss.order(ToWorker::Finish);
    boss.drain();
    assert_eq!(world.end(), Ok(()));
}

#[test]
fn it_is_revoked_and_enters_again_whatever_is_still_on_its_way() {
    let mut world = World::new();
    world.start();
    let (mut boss, shops) = world.ready();
    boss.lease(3..9, 0..2, true);
    enter(&mut boss, &shops, 3);
    pushed(&shops, 3, 0..2);
    boss.order(ToWorker::Revoke { ticket: 11 });
    assert_eq!(boss.hear(), FromWorker::Revoked { ticket: 11 });
    for shop in &shops {
        assert_eq!(shop.hear(), (Push::Unfollow, 0));
    }
    // The servers have not heard it yet; half of a step, and what comes twice, do no harm.
    shops[0].hand_out(4);
    shops[0].hand_out(5);
    shops[0].hand_out(4);
    boss.lease(6..7, 0..4, true);
    enter(&mut boss, &shops, 6);
    pushed(&shops, 6, 0..4);
    assert!(matches!(
        boss.hear(),
        FromWorker::Method(methods::Report::Sync(sync::Report::Pace { step: 7, examples: 24, .. }))
    ));
    // Behind again: a server has none of it any more.
    boss.lease(9..10, 0..2, true);
    for shop in &shops {
        assert_eq!(shop.hear(), (Push::Follow { step: 9 }, 0));
        shop.sender.send(&Pull::Gone { step: 9 }).unwrap();
    }
    assert!(matches!(
        boss.hear(),
        FromWorker::Method(methods::Report::Sync(sync::Report::Pace { step: 10, examples: 0, .. }))
    ));
    assert_eq!(boss.hear(), FromWorker::from(sync::Report::Behind { step: 9 }));
    boss.order(ToWorker::Finish);
    boss.drain();
    assert_eq!(world.end(), Ok(()));
}

#[test]
fn it_scores_batch_by_batch() {
    let mut world = World::new();
    world.start();
    let (mut boss, shops) = world.ready();
    let part = HeldOut::Validation;
    boss.order(ToWorker::Evaluate { part, step: 2, batches: 0..2, enter: true });
    enter(&mut boss, &shops, 2);
    assert_eq!(shops[0].hear(), (Push::State { step: 2 }, 0));
    shops[0].sender.send_with(&Pull::State { step: 2 }, bytes::as_bytes::<f32>(&[])).unwrap();
    assert_eq!(boss.hear(), FromWorker::Evaluated { part, step: 2, batch: 0 });
    assert_eq!(boss.hear(), FromWorker::Evaluated { part, step: 2, batch: 1 });
    boss.order(ToWorker::Finish);
    boss.drain();
    assert_eq!(world.end(), Ok(()));
}

#[test]
fn a_server_that_is_lost_is_told_of_and_the_worker_joins_again() {
    let mut world = World::new();
    world.start();
    let (mut boss, shops) = world.ready();
    boss.lease(3..9, 0..2, true);
    enter(&mut boss, &shops, 3);
    shops[1].sender.close();
    match boss.hear() {
        FromWorker::Method(methods::Report::Sync(sync::Report::Cut { server, .. })) => {
            assert_eq!(server, 1)
        }
        other => panic!("{other:?}"),
    }
    // Nothing is said, so it joins again by itself.
    let (mut boss, shops) = world.ready();
    boss.lease(3..4, 0..4, true);
    enter(&mut boss, &shops, 3);
    pushed(&shops, 3, 0..4);
    boss.order(ToWorker::Rejoin);
    let (mut boss, _shops) = world.ready();
    boss.order(ToWorker::Finish);
    boss.drain();
    assert_eq!(world.end(), Ok(()));
}

#[test]
fn a_coordinator_that_comes_back_has_a_generation_that_servers_may_reach_later() {
    let mut world = World::new();
    world.start();
    let (mut boss, shops) = world.ready();
    boss.lease(3..9, 0..2, true);
    enter(&mut boss, &shops, 3);
    world.coordinator.generation.store(2, Ordering::SeqCst);
    boss.sender.close();
    let mut boss = world.boss();
    assert_eq!(boss.sender.generation(), 2);
    boss.order(ToWorker::from(sync::Command::Begin { servers: world.server_ranges() }));
    for _ in 0..2 {
        assert_eq!(boss.hear_all(), FromWorker::Alive, "it waits for the servers, and lives");
    }
    world.servers.iter().for_each(|server| server.generation.store(2, Ordering::SeqCst));
    let shops = world.shops();
    assert!(shops.iter().all(|shop| shop.sender.generation() == 2));
    assert!(matches!(boss.hear(), FromWorker::Ready { .. }));
    boss.lease(4..5, 0..2, true);
    enter(&mut boss, &shops, 4);
    pushed(&shops, 4, 0..2);
    boss.order(ToWorker::Finish);
    boss.drain();
    assert_eq!(world.end(), Ok(()));
}

#[test]
fn a_lease_that_cannot_be_ends_the_session_alone() {
    let mut world = World::new();
    world.start();
    let (boss, _shops) = world.ready();
    boss.lease(3..9, 2..5, true);
    let mut boss = world.boss();
    boss.order(ToWorker::Finish);
    boss.drain();
    assert_eq!(world.end(), Ok(()));
}

#[test]
fn data_that_is_not_there_ends_the_process_and_is_told() {
    let mut world = World::new();
    world.launch.facts.examples += 1;
    world.start();
    let mut boss = world.boss();
    let trouble = match boss.hear() {
        FromWorker::Failed(trouble) => trouble,
        other => panic!("{other:?}"),
    };
    assert!(trouble.fix_input && trouble.message.contains("not what the run began with"));
    assert_eq!(world.end(), Err(trouble));
}

#[test]
fn without_a_coordinator_it_ends_after_a_while() {
    let mut world = World::new();
    // Nothing listens there any more.
    let gone = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    world.launch.coordinator = Some(gone.local_addr().unwrap().to_string());
    drop(gone);
    let clock = TestClock::new(100);
    let ended = planaria_worker::methods::run(&world.launch, 0, &clock, Arc::new(|_: &str| {}));
    let message = ended.unwrap_err().message;
    assert!(message.starts_with("no word from a coordinator at 127.0.0.1"), "{message}");
}
