//! What runs hold on machines, and how it is given back.
//!
//! Owns the way from a run's `resources.jsonl` to nothing. A live run is asked to stop first, and
//! gives back what it holds by itself; its lock is taken before anything is destroyed, so that
//! no command goes on with it meanwhile. Never prints.

use crate::detached;
use crate::jobs::about_run;
use crate::jobs::pooling::failure;
use crate::leftovers;
use crate::live::stop;
use planaria_fleet::pool::giving_back::{DESTROYING, Unwanted, destroy};
use planaria_fleet::pool::resources::{self, Resources};
use planaria_fleet::provider::{Fault, Machine, Tag};
use planaria_fleet::providers::{self, Purpose};
use planaria_protocol::event::What;
use planaria_protocol::journal;
use planaria_recipe::pool::Pool;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir::lock::{Holder, Lock};
use planaria_runs::run_dir::{self, run_id};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a live run may take to stop.
const STOPPING: Duration = Duration::from_secs(60);
/// Poll interval for its end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a run holds, as it is written down.
#[derive(Debug, Clone)]
pub struct Holding {
    /// The run's folder.
    pub folder: PathBuf,
    /// Who works on the run.
    pub holder: Holder,
    /// Machines that may exist, by name.
    pub machines: Vec<Machine>,
}

impl Holding {
    /// Of the run in a folder.
    pub fn of(folder: &Path) -> Result<Self> {
        // First the lock: a run that ends in between has then given back what it held.
        let holder = detached::holder(folder)?;
        Ok(Self { folder: folder.to_path_buf(), holder, machines: held(folder)? })
    }

    /// Of every run of a folder of runs that holds something, or is about to; newest first.
    pub fn all(dir: &Path) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for folder in run_dir::list(dir)? {
            let holding = Self::of(&folder)?;
            if !holding.machines.is_empty() || holding.may_begin() {
                found.push(holding);
            }
        }
        Ok(found)
    }

    /// Names of the machines, as they are told.
    pub fn names(&self) -> String {
        names(&self.machines)
    }

    /// Whether it lives, and its recipe asks for machines that it has not written down yet.
    fn may_begin(&self) -> bool {
        self.holder.is_live() && pool(&self.folder).is_ok_and(|pool| pool.has_machines())
    }
}

/// What became of what a run held.
#[derive(Debug, Clone, Serialize)]
pub struct Account {
    /// The run's folder.
    pub run: PathBuf,
    /// Machines that are given back.
    pub given_back: Vec<String>,
    /// Machines that are not.
    pub kept: Vec<Kept>,
}

/// A machine that could not be given back, and stays written down.
#[derive(Debug, Clone, Serialize)]
pub struct Kept {
    pub machine: String,
    pub why: String,
    pub hint: String,
}

impl Kept {
    /// After a fault.
    pub fn of(fault: Fault) -> Self {
        let hint = fault.hint.filter(|hint| !hint.is_empty());
        let hint = hint.unwrap_or_else(|| "try again when it answers".into());
        Self { machine: fault.machine, why: fault.what, hint }
    }
}

/// Stops a run if it lives, and gives back all that it holds. With `forget`, what cannot be given
/// back is crossed out all the same. `tell` gets a line for each thing done.
pub fn give_back(folder: &Path, forget: bool, tell: &mut dyn FnMut(&str)) -> Result<Account> {
    let before = held(folder)?;
    detached::recall(folder, tell);
    stop_run(folder, tell)?;
    let _lock = Lock::take(folder)?;
    leftovers::clear(folder, tell);
    let machines = held(folder)?;
    let is_left = |machine: &&Machine| machines.iter().any(|left| left.name == machine.name);
    let own = before.iter().filter(|machine| !is_left(machine)).map(|machine| machine.name.clone());
    let mut account =
        Account { run: folder.to_path_buf(), given_back: own.collect(), kept: Vec::new() };
    // What a run gave back while it was asked to stop.
    account.given_back.iter().for_each(|name| tell(&format!("gave back {name}")));
    if machines.is_empty() {
        return Ok(account);
    }
    let provider = providers::of(&pool(folder)?, &Purpose::default()).map_err(failure)?;
    let run = tag(folder)?;
    let path = folder.join(resources::FILE);
    let unwritable = || format!("cannot write `{}`", path.display());
    let mut written = Resources::open(folder).context(unwritable)?;
    let unwanted = |machine: &Machine| Unwanted {
        provider: provider.clone(),
        run: run.clone(),
        machine: machine.clone(),
    };
    destroy(machines.iter().map(unwanted).collect(), DESTROYING, |number, result| {
        let machine = &machines[number];
        let crossed_out = |()| {
            let hint = "it is gone all the same; make room, and give it back once more";
            let fault = |e| Fault::fix(&machine.name, format!("{}: {e}", unwritable()), hint);
            written.gone(&machine.name).map_err(fault)
        };
        match result.and_then(crossed_out) {
            Ok(()) => {
                tell(&format!("gave back {}", machine.name));
                account.given_back.push(machine.name.clone());
            }
            Err(fault) if forget && written.gone(&machine.name).is_ok() => {
                tell(&format!("forgot {}: {}", machine.name, fault.what));
            }
            Err(fault) => account.kept.push(Kept::of(fault)),
        }
    });
    Ok(account)
}

/// The pool that the recipe of a run names.
pub fn pool(folder: &Path) -> Result<Pool> {
    Ok(run_dir::recipe(folder)?.pool().clone())
}

/// What the run's machines are tagged with: its name when it was last begun, which a folder that was
/// moved has no longer.
fn tag(folder: &Path) -> Result<Tag> {
    let path = folder.join(journal::FILE);
    // A run may hold machines before its first event.
    let events = journal::read(&path).unwrap_or_default();
    let begun = events.iter().rev().find_map(|event| match &event.what {
        What::Started(started) => Some(started.run_id.clone()),
        _ => None,
    });
    let name = begun.unwrap_or_else(|| run_id(folder));
    Tag::new(&name).ok_or_else(|| Failure::failed(format!("`{name}` is no name of a run")))
}

fn held(folder: &Path) -> Result<Vec<Machine>> {
    let path = folder.join(resources::FILE);
    let held = resources::held(folder).context(|| format!("cannot read `{}`", path.display()))?;
    Ok(held.into_values().collect())
}

fn names(machines: &[Machine]) -> String {
    let names: Vec<&str> = machines.iter().map(|machine| machine.name.as_str()).collect();
    names.join(", ")
}

/// Asks a live run to stop, and waits until it has; not for ever.
fn stop_run(folder: &Path, tell: &mut dyn FnMut(&str)) -> Result<()> {
    let (clock, mut asked) = (Stopwatch::start(), None);
    loop {
        let holder = Holder::of(folder)?;
        match holder {
            Holder::Free => return Ok(()),
            _ if clock.elapsed() > STOPPING => return Err(goes_on(folder, holder)),
            // Looked at again: it may have become another, such as one that was just begun.
            Holder::Process { listens: true, .. } if asked != Some(holder) => {
                if asked.is_none() {
                    tell(&format!("run {} {}", folder.display(), about_run(folder).stops()));
                }
                // Where it cannot be asked it is only just beginning or ending.
                asked = stop::request(folder, holder).is_ok().then_some(holder);
            }
            // Another command gives it back, or a program has to stop it by itself.
            _ => {}
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// The failure of a run that does not stop.
fn goes_on(folder: &Path, holder: Holder) -> Failure {
    let (path, seconds) = (folder.display(), STOPPING.as_secs());
    let machines = held(folder).unwrap_or_default();
    let holds = match machines.is_empty() {
        true => String::new(),
        false => format!(", and holds {}", names(&machines)),
    };
    let message = format!("run `{path}` has not stopped within {seconds} s{holds}");
    let failure = Failure::failed(message);
    match holder.pid() {
        Some(pid) => failure.hint(format!(
            "end its process with `kill -9 {pid}`, then give back what it holds with `planaria down {path}`"
        )),
        None => failure.hint(format!("try again in a moment: `planaria down {path}`")),
    }
}
