//! The beginning of a run that is left to its machines.
//!
//! Owns the way from a recipe to machines that work by themselves: raised, spare ones too, handed over to
//! a controller on the first of them, and waited for until the training has begun. Where that fails
//! everything is given back.

use super::{Away, Detached, Ended, Orders, give_back};
use crate::jobs::controller::{self, Kind};
use crate::jobs::pooling::failure;
use crate::jobs::train::{Job, machines};
use crate::program;
use crate::stopping;
use crate::talk::Progress;
use planaria_fleet::files::copy;
use planaria_fleet::host::calling::{Calling, Succession};
use planaria_fleet::host::succeeding::SUCCESSORS_MAX;
use planaria_fleet::local::Local;
use planaria_fleet::log_end::last_line;
use planaria_fleet::messages::{Next, ToHost};
use planaria_fleet::pool::{Pool, ReadyMachine};
use planaria_fleet::provider::{LOOPBACK, Provider, Tag};
use planaria_fleet::sites::Sites;
use planaria_protocol::Secret;
use planaria_protocol::event::What;
use planaria_protocol::journal;
use planaria_protocol::launch::Trust;
use planaria_protocol::message::Agent;
use planaria_protocol::tls::Authority;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Context, Exit, Failure, Result, plain};
use planaria_runs::run_dir::LOGS;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Poll interval for the beginning of a run.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a controller may take to begin at all.
const CONTROL_WITHIN: Duration = Duration::from_secs(20);
/// How long the training may take to begin before this command stops waiting for it.
const BEGIN_WITHIN: Duration = Duration::from_secs(300);

/// Raises the machines of a run, leaves it to them, and waits until it has begun. Where that fails
/// everything is given back. The run's folder.
pub fn begin(job: Job, threads: Option<u16>) -> Result<PathBuf> {
    let program = job.program.clone();
    let program = program.ok_or_else(|| Failure::failed("no program was found to start"))?;
    let logs = job.run.file(LOGS);
    fs::create_dir_all(&logs).context(|| format!("cannot create `{}`", logs.display()))?;
    let (pool, authority) = machines::detached(&job, &program)?.pool();
    let provider = pool.provider();
    let mut raising = Raising {
        sites: Sites::new(Local::new(&program, &logs), Some(pool)),
        progress: Progress::new(job.talk),
        slots: job.plan.recipe.pool.slot_count(),
        workers_min: job.plan.recipe.pool.workers.min(),
    };
    controller::raise(&mut raising, &job.run.id())?;
    let machines = raising.sites.take_pool().map_or_else(Vec::new, Pool::let_go);
    let left = hand_over(&job, &*provider, &authority, &machines, threads);
    let folder = job.run.path().to_path_buf();
    let (talk, run) = (job.talk, job.run);
    let tag = Tag::new(&run.id()).ok_or_else(|| Failure::failed("a run without a name"))?;
    let begun = left.and_then(|()| {
        drop(run);
        wait_for_begin(&folder)
    });
    if let Err(failure) = begun {
        give_back(&provider, &tag, &folder, &mut Progress::new(talk));
        return Err(failure);
    }
    Ok(folder)
}

/// The machines of a run that will be left to them, raised all at a time. Some may fail, as long as
/// the others have room for enough workers. Where that is not so everything is given back.
struct Raising {
    sites: Sites,
    progress: Progress,
    /// Workers of each machine, and the fewest there may be.
    slots: usize,
    workers_min: usize,
}

impl Kind for Raising {
    type End = ();

    fn sites(&mut self) -> &mut Sites {
        &mut self.sites
    }

    fn note(&mut self, text: &str) {
        self.progress.note(&plain(text));
    }

    fn stop(&mut self, _: Duration) -> Result<()> {
        let message = "stopped before the run began";
        Err(Failure { exit: Exit::Unsaved, ..Failure::failed(message) })
    }

    fn look(&mut self, _: Duration) -> Result<Option<()>> {
        let pool = self.sites.pool().expect("it has a pool until it is over");
        let has_enough = pool.standing().len() * self.slots >= self.workers_min;
        // One that failed again and again is not waited for where the others will do.
        let coming = if has_enough { pool.hopeful() } else { pool.coming() };
        if coming > 0 {
            std::thread::park_timeout(controller::LOOK_EVERY);
            return Ok(None);
        }
        match pool.first_fault() {
            Some(fault) if !has_enough => Err(failure(fault.clone())),
            _ => Ok(Some(())),
        }
    }
}

/// Makes the first machine's host the run's controller, and has the others call it. The first of those
/// may succeed it.
fn hand_over(
    job: &Job,
    provider: &dyn Provider,
    authority: &Authority,
    raised: &[ReadyMachine],
    threads: Option<u16>,
) -> Result<()> {
    let [head, others @ ..] = raised else {
        return Err(Failure::user("the pool has no machines"));
    };
    let secret = Secret::random().map_err(Failure::failed)?.to_hex();
    let handing = Handing { job, provider, authority, raised, threads, secret };
    let home = Path::new(&head.remote.hello.folder).parent().unwrap_or(Path::new("/"));
    let detached = Detached {
        head: head.machine.clone(),
        folder: home.join(job.run.id()).display().to_string(),
        build: program::build().to_owned(),
        is_live: true,
        is_fetched: false,
        is_lost: false,
        copies: others.iter().map(copy_of).collect(),
    };
    detached.write(job.run.path())?;
    let orders = handing.orders(head, None)?;
    let port = head.remote.detach(json(&orders), Next::Controller).map_err(failure)?;
    // Where each of those that may control the run is called, in the order in which they do.
    let mut controllers = vec![handing.called(head, port)];
    // Those beyond are spare ones.
    let wanted = job.plan.recipe.pool.machine_count();
    for (number, other) in others.iter().enumerate() {
        let mut addresses = Vec::new();
        for (rank, targets) in controllers.iter().enumerate() {
            // Those that come later wait for it, and must hear meanwhile that the controller lives.
            for later in others {
                later.remote.say(ToHost::Alive);
            }
            let reached = other.remote.reach(targets.clone()).map_err(failure)?;
            if rank == 0 && reached.is_none() {
                break;
            }
            addresses.extend(reached);
        }
        let (name, head_name) = (&other.machine.name, &head.machine.name);
        if addresses.is_empty() {
            let what = format!("{name} cannot reach {head_name}, on which the controller would be");
            if number + 1 >= wanted {
                Progress::new(job.talk).note(&format!("{what}: it is no spare machine"));
                continue;
            }
            // Or the controller has already found something wrong, and is gone.
            if let Some(failure) = failed_already(job.run.path()) {
                return Err(failure);
            }
            let hint = "machines of a detached run must reach each other; train without `--detach`";
            return Err(Failure::user(what).hint(hint));
        }
        let rank = controllers.len() - 1;
        let may_succeed = rank < SUCCESSORS_MAX;
        let succession = may_succeed.then(|| handing.succession(other, rank)).transpose()?;
        let calling = Calling { succession, ..handing.calling(other, addresses)? };
        let next = if may_succeed { Next::Successor } else { Next::Host };
        let port = other.remote.detach(json(&calling), next).map_err(failure)?;
        if may_succeed {
            controllers.push(handing.called(other, port));
        }
    }
    Ok(())
}

/// What machines are told that a run is left to.
struct Handing<'a> {
    job: &'a Job,
    provider: &'a dyn Provider,
    authority: &'a Authority,
    raised: &'a [ReadyMachine],
    threads: Option<u16>,
    /// What all hosts and the controller know, in hexadecimal.
    secret: String,
}

impl Handing<'_> {
    /// For the controller on a machine; `lost` is that of the controller before, where there was one.
    fn orders(&self, on: &ReadyMachine, lost: Option<&ReadyMachine>) -> Result<Orders> {
        let is_lost = |one: &ReadyMachine| lost.is_some_and(|lost| lost.number == one.number);
        let mut machines: Vec<&ReadyMachine> = self.raised.iter().collect();
        // The own one first: it need not be waited for; a lost one last: it may never come.
        machines.sort_by_key(|one| (one.number != on.number, is_lost(one)));
        let own = self.addresses(on).into_iter().chain([LOOPBACK.to_owned()]).collect();
        Ok(Orders {
            recipe: self.job.recipe_text.clone(),
            threads: self.threads,
            machines: machines.into_iter().map(|one| one.machine.clone()).collect(),
            secret: self.secret.clone(),
            trust: self.certificate(Agent::Controller, None)?,
            own: self.calling(on, own)?,
            succeeds: lost.map(|lost| lost.machine.name.clone()),
        })
    }

    fn calling(&self, from: &ReadyMachine, addresses: Vec<String>) -> Result<Calling> {
        let (machine, secret) = (from.machine.name.clone(), self.secret.clone());
        let trust = Some(self.certificate(Agent::Host, Some(&machine))?);
        Ok(Calling { machine, addresses, secret, trust, succession: None })
    }

    fn succession(&self, of: &ReadyMachine, rank: usize) -> Result<Succession> {
        let orders = self.orders(of, self.raised.first())?;
        let trust = orders.trust.clone();
        let (machines, rank) = (self.raised.len(), rank as u32);
        Ok(Succession { orders: json(&orders), trust, machines, rank })
    }

    fn certificate(&self, agent: Agent, machine: Option<&str>) -> Result<Trust> {
        self.authority.issue(agent, machine, Duration::ZERO).map_err(Failure::failed)
    }

    /// Where others call a machine.
    fn called(&self, machine: &ReadyMachine, port: u16) -> Vec<String> {
        self.addresses(machine).iter().map(|host| format!("{host}:{port}")).collect()
    }

    fn addresses(&self, of: &ReadyMachine) -> Vec<String> {
        let addresses = &of.remote.hello.addresses;
        match self.provider.is_here(&of.machine) || addresses.is_empty() {
            true => vec![LOOPBACK.to_owned()],
            false => addresses.clone(),
        }
    }
}

/// Where a machine would have a copy of the run.
fn copy_of(machine: &ReadyMachine) -> (String, String) {
    let home = Path::new(&machine.remote.hello.folder).parent().unwrap_or(Path::new("/"));
    (machine.machine.name.clone(), home.join(copy::FOLDER).display().to_string())
}

pub(super) fn json(orders: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(orders).expect("plain values")
}

/// Why a controller that is gone has ended, where it has said so.
fn failed_already(folder: &Path) -> Option<Failure> {
    let ended = Away::of(folder).ok()?.fetch().ok()?.ended?;
    serde_json::from_str(&ended).ok().and_then(Ended::failure)
}

/// Waits until the training has begun; a failure where it does not.
fn wait_for_begin(folder: &Path) -> Result<()> {
    let since = Stopwatch::start();
    let away = Away::of(folder)?;
    loop {
        let heard = away.fetch()?;
        let ended = heard.ended.as_deref().and_then(|text| serde_json::from_str(text).ok());
        if let Some(failure) = ended.and_then(Ended::failure) {
            return Err(failure);
        }
        // However far it has come: nothing is left to itself that was to be stopped.
        if stopping::asked() {
            let message = "stopped before the run was left to itself";
            return Err(Failure { exit: Exit::Unsaved, ..Failure::failed(message) });
        }
        let events = journal::read(&folder.join(journal::FILE)).unwrap_or_default();
        let has_begun = events.iter().any(|event| matches!(event.what, What::Started(_)));
        if has_begun || heard.ended.is_some() || since.elapsed() > BEGIN_WITHIN {
            return Ok(());
        }
        if !heard.is_live && since.elapsed() > CONTROL_WITHIN {
            let head = &away.detached.head.name;
            let last = last_line(&folder.join(LOGS).join("controller.log"));
            let last = last.map_or_else(|| "it logged nothing".into(), |l| format!("last: {l}"));
            let what = format!("the controller on {head} ended before the run began; {last}");
            return Err(Failure::failed(what).hint("see `logs/controller.log` in the run's folder"));
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}
