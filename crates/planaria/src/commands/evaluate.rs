//! `planaria evaluate`: scores a saved network on some data.

use crate::cli::{self, Which};
use crate::commands::print;
use planaria_control::jobs::train::alone::evaluation::evaluate;
use planaria_control::jobs::{about::Command, permit};
use planaria_control::size::threads;
use planaria_control::survey::data_failure;
use planaria_control::talk::{Progress, Talk, patiently};
use planaria_data::{Part, Role, Target, open_part, table};
use planaria_learn::linear::Weights as LinearWeights;
use planaria_learn::saved::{Description, read_tensors, read_wide};
use planaria_learn::{Network, Scores, Settings, Trainer, engines};
use planaria_numerics::regression::TargetScale;
use planaria_protocol::plain;
use planaria_recipe::train::Optimizer;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::outcome::against_the_mean;
use planaria_runs::run_dir::{checkpoint_folder, find_or_newest, run_id, unreadable};
use planaria_runs::traces::report::{Outcome, Report, positive, weight_values, weights_sha256};
use planaria_text::number::{amount, grouped, percent, short};
use planaria_worker::features::TableModel;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// What may be whole where the model's file is not.
const OTHERS: &str =
    "the run's checkpoints may be whole: add `--checkpoint last` or `--checkpoint best`";

/// Scores and prints.
pub fn run(options: &cli::Evaluate, talk: Talk) -> Result<()> {
    let folder = find_or_newest(options.run.as_deref())?;
    permit(&folder, Command::Evaluate)?;
    let description = describe(&folder)?;
    let threads = threads(options.threads, 0);
    let (mut trainer, sha256) = load(&folder, &description, options.checkpoint, threads)?;
    let table = table_model(&description)?;
    let part = examples(options, &description, table.as_ref(), talk)?;
    let outputs = trainer.network().output().len();
    fits(&description, &part, &options.data, outputs)?;
    let clock = Stopwatch::start();
    let classes = description.classes.len();
    let scale = table.and_then(|table| table.encoder.target_scale()).unwrap_or_default();
    let scores = evaluate(trainer.as_mut(), &part, &description.normalize, classes, scale)?
        .ok_or_else(|| Failure::failed("interrupted"))?;
    let seconds = clock.seconds();
    if !options.json {
        let is_scaled = scale != TargetScale::default();
        return print(&text(&scores, &description.classes, is_scaled));
    }
    let mut document = figures(&scores, &description.classes);
    document["run_id"] = json!(run_id(&folder));
    document["checkpoint"] = json!(options.checkpoint.name());
    document["data"] = json!(options.data);
    document["seconds"] = json!(seconds);
    document["examples_per_second"] = json!(scores.examples() as f64 / seconds);
    document["engine"] = json!(trainer.name());
    document["threads"] = json!(trainer.threads());
    document["weights_sha256"] = json!(sha256);
    print(&format!("{document:#}\n"))
}

fn describe(folder: &Path) -> Result<Description> {
    let path = folder.join("model.yaml");
    let text = plain::read_text(&path).map_err(|e| {
        Failure::user(format!("cannot read `{}`: {e}", path.display())).hint(no_model(folder))
    })?;
    Description::from_yaml(&text)
        .map_err(|why| Failure::user(format!("`{}`: {why}", path.display())))
}

/// Why a run has no model, and what to do about it.
fn no_model(folder: &Path) -> String {
    let report = plain::read(&folder.join("report.json")).ok();
    let report = report.and_then(|bytes| serde_json::from_slice::<Report>(&bytes).ok());
    match report.filter(|report| report.outcome == Outcome::Failed) {
        Some(report) => format!(
            "the run failed ({}); change the recipe and train again",
            report.reason.as_deref().unwrap_or("it does not say why")
        ),
        None => "a model is written when a run ends or is interrupted; finish it with `planaria \
                 resume`"
            .into(),
    }
}

/// What turns rows into examples, where the model was trained on a table.
fn table_model(description: &Description) -> Result<Option<TableModel>> {
    let table = description.table.as_ref().map(TableModel::from_value).transpose();
    table.map_err(|why| Failure::user(format!("`model.yaml`: {why}")))
}

/// The examples to score: the test files of a folder, else those for training.
fn examples(
    options: &cli::Evaluate,
    description: &Description,
    table: Option<&TableModel>,
    talk: Talk,
) -> Result<Part> {
    if let Some(TableModel { section, encoder }) = table {
        let path = Path::new(&options.data);
        let text = format!("reading {}", options.data);
        let open = || table::open_encoded(path, description.format, section, encoder);
        return patiently(talk, &text, open).map_err(data_failure);
    }
    let open = |role| open_part(&options.data, description.format, role, description.seed);
    let text = format!("reading {}", options.data);
    let opened = patiently(talk, &text, || match open(Role::Test) {
        Err(planaria_data::Error::Missing { .. }) if Path::new(&options.data).is_dir() => {
            // Where neither is there, what is missing is the test files.
            open(Role::Train)
                .map(|part| (part, true))
                .or_else(|_| open(Role::Test).map(|part| (part, false)))
        }
        part => part.map(|part| (part, false)),
    });
    let (part, training) = opened.map_err(data_failure)?;
    if training {
        Progress::new(talk)
            .note(&format!("`{}` has no test files; its training files are scored", options.data));
    }
    Ok(part)
}

/// The network with the weights asked for, and the hash that reports tell them by.
fn load(
    folder: &Path,
    description: &Description,
    which: Which,
    threads: usize,
) -> Result<(Box<dyn Trainer>, String)> {
    let network = description.network().map_err(Failure::user)?;
    let Loaded { parameters, state, sha256 } = match which {
        Which::Model => of_model(folder, description, &network)?,
        Which::Last | Which::Best => of_checkpoint(folder, description, &network, which)?,
    };
    if let Some(value) = parameters.iter().chain(&state).find(|v| !v.is_finite()) {
        let message = format!("the weights of `{}` hold {value}", run_id(folder));
        return Err(Failure::failed(message).hint("training ran away; lower its learning rate"));
    }
    let settings = Settings {
        seed: description.seed,
        batch: 1,
        shards: 1,
        threads,
        loss: description.loss,
        label_smoothing: description.label_smoothing,
        optimizer: Optimizer::default(),
        clip_norm: None,
        isa: None,
    };
    let mut trainer = engines::trainer(network, settings).map_err(Failure::user)?;
    let mut weights = trainer.weights();
    weights.parameters = parameters;
    weights.state = state;
    trainer
        .restore(&weights)
        .map_err(|e| Failure::user(format!("the weights do not fit `model.yaml`: {e}")))?;
    Ok((trainer, sha256))
}

/// A network's weights, and the hash that reports tell them by.
struct Loaded {
    parameters: Vec<f32>,
    state: Vec<f32>,
    sha256: String,
}

fn of_model(folder: &Path, description: &Description, network: &Network) -> Result<Loaded> {
    let (bytes, parameters, state) = model_file(folder, network).map_err(|failure| {
        // Layers that were left as they were are in no checkpoint.
        match description.frozen_counts() {
            Ok((0, 0)) => failure.hint(OTHERS),
            _ => failure,
        }
    })?;
    // What was left as it was is no part of what was trained.
    let (below, kept) = description.frozen_counts().map_err(Failure::user)?;
    let linear = read_wide(&bytes).map_err(Failure::user)?;
    // A linear model's values are the bits of the same weights.
    let values = linear.map(|values| LinearWeights { values, slots: vec![] });
    let values = values.map_or_else(|| state[kept..].to_vec(), |w| w.weight_state());
    let sha256 = weights_sha256(&parameters[below..], &values);
    Ok(Loaded { parameters, state, sha256 })
}

/// A checkpoint has what was trained; only layers that were left as they were come from the model.
fn of_checkpoint(
    folder: &Path,
    description: &Description,
    network: &Network,
    which: Which,
) -> Result<Loaded> {
    let (below, kept) = description.frozen_counts().map_err(Failure::user)?;
    let (mut parameters, mut state) = match (below, kept) {
        (0, 0) => (Vec::new(), vec![0.0; network.state_count()]),
        _ => model_file(folder, network).map(|(_, parameters, state)| (parameters, state))?,
    };
    let named = checkpoint_folder(folder, 1).named(which.name());
    let weights = named.map_err(unreadable)?.weights;
    parameters.truncate(below);
    parameters.extend_from_slice(&weights.parameters);
    let is_linear = network.state_count() == kept && !weights.state.is_empty();
    if !is_linear {
        state.truncate(kept);
        state.extend_from_slice(&weights.state);
    }
    let values = weight_values(is_linear, &weights.parameters, &weights.state);
    Ok(Loaded { sha256: weights_sha256(&weights.parameters, values), parameters, state })
}

/// The bytes of `model.safetensors`, and the parameters and the state in them.
fn model_file(folder: &Path, network: &Network) -> Result<(Vec<u8>, Vec<f32>, Vec<f32>)> {
    let path = folder.join("model.safetensors");
    let bytes = plain::read(&path).context(|| format!("cannot read `{}`", path.display()))?;
    let (parameters, state) = read_tensors(&bytes, network)
        .map_err(|why| Failure::user(format!("`{}`: {why}", path.display())))?;
    Ok((bytes, parameters, state))
}

/// Whether the network can be asked about these examples.
fn fits(description: &Description, part: &Part, name: &str, outputs: usize) -> Result<()> {
    let source = part.source();
    let shape = description.shape().map_err(Failure::user)?;
    if source.shape() != shape {
        return Err(Failure::user(format!(
            "`{name}` holds examples of {}, but the network takes {shape}",
            source.shape()
        )));
    }
    let known = description.classes.len();
    match source.target() {
        Target::Class { classes } if known > 0 && classes > known => Err(Failure::user(format!(
            "`{name}` has class label {}, but the network knows labels 0 to {}",
            classes - 1,
            known - 1
        ))),
        Target::Class { .. } if known == 0 && outputs != 1 => Err(Failure::user(format!(
            "`{name}` has classes, but the network predicts {outputs} numbers"
        ))),
        Target::Values { width } if known > 0 || width != outputs => Err(Failure::user(format!(
            "`{name}` has {width} numbers as targets, but the network predicts {}",
            if known > 0 { "classes".into() } else { outputs.to_string() }
        ))),
        _ => Ok(()),
    }
}

fn figures(scores: &Scores, classes: &[String]) -> Value {
    let means = scores.macro_average();
    let regression = classes.is_empty();
    let errors = scores.errors().filter(|_| regression);
    json!({
        "examples": scores.examples(),
        "loss": scores.loss(),
        "accuracy": scores.accuracy(),
        "precision": means.map(|m| m.precision),
        "recall": means.map(|m| m.recall),
        "f1": means.map(|m| m.f1),
        "mse": scores.mse().filter(|_| regression),
        "rmse": errors.map(|errors| errors.rmse),
        "mae": scores.mae().filter(|_| regression),
        "r2": errors.and_then(|errors| errors.r2),
        "positive": positive(scores, classes),
        "per_class": scores.per_class(classes),
        "confusion": scores.confusion(),
    })
}

/// `is_scaled` says that losses are of standardised labels.
fn text(scores: &Scores, classes: &[String], is_scaled: bool) -> String {
    let mut text = format!("examples   {}\n", grouped(scores.examples()));
    let mut add = |label: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "{label:<11}{value}");
        }
    };
    let units = if is_scaled { " (of the standardised label)" } else { "" };
    add("loss", scores.loss().map(|loss| format!("{}{units}", short(loss))));
    add("accuracy", scores.accuracy().map(percent));
    if classes.is_empty() {
        add("rmse", scores.errors().map(|errors| amount(errors.rmse)));
        add("mae", scores.mae().map(amount));
        add("r2", scores.errors().and_then(|errors| errors.r2).map(short));
        if let Some(advice) = scores.errors().and_then(|errors| against_the_mean(&errors)) {
            let _ = writeln!(text, "{advice}");
        }
        return text;
    }
    let means = scores.macro_average();
    let positive = positive(scores, classes);
    // Of two classes the positive one is what these words mean; the mean over both is another figure.
    let whose = |own: Option<f64>, mean: Option<f64>| match (&positive, own, mean) {
        (Some(class), Some(own), Some(mean)) => {
            let (own, mean) = (percent(own), percent(mean));
            Some(format!("{own} of `{}` (mean over classes {mean})", class.class))
        }
        (_, _, mean) => mean.map(|mean| format!("{} (mean over classes)", percent(mean))),
    };
    let own = positive.as_ref();
    add("precision", whose(own.map(|c| c.precision), means.map(|m| m.precision)));
    add("recall", whose(own.map(|c| c.recall), means.map(|m| m.recall)));
    add("f1", whose(own.map(|c| c.f1), means.map(|m| m.f1)));
    let width = classes.iter().map(|c| c.chars().count()).max().unwrap_or(0).max(5);
    let _ = writeln!(text, "\n{:<width$}  precision   recall       f1  examples", "class");
    for class in scores.per_class(classes) {
        let _ = writeln!(
            text,
            "{:<width$}  {:>9}  {:>7}  {:>7}  {:>8}",
            class.class,
            percent(class.precision),
            percent(class.recall),
            percent(class.f1),
            grouped(class.support)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_learn::scores::numbers::Counting;

    #[test]
    fn it_is_said_whose_precision_and_recall_are_told() {
        let two = ["stays".to_owned(), "leaves".to_owned()];
        let mut scores = Scores::new(2, 2);
        // Right, missed and right: the positive class is the second.
        let outputs = [2.0, 0.0, 2.0, 0.0, 0.0, 2.0];
        scores.count(&outputs, planaria_learn::Targets::Classes(&[0, 1, 1]), 1.0);
        let text = text(&scores, &two, false);
        for line in [
            "precision  100.00% of `leaves` (mean over classes 75.00%)\n",
            "recall     50.00% of `leaves` (mean over classes 75.00%)\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn numbers_are_told_in_their_own_units() {
        let scale = TargetScale { mean: 200_000.0, std: 50_000.0 };
        let mut scores = Scores::new(1, 0).counting(Counting::new(scale, 0, 2));
        scores.count(&[0.0, 0.0], planaria_learn::Targets::Values(&[-1.0, 1.0]), 2.0);
        assert_eq!(
            text(&scores, &[], true).lines().take(5).collect::<Vec<_>>(),
            [
                "examples   2",
                "loss       1 (of the standardised label)",
                "rmse       50,000",
                "mae        50,000",
                "r2         0",
            ]
        );
        assert!(text(&scores, &[], true).contains("no better than always predicting the mean"));
        let figures = figures(&scores, &[]);
        assert_eq!((figures["rmse"].as_f64(), figures["r2"].as_f64()), (Some(50_000.0), Some(0.0)));
    }
}
