//! Training as a kind of job: a coordinator, servers and workers, followed until the run is over.
//!
//! Owns the link to the coordinator, and what it and the processes do to each other; what to do is
//! [`Controller`]'s to say. One thread does it all, and never waits for longer than a moment but to
//! reap what has ended.

use crate::jobs::controller::Kind;
use crate::jobs::pooling::{self, Pooling};
use crate::jobs::train::connecting::{Connected, Connecting, Target};
use crate::jobs::train::copies::Copies;
use crate::jobs::train::display::Display;
use crate::jobs::train::vouching::Vouching;
use crate::live::console::{Console, News};
use crate::live::control::Control;
use crate::memory;
use crate::stopping;
use planaria_fleet::local::{Exit, Local, Started};
use planaria_fleet::log_end::last_line;
use planaria_fleet::pool::{Change, Spot};
use planaria_fleet::sites::Sites;
use planaria_fleet::training::{Controller, Effect, Failed, Happening, LOOK_EVERY};
use planaria_protocol::Credentials;
use planaria_protocol::event::{MachineState, Seen, What};
use planaria_protocol::launch::Launch;
use planaria_protocol::message::{Agent, Loss};
use planaria_protocol::retry::RETRY_SOON;
use planaria_protocol::standing::Word;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir::{LOGS, RunDir};
use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::process::ChildStdout;
use std::time::Duration;

/// How long processes may take to end by themselves when a run is over.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Changes of machines that wait to be written down.
const REPORTS_MAX: usize = 4096;

/// The processes of a run, seen from the command that started them.
pub struct Foreground<'a> {
    run: &'a RunDir,
    /// What consoles show to the coordinator: this one, and those that find `control.json`.
    credentials: &'a Credentials,
    /// What the first coordinator was told.
    first: Launch,
    /// What is made of all that is heard.
    display: &'a mut Display,
    sites: Sites,
    /// Says who the run's processes are, where they are on several machines.
    vouching: Option<Vouching>,
    controller: Controller,
    clock: Stopwatch,
    /// Where coordinators listen, one after another.
    address: String,
    link: Option<Console>,
    connecting: Option<Connecting>,
    control: Option<Control>,
    /// The events that have been seen.
    seen: Seen,
    /// How it came out, once it has.
    ended: Option<std::result::Result<(), Failed>>,
    failed: Option<Failure>,
    /// Processes that have ended after that.
    last_exits: Vec<Exit>,
    /// Whether the run's first event was heard: others come after it.
    has_begun: bool,
    /// What happened to machines and no coordinator was told.
    unreported: Vec<What>,
    /// What the coordinator was told and has not written down yet: it may be about to end.
    reported: Vec<What>,
    /// Of checkpoints, on another machine, where this one may be lost.
    copies: Option<Copies>,
}

impl<'a> Foreground<'a> {
    /// Nothing is started yet.
    pub fn new(
        run: &'a RunDir,
        program: &Path,
        credentials: &'a Credentials,
        mut first: Launch,
        pooling: Option<Pooling>,
        display: &'a mut Display,
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
        let (pool, vouching) = match pooling.map(|pooling| pooling.reaching(port).pool()) {
            Some((pool, authority)) => {
                pool.identify_servers_by(credentials.clone());
                (Some(pool), Some(Vouching::new(authority)))
            }
            None => (None, None),
        };
        Ok(Self {
            run,
            credentials,
            display,
            sites: Sites::new(here, pool),
            vouching,
            controller: Controller::new(first.generation, size.servers, size.workers),
            first,
            clock: Stopwatch::steady(),
            address: format!("127.0.0.1:{port}"),
            link: None,
            connecting: None,
            control: None,
            seen: Seen::default(),
            ended: None,
            failed: None,
            last_exits: Vec::new(),
            has_begun: false,
            unreported: Vec::new(),
            reported: Vec::new(),
            copies: None,
        })
    }

    /// Since when it is followed.
    pub fn clock(&self) -> Stopwatch {
        self.clock
    }

    /// Has checkpoints copied to other machines than this one.
    pub fn copying(mut self, own: &str) -> Self {
        self.copies = Some(Copies::new(self.run.path(), own));
        self
    }

    /// Of the last coordinator.
    pub fn generation(&self) -> u64 {
        self.controller.generation()
    }

    /// Workers wanted.
    pub fn workers(&self) -> u32 {
        self.controller.workers()
    }

    /// Processes that have ended since the last step, in that order.
    pub fn exits(&self) -> Vec<Exit> {
        [self.controller.exits(), &self.last_exits].concat()
    }

    /// What happened to machines and no coordinator has written down.
    pub fn take_unreported(&mut self) -> Vec<What> {
        self.unreport();
        std::mem::take(&mut self.unreported)
    }

    /// What one coordinator has not written down, another is told.
    fn unreport(&mut self) {
        self.unreported.splice(..0, self.reported.drain(..));
    }

    /// Takes in what the coordinator said.
    fn hear(&mut self, news: News) {
        match news {
            News::Event(event) => {
                self.has_begun |= matches!(event.what, What::Started(_));
                if let Some(at) = self.reported.iter().position(|what| *what == event.what) {
                    self.reported.remove(at);
                }
                if let (What::Saved { .. }, Some(copies)) = (&event.what, &mut self.copies) {
                    copies.saved();
                }
                self.on(Happening::Event(&event));
                self.display.event(&event);
            }
            News::Pulse(pulse) => {
                self.on(Happening::Pulse(&pulse));
                self.display.pulse(&pulse);
            }
            News::Pool(workers) => self.on(Happening::Pool { workers }),
            News::Resize(machines) => {
                self.sites.resize(self.clock.elapsed(), machines as usize);
                self.unreported.push(What::Resized { machines });
            }
            News::Kill { agent, pid, why } => self.on(Happening::Kill { agent, pid, why }),
            News::Nothing => {}
            News::Finish => self.on(Happening::Finish),
            News::Gone(_) => {
                self.unlink();
                self.on(Happening::LinkGone);
            }
        }
    }

    /// Has the coordinator write down what happened to machines.
    fn report(&mut self) {
        let over = self.unreported.len().saturating_sub(REPORTS_MAX);
        self.unreported.drain(..over);
        if let Some(link) = self.link.as_ref().filter(|_| self.has_begun) {
            self.unreported.iter().for_each(|what| link.report(what));
            self.reported.append(&mut self.unreported);
            let over = self.reported.len().saturating_sub(REPORTS_MAX);
            self.reported.drain(..over);
        }
    }

    /// Tells the controller, and does what it says.
    fn on(&mut self, happening: Happening<'_>) {
        let mut effects = VecDeque::from(self.controller.on(self.clock.elapsed(), happening));
        while let Some(effect) = effects.pop_front() {
            if let Some(happening) = self.act(effect) {
                effects.extend(self.controller.on(self.clock.elapsed(), happening));
            }
        }
    }

    /// What became of it, where it was a process to start.
    fn act(&mut self, effect: Effect) -> Option<Happening<'static>> {
        match effect {
            Effect::Start { agent } => return Some(self.start(agent)),
            Effect::Coordinate { generation, after } => {
                return Some(self.coordinate(generation, after));
            }
            Effect::Kill { agent, pid, .. } => self.sites.kill(agent, pid),
            Effect::MakeRoom { workers } => self.sites.set_workers(workers),
            Effect::Tell(message) => {
                if let Some(link) = &self.link {
                    link.tell(&message);
                }
            }
            Effect::End(ended) => {
                self.ended.get_or_insert(ended);
            }
        }
        None
    }

    fn start(&mut self, agent: Agent) -> Happening<'static> {
        let spot = self.sites.place(self.clock.elapsed(), agent);
        if spot == Spot::Nowhere {
            return Happening::NoRoom { agent };
        }
        let mut launch = match self.first.for_member() {
            Ok(launch) => launch,
            Err(e) => return Happening::NotStarted { agent, why: e.to_string() },
        };
        launch.generation = self.controller.generation();
        launch.size.workers = self.controller.workers();
        launch.coordinator = Some(self.address.clone());
        launch.station.process = self.sites.next_process(&spot);
        pooling::station(&mut launch, &spot, &self.sites);
        if let Err(why) = self.vouch(agent, &mut launch) {
            return Happening::NotStarted { agent, why };
        }
        match self.sites.start(&spot, agent, &self.run.id(), &launch) {
            Ok(started) => Happening::Started { agent, pid: started.pid },
            Err(e) => Happening::NotStarted { agent, why: e.to_string() },
        }
    }

    /// Starts a coordinator and begins to reach it.
    fn coordinate(&mut self, generation: u64, after: Option<Loss>) -> Happening<'static> {
        self.unlink();
        self.connecting = None;
        let mut launch = self.first.again(generation, after, self.controller.workers());
        let agent = Agent::Coordinator;
        if let Err(why) = self.vouch(agent, &mut launch) {
            return Happening::NotStarted { agent, why };
        }
        match self.sites.start(&Spot::Here, agent, &self.run.id(), &launch) {
            Err(e) => Happening::NotStarted { agent, why: e.to_string() },
            Ok(Started { pid, stdout }) => {
                self.connecting = self.begin_to_connect(generation, stdout);
                Happening::Started { agent, pid }
            }
        }
    }

    /// Gives a process the certificate that others know it by, where they are not all here.
    fn vouch(&self, agent: Agent, launch: &mut Launch) -> std::result::Result<(), String> {
        match &self.vouching {
            Some(vouching) => vouching.vouch(agent, &mut launch.station, self.clock.elapsed()),
            None => Ok(()),
        }
    }

    /// Gives processes that have lived for long new certificates, and consoles another file.
    fn renew(&mut self) {
        let age = self.clock.elapsed();
        let Some(vouching) = &mut self.vouching else { return };
        if !vouching.is_due(age) {
            return;
        }
        // Where one cannot be made, the next time is soon enough: the old one is valid for days.
        if let Ok(trust) = vouching.trust(Agent::Console, None, age)
            && self.credentials.standing().renew(&trust).is_ok()
            && let Some(control) = &self.control
        {
            let _ = control.renew(self.credentials);
        }
        for (agent, pid, machine) in self.sites.processes() {
            if let Ok(trust) = vouching.trust(agent, machine.as_deref(), age)
                && let Some(line) = Word::Trust(trust).line()
            {
                self.sites.say(pid, &line);
            }
        }
    }

    /// From now on no process believes what a machine has had until now.
    fn give_up(&mut self, machine: &str) {
        let Some(vouching) = &mut self.vouching else { return };
        if let Some(line) = vouching.give_up(machine).line() {
            for (_, pid, _) in self.sites.processes() {
                self.sites.say(pid, &line);
            }
        }
    }

    /// Begins to reach a coordinator; where there is no thread to do it, it is tried again.
    fn begin_to_connect(&self, generation: u64, stdout: Option<ChildStdout>) -> Option<Connecting> {
        let target = Target {
            address: Some(self.address.clone()),
            stdout,
            credentials: self.credentials.clone(),
            build: self.first.build.clone(),
            generation,
            seen: self.seen,
        };
        Connecting::begin(target).ok()
    }

    /// Waits a moment for a coordinator to be reached: a short one, since the end of a lost one, which
    /// all others wait for, is seen at the next look.
    fn connect(&mut self) -> News {
        let connected = match &self.connecting {
            Some(connecting) => connecting.result(RETRY_SOON),
            None => {
                std::thread::park_timeout(RETRY_SOON);
                Connected::Failed
            }
        };
        match connected {
            Connected::NotYet => {}
            Connected::There(address, console) => self.connected(address, console),
            // If it lives it may have dropped the link only. If it says nothing it will be killed.
            Connected::Failed => {
                let lives = self.controller.coordinates();
                let generation = self.generation();
                self.connecting = lives.then(|| self.begin_to_connect(generation, None)).flatten();
            }
        }
        News::Nothing
    }

    fn connected(&mut self, address: String, console: Console) {
        if self.control.is_none() {
            match Control::write(self.run, &address, self.credentials, &self.first) {
                Ok(control) => self.control = Some(control),
                Err(failure) => {
                    self.failed = Some(failure);
                    return;
                }
            }
        }
        self.address = address;
        (self.link, self.connecting) = (Some(console), None);
        self.on(Happening::Linked);
    }

    /// Lets go of the link, if there is one.
    fn unlink(&mut self) {
        if let Some(link) = self.link.take() {
            self.seen = link.seen();
            self.unreport();
        }
    }

    /// Why the run cannot go on, and where to read more.
    fn failure(&self, failed: Failed) -> Failure {
        let loss = match failed {
            Failed::Lost(loss) => loss,
            Failed::StopUnheard(time) => {
                let message = format!(
                    "no coordinator could be told to stop for {} s; nothing was saved since the \
                     last checkpoint",
                    time.as_secs()
                );
                return Failure::failed(message).hint("`planaria resume` goes on from it");
            }
        };
        let log = self.run.file(LOGS).join(format!("{}.log", loss.agent));
        let path = log.display();
        let failure = Failure::failed(&loss.message);
        let is_lost = |exit: &&Exit| exit.agent == loss.agent;
        let last = self.controller.exits().iter().rev().find(is_lost);
        failure.hint(match last_line(&log) {
            _ if last.is_some_and(|exit| exit.ending.is_out_of_memory()) => {
                let file = self.run.file("recipe.yaml");
                let remedy = memory::remedy(&self.first.recipe);
                format!("{remedy}; a change of `pool` in `{}` holds for `resume`", file.display())
            }
            Some(line) => format!("its log is `{path}`, and ends with: {line}"),
            None => format!("its log is `{path}`"),
        })
    }
}

impl Kind for Foreground<'_> {
    type End = ();

    fn sites(&mut self) -> &mut Sites {
        &mut self.sites
    }

    fn note(&mut self, text: &str) {
        self.display.note(text);
    }

    fn machine(&mut self, change: Change) {
        let Change { machine, state, why } = change;
        if matches!(state, MachineState::Lost | MachineState::Failed | MachineState::Released) {
            self.give_up(&machine);
        }
        self.unreported.push(What::Machine { machine, state, reason: why });
    }

    fn exited(&mut self, _: Duration, exit: Exit) {
        self.on(Happening::Exited(exit));
    }

    fn stop(&mut self, _: Duration) -> Result<()> {
        self.on(Happening::Stop { reason: stopping::REASON });
        Ok(())
    }

    fn look(&mut self, _: Duration) -> Result<Option<()>> {
        self.run.check()?;
        self.on(Happening::Look);
        self.report();
        self.renew();
        if let (Some(copies), Some(pool)) = (&mut self.copies, self.sites.pool())
            && let Some(note) = copies.look(pool)
        {
            self.display.note(&note);
        }
        if self.ended.is_none() {
            let news = match &self.link {
                Some(link) => link.next(LOOK_EVERY),
                None => self.connect(),
            };
            self.hear(news);
        }
        match (self.failed.take(), self.ended.take()) {
            (Some(failure), _) => Err(failure),
            (None, Some(Err(failed))) => Err(self.failure(failed)),
            (None, Some(Ok(()))) => Ok(Some(())),
            (None, None) => Ok(None),
        }
    }

    fn leave(&mut self, ended: &Result<()>) {
        (self.connecting, self.link, self.control) = (None, None, None);
        if ended.is_err() {
            // Those that are left wait for the others, and would for ever.
            return self.sites.kill_all();
        }
        // Those that had not joined have not heard that the run is over.
        let unready = self.controller.unready();
        unready.iter().for_each(|(agent, pid)| self.sites.kill(*agent, *pid));
        let own = |exit: &Exit| unready.contains(&(exit.agent, exit.pid));
        let clock = self.clock;
        let exits = self.sites.end(END_WITHIN, &|| clock.elapsed());
        self.last_exits.extend(exits.into_iter().filter(|exit| !own(exit)));
    }
}
