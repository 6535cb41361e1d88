//! Two workers on one machine: messages arrive, also when links break and when the receiver is
//! late.

use super::*;
use planaria_protocol::Secret;
use planaria_protocol::message::Agent;
use std::sync::mpsc;

fn join() -> Join {
    Join::new(Agent::Worker(0), "test", 1)
}

fn entries(round: u64, debt: u64, size: usize) -> PeerMessage {
    (ToPeer::Entries { round, debt, places: 0..1 }, vec![debt as u8; size])
}

/// Listens at a place; messages come out of the channel.
fn reader(
    listener: TcpListener,
    credentials: &Credentials,
) -> (Listening, mpsc::Receiver<PeerMessage>) {
    let (send, messages) = mpsc::sync_channel(1000);
    let handler: Arc<Mutex<Option<Handler>>> =
        Arc::new(Mutex::new(Some(Arc::new(move |message| drop(send.send(message))))));
    let on_link = move |_: Join, sender: Sender, receiver: Receiver| {
        let _ = read(&handler, &sender, receiver);
    };
    let generation = Arc::new(AtomicU64::new(1));
    let listening = listen::serve(listener, credentials.clone(), generation, on_link, |_| {});
    (listening.unwrap(), messages)
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_receiver_that_starts_later_gets_its_messages() {
    let credentials = Credentials::plain(Secret::random().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let peers = Peers::new(&credentials, &join());
    peers.send(&address, entries(1, 7, 10)).unwrap();
    peers.send(&address, entries(2, 8, 1 << 20)).unwrap();
    // The first is of a round that is over.
    peers.retire(2);
    let (_listening, messages) = reader(TcpListener::bind(&address).unwrap(), &credentials);
    assert_eq!(messages.recv_timeout(LONG).unwrap(), entries(2, 8, 1 << 20));
    peers.send(&address, entries(2, 9, 3)).unwrap();
    assert_eq!(messages.recv_timeout(LONG).unwrap(), entries(2, 9, 3));
    assert!(messages.try_recv().is_err());
}

#[test]
fn what_was_on_a_link_that_broke_is_sent_again() {
    let credentials = Credentials::plain(Secret::random().unwrap());
    let (listening, messages) = reader(TcpListener::bind("127.0.0.1:0").unwrap(), &credentials);
    let address = listening.address().to_string();
    let peers = Peers::new(&credentials, &join());
    let mut seen = std::collections::BTreeSet::new();
    for debt in 0..200 {
        peers.send(&address, entries(1, debt, 1000)).unwrap();
        if debt % 10 == 5 {
            // As if the network had done it.
            let connections = peers.0.connections();
            let connection = connections[&address].clone();
            drop(connections);
            let link = connection.state().link.clone();
            link.iter().for_each(Sender::close);
        }
    }
    while seen.len() < 200 {
        let (message, bulk) = messages.recv_timeout(LONG).expect("all come");
        let ToPeer::Entries { debt, .. } = message else { panic!("not entries") };
        assert_eq!(bulk, vec![debt as u8; 1000]);
        seen.insert(debt);
    }
}

#[test]
fn nothing_is_kept_of_what_has_come_and_threads_end() {
    let credentials = Credentials::plain(Secret::random().unwrap());
    let (listening, messages) = reader(TcpListener::bind("127.0.0.1:0").unwrap(), &credentials);
    let address = listening.address().to_string();
    let peers = Peers::new(&credentials, &join());
    peers.send(&address, entries(1, 1, 5)).unwrap();
    messages.recv_timeout(LONG).unwrap();
    let connection = peers.0.connections()[&address].clone();
    for _ in 0..2000 {
        if connection.state().unacknowledged.is_empty() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let state = connection.state();
    assert!(state.unacknowledged.is_empty() && state.unacknowledged.on_their_way() == 0);
    drop(state);
    let inner = Arc::downgrade(&peers.0);
    drop(peers);
    for _ in 0..2000 {
        if inner.upgrade().is_none() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("a thread lives on");
}
