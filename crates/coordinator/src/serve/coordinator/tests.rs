//! The coordinator as a value, around a run that decides what a test says.

use super::*;
use planaria_protocol::event::Pulse;
use planaria_protocol::state::State;
use std::sync::Mutex;

/// A run that notes what it is told, and decides what it was given.
#[derive(Clone, Default)]
struct Script {
    lines: Arc<Mutex<(Vec<Input>, Vec<Action>)>>,
    state: State,
}

impl Script {
    fn decide(&self, actions: impl IntoIterator<Item = Action>) {
        self.lines.lock().unwrap().1.extend(actions);
    }

    fn told(&self) -> Vec<Input> {
        std::mem::take(&mut self.lines.lock().unwrap().0)
    }
}

impl Decider for Script {
    fn refusal(&self, join: &Join) -> Option<String> {
        (join.build == "other").then(|| "another build".into())
    }

    fn step(&mut self, _now: Duration, input: Input) -> Vec<Decision> {
        let mut lines = self.lines.lock().unwrap();
        lines.0.push(input);
        let actions = std::mem::take(&mut lines.1).into_iter();
        actions.map(|action| Decision { action, reason: "why".into() }).collect()
    }

    fn pulse(&self, _now: Duration) -> Pulse {
        Pulse::default()
    }

    fn state(&self) -> &State {
        &self.state
    }

    fn seconds(&self, now: Duration) -> f64 {
        now.as_secs_f64()
    }
}

const NOW: Moment = Moment { at: Duration::from_secs(1), unix_seconds: 9.0 };

fn stopping(reason: &str) -> What {
    What::Stopping { reason: reason.into() }
}

fn begin(untold: Untold) -> (Coordinator, Vec<Effect>, Script) {
    let manifest = Manifest {
        format: 0,
        planaria: String::new(),
        build: String::new(),
        generation: 3,
        step: 0,
        recipe_sha256: String::new(),
        recipe: String::new(),
        data: Vec::new(),
        state: State::default(),
        parameters: 5,
        state_values: 0,
        slots: 0,
        parts: Vec::new(),
    };
    let script = Script::default();
    let beginning = Beginning {
        run: Box::new(script.clone()),
        generation: 3,
        manifest,
        ranges: vec![0..4, 4..5],
        told: Vec::new(),
    };
    let (coordinator, effects) = Coordinator::begin(NOW, beginning, untold);
    (coordinator, effects, script)
}

fn join(agent: Agent, pid: u32) -> Join {
    Join::new(agent, String::new(), pid)
}

fn without_log(effects: Vec<Effect>) -> Vec<Effect> {
    effects.into_iter().filter(|effect| !matches!(effect, Effect::Log(_))).collect()
}

fn written(effects: &[Effect]) -> Vec<What> {
    let what = |effect: &Effect| match effect {
        Effect::Write(event) => Some(event.what.clone()),
        _ => None,
    };
    effects.iter().filter_map(what).collect()
}

#[test]
fn what_was_left_untold_is_written_before_the_record_and_the_start() {
    let events = vec![stopping("a"), stopping("b")];
    let record = Some(Record::new(State::default()));
    let (_, effects, _) = begin(Untold { events, record, started: Some(stopping("c")) });
    let effects = without_log(effects);
    assert!(matches!(
        effects[..],
        [Effect::Write(_), Effect::Write(_), Effect::KeepRecord(_), Effect::Write(_)]
    ));
    assert_eq!(written(&effects), ["a", "b", "c"].map(stopping));
}

#[test]
fn a_link_whose_place_another_has_taken_is_closed_and_not_heard() {
    let (mut coordinator, _, script) = begin(Untold::default());
    let worker = Agent::Worker(4);
    assert_eq!(coordinator.on(NOW, Event::Linked(1, join(worker, 7))), []);
    let effects = coordinator.on(NOW, Event::Linked(2, join(worker, 8)));
    assert_eq!(effects, [Effect::Close(1)]);
    script.told();
    for event in [
        Event::Worker(1, FromWorker::Alive, Vec::new()),
        Event::Gone(1, "it went away".into()),
        Event::Server(2, FromServer::Alive, Vec::new()),
    ] {
        coordinator.on(NOW, event);
    }
    assert_eq!(script.told(), [], "an old link, and words that are not a worker's");
    coordinator.on(NOW, Event::Worker(2, FromWorker::Alive, Vec::new()));
    coordinator.on(NOW, Event::Gone(2, "it went away".into()));
    let left = Left { agent: worker, pid: 8, how: "it went away".into(), ended: false };
    assert_eq!(script.told(), [Input::worker(4, FromWorker::Alive), Input::Left(left)]);
}

#[test]
fn effects_come_in_the_order_of_decisions_and_to_those_who_are_linked() {
    let (mut coordinator, _, script) = begin(Untold::default());
    coordinator.on(NOW, Event::Linked(1, join(Agent::Server(0), 7)));
    let commit = |server| Action::ToServer(server, ToServer::Commit { step: 2 });
    let record = Box::new(Record::new(State::default()));
    script.decide([
        Action::Keep(record.clone()),
        commit(0),
        commit(1),
        Action::Record(stopping("x")),
        Action::Restart,
    ]);
    let effects = without_log(coordinator.on(NOW, Event::Tick));
    assert_eq!(effects[0], Effect::KeepRecord(record));
    let sent = Message::Server(ToServer::Commit { step: 2 });
    assert_eq!(effects[1], Effect::Send(1, sent, None), "and nothing to one who is not there");
    assert_eq!(written(&effects[2..3]), [stopping("x")]);
    assert_eq!(effects[3], Effect::Leave(Leave::Restart));
}

/// The events, by their indices, that a link was sent, and the index of the next page.
fn page(effects: &[Effect], to: LinkId) -> (Vec<u64>, Option<u64>) {
    let (mut indices, mut more) = (Vec::new(), None);
    for effect in effects {
        match effect {
            Effect::Send(link, Message::Console(ToConsole::Event { index }), _) if *link == to => {
                indices.push(*index);
            }
            Effect::Send(link, Message::Console(ToConsole::More { from }), _) if *link == to => {
                more = Some(*from);
            }
            _ => {}
        }
    }
    (indices, more)
}

#[test]
fn a_console_hears_of_a_long_session_page_by_page() {
    let (mut coordinator, _, script) = begin(Untold::default());
    for n in 0..2500 {
        script.decide([Action::Record(stopping(&n.to_string()))]);
        coordinator.on(NOW, Event::Tick);
    }
    let mut heard = Vec::new();
    coordinator.on(NOW, Event::Linked(1, join(Agent::Console, 1)));
    let watch = Event::Console(1, FromConsole::Watch { supervises: true });
    let (mut indices, mut more) = page(&coordinator.on(NOW, watch), 1);
    while let Some(from) = more {
        assert_eq!(indices.len(), 1000);
        heard.append(&mut indices);
        // Meanwhile the run goes on; the console hears of it in its turn.
        script.decide([Action::Record(stopping("more"))]);
        assert_eq!(page(&coordinator.on(NOW, Event::Tick), 1), (Vec::new(), None));
        let next = Event::Console(1, FromConsole::More { from });
        (indices, more) = page(&coordinator.on(NOW, next), 1);
    }
    heard.append(&mut indices);
    assert!(heard.iter().copied().eq(0..2502), "{} events", heard.len());
    script.decide([Action::Record(stopping("last"))]);
    assert_eq!(page(&coordinator.on(NOW, Event::Tick), 1).0, [2502]);

    // The end comes after the rest, also for one that has not asked for it.
    coordinator.on(NOW, Event::Linked(2, join(Agent::Console, 2)));
    coordinator.on(NOW, Event::Console(2, FromConsole::Watch { supervises: false }));
    script.decide([Action::End]);
    let effects = coordinator.on(NOW, Event::Tick);
    assert!(page(&effects, 2).0.into_iter().eq(1000..2503));
    let is_end =
        |effect: &Effect| matches!(effect, Effect::Send(2, Message::Console(ToConsole::Finish), _));
    let last_event = effects.iter().rposition(|e| matches!(e, Effect::Send(2, _, Some(_))));
    assert!(effects.iter().position(is_end) > last_event);
}

#[test]
fn one_that_is_not_part_of_the_run_is_sent_away() {
    let (mut coordinator, _, script) = begin(Untold::default());
    let other = Join { build: "other".into(), ..join(Agent::Worker(0), 7) };
    let effects = coordinator.on(NOW, Event::Linked(1, other));
    let [Effect::Log(line), Effect::Close(1)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(line, "worker-0 (process 7) was refused: another build");
    assert_eq!(script.told(), [], "the run does not hear of it");
    coordinator.on(NOW, Event::Gone(1, "closed".into()));
    assert_eq!(script.told(), []);
}

#[test]
fn a_console_that_watches_hears_every_event_and_only_a_supervisor_is_asked_to_kill() {
    let untold = Untold { started: Some(stopping("a")), ..Untold::default() };
    let (mut coordinator, _, script) = begin(untold);
    for link in [1, 2] {
        coordinator.on(NOW, Event::Linked(link, join(Agent::Console, 0)));
        let watch = FromConsole::Watch { supervises: link == 2 };
        let effects = coordinator.on(NOW, Event::Console(link, watch));
        assert!(matches!(
            effects[..],
            [Effect::Send(to, Message::Console(ToConsole::Event { index: 0 }), Some(_))]
                if to == link
        ));
    }
    script.decide([Action::Record(stopping("b")), Action::Kill(Agent::Worker(0), 5), Action::End]);
    let effects = without_log(coordinator.on(NOW, Event::Tick));
    let sent: Vec<(LinkId, ToConsole)> = effects
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Send(link, Message::Console(message), _) => Some((link, message)),
            _ => None,
        })
        .collect();
    let event = ToConsole::Event { index: 1 };
    let kill = ToConsole::Kill { agent: Agent::Worker(0), pid: 5, why: "why".into() };
    let finish = ToConsole::Finish;
    assert_eq!(sent, [(1, event.clone()), (2, event), (2, kill), (1, finish.clone()), (2, finish)]);
}

#[test]
fn a_checkpoint_is_a_folder_its_parts_and_its_manifest() {
    let (mut coordinator, _, script) = begin(Untold::default());
    let part = |file: &str| PartInfo { file: file.into(), sha256: String::new(), bytes: 1 };
    let saving = Saving {
        state: State { step: 2, ..State::default() },
        is_best: true,
        reason: "due".into(),
        parts: vec![Some(part("part-0")), Some(part("part-1"))],
    };
    script.decide([Action::WriteManifest(Box::new(saving.clone())), Action::Abandon]);
    assert_eq!(coordinator.on(NOW, Event::Tick), [], "there is no folder");
    let folder = PathBuf::from("step-2");
    let begun = CheckpointBegun { step: 2, folder: Ok(folder.clone()), vanished: None };
    script.decide([Action::WriteManifest(Box::new(saving)), Action::Abandon]);
    let effects = coordinator.on(NOW, Event::CheckpointBegun(begun.clone()));
    let [Effect::WriteManifest { folder: to, manifest, is_best: true }] = &effects[..] else {
        panic!("{effects:?}");
    };
    let parts: Vec<(u64, u64)> = manifest.parts.iter().map(|p| (p.start, p.end)).collect();
    assert_eq!((to, manifest.step, parts), (&folder, 2, vec![(0, 4), (4, 5)]));
    script.decide([Action::Abandon]);
    let effects = coordinator.on(NOW, Event::CheckpointBegun(begun));
    assert_eq!(effects, [Effect::Abandon(folder)]);
}
