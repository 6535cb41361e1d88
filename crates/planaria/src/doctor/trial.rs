//! The machines of a recipe, tried for real: each is made, talked to, and given back.
//!
//! Owns the trial. What it makes is tagged with a name of its own, and is gone afterwards; a host
//! that nobody talks to any more ends itself. Never trains.

use super::python::Question;
use super::{Block, Finding, here};
use planaria_control::holdings::errands;
use planaria_control::jobs::pooling::failure;
use planaria_control::jobs::script::prepare::Prepared;
use planaria_control::program;
use planaria_control::talk::Talk;
use planaria_fleet::host::remote::Remote;
use planaria_fleet::host::words::Hello;
use planaria_fleet::pool::raise::DISK_BYTES_MIN;
use planaria_fleet::program::Program;
use planaria_fleet::provider::{Fault, Machine, Provider, Tag};
use planaria_fleet::providers::{self, Purpose};
use planaria_fleet::setup::Setup;
use planaria_recipe::pool::Pool;
use planaria_recipe::script::Framework;
use planaria_recipe::setup::Step;
use planaria_recipe::{JobSource, Recipe};
use planaria_runs::clock;
use planaria_runs::failure::{Context, Result};
use planaria_runs::number::{bytes, counted};
use std::sync::Arc;
use std::time::Duration;

/// How long nothing may be found out before the rest is given up. Providers bound each by less.
const TRYING: Duration = Duration::from_secs(240);
/// A clock that is off by more than so many seconds is told of.
const SKEW_SECONDS_MAX: f64 = 60.0;

/// All that a recipe asks for.
pub fn recipe(recipe: &Recipe) -> Result<Block> {
    let mut findings = setup(&recipe.setup);
    match recipe.pool.has_machines() {
        true => findings.extend(machines(&recipe.pool, None)?),
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
            let (framework, code) = (prepared.framework.as_str(), &prepared.code.parcel);
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
    findings.extend(machines(&job.pool, question)?);
    Ok(Block { name: format!("recipe {}", job.name), findings })
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

fn machines(pool: &Pool, question: Option<Question>) -> Result<Vec<Finding>> {
    let path = program::find(None)?;
    let path = path.canonicalize().unwrap_or(path);
    let program = Program::read(&path, crate::BUILD);
    let program = program.context(|| format!("cannot read `{}`", path.display()))?;
    let purpose = Purpose { program: Some(program.clone()), ..Purpose::default() };
    let provider = providers::of(pool, &purpose).map_err(failure)?;
    if let Err(fault) = provider.check() {
        return Ok(vec![Finding::fault(provider.name(), fault)]);
    }
    let stamp = clock::stamp(clock::unix_seconds() as u64);
    let run = Tag::new(&format!("doctor-{stamp}-{}", std::process::id()));
    let run = run.expect("letters, digits and lines");
    // Hosts differ; of machines that are made, one is like the others.
    let count = pool.named().len().max(1);
    let planned = (0..count as u32).filter_map(|number| provider.plan(&run, number));
    let mut findings = attempts(planned.collect(), move |machine| {
        attempt(&provider, &run, machine, &program, question.as_ref())
    });
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
    errands::run(machines, TRYING, attempt, |number, result| {
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

/// Makes a machine, talks to its host and gives it back.
fn attempt(
    provider: &Arc<dyn Provider>,
    run: &Tag,
    machine: &Machine,
    program: &Program,
    question: Option<&Question>,
) -> Result<String, Fault> {
    let talk = || -> Result<String, Fault> {
        provider.create(run, machine)?;
        let channel = provider.open(run, machine, program)?;
        let remote = Remote::meet(&machine.name, channel, &program.build, |_| {})?;
        let said = describe(&machine.name, &remote.hello, clock::unix_seconds());
        let python = question.map(|question| question.ask(&remote)).transpose();
        remote.close();
        Ok(said? + &python?.map_or_else(String::new, |found| format!("; {found}")))
    };
    let talked = talk();
    let given_back = provider.destroy(run, machine);
    let said = talked?;
    given_back.map(|()| said)
}

fn describe(name: &str, hello: &Hello, now: f64) -> Result<String, Fault> {
    let (cores, free) = (counted(hello.cores.into(), "core"), bytes(hello.disk_free_bytes));
    if hello.disk_free_bytes < DISK_BYTES_MIN {
        let hint = format!("make room on it: at least {}", bytes(DISK_BYTES_MIN));
        return Err(Fault::replace(name, format!("its disk is full: {free} free"), hint));
    }
    let memory = bytes(hello.memory_bytes);
    let mut said = format!("{}: {cores}, {memory} of memory, {free} free", hello.hostname);
    let skew = hello.unix_seconds - now;
    if skew.abs() > SKEW_SECONDS_MAX {
        let way = if skew > 0.0 { "ahead" } else { "behind" };
        said += &format!("; its clock is {:.0} s {way}, and so are its logs", skew.abs());
    }
    Ok(said)
}
