//! Someone who knows the secret and does not keep to the rules: refused, and the run goes on with
//! the same bits.

use crate::live::{Live, figures, logs, place, until};
use crate::resuming::undisturbed;
use crate::strangers::{control, listening};
use planaria_protocol::message::{Agent, FromConsole, Join, Push, ToConsole, ToWorker};
use planaria_protocol::{Credentials, Receiver, Secret, Sender, connect};
use serde_json::Value;
use std::time::Duration;

const BLOCK_BYTES: usize = 4 * 4096;

/// The consoles' secret of a live run, and the one that workers and servers know.
fn secrets(live: &Live) -> (Secret, Secret) {
    let consoles = Secret::from_hex(control(&live.run)["secret"].as_str().unwrap()).unwrap();
    let members = consoles.for_members();
    (consoles, members)
}

/// Joins a server of a live run.
fn join(live: &Live, server: &str, agent: Agent) -> (Sender, Receiver) {
    let control = control(&live.run);
    let credentials = Credentials::plain(secrets(live).1);
    let port = listening(live.process("server", server).pid)[0].1;
    let generation = control["generation"].as_u64().unwrap();
    let whom = Agent::Server(server.parse().unwrap());
    let address = format!("127.0.0.1:{port}");
    let (sender, receiver) = connect(&address, &credentials, whom, Some(generation)).unwrap();
    let build = control["build"].as_str().unwrap().to_owned();
    let pid = std::process::id();
    sender.send(&Join::new(agent, build, pid)).unwrap();
    (sender, receiver)
}

/// Says one thing as a worker that has no shards, and waits until the server has hung up, which it
/// does after its line in the log; or for a second.
fn say(live: &Live, server: &str, agent: Agent, message: &Push, bulk: usize) {
    let (sender, mut receiver) = join(live, server, agent);
    receiver.set_timeout(Some(Duration::from_millis(200))).unwrap();
    // The server may hang up before all is said.
    let _ = sender.send_with(message, &vec![0x3f; bulk]);
    while let Ok(Some(_)) = receiver.receive::<planaria_protocol::message::Pull>() {
        receiver.skip_bulk().unwrap();
    }
}

fn log_of(live: &Live, server: &str) -> String {
    let name = format!("server-{server}.log");
    logs(&live.run).into_iter().find(|(n, _)| *n == name).map(|(_, log)| log).unwrap_or_default()
}

#[test]
fn what_is_not_part_of_the_run_changes_nothing() {
    let place = place();
    let more = ["--set", "train.epochs=400"];
    let expected = undisturbed(&place, &more);
    let mut live = Live::train(&place, &more);
    live.reach(1, 5);
    let stranger = Agent::Worker(77);
    let gradient = |first_shard, shards, first_block| {
        move |step| Push::Gradient { step, first_shard, shards, first_block }
    };
    let shard = |step| {
        let (shard, loss_sum, correct) = (u32::MAX, f64::NAN, 0);
        Push::Shard { step, shard, loss_sum, correct, read: Default::default() }
    };
    type Message = Box<dyn Fn(u64) -> Push>;
    let table: [(Message, usize); 6] = [
        (Box::new(gradient(3, 7, 0)), BLOCK_BYTES),
        (Box::new(gradient(u32::MAX, u32::MAX, u32::MAX)), 12),
        (Box::new(gradient(0, 0, 0)), 0),
        (Box::new(|_| Push::Follow { step: 0 }), 0),
        (Box::new(|_| Push::State { step: 1 }), 0),
        (Box::new(shard), 4 * 32),
    ];
    for (message, bulk) in table {
        let steps = crate::live::events(&live.run);
        let done = steps.iter().filter_map(|e| e["step"].as_u64()).max().unwrap_or(0);
        // Of one that is over by then, and of one to come.
        for step in [done, done + 20] {
            say(&live, "0", stranger, &message(step), bulk);
        }
    }
    // Someone who says to be a worker that is there already takes its place; that one joins again.
    let (_sender, _receiver) = join(&live, "0", Agent::Worker(0));
    // Someone who is no worker.
    let (_sender, _receiver) = join(&live, "1", Agent::Console);
    until("a line in the log", || {
        log_of(&live, "1")
            .contains("says to be console, but knows the secret of workers")
            .then_some(())
    });

    let output = live.end();
    assert!(output.status.success(), "{}", crate::binary::talk(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(figures(&report), figures(&expected));
}

#[test]
fn an_impostor_costs_a_moment() {
    let place = place();
    let more = ["--set", "train.epochs=100"];
    let expected = undisturbed(&place, &more);
    let mut live = Live::train(&place, &more);
    live.reach(1, 10);
    let control = control(&live.run);
    let (consoles, members) = secrets(&live);
    let address = control["address"].as_str().unwrap();
    let build = control["build"].as_str().unwrap().to_owned();
    let join = |secret, agent| {
        let credentials = Credentials::plain(secret);
        let (sender, receiver) = connect(address, &credentials, Agent::Coordinator, None).unwrap();
        sender.send(&Join::new(agent, build.clone(), 1)).unwrap();
        (sender, receiver)
    };
    // What a worker knows is not enough to be a console; what a console knows, to be a worker.
    for (secret, agent) in [(members.clone(), Agent::Console), (consoles, Agent::Worker(1))] {
        let (sender, mut receiver) = join(secret, agent);
        for wish in [
            FromConsole::Stop { reason: "a stranger".into() },
            FromConsole::Scale { workers: 1 },
            FromConsole::Kill { agent: Agent::Worker(0) },
        ] {
            // It may have hung up already.
            let _ = sender.send(&wish);
        }
        assert!(!matches!(receiver.receive::<ToConsole>(), Ok(Some(_))), "{agent} is let in");
    }
    // One that is not part of the run, or of another build, is refused, and costs no more.
    let credentials = Credentials::plain(members.clone());
    for (agent, build) in [
        (Agent::Coordinator, "x"),
        (Agent::Worker(0), "x"),
        (Agent::Server(9), &*build),
        (Agent::Worker(u32::MAX), &*build),
    ] {
        let (sender, mut receiver) =
            connect(address, &credentials, Agent::Coordinator, None).unwrap();
        sender.send(&Join::new(agent, build.to_owned(), 1)).unwrap();
        assert!(!matches!(receiver.receive::<ToWorker>(), Ok(Some(_))), "{agent} is let in");
    }
    let (_sender, _receiver) = join(members, Agent::Worker(1));
    let output = live.end();
    assert!(output.status.success(), "{}", crate::binary::talk(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(figures(&report), figures(&expected));
}
