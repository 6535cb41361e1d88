//! What becomes of a job, end by end.

use super::*;
use planaria_fleet::supervise::Action;
use proptest::prelude::*;
use std::collections::BTreeSet;

const KILLED: Ending = Ending::Signal(9);
const WELL: Ending = Ending::Code(0);

fn member(role: &str, index: usize) -> Member {
    Member { role: role.into(), index, meets: role != CHIEF }
}

fn members(roles: &[(&str, usize)]) -> Vec<Member> {
    let of = |(role, count): &(&str, usize)| {
        let role = (*role).to_owned();
        (0..*count).map(move |index| member(&role, index)).collect::<Vec<_>>()
    };
    roles.iter().flat_map(of).collect()
}

fn limits() -> Limits {
    Limits { connect: Duration::from_secs(60), timeout: None, silence: None }
}

struct Scene {
    supervisor: Supervisor,
    members: Vec<Member>,
    now: Duration,
}

impl Scene {
    fn new(
        framework: Framework,
        launcher: Launcher,
        roles: &[(&str, usize)],
        restarts: u32,
    ) -> Self {
        let members = members(roles);
        let rules = Rules::new(framework, launcher, &members, true);
        Self::of(rules, members, restarts)
    }

    fn of(rules: Rules, members: Vec<Member>, restarts: u32) -> Self {
        let supervisor = Policy::supervisor(rules, restarts, limits());
        let mut scene = Self { supervisor, members, now: Duration::ZERO };
        scene.round();
        scene
    }

    /// What follows, without what is yet to be looked for.
    fn step(&mut self, input: impl Into<Input<JobInput>>) -> Vec<Action<Outcome>> {
        self.supervisor.step(self.now, input.into())
    }

    /// A process is started, whose number is that of its place.
    fn started(&mut self, id: u32) {
        assert_eq!(self.step(Input::Started { agent: Agent::Task(id), pid: id }), []);
    }

    fn met(&mut self, id: u32) {
        assert_eq!(self.step(Input::Ready { agent: Agent::Task(id), pid: id }), []);
    }

    /// Waits until all are to be started, and starts them.
    #[track_caller]
    fn round(&mut self) {
        for _ in 0..100 {
            let actions = self.step(Input::Look);
            if actions == [Action::StartAll] {
                let members = self.members.clone();
                assert_eq!(self.step(JobInput::Began(members)), []);
                return (0..self.members.len() as u32).for_each(|id| self.started(id));
            }
            assert_eq!(actions, []);
            self.now += Duration::from_millis(500);
        }
        panic!("no round");
    }

    fn restarts(&mut self) -> Vec<Restart> {
        self.supervisor.policy.take_restarts(&self.supervisor.places)
    }

    fn end(&mut self, id: u32, ending: Ending) {
        let agent = Agent::Task(id);
        assert_eq!(self.step(Input::Ended { agent, pid: id, ending }), []);
    }

    #[track_caller]
    fn look(&mut self, expect: &[Action<Outcome>]) {
        assert_eq!(self.step(Input::Look), expect);
    }

    /// Ends what is to end.
    #[track_caller]
    fn stops(&mut self, ids: &[u32]) {
        let stop = |id: &u32| Action::Stop { agent: Agent::Task(*id), pid: *id };
        self.look(&ids.iter().map(stop).collect::<Vec<_>>());
        ids.iter().for_each(|id| self.end(*id, KILLED));
    }
}

#[test]
fn equals_are_done_when_all_are() {
    let mut scene = Scene::new(Framework::Pytorch, Launcher::Direct, &[("worker", 2)], 3);
    scene.end(1, WELL);
    scene.look(&[]);
    scene.end(0, WELL);
    scene.look(&[Action::Over(Outcome::Completed)]);
    scene.look(&[]);
}

#[test]
fn the_process_that_failed_by_itself_is_named_in_whatever_order_they_end() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for why in [None, Some(Why::SamePlace)] {
            let mut scene = Scene::new(Framework::Pytorch, Launcher::Direct, &[("worker", 3)], 3);
            for id in order {
                let ending = Ending::Code(1 + id as i32);
                if id > 0 {
                    assert_eq!(scene.step(JobInput::OfOthers { process: id }), []);
                } else if let Some(why) = why.filter(|_| order[0] == 0) {
                    assert_eq!(scene.step(JobInput::Hopeless { process: id, why }), []);
                }
                scene.end(id, ending);
                if id == 0 {
                    assert_eq!(scene.step(JobInput::Own { process: id, ending, why }), []);
                }
                let told = scene.restarts();
                assert!(told.iter().all(|told| told.failed == 0), "{order:?}: {told:?}");
                // The others are asked to end.
                let _ = scene.step(Input::Look);
            }
            match why {
                None => {
                    assert_eq!(scene.supervisor.policy.restarts(), 1);
                    scene.round();
                }
                Some(why) => {
                    let over = scene.step(Input::Look);
                    let ending = Some(Ending::Code(1));
                    let failed = Outcome::Failed(Failed { process: 0, ending, why, left: None });
                    let is_told = over == [Action::Over(failed)];
                    assert!(is_told || over.is_empty(), "{order:?}: {over:?}");
                    assert_eq!(scene.supervisor.policy.restarts(), 0);
                }
            }
        }
    }
}

#[test]
fn where_all_blame_others_the_first_is_named() {
    let mut scene = Scene::new(Framework::Pytorch, Launcher::Direct, &[("worker", 2)], 3);
    for id in [1, 0] {
        assert_eq!(scene.restarts(), [], "another may still come");
        assert_eq!(scene.step(JobInput::OfOthers { process: id }), []);
        scene.end(id, Ending::Code(1));
    }
    assert_eq!(scene.restarts()[0].failed, 1);
}

#[test]
fn equals_are_all_started_again_with_pauses_and_bounds() {
    let mut scene = Scene::new(Framework::Pytorch, Launcher::Direct, &[("worker", 3)], 2);
    for restarts in 1..=2 {
        scene.end(1, KILLED);
        let told = scene.restarts();
        let left = None;
        assert_eq!(told, [Restart { process: None, restarts, failed: 1, ending: KILLED, left }]);
        scene.stops(&[0, 2]);
        let before = scene.now;
        scene.round();
        assert!(scene.now - before >= PAUSE * restarts, "it waits longer each time");
    }
    scene.end(2, Ending::Code(3));
    scene.end(0, Ending::Code(1));
    scene.stops(&[1]);
    let why = Why::Restarted(2);
    let failed = Failed { process: 2, ending: Some(Ending::Code(3)), why, left: None };
    scene.look(&[Action::Over(Outcome::Failed(failed))]);
}

#[test]
fn a_chief_that_is_done_ends_workers_and_servers() {
    let roles = [("chief", 1), ("worker", 2), ("ps", 1)];
    let mut scene = Scene::new(Framework::Tensorflow, Launcher::Direct, &roles, 3);
    scene.end(2, KILLED);
    assert_eq!(scene.restarts()[0].process, Some(2));
    scene.look(&[]);
    scene.now += PAUSE;
    scene.look(&[Action::Start { agent: Agent::Task(2) }]);
    scene.started(2);
    scene.look(&[]);
    scene.end(0, WELL);
    scene.stops(&[1, 2, 3]);
    scene.look(&[Action::Over(Outcome::Completed)]);
    assert_eq!(scene.supervisor.policy.restarts(), 1);
}

#[test]
fn clusters_of_tensorflow_1_end_with_their_master_or_all_workers() {
    let roles = [("master", 1), ("worker", 1), ("ps", 1)];
    let mut scene = Scene::new(Framework::Tensorflow, Launcher::Direct, &roles, 3);
    scene.end(0, WELL);
    scene.stops(&[1, 2]);
    scene.look(&[Action::Over(Outcome::Completed)]);

    let roles = [("worker", 2), ("ps", 1)];
    let mut scene = Scene::new(Framework::Tensorflow, Launcher::Direct, &roles, 3);
    (0..3).for_each(|id| scene.met(id));
    scene.end(0, WELL);
    scene.now += Duration::from_secs(3600);
    scene.look(&[]);
    scene.end(1, WELL);
    scene.stops(&[2]);
    scene.look(&[Action::Over(Outcome::Completed)]);
}

#[test]
fn without_its_server_or_chief_all_begin_again() {
    let roles = [("chief", 1), ("worker", 1), ("ps", 1)];
    for lost in [0, 2] {
        let mut scene = Scene::new(Framework::Tensorflow, Launcher::Direct, &roles, 3);
        scene.end(lost, Ending::MachineLost);
        assert_eq!(scene.restarts()[0].process, None);
        let others: Vec<u32> = (0..3).filter(|id| *id != lost).collect();
        scene.stops(&others);
        scene.round();
    }
}

#[test]
fn a_worker_that_fails_after_the_first_was_done_is_told() {
    let mut scene = Scene::new(Framework::Tensorflow, Launcher::Direct, &[("worker", 2)], 3);
    scene.end(0, WELL);
    scene.look(&[]);
    scene.end(1, Ending::Code(4));
    let actions = scene.step(Input::Look);
    let [Action::Over(Outcome::Failed(failed))] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((failed.process, failed.ending), (1, Some(Ending::Code(4))));
    assert_eq!(failed.why, Why::LeaderDone);

    let mut scene = Scene::new(Framework::Pytorch, Launcher::Direct, &[("worker", 2)], 3);
    scene.met(0);
    scene.met(1);
    scene.end(0, WELL);
    scene.now += Duration::from_secs(61);
    scene.look(&[]);
    scene.stops(&[1]);
    let actions = scene.step(Input::Look);
    assert!(matches!(&actions[..], [Action::Over(Outcome::Failed(failed))] if failed.process == 1));
}

#[test]
fn a_process_that_never_meets_the_others_is_named() {
    let mut scene = Scene::new(Framework::Pytorch, Launcher::Direct, &[("worker", 2)], 3);
    scene.met(0);
    assert_eq!(scene.supervisor.policy.unmet(&scene.supervisor.places), [1]);
    scene.now += Duration::from_secs(61);
    scene.look(&[]);
    scene.stops(&[0, 1]);
    let failed = Failed { process: 1, ending: None, why: Why::NeverMet, left: None };
    scene.look(&[Action::Over(Outcome::Failed(failed))]);
}

#[test]
fn launchers_begin_again_together_where_all_are_to_stay() {
    let roles = [("torchrun", 3)];
    let mut scene = Scene::new(Framework::Pytorch, Launcher::Torchrun, &roles, 3);
    scene.end(1, Ending::MachineLost);
    scene.stops(&[0, 2]);
    assert!(scene.supervisor.policy.trains_together());
}

#[test]
fn elastic_launchers_are_replaced_one_by_one_but_for_the_first() {
    let members = members(&[("torchrun", 3)]);
    let rules = Rules::new(Framework::Pytorch, Launcher::Torchrun, &members, true);
    let mut scene = Scene::of(Rules { is_elastic: true, ..rules }, members, 3);
    scene.end(1, KILLED);
    scene.now += PAUSE;
    scene.look(&[Action::Start { agent: Agent::Task(1) }]);
    scene.started(1);
    scene.end(0, KILLED);
    scene.stops(&[1, 2]);
    scene.round();
    scene.end(2, Ending::Code(1));
    scene.stops(&[0, 1]);
    let actions = scene.step(Input::Look);
    assert!(matches!(&actions[..], [Action::Over(Outcome::Failed(failed))] if failed.process == 2));
}

#[test]
fn plain_scripts_are_alone() {
    let members = members(&[("worker", 2)]);
    let rules = Rules::new(Framework::Plain, Launcher::Direct, &members, false);
    let alone = |role: &Member| Member { meets: false, ..role.clone() };
    let mut scene = Scene::of(rules, members.iter().map(alone).collect(), 1);
    scene.end(0, WELL);
    scene.end(1, Ending::Code(1));
    scene.now = Duration::from_secs(2);
    scene.look(&[Action::Start { agent: Agent::Task(1) }]);
    scene.started(1);
    scene.now = Duration::from_secs(3);
    scene.end(1, WELL);
    scene.look(&[Action::Over(Outcome::Completed)]);
}

#[test]
fn a_stop_ends_all_of_it() {
    let mut scene = Scene::new(Framework::Jax, Launcher::Direct, &[("worker", 2)], 3);
    scene.step(JobInput::Interrupted);
    assert!(scene.supervisor.places.is_ending());
    scene.stops(&[0, 1]);
    scene.look(&[Action::Over(Outcome::Interrupted)]);
}

#[test]
fn what_is_lost_with_one_machine_counts_once() {
    let roles = [("chief", 1), ("worker", 2), ("ps", 1)];
    let mut scene = Scene::new(Framework::Tensorflow, Launcher::Direct, &roles, 1);
    scene.end(2, Ending::MachineLost);
    scene.end(3, Ending::MachineLost);
    let told = scene.restarts();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].process, told[0].failed, told[0].restarts), (None, 3, 1));
    scene.stops(&[0, 1]);
    scene.round();
}

/// A job whose processes start when they are asked to, and end when they are stopped.
struct World {
    supervisor: Supervisor,
    members: Vec<Member>,
    now: Duration,
    pids: u32,
    running: BTreeMap<u32, u32>,
    outcome: Option<Outcome>,
}

impl World {
    fn tell(&mut self, input: impl Into<Input<JobInput>>) {
        let mut inputs = vec![input.into()];
        while let Some(input) = inputs.pop() {
            for action in self.supervisor.step(self.now, input) {
                assert_eq!(self.outcome, None, "{action:?} after the end");
                match action {
                    Action::StartAll => {
                        assert_eq!(self.running, BTreeMap::new());
                        let members = self.members.clone();
                        self.supervisor.step(self.now, JobInput::Began(members).into());
                        (0..self.members.len() as u32).for_each(|id| inputs.push(self.start(id)));
                    }
                    Action::Start { agent: Agent::Task(id) } => inputs.push(self.start(id)),
                    Action::Stop { agent: Agent::Task(id), pid } => {
                        assert_eq!(self.running.remove(&id), Some(pid), "stopped twice");
                        let (agent, ending) = (Agent::Task(id), KILLED);
                        inputs.push(Input::Ended { agent, pid, ending });
                    }
                    Action::Over(outcome) => {
                        assert_eq!(self.running, BTreeMap::new(), "left running");
                        self.outcome = Some(outcome);
                    }
                    other => panic!("{other:?} is not for scripts"),
                }
            }
        }
    }

    fn start(&mut self, id: u32) -> Input<JobInput> {
        self.pids += 1;
        assert_eq!(self.running.insert(id, self.pids), None, "two of {id}");
        Input::Started { agent: Agent::Task(id), pid: self.pids }
    }

    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds * 4 {
            self.now += Duration::from_millis(250);
            self.tell(Input::Look);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Never two processes in a place, no more restarts than are allowed, nothing runs when it is
    /// over, and when all end well it is over.
    #[test]
    fn any_course_of_events(
        framework in 0usize..4,
        torchrun: bool,
        services in 0usize..2,
        restarts in 0u32..4,
        course in prop::collection::vec((0u32..6, -9i32..2, 0u64..40, any::<bool>()), 0..40),
    ) {
        use Framework::{Plain, Pytorch, Tensorflow, Jax};
        let framework = [Tensorflow, Pytorch, Jax, Plain][framework];
        let launcher = if torchrun { Launcher::Torchrun } else { Launcher::Direct };
        let members = members(&[("chief", 1), ("worker", 3), ("ps", services)]);
        let rules = Rules::new(framework, launcher, &members, true);
        let supervisor = Policy::supervisor(rules, restarts, limits());
        let (running, now) = (BTreeMap::new(), Duration::ZERO);
        let mut world = World { supervisor, members, now, pids: 0, running, outcome: None };
        let mut told = 0;
        for (id, code, seconds, meets) in course {
            world.wait(seconds);
            let Some(pid) = world.running.get(&id).copied() else { continue };
            let agent = Agent::Task(id);
            world.tell(Input::Ready { agent, pid });
            if !meets {
                world.running.remove(&id);
                let ending = if code < 0 { Ending::Signal(-code) } else { Ending::Code(code) };
                world.tell(Input::Ended { agent, pid, ending });
            }
            told += world.supervisor.policy.take_restarts(&world.supervisor.places).len() as u32;
        }
        prop_assert!(world.supervisor.policy.restarts() <= restarts && told <= restarts);
        // All that is left ends well, and services with it.
        let services: BTreeSet<u32> =
            (0..).zip(&world.members).filter(|(_, m)| is_service(m)).map(|(id, _)| id).collect();
        for _ in 0..20 {
            world.wait(40);
            for (id, pid) in world.running.clone() {
                if !services.contains(&id) && world.running.remove(&id).is_some() {
                    let (agent, ending) = (Agent::Task(id), WELL);
                    world.tell(Input::Ended { agent, pid, ending });
                }
            }
        }
        prop_assert!(world.outcome.is_some(), "{:?}", world.running);
    }
}

/// Two workers that have met, and a limit in seconds.
fn limited(timeout: Option<u64>, silence: Option<u64>) -> Scene {
    let mut scene = Scene::new(Framework::Pytorch, Launcher::Direct, &[("worker", 2)], 3);
    (0..2).for_each(|id| scene.met(id));
    let limits = &mut scene.supervisor.policy.patience.limits;
    limits.timeout = timeout.map(Duration::from_secs);
    limits.silence = silence.map(Duration::from_secs);
    scene
}

impl Scene {
    /// Looks as often as a controller does; whether time is up then.
    fn is_stuck_after(&mut self, seconds: u32) -> bool {
        for _ in 0..seconds * 4 {
            self.now += Duration::from_millis(250);
            self.look(&[]);
        }
        self.supervisor.policy.take_stuck()
    }

    /// Process 1 is found to be waited for.
    #[track_caller]
    fn ends_by(&mut self, why: Why) {
        assert!(!self.supervisor.policy.take_stuck(), "it is said once");
        assert_eq!(self.step(JobInput::Looked { process: 1 }), []);
        self.stops(&[0, 1]);
        let failed = Failed { process: 1, ending: None, why, left: None };
        self.look(&[Action::Over(Outcome::Failed(failed))]);
    }
}

#[test]
fn a_job_that_takes_too_long_is_ended() {
    let mut scene = limited(Some(100), None);
    assert!(!scene.is_stuck_after(99));
    scene.supervisor.policy.wrote();
    assert!(scene.is_stuck_after(2), "whatever it writes");
    scene.ends_by(Why::TimedOut);
}

#[test]
fn a_job_that_writes_nothing_is_ended() {
    let mut scene = limited(None, Some(30));
    assert!(!scene.is_stuck_after(29));
    // The controller was suspended.
    scene.now += Duration::from_secs(3600);
    scene.look(&[]);
    scene.supervisor.policy.wrote();
    assert!(!scene.is_stuck_after(29));
    assert!(scene.is_stuck_after(2));
    scene.supervisor.policy.wrote();
    assert_eq!(scene.step(JobInput::Looked { process: 1 }), []);
    assert!(!scene.is_stuck_after(29), "it went on while machines were asked");
    assert!(scene.is_stuck_after(2));
    scene.ends_by(Why::Silent);
}

#[test]
fn machines_that_do_not_answer_keep_no_job_from_its_end() {
    let mut scene = limited(Some(10), None);
    assert!(scene.is_stuck_after(11));
    assert!(!scene.is_stuck_after(14));
    scene.now += Duration::from_secs(2);
    scene.look(&[]);
    scene.stops(&[0, 1]);
    let failed = Failed { process: 0, ending: None, why: Why::TimedOut, left: None };
    scene.look(&[Action::Over(Outcome::Failed(failed))]);
}

#[test]
fn a_process_that_waits_for_its_machine_is_not_silent() {
    let roles = [("worker", 2), ("ps", 1)];
    let mut scene = Scene::new(Framework::Tensorflow, Launcher::Direct, &roles, 3);
    (0..3).for_each(|id| scene.met(id));
    scene.supervisor.policy.patience.limits.silence = Some(Duration::from_secs(8));
    scene.end(1, Ending::MachineLost);
    for _ in 0..240 {
        scene.now += Duration::from_millis(250);
        scene.step(Input::Look);
    }
    assert!(!scene.supervisor.policy.take_stuck(), "its machine is being replaced");
    scene.started(1);
    scene.met(1);
    assert!(!scene.is_stuck_after(7));
    assert!(scene.is_stuck_after(2));
}

#[test]
fn a_job_whose_machines_do_not_come_back_in_time_is_ended() {
    let mut scene = limited(Some(10), None);
    scene.end(0, Ending::MachineLost);
    scene.stops(&[1]);
    scene.now += Duration::from_secs(11);
    scene.look(&[]);
    scene.now += Duration::from_secs(11);
    scene.look(&[Action::StartAll]);
    assert!(scene.supervisor.policy.is_too_late(scene.now));
    scene.step(JobInput::TooLate);
    let failed = Failed { process: 0, ending: None, why: Why::TimedOut, left: None };
    scene.look(&[Action::Over(Outcome::Failed(failed))]);
}

#[test]
fn who_left_early_is_remembered() {
    let mut scene = Scene::new(Framework::Pytorch, Launcher::Direct, &[("worker", 3)], 0);
    scene.end(2, WELL);
    scene.end(0, Ending::Code(1));
    scene.stops(&[1]);
    let why = Why::Restarted(0);
    let failed = Failed { process: 0, ending: Some(Ending::Code(1)), why, left: Some(2) };
    scene.look(&[Action::Over(Outcome::Failed(failed))]);
}
