//! What becomes of a job, end by end.

use super::*;

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

struct Scene {
    decider: Decider,
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
        let policy = Policy::new(framework, launcher, &members, true);
        let decider = Decider::new(policy, restarts, Duration::from_secs(60));
        let mut scene = Self { decider, members, now: Duration::ZERO };
        scene.round();
        scene
    }

    /// Waits until all are to be started, and starts them.
    #[track_caller]
    fn round(&mut self) {
        for _ in 0..100 {
            let actions = self.decider.look(self.now);
            if actions == [Action::Round] {
                self.decider.started(self.now, self.members.clone());
                return;
            }
            assert_eq!(actions, []);
            self.now += Duration::from_millis(500);
        }
        panic!("no round");
    }

    fn end(&mut self, id: u32, ending: Ending) {
        self.decider.ended(self.now, id, ending);
    }

    #[track_caller]
    fn look(&mut self, expect: &[Action]) {
        assert_eq!(self.decider.look(self.now), expect);
    }

    /// Ends what is to end.
    #[track_caller]
    fn stops(&mut self, ids: &[u32]) {
        self.look(&[Action::Stop(ids.to_vec())]);
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
fn equals_are_all_started_again_with_pauses_and_bounds() {
    let mut scene = Scene::new(Framework::Pytorch, Launcher::Direct, &[("worker", 3)], 2);
    for restarts in 1..=2 {
        scene.end(1, KILLED);
        let told = scene.decider.take_restarts();
        assert_eq!(told, [Restart { process: None, restarts, failed: 1, ending: KILLED }]);
        scene.stops(&[0, 2]);
        let before = scene.now;
        scene.round();
        assert!(scene.now - before >= PAUSE * restarts, "it waits longer each time");
    }
    scene.end(2, Ending::Code(3));
    scene.end(0, Ending::Code(1));
    scene.stops(&[1]);
    let why = Why::Restarted(2);
    let failed = Failed { process: 2, ending: Some(Ending::Code(3)), why };
    scene.look(&[Action::Over(Outcome::Failed(failed))]);
}

#[test]
fn a_chief_that_is_done_ends_workers_and_servers() {
    let roles = [("chief", 1), ("worker", 2), ("ps", 1)];
    let mut scene = Scene::new(Framework::Tensorflow, Launcher::Direct, &roles, 3);
    scene.end(2, KILLED);
    assert_eq!(scene.decider.take_restarts()[0].process, Some(2));
    scene.look(&[]);
    scene.now += PAUSE;
    scene.look(&[Action::Start(2)]);
    scene.decider.started_one(scene.now, 2);
    scene.look(&[]);
    scene.end(0, WELL);
    scene.stops(&[1, 2, 3]);
    scene.look(&[Action::Over(Outcome::Completed)]);
    assert_eq!(scene.decider.restarts(), 1);
}

#[test]
fn without_its_server_or_chief_all_begin_again() {
    let roles = [("chief", 1), ("worker", 1), ("ps", 1)];
    for lost in [0, 2] {
        let mut scene = Scene::new(Framework::Tensorflow, Launcher::Direct, &roles, 3);
        scene.end(lost, Ending::MachineLost);
        assert_eq!(scene.decider.take_restarts()[0].process, None);
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
    let actions = scene.decider.look(scene.now);
    let [Action::Over(Outcome::Failed(failed))] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((failed.process, failed.ending), (1, Some(Ending::Code(4))));
    assert_eq!(failed.why, Why::LeaderDone);

    let mut scene = Scene::new(Framework::Pytorch, Launcher::Direct, &[("worker", 2)], 3);
    scene.decider.met(0);
    scene.decider.met(1);
    scene.end(0, WELL);
    scene.now += Duration::from_secs(61);
    scene.look(&[]);
    scene.stops(&[1]);
    let actions = scene.decider.look(scene.now);
    assert!(matches!(&actions[..], [Action::Over(Outcome::Failed(failed))] if failed.process == 1));
}

#[test]
fn whoever_never_meets_the_others_is_named() {
    let mut scene = Scene::new(Framework::Pytorch, Launcher::Direct, &[("worker", 2)], 3);
    scene.decider.met(0);
    assert_eq!(scene.decider.unmet(), [1]);
    scene.now += Duration::from_secs(61);
    scene.look(&[]);
    scene.stops(&[0, 1]);
    let failed = Failed { process: 1, ending: None, why: Why::NeverMet };
    scene.look(&[Action::Over(Outcome::Failed(failed))]);
}

#[test]
fn launchers_are_replaced_one_by_one_but_for_the_first() {
    let roles = [("torchrun", 3)];
    let mut scene = Scene::new(Framework::Pytorch, Launcher::Torchrun, &roles, 3);
    scene.end(1, KILLED);
    scene.now += PAUSE;
    scene.look(&[Action::Start(1)]);
    scene.decider.started_one(scene.now, 1);
    scene.end(0, KILLED);
    scene.stops(&[1, 2]);
    scene.round();
    scene.end(2, Ending::Code(1));
    scene.stops(&[0, 1]);
    let actions = scene.decider.look(scene.now);
    assert!(matches!(&actions[..], [Action::Over(Outcome::Failed(failed))] if failed.process == 2));
}

#[test]
fn plain_scripts_are_alone() {
    let members = members(&[("worker", 2)]);
    let policy = Policy::new(Framework::Plain, Launcher::Direct, &members, false);
    let mut decider = Decider::new(policy, 1, Duration::from_secs(60));
    assert_eq!(decider.look(Duration::ZERO), [Action::Round]);
    let alone = |role: &Member| Member { meets: false, ..role.clone() };
    decider.started(Duration::ZERO, members.iter().map(alone).collect());
    decider.ended(Duration::ZERO, 0, WELL);
    decider.ended(Duration::ZERO, 1, Ending::Code(1));
    assert_eq!(decider.look(Duration::from_secs(2)), [Action::Start(1)]);
    decider.started_one(Duration::from_secs(2), 1);
    decider.ended(Duration::from_secs(3), 1, WELL);
    assert_eq!(decider.look(Duration::from_secs(3)), [Action::Over(Outcome::Completed)]);
}

#[test]
fn a_stop_ends_all_of_it() {
    let mut scene = Scene::new(Framework::Jax, Launcher::Direct, &[("worker", 2)], 3);
    scene.decider.give_up();
    assert!(scene.decider.is_ending());
    scene.stops(&[0, 1]);
    scene.look(&[Action::Over(Outcome::Interrupted)]);
}

#[test]
fn what_is_lost_with_one_machine_counts_once() {
    let roles = [("chief", 1), ("worker", 2), ("ps", 1)];
    let mut scene = Scene::new(Framework::Tensorflow, Launcher::Direct, &roles, 1);
    scene.end(2, Ending::MachineLost);
    scene.end(3, Ending::MachineLost);
    let told = scene.decider.take_restarts();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].process, told[0].failed, told[0].restarts), (None, 3, 1));
    scene.stops(&[0, 1]);
    scene.round();
}
