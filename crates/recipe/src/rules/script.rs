//! What the words of `script` must mean together.

use crate::diagnostic::{Finding, quoted};
use crate::node::{Kind, Node};
use crate::pool::Workers;
use crate::script::{
    CHIEF, Data, EVALUATOR, Each, Framework, Job, Launcher, MASTER, PROCESS_FIELDS, PROCESSES_MAX,
    PS, PerMachine, Script, WORKER, fields, is_unclosed,
};
use crate::setup::is_variable;
use crate::suggest;
use crate::text;

/// Longest argument, and most of them.
const ARGUMENT_BYTES_MAX: usize = 64 << 10;
const ARGUMENTS_MAX: usize = 1000;
/// Figures that may be named.
const METRICS_MAX: usize = 64;
/// Variables of frameworks that are set for each process.
const PYTORCH: [&str; 6] =
    ["MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"];
const JAX: [&str; 4] =
    ["JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"];
/// How such variables begin.
const HOROVOD: [&str; 7] = [
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HOROVOD_LOCAL_",
    "HOROVOD_CROSS_",
    "HOROVOD_GLOO_",
    "HOROVOD_HOSTNAME",
    "HOROVOD_CONTROLLER",
];
/// Fields that tell where all workers are.
const WORKERS_FIELDS: [&str; 2] = ["hosts", "worker_hosts"];

pub(super) fn check(job: &Job, tree: &Node, found: &mut Vec<Finding>) {
    let script = &job.script;
    roles(script, found);
    counts(job, tree, found);
    launcher(script, found);
    arguments(script, found);
    variables(script, found);
    outputs(script, found);
    paths(script, found);
    ports(job, found);
    metrics(script, found);
    of_networks(job, found);
}

/// Options of the pool that mean nothing to scripts. Their defaults may be written, as in the recipe
/// of a run.
fn of_networks(job: &Job, found: &mut Vec<Finding>) {
    let pool = &job.pool;
    let ours = "is for networks that Planaria trains itself";
    if pool.servers.is_some_and(|servers| servers > 0) {
        let hint = "parameter servers are a role: `script: {roles: {chief: 1, worker: 2, ps: 1}}`";
        add(found, "pool.servers", format!("`pool.servers` {ours}"), hint);
    }
    if pool.threads > 0 {
        let hint = "set a variable such as `OMP_NUM_THREADS` in `script.env`";
        add(found, "pool.threads", format!("`pool.threads` {ours}"), hint);
    }
    if pool.slots.is_some() {
        let hint = "`script.per_machine` says how many workers each machine has";
        add(found, "pool.slots", format!("`pool.slots` {ours}"), hint);
    }
    if let (Workers::Range(range), Launcher::Direct) = (pool.workers, job.script.launcher) {
        let message = "only `launcher: torchrun` goes on with fewer workers than there were";
        let hint = format!("write `workers: {}`, or `launcher: torchrun` in `script`", range.max);
        add(found, "pool.workers", message, hint);
    }
}

fn add(found: &mut Vec<Finding>, key: &str, message: impl Into<String>, hint: impl Into<String>) {
    found.push(Finding::new(key, message).hint(hint));
}

fn roles(script: &Script, found: &mut Vec<Finding>) {
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
        Some(Framework::Tensorflow) => &[CHIEF, MASTER, WORKER, PS, EVALUATOR],
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
        for role in [CHIEF, MASTER] {
            if count(role) > 1 {
                let key = format!("script.roles.{role}");
                let message = format!("`{key}` is {}, but there is one {role}", count(role));
                add(found, &key, message, format!("write `{role}: 1`"));
            }
        }
        if count(CHIEF) > 0 && count(MASTER) > 0 {
            let message = "`chief` and `master` are two names of one process";
            add(found, "script.roles.master", message, "leave one of them out");
        }
        if count(EVALUATOR) > 1 {
            let message =
                format!("`script.roles.evaluator` is {}, but there is one", count(EVALUATOR));
            add(found, "script.roles.evaluator", message, "write `evaluator: 1`");
        }
        let computes = count(WORKER) + count(MASTER) > 0 || script.per_machine.is_some();
        if count(PS) > 0 && !computes {
            let message = "parameter servers need workers, which compute";
            add(found, "script.roles.ps", message, "add `worker: 2` to `roles`");
        }
    }
    let ends_by_itself = |role: &String| ![PS, EVALUATOR].contains(&role.as_str());
    let is_alone = script.per_machine.is_none() && !script.roles.is_empty();
    let is_told = script.framework == Some(Framework::Tensorflow) && count(PS) > 0;
    if is_alone && !is_told && !script.roles.keys().any(ends_by_itself) {
        let message = "every role is a service, so the job would never end";
        add(found, "script.roles", message, "add `worker: 1`");
    }
}

/// Whether all that says how many processes there are says the same.
fn counts(job: &Job, tree: &Node, found: &mut Vec<Finding>) {
    let script = &job.script;
    let written = tree.get("pool").and_then(|pool| pool.get("workers"));
    let workers = job.pool.workers.max();
    // One is the default, which the recipe of a run has written out.
    let is_said = written.is_some_and(|node| node.kind != Kind::Null) && workers != 1;
    match script.roles.get(WORKER) {
        _ if !is_said || script.roles.is_empty() || script.per_machine.is_some() => {}
        Some(count) if *count == workers => {}
        Some(count) => {
            let message =
                format!("`pool.workers` is {workers}, but `script.roles.worker` is {count}");
            add(found, "pool.workers", message, "leave one of them out");
        }
        None => {
            let message =
                format!("`pool.workers` is {workers}, but `script.roles` has no `worker`");
            let hint = format!("add `worker: {workers}` to `roles`, or leave `workers` out");
            add(found, "pool.workers", message, hint);
        }
    }
    let total = match &script.per_machine {
        Some(PerMachine::Count(count)) => Some(count.saturating_mul(job.machine_count())),
        Some(PerMachine::Each(_)) => None,
        None => Some(workers),
    };
    if is_said && total != Some(workers) {
        let message = format!(
            "`pool.workers` is {workers}, but `script.per_machine` says how many workers there are"
        );
        add(found, "pool.workers", message, "leave one of them out");
    }
    if let Some(per_machine @ PerMachine::Each(word)) = &script.per_machine
        && per_machine.each().is_none()
    {
        let message = format!("`script.per_machine` cannot be {}", quoted(word));
        let hint = match suggest::nearest(word, &["core", "gpu"]) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "write a number, `core` or `gpu`".into(),
        };
        add(found, "script.per_machine", message, hint);
    }
    if script.per_machine.is_some() && script.roles.contains_key(WORKER) {
        let message = "`script.roles.worker` says how many workers there are, and so does \
                       `script.per_machine`";
        add(found, "script.roles.worker", message, "leave one of them out");
    }
    let total: usize = job.role_counts().iter().map(|(_, count)| count).sum();
    if total > PROCESSES_MAX {
        let message = format!("the job has {total} processes, but {PROCESSES_MAX} at most are run");
        add(found, "script", message, "ask for fewer workers, or fewer on each machine");
    }
}

fn launcher(script: &Script, found: &mut Vec<Finding>) {
    let fits = matches!(script.framework, Some(Framework::Pytorch) | None);
    if script.launcher == Launcher::Torchrun && !fits {
        let framework = script.framework.map_or("", Framework::as_str);
        let message = format!("`torchrun` starts PyTorch, but the framework is `{framework}`");
        add(found, "script.launcher", message, "leave it out, or write `framework: pytorch`");
    }
    let has_one = script.launcher == Launcher::Torchrun
        || matches!(script.framework, Some(Framework::Mpi) | None);
    if script.launcher_options.is_some() && !has_one {
        let message = "`script.launcher_options` is for `mpirun` and `torchrun`";
        let hint = "write `framework: mpi` or `launcher: torchrun`, or leave it out";
        add(found, "script.launcher_options", message, hint);
    }
}

fn arguments(script: &Script, found: &mut Vec<Finding>) {
    if script.args.len() > ARGUMENTS_MAX {
        let count = script.args.len();
        let message = format!("`script.args` has {count} arguments, {ARGUMENTS_MAX} at most");
        return add(found, "script.args", message, "put them into a file of the code's folder");
    }
    for (number, argument) in script.args.iter().enumerate() {
        let (key, text) = (format!("script.args.{number}"), argument.text());
        if text.len() > ARGUMENT_BYTES_MAX || text.contains('\0') {
            let message = format!("it is longer than {ARGUMENT_BYTES_MAX} bytes, or binary");
            add(found, &key, message, "put it into a file of the code's folder");
        }
        if text.contains("${env:") {
            let message = "references are looked up in `env`: arguments are visible to every user";
            add(found, &key, message, "write `env: {TOKEN: \"${env:TOKEN}\"}`");
        }
        known_fields(script, &key, &text, found);
    }
}

/// Whether every field of a text can be filled in.
fn known_fields(script: &Script, key: &str, text: &str, found: &mut Vec<Finding>) {
    let known = script.fields();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    if is_unclosed(text) {
        let hint = "write a field such as `{{index}}`; `{{{{` stands for `{{` itself";
        add(found, key, "`{{` without `}}`", hint);
    }
    // The framework sets these where it starts the workers.
    let is_set_later =
        |field: &str| PROCESS_FIELDS.contains(&field) || WORKERS_FIELDS.contains(&field);
    for field in fields(text) {
        match launched_by(script) {
            _ if !known.contains(&field) => {
                let what = if key.starts_with("script.env") { "variables" } else { "arguments" };
                let message = format!("{what} have no field {}", quoted(field));
                add(found, key, message, instead_of(field, &known));
            }
            Some((launcher, variables)) if is_set_later(field) => {
                let message =
                    format!("`{{{{{field}}}}}` is not known before {launcher} starts workers");
                let hint = format!("the script finds it in its variables: {variables}");
                add(found, key, message, hint);
            }
            _ => {}
        }
    }
}

/// What to write instead of a field that there is not.
fn instead_of(field: &str, known: &[&str]) -> String {
    match field.strip_suffix("_hosts") {
        _ if field == "epochs" || field == "data" => format!("set `script.{field}` too"),
        _ if field.starts_with("data_") => "name it in `script.data` too".into(),
        Some(role) if is_variable(role) => {
            format!(
                "there is no role `{role}`; `script: {{roles: {{{role}: 1, worker: 2}}}}` has one"
            )
        }
        _ => suggest::hint(field, known, "there are").unwrap_or_default(),
    }
}

/// Who starts the workers where it is not us, and where those find out who they are.
fn launched_by(script: &Script) -> Option<(&'static str, &'static str)> {
    match (script.framework, script.launcher) {
        (Some(Framework::Mpi), _) => {
            Some(("`mpirun`", "`OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE`"))
        }
        (_, Launcher::Torchrun) => Some(("`torchrun`", "`RANK`, `WORLD_SIZE`, `LOCAL_RANK`")),
        _ => None,
    }
}

/// Whether a variable is set for each process, as its framework wants it.
fn is_ours(script: &Script, name: &str) -> bool {
    let gpus = script.per_machine.as_ref().and_then(PerMachine::each) == Some(Each::Gpu);
    match script.framework {
        // Who computes nothing is shown none, unless the recipe says which.
        _ if name == "CUDA_VISIBLE_DEVICES" => gpus && !script.roles.contains_key(PS),
        Some(Framework::Tensorflow) => name == "TF_CONFIG",
        Some(Framework::Pytorch) => PYTORCH.contains(&name),
        Some(Framework::Jax) => JAX.contains(&name),
        Some(Framework::Horovod) => HOROVOD.iter().any(|start| name.starts_with(start)),
        Some(Framework::Mpi) => name.starts_with("OMPI_COMM_WORLD_"),
        Some(Framework::Plain) | None => false,
    }
}

fn variables(script: &Script, found: &mut Vec<Finding>) {
    for (name, value) in &script.env {
        let key = format!("script.env.{name}");
        if !is_variable(name) {
            let message = format!("a variable cannot be called {}", quoted(name));
            add(found, &key, message, "use letters, digits and `_`, such as `WANDB_API_KEY`");
        } else if is_ours(script, name) {
            let message = format!("`{name}` is set for each process as the framework wants it");
            add(found, &key, message, "leave it out");
        }
        if let Err(why) = value.source() {
            let hint = "a reference stands alone: `${env:NAME}` or `file:PATH`";
            add(found, &key, format!("`{name}`: {why}"), hint);
        }
    }
    for (name, text) in script.filled_variables() {
        known_fields(script, &format!("script.env.{name}"), text, found);
    }
}

fn outputs(script: &Script, found: &mut Vec<Finding>) {
    for (number, pattern) in script.output_patterns().into_iter().enumerate() {
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
            let hint = "write a pattern such as `*.pt` or `logs/**`";
            add(found, &format!("script.outputs.{number}"), message, hint);
        }
    }
}

fn paths(script: &Script, found: &mut Vec<Finding>) {
    let own = [("script.file", Some(&script.file)), ("script.code", script.code.as_ref())];
    let own = own.into_iter().filter_map(|(key, path)| Some((key.to_owned(), path?.clone())));
    let data = script.data_sets().into_iter().map(|set| (set.key, set.path));
    for (key, path) in own.chain(data) {
        if let Some(why) = text::path(&path) {
            add(found, &key, format!("`{key}` {why}"), "write a path of this machine");
        }
    }
    if let Some(Data::Several(sets)) = &script.data {
        for name in sets.keys().filter(|name| !is_variable(name)) {
            let message = format!("data cannot be called {}", quoted(name));
            add(found, "script.data", message, "use letters, digits and `_`");
        }
    }
    if let Some(folder) = &script.workdir
        && (text::path(folder).is_some()
            || folder.starts_with(['/', '~'])
            || folder.split('/').any(|part| part == ".."))
    {
        let message = format!(
            "`script.workdir` is {}, which is not inside of the code's folder",
            quoted(folder)
        );
        add(found, "script.workdir", message, "write a folder of it, such as `src`");
    }
    if script.file.ends_with(".ipynb") {
        let message = format!("`script.file` is a notebook: {}", quoted(&script.file));
        let hint = "make a script of it: `jupyter nbconvert --to script NOTEBOOK`";
        add(found, "script.file", message, hint);
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
        let message = format!(
            "`script.tensorboard` is {}, which is not inside of the code's folder",
            quoted(folder)
        );
        add(found, "script.tensorboard", message, "write a folder such as `logs`");
    }
}

fn metrics(script: &Script, found: &mut Vec<Finding>) {
    if script.metrics.len() > METRICS_MAX {
        let count = script.metrics.len();
        let message = format!("`script.metrics` has {count} figures, {METRICS_MAX} at most");
        add(found, "script.metrics", message, "let an expression find several");
    }
    for (name, expression) in &script.metrics {
        let key = format!("script.metrics.{name}");
        if !is_variable(&name.replace(['/', '.', '@', '-'], "_")) {
            let message = format!("a figure cannot be called {}", quoted(name));
            add(found, "script.metrics", message, "use letters, digits, `_`, `/`, `.` and `@`");
        } else if expression.is_empty() || expression.len() > ARGUMENT_BYTES_MAX {
            let message = format!("`{key}` is empty, or longer than {ARGUMENT_BYTES_MAX} bytes");
            add(found, &key, message, "write an expression such as `loss is ([0-9.]+)`");
        }
    }
}

fn ports(job: &Job, found: &mut Vec<Finding>) {
    let Some(port) = job.script.port else { return };
    let machines = job.machine_count();
    let most: usize = job.role_counts().iter().map(|(_, count)| count.div_ceil(machines)).sum();
    let last = usize::from(port) + most.max(1) - 1;
    if last > usize::from(u16::MAX) {
        let message = format!(
            "`script.port` is {port}, but a machine may have {most} processes, and ports end at {}",
            u16::MAX
        );
        add(found, "script.port", message, "choose a smaller one, or leave it out");
    }
}
