//! `planaria agent coordinator`: the process that decides what a run does next.
//!
//! Owns how it begins: from a course, or in the place of one that was lost. The decisions and the
//! shell around them are in the coordinator's crate.

use super::Log;
use crate::jobs::train::kept::boot_id;
use crate::jobs::train::methods::Source;
use planaria_coordinator::methods;
use planaria_coordinator::record;
use planaria_coordinator::run::Origin;
use planaria_coordinator::run::course::Setup;
use planaria_coordinator::run::record::told_steps;
use planaria_coordinator::serve::coordinator::{Beginning, Untold};
use planaria_coordinator::serve::keeping::Keeping;
use planaria_coordinator::serve::{self, Leave, Serving};
use planaria_fleet::local::inherited;
use planaria_protocol::Passport;
use planaria_protocol::checkpoint::{Manifest, Shelf};
use planaria_protocol::clock::Clock;
use planaria_protocol::event::{Event, Started, What};
use planaria_protocol::journal::{self, Journal};
use planaria_protocol::launch::{CourseLaunch, Launch};
use planaria_protocol::message::Trouble;
use planaria_protocol::state::State;
use planaria_runs::clock::SystemClock;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

/// Coordinates a run to its end, or until another is to take this one's place.
pub fn run(launch: Launch, log: &Log) -> Result<Leave, Trouble> {
    let mut course = launch.course.clone().ok_or_else(|| Trouble::new("there is no course"))?;
    let passport = Passport::of(&launch).map_err(Trouble::new)?;
    // One that takes the place of another is reached where that one was: the port is the same.
    let listener = listen(&launch, course.listen.as_deref())?;
    let address = launch.station.address(listener.local_addr().map_err(Trouble::new)?);
    let told = writeln!(std::io::stdout(), "{address}").and_then(|()| std::io::stdout().flush());
    told.map_err(|e| Trouble::new(format!("cannot say where it listens: {e}")))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
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
    let said: Vec<What> = told.iter().map(|event| event.what.clone()).collect();
    let mut origin = origin(&launch, &course, &shelf, told_steps(&said), log);
    // What was decided is told, even if the one who decided it was lost before it could.
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
    let manifest = Manifest { generation: launch.generation, ..course.manifest };
    let methods::Built { run, ranges, manifest } =
        methods::build(&launch, origin, manifest, before)?;
    let rows = rows(&launch, log)?;
    let generation = launch.generation;
    serve::run(serve::Shell {
        beginning: Beginning { run, generation, manifest, ranges, told },
        untold: Untold { events: untold, record: left, started },
        listener,
        passport,
        journal,
        keeping: launch.state.as_ref().map(|folder| Keeping::new(folder.into(), boot_id())),
        shelf,
        rows,
        clock,
        log: log.clone(),
    })
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
/// lost, from its record and the newest whole checkpoint of the steps that events have told.
fn origin(launch: &Launch, course: &CourseLaunch, shelf: &Shelf, told: u64, log: &Log) -> Origin {
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
    // read. The run does not wait for a look at all parts before that.
    let is_proven = origin.record.is_none();
    let steps = origin.record.as_ref().map_or(0, |record| record.state.step).max(told);
    let found = match shelf.newest_manifest_until(steps, is_proven) {
        // Events that were deleted tell of no step; what was saved counts all the same.
        Ok(None) | Err(_) if is_proven => shelf.newest_manifest(),
        Ok(None) | Err(_) => shelf.newest_manifest_alone(),
        found => found,
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

/// What serves rows to workers that never see the data, where it was encoded for them.
fn rows(launch: &Launch, log: &Log) -> Result<Option<Serving>, Trouble> {
    if launch.facts.coding.is_none() {
        return Ok(None);
    }
    let source = Source::open(launch, log.clone())?;
    Ok(Some(Arc::new(move |join, sender, receiver| source.serve(join, sender, receiver))))
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
