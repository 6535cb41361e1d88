//! Frames that are lost on purpose, over real sockets. The frame_loss is the whole process', so this is
//! one test after another.

use planaria_protocol::message::{Agent, FrameLoss, FromWorker};
use planaria_protocol::methods::sync;
use planaria_protocol::{
    Credentials, Error, Receiver, Secret, Sender, accept, connect, frame_loss,
};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

type End = (Sender, Receiver);

fn pair() -> (End, End) {
    let credentials = Credentials::plain(Secret::random().expect("random bytes"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let shared = credentials.clone();
    let other = thread::spawn(move || {
        accept(listener.accept().expect("a connection").0, &shared, 1).expect("accepted")
    });
    let one = connect(&address, &credentials, Agent::Coordinator, None).expect("connected");
    (one, other.join().expect("accepted"))
}

fn storm(drop_per_mille: u32, seconds: f64, seed: u64) -> FrameLoss {
    FrameLoss { drop_per_mille, seconds, seed }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn behind(step: u64) -> FromWorker {
    FromWorker::from(sync::Report::Behind { step })
}

/// Frames that arrive in order before a gap ends the link.
fn arrive(frame_loss: FrameLoss) -> u64 {
    let ((sender, _back), (_forth, mut receiver)) = pair();
    frame_loss::set(frame_loss, at(100));
    for step in 0..200 {
        sender.send(&behind(step)).expect("sent, or lost on the way");
    }
    frame_loss::tick(at(100) + Duration::from_secs(3600));
    // After the storm, so that the last gap is seen too.
    sender.send(&behind(200)).expect("sent");
    for step in 0..=200 {
        match receiver.receive::<FromWorker>() {
            Ok(Some(incoming)) => assert_eq!(incoming.message, behind(step)),
            Err(Error::Sequence { found, expected }) => {
                assert!(found > expected && expected == step, "{found} for {expected}");
                return step;
            }
            other => panic!("{:?}", other.map(|o| o.map(|i| i.message))),
        }
    }
    201
}

#[test]
fn weather_comes_and_goes() {
    // Fine: everything arrives.
    assert!(frame_loss::is_fine());
    assert_eq!(arrive(storm(0, 10.0, 1)), 201);
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(arrive(storm(1000, seconds, 1)), 201, "{seconds} s");
    }

    // Foul: the first frame that is lost ends the link when the next one comes, and which one it is
    // follows from the seed.
    let first = arrive(storm(20, 10.0, 7));
    assert!(first > 0 && first < 200, "{first}");
    assert_eq!(arrive(storm(20, 10.0, 7)), first);
    let others: Vec<u64> = (0..8).map(|seed| arrive(storm(20, 10.0, seed))).collect();
    assert!(others.iter().any(|other| *other != first), "{others:?}");

    // A partition: nothing arrives, and the link stays until something does.
    let ((sender, _back), (_forth, mut receiver)) = pair();
    frame_loss::set(storm(5000, 10.0, 1), at(100));
    (0..50).for_each(|step| sender.send(&behind(step)).expect("lost on the way"));
    receiver.set_timeout(Some(Duration::from_millis(100))).expect("set");
    let silence = receiver.receive::<FromWorker>().map(|o| o.map(|i| i.message));
    assert!(silence.is_err(), "{silence:?}");

    // It is over when its time has come, and not before.
    let ((sender, _back), (_forth, mut receiver)) = pair();
    frame_loss::tick(at(109));
    assert!(!frame_loss::is_fine());
    frame_loss::tick(at(110));
    assert!(frame_loss::is_fine());
    sender.send(&behind(0)).expect("sent");
    let got = receiver.receive::<FromWorker>().expect("whole").expect("not the end");
    assert_eq!(got.message, behind(0));
}
