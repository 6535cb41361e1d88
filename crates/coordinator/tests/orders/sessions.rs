//! Coordinators and workers that come and go, as the server sees them.

use super::*;
use planaria_coordinator::parameters::server::{Effect, Event};
use planaria_protocol::message::Agent;
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1000);

fn on(server: &Server, event: Event, heard: &Heard) -> Vec<Effect> {
    server.on(NOW, event, heard)
}

fn connected(server: &Server, link: u64, agent: Agent, generation: u64, heard: &Heard) -> Effect {
    let mut effects = on(server, Event::Connected { link, agent, generation }, heard);
    assert_eq!(effects.len(), 1);
    effects.remove(0)
}

#[test]
fn a_coordinator_is_looked_for_as_long_as_its_lease_lasts() {
    let (server, heard) = (server(&Shared::default(), false), Heard::default());
    assert!(matches!(on(&server, Event::Begun, &heard)[..], [Effect::Dial]));
    on(&server, Event::Tick, &heard);
    assert!(heard.said().is_empty(), "there is no coordinator to tell");
    let unreachable = |seconds: f64| {
        let now = NOW + Duration::from_secs_f64(seconds);
        server.on(now, Event::Unreachable("connection refused".into()), &heard)
    };
    assert!(matches!(unreachable(0.0)[..], [Effect::Pause(time)] if time > Duration::ZERO));
    assert!(matches!(on(&server, Event::Due, &heard)[..], [Effect::Dial]));
    assert!(matches!(unreachable(29.9)[..], [Effect::Pause(_)]));
    let ended = unreachable(30.0);
    let [Effect::End(Err(trouble))] = &ended[..] else { panic!("{ended:?}") };
    assert!(trouble.message.contains("not reached for 30 s"), "{}", trouble.message);
}

#[test]
fn links_are_taken_of_the_generation_in_force_and_end_with_it() {
    let (server, heard) = (server(&Shared::default(), false), Heard::default());
    on(&server, Event::Begun, &heard);
    let worker = Agent::Worker(4);
    assert!(matches!(connected(&server, 0, worker, 7, &heard), Effect::Refuse(_)));
    assert!(matches!(on(&server, Event::Reached, &heard)[..], [Effect::Join(None)]));
    on(&server, Event::Tick, &heard);
    assert!(heard.said().is_empty(), "its first word is who it is");
    on(&server, Event::Joined { generation: 7 }, &heard);
    on(&server, Event::Tick, &heard);
    assert_eq!(heard.said(), [FromServer::Alive]);
    let begin = ToServer::Begin { blocks: BLOCKS, source: Source::Seed, step: 0 };
    assert!(on(&server, Event::Order(begin, None), &heard).is_empty());

    assert!(matches!(connected(&server, 1, Agent::Server(0), 7, &heard), Effect::Refuse(_)));
    assert!(matches!(connected(&server, 2, worker, 6, &heard), Effect::Refuse(_)));
    let Effect::Admit(first) = connected(&server, 3, worker, 7, &heard) else { panic!() };
    assert_eq!((first.worker, first.link), (4, 3));
    // The newer of two links of a worker counts, whenever the older ends.
    let Effect::Admit(second) = connected(&server, 4, worker, 7, &heard) else { panic!() };
    assert_eq!(*heard.closed.lock().unwrap(), [3]);
    on(&server, Event::Disconnected(first), &heard);

    let save = ToServer::Save { step: 0, folder: "nowhere".into() };
    let effects = on(&server, Event::Order(save, None), &heard);
    assert!(matches!(effects[..], [Effect::Write(_)]));
    heard.said();
    let session = second.session;
    assert!(matches!(on(&server, Event::Lost("it hung up".into()), &heard)[..], [Effect::Dial]));
    assert_eq!(*heard.closed.lock().unwrap(), [3, 4]);
    let message = FromServer::NotSaved { step: 0, why: "no such folder".into() };
    on(&server, Event::Written { session, message }, &heard);
    assert!(heard.said().is_empty(), "the answer to an earlier coordinator is dropped");
    let trouble = tried(&server, second, Push::Follow { step: 0 }, &[], &heard).unwrap_err();
    assert!(trouble.message.contains("older generation"));
    let joins = on(&server, Event::Reached, &heard);
    let [Effect::Join(Some(kept))] = &joins[..] else { panic!("{joins:?}") };
    assert_eq!(kept.steps, [0]);
    on(&server, Event::Joined { generation: 8 }, &heard);
    assert!(matches!(connected(&server, 5, worker, 7, &heard), Effect::Refuse(_)));
    assert!(matches!(connected(&server, 6, worker, 8, &heard), Effect::Admit(_)));
    let finished = on(&server, Event::Order(ToServer::Finish, None), &heard);
    assert!(matches!(finished[..], [Effect::End(Ok(()))]));
    assert_eq!(*heard.closed.lock().unwrap(), [3, 4, 6]);
}

#[test]
fn an_order_that_cannot_be_followed_ends_the_process() {
    let (server, heard) = (server(&Shared::default(), false), Heard::default());
    on(&server, Event::Begun, &heard);
    on(&server, Event::Joined { generation: 1 }, &heard);
    let effects = on(&server, Event::Order(ToServer::Commit { step: 3 }, None), &heard);
    let [Effect::End(Err(trouble))] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(heard.said(), [FromServer::Failed(trouble.clone())]);
}
