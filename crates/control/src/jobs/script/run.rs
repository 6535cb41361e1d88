//! A user's script as a kind of job: its processes, started together and followed to their end.
//!
//! Owns what is done on machines for them; what the end of a process means is
//! [`policy`](super::policy)'s to say.
//!
//! # Layout
//! - `starting`: from machines to processes; `restarting`: one process again; `ending`: what is left

mod ending;
mod restarting;
mod starting;

use crate::jobs::controller::{self, Kind, LOOK_EVERY};
use crate::jobs::script::blame::{Place, Words};
use crate::jobs::script::board::Board;
use crate::jobs::script::layout::{Layout, Process};
use crate::jobs::script::machines::Machines;
use crate::jobs::script::policy::{self, JobInput, Limits, Outcome, Policy, Rules, Supervisor};
use crate::jobs::script::prepare::Prepared;
use crate::jobs::script::report::Report;
use crate::jobs::script::round::Readying;
use crate::jobs::script::stuck::{Found, Looking};
use crate::jobs::script::transcript::Transcript;
use crate::jobs::script::variables::Told;
use crate::jobs::script::watch::{Fetching, Meetings, Sources};
use crate::program;
use crate::stopping;
use crate::talk::{Progress, Talk};
use planaria_fleet::ending::Ending;
use planaria_fleet::files::Outputs;
use planaria_fleet::guarded::Guards;
use planaria_fleet::home::{FOLDER, user_home};
use planaria_fleet::local::Exit;
use planaria_fleet::pool::{Change, ReadyMachine};
use planaria_fleet::provider::Fault;
use planaria_fleet::sites::Sites;
use planaria_fleet::supervise::{Action, Input};
use planaria_numerics::digest::Digest;
use planaria_protocol::event::{Started, What};
use planaria_protocol::journal::{self, Journal};
use planaria_protocol::message::Agent;
use planaria_recipe::script::PerMachine;
use planaria_recipe::{JobKind, JobSource, to_yaml};
use planaria_runs::clock::{self, Stopwatch};
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::processes::Restarted;
use planaria_runs::run_dir::RunDir;
use planaria_runs::summary::Summary;
use planaria_store::hash::{hex, sha256};
use planaria_text::number::counted;
use restarting::Restarting;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a lost machine is waited for before the others take its processes.
const REPLACED_WITHIN: Duration = Duration::from_secs(60);
/// Attempts to make a round ready on machines that are there, and the pause between two.
const UNREADY_MAX: u32 = 5;
const UNREADY_PAUSE: Duration = Duration::from_secs(2);
/// When it is first told that a process has not found the others.
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
    /// What is done with the run's folder as soon as there is one.
    pub begin: Option<fn(&Path) -> Result<()>>,
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
    if let Some(begin) = asked.begin {
        begin(folder.path())?;
    }
    stopping::begin(folder.path(), JobKind::Script);
    let guards = Guards::new(&program, &folder.id());
    let mut running = Running::new(asked, &prepared, &folder, machines, guards)?;
    running.begin(&recipe)?;
    let clock = running.clock;
    let outcome = controller::follow(&mut running, &folder.id(), clock);
    running.conclude(outcome)
}

struct Running<'p> {
    prepared: &'p Prepared,
    folder: &'p RunDir,
    machines: Machines,
    supervisor: Supervisor,
    transcript: Transcript<'p>,
    progress: Progress,
    journal: Journal,
    clock: Stopwatch,
    since_command: Stopwatch,
    layout: Option<Layout>,
    told: Vec<Told>,
    round: u32,
    gathering: Option<Duration>,
    readying: Option<Readying>,
    restarting: BTreeMap<u32, Restarting>,
    meetings: Meetings,
    fetching: Fetching,
    board: Option<Board>,
    guards: Guards,
    first_start: Option<f64>,
    round_began: Option<Duration>,
    unmet_told: bool,
    unready: u32,
    not_before: Duration,
    outcome: Option<Outcome>,
    is_whole: bool,
    /// What was recorded so far.
    summary: Summary,
    /// Machines are being asked who waits for whom.
    looking: Option<Looking>,
    /// Who waits for whom.
    found: Found,
    /// Where a process failed the last time, and in which round; by its name where it is alone.
    failed_at: BTreeMap<String, (u32, Place)>,
}

impl<'p> Running<'p> {
    fn new(
        asked: &Asked<'_>,
        prepared: &'p Prepared,
        folder: &'p RunDir,
        machines: Machines,
        guards: Guards,
    ) -> Result<Self> {
        let job = &prepared.job;
        let rules = Rules::of(job, prepared.framework);
        let limits = Limits::of(job);
        let outputs = Outputs::new(&folder.file("outputs"), prepared.outputs.clone());
        let is_wanted = !prepared.outputs.texts().is_empty();
        let path = folder.file(journal::FILE);
        let journal = Journal::open(&path, 1);
        let clock = Stopwatch::steady();
        Ok(Self {
            prepared,
            folder,
            machines,
            supervisor: Policy::supervisor(rules, job.script.max_restarts, limits),
            transcript: Transcript::open(
                folder.path(),
                asked.talk,
                &prepared.secrets,
                prepared.metrics.clone(),
            )?,
            progress: Progress::new(asked.talk),
            journal: journal.context(|| format!("cannot write `{}`", path.display()))?,
            clock,
            since_command: asked.process,
            layout: None,
            told: Vec::new(),
            round: 0,
            gathering: None,
            readying: None,
            restarting: BTreeMap::new(),
            meetings: Meetings::begin(),
            fetching: Fetching::new(outputs, is_wanted, clock),
            board: None,
            guards,
            first_start: None,
            round_began: None,
            unmet_told: false,
            unready: 0,
            not_before: Duration::ZERO,
            outcome: None,
            is_whole: true,
            summary: Summary::default(),
            looking: None,
            found: Found::default(),
            failed_at: BTreeMap::new(),
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
        let hash: [u8; 32] = sha256(recipe.as_bytes());
        self.record(What::Started(Started {
            run_id: self.folder.id(),
            recipe: job.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            recipe_sha256: hex(&hash),
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
            let log = self.folder.file("logs/tensorboard.log");
            let board = Board::start(&self.guards, program, &shown, &log);
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

    /// Tells the supervisor, and does what it says.
    fn on(&mut self, now: Duration, input: impl Into<Input<JobInput>>) {
        for action in self.supervisor.step(now, input.into()) {
            match action {
                Action::StartAll => self.gathering = Some(now),
                Action::Start { agent: Agent::Task(id) } => {
                    self.restarting.insert(id, Restarting { since: now, readying: None });
                }
                Action::Start { .. } => {}
                Action::Stop { pid, .. } => self.machines.pool().dismiss(pid),
                Action::Kill { pid, .. } => self.machines.pool().kill(pid),
                Action::Over(outcome) => self.outcome = Some(outcome),
            }
        }
    }

    /// Takes in the results of other threads.
    fn hear(&mut self, now: Duration) {
        for note in self.machines.take_notes() {
            self.progress.note(&note);
        }
        for (agent, pid) in self.meetings.take() {
            self.on(now, Input::Ready { agent, pid });
        }
        for round in self.fetching.take() {
            round.notes.iter().for_each(|note| self.progress.note(note));
        }
        for restart in self.supervisor.policy.take_restarts(&self.supervisor.places) {
            self.tell_restart(&restart);
        }
    }

    fn tell_restart(&mut self, restart: &policy::Restart) {
        let Some(failed) = self.process(restart.failed) else { return };
        let mut reason = format!("{} {}", failed.title(), ended_how(restart.ending));
        if let Some(left) = self.left_early(restart.failed, restart.left) {
            reason = format!("{} ended well while others needed it; {reason}", left.title());
        }
        let most = self.prepared.job.script.max_restarts;
        let count = format!("restart {} of {most}", restart.restarts);
        let agent = restart.process.and_then(|id| self.process(id)).map(|p| p.slug());
        let restarted = Restarted { process: agent.clone(), reason: reason.clone() };
        self.transcript.flush();
        self.progress.note(&format!("{} ({count})", restarted.text()));
        self.record(What::Restarted {
            agent,
            restarts: restart.restarts,
            reason,
            with_machine: restart.ending == Ending::MachineLost,
        });
    }

    fn process(&self, id: u32) -> Option<Process> {
        self.layout.as_ref()?.processes.get(id as usize).cloned()
    }

    fn record(&mut self, what: What) {
        let (seconds, unix_seconds) = (self.clock.seconds(), clock::unix_seconds());
        // What the disk does not take now is written with the next.
        if let Ok(event) = self.journal.record(seconds, unix_seconds, what) {
            self.summary.take(&event);
        }
    }
}

impl Kind for Running<'_> {
    type End = Outcome;

    fn sites(&mut self) -> &mut Sites {
        &mut self.machines.sites
    }

    fn note(&mut self, text: &str) {
        self.progress.note(text);
    }

    fn machine(&mut self, change: Change) {
        let Change { machine, state, why } = change;
        self.record(What::Machine { machine, state, reason: why });
    }

    fn wrote(&mut self, agent: Agent, bytes: &[u8]) {
        if let Agent::Task(id) = agent {
            self.transcript.wrote(id, bytes);
            self.supervisor.policy.wrote();
        }
    }

    fn exited(&mut self, now: Duration, exit: Exit) {
        let Exit { agent, pid, ending } = exit;
        let live = self.supervisor.places.process(agent).filter(|live| live.pid == pid);
        let (Agent::Task(id), Some(live)) = (agent, live) else { return };
        let is_stopped = live.is_stopped;
        self.transcript.ended(id);
        let Some(process) = self.process(id) else { return };
        let words = self.words(&process, ending, is_stopped);
        // One that was being ended counts only where another's words blame it.
        let counts = !is_stopped || (words == Words::Own && self.supervisor.policy.is_unsure());
        let why = if counts { self.hopeless(&process, ending) } else { None };
        if let Some(why) = why.filter(|_| !is_stopped) {
            self.on(now, JobInput::Hopeless { process: id, why });
        }
        if words == Words::OfOthers {
            self.on(now, JobInput::OfOthers { process: id });
        }
        self.on(now, Input::Ended { agent, pid, ending });
        if words == Words::Own {
            // Python ends with 1 after an exception, unless it is ended on the way out.
            let ending = if is_stopped { Ending::Code(1) } else { ending };
            self.on(now, JobInput::Own { process: id, ending, why });
        }
        if !ending.is_well() && !is_stopped {
            let reason = format!("it {}", ended_how(ending));
            self.record(What::Lost { agent: process.slug(), pid: 0, reason });
        }
    }

    fn stop(&mut self, now: Duration) -> Result<()> {
        if !self.supervisor.places.is_ending() {
            self.record(What::Stopping { reason: stopping::REASON.into() });
            self.on(now, JobInput::Interrupted);
            (self.gathering, self.readying) = (None, None);
        }
        Ok(())
    }

    fn look(&mut self, now: Duration) -> Result<Option<Outcome>> {
        self.folder.check()?;
        self.hear(now);
        self.on(now, Input::Look);
        if self.gathering.is_some() && self.supervisor.policy.is_too_late(now) {
            self.on(now, JobInput::TooLate);
            (self.gathering, self.readying) = (None, None);
        }
        if self.outcome.is_none() {
            self.gather(now)?;
            self.restart_due(now);
            self.ask(now);
            self.look_who_waits(now);
            self.transcript.tick(self.since_command.seconds());
            std::thread::park_timeout(LOOK_EVERY);
        }
        Ok(self.outcome.take())
    }

    fn leave(&mut self, ended: &Result<Outcome>) {
        self.transcript.flush();
        if matches!(ended, Ok(Outcome::Completed)) {
            self.tell_strangers();
        }
        if !self.prepared.outputs.texts().is_empty() && self.round > 0 {
            self.is_whole = self.bring_back();
        }
    }

    fn kept(&self, fault: &Fault, _: &str) -> String {
        format!("{fault}; `planaria down` gives it back")
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
fn sources(standing: &[ReadyMachine]) -> Sources {
    standing.iter().map(|one| (one.machine.name.clone(), one.remote.clone())).collect()
}

/// The same, that of the first process first.
fn ordered(layout: &Layout, standing: &[ReadyMachine]) -> Sources {
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
        Ending::OutOfMemory { .. } => format!("was {ending}"),
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
