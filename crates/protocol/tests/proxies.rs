//! Links through a SOCKS5 proxy, which is a small one of this test.

use planaria_protocol::message::{Agent, Push};
use planaria_protocol::tls::Authority;
use planaria_protocol::{Credentials, Secret, accept, connect};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// What a proxy does with the next connection.
#[derive(Clone, Copy)]
enum Mood {
    /// Connects to this port, whatever it is asked for.
    Connects(u16),
    Refuses(u8),
    /// Wants a password.
    Asks,
    /// Is something else.
    Babbles,
    Sleeps,
}

/// Serves one connection; gives its own address, and what it was asked for.
fn proxy(mood: Mood) -> (String, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let (tell, asked) = mpsc::channel();
    thread::spawn(move || {
        let mut client = listener.accept().expect("a connection").0;
        let mut greeting = [0; 3];
        if client.read_exact(&mut greeting).is_err() {
            return;
        }
        assert_eq!(greeting, [5, 1, 0]);
        let method: &[u8] = match mood {
            Mood::Asks => &[5, 0xff],
            Mood::Babbles => b"HTTP/1.1 400",
            Mood::Sleeps => &[],
            Mood::Connects(_) | Mood::Refuses(_) => &[5, 0],
        };
        client.write_all(method).expect("sent");
        let mut head = [0; 4];
        if client.read_exact(&mut head).is_err() {
            return;
        }
        let mut rest = vec![0; 2];
        match head[3] {
            1 => rest.resize(4 + 2, 0),
            4 => rest.resize(16 + 2, 0),
            _ => {
                let mut length = [0];
                client.read_exact(&mut length).expect("a length");
                rest.resize(usize::from(length[0]) + 2, 0);
            }
        }
        client.read_exact(&mut rest).expect("an address");
        tell.send([&head[..], &rest].concat()).expect("listened to");
        match mood {
            // Whence it connects may be said in any form.
            Mood::Connects(port) => {
                client.write_all(&[5, 0, 0, 3, 2, b'm', b'e', 0, 9]).expect("sent");
                pass_on(client, TcpStream::connect(("127.0.0.1", port)).expect("connected"));
            }
            Mood::Refuses(why) => {
                client.write_all(&[5, why, 0, 1, 0, 0, 0, 0, 0, 0]).expect("sent");
            }
            Mood::Asks | Mood::Babbles | Mood::Sleeps => {}
        }
    });
    (address, asked)
}

fn pass_on(client: TcpStream, server: TcpStream) {
    let pipe = |mut from: TcpStream, mut to: TcpStream| {
        thread::spawn(move || {
            // A reset is an end as well.
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        })
    };
    let back = pipe(server.try_clone().expect("ok"), client.try_clone().expect("ok"));
    let forth = pipe(client, server);
    back.join().expect("copied");
    forth.join().expect("copied");
}

#[test]
fn links_go_through_a_proxy_plain_and_under_tls() {
    let trust = Authority::new("test", 1.8e9)
        .and_then(|a| a.issue(Agent::Worker(0), None, Duration::ZERO))
        .expect("a certificate");
    let secret = Secret::random().expect("random bytes");
    for (host, form) in
        [("10.1.2.3", &[5u8, 1, 0, 1, 10, 1, 2, 3][..]), ("lab-1", b"\x05\x01\0\x03lab-1")]
    {
        for trust in [None, Some(&trust)] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let port = listener.local_addr().expect("bound").port();
            let (via, asked) = proxy(Mood::Connects(port));
            let credentials =
                |via| Credentials::new(secret.clone(), trust, via).expect("a credentials");
            let (ours, theirs) = (credentials(Some(via)), credentials(None));
            let other = thread::spawn(move || {
                let stream = listener.accept().expect("a connection").0;
                let (_sender, mut receiver) = accept(stream, &theirs, 3).expect("accepted");
                let incoming = receiver.receive::<Push>().expect("whole").expect("not the end");
                (incoming.message, receiver.bulk_vec(1 << 24).expect("read"))
            });
            let (sender, _receiver) =
                connect(&format!("{host}:{port}"), &ours, Agent::Worker(0), None).expect("ok");
            let bulk = vec![9; 3_000_000];
            sender.send_with(&Push::Follow { step: 4 }, &bulk).expect("sent");
            let heard = other.join().expect("no panic");
            assert!(heard == (Push::Follow { step: 4 }, bulk));
            let expect = [form, &port.to_be_bytes()].concat();
            assert_eq!(asked.recv().expect("asked"), expect, "{host}");
        }
    }
}

#[test]
fn a_proxy_that_does_not_do_it_is_told_of() {
    let secret = Secret::random().expect("random bytes");
    let check = |mood: Mood, address: &str, why: &str| {
        let (via, _asked) = proxy(mood);
        let credentials = Credentials::new(secret.clone(), None, Some(via)).expect("a credentials");
        let error = connect(address, &credentials, Agent::Worker(0), None)
            .err()
            .expect("no link")
            .to_string();
        assert!(error.contains(why), "`{error}` does not say `{why}`");
    };
    check(
        Mood::Refuses(5),
        "lab-1:80",
        "connecting to lab-1:80: the proxy says: the connection was refused",
    );
    check(Mood::Refuses(4), "lab-1:80", "the machine cannot be reached");
    check(Mood::Asks, "lab-1:80", "the proxy asks for authentication");
    check(Mood::Babbles, "lab-1:80", "the proxy does not speak SOCKS5");
    check(Mood::Sleeps, "lab-1:80", "the proxy's greeting was not there within 5s");
    check(Mood::Sleeps, "lab-1", "its port is missing");
}
