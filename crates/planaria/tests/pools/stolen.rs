//! What is stolen from a worker's machine, its certificate and the secret it knows, makes its holder no
//! console, no other worker and no server; and nothing at all once the machine is given up.

use crate::support::eventually;
use crate::support::pooled::processes;
use crate::support::workspace::Workspace;
use planaria_protocol::launch::Trust;
use planaria_protocol::message::{Agent, FrameLoss, FromConsole, Join, ToConsole};
use planaria_protocol::{Credentials, Secret, connect};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// The run as one who has robbed a worker sees it.
struct Loot {
    address: String,
    build: String,
    /// What a worker knows, and what it does not.
    members: Secret,
    consoles: Secret,
    trust: Trust,
    machine: String,
}

impl Loot {
    /// Of this worker of a live run.
    fn of(run: &Path, worker: u32) -> Self {
        let control = fs::read(run.join("control.json")).expect("the run is live");
        let control: Value = serde_json::from_slice(&control).expect("JSON");
        let text = |key: &str| control[key].as_str().expect("text").to_owned();
        let consoles = Secret::from_hex(&text("secret")).expect("a secret");
        let [certificate, key] = steal(pid(run, &format!("agent worker {worker} ")));
        let authority = control["trust"]["authority"].as_str().expect("PEM").to_owned();
        let issued = control["trust"]["issued"].as_u64().expect("a time");
        Self {
            address: text("address"),
            build: text("build"),
            members: consoles.for_members(),
            consoles,
            trust: Trust { authority, certificate, key, issued },
            machine: machine_of(run, &format!("worker-{worker}")),
        }
    }

    /// Joins as this, with the worker's certificate, and says what only consoles may; whether the
    /// coordinator hears it.
    fn is_heard_as(&self, agent: Agent, machine: Option<&str>, secret: &Secret) -> bool {
        let credentials = Credentials::new(secret.clone(), Some(&self.trust), None);
        let credentials = credentials.expect("what was stolen is whole");
        let whom = Agent::Coordinator;
        let Ok((sender, mut receiver)) = connect(&self.address, &credentials, whom, None) else {
            return false;
        };
        let machine = machine.map(str::to_owned);
        let _ = sender.send(&Join { machine, ..Join::new(agent, self.build.clone(), 1) });
        let frame_loss = FrameLoss { drop_per_mille: 1000, seconds: 60.0, seed: 1 };
        for wish in [
            FromConsole::Watch { supervises: true },
            FromConsole::Stop { reason: "a thief".into() },
            FromConsole::Scale { workers: 1 },
            FromConsole::Kill { agent: Agent::Worker(1) },
            FromConsole::Chaos { agent: Agent::Coordinator, frame_loss },
        ] {
            let _ = sender.send(&wish);
        }
        receiver.set_timeout(Some(Duration::from_secs(10))).expect("set");
        matches!(receiver.receive::<ToConsole>(), Ok(Some(_)))
    }
}

/// A process of the run.
#[track_caller]
fn pid(run: &Path, words: &str) -> u32 {
    let found = processes(run).into_iter().find(|(_, line)| line.contains(words));
    found.unwrap_or_else(|| panic!("no `{words}`")).0
}

fn parent(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("a parent");
    line.trim().parse().expect("a number")
}

/// The certificate and the key that a process holds in its memory, as root of its machine finds them.
fn steal(pid: u32) -> [String; 2] {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("root of its machine");
    let mut found = [None, None];
    for line in maps.lines().filter(|line| line.contains(" rw-p ") || line.contains(" rw-s ")) {
        let (start, rest) = line.split_once('-').expect("a range");
        let end = rest.split(' ').next().expect("a range");
        let [start, end] = [start, end].map(|n| u64::from_str_radix(n, 16).expect("a number"));
        let mut bytes = vec![0; usize::try_from(end - start).expect("it fits")];
        if memory.read_exact_at(&mut bytes, start).is_err() {
            continue;
        }
        let text = String::from_utf8_lossy(&bytes);
        for (kind, found) in ["CERTIFICATE", "PRIVATE KEY"].into_iter().zip(&mut found) {
            let (begin, end) = (format!("-----BEGIN {kind}-----"), format!("-----END {kind}-----"));
            let blocks = text.split(begin.as_str()).skip(1).filter_map(|rest| {
                let inner = rest.split_once(end.as_str())?.0;
                let is_pem = |c: char| c.is_ascii_alphanumeric() || "+/=\r\n".contains(c);
                inner.chars().all(is_pem).then(|| format!("{begin}{inner}{end}\n"))
            });
            // The authority's own says who it is, the process' does too.
            let own = blocks.filter(|pem| kind != "CERTIFICATE" || names_a_process(pem));
            *found = found.take().or(own.into_iter().next());
        }
    }
    found.map(|pem| pem.expect("it is in its memory"))
}

/// Whether a certificate has the name by which processes are known.
fn names_a_process(pem: &str) -> bool {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let inner = pem.lines().filter(|line| !line.starts_with('-'));
    let digits: Vec<u32> =
        inner.flat_map(str::chars).filter_map(|c| DIGITS.find(c)).map(|n| n as u32).collect();
    let groups = digits.chunks_exact(4);
    let bytes = groups.flat_map(|four| {
        let value = four.iter().fold(0, |value, digit| value << 6 | digit);
        value.to_be_bytes().into_iter().skip(1)
    });
    let bytes: Vec<u8> = bytes.collect();
    bytes.windows(16).any(|name| name == b"planaria:worker-")
}

/// The machine that a process has joined from.
fn machine_of(run: &Path, agent: &str) -> String {
    let events = fs::read_to_string(run.join("events.jsonl")).expect("events");
    let mut events = events.lines().rev().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let joined = events.find(|e| e["event"] == "joined" && e["agent"] == agent);
    joined.expect("it has joined")["machine"].as_str().expect("a machine").to_owned()
}

#[test]
fn a_worker_s_certificate_and_secret_are_a_worker_s_alone() {
    let workspace = Workspace::new("{machines: 2, workers: 2, servers: 1}");
    let mut training = workspace.train(2);
    let run = workspace.run();
    let loot = Loot::of(&run, 0);
    let other = machine_of(&run, "worker-1");
    assert_ne!(loot.machine, other);
    let (own, members) = (Some(loot.machine.as_str()), &loot.members);
    for (agent, machine, secret) in [
        (Agent::Console, None, members),
        (Agent::Console, own, members),
        (Agent::Console, None, &loot.consoles),
        (Agent::Worker(1), own, members),
        (Agent::Worker(1), Some(other.as_str()), members),
        (Agent::Worker(0), Some(other.as_str()), members),
        (Agent::Server(0), own, members),
        (Agent::Coordinator, None, members),
    ] {
        assert!(!loot.is_heard_as(agent, machine, secret), "{agent} on {machine:?}");
    }
    let events = || fs::read_to_string(run.join("events.jsonl")).expect("events");
    for word in ["\"stopping\"", "\"scaled\"", "\"lost\""] {
        assert!(!events().contains(&format!("\"event\":{word}")), "{word}");
    }
    // The machine is lost: what was stolen there is worth nothing from then on, also for the worker
    // itself, and before another one is there.
    let host = parent(pid(&run, "agent worker 0 "));
    // SAFETY: sends a signal to a host of a run that this test has started.
    unsafe { libc::kill(host as libc::pid_t, libc::SIGKILL) };
    let log = || fs::read_to_string(run.join("logs/coordinator.log")).expect("a log");
    let given_up = format!("{} was given up", loot.machine);
    eventually("the machine's loss", || log().contains(&given_up));
    assert!(!loot.is_heard_as(Agent::Worker(0), own, members));
    eventually("the refusal", || log().contains("is of before its machine was given up"));
    // Its machine comes back, and is believed.
    eventually("another worker", || machine_back(&events(), &loot.machine));
    training.interrupt();
    assert_eq!(training.end().status.code(), Some(130), "{}", events());
}

/// Whether a worker has joined from a machine after it was lost.
fn machine_back(events: &str, machine: &str) -> bool {
    let events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of = |event: &Value| event["machine"] == machine;
    let joined = events.filter(|event| event["event"] == "joined" && of(event));
    joined.filter(|event| event["agent"].as_str().is_some_and(|a| a.starts_with("worker"))).count()
        > 1
}
