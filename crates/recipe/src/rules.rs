//! What a recipe's values must mean together, as far as the file alone can tell.
//!
//! Owns the checks that no single field's type can express; those of `pool`, `setup`, `script`,
//! `data.table` and each training method have files of their own. Never looks at data or shapes; that is
//! [`crate::network`].

mod methods;
mod pool;
mod script;
mod setup;
mod table;

use crate::diagnostic::{Finding, quoted};
use crate::model::Layer;
use crate::node::{Kind, Node};
use crate::script::Job;
use crate::sections::{Augment, Data, Normalize, Part, Recipe};
use crate::train::{Loss, Optimizer, Train};

/// Longest `name`.
const NAME_CHARS_MAX: usize = 64;

/// Every rule that `recipe` breaks. `tree` tells what was written even where it was unsound.
pub(crate) fn check(recipe: &Recipe, tree: &Node) -> Vec<Finding> {
    let mut found = Vec::new();
    name(&recipe.name, &mut found);
    pool::check(&recipe.pool, tree, &mut found);
    if !recipe.setup.is_empty() && pool::lacks_machines(&recipe.pool, tree) {
        let name = recipe.pool.supply.provider.name();
        let message =
            format!("`setup` is for machines, but `provider: {name}` has none of its own");
        let hint = "add `machines: 1` to `pool` to set this one up, or leave `setup` out";
        found.push(Finding::new("setup", message).hint(hint));
    }
    setup::check(&recipe.setup, &recipe.pool, tree, &mut found);
    data(&recipe.data, tree, &mut found);
    model(recipe, tree, &mut found);
    train(recipe, &mut found);
    methods::check(recipe, &mut found);
    output(&recipe.output.dir, &mut found);
    found
}

/// The same for a script's recipe.
pub(crate) fn check_job(job: &Job, tree: &Node) -> Vec<Finding> {
    let mut found = Vec::new();
    name(&job.name, &mut found);
    pool::check(&job.pool, tree, &mut found);
    setup::check(&job.setup, &job.pool, tree, &mut found);
    script::check(job, tree, &mut found);
    output(&job.output.dir, &mut found);
    found
}

fn output(dir: &str, found: &mut Vec<Finding>) {
    if dir.is_empty() {
        found.push(Finding::new("output.dir", "`output.dir` is empty").hint("write `dir: runs`"));
    }
    if dir.contains("://") {
        let message = "`output.dir` is a URL, but runs are written to folders of this machine";
        found.push(Finding::new("output.dir", message).hint("write a path, such as `dir: runs`"));
    }
}

/// The recipe with which to open its data: without held-out parts that were found unsound, so that
/// no mistake is reported twice and the shapes are still checked. Nothing without training data.
pub(crate) fn without_unsound_parts(recipe: &Recipe) -> Option<Recipe> {
    let mut recipe = recipe.clone();
    let data = &mut recipe.data;
    for part in [&mut data.test, &mut data.validation] {
        part.take_if(|part| match part {
            Part::Share(share) => !(*share > 0.0 && *share < 1.0),
            Part::Path(path) => path.is_empty(),
        });
    }
    if let (Some(Part::Share(test)), Some(Part::Share(validation))) = (&data.test, &data.validation)
        && test + validation >= 1.0
    {
        (data.test, data.validation) = (None, None);
    }
    let can_be_read = !data.train.is_empty() && table::can_be_read(data);
    can_be_read.then_some(recipe)
}

fn name(name: &str, found: &mut Vec<Finding>) {
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let wrong = if name.is_empty() {
        "is empty".to_owned()
    } else if name.starts_with('.') {
        "starts with a dot".to_owned()
    } else if name.len() > NAME_CHARS_MAX {
        format!("is longer than {NAME_CHARS_MAX} characters")
    } else if let Some(c) = name.chars().find(|c| !sound(*c)) {
        format!("holds {}", quoted(&c.to_string()))
    } else {
        return;
    };
    found.push(
        Finding::new("name", format!("`name` names a folder, but {wrong}"))
            .hint("use letters, digits, `-`, `_` and `.`, such as `mnist-mlp`"),
    );
}

fn data(data: &Data, tree: &Node, found: &mut Vec<Finding>) {
    // What was not written has been missed already.
    let written = tree.get("data").and_then(|data| data.get("train"));
    if written.is_some_and(|train| train.kind == Kind::Str(String::new())) {
        found.push(
            Finding::new("data.train", "`data.train` is empty").hint("write `digits` or a path"),
        );
    }
    let mut shares = 0.0;
    for (key, part) in [("test", &data.test), ("validation", &data.validation)] {
        match part {
            Some(Part::Share(share)) if *share > 0.0 && *share < 1.0 => shares += share,
            Some(Part::Share(share)) => found.push(
                Finding::new(
                    format!("data.{key}"),
                    format!("`data.{key}` must be a share above 0 and below 1, but is {share:?}"),
                )
                .hint("write a share such as `0.1`, a path, or `null` for none"),
            ),
            Some(Part::Path(path)) if path.is_empty() => found.push(
                Finding::new(format!("data.{key}"), format!("`data.{key}` is empty"))
                    .hint("write a share such as `0.1`, a path, or `null` for none"),
            ),
            _ => {}
        }
    }
    if shares >= 1.0 {
        let key = if matches!(data.test, Some(Part::Share(_))) { "data.test" } else { "data" };
        found.push(
            Finding::new(key, format!("test and validation take {shares} of the examples")).hint(
                "their shares must sum to less than 1, so that something is left to train on",
            ),
        );
    }
    normalize(data, found);
    table::check(data, found);
}

fn normalize(data: &Data, found: &mut Vec<Finding>) {
    let (mean, std) = (&data.normalize.mean, &data.normalize.std);
    for (key, list) in [("mean", mean), ("std", std)] {
        if list.is_empty() {
            let key = format!("data.normalize.{key}");
            found.push(
                Finding::new(&key, format!("`{key}` is an empty list"))
                    .hint("give one number for all channels, or one for each"),
            );
        }
    }
    if mean.len() > 1 && std.len() > 1 && mean.len() != std.len() {
        let message = format!(
            "`data.normalize` has {} means but {} standard deviations",
            mean.len(),
            std.len()
        );
        found.push(Finding::new("data.normalize.std", message).hint("give one for each channel"));
    }
    for (i, value) in std.iter().enumerate().filter(|(_, v)| **v <= 0.0) {
        found.push(
            Finding::new(
                format!("data.normalize.std.{i}"),
                format!("`data.normalize.std` must be above 0, but is {value:?}"),
            )
            .hint("values are divided by it"),
        );
    }
}

/// What a saved network under the model rules out.
fn features(recipe: &Recipe, found: &mut Vec<Finding>) {
    let Some(features) = &recipe.model.features else { return };
    if features.from.is_empty() {
        let message = "`model.features.from` is empty";
        let hint = "name the folder of a run, such as `runs/digits-20250131-120000`";
        found.push(Finding::new("model.features.from", message).hint(hint));
    }
    let mut refuse = |key: &str, message: &str| {
        found.push(Finding::new(key, message).hint("leave it out"));
    };
    if recipe.data.normalize != Normalize::default() {
        let message = "`data.normalize` is for inputs, which `model.features` scales as the saved \
                       network was trained";
        refuse("data.normalize", message);
    }
    if recipe.data.augment != Augment::default() {
        let message = "`data.augment` changes examples, but features are computed once";
        refuse("data.augment", message);
    }
}

fn model(recipe: &Recipe, tree: &Node, found: &mut Vec<Finding>) {
    let model = tree.get("model");
    let written =
        |key: &str| model.and_then(|m| m.get(key)).is_some_and(|node| node.kind != Kind::Null);
    let is_mapping = model.is_some_and(|m| matches!(m.kind, Kind::Map(_)));
    match (written("layers"), written("preset")) {
        (true, true) => found.push(
            Finding::new("model.preset", "`model` has both `layers` and `preset`")
                .hint("keep one of them, such as by `--set 'model={preset: resnet20}'`"),
        ),
        (false, false) if is_mapping => found.push(
            Finding::new("model", "`model` has neither `layers` nor `preset`")
                .hint("list its `layers:`, or write `preset: mlp`"),
        ),
        _ => {}
    }
    let empty = model.and_then(|m| m.get("layers")).is_some_and(|n| n.kind == Kind::Seq(vec![]));
    if empty {
        found.push(
            Finding::new("model.layers", "`model.layers` is empty")
                .hint("add a layer such as `- {Dense: {units: 10}}`"),
        );
    }
    features(recipe, found);
    if let Some(layers) = &recipe.model.layers {
        blocks(layers, "model.layers", found);
    }
}

/// Blocks without anything in them.
fn blocks(layers: &[Layer], path: &str, found: &mut Vec<Finding>) {
    for (i, layer) in layers.iter().enumerate() {
        match layer {
            Layer::Residual(r) => {
                let here = format!("{path}.{i}.Residual");
                blocks(&r.layers, &format!("{here}.layers"), found);
                blocks(&r.shortcut, &format!("{here}.shortcut"), found);
            }
            Layer::Concat(c) => {
                for (b, branch) in c.branches.iter().enumerate() {
                    blocks(branch, &format!("{path}.{i}.Concat.branches.{b}"), found);
                }
                if c.branches.is_empty() {
                    let key = format!("{path}.{i}.Concat.branches");
                    let title =
                        crate::node::title(&key.split('.').map(str::to_owned).collect::<Vec<_>>());
                    found.push(Finding::new(key, format!("{title} is empty")));
                }
            }
            _ => {}
        }
    }
}

fn train(recipe: &Recipe, found: &mut Vec<Finding>) {
    let train = &recipe.train;
    if train.clip_norm.is_some_and(|norm| norm <= 0.0) {
        found.push(
            Finding::new("train.clip_norm", "`train.clip_norm` must be above 0")
                .hint("leave it out for no limit"),
        );
    }
    if train.label_smoothing > 0.0 && train.loss != Loss::CrossEntropy {
        found.push(
            Finding::new(
                "train.label_smoothing",
                "`train.label_smoothing` works with `loss: cross_entropy` only",
            )
            .hint("leave it out, or change the loss"),
        );
    }
    if train.early_stopping.is_some() && recipe.data.validation.is_none() {
        found.push(
            Finding::new(
                "train.early_stopping",
                "`train.early_stopping` watches validation, but `data.validation` is empty",
            )
            .hint("set `data.validation`, such as `validation: 0.1`"),
        );
    }
    optimizer(train, found);
}

fn optimizer(train: &Train, found: &mut Vec<Finding>) {
    let mut below_one = |name: &str, key: &str, value: f32| {
        if value >= 1.0 {
            let key = format!("train.optimizer.{name}.{key}");
            found.push(Finding::new(&key, format!("`{key}` must be below 1")));
        }
    };
    let epsilon = match &train.optimizer {
        Optimizer::Sgd(_) => return,
        Optimizer::Adam(o) | Optimizer::Adamw(o) => {
            let decoupled = matches!(train.optimizer, Optimizer::Adamw(_));
            let name = if decoupled { "adamw" } else { "adam" };
            below_one(name, "beta_1", o.beta_1);
            below_one(name, "beta_2", o.beta_2);
            (name, o.epsilon)
        }
        Optimizer::Rmsprop(o) => {
            below_one("rmsprop", "rho", o.rho);
            ("rmsprop", o.epsilon)
        }
    };
    if epsilon.1 <= 0.0 {
        let key = format!("train.optimizer.{}.epsilon", epsilon.0);
        found.push(
            Finding::new(&key, format!("`{key}` must be above 0"))
                .hint("it keeps a division sound"),
        );
    }
}
