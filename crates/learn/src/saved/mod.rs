//! A trained network as files: weights in `model.safetensors`, everything else that is needed to
//! use them in `model.yaml`; and its first layers on their own.
//!
//! Owns `model.yaml`: one `key: value` per line and one layer per line, every value written as
//! JSON, which is YAML as well. Takes and gives bytes; never touches files.
//!
//! # Layout
//! - [`Description`] (here): `model.yaml`
//! - [`safetensors`]: the format of the weights
//! - [`frozen`]: the first layers of a saved network, as they are

pub mod frozen;
pub mod safetensors;

pub use frozen::Frozen;

use crate::{Kind, Network};
use planaria_recipe::sections::{Format, Normalize};
use planaria_recipe::train::Loss;
use planaria_recipe::{Json, Layer, Plan, Shape};
use safetensors::{Tensor, Tensors, Values};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Write;

const VERSION: u32 = 1;

/// What was trained, of a network in full.
#[derive(Debug, Clone, Copy)]
pub struct Trained<'a> {
    pub parameters: &'a [f32],
    pub state: &'a [f32],
    /// The weights of a linear model as they are.
    pub wide: Option<&'a [f64]>,
}

/// All that is needed to use the weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Version of this file.
    pub version: u32,
    /// The recipe's name.
    pub name: String,
    /// The recipe's seed, which also draws `digits`.
    pub seed: u64,
    /// Sides of one example: height, width, channels, or the length of a vector.
    pub input: Vec<usize>,
    /// Names of the classes; none for regression.
    pub classes: Vec<String>,
    /// How values are scaled before the first layer.
    pub normalize: Normalize,
    /// Format of the files trained on.
    pub format: Format,
    /// What was minimised.
    pub loss: Loss,
    /// Share of the target that was spread over the classes.
    pub label_smoothing: f32,
    /// How rows of a table become examples, where they come from one; the reader of tables knows
    /// its form.
    #[serde(default)]
    pub table: Option<Value>,
    /// How many of the layers came from another saved network and were left as they were.
    #[serde(default)]
    pub frozen: usize,
    /// On lines of their own.
    #[serde(skip)]
    pub layers: Vec<Layer>,
}

impl Description {
    /// Of the network a plan trains.
    pub fn new(plan: &Plan, classes: Vec<String>) -> Self {
        let recipe = &plan.recipe;
        Self {
            version: VERSION,
            name: recipe.name.clone(),
            seed: recipe.seed,
            input: match plan.input {
                Shape::Image { height, width, channels } => vec![height, width, channels],
                Shape::Vector(length) => vec![length],
            },
            classes,
            normalize: recipe.data.normalize.clone(),
            format: recipe.data.format,
            loss: recipe.train.loss,
            label_smoothing: recipe.train.label_smoothing,
            table: None,
            frozen: 0,
            layers: recipe.model.layers.clone().unwrap_or_default(),
        }
    }

    /// Of a network whose first layers are those of a saved one: its examples are that one's.
    #[must_use]
    pub fn on(mut self, frozen: &Frozen) -> Self {
        let below = frozen.description();
        self.input = below.input.clone();
        self.normalize = below.normalize.clone();
        self.table = below.table.clone();
        self.frozen = below.layers.len();
        self.layers = below.layers.iter().chain(&self.layers).cloned().collect();
        self
    }

    pub fn network(&self) -> Result<Network, String> {
        Network::new(&self.layers, self.shape()?).map_err(|e| e.to_string())
    }

    /// How many parameters and values of state belong to layers that were left as they were.
    pub fn frozen_counts(&self) -> Result<(usize, usize), String> {
        let below = self.layers.get(..self.frozen).unwrap_or_default();
        if below.is_empty() {
            return Ok((0, 0));
        }
        let network = Network::new(below, self.shape()?).map_err(|e| e.to_string())?;
        Ok((network.parameter_count(), network.state_count()))
    }

    /// Shape of one example.
    pub fn shape(&self) -> Result<Shape, String> {
        match *self.input {
            [height, width, channels] => Ok(Shape::Image { height, width, channels }),
            [length] => Ok(Shape::Vector(length)),
            _ => Err(format!("`input` has {} sides, not 1 or 3", self.input.len())),
        }
    }

    /// `model.yaml`.
    pub fn to_yaml(&self) -> String {
        let mut text = String::from("# The network whose weights are in model.safetensors.\n");
        // Through text, because single-precision numbers are shortest there.
        let fields = serde_json::to_string(self)
            .and_then(|text| serde_json::from_str::<Map<String, Value>>(&text))
            .expect("a description has string keys only");
        // Keys in the order of the type, whatever the map's.
        for key in KEYS {
            let _ = writeln!(text, "{key}: {}", fields[*key]);
        }
        text.push_str("layers:\n");
        for layer in &self.layers {
            let _ = writeln!(text, "  - {}", layer.to_json());
        }
        text
    }

    /// Reads `model.yaml` back; says what is wrong with it, and where.
    pub fn from_yaml(text: &str) -> Result<Self, String> {
        let mut fields = Map::new();
        let mut layers: Vec<Layer> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let at = |why: String| format!("line {number}: {why}");
            if line.trim().is_empty() || line.starts_with('#') || line.trim_end() == "layers:" {
                continue;
            }
            if let Some(layer) = line.trim_start().strip_prefix("- ") {
                layers.push(Layer::from_json(layer).map_err(|e| at(unreadable(layer, &e)))?);
                continue;
            }
            let (key, value) =
                line.split_once(": ").ok_or_else(|| at(format!("`{line}` has no `: `")))?;
            let value =
                serde_json::from_str(value).map_err(|e| at(unreadable(value, &e.to_string())))?;
            fields.insert(key.to_owned(), value);
        }
        let description: Self =
            serde_json::from_value(Value::Object(fields)).map_err(|e| e.to_string())?;
        let description = Self { layers, ..description };
        if description.version != VERSION {
            return Err(format!(
                "it has version {}; this planaria reads version {VERSION}",
                description.version
            ));
        }
        description.shape()?;
        Ok(description)
    }

    /// `model.safetensors`.
    pub fn tensors(&self, network: &Network, trained: &Trained<'_>, run_id: &str) -> Vec<u8> {
        let Trained { parameters, state, wide } = *trained;
        let mut tensors: Vec<_> = network
            .tensors()
            .iter()
            .map(|tensor| {
                let values = match tensor.kind {
                    Kind::Parameter => parameters,
                    Kind::State => state,
                };
                Tensor {
                    name: &tensor.name,
                    shape: &tensor.shape,
                    values: Values::F32(&values[tensor.range.clone()]),
                }
            })
            .collect();
        let length = [wide.map_or(0, <[f64]>::len)];
        let wide =
            wide.map(|values| Tensor { name: WIDE, shape: &length, values: Values::F64(values) });
        tensors.extend(wide);
        let version = concat!("planaria ", env!("CARGO_PKG_VERSION"));
        safetensors::encode(&tensors, &[("producer", version), ("run_id", run_id)])
    }
}

const KEYS: &[&str] = &[
    "version",
    "name",
    "seed",
    "input",
    "classes",
    "normalize",
    "format",
    "loss",
    "label_smoothing",
    "table",
    "frozen",
];

/// The tensor of a linear model's weights in full, column by column.
const WIDE: &str = "linear.weights";

/// Parameters and state of `network` from the bytes of `model.safetensors`.
pub fn read_tensors(bytes: &[u8], network: &Network) -> Result<(Vec<f32>, Vec<f32>), String> {
    let tensors = Tensors::decode(bytes)?;
    tensors.verify()?;
    let mut parameters = vec![0.0; network.parameter_count()];
    let mut state = vec![0.0; network.state_count()];
    for tensor in network.tensors() {
        let values = tensors.get(&tensor.name, &tensor.shape)?;
        let into = match tensor.kind {
            Kind::Parameter => &mut parameters,
            Kind::State => &mut state,
        };
        into[tensor.range.clone()].copy_from_slice(&values);
    }
    Ok((parameters, state))
}

/// The weights of a linear model in full, where the file has them.
pub fn read_wide(bytes: &[u8]) -> Result<Option<Vec<f64>>, String> {
    Tensors::decode(bytes)?.wide(WIDE)
}

fn unreadable(text: &str, why: &str) -> String {
    format!("`{text}` cannot be read: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_recipe::{DataFacts, Source};

    fn sample() -> Description {
        let text = "{name: tiny, data: {train: digits, normalize: {mean: [0.1307]}}, \
                    model: {preset: resnet20}}";
        let source = Source::parse("tiny.yaml", text.as_bytes(), &[]).unwrap();
        let input = Shape::Image { height: 28, width: 28, channels: 1 };
        let facts = DataFacts { input, classes: Some(10), examples: 100 };
        let plan = source.plan(&facts).unwrap();
        Description::new(&plan, vec!["a \"quoted\": # name".into(), "ü".into()])
    }

    #[test]
    fn reading_after_writing_is_the_same() {
        let description = sample();
        let text = description.to_yaml();
        assert_eq!(Description::from_yaml(&text).unwrap(), description, "{text}");
        assert!(text.contains("mean\":[0.1307]"), "numbers stay short: {text}");
    }

    #[test]
    fn every_field_has_its_key() {
        let Value::Object(fields) = serde_json::to_value(sample()).unwrap() else { panic!() };
        let mut keys: Vec<&str> = KEYS.to_vec();
        keys.sort_unstable();
        let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(keys, names);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let text = sample().to_yaml();
        let check = |text: String, expect: &str| {
            let why = Description::from_yaml(&text).unwrap_err();
            assert!(why.contains(expect), "{why}");
        };
        check(text.replace("seed: 0", "seed: zero"), "line 4: `zero`");
        check(text.replace("version: 1", "version: 7"), "version 7");
        check(text.replace("input: [28,28,1]", "input: [28,28]"), "2 sides");
        check(text.replace("seed: 0\n", ""), "missing field `seed`");
        check(text.replace("seed: 0\n", "seed\n"), "has no `: `");
    }
}
