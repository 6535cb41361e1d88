//! What the words of `setup` must mean together.

use crate::diagnostic::{Finding, quoted};
use crate::node::{Entry, Kind, Node};
use crate::pool::{ALL, Pool, SERVER, WORKER};
use crate::setup::{Action, FIELDS, STEPS_MAX, Scalar, SecretText, Step, is_variable};
use crate::suggest;
use crate::text;

/// What a step can do.
const ACTIONS: [&str; 7] = ["apt", "pip", "copy", "template", "run", "ansible", "check"];
/// Options that belong to some actions alone.
const OPTIONS: [(&str, &[&str]); 5] = [
    ("venv", &["pip"]),
    ("to", &["copy", "template"]),
    ("mode", &["copy", "template"]),
    ("values", &["template"]),
    ("env", &["apt", "pip", "run", "ansible", "check"]),
];
/// Options of every action.
const COMMON: [&str; 4] = ["on", "name", "seconds", "retries"];
/// Longest command.
const COMMAND_BYTES_MAX: usize = 64 << 10;
/// Longest name of a step or package.
const NAME_CHARS_MAX: usize = 200;

pub(super) fn check(steps: &[Step], pool: &Pool, tree: &Node, found: &mut Vec<Finding>) {
    if steps.is_empty() {
        return;
    }
    if steps.len() > STEPS_MAX {
        let message = format!("`setup` has {} steps", steps.len());
        let hint = format!("{STEPS_MAX} at most; several commands can be one `run`");
        return found.push(Finding::new("setup", message).hint(hint));
    }
    let groups = known_groups(pool);
    let made = pool.supplies().filter(|supply| supply.has_machines());
    let no_shell = made.filter_map(|supply| supply.provider.no_shell()).next();
    for (number, step) in steps.iter().enumerate() {
        let written = tree.find(&format!("setup.{number}")).map(|node| &node.kind);
        let entries: &[Entry] = match written {
            Some(Kind::Map(entries)) => entries,
            _ => &[],
        };
        let mut at = At { number, found };
        on(step, &groups, &mut at);
        if let Some(what) = no_shell.filter(|_| step.is_for(&[])) {
            let message = format!(" cannot be done: {what} has no shell and no tools");
            let hint = "give `pool.image` an image that has what the steps need (`debian:12`, say), \
                        or leave the steps out";
            at.add("", message, hint);
        }
        if let Some(action) = one_action(entries, &mut at) {
            belonging(action, entries, &mut at);
            content(step, &mut at);
        }
    }
}

/// Where mistakes of one step go.
struct At<'f> {
    number: usize,
    found: &'f mut Vec<Finding>,
}

impl At<'_> {
    fn add(&mut self, key: &str, message: impl AsRef<str>, hint: impl Into<String>) {
        let dotted = if key.is_empty() { String::new() } else { format!(".{key}") };
        let (key, number) = (format!("setup.{}{dotted}", self.number), self.number + 1);
        let message = format!("step {number}{}", message.as_ref());
        self.found.push(Finding::new(key, message).hint(hint));
    }
}

fn known_groups(pool: &Pool) -> Vec<String> {
    let mut groups: Vec<String> = [ALL, WORKER, SERVER].map(str::to_owned).into();
    groups.extend(pool.named().into_iter().flat_map(|machine| machine.groups));
    groups.sort();
    groups.dedup();
    groups
}

fn on(step: &Step, known: &[String], at: &mut At<'_>) {
    let Some(on) = &step.on else { return };
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    if on.list().next().is_none() {
        at.add("on", " is for no machine", "write `on: all`, or leave it out");
    }
    for group in on.list().filter(|group| !known.contains(group)) {
        let message = format!(": no machine is in group {}", quoted(group));
        let hint = suggest::hint(group, &known, "known groups").unwrap_or_default();
        at.add("on", message, hint);
    }
}

/// The one action that was written.
fn one_action<'e>(entries: &'e [Entry], at: &mut At<'_>) -> Option<&'e Entry> {
    let named: Vec<&Entry> = entries.iter().filter(|e| ACTIONS.contains(&e.key.as_str())).collect();
    match named[..] {
        [one] if one.value.kind == Kind::Null => {
            at.add(&one.key, format!(" `{}` is empty", one.key), format!("write `{}: …`", one.key));
            None
        }
        [one] => Some(one),
        // A mistyped key is reported elsewhere.
        [] if entries.iter().any(|e| !is_known(&e.key)) => None,
        [] => {
            let hint = format!("add one of {}", suggest::list(&ACTIONS));
            at.add("", " does nothing", hint);
            None
        }
        [_, second, ..] => {
            let names: Vec<&str> = named.iter().map(|e| e.key.as_str()).collect();
            let message = format!(" does {} things: {}", names.len(), suggest::list(&names));
            at.add(&second.key, message, "start each step with its own `- `");
            None
        }
    }
}

fn is_known(key: &str) -> bool {
    let options = OPTIONS.iter().map(|(option, _)| *option);
    ACTIONS.into_iter().chain(options).chain(COMMON).any(|known| known == key)
}

/// Options that the action has not got, and one that it needs.
fn belonging(action: &Entry, entries: &[Entry], at: &mut At<'_>) {
    let action = action.key.as_str();
    for (key, owners) in OPTIONS {
        let is_written = entries.iter().any(|e| e.key == key && e.value.kind != Kind::Null);
        if is_written && !owners.contains(&action) {
            let message = format!(": `{key}` belongs to {}, not to `{action}`", either(owners));
            at.add(key, message, format!("leave `{key}` out"));
        }
        if !is_written && key == "to" && owners.contains(&action) {
            let message = format!(" does not say where `{action}` writes");
            at.add(action, message, "add `to: /…` or `to: ~/…`");
        }
    }
}

fn either(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

fn content(step: &Step, at: &mut At<'_>) {
    if let Some(name) = &step.name
        && (name.trim().is_empty() || !is_line(name))
    {
        at.add("name", ": `name` must be one short line", "leave it out, or write a few words");
    }
    match step.action() {
        Some(Action::Apt(packages)) => words("apt", packages.list().collect(), is_package, at),
        Some(Action::Pip { packages, .. }) => {
            words("pip", packages.list().collect(), is_requirement, at);
        }
        Some(Action::Copy { from, .. }) => local_path("copy", from, at),
        Some(Action::Template { from, .. }) => {
            local_path("template", from, at);
            values(step, at);
        }
        Some(Action::Run(command)) => self::command("run", command, at),
        Some(Action::Check(command)) => self::command("check", command, at),
        Some(Action::Ansible(playbook)) => local_path("ansible", playbook, at),
        None => {}
    }
    for (key, path) in [("to", &step.to), ("venv", &step.venv)] {
        if let Some(why) = path.as_deref().and_then(text::remote_path) {
            let hint = format!("write `{key}: ~/…` for the user's home there, or an absolute path");
            at.add(key, format!(": `{key}` {why}"), hint);
        }
    }
    if let Some(mode) = &step.mode
        && (mode.len() > 4 || step.mode_bits().is_none_or(|bits| bits > 0o7777))
    {
        let message = format!(": `mode` must be octal digits, but is {}", quoted(mode));
        at.add("mode", message, "write `mode: \"0644\"`");
    }
    env(step, at);
}

fn words(key: &str, words: Vec<&str>, is_sound: fn(&str) -> bool, at: &mut At<'_>) {
    if words.is_empty() {
        at.add(key, format!(" `{key}` lists nothing"), "list packages, or leave the step out");
    }
    for word in words.into_iter().filter(|word| !is_sound(word)) {
        let message = format!(": {} cannot be a package", quoted(word));
        let hint = match (key, word.starts_with('-')) {
            ("pip", true) => "options of pip go into `env`, such as `env: {PIP_INDEX_URL: …}`",
            (_, true) => "use `run` for commands with options",
            ("pip", _) => "list packages one by one, such as `[numpy==2.0.0]`",
            _ => "list packages one by one, such as `[libgomp1, python3]`",
        };
        at.add(key, message, hint);
    }
}

/// A package of the system, perhaps with a version or an architecture.
fn is_package(word: &str) -> bool {
    is_line(word)
        && word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "+-.:=~_/".contains(c))
}

/// A requirement of pip, which may have spaces and brackets in it but is no option.
fn is_requirement(word: &str) -> bool {
    let file = word.strip_prefix("-r ");
    is_line(word)
        && !word.trim().is_empty()
        && (!word.starts_with('-') || file.is_some_and(|file| !file.trim().is_empty()))
}

fn is_line(text: &str) -> bool {
    text.chars().count() <= NAME_CHARS_MAX && !text.chars().any(char::is_control)
}

fn local_path(key: &str, path: &str, at: &mut At<'_>) {
    if let Some(why) = text::path(path) {
        at.add(key, format!(": the path of `{key}` {why}"), "write a path of this machine");
    }
}

fn command(key: &str, command: &str, at: &mut At<'_>) {
    if command.trim().is_empty() {
        at.add(key, format!(" `{key}` is empty"), "write a command for `sh`");
    } else if command.len() > COMMAND_BYTES_MAX || command.contains('\0') {
        let message = format!(": `{key}` is longer than {COMMAND_BYTES_MAX} bytes, or binary");
        at.add(key, message, "`copy` a script there, and run it");
    } else if command.contains("${env:") {
        let message = format!(": references are looked up in `env`, not in `{key}`");
        let hint = "write `env: {TOKEN: \"${env:TOKEN}\"}`, and `$TOKEN` in the command";
        at.add(key, message, hint);
    }
}

fn values(step: &Step, at: &mut At<'_>) {
    for (name, value) in &step.values {
        let key = format!("values.{name}");
        if FIELDS.contains(&name.as_str()) {
            at.add(&key, format!(": field `{name}` is always there"), "give yours another name");
        } else if !is_variable(name) {
            let message = format!(": a field cannot be called {}", quoted(name));
            at.add(&key, message, "use letters, digits and `_`");
        }
        if let Scalar::Text(text) = value {
            secret(&key, text, at);
        }
    }
}

fn env(step: &Step, at: &mut At<'_>) {
    for (name, value) in &step.env {
        let key = format!("env.{name}");
        if !is_variable(name) {
            let message = format!(": a variable cannot be called {}", quoted(name));
            at.add(&key, message, "use letters, digits and `_`");
        }
        secret(&key, value, at);
    }
}

/// Never shows the text itself.
fn secret(key: &str, text: &SecretText, at: &mut At<'_>) {
    if let Err(why) = text.source() {
        let hint = "a reference stands alone: `${env:NAME}` or `file:PATH`";
        at.add(key, format!(" `{key}`: {why}"), hint);
    }
}
