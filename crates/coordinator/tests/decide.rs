//! Messages against the protocol, and numbers that are not finite, end a run with a reason. Whole
//! runs are simulated in `planaria-sim`.

use planaria_coordinator::methods::sync::{self as method, Settings, SyncRun};
use planaria_coordinator::run::course::Setup;
use planaria_coordinator::run::watch::Rule;
use planaria_coordinator::run::{Action, Config, Decision, Input, Origin, Session};
use planaria_protocol::event::What;
use planaria_protocol::message::{
    Agent, FromServer, FromWorker, Join, ToServer, ToWorker, Trouble,
};
use planaria_recipe::train::{Monitor, Train};
use std::time::Duration;

const BLOCKS: u32 = 3;

fn cluster(clip: bool) -> SyncRun {
    let setup = Setup {
        epochs: 2,
        steps_per_epoch: 4,
        classification: true,
        has_validation: true,
        checkpoint_epochs: 1,
        checkpoint_steps: 0,
        rule: Rule { monitor: Monitor::Loss, patience: None, min_delta: 0.0 },
        examples: (0..8).collect(),
        remedy: Default::default(),
        train: Train::default(),
    };
    let config = Config {
        workers: 1,
        workers_min: 1,
        servers: 1,
        blocks: BLOCKS,
        held_out: [2, 1],
        build: "b".into(),
    };
    let settings = Settings { shards: 4, redundancy: 0, batch: 2, clip_norm: clip.then_some(1.0) };
    let session = Session { config, setup, origin: Origin::default(), seconds_before: 0.0 };
    method::run(session, settings)
}

fn joined(agent: Agent, build: &str) -> Input {
    let (build, address) = (build.to_owned(), Some("127.0.0.1:1".to_owned()));
    Input::Joined(Join { address, ..Join::new(agent, build, 7) })
}

/// The trouble a run ended with.
fn trouble(decisions: &[Decision]) -> Option<Trouble> {
    decisions.iter().find_map(|d| match &d.action {
        Action::Record(What::Ended { trouble, .. }) => trouble.clone(),
        _ => None,
    })
}

#[test]
fn a_forbidden_message_ends_the_run_with_its_reason() {
    let applied = |step, n| Input::Server(0, FromServer::Applied { step }, vec![1.0; n]);
    let failed = |fix_input| Trouble { fix_input, ..Trouble::new("no memory") };
    let table: Vec<(&str, Input, &str)> = vec![
        ("a wrong step", applied(3, 3), "server-0 speaks of step 3 while step 0 is gathered"),
        ("squares", applied(0, 9), "server-0 told 9 sums of squares"),
        (
            "a worker that the user must help",
            Input::worker(0, FromWorker::Failed(failed(true))),
            "worker-0 cannot go on: no memory",
        ),
        (
            "a failed server",
            Input::Server(0, FromServer::Failed(failed(false)), vec![]),
            "server-0 cannot go on: no memory",
        ),
    ];
    for (name, input, expected) in table {
        let mut cluster = cluster(false);
        let all = cluster.step(Duration::ZERO, input);
        let found = trouble(&all).unwrap_or_else(|| panic!("{name}: the run goes on"));
        assert!(found.message.contains(expected), "{name}: {}", found.message);
        assert!(matches!(all.last().unwrap().action, Action::End), "{name}");
        assert!(all.iter().all(|d| !d.reason.trim().is_empty()), "{name}: everything has a reason");
        // After the end nothing counts.
        assert_eq!(cluster.step(Duration::ZERO, applied(0, 3)), [], "{name}");
    }
}

#[test]
fn who_is_not_part_of_the_run_cannot_join() {
    let run = cluster(false);
    for (agent, build, refused) in [
        (Agent::Worker(0), "b", None),
        (Agent::Server(0), "b", None),
        (Agent::Worker(0), "other", Some("it runs build other, and the run b")),
        (Agent::Coordinator, "other", Some("it runs build other, and the run b")),
        (Agent::Server(9), "b", Some("the run has none of that name")),
        (Agent::Worker(u32::MAX), "b", Some("the run has none of that name")),
        (Agent::Coordinator, "b", Some("the run has none of that name")),
    ] {
        let Input::Joined(join) = joined(agent, build) else { panic!("it joins") };
        assert_eq!(run.refusal(&join).as_deref(), refused, "{agent} of build {build}");
    }
}

#[test]
fn what_only_a_machine_lacks_costs_that_machine_only() {
    let lacks = Trouble { of_machine: true, ..Trouble::wrong_input("`/d/x` is missing") };
    let of_machine = |machine: Option<&str>, agent| {
        let Input::Joined(join) = joined(agent, "b") else { panic!("it joins") };
        Input::Joined(Join { machine: machine.map(str::to_owned), ..join })
    };
    let failed = [
        (Agent::Worker(0), Input::worker(0, FromWorker::Failed(lacks.clone()))),
        (Agent::Server(0), Input::Server(0, FromServer::Failed(lacks), vec![])),
    ];
    for (agent, failed) in failed {
        for machine in [Some("h1"), None] {
            let mut cluster = cluster(false);
            cluster.step(Duration::ZERO, of_machine(machine, agent));
            let all = cluster.step(Duration::ZERO, failed.clone());
            assert_eq!(trouble(&all).is_some(), machine.is_none(), "{agent} on {machine:?}");
        }
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
        let mut cluster = cluster(clip);
        let ready = FromWorker::Ready { engine: "e".into(), threads: 1 };
        let mut inputs = vec![
            joined(Agent::Server(0), "b"),
            joined(Agent::Worker(0), "b"),
            Input::Server(0, FromServer::Ready, vec![]),
            Input::worker(0, ready),
        ];
        let squares = vec![squares; BLOCKS as usize];
        let read = Default::default();
        let counted = FromServer::Counted { step: 0, loss_sum: loss, correct: 0, read };
        if clip {
            inputs.push(Input::Server(0, FromServer::Summed { step: 0 }, squares));
        } else {
            inputs.push(Input::Server(0, counted, vec![]));
            inputs.push(Input::Server(0, FromServer::Applied { step: 0 }, squares));
        }
        let all: Vec<Decision> =
            inputs.into_iter().flat_map(|input| cluster.step(Duration::ZERO, input)).collect();
        let found = trouble(&all).expect("the run has ended");
        assert!(found.message.starts_with("training failed at step 1: "), "{}", found.message);
        let counts = |d: &Action| {
            matches!(d, Action::ToServer(_, ToServer::Commit { .. } | ToServer::Clip { .. }))
        };
        assert!(!all.iter().any(|d| counts(&d.action)), "{all:?}");
        let told = |d: &Action| *d == Action::to_worker(0, ToWorker::Finish);
        assert_eq!(all.iter().filter(|d| told(&d.action)).count(), 1);
    }
}
