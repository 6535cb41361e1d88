//! What only the ends of a connection can do to each other: new keys, and invalid records.

use super::handshake::{client_tls, server_tls};
use super::stream::Tls;
use super::{Authority, LIFETIME, Trusted};
use crate::error::Error;
use crate::identity::Identity;
use crate::link::{self, Receiver, Sender};
use crate::message::{Agent, Push};
use crate::ticks::Ticks;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// Both ends of a connection, and the first one's socket.
fn pair() -> ((Tls, TcpStream), Tls) {
    let authority = Authority::new("test", 1.8e9).expect("an authority");
    let trusted = |agent| trusted(&authority, agent, Duration::ZERO);
    let (ours, theirs) = (trusted(Agent::Worker(0)), trusted(Agent::Server(0)));
    let ((one, socket), other) = handshake(ours, theirs);
    let ((one, _), (other, _)) = (one.expect("believed"), other.expect("believed"));
    ((one, socket), other)
}

fn trusted(authority: &Authority, agent: Agent, age: Duration) -> Trusted {
    Trusted::new(&authority.issue(agent, None, age).expect("issued")).expect("read")
}

type Met = Result<(Tls, Identity), Error>;

/// What both ends find, and the first one's socket.
fn handshake(ours: Trusted, theirs: Trusted) -> ((Met, TcpStream), Met) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let other = thread::spawn(move || {
        server_tls(listener.accept().expect("a connection").0.into(), &theirs, &mut Ticks::new())
    });
    let stream = TcpStream::connect(address).expect("connected");
    let socket = stream.try_clone().expect("a handle");
    let one = client_tls(stream.into(), &ours, &mut Ticks::new());
    ((one, socket), other.join().expect("no panic"))
}

#[test]
fn each_end_knows_who_the_other_is_and_whether_its_certificate_has_expired() {
    let authority = Authority::new("test", 1.8e9).expect("an authority");
    let at = |agent, age| trusted(&authority, agent, age);
    let (worker, server) = (Agent::Worker(3), Agent::Server(1));
    let ((one, _socket), other) = handshake(at(worker, Duration::ZERO), at(server, LIFETIME / 2));
    assert_eq!(one.expect("believed").1.agent, server);
    assert_eq!(other.expect("believed").1.agent, worker);
    // One was given a new certificate when the other's was over, and the other was not.
    let late = LIFETIME + Duration::from_secs(1);
    let ((_, _socket), other) = handshake(at(worker, Duration::ZERO), at(server, late));
    let error = other.err().expect("expired").to_string();
    assert!(error.contains("its certificate has expired"), "{error}");
    let ((one, _socket), _) = handshake(at(worker, late), at(server, Duration::ZERO));
    let error = one.err().expect("expired").to_string();
    assert!(error.contains("its certificate has expired"), "{error}");
}

fn link_of(tls: Tls) -> (Sender, Receiver) {
    link::over(Box::new(tls), 1).expect("a link")
}

#[test]
fn keys_are_renewed_on_the_way_and_nothing_is_lost() {
    let ((mut one, _), mut other) = pair();
    one.renew_after(3);
    other.renew_after(5);
    let bulk = |step: u64| vec![step as u8; 100_000 + step as usize];
    let ends = [link_of(one), link_of(other)];
    let threads = ends.map(|(sender, mut receiver)| {
        thread::spawn(move || {
            for step in 0..40 {
                sender.send_with(&Push::Follow { step }, &bulk(step)).expect("sent");
            }
            for step in 0..40 {
                let incoming = receiver.receive::<Push>().expect("whole").expect("not the end");
                assert_eq!(incoming.message, Push::Follow { step });
                assert!(receiver.bulk_vec(1 << 20).expect("read") == bulk(step), "step {step}");
            }
            sender.flush_and_close(Duration::from_secs(5)).expect("written");
            assert!(receiver.receive::<Push>().expect("a clean end").is_none());
        })
    });
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

#[test]
fn records_that_are_none_end_the_link() {
    let check = |bytes: &[u8], why: &str| {
        let ((_tls, mut socket), other) = pair();
        let (_sender, mut receiver) = link_of(other);
        socket.write_all(bytes).expect("sent");
        socket.shutdown(std::net::Shutdown::Write).expect("ended");
        let error = receiver.receive::<Push>().expect_err("no record").to_string();
        assert!(error.contains(why), "`{error}` does not say `{why}`");
    };
    let record = |length: u16| [&[23, 3, 3][..], &length.to_be_bytes(), &[7; 1000]].concat();
    check(&record(100), "changed on its way");
    check(&record(17), "changed on its way");
    check(&record(16), "of a length that no record has");
    check(&record(0), "of a length that no record has");
    check(&record(u16::MAX), "of a length that no record has");
    check(&record(2000), "hung up in the middle of a record");
    check(&[23, 3, 3], "hung up in the middle of a record");
    check(&[21, 3, 3, 0, 2, 1, 0], "that is not sealed");
    check(b"GET / HTTP/1.1\r\n\r\n", "that is not sealed");
}

#[test]
fn what_is_slipped_in_between_ends_the_link() {
    let ((one, mut socket), other) = pair();
    let (sender, _keep) = link_of(one);
    let (_sender, mut receiver) = link_of(other);
    sender.send(&Push::Follow { step: 1 }).expect("sent");
    let first = receiver.receive::<Push>().expect("whole").expect("not the end");
    assert_eq!(first.message, Push::Follow { step: 1 });
    // A record of zeros has the right form, and no key has sealed it.
    socket.write_all(&[&[23, 3, 3, 0, 60][..], &[0; 60]].concat()).expect("sent");
    sender.send(&Push::Follow { step: 2 }).expect("sent");
    let error = receiver.receive::<Push>().expect_err("not sealed").to_string();
    assert!(error.contains("changed on its way"), "{error}");
}
