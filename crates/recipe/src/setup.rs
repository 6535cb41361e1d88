//! The `setup` section: what machines need before they can work.
//!
//! Owns the words of its steps. Never does one, and never reads what a step names; secrets are kept
//! as references.

use crate::diagnostic::plain;
use crate::pool::{ALL, is_in};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Most steps of a recipe.
pub const STEPS_MAX: usize = 256;
/// Characters of a step's title.
const TITLE_CHARS_MAX: usize = 60;

/// Fields of a template that are always there.
pub const FIELDS: [&str; 3] = ["machine", "run", "groups"];

/// A step of the set-up: one action, and options.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// Machines to do it on: `all` (when left out), `worker`, `server`, or groups of hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Words>,
    /// What the step is called in logs and messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Packages of the system to install.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apt: Option<Words>,
    /// Packages of Python to install into a virtual environment, or `-r FILE` of requirements here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pip: Option<Words>,
    /// The virtual environment of `pip`, made where it is missing: `/…` or `~/…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub venv: Option<String>,
    /// File or folder to copy, relative to the current directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
    /// File whose `{{fields}}` are filled in and that is then copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Where on the machine `copy` and `template` write: `/…` or `~/…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Permissions of what `copy` and `template` write, such as `"0600"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Fields of `template`, besides `machine`, `run` and `groups`. Text may be a reference, as in
    /// `env`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Scalar>,
    /// Command for `sh` to do once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Playbook to play from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ansible: Option<String>,
    /// Command for `sh` that must end well, every time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// Variables of the step's commands. Secrets as references: `${env:NAME}` for a variable here,
    /// `file:PATH` for a file here.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, SecretText>,
    /// How long one attempt may take; 900 when left out.
    #[cfg_attr(test, schemars(range(min = 1, max = 86400)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Further attempts after one that failed; 1 for `apt` and `pip` when left out, else 0.
    #[cfg_attr(test, schemars(range(min = 0, max = 10)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action<'a> {
    /// Installs packages of the system.
    Apt(&'a Words),
    /// Installs packages of Python.
    Pip { packages: &'a Words, venv: Option<&'a str> },
    /// Copies a file or folder.
    Copy {
        /// A path here.
        from: &'a str,
        /// A path on the machine.
        to: &'a str,
    },
    /// Fills in fields of a file and copies it.
    Template {
        /// A path here.
        from: &'a str,
        /// A path on the machine.
        to: &'a str,
        values: &'a BTreeMap<String, Scalar>,
    },
    /// Does a command once.
    Run(&'a str),
    /// Plays a playbook.
    Ansible(&'a str),
    /// Does a command every time.
    Check(&'a str),
}

impl Step {
    /// What it does; nothing where it names no action or several, which no checked recipe does.
    pub fn action(&self) -> Option<Action<'_>> {
        let to = self.to.as_deref().unwrap_or_default();
        let values = &self.values;
        let actions = [
            self.apt.as_ref().map(Action::Apt),
            self.pip.as_ref().map(|packages| Action::Pip { packages, venv: self.venv.as_deref() }),
            self.copy.as_deref().map(|from| Action::Copy { from, to }),
            self.template.as_deref().map(|from| Action::Template { from, to, values }),
            self.run.as_deref().map(Action::Run),
            self.ansible.as_deref().map(Action::Ansible),
            self.check.as_deref().map(Action::Check),
        ];
        let mut named = actions.into_iter().flatten();
        named.next().filter(|_| named.next().is_none())
    }

    /// Whether it is for a machine in these groups.
    pub fn is_for(&self, groups: &[String]) -> bool {
        self.groups().iter().any(|group| is_in(group, groups))
    }

    /// The groups it is for.
    pub fn groups(&self) -> Vec<&str> {
        self.on.as_ref().map_or_else(|| vec![ALL], |on| on.list().collect())
    }

    /// Permissions, as a number.
    pub fn mode_bits(&self) -> Option<u32> {
        self.mode.as_deref().and_then(|text| u32::from_str_radix(text, 8).ok())
    }

    /// Variables of this machine that it takes secrets from.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let values = self.values.values().filter_map(|value| match value {
            Scalar::Text(text) => Some(text),
            _ => None,
        });
        self.env.values().chain(values).filter_map(|text| match text.source() {
            Ok(SecretSource::Env(name)) => Some(name),
            _ => None,
        })
    }

    /// What it is called: its name, or what it does.
    pub fn title(&self) -> String {
        let words = |words: &Words| words.list().collect::<Vec<_>>().join(" ");
        let text = match (&self.name, self.action()) {
            (Some(name), _) => name.clone(),
            (None, Some(Action::Apt(packages))) => format!("apt {}", words(packages)),
            (None, Some(Action::Pip { packages, .. })) => format!("pip {}", words(packages)),
            (None, Some(Action::Copy { from, to })) => format!("copy {from} to {to}"),
            (None, Some(Action::Template { from, to, .. })) => format!("template {from} to {to}"),
            (None, Some(Action::Run(command))) => format!("run {command}"),
            (None, Some(Action::Ansible(playbook))) => format!("ansible {playbook}"),
            (None, Some(Action::Check(command))) => format!("check {command}"),
            (None, None) => "nothing".into(),
        };
        let one_line = plain(&text.split_whitespace().collect::<Vec<_>>().join(" "));
        match one_line.char_indices().nth(TITLE_CHARS_MAX) {
            Some((cut, _)) => format!("{}…", &one_line[..cut]),
            None => one_line,
        }
    }
}

/// One word or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Words {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Words {
    /// Each of them.
    pub fn list(&self) -> impl Iterator<Item = &str> {
        match self {
            Self::One(word) => std::slice::from_ref(word),
            Self::Several(words) => words,
        }
        .iter()
        .map(String::as_str)
    }
}

/// What a field of a template stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Scalar {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(
        #[cfg_attr(test, schemars(range(min = -9007199254740991i64, max = 9007199254740991i64)))]
        i64,
    ),
    /// A number.
    Float(f64),
    /// Text, or a reference to a secret.
    Text(SecretText),
}

/// Text that may be a reference to a secret. What it refers to is looked up when it is needed and
/// never kept here; text that is no reference is not shown either.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct SecretText(String);

/// Where the text of a secret is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SecretSource<'a> {
    /// In a variable of the environment here.
    Env(&'a str),
    /// In a file here, without line breaks at its end.
    File(&'a str),
    /// In the recipe.
    Here(&'a str),
}

impl SecretText {
    /// Text as a recipe holds it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Where its text is, or what is wrong with it.
    pub fn source(&self) -> Result<SecretSource<'_>, String> {
        if let Some(path) = self.0.strip_prefix("file:") {
            return match path.is_empty() || path.contains('\0') {
                true => Err("`file:` names no file".into()),
                false => Ok(SecretSource::File(path)),
            };
        }
        let Some(at) = self.0.find("${env:") else { return Ok(SecretSource::Here(&self.0)) };
        match self.0.strip_prefix("${env:").and_then(|rest| rest.strip_suffix('}')) {
            Some(name) if is_variable(name) => Ok(SecretSource::Env(name)),
            Some(name) if !name.contains('}') => Err(format!("`{name}` cannot name a variable")),
            _ if at == 0 => Err("text follows the reference".into()),
            _ => Err("text comes before the reference".into()),
        }
    }
}

impl fmt::Display for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source() {
            Ok(SecretSource::Env(name)) => write!(f, "${{env:{name}}}"),
            Ok(SecretSource::File(path)) => write!(f, "file:{path}"),
            _ => f.write_str("***"),
        }
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretText({self})")
    }
}

/// Whether a word may name a variable of the environment, or a field of a template.
pub fn is_variable(word: &str) -> bool {
    word.len() <= 100
        && word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_told_from_text_and_shown_alone() {
        for (text, shown, reference) in [
            ("${env:TOKEN}", "${env:TOKEN}", true),
            ("file:~/.token", "file:~/.token", true),
            ("hunter2", "***", false),
            ("", "***", false),
            ("${HOME}", "***", false),
        ] {
            let secret = SecretText::new(text);
            assert_eq!(secret.to_string(), shown);
            assert_eq!(format!("{secret:?}"), format!("SecretText({shown})"));
            let is_text = matches!(secret.source(), Ok(SecretSource::Here(_)));
            assert_eq!(is_text, !reference, "{text}");
        }
        for wrong in ["file:", "${env:}", "${env:1a}", "${env:A", "x${env:A}", "${env:A}${env:B}"] {
            assert!(SecretText::new(wrong).source().is_err(), "{wrong}");
        }
    }

    #[test]
    fn titles_are_short_and_on_one_line() {
        let step = Step { run: Some("a\n  b".into()), ..Step::default() };
        assert_eq!(step.title(), "run a b");
        let packages = Words::Several(vec!["x".into(), "ü".repeat(80)]);
        let step = Step { apt: Some(packages), ..Step::default() };
        assert_eq!(step.title().chars().count(), TITLE_CHARS_MAX + 1);
        assert_eq!(Step { name: Some("tune".into()), ..step }.title(), "tune");
    }
}
