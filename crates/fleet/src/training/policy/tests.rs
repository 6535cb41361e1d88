//! A training run's places and what fills them, without processes.

mod memory;

use super::*;
use crate::ending::{ANOTHER, PANICKED};
use crate::supervise::Action;
use Agent::{Coordinator, Server, Worker};
use proptest::prelude::*;
use std::collections::BTreeSet;

const LOOK: Duration = Duration::from_millis(20);
const KILLED: Ending = Ending::Signal(9);

/// A supervisor, its clock, and the processes that it asked for.
struct World {
    supervisor: Supervisor,
    now: Duration,
    pids: u32,
    running: BTreeMap<Agent, u32>,
    /// Everything that was started, in order.
    started: Vec<Agent>,
    coordinators: Vec<(u64, Option<String>)>,
    killed: Vec<(Agent, u32)>,
    failed: Option<Loss>,
}

impl World {
    /// With this many servers and workers, and a coordinator that was reached.
    fn new(servers: u32, workers: u32) -> Self {
        let mut world = Self::bare(servers, workers);
        world.tell(Input::Look);
        world.tell(RunInput::Linked);
        world
    }

    fn bare(servers: u32, workers: u32) -> Self {
        Self {
            supervisor: Supervisor::training(1, servers, workers),
            now: Duration::ZERO,
            pids: 100,
            running: BTreeMap::new(),
            started: Vec::new(),
            coordinators: Vec::new(),
            killed: Vec::new(),
            failed: None,
        }
    }

    fn tell(&mut self, input: impl Into<Input<RunInput>>) {
        let mut inputs = vec![input.into()];
        while let Some(input) = inputs.pop() {
            for action in self.supervisor.step(self.now, input) {
                assert!(self.failed.is_none(), "{action:?} after the end");
                let agent = match action {
                    Action::Start { agent } => agent,
                    Action::Kill { agent, pid, .. } => {
                        assert_eq!(self.running.get(&agent), Some(&pid), "killed a stranger");
                        self.killed.push((agent, pid));
                        continue;
                    }
                    Action::Over(loss) => {
                        self.failed = Some(loss);
                        continue;
                    }
                    action => panic!("{action:?} is not for training"),
                };
                if agent == Coordinator {
                    let policy = &self.supervisor.policy;
                    let after = policy.after().map(|loss| loss.message.clone());
                    self.coordinators.push((policy.generation(), after));
                }
                self.pids += 1;
                assert_eq!(self.running.insert(agent, self.pids), None, "two {agent}");
                self.started.push(agent);
                inputs.push(Input::Started { agent, pid: self.pids });
            }
        }
    }

    /// Time passes, in looks, while the coordinator says that it lives.
    fn wait(&mut self, seconds: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while self.now < end {
            self.now += LOOK;
            if self.running.contains_key(&Coordinator) {
                self.tell(RunInput::Heard);
            }
            self.tell(Input::Look);
        }
    }

    fn end(&mut self, agent: Agent, ending: Ending) {
        let pid = self.running.remove(&agent).expect("it runs");
        if agent == Coordinator {
            self.tell(RunInput::LinkGone);
        }
        self.tell(Input::Ended { agent, pid, ending });
    }

    fn ready(&mut self, agent: Agent) {
        let pid = self.running[&agent];
        self.tell(Input::Ready { agent, pid });
    }

    fn all_ready(&mut self) {
        let agents: Vec<Agent> = self.running.keys().copied().collect();
        agents.into_iter().filter(|a| *a != Coordinator).for_each(|agent| self.ready(agent));
    }

    fn times(&self, agent: Agent) -> usize {
        self.started.iter().filter(|a| **a == agent).count()
    }

    fn message(&self) -> &str {
        self.failed.as_ref().map_or("", |loss| &loss.message)
    }
}

#[test]
fn the_coordinator_comes_first_and_the_others_do_not_wait_for_it() {
    let mut world = World::bare(1, 2);
    world.tell(Input::Look);
    assert_eq!(world.coordinators, [(1, None)]);
    assert_eq!(world.started, [Coordinator, Server(0), Worker(0), Worker(1)]);
    world.tell(RunInput::Linked);
    assert_eq!(world.started.len(), 4, "once");
}

#[test]
fn a_worker_is_started_again_at_once_and_then_with_growing_pauses() {
    let mut world = World::new(1, 2);
    world.all_ready();
    world.tell(RunInput::Progress);
    world.wait(60.0);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        world.tell(RunInput::Progress);
        let (before, ended) = (world.times(Worker(1)), world.now);
        world.end(Worker(1), Ending::Code(1));
        while world.times(Worker(1)) == before {
            world.wait(0.02);
        }
        pauses.push((world.now - ended).as_secs_f64());
    }
    let expect = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0];
    let close = |(a, b): (&f64, &f64)| (a - b).abs() < 0.05;
    assert!(pauses.iter().zip(&expect).all(close), "{pauses:?}");
    // Ready for ten seconds, and it counts as new.
    world.ready(Worker(1));
    world.wait(11.0);
    let before = world.times(Worker(1));
    world.end(Worker(1), KILLED);
    assert_eq!(world.times(Worker(1)), before + 1);
    assert_eq!((world.times(Worker(0)), world.failed), (1, None));
}

#[test]
fn one_that_is_ready_each_time_is_not_kept_waiting_long() {
    let mut world = World::new(1, 1);
    for _ in 0..20 {
        world.all_ready();
        world.tell(RunInput::Progress);
        world.wait(1.0);
        world.end(Worker(0), KILLED);
        world.wait(2.1);
        assert!(world.running.contains_key(&Worker(0)));
    }
}

#[test]
fn a_bad_start_does_not_loop() {
    for agent in [Worker(1), Server(0)] {
        let mut world = World::new(1, 2);
        for _ in 0..3 {
            world.wait(1.0);
            world.end(agent, Ending::Code(1));
        }
        let loss = world.failed.clone().unwrap();
        let pid = world.pids;
        assert_eq!(loss.agent, agent);
        assert_eq!(
            loss.message,
            format!(
                "{agent} (process {pid}) was lost: exit code 1, 3 times in a row before it was ready"
            )
        );
    }
    // Another worker that is ready shows that it can be done.
    let mut world = World::new(1, 2);
    world.all_ready();
    world.tell(RunInput::Progress);
    for _ in 0..9 {
        world.wait(31.0);
        world.tell(RunInput::Progress);
        world.end(Worker(1), Ending::Code(1));
    }
    assert_eq!(world.failed, None);
}

#[test]
fn a_worker_that_ends_before_any_step_each_time_ends_the_run() {
    let mut world = World::new(1, 2);
    for _ in 0..5 {
        world.all_ready();
        world.wait(3.0);
        world.end(Worker(1), Ending::Signal(6));
    }
    let message = world.failed.clone().unwrap().message;
    assert!(message.contains("killed by signal 6, 5 times in a row before "), "{message}");
}

#[test]
fn a_process_that_is_killed_from_outside_again_and_again_is_not_given_up() {
    let mut world = World::new(1, 2);
    world.all_ready();
    world.tell(RunInput::Progress);
    for agent in [Server(0), Coordinator, Worker(0)].repeat(12) {
        world.wait(2.1);
        world.tell(RunInput::Linked);
        world.end(agent, KILLED);
    }
    assert_eq!(world.failed, None);
}

#[test]
fn a_process_that_ends_at_once_each_time_is_not_started_in_a_hot_loop() {
    for (agent, most) in [(Worker(0), 8), (Server(0), 6), (Coordinator, 6)] {
        let mut world = World::new(1, 2);
        world.all_ready();
        world.tell(RunInput::Progress);
        world.wait(20.0);
        let before = world.times(agent);
        for _ in 0..600 * 50 {
            if world.running.contains_key(&agent) && world.failed.is_none() {
                world.end(agent, Ending::Code(1));
            }
            world.wait(0.02);
        }
        let times = world.times(agent) - before;
        assert!(times <= most, "{agent} was started {times} times in 10 minutes");
        assert!(world.failed.is_some(), "{agent} is given up");
    }
}

#[test]
fn a_coordinator_that_sees_that_it_cannot_start_is_believed() {
    let mut world = World::bare(1, 1);
    world.tell(Input::Look);
    let pid = world.running.remove(&Coordinator).unwrap();
    world.tell(Input::Ended { agent: Coordinator, pid, ending: Ending::Code(2) });
    assert_eq!(world.message(), "the coordinator did not start: exit code 2");
}

#[test]
fn nothing_that_cannot_be_started_is_asked_for_in_a_loop() {
    let mut supervisor = Supervisor::training(1, 1, 1);
    assert_eq!(supervisor.step(Duration::ZERO, Input::Look).len(), 1);
    let why = "cannot start coordinator: no memory".to_owned();
    let input = Input::NotStarted { agent: Coordinator, why: why.clone() };
    let actions = supervisor.step(Duration::ZERO, input);
    assert_eq!(actions, [Action::Over(Loss { agent: Coordinator, message: why })]);
}

#[test]
fn a_lost_server_brings_a_new_coordinator_in_either_order() {
    for server_first in [true, false] {
        let mut world = World::new(2, 1);
        world.all_ready();
        world.wait(1.0);
        let pid = world.running[&Server(1)];
        let asks = Ending::Code(ANOTHER);
        if server_first {
            world.end(Server(1), KILLED);
            world.end(Coordinator, asks);
        } else {
            world.end(Coordinator, asks);
            world.end(Server(1), KILLED);
        }
        world.wait(0.1);
        assert_eq!((world.times(Server(1)), world.times(Coordinator)), (2, 2));
        assert_eq!((world.times(Server(0)), world.times(Worker(0))), (1, 1));
        let (generation, after) = world.coordinators[1].clone();
        assert_eq!(generation, 2);
        let lost = format!(
            "server-1 (process {pid}) was lost: killed by signal 9 (out of memory, or kill -9)"
        );
        assert_eq!(after, Some(lost), "the server is named, not the coordinator");
    }
}

#[test]
fn a_server_whose_link_alone_was_lost_is_named() {
    let mut world = World::new(2, 1);
    world.all_ready();
    world.wait(1.0);
    let loss = Loss { agent: Server(1), message: "server-1 was lost: its link was cut".into() };
    world.tell(RunInput::ServerLost(loss.clone()));
    world.end(Coordinator, Ending::Code(ANOTHER));
    world.wait(0.1);
    assert_eq!((world.coordinators.len(), world.supervisor.policy.after()), (2, Some(&loss)));
    // What this one lost says nothing of the next, which does not wait for long to be explained.
    world.tell(RunInput::Linked);
    world.end(Coordinator, Ending::Code(ANOTHER));
    world.wait(2.0);
    assert_eq!(world.coordinators.len(), 3);
    assert_eq!(world.supervisor.policy.after().map(|loss| loss.agent), Some(Coordinator));
}

#[test]
fn a_coordinator_is_replaced_with_a_higher_generation_and_the_reason() {
    let mut world = World::new(1, 1);
    world.all_ready();
    for (ending, word) in [(KILLED, "signal 9"), (Ending::Code(PANICKED), "exit code 101")] {
        world.wait(1.0);
        world.tell(RunInput::Progress);
        world.end(Coordinator, ending);
        let (_, after) = world.coordinators.last().unwrap();
        assert!(after.as_ref().unwrap().contains(word), "{after:?}");
        world.tell(RunInput::Linked);
    }
    let generations: Vec<u64> = world.coordinators.iter().map(|c| c.0).collect();
    assert_eq!(generations, [1, 2, 3]);
    assert_eq!((world.times(Worker(0)), world.times(Server(0))), (1, 1));
}

#[test]
fn five_coordinators_in_a_row_without_a_step_are_the_most() {
    let mut world = World::new(1, 1);
    world.all_ready();
    for _ in 0..5 {
        world.end(Coordinator, KILLED);
        world.wait(10.0);
        world.tell(RunInput::Linked);
    }
    assert_eq!(world.failed, None);
    // A step starts the count anew.
    world.tell(RunInput::Progress);
    for _ in 0..5 {
        world.end(Coordinator, KILLED);
        world.wait(10.0);
        world.tell(RunInput::Linked);
    }
    assert_eq!(world.failed, None);
    world.end(Coordinator, Ending::Signal(11));
    assert!(
        world.message().contains("killed by signal 11; 5 coordinators in a row"),
        "{:?}",
        world.failed
    );
    assert_eq!(world.times(Coordinator), 11);
}

#[test]
fn last_words_are_heard_before_a_coordinator_is_replaced() {
    let mut world = World::new(1, 1);
    world.all_ready();
    let pid = world.running.remove(&Coordinator).unwrap();
    world.tell(Input::Ended { agent: Coordinator, pid, ending: Ending::Code(0) });
    assert_eq!(world.times(Coordinator), 1);
    world.tell(RunInput::Over);
    world.tell(RunInput::LinkGone);
    world.end(Worker(0), Ending::Code(0));
    world.wait(60.0);
    assert_eq!((world.times(Coordinator), world.times(Worker(0))), (1, 1));
    assert_eq!(world.failed, None);
    // Should the link never end, it is not waited for for ever.
    let mut world = World::new(1, 1);
    let pid = world.running.remove(&Coordinator).unwrap();
    world.tell(Input::Ended { agent: Coordinator, pid, ending: KILLED });
    world.wait(1.1);
    assert_eq!(world.times(Coordinator), 2);
}

#[test]
fn workers_that_end_well_just_before_the_run_is_over_are_not_started_again() {
    let mut world = World::new(1, 2);
    world.all_ready();
    world.end(Worker(0), Ending::Code(0));
    world.wait(0.4);
    world.tell(RunInput::Over);
    world.wait(10.0);
    assert_eq!(world.times(Worker(0)), 1);
}

#[test]
fn a_silent_coordinator_is_killed_and_replaced() {
    let mut world = World::new(1, 1);
    world.all_ready();
    world.wait(3.0);
    // The look that came with the last pulse counts.
    for _ in 0..248 {
        world.now += LOOK;
        world.tell(Input::Look);
    }
    assert!(world.killed.is_empty());
    world.now += LOOK;
    world.tell(Input::Look);
    let pid = world.running[&Coordinator];
    assert_eq!(world.killed, [(Coordinator, pid)]);
    world.end(Coordinator, KILLED);
    let expect =
        format!("coordinator (process {pid}) was lost: it said nothing for 5 s, and was ended");
    assert_eq!(world.coordinators[1], (2, Some(expect)));
    // A new one may take longer to begin.
    for _ in 0..900 {
        world.now += LOOK;
        world.tell(Input::Look);
    }
    assert_eq!(world.killed.len(), 1);
    for _ in 0..200 {
        world.now += LOOK;
        world.tell(Input::Look);
    }
    assert_eq!(world.killed.len(), 2);
}

#[test]
fn a_coordinator_that_is_heard_after_long_silences_is_waited_for() {
    let mut world = World::new(1, 1);
    world.all_ready();
    world.wait(3.0);
    let silence = |world: &mut World, looks: u32| {
        for _ in 0..looks {
            world.now += LOOK;
            world.tell(Input::Look);
        }
        world.killed.len()
    };
    // A network that loses packets: three seconds, and then it is heard.
    assert_eq!(silence(&mut world, 150), 0);
    world.tell(RunInput::Heard);
    assert_eq!(silence(&mut world, 590), 0, "four times as long is not too long");
    assert_eq!(silence(&mut world, 20), 1, "it is hung");
}

#[test]
fn a_supervisor_that_was_suspended_or_starved_blames_no_process() {
    let mut world = World::new(1, 1);
    world.all_ready();
    for _ in 0..10 {
        // Suspended for an hour; then the pulses that had come in are read.
        world.now += Duration::from_secs(3600);
        world.tell(Input::Look);
        world.wait(0.2);
    }
    for _ in 0..19 {
        world.now += Duration::from_secs(10);
        world.tell(Input::Look);
    }
    assert!(world.killed.is_empty());
    world.now += Duration::from_secs(10);
    world.tell(Input::Look);
    assert_eq!(world.killed.len(), 1);
}

#[test]
fn only_the_process_that_is_there_is_killed() {
    let mut world = World::new(1, 1);
    world.all_ready();
    let old = world.running[&Worker(0)];
    world.end(Worker(0), KILLED);
    let why = "it does not answer".to_owned();
    world.tell(Input::Kill { agent: Worker(0), pid: old, why: why.clone() });
    world.tell(Input::Kill { agent: Worker(5), pid: old, why: why.clone() });
    assert!(world.killed.is_empty());
    let new = world.running[&Worker(0)];
    world.tell(Input::Kill { agent: Worker(0), pid: new, why });
    assert_eq!(world.killed, [(Worker(0), new)]);
    // What an old process did is no news either.
    world.tell(Input::Ended { agent: Worker(0), pid: old, ending: KILLED });
    assert_eq!(world.running[&Worker(0)], new);
}

#[test]
fn the_pool_grows_and_shrinks() {
    let mut world = World::new(1, 2);
    world.all_ready();
    world.tell(RunInput::Pool { workers: 4 });
    assert_eq!((world.times(Worker(2)), world.times(Worker(3))), (1, 1));
    world.all_ready();
    world.tell(RunInput::Pool { workers: 1 });
    world.end(Worker(3), Ending::Code(0));
    world.end(Worker(2), KILLED);
    world.wait(29.0);
    assert_eq!((world.times(Worker(2)), world.times(Worker(3))), (1, 1));
    // Worker 1 was told to end and does not.
    assert!(world.killed.is_empty());
    world.wait(2.0);
    assert_eq!(world.killed, [(Worker(1), world.running[&Worker(1)])]);
    // It is wanted again before it has ended.
    world.tell(RunInput::Pool { workers: 3 });
    world.end(Worker(1), Ending::Code(0));
    world.wait(1.0);
    let times = [0, 1, 2, 3].map(|n| world.times(Worker(n)));
    assert_eq!((times, world.supervisor.policy.workers()), ([1, 2, 2, 1], 3));
}

#[test]
fn processes_that_would_not_hear_of_the_end_are_known() {
    let mut world = World::new(1, 2);
    world.ready(Server(0));
    world.ready(Worker(1));
    assert_eq!(world.supervisor.unready(), [(Worker(0), world.running[&Worker(0)])]);
}

/// Something that happens to a run.
#[derive(Debug, Clone)]
enum Chance {
    Wait(u16),
    End(u8, i32),
    Ready,
    Progress,
    Pool(u8),
    Kill(u8, bool),
    LinkGone,
}

fn chance() -> impl Strategy<Value = Chance> {
    prop_oneof![
        4 => (1u16..3000).prop_map(Chance::Wait),
        6 => (any::<u8>(), prop_oneof![Just(-9), Just(-11), Just(0), Just(1), Just(75), Just(101)])
            .prop_map(|(who, how)| Chance::End(who, how)),
        2 => Just(Chance::Ready),
        2 => Just(Chance::Progress),
        1 => (0u8..8).prop_map(Chance::Pool),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(who, right)| Chance::Kill(who, right)),
        1 => Just(Chance::LinkGone),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Never two processes in one place (`World::tell` sees to it), generations only rise, attempts
    /// are bounded by time and progress, and when it is quiet every process is there or the run failed.
    #[test]
    fn any_course_of_events(servers in 1u32..3, workers in 1u32..4, course in prop::collection::vec(chance(), 0..80)) {
        let mut world = World::new(servers, workers);
        let (mut progress, mut ends) = (0, 0);
        for chance in course {
            let agents: Vec<Agent> = world.running.keys().copied().collect();
            let pick = |who: u8| agents.get(usize::from(who) % agents.len().max(1)).copied();
            match chance {
                Chance::Wait(millis) => world.wait(f64::from(millis) / 1000.0),
                Chance::End(who, how) => if let Some(agent) = pick(who) {
                    ends += 1;
                    world.end(agent, if how < 0 { Ending::Signal(-how) } else { Ending::Code(how) });
                },
                Chance::Ready => world.all_ready(),
                Chance::Progress => { progress += 1; world.tell(RunInput::Progress) }
                Chance::Pool(n) => world.tell(RunInput::Pool { workers: n.into() }),
                Chance::Kill(who, right) => if let Some(agent) = pick(who) {
                    let pid = world.running[&agent] + u32::from(!right);
                    world.tell(Input::Kill { agent, pid, why: "hung".into() });
                },
                Chance::LinkGone => world.tell(RunInput::LinkGone),
            }
            if world.running.contains_key(&Coordinator) {
                world.tell(RunInput::Linked);
            }
        }
        let generations: Vec<u64> = world.coordinators.iter().map(|c| c.0).collect();
        prop_assert!(generations.windows(2).all(|w| w[0] < w[1]));
        prop_assert!(generations.len() <= 1 + 50 * (progress + 1));
        // No process is started but in the place of one that has ended, or because the pool grew.
        prop_assert!(world.started.len() <= 1 + (servers + workers) as usize + ends + 8 * 80);
        world.all_ready();
        world.wait(40.0);
        let wanted = world.supervisor.policy.workers();
        let there: BTreeSet<Agent> = world.running.keys().copied().collect();
        let expect: BTreeSet<Agent> = std::iter::once(Coordinator)
            .chain((0..servers).map(Server))
            .chain((0..wanted).map(Worker))
            .collect();
        prop_assert!(world.failed.is_some() || there.is_superset(&expect), "{:?}", world.running);
    }
}

#[test]
fn a_process_that_no_machine_has_room_for_waits_and_is_not_blamed() {
    let mut supervisor = Supervisor::training(1, 0, 1);
    let mut now = Duration::ZERO;
    let first = supervisor.step(now, Input::Look);
    assert_eq!(first, [Action::Start { agent: Coordinator }]);
    let mut asked = 0;
    let mut actions = supervisor.step(now, Input::Started { agent: Coordinator, pid: 1 });
    actions.extend(supervisor.step(now, RunInput::Linked.into()));
    for _ in 0..10_000 {
        for action in std::mem::take(&mut actions) {
            assert_eq!(action, Action::Start { agent: Worker(0) });
            asked += 1;
            actions.extend(supervisor.step(now, Input::NoRoom { agent: Worker(0) }));
        }
        now += LOOK;
        actions.extend(supervisor.step(now, RunInput::Heard.into()));
        actions.extend(supervisor.step(now, Input::Look));
    }
    assert!(asked > 1000, "asked {asked} times");
}
