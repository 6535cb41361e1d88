//! Going on with a run from its newest usable checkpoint.
//!
//! Owns what must be the same for that, and what may have changed. Used by `planaria resume`, and by a
//! machine of a detached run that succeeds its controller.

use super::{Begin, processes, program, train};
use planaria_control::jobs::Machines;
use planaria_control::jobs::train::Job;
use planaria_control::jobs::train::ending::Finished;
use planaria_control::jobs::train::identity::{Identity, changed_steps};
use planaria_control::jobs::train::kept;
use planaria_control::memory;
use planaria_control::size::{cluster_size, memory_bytes, training_threads};
use planaria_control::stopping;
use planaria_control::survey::Survey;
use planaria_control::talk::{Progress, Talk};
use planaria_protocol::checkpoint::{Checkpoint, Found, Unreadable};
use planaria_protocol::event::What;
use planaria_protocol::journal;
use planaria_protocol::launch::Size;
use planaria_protocol::plain;
use planaria_recipe::{JobKind, Plan, Recipe, Source, to_yaml};
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir::{RunDir, unreadable};
use planaria_runs::traces::report::{Outcome, Report};
use planaria_text::number::{counted, grouped};

/// How a run continues.
#[derive(Default)]
pub(crate) struct Resuming {
    /// Other numbers of processes than the recipe's.
    pub workers: Option<u16>,
    pub servers: Option<u16>,
    pub threads: Option<u16>,
    /// Changes to its recipe, as `--set` writes them.
    pub sets: Vec<String>,
    /// What is done with the run's folder before the training begins.
    pub begin: Option<Begin>,
    /// Machines that are there already.
    pub machines: Option<Machines>,
}

impl Resuming {
    /// Whether the changes let a run that has ended train on. Refuses those that no run goes on with.
    pub(crate) fn goes_further(&self, run: &RunDir) -> Result<bool> {
        let path = run.file("recipe.yaml");
        let (before, now) = (Source::load(&path, &[])?, Source::load(&path, &self.sets)?);
        allowed(before.recipe(), now.recipe())?;
        let (before, now) = (&before.recipe().train, &now.recipe().train);
        Ok(now.epochs > before.epochs || now.early_stopping != before.early_stopping)
    }

    /// Trains to the end, however that comes.
    pub(crate) fn run(self, run: RunDir, talk: Talk, process: Stopwatch) -> Result<Finished> {
        let mut progress = Progress::new(talk);
        let path = run.file("recipe.yaml");
        let mut recipe_text =
            plain::read_text(&path).context(|| format!("cannot read `{}`", path.display()))?;
        let name = path.display().to_string();
        if !self.sets.is_empty() {
            let parse = |sets| Source::parse(&name, recipe_text.as_bytes(), sets);
            allowed(parse(&[])?.recipe(), parse(&self.sets)?.recipe())?;
        }
        let mut survey = Survey::default();
        let planned = Source::parse_and_plan(&name, recipe_text.as_bytes(), &self.sets, |recipe| {
            survey.open(recipe, talk)
        });
        let mut plan = match planned {
            Ok((_, plan)) => plan,
            Err(mistakes) => return Err(survey.failure(&mistakes)),
        };
        let data = survey.data.expect("a plan is made from opened data");
        if !self.sets.is_empty() {
            recipe_text = to_yaml(&plan.recipe);
        }
        let mut found = checkpoint(&run, &plan, &mut progress)?;
        // Before anything is said of going on.
        let identity = Identity::new(path, &recipe_text, &plan.recipe, &data);
        if let Some(found) = &mut found {
            identity.check(&found.checkpoint.manifest)?;
            if let Some(remark) = identity.unproven(&found.checkpoint.manifest) {
                progress.note(&format!("warning: {remark}"));
            }
            if !self.sets.is_empty() {
                // Asked to go on, it does, whatever early stopping found by then.
                found.checkpoint.manifest.state.stopped = None;
            }
        }
        kept::check_data(run.path(), &identity.data_name, &identity.data)?;
        if !self.sets.is_empty() {
            run.write("recipe.yaml", recipe_text.as_bytes())?;
        }
        self.resize(&mut plan)?;
        if let Some(begin) = self.begin {
            begin(run.path())?;
        }
        stopping::begin(run.path(), JobKind::Train);
        let threads = training_threads(self.threads, &plan);
        let size = cluster_size(self.threads, &plan);
        let at = found.as_ref().map(|found| found.checkpoint.manifest.state.step);
        let word = from(&run, at, size);
        progress.note(&format!("{word}: {}", processes(&plan, size, threads)));
        if !plan.recipe.pool.has_machines() {
            memory::check(&plan, memory_bytes(&plan, threads, size))?;
        }
        let (program, machines) = (program(size, None)?, self.machines);
        let job = Job { plan, data, run, recipe_text, threads, talk, process, program, machines };
        train(job, size, found)
    }

    /// How many processes there are is no part of what is computed, so it may change.
    fn resize(&self, plan: &mut Plan) -> Result<()> {
        let traits = plan.recipe.train.traits();
        if self.servers.is_some_and(|servers| servers > 0) && !traits.has_servers {
            let message = format!("`--servers`: `method: {}` has no servers", traits.name);
            return Err(Failure::user(message).hint("leave it out"));
        }
        let pool = &mut plan.recipe.pool;
        if let Some(workers) = self.workers {
            pool.workers = pool.workers.at_most(workers.into());
            // Several need one; a run that had none was one process.
            if pool.servers == Some(0) {
                pool.servers = None;
            }
        }
        if let Some(servers) = self.servers {
            pool.servers = Some(servers.into());
        }
        Ok(())
    }
}

/// Refuses changes to what the run computes, and to where it is.
fn allowed(before: &Recipe, now: &Recipe) -> Result<()> {
    if before.output.dir != now.output.dir {
        let message = "`--set output.dir`: the run stays in its folder";
        return Err(Failure::user(message).hint("leave it out; a run's folder can be copied"));
    }
    let Some(changed) = changed_steps(before, now) else { return Ok(()) };
    Err(Failure::user(format!("`--set` would make it another training: {changed}")).hint(
        "a run goes on with another `pool`, `setup`, `output`, `train.epochs` or \
         `train.early_stopping`; start a new run with `planaria train` for all else",
    ))
}

/// Where the run goes on, in words. What a killed session has left is later than its last checkpoint, but
/// is cut for its number of servers.
fn from(run: &RunDir, at: Option<u64>, size: Option<Size>) -> String {
    let path = run.path().display();
    let left = kept::record(run.path()).map(|record| record.state.step);
    let left = left.filter(|left| *left > at.unwrap_or(0));
    let had = last_servers(run);
    match (left, size, at) {
        (Some(left), Some(size), _) if size.servers == had => {
            format!("run {path} goes on after step {}", grouped(left))
        }
        (Some(left), _, _) => {
            let at = at.unwrap_or(0);
            format!(
                "run {path} goes on after step {}: {} kept by {}, and {} once more with {}",
                grouped(at),
                counted_were(left - at),
                counted(had.into(), "server"),
                if left - at == 1 { "is taken" } else { "are taken" },
                size.map_or_else(|| "none".into(), |s| counted(s.servers.into(), "server")),
            )
        }
        (None, _, Some(at)) => format!("run {path} goes on after step {}", grouped(at)),
        (None, _, None) => format!("run {path} has no checkpoint yet and starts from step 0"),
    }
}

/// Servers that the last session began with.
fn last_servers(run: &RunDir) -> u32 {
    let told = journal::session(&run.file(journal::FILE)).unwrap_or_default();
    let servers = told.iter().rev().find_map(|event| match &event.what {
        What::Started(started) => Some(started.servers),
        _ => None,
    });
    servers.unwrap_or(0)
}

/// `3 steps after it were`.
fn counted_were(steps: u64) -> String {
    let were = if steps == 1 { "was" } else { "were" };
    format!("{} after it {were}", counted(steps, "step"))
}

/// The checkpoint that the run goes on from; nothing if it stopped before its first.
fn checkpoint(
    run: &RunDir,
    plan: &Plan,
    progress: &mut Progress,
) -> Result<Option<Found<Checkpoint>>> {
    let newest = run.checkpoint_folder(plan.recipe.output.keep).newest();
    let newest = match newest {
        // What was kept may do without.
        Err(Unreadable::NoneWhole(damaged)) if kept::record(run.path()).is_some() => {
            damaged.iter().for_each(|why| progress.note(&format!("warning: {why}")));
            None
        }
        newest => newest.map_err(unreadable)?,
    };
    let Some(found) = newest else {
        // What it has learned must not be written over by what begins anew.
        if finished(run).is_some() {
            let message = format!("run {} has no checkpoint to go on from", run.path().display());
            return Err(Failure::user(message)
                .hint("its model stays as it is; `planaria train` starts a new run"));
        }
        return Ok(None);
    };
    for damaged in &found.damaged {
        progress.note(&format!("warning: {damaged}"));
    }
    let (done, epochs) = (found.checkpoint.manifest.state.epoch, plan.recipe.train.epochs as u64);
    if done > epochs {
        return Err(Failure::user(format!(
            "`train.epochs` is {epochs}, but the run has done {done} (`{}`)",
            found.path.display()
        ))
        .hint(format!("train to a later end: `planaria resume --set train.epochs={}`", done + 1)));
    }
    Ok(Some(found))
}

/// The report of a run that has come to its end.
pub(crate) fn finished(run: &RunDir) -> Option<Report> {
    let report: Report =
        serde_json::from_slice(&plain::read(&run.file("report.json")).ok()?).ok()?;
    matches!(report.outcome, Outcome::Completed | Outcome::StoppedEarly).then_some(report)
}
