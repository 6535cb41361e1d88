//! A console and a fake coordinator, which says what a test wants it to say.

use super::*;
use planaria_protocol::Secret;
use planaria_protocol::listen::{self, Listening};
use planaria_protocol::message::event_bulk;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver as Heard, channel};

use planaria_protocol::event::What;

/// Says `what` to every console as events from place 0 on and then a pulse, passes on what they say,
/// and answers with `answer`.
pub fn fake(
    what: Vec<What>,
    answer: impl Fn(&FromConsole) -> Option<What> + Send + Sync + 'static,
) -> (String, Credentials, Listening, Heard<FromConsole>) {
    let credentials = Credentials::plain(Secret::random().unwrap());
    let (address, listening, heard) =
        fake_under(credentials.clone().admitting_consoles(), what, answer);
    (address, credentials, listening, heard)
}

/// As [`fake`], with the coordinator's credentials.
pub fn fake_under(
    credentials: Credentials,
    what: Vec<What>,
    answer: impl Fn(&FromConsole) -> Option<What> + Send + Sync + 'static,
) -> (String, Listening, Heard<FromConsole>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (pass, heard) = channel();
    let on_link = move |_: Join, sender: Sender, mut receiver: Receiver| {
        let mut index = 0;
        let mut tell = |what: What| {
            let event = Event { seconds: 0.0, unix_seconds: 0.0, generation: 7, what };
            let _ = sender.send_with(&ToConsole::Event { index }, &event_bulk(&event));
            index += 1;
        };
        what.iter().cloned().for_each(&mut tell);
        let pulse = serde_json::to_vec(&Pulse::default()).unwrap();
        let _ = sender.send_with(&ToConsole::Pulse, &pulse);
        while let Ok(Some(incoming)) = receiver.receive::<FromConsole>() {
            answer(&incoming.message).into_iter().for_each(&mut tell);
            let _ = pass.send(incoming.message);
        }
    };
    let generation = Arc::new(AtomicU64::new(7));
    let listening = listen::serve(listener, credentials, generation, on_link, |_| {}).unwrap();
    (address, listening, heard)
}

const MOMENT: Duration = Duration::from_secs(10);

fn scaled(console: &Console) -> Option<u32> {
    match console.next(MOMENT) {
        News::Event(event) => match event.what {
            What::Scaled { workers } => Some(workers),
            other => panic!("{other:?}"),
        },
        News::Pulse(_) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_console_that_comes_again_hears_only_what_it_has_not_seen() {
    let events = (0..5).map(|workers| What::Scaled { workers }).collect();
    let (address, credentials, _listening, heard) = fake(events, |_| None);
    let first = Console::join(&address, &credentials, "b", Watching::default()).unwrap();
    assert_eq!(first.generation(), 7);
    assert_eq!([scaled(&first), scaled(&first), scaled(&first)], [Some(0), Some(1), Some(2)]);
    assert_eq!(
        first.seen(),
        Seen { place: 3, generation: 7 },
        "what was told and not taken is not seen"
    );
    assert_eq!(heard.recv().unwrap(), FromConsole::Watch { supervises: false });
    let watching = Watching { supervises: true, seen: first.seen() };
    drop(first);
    let second = Console::join(&address, &credentials, "b", watching).unwrap();
    assert_eq!([scaled(&second), scaled(&second), scaled(&second)], [Some(3), Some(4), None]);
    assert_eq!(second.seen(), Seen { place: 5, generation: 7 });
    assert_eq!(heard.recv().unwrap(), FromConsole::Watch { supervises: true });
}

#[test]
fn what_a_new_coordinator_tells_is_heard_though_events_before_it_were_lost() {
    let events = (0..5).map(|workers| What::Scaled { workers }).collect();
    let (address, credentials, _listening, _heard) = fake(events, |_| None);
    // The one before it had told nine, of which the disk has none.
    let seen = Seen { place: 9, generation: 6 };
    let watching = Watching { supervises: true, seen };
    let first = Console::join(&address, &credentials, "b", watching).unwrap();
    assert_eq!([scaled(&first), scaled(&first), scaled(&first)], [Some(0), Some(1), Some(2)]);
    // A link that is lost meanwhile costs nothing.
    let watching = Watching { supervises: true, seen: first.seen() };
    let second = Console::join(&address, &credentials, "b", watching).unwrap();
    assert_eq!([scaled(&second), scaled(&second), scaled(&second)], [Some(3), Some(4), None]);
}
