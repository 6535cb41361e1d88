//! How a coordinator begins: from the session's start, or in the place of one that was lost.
//!
//! Owns what it goes on from: the record of the last coordinator, the newest usable checkpoint, and
//! the events that were told. Reads the disk and opens what is written from then on; never decides
//! what the run does next.

use super::Log;
use super::coordinator::{Beginning, Untold};
use super::files::Files;
use super::keeping::Keeping;
use crate::methods::{self, Built};
use crate::record;
use crate::run::Origin;
use crate::run::course::Setup;
use crate::run::record::told_steps;
use planaria_protocol::checkpoint::{
    self, CheckpointFolder, Found, Manifest, Unreadable, data_sha256,
};
use planaria_protocol::durable::Space;
use planaria_protocol::event::{Event, Started, What};
use planaria_protocol::journal::{self, Journal};
use planaria_protocol::launch::{CourseLaunch, Facts, Launch};
use planaria_protocol::message::Trouble;
use planaria_protocol::state::State;
use planaria_recipe::sections::Recipe;
use std::path::Path;

/// The machine that a coordinator begins on.
pub struct Machine {
    /// Which boot of it this is: a record of another one is not believed.
    pub boot: String,
    /// Of its disk.
    pub space: Space,
    pub seconds: f64,
}

/// What [`started`] tells of a session besides its recipe and data.
pub struct Session {
    pub run_id: String,
    pub recipe_sha256: String,
    pub workers: u32,
    pub servers: u32,
}

/// What a coordinator begins with.
pub struct Start {
    pub beginning: Beginning,
    pub untold: Untold,
    pub files: Files,
}

/// Reads what a coordinator goes on from, and opens what it writes.
pub fn start(launch: &Launch, machine: Machine, log: &Log) -> Result<Start, Trouble> {
    let mut course = launch.course.clone().ok_or_else(|| Trouble::new("there is no course"))?;
    let Machine { boot, space, seconds } = machine;
    let run_dir = Path::new(&course.run_dir).to_path_buf();
    let events = run_dir.join(journal::FILE);
    let unwritable =
        |e: std::io::Error| Trouble::new(format!("cannot write `{}`: {e}", events.display()));
    let mut told = journal::session(&events).map_err(unwritable)?;
    // One that was lost before it could say that the session began has left nothing.
    let began = |event: &Event| {
        matches!(event.what, What::Started(_)) && event.generation >= course.manifest.generation
    };
    if !told.iter().any(began) {
        course.after = None;
    }
    let keep = launch.recipe.output.keep;
    let checkpoint_folder =
        CheckpointFolder::new(run_dir.join(checkpoint::FOLDER), keep).with_space(space.clone());
    let said: Vec<What> = told.iter().map(|event| event.what.clone()).collect();
    let mut origin = origin(launch, &course, &checkpoint_folder, &boot, told_steps(&said), log);
    // A decision is told, even if the coordinator that took it was lost before it could.
    let untold = origin.record.as_mut().map_or_else(Vec::new, |r| r.take_untold(&said));
    let base = match (&origin.record, &origin.after) {
        (Some(record), None) => &record.state,
        _ => &course.manifest.state,
    };
    let started = origin.after.is_none().then(|| {
        told.clear();
        let session = Session {
            run_id: course.run_id.clone(),
            recipe_sha256: course.manifest.recipe_sha256.clone(),
            workers: launch.size.workers,
            servers: launch.size.servers,
        };
        What::Started(started(&launch.recipe, &launch.facts, session, base.step))
    });
    // Getting here is part of the run.
    let before = base.seconds_total + (seconds - course.commanded).max(0.0);
    origin.told = told_steps(said.iter().chain(&untold).chain(&started));
    let record = origin.record.clone();
    let generation = launch.generation;
    let journal = Journal::open(&events, generation).map_err(unwritable)?;
    let journal = journal.with_space(space.clone());
    let manifest = Manifest { generation, ..course.manifest };
    let Built { run, ranges, manifest } = methods::build(launch, origin, manifest, before)?;
    let stamp = record::Stamp { boot, data: data_sha256(&manifest.data) };
    let keeping = launch.state.as_ref().map(|folder| Keeping::new(folder.into(), stamp, space));
    Ok(Start {
        beginning: Beginning { run, generation, manifest, ranges, told },
        untold: Untold { events: untold, record, started },
        files: Files { journal, checkpoint_folder, keeping, log: log.clone() },
    })
}

/// Where the run goes on from: as the command said, or, in the place of a coordinator that was
/// lost, from its record and the newest usable checkpoint.
fn origin(
    launch: &Launch,
    course: &CourseLaunch,
    checkpoint_folder: &CheckpointFolder,
    boot: &str,
    told: u64,
    log: &Log,
) -> Origin {
    let (state, checkpoint) = (course.manifest.state.clone(), course.checkpoint.clone());
    let folder = launch.state.as_deref().map(Path::new);
    let record = folder.and_then(|folder| record::read(folder, boot));
    // What was kept over other data is not this run's.
    let own = data_sha256(&course.manifest.data);
    let record = record.filter(|(_, data)| *data == own).map(|(record, _)| record);
    let record = record.filter(|record| record.state.step >= state.step);
    let after = course.after.clone();
    let mut origin = Origin { checkpoint, state, record, told: 0, after };
    if course.after.is_none() {
        return origin;
    }
    let recorded = origin.record.as_ref().map(|record| record.state.step);
    match newest(checkpoint_folder, recorded, told) {
        Ok(Some(found)) => {
            found.damaged.iter().for_each(|why| log(why));
            let folder = found.path.canonicalize().unwrap_or(found.path);
            origin.checkpoint = Some(folder.display().to_string());
            let resumes = origin.state.resumes;
            origin.state = State { resumes, ..found.checkpoint.state };
        }
        Ok(None) => {}
        // The record may do without; if not, the servers will say so.
        Err(why) => log(&format!("no checkpoint can be used: {why}")),
    }
    origin
}

/// The newest checkpoint of steps that the record or events tell.
fn newest(
    checkpoint_folder: &CheckpointFolder,
    recorded: Option<u64>,
    told: u64,
) -> Result<Option<Found<Manifest>>, Unreadable> {
    // Servers go on from what they kept, as the record says; if they cannot, they compare what they
    // read. The run does not wait for a look at all parts before that.
    let is_proven = recorded.is_none();
    match checkpoint_folder.newest_manifest_until(recorded.unwrap_or(0).max(told), is_proven) {
        // Events that were deleted tell of no step; what was saved counts all the same.
        Ok(None) | Err(_) if is_proven => checkpoint_folder.newest_manifest(),
        Ok(None) | Err(_) => checkpoint_folder.newest_manifest_alone(),
        found => found,
    }
}

/// The first event of a session that begins at `step`. A run in one process has no workers or
/// servers.
pub fn started(recipe: &Recipe, facts: &Facts, session: Session, step: u64) -> Started {
    let setup = Setup::of(recipe, facts);
    Started {
        run_id: session.run_id,
        recipe: recipe.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        recipe_sha256: session.recipe_sha256,
        step,
        epochs: setup.epochs,
        steps_per_epoch: setup.steps_per_epoch,
        examples: facts.examples,
        parameters: facts.parameters,
        classification: setup.classification,
        workers: session.workers,
        servers: session.servers,
        shards: recipe.train.shards as u32,
        batch: recipe.train.batch as u64,
        digest: setup.examples,
    }
}
