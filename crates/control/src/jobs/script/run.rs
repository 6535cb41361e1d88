//! A job from its recipe to its end: the shell around the decisions.
//!
//! Owns the loop that hears of machines and processes, tells [`decide`](super::decide) and does what
//! that says. Never decides what the end of a process means.
//!
//! # Layout
//! - `starting`: from machines to processes; `mending`: one process again; `ending`: what is left

mod ending;
mod mending;
mod starting;

use crate::jobs::pooling::failure;
use crate::jobs::script::board::Board;
use crate::jobs::script::book::Book;
use crate::jobs::script::decide::{self, Action, Decider, Outcome, Policy};
use crate::jobs::script::layout::{Layout, Process};
use crate::jobs::script::machines::Machines;
use crate::jobs::script::prepare::Prepared;
use crate::jobs::script::report::Report;
use crate::jobs::script::round::Readying;
use crate::jobs::script::variables::Told;
use crate::jobs::script::watch::{Fetching, Meetings, Sources};
use crate::program;
use crate::stopping;
use crate::talk::{Progress, Talk};
use ending::hopeless;
use mending::Mending;
use planaria_fleet::ending::Ending;
use planaria_fleet::files::Outputs;
use planaria_fleet::home::FOLDER;
use planaria_fleet::home::user_home;
use planaria_fleet::pool::Standing;
use planaria_numerics::digest::Digest;
use planaria_protocol::event::{Started, What};
use planaria_protocol::journal::{self, Journal};
use planaria_protocol::message::Agent;
use planaria_recipe::script::PerMachine;
use planaria_recipe::{JobSource, to_yaml};
use planaria_runs::clock::{self, Stopwatch};
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::number::counted;
use planaria_runs::run_dir::RunDir;
use sha2::Digest as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often it is looked what has happened.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a lost machine is waited for before the others take its processes.
const REPLACED_WITHIN: Duration = Duration::from_secs(60);
/// How often a round may fail to be made ready on machines that are there, and the pause between.
const UNREADY_MAX: u32 = 5;
const UNREADY_PAUSE: Duration = Duration::from_secs(2);
/// When it is first told that somebody has not found the others.
const UNMET_TOLD: Duration = Duration::from_secs(30);
/// Last lines of a failed process that are shown.
const LINES_SHOWN: usize = 20;

/// What a job is started with.
pub struct Asked<'a> {
    pub source: &'a JobSource,
    /// How it talks.
    pub talk: Talk,
    /// Since the command began.
    pub process: Stopwatch,
    /// The program that agents are processes of.
    pub program: Option<&'a Path>,
}

/// How a job has ended.
pub struct Finished {
    /// What came of it.
    pub report: Report,
    /// The run's folder.
    pub path: PathBuf,
    /// What is told at the end.
    pub summary: String,
    /// Why it failed.
    pub failure: Option<Failure>,
}

/// Runs a job.
pub fn run(asked: &Asked<'_>) -> Result<Finished> {
    let prepared = Prepared::new(asked.source, asked.talk)?;
    let program = program::find(asked.program)?;
    let job = &prepared.job;
    let dir = Path::new(&job.output.dir);
    let names = user_home().join(FOLDER).join("names");
    let folder = RunDir::create_bare(dir, &job.name, clock::unix_seconds() as u64, &names)?;
    let recipe = to_yaml(job);
    let begun = folder
        .write("recipe.yaml", recipe.as_bytes())
        .and_then(|()| Machines::new(&prepared, &folder, &program));
    let machines = match begun {
        Ok(machines) => machines,
        Err(failure) => {
            // Nothing was begun, so nothing is left.
            let _ = std::fs::remove_dir_all(folder.path());
            return Err(failure);
        }
    };
    stopping::begin(folder.path(), true);
    let mut running = Running::new(asked, &prepared, &folder, machines)?;
    running.begin(&recipe)?;
    let outcome = running.follow();
    running.conclude(outcome)
}

/// Why the loop ended.
enum End {
    Decided(Outcome),
    /// No machine can be had, or nothing can begin.
    Never(Failure),
}

struct Running<'p> {
    prepared: &'p Prepared,
    folder: &'p RunDir,
    machines: Machines,
    decider: Decider,
    book: Book<'p>,
    progress: Progress,
    journal: Journal,
    clock: Stopwatch,
    since_command: Stopwatch,
    layout: Option<Layout>,
    told: Vec<Told>,
    /// By number in the pool, which process and which start of it.
    live: BTreeMap<u32, (u32, u32)>,
    starts: u32,
    round: u32,
    gathering: Option<Duration>,
    readying: Option<Readying>,
    mending: BTreeMap<u32, Mending>,
    meetings: Meetings,
    fetching: Fetching,
    board: Option<Board>,
    first_start: Option<f64>,
    round_began: Option<Duration>,
    unmet_told: bool,
    unready: u32,
    not_before: Duration,
    stopped: Vec<u32>,
}

impl<'p> Running<'p> {
    fn new(
        asked: &Asked<'_>,
        prepared: &'p Prepared,
        folder: &'p RunDir,
        machines: Machines,
    ) -> Result<Self> {
        let job = &prepared.job;
        let policy = Policy::of(job, prepared.framework);
        let connect = Duration::from_secs(job.script.connect_seconds);
        let outputs = Outputs::new(&folder.file("outputs"), prepared.outputs.clone());
        let is_wanted = !prepared.outputs.texts().is_empty();
        let path = folder.file(journal::FILE);
        let journal = Journal::open(&path, 1);
        Ok(Self {
            prepared,
            folder,
            machines,
            decider: Decider::new(policy, job.script.max_restarts, connect),
            book: Book::open(folder.path(), asked.talk, &prepared.secrets)?,
            progress: Progress::new(asked.talk),
            journal: journal.context(|| format!("cannot write `{}`", path.display()))?,
            clock: Stopwatch::start(),
            since_command: asked.process,
            layout: None,
            told: Vec::new(),
            live: BTreeMap::new(),
            starts: 0,
            round: 0,
            gathering: None,
            readying: None,
            mending: BTreeMap::new(),
            meetings: Meetings::begin(),
            fetching: Fetching::new(outputs, is_wanted),
            board: None,
            first_start: None,
            round_began: None,
            unmet_told: false,
            unready: 0,
            not_before: Duration::ZERO,
            stopped: Vec::new(),
        })
    }

    fn begin(&mut self, recipe: &str) -> Result<()> {
        let job = &self.prepared.job;
        let roles: Vec<String> =
            job.role_counts().iter().map(|(role, count)| counted_role(role, *count)).collect();
        let path = self.folder.path().display();
        let on = match job.machine_count() {
            1 if self.machines.are_here => "on this machine".to_owned(),
            1 => "on 1 machine".to_owned(),
            n => format!("on {n} machines"),
        };
        let framework = self.prepared.framework.as_str();
        let what = match &job.script.per_machine {
            Some(PerMachine::Each(what)) => format!("one worker for each {what}"),
            _ => roles.join(", "),
        };
        self.progress.note(&format!("run {path}: {} ({framework}), {what} {on}", job.script.file));
        for note in &self.prepared.notes {
            self.progress.note(note);
        }
        let workers: usize = job.role_counts().iter().map(|(_, count)| count).sum();
        let hash: [u8; 32] = sha2::Sha256::digest(recipe.as_bytes()).into();
        self.record(What::Started(Started {
            run_id: self.folder.id(),
            recipe: job.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            recipe_sha256: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            step: 0,
            epochs: 0,
            steps_per_epoch: 0,
            examples: 0,
            parameters: 0,
            classification: false,
            workers: workers as u32,
            servers: 0,
            shards: 0,
            batch: 0,
            digest: Digest::default(),
        }));
        if let (Some(program), Some(logs)) = (&self.prepared.tensorboard, &job.script.tensorboard) {
            let shown = self.folder.file("outputs").join(logs);
            let board = Board::start(program, &shown, &self.folder.file("logs/tensorboard.log"));
            match board {
                Ok(board) => {
                    self.progress.note(&format!("TensorBoard: {}", board.address));
                    self.board = Some(board);
                }
                Err(e) => self.progress.note(&format!("TensorBoard cannot be started: {e}")),
            }
        }
        Ok(())
    }

    fn follow(&mut self) -> End {
        loop {
            let now = self.clock.elapsed();
            if stopping::asked() && !self.decider.is_ending() {
                self.record(What::Stopping { reason: stopping::REASON.into() });
                self.decider.give_up();
                (self.gathering, self.readying) = (None, None);
            }
            self.machines.pool.look(now);
            self.hear(now);
            if let Some(fault) = self.machines.pool.take_failure() {
                return End::Never(failure(fault));
            }
            for action in self.decider.look(now) {
                match action {
                    Action::Round => self.gathering = Some(now),
                    Action::Start(id) => {
                        let mending = Mending { since: now, readying: None };
                        self.mending.entry(id).or_insert(mending);
                    }
                    Action::Stop(ids) => self.stop(&ids),
                    Action::Over(outcome) => return End::Decided(outcome),
                }
            }
            if let Some(failure) = self.gather(now) {
                return End::Never(failure);
            }
            self.mend(now);
            self.ask(now);
            self.book.tick(self.since_command.seconds());
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Takes in what machines and processes have done.
    fn hear(&mut self, now: Duration) {
        for (agent, bytes) in self.machines.pool.take_said() {
            if let Agent::Task(id) = agent {
                self.book.wrote(id, &bytes);
            }
        }
        for exit in self.machines.pool.take_exits() {
            let Some((id, _)) = self.live.remove(&exit.pid) else { continue };
            self.ended(now, id, exit.ending);
        }
        for note in self.machines.take_notes() {
            self.progress.note(&note);
        }
        for (id, start) in self.meetings.take() {
            if self.live.values().any(|live| *live == (id, start)) {
                self.decider.met(id);
            }
        }
        for round in self.fetching.take() {
            round.notes.iter().for_each(|note| self.progress.note(note));
        }
        for restart in self.decider.take_restarts() {
            self.tell_restart(&restart);
        }
    }

    fn ended(&mut self, now: Duration, id: u32, ending: Ending) {
        self.book.ended(id);
        let Some(process) = self.process(id) else { return };
        match hopeless(ending, &self.book.last_lines(&process.slug())) {
            Some(why) => self.decider.hopeless(id, ending, why),
            None => self.decider.ended(now, id, ending),
        }
        let is_stopped = self.stopped.contains(&id);
        if !ending.is_well() && !is_stopped {
            let reason = format!("it {}", ended_how(ending));
            self.record(What::Lost { agent: process.slug(), pid: 0, reason });
        }
    }

    fn tell_restart(&mut self, restart: &decide::Restart) {
        let Some(failed) = self.process(restart.failed) else { return };
        let reason = format!("{} {}", failed.title(), ended_how(restart.ending));
        let most = self.prepared.job.script.max_restarts;
        let count = format!("restart {} of {most}", restart.restarts);
        let whom = match restart.process {
            Some(_) => "it is started again".to_owned(),
            None => "all processes are started again".to_owned(),
        };
        self.book.flush();
        self.progress.note(&format!("{reason}: {whom} ({count})"));
        let agent = restart.process.and_then(|id| self.process(id)).map(|p| p.slug());
        self.record(What::Restarted {
            agent,
            restarts: restart.restarts,
            reason,
            with_machine: restart.ending == Ending::MachineLost,
        });
    }

    fn stop(&mut self, ids: &[u32]) {
        for (number, (id, _)) in &self.live {
            if ids.contains(id) && !self.stopped.contains(id) {
                self.stopped.push(*id);
                self.machines.pool.dismiss(*number);
            }
        }
        // One whose machine took no orders is not there.
        let live: Vec<u32> = self.live.values().map(|(id, _)| *id).collect();
        let now = self.clock.elapsed();
        for id in ids.iter().filter(|id| !live.contains(id)) {
            self.decider.ended(now, *id, Ending::MachineLost);
        }
    }

    fn process(&self, id: u32) -> Option<Process> {
        self.layout.as_ref()?.processes.get(id as usize).cloned()
    }

    fn record(&mut self, what: What) {
        // What the disk does not take now is written with the next.
        let _ = self.journal.record(self.clock.seconds(), clock::unix_seconds(), what);
    }
}

/// `1 chief`, `2 workers`, `1 ps`.
fn counted_role(role: &str, count: usize) -> String {
    match role.ends_with('s') {
        true => format!("{count} {role}"),
        false => counted(count as u64, role),
    }
}

/// Machines by name.
fn sources(standing: &[Standing]) -> Sources {
    standing.iter().map(|one| (one.machine.name.clone(), one.remote.clone())).collect()
}

/// The same, that of the first process first.
fn ordered(layout: &Layout, standing: &[Standing]) -> Sources {
    let first = layout.processes.first().map(|process| layout.seat(process).name.clone());
    let mut sources = sources(standing);
    sources.sort_by_key(|(name, _)| Some(name) != first.as_ref());
    sources
}

fn ended_how(ending: Ending) -> String {
    match ending {
        Ending::Code(0) => "ended, though others need it".into(),
        Ending::Code(code) => format!("failed with exit code {code}"),
        Ending::Signal(signal) => format!("was ended by signal {signal}"),
        Ending::MachineLost => "was lost with its machine".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_counted_as_people_do() {
        assert_eq!(counted_role("chief", 1), "1 chief");
        assert_eq!(counted_role("worker", 2), "2 workers");
        assert_eq!(counted_role("ps", 2), "2 ps");
    }
}
