//! What the words of `script` must mean together.

use super::text;
use crate::diagnostic::{Finding, quoted};
use crate::node::{Kind, Node};
use crate::script::{
    CHIEF, EVALUATOR, Framework, Job, Launcher, PROCESSES_MAX, PS, PerMachine, Script, WORKER,
    fields,
};
use crate::setup::is_variable;
use crate::suggest;

/// Longest argument, and most of them.
const ARGUMENT_BYTES_MAX: usize = 64 << 10;
const ARGUMENTS_MAX: usize = 1000;
/// Variables that are set for every script.
const OURS: [&str; 12] = [
    "TF_CONFIG",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "JAX_COORDINATOR_ADDRESS",
    "JAX_PROCESS_ID",
    "JAX_NUM_PROCESSES",
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
];

pub(super) fn check(job: &Job, tree: &Node, found: &mut Vec<Finding>) {
    let script = &job.script;
    roles(job, tree, found);
    launcher(script, found);
    arguments(script, found);
    variables(script, found);
    outputs(script, found);
    paths(script, found);
    ports(job, found);
    for (key, what) in
        [("servers", "processes have `script.roles`"), ("threads", "they have `env`")]
    {
        let written = tree.get("pool").and_then(|pool| pool.get(key)).map(|node| &node.kind);
        if !matches!(written, None | Some(Kind::Null | Kind::Int(0))) {
            let message = format!("`pool.{key}` is for networks that Planaria trains itself");
            found.push(Finding::new(format!("pool.{key}"), message).hint(what));
        }
    }
}

fn add(found: &mut Vec<Finding>, key: &str, message: impl Into<String>, hint: impl Into<String>) {
    found.push(Finding::new(key, message).hint(hint));
}

fn roles(job: &Job, tree: &Node, found: &mut Vec<Finding>) {
    let script = &job.script;
    let count = |role: &str| script.roles.get(role).copied().unwrap_or(0);
    for (role, count) in &script.roles {
        let key = format!("script.roles.{role}");
        if !is_variable(role) {
            let message = format!("a role cannot be called {}", quoted(role));
            add(found, "script.roles", message, "use letters, digits and `_`");
        } else if !(1..=PROCESSES_MAX).contains(count) {
            let message = format!("`{key}` must be from 1 to {PROCESSES_MAX}, but is {count}");
            add(found, &key, message, "leave out roles that have no process");
        }
    }
    let known: &[&str] = match script.framework {
        Some(Framework::Tensorflow) => &[CHIEF, WORKER, PS, EVALUATOR],
        Some(Framework::Plain) | None => &[],
        Some(_) => &[WORKER],
    };
    for role in script.roles.keys().filter(|role| !known.is_empty() && !known.contains(&&***role)) {
        let framework = script.framework.map_or("", Framework::as_str);
        let message = format!("`framework: {framework}` has no role {}", quoted(role));
        let hint = suggest::hint(role, known, "its roles").unwrap_or_default();
        add(found, &format!("script.roles.{role}"), message, hint);
    }
    if script.framework == Some(Framework::Tensorflow) {
        if count(CHIEF) > 1 {
            let message =
                format!("`script.roles.chief` is {}, but there is one chief", count(CHIEF));
            add(found, "script.roles.chief", message, "write `chief: 1`");
        }
        if count(PS) > 0 && count(CHIEF) == 0 {
            let message = "parameter servers need a chief, which trains";
            add(found, "script.roles.ps", message, "add `chief: 1` to `roles`");
        }
        if count(PS) > 0 && count(WORKER) == 0 {
            let message = "parameter servers need workers, which compute";
            add(found, "script.roles.ps", message, "add `worker: 2` to `roles`");
        }
    }
    let ends_by_itself = |role: &String| ![PS, EVALUATOR].contains(&role.as_str());
    if !script.roles.is_empty() && !script.roles.keys().any(ends_by_itself) {
        let message = "every role is a service, so the job would never end";
        add(found, "script.roles", message, "add `worker: 1`");
    }
    let written = tree.get("pool").and_then(|pool| pool.get("workers"));
    let workers = job.pool.workers.max();
    if written.is_some_and(|node| node.kind != Kind::Null) {
        if !script.roles.is_empty() && count(WORKER).max(1) != workers {
            let message = format!(
                "`pool.workers` is {workers}, but `script.roles.worker` is {}",
                count(WORKER)
            );
            add(found, "pool.workers", message, "leave one of them out");
        }
        if let Some(per_machine) = &script.per_machine {
            let total = match per_machine {
                PerMachine::Count(count) => Some(count * job.machine_count()),
                PerMachine::Each(_) => None,
            };
            // A resolved recipe has a number there in any case.
            if total.unwrap_or(1) != workers {
                let message = format!("`script.per_machine` says how many, and so does {workers}");
                add(found, "pool.workers", message, "leave one of them out");
            }
        }
    }
    if let Some(per_machine @ PerMachine::Each(word)) = &script.per_machine
        && per_machine.each().is_none()
    {
        let message = format!("`script.per_machine` cannot be {}", quoted(word));
        add(found, "script.per_machine", message, "write a number, `core` or `gpu`");
    }
    if script.per_machine.is_some() && script.roles.contains_key(WORKER) {
        let message = "`script.per_machine` says how many workers there are, and so does this";
        add(found, "script.roles.worker", message, "leave one of them out");
    }
    let total: usize = job.role_counts().iter().map(|(_, count)| count).sum();
    if total > PROCESSES_MAX {
        let message = format!("the job has {total} processes");
        add(found, "script", message, format!("{PROCESSES_MAX} at most"));
    }
}

fn launcher(script: &Script, found: &mut Vec<Finding>) {
    let fits = matches!(script.framework, Some(Framework::Pytorch) | None);
    if script.launcher == Launcher::Torchrun && !fits {
        let framework = script.framework.map_or("", Framework::as_str);
        let message = format!("`torchrun` starts PyTorch, but the framework is `{framework}`");
        add(found, "script.launcher", message, "leave it out, or write `framework: pytorch`");
    }
}

fn arguments(script: &Script, found: &mut Vec<Finding>) {
    if script.args.len() > ARGUMENTS_MAX {
        let message = format!("`script.args` has {} arguments", script.args.len());
        return add(found, "script.args", message, format!("{ARGUMENTS_MAX} at most"));
    }
    let known = script.fields();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    for (number, argument) in script.args.iter().enumerate() {
        let (key, text) = (format!("script.args.{number}"), argument.text());
        if text.len() > ARGUMENT_BYTES_MAX || text.contains('\0') {
            let message = format!("it is longer than {ARGUMENT_BYTES_MAX} bytes, or binary");
            add(found, &key, message, "put it into a file of the code's folder");
        }
        if text.contains("${env:") {
            let message = "references are looked up in `env`: arguments can be seen by everybody";
            add(found, &key, message, "write `env: {TOKEN: \"${env:TOKEN}\"}`");
        }
        if text.matches("{{").count() != fields(&text).count() {
            add(found, &key, "`{{` without `}}`", "write a field such as `{{index}}`");
        }
        for field in fields(&text).filter(|field| !known.contains(field)) {
            let message = format!("no field {}", quoted(field));
            let mut hint = suggest::hint(field, &known, "there are").unwrap_or_default();
            if field == "epochs" || field == "data" {
                hint = format!("set `script.{field}` too");
            }
            add(found, &key, message, hint);
        }
    }
}

fn variables(script: &Script, found: &mut Vec<Finding>) {
    for (name, value) in &script.env {
        let key = format!("script.env.{name}");
        if !is_variable(name) {
            let message = format!("a variable cannot be called {}", quoted(name));
            add(found, &key, message, "use letters, digits and `_`");
        } else if OURS.contains(&name.as_str()) {
            let message = format!("`{name}` is set for each process as the framework wants it");
            add(found, &key, message, "leave it out");
        }
        if let Err(why) = value.whence() {
            let hint = "a reference stands alone: `${env:NAME}` or `file:PATH`";
            add(found, &key, format!("`{name}`: {why}"), hint);
        }
    }
}

fn outputs(script: &Script, found: &mut Vec<Finding>) {
    for pattern in script.output_patterns() {
        let wrong = match pattern.as_str() {
            text if text::path(text).is_some() => text::path(text),
            text if text.starts_with('/') || text.starts_with('~') => {
                Some("is not relative to the code's folder".into())
            }
            text if text.split('/').any(|part| part == "..") => Some("holds `..`".into()),
            text if text.matches('[').count() != text.matches(']').count() => {
                Some("has a bracket without its other".into())
            }
            _ => None,
        };
        if let Some(why) = wrong {
            let message = format!("the pattern {} {why}", quoted(&pattern));
            add(found, "script.outputs", message, "write a pattern such as `*.pt` or `logs/**`");
        }
    }
}

fn paths(script: &Script, found: &mut Vec<Finding>) {
    let here = [
        ("file", Some(&script.file)),
        ("code", script.code.as_ref()),
        ("data", script.data.as_ref()),
    ];
    for (key, path) in here {
        if let Some(why) = path.and_then(|path| text::path(path)) {
            let message = format!("`script.{key}` {why}");
            add(found, &format!("script.{key}"), message, "write a path of this machine");
        }
    }
    if let Some(python) = &script.python
        && (text::path(python).is_some() || python.starts_with('-'))
    {
        let message = format!("`script.python` cannot be {}", quoted(python));
        add(found, "script.python", message, "write `python3`, `/…` or `~/…`");
    }
    if let Some(folder) = &script.tensorboard
        && (text::path(folder).is_some()
            || folder.starts_with(['/', '~'])
            || folder.split('/').any(|part| part == ".."))
    {
        let message = format!("`script.tensorboard` is {}", quoted(folder));
        add(found, "script.tensorboard", message, "write a folder inside of the code's folder");
    }
}

fn ports(job: &Job, found: &mut Vec<Finding>) {
    let Some(port) = job.script.port else { return };
    let processes: usize = job.role_counts().iter().map(|(_, count)| count).sum();
    let last = usize::from(port) + processes.div_ceil(job.machine_count());
    if last > usize::from(u16::MAX) {
        let message = format!("ports from {port} on are needed for the processes of a machine");
        add(found, "script.port", message, "choose a smaller one, or leave it out");
    }
}
