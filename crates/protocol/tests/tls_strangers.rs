//! Under TLS: a caller without a certificate of the run gets nothing, is reported once, and delays
//! no peer.

use planaria_protocol::listen::{self, Listening};
use planaria_protocol::message::{Agent, Join, Push};
use planaria_protocol::tls::Authority;
use planaria_protocol::{Credentials, Error, Receiver, Secret, Sender, connect};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
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
    authority: Authority,
    credentials: Credentials,
    /// Of members.
    secret: Secret,
    links: mpsc::Receiver<(Join, Sender, Receiver)>,
    refused: mpsc::Receiver<String>,
}

impl House {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let secret = Secret::random().expect("random bytes");
        let authority = Authority::new("run-1", 1.8e9).expect("an authority");
        let root = sealed_as(&secret, &authority, Agent::Coordinator, None);
        let (credentials, secret) = (root.admitting_consoles(), secret.for_members());
        let ((link, links), (reason, refused)) = (mpsc::channel(), mpsc::channel());
        let listening = listen::serve(
            listener,
            credentials.clone(),
            Arc::new(AtomicU64::new(1)),
            move |join, sender, receiver| drop(link.send((join, sender, receiver))),
            move |why| drop(reason.send(why)),
        )
        .expect("listening");
        Self { listening, authority, credentials, secret, links, refused }
    }

    fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    fn stranger(&self) -> TcpStream {
        TcpStream::connect(self.address()).expect("anyone can connect")
    }

    fn connect(&self, credentials: &Credentials) -> Result<(Sender, Receiver), Error> {
        connect(&self.address().to_string(), credentials, Agent::Coordinator, Some(1))
    }

    /// A real peer gets in and is heard.
    fn serves(&self, pid: u32) {
        let agent = Agent::Worker(pid);
        let credentials = sealed_as(&self.secret, &self.authority, agent, Some("lab-1"));
        let (sender, _receiver) = self.connect(&credentials).expect("connected");
        let join = join(agent, Some("lab-1"), pid);
        sender.send(&join).expect("sent");
        sender.send(&Push::Follow { step: 5 }).expect("sent");
        let (joined, _, mut receiver) = self.links.recv_timeout(SOON).expect("let in at once");
        assert_eq!(joined, join);
        let first = receiver.receive::<Push>().expect("whole").expect("not the end");
        assert_eq!(first.message, Push::Follow { step: 5 });
    }

    fn refuses(&self, within: Duration, why: &str) {
        let reason = self.refused.recv_timeout(within).expect("refused in time");
        assert!(reason.contains(why), "`{reason}` does not say `{why}`");
    }
}

fn sealed(secret: &Secret, authority: &Authority) -> Credentials {
    sealed_as(secret, authority, Agent::Worker(0), None)
}

fn sealed_as(
    secret: &Secret,
    authority: &Authority,
    agent: Agent,
    machine: Option<&str>,
) -> Credentials {
    let trust = authority.issue(agent, machine, Duration::ZERO).expect("a certificate");
    Credentials::new(secret.clone(), Some(&trust), None).expect("a credentials")
}

fn join(agent: Agent, machine: Option<&str>, pid: u32) -> Join {
    Join { machine: machine.map(str::to_owned), ..Join::new(agent, "b", pid) }
}

/// What the other end says until it hangs up.
fn answer(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(LATE)).expect("set");
    let mut bytes = Vec::new();
    // A reset is an end as well.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

/// When the authority of these tests makes its certificates.
#[derive(Debug)]
struct Then;

impl rustls::time_provider::TimeProvider for Then {
    fn current_time(&self) -> Option<rustls::pki_types::UnixTime> {
        Some(rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_001)))
    }
}

/// A client of another make, with a certificate of the run or without.
fn foreign(house: &House, has_certificate: bool) -> rustls::ClientConnection {
    let trust =
        house.authority.issue(Agent::Worker(0), None, Duration::ZERO).expect("a certificate");
    let read = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("read");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(read(&trust.authority)).expect("added");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_details(provider, Arc::new(Then))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("versions")
        .with_root_certificates(roots);
    let key = PrivateKeyDer::from_pem_slice(trust.key.as_bytes()).expect("read");
    let config = match has_certificate {
        true => config.with_client_auth_cert(vec![read(&trust.certificate)], key).expect("a key"),
        false => config.with_no_client_auth(),
    };
    let name = ServerName::try_from("planaria.run").expect("a name");
    rustls::ClientConnection::new(Arc::new(config), name).expect("a client")
}

#[test]
fn a_certificate_of_another_run_is_not_believed() {
    let house = House::open();
    house.serves(1);
    // It knows the secret, and has a certificate: of an authority of the same name.
    let other = Authority::new("run-1", 1.8e9).expect("an authority");
    let error = house.connect(&sealed(&house.secret, &other)).err().expect("refused").to_string();
    assert!(error.contains("its certificate is not of this run"), "{error}");
    house.refuses(SOON, "no TLS with the other end: it refused");
    house.serves(2);
    // Others from the same address are counted.
    for _ in 0..20 {
        assert!(house.connect(&sealed(&house.secret, &other)).is_err());
    }
    house.refuses(SOON, "(10 times from 127.0.0.1)");
    assert!(house.refused.recv_timeout(Duration::from_millis(300)).is_err(), "told of once");
    house.serves(3);
}

#[test]
fn a_certificate_without_the_secret_is_refused() {
    let house = House::open();
    let wrong = sealed(&Secret::random().expect("random bytes"), &house.authority);
    let error = house.connect(&wrong).err().expect("refused").to_string();
    assert!(error.contains("it may not know the run's secret"), "{error}");
    house.refuses(SOON, "does not know the run's secret");
    house.serves(1);
}

#[test]
fn a_worker_is_taken_for_no_other_process() {
    let house = House::open();
    let own = sealed_as(&house.secret, &house.authority, Agent::Worker(1), Some("lab-1"));
    for claimed in [
        join(Agent::Worker(2), Some("lab-1"), 1),
        join(Agent::Worker(1), Some("lab-2"), 1),
        join(Agent::Worker(1), None, 1),
        join(Agent::Server(1), Some("lab-1"), 1),
        join(Agent::Console, Some("lab-1"), 1),
        join(Agent::Console, None, 1),
    ] {
        let (sender, mut receiver) = house.connect(&own).expect("it is of the run");
        sender.send(&claimed).expect("sent");
        receiver.set_timeout(Some(SOON)).expect("set");
        assert!(!matches!(receiver.receive::<Push>(), Ok(Some(_))), "{claimed:?}");
    }
    house.refuses(SOON, "but its certificate is of worker-1 on \"lab-1\"");
    // A console's certificate is not enough without the consoles' secret.
    let half = sealed_as(&house.secret, &house.authority, Agent::Console, None);
    let (sender, mut receiver) = house.connect(&half).expect("it is of the run");
    sender.send(&join(Agent::Console, None, 1)).expect("sent");
    assert!(!matches!(receiver.receive::<Push>(), Ok(Some(_))));
    assert!(house.links.try_recv().is_err(), "no link was admitted");
    house.serves(1);
}

#[test]
fn a_process_that_is_not_the_one_to_be_reached_is_told_nothing() {
    // A worker's machine listens where the coordinator did.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let house = House::open();
    let worker = sealed_as(&house.secret, &house.authority, Agent::Worker(1), Some("lab-1"));
    let other = thread::spawn(move || {
        planaria_protocol::accept(listener.accept().expect("a connection").0, &worker, 1)
    });
    let own = sealed(&house.secret, &house.authority);
    let error = connect(&address, &own, Agent::Coordinator, None).err().expect("refused");
    let expected = "coordinator was to be reached, but the other end's certificate is of worker-1";
    assert!(error.to_string().contains(expected), "{error}");
    assert!(other.join().expect("no panic").is_err(), "it hears no proof of the secret");
}

#[test]
fn certificates_of_a_machine_that_was_given_up_are_refused() {
    let house = House::open();
    let old =
        |worker| sealed_as(&house.secret, &house.authority, Agent::Worker(worker), Some("lab-1"));
    let (one, two) = (old(1), old(2));
    let enter = |credentials: &Credentials, worker| {
        let (sender, receiver) = house.connect(credentials)?;
        sender.send(&join(Agent::Worker(worker), Some("lab-1"), worker))?;
        Ok::<_, Error>((sender, receiver))
    };
    let (_sender, mut receiver) = enter(&one, 1).expect("connected");
    let (_, _theirs, mut their_receiver) = house.links.recv_timeout(SOON).expect("let in");
    house.credentials.standing().give_up("lab-1", house.authority.next_number());
    // Its link ends, for both.
    assert!(!matches!(their_receiver.receive::<Push>(), Ok(Some(_))));
    receiver.set_timeout(Some(SOON)).expect("set");
    assert!(!matches!(receiver.receive::<Push>(), Ok(Some(_))));
    // And no other is made, by it or by one that was never seen.
    for (credentials, worker) in [(&one, 1), (&two, 2)] {
        assert!(enter(credentials, worker).is_err());
    }
    house.refuses(SOON, "is of before its machine was given up");
    assert!(house.links.try_recv().is_err(), "no link was admitted");
    // The machine may come back, with what it is given then.
    house.serves(1);
}

#[test]
fn a_peer_without_a_certificate_gets_nothing() {
    let house = House::open();
    let mut connection = foreign(&house, false);
    let mut stream = house.stranger();
    stream.set_read_timeout(Some(LATE)).expect("set");
    let mut tls = rustls::Stream::new(&mut connection, &mut stream);
    let mut heard = Vec::new();
    let _ = tls.write_all(b"PLNR");
    assert!(tls.read_to_end(&mut heard).is_err(), "it is refused");
    assert_eq!(heard, b"", "and told nothing");
    house.refuses(SOON, "it shows no certificate");
    house.serves(1);
}

#[test]
fn one_end_without_tls_is_told_of_at_both() {
    let house = House::open();
    let plain = Credentials::plain(house.secret.clone());
    let error = house.connect(&plain).err().expect("refused").to_string();
    assert!(error.contains("the other end speaks TLS"), "{error}");
    house.refuses(SOON, "speaks without TLS");
    house.serves(1);

    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let other = thread::spawn(move || {
        planaria_protocol::accept(listener.accept().expect("a connection").0, &plain, 1)
    });
    let credentials = sealed(&house.secret, &house.authority);
    let error = connect(&address, &credentials, Agent::Coordinator, None)
        .err()
        .expect("refused")
        .to_string();
    assert!(error.contains("hung up during the TLS handshake"), "{error}");
    let error = other.join().expect("no panic").err().expect("refused").to_string();
    assert!(error.contains("the other end speaks TLS"), "{error}");
}

#[test]
fn strangers_learn_nothing_and_are_told_of_once() {
    let house = House::open();
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n"[..],
        &[0x5a; 5000],
        // A handshake whose message never ends.
        &[&[22, 3, 1, 64, 0, 1, 0, 255, 255][..], &[0; 16_379]].concat(),
        &[22, 3, 1, 255, 255],
    ] {
        let mut stream = house.stranger();
        stream.write_all(bytes).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("ended");
        assert_eq!(answer(stream), b"", "a stranger is told nothing");
    }
    house.refuses(SOON, "does not speak planaria: its first bytes are [47, 45, 54, 20]");
    assert!(house.refused.try_recv().is_err(), "all others are from the same address");
    house.serves(1);
}

#[test]
fn hostile_bytes_end_in_a_refusal() {
    let house = House::open();
    // What a real client says first, with some bytes changed.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let recorder = thread::spawn(move || {
        let mut heard = vec![0; 4096];
        let n = listener.accept().expect("a connection").0.read(&mut heard).expect("a hello");
        heard.truncate(n);
        heard
    });
    assert!(
        connect(&address, &sealed(&house.secret, &house.authority), Agent::Coordinator, None)
            .is_err()
    );
    let hello = recorder.join().expect("recorded");
    assert!(hello.len() > 100, "{hello:?}");
    let mut seed = 12345u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for _ in 0..300 {
        let mut bytes = hello.clone();
        for _ in 0..=draw(6) {
            let at = draw(bytes.len());
            bytes[at] = draw(256) as u8;
        }
        bytes.truncate(1 + draw(bytes.len()));
        let mut stream = house.stranger();
        stream.write_all(&bytes).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("ended");
        answer(stream);
    }
    house.refuses(SOON, "127.0.0.1");
    assert!(house.links.try_recv().is_err(), "no link was admitted");
    house.serves(1);
}

#[test]
fn silent_and_slow_strangers_delay_no_peer() {
    let house = House::open();
    let silent = house.stranger();
    house.serves(1);
    // A handshake that comes byte by byte, each well within a time-out for single reads.
    let mut drip = house.stranger();
    let (stop, stopped) = mpsc::channel::<()>();
    let dripping = thread::spawn(move || {
        let pause = Duration::from_millis(90);
        let mut bytes =
            [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3].into_iter().chain(std::iter::repeat(7));
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            if drip.write_all(&[bytes.next().expect("endless")]).is_err() {
                break;
            }
        }
        drip
    });
    house.serves(2);
    house.refuses(LATE, "its first byte was not there within 2s");
    assert_eq!(answer(silent), b"");
    drop(stop);
    assert_eq!(answer(dripping.join().expect("refused")), b"");

    // It shows its certificate, says half a hello, and nothing more.
    let (mut connection, mut stream) = (foreign(&house, true), house.stranger());
    let mut half = rustls::Stream::new(&mut connection, &mut stream);
    half.write_all(b"PLNR half of it").expect("sent");
    let mut rest = Vec::new();
    assert!(half.read_to_end(&mut rest).is_err() || rest.is_empty(), "it is turned away");
    house.serves(3);

    // A server that accepts and says nothing: the client gives up too.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let error =
        connect(&address, &sealed(&house.secret, &house.authority), Agent::Coordinator, None);
    assert!(matches!(error, Err(Error::TooLate { .. })));
}

#[test]
fn certificates_that_cannot_be_used_say_why_and_are_never_shown() {
    let secret = Secret::random().expect("random bytes");
    let issue = |run| {
        Authority::new(run, 1.8e9)
            .and_then(|a| a.issue(Agent::Worker(0), None, Duration::ZERO))
            .expect("a certificate")
    };
    let one = issue("run-1");
    let other = issue("run-2");
    for (trust, why) in [
        (planaria_protocol::launch::Trust { key: "x".into(), ..one.clone() }, "private key"),
        (
            planaria_protocol::launch::Trust { key: other.key.clone(), ..one.clone() },
            "certificates",
        ),
        (
            planaria_protocol::launch::Trust { authority: String::new(), ..one.clone() },
            "the authority cannot be read",
        ),
    ] {
        let error = Credentials::new(secret.clone(), Some(&trust), None).expect_err("useless");
        assert!(error.to_string().contains(why), "{error}");
        assert!(!error.to_string().contains("PRIVATE KEY"), "{error}");
    }
    let credentials = Credentials::new(secret, Some(&one), None).expect("a credentials");
    assert_eq!(credentials.trust(), Some(one));
    assert_eq!(format!("{credentials:?}"), "Credentials { trusted: true, via: None }");
}
