//! Stops, exits and the end of a run, as its controller sees them.

use super::*;
use crate::ending::Ending;
use planaria_protocol::event::Started;

const COORDINATOR: u32 = 100;
const WORKER: Agent = Agent::Worker(0);

/// A controller whose effects are done as far as they are starts.
struct Run {
    controller: Controller,
    now: Duration,
    pids: u32,
}

impl Run {
    /// A run whose processes are all there.
    fn begun() -> Self {
        let controller = Controller::new(1, 1, 1);
        let mut run = Self { controller, now: Duration::ZERO, pids: COORDINATOR };
        run.on(Happening::Look);
        run.on(Happening::Linked);
        run.on(Happening::Event(&event(1, What::Started(started()))));
        run
    }

    /// What is to be done besides starting.
    fn on(&mut self, happening: Happening<'_>) -> Vec<Effect> {
        let mut left = Vec::new();
        let mut effects = self.controller.on(self.now, happening);
        while !effects.is_empty() {
            let effect = effects.remove(0);
            let agent = match &effect {
                Effect::Start { agent } => *agent,
                Effect::Coordinate { .. } => Agent::Coordinator,
                _ => {
                    left.push(effect);
                    continue;
                }
            };
            let pid = self.pids;
            self.pids += 1;
            effects.extend(self.controller.on(self.now, Happening::Started { agent, pid }));
        }
        left
    }

    fn pass(&mut self, seconds: u64) -> Vec<Effect> {
        let mut done = Vec::new();
        for _ in 0..seconds * 50 {
            self.now += LOOK_EVERY;
            done.extend(self.on(Happening::Look));
        }
        done
    }
}

fn event(generation: u64, what: What) -> Event {
    Event { seconds: 0.0, unix_seconds: 0.0, generation, what }
}

fn started() -> Started {
    Started {
        run_id: String::new(),
        recipe: String::new(),
        version: String::new(),
        recipe_sha256: String::new(),
        step: 0,
        epochs: 1,
        steps_per_epoch: 10,
        examples: 10,
        parameters: 1,
        classification: false,
        workers: 1,
        servers: 1,
        shards: 1,
        batch: 1,
        digest: Default::default(),
    }
}

fn ended_event() -> What {
    What::Ended {
        outcome: planaria_protocol::message::Outcome::Completed,
        reason: None,
        step: 10,
        weights_sha256: None,
        trouble: None,
        state: None,
    }
}

fn stop() -> Effect {
    Effect::Tell(FromConsole::Stop { reason: "Ctrl-C".into() })
}

fn killed(agent: Agent, pid: u32) -> Exit {
    Exit { agent, pid, ending: Ending::Signal(9) }
}

#[test]
fn a_stop_is_told_once_to_every_coordinator() {
    let mut run = Run::begun();
    assert_eq!(run.on(Happening::Stop { reason: "Ctrl-C" }), [stop()]);
    assert_eq!(run.on(Happening::Stop { reason: "again" }), []);
    run.on(Happening::Event(&event(1, What::Stopping { reason: "Ctrl-C".into() })));
    run.on(Happening::LinkGone);
    run.on(Happening::Exited(killed(Agent::Coordinator, COORDINATOR)));
    run.pass(2);
    assert_eq!(run.controller.generation(), 2);
    // What one said that is gone, another has not been told, though it tells that it was said.
    let told = run.on(Happening::Linked);
    assert_eq!(told, [stop()]);
    let stopping = event(1, What::Stopping { reason: "Ctrl-C".into() });
    assert_eq!(run.on(Happening::Event(&stopping)), []);
}

#[test]
fn an_unanswered_stop_fails_in_the_end() {
    let mut run = Run::begun();
    run.on(Happening::LinkGone);
    assert_eq!(run.on(Happening::Stop { reason: "Ctrl-C" }), []);
    let mut waited = 0;
    let done = loop {
        waited += 1;
        // A coordinator that lives, says so, and takes no link.
        let done = run.pass(1);
        if done.iter().any(|effect| matches!(effect, Effect::End(_))) || waited > 60 {
            break done;
        }
    };
    let failed = Effect::End(Err(Failed::StopUnheard(STOP_WITHIN)));
    assert!(done.contains(&failed), "{done:?}");
    assert!((29..=32).contains(&waited), "{waited} s");
}

#[test]
fn who_has_ended_is_told_as_soon_as_there_is_a_link() {
    let mut run = Run::begun();
    let worker = run.controller.unready().iter().find(|(agent, _)| *agent == WORKER).unwrap().1;
    run.on(Happening::LinkGone);
    let exit = killed(WORKER, worker);
    assert_eq!(run.on(Happening::Exited(exit)), []);
    let told = run.on(Happening::Linked);
    assert_eq!(told, [ended(exit)]);
    assert_eq!(run.controller.exits(), [exit]);
    assert_eq!(run.on(Happening::LinkGone), []);
    assert_eq!(run.on(Happening::Linked), [], "once");
    let read = Default::default();
    let committed = What::Committed { epoch: 0, first_step: 0, end_step: 1, read };
    run.on(Happening::Event(&event(1, committed)));
    assert_eq!(run.controller.exits(), [], "a step later that is got over");
}

#[test]
fn a_run_is_over_when_the_coordinator_has_taken_its_leave() {
    let mut run = Run::begun();
    assert_eq!(run.on(Happening::Event(&event(1, ended_event()))), []);
    assert_eq!(run.on(Happening::Finish), [Effect::End(Ok(()))]);

    // Or is gone, or has taken too long.
    let mut run = Run::begun();
    run.on(Happening::Event(&event(1, ended_event())));
    assert_eq!(run.on(Happening::LinkGone), [Effect::End(Ok(()))]);
    let mut run = Run::begun();
    run.on(Happening::Event(&event(1, ended_event())));
    assert!(run.pass(9).is_empty());
    assert!(run.pass(2).contains(&Effect::End(Ok(()))));

    // It ends well only when it has written down how the run ended.
    let mut run = Run::begun();
    run.on(Happening::LinkGone);
    let exit = Exit { agent: Agent::Coordinator, pid: COORDINATOR, ending: Ending::Code(0) };
    assert!(run.on(Happening::Exited(exit)).contains(&Effect::End(Ok(()))));
}

#[test]
fn a_coordinator_that_tells_of_a_lost_server_first_is_not_what_was_lost() {
    let mut run = Run::begun();
    let (agent, reason) = ("server-0".to_owned(), "its link was cut".to_owned());
    run.on(Happening::Event(&event(1, What::Lost { agent, pid: 101, reason })));
    let ending = Ending::Code(crate::ending::ANOTHER);
    run.on(Happening::LinkGone);
    run.on(Happening::Exited(Exit { agent: Agent::Coordinator, pid: COORDINATOR, ending }));
    let after = run.controller.supervisor.policy.after().cloned();
    let message = "server-0 was lost: its link was cut".to_owned();
    assert_eq!(after, Some(Loss { agent: Agent::Server(0), message }));
}
