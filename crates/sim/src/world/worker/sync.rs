//! A simulated worker's part in a synchronous run: links to servers, and the real parameter buffers.

use super::{Done, Hands, Me, Session};
use crate::lab::{Pushed, hashes};
use crate::net::{LinkId, Msg};
use crate::world::{Dial, World};
use planaria_protocol::message::{LinkPurpose, Pull, Push, ServerRange};
use planaria_worker::gradient::Task;
use planaria_worker::gradient::parameters::{Parameters, Report, View, Writer, Wrong};
use planaria_worker::methods::sync::duty::{Input, Work as Spent};
use planaria_worker::methods::sync::{Do, Engine, Event, Sync};
use planaria_worker::session::{Batch, Inbox};
use std::sync::Arc;
use std::time::Duration;

/// The servers of a session, as far as it is connected.
pub struct Servers {
    inbox: Option<Arc<Inbox<Event>>>,
    generation: u64,
    has_hung_up: bool,
    waited_since: Duration,
    server_ranges: Vec<ServerRange>,
    links: Vec<LinkId>,
    lost: Vec<bool>,
    writers: Vec<Writer>,
    parameters: Option<Arc<Parameters>>,
    state: Option<(u64, Arc<[f32]>)>,
}

/// What takes time.
pub enum Work {
    Task { task: Task, pushes: Arc<Vec<Pushed>>, sent: usize, view: View, began: Duration },
    Batch(Batch),
}

impl Servers {
    /// None is known yet.
    pub fn new() -> Self {
        Self {
            inbox: None,
            generation: 0,
            has_hung_up: false,
            waited_since: Duration::ZERO,
            server_ranges: Vec::new(),
            links: Vec::new(),
            lost: Vec::new(),
            writers: Vec::new(),
            parameters: None,
            state: None,
        }
    }

    fn see(&self, step: u64) -> Option<View> {
        self.parameters.as_ref().and_then(|parameters| parameters.see(step))
    }

    fn put(&self, input: Input) {
        if let Some(inbox) = &self.inbox {
            inbox.put(Event::Duty(input));
        }
    }

    fn open(&mut self, server_ranges: Vec<ServerRange>, world: &World<'_>) {
        let Some(inbox) = self.inbox.clone() else { return };
        let parameters = Parameters::new(world.bench.facts.parameters as usize, move |report| {
            inbox.put(Event::Duty(match report {
                Report::Complete(step) => Input::Complete { step },
                Report::Missed(step) => Input::Missed { step },
            }));
        });
        let ranges: Vec<_> =
            server_ranges.iter().map(|s| s.blocks.start as usize..s.blocks.end as usize).collect();
        self.writers = parameters.writers(&ranges).expect("the servers' blocks follow each other");
        (self.parameters, self.server_ranges) = (Some(parameters), server_ranges);
        self.links.clear();
    }

    /// What comes from the server in this place.
    fn fill(&mut self, at: usize, pull: Pull, values: Arc<[f32]>) -> Result<(), String> {
        match pull {
            Pull::Parameters { step, first_block } => self.writers[at]
                .fill(step, first_block as usize, 4 * values.len(), |into| {
                    if let Some(into) = into {
                        into.copy_from_slice(&values);
                    }
                    Ok(())
                })
                .map_err(|wrong: Wrong| wrong.to_string())?,
            Pull::Gone { step } => self.put(Input::Gone { step }),
            Pull::State { step } => {
                self.state = Some((step, values));
                self.put(Input::State { step });
            }
        }
        Ok(())
    }

    fn tell_all(&mut self, world: &mut World<'_>, me: Me, push: &Push) {
        for at in 0..self.links.len() {
            self.tell(world, me, at, push.clone(), Arc::default());
        }
    }

    fn tell(&mut self, world: &mut World<'_>, me: Me, at: usize, push: Push, values: Arc<[f32]>) {
        let Some(link) = self.links.get(at).copied() else { return };
        if !world.send(me.pid, link, Msg::Push(push, values)) {
            self.cut(at, "it cannot be told");
        }
    }

    fn cut(&mut self, at: usize, why: &str) {
        if !std::mem::replace(&mut self.lost[at], true) {
            let (server, why) = (self.server_ranges[at].server, why.to_owned());
            self.put(Input::Ended { server, why });
        }
    }

    fn hash(&self, world: &mut World<'_>, step: u64) -> Input {
        match self.see(step) {
            None => Input::Over { step },
            Some(view) => {
                world.must(world.bench.check_parameters(step, &view));
                Input::Hashes { step, sha256: hashes(&view, &self.server_ranges) }
            }
        }
    }

    fn compute(&mut self, world: &mut World<'_>, me: Me, task: Task) -> Done<Self> {
        let Some(view) = self.see(task.step) else {
            return Done::Answer(Event::Duty(Input::Over { step: task.step }));
        };
        if let Err(broken) = world.bench.check_parameters(task.step, &view) {
            world.fail(format!("worker-{} computes {task:?}: {broken}", me.index));
            return Done::Nothing;
        }
        let pushes = world.bench.compute(&task, &self.server_ranges);
        Done::Busy(Work::Task { task, pushes, sent: 0, view, began: world.now })
    }
}

impl Hands for Servers {
    type Method = Sync;
    type Work = Work;

    fn method(&self) -> Sync {
        Sync::default()
    }

    fn prepare(&mut self, world: &mut World<'_>) -> Engine {
        Engine { name: world.bench.engine.clone(), threads: 1 }
    }

    fn begin(&mut self, session: &Session<Self>, now: Duration) {
        *self = Self {
            inbox: Some(session.inbox.clone()),
            generation: session.generation,
            waited_since: now,
            ..Self::new()
        };
    }

    fn act(&mut self, world: &mut World<'_>, me: Me, effect: Do) -> Done<Self> {
        match effect {
            Do::Open(server_ranges) => self.open(server_ranges, world),
            Do::Reach { at } => {
                let to = self.server_ranges.get(at).map_or(0, |s| s.address.parse().unwrap_or(0));
                world.dial(me.pid, Dial::Process(to), Some(self.generation));
                return Done::Dialing;
            }
            Do::Follow { step } => {
                self.parameters.iter().for_each(|parameters| parameters.ask_again());
                self.tell_all(world, me, &Push::Follow { step });
            }
            Do::Unfollow => self.tell_all(world, me, &Push::Unfollow),
            Do::State { step } => {
                let first = self.server_ranges.iter().position(|s| s.server == 0).unwrap_or(0);
                self.tell(world, me, first, Push::State { step }, Arc::default());
            }
            Do::Hash { step } => return Done::Answer(Event::Duty(self.hash(world, step))),
            Do::Compute(task) => return self.compute(world, me, task),
            Do::Skip(_) | Do::Forget { .. } => {}
        }
        Done::Nothing
    }

    fn score(&mut self, world: &mut World<'_>, batch: Batch) -> Option<Work> {
        let step = batch.step;
        let view = self.see(step)?;
        let (_, state) = self.state.as_ref().filter(|(of, _)| *of == step)?;
        world.must(world.bench.check_parameters(step, &view));
        world.must(world.bench.check_state(step, state));
        Some(Work::Batch(batch))
    }

    fn time(&self, world: &World<'_>, work: &Work) -> Duration {
        let shards = match work {
            Work::Task { task, .. } => task.shards.end - task.shards.start,
            Work::Batch(_) => 1,
        };
        world.plan.shard * shards / 2
    }

    /// Computing has come to its middle, or to its end.
    fn worked(&mut self, world: &mut World<'_>, me: Me, work: Work) -> Done<Self> {
        let (task, pushes, sent, view, began) = match work {
            Work::Task { task, pushes, sent, view, began } => (task, pushes, sent, view, began),
            Work::Batch(batch) => {
                self.waited_since = world.now;
                let scores = world.bench.score(batch.part, batch.step, batch.batch);
                let scores = serde_json::to_vec(&scores).expect("scores have string keys only");
                return Done::Scores(batch, scores);
            }
        };
        let parameters = self.parameters.as_ref();
        // Asked before every shard but the first; what was sent in the middle stays sent.
        let is_over = task.shards.len() > 1 && parameters.is_some_and(|p| p.is_past(task.step));
        let middle = sent == 0 && pushes.len() > 1 && !is_over;
        let until = if middle { pushes.len() / 2 } else { pushes.len() };
        let until = if is_over { sent } else { until };
        for (at, push, values) in &pushes[sent..until] {
            self.tell(world, me, *at, push.clone(), values.clone());
        }
        if middle {
            return Done::Busy(Work::Task { task, pushes, sent: until, view, began });
        }
        drop(view);
        let half = is_over && sent == 0;
        let examples = world.bench.examples(&task) / if half { 2 } else { 1 };
        let waiting = began.saturating_sub(self.waited_since);
        self.waited_since = world.now;
        let busy = world.now.saturating_sub(began);
        Done::Answer(Event::Duty(Input::Done(Spent { examples, busy, waiting })))
    }

    fn dialed(
        &mut self,
        world: &mut World<'_>,
        me: Me,
        _dial: Dial,
        link: Result<LinkId, String>,
    ) -> Done<Self> {
        Done::Answer(match link {
            Ok(link) => {
                self.links.push(link);
                self.lost.push(false);
                world.send(me.pid, link, me.join(LinkPurpose::Work));
                if self.has_hung_up {
                    world.close(me.pid, link);
                }
                Event::Reached
            }
            Err(why) => Event::NotReached { why },
        })
    }

    fn hear(&mut self, world: &mut World<'_>, me: Me, link: LinkId, msg: Msg) {
        let Msg::Pull(pull, values) = msg else { return };
        let Some(at) = self.links.iter().position(|l| *l == link) else { return };
        if let Err(why) = self.fill(at, pull, values) {
            world.close(me.pid, link);
            self.cut(at, &why);
        }
    }

    fn ended(&mut self, _world: &mut World<'_>, _me: Me, link: LinkId, why: &str) {
        if let Some(at) = self.links.iter().position(|l| *l == link) {
            self.cut(at, why);
        }
    }

    fn hang_up(&mut self, world: &mut World<'_>, me: Me) {
        self.has_hung_up = true;
        for link in self.links.clone() {
            world.close(me.pid, link);
        }
    }

    fn leave(&mut self, world: &mut World<'_>, me: Me) {
        self.hang_up(world, me);
        *self = Self::new();
    }
}
