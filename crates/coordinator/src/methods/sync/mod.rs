//! Synchronous training: every step is the sum of the gradients of all shards of a batch.
//!
//! Shards are leased to workers, which push gradients to parameter servers; a step counts when every
//! server has applied it, and the result has the same bits whichever worker computed what. A lost or late
//! worker's shards go to others; with redundancy several workers have each shard.
//!
//! # Layout
//! - [`deal`]: who gets which shards; [`leases`]: who has which; `leasing`: rounds are given out
//! - [`gather`]: a step on its way to a commit; `committing`: it counts
//! - [`follower`]: what is known of a worker; `entering`: its weights are checked before it computes;
//!   `lateness`: what a step waits for

mod committing;
pub mod deal;
mod entering;
pub mod follower;
pub mod gather;
mod lateness;
pub mod leases;
mod leasing;

use super::Built;
use crate::run::members::Pace;
use crate::run::{Arrival, Batches, Method, Run, Session, Shortage};
use follower::Follower;
use gather::Gather;
use lateness::Inquiry;
use leases::Leases;
use planaria_protocol::checkpoint::Manifest;
use planaria_protocol::event::Doing;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::{FromServer, ServerRange, Share, ToServer, ToWorker, Trouble};
use planaria_protocol::methods::Report as AnyReport;
use planaria_protocol::methods::sync::{Command, Report};
use planaria_recipe::Recipe;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a recipe says of synchronous training.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Shards of each batch.
    pub shards: u32,
    /// Workers beyond the first that compute each shard.
    pub redundancy: u32,
    /// Examples of a batch.
    pub batch: u64,
    /// Largest norm of the gradient.
    pub clip_norm: Option<f32>,
}

impl Settings {
    /// Those of a recipe.
    pub fn of(recipe: &Recipe) -> Self {
        Self {
            shards: recipe.train.shards as u32,
            redundancy: recipe.train.redundancy as u32,
            batch: recipe.train.batch as u64,
            clip_norm: recipe.train.clip_norm,
        }
    }
}

/// A synchronous run.
pub type SyncRun = Run<Sync>;

/// What a synchronous run knows beyond every run.
#[derive(Debug)]
pub struct Sync {
    settings: Settings,
    followers: BTreeMap<u32, Follower>,
    shares: Vec<Share>,
    /// Shares that others compute as well.
    copies: Vec<Share>,
    redealt: Duration,
    leases: Leases,
    gather: Gather,
    inquiry: Option<Inquiry>,
}

/// A synchronous run that is about to begin.
pub fn run(session: Session, settings: Settings) -> SyncRun {
    let config = &session.config;
    let sizes = (0..config.servers).map(|s| config.blocks_of(s).len()).collect();
    let method = Sync {
        settings,
        followers: BTreeMap::new(),
        shares: Vec::new(),
        copies: Vec::new(),
        redealt: Duration::ZERO,
        leases: Leases::default(),
        gather: Gather::new(sizes),
        inquiry: None,
    };
    Run::new(session, method)
}

/// The run of a recipe, and how its checkpoints are laid out: a part by server.
pub(super) fn build(launch: &Launch, session: Session, manifest: Manifest) -> Built {
    let ranges = session.config.ranges(launch.facts.parameters);
    let run = Box::new(run(session, Settings::of(&launch.recipe)));
    Built { run, ranges, manifest }
}

impl Method for Sync {
    fn welcome(run: &mut SyncRun, worker: u32) {
        let servers = (0..).zip(&run.members.servers).map(|(server, member)| ServerRange {
            server,
            address: member.address.clone(),
            blocks: run.config.blocks_of(server),
        });
        let begin = Command::Begin { servers: servers.collect() };
        run.tell_worker(worker, begin, "every server is ready");
    }

    fn arrived(_run: &mut SyncRun, _worker: u32) -> Option<Arrival> {
        let reason = "it has its data and knows the servers".into();
        Some(Arrival { downloaded: None, reason })
    }

    fn reported(
        run: &mut SyncRun,
        now: Duration,
        worker: u32,
        report: AnyReport,
        _bulk: &[u8],
    ) -> Result<(), Trouble> {
        let AnyReport::Sync(report) = report else { return Ok(()) };
        match report {
            Report::Pace { step, examples, busy_seconds, waiting_seconds } => {
                run.paced(worker, step, Pace { examples, busy_seconds, waiting_seconds });
                Ok(())
            }
            Report::Holds { step, sha256 } => run.holds(now, worker, step, sha256),
            Report::Behind { step } => {
                let why = format!("worker-{worker} has missed the parameters after step {step}");
                run.revoke(worker, why.clone());
                run.take_from(now, worker, why)
            }
            Report::Cut { server, why } => run.cut(now, worker, server, &why),
        }
    }

    fn server_reported(
        run: &mut SyncRun,
        now: Duration,
        server: u32,
        said: FromServer,
        squares: Vec<f64>,
    ) -> Result<(), Trouble> {
        run.server_gathers(now, server, said, squares)
    }

    fn changed(run: &mut SyncRun, now: Duration) -> Result<(), Trouble> {
        let (have, need) = (run.members.ready(), Self::workers_min(run));
        if have >= need {
            run.unpause(now, have);
        } else if run.is_busy() {
            run.pause(Shortage { have, need });
        }
        run.give_out();
        Ok(())
    }

    fn release(run: &mut SyncRun, worker: u32) -> Option<u32> {
        let step = run.course.state().step;
        Some(run.method.leases.release(worker, step)).filter(|shards| *shards > 0)
    }

    fn revoked(run: &mut SyncRun, worker: u32) {
        run.method.followers.entry(worker).or_default().stop_following();
    }

    fn left(run: &mut SyncRun, worker: u32) {
        run.method.followers.remove(&worker);
    }

    fn holds(run: &SyncRun, worker: u32) -> bool {
        run.method.leases.holds(worker)
    }

    fn late(run: &mut SyncRun, now: Duration, worker: u32, seconds: f64) -> u32 {
        let round = run.method.leases.round(run.course.state().step);
        let shards = round.and_then(|r| r.loads().get(&worker).copied()).unwrap_or(0);
        let strikes = run.members.workers.get(&worker).map_or(0, |member| member.strikes);
        run.method.followers.entry(worker).or_default().strike(now, shards, seconds, strikes);
        shards
    }

    fn look_for_late(run: &mut SyncRun, now: Duration) -> Result<(), Trouble> {
        run.ask_what_is_missing(now);
        run.look_for_lags(now)
    }

    fn slept(run: &mut SyncRun, slept: Duration) {
        run.method.followers.values_mut().flat_map(|f| &mut f.lags).for_each(|at| *at += slept);
        if let Some(inquiry) = &mut run.method.inquiry {
            inquiry.first += slept;
        }
    }

    fn advance(run: &mut SyncRun, now: Duration) -> Result<bool, Trouble> {
        if run.method.leases.is_empty() {
            return Ok(false);
        }
        // A stop lets what is leased come to its end.
        if !run.course.stopping() {
            run.lease(now);
        }
        Ok(true)
    }

    fn begin(run: &mut SyncRun, now: Duration) -> Result<bool, Trouble> {
        run.lease(now);
        Ok(!run.method.leases.is_empty())
    }

    fn stop(run: &mut SyncRun) {
        // What is leased is finished first, if there are enough to.
        if run.paused.is_some() {
            run.method.leases.clear();
        }
    }

    fn shard_seconds(run: &SyncRun) -> Option<f64> {
        let speeds: Vec<f64> = run.method.followers.values().filter_map(|f| f.speed).collect();
        (!speeds.is_empty()).then(|| speeds.len() as f64 / speeds.iter().sum::<f64>())
    }

    fn copies(run: &SyncRun) -> u32 {
        run.method.settings.redundancy
    }

    fn evaluate(run: &mut SyncRun, worker: u32, batches: Batches, why: &'static str) {
        let Batches { part, step, batches } = batches;
        let enter = run.must_enter(worker, step);
        run.tell_worker(worker, ToWorker::Evaluate { part, step, batches, enter }, why);
    }

    fn write_parts(run: &mut SyncRun, step: u64, folder: &str) {
        for server in 0..run.config.servers {
            let save = ToServer::Save { step, folder: folder.to_owned() };
            run.tell_server(server, save, "the checkpoint has a folder");
        }
    }

    fn loads(run: &SyncRun) -> BTreeMap<u32, u32> {
        let mut loads = BTreeMap::new();
        for share in run.dealt() {
            *loads.entry(share.worker).or_insert(0) += share.shards.end - share.shards.start;
        }
        loads
    }

    fn doing(run: &SyncRun, worker: u32) -> Option<Doing> {
        let follower = run.method.followers.get(&worker)?;
        (!follower.entering.is_empty()).then_some(Doing::Entering)
    }
}

impl SyncRun {
    /// A worker is done with a lease.
    fn paced(&mut self, worker: u32, step: u64, pace: Pace) {
        let Settings { batch, shards, .. } = self.method.settings;
        let per_shard = batch.div_ceil(u64::from(shards)).max(1);
        let Some(member) = self.members.workers.get_mut(&worker) else { return };
        member.pace(pace);
        let follower = self.method.followers.entry(worker).or_default();
        follower.kept_up(step);
        follower.pace(pace.examples as f64 / per_shard as f64, pace.busy_seconds);
    }

    /// A worker has lost a server, or the server was lost, which would be known soon.
    fn cut(&mut self, now: Duration, worker: u32, server: u32, how: &str) -> Result<(), Trouble> {
        let Some(member) = self.members.workers.get_mut(&worker) else { return Ok(()) };
        member.cut.get_or_insert(now);
        self.method.followers.entry(worker).or_default().stop_following();
        self.take_from(now, worker, format!("worker-{worker} has lost server-{server}: {how}"))
    }
}
