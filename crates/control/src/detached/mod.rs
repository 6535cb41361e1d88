//! A run whose controller is on a machine of its pool, seen from where it was started.
//!
//! Owns the beginning of it (machines raised, hosts that become processes of their own), what is
//! kept of it here (`detached.json`), and its end: everything fetched, machines given back. What it
//! does in between is its controller's.
//!
//! # Layout
//! - [`mirror`]: what is told of it; [`salvage`]: what is left of it where its controller is lost

pub mod mirror;
pub mod salvage;

use crate::jobs::controller::{self, Kind};
use crate::jobs::pooling::{self, Pooling, failure};
use crate::jobs::train::Job;
use crate::program;
use crate::stopping;
use crate::talk::{Progress, Talk};
use mirror::{Heard, Known, METRICS};
use planaria_fleet::files::copy;
use planaria_fleet::host::calling::Calling;
use planaria_fleet::local::{Local, OWN};
use planaria_fleet::log_end::last_line;
use planaria_fleet::messages::ToHost;
use planaria_fleet::pool::giving_back::{self, DESTROYING};
use planaria_fleet::pool::resources::{self, Resources};
use planaria_fleet::pool::{Pool, ReadyMachine};
use planaria_fleet::program::Program;
use planaria_fleet::provider::{Call, LOOPBACK, Machine, Provider, Ran, Tag};
use planaria_fleet::sites::Sites;
use planaria_protocol::Secret;
use planaria_protocol::event::What;
use planaria_protocol::journal;
use planaria_protocol::launch::Trust;
use planaria_protocol::message::Agent;
use planaria_protocol::tls::Authority;
use planaria_recipe::Source;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Context, Exit, Failure, Result, plain};
use planaria_runs::history::History;
use planaria_runs::run_dir::lock::Holder;
use planaria_runs::run_dir::{self, LOGS};
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
/// Poll interval for the beginning of a run.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a controller may take to begin at all.
const CONTROL_WITHIN: Duration = Duration::from_secs(20);
/// How long a run may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(60);
/// How long the training may take to begin before this command stops waiting for it.
const BEGIN_WITHIN: Duration = Duration::from_secs(300);

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
    /// Of a failure.
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
    /// It has ended, all of it is here, and its machines are given back.
    Ended,
    /// Its controller has ended without a word. What was left of it is here.
    Lost,
}

impl Detached {
    /// Of a run's folder here; nothing where the run is not left to machines, or no more.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        let text = match fs::read(&path) {
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

/// Raises the machines of a run, leaves it to them, and waits until it has begun. Where that fails
/// everything is given back. The run's folder.
pub fn begin(job: Job, threads: Option<u16>) -> Result<PathBuf> {
    let program = job.program.clone();
    let program = program.ok_or_else(|| Failure::failed("no program was found to start"))?;
    let logs = job.run.file(LOGS);
    fs::create_dir_all(&logs).context(|| format!("cannot create `{}`", logs.display()))?;
    let (pool, authority) = Pooling::detached(&job, &program)?.pool();
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
        if pool.coming() > 0 {
            std::thread::park_timeout(controller::LOOK_EVERY);
            return Ok(None);
        }
        match pool.first_fault() {
            Some(fault) if pool.standing().len() * self.slots < self.workers_min => {
                Err(failure(fault.clone()))
            }
            _ => Ok(Some(())),
        }
    }
}

/// Makes the first machine's host the run's controller, and has the others call it.
fn hand_over(
    job: &Job,
    provider: &dyn Provider,
    authority: &Authority,
    raised: &[ReadyMachine],
    threads: Option<u16>,
) -> Result<()> {
    let secret = Secret::random().map_err(Failure::failed)?.to_hex();
    let certificate = |agent, machine: Option<&str>| {
        authority.issue(agent, machine, Duration::ZERO).map_err(Failure::failed)
    };
    let [head, others @ ..] = raised else {
        return Err(Failure::user("the pool has no machines"));
    };
    let mut addresses = head.remote.hello.addresses.clone();
    if provider.is_here(&head.machine) || addresses.is_empty() {
        addresses = vec![LOOPBACK.to_owned()];
    }
    let calling = |machine: &Machine, addresses: Vec<String>| {
        let (machine, secret) = (machine.name.clone(), secret.clone());
        let trust = Some(certificate(Agent::Host, Some(&machine))?);
        Ok::<_, Failure>(Calling { machine, addresses, secret, trust })
    };
    let own = addresses.iter().cloned().chain([LOOPBACK.to_owned()]).collect();
    let orders = Orders {
        recipe: job.recipe_text.clone(),
        threads,
        machines: raised.iter().map(|one| one.machine.clone()).collect(),
        secret: secret.clone(),
        trust: certificate(Agent::Controller, None)?,
        own: calling(&head.machine, own)?,
    };
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
    let port = head.remote.detach(json(&orders), true).map_err(failure)?;
    let targets: Vec<String> = addresses.iter().map(|host| format!("{host}:{port}")).collect();
    for other in others {
        // Those that come later wait for it, and must hear meanwhile that the controller lives.
        for later in others {
            later.remote.say(ToHost::Alive);
        }
        let reached = other.remote.reach(targets.clone()).map_err(failure)?;
        let reached = reached.ok_or_else(|| {
            let (name, head) = (&other.machine.name, &head.machine.name);
            Failure::user(format!("{name} cannot reach {head}, on which the controller would be"))
                .hint("machines of a detached run must reach each other; train without `--detach`")
        })?;
        let calling = calling(&other.machine, vec![reached])?;
        other.remote.detach(json(&calling), false).map_err(failure)?;
    }
    Ok(())
}

/// Where a machine would have a copy of the run.
fn copy_of(machine: &ReadyMachine) -> (String, String) {
    let home = Path::new(&machine.remote.hello.folder).parent().unwrap_or(Path::new("/"));
    (machine.machine.name.clone(), home.join(copy::FOLDER).display().to_string())
}

fn json(orders: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(orders).expect("plain values")
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

/// A run that is left to machines, and the way to its controller's.
pub struct Away {
    folder: PathBuf,
    /// Where it is.
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
        let text = fs::read(&path).context(|| format!("cannot read `{}`", path.display()))?;
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
            let heard = self.hear(head, folder, &known, &self.folder)?;
            // The first that finds that it has ended knows nothing of the other files here.
            if !heard.is_more && heard.is_live == is_live {
                return Ok(heard);
            }
            is_first = is_live && !heard.is_live;
            is_live = heard.is_live;
        }
    }

    /// Has a machine tell what is new in a folder there, and takes it into one here.
    fn hear(&self, machine: &Machine, there: &str, known: &Known, here: &Path) -> Result<Heard> {
        let ran = self.command_on(machine, there, &["agent", "mirror", "RUN"], &json(known))?;
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
            let heard = self.fetch()?;
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
    let refreshed = Away::find(folder).and_then(|away| match away {
        Some(mut away) => away.follow(talk).map(drop),
        None => Ok(()),
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
        if away.follow(Talk::QUIET)? == Following::Lives {
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
