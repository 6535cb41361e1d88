//! The data of a run as it is learned from: opened, and, where the recipe names a saved network,
//! as the features which that network makes of it.
//!
//! Owns reading that network's files. This is the one place where they are applied, so all that
//! opens data gets features; the same bits on every machine. Never trains.

use planaria_data::features::{Extract, KEY};
use planaria_data::table::Encoder;
use planaria_data::{DataSet, Error, Facts, Mark};
use planaria_learn::saved::{Description, Frozen};
use planaria_protocol::hash::{Hasher, hex};
use planaria_recipe::model::Features;
use planaria_recipe::{Recipe, Shape, table};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Where runs are when nothing else is said.
const RUNS: &str = "runs";

/// All that turns rows of another table into examples: what `model.yaml` says of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableModel {
    /// The recipe's `data.table`.
    #[serde(with = "planaria_recipe::json")]
    pub section: table::Table,
    /// What was learned from the training rows.
    pub encoder: Encoder,
}

impl TableModel {
    /// As `model.yaml` holds it.
    pub fn to_value(&self) -> serde_json::Value {
        // Through text, because single-precision numbers are shortest there.
        let text = serde_json::to_string(self).expect("it has string keys only");
        serde_json::from_str(&text).expect("it was just written")
    }

    /// Of what `model.yaml` holds.
    pub fn from_value(value: &serde_json::Value) -> Result<Self, String> {
        serde_json::from_value(value.clone()).map_err(|e| format!("`table` cannot be read: {e}"))
    }
}

/// A saved network's first layers, and what they are known again by.
#[derive(Debug)]
pub struct Saved {
    pub frozen: Frozen,
    /// The folder they are from, and a hash of its files.
    pub mark: Mark,
}

impl Saved {
    /// Reads what a recipe names.
    pub fn read(features: &Features, threads: usize) -> Result<Self, Error> {
        let folder = folder(&features.from)?;
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).map_err(|cause| match cause.kind() {
                std::io::ErrorKind::NotFound => wrong(format!(
                    "`{}` has no `{name}`: a model is written when a run ends or is interrupted",
                    folder.display()
                )),
                _ => at(Error::Io { path, cause }),
            })
        };
        let (text, tensors) = (read("model.yaml")?, read("model.safetensors")?);
        let mut hash = Hasher::new();
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(&text);
        hash.update(&tensors);
        let content = hex(&hash.finish());
        let unfit = |why: String| {
            wrong(format!("the network in `{}` cannot be used: {why}", folder.display()))
        };
        let text = String::from_utf8(text).map_err(|e| unfit(e.to_string()))?;
        let description = Description::from_yaml(&text).map_err(unfit)?;
        let frozen = Frozen::new(description, &tensors, features.layers, threads).map_err(unfit)?;
        let mark = Mark { name: folder.display().to_string(), content };
        Ok(Self { frozen, mark })
    }

    /// Refuses tables whose rows become other examples than those the network was trained on.
    fn same_table(&self, encoder: Option<&Encoder>) -> Result<(), Error> {
        let Some(value) = &self.frozen.description().table else { return Ok(()) };
        let table = TableModel::from_value(value).map_err(wrong)?;
        match encoder {
            Some(encoder) if *encoder == table.encoder => Ok(()),
            _ => Err(wrong(format!(
                "`{}` was trained on a table whose columns were encoded otherwise; use the same \
                 `data` and `seed` as that run",
                self.mark.name
            ))),
        }
    }
}

/// The same where the data's facts are as wanted; nothing where they are not. Those of features are
/// known no sooner than the features.
pub fn open_if(
    recipe: &Recipe,
    threads: usize,
    is_wanted: impl FnOnce(&Facts) -> bool,
) -> Result<Option<DataSet>, Error> {
    match recipe.model.features {
        Some(_) => open(recipe, threads).map(Some),
        None => planaria_data::open_if(&recipe.data, recipe.seed, is_wanted),
    }
}

/// Opens the data of a recipe as it is learned from.
pub fn open(recipe: &Recipe, threads: usize) -> Result<DataSet, Error> {
    let set = planaria_data::open(&recipe.data, recipe.seed)?;
    let Some(features) = &recipe.model.features else { return Ok(set) };
    let saved = Saved::read(features, threads)?;
    saved.same_table(set.encoder.as_deref())?;
    let normalize = saved.frozen.description().normalize.clone();
    let by = Arc::new(Mutex::new(Layers(saved.frozen)));
    set.extracted(by, &normalize, saved.mark)
}

/// Looks at it, without computing any features.
pub fn peek(recipe: &Recipe) -> Result<Facts, Error> {
    let facts = planaria_data::peek(&recipe.data, recipe.seed)?;
    let Some(features) = &recipe.model.features else { return Ok(facts) };
    let saved = Saved::read(features, 1)?;
    let by: Arc<Mutex<dyn Extract>> = Arc::new(Mutex::new(Layers(saved.frozen)));
    facts.extracted(&by)
}

/// The layers as data knows them.
#[derive(Debug)]
struct Layers(Frozen);

impl Extract for Layers {
    fn input(&self) -> Shape {
        self.0.input()
    }

    fn output(&self) -> Shape {
        self.0.output()
    }

    fn apply(&mut self, inputs: &[f32], out: &mut [f32]) {
        self.0.apply(inputs, out);
    }
}

/// The folder of a run named by a path or by its id under `runs/`.
fn folder(from: &str) -> Result<PathBuf, Error> {
    let candidates = [PathBuf::from(from), Path::new(RUNS).join(from)];
    match candidates.iter().find(|path| path.is_dir()) {
        Some(folder) => Ok(folder.clone()),
        None => Err(wrong(format!("there is no run `{from}` with a saved network"))),
    }
}

fn wrong(message: String) -> Error {
    at(Error::Setting { message })
}

fn at(cause: Error) -> Error {
    Error::At { key: KEY, cause: Box::new(cause) }
}
