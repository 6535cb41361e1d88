//! Two workers on one machine: letters come, also when links break and when the reader is late.

use super::*;
use planaria_protocol::Secret;
use planaria_protocol::message::Agent;
use std::sync::mpsc;

fn join() -> Join {
    Join::new(Agent::Worker(0), "test", 1)
}

fn letter(round: u64, debt: u64, size: usize) -> Letter {
    (ToPeer::Entries { round, debt, places: 0..1 }, vec![debt as u8; size])
}

/// Listens at a place; letters come out of the channel.
fn reader(listener: TcpListener, credentials: &Credentials) -> (Listening, mpsc::Receiver<Letter>) {
    let (send, letters) = mpsc::sync_channel(1000);
    let slot: Arc<Mutex<Option<Slot>>> =
        Arc::new(Mutex::new(Some(Arc::new(move |letter| drop(send.send(letter))))));
    let on_link = move |_: Join, sender: Sender, receiver: Receiver| {
        let _ = read(&slot, &sender, receiver);
    };
    let generation = Arc::new(AtomicU64::new(1));
    let listening = listen::serve(listener, credentials.clone(), generation, on_link, |_| {});
    (listening.unwrap(), letters)
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn letters_come_also_to_one_who_is_there_only_later() {
    let credentials = Credentials::plain(Secret::random().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let peers = Peers::new(&credentials, &join());
    peers.post(&address, letter(1, 7, 10)).unwrap();
    peers.post(&address, letter(2, 8, 1 << 20)).unwrap();
    // The first is of a round that is over.
    peers.retire(2);
    let (_listening, letters) = reader(TcpListener::bind(&address).unwrap(), &credentials);
    assert_eq!(letters.recv_timeout(LONG).unwrap(), letter(2, 8, 1 << 20));
    peers.post(&address, letter(2, 9, 3)).unwrap();
    assert_eq!(letters.recv_timeout(LONG).unwrap(), letter(2, 9, 3));
    assert!(letters.try_recv().is_err());
}

#[test]
fn what_was_on_a_link_that_broke_is_sent_again() {
    let credentials = Credentials::plain(Secret::random().unwrap());
    let (listening, letters) = reader(TcpListener::bind("127.0.0.1:0").unwrap(), &credentials);
    let address = listening.address().to_string();
    let peers = Peers::new(&credentials, &join());
    let mut seen = std::collections::BTreeSet::new();
    for debt in 0..200 {
        peers.post(&address, letter(1, debt, 1000)).unwrap();
        if debt % 10 == 5 {
            // As if the network had done it.
            let posts = peers.0.posts();
            let post = posts[&address].clone();
            drop(posts);
            let link = post.state().link.clone();
            link.iter().for_each(Sender::close);
        }
    }
    while seen.len() < 200 {
        let (message, bulk) = letters.recv_timeout(LONG).expect("all come");
        let ToPeer::Entries { debt, .. } = message else { panic!("another letter") };
        assert_eq!(bulk, vec![debt as u8; 1000]);
        seen.insert(debt);
    }
}

#[test]
fn nothing_is_kept_of_what_has_come_and_threads_end() {
    let credentials = Credentials::plain(Secret::random().unwrap());
    let (listening, letters) = reader(TcpListener::bind("127.0.0.1:0").unwrap(), &credentials);
    let address = listening.address().to_string();
    let peers = Peers::new(&credentials, &join());
    peers.post(&address, letter(1, 1, 5)).unwrap();
    letters.recv_timeout(LONG).unwrap();
    let post = peers.0.posts()[&address].clone();
    for _ in 0..2000 {
        if post.state().letters.is_empty() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let state = post.state();
    assert!(state.letters.is_empty() && state.letters.on_their_way() == 0);
    drop(state);
    let office = Arc::downgrade(&peers.0);
    drop(peers);
    for _ in 0..2000 {
        if office.upgrade().is_none() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("a thread lives on");
}
