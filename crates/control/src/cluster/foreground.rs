//! Keeps the processes of a run going until it is over, and tells what they say.
//!
//! Owns the fleet, the link to the coordinator, and what both do to each other; whom to start and
//! to give up is [`supervise`](planaria_fleet::supervise)'s to say. One thread does it all, and
//! never waits for longer than a moment but to reap what has ended.

use crate::cluster::console::{Console, News, Seen};
use crate::cluster::control::Control;
use crate::cluster::launch;
use crate::cluster::meeting::{Meeting, Met, Whom};
use crate::cluster::pooling::{self, Pooling};
use crate::stopping;
use planaria_fleet::local::{Exit, Local, Started};
use planaria_fleet::pool::Spot;
use planaria_fleet::supervise::{Action, Input, Loss, Supervisor};
use planaria_fleet::yard::Yard;
use planaria_protocol::Passport;
use planaria_protocol::event::{Event, Pulse, What};
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Agent;
use planaria_protocol::tls::Authority;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir::{LOGS, RunDir};
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::ChildStdout;
use std::time::Duration;

/// How often signals and ended processes are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long processes may take to end by themselves when a run is over.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long a coordinator that has told the end may take to take its leave.
const LEAVE: Duration = Duration::from_secs(10);
/// How long a stop may wait for a coordinator to be told.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// Exits that are remembered, to explain a failure by.
const EXITS_MAX: usize = 64;
/// Of a log, what is looked at for its last line.
const LOG_END_BYTES: u64 = 4096;

/// What is told as it happens.
pub trait Audience {
    /// Something happened.
    fn event(&mut self, event: &Event) -> Result<()>;
    /// Where the run is.
    fn pulse(&mut self, pulse: &Pulse);
    /// Something about machines that people should know.
    fn note(&mut self, note: &str);
}

/// The processes of a run, seen from the command that started them.
pub struct Foreground<'a> {
    run: &'a RunDir,
    /// What consoles show to the coordinator: this one, and those that find `control.json`.
    passport: &'a Passport,
    /// What the first coordinator was told.
    first: Launch,
    yard: Yard,
    /// Who vouches for the run's processes, where they are on several machines.
    authority: Option<Authority>,
    supervisor: Supervisor,
    clock: Stopwatch,
    /// Where coordinators listen, one after another.
    address: String,
    link: Option<Console>,
    meeting: Option<Meeting>,
    control: Option<Control>,
    /// The events that have been seen.
    seen: Seen,
    /// Steps done, as this coordinator told last.
    step: Option<u64>,
    /// Why the run is to stop, and whether this coordinator was told so.
    stopping: Option<String>,
    told_stop: bool,
    /// Since when there was nobody to be told so.
    unheard: Option<Duration>,
    /// Since when it is known that the run is over.
    over: Option<Duration>,
    failed: Option<Failure>,
    /// Processes that have ended since the last step, in that order.
    exits: Vec<Exit>,
    /// Processes that have ended while there was no coordinator to be told.
    untold: Vec<Exit>,
}

impl<'a> Foreground<'a> {
    /// Nothing is started yet.
    pub fn new(
        run: &'a RunDir,
        program: &Path,
        passport: &'a Passport,
        mut first: Launch,
        pooling: Option<Pooling>,
    ) -> Result<Self> {
        let logs = run.file(LOGS);
        fs::create_dir_all(&logs).context(|| format!("cannot create `{}`", logs.display()))?;
        let size = first.size;
        let everywhere = pooling.is_some();
        let (listener, port) = pooling::listen(everywhere)?;
        let mut here = Local::new(program, &logs);
        let held = here.hold(listener);
        here.hide(pooling::secrets(&first.recipe));
        if let Some(course) = &mut first.course {
            course.listen = Some(held);
        }
        let (pool, authority) = match pooling.map(|pooling| pooling.pool(port, logs)) {
            Some((pool, authority)) => (Some(pool), Some(authority)),
            None => (None, None),
        };
        Ok(Self {
            run,
            passport,
            yard: Yard::new(here, pool),
            authority,
            supervisor: Supervisor::new(first.generation, size.servers, size.workers),
            first,
            clock: Stopwatch::start(),
            address: format!("127.0.0.1:{port}"),
            link: None,
            meeting: None,
            control: None,
            seen: Seen::default(),
            step: None,
            stopping: None,
            told_stop: false,
            unheard: None,
            over: None,
            failed: None,
            exits: Vec::new(),
            untold: Vec::new(),
        })
    }

    /// Of the last coordinator.
    pub fn generation(&self) -> u64 {
        self.supervisor.generation()
    }

    /// Workers wanted.
    pub fn workers(&self) -> u32 {
        self.supervisor.workers()
    }

    /// Processes that have ended since the last step, in that order.
    pub fn exits(&self) -> &[Exit] {
        &self.exits
    }

    /// Starts every process, and others for those that are lost, until the run is over. Nothing is
    /// left running, however it ends.
    pub fn train(&mut self, audience: &mut impl Audience) -> Result<()> {
        let trained = self.work(audience);
        (self.meeting, self.link, self.control) = (None, None, None);
        if trained.is_ok() {
            // Those who had not joined have not heard that the run is over.
            let unready = self.supervisor.unready();
            unready.iter().for_each(|(agent, pid)| self.yard.kill(*agent, *pid));
            let own = |exit: &Exit| unready.contains(&(exit.agent, exit.pid));
            let clock = self.clock;
            let exits = self.yard.end(FAREWELL, &|| clock.elapsed());
            self.exits.extend(exits.into_iter().filter(|exit| !own(exit)));
        } else {
            // Those that are left wait for the others, and would for ever.
            self.yard.kill_all();
        }
        for fault in self.yard.give_back() {
            let id = self.run.id();
            audience.note(&format!(
                "warning: {fault}; it may still run something: `planaria down {id}` tries again"
            ));
        }
        trained
    }

    fn work(&mut self, audience: &mut impl Audience) -> Result<()> {
        loop {
            self.tell(Input::Look);
            for note in self.yard.look(self.clock.elapsed()) {
                audience.note(&note);
            }
            if let Some(fault) = self.yard.take_failure() {
                return Err(pooling::failure(fault));
            }
            let news = match &self.link {
                Some(link) => link.next(LOOK_EVERY),
                None => self.meet(),
            };
            let is_last = self.hear(news, audience)?;
            self.reap();
            self.ask_to_stop();
            if let Some(failure) = self.failed.take() {
                return Err(failure);
            }
            let waited = self.over.map(|since| self.clock.elapsed().saturating_sub(since));
            let is_left = self.link.is_none() || waited.is_some_and(|waited| waited > LEAVE);
            if is_last || self.over.is_some() && is_left {
                return Ok(());
            }
        }
    }

    /// Takes in what the coordinator said; true where it was the last.
    fn hear(&mut self, news: News, audience: &mut impl Audience) -> Result<bool> {
        if !matches!(news, News::Nothing | News::Gone(_)) {
            self.tell(Input::Heard);
        }
        match news {
            News::Event(event) => {
                self.follow(&event);
                audience.event(&event)?;
            }
            News::Pulse(pulse) => {
                self.reached(pulse.step);
                self.tell(Input::Absent(absent(&pulse)));
                audience.pulse(&pulse);
            }
            News::Pool(workers) => {
                self.yard.set_workers(workers);
                self.tell(Input::Pool { workers });
            }
            News::Kill { agent, pid, why } => self.tell(Input::Kill { agent, pid, why }),
            News::Nothing => {}
            News::Finish => return Ok(true),
            News::Gone(_) => {
                self.unlink();
                self.tell(Input::LinkGone);
            }
        }
        Ok(false)
    }

    /// What an event means for the processes.
    fn follow(&mut self, event: &Event) {
        match &event.what {
            What::Joined { agent, pid, .. } => {
                if let Some(agent) = Agent::named(agent) {
                    self.tell(Input::Ready { agent, pid: *pid });
                }
            }
            What::Started(started) => self.step = Some(started.step),
            What::Recovered { step, .. } => self.step = Some(*step),
            What::Steps(figures) => self.reached(figures.step),
            What::Committed { end_step, .. } => self.reached(*end_step),
            What::Stopping { reason } => {
                self.stopping = Some(reason.clone());
                // What one said that is gone, another has not been told.
                self.told_stop |= event.generation == self.generation();
            }
            What::Ended { .. } => {
                self.over.get_or_insert(self.clock.elapsed());
                self.tell(Input::Over);
            }
            _ => {}
        }
    }

    /// The run has come so far.
    fn reached(&mut self, step: u64) {
        if self.step.is_some_and(|before| before < step) {
            // Whoever was lost before it is got over.
            self.exits.clear();
            self.tell(Input::Progress);
        }
        self.step = Some(step);
    }

    /// Tells the supervisor, and does what it decides.
    fn tell(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for action in self.supervisor.step(self.clock.elapsed(), input) {
                inputs.extend(self.act(action));
            }
        }
    }

    fn act(&mut self, action: Action) -> Option<Input> {
        let agent = match action {
            Action::Start { agent } => agent,
            Action::Coordinate { generation, after } => {
                return Some(self.coordinate(generation, after));
            }
            Action::Kill { agent, pid, .. } => {
                self.yard.kill(agent, pid);
                return None;
            }
            Action::Fail(loss) => {
                self.failed = Some(self.failure(loss));
                return None;
            }
        };
        let spot = self.yard.place(self.clock.elapsed(), agent);
        if spot == Spot::Nowhere {
            return Some(Input::NoRoom { agent });
        }
        let mut launch = self.first.clone();
        launch.generation = self.supervisor.generation();
        launch.size.workers = self.supervisor.workers();
        launch.coordinator = Some(self.address.clone());
        launch.course = None;
        launch.station.process = self.yard.next_process(&spot);
        pooling::station(&mut launch, &spot, &self.yard);
        if let Err(why) = self.vouch(agent, &mut launch) {
            return Some(Input::NotStarted { agent, why });
        }
        Some(match self.yard.start(&spot, agent, &self.run.id(), &launch) {
            Ok(started) => Input::Started { agent, pid: started.pid },
            Err(e) => Input::NotStarted { agent, why: e.to_string() },
        })
    }

    /// Starts a coordinator and begins to reach it.
    fn coordinate(&mut self, generation: u64, after: Option<String>) -> Input {
        self.unlink();
        (self.meeting, self.step) = (None, None);
        let mut launch = launch::again(&self.first, generation, after);
        launch.size.workers = self.supervisor.workers();
        let agent = Agent::Coordinator;
        if let Err(why) = self.vouch(agent, &mut launch) {
            return Input::NotStarted { agent, why };
        }
        match self.yard.start(&Spot::Here, agent, &self.run.id(), &launch) {
            Err(e) => Input::NotStarted { agent, why: e.to_string() },
            Ok(Started { pid, stdout }) => {
                self.meeting = self.meeting(generation, stdout);
                Input::Started { agent, pid }
            }
        }
    }

    /// Gives a process the certificate that others know it by, where they are not all here.
    fn vouch(&self, agent: Agent, launch: &mut Launch) -> std::result::Result<(), String> {
        if let Some(authority) = &self.authority {
            let trust = authority.issue(&agent.to_string()).map_err(|e| e.to_string())?;
            launch.station.trust = Some(trust);
        }
        Ok(())
    }

    /// Begins to reach a coordinator; where there is no thread to do it, it is tried again.
    fn meeting(&self, generation: u64, stdout: Option<ChildStdout>) -> Option<Meeting> {
        let whom = Whom {
            address: Some(self.address.clone()),
            stdout,
            passport: self.passport.clone(),
            build: self.first.build.clone(),
            generation,
            seen: self.seen,
        };
        Meeting::begin(whom).ok()
    }

    /// Waits a moment for a coordinator to be reached.
    fn meet(&mut self) -> News {
        let met = match &self.meeting {
            Some(meeting) => meeting.result(LOOK_EVERY),
            None => {
                std::thread::park_timeout(LOOK_EVERY);
                Met::Nobody
            }
        };
        match met {
            Met::NotYet => {}
            Met::There(address, console) => self.met(address, console),
            // If it lives it may have dropped the link only. If it says nothing it will be killed.
            Met::Nobody => {
                let lives = self.supervisor.pid(Agent::Coordinator).is_some();
                self.meeting = lives.then(|| self.meeting(self.generation(), None)).flatten();
            }
        }
        News::Nothing
    }

    fn met(&mut self, address: String, console: Console) {
        if self.control.is_none() {
            match Control::write(self.run, &address, self.passport, &self.first) {
                Ok(control) => self.control = Some(control),
                Err(failure) => {
                    self.failed = Some(failure);
                    return;
                }
            }
        }
        for exit in self.untold.drain(..) {
            console.ended(exit.agent, exit.pid, &exit.how());
        }
        self.address = address;
        (self.link, self.meeting, self.told_stop) = (Some(console), None, false);
        self.tell(Input::Linked);
    }

    /// Lets go of the link, if there is one.
    fn unlink(&mut self) {
        if let Some(link) = self.link.take() {
            self.seen = link.seen();
        }
    }

    /// Takes in who has ended.
    fn reap(&mut self) {
        for exit in self.yard.exits() {
            if !exit.is_well() && exit.agent != Agent::Coordinator {
                match &self.link {
                    Some(link) => link.ended(exit.agent, exit.pid, &exit.how()),
                    None if self.untold.len() < EXITS_MAX => self.untold.push(exit),
                    None => {}
                }
            }
            // It ends well only when it has written down how the run ended.
            if exit.agent == Agent::Coordinator && exit.is_well() {
                self.over.get_or_insert(self.clock.elapsed());
                self.tell(Input::Over);
            }
            if self.exits.len() >= EXITS_MAX {
                self.exits.remove(0);
            }
            self.exits.push(exit);
            self.tell(Input::Ended { agent: exit.agent, pid: exit.pid, ending: exit.ending });
        }
    }

    /// Tells a coordinator that a stop was asked for, each that takes the place of another anew.
    fn ask_to_stop(&mut self) {
        if stopping::asked() && self.stopping.is_none() {
            self.stopping = Some(stopping::REASON.to_owned());
        }
        if let (Some(link), Some(reason), false) = (&self.link, &self.stopping, self.told_stop) {
            link.stop(reason);
            self.told_stop = true;
        }
        if self.link.is_some() || self.stopping.is_none() {
            self.unheard = None;
            return;
        }
        let since = *self.unheard.get_or_insert(self.clock.elapsed());
        if self.clock.elapsed().saturating_sub(since) > STOP_WITHIN {
            let message = format!(
                "no coordinator could be told to stop for {} s; nothing was saved since the last \
                 checkpoint",
                STOP_WITHIN.as_secs()
            );
            self.failed = Some(Failure::failed(message).hint("`planaria resume` goes on from it"));
        }
    }

    /// A loss that ends the run, and where to read more.
    fn failure(&self, loss: Loss) -> Failure {
        let log = self.run.file(LOGS).join(format!("{}.log", loss.agent));
        let path = log.display();
        Failure::failed(&loss.message).hint(match last_line(&log) {
            Some(line) => format!("its log is `{path}`, and ends with: {line}"),
            None => format!("its log is `{path}`"),
        })
    }
}

/// Those whom the coordinator waits for to join.
fn absent(pulse: &Pulse) -> Vec<Agent> {
    let is_absent = |state: &str| state == "starting";
    let workers = pulse.workers.iter().filter(|w| is_absent(&w.state));
    let servers = pulse.servers.iter().filter(|s| is_absent(&s.state));
    let servers = servers.map(|s| Agent::Server(s.server));
    workers.map(|w| Agent::Worker(w.worker)).chain(servers).collect()
}

/// The last line of a log, without its time.
fn last_line(log: &Path) -> Option<String> {
    let mut file = fs::File::open(log).ok()?;
    let bytes = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(LOG_END_BYTES))).ok()?;
    let mut end = Vec::new();
    file.take(LOG_END_BYTES).read_to_end(&mut end).ok()?;
    let end = String::from_utf8_lossy(&end);
    let line = end.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    let text = match line.split_once("Z ") {
        Some((time, text)) if time.len() == 23 => text,
        _ => line,
    };
    Some(text.strip_prefix("ended: ").unwrap_or(text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_log_is_what_it_ended_with() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("a.log");
        assert_eq!(last_line(&log), None);
        for (text, expect) in [
            ("", None),
            (
                "2001-09-09T01:46:40.000Z started\n2001-09-09T01:46:41.000Z ended: error: no data\n\n",
                Some("error: no data"),
            ),
            ("thread panicked", Some("thread panicked")),
        ] {
            std::fs::write(&log, text).unwrap();
            assert_eq!(last_line(&log).as_deref(), expect);
        }
        std::fs::write(&log, "x".repeat(10_000)).unwrap();
        assert_eq!(last_line(&log).unwrap().len(), LOG_END_BYTES as usize);
    }
}
