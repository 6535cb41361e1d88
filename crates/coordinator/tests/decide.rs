//! The decisions of a run on many processes, in simulated worlds: messages in any legal order,
//! slow disks, stops and losses at any moment.

mod world;

use planaria_coordinator::decide::cluster::{Action, Cluster, Input};
use planaria_protocol::event::What;
use planaria_protocol::message::{Agent, FromServer, FromWorker, ToServer, ToWorker, Trouble};
use std::time::Duration;
use world::{Fate, Ground, Shape, World};

#[test]
fn undisturbed_runs_complete_in_any_order_of_messages() {
    for seed in 0..800 {
        let ground = World::new(seed, Fate::None).live();
        assert_eq!(ground.outcome, "completed", "seed {seed}");
        assert_eq!(ground.exact_epochs, ground.epochs, "seed {seed}: every example once");
        assert!(ground.saved_all, "seed {seed}: the last step is on the disk");
    }
}

#[test]
fn a_stop_at_any_moment_ends_with_everything_saved_and_can_be_gone_on_from() {
    let (mut interrupted, mut completed) = (0, 0);
    for seed in 0..1200 {
        let world = World::new(seed, Fate::Stop);
        let shape = world.shape();
        let ground = world.live();
        match ground.outcome.as_str() {
            "interrupted" => interrupted += 1,
            "completed" => completed += 1,
            other => panic!("seed {seed}: {other}"),
        }
        assert!(ground.saved_all || ground.step == 0, "seed {seed}: {ground:?}");
        if let ("interrupted", Some(state)) = (ground.outcome.as_str(), ground.saved_state) {
            // On other numbers of processes, from where it stood.
            let steps = shape.steps();
            let ground = World::resumed(seed ^ 0xA5A5, shape, state).live();
            assert_eq!((ground.outcome.as_str(), ground.step), ("completed", steps), "seed {seed}");
            assert_eq!(ground.exact_epochs, ground.epochs, "seed {seed}: every example once");
        }
    }
    assert!(interrupted > 400 && completed > 0, "{interrupted} {completed}");
}

#[test]
fn a_loss_at_any_moment_ends_the_run_once() {
    let mut failed = 0;
    for seed in 0..1200 {
        let ground = World::new(seed, Fate::Loss).live();
        match ground.outcome.as_str() {
            "failed" => {
                failed += 1;
                let reason = ground.reason.unwrap();
                assert!(reason.contains("was lost: killed by signal 9"), "seed {seed}: {reason}");
            }
            // The run was over before the moment came.
            "completed" => {}
            other => panic!("seed {seed}: {other}"),
        }
    }
    assert!(failed > 500, "{failed}");
}

#[test]
fn a_disk_that_refuses_ends_the_run_once() {
    let mut failed = 0;
    for seed in 0..600 {
        let Ground { outcome, reason, .. } = World::new(seed, Fate::FullDisk).live();
        if outcome == "failed" {
            failed += 1;
            assert!(reason.unwrap().contains("No space left"), "seed {seed}");
        }
    }
    assert!(failed > 500, "{failed}");
}

#[test]
fn stop_and_loss_together_still_end_once() {
    for seed in 0..800 {
        let ground = World::new(seed, Fate::StopThenLoss).live();
        let known = ["failed", "interrupted", "completed"].contains(&ground.outcome.as_str());
        assert!(known, "seed {seed}: {ground:?}");
    }
}

fn cluster(workers: u32, servers: u32, clip: bool) -> Cluster {
    let shape = Shape { workers, servers, clip, ..Shape::small() };
    shape.cluster(Default::default())
}

fn joined(agent: Agent, build: &str) -> Input {
    Input::Joined { agent, pid: 7, build: build.into(), address: Some("127.0.0.1:1".into()) }
}

/// The trouble a run ended with.
fn trouble(decisions: &[planaria_coordinator::decide::cluster::Decision]) -> Option<Trouble> {
    decisions.iter().find_map(|d| match &d.action {
        Action::Record(What::Ended { trouble, .. }) => trouble.clone(),
        _ => None,
    })
}

#[test]
fn what_nobody_may_say_ends_the_run_with_a_word() {
    let server = Agent::Server(0);
    let applied = |step| Input::Server(0, FromServer::Applied { step }, vec![1.0]);
    let failed = Trouble { message: "no memory".into(), hint: None, fix_input: false };
    let table: Vec<(&str, Vec<Input>, &str)> = vec![
        ("another build", vec![joined(server, "other")], "server-0 runs build other"),
        ("a stranger", vec![joined(Agent::Worker(9), "b")], "worker-9 is not part of the run"),
        ("twice", vec![joined(server, "b"), joined(server, "b")], "server-0 has joined twice"),
        ("a wrong step", vec![applied(3)], "server-0 speaks of step 3 while step 0 is gathered"),
        (
            "squares",
            vec![Input::Server(0, FromServer::Applied { step: 0 }, vec![1.0; 9])],
            "server-0 told 9 sums of squares",
        ),
        (
            "a failed worker",
            vec![Input::Worker(0, FromWorker::Failed(failed.clone()))],
            "worker-0 cannot go on: no memory",
        ),
        (
            "a failed server",
            vec![Input::Server(0, FromServer::Failed(failed), vec![])],
            "server-0 cannot go on: no memory",
        ),
    ];
    for (name, inputs, expected) in table {
        let mut cluster = cluster(1, 1, false);
        let mut all = Vec::new();
        for input in inputs {
            all.extend(cluster.step(Duration::ZERO, input));
        }
        let found = trouble(&all).unwrap_or_else(|| panic!("{name}: the run goes on"));
        assert!(found.message.contains(expected), "{name}: {}", found.message);
        assert!(matches!(all.last().unwrap().action, Action::End), "{name}");
        // After the end nothing counts.
        assert_eq!(cluster.step(Duration::ZERO, applied(0)), [], "{name}");
    }
}

#[test]
fn numbers_that_are_not_finite_end_the_run_before_the_commit() {
    for (clip, squares, loss) in [
        (false, f64::NAN, 1.0),
        (false, f64::INFINITY, 1.0),
        (true, f64::NAN, 1.0),
        (true, f64::INFINITY, 1.0),
        (false, 1.0, f64::NAN),
        (false, 1.0, f64::INFINITY),
    ] {
        let mut cluster = cluster(1, 1, clip);
        let mut all = Vec::new();
        let server = joined(Agent::Server(0), "b");
        let worker = joined(Agent::Worker(0), "b");
        let ready = FromWorker::Ready { engine: "e".into(), threads: 1 };
        let mut inputs = vec![
            server,
            worker,
            Input::Server(0, FromServer::Ready, vec![]),
            Input::Worker(0, ready),
        ];
        let squares = vec![squares; Shape::small().blocks as usize];
        let counted = |loss_sum| FromServer::Counted {
            step: 0,
            loss_sum,
            correct: 0,
            read: Default::default(),
        };
        if clip {
            inputs.push(Input::Server(0, FromServer::Summed { step: 0 }, squares));
        } else {
            inputs.push(Input::Server(0, counted(loss), vec![]));
            inputs.push(Input::Server(0, FromServer::Applied { step: 0 }, squares));
        }
        for input in inputs {
            all.extend(cluster.step(Duration::ZERO, input));
        }
        let found = trouble(&all).expect("the run has ended");
        assert!(found.message.starts_with("training failed at step 1: "), "{}", found.message);
        let sent = |d: &Action| {
            matches!(d, Action::ToServer(_, ToServer::Commit { .. } | ToServer::Clip { .. }))
        };
        assert!(!all.iter().any(|d| sent(&d.action)), "{all:?}");
        let told = |d: &Action| matches!(d, Action::ToWorker(0, ToWorker::Finish));
        assert_eq!(all.iter().filter(|d| told(&d.action)).count(), 1);
    }
}
