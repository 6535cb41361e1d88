//! What a script's recipe would do, without doing it.
//!
//! All is checked that `planaria run` checks before it creates anything. Machines are not asked:
//! their addresses and ports are made up, and what depends on how many cores or GPUs they have is
//! shown as if each had one.

use super::machines;
use crate::cli;
use crate::commands::print;
use planaria_control::jobs::pooling::failure;
use planaria_control::jobs::script::layout::{Layout, Process, Seat};
use planaria_control::jobs::script::policy::{Member, Rules};
use planaria_control::jobs::script::prepare::Prepared;
use planaria_control::jobs::script::variables::{Telling, Told};
use planaria_control::survey::{check_output, check_setup};
use planaria_control::talk::Talk;
use planaria_fleet::host::gpus;
use planaria_fleet::messages::questions::What;
use planaria_fleet::provider::{LOOPBACK, Tag};
use planaria_fleet::providers::{self, Purpose};
use planaria_fleet::setup::Setup;
use planaria_recipe::JobSource;
use planaria_recipe::script::Job;
use planaria_runs::failure::{Failure, Result, plain};
use planaria_runs::{processes, story};
use planaria_text::number::{bytes, counted};
use serde_json::{Value, json};
use std::fmt::Write;

/// The first port of those that are made up.
const PORT: u16 = 50_000;
/// Largest files that are named.
const LARGEST_MAX: usize = 3;
/// Characters of a command that are shown.
const COMMAND_MAX: usize = 2000;

/// Prints the plan.
pub(super) fn run(options: &cli::Plan) -> Result<()> {
    let source = JobSource::load(&options.recipe.recipe, &options.recipe.sets);
    let source = source?;
    check_output(&source, &source.recipe().output.dir)?;
    check_setup(&source, &source.recipe().setup)?;
    let prepared = Prepared::new(&source, Talk::QUIET)?;
    Setup::prepare(&prepared.setup).map_err(failure)?;
    providers::check_settings(&prepared.job.pool).map_err(failure)?;
    let is_told = source.recipe().script.framework.is_none();
    let plan = Plan::new(&prepared, is_told)?;
    print(&match options.json {
        true => format!("{:#}\n", plan.document()),
        false => plan.text(),
    })
}

/// What would be done.
struct Plan<'p> {
    prepared: &'p Prepared,
    /// Whether the framework was told from imports.
    is_told: bool,
    layout: Layout,
    first: Told,
}

impl<'p> Plan<'p> {
    fn new(prepared: &'p Prepared, is_told: bool) -> Result<Self> {
        let job = &prepared.job;
        let layout = Layout::new(job, prepared.framework, seats(job)?).map_err(Failure::user)?;
        let layout = with_ports(layout, job.script.port.unwrap_or(PORT));
        let run = format!("{}-TIME", job.name);
        let telling = Telling {
            job,
            framework: prepared.framework,
            run: &run,
            round: 0,
            script: &prepared.script,
            data: &prepared.data,
            has_mpi4py: prepared.has_mpi4py,
            layout: &layout,
        };
        let first = telling.told(&layout.processes[0]);
        Ok(Self { prepared, is_told, layout, first })
    }

    fn text(&self) -> String {
        let (job, prepared) = (&self.prepared.job, self.prepared);
        let mut text = String::new();
        let mut add = |label: &str, value: &str| {
            let _ = writeln!(text, "{label:<12}{}", plain(value));
        };
        let framework = prepared.framework.as_str();
        let how = if self.is_told { ", told from what it imports" } else { "" };
        add("recipe", &job.name);
        add("script", &format!("{} ({framework}{how})", job.script.file));
        self.processes().iter().enumerate().for_each(|(i, line)| {
            add(if i == 0 { "processes" } else { "" }, line);
        });
        let command: String = self.first.command.join(" ").chars().take(COMMAND_MAX).collect();
        add("command", &format!("{command} ({}{})", self.first_title(), self.made_up()));
        add("variables", &self.variables().join(", "));
        add("code", &self.code());
        for data in job.script.data_sets() {
            add("data", &format!("{}, to every machine once", data.path));
        }
        match prepared.outputs.texts() {
            [] => add("outputs", "none are brought back; `script.outputs` names some"),
            patterns => add("outputs", &patterns.join(", ")),
        }
        add("done when", &self.rules().done_when(&self.members()));
        add("restarts", &self.rules().restarts(&self.members(), job.script.max_restarts));
        for note in &prepared.notes {
            add("note", note);
        }
        text + &machines::steps(&job.pool, &job.setup)
    }

    fn document(&self) -> Value {
        let (job, prepared) = (&self.prepared.job, self.prepared);
        let process = |process: &Process| json!({ "process": process.slug(), "machine": self.layout.seat(process).name });
        let secret: Vec<&String> = job.script.env.keys().collect();
        json!({
            "name": job.name,
            "script": job.script.file,
            "framework": prepared.framework.as_str(),
            "framework_told_from_imports": self.is_told,
            "processes": self.layout.processes.iter().map(process).collect::<Vec<_>>(),
            "machines": machines::document(&job.pool, &job.setup),
            "command": self.first.command,
            "variables": self.variables(),
            "own_variables": secret,
            "code": {
                "folder": prepared.code.root,
                "files": prepared.code.bundle.files(),
                "bytes": prepared.code.bundle.bytes(),
                "largest": self.largest(),
            },
            "outputs": prepared.outputs.texts(),
            "done_when": self.rules().done_when(&self.members()),
            "restarts": self.rules().restarts(&self.members(), job.script.max_restarts),
            "notes": prepared.notes,
        })
    }

    /// How many there are, and who is where.
    fn processes(&self) -> Vec<String> {
        let job = &self.prepared.job;
        let count = match self.layout.processes.len() {
            1 => "1 process".to_owned(),
            n => format!("{n} processes"),
        };
        let all: Vec<processes::Process> = self.layout.processes.iter().map(told).collect();
        let on = |seat: usize| -> Vec<&processes::Process> {
            let here = self.layout.processes.iter().zip(&all).filter(|(one, _)| one.seat == seat);
            here.map(|(_, told)| told).collect()
        };
        let workers = self.depends_on_machines();
        if !job.pool.has_machines() {
            let named = story::named(&all.iter().collect::<Vec<_>>());
            let with = match self.is_launched() {
                true => format!(" with {}", counted(self.layout.workers[0] as u64, "worker")),
                false => String::new(),
            };
            return vec![format!("{count} on this machine: {named}{with}{workers}")];
        }
        let mut lines = vec![format!("{count} on {}{workers}", machines::machines(&job.pool))];
        let seats = self.layout.seats.iter().enumerate();
        lines.extend(seats.map(|(place, seat)| {
            match (on(place), self.layout.workers.get(place)) {
                (here, _) if here.is_empty() => format!("{}: none", seat.name),
                (here, Some(workers)) if self.is_launched() => {
                    let workers = counted(*workers as u64, "worker");
                    format!("{}: {} with {workers}", seat.name, story::named(&here))
                }
                (here, _) => format!("{}: {}", seat.name, story::named(&here)),
            }
        }));
        lines
    }

    /// Whether something else starts the workers.
    fn is_launched(&self) -> bool {
        let workers: usize = self.layout.workers.iter().sum();
        workers > 0 && self.layout.of_role(planaria_recipe::script::WORKER).next().is_none()
    }

    fn depends_on_machines(&self) -> &'static str {
        let each = self.prepared.job.script.per_machine.as_ref().and_then(|word| word.each());
        match (each, self.prepared.job.pool.is_here()) {
            (None, _) | (Some(_), true) => "",
            (Some(_), false) => {
                ", as if each machine had one core or GPU: it has more workers then"
            }
        }
    }

    fn first_title(&self) -> String {
        self.layout.processes[0].title()
    }

    /// What of the command is made up, if anything.
    fn made_up(&self) -> &'static str {
        let is_told = |process: &Process| {
            let place = self.layout.place(process);
            self.first.command.iter().any(|argument| argument.contains(&place))
        };
        match self.prepared.job.script.port {
            _ if !self.layout.processes.iter().any(is_told) => "",
            Some(_) => "; addresses are examples",
            None => "; addresses and ports are examples",
        }
    }

    /// Names of all that is set for the first process.
    fn variables(&self) -> Vec<String> {
        let told = self.first.env.iter().map(|(name, _)| name.clone());
        let interface = self.first.interface.iter().flat_map(|(_, names)| names.clone());
        let own = self.prepared.job.script.env.keys().cloned();
        told.chain(interface).chain(own).collect()
    }

    fn code(&self) -> String {
        let bundle = &self.prepared.code.bundle;
        let files = counted(bundle.files() as u64, "file");
        let largest: Vec<String> =
            self.largest().iter().map(|(path, n)| format!("{path} {}", bytes(*n))).collect();
        let folder = self.prepared.job.script.code_folder();
        format!("{folder}: {files}, {}; largest: {}", bytes(bundle.bytes()), largest.join(", "))
    }

    fn largest(&self) -> Vec<(String, u64)> {
        let mut files: Vec<(String, u64)> = self
            .prepared
            .code
            .bundle
            .entries
            .iter()
            .filter_map(|entry| match entry.what {
                What::File { bytes, .. } => Some((entry.path.clone(), bytes)),
                _ => None,
            })
            .collect();
        files.sort_by_key(|(path, bytes)| (std::cmp::Reverse(*bytes), path.clone()));
        files.truncate(LARGEST_MAX);
        files
    }

    fn rules(&self) -> Rules {
        Rules::of(&self.prepared.job, self.prepared.framework)
    }

    fn members(&self) -> Vec<Member> {
        let member = |process: &Process| Member {
            role: process.role.clone(),
            index: process.index,
            meets: false,
        };
        self.layout.processes.iter().map(member).collect()
    }
}

fn told(process: &Process) -> processes::Process {
    processes::Process { process: process.slug(), machine: None, starts: 0, lost: None }
}

/// Machines as they will be called.
fn seats(job: &Job) -> Result<Vec<Seat>> {
    let provider = providers::of(&job.pool, &Purpose::default()).map_err(failure)?;
    let run = Tag::new("plan").expect("letters alone");
    let is_here = job.pool.is_here();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let planned =
        (0..job.machine_count() as u32).filter_map(|n| Some((n, provider.plan(&run, n)?)));
    let seat = |(number, machine): (u32, planaria_fleet::provider::Machine)| Seat {
        number,
        address: if is_here { LOOPBACK.to_owned() } else { machine.name.clone() },
        name: machine.name,
        cores: if is_here { cores } else { 1 },
        gpus: if is_here { gpus::count() } else { 1 },
        groups: machine.groups,
        home: "~/.cache/planaria".into(),
    };
    Ok(planned.map(seat).collect())
}

fn with_ports(mut layout: Layout, first: u16) -> Layout {
    let mut next = vec![first; layout.seats.len()];
    for process in &mut layout.processes {
        process.port = next[process.seat];
        next[process.seat] = next[process.seat].saturating_add(1);
    }
    layout
}
