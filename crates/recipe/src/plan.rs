//! What would be done, in numbers: layers, shapes, sizes and the cut of the work.
//!
//! Owns the counting and the plain table of `planaria plan`. Never decides whether a recipe is
//! sound; `network` did.
//!
//! Counting: a multiply and an add are 2 FLOPs; only dense layers and convolutions count. A training
//! step takes three times the forward pass (outputs, input gradients, parameter gradients), less the
//! input gradient of the first of them.

use crate::model::{Layer, Pooling2D};
use crate::sections::{Part, Recipe};
use crate::shape::{DataFacts, Shape, conv_window};
use serde::{Serialize, Serializer};
use std::fmt;

/// A recipe resolved against its data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// The recipe with its preset written out and every constant explicit.
    pub recipe: Recipe,
    /// Shape of one example.
    #[serde(serialize_with = "shape_list")]
    pub input: Shape,
    /// Classes, unless the targets are numbers.
    pub classes: Option<usize>,
    /// Training examples.
    pub examples: usize,
    /// Every layer, blocks before what is in them.
    pub layers: Vec<LayerRow>,
    /// Trained values.
    pub parameters: u64,
    /// Values that are kept but not trained (running averages of batch normalisation).
    pub state: u64,
    /// FLOPs of one example's forward pass.
    pub flops_forward: u64,
    /// FLOPs of one training step on a full batch.
    pub flops_step: u64,
    /// Bytes of one gradient, which each shard contributes at each step.
    pub gradient_bytes: u64,
    /// Bytes of the parameters, which each worker reads at each step.
    pub parameter_bytes: u64,
    /// What the recipe asks for as `train.batch`, where there are fewer examples: each step takes all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_asked: Option<usize>,
    /// Examples in each shard of a full batch.
    pub shards: Vec<usize>,
    /// Steps in one epoch; the last may be a smaller batch.
    pub steps_per_epoch: usize,
}

/// One layer of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerRow {
    /// Levels of blocks around it.
    pub depth: usize,
    /// Place in the network, counted from 1: `3`, or `3.layers.2` inside a block.
    pub name: String,
    /// Keras' name of the layer.
    pub kind: String,
    /// Shape after it.
    #[serde(serialize_with = "shape_list")]
    pub output: Shape,
    /// Trained values of its own.
    pub parameters: u64,
    /// Kept values of its own.
    pub state: u64,
    /// FLOPs of one example's forward pass.
    pub flops_forward: u64,
}

impl LayerRow {
    /// A row whose output is not known yet.
    pub(crate) fn new(path: &[String], depth: usize, layer: &Layer, input: Shape) -> Self {
        let counted =
            path.iter().skip(2).filter(|s| !is_kind(s)).map(|s| match s.parse::<usize>() {
                Ok(n) => (n + 1).to_string(),
                Err(_) => s.clone(),
            });
        Self {
            depth,
            name: counted.collect::<Vec<_>>().join("."),
            kind: layer.name().to_owned(),
            output: input,
            parameters: 0,
            state: 0,
            flops_forward: 0,
        }
    }

    /// Fills in the output and the counts.
    pub(crate) fn finish(&mut self, layer: &Layer, input: Shape, output: Shape) {
        self.output = output;
        let (inputs, channels) = (input.len() as u64, input.channels() as u64);
        match layer {
            Layer::Dense(d) => {
                let units = d.units as u64;
                let kernel = inputs.saturating_mul(units);
                self.parameters = kernel.saturating_add(if d.use_bias { units } else { 0 });
                self.flops_forward = kernel.saturating_mul(2);
            }
            Layer::Conv2D(c) => {
                let Ok(window) = conv_window(c, input) else { return };
                let filters = c.filters as u64;
                let kernel = (window.kernel_h as u64)
                    .saturating_mul(window.kernel_w as u64)
                    .saturating_mul(channels / c.groups as u64)
                    .saturating_mul(filters);
                self.parameters = kernel.saturating_add(if c.use_bias { filters } else { 0 });
                self.flops_forward =
                    kernel.saturating_mul(output.pixels() as u64).saturating_mul(2);
            }
            Layer::BatchNormalization(_) => {
                self.parameters = channels.saturating_mul(2);
                self.state = channels.saturating_mul(2);
            }
            Layer::LayerNormalization(_) => self.parameters = channels.saturating_mul(2),
            _ => {}
        }
    }
}

impl Plan {
    pub(crate) fn new(
        recipe: &Recipe,
        layers: &[Layer],
        facts: &DataFacts,
        rows: Vec<LayerRow>,
    ) -> Self {
        let total =
            |count: fn(&LayerRow) -> u64| rows.iter().map(count).fold(0, u64::saturating_add);
        let parameters = total(|r| r.parameters);
        let forward = total(|r| r.flops_forward);
        let first = rows.iter().map(|r| r.flops_forward).find(|f| *f > 0).unwrap_or(0);
        let batch = recipe.train.batch.min(facts.examples).max(1);
        let bytes = parameters.saturating_mul(4);
        Self {
            recipe: resolve(recipe, layers, facts.examples),
            input: facts.input,
            classes: facts.classes,
            examples: facts.examples,
            parameters,
            state: total(|r| r.state),
            flops_forward: forward,
            flops_step: (forward.saturating_mul(3) - first).saturating_mul(batch as u64),
            gradient_bytes: bytes,
            parameter_bytes: bytes,
            batch_asked: Some(recipe.train.batch)
                .filter(|asked| *asked > batch && !recipe.train.takes_all_examples()),
            shards: shard_sizes(batch, recipe.train.shards),
            steps_per_epoch: recipe.train.steps_per_epoch(facts.examples),
            layers: rows,
        }
    }
}

impl Plan {
    /// What to say where a batch is larger than all there is.
    pub fn batch_note(&self) -> Option<String> {
        let asked = grouped(self.batch_asked? as u64);
        let examples = counted(self.examples, "training example");
        Some(format!(
            "`train.batch` is {asked}, but there are {examples}: each step takes all of them"
        ))
    }
}

/// Examples in each of `shards` shards: shard v of n examples holds positions ⌊vn/V⌋ to ⌊(v+1)n/V⌋.
pub fn shard_sizes(examples: usize, shards: usize) -> Vec<usize> {
    let start = |v: usize| (v as u128 * examples as u128 / shards.max(1) as u128) as usize;
    (0..shards).map(|v| start(v + 1) - start(v)).collect()
}

fn resolve(recipe: &Recipe, layers: &[Layer], examples: usize) -> Recipe {
    let mut recipe = recipe.clone();
    // Buffers are as long as a batch.
    recipe.train.batch = recipe.train.batch.min(examples.max(1));
    recipe.model.preset = None;
    recipe.model.layers = Some(layers.iter().map(explicit).collect());
    recipe
}

/// The layer with constants that follow from others written out.
fn explicit(layer: &Layer) -> Layer {
    let pool = |p: &Pooling2D| Pooling2D { strides: p.strides.or(Some(p.pool_size)), ..p.clone() };
    let all = |layers: &[Layer]| layers.iter().map(explicit).collect::<Vec<_>>();
    let mut layer = layer.clone();
    match &mut layer {
        Layer::MaxPooling2D(p) | Layer::AveragePooling2D(p) => *p = pool(p),
        Layer::Residual(r) => {
            r.layers = all(&r.layers);
            r.shortcut = all(&r.shortcut);
        }
        Layer::Concat(c) => c.branches = c.branches.iter().map(|b| all(b)).collect(),
        _ => {}
    }
    layer
}

fn is_kind(segment: &str) -> bool {
    segment.starts_with(|c: char| c.is_ascii_uppercase()) || segment == "branches"
}

fn shape_list<S: Serializer>(shape: &Shape, serializer: S) -> Result<S::Ok, S::Error> {
    match *shape {
        Shape::Image { height, width, channels } => [height, width, channels].serialize(serializer),
        Shape::Vector(n) => [n].serialize(serializer),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recipe = &self.recipe;
        let train = &recipe.train;
        writeln!(f, "recipe      {}, seed {}", recipe.name, recipe.seed)?;
        write!(f, "data        {}: ", crate::diagnostic::plain(&recipe.data.train))?;
        write!(f, "{} training examples of {}", grouped(self.examples as u64), self.input)?;
        match self.classes {
            Some(classes) => writeln!(f, ", {classes} classes")?,
            None => writeln!(f, ", numbers to predict")?,
        }
        if let Some(features) = &recipe.model.features {
            let from = crate::diagnostic::plain(&features.from);
            writeln!(f, "features    made of them by the network of {from}, which stays as it is")?;
        }
        writeln!(f, "test        {}", part(recipe.data.test.as_ref()))?;
        writeln!(f, "validation  {}", part(recipe.data.validation.as_ref()))?;
        writeln!(
            f,
            "output      {}/{}-<time>/",
            crate::diagnostic::plain(&recipe.output.dir),
            recipe.name
        )?;
        writeln!(f)?;
        self.table(f)?;
        writeln!(f)?;
        writeln!(
            f,
            "training    {} of {}, batch {}",
            counted(train.epochs, "epoch"),
            counted(self.steps_per_epoch, "step"),
            train.batch
        )?;
        if let Some(note) = self.batch_note() {
            writeln!(f, "            {note}")?;
        }
        if !train.traits().has_shards {
            // The work is cut otherwise; what knows the method tells how.
            return Ok(());
        }
        writeln!(f, "shards      {}", shard_text(&self.shards))?;
        writeln!(
            f,
            "each step   {} (2 per multiply-add; forward and backward), {} of gradient, {} of parameters",
            scaled(
                self.flops_step,
                1000.0,
                [" FLOP", " kFLOP", " MFLOP", " GFLOP", " TFLOP", " PFLOP"]
            ),
            bytes(self.gradient_bytes),
            bytes(self.parameter_bytes)
        )
    }
}

impl Plan {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["layer", "kind", "output", "parameters", "forward FLOPs"].map(String::from);
        let mut rows = vec![head];
        rows.push(["".into(), "input".into(), self.input.to_string(), "".into(), "".into()]);
        rows.extend(self.layers.iter().map(|row| {
            [
                row.name.clone(),
                format!("{}{}", "  ".repeat(row.depth), row.kind),
                row.output.to_string(),
                grouped(row.parameters),
                grouped(row.flops_forward),
            ]
        }));
        let kept =
            if self.state > 0 { format!("+ {} kept", grouped(self.state)) } else { "".into() };
        rows.push([
            "total".into(),
            "".into(),
            kept,
            grouped(self.parameters),
            grouped(self.flops_forward),
        ]);
        let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
        let w = [width(0), width(1), width(2), width(3), width(4)];
        for [name, kind, output, parameters, flops] in &rows {
            let line = format!(
                "{name:<a$}  {kind:<b$}  {output:>c$}  {parameters:>d$}  {flops:>e$}",
                a = w[0],
                b = w[1],
                c = w[2],
                d = w[3],
                e = w[4]
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn part(part: Option<&Part>) -> String {
    match part {
        None => "none".into(),
        Some(Part::Share(share)) => format!("{share} of the examples, set aside by the seed"),
        Some(Part::Path(path)) => crate::diagnostic::plain(path),
    }
}

fn shard_text(shards: &[usize]) -> String {
    let low = shards.iter().min().copied().unwrap_or(0);
    let high = shards.iter().max().copied().unwrap_or(0);
    let each = if low == high { format!("{low}") } else { format!("{low} or {high}") };
    let examples = if high == 1 { "example" } else { "examples" };
    format!("{} with {each} {examples} each", shards.len())
}

/// `1 epoch`, `1,200 steps`.
fn counted(n: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(n as u64), if n == 1 { "" } else { "s" })
}

/// Digits in groups of three.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(n: u64) -> String {
    scaled(n, 1024.0, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"])
}

fn scaled(n: u64, base: f64, units: [&str; 6]) -> String {
    let mut value = n as f64;
    let mut at = 0;
    while value >= base && at + 1 < units.len() {
        value /= base;
        at += 1;
    }
    if at == 0 { format!("{n}{}", units[0]) } else { format!("{value:.2}{}", units[at]) }
}
