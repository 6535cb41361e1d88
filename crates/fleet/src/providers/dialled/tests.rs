//! Hosts that call, opened as any machine is.

use super::*;
use crate::host::calling::Calling;
use crate::host::serve::{self, Leave, Setting};
use crate::messages::{Hello, VERSION};
use crate::remote::Remote;
use planaria_protocol::Secret;
use planaria_protocol::clock::Clock;
use planaria_protocol::tls::Authority;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

struct Still;

impl Clock for Still {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn unix_seconds(&self) -> f64 {
        0.0
    }

    fn cpu(&self) -> Duration {
        Duration::ZERO
    }
}

fn program() -> Program {
    let (path, sha256) = (PathBuf::new(), String::new());
    Program { path, sha256, bytes: 0, arch: "", build: "b".into() }
}

fn machine(name: &str) -> Machine {
    Machine::new(name, name, Vec::new())
}

struct Scene {
    dialled: Dialled,
    calling: Calling,
    tag: Tag,
}

fn scene() -> Scene {
    let authority = Authority::new("r", 1.8e9).expect("an authority");
    let secret = Secret::random().expect("a secret");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let issue =
        |agent, machine| authority.issue(agent, machine, Duration::ZERO).expect("a certificate");
    let trust = issue(Agent::Controller, None);
    let credentials = Credentials::new(secret.clone(), Some(&trust), None).expect("a credentials");
    let dialled = Dialled::new(vec![machine("m1"), machine("m2")], listener, credentials, |_| {});
    let trust = Some(issue(Agent::Host, Some("m1")));
    // The first leads nowhere, as an address of another network does.
    let addresses = vec!["127.0.0.1:1".into(), address];
    let secret = secret.to_hex();
    let calling = Calling { machine: "m1".into(), addresses, secret, trust, succession: None };
    Scene { dialled: dialled.expect("it listens"), calling, tag: Tag::new("r-1").expect("a name") }
}

/// A host that calls, on a thread.
fn host(calling: Calling, home: &Path) -> JoinHandle<Leave> {
    let home = home.to_path_buf();
    std::thread::spawn(move || {
        let reached = calling.call("b").expect("it reaches the controller");
        let hello = Hello {
            version: VERSION,
            build: "b".into(),
            pid: 1,
            hostname: "m1".into(),
            cores: 1,
            gpus: 0,
            memory_bytes: 0,
            disk_free_bytes: 0,
            unix_seconds: 0.0,
            addresses: reached.own.into_iter().collect(),
            controller: Some(reached.controller),
            folder: String::new(),
            probe: None,
        };
        let setting = Setting {
            program: "/bin/false".into(),
            run: "r-1".into(),
            home,
            hello,
            is_alone: false,
        };
        let (reading, writing) = carried::halves(reached.sender.clone(), reached.receiver);
        let left = serve::run(setting, reading, writing, &Still).expect("it serves");
        reached.sender.close();
        left
    })
}

#[test]
fn a_host_that_calls_is_a_host_as_any() {
    let Scene { dialled, calling, tag } = scene();
    let home = tempfile::tempdir().expect("a folder");
    let host = host(calling, home.path());
    let channel = dialled.open(&tag, &machine("m1"), &program()).expect("it calls");
    let remote = Remote::meet("m1", channel, "b", |_| {}).expect("it says hello");
    assert_eq!(remote.hello.controller.as_deref(), Some("127.0.0.1"));
    assert_eq!(remote.hello.addresses, ["127.0.0.1"]);
    // A word of several frames' length.
    let file = vec![7; 700_000];
    let mut hands = &remote;
    let path = home.path().join("x").display().to_string();
    crate::setup::Hands::put(&mut hands, &path, 0o600, &mut &file[..]).expect("it is written");
    assert_eq!(std::fs::read(home.path().join("x")).expect("the file"), file);
    assert!(remote.say(ToHost::End));
    assert!(matches!(host.join().expect("no panic"), Leave::Told));
}

#[test]
fn a_host_that_is_let_go_is_not_told_to_end() {
    let Scene { dialled, calling, tag } = scene();
    let home = tempfile::tempdir().expect("a folder");
    let first = host(calling.clone(), home.path());
    let channel = dialled.open(&tag, &machine("m1"), &program()).expect("it calls");
    drop(channel);
    assert!(matches!(first.join().expect("no panic"), Leave::Gone));
    // It calls again, is not wanted, and is told so.
    let second = host(calling, home.path());
    for _ in 0..500 {
        if !dialled.callers.waiting.lock().expect("no panic").is_empty() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    drop(dialled);
    assert!(matches!(second.join().expect("no panic"), Leave::Told));
}

#[test]
fn strangers_are_no_machines() {
    let Scene { dialled, calling, .. } = scene();
    // Its certificate is another machine's: it is let go once it has said who it is.
    let other = Calling { machine: "m2".into(), ..calling.clone() };
    let mut reached = other.call("b").expect("it has a certificate");
    assert!(!matches!(reached.receiver.receive::<ToHost>(), Ok(Some(_))));
    let liar = Calling { secret: Secret::random().expect("a secret").to_hex(), ..calling.clone() };
    assert!(liar.call("b").is_err());
    let naked = Calling { trust: None, ..calling };
    assert!(naked.call("b").is_err());
    assert!(dialled.callers.waiting.lock().expect("no panic").is_empty());
}
