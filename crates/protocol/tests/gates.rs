//! Links through a gate, which is a small one of this test.

use planaria_protocol::message::{Agent, Push};
use planaria_protocol::tls::Authority;
use planaria_protocol::{Credentials, Secret, accept, connect, gate};
use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// What a gate does with the next connection.
#[derive(Clone, Copy)]
enum Mood {
    /// Connects to this port, whatever it is asked for.
    Connects(u16),
    Refuses(&'static str),
    Sleeps,
}

/// Serves one connection; gives its folder, which its socket `g` is in, and what it was asked for.
fn gate_of(mood: Mood) -> (tempfile::TempDir, mpsc::Receiver<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = UnixListener::bind(folder.path().join("g")).expect("a socket");
    let (tell, asked) = mpsc::channel();
    thread::spawn(move || {
        let mut client = listener.accept().expect("a connection").0;
        let Ok(address) = gate::asked(&mut client) else { return };
        let _ = tell.send(address);
        match mood {
            Mood::Connects(port) => {
                gate::answer(&mut client, Ok(())).expect("sent");
                pass_on(client, TcpStream::connect(("127.0.0.1", port)).expect("connected"));
            }
            Mood::Refuses(why) => gate::answer(&mut client, Err(why)).expect("sent"),
            // Until the other end has had enough.
            Mood::Sleeps => drop(client.read(&mut [0])),
        }
    });
    (folder, asked)
}

fn pass_on(client: UnixStream, server: TcpStream) {
    let (mut from, mut to) = (server.try_clone().expect("ok"), client.try_clone().expect("ok"));
    let back = thread::spawn(move || {
        // A reset is an end as well.
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut &client, &mut &server);
    let _ = server.shutdown(Shutdown::Write);
    back.join().expect("copied");
}

fn credentials(folder: &tempfile::TempDir, secret: &Secret) -> Credentials {
    let via = folder.path().join("g").display().to_string();
    Credentials::new(secret.clone(), None, Some(via)).expect("credentials")
}

#[test]
fn links_go_through_a_gate_plain_and_under_tls() {
    let trust = Authority::new("test", 1.8e9)
        .and_then(|a| a.issue(Agent::Worker(0), None, Duration::ZERO))
        .expect("a certificate");
    let secret = Secret::random().expect("random bytes");
    for trust in [None, Some(&trust)] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let (folder, asked) = gate_of(Mood::Connects(port));
        let via = folder.path().join("g").display().to_string();
        let ours = Credentials::new(secret.clone(), trust, Some(via)).expect("credentials");
        let theirs = Credentials::new(secret.clone(), trust, None).expect("credentials");
        let other = thread::spawn(move || {
            let stream = listener.accept().expect("a connection").0;
            let (_sender, mut receiver) = accept(stream, &theirs, 3).expect("accepted");
            let incoming = receiver.receive::<Push>().expect("whole").expect("not the end");
            (incoming.message, receiver.bulk_vec(1 << 24).expect("read"))
        });
        let address = format!("lab-1:{port}");
        let (sender, _receiver) = connect(&address, &ours, Agent::Worker(0), None).expect("a link");
        let bulk = vec![9; 3_000_000];
        sender.send_with(&Push::Follow { step: 4 }, &bulk).expect("sent");
        let heard = other.join().expect("no panic");
        assert!(heard == (Push::Follow { step: 4 }, bulk));
        assert_eq!(asked.recv().expect("asked"), address);
    }
}

#[test]
fn a_gate_that_does_not_do_it_is_told_of() {
    let secret = Secret::random().expect("random bytes");
    let check = |mood: Mood, address: &str, why: &str| {
        let (folder, _asked) = gate_of(mood);
        let ours = credentials(&folder, &secret);
        let error =
            connect(address, &ours, Agent::Worker(0), None).err().expect("no link").to_string();
        assert!(error.contains(why), "`{error}` does not say `{why}`");
    };
    let expect = "connecting to lab-1:80: the gate says: not of this run";
    check(Mood::Refuses("not of this run"), "lab-1:80", expect);
    check(Mood::Sleeps, "lab-1:80", "the gate's answer was not there within 5s");
    check(Mood::Sleeps, &"x".repeat(256), "an address has 1 to 255 bytes");
    let (folder, _asked) = gate_of(Mood::Sleeps);
    std::fs::remove_file(folder.path().join("g")).expect("removed");
    let error = connect("lab-1:80", &credentials(&folder, &secret), Agent::Worker(0), None)
        .err()
        .expect("no link");
    assert!(error.to_string().contains("/g`: No such file"), "{error}");
    let mut rest = Vec::new();
    gate::answer(&mut rest, Err(&"é".repeat(200))).expect("written");
    assert_eq!(rest.len(), 1 + 254, "a reason is cut between two letters");
}
