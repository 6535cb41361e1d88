//! A little world around the decisions: servers and workers as the design has them, one queue per
//! link and direction, and a coin that says what happens next.

mod check;
mod people;

use check::Check;
use people::{Server, Worker};
use planaria_coordinator::decide::cluster::{Action, Cluster, Config, Decision, Input};
use planaria_coordinator::decide::course::{Course, Setup};
use planaria_coordinator::decide::watch::Rule;
use planaria_protocol::message::{Agent, FromServer, FromWorker, ToServer, ToWorker};
use planaria_protocol::state::State;
use planaria_recipe::train::{Monitor, Train};
use std::collections::VecDeque;
use std::time::Duration;

/// What goes wrong in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    None,
    Stop,
    Loss,
    StopThenLoss,
    FullDisk,
}

/// What became of a world.
#[derive(Debug)]
pub struct Ground {
    pub outcome: String,
    pub reason: Option<String>,
    pub step: u64,
    pub epochs: u64,
    pub exact_epochs: u64,
    /// Whether the last state is in a checkpoint.
    pub saved_all: bool,
    pub saved_state: Option<State>,
}

/// How large a world is.
#[derive(Debug, Clone)]
pub struct Shape {
    pub workers: u32,
    pub servers: u32,
    pub shards: u32,
    pub blocks: u32,
    pub batches: u64,
    pub epochs: u64,
    pub clip: bool,
    pub checkpoint_steps: u64,
    pub held_out: [u64; 2],
    /// Microseconds between two things that happen, at most.
    pub pace: u64,
}

impl Shape {
    pub fn small() -> Self {
        Self {
            workers: 1,
            servers: 1,
            shards: 4,
            blocks: 3,
            batches: 4,
            epochs: 2,
            clip: false,
            checkpoint_steps: 0,
            held_out: [2, 1],
            pace: 1000,
        }
    }

    pub fn steps(&self) -> u64 {
        self.batches * self.epochs
    }

    fn random(coin: &mut Coin) -> Self {
        Self {
            workers: coin.below(6) as u32 + 1,
            servers: coin.below(4) as u32 + 1,
            shards: coin.below(8) as u32 + 1,
            blocks: coin.below(6) as u32 + 1,
            batches: coin.below(9) + 1,
            epochs: coin.below(4) + 1,
            clip: coin.below(2) == 0,
            checkpoint_steps: coin.below(5),
            held_out: [coin.below(4), coin.below(3)],
            pace: [10, 1000, 100_000][coin.below(3) as usize],
        }
    }

    /// The decisions of such a run that stands at `state`.
    pub fn cluster(&self, state: State) -> Cluster {
        let setup = Setup {
            epochs: self.epochs,
            steps_per_epoch: self.batches,
            classification: true,
            has_validation: self.held_out[0] > 0,
            checkpoint_steps: self.checkpoint_steps,
            rule: Rule { monitor: Monitor::Loss, patience: None, min_delta: 0.0 },
            examples: (0..2 * self.batches).collect(),
            train: Train::default(),
        };
        let config = Config {
            workers: self.workers,
            servers: self.servers,
            shards: self.shards,
            blocks: self.blocks,
            batch: 2,
            clip_norm: self.clip.then_some(1.0),
            held_out: self.held_out,
            checkpoint: None,
            build: "b".into(),
        };
        Cluster::new(config, Course::new(setup, state), 0.0)
    }
}

/// Splitmix64.
pub struct Coin(u64);

impl Coin {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

/// Something that can happen next.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Join(Agent),
    /// The coordinator's next message reaches a process.
    Hear(Agent),
    /// A process' next message reaches the coordinator.
    Say(Agent),
    /// A process does the next thing it can.
    Act(Agent),
    Manifest,
}

pub struct World {
    seed: u64,
    shape: Shape,
    fate: Fate,
    /// Things that happen before fate strikes.
    moment: u64,
    coin: Coin,
    cluster: Cluster,
    check: Check,
    now: Duration,
    servers: Vec<Server>,
    workers: Vec<Worker>,
    to_servers: Vec<VecDeque<ToServer>>,
    to_workers: Vec<VecDeque<ToWorker>>,
    from: Vec<(Agent, VecDeque<Input>)>,
    waiting: Vec<Agent>,
    manifest: bool,
}

impl World {
    pub fn new(seed: u64, fate: Fate) -> Self {
        let mut coin = Coin(seed);
        let shape = Shape::random(&mut coin);
        Self::with(seed, fate, shape, State::default(), coin)
    }

    /// The same run on other numbers of processes, from a checkpoint.
    pub fn resumed(seed: u64, shape: Shape, state: State) -> Self {
        let mut coin = Coin(seed);
        let other = Shape::random(&mut coin);
        let (workers, servers) = (other.workers, other.servers);
        Self::with(seed, Fate::None, Shape { workers, servers, ..shape }, state, coin)
    }

    pub fn shape(&self) -> Shape {
        self.shape.clone()
    }

    fn with(seed: u64, fate: Fate, shape: Shape, state: State, mut coin: Coin) -> Self {
        let agents = (0..shape.servers).map(Agent::Server);
        let agents: Vec<Agent> = agents.chain((0..shape.workers).map(Agent::Worker)).collect();
        let step = state.step;
        // About as many things as happen in a run of this shape, so that every phase is struck.
        let things =
            6 * (u64::from(shape.servers) + u64::from(shape.workers)) * (shape.steps() + 4);
        Self {
            seed,
            fate,
            moment: coin.below(things.max(1)),
            cluster: shape.cluster(state.clone()),
            check: Check::new(shape.clone(), state),
            now: Duration::ZERO,
            servers: (0..shape.servers).map(|s| Server::new(s, &shape, step)).collect(),
            workers: (0..shape.workers).map(|_| Worker::default()).collect(),
            to_servers: vec![VecDeque::new(); shape.servers as usize],
            to_workers: vec![VecDeque::new(); shape.workers as usize],
            from: agents.iter().map(|a| (*a, VecDeque::new())).collect(),
            waiting: agents,
            manifest: false,
            coin,
            shape,
        }
    }

    /// Lets things happen until the run is over.
    pub fn live(mut self) -> Ground {
        for count in 0.. {
            assert!(count < 200_000, "seed {}: the run never ends", self.seed);
            if self.check.over {
                break;
            }
            if count == self.moment && self.strike() {
                continue;
            }
            let turns = self.turns();
            let Some(turn) = self.pick(&turns) else {
                if count < self.moment && self.fate != Fate::None {
                    self.moment = count + 1;
                    continue;
                }
                panic!("seed {}: nothing can happen and the run is not over", self.seed);
            };
            self.take(turn);
        }
        self.check.ground()
    }

    fn pick(&mut self, turns: &[Turn]) -> Option<Turn> {
        match turns.len() {
            0 => None,
            n => Some(turns[self.coin.below(n as u64) as usize]),
        }
    }

    /// Fate; false if this world has none.
    fn strike(&mut self) -> bool {
        match self.fate {
            Fate::None | Fate::FullDisk => return false,
            Fate::Stop => {
                self.tell(Input::Stop("the user asked".into()));
                // Some are impatient.
                if self.coin.below(4) == 0 {
                    self.tell(Input::Stop("again".into()));
                }
            }
            Fate::Loss => self.lose(),
            Fate::StopThenLoss => {
                self.fate = Fate::Loss;
                self.moment += 1 + self.coin.below(30);
                self.tell(Input::Stop("the user asked".into()));
            }
        }
        true
    }

    fn lose(&mut self) {
        let n = self.from.len() as u64;
        let agent = self.from[self.coin.below(n) as usize].0;
        let left = Input::Left { agent, how: "killed by signal 9".into() };
        self.check.lost = true;
        self.tell(left.clone());
        // Whoever watches the process says it too.
        self.tell(left);
    }

    fn tell(&mut self, input: Input) {
        self.now += Duration::from_micros(self.coin.below(self.shape.pace));
        self.check.hears(&input);
        let decisions = self.cluster.step(self.now, input);
        // Where the run is can be asked at any time.
        let pulse = self.cluster.pulse(self.now);
        assert!(!pulse.phase.is_empty());
        for decision in decisions {
            self.check.decided(self.seed, &decision);
            self.act(decision);
        }
    }

    fn act(&mut self, decision: Decision) {
        match decision.action {
            Action::ToServer(server, message) => {
                self.to_servers[server as usize].push_back(message);
            }
            Action::ToWorker(worker, message) => {
                self.to_workers[worker as usize].push_back(message);
            }
            Action::Save(step) => {
                for queue in &mut self.to_servers {
                    queue.push_back(ToServer::Save { step, folder: "f".into() });
                }
            }
            Action::WriteManifest(_) => self.manifest = true,
            Action::Record(_) | Action::End => {}
        }
    }

    fn turns(&self) -> Vec<Turn> {
        let mut turns: Vec<Turn> = self.waiting.iter().map(|a| Turn::Join(*a)).collect();
        for (agent, said) in &self.from {
            if !said.is_empty() {
                turns.push(Turn::Say(*agent));
            }
            if self.waiting.contains(agent) {
                continue;
            }
            let (orders, can) = match *agent {
                Agent::Server(s) => {
                    let server = &self.servers[s as usize];
                    (self.to_servers[s as usize].len(), server.can(&self.workers))
                }
                Agent::Worker(w) => {
                    let worker = &self.workers[w as usize];
                    (self.to_workers[w as usize].len(), worker.can(&self.servers))
                }
                _ => (0, false),
            };
            if orders > 0 {
                turns.push(Turn::Hear(*agent));
            }
            if can {
                turns.push(Turn::Act(*agent));
            }
        }
        if self.manifest {
            turns.push(Turn::Manifest);
        }
        turns
    }

    fn take(&mut self, turn: Turn) {
        match turn {
            Turn::Join(agent) => {
                self.waiting.retain(|a| *a != agent);
                let address = Some("127.0.0.1:1".into());
                self.tell(Input::Joined { agent, pid: 1, build: "b".into(), address });
            }
            Turn::Hear(Agent::Server(s)) => {
                let order = self.to_servers[s as usize].pop_front().unwrap();
                let said = self.servers[s as usize].hear(order);
                self.say(Agent::Server(s), said.map(|m| Input::Server(s, m, vec![])));
            }
            Turn::Hear(Agent::Worker(w)) => {
                let order = self.to_workers[w as usize].pop_front().unwrap();
                let said = self.workers[w as usize].hear(order);
                self.say(Agent::Worker(w), said.map(|m| Input::Worker(w, m)));
            }
            Turn::Act(Agent::Server(s)) => {
                let full = self.fate == Fate::FullDisk && self.coin.below(2) == 0;
                let workers = &self.workers;
                let said = self.servers[s as usize].act(workers, &mut self.coin, full);
                self.say(Agent::Server(s), said.map(|(m, squares)| Input::Server(s, m, squares)));
            }
            Turn::Act(Agent::Worker(w)) => {
                let (said, pace) = self.workers[w as usize].act(&mut self.coin);
                self.say(Agent::Worker(w), said);
                let pace: Option<FromWorker> = pace;
                self.say(Agent::Worker(w), pace.map(|m| Input::Worker(w, m)));
            }
            Turn::Say(agent) => {
                let link = self.from.iter_mut().find(|(a, _)| *a == agent).unwrap();
                let input = link.1.pop_front().unwrap();
                self.tell(input);
            }
            Turn::Manifest => {
                self.manifest = false;
                let full = self.fate == Fate::FullDisk && self.coin.below(2) == 0;
                let written = match full {
                    true => Err("No space left on device".to_owned()),
                    false => Ok("f".to_owned()),
                };
                self.tell(Input::ManifestWritten(written));
            }
            Turn::Hear(_) | Turn::Act(_) => unreachable!("only workers and servers"),
        }
    }

    fn say(&mut self, agent: Agent, input: Option<Input>) {
        let link = self.from.iter_mut().find(|(a, _)| *a == agent).unwrap();
        link.1.extend(input);
    }
}

/// What a server says when its part is on the disk.
fn saved(step: u64, full: bool) -> FromServer {
    match full {
        true => FromServer::NotSaved { step, why: "No space left on device".into() },
        false => FromServer::Saved { step, file: "p".into(), sha256: "s".into(), bytes: 1 },
    }
}
