//! What must be the same for a run to go on: recipe and data.
//!
//! Owns the comparison of a checkpoint with what is there now, and the words for what differs.
//! Never opens data, and never looks at weights.

use planaria_data::DataSet;
use planaria_protocol::checkpoint::{FORMAT, Manifest, Mark, Part};
use planaria_protocol::state::State;
use planaria_recipe::{Recipe, Source};
use planaria_runs::failure::{Failure, Result};
use planaria_runs::traces::report::sha256;
use serde_json::Value;
use std::path::PathBuf;

/// Differences that are named; more say nothing more.
const DIFFERENCES_MAX: usize = 3;
/// Longest value that is shown.
const VALUE_CHARS_MAX: usize = 60;

/// A run's recipe and data.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// Where the recipe is.
    pub recipe_file: PathBuf,
    /// The resolved recipe as it is in the run's folder.
    pub recipe: String,
    pub recipe_sha256: String,
    /// What the recipe calls the training data.
    pub data_name: String,
    pub examples: u64,
    /// What tells the data from other data.
    pub data: Vec<Mark>,
}

/// Lengths of the buffers in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    pub parameters: u64,
    /// Values of the network's state.
    pub state: u64,
    /// Slots of the optimizer.
    pub slots: u32,
}

impl Identity {
    /// Of a run over opened data.
    pub fn new(recipe_file: PathBuf, recipe_text: &str, recipe: &Recipe, data: &DataSet) -> Self {
        let mark = |mark: &planaria_data::Mark| Mark {
            name: mark.name.clone(),
            content: mark.content.clone(),
        };
        Self {
            recipe_file,
            recipe: recipe_text.to_owned(),
            recipe_sha256: sha256(recipe_text.as_bytes()),
            data_name: recipe.data.train.clone(),
            examples: data.train.len(),
            data: data.marks.iter().map(mark).collect(),
        }
    }

    /// The manifest of a checkpoint.
    pub fn manifest(
        &self,
        generation: u64,
        state: State,
        lengths: Lengths,
        parts: Vec<Part>,
    ) -> Manifest {
        Manifest {
            format: FORMAT,
            planaria: env!("CARGO_PKG_VERSION").into(),
            build: crate::program::build().into(),
            generation,
            step: state.step,
            recipe_sha256: self.recipe_sha256.clone(),
            recipe: self.recipe.clone(),
            data: self.data.clone(),
            state,
            parameters: lengths.parameters,
            state_values: lengths.state,
            slots: lengths.slots,
            parts,
        }
    }

    /// Refuses a checkpoint of another version, another recipe or other data, and names the
    /// difference.
    pub fn check(&self, manifest: &Manifest) -> Result<()> {
        let own = env!("CARGO_PKG_VERSION");
        if manifest.planaria != own {
            return Err(Failure::user(format!(
                "the checkpoint of step {} was written by planaria {}; this is planaria {own}",
                manifest.step, manifest.planaria
            ))
            .hint("go on with that version, or start a new run with `planaria train`"));
        }
        let examples = manifest.state.examples_per_epoch;
        let is_same = || asks_for_the_same(&manifest.recipe, &self.recipe);
        let changed = if manifest.recipe_sha256 != self.recipe_sha256 && !is_same() {
            let what = differences(&manifest.recipe, &self.recipe);
            format!("`{}` was changed after the run began: {what}", self.recipe_file.display())
        } else if examples != self.examples {
            format!(
                "`{}` gives {} training examples, but the run began with {examples}",
                self.data_name, self.examples
            )
        } else if !manifest.data.is_empty()
            && let Some(name) = changed_data(&manifest.data, &self.data)
        {
            format!("the content of `{name}` was changed after the run began")
        } else {
            return Ok(());
        };
        Err(Failure::user(changed)
            .hint("put it back as it was, or start a new run with `planaria train`"))
    }

    /// What cannot be proven by a checkpoint that was checked: an old one may not say which data it
    /// was of.
    pub fn unproven(&self, manifest: &Manifest) -> Option<String> {
        manifest.data.is_empty().then(|| {
            format!(
                "the checkpoint of step {} does not say which data it was trained on, so it cannot \
                 be proven that `{}` is the same",
                manifest.step, self.data_name
            )
        })
    }
}

/// The first piece of data that is not what it was. Only content counts: files may have moved.
fn changed_data<'a>(before: &'a [Mark], now: &'a [Mark]) -> Option<&'a str> {
    let changed = before.iter().zip(now).find(|(a, b)| a.content != b.content);
    let extra = || now.get(before.len()).or(before.get(now.len()));
    changed.map(|(_, now)| now).or_else(extra).map(|mark| mark.name.as_str())
}

/// Whether two recipes ask for the same steps: on which machines, and how many, is no part of that.
fn asks_for_the_same(before: &str, now: &str) -> bool {
    steps(before).is_some_and(|before| Some(before) == steps(now))
}

/// What a recipe says of its steps; nothing where it cannot be read.
fn steps(text: &str) -> Option<Recipe> {
    let source = Source::parse("recipe.yaml", text.as_bytes(), &[]).ok()?;
    Some(source.recipe().of_steps())
}

/// What settings would change of what a run computes; nothing where a run may go on with them.
pub fn changed_steps(before: &Recipe, now: &Recipe) -> Option<String> {
    let found = by_key(&before.of_steps(), &now.of_steps());
    (!found.is_empty()).then(|| listed(found))
}

/// What differs between two recipes, by key; by line where one cannot be read or no key differs.
fn differences(before: &str, now: &str) -> String {
    let mut found = match (steps(before), steps(now)) {
        (Some(before), Some(now)) => by_key(&before, &now),
        _ => Vec::new(),
    };
    if found.is_empty() {
        let mut lines = (1..).zip(before.lines().zip(now.lines()));
        found.push(match lines.find(|(_, (a, b))| a != b) {
            Some((number, (a, b))) => {
                format!("line {number} was `{}` and is `{}`", shortened(a), shortened(b))
            }
            None => "lines were added or taken away".into(),
        });
    }
    listed(found)
}

fn by_key(before: &Recipe, now: &Recipe) -> Vec<String> {
    let mut found = Vec::new();
    compare("", &keys(before), &keys(now), &mut found);
    found
}

/// The first of the differences.
fn listed(mut found: Vec<String>) -> String {
    let more = found.len().saturating_sub(DIFFERENCES_MAX);
    found.truncate(DIFFERENCES_MAX);
    if more > 0 {
        found.push(format!("and {more} more"));
    }
    found.join(", ")
}

fn keys(recipe: &Recipe) -> Value {
    // Through text, because single-precision numbers are shortest there.
    let text = serde_json::to_string(recipe).expect("a recipe has string keys only");
    serde_json::from_str(&text).expect("it was just written")
}

fn compare(at: &str, before: &Value, now: &Value, found: &mut Vec<String>) {
    let below = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
    match (before, now) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let value = |map: &serde_json::Map<String, Value>| {
                    map.get(key).cloned().unwrap_or(Value::Null)
                };
                compare(&below(key), &value(a), &value(b), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (number, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{at}[{number}]"), a, b, found);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            found.push(format!("`{at}` had {} entries and has {}", a.len(), b.len()));
        }
        (a, b) if a != b => {
            found.push(format!("`{at}` was {} and is {}", word(a), word(b)));
        }
        _ => {}
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => "not set".into(),
        Value::String(text) => format!("`{}`", shortened(text)),
        other => shortened(&other.to_string()),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPE: &str = "{name: net, data: {train: digits}, \
                          model: {layers: [Flatten, {Dense: {units: 10}}]}, \
                          train: {batch: 100, optimizer: {sgd: {learning_rate: 0.1}}}}";

    #[test]
    fn differences_are_named_by_key() {
        let check = |from: &str, to: &str, expect: &str| {
            let now = RECIPE.replace(from, to);
            assert_ne!(now, RECIPE, "{from}");
            assert_eq!(differences(RECIPE, &now), expect);
        };
        check("batch: 100", "batch: 200", "`train.batch` was 100 and is 200");
        check("0.1}", "0.2}", "`train.optimizer.sgd.learning_rate` was 0.1 and is 0.2");
        check("name: net", "name: other", "`name` was `net` and is `other`");
        check("units: 10", "units: 12", "`model.layers[1].Dense.units` was 10 and is 12");
        check("[Flatten, ", "[", "`model.layers` had 2 entries and has 1");
        // Nothing that a key holds, or nothing that can be read.
        check("{name: net, ", "{name:  net, ", &{
            let (a, b) = (shortened(RECIPE), shortened(&RECIPE.replace("name:", "name: ")));
            format!("line 1 was `{a}` and is `{b}`")
        });
        assert_eq!(differences("a\nb", "a\nc"), "line 2 was `b` and is `c`");
        assert_eq!(differences("a\nb", "a\nb\n\nc"), "lines were added or taken away");
    }

    #[test]
    fn another_recipe_or_other_data_is_refused() {
        let mark = |name: &str, content: &str| Mark { name: name.into(), content: content.into() };
        let here = Identity {
            recipe_file: "runs/net/recipe.yaml".into(),
            recipe: RECIPE.into(),
            recipe_sha256: sha256(RECIPE.as_bytes()),
            data_name: "digits".into(),
            examples: 50,
            data: vec![mark("a", "1"), mark("b", "2")],
        };
        let lengths = Lengths { parameters: 0, state: 0, slots: 0 };
        let state = State { examples_per_epoch: 50, ..State::default() };
        let manifest = here.manifest(1, state, lengths, Vec::new());
        here.check(&manifest).unwrap();
        let check = |spoil: &dyn Fn(&mut Identity), expect: &str| {
            let mut other = here.clone();
            spoil(&mut other);
            let refused = other.check(&manifest).unwrap_err();
            assert!(refused.message.contains(expect), "{refused}");
        };
        check(
            &|other| other.examples = 40,
            "gives 40 training examples, but the run began with 50",
        );
        check(&|other| other.data[1].content = "3".into(), "the content of `b` was changed");
        check(&|other| other.data.push(mark("c", "1")), "the content of `c` was changed");
        check(&|other| drop(other.data.pop()), "the content of `b` was changed");
        check(
            &|other| {
                other.recipe = RECIPE.replace("batch: 100", "batch: 50");
                other.recipe_sha256 = sha256(other.recipe.as_bytes());
            },
            "recipe.yaml` was changed after the run began: `train.batch` was 100 and is 50",
        );
        // Where it is computed may change, and for how long.
        let mut elsewhere = here.clone();
        elsewhere.recipe = RECIPE
            .replace("{name", "{pool: {machines: 2, workers: 3}, setup: [{run: x}], name")
            .replace("{batch", "{epochs: 99, early_stopping: {patience: 3}, batch");
        elsewhere.recipe_sha256 = sha256(elsewhere.recipe.as_bytes());
        elsewhere.check(&manifest).unwrap();
        let newer = Manifest { planaria: "99.0.0".into(), ..manifest.clone() };
        let refused = here.check(&newer).unwrap_err();
        assert!(refused.message.contains("was written by planaria 99.0.0; this is"), "{refused}");
        // One that does not say which data it was of proves nothing.
        assert_eq!(here.unproven(&manifest), None);
        let silent = Manifest { data: Vec::new(), ..manifest.clone() };
        here.check(&silent).unwrap();
        let remark = here.unproven(&silent).unwrap();
        assert!(remark.contains("cannot be proven that `digits` is the same"), "{remark}");
        // Files may have moved.
        let mut moved = here.clone();
        moved.data[0].name = "elsewhere/a".into();
        moved.check(&manifest).unwrap();
    }
}
