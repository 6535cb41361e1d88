//! Whether the data of a recipe is on a machine, and is the same as here.
//!
//! Owns the question, which goes to the standard input of `planaria agent data` on the machine, and
//! the answer. For `plan`, by counts and sizes; for `doctor`, by content too. A run asks nothing:
//! its workers compare the data as they open it, and a machine that lacks it is given up.

use crate::agents::host;
use planaria_data::{DataSet, Facts};
use planaria_fleet::program::Program;
use planaria_fleet::provider::{Call, Fault, Machine, Provider, Tag};
use planaria_recipe::Recipe;
use planaria_runs::failure::Result;
use planaria_worker::features;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the program is called with on a machine.
const ARGUMENTS: [&str; 2] = ["agent", "data"];
/// What to do about data that is missing or different.
pub const HINT: &str = "put it there under the same path, or add a `copy` step to `setup`";

/// What data should be like.
#[derive(Debug, Serialize, Deserialize)]
pub struct Look {
    recipe: Box<Recipe>,
    /// Examples to learn from, for validation and for test.
    examples: [u64; 3],
    /// Files with their sizes.
    files: Vec<(String, u64)>,
    /// Files with what tells their content, where that is to be compared.
    marks: Option<Vec<(String, String)>>,
}

/// What came of looking.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Seen {
    /// What is missing or different.
    wrong: Option<String>,
}

impl Look {
    /// For data as it is here; nothing where no worker reads files.
    pub fn new(recipe: &Recipe, facts: &Facts) -> Option<Self> {
        // Methods without shards give workers their rows.
        if facts.files.is_empty() || !recipe.train.traits().has_shards {
            return None;
        }
        Some(Self {
            recipe: Box::new(recipe.clone()),
            examples: [facts.train, facts.validation, facts.test],
            files: files(facts),
            marks: None,
        })
    }

    /// The same, by content.
    pub fn with_content(self, data: &DataSet) -> Self {
        Self { marks: Some(marks(data)), ..self }
    }

    /// Asks a machine what of the data is missing or different there.
    pub fn ask(
        &self,
        provider: &dyn Provider,
        run: &Tag,
        machine: &Machine,
        program: &Program,
        within: Duration,
    ) -> Result<Option<String>, Fault> {
        let input = serde_json::to_vec(self).expect("a recipe has string keys only");
        let call = Call { program, arguments: &ARGUMENTS, input: &input, within };
        let ran = provider.run(run, machine, &call)?;
        let seen: Option<Seen> = serde_json::from_slice(&ran.stdout).ok();
        match seen {
            Some(Seen { wrong }) => Ok(wrong),
            None => {
                let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
                let what = format!("its data could not be looked at: exit {} {said}", ran.code);
                Err(Fault::retry(&machine.name, what.trim_end()))
            }
        }
    }

    /// What is missing or different on this machine.
    fn wrong(&self) -> Option<String> {
        let recipe = &self.recipe;
        let facts = match features::peek(recipe) {
            Ok(facts) => facts,
            Err(error) => return Some(error.to_string()),
        };
        for (name, bytes) in files(&facts) {
            let other = self.files.iter().find(|(known, size)| *known == name && *size != bytes);
            if let Some((_, expect)) = other {
                return Some(format!("`{name}` has {bytes} bytes, not {expect} as here"));
            }
        }
        let found = [facts.train, facts.validation, facts.test];
        if found != self.examples || files(&facts).len() != self.files.len() {
            let words = |[train, validation, test]: [u64; 3]| {
                format!("{train} for training, {validation} for validation and {test} for test")
            };
            let train = &recipe.data.train;
            let (found, expect) = (words(found), words(self.examples));
            return Some(format!("`{train}` has {found} examples, not {expect} as here"));
        }
        let marks_here = self.marks.as_ref()?;
        match features::open(recipe, 1) {
            Err(error) => Some(error.to_string()),
            Ok(data) => {
                let found = marks(&data);
                let other = found.iter().zip(marks_here).find(|(found, here)| found != here);
                other.map(|((name, _), _)| {
                    format!("the content of `{name}` is not the same as here")
                })
            }
        }
    }
}

/// `planaria agent data`: looks, as standard input says, and gives the answer.
pub fn answer() -> Result<String> {
    let look: Look = host::orders()?;
    let seen = Seen { wrong: look.wrong() };
    Ok(serde_json::to_string(&seen).expect("plain values have string keys only") + "\n")
}

fn files(facts: &Facts) -> Vec<(String, u64)> {
    facts.files.iter().map(|file| (file.path.display().to_string(), file.bytes)).collect()
}

fn marks(data: &DataSet) -> Vec<(String, String)> {
    data.marks.iter().map(|mark| (mark.name.clone(), mark.content.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_recipe::Source;

    fn csv(folder: &std::path::Path, rows: &str) -> String {
        let path = folder.join("a.csv");
        std::fs::write(&path, format!("x,y,label\n{rows}")).unwrap();
        path.display().to_string()
    }

    #[test]
    fn data_that_is_missing_or_different_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = csv(folder.path(), "1,2,a\n3,4,b\n5,6,a\n7,8,b\n");
        let text = format!(
            "name: a\ndata: {{train: {path}, table: {{label: label}}}}\nmodel: {{preset: mlp}}\n"
        );
        let source = Source::parse("r.yaml", text.as_bytes(), &[]);
        let recipe = source.unwrap_or_else(|mistakes| panic!("{mistakes}")).recipe().clone();
        let facts = features::peek(&recipe).unwrap();
        let data = features::open(&recipe, 1).unwrap();
        let look = Look::new(&recipe, &facts).unwrap().with_content(&data);
        assert_eq!(look.wrong(), None);
        csv(folder.path(), "1,2,a\n3,4,b\n5,6,a\n7,9,b\n");
        assert!(look.wrong().unwrap().contains("content of"), "{:?}", look.wrong());
        csv(folder.path(), "1,2,a\n3,4,b\n5,6,a\n");
        assert!(look.wrong().unwrap().contains("bytes, not"), "{:?}", look.wrong());
        std::fs::remove_file(folder.path().join("a.csv")).unwrap();
        assert!(look.wrong().unwrap().contains("a.csv"), "{:?}", look.wrong());
    }
}
