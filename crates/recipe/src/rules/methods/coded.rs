//! What `train.method: coded` asks of the rest of a recipe.
//!
//! Coding commutes with linear maps alone, so the model is one dense layer, and everything that
//! would change single values (augmentation, smoothing, dropout) is refused. Never looks at data.

use crate::diagnostic::{Finding, quoted};
use crate::model::{Activation, Layer};
use crate::sections::{Augment, Recipe};
use crate::train::{Coded, LinearPrecision, Loss};
use crate::words::counted;

/// Every rule that the recipe breaks.
pub(super) fn check(recipe: &Recipe, found: &mut Vec<Finding>) {
    let Some(code) = &recipe.train.coded else {
        let missing = Finding::new("train.method", "`method: coded` needs to know its code");
        return found.push(missing.hint("add `coded: {threshold: 4, machines: 8}` to `train`"));
    };
    sizes(recipe, code, found);
    settings(recipe, code, found);
    model(recipe, found);
}

fn sizes(recipe: &Recipe, code: &Coded, found: &mut Vec<Finding>) {
    let Coded { threshold, machines, .. } = *code;
    if threshold > machines {
        let message = format!(
            "a threshold of {threshold} workers cannot be met: `train.coded.machines` is {machines}"
        );
        let hint = format!("set `machines` to {threshold} or more: each above it may be lost");
        found.push(Finding::new("train.coded.threshold", message).hint(hint));
    }
    if recipe.train.batch < threshold {
        let message = format!(
            "a batch of {} is too small: it takes rows of each of {threshold} blocks",
            recipe.train.batch
        );
        let hint = format!("set `batch` to {threshold} or more, or leave it out for all examples");
        found.push(Finding::new("train.batch", message).hint(hint));
    }
    let workers = recipe.pool.workers.max();
    if recipe.pool.is_one_process() {
        return;
    }
    if workers > machines {
        let code = counted(machines, "machine");
        let message = format!("`pool` has {workers} workers, but the code has {code}");
        let hint = format!("set `workers: {machines}`, or raise `train.coded.machines`");
        found.push(Finding::new("pool.workers", message).hint(hint));
    }
    if workers < threshold {
        let message = format!(
            "`pool` has {}, but with fewer than {threshold} a coded run waits",
            counted(workers, "worker")
        );
        let hint = format!("set `workers: {threshold}` or more, or lower `train.coded.threshold`");
        found.push(Finding::new("pool.workers", message).hint(hint));
    }
}

fn settings(recipe: &Recipe, code: &Coded, found: &mut Vec<Finding>) {
    let train = &recipe.train;
    let mut refuse = |key: &str, message: &str, hint: &str| {
        found.push(Finding::new(key, message).hint(hint));
    };
    if train.label_smoothing > 0.0 {
        refuse(
            "train.label_smoothing",
            "`train.label_smoothing` does not work with `method: coded`",
            "leave it out",
        );
    }
    if recipe.data.augment != Augment::default() && recipe.model.features.is_none() {
        refuse(
            "data.augment",
            "`data.augment` changes examples, but coded data are stored once",
            "leave it out, or use `method: sync`",
        );
    }
    if code.scale.is_some() && code.precision != LinearPrecision::Exact {
        refuse(
            "train.coded.scale",
            "`train.coded.scale` is for `precision: exact`",
            "leave it out, or add `precision: exact`",
        );
    }
    for (label, weight) in &train.class_weights {
        if !(weight.is_finite() && *weight > 0.0) {
            let key = format!("train.class_weights.{label}");
            let message =
                format!("the weight of label {} must be above 0, but is {weight}", quoted(label));
            found.push(Finding::new(key, message));
        }
    }
    if !train.class_weights.is_empty() && train.loss == Loss::Mse {
        let message = "`train.class_weights` needs classes, but `loss: mse` predicts numbers";
        found.push(Finding::new("train.class_weights", message).hint("leave it out"));
    }
}

/// One dense layer, on flat examples.
fn model(recipe: &Recipe, found: &mut Vec<Finding>) {
    let hint = "write `layers: [{Dense: {units: 1}}]` (images: `Flatten` first), put a trained \
                network under it with `features: {from: RUN}`, or use `method: sync`";
    let Some(layers) = &recipe.model.layers else {
        if recipe.model.preset.is_some() {
            let message = "`method: coded` trains linear models, but `preset` names a network";
            found.push(Finding::new("model.preset", message).hint(hint));
        }
        return;
    };
    let flat = layers.iter().take_while(|l| matches!(l, Layer::Flatten(_))).count();
    let (at, dense) = match &layers[flat..] {
        [Layer::Dense(dense)] => (flat, dense),
        [] => return,
        [Layer::Dense(_), ..] => {
            let message = "`method: coded` trains linear models: nothing follows the dense layer";
            found.push(Finding::new(format!("model.layers.{}", flat + 1), message).hint(hint));
            return;
        }
        _ => {
            let message = "`method: coded` trains linear models: a single `Dense` layer";
            found.push(Finding::new(format!("model.layers.{flat}"), message).hint(hint));
            return;
        }
    };
    let folded = match recipe.train.loss {
        Loss::CrossEntropy => dense.activation == Activation::Softmax,
        Loss::BinaryCrossEntropy => dense.activation == Activation::Sigmoid,
        _ => false,
    };
    if dense.activation != Activation::Linear && !folded {
        let message = "`method: coded` trains linear models, but the layer has an activation";
        let key = format!("model.layers.{at}.Dense.activation");
        found.push(Finding::new(key, message).hint("leave it out"));
    }
    if recipe.train.loss != Loss::CrossEntropy && dense.units != 1 {
        let message = format!(
            "`method: coded` with this loss has 1 output, but the layer has {} units",
            dense.units
        );
        let key = format!("model.layers.{at}.Dense.units");
        found.push(Finding::new(key, message).hint("set `units: 1`, or `loss: cross_entropy`"));
    }
}
