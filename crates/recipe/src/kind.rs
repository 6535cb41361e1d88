//! Kinds of job: what a recipe is a recipe of.
//!
//! Owns the list of kinds, and how a file's is told. What each kind's recipe holds is in `sections` and
//! `script`.

use crate::diagnostic::Diagnostics;
use crate::pool::Pool;
use crate::source::{JobSource, SCRIPT, Source, top_level_keys};
use std::path::Path;

/// What is done with machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// A network or a linear model is trained.
    Train,
    /// A script of the user's runs.
    Script,
}

impl JobKind {
    /// Of a file with these settings; a file that cannot be read counts as a recipe of a network.
    pub fn of_file(path: &Path, sets: &[String]) -> Self {
        Self::of(top_level_keys(path, sets).iter().any(|key| key == SCRIPT))
    }

    /// Of a run's own `recipe.yaml`, which we have written. It is not parsed: `runs` asks this of every
    /// run there is.
    pub fn of_resolved(text: &str) -> Self {
        let is_script = |line: &str| line.strip_prefix(SCRIPT).is_some_and(|l| l.starts_with(':'));
        Self::of(text.lines().any(is_script))
    }

    fn of(has_script: bool) -> Self {
        if has_script { Self::Script } else { Self::Train }
    }
}

/// A sound recipe of any kind.
#[derive(Debug, Clone)]
pub enum AnySource {
    Train(Box<Source>),
    Script(Box<JobSource>),
}

impl AnySource {
    /// Reads a recipe, applies `--set` arguments and checks it.
    pub fn load(path: &Path, sets: &[String]) -> Result<Self, Diagnostics> {
        Ok(match JobKind::of_file(path, sets) {
            JobKind::Train => Self::Train(Box::new(Source::load(path, sets)?)),
            JobKind::Script => Self::Script(Box::new(JobSource::load(path, sets)?)),
        })
    }

    /// Where its machines come from.
    pub fn pool(&self) -> &Pool {
        match self {
            Self::Train(source) => &source.recipe().pool,
            Self::Script(source) => &source.recipe().pool,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolved_recipe_tells_its_kind_by_a_key_at_the_top() {
        for (text, expect) in [
            ("name: a\nscript:\n  file: a.py\n", JobKind::Script),
            ("name: script\nmodel: {}\n", JobKind::Train),
            ("name: a\nscripts: 1\nmodel:\n  script: 1\n", JobKind::Train),
        ] {
            assert_eq!(JobKind::of_resolved(text), expect, "{text}");
        }
    }
}
