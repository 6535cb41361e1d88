//! Steps with all that they name: files read and hashed, secrets looked up, templates taken apart.
//!
//! Owns what is found wrong before anything exists, and what makes a step the same as one that was
//! done before. Runs nothing.

use super::ansible::Playbook;
use super::files::Content;
use super::secrets::{self, Secret};
use super::template::Template;
use super::{Job, script};
use crate::home::at_home;
use crate::made::Made;
use crate::provider::Fault;
use crate::redact::Secrets;
use planaria_recipe::setup::{Action, FIELDS, Scalar, Step, Words};
use planaria_store::hash::{Hasher, hex, sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// Goes into every mark: another way of doing things makes other marks.
const VERSION: &str = "planaria setup 1";
/// How long an attempt may take, unless the step says so.
const SECONDS: u64 = 900;
/// Longest template.
const TEMPLATE_BYTES_MAX: u64 = 1 << 20;
/// Permissions of what a template becomes; of one with a secret in it, the owner's alone.
const MODE: u32 = 0o644;
const MODE_SECRET: u32 = 0o600;

/// The steps of a recipe, ready for any number of machines at the same time.
pub struct Setup {
    pub(super) steps: Vec<Prepared>,
    pub(super) secrets: Secrets,
}

/// A step with all that it names.
pub struct Prepared {
    step: Step,
    /// Its number in the recipe, from 1.
    pub number: usize,
    /// What it is called.
    pub title: String,
    pub(super) work: StepKind,
    pub(super) env: Vec<(String, String)>,
    pub(super) within: Duration,
    pub(super) retries: u32,
}

/// What a step does.
pub(super) enum StepKind {
    Apt(Vec<String>),
    Pip { packages: Vec<String>, venv: String },
    Copy { content: Content, to: String },
    Template { template: Template, values: BTreeMap<String, Secret>, to: String, mode: u32 },
    Run(String),
    Check(String),
    Ansible(Playbook),
}

impl Setup {
    /// Reads all that the steps name. A fault is one of the recipe, or of this machine.
    pub fn prepare(steps: &[Step]) -> Result<Self, Fault> {
        let mut looked_up = Vec::new();
        let prepared = steps.iter().enumerate();
        let prepared = prepared.map(|(n, step)| prepare(n + 1, step, &mut looked_up));
        let steps = prepared.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { steps, secrets: Secrets::new(looked_up.iter().filter_map(Secret::hidden)) })
    }

    /// All that is wrong with what steps name, each with its place among them; quick, so that it can
    /// be told with other mistakes of the recipe. [`Setup::prepare`] finds what takes reading more.
    pub fn faults(steps: &[Step]) -> Vec<(usize, Fault)> {
        let fault = |(at, step): (usize, &Step)| Some((at, check(step).err()?));
        steps.iter().enumerate().filter_map(fault).collect()
    }

    /// Whether there is nothing to do on any machine.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The steps of a machine in these groups, in order.
    pub fn plan<'s>(&'s self, groups: &'s [String]) -> impl Iterator<Item = &'s Prepared> {
        self.steps.iter().filter(|prepared| prepared.step.is_for(groups))
    }

    /// Secrets, to be taken out of all that is shown.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }
}

impl Prepared {
    /// What says that this step was done: a hash over its own content, wherever it stands among
    /// others. Nothing for what is done every time.
    pub(super) fn mark(&self, job: &Job<'_>) -> Option<String> {
        let mut hash = Hasher::new();
        let mut add = |part: &[u8]| {
            // Lengths in front, so that no two steps read the same.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        add(VERSION.as_bytes());
        match &self.work {
            StepKind::Check(_) => return None,
            StepKind::Apt(packages) => {
                add(b"apt");
                packages.iter().for_each(|package| add(package.as_bytes()));
            }
            StepKind::Pip { packages, venv } => {
                add(b"pip");
                add(venv.as_bytes());
                packages.iter().for_each(|package| add(package.as_bytes()));
            }
            StepKind::Copy { content, to } => {
                add(b"copy");
                add(to.as_bytes());
                add(&content.hash);
            }
            StepKind::Template { to, mode, .. } => {
                add(b"template");
                add(to.as_bytes());
                add(&mode.to_le_bytes());
                add(self.filled(job).unwrap_or_default().as_bytes());
            }
            StepKind::Run(command) => {
                add(b"run");
                add(command.as_bytes());
            }
            StepKind::Ansible(playbook) => {
                add(b"ansible");
                add(job.machine.name.as_bytes());
                add(&playbook.hash);
            }
        }
        for (name, value) in &self.env {
            add(name.as_bytes());
            add(&sha256(value.as_bytes()));
        }
        Some(hex(&hash.finish()))
    }

    /// What it makes that can be looked for afterwards.
    pub(super) fn made(&self) -> Option<Made> {
        match &self.work {
            StepKind::Copy { content, to } => Some(Made { to: to.clone(), names: content.names() }),
            StepKind::Template { to, .. } => Some(Made { to: to.clone(), names: vec![Vec::new()] }),
            _ => None,
        }
    }

    /// A template's text for a machine.
    pub(super) fn filled(&self, job: &Job<'_>) -> Option<String> {
        let StepKind::Template { template, values, .. } = &self.work else { return None };
        let groups = job.machine.groups.join(",");
        let own = [&*job.machine.name, job.run.as_str(), &groups];
        let mut fields: BTreeMap<&str, &str> = FIELDS.into_iter().zip(own).collect();
        fields.extend(values.iter().map(|(name, value)| (&**name, value.reveal())));
        Some(template.fill(&fields))
    }
}

fn prepare(number: usize, step: &Step, looked_up: &mut Vec<Secret>) -> Result<Prepared, Fault> {
    let named = |fault: Fault| Fault { what: format!("step {number}: {}", fault.what), ..fault };
    let mut env = Vec::new();
    for (name, text) in &step.env {
        let secret = secrets::resolve(text).map_err(named)?;
        env.push((name.clone(), secret.reveal().to_owned()));
        looked_up.push(secret);
    }
    let work = work(step, looked_up).map_err(named)?;
    let patient = matches!(work, StepKind::Apt(_) | StepKind::Pip { .. });
    Ok(Prepared {
        step: step.clone(),
        number,
        title: step.title(),
        work,
        env,
        within: Duration::from_secs(step.seconds.unwrap_or(SECONDS)),
        retries: step.retries.unwrap_or(u32::from(patient)),
    })
}

/// What [`prepare`] would find wrong, without reading what is copied.
fn check(step: &Step) -> Result<(), Fault> {
    step.env.values().try_for_each(|text| secrets::resolve(text).map(drop))?;
    match step.action() {
        Some(Action::Copy { from, .. }) => {
            std::fs::metadata(at_home(from)).map(drop).map_err(|e| unreadable(from, &e))
        }
        _ => work(step, &mut Vec::new()).map(drop),
    }
}

fn work(step: &Step, looked_up: &mut Vec<Secret>) -> Result<StepKind, Fault> {
    let owned = |words: &Words| words.list().map(str::to_owned).collect::<Vec<_>>();
    Ok(match step.action() {
        None => return Err(Fault::fix("setup", "it names no action, or several", "name one")),
        Some(Action::Apt(packages)) => StepKind::Apt(owned(packages)),
        Some(Action::Pip { packages, venv }) => {
            let venv = venv.unwrap_or(script::VENV).to_owned();
            StepKind::Pip { packages: requirements(packages)?, venv }
        }
        Some(Action::Run(command)) => StepKind::Run(command.to_owned()),
        Some(Action::Check(command)) => StepKind::Check(command.to_owned()),
        Some(Action::Copy { from, to }) => {
            let content = Content::read(&at_home(from), step.mode_bits());
            StepKind::Copy {
                content: content.map_err(|e| unreadable(from, &e))?,
                to: to.to_owned(),
            }
        }
        Some(Action::Ansible(playbook)) => {
            let read = Playbook::read(&at_home(playbook));
            StepKind::Ansible(read.map_err(|e| unreadable(playbook, &e))?)
        }
        Some(Action::Template { from, to, values }) => template(step, from, to, values, looked_up)?,
    })
}

/// Packages of Python, with those that files of requirements (`-r FILE`) name.
fn requirements(words: &Words) -> Result<Vec<String>, Fault> {
    let mut packages = Vec::new();
    for word in words.list() {
        let Some(path) = word.strip_prefix("-r ").map(str::trim) else {
            packages.push(word.to_owned());
            continue;
        };
        let text = read_text(&at_home(path)).map_err(|e| unreadable(path, &e))?;
        for (number, line) in text.lines().enumerate() {
            let line = line.split(" #").next().unwrap_or_default().trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with('-') || line.ends_with('\\') {
                let what =
                    format!("line {} of `{path}` is not one requirement: {line}", number + 1);
                let hint = "options of pip can be given by a `run` step";
                return Err(Fault::fix("setup", what, hint));
            }
            packages.push(line.to_owned());
        }
    }
    Ok(packages)
}

fn template(
    step: &Step,
    from: &str,
    to: &str,
    values: &BTreeMap<String, Scalar>,
    looked_up: &mut Vec<Secret>,
) -> Result<StepKind, Fault> {
    let text = read_text(&at_home(from)).map_err(|e| unreadable(from, &e))?;
    let known: Vec<&str> = FIELDS.into_iter().chain(values.keys().map(String::as_str)).collect();
    let template = Template::parse(&text, &known).map_err(|why| {
        let what = format!("template `{from}`, {why}");
        Fault::fix("setup", what, "add it to `values`, or take it out of the template")
    })?;
    let (mut filled, mut is_secret) = (BTreeMap::new(), false);
    for (name, value) in values {
        let value = match value {
            Scalar::Bool(value) => Secret::plain(value.to_string()),
            Scalar::Int(value) => Secret::plain(value.to_string()),
            Scalar::Float(value) => Secret::plain(format!("{value:?}")),
            Scalar::Text(text) => secrets::resolve(text)?,
        };
        is_secret |= value.hidden().is_some();
        looked_up.push(value.clone());
        filled.insert(name.clone(), value);
    }
    let mode = step.mode_bits().unwrap_or(if is_secret { MODE_SECRET } else { MODE });
    Ok(StepKind::Template { template, values: filled, to: to.to_owned(), mode })
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(TEMPLATE_BYTES_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > TEMPLATE_BYTES_MAX {
        true => Err(io::Error::other(format!("it is longer than {TEMPLATE_BYTES_MAX} bytes"))),
        false => Ok(text),
    }
}

fn unreadable(path: &str, why: &io::Error) -> Fault {
    let what = format!("`{path}` cannot be read: {why}");
    Fault::fix("setup", what, "paths are relative to the current directory, or begin with `~/`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_requirements_stand_for_their_packages() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("requirements.txt");
        let listed = "# for training\ntorch==2.5.0  # pinned\n\nnumpy>=2; python_version > '3.9'\n";
        std::fs::write(&file, listed).unwrap();
        let reference = format!("-r {}", file.display());
        let words = Words::Several(vec!["six".into(), reference.clone()]);
        let packages = requirements(&words).unwrap();
        assert_eq!(packages, ["six", "torch==2.5.0", "numpy>=2; python_version > '3.9'"]);
        std::fs::write(&file, "numpy\n--index-url x\n").unwrap();
        let fault = requirements(&Words::One(reference)).unwrap_err();
        assert!(fault.what.contains("line 2 of"), "{fault}");
        let fault = requirements(&Words::One("-r /no/such".into())).unwrap_err();
        assert!(fault.what.contains("/no/such"), "{fault}");
    }
}
