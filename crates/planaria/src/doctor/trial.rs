//! The machines of a recipe, tried for real: each is made, talked to, and given back.
//!
//! Owns the trial. What it makes is tagged with a name of its own, and is gone afterwards; a host
//! that is no longer talked to ends itself. Never trains.

use super::python::Question;
use super::{Block, Finding, here};
use planaria_control::data_there::{HINT, Look};
use planaria_control::jobs::pooling::failure;
use planaria_control::jobs::script::prepare::Prepared;
use planaria_control::program;
use planaria_control::talk::Talk;
use planaria_fleet::gate::Gate;
use planaria_fleet::many;
use planaria_fleet::messages::Hello;
use planaria_fleet::pool::raise::{self, Attempt, Means, Progress, Reach};
use planaria_fleet::program::Program;
use planaria_fleet::provider::{Fault, Machine, Tag};
use planaria_fleet::providers::{self, Purpose};
use planaria_fleet::setup::Setup;
use planaria_recipe::pool::Pool;
use planaria_recipe::script::Framework;
use planaria_recipe::setup::Step;
use planaria_recipe::{JobSource, Recipe};
use planaria_runs::clock;
use planaria_runs::failure::{Context, Result};
use planaria_text::number::{bytes, counted};
use planaria_worker::features;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long no result may come before the rest is given up. Providers bound each trial by less.
const TRYING: Duration = Duration::from_secs(240);

/// All that a recipe asks for.
pub fn recipe(recipe: &Recipe) -> Result<Block> {
    let mut findings = setup(&recipe.setup);
    match recipe.pool.has_machines() {
        true => {
            let (found, data) = data(recipe);
            findings.extend(found);
            findings.extend(machines(&recipe.pool, Wanted { data, ..Wanted::default() })?);
        }
        false => findings.push(Finding::ok("machines", "none but this one are asked for")),
    }
    Ok(Block { name: format!("recipe {}", recipe.name), findings })
}

/// All that the recipe of a script asks for.
pub fn job(source: &JobSource) -> Result<Block> {
    let job = source.recipe();
    let mut findings = Vec::new();
    let framework = match Prepared::new(source, Talk::QUIET) {
        Ok(prepared) => {
            let (framework, code) = (prepared.framework.as_str(), &prepared.code.bundle);
            let files = counted(code.files() as u64, "file");
            let said =
                format!("{} ({framework}); {files}, {}", job.script.file, bytes(code.bytes()));
            findings.push(Finding::ok("script", said));
            prepared.framework
        }
        Err(failure) => {
            let said = failure.message.trim_start_matches("error: ").to_owned();
            findings.push(Finding::missing("script", said, failure.hint.unwrap_or_default()));
            job.script.framework.unwrap_or(Framework::Plain)
        }
    };
    findings.extend(setup(&job.setup));
    let question = Question::of(job, framework);
    if question.is_none() {
        let said = format!("`{}` is made by the set-up", job.python());
        findings.push(Finding::ok("python", said));
    }
    findings.extend(machines(&job.pool, Wanted { question, ..Wanted::default() })?);
    Ok(Block { name: format!("recipe {}", job.name), findings })
}

/// What machines are asked for once they are raised.
#[derive(Default)]
struct Wanted {
    question: Option<Question>,
    data: Option<Data>,
}

/// Data that machines should have.
struct Data {
    look: Look,
    /// Whether a step of the set-up, which is not done here, may bring it.
    may_come: bool,
}

/// Whether the data is here, and how to look for it on machines.
fn data(recipe: &Recipe) -> (Option<Finding>, Option<Data>) {
    let read = features::open(recipe, 1);
    let data = match read {
        Ok(data) => data,
        Err(error) => {
            let hint = "a run reads its data on this machine too";
            return (Some(Finding::missing("data", error.to_string(), hint)), None);
        }
    };
    let Some(look) = Look::new(recipe, &data.facts) else { return (None, None) };
    let count = counted(data.facts.files.len() as u64, "file");
    let said = format!("{count} of `{}`, compared with each machine's", recipe.data.train);
    let may_come = !recipe.setup.is_empty();
    (Some(Finding::ok("data", said)), Some(Data { look: look.with_content(&data), may_come }))
}

fn setup(steps: &[Step]) -> Vec<Finding> {
    if steps.is_empty() {
        return Vec::new();
    }
    let count = counted(steps.len() as u64, "step");
    let mut findings = vec![match Setup::prepare(steps) {
        Ok(_) => Finding::ok("set-up", format!("{count}; all that is named is here")),
        Err(fault) => Finding::fault("set-up", fault),
    }];
    if steps.iter().any(|step| step.ansible.is_some()) {
        findings.push(here::ansible());
    }
    findings
}

fn machines(pool: &Pool, wanted: Wanted) -> Result<Vec<Finding>> {
    let path = program::find(None)?;
    let path = path.canonicalize().unwrap_or(path);
    let program = Program::read(&path, crate::BUILD);
    let program = program.context(|| format!("cannot read `{}`", path.display()))?;
    let stamp = clock::stamp(clock::unix_seconds() as u64);
    let run = Tag::new(&format!("doctor-{stamp}-{}", std::process::id()));
    let run = run.expect("letters, digits and lines");
    let wanted = Arc::new(wanted);
    let mut findings = Vec::new();
    // A script without machines of a pool has this one.
    let has_any = pool.has_machines();
    for supply in pool.supplies().filter(|supply| supply.has_machines() || !has_any) {
        let purpose = Purpose { program: Some(program.clone()), ..Purpose::default() };
        let provider = providers::make(&supply.provider, purpose).map_err(failure)?;
        if let Err(fault) = provider.check() {
            findings.push(Finding::fault(provider.name(), fault));
            continue;
        }
        // Machines that are listed differ; of those that are made, one is like the others.
        let count = supply.provider.named().len().max(1);
        let planned = (0..count as u32).filter_map(|number| provider.plan(&run, number));
        let planned: Vec<Machine> = planned.collect();
        let means = Arc::new(Means {
            provider,
            run: run.clone(),
            program: program.clone(),
            addresses: Vec::new(),
            reach: Reach::NotNeeded,
            gate: Gate::default(),
            first: Mutex::default(),
            prepare: raise::no_setup(),
            unix_seconds: clock::unix_seconds,
        });
        let wanted = wanted.clone();
        findings.extend(attempts(planned, move |machine| attempt(&means, machine, &wanted)));
    }
    findings.push(verdict(pool, &findings));
    Ok(findings)
}

/// A finding for each machine, all tried at the same time.
fn attempts(
    machines: Vec<Machine>,
    attempt: impl Fn(&Machine) -> Result<String, Fault> + Send + Sync + 'static,
) -> Vec<Finding> {
    let mut findings: Vec<Option<Finding>> = vec![None; machines.len()];
    let names: Vec<String> = machines.iter().map(|machine| machine.name.clone()).collect();
    many::each(machines, TRYING, attempt, |number, result| {
        let name = &names[number];
        findings[number] = Some(match result {
            Some(Ok(said)) => Finding::ok(name, said),
            Some(Err(fault)) => Finding::fault(name, fault),
            None => {
                let said = format!("nothing came of it within {} s", TRYING.as_secs());
                Finding::missing(name, said, "look at its load and its disks")
            }
        });
    });
    findings.into_iter().flatten().collect()
}

/// How many of the machines would work.
fn verdict(pool: &Pool, findings: &[Finding]) -> Finding {
    let (good, all) = (findings.iter().filter(|one| one.works).count(), findings.len());
    // A script without machines of a pool has this one.
    let wanted = pool.machine_count().max(1);
    let said = match pool.named().is_empty() {
        true => format!("the run has {wanted}; one was tried"),
        false => format!("{good} of {all} would work; the run has {wanted} at a time"),
    };
    match good == all {
        true => Finding::ok("machines", said),
        false => Finding::missing("machines", said, ""),
    }
}

/// Raises a machine as a run does, talks to its host and gives it back.
fn attempt(means: &Arc<Means>, machine: &Machine, wanted: &Wanted) -> Result<String, Fault> {
    let over: Arc<AtomicBool> = Arc::default();
    let notes: Arc<Mutex<Vec<String>>> = Arc::default();
    let pending: Arc<Mutex<Option<String>>> = Arc::default();
    let (told, waits, enough) = (notes.clone(), pending.clone(), over.clone());
    let tell = move |progress: Progress| match progress {
        Progress::Note(note) => told.lock().expect("no thread panics with them").push(note),
        // It was asked for, and that works: it is not waited for here.
        Progress::Pending(why) => {
            *waits.lock().expect("no thread panics with it") = Some(why);
            enough.store(true, Ordering::SeqCst);
        }
        Progress::Opened { .. } | Progress::Told(_) => {}
    };
    let raising = Attempt {
        machine: machine.clone(),
        means: means.clone(),
        resources: None,
        tell: Arc::new(tell),
        over,
        was_left: false,
    };
    let raised = raising.run();
    if let Some(why) = pending.lock().expect("no thread panics with it").take() {
        return Ok(format!("available later; pending: {why}"));
    }
    let remote = raised?.remote;
    let python = wanted.question.as_ref().map(|question| question.ask(&remote)).transpose();
    let data = wanted.data.as_ref().map(|data| data.ask(means, machine)).transpose();
    remote.close();
    let given_back = means.provider.destroy(&means.run, machine);
    let mut said = describe(&remote.hello);
    let prefix = format!("{}: ", machine.name);
    for note in notes.lock().expect("no thread panics with them").iter() {
        said += &format!("; {}", note.strip_prefix(&prefix).unwrap_or(note));
    }
    said += &python?.map_or_else(String::new, |found| format!("; {found}"));
    said += &data?.map_or_else(String::new, |found| format!("; {found}"));
    given_back.map(|()| said)
}

impl Data {
    /// What is said of a machine's data; a fault where it has not got it.
    fn ask(&self, means: &Means, machine: &Machine) -> Result<String, Fault> {
        let Means { provider, run, program, .. } = means;
        match self.look.ask(&**provider, run, machine, program, TRYING)? {
            None => Ok("the data is there".to_owned()),
            Some(wrong) if self.may_come => {
                Ok(format!("the data is not there yet, unless a set-up step brings it: {wrong}"))
            }
            Some(wrong) => Err(Fault::replace(&machine.name, wrong, HINT)),
        }
    }
}

fn describe(hello: &Hello) -> String {
    let (cores, free) = (counted(hello.cores.into(), "core"), bytes(hello.disk_free_bytes));
    let memory = bytes(hello.memory_bytes);
    format!("{}: {cores}, {memory} of memory, {free} free", hello.hostname)
}
