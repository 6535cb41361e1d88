//! A recipe file, read and checked, that still knows where everything was written.
//!
//! Owns the order of the checks. What is read, and what paths inside a recipe are relative to, is
//! [`crate::file`]'s.

use crate::check;
use crate::diagnostic::{Diagnostics, Finding, Mistake, Span, Texts, plain};
use crate::file::{self, START, meant, read, too_large};
use crate::network;
use crate::node::{Kind, Node};
use crate::plan::Plan;
use crate::rules;
use crate::schema;
use crate::script::Job;
use crate::sections::Recipe;
use crate::sets;
use crate::shape::DataFacts;
use crate::yaml::{self, DEPTH_MAX, FILE_BYTES_MAX};
use std::path::Path;

/// The key that only recipes of scripts have.
pub(crate) const SCRIPT: &str = "script";
/// The key that only recipes of networks have.
const MODEL: &str = "model";

/// A sound recipe of a network to train.
pub type Source = Sound<Recipe>;

/// A sound recipe of a script to run.
pub type JobSource = Sound<Job>;

/// A sound recipe and its places in the file.
#[derive(Debug, Clone)]
pub struct Sound<R> {
    texts: Texts,
    tree: Node,
    recipe: R,
}

/// What a file can be a recipe of.
pub trait Root: serde::de::DeserializeOwned {
    /// What it is written in.
    fn schema() -> &'static serde_json::Value;
    /// Fills in what follows from what was written, what was not, and the folder that it is in.
    #[doc(hidden)]
    fn complete(&mut self, tree: &Tree<'_>, beside: Option<&Path>);

    /// What its values break when taken together.
    #[doc(hidden)]
    fn mistakes(&self, tree: &Tree<'_>) -> Vec<Finding>;
    /// Of a recipe that is one of something else altogether: the key that tells, what it is, and
    /// the command that reads it.
    #[doc(hidden)]
    fn other(tree: &Tree<'_>) -> Option<(&'static str, &'static str, &'static str)>;
}

/// What was written, even where it was unsound.
pub struct Tree<'t>(&'t Node);

impl Root for Recipe {
    fn schema() -> &'static serde_json::Value {
        schema::of_training()
    }

    fn complete(&mut self, tree: &Tree<'_>, beside: Option<&Path>) {
        for path in self.data.paths_mut() {
            if let Some(there) = meant(path, beside) {
                *path = there;
            }
        }
        let written = tree.0.get("train").and_then(|train| train.get("batch"));
        if self.train.takes_all_examples() && written.is_none() {
            // All there are; the plan, which knows the data, writes their number.
            self.train.batch = usize::MAX;
        }
    }

    fn mistakes(&self, tree: &Tree<'_>) -> Vec<Finding> {
        rules::check(self, tree.0)
    }

    fn other(tree: &Tree<'_>) -> Option<(&'static str, &'static str, &'static str)> {
        let is_other = tree.has(SCRIPT) && !tree.has(MODEL);
        is_other.then_some((SCRIPT, "runs a script", "planaria run"))
    }
}

impl Root for Job {
    fn schema() -> &'static serde_json::Value {
        schema::of_scripts()
    }

    fn complete(&mut self, tree: &Tree<'_>, beside: Option<&Path>) {
        if let Some(there) = meant(&self.script.file, beside) {
            self.script.file = there;
        }
        let written = tree.0.get("pool").and_then(|pool| pool.get("workers"));
        if written.is_none_or(|node| node.kind == Kind::Null) {
            self.set_default_workers();
        }
    }

    fn mistakes(&self, tree: &Tree<'_>) -> Vec<Finding> {
        rules::check_job(self, tree.0)
    }

    fn other(tree: &Tree<'_>) -> Option<(&'static str, &'static str, &'static str)> {
        let is_other = tree.has(MODEL) && !tree.has(SCRIPT);
        is_other.then_some((MODEL, "trains a network", "planaria train"))
    }
}

impl Tree<'_> {
    fn has(&self, key: &str) -> bool {
        self.0.get(key).is_some()
    }
}

/// Keys at the top of a file with these settings; none where it cannot be read.
pub(crate) fn top_level_keys(path: &Path, sets: &[String]) -> Vec<String> {
    let tree = read(path).ok().and_then(|bytes| tree(&bytes).0);
    let Some(mut tree) = tree else { return Vec::new() };
    // What is wrong with the settings is found again when the recipe is read.
    sets::apply(&mut tree, sets);
    match tree.kind {
        Kind::Map(entries) => entries.into_iter().map(|entry| entry.key).collect(),
        _ => Vec::new(),
    }
}

impl<R: Root> Sound<R> {
    /// Reads a recipe, applies `--set` arguments (`train.epochs=3`) and checks it.
    pub fn load(path: &Path, sets: &[String]) -> Result<Self, Diagnostics> {
        Draft::new(&file::name(path), &read(path)?, sets, file::folder(path)).into_source()
    }

    /// The same for bytes that are at hand; `file` is the name that messages show.
    pub fn parse(file: &str, bytes: &[u8], sets: &[String]) -> Result<Self, Diagnostics> {
        Draft::new(file, bytes, sets, None).into_source()
    }

    /// The recipe, every default filled in.
    pub fn recipe(&self) -> &R {
        &self.recipe
    }

    /// A mistake at a key such as `data.train`, for callers that find it later.
    pub fn diagnose(
        &self,
        key: &str,
        message: impl Into<String>,
        hint: Option<&str>,
    ) -> Diagnostics {
        let mut finding = Finding::new(key, message);
        finding.hint = hint.map(str::to_owned);
        self.diagnose_all(vec![finding])
    }

    /// Checks the recipe once more with something that was found out since, as `--set` writes it.
    pub fn again(&self, set: &str) -> Result<(), Diagnostics> {
        let mut tree = self.tree.clone();
        let mut mistakes = sets::apply(&mut tree, &[set.to_owned()]);
        let checked = check::check(&tree, R::schema());
        mistakes.extend(checked.mistakes);
        if let Some(Ok(recipe)) = checked.value.map(serde_json::from_value::<R>) {
            let findings = recipe.mistakes(&Tree(&tree));
            mistakes.extend(findings.into_iter().map(|f| locate(&self.tree, f)));
        }
        match mistakes.is_empty() {
            true => Ok(()),
            false => Err(self.texts.render(mistakes)),
        }
    }

    /// Whether a key is in the recipe, and no default.
    pub fn is_written(&self, key: &str) -> bool {
        self.tree.find(key).is_some()
    }

    /// Several mistakes at their keys.
    pub fn diagnose_all(&self, findings: Vec<Finding>) -> Diagnostics {
        self.texts.render(findings.into_iter().map(|f| locate(&self.tree, f)).collect())
    }
}

impl Source {
    /// Reads, checks and plans, and reports the mistakes of all three together. `survey` finds
    /// out what the data is, or says at which keys it cannot be read.
    pub fn load_and_plan(
        path: &Path,
        sets: &[String],
        survey: impl FnOnce(&mut Recipe) -> Result<DataFacts, Vec<Finding>>,
    ) -> Result<(Self, Plan), Diagnostics> {
        Draft::new(&file::name(path), &read(path)?, sets, file::folder(path)).into_plan(survey)
    }

    /// The same for bytes that are at hand.
    pub fn parse_and_plan(
        file: &str,
        bytes: &[u8],
        sets: &[String],
        survey: impl FnOnce(&mut Recipe) -> Result<DataFacts, Vec<Finding>>,
    ) -> Result<(Self, Plan), Diagnostics> {
        Draft::new(file, bytes, sets, None).into_plan(survey)
    }

    /// What would be done, given what the data turned out to be.
    pub fn plan(&self, facts: &DataFacts) -> Result<Plan, Diagnostics> {
        network::check(&self.recipe, facts, false).map_err(|f| self.diagnose_all(f))
    }
}

/// The plan of a recipe whose mistakes are still being collected, if these facts allow one.
pub fn planned(recipe: &Recipe, facts: &DataFacts) -> Option<Plan> {
    network::check(recipe, facts, false).ok()
}

/// What is known of a recipe while mistakes are still being collected.
struct Draft<R> {
    texts: Texts,
    tree: Option<Node>,
    recipe: Option<R>,
    layers_cut: bool,
    mistakes: Vec<Mistake>,
}

impl<R: Root> Draft<R> {
    fn new(file: &str, bytes: &[u8], sets: &[String], beside: Option<&Path>) -> Self {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(FILE_BYTES_MAX)]);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let mut draft = Self {
            texts: Texts::new(file, text, sets),
            tree: None,
            recipe: None,
            layers_cut: false,
            mistakes: Vec::new(),
        };
        match tree(bytes) {
            (Some(tree), mistakes) => {
                draft.mistakes = mistakes;
                draft.check(tree, sets, beside);
            }
            (None, mistakes) => draft.mistakes = mistakes,
        }
        draft
    }

    fn check(&mut self, mut tree: Node, sets: &[String], beside: Option<&Path>) {
        self.mistakes.extend(sets::apply(&mut tree, sets));
        if tree.depth() > DEPTH_MAX {
            let message = format!("`--set` nests the recipe deeper than {DEPTH_MAX} levels");
            self.mistakes.push(Mistake::new(tree.span, message, None));
            return;
        }
        if let Some((key, does, command)) = R::other(&Tree(&tree)) {
            // Other mistakes would be about keys that are right in the other kind of recipe.
            let message = format!("this recipe {does}: it has a `{key}`");
            let hint = format!("`{command}` reads it");
            self.mistakes.push(Mistake::new(tree.place_of(key), message, hint));
            self.tree = Some(tree);
            return;
        }
        let checked = check::check(&tree, R::schema());
        let sound = checked.mistakes.is_empty();
        self.mistakes.extend(checked.mistakes);
        self.layers_cut = checked.layers_cut;
        match checked.value.map(serde_json::from_value::<R>) {
            Some(Ok(mut recipe)) => {
                recipe.complete(&Tree(&tree), beside);
                let findings = recipe.mistakes(&Tree(&tree));
                self.mistakes.extend(findings.into_iter().map(|f| locate(&tree, f)));
                self.recipe = Some(recipe);
            }
            // The schema and the types come from one source, so this is for safety.
            Some(Err(error)) if sound => {
                self.mistakes.push(Mistake::new(tree.place(), error.to_string(), None));
            }
            _ => {}
        }
        self.tree = Some(tree);
    }

    /// Adds what the data has shown. Of a column or loss that has been told of already, nothing more is
    /// said: it would be the same mistake in other words.
    fn add(&mut self, findings: Vec<Finding>) {
        let Some(tree) = &self.tree else { return };
        for finding in findings {
            let is_one = finding.key.starts_with("data.table.") || finding.key == "train.loss";
            let mistake = locate(tree, finding);
            let is_told = is_one && self.mistakes.iter().any(|m| m.span == mistake.span);
            if !is_told {
                self.mistakes.push(mistake);
            }
        }
    }

    fn into_source(self) -> Result<Sound<R>, Diagnostics> {
        match (self.tree, self.recipe) {
            (Some(tree), Some(recipe)) if self.mistakes.is_empty() => {
                Ok(Sound { texts: self.texts, tree, recipe })
            }
            _ => Err(self.texts.render(self.mistakes)),
        }
    }
}

impl Draft<Recipe> {
    /// Asks what the data is, and plans. What `survey` changes of the recipe is planned with.
    fn into_plan(
        mut self,
        survey: impl FnOnce(&mut Recipe) -> Result<DataFacts, Vec<Finding>>,
    ) -> Result<(Source, Plan), Diagnostics> {
        let sound = self.recipe.as_ref().and_then(rules::without_unsound_parts);
        let plan = sound.and_then(|mut recipe| {
            let outcome = survey(&mut recipe)
                .and_then(|facts| network::check(&recipe, &facts, self.layers_cut));
            outcome.map_err(|findings| self.add(findings)).ok()
        });
        let texts = self.texts.clone();
        let source = self.into_source()?;
        // Without mistakes the network check has made a plan.
        plan.map(|plan| (source, plan)).ok_or_else(|| texts.render(vec![]))
    }
}

fn locate(tree: &Node, finding: Finding) -> Mistake {
    // A layer that does not fit because of a `--set` in it is that argument's mistake.
    let set = tree.find(&finding.key).filter(|_| finding.key.starts_with("model.layers."));
    let span = set.and_then(Node::overridden).unwrap_or_else(|| tree.place_of(&finding.key));
    Mistake::new(span, plain(&finding.message), finding.hint.map(|hint| plain(&hint)))
}

/// The file's tree, or why there is none.
fn tree(bytes: &[u8]) -> (Option<Node>, Vec<Mistake>) {
    let refuse = |span: Span, message: String, hint: &str| {
        (None, vec![Mistake::new(span, message, hint.to_owned())])
    };
    if bytes.len() > FILE_BYTES_MAX {
        let (message, hint) = too_large(None);
        return refuse(START, message, &hint);
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
            let byte = bytes.get(error.valid_up_to()).copied().unwrap_or(0);
            let message = format!("the recipe is not UTF-8 text: byte {byte:#04x}");
            return refuse(Span { line, column, ..START }, message, "save the file as UTF-8");
        }
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (node, mistakes) = yaml::parse(text, START);
    let example = "start with `name: my-run`, then `data:`, `model:` and `train:`";
    match node {
        Some(Node { kind: Kind::Map(_), .. }) => (node, mistakes),
        None if !mistakes.is_empty() => (None, mistakes),
        None | Some(Node { kind: Kind::Null, .. }) => {
            refuse(START, "the recipe is empty".into(), example)
        }
        Some(other) => {
            let message =
                format!("a recipe is a mapping of keys, but this is {}", other.describe());
            refuse(other.span, message, example)
        }
    }
}
