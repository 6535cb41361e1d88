//! Containers on a real engine.

use crate::conformance::{Bed, conformance};
use crate::support::engine::{Engine, SYSTEM};
use crate::support::eventually;
use crate::support::frameworks::Python;
use crate::talk::program;
use planaria_fleet::channel::Channel;
use planaria_fleet::messages::{FromHost, Hello, ToHost, read_message, write_message};
use planaria_fleet::provider::{Call, Fault, Machine, Made, Provider, Remedy, Tag};
use planaria_fleet::providers::docker::{Docker, Settings};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

fn settings(engine: &Engine) -> Settings {
    let socket = Some(format!("unix://{}", engine.socket().display()));
    Settings { socket, program: Some(program()), ..Settings::default() }
}

fn docker(settings: Settings) -> Docker {
    Docker::new(settings).expect("a socket")
}

fn with_image(engine: &Engine, image: &str) -> Docker {
    docker(Settings { image: Some(image.into()), ..settings(engine) })
}

fn run() -> Tag {
    Tag::new("digits-1").expect("a name")
}

fn machine(provider: &Docker, number: u32) -> Machine {
    provider.plan(&run(), number).expect("a machine")
}

/// Opens a channel and hears the first word.
#[track_caller]
fn open(provider: &Docker, machine: &Machine) -> (Channel, Hello) {
    let mut channel = provider.open(&run(), machine, &program()).expect("a channel");
    match read_message(&mut channel.reading).expect("a word") {
        Some(FromHost::Hello(hello)) => (channel, hello),
        other => panic!("{other:?}; {}", channel.stderr_tail.text()),
    }
}

/// Reads a channel to its end, within half a minute.
#[track_caller]
fn ends(channel: Channel) {
    let Channel { mut reading, writing, .. } = channel;
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut reading, &mut std::io::sink());
        let _ = done.send(());
    });
    ended.recv_timeout(Duration::from_secs(30)).expect("the channel ends");
    drop(writing);
}

fn names(provider: &Docker) -> Vec<String> {
    let listed = provider.list(&run()).expect("a list");
    listed.into_iter().map(|machine| machine.name).collect()
}

#[track_caller]
fn assert_fault(fault: &Fault, remedy: Remedy, words: &[&str]) {
    assert_eq!(fault.remedy, remedy, "{fault:?}");
    let text = format!("{fault} {}", fault.hint.clone().unwrap_or_default());
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

/// The libraries and the loader of the program, and a shell with its own.
pub fn system_files() -> Vec<String> {
    let mut files = vec!["/bin/sh".to_owned()];
    for program in [env!("CARGO_BIN_EXE_planaria"), "/bin/sh"] {
        let listed = Command::new("ldd").arg(program).stdin(Stdio::null()).output().expect("ldd");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let words = listed.split_whitespace().filter(|word| word.starts_with('/'));
        files.extend(words.map(str::to_owned));
    }
    files.sort();
    files.dedup();
    files
}

#[test]
fn containers_conform() {
    let Some(engine) = Engine::up() else { return };
    let program = program();
    conformance(&Bed {
        provider: &|| Box::new(docker(settings(&engine))) as Box<dyn Provider>,
        program: &program,
        machines: 3,
        lose: &|machine, _| drop(engine.docker_ok(&["kill", &machine.handle])),
        restore: &|_| {},
    });
    let left = engine.docker_ok(&["ps", "--all", "--quiet"]);
    assert_eq!(left, "");
}

#[test]
fn machines_made_of_the_program_alone() {
    let Some(engine) = Engine::up() else { return };
    let provider = docker(settings(&engine));
    provider.check().unwrap();
    let [one, two] = [0, 1].map(|number| machine(&provider, number));
    for machine in [&one, &two] {
        provider.create(&run(), machine).unwrap();
        provider.create(&run(), machine).unwrap();
    }
    assert_eq!(names(&provider), ["m0", "m1"]);

    let ask = |input: &[u8], arguments: &[&str]| {
        let within = Duration::from_secs(20);
        let call = Call { program: &program(), arguments, input, within };
        provider.run(&run(), &one, &call).unwrap()
    };
    let build = format!("{}\n", planaria::BUILD);
    assert_eq!(ask(b"", &["agent", "build"]).stdout, build.as_bytes(), "before it is started");
    let (channel, hello) = open(&provider, &one);
    assert_eq!((hello.build.as_str(), hello.hostname.as_str()), (planaria::BUILD, "m0"));
    assert_eq!(hello.controller, Some(engine.address()), "the way back");
    let ran = ask(b"", &["agent", "build"]);
    assert_eq!((ran.code, ran.stdout.as_slice()), (0, build.as_bytes()), "{ran:?}");
    let ran = ask(b"no orders\n", &["agent", "worker", "0", "digits-1"]);
    assert!(String::from_utf8_lossy(&ran.stderr).contains("holds no orders"), "{ran:?}");
    assert_ne!(ran.code, 0);

    // Two runs do not see each other.
    let other = Tag::new("digits-2").unwrap();
    assert_eq!(provider.list(&other).unwrap(), []);
    let fault = provider.destroy(&other, &one).unwrap_err();
    assert_fault(&fault, Remedy::Replace, &["another container"]);
    let leaks = provider.leaks().unwrap();
    let found: Vec<&str> = leaks.iter().map(|leak| leak.what.as_str()).collect();
    assert_eq!(found, ["container digits-1-m0 (running)", "container digits-1-m1 (created)"]);

    // The end of the channel is the end of the machine.
    ends_when_left(channel);
    eventually("the end of the container", || names(&provider) == ["m1"]);
    provider.destroy(&run(), &one).unwrap();
    provider.destroy(&run(), &two).unwrap();
    provider.destroy(&run(), &two).unwrap();
    assert!(names(&provider).is_empty());
    let images = engine.docker_ok(&["images", "--format", "{{.Repository}}"]);
    assert_eq!(images, "planaria", "made once");
}

/// Hangs up in one direction; the other ends by itself.
#[track_caller]
fn ends_when_left(channel: Channel) {
    let Channel { reading, writing, closing, stderr_tail } = channel;
    drop(writing);
    ends(Channel { reading, writing: Box::new(std::io::sink()), closing, stderr_tail });
}

#[test]
fn machines_that_are_lost_and_opened_again() {
    let Some(mut engine) = Engine::up() else { return };
    let provider = docker(settings(&engine));
    let one = machine(&provider, 0);

    // Never created, or created and gone.
    let (channel, first) = open(&provider, &one);
    engine.docker_ok(&["kill", &one.handle]);
    ends(channel);
    let (mut channel, second) = open(&provider, &one);
    assert_eq!(first.hostname, second.hostname);

    // Told to end, it ends and is removed.
    write_message(&mut channel.writing, &ToHost::End).unwrap();
    ends(channel);
    eventually("the end of the container", || names(&provider).is_empty());

    // Closed while another thread reads.
    let (channel, _) = open(&provider, &one);
    (channel.closing)();
    (channel.closing)();
    ends(channel);
    eventually("the end of the container", || names(&provider).is_empty());

    // Paused by another user of the engine, and let go again.
    let (channel, _) = open(&provider, &one);
    assert_eq!(provider.notices(&run()), Ok(vec![]));
    engine.docker_ok(&["pause", &one.handle]);
    let notices = provider.notices(&run()).unwrap();
    assert_eq!(notices.len(), 1);
    assert!(notices[0].machine == one.name && notices[0].why.contains("paused"), "{notices:?}");
    engine.docker_ok(&["unpause", &one.handle]);
    assert_eq!(provider.notices(&run()), Ok(vec![]));
    ends_when_left(channel);

    // Opened while another host runs: that one makes way.
    let (before, _) = open(&provider, &one);
    let (channel, _) = open(&provider, &one);
    ends(before);

    // The engine itself is killed.
    engine.kill();
    ends(channel);
    let fault = provider.create(&run(), &one).unwrap_err();
    assert_fault(&fault, Remedy::Retry, &["is not running", "systemctl start docker"]);
    let fault = provider.check().unwrap_err();
    assert_fault(&fault, Remedy::Fix, &["is not running"]);
    engine.start();
    provider.check().unwrap();
    provider.destroy(&run(), &one).unwrap();
    assert!(names(&provider).is_empty());
    let (channel, _) = open(&provider, &one);
    ends_when_left(channel);
}

#[test]
fn machines_of_a_given_image() {
    let Some(engine) = Engine::up() else { return };
    let files = system_files();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    engine.import("lab:1", &files);
    let provider = with_image(&engine, "lab:1");
    provider.check().unwrap();
    let one = machine(&provider, 0);
    provider.create(&run(), &one).unwrap();
    let (channel, _) = open(&provider, &one);
    let within = Duration::from_secs(20);
    let arguments = &["agent", "build"];
    let call = Call { program: &program(), arguments, input: b"", within };
    let ran = provider.run(&run(), &one, &call).unwrap();
    assert_eq!(ran.stdout, format!("{}\n", planaria::BUILD).as_bytes());
    ends_when_left(channel);
    eventually("the end of the container", || names(&provider).is_empty());

    // No loader at all, as in an image with another C library.
    engine.import("bare:1", &["/etc/hostname"]);
    // The loader, but not all libraries.
    let libgcc = |file: &&str| !file.contains("libgcc");
    let some: Vec<&str> = files.iter().copied().filter(libgcc).collect();
    engine.import("old:1", &some);
    for (image, words) in [("bare:1", "bare:1"), ("old:1", "libgcc_s")] {
        let provider = with_image(&engine, image);
        provider.check().unwrap();
        provider.create(&run(), &one).unwrap();
        let fault = provider.open(&run(), &one, &program()).err().expect("no channel");
        assert_fault(&fault, Remedy::Fix, &["cannot run the program", words, "needs", "libc"]);
        eventually("the end of the container", || names(&provider).is_empty());
    }
    engine.import_for("other:1", "s390x");
    let fault = with_image(&engine, "other:1").check().unwrap_err();
    assert_fault(&fault, Remedy::Fix, &["other:1", "s390x", std::env::consts::ARCH]);
    // No registry listens there: machines wait for the pull, and then there is a reason.
    let provider = with_image(&engine, "127.0.0.1:1/nothing:1");
    provider.check().unwrap();
    let made = provider.create(&run(), &one).unwrap();
    let why = "the image `127.0.0.1:1/nothing:1` is being pulled".to_owned();
    assert_eq!(made, Made::Pending { why });
    let mut fault = None;
    eventually("the end of the pull", || {
        fault = provider.create(&run(), &one).err();
        fault.is_some()
    });
    let fault = fault.expect("it ended");
    assert_fault(&fault, Remedy::Fix, &["127.0.0.1:1/nothing:1", "cannot be pulled", "leave"]);
    let provider = docker(Settings { network: Some("nowhere".into()), ..settings(&engine) });
    let fault = provider.open(&run(), &one, &program()).err().expect("no channel");
    assert_fault(&fault, Remedy::Fix, &["nowhere", "docker network ls"]);
    provider.destroy(&run(), &one).unwrap();
    assert!(names(&provider).is_empty());
}

#[test]
fn an_engine_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("sock");
    let at = |socket: &Path| {
        docker(Settings { socket: Some(socket.display().to_string()), ..Settings::default() })
    };
    let fault = at(&socket).check().unwrap_err();
    assert_fault(&fault, Remedy::Fix, &["no socket", "DOCKER_HOST"]);
    // Left behind by one that was killed.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    // For a moment, children that other tests start have it too.
    eventually("a refusal", || {
        at(&socket).check().is_err_and(|fault| fault.what.contains("is not running"))
    });
    let fault = at(&socket).check().unwrap_err();
    assert_fault(&fault, Remedy::Fix, &["is not running", "start it"]);
}

/// What tests of scripts build on.
#[test]
fn python_of_this_machine_in_a_container() {
    let Some(python) = Python::find() else { return };
    let Some(engine) = Engine::up() else { return };
    engine.import_system("python");
    let mut words = vec!["run", "--rm", "--volume", SYSTEM];
    let mounts = python.mounts();
    words.extend(mounts.iter().flat_map(|mount| ["--volume", mount]));
    words.extend(["python", &python.program, "-c", "import torch; print(torch.ones(3).sum())"]);
    assert_eq!(engine.docker_ok(&words), "tensor(3.)");
}
