//! A recipe against its data: shapes along the layers, sizes, and outputs that fit the labels.
//!
//! Owns every mistake that needs to know what the data is. Never reads data; callers bring
//! [`DataFacts`].

use crate::diagnostic::Finding;
use crate::model::{Layer, Model};
use crate::node::title;
use crate::plan::{LayerRow, Plan};
use crate::presets;
use crate::sections::Recipe;
use crate::shape::{self, DataFacts, Shape};
use crate::train::Loss;

/// Most values one layer may make of one example.
const VALUES_MAX: usize = 1 << 31;
/// Most parameters of a network.
const PARAMETERS_MAX: u64 = 1 << 31;

/// The plan, or everything that stands against it. `cut` says that only the first layers are known.
pub(crate) fn check(recipe: &Recipe, facts: &DataFacts, cut: bool) -> Result<Plan, Vec<Finding>> {
    let mut findings = data(recipe, facts);
    let Some(layers) = layers(&recipe.model, facts) else { return Err(findings) };
    let preset = recipe.model.layers.is_none();
    let mut walk = Walk { path: vec!["model".into(), "layers".into()], preset, ..Walk::default() };
    let output = walk.list(&layers, facts.input, 0).filter(|_| !cut && walk.findings.is_empty());
    findings.append(&mut walk.findings);
    if let Some(output) = output {
        findings.extend(fit_output(recipe, &layers, output, facts));
        if walk.parameters == 0 {
            let message = "the network has no parameters, so there is nothing to train";
            let hint = "add a layer such as `- {Dense: {units: 10}}`";
            findings.push(Finding::new("model.layers", message).hint(hint));
        }
    }
    match output {
        Some(_) if findings.is_empty() => Ok(Plan::new(recipe, &layers, facts, walk.rows)),
        _ => Err(findings),
    }
}

fn layers(model: &Model, facts: &DataFacts) -> Option<Vec<Layer>> {
    match (&model.layers, model.preset) {
        (Some(layers), None) if !layers.is_empty() => Some(layers.clone()),
        (None, Some(preset)) => Some(presets::expand(preset, facts.classes.unwrap_or(1).max(1))),
        _ => None,
    }
}

/// Data that cannot be trained on, or not with these options.
fn data(recipe: &Recipe, facts: &DataFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if facts.examples == 0 || facts.input.is_empty() {
        findings.push(Finding::new("data.train", "no examples are left to train on"));
    }
    let channels = facts.input.channels();
    let normalize = &recipe.data.normalize;
    for (key, list) in [("mean", &normalize.mean), ("std", &normalize.std)] {
        if list.len() > 1 && list.len() != channels {
            let key = format!("data.normalize.{key}");
            let message =
                format!("`{key}` has {} numbers, but the data has {channels} channels", list.len());
            findings.push(Finding::new(key, message).hint("give one for all, or one for each"));
        }
    }
    let augment = &recipe.data.augment;
    let image = matches!(facts.input, Shape::Image { .. });
    for (key, on) in [
        ("crop_padding", augment.crop_padding > 0),
        ("horizontal_flip", augment.horizontal_flip),
        ("cutout", augment.cutout > 0),
    ] {
        if on && !image {
            let key = format!("data.augment.{key}");
            let message = format!("`{key}` needs images, but the data has vectors");
            findings.push(Finding::new(key, message).hint("leave it out"));
        }
    }
    findings
}

/// Walks the layers once, collecting rows and misfits.
#[derive(Default)]
struct Walk {
    path: Vec<String>,
    preset: bool,
    parameters: u64,
    rows: Vec<LayerRow>,
    findings: Vec<Finding>,
}

impl Walk {
    /// Shape after a list of layers; `None` when it cannot be told.
    fn list(&mut self, layers: &[Layer], input: Shape, depth: usize) -> Option<Shape> {
        let mut shape = input;
        for (i, layer) in layers.iter().enumerate() {
            self.path.push(i.to_string());
            self.path.push(layer.name().to_owned());
            let after = self.layer(layer, shape, depth);
            self.path.truncate(self.path.len() - 2);
            shape = after?;
        }
        Some(shape)
    }

    fn layer(&mut self, layer: &Layer, input: Shape, depth: usize) -> Option<Shape> {
        let row = self.rows.len();
        self.rows.push(LayerRow::new(&self.path, depth, layer, input));
        let before = self.findings.len();
        self.inside(layer, input, depth);
        if self.findings.len() > before {
            return None;
        }
        let output = match shape::after(layer, input) {
            Ok(output) if output.len() <= VALUES_MAX => output,
            Ok(output) => {
                self.misfit(&format!(
                    "its output {output} holds more than {VALUES_MAX} values for each example"
                ));
                return None;
            }
            Err(misfit) => {
                self.misfit(&misfit.message);
                return assumed(layer, input);
            }
        };
        self.rows[row].finish(layer, input, output);
        let sum = self.parameters.saturating_add(self.rows[row].parameters);
        if sum > PARAMETERS_MAX && self.parameters <= PARAMETERS_MAX {
            self.misfit(&format!(
                "brings the network to {sum} parameters; at most {PARAMETERS_MAX} fit"
            ));
        }
        self.parameters = sum;
        Some(output)
    }

    fn inside(&mut self, layer: &Layer, input: Shape, depth: usize) {
        let mut branch = |steps: &[&str], layers: &[Layer]| {
            self.path.extend(steps.iter().map(|s| (*s).to_owned()));
            self.list(layers, input, depth + 1);
            self.path.truncate(self.path.len() - steps.len());
        };
        match layer {
            Layer::Residual(r) => {
                branch(&["layers"], &r.layers);
                branch(&["shortcut"], &r.shortcut);
            }
            Layer::Concat(c) => {
                for (i, layers) in c.branches.iter().enumerate() {
                    branch(&["branches", &i.to_string()], layers);
                }
            }
            _ => {}
        }
    }

    fn misfit(&mut self, message: &str) {
        let (message, hint) = match message.split_once("; ") {
            Some((message, hint)) => (message, Some(hint.to_owned())),
            None if message.contains("does not fit a") => {
                (message, Some("make it smaller, or use `padding: same`".to_owned()))
            }
            None => (message, None),
        };
        let key = if self.preset { "model.preset".into() } else { self.path.join(".") };
        let message = format!("{}: {message}", title(&self.path));
        self.findings.push(Finding { key, message, hint });
    }
}

/// What a layer that does not fit would probably give, so that later layers are checked too.
fn assumed(layer: &Layer, input: Shape) -> Option<Shape> {
    match (layer, input) {
        (Layer::Dense(d), _) => Some(Shape::Vector(d.units)),
        (Layer::Conv2D(c), Shape::Image { height, width, .. }) => {
            Some(Shape::Image { height, width, channels: c.filters })
        }
        (Layer::MaxPooling2D(_) | Layer::AveragePooling2D(_), Shape::Image { .. }) => Some(input),
        (Layer::GlobalAveragePooling2D(_), _) => Some(Shape::Vector(input.channels())),
        _ => None,
    }
}

/// Whether the outputs can be compared with the targets.
fn fit_output(
    recipe: &Recipe,
    layers: &[Layer],
    output: Shape,
    facts: &DataFacts,
) -> Option<Finding> {
    let key = output_key(recipe, layers);
    let Shape::Vector(units) = output else {
        let message = format!("the network ends in {output}, but a loss needs a vector");
        let hint = "end with `GlobalAveragePooling2D`, or `Flatten` and `Dense`";
        return Some(Finding::new(key, message).hint(hint));
    };
    let loss = recipe.train.loss;
    let name = loss_name(loss);
    match (loss, facts.classes) {
        (Loss::CrossEntropy, None) => Some(
            Finding::new(
                "train.loss",
                "`cross_entropy` needs classes, but the targets are numbers",
            )
            .hint("use `loss: mse`"),
        ),
        (Loss::CrossEntropy, Some(classes)) if units < classes => {
            let message = format!(
                "class label {} is outside the {units} output units, which hold labels 0 to {}",
                classes - 1,
                units.saturating_sub(1)
            );
            Some(Finding::new(key, message).hint(format!("set `units: {classes}`")))
        }
        (Loss::BinaryCrossEntropy | Loss::Hinge | Loss::SquaredHinge, None) => {
            let message = format!("`{name}` needs classes, but the targets are numbers");
            Some(Finding::new("train.loss", message).hint("use `loss: mse`"))
        }
        (Loss::Mse, None) if units != 1 => {
            let message = format!("`mse` needs 1 output unit for a number, but there are {units}");
            Some(Finding::new(key, message).hint("set `units: 1`"))
        }
        (Loss::Mse, _) if units == 1 => None,
        (Loss::BinaryCrossEntropy | Loss::Hinge | Loss::SquaredHinge, Some(classes))
            if units == 1 && classes > 2 =>
        {
            let message = format!(
                "`{name}` with 1 output unit needs labels 0 and 1, but there is label {}",
                classes - 1
            );
            Some(
                Finding::new(key, message)
                    .hint(format!("set `units: {classes}`, or use `cross_entropy`")),
            )
        }
        (Loss::CrossEntropy, Some(_)) | (_, None) => None,
        (_, Some(classes)) if units != 1 && units != classes => {
            let message = format!(
                "`{name}` needs 1 output unit or one for each of {classes} classes, but there are {units}"
            );
            Some(Finding::new(key, message).hint(format!("set `units: {classes}`")))
        }
        _ => None,
    }
}

/// Where the number of outputs was written.
fn output_key(recipe: &Recipe, layers: &[Layer]) -> String {
    if recipe.model.layers.is_none() {
        return "model.preset".into();
    }
    let passes = |l: &&Layer| matches!(l, Layer::Activation(_) | Layer::Dropout(_));
    let last = layers.len().saturating_sub(1 + layers.iter().rev().take_while(passes).count());
    match layers.get(last) {
        Some(Layer::Dense(_)) => format!("model.layers.{last}.Dense.units"),
        Some(layer) => format!("model.layers.{last}.{}", layer.name()),
        None => "model.layers".into(),
    }
}

fn loss_name(loss: Loss) -> &'static str {
    match loss {
        Loss::CrossEntropy => "cross_entropy",
        Loss::BinaryCrossEntropy => "binary_cross_entropy",
        Loss::Mse => "mse",
        Loss::Hinge => "hinge",
        Loss::SquaredHinge => "squared_hinge",
    }
}
