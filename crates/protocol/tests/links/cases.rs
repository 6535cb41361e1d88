//! What links over every transport must do: what is sent arrives, in order and whole, and a slow
//! peer makes no sender wait.

use super::credentials;
use planaria_numerics::digest::Digest;
use planaria_protocol::bytes::{as_bytes, as_bytes_mut};
use planaria_protocol::message::{Agent, Pull, Push};
use planaria_protocol::{Error, Receiver, Sender, accept, connect};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

type End = (Sender, Receiver);

fn pair() -> (End, End) {
    let (one, other) = ends(Some(7), 7);
    (one.expect("connected"), other.expect("accepted"))
}

/// Both ends of a connection, the first of which may insist on a generation.
fn ends(client: Option<u64>, server: u64) -> (Result<End, Error>, Result<End, Error>) {
    let (ours, theirs) = credentials();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let other =
        thread::spawn(move || accept(listener.accept().expect("a connection").0, &theirs, server));
    let one = connect(&address, &ours, Agent::Server(0), client);
    (one, other.join().expect("no panic"))
}

fn message<M: serde::de::DeserializeOwned>(receiver: &mut Receiver) -> (M, usize) {
    let incoming = receiver.receive().expect("well formed").expect("not the end");
    (incoming.message, incoming.bulk_bytes)
}

fn pull(step: u64) -> Push {
    Push::Follow { step }
}

#[test]
fn messages_and_bulk_arrive_both_ways() {
    let ((to_server, mut from_server), (to_client, mut from_client)) = pair();
    let values: Vec<f32> = (0..300_000).map(|i| i as f32 * 0.5).collect();
    let shard =
        Push::Shard { step: 3, shard: 1, loss_sum: 0.25, correct: 9, read: Digest::default() };
    let gradient = Push::Gradient { step: 3, first_shard: 0, shards: 2, first_block: 5 };
    to_server.send(&shard).expect("sent");
    to_server.send_with(&gradient, as_bytes(&values)).expect("sent");
    to_server.send_with(&pull(4), b"skipped").expect("sent");
    to_server.send_with(&pull(5), b"kept").expect("sent");

    assert_eq!(message(&mut from_client), (shard, 0));
    assert_eq!(message(&mut from_client), (gradient, values.len() * 4));
    let mut got = vec![0.0f32; values.len()];
    let (first, second) = got.split_at_mut(1000);
    from_client.read_bulk(as_bytes_mut(first)).expect("read");
    from_client.read_bulk(as_bytes_mut(second)).expect("read");
    assert_eq!(got, values);
    assert_eq!(message(&mut from_client), (pull(4), 7));
    from_client.skip_bulk().expect("skipped");
    assert_eq!(message(&mut from_client), (pull(5), 4));
    assert_eq!(from_client.bulk_vec(10).expect("short enough"), b"kept");
    assert_eq!(to_server.bytes_sent(), from_client.bytes_received());

    let back = Pull::Parameters { step: 4, first_block: 2 };
    to_client.send_with(&back, &[1, 2, 3]).expect("sent");
    assert_eq!(message(&mut from_server), (back, 3));
    from_server.skip_bulk().expect("skipped");

    to_server.flush_and_close(Duration::from_secs(5)).expect("written");
    assert!(from_client.receive::<Push>().expect("a clean end").is_none());
    assert!(matches!(to_server.send(&pull(6)), Err(Error::Closed)));
    // The other direction is still open, and ends when its last sender is gone.
    to_client.send(&back_again()).expect("sent");
    drop(to_client);
    assert_eq!(message(&mut from_server), (back_again(), 0));
    assert!(from_server.receive::<Pull>().expect("a clean end").is_none());
}

fn back_again() -> Pull {
    Pull::State { step: 9 }
}

#[test]
fn a_slow_reader_delays_no_sender_and_order_is_kept() {
    const FRAMES: u64 = 400_000;
    let ((sender, _), (_, mut receiver)) = pair();
    let (done, is_done) = mpsc::channel();
    let from = sender.clone();
    let thread = thread::spawn(move || {
        for step in 0..FRAMES {
            from.send_with(&pull(step), &step.to_le_bytes()).expect("queued");
        }
        done.send(()).expect("listened to");
    });
    // Nothing is read until all is sent.
    is_done.recv_timeout(Duration::from_secs(60)).expect("sending did not wait for the reader");
    thread.join().expect("sent");
    assert!(sender.bytes_waiting() > 0, "the socket took everything: the test shows nothing");
    for step in 0..FRAMES {
        assert_eq!(message(&mut receiver), (pull(step), 8));
        let mut bulk = [0; 8];
        receiver.read_bulk(&mut bulk).expect("read");
        assert_eq!(u64::from_le_bytes(bulk), step);
    }
    sender.flush_and_close(Duration::from_secs(5)).expect("written");
    assert_eq!(sender.bytes_waiting(), 0);
}

#[test]
fn threads_share_a_link_frame_by_frame() {
    const THREADS: u64 = 4;
    const FRAMES: u64 = 200;
    let ((sender, _), (_, mut receiver)) = pair();
    // Small, medium, and larger than what is copied.
    let length = |step: u64| [10, 300_000, 3_000_000][step as usize % 3];
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let sender = sender.clone();
            thread::spawn(move || {
                for step in 0..FRAMES {
                    let gradient = Push::Gradient {
                        step,
                        first_shard: thread as u32,
                        shards: 1,
                        first_block: 0,
                    };
                    let bulk = vec![(thread * 50 + step) as u8; length(step)];
                    sender.send_with(&gradient, &bulk).expect("sent");
                }
            })
        })
        .collect();
    let mut next = [0; THREADS as usize];
    for _ in 0..THREADS * FRAMES {
        let (found, bytes) = message(&mut receiver);
        let Push::Gradient { step, first_shard, .. } = found else { panic!("{found:?}") };
        let bulk = receiver.bulk_vec(bytes).expect("read");
        assert_eq!((step, bytes), (next[first_shard as usize], length(step)));
        let byte = (u64::from(first_shard) * 50 + step) as u8;
        assert!(bulk.iter().all(|b| *b == byte), "frame {step} of thread {first_shard} is mixed");
        next[first_shard as usize] += 1;
    }
    threads.into_iter().for_each(|thread| thread.join().expect("sent"));
}

#[test]
fn two_ends_that_both_send_much_before_they_read_do_not_lock() {
    let ((a, mut from_b), (b, mut from_a)) = pair();
    let bulk = vec![3u8; 5_000_000];
    let one = |sender: Sender, receiver: &mut Receiver| {
        for step in 0..6 {
            sender.send_with(&pull(step), &bulk).expect("sent or queued");
        }
        for step in 0..6 {
            assert_eq!(message(receiver), (pull(step), bulk.len()));
            receiver.skip_bulk().expect("read");
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| one(a, &mut from_b));
        scope.spawn(|| one(b, &mut from_a));
    });
}

#[test]
fn a_full_queue_makes_the_sender_wait_until_there_is_room() {
    let ((sender, _), (_, mut receiver)) = pair();
    let bulk = vec![1u8; 900_000];
    let frames = 150; // More than the queue and the sockets hold.
    let (one, each) = mpsc::channel();
    let thread = thread::spawn(move || {
        for step in 0..frames {
            sender.send_with(&pull(step), &bulk).expect("sent in the end");
            one.send(()).expect("listened to");
        }
        sender
    });
    let mut sent = 0;
    while each.recv_timeout(Duration::from_millis(500)).is_ok() {
        sent += 1;
    }
    assert!((60..frames).contains(&sent), "{sent} frames before the sender had to wait");
    for step in 0..frames {
        assert_eq!(message(&mut receiver), (pull(step), 900_000));
        receiver.skip_bulk().expect("read");
    }
    thread.join().expect("sent").flush_and_close(Duration::from_secs(5)).expect("written");
}

#[test]
fn closing_wakes_the_reader_and_the_peer() {
    let ((a, mut from_b), (b, mut from_a)) = pair();
    let (one, two) = (
        thread::spawn(move || from_b.receive::<Push>().expect("closed").is_none()),
        thread::spawn(move || from_a.receive::<Push>().expect("a clean end").is_none()),
    );
    a.close();
    assert!(one.join().expect("woken") && two.join().expect("woken"));
    assert!(matches!(a.send(&pull(0)), Err(Error::Closed)));
    // The peer's socket may take a frame before it hears that the link is closed.
    let mut last = Ok(());
    for step in 0..1000 {
        last = b.send_with(&pull(step), &[0; 10_000]);
        if last.is_err() {
            break;
        }
    }
    assert!(last.is_err(), "sending to a closed link goes on");
    assert!(matches!(b.send(&pull(0)), Err(Error::Broken(_))));
}

#[test]
fn misuse_and_other_generations_end_the_link() {
    let ((a, _keep), (_, mut from_a)) = pair();
    a.send_with(&pull(1), b"unread").expect("sent");
    a.send(&pull(2)).expect("sent");
    message::<Push>(&mut from_a);
    let mut more = [0; 7];
    assert!(matches!(from_a.read_bulk(&mut more), Err(Error::BulkShort { asked: 7, left: 6 })));
    assert!(matches!(from_a.receive::<Push>(), Err(Error::BulkLeft { bytes: 6 })));
    assert!(matches!(from_a.receive::<Push>(), Err(Error::Broken(_))));

    for (client, server) in [(7, 8), (8, 7)] {
        let (one, other) = ends(Some(client), server);
        let told = |found, expected| {
            format!("frame of generation {found} on a link of generation {expected}")
        };
        assert_eq!(one.err().expect("refused").to_string(), told(server, client));
        assert_eq!(other.err().expect("refused").to_string(), told(client, server));
    }
    // A client that does not insist on a generation takes the server's.
    let (one, other) = ends(None, 9);
    let ((a, _keep), (_, mut from_a)) = (one.expect("connected"), other.expect("accepted"));
    assert_eq!(a.generation(), 9);
    a.send(&pull(1)).expect("sent");
    message::<Push>(&mut from_a);

    let ((a, _keep), (_, mut from_a)) = pair();
    a.send_with(&pull(1), &[0; 100]).expect("sent");
    message::<Push>(&mut from_a);
    assert!(matches!(from_a.bulk_vec(99), Err(Error::BulkTooLong { bytes: 100, most: 99 })));

    let ((a, _keep), (_, mut from_a)) = pair();
    assert!(matches!(a.send(&"x".repeat(1 << 20)), Err(Error::ControlTooLong { .. })));
    a.send(&"x".repeat((1 << 20) - 3)).expect("the longest there is");
    assert_eq!(message::<String>(&mut from_a).0.len(), (1 << 20) - 3);
}
