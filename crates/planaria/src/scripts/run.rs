//! A job from its recipe to its end: the shell around the decisions.
//!
//! Owns the loop that hears of machines and processes, tells [`decide`](super::decide) and does what
//! that says. Never decides what the end of a process means.

use crate::clock::{self, Stopwatch};
use crate::cluster::pooling::failure;
use crate::failure::{Context, Exit, Failure, Result};
use crate::library::program;
use crate::progress::{Progress, Style};
use crate::run_dir::RunDir;
use crate::scripts::board::Board;
use crate::scripts::book::Book;
use crate::scripts::decide::{self, Action, Decider, Member, Outcome, Policy};
use crate::scripts::layout::{Layout, Process, TORCHRUN};
use crate::scripts::machines::{Machines, seat};
use crate::scripts::prepare::Prepared;
use crate::scripts::report::{Failed, Report};
use crate::scripts::round::{Readying, Unready};
use crate::scripts::variables::{Meeting, Telling, Told};
use crate::scripts::watch::{Fetching, Meetings, Question, Sources};
use crate::traces::number::counted;
use crate::training::interrupt;
use planaria_coordinator::journal::{self, Journal};
use planaria_fleet::ending::Ending;
use planaria_fleet::files::Outputs;
use planaria_fleet::host::tasks::user_home;
use planaria_fleet::keeper;
use planaria_fleet::pool::Standing;
use planaria_numerics::digest::Digest;
use planaria_protocol::event::{Started, What};
use planaria_protocol::message::Agent;
use planaria_recipe::script::PerMachine;
use planaria_recipe::{JobSource, to_yaml};
use sha2::Digest as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often it is looked what has happened.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a lost machine is waited for before the others take its processes.
const REPLACED_WITHIN: Duration = Duration::from_secs(60);
/// When it is first told that somebody has not found the others.
const UNMET_TOLD: Duration = Duration::from_secs(30);
/// Last lines of a failed process that are shown.
const LINES_SHOWN: usize = 20;

/// What a job is started with.
pub struct Asked<'a> {
    /// The recipe.
    pub source: &'a JobSource,
    /// How it talks.
    pub style: Style,
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
    let prepared = Prepared::new(asked.source, asked.style)?;
    let program = program::find(asked.program)?;
    let job = &prepared.job;
    let dir = Path::new(&job.output.dir);
    let folder = RunDir::create_bare(dir, &job.name, clock::unix_seconds() as u64)?;
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
    interrupt::begin_script(folder.path());
    let mut running = Running::new(asked, &prepared, &folder, machines)?;
    running.begin(&recipe)?;
    let outcome = running.to_the_end();
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
    machines_lost: u64,
    first_start: Option<f64>,
    round_began: Option<Duration>,
    unmet_told: bool,
    stopped: Vec<u32>,
}

/// A process that waits to be started again by itself.
struct Mending {
    since: Duration,
    readying: Option<(Readying, Standing)>,
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
            book: Book::open(folder.path(), asked.style, &prepared.secrets)?,
            progress: Progress::new(asked.style),
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
            meetings: Meetings::new(),
            fetching: Fetching::new(outputs, is_wanted),
            board: None,
            machines_lost: 0,
            first_start: None,
            round_began: None,
            unmet_told: false,
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

    fn to_the_end(&mut self) -> End {
        loop {
            let now = self.clock.elapsed();
            if interrupt::asked() && !self.decider.is_ending() {
                self.record(What::Stopping { reason: interrupt::REASON.into() });
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
            if note.contains(": lost: ") {
                self.machines_lost += 1;
            }
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
        self.record(What::Restarted { agent, restarts: restart.restarts, reason });
    }

    /// Begins a round once the machines are there.
    fn gather(&mut self, now: Duration) -> Option<Failure> {
        if let Some(readying) = &self.readying {
            let ready = readying.take()?;
            self.readying = None;
            match ready {
                Ok(layout) => self.start_all(now, layout),
                Err(Unready::Never(fault)) => return Some(failure(fault)),
                // The pool sees to it.
                Err(Unready::Lost(_)) => {}
            }
            return None;
        }
        let since = self.gathering?;
        let standing = self.machines.pool.standing();
        let (wanted, coming) = (self.prepared.job.machine_count(), self.machines.pool.coming());
        let is_late = self.round > 0 && now.saturating_sub(since) > REPLACED_WITHIN;
        let is_enough = standing.len() >= wanted || coming == 0 || is_late;
        if standing.is_empty() || !is_enough {
            return None;
        }
        if is_late && coming > 0 {
            let have = standing.len();
            self.progress.note(&format!("going on with {have} of {wanted} machines"));
        }
        let seats = standing.iter().map(|one| seat(one, self.machines.are_here)).collect();
        let layout = match Layout::new(&self.prepared.job, self.prepared.framework, seats) {
            Ok(layout) => layout,
            Err(why) => return Some(Failure::user(why)),
        };
        let outputs = (self.round > 0).then(|| self.fetching.outputs.clone());
        let port = self.prepared.job.script.port;
        self.readying = Some(Readying::new(layout, sources(&standing), port, outputs));
        None
    }

    fn start_all(&mut self, now: Duration, layout: Layout) {
        if self.decider.is_ending() {
            return;
        }
        let standing = self.machines.pool.standing();
        // A machine may have been lost meanwhile: then it is gathered once more.
        let is_there = |number: u32| standing.iter().any(|one| one.number == number);
        if !layout.seats.iter().all(|seat| is_there(seat.number)) {
            return;
        }
        self.gathering = None;
        self.round += 1;
        self.book.begin(&layout, self.machines.are_here);
        self.told = self.tell(&layout);
        self.stopped.clear();
        self.mending.clear();
        let members = layout.processes.iter().zip(&self.told).map(|(process, told)| Member {
            role: process.role.clone(),
            index: process.index,
            meets: told.meeting.is_some(),
        });
        self.decider.started(now, members.collect());
        self.fetching.from(ordered(&layout, &standing));
        self.layout = Some(layout);
        (self.round_began, self.unmet_told) = (Some(now), false);
        self.first_start.get_or_insert(self.since_command.seconds());
        for id in 0..self.told.len() as u32 {
            self.start(now, id);
        }
    }

    /// What every process of a layout is told.
    fn tell(&self, layout: &Layout) -> Vec<Told> {
        let run = self.folder.id();
        let telling = Telling {
            job: &self.prepared.job,
            framework: self.prepared.framework,
            run: &run,
            round: self.round.saturating_sub(1),
            script: &self.prepared.script,
            data: self.prepared.data.as_deref(),
            layout,
        };
        layout.processes.iter().map(|process| telling.told(process)).collect()
    }

    fn start(&mut self, now: Duration, id: u32) {
        let Some(layout) = &self.layout else { return };
        let process = layout.processes[id as usize].clone();
        let machine = layout.seat(&process).clone();
        let orders = self.orders(id, &machine.name);
        let orders = serde_json::to_vec(&orders).expect("plain strings");
        self.starts += 1;
        match self.machines.pool.start(machine.number, Agent::Task(id), orders) {
            Ok(number) => {
                self.live.insert(number, (id, self.starts));
                let agent = process.slug();
                let machine = Some(machine.name);
                let joined =
                    What::Joined { agent, pid: number, engine: None, threads: None, machine };
                self.record(joined);
            }
            // Its machine is about to be lost.
            Err(_) => self.decider.ended(now, id, Ending::MachineLost),
        }
    }

    fn orders(&self, id: u32, machine: &str) -> keeper::Orders {
        let (job, told) = (&self.prepared.job, &self.told[id as usize]);
        let mut env = told.env.clone();
        let mut command = told.command.clone();
        if self.machines.are_here {
            // The script is at home where its user is, not in the machine's folder.
            env.push(("HOME".into(), user_home().display().to_string()));
            if let (Some(first), Some(_)) = (command.first_mut(), &job.script.python)
                && let Some(rest) = first.strip_prefix("~/")
            {
                *first = user_home().join(rest).display().to_string();
            }
        }
        let own = self.prepared.env.iter();
        env.extend(own.map(|(name, secret)| (name.clone(), secret.reveal().to_owned())));
        keeper::Orders {
            command,
            env,
            without: job.variables(),
            folder: self.machines.folder(machine).unwrap_or_default(),
            terminal: self.book.terminal(),
            interface: told.interface.clone(),
            stop_seconds: job.script.stop_seconds,
        }
    }

    /// Starts processes again that restart alone, once their machine is there.
    fn mend(&mut self, now: Duration) {
        if !self.decider.is_up() {
            return self.mending.clear();
        }
        for id in self.mending.keys().copied().collect::<Vec<_>>() {
            self.mend_one(now, id);
        }
    }

    fn mend_one(&mut self, now: Duration, id: u32) {
        let Some(mut mending) = self.mending.remove(&id) else { return };
        if let Some((readying, standing)) = &mending.readying {
            match readying.take() {
                None => drop(self.mending.insert(id, mending)),
                Some(Ok(layout)) => {
                    let port = layout.processes[0].port;
                    self.settle(now, id, &standing.clone(), port);
                }
                Some(Err(Unready::Lost(_))) => {
                    mending.readying = None;
                    self.mending.insert(id, mending);
                }
                // Its port is another's now: all get new ones.
                Some(Err(Unready::Never(_))) => self.decider.all_again(now),
            }
            return;
        }
        match self.standing_for(id) {
            Some(standing) => {
                let layout = self.layout.as_ref().expect("a process has failed");
                let process = &layout.processes[id as usize];
                let port = self.is_known_to_others().then_some(process.port);
                let alone = Layout {
                    seats: vec![seat(&standing, self.machines.are_here)],
                    processes: vec![Process { seat: 0, ..process.clone() }],
                    workers: Vec::new(),
                };
                let outputs = Some(self.fetching.outputs.clone());
                let from = sources(std::slice::from_ref(&standing));
                mending.readying = Some((Readying::new(alone, from, port, outputs), standing));
                self.mending.insert(id, mending);
            }
            None if now.saturating_sub(mending.since) > REPLACED_WITHIN => {
                self.decider.all_again(now);
            }
            None => drop(self.mending.insert(id, mending)),
        }
    }

    /// A process goes on on a machine.
    fn settle(&mut self, now: Duration, id: u32, standing: &Standing, port: u16) {
        let are_here = self.machines.are_here;
        let Some(layout) = &mut self.layout else { return };
        let place = layout.processes[id as usize].seat;
        layout.seats[place] = seat(standing, are_here);
        layout.processes[id as usize].port = port;
        let layout = layout.clone();
        self.told = self.tell(&layout);
        let is_alone = are_here && layout.seats.len() == 1;
        self.book.moved(id, if is_alone { "" } else { &standing.machine.name });
        self.fetching.from(ordered(&layout, &self.machines.pool.standing()));
        self.decider.started_one(now, id);
        self.start(now, id);
    }

    /// The machine that a process can be started on again, if it is there: where the others know it
    /// by its address, only that; else any.
    fn standing_for(&self, id: u32) -> Option<Standing> {
        let layout = self.layout.as_ref()?;
        let process = layout.processes.get(id as usize)?;
        let before = layout.seat(process);
        let standing = self.machines.pool.standing();
        let same = standing.iter().find(|one| one.number == before.number);
        let is_used = |one: &&Standing| layout.seats.iter().any(|seat| seat.number == one.number);
        let found = same.or_else(|| standing.iter().find(|one| !is_used(one)));
        let found = match found {
            None if self.machines.pool.coming() == 0 && !self.is_known_to_others() => {
                standing.first()
            }
            found => found,
        }?;
        let address = seat(found, self.machines.are_here).address;
        (address == before.address || !self.is_known_to_others()).then(|| found.clone())
    }

    /// Whether processes are told where the others are.
    fn is_known_to_others(&self) -> bool {
        self.told.iter().any(|told| matches!(told.meeting, Some(Meeting::Listens(_))))
    }

    /// Asks machines whether processes have found each other.
    fn ask(&mut self, now: Duration) {
        if !self.decider.is_up() {
            return;
        }
        let unmet = self.decider.unmet();
        if unmet.is_empty() {
            return;
        }
        if self.meetings.is_free() {
            let standing = self.machines.pool.standing();
            let question = |(number, (id, start)): (&u32, &(u32, u32))| {
                let layout = self.layout.as_ref()?;
                let seat = layout.seat(layout.processes.get(*id as usize)?);
                let remote = standing.iter().find(|one| one.number == seat.number)?.remote.clone();
                let (pid, meeting) =
                    (self.machines.pool.pid(*number)?, self.told[*id as usize].meeting?);
                unmet.contains(id).then_some(Question {
                    process: (*id, *start),
                    remote,
                    pid,
                    meeting,
                })
            };
            self.meetings.ask(self.live.iter().filter_map(question).collect());
        }
        let began = self.round_began.unwrap_or(now);
        if !self.unmet_told && now.saturating_sub(began) > UNMET_TOLD {
            self.unmet_told = true;
            let who: Vec<String> =
                unmet.iter().filter_map(|id| Some(self.process(*id)?.title())).collect();
            let most = self.prepared.job.script.connect_seconds;
            self.progress.note(&format!(
                "{} not found the others yet; given up after {most} s (`connect_seconds`)",
                match who.len() {
                    1 => format!("{} has", who[0]),
                    _ => format!("{} have", who.join(", ")),
                }
            ));
        }
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

    /// Brings back what there is, gives the machines back, and says what came of it.
    fn conclude(mut self, end: End) -> Result<Finished> {
        self.book.flush();
        let standing = self.machines.pool.standing();
        let layout = self.layout.clone();
        let from = layout.as_ref().map_or_else(|| sources(&standing), |l| ordered(l, &standing));
        let is_wanted = !self.prepared.outputs.texts().is_empty() && self.round > 0;
        if is_wanted {
            self.bring_back(&from);
        }
        let faults = self.machines.pool.end();
        for fault in faults {
            self.progress.note(&format!("{fault}; `planaria down` gives it back"));
        }
        drop(self.board.take());
        let (outcome, failed, failure) = match end {
            End::Never(failure) => ("failed", None, Some(failure)),
            End::Decided(Outcome::Completed) => ("completed", None, None),
            End::Decided(Outcome::Interrupted) => ("interrupted", None, None),
            End::Decided(Outcome::Failed(failed)) => {
                ("failed", self.failed(&failed), Some(self.failure(&failed)))
            }
        };
        let report = self.report(outcome, failed);
        self.folder.write("report.json", report.to_json().as_bytes())?;
        self.record(What::Ended {
            outcome: outcome.into(),
            reason: failure
                .as_ref()
                .map(|failure| failure.message.lines().next().unwrap_or_default().to_owned()),
            step: 0,
            weights_sha256: None,
            trouble: None,
            state: None,
        });
        let _ = self.journal.sync();
        let path = self.folder.path().to_path_buf();
        let summary = report.summary(self.book.latest(), &path.display().to_string());
        Ok(Finished { report, path, summary, failure })
    }

    fn bring_back(&mut self, from: &Sources) {
        let round = self.fetching.finish(from);
        round.notes.iter().for_each(|note| self.progress.note(note));
        for fault in &round.faults {
            self.progress.note(&format!("outputs of {fault}"));
        }
        let asked = self.prepared.job.script.output_patterns();
        let found = self.fetching.outputs.lock().expect("no thread panics with them").files();
        if found == 0 && !asked.is_empty() {
            let patterns = asked.join("`, `");
            let code = self.prepared.job.script.code_folder();
            self.progress.note(&format!(
                "nothing matches `script.outputs` (`{patterns}`): patterns are relative to the \
                 code's folder, `{code}`, in which the script is started"
            ));
        }
    }

    fn failed(&self, failed: &decide::Failed) -> Option<Failed> {
        let layout = self.layout.as_ref()?;
        let process = layout.processes.get(failed.process as usize)?;
        Some(Failed {
            process: process.slug(),
            machine: layout.seat(process).name.clone(),
            how: failed.ending.map_or_else(|| failed.why.clone(), |ending| ended_how(ending)),
            exit_code: failed.ending.map(exit_code),
            why: failed.why.clone(),
            last_lines: self.book.last_lines(&process.slug()),
        })
    }

    fn failure(&self, failed: &decide::Failed) -> Failure {
        let Some(told) = self.failed(failed) else { return Failure::failed(&failed.why) };
        let title = told.process.replacen('-', " ", 1);
        let place =
            if self.machines.are_here { String::new() } else { format!(" on {}", told.machine) };
        let mut message = match failed.ending {
            Some(_) => format!("{title}{place} {} ({})", told.how, told.why),
            None => format!("{title}{place}: {}", self.explained(failed)),
        };
        if !told.last_lines.is_empty() {
            message += "; its last lines:";
            // What failed is told long before the end by launchers.
            let most = if title.starts_with(TORCHRUN) { 3 * LINES_SHOWN } else { LINES_SHOWN };
            let skip = told.last_lines.len().saturating_sub(most);
            for line in told.last_lines.iter().skip(skip) {
                message += &format!("\n  {line}");
            }
        }
        let log = format!("{}/logs/{}.log", self.folder.path().display(), told.process);
        let exit = match failed.ending {
            Some(Ending::Code(code)) => Exit::Script(u8::try_from(code).unwrap_or(1).max(1)),
            Some(Ending::Signal(signal)) => Exit::Script(u8::try_from(128 + signal).unwrap_or(1)),
            _ => Exit::Failed,
        };
        let hint = match failed.ending {
            _ if told.why.starts_with("a module is missing") => format!(
                "add it to `setup`, such as `- {{pip: [numpy]}}`, or name a Python that has it by \
                 `script.python`; on {} it is `{}`",
                told.machine,
                self.prepared.job.python()
            ),
            Some(Ending::Code(127)) => format!(
                "`{}` must be there on every machine: `script.python` names it, a `pip` step of \
                 `setup` makes one",
                self.prepared.job.python()
            ),
            _ => format!("all that it wrote is in `{log}`"),
        };
        Failure { exit, ..Failure::failed(message) }.hint(hint)
    }

    /// Why a process that did not end has failed.
    fn explained(&self, failed: &decide::Failed) -> String {
        let seconds = self.prepared.job.script.connect_seconds;
        match self.told.get(failed.process as usize).and_then(|told| told.meeting) {
            Some(Meeting::Listens(port)) if failed.why.contains("never") => format!(
                "it did not listen on port {port} within {seconds} s (`connect_seconds`): it never \
                 joined the others"
            ),
            Some(Meeting::Connects(port)) if failed.why.contains("never") => format!(
                "it did not connect to the first process, on port {port}, within {seconds} s \
                 (`connect_seconds`): it never joined the others"
            ),
            _ => format!("{} ({seconds} s)", failed.why),
        }
    }

    fn report(&self, outcome: &'static str, failed: Option<Failed>) -> Report {
        let job = &self.prepared.job;
        let machines = self.layout.as_ref().map_or_else(BTreeMap::new, |layout| {
            let used = layout.seats.iter().enumerate().filter(|(n, _)| layout.on_seat(*n) > 0);
            used.map(|(_, seat)| (seat.name.clone(), seat.address.clone())).collect()
        });
        let mut roles: BTreeMap<String, usize> = BTreeMap::new();
        for process in self.layout.iter().flat_map(|layout| &layout.processes) {
            *roles.entry(process.role.clone()).or_default() += 1;
        }
        let running = self.round_began.map(|began| (self.clock.elapsed() - began).as_secs_f64());
        Report {
            run_id: self.folder.id(),
            recipe: job.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            outcome,
            framework: self.prepared.framework.as_str(),
            roles,
            machines,
            restarts: self.decider.restarts(),
            machines_lost: self.machines_lost,
            seconds: self.since_command.seconds(),
            seconds_to_start: self.first_start,
            seconds_running: running,
            figures: serde_json::to_value(self.book.latest().figures()).unwrap_or_default(),
            points: self.book.points(),
            outputs: self.fetching.outputs.lock().expect("no thread panics with them").files(),
            failed,
        }
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

/// Why a process would fail every time, where its last line tells.
fn hopeless(ending: Ending, lines: &[String]) -> Option<&'static str> {
    let last = lines.iter().rev().find(|line| !line.trim().is_empty())?;
    let is_about = |names: &[&str]| names.iter().any(|name| last.starts_with(name));
    match ending {
        Ending::Code(0) | Ending::Signal(_) | Ending::MachineLost => None,
        Ending::Code(_) if is_about(&["ModuleNotFoundError:", "ImportError:"]) => {
            Some("a module is missing on its machine, so it is not started again")
        }
        Ending::Code(_) if is_about(&["SyntaxError:", "IndentationError:", "TabError:"]) => {
            Some("its machine's Python does not understand it, so it is not started again")
        }
        Ending::Code(2) if last.contains(": error: ") => {
            Some("it does not take these arguments, so it is not started again")
        }
        Ending::Code(_) => None,
    }
}

fn ended_how(ending: Ending) -> String {
    match ending {
        Ending::Code(0) => "ended, though others need it".into(),
        Ending::Code(code) => format!("failed with exit code {code}"),
        Ending::Signal(signal) => format!("was ended by signal {signal}"),
        Ending::MachineLost => "was lost with its machine".into(),
    }
}

fn exit_code(ending: Ending) -> i32 {
    match ending {
        Ending::Code(code) => code,
        Ending::Signal(signal) => 128 + signal,
        Ending::MachineLost => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_fail_every_time_is_not_tried_again() {
        let last = |line: &str| vec!["Traceback".to_owned(), line.to_owned(), String::new()];
        for (line, code, is_hopeless) in [
            ("ModuleNotFoundError: No module named 'torch'", 1, true),
            ("train.py: error: unrecognized arguments: --x", 2, true),
            ("SyntaxError: invalid syntax", 1, true),
            ("RuntimeError: connection reset", 1, false),
            ("ValueError: ImportError: x", 1, false),
        ] {
            let found = hopeless(Ending::Code(code), &last(line));
            assert_eq!(found.is_some(), is_hopeless, "{line}");
        }
        assert_eq!(hopeless(Ending::Signal(9), &last("ImportError: x")), None);
        assert_eq!(counted_role("worker", 2), "2 workers");
        assert_eq!(counted_role("ps", 2), "2 ps");
    }
}
