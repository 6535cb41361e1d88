//! `planaria agent …`: a process of a run, started by the command that the user gave.
//!
//! Owns what an agent has in common: it reads its orders from standard input, ends when that ends,
//! and logs to standard error, which is a file. The work is in the coordinator's and the worker's
//! crates.

mod coded;
pub mod controller;
pub mod host;
pub mod mirror;
pub mod task;

use crate::cli;
use crate::clock::{self, SystemClock};
use crate::cluster::kept::boot_id;
use crate::commands::print;
use crate::failure::{Context, Exit, Failure, Result, plain};
use crate::progress::say;
use planaria_coordinator::decide::cluster::{Cluster, Config, Origin};
use planaria_coordinator::decide::course::Setup;
use planaria_coordinator::decide::record::told_steps;
use planaria_coordinator::journal::{self, Journal};
use planaria_coordinator::parameters;
use planaria_coordinator::record;
use planaria_coordinator::serve::keeping::Keeping;
use planaria_coordinator::serve::{self, Leave};
use planaria_fleet::ending::{ANOTHER, PANICKED};
use planaria_fleet::local::inherited;
use planaria_numerics::aggregate::BLOCK;
use planaria_protocol::Passport;
use planaria_protocol::checkpoint::{Manifest, Shelf};
use planaria_protocol::clock::Clock;
use planaria_protocol::event::{Event, Started, What};
use planaria_protocol::launch::{CourseLaunch, Launch};
use planaria_protocol::message::{EVALUATION_BATCH, Trouble};
use planaria_protocol::state::State;
use std::io::{BufRead, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long others wait when the command is gone: the coordinator goes first, or it would write
/// down that it has lost them.
const AFTER_THE_COORDINATOR: Duration = Duration::from_millis(200);

/// Longest orders, in bytes; a recipe is a few thousand.
const ORDERS_BYTES_MAX: u64 = 64 << 20;

/// Runs an agent to its end. What went wrong is in its log.
pub fn run(role: &cli::Role) -> Result<Option<Exit>> {
    end_on_panic();
    // Else it may be called `exe`, after where it was started from.
    let _ = std::fs::write("/proc/self/comm", "planaria");
    if matches!(role, cli::Role::Build) {
        return print(&format!("{}\n", crate::BUILD)).map(|()| None);
    }
    match role {
        cli::Role::Host { run, dial: true, .. } => return host::call(run).map(|()| None),
        cli::Role::Host { run, control: Some(place), .. } => {
            return controller::run(run, place).map(|()| None);
        }
        cli::Role::Host { run, .. } => return host::run(run).map(|()| None),
        cli::Role::Task { .. } => return task::run(),
        cli::Role::Rendezvous { port } => return task::rendezvous(*port),
        cli::Role::Mirror { folder } => return mirror::run(folder).map(|()| None),
        _ => {}
    }
    let is_coordinator = matches!(role, cli::Role::Coordinator { .. });
    let mut launch = orders(if is_coordinator { Duration::ZERO } else { AFTER_THE_COORDINATOR })?;
    log(&format!("started as process {}, build {}", std::process::id(), crate::BUILD));
    let asked = std::mem::replace(&mut launch.build, crate::BUILD.into());
    let (clock, log_lines) = (SystemClock::start(), Arc::new(log));
    let ended = match role {
        cli::Role::Build
        | cli::Role::Host { .. }
        | cli::Role::Mirror { .. }
        | cli::Role::Rendezvous { .. }
        | cli::Role::Task { .. } => Ok(()),
        cli::Role::Coordinator { .. } if asked != crate::BUILD => {
            Err(Trouble::new(format!("this is not the build that was asked for, {asked}")))
        }
        cli::Role::Coordinator { .. } => match coordinate(launch) {
            Ok(Leave::Over) => Ok(()),
            Ok(Leave::Restart) => {
                log("ended: another coordinator is to take its place");
                // SAFETY: as in `orders`; everything was said and flushed.
                unsafe { libc::_exit(ANOTHER) };
            }
            Err(trouble) => Err(trouble),
        },
        cli::Role::Server { index, .. } => {
            parameters::serve::run(&launch, *index, Arc::new(clock), log_lines)
        }
        cli::Role::Worker { index, .. } if launch.recipe.train.code().is_some() => {
            planaria_worker::coded::run(&launch, *index, &clock, log_lines)
        }
        cli::Role::Worker { index, .. } => {
            planaria_worker::run::run(&launch, *index, &clock, log_lines)
        }
    };
    match ended.map_err(failure) {
        Ok(()) => {
            log("ended: the run is over");
            Ok(None)
        }
        Err(failure) => {
            log(&format!("ended: {failure}"));
            Ok(Some(failure.exit))
        }
    }
}

/// A process' trouble as this one's failure.
pub fn failure(trouble: Trouble) -> Failure {
    let failure = if trouble.fix_input {
        Failure::user(trouble.message)
    } else {
        Failure::failed(trouble.message)
    };
    match trouble.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Reads the orders, and watches the pipe they came through: its end is this process' end, however
/// the one that started it has ended.
fn orders(patience: Duration) -> Result<Launch> {
    let mut line = Vec::new();
    std::io::stdin()
        .lock()
        .take(ORDERS_BYTES_MAX)
        .read_until(b'\n', &mut line)
        .context(|| "cannot read orders from standard input".into())?;
    let launch = serde_json::from_slice(&line).map_err(|e| {
        Failure::user(format!("standard input holds no orders: {e}"))
            .hint("`planaria agent` is started by `planaria train`")
    })?;
    let watch = move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        std::thread::park_timeout(patience);
        log("ended: the command that started it is gone");
        // SAFETY: ends the process without running anything more of it: whatever it is in the
        // middle of, nobody waits for it any longer.
        unsafe { libc::_exit(Exit::Failed.code().into()) };
    };
    std::thread::Builder::new()
        .name("pipe".into())
        .spawn(watch)
        .context(|| "cannot start a thread".into())?;
    Ok(launch)
}

/// A thread that breaks down takes the process with it: the others would wait for it for ever, and
/// the coordinator for the process.
fn end_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        // SAFETY: as in `orders`.
        unsafe { libc::_exit(PANICKED) };
    }));
}

/// One line in the agent's log.
fn log(text: &str) {
    // A line of the log is one line, whatever is said in it.
    let text = plain(text).replace('\n', " ");
    say(&format!("{} {text}\n", clock::iso8601_millis(clock::unix_seconds())));
}

fn coordinate(launch: Launch) -> Result<Leave, Trouble> {
    let mut course = launch.course.clone().ok_or_else(|| Trouble::new("there is no course"))?;
    let passport = Passport::of(&launch).map_err(Trouble::new)?;
    // One that takes the place of another is reached where that one was: the port is the same.
    let listener = listen(&launch, course.listen.as_deref())?;
    let address = launch.station.address(listener.local_addr().map_err(Trouble::new)?);
    let told = writeln!(std::io::stdout(), "{address}").and_then(|()| std::io::stdout().flush());
    told.map_err(|e| Trouble::new(format!("cannot say where it listens: {e}")))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let (config, ranges) = config(&launch);
    let setup = Setup::of(&launch.recipe, &launch.facts);
    let run_dir = Path::new(&course.run_dir);
    let events = run_dir.join(journal::FILE);
    let mut told = journal::session(&events).map_err(|e| unwritable(&course, e))?;
    // One that was lost before it could say that the session began has left nothing.
    let began = |event: &Event| {
        matches!(event.what, What::Started(_)) && event.generation >= course.manifest.generation
    };
    if !told.iter().any(began) {
        course.after = None;
    }
    let shelf = Shelf::new(run_dir.join("checkpoints"), launch.recipe.output.keep);
    let mut origin = origin(&launch, &course, &shelf);
    // What was decided is told, even if the one who decided it was lost before it could.
    let said: Vec<What> = told.iter().map(|event| event.what.clone()).collect();
    let untold = origin.record.as_mut().map_or_else(Vec::new, |r| r.take_untold(&said));
    let base = match (&origin.record, &origin.after) {
        (Some(record), None) => &record.state,
        _ => &course.manifest.state,
    };
    let started = origin.after.is_none().then(|| {
        told.clear();
        What::Started(started(&launch, &course, &setup, base.step))
    });
    origin.told = told_steps(said.iter().chain(&untold).chain(&started));
    let left = origin.record.clone();
    // Getting here is part of the run.
    let before = base.seconds_total + (clock.unix_seconds() - course.commanded).max(0.0);
    let journal = Journal::open(&events, launch.generation).map_err(|e| unwritable(&course, e))?;
    let cluster: Box<dyn serve::Deciding> = match launch.recipe.train.code() {
        Some(words) => coded::decider(&launch, words, setup, origin, before)?,
        None => Box::new(Cluster::new(config, setup, origin, before)),
    };
    let rows = coded::rows(&launch, Arc::new(log))?;
    let shell = serve::Shell {
        cluster,
        listener,
        passport,
        generation: launch.generation,
        journal,
        told,
        keeping: launch.state.as_ref().map(|folder| Keeping::new(folder.into(), boot_id())),
        left,
        shelf,
        manifest: Manifest { generation: launch.generation, ..course.manifest },
        ranges,
        rows,
        clock,
        log: Arc::new(log),
    };
    serve::run(shell, untold, started)
}

fn unwritable(course: &CourseLaunch, why: std::io::Error) -> Trouble {
    Trouble::new(format!("cannot write `{}/events.jsonl`: {why}", course.run_dir))
}

/// Listens where the command does that started it, which holds the place while coordinators come and
/// go; else on a port of its own.
fn listen(launch: &Launch, place: Option<&str>) -> Result<TcpListener, Trouble> {
    let address = launch.station.listen(0);
    let listener = match place.and_then(inherited) {
        Some(listener) => listener,
        None => TcpListener::bind(&address),
    };
    listener.map_err(|e| Trouble::new(format!("cannot listen on {address}: {e}")))
}

/// Where the run goes on from: as the command said, or, in the place of a coordinator that was
/// lost, from its record and the newest whole checkpoint.
fn origin(launch: &Launch, course: &CourseLaunch, shelf: &Shelf) -> Origin {
    let (state, checkpoint) = (course.manifest.state.clone(), course.checkpoint.clone());
    let folder = launch.state.as_deref().map(Path::new);
    let record = folder.and_then(|folder| record::read(folder, &boot_id()));
    let record = record.filter(|record| record.state.step >= state.step);
    let after = course.after.clone();
    let mut origin = Origin { checkpoint, state, record, told: 0, after };
    if course.after.is_none() {
        return origin;
    }
    // Servers go on from what they kept, as the record says; if they cannot, they compare what they
    // read. Nobody is to wait for it before that.
    let found = match origin.record {
        Some(_) => shelf.newest_manifest_alone(),
        None => shelf.newest_manifest(),
    };
    match found {
        Ok(Some(found)) => {
            found.damaged.iter().for_each(|why| log(why));
            let folder = found.path.canonicalize().unwrap_or(found.path);
            origin.checkpoint = Some(folder.display().to_string());
            let resumes = origin.state.resumes;
            origin.state = State { resumes, ..found.checkpoint.state };
        }
        Ok(None) => {}
        // The record may do without; if not, the servers will say so.
        Err(why) => log(&format!("no checkpoint can be gone back to: {why}")),
    }
    origin
}

/// The shape of the cluster, and the parameters of each server.
fn config(launch: &Launch) -> (Config, Vec<(u64, u64)>) {
    let (recipe, facts, size) = (&launch.recipe, &launch.facts, launch.size);
    let blocks = facts.parameters.div_ceil(BLOCK as u64);
    let batches = |examples: u64| examples.div_ceil(EVALUATION_BATCH as u64);
    let config = Config {
        workers: size.workers,
        workers_min: size.workers_min,
        servers: size.servers,
        shards: recipe.train.shards as u32,
        redundancy: recipe.train.redundancy as u32,
        blocks: blocks as u32,
        batch: recipe.train.batch as u64,
        clip_norm: recipe.train.clip_norm,
        held_out: [batches(facts.validation), batches(facts.test)],
        build: launch.build.clone(),
    };
    let parameter = |block: u32| (u64::from(block) * BLOCK as u64).min(facts.parameters);
    let ranges = (0..size.servers).map(|server| {
        let blocks = config.blocks_of(server);
        (parameter(blocks.start), parameter(blocks.end))
    });
    let ranges = ranges.collect();
    (config, ranges)
}

fn started(launch: &Launch, course: &CourseLaunch, setup: &Setup, step: u64) -> Started {
    Started {
        run_id: course.run_id.clone(),
        recipe: launch.recipe.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        recipe_sha256: course.manifest.recipe_sha256.clone(),
        step,
        epochs: setup.epochs,
        steps_per_epoch: setup.steps_per_epoch,
        examples: launch.facts.examples,
        parameters: launch.facts.parameters,
        classification: setup.classification,
        workers: launch.size.workers,
        servers: launch.size.servers,
        shards: launch.recipe.train.shards as u32,
        batch: launch.recipe.train.batch as u64,
        digest: setup.examples,
    }
}
