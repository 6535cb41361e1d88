//! Recipes of the user's own scripts: what is run, as which processes, and what is kept of it.
//!
//! Owns the vocabulary, and how many processes of which role there are. Never reads the script.

use crate::pool::{Pool, Workers};
use crate::setup::{Action, SecretSource, SecretText, Step, Words};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Processes of one job, at most.
pub const PROCESSES_MAX: usize = 4096;
/// Environment of `pip` steps that name none.
pub const VENV_DEFAULT: &str = "~/.cache/planaria/venv";
/// The role that every framework has.
pub const WORKER: &str = "worker";
/// The role that decides when the job is done.
pub const CHIEF: &str = "chief";
/// The same, as TensorFlow 1 called it.
pub const MASTER: &str = "master";
/// The role of processes that never end by themselves.
pub const PS: &str = "ps";
/// The role of processes that look on.
pub const EVALUATOR: &str = "evaluator";

/// Fields of arguments that tell one process from another.
pub const PROCESS_FIELDS: [&str; 6] =
    ["role", "index", "rank", "world_size", "local_rank", "local_world_size"];
/// The others, besides those of roles (`ps_hosts`…).
const OTHER_FIELDS: [&str; 11] = [
    "machine",
    "machine_index",
    "machines",
    "address",
    "port",
    "master_addr",
    "master_port",
    "hosts",
    "run",
    "epochs",
    "data",
];

/// A whole recipe of a script, every default filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Names the run directory.
    pub name: String,
    /// Where machines come from; this one when left out.
    #[serde(default)]
    pub pool: Pool,
    /// What machines need before they can work: steps, in order, on each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<Step>,
    /// What is run.
    pub script: Script,
    /// Where it is kept.
    #[serde(default)]
    pub output: JobOutput,
}

/// The `output` section of a script's recipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct JobOutput {
    /// Folder of run directories.
    pub dir: String,
}

impl Default for JobOutput {
    fn default() -> Self {
        Self { dir: "runs".into() }
    }
}

/// The `script` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The script, relative to the current directory, or else to the recipe's folder.
    pub file: String,
    /// What it is written for; told from what it imports when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<Framework>,
    /// What starts the processes of `framework: pytorch`.
    #[serde(default)]
    pub launcher: Launcher,
    /// More options for `torchrun` or `mpirun`, such as `--tag-output`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher_options: Option<Words>,
    /// Its arguments. `{{role}}`, `{{index}}`, `{{rank}}`, `{{worker_hosts}}`… are filled in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Argument>,
    /// Variables of its processes alone. Secrets as references: `${env:NAME}` for a variable here,
    /// `file:PATH` for a file here. Others may have fields as arguments have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, SecretText>,
    /// Processes of each role, such as `{chief: 1, worker: 2, ps: 1}`; the pool's workers when left
    /// out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, usize>,
    /// Worker processes on each machine: a number, `core` or `gpu`; the pool's workers are shared
    /// out when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_machine: Option<PerMachine>,
    /// Files to bring back, as patterns relative to the code's folder: `*.pt`, `logs/**`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Words>,
    /// How often processes that fail are started again, in all.
    #[serde(default = "three")]
    #[cfg_attr(test, schemars(range(min = 0, max = 1000)))]
    pub max_restarts: u32,
    /// Folder that goes to every machine, without what git ignores; the script's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Python on the machines; that of the last `pip` step's environment when left out, else
    /// `python3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// First port of the processes on each machine; free ones are chosen when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(range(min = 1, max = 65535)))]
    pub port: Option<u16>,
    /// How long processes may take until they have found each other.
    #[serde(default = "five_minutes")]
    #[cfg_attr(test, schemars(range(min = 1, max = 86400)))]
    pub connect_seconds: u64,
    /// How long the job may take in all, from the first start of its processes; no bound when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(range(min = 1, max = 31_536_000)))]
    pub timeout: Option<u64>,
    /// How long all its processes together may write nothing; no bound when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(range(min = 1, max = 31_536_000)))]
    pub silence: Option<u64>,
    /// How long a process may take to end when it is asked to, before it is killed.
    #[serde(default = "five")]
    #[cfg_attr(test, schemars(range(min = 0, max = 3600)))]
    pub stop_seconds: u64,
    /// Folder of TensorBoard's event files, relative to the code's folder: they are brought here as
    /// they grow, and TensorBoard is started on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensorboard: Option<String>,
    /// Field `epochs` of arguments; where they do not use it, `--epochs=…` is added to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(range(min = 1, max = 1_000_000)))]
    pub epochs: Option<u64>,
    /// Figures in what processes write, by name: an expression for each, whose first group is the number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, String>,
    /// File or folder here that goes to every machine once; its place there is field `data` of
    /// arguments; where they do not use it, `--data=…` is added to them. Or several by name, such as
    /// `{train: a, test: b}`: fields `data_train`, `data_test`, and `--train=…`, `--test=…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
    /// Folder that the script is started in, relative to the code's; that itself when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
}

/// Data that goes to every machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ScriptData"))]
#[serde(untagged)]
pub enum Data {
    /// A file or folder.
    One(String),
    /// Several, by name.
    Several(BTreeMap<String, String>),
}

/// One of the data of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSet {
    /// Where the recipe has it.
    pub key: String,
    /// The field of arguments that is its place.
    pub field: String,
    /// The argument that is added where none has the field.
    pub option: String,
    /// The file or folder here.
    pub path: String,
}

/// What a script is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Framework {
    /// TensorFlow 2: `TF_CONFIG`.
    Tensorflow,
    /// PyTorch: `MASTER_ADDR`, `RANK`… or torchrun.
    Pytorch,
    /// JAX: `JAX_COORDINATOR_ADDRESS`.
    Jax,
    /// Horovod with gloo: `HOROVOD_RANK`…
    Horovod,
    /// Open MPI: `mpirun` on the first machine, with a file of hosts.
    Mpi,
    /// Anything: arguments alone.
    Plain,
}

impl Framework {
    /// As recipes write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tensorflow => "tensorflow",
            Self::Pytorch => "pytorch",
            Self::Jax => "jax",
            Self::Horovod => "horovod",
            Self::Mpi => "mpi",
            Self::Plain => "plain",
        }
    }
}

/// What starts processes of PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Launcher {
    /// Each process by itself.
    #[default]
    Direct,
    /// One `torchrun` on each machine, elastic.
    Torchrun,
}

/// Worker processes on each machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum PerMachine {
    /// A fixed number.
    Count(#[cfg_attr(test, schemars(range(min = 1, max = 4096)))] usize),
    /// One for each `core` or `gpu` that the machine has.
    Each(String),
}

/// What a machine has several of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Each {
    Core,
    Gpu,
}

impl PerMachine {
    /// One for each of what; nothing where it is a number, or no word for anything.
    pub fn each(&self) -> Option<Each> {
        match self {
            Self::Each(word) if word == "core" => Some(Each::Core),
            Self::Each(word) if word == "gpu" => Some(Each::Gpu),
            _ => None,
        }
    }
}

/// An argument of a script.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Argument {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(
        #[cfg_attr(test, schemars(range(min = -9007199254740991i64, max = 9007199254740991i64)))]
        i64,
    ),
    /// A number.
    Float(f64),
    /// Text, with fields.
    Text(String),
}

impl Argument {
    /// As the script reads it.
    pub fn text(&self) -> String {
        match self {
            Self::Bool(flag) => flag.to_string(),
            Self::Int(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

impl Script {
    /// A script with every default.
    pub fn new(file: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            framework: None,
            launcher: Launcher::Direct,
            launcher_options: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            roles: BTreeMap::new(),
            per_machine: None,
            outputs: None,
            max_restarts: three(),
            code: None,
            python: None,
            port: None,
            connect_seconds: five_minutes(),
            timeout: None,
            silence: None,
            stop_seconds: five(),
            tensorboard: None,
            epochs: None,
            metrics: BTreeMap::new(),
            data: None,
            workdir: None,
        }
    }

    /// The folder that goes to machines.
    pub fn code_folder(&self) -> String {
        match (&self.code, Path::new(&self.file).parent()) {
            (Some(folder), _) => folder.clone(),
            (None, Some(folder)) if folder != Path::new("") => folder.display().to_string(),
            _ => ".".into(),
        }
    }

    /// Every argument, with those that follow from other keys.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = self.args.iter().map(Argument::text).collect();
        let epochs = self.epochs.map(|_| ("epochs".to_owned(), "epochs".to_owned()));
        let data = self.data_sets().into_iter().map(|set| (set.option, set.field));
        for (option, field) in epochs.into_iter().chain(data) {
            if !arguments.iter().any(|text| fields(text).any(|used| used == field)) {
                arguments.push(format!("--{option}={{{{{field}}}}}"));
            }
        }
        arguments
    }

    /// The data that goes to machines.
    pub fn data_sets(&self) -> Vec<DataSet> {
        let set = |key: &str, field: &str, option: &str, path: &String| DataSet {
            key: key.to_owned(),
            field: field.to_owned(),
            option: option.to_owned(),
            path: path.clone(),
        };
        match &self.data {
            None => Vec::new(),
            Some(Data::One(path)) => vec![set("script.data", "data", "data", path)],
            Some(Data::Several(all)) => all
                .iter()
                .map(|(name, path)| {
                    set(&format!("script.data.{name}"), &format!("data_{name}"), name, path)
                })
                .collect(),
        }
    }

    /// Fields that arguments may have.
    pub fn fields(&self) -> Vec<String> {
        let own = PROCESS_FIELDS.iter().chain(&OTHER_FIELDS).filter(|field| match **field {
            "epochs" => self.epochs.is_some(),
            "data" => false,
            _ => true,
        });
        let data = self.data_sets().into_iter().map(|set| set.field);
        let roles = self.role_names().into_iter().map(|role| format!("{role}_hosts"));
        own.map(|field| (*field).to_owned()).chain(data).chain(roles).collect()
    }

    /// Its roles: those that were named, and workers where machines say how many, or workers alone.
    pub fn role_names(&self) -> Vec<String> {
        match self.roles.is_empty() {
            true => vec![WORKER.to_owned()],
            false => {
                let mut roles: Vec<String> = self.roles.keys().cloned().collect();
                if self.per_machine.is_some() && !self.roles.contains_key(WORKER) {
                    roles.push(WORKER.to_owned());
                }
                roles.sort_by_key(|role| (place_of(role), role.clone()));
                roles
            }
        }
    }

    /// Whether a process that runs as `role`, the first of all or not, is one that others are told to
    /// connect to: then it has to listen on its port.
    pub fn must_listen(&self, role: &str, is_first: bool) -> bool {
        let own = format!("{role}_hosts");
        self.uses(|field| field == "hosts" || field == own || (is_first && field == "master_port"))
    }

    /// Whether processes get each other's addresses.
    pub fn tells_places(&self) -> bool {
        self.uses(|field| {
            ["hosts", "master_addr", "master_port"].contains(&field) || field.ends_with("_hosts")
        })
    }

    /// Whether anything that processes are told has such a field.
    fn uses(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        let arguments = self.arguments();
        let variables = self.filled_variables().map(|(_, text)| text);
        arguments
            .iter()
            .map(String::as_str)
            .chain(variables)
            .any(|text| fields(text).any(&is_meant))
    }

    /// Variables that are no secrets and have `{{`, with their texts.
    pub fn filled_variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env.iter().filter_map(|(name, text)| match text.source() {
            Ok(SecretSource::Here(text)) if text.contains("{{") => Some((name.as_str(), text)),
            _ => None,
        })
    }

    /// Options for what starts the processes.
    pub fn launcher_options(&self) -> Vec<String> {
        let options = self.launcher_options.as_ref();
        options.map_or_else(Vec::new, |options| options.list().map(str::to_owned).collect())
    }

    /// Patterns of what is brought back.
    pub fn output_patterns(&self) -> Vec<String> {
        self.outputs
            .as_ref()
            .map_or_else(Vec::new, |outputs| outputs.list().map(str::to_owned).collect())
    }
}

/// Ranks are given in the order of roles: those that decide first, services last.
fn place_of(role: &str) -> u8 {
    match role {
        CHIEF | MASTER => 0,
        WORKER => 1,
        PS => 3,
        EVALUATOR => 4,
        _ => 2,
    }
}

impl Job {
    /// Worker processes, where that does not depend on what machines have.
    pub fn worker_count(&self) -> usize {
        match (self.script.roles.get(WORKER), &self.script.per_machine) {
            (_, Some(PerMachine::Count(count))) => count * self.machine_count(),
            (Some(count), _) => *count,
            (None, _) if !self.script.roles.is_empty() => 0,
            (None, _) => self.pool.workers.max(),
        }
    }

    /// As many workers as there are roles for, or one on each machine.
    pub(crate) fn set_default_workers(&mut self) {
        let workers = match (&self.script.per_machine, self.script.roles.get(WORKER)) {
            (Some(PerMachine::Count(count)), _) => count.saturating_mul(self.machine_count()),
            (None, Some(count)) => *count,
            (None, None) if self.script.roles.is_empty() => self.machine_count(),
            _ => 1,
        };
        self.pool.workers = Workers::Count(workers.max(1));
    }

    /// Processes of each role, in the order of their ranks.
    pub fn role_counts(&self) -> Vec<(String, usize)> {
        let counted = self.script.role_names().into_iter().map(|role| {
            let count = match role.as_str() {
                WORKER => self.worker_count(),
                other => self.script.roles.get(other).copied().unwrap_or(0),
            };
            (role, count)
        });
        counted.filter(|(_, count)| *count > 0).collect()
    }

    /// Machines to have at a time: one, where nothing else is said.
    pub fn machine_count(&self) -> usize {
        self.pool.machine_count().max(1)
    }

    /// Python on the machines.
    pub fn python(&self) -> String {
        let venv = self.setup.iter().rev().find_map(|step| match step.action() {
            Some(Action::Pip { venv, .. }) => Some(venv.unwrap_or(VENV_DEFAULT)),
            _ => None,
        });
        match (&self.script.python, venv) {
            (Some(python), _) => python.clone(),
            (None, Some(venv)) => format!("{}/bin/python", venv.trim_end_matches('/')),
            (None, None) => "python3".into(),
        }
    }

    /// Variables of this machine that secrets are taken from.
    pub fn variables(&self) -> Vec<String> {
        let own = self.script.env.values().filter_map(|text| match text.source() {
            Ok(SecretSource::Env(name)) => Some(name),
            _ => None,
        });
        own.chain(self.setup.iter().flat_map(Step::variables)).map(str::to_owned).collect()
    }
}

/// The fields that a text uses. `{{{{` stands for `{{` itself.
pub fn fields(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let (_, after) = rest.split_once("{{")?;
            if let Some(behind) = after.strip_prefix("{{") {
                rest = behind;
                continue;
            }
            let (field, behind) = after.split_once("}}")?;
            rest = behind;
            return Some(field.trim());
        }
    })
}

/// Whether a field of a text is begun and not ended.
pub fn is_unclosed(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("{{") {
        let behind = after.strip_prefix("{{");
        match behind.or_else(|| after.split_once("}}").map(|(_, behind)| behind)) {
            Some(behind) => rest = behind,
            None => return true,
        }
    }
    false
}

fn three() -> u32 {
    3
}

fn five() -> u64 {
    5
}

fn five_minutes() -> u64 {
    300
}

#[cfg(test)]
mod tests;
