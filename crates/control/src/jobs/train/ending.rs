//! What is written when a session ends, however it ends: model, report, page.
//!
//! Owns the order in which the last files are written; the report comes last, so that its presence
//! means the others are there. [`Results`] needs no trainer: weights may come from anywhere. Never
//! trains.

use crate::jobs::train::{Job, linear, network};
use crate::survey::data_failure;
use planaria_coordinator::run::watch::Rule;
use planaria_learn::Scores;
use planaria_learn::linear::{Model, Stepping, Weights};
use planaria_learn::saved::{Description, Trained};
use planaria_protocol::journal;
use planaria_protocol::message::HeldOut;
use planaria_protocol::state::State;
use planaria_recipe::train::{Optimizer, Sgd};
use planaria_runs::audit;
use planaria_runs::clock;
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir::RunDir;
use planaria_runs::run_dir::metrics::{self, Line};
use planaria_runs::summary::Summary;
use planaria_runs::traces::html;
use planaria_runs::traces::report::{
    Ending, Facts, Outcome, Report, weight_values, weights_sha256,
};
use planaria_runs::traces::timeline::Timeline;
use planaria_worker::data::classes;
use planaria_worker::features::{Saved, TableModel};

/// A session's result.
#[derive(Debug)]
pub struct Finished {
    /// What is in `report.json`.
    pub report: Report,
    /// The run's folder.
    pub path: std::path::PathBuf,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

impl Finished {
    /// Of a session whose last files were `written`, or not.
    pub fn new(
        job: &Job,
        report: Report,
        written: Result<()>,
        failure: Option<Failure>,
    ) -> Result<Self> {
        match (written, failure) {
            (Err(unwritten), None) => Err(unwritten),
            (_, failure) => Ok(Self { report, path: job.run.path().to_path_buf(), failure }),
        }
    }
}

/// All that the last files follow from.
#[derive(Debug)]
pub struct Results<'a> {
    pub job: &'a Job,
    /// What did not change while the run trained.
    pub facts: &'a Facts,
    /// How far the run has come.
    pub state: &'a State,
    /// All lines of metrics.
    pub lines: &'a [Line],
    /// How it ended.
    pub outcome: Outcome,
    /// Why, where the outcome does not say it all.
    pub reason: Option<String>,
    /// What to do about a failure.
    pub hint: Option<String>,
    /// Scores of the final weights.
    pub scores: Option<&'a (HeldOut, Scores)>,
    /// The flat parameters.
    pub parameters: &'a [f32],
    /// The network's flat state, or a linear model's, which begins with the bits of its weights.
    pub values: &'a [f32],
    /// Largest resident memory.
    pub peak_memory_bytes: Option<u64>,
}

impl Results<'_> {
    pub fn report(&self) -> Report {
        // A run that failed before its first checkpoint has left none.
        let has_weights = self.parameters.len() == self.facts.parameters;
        let ending = Ending {
            outcome: self.outcome,
            reason: self.reason.clone(),
            hint: self.hint.clone(),
            scores: self.scores.map(|(part, scores)| (part_name(*part), scores)),
            weights_sha256: has_weights
                .then(|| weights_sha256(self.parameters, self.weight_values())),
            peak_memory_bytes: self.peak_memory_bytes,
        };
        Report::new(self.facts, self.state, self.lines, ending)
    }

    /// Writes the last files; `report` is [`Results::report`]'s.
    pub fn write(&self, report: &Report) -> Result<()> {
        let run = &self.job.run;
        if report.outcome != Outcome::Failed {
            let wide = self.write_linear(run)?;
            self.write_model(run, wide.as_deref(), &report.run_id)?;
        }
        // It is written as the events have it, also where it was damaged on the way.
        let path = run.file("metrics.jsonl");
        metrics::write(&path, self.lines)
            .context(|| format!("cannot write `{}`", path.display()))?;
        let page = html::page(report, self.lines, &self.facts.timeline, &self.job.recipe_text);
        run.write("report.html", page.as_bytes())?;
        run.write("report.json", report.to_json().as_bytes())
    }
}

impl Results<'_> {
    /// What of the state is weights.
    fn weight_values(&self) -> &[f32] {
        let is_linear = self.job.plan.recipe.train.traits().is_linear;
        weight_values(is_linear, self.parameters, self.values)
    }

    /// The network, with what it stands on; `wide` are a linear model's weights in full.
    fn write_model(&self, run: &RunDir, wide: Option<&[f64]>, run_id: &str) -> Result<()> {
        let recipe = &self.job.plan.recipe;
        let mut description = Description::new(&self.job.plan, self.facts.classes.clone());
        description.table = self.job.data.encoder.as_deref().map(|encoder| {
            let section = recipe.data.table.clone().unwrap_or_default();
            TableModel { section, encoder: encoder.clone() }.to_value()
        });
        let (mut parameters, mut state) = (Vec::new(), Vec::new());
        if let Some(features) = &recipe.model.features {
            let saved = Saved::read(features, 1).map_err(data_failure)?;
            let (below, kept) = saved.frozen.weights();
            (parameters, state) = (below.to_vec(), kept.to_vec());
            description = description.on(&saved.frozen);
        }
        let network = description.network().map_err(Failure::user)?;
        parameters.extend_from_slice(self.parameters);
        // A linear model has no state of its own: its values are the bits of its weights.
        state.extend(self.values.iter().take(network.state_count() - state.len()));
        let trained = Trained { parameters: &parameters, state: &state, wide };
        let tensors = description.tensors(&network, &trained, run_id);
        run.write("model.safetensors", &tensors)?;
        run.write("model.yaml", description.to_yaml().as_bytes())
    }

    /// The weights of a linear model by the names of their features, in full; gives them, where it
    /// is one.
    fn write_linear(&self, run: &RunDir) -> Result<Option<Vec<f64>>> {
        if !self.job.plan.recipe.train.traits().is_linear {
            return Ok(None);
        }
        let (recipe, classes) = (&self.job.plan.recipe, &self.facts.classes);
        let model = Model::of(recipe, self.job.plan.input, classes).map_err(Failure::user)?;
        let names: Vec<String> = match self.job.data.encoder.as_deref() {
            Some(encoder) if self.job.plan.recipe.model.features.is_none() => {
                encoder.features().into_iter().map(|f| f.name).collect()
            }
            _ => (0..model.features).map(|i| i.to_string()).collect(),
        };
        let plain = Stepping::new(&Optimizer::Sgd(Sgd::default()), 0.0, None);
        let weights = Weights::restore(&model, &plain, self.weight_values())
            .map_err(|e| Failure::failed(format!("the weights do not fit the model: {e}")))?;
        let scale = self.facts.target_scale.unwrap_or_default();
        let text = linear::weights_csv(&model, &weights.values, &names, &self.facts.classes, scale);
        run.write("weights.csv", text.as_bytes())?;
        Ok(Some(weights.values))
    }
}

/// By what a session computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Means {
    /// Engine and instruction set.
    pub engine: String,
    /// Threads that compute, of all processes.
    pub threads: usize,
    /// Worker processes; 0 where the run is one process.
    pub workers: u32,
    pub servers: u32,
    /// How many times the run was started or resumed.
    pub generation: u64,
}

/// What does not change in a session; all its steps are told.
pub fn facts(job: &Job, means: Means) -> Result<Facts> {
    let (recipe, network) = (&job.plan.recipe, network(&job.plan)?);
    let classes = classes(&job.plan, &network);
    let started = (clock::unix_seconds() - job.process.seconds()).max(0.0);
    // Events that cannot be read prove nothing, and the report says so.
    let read = journal::read_marking_damage(&job.run.file(journal::FILE));
    let (events, damage) = read.unwrap_or_default();
    let summary = Summary::of(&events);
    let mut facts = Facts {
        run_id: job.run.id(),
        recipe: recipe.name.clone(),
        started: clock::iso8601(started as u64),
        seed: recipe.seed,
        engine: means.engine,
        threads: means.threads,
        shards: recipe.train.shards,
        batch: recipe.train.batch,
        parameters: network.parameter_count(),
        generation: means.generation,
        workers: means.workers,
        servers: means.servers,
        // Classes have numbers for names until a format brings names along.
        method: recipe.train.traits().name.into(),
        bits_promised: recipe.train.traits().bits_differ.is_none(),
        classes: (0..classes).map(|n| n.to_string()).collect(),
        target_scale: job.data.target_scale(),
        monitor: Rule::new(recipe.train.early_stopping.as_ref(), classes > 0).monitor,
        given_up: summary.given_up(),
        audit: audit::audit(&summary, &damage, None, None),
        timeline: Timeline::of(&events),
    };
    facts.name_classes(job.data.class_names());
    Ok(facts)
}

/// How a session ended.
#[derive(Debug)]
pub struct Ended {
    pub outcome: Outcome,
    /// Why, where the outcome does not say it all.
    pub reason: Option<String>,
    pub failure: Option<Failure>,
}

impl Ended {
    pub fn failed(failure: Failure) -> Self {
        let reason = Some(failure.message.clone());
        Self { outcome: Outcome::Failed, reason, failure: Some(failure) }
    }

    /// What to do about a failure, as the command says it.
    pub fn hint(&self) -> Option<String> {
        self.failure.as_ref()?.hint.clone()
    }
}

/// As reports name a part.
fn part_name(part: HeldOut) -> &'static str {
    match part {
        HeldOut::Validation => "validation",
        HeldOut::Test => "test",
    }
}
