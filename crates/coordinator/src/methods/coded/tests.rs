//! A whole coded run without sockets: workers leave, come back and are replaced at random moments,
//! and the weights are those of one machine, bit by bit.

mod lab;

use super::arithmetic::Code;
use super::*;
use crate::run::course::Setup;
use crate::run::record::Record;
use crate::run::{Begun, Config, Input, Left, Origin, Session, Snapshot};
use lab::*;
use planaria_learn::linear::Batches;
use planaria_numerics::coding::Precision;
use planaria_numerics::coding::exact::Residue;
use planaria_numerics::random::{Purpose, Stream};
use planaria_protocol::checkpoint::PartInfo;
use planaria_protocol::event::What;
use planaria_protocol::message::{Agent, FromWorker, Join, Loss, Outcome};
use planaria_protocol::methods;
use planaria_protocol::methods::coded::Report;
use planaria_recipe::shape::Shape;

/// What has happened in a run.
#[derive(Default)]
struct Story {
    ended: Option<Outcome>,
    saved: Option<Snapshot>,
    kept: Option<(u64, Vec<u8>)>,
    record: Option<Record>,
    events: Vec<What>,
}

struct World {
    lab: Lab,
    coded: CodedRun,
    now: Duration,
    processes: BTreeMap<u32, Process>,
    pids: u32,
    story: Story,
    workers: u32,
    generation: u64,
}

impl World {
    fn new(lab: Lab, workers: u32) -> Self {
        let learner = Learner::new(&lab.recipe, Shape::Vector(FEATURES)).unwrap();
        let coded = Self::coded(&lab, workers, 1, learner, Origin::default());
        let (now, processes) = (Duration::ZERO, BTreeMap::new());
        Self {
            lab,
            coded,
            now,
            processes,
            pids: 0,
            story: Story::default(),
            workers,
            generation: 1,
        }
    }

    fn coded(
        lab: &Lab,
        workers: u32,
        generation: u64,
        learner: Learner,
        origin: Origin,
    ) -> CodedRun {
        let generator = lab.generator.clone();
        let settings = Settings {
            code: Box::new(Code::<Residue> { generator, precision: Precision::Exact }),
            batches: Batches::of(&lab.recipe.train, ROWS).unwrap(),
            generation,
        };
        let config = Config {
            workers,
            workers_min: 1,
            servers: 0,
            blocks: 0,
            held_out: [0, 0],
            build: "lab".into(),
        };
        let setup = Setup::of(&lab.recipe, &facts());
        let has_kept = origin.record.is_some();
        let session = Session { config, setup, origin, seconds_before: 0.0 };
        super::run(session, settings, learner, has_kept)
    }

    fn tell(&mut self, input: Input) {
        self.now += Duration::from_millis(1);
        for decision in self.coded.step(self.now, input) {
            match decision.action {
                Action::ToWorker { worker, message, bulk } => {
                    if let Some(process) = self.processes.get_mut(&worker)
                        && let ToWorker::Method(methods::Command::Coded(command)) = message
                    {
                        let bulk = bulk.map_or_else(Vec::new, |bulk| bulk.to_vec());
                        process.notes.push_back(Note::Order(command, bulk));
                    }
                }
                Action::Record(What::Ended { outcome, .. }) => self.story.ended = Some(outcome),
                Action::Record(what) => self.story.events.push(what),
                Action::BeginCheckpoint { step } => {
                    let (folder, vanished) = (Ok("folder".into()), None);
                    self.tell(Input::CheckpointBegun(Begun { step, folder, vanished }));
                }
                Action::WritePart { step, snapshot } => {
                    self.story.saved = Some((*snapshot).clone());
                    let (file, sha256) = ("part-0".into(), String::new());
                    let written = Ok(PartInfo { file, sha256, bytes: 1 });
                    self.tell(Input::PartWritten { step, written });
                }
                Action::WriteManifest(_) => {
                    self.tell(Input::ManifestWritten(Ok("folder".into())));
                }
                Action::KeepState { step, state } => self.story.kept = Some((step, state)),
                Action::Keep(record) => self.story.record = Some(*record),
                _ => {}
            }
        }
    }

    fn join(&mut self, worker: u32) {
        self.pids += 1;
        let pid = self.pids;
        self.processes.insert(worker, Process { pid, ..Process::default() });
        self.tell(joined(worker, pid));
        let (slots, address) = (Vec::new(), pid.to_string());
        self.tell(Input::worker(worker, Report::Offer { slots, address }));
    }

    fn kill(&mut self, worker: u32) {
        if let Some(process) = self.processes.remove(&worker) {
            let (agent, how) = (Agent::Worker(worker), "killed".to_owned());
            self.tell(Input::Left(Left { agent, pid: process.pid, how, ended: true }));
        }
    }

    fn work(&mut self, worker: u32) {
        let Self { processes, lab, .. } = self;
        let replies = processes.get_mut(&worker).map(|process| process.work(lab));
        for reply in replies.unwrap_or_default() {
            match reply {
                Reply::Tell(message, bulk) => {
                    let said = FromWorker::from(message);
                    self.tell(Input::Worker { worker, said, bulk });
                }
                Reply::Ready => {
                    let ready = FromWorker::Ready { engine: "lab".into(), threads: 1 };
                    self.tell(Input::worker(worker, ready));
                }
                Reply::Send(address, message, bulk) => {
                    let pid: u32 = address.parse().expect("the address of a worker");
                    let reader = self.processes.values_mut().find(|process| process.pid == pid);
                    if let Some(reader) = reader {
                        reader.notes.push_back(Note::FromPeer(message, bulk));
                    }
                }
            }
        }
    }

    /// The coordinator is lost; another goes on from what was kept, and everyone joins again.
    fn restart(&mut self) {
        let record = self.story.record.clone().unwrap();
        let (step, weights) = self.story.kept.clone().unwrap();
        assert_eq!(step, record.state.step, "the weights are those of the record");
        let mut learner = Learner::new(&self.lab.recipe, Shape::Vector(FEATURES)).unwrap();
        assert!(learner.restore_bytes(&weights));
        let origin = Origin {
            told: record.state.step,
            record: Some(record),
            after: Some(Loss {
                agent: Agent::Coordinator,
                message: "the coordinator was lost".into(),
            }),
            ..Origin::default()
        };
        self.generation += 1;
        self.coded = Self::coded(&self.lab, self.workers, self.generation, learner, origin);
        let workers: Vec<u32> = self.processes.keys().copied().collect();
        workers.into_iter().for_each(|worker| self.join(worker));
    }

    fn finish(mut self, seed: u64) {
        assert_eq!(self.story.ended, Some(Outcome::Completed), "seed {seed}");
        let expected = self.lab.reference();
        let saved = self.story.saved.take().expect("the last epoch is saved");
        assert_eq!(saved.state, expected.state(), "seed {seed}: other weights");
        let mut at = 0;
        for what in &self.story.events {
            if let What::Committed { first_step, end_step, .. } = what {
                assert_eq!(*first_step, at, "seed {seed}: steps are told once, in order");
                at = *end_step;
            }
            if let What::Epoch { exact, .. } = what {
                assert!(exact, "seed {seed}: every example is read once");
            }
        }
        assert_eq!(at, self.coded.state().step, "seed {seed}");
    }
}

fn joined(worker: u32, pid: u32) -> Input {
    Input::Joined(Join::new(Agent::Worker(worker), "lab", pid))
}

/// A run under churn: `restarts` says whether coordinators are lost too.
fn run(seed: u64, restarts: bool) {
    let mut draws = Stream::new(seed, Purpose::Code, 3, 3);
    let machines = 2 + draws.below(5) as usize;
    let threshold = 1 + draws.below(machines as u64 - 1) as usize;
    let batch = [ROWS, 12, 7][draws.below(3) as usize].max(threshold);
    let workers = threshold as u32 + draws.below((machines - threshold + 1) as u64) as u32;
    let mut world = World::new(Lab::new(threshold, machines, batch), workers);
    (0..workers).for_each(|worker| world.join(worker));
    let mut troubles = 0;
    for _ in 0..200_000 {
        if world.story.ended.is_some() {
            return world.finish(seed);
        }
        let worker = draws.below(u64::from(workers)) as u32;
        match draws.below(40) {
            0 if troubles < 30 => {
                troubles += 1;
                world.kill(worker);
            }
            1 if restarts && troubles < 30 && world.story.record.is_some() => {
                troubles += 1;
                world.restart();
            }
            2 => world.tell(Input::Tick),
            _ if !world.processes.contains_key(&worker) => {
                if draws.below(4) == 0 {
                    world.join(worker);
                }
            }
            _ => world.work(worker),
        }
        if draws.below(8) == 0 {
            world.tell(Input::Tick);
        }
    }
    panic!("seed {seed}: not over at step {}", world.coded.state().step);
}

#[test]
fn workers_come_and_go_and_the_weights_are_those_of_one_machine() {
    (0..60).for_each(|seed| run(seed, false));
}

#[test]
fn coordinators_are_lost_too() {
    (0..40).for_each(|seed| run(1000 + seed, true));
}

#[test]
fn with_too_few_it_says_so_and_goes_on_by_itself() {
    let mut world = World::new(Lab::new(3, 4, ROWS), 3);
    (0..3).for_each(|worker| world.join(worker));
    for round in 0..40 {
        world.tell(Input::Tick);
        world.work(round % 3);
    }
    assert!(world.coded.state().step > 0 || world.coded.method.work.is_some());
    world.kill(1);
    world.tell(Input::Tick);
    let step = world.coded.state().step;
    assert_eq!(world.coded.pulse(world.now).phase, "paused, have 2, need 3: waiting for the pool");
    assert!(world.story.events.contains(&What::Paused { workers: 2, min: 3 }));
    for round in 0..60 {
        world.work([0, 2][round % 2]);
        world.tell(Input::Tick);
    }
    assert_eq!(world.coded.state().step, step, "nothing is updated");
    world.join(1);
    for round in 0..2000 {
        world.work(round % 3);
        world.tell(Input::Tick);
    }
    assert!(world.story.events.contains(&What::Unpaused { workers: 3 }));
    world.finish(0);
}

#[test]
fn rows_that_change_hands_are_told() {
    let moved = |loses: bool| {
        let mut world = World::new(Lab::new(2, 4, ROWS), 4);
        (0..4).for_each(|worker| world.join(worker));
        for round in 0..4000 {
            if round == 40 && loses {
                world.kill(1);
            }
            world.tell(Input::Tick);
            world.work(round % 4);
        }
        let mut all = Products::default();
        for what in &world.story.events {
            if let What::Worked(done) = what {
                all.add(done);
            }
        }
        world.finish(0);
        (all.moved_rows, all.wasted_rows)
    };
    assert_eq!(moved(false), (0, 0));
    let (moved, wasted) = moved(true);
    // The lost machine's rows go to the three others, and some need not have moved.
    assert!(moved > 0 && wasted <= moved, "{moved}, {wasted}");
}

#[test]
fn a_machine_that_returns_with_its_block_takes_the_same_slot() {
    let mut world = World::new(Lab::new(2, 4, ROWS), 4);
    (0..4).for_each(|worker| world.join(worker));
    world.kill(0);
    world.kill(3);
    world.pids += 1;
    let pid = world.pids;
    world.processes.insert(0, Process { pid, ..Process::default() });
    world.tell(joined(0, pid));
    let (slots, address) = (vec![1, 3], pid.to_string());
    world.tell(Input::worker(0, Report::Offer { slots, address }));
    assert_eq!(world.coded.method.seats[&0].slot, Some(Slot(3)), "1 is taken, 3 is free and kept");
}

#[test]
fn who_is_much_slower_is_given_less_and_the_weights_are_the_same() {
    let mut world = World::new(Lab::new(2, 4, ROWS), 4);
    (0..4).for_each(|worker| world.join(worker));
    world.processes.get_mut(&2).unwrap().slowness = 6.0;
    let mut loads = Vec::new();
    for round in 0..4000 {
        world.tell(Input::Tick);
        world.work(round % 4);
        if let (Some(work), Some(slot)) =
            (&world.coded.method.work, world.coded.method.seats[&2].slot)
        {
            let plan = work.iteration.plan();
            let others = plan.ring().iter().filter(|other| **other != slot);
            loads.push((plan.load(slot), others.map(|other| plan.load(*other)).min().unwrap()));
        }
    }
    let (first, last) = (loads[0], loads[loads.len() - 1]);
    assert!(first.0 >= first.1 && last.0 * 3 <= last.1, "{first:?}, then {last:?}");
    world.finish(0);
}
