//! Going on with a run from its newest usable checkpoint.
//!
//! Owns what must be the same for that, and what may have changed. Used by `planaria resume`, and by a
//! machine of a detached run that succeeds its controller.

use super::{Begin, processes, program, train};
use planaria_control::jobs::Machines;
use planaria_control::jobs::train::Job;
use planaria_control::jobs::train::ending::Finished;
use planaria_control::jobs::train::identity::Identity;
use planaria_control::jobs::train::kept;
use planaria_control::memory;
use planaria_control::size::{cluster_size, memory_bytes, training_threads};
use planaria_control::stopping;
use planaria_control::survey::Survey;
use planaria_control::talk::{Progress, Talk};
use planaria_protocol::checkpoint::{Checkpoint, Found, Unreadable};
use planaria_protocol::plain;
use planaria_recipe::{JobKind, Plan, Source};
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir::{RunDir, unreadable};
use planaria_text::number::grouped;

/// How a run is gone on with.
#[derive(Default)]
pub(crate) struct Resuming {
    /// Other numbers of processes than the recipe's.
    pub workers: Option<u16>,
    pub servers: Option<u16>,
    pub threads: Option<u16>,
    /// What is done with the run's folder before the training begins.
    pub begin: Option<Begin>,
    /// Machines that are there already.
    pub machines: Option<Machines>,
}

impl Resuming {
    /// Trains to the end, however that comes.
    pub(crate) fn run(self, run: RunDir, talk: Talk, process: Stopwatch) -> Result<Finished> {
        let mut progress = Progress::new(talk);
        let path = run.file("recipe.yaml");
        let recipe_text =
            plain::read_text(&path).context(|| format!("cannot read `{}`", path.display()))?;
        let mut survey = Survey::default();
        let name = path.display().to_string();
        let planned = Source::parse_and_plan(&name, recipe_text.as_bytes(), &[], |recipe| {
            survey.open(recipe, talk)
        });
        let mut plan = match planned {
            Ok((_, plan)) => plan,
            Err(mistakes) => return Err(survey.failure(&mistakes)),
        };
        let data = survey.data.expect("a plan is made from opened data");
        let (found, word) = checkpoint(&run, &plan, &mut progress)?;
        // Before anything is said of going on.
        let identity = Identity::new(path, &recipe_text, &plan.recipe, &data);
        if let Some(found) = &found {
            identity.check(&found.checkpoint.manifest)?;
            if let Some(remark) = identity.unproven(&found.checkpoint.manifest) {
                progress.note(&format!("warning: {remark}"));
            }
        }
        kept::check_data(run.path(), &identity.data_name, &identity.data)?;
        self.resize(&mut plan)?;
        if let Some(begin) = self.begin {
            begin(run.path())?;
        }
        stopping::begin(run.path(), JobKind::Train);
        let threads = training_threads(self.threads, &plan);
        let size = cluster_size(self.threads, &plan);
        // What a killed session has left is later than its last checkpoint.
        let left = size.and_then(|_| kept::record(run.path())).map(|record| record.state.step);
        let at = found.as_ref().map_or(0, |found| found.checkpoint.manifest.state.step);
        let word = match left.filter(|left| *left > at) {
            Some(left) => {
                format!("run {} goes on after step {}", run.path().display(), grouped(left))
            }
            None => word,
        };
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

/// Where the run goes on (nothing if it stopped before its first checkpoint), and that in words.
fn checkpoint(
    run: &RunDir,
    plan: &Plan,
    progress: &mut Progress,
) -> Result<(Option<Found<Checkpoint>>, String)> {
    let path = run.path().display();
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
        return Ok((None, format!("run {path} has no checkpoint yet and starts from step 0")));
    };
    for damaged in &found.damaged {
        progress.note(&format!("warning: {damaged}"));
    }
    let state = &found.checkpoint.manifest.state;
    if state.epoch > plan.recipe.train.epochs as u64 {
        return Err(Failure::failed(format!(
            "checkpoint `{}` is beyond the end of the run",
            found.path.display()
        )));
    }
    let word = format!("run {path} goes on after step {}", grouped(state.step));
    Ok((Some(found), word))
}
