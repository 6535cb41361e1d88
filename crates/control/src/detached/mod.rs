//! A run whose controller is on a machine of its pool, seen from where it was started.
//!
//! Owns the beginning of it (machines raised, hosts that become processes of their own), what is
//! kept of it here (`detached.json`), and its end: everything fetched, machines given back. What it
//! does in between is its controller's.
//!
//! # Layout
//! - [`beginning`]: machines raised, and left to themselves
//! - [`mirror`]: copies of its files here; [`salvage`]: what is left of it after a loss of its
//!   controller
//! - [`succession`]: another machine goes on after such a loss; [`watching`]: this one does

pub mod beginning;
pub mod mirror;
pub mod salvage;
pub mod succession;
pub mod watching;

use crate::jobs::controller;
use crate::jobs::pooling::{self, failure};
use crate::talk::{Progress, Talk};
use beginning::json;
use mirror::{Heard, METRICS, Question};
use planaria_fleet::host::calling::Calling;
use planaria_fleet::local::OWN;
use planaria_fleet::pool::giving_back::{self, DESTROYING};
use planaria_fleet::pool::resources::{self, Resources};
use planaria_fleet::program::Program;
use planaria_fleet::provider::{Call, Machine, Provider, Ran, Tag};
use planaria_protocol::launch::Trust;
use planaria_protocol::plain;
use planaria_recipe::Source;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Context, Exit, Failure, Result};
use planaria_runs::history::History;
use planaria_runs::run_dir;
use planaria_runs::run_dir::lock::Holder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Name of the file in a run's folder here.
pub const FILE: &str = "detached.json";
/// Name of the file beside a run's folder there: how it ended.
pub const ENDED: &str = "ended.json";
/// How long a question to the controller's machine may take.
const ASK_WITHIN: Duration = Duration::from_secs(60);
/// Poll interval for the end of a run.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a run may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(60);

/// What the controller of a detached run is told.
#[derive(Serialize, Deserialize)]
pub struct Orders {
    /// The resolved recipe, as it is in the run's folder.
    pub recipe: String,
    /// Threads of each process that computes, where that was asked for.
    pub threads: Option<u16>,
    /// The machines, of which the controller's own is one.
    pub machines: Vec<Machine>,
    /// What hosts that call must know, in hexadecimal.
    pub secret: String,
    /// The controller's certificate, under the authority that theirs are of.
    pub trust: Trust,
    /// For the host of the controller's own machine; its addresses are without port.
    pub own: Calling,
    /// The machine of the controller before it, which was lost; nothing for the first.
    pub succeeds: Option<String>,
}

/// How a controller's work ended, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// What a command would exit with.
    pub exit: i32,
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    #[serde(default)]
    pub is_diagnosis: bool,
}

impl Ended {
    pub fn of(failure: &Failure) -> Self {
        let (message, hint) = (failure.message.clone(), failure.hint.clone());
        let is_diagnosis = failure.is_diagnosis;
        Self { exit: failure.exit.code().into(), message, hint, is_diagnosis }
    }

    fn failure(self) -> Option<Failure> {
        let exit = Exit::of_code(self.exit)?;
        let is_diagnosis = self.is_diagnosis;
        Some(Failure { is_diagnosis, ..Failure::new(exit, self.message, self.hint) })
    }
}

/// Where a run is that was left to its machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// The machine of the controller.
    pub head: Machine,
    /// The run's folder there.
    pub folder: String,
    /// The build that works on it.
    pub build: String,
    /// Whether it lived when it was last asked.
    pub is_live: bool,
    /// Whether it has ended, and all of it is here.
    #[serde(default)]
    pub is_fetched: bool,
    /// Whether its controller was lost, so that not all of it is here.
    #[serde(default)]
    pub is_lost: bool,
    /// By machine, where a copy of its checkpoints may be.
    #[serde(default)]
    pub copies: BTreeMap<String, String>,
}

/// What becomes of a run that is left to machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Following {
    /// Its controller is at work.
    Lives,
    /// Its controller is lost, and another machine is about to take its place.
    Passing,
    /// It has ended, all of it is here, and its machines are given back.
    Ended,
    /// Its controller has ended without a word. What was left of it is here.
    Lost,
}

impl Detached {
    /// Of a run's folder here; nothing where the run is not left to machines, or no more.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        let text = match plain::read(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.context(|| format!("cannot read `{}`", path.display()))?,
        };
        // Machines that were given back, by whomever, hold no run.
        let held = resources::held(folder);
        if held.context(|| format!("cannot read in `{}`", folder.display()))?.is_empty() {
            return Ok(None);
        }
        let detached = serde_json::from_slice(&text);
        detached
            .map(Some)
            .map_err(|e| Failure::failed(format!("`{}` cannot be read: {e}", path.display())))
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_vec(self).expect("plain strings");
        run_dir::write(&folder.join(FILE), &text)
    }
}

/// Who works on a run, here or, as far as is known, elsewhere.
pub fn holder(folder: &Path) -> Result<Holder> {
    match Detached::read(folder)? {
        Some(detached) if detached.is_live => Ok(Holder::Someone),
        _ => Holder::of(folder),
    }
}

/// What became of a run so far, wherever its controller is.
pub fn history(folder: &Path) -> Result<History> {
    // First the lock: a run that ends in between has then said how.
    let holder = holder(folder)?;
    let detached = Detached::read(folder)?.filter(|detached| !detached.is_fetched);
    History::read(folder, holder, detached.map(|detached| detached.head.name))
}

/// Refuses to go on with a run that is left to machines; one that is all here is taken from them, and
/// so is one whose controller is lost, as far as copies of it are left.
pub fn take_over(folder: &Path, talk: Talk) -> Result<()> {
    if let Some(mut away) = Away::find(folder)? {
        away.take_over(talk)?;
    }
    let detached = Detached::read(folder)?.filter(|detached| !detached.is_fetched);
    let Some(detached) = detached else {
        // Machines that the run will hold again are not those that it was left to.
        return match fs::remove_file(folder.join(FILE)) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(e).context(|| format!("cannot write in `{}`", folder.display()))
            }
            _ => Ok(()),
        };
    };
    let (path, head) = (folder.display(), detached.head.name);
    Err(Failure::user(format!("run `{path}` is left to its machines (controller on {head})")).hint(
        format!(
            "`planaria status {path}` fetches it when it has ended; `planaria stop {path}` ends it"
        ),
    ))
}

/// A run that is left to machines, and the way to its controller's.
pub struct Away {
    pub folder: PathBuf,
    pub detached: Detached,
    provider: Arc<dyn Provider>,
    program: Program,
    run: Tag,
}

impl Away {
    /// Of a run that is left to machines.
    fn of(folder: &Path) -> Result<Self> {
        let none = || Failure::user(format!("run `{}` is not detached", folder.display()));
        Self::find(folder)?.ok_or_else(none)
    }

    /// Of a run's folder here; nothing where the run is not left to machines, or no more.
    pub fn find(folder: &Path) -> Result<Option<Self>> {
        let Some(detached) = Detached::read(folder)? else { return Ok(None) };
        let path = folder.join("recipe.yaml");
        let text = plain::read(&path).context(|| format!("cannot read `{}`", path.display()))?;
        let source = Source::parse(&path.display().to_string(), &text, &[]);
        let source = source?;
        let program = pooling::read(Path::new(OWN))?;
        let provider = pooling::provider(source.recipe(), &program, true)?;
        let id = run_dir::run_id(folder);
        let run =
            Tag::new(&id).ok_or_else(|| Failure::user(format!("`{id}` names no machines")))?;
        let folder = folder.to_path_buf();
        Ok(Some(Self { folder, detached, provider, program, run }))
    }

    /// Runs a command of this program on the controller's machine; `RUN` stands for the run.
    pub fn command(&self, arguments: &[&str], input: &[u8]) -> Result<Ran> {
        self.command_on(&self.detached.head, &self.detached.folder, arguments, input)
    }

    /// The same on any machine, where the run is in a folder.
    fn command_on(
        &self,
        machine: &Machine,
        folder: &str,
        arguments: &[&str],
        input: &[u8],
    ) -> Result<Ran> {
        let word =
            |word: &&str| if *word == "RUN" { folder.to_owned() } else { (*word).to_owned() };
        let words: Vec<String> = arguments.iter().map(word).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Self { provider, program, run, .. } = self;
        let call = Call { program, arguments: &words, input, within: ASK_WITHIN };
        let ran = provider.run(run, machine, &call);
        ran.map_err(failure)
    }

    /// The same for a command that must succeed there.
    pub fn ask(&self, arguments: &[&str]) -> Result<Ran> {
        let ran = self.command(arguments, &[])?;
        let Some(exit) = Exit::of_code(ran.code) else { return Ok(ran) };
        let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
        let said = said.strip_prefix("error: ").unwrap_or(&said);
        let message = format!("on {}: {said}", self.detached.head.name);
        Err(Failure::new(exit, message, None))
    }

    /// Fetches what is new of the run; all of it where it has ended.
    pub fn fetch(&self) -> Result<Heard> {
        let (mut is_live, mut is_first) = (true, false);
        loop {
            let mut known = mirror::known(&self.folder, is_live);
            if is_first {
                // It may have been written anew where steps were done again.
                known.remove(METRICS);
            }
            let Detached { head, folder, .. } = &self.detached;
            let heard = self.hear(head, folder, &known.into(), &self.folder)?;
            // The first that finds that it has ended knows nothing of the other files here.
            if !heard.is_more && heard.is_live == is_live {
                return Ok(heard);
            }
            is_first = is_live && !heard.is_live;
            is_live = heard.is_live;
        }
    }

    /// Has a machine tell what is new in a folder there, and takes it into one here.
    fn hear(&self, machine: &Machine, there: &str, asked: &Question, here: &Path) -> Result<Heard> {
        let ran = self.command_on(machine, there, &["agent", "mirror", "RUN"], &json(asked))?;
        let name = &machine.name;
        if ran.code != 0 {
            let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
            return Err(Failure::failed(format!("{name} does not tell of the run: {said}")));
        }
        mirror::take(here, &ran.stdout).context(|| format!("cannot take in what {name} tells"))
    }

    /// Fetches what is new, and gives the machines back where the run has ended. Says what became of
    /// it.
    pub fn follow(&mut self, talk: Talk) -> Result<Following> {
        let mut progress = Progress::new(talk);
        if !self.detached.is_fetched {
            let Some(heard) = self.fetch_from_controller(&mut progress)? else {
                return Ok(Following::Passing);
            };
            if heard.is_live {
                return Ok(Following::Lives);
            }
            if heard.ended.is_none() {
                self.recover(&mut progress)?;
                return Ok(Following::Lost);
            }
            (self.detached.is_live, self.detached.is_fetched) = (false, true);
            self.detached.write(&self.folder)?;
        }
        if give_back(&self.provider, &self.run, &self.folder, &mut progress) {
            let path = self.folder.display();
            progress.note(&match self.detached.is_lost {
                true => format!("the machines of run {path} are given back"),
                false => {
                    format!("run {path} has ended: all of it is here, its machines are given back")
                }
            });
        }
        Ok(Following::Ended)
    }
}

/// Fetches what is new of a run that is left to machines; says on stderr where that fails, as what
/// is here is still true as far as it goes.
pub fn refresh(folder: &Path, talk: Talk) {
    let refreshed = Away::find(folder).and_then(|away| {
        let Some(mut away) = away else { return Ok(()) };
        if away.follow(talk)? == Following::Passing {
            Progress::new(talk).note(&succession::passing(&away.detached.head.name, folder));
        }
        Ok(())
    });
    if let Err(failure) = refreshed {
        let (why, path) = (failure.message, folder.display());
        let text = format!(
            "warning: {why}; this is what was known before. Where the machine is gone for good, \
             `planaria resume {path}` goes on from the newest copy on the others"
        );
        Progress::new(talk).note(&text);
    }
}

/// Stops a run that is left to machines and fetches what there is of it, as far as that is possible:
/// its machines are about to be given back in any case.
pub fn recall(folder: &Path, tell: &mut dyn FnMut(&str)) {
    let since = Stopwatch::start();
    let warning = |why: Failure| format!("warning: {}; not all of the run is here", why.message);
    let stop = |away: &mut Away| -> Result<()> {
        if away.lives(Talk::QUIET)? {
            away.ask(&["stop", "RUN"])?;
        }
        while away.follow(Talk::QUIET)? == Following::Lives && since.elapsed() < STOP_WITHIN {
            std::thread::park_timeout(LOOK_EVERY);
        }
        Ok(())
    };
    match Away::find(folder) {
        Ok(None) => {}
        Err(failure) => tell(&warning(failure)),
        Ok(Some(mut away)) => match stop(&mut away) {
            Ok(()) => tell(&format!("run {} was stopped and fetched", folder.display())),
            Err(failure) => {
                tell(&warning(failure));
                // What others have of it goes with them.
                if let Err(failure) = away.recover(&mut Progress::new(Talk::QUIET)) {
                    tell(&warning(failure));
                }
            }
        },
    }
}

/// Gives all machines of a run back that are still held; says on stderr which could not be, and
/// whether all were.
fn give_back(
    provider: &Arc<dyn Provider>,
    run: &Tag,
    folder: &Path,
    progress: &mut Progress,
) -> bool {
    let Ok(mut resources) = Resources::open(folder) else { return false };
    let (held, gone) = (resources.held(), |name: &str| drop(resources.gone(name)));
    for fault in giving_back::give_back(provider, run, held, DESTROYING, gone) {
        progress.note(&controller::kept(&fault, run.as_str()));
    }
    let all = resources.held().is_empty();
    if all {
        // Without machines it says nothing.
        let _ = fs::remove_file(folder.join(FILE));
    }
    all
}
