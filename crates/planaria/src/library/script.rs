//! A user's script from a program of one's own.
//!
//! ```no_run
//! use planaria::Planaria;
//! let report = Planaria::script("train.py").workers(5).epochs(5).data("images").pool("lab.yaml").run()?;
//! println!("{} {:?}", report.outcome, report.figures);
//! # Ok::<(), planaria::failure::Failure>(())
//! ```

use crate::library::Begin;
use crate::screen;
use planaria_control::jobs::script::report::Report;
use planaria_control::jobs::script::run::{self, Asked, Finished};
use planaria_control::program;
use planaria_control::survey::{check_output, check_setup};
use planaria_control::talk::Talk;
use planaria_recipe::JobSource;
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::Result;
use planaria_runs::run_dir::plain_name;
use serde_json::json;
use std::path::{Path, PathBuf};

/// A script to be run.
#[derive(Debug, Clone)]
#[must_use = "nothing runs until `run` is called"]
pub struct Script {
    /// The recipe, or the one whose pool is used.
    recipe: Option<PathBuf>,
    sets: Vec<String>,
    talk: Talk,
    process: Option<Stopwatch>,
    begin: Option<Begin>,
    program: Option<PathBuf>,
}

impl Script {
    /// A script, relative to the current directory.
    pub fn new(file: impl AsRef<Path>) -> Self {
        program::is_of_build(crate::BUILD);
        let file = file.as_ref();
        let name = file.file_stem().map_or_else(|| "script".into(), |name| name.to_string_lossy());
        let script = Self {
            recipe: None,
            sets: Vec::new(),
            talk: Talk::QUIET,
            process: None,
            begin: None,
            program: None,
        };
        script.set_value("name", &json!(plain_name(&name))).set_value("script.file", &json!(file))
    }

    /// A recipe with a `script`.
    pub fn from_recipe(path: impl Into<PathBuf>) -> Self {
        program::is_of_build(crate::BUILD);
        let (recipe, sets, talk) = (Some(path.into()), Vec::new(), Talk::QUIET);
        Self { recipe, sets, talk, process: None, begin: None, program: None }
    }

    /// Worker processes.
    pub fn workers(self, workers: usize) -> Self {
        self.set_value("pool.workers", &json!(workers))
    }

    /// Epochs: field `epochs` of the arguments, or `--epochs=…`.
    pub fn epochs(self, epochs: u64) -> Self {
        self.set_value("script.epochs", &json!(epochs))
    }

    /// File or folder here that every machine gets: field `data` of the arguments, or `--data=…`.
    pub fn data(self, path: impl AsRef<Path>) -> Self {
        self.set_value("script.data", &json!(path.as_ref()))
    }

    /// The script's arguments.
    pub fn args<T: Into<String>>(self, args: impl IntoIterator<Item = T>) -> Self {
        let args: Vec<String> = args.into_iter().map(Into::into).collect();
        self.set_value("script.args", &json!(args))
    }

    /// Files to bring back, as patterns.
    pub fn outputs<T: Into<String>>(self, patterns: impl IntoIterator<Item = T>) -> Self {
        let patterns: Vec<String> = patterns.into_iter().map(Into::into).collect();
        self.set_value("script.outputs", &json!(patterns))
    }

    /// A recipe whose `pool` and `setup` are used.
    pub fn pool(mut self, recipe: impl Into<PathBuf>) -> Self {
        self.recipe = Some(recipe.into());
        self
    }

    /// Folder of run directories.
    pub fn output_dir(self, folder: impl AsRef<Path>) -> Self {
        self.set_value("output.dir", &json!(folder.as_ref()))
    }

    /// Sets a key of the recipe, such as `script.port`, to a value as recipes write it.
    pub fn set(self, key: &str, value: &str) -> Self {
        self.set_text(&format!("{key}={value}"))
    }

    /// Whether nothing is said on stderr; so when left out.
    pub fn quiet(mut self, quiet: bool) -> Self {
        self.talk = screen::talk(quiet);
        self
    }

    /// The `planaria` program that processes of the run are started from; found when left out.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Runs it to its end.
    pub fn run(self) -> Result<Report> {
        let Finished { report, failure, .. } = self.start()?;
        failure.map_or(Ok(report), Err)
    }

    pub(crate) fn set_text(mut self, set: &str) -> Self {
        self.sets.push(set.to_owned());
        self
    }

    pub(crate) fn talking(mut self, talk: Talk, process: Stopwatch) -> Self {
        (self.talk, self.process) = (talk, Some(process));
        self
    }

    /// What is done with the run's folder as soon as there is one.
    pub(crate) fn beginning(mut self, begin: Begin) -> Self {
        self.begin = Some(begin);
        self
    }

    /// The recipe, checked.
    pub(crate) fn source(&self) -> Result<JobSource> {
        let source = match &self.recipe {
            Some(recipe) => JobSource::load(recipe, &self.sets),
            // All of it is in the settings.
            None => JobSource::parse("the command", b"{name: script}", &self.sets),
        };
        Ok(source?)
    }

    /// Runs it, and also says why it failed.
    pub(crate) fn start(self) -> Result<Finished> {
        let source = self.source()?;
        check_output(&source, &source.recipe().output.dir)?;
        check_setup(&source, &source.recipe().setup)?;
        run::run(&Asked {
            source: &source,
            talk: self.talk,
            process: self.process.unwrap_or_else(Stopwatch::start),
            program: self.program.as_deref(),
            begin: self.begin,
        })
    }

    fn set_value(self, key: &str, value: &serde_json::Value) -> Self {
        self.set(key, &value.to_string())
    }
}
