//! `planaria chaos`: breaks a live run on purpose, and says what it did and how the run stands.

use crate::chaos::Victims;
use crate::chaos::grip::{Grip, Hold};
use crate::chaos::plan::{Draw, Fault, Settings};
use crate::chaos::processes::Family;
use crate::cli;
use crate::commands::{print_on, status};
use planaria_control::detached;
use planaria_control::jobs::{about::Command, permit};
use planaria_control::live::console::{Console, News};
use planaria_control::live::control;
use planaria_control::talk::{Progress, Talk};
use planaria_protocol::event::{Doing, Pulse, What};
use planaria_protocol::message::Agent;
use planaria_runs::clock::{self, Stopwatch};
use planaria_runs::failure::{Exit, Failure, Result, plain};
use planaria_runs::history::{History, Standing};
use planaria_runs::run_dir::lock::Holder;
use planaria_runs::run_dir::{find, run_id};
use planaria_text::number::{counted, duration, grouped};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Poll interval.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Interval of attempts to reach a new coordinator.
const CONNECT_EVERY: f64 = 0.25;
/// How long a target that is just being replaced may take to be there.
const TARGET_PATIENCE: f64 = 2.0;
/// How long a run may take to say where it is.
const STEP_PATIENCE: Duration = Duration::from_secs(3);
/// How long a coordinator may take to hear what it was asked last.
const LINGER: f64 = 0.3;
/// How long a run may take to write its last files.
const END_WITHIN: f64 = 60.0;

static ASKED: AtomicBool = AtomicBool::new(false);

/// Breaks, prints, and says what to exit with.
pub fn run(options: &cli::Chaos, talk: Talk) -> Result<Option<Exit>> {
    let folder = find(&options.run)?;
    permit(&folder, Command::Chaos)?;
    let settings = settings(options)?;
    check(&folder)?;
    // Without a handler Ctrl-C ends the command at once, and a stopped process stays stopped.
    ctrlc::set_handler(|| ASKED.store(true, Ordering::SeqCst))
        .map_err(|e| Failure::failed(format!("cannot listen for Ctrl-C: {e}")))?;
    let mut storm = Storm::new(folder, settings, options.json);
    let said = storm.settings_text();
    storm.find_target()?;
    Progress::new(talk).note(&said);
    storm.begin()?;
    storm.rage(options.lasts.map(|span| span.most.as_secs_f64()))?;
    storm.calm();
    storm.finish()
}

/// Refuses a run that there is nothing to break of.
fn check(folder: &Path) -> Result<()> {
    let path = folder.display();
    if !Holder::of(folder)?.is_live() {
        return Err(Failure::user(format!("run `{path}` is not running"))
            .hint("start it with `planaria train`, and break it from another terminal"));
    }
    let history = detached::history(folder)?;
    if history.steps > 0 && history.workers == 0 {
        return Err(Failure::user(format!("run `{path}` is one process: it has no part to lose"))
            .hint("train with `--workers 3 --servers 1`"));
    }
    Ok(())
}

fn settings(options: &cli::Chaos) -> Result<Settings> {
    let mut faults: Vec<Fault> = options.kill.iter().map(|who| Fault::Kill(*who)).collect();
    faults.extend(options.pause.map(Fault::Pause));
    faults.extend(options.slow.map(Fault::Slow));
    faults.extend(options.drop.map(Fault::Drop));
    if faults.is_empty() {
        let anyone = options.target.is_some();
        faults.push(Fault::Kill(if anyone { Victims::Any } else { Victims::Worker }));
    }
    let target = options.target.map(|target| target.0);
    if let Some(target) = target {
        faults = fitting(target, faults)?;
    }
    // Short enough to be typed again.
    let random = || (clock::unix_seconds() * 1e6) as u64 % 1_000_000;
    Ok(Settings { faults, every: options.every, target, seed: options.seed.unwrap_or_else(random) })
}

/// The faults that can hit the target; one that cannot would never happen.
fn fitting(target: Agent, faults: Vec<Fault>) -> Result<Vec<Fault>> {
    let (able, unable): (Vec<Fault>, Vec<Fault>) =
        faults.into_iter().partition(|fault| fault.fits(target));
    if able.is_empty() {
        let why = |fault: &Fault| format!("`{}` only affects {}", fault.text(), fault.targets());
        let why: Vec<String> = unable.iter().map(why).collect();
        return Err(Failure::user(format!(
            "no fault can be injected into {target}: {}",
            why.join(", ")
        ))
        .hint(
            "name another `--target`, or `--kill any` or `--pause`, which work on every process",
        ));
    }
    Ok(able)
}

/// A run that is being broken.
struct Storm {
    folder: PathBuf,
    run_id: String,
    settings: Settings,
    json: bool,
    watch: Stopwatch,
    console: Option<Console>,
    connected_at: f64,
    grip: Grip,
    /// Deeds by kind.
    deeds: BTreeMap<&'static str, u64>,
    /// Processes on other machines, as the last pulse has them: the coordinator is asked to hurt
    /// them.
    elsewhere: Vec<Agent>,
    /// Steps done at first, and now.
    first_step: u64,
    step: u64,
    /// Whether the run is over, or what is printed is no longer read.
    over: bool,
}

impl Storm {
    fn new(folder: PathBuf, settings: Settings, json: bool) -> Self {
        Self {
            run_id: run_id(&folder),
            folder,
            settings,
            json,
            watch: Stopwatch::start(),
            console: None,
            connected_at: f64::NEG_INFINITY,
            grip: Grip::default(),
            deeds: BTreeMap::new(),
            elsewhere: Vec::new(),
            first_step: 0,
            step: 0,
            over: false,
        }
    }

    fn settings_text(&self) -> String {
        let names: Vec<String> = self.settings.faults.iter().map(Fault::text).collect();
        let Settings { every, seed, .. } = &self.settings;
        format!("one of {} every {every}, seed {seed}; Ctrl-C ends it", names.join(", "))
    }

    /// Refuses a target that is not there.
    fn find_target(&self) -> Result<()> {
        let Some(target) = self.settings.target else { return Ok(()) };
        let mut there = self.living()?;
        while !there.contains(&target) && self.watch.seconds() < TARGET_PATIENCE {
            std::thread::park_timeout(LOOK_EVERY);
            there = self.living()?;
        }
        if there.contains(&target) {
            return Ok(());
        }
        there.sort();
        let names: Vec<String> = there.iter().map(Agent::to_string).collect();
        let hint = match names.is_empty() {
            true => "the run has no processes now: try again in a moment".to_owned(),
            false => format!("there are {}", names.join(", ")),
        };
        Err(Failure::user(format!("run `{}` has no {target} now", self.folder.display()))
            .hint(hint))
    }

    fn living(&self) -> Result<Vec<Agent>> {
        let Some(parent) = Holder::of(&self.folder)?.pid() else { return Ok(Vec::new()) };
        let family = Family { run_id: self.run_id.clone(), parent };
        let mut living: Vec<Agent> = family.living().iter().map(|process| process.agent).collect();
        if self.settings.faults.iter().any(Fault::reaches) {
            let pulse = status::pulse(&self.folder, STEP_PATIENCE);
            living.extend(pulse.map_or_else(Vec::new, |pulse| elsewhere(&pulse)));
        }
        Ok(living)
    }

    fn begin(&mut self) -> Result<()> {
        // Before anything is broken; events come every few steps only.
        let step = match status::pulse(&self.folder, STEP_PATIENCE) {
            Some(pulse) => pulse.step,
            None => detached::history(&self.folder)?.step,
        };
        (self.first_step, self.step) = (step, step);
        self.watch = Stopwatch::start();
        if self.json {
            let seed = self.settings.seed;
            self.tell(&json!({"event": "begun", "run": self.run_id, "seed": seed}))?;
        }
        Ok(())
    }

    /// Does one deed after another, the first at once, until time is up, the run is over or Ctrl-C.
    /// However short the time, one is tried.
    fn rage(&mut self, lasts: Option<f64>) -> Result<()> {
        for n in 0.. {
            let draw = self.settings.draw(n);
            let wait = if n == 0 { 0.0 } else { draw.wait.as_secs_f64() };
            let due = self.watch.seconds() + wait;
            let mut tried = n > 0;
            // Where there is no process to suffer it, it waits for one.
            loop {
                self.look();
                let now = self.watch.seconds();
                let enough = lasts.is_some_and(|lasts| now >= lasts);
                if self.is_over() || (tried && enough) {
                    return Ok(());
                }
                if now >= due && self.act(&draw)? {
                    break;
                }
                tried = true;
            }
        }
        Ok(())
    }

    /// Lets what was begun run its course: processes that are held, and words on their way.
    fn calm(&mut self) {
        let watch = Stopwatch::start();
        while !self.is_over() && (self.grip.is_holding() || watch.seconds() < LINGER) {
            self.look();
        }
    }

    fn is_over(&self) -> bool {
        self.over || ASKED.load(Ordering::SeqCst)
    }

    /// Hears what is new of the run, for a moment.
    fn look(&mut self) {
        let now = self.watch.seconds();
        if self.console.is_none() && now - self.connected_at >= CONNECT_EVERY {
            self.connected_at = now;
            // A coordinator that is being replaced is there again in a moment.
            self.console = control::connect(&self.folder).ok().flatten();
        }
        let Some(console) = &self.console else {
            std::thread::park_timeout(LOOK_EVERY);
            self.over |= Holder::of(&self.folder).is_ok_and(|holder| !holder.is_live());
            return;
        };
        match console.next(LOOK_EVERY) {
            News::Pulse(pulse) => {
                self.step = pulse.step;
                self.elsewhere = elsewhere(&pulse);
            }
            News::Event(event) => self.over |= matches!(event.what, What::Ended { .. }),
            News::Finish => self.over = true,
            News::Gone(_) => self.console = None,
            _ => {}
        }
    }

    /// Injects a fault; says whether there was a process to suffer it.
    fn act(&mut self, draw: &Draw) -> Result<bool> {
        let Some(parent) = Holder::of(&self.folder)?.pid() else { return Ok(false) };
        let family = Family { run_id: self.run_id.clone(), parent };
        let mut living = family.living();
        living.retain(|process| !self.grip.holds(process.pid));
        let mut agents: Vec<Agent> = living.iter().map(|p| p.agent).collect();
        if draw.fault.reaches() {
            agents.extend(&self.elsewhere);
        }
        let Some(agent) = self.settings.victim(draw, &agents) else { return Ok(false) };
        if self.elsewhere.contains(&agent) {
            return self.act_elsewhere(draw, agent);
        }
        let Some(process) = living.into_iter().find(|p| p.agent == agent) else {
            return Ok(false);
        };
        let cannot = |e: std::io::Error| {
            Failure::failed(format!("cannot signal process {}: {e}", process.pid))
        };
        let done = match draw.fault {
            Fault::Kill(_) => family.signal(&process, Signal::KILL).map_err(cannot)?,
            Fault::Pause(_) => {
                let hold = self.grip.hold(&family, &process, Hold::Stopped, draw.lasts);
                hold.map_err(cannot)?
            }
            Fault::Slow(_) => {
                let hold = self.grip.hold(&family, &process, Hold::Slowed, draw.lasts);
                hold.map_err(cannot)?
            }
            Fault::Drop(_) => match (&self.console, draw.frame_loss()) {
                (Some(console), Some(frame_loss)) => console.chaos(agent, frame_loss),
                _ => false,
            },
        };
        if done {
            *self.deeds.entry(draw.fault.name()).or_default() += 1;
            self.tell_deed(draw, agent, Some(process.pid))?;
        }
        Ok(done)
    }

    /// The same for a process on another machine.
    fn act_elsewhere(&mut self, draw: &Draw, agent: Agent) -> Result<bool> {
        let Some(console) = &self.console else { return Ok(false) };
        let done = match (draw.fault, draw.frame_loss()) {
            (Fault::Kill(_), _) => console.kill(agent),
            (Fault::Drop(_), Some(frame_loss)) => console.chaos(agent, frame_loss),
            _ => false,
        };
        if done {
            *self.deeds.entry(draw.fault.name()).or_default() += 1;
            self.tell_deed(draw, agent, None)?;
        }
        Ok(done)
    }

    fn tell_deed(&mut self, draw: &Draw, agent: Agent, pid: Option<u32>) -> Result<()> {
        let lasts = draw.lasts.as_secs_f64();
        let now = clock::unix_seconds();
        if self.json {
            let lasts = (lasts > 0.0).then_some(lasts);
            return self.tell(&json!({
                "event": "deed", "unix_seconds": now, "fault": draw.fault.name(),
                "agent": agent.to_string(), "pid": pid, "seconds": lasts,
                "step": self.step,
            }));
        }
        let process = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
        let target = format!("{agent}{process}");
        let what = match draw.fault {
            Fault::Kill(_) => format!("killed {target}"),
            Fault::Pause(_) => format!("stopped {target} for {}", duration(lasts)),
            Fault::Slow(_) => format!("slowed {target} to a fiftieth for {}", duration(lasts)),
            Fault::Drop(share) if share.per_mille == 1000 => {
                format!("cut {target} off for {}", duration(lasts))
            }
            Fault::Drop(share) => {
                format!("{share} of what {target} sends is lost for {}", duration(lasts))
            }
        };
        self.say(&format!("{}  {what}\n", clock::iso8601_millis(now)))
    }

    /// Undoes what is to be undone, and says how the run stands.
    fn finish(mut self) -> Result<Option<Exit>> {
        self.grip = Grip::default();
        let ending = Stopwatch::start();
        while self.over
            && ending.seconds() < END_WITHIN
            && !ASKED.load(Ordering::SeqCst)
            && Holder::of(&self.folder)?.is_live()
        {
            std::thread::park_timeout(LOOK_EVERY);
        }
        let history = detached::history(&self.folder)?;
        self.step = self.last_step(&history);
        let steps = self.step.saturating_sub(self.first_step);
        if self.json {
            self.tell(&json!({
                "event": "ended", "seed": self.settings.seed, "deeds": self.deeds,
                "seconds": self.watch.seconds(), "steps": steps, "state": history.state,
                "step": self.step, "reason": history.reason,
            }))?;
        } else {
            self.say(&self.summary(&history, steps))?;
        }
        let failed = matches!(history.state, Standing::Failed | Standing::Killed);
        Ok(failed.then_some(Exit::Failed))
    }

    /// Steps done at the end. What was heard on the way may be old: a coordinator that was just lost
    /// is asked for again.
    fn last_step(&self, history: &History) -> u64 {
        let watch = Stopwatch::start();
        let is_running = history.state == Standing::Running;
        loop {
            let left = STEP_PATIENCE.saturating_sub(watch.elapsed());
            let asked = is_running.then(|| status::pulse(&self.folder, left)).flatten();
            if let Some(pulse) = asked {
                return pulse.step;
            }
            if !is_running || left.is_zero() || !self.folder.join(control::FILE).exists() {
                break;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
        self.step.max(history.step)
    }

    fn summary(&self, history: &History, steps: u64) -> String {
        let deeds: Vec<String> =
            self.deeds.iter().map(|(kind, n)| format!("{kind} {}", grouped(*n))).collect();
        let all: u64 = self.deeds.values().sum();
        let list =
            if deeds.is_empty() { String::new() } else { format!(" ({})", deeds.join(", ")) };
        let reason = history.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        format!(
            "{}{list} in {}; {} committed meanwhile; the run is {} at step {}{}\n",
            counted(all, "fault"),
            duration(self.watch.seconds()),
            counted(steps, "step"),
            history.state.text(),
            grouped(self.step),
            plain(&reason).replace('\n', " ")
        )
    }

    fn tell(&mut self, line: &Value) -> Result<()> {
        self.say(&format!("{line}\n"))
    }

    fn say(&mut self, text: &str) -> Result<()> {
        // A closed pipe wants no more of it.
        self.over |= !print_on(text)?;
        Ok(())
    }
}

/// Processes on other machines that take part.
fn elsewhere(pulse: &Pulse) -> Vec<Agent> {
    let workers =
        pulse.workers.iter().filter(|w| w.machine.is_some() && w.state != Doing::Starting);
    let servers =
        pulse.servers.iter().filter(|s| s.machine.is_some() && s.state != Doing::Starting);
    let servers = servers.map(|s| Agent::Server(s.server));
    workers.map(|w| Agent::Worker(w.worker)).chain(servers).collect()
}
