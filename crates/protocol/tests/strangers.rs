//! A caller that does not know the secret is refused with a reason, and delays no peer that does.

use planaria_protocol::listen::{self, Listening, UNKNOWN};
use planaria_protocol::message::{Agent, Join, Push, VERSION};
use planaria_protocol::{Credentials, Error, Receiver, Secret, Sender, connect};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(3);
const LATE: Duration = Duration::from_secs(8);

struct House {
    listening: Listening,
    credentials: Credentials,
    links: mpsc::Receiver<(Join, Sender, Receiver)>,
    refused: mpsc::Receiver<String>,
}

impl House {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let credentials = credentials();
        let ((link, links), (reason, refused)) = (mpsc::channel(), mpsc::channel());
        let listening = listen::serve(
            listener,
            credentials.clone(),
            Arc::new(AtomicU64::new(1)),
            // The test may be over before the last stranger is.
            move |join, sender, receiver| drop(link.send((join, sender, receiver))),
            move |why| drop(reason.send(why)),
        )
        .expect("listening");
        Self { listening, credentials, links, refused }
    }

    fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    fn stranger(&self) -> TcpStream {
        TcpStream::connect(self.address()).expect("anyone can connect")
    }

    /// A real peer gets in and is heard.
    fn serves(&self, pid: u32) {
        let (sender, _receiver) =
            connect(&self.address().to_string(), &self.credentials, Agent::Coordinator, Some(1))
                .expect("connected");
        sender.send(&join(pid)).expect("sent");
        sender.send(&Push::Follow { step: 5 }).expect("sent");
        let (joined, _, mut receiver) = self.links.recv_timeout(SOON).expect("let in at once");
        assert_eq!(joined, join(pid));
        let first = receiver.receive::<Push>().expect("whole").expect("not the end");
        assert_eq!(first.message, Push::Follow { step: 5 });
    }

    fn refuses(&self, within: Duration, why: &str) {
        let reason = self.refused.recv_timeout(within).expect("refused in time");
        assert!(reason.contains(why), "`{reason}` does not say `{why}`");
    }
}

fn credentials() -> Credentials {
    Credentials::plain(Secret::random().expect("random bytes"))
}

fn join(pid: u32) -> Join {
    let (agent, build) = (Agent::Worker(pid), "b".to_string());
    Join::new(agent, build, pid)
}

/// What the other end says until it hangs up.
fn answer(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(LATE)).expect("set");
    let mut bytes = Vec::new();
    // A reset is an end as well.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn a_peer_without_the_secret_is_refused() {
    let house = House::open();
    house.serves(1);

    let mut web = house.stranger();
    web.write_all(b"GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n").expect("sent");
    house.refuses(SOON, "does not speak planaria: its first bytes are [47, 45, 54, 20]");
    assert_eq!(answer(web), b"", "a stranger is told nothing");

    // Strangers from one address are told of once, whatever they say.
    let mut noise = house.stranger();
    noise.write_all(&[0x5a; 5000]).expect("sent");
    assert_eq!(answer(noise), b"");
    let mut short = house.stranger();
    short.write_all(b"PLNR").expect("sent");
    short.shutdown(std::net::Shutdown::Write).expect("ended");
    assert_eq!(answer(short), b"");

    let mut newer = house.stranger();
    newer.write_all(&hello(VERSION + 1)).expect("sent");
    let versions = format!("version {} of the protocol, this one version {VERSION}", VERSION + 1);
    house.refuses(SOON, &versions);
    assert_eq!(answer(newer)[..6], hello(VERSION)[..6], "it can name both versions as well");

    let wrong = credentials();
    let error = connect(&house.address().to_string(), &wrong, Agent::Coordinator, Some(1))
        .err()
        .expect("refused");
    assert!(matches!(error, Error::HungUp(_)), "{error}");
    house.refuses(SOON, "does not know the run's secret");

    // It knows the secret, but does not say who it is.
    let (sender, _receiver) =
        connect(&house.address().to_string(), &house.credentials, Agent::Coordinator, Some(1))
            .expect("connected");
    sender.send(&"not a join, whatever the tag of an agent may be").expect("sent");
    house.refuses(SOON, "control message");
    // Or it belongs to an earlier session.
    let earlier =
        connect(&house.address().to_string(), &house.credentials, Agent::Coordinator, Some(0));
    assert!(matches!(earlier, Err(Error::Generation { found: 1, expected: 0 })));
    house.refuses(SOON, "generation 0 on a link of generation 1");

    house.serves(2);
    assert!(house.refused.try_recv().is_err(), "each is refused once");
}

fn hello(version: u16) -> Vec<u8> {
    [&b"PLNR"[..], &version.to_le_bytes(), &1u64.to_le_bytes(), &[9; 32]].concat()
}

#[test]
fn a_server_that_does_not_know_the_secret_is_not_believed() {
    // It says hello and then what it heard.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    thread::spawn(move || {
        for version in [VERSION, VERSION + 1] {
            let mut stream = listener.accept().expect("a connection").0;
            let mut heard = [0; 46];
            stream.read_exact(&mut heard).expect("a hello");
            stream.write_all(&hello(version)).expect("sent");
            let mut proof = [0; 32];
            if stream.read_exact(&mut proof).is_ok() {
                stream.write_all(&proof).expect("sent");
            }
        }
    });
    let credentials = credentials();
    assert!(matches!(
        connect(&address, &credentials, Agent::Coordinator, Some(1)),
        Err(Error::WrongSecret)
    ));
    let versions = connect(&address, &credentials, Agent::Coordinator, Some(1))
        .err()
        .expect("another version")
        .to_string();
    assert!(versions.contains(&format!("version {}", VERSION + 1)), "{versions}");
    assert!(versions.contains(&format!("this one version {VERSION}")), "{versions}");
}

#[test]
fn a_recording_is_of_no_use() {
    let house = House::open();
    // An attacker in the middle records what a real peer says.
    let middle = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = middle.local_addr().expect("bound").to_string();
    let (to, credentials) = (house.address(), house.credentials.clone());
    let recorder = thread::spawn(move || {
        let mut client = middle.accept().expect("a connection").0;
        let mut server = TcpStream::connect(to).expect("connected");
        let (mut back, mut forth) =
            (server.try_clone().expect("ok"), client.try_clone().expect("ok"));
        let answers = thread::spawn(move || drop(std::io::copy(&mut back, &mut forth)));
        let mut said = Vec::new();
        let mut piece = [0; 4096];
        while let Ok(n @ 1..) = client.read(&mut piece) {
            said.extend_from_slice(&piece[..n]);
            server.write_all(&piece[..n]).expect("passed on");
        }
        drop(server.shutdown(std::net::Shutdown::Write));
        answers.join().expect("copied");
        said
    });
    let (sender, receiver) =
        connect(&address, &credentials, Agent::Coordinator, Some(1)).expect("connected");
    sender.send(&join(1)).expect("sent");
    let (_, theirs, their_receiver) = house.links.recv_timeout(SOON).expect("let in");
    sender.close();
    drop((theirs, their_receiver, receiver));
    let said = recorder.join().expect("recorded");
    assert!(said.len() > 46 + 32);

    let mut again = house.stranger();
    again.write_all(&said).expect("sent");
    house.refuses(SOON, "does not know the run's secret");
    assert!(answer(again).len() <= 46, "it is told no more than a hello");
    house.serves(2);
    assert!(house.links.try_recv().is_err(), "no other link was admitted");
}

#[test]
fn silent_and_slow_strangers_delay_no_peer() {
    let mut house = House::open();
    let silent = house.stranger();
    house.serves(1);
    // A byte now and then, each well within a time-out for single reads.
    let mut drip = house.stranger();
    let (stop, stopped) = mpsc::channel::<()>();
    let dripping = thread::spawn(move || {
        let mut bytes = hello(VERSION).into_iter().cycle();
        let pause = Duration::from_millis(90);
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            if drip.write_all(&[bytes.next().expect("endless")]).is_err() {
                break;
            }
        }
    });
    house.serves(2);
    house.refuses(LATE, "its first byte was not there within 2s");
    drop(stop);
    dripping.join().expect("refused");
    assert_eq!(answer(silent), b"");

    // More than there are places, all of them silent: a peer comes in at once, and those who have
    // waited longest go. No line for each: they are counted.
    let crowd: Vec<TcpStream> = (0..2 * UNKNOWN).map(|_| house.stranger()).collect();
    house.serves(3);
    let mut gone = crowd.into_iter();
    assert_eq!(answer(gone.next().expect("the oldest")), b"");
    house.refuses(LATE, "(10 times from 127.0.0.1)");
    house.refuses(LATE, "(100 times from 127.0.0.1)");
    drop(gone);
    assert!(house.refused.recv_timeout(SOON).is_err(), "no line for each");
    house.serves(4);

    let address = house.address();
    house.listening.stop();
    assert!(TcpStream::connect(address).is_err(), "the port is closed");
}

#[test]
fn a_peer_that_joins_byte_by_byte_or_with_bulk_is_refused() {
    let house = House::open();
    let middle = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = middle.local_addr().expect("bound").to_string();
    let to = house.address();
    let dripping = thread::spawn(move || {
        let mut client = middle.accept().expect("a connection").0;
        let mut server = TcpStream::connect(to).expect("connected");
        server.set_nodelay(true).expect("set");
        let (mut back, mut forth) =
            (server.try_clone().expect("ok"), client.try_clone().expect("ok"));
        let answers = thread::spawn(move || drop(std::io::copy(&mut back, &mut forth)));
        // The proofs pass at once: it knows the secret.
        let mut proofs = [0; 46 + 32];
        client.read_exact(&mut proofs[..46]).expect("its hello");
        server.write_all(&proofs[..46]).expect("passed on");
        client.read_exact(&mut proofs[46..]).expect("its proof");
        server.write_all(&proofs[46..]).expect("passed on");
        let mut byte = [0];
        while client.read_exact(&mut byte).is_ok() && server.write_all(&byte).is_ok() {
            thread::park_timeout(Duration::from_millis(20));
        }
        drop(server.shutdown(std::net::Shutdown::Both));
        answers.join().expect("copied");
    });
    let name = Join { machine: Some("m".repeat(200)), ..join(1) };
    let (slow, _receiver) =
        connect(&address, &house.credentials, Agent::Coordinator, Some(1)).expect("connected");
    slow.send(&name).expect("sent");
    house.refuses(LATE, "was not there within 5s");
    slow.close();
    dripping.join().expect("refused");

    let other = House::open();
    let (bulky, _receiver) =
        connect(&other.address().to_string(), &other.credentials, Agent::Coordinator, Some(1))
            .expect("connected");
    bulky.send_with(&join(1), &[0; 100]).expect("sent");
    other.refuses(SOON, "bulk of 100 bytes, at most 0 allowed");
    house.serves(2);
    other.serves(2);
    assert!(house.links.try_recv().is_err() && other.links.try_recv().is_err());
}

#[test]
fn a_secret_goes_through_a_pipe_and_is_never_shown() {
    let secret = Secret::random().expect("random bytes");
    let text = secret.to_hex();
    assert_eq!(Secret::from_hex(&format!("{text}\n")).expect("its own").to_hex(), text);
    assert_eq!(format!("{secret:?}"), "Secret");
    assert_ne!(Secret::random().expect("random bytes").to_hex(), text);
    for wrong in ["", "12", &text[1..], &format!("{text}0"), &text.replace(&text[..1], "ö")] {
        let error = Secret::from_hex(wrong).expect_err("not a secret");
        assert!(error.to_string().contains("64 hexadecimal digits"), "{error}");
    }
}
