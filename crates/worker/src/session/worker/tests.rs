//! A worker whose method counts, told things by hand.

use super::*;
use crate::session::SILENCE;
use crate::session::inbox::{Beat, Heard};
use crate::session::method::Waiting;
use planaria_protocol::message::{FrameLoss, HeldOut};
use planaria_protocol::methods::{Command, sync};
use planaria_protocol::retry::{RETRY, RETRY_SOON};

/// Does one thing for each command, and is over when it is told so.
#[derive(Debug, Default)]
struct Counting {
    prepared: u32,
    sessions: u32,
    wake_at: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
enum Event {
    Done,
    Over,
    Broken,
}

impl Method for Counting {
    type Event = Event;
    type Effect = &'static str;
    type Prepared = ();

    fn prepared(&mut self, (): ()) {
        self.prepared += 1;
    }

    fn joined(&mut self, todo: &mut Todo<Self>) {
        self.sessions += 1;
        todo.push_back(Effect::Own("begin"));
    }

    fn on(
        &mut self,
        _now: Duration,
        input: Input<Event>,
        todo: &mut Todo<Self>,
    ) -> Result<Session, Trouble> {
        match input {
            Input::Command(..) => todo.push_back(Effect::Own("work")),
            Input::Evaluate { part, step, .. } => {
                todo.push_back(Effect::Score(Batch { part, step, batch: 0 }));
            }
            Input::Scored { is_scored: false, .. } | Input::Own(Event::Over) => {
                return Ok(Session::IsOver);
            }
            Input::Scored { .. } => todo.push_back(Effect::Own("scored")),
            Input::Own(Event::Done) => todo.push_back(Effect::Own("done")),
            Input::Own(Event::Broken) => return Err(Trouble::new("broken")),
            Input::Woken => {
                self.wake_at = None;
                todo.push_back(Effect::Own("woken"));
            }
        }
        Ok(Session::GoesOn)
    }

    fn revoke(&mut self, todo: &mut Todo<Self>) {
        todo.push_back(Effect::Own("revoked"));
    }

    fn wake_at(&self) -> Option<Duration> {
        self.wake_at
    }

    fn arrived(order: &ToWorker, waiting: &mut Waiting<Event>) {
        if matches!(order, ToWorker::Revoke { .. }) {
            waiting.retain(|i| !matches!(i, Incoming::Order(ToWorker::Method(_), _)));
        }
    }
}

const START: Duration = Duration::from_secs(100);

fn command() -> ToWorker {
    ToWorker::Method(Command::Sync(sync::Command::Entered { step: 3 }))
}

fn tell(message: FromWorker) -> Effect<&'static str> {
    Effect::Tell(message, Vec::new())
}

/// What it does until there is something to wait for, but for its log.
fn all(worker: &mut Worker<Counting>, now: Duration) -> Vec<Effect<&'static str>> {
    let effects = std::iter::from_fn(|| worker.next(now));
    effects.filter(|effect| !matches!(effect, Effect::Log(_))).collect()
}

fn joined() -> Worker<Counting> {
    let mut worker = Worker::new(Counting::default(), "here", START);
    assert_eq!(all(&mut worker, START), [Effect::Join]);
    worker.joined();
    assert_eq!(all(&mut worker, START), [Effect::Prepare]);
    worker.prepared(());
    assert_eq!(all(&mut worker, START), [Effect::Own("begin")]);
    worker
}

#[test]
fn orders_wait_while_it_prepares_and_it_prepares_once() {
    let mut worker = Worker::new(Counting::default(), "here", START);
    all(&mut worker, START);
    worker.joined();
    worker.inbox().hear(START, command(), Vec::new());
    assert_eq!(all(&mut worker, START), [Effect::Prepare]);
    worker.prepared(());
    assert_eq!(all(&mut worker, START), [Effect::Own("begin"), Effect::Own("work")]);
    worker.inbox().hear(START, ToWorker::Rejoin, Vec::new());
    assert_eq!(all(&mut worker, START), [Effect::Leave]);
    assert_eq!(worker.wake_at(), Some(START + RETRY_SOON));
    assert_eq!(all(&mut worker, START + RETRY_SOON), [Effect::Join]);
    worker.joined();
    assert_eq!(all(&mut worker, START + RETRY_SOON), [Effect::Own("begin")]);
    assert_eq!((worker.method.prepared, worker.method.sessions), (1, 2));
}

#[test]
fn what_others_say_comes_before_what_it_has_done() {
    let mut worker = joined();
    worker.answer(Event::Done);
    worker.inbox().put(Event::Done);
    worker.inbox().hear(START, command(), Vec::new());
    worker.method.wake_at = Some(START);
    let done = Effect::Own("done");
    let expected = [done.clone(), Effect::Own("work"), done, Effect::Own("woken")];
    assert_eq!(all(&mut worker, START), expected);
}

#[test]
fn it_is_revoked_and_says_so_and_what_waited_is_void() {
    let mut worker = joined();
    worker.inbox().hear(START, command(), Vec::new());
    worker.inbox().hear(START, ToWorker::Revoke { ticket: 7 }, Vec::new());
    worker.inbox().hear(START, command(), Vec::new());
    let revoked = tell(FromWorker::Revoked { ticket: 7 });
    let expected = [Effect::Own("revoked"), revoked, Effect::Own("work")];
    assert_eq!(all(&mut worker, START), expected);
}

#[test]
fn scores_are_told_and_where_there_are_none_the_method_knows() {
    let mut worker = joined();
    let (part, step) = (HeldOut::Test, 5);
    let order = ToWorker::Evaluate { part, step, batches: 0..1, enter: false };
    worker.inbox().hear(START, order.clone(), Vec::new());
    let batch = Batch { part, step, batch: 0 };
    assert_eq!(all(&mut worker, START), [Effect::Score(batch)]);
    worker.scored(batch, Some(b"{}".to_vec()));
    let told = Effect::Tell(FromWorker::Evaluated { part, step, batch: 0 }, b"{}".to_vec());
    assert_eq!(all(&mut worker, START), [told, Effect::Own("scored")]);
    worker.inbox().hear(START, order, Vec::new());
    all(&mut worker, START);
    worker.scored(batch, None);
    assert_eq!(all(&mut worker, START), [Effect::Leave]);
}

#[test]
fn the_end_is_the_end() {
    let mut worker = joined();
    let inbox = worker.inbox().clone();
    assert_eq!(inbox.hear(START, ToWorker::Finish, Vec::new()), Heard::Last);
    assert!(inbox.is_ending());
    inbox.hear(START, command(), Vec::new());
    assert_eq!(all(&mut worker, START), [Effect::End(Ok(()))]);
    worker.answer(Event::Done);
    inbox.put(Event::Done);
    assert_eq!((all(&mut worker, START * 2), worker.wake_at()), (vec![], None));
}

#[test]
fn a_lost_coordinator_is_joined_again_and_old_links_are_not_heard() {
    for over in [Some(Event::Over), None] {
        let mut worker = joined();
        let old = worker.inbox().clone();
        match over {
            Some(event) => old.put(event),
            None => old.orphan(),
        }
        assert_eq!(all(&mut worker, START), [Effect::Leave]);
        old.put(Event::Done);
        old.put_when_room(Event::Done);
        assert_eq!(all(&mut worker, START + RETRY_SOON), [Effect::Join]);
        old.put(Event::Done);
        worker.joined();
        assert_eq!(all(&mut worker, START + RETRY_SOON), [Effect::Own("begin")]);
    }
}

#[test]
fn trouble_is_told_and_ends_the_process() {
    let mut worker = joined();
    worker.inbox().put(Event::Broken);
    let trouble = Trouble::new("broken");
    let expected = [tell(FromWorker::Failed(trouble.clone())), Effect::End(Err(trouble))];
    assert_eq!(all(&mut worker, START), expected);
}

#[test]
fn without_a_coordinator_it_ends_after_a_while() {
    let mut worker = Worker::new(Counting::default(), "here", START);
    let mut now = START;
    let ended = loop {
        match &all(&mut worker, now)[..] {
            [Effect::Join] => worker.not_joined(now, "connection refused"),
            [Effect::End(Err(trouble))] => break trouble.message.clone(),
            other => panic!("{other:?}"),
        }
        now = worker.wake_at().unwrap_or(now);
    };
    assert_eq!(ended, "no word from a coordinator at here for 30 seconds: connection refused");
    assert!(now > START + LEASE && now < START + LEASE + 2 * RETRY);
}

#[test]
fn a_silent_coordinator_is_noticed_and_heartbeats_are_heard_without_an_order() {
    let worker = joined();
    let inbox = worker.inbox();
    assert!(!inbox.was_spoken_to());
    assert_eq!(inbox.beat(START + SILENCE), Beat::Alive);
    assert_eq!(inbox.beat(START + 2 * SILENCE), Beat::Silent);
    assert_eq!(inbox.hear(START + 2 * SILENCE, ToWorker::Alive, Vec::new()), Heard::Kept);
    assert_eq!(inbox.beat(START + 2 * SILENCE), Beat::Alive);
    let frame_loss = FrameLoss { drop_per_mille: 1, seconds: 1.0, seed: 1 };
    assert_eq!(
        inbox.hear(START, ToWorker::FrameLoss(frame_loss), vec![]),
        Heard::Fault(frame_loss)
    );
    assert!(inbox.was_spoken_to() && inbox.take().is_none());
}

#[test]
fn too_much_at_once_ends_the_session() {
    let mut worker = joined();
    for _ in 0..1 << 15 {
        worker.inbox().put(Event::Done);
    }
    let effects = all(&mut worker, START);
    assert_eq!((effects.len(), effects.last()), ((1 << 14) + 1, Some(&Effect::Leave)));
}
