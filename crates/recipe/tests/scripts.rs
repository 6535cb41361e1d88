//! Recipes of scripts: what is refused, and where; what is written again.

use planaria_recipe::{JobKind, JobSource, Source, to_yaml};

/// Each mistake on a line: what is written at its place, what is wrong, and what to do.
fn summary(text: &str) -> String {
    let found = JobSource::parse("r.yaml", text.as_bytes(), &[]).err();
    let line = |d: &planaria_recipe::Diagnostic| {
        let hint = d.hint.as_ref().map(|h| format!(" // {h}")).unwrap_or_default();
        let written = &text.lines().nth(d.line - 1).unwrap_or_default()[d.column - 1..];
        let end = written.find([',', ':', '}', ']', ' ']).unwrap_or(written.len());
        format!("{}: {}{hint}", &written[..end], d.message)
    };
    found.map(|d| d.list).unwrap_or_default().iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Keys of `script` besides `file`, and those of the recipe.
#[track_caller]
fn check(keys: &str, rest: &str, expect: &str) {
    let keys = if keys.is_empty() { String::new() } else { format!(", {keys}") };
    let text = format!("script: {{file: a.py{keys}}}\nname: a\n{rest}");
    assert_eq!(summary(&text), expect, "for\n{text}");
}

#[track_caller]
fn check_script(keys: &str, expect: &str) {
    check(keys, "", expect);
}

#[test]
fn sound_recipes_are_written_again() {
    for (keys, rest) in [
        ("framework: pytorch, args: [--epochs, 3, true, 0.5, '{{rank}}']", "pool: {workers: 4}"),
        ("framework: tensorflow, roles: {chief: 1, worker: 2, ps: 1, evaluator: 1}", ""),
        ("framework: tensorflow, roles: {chief: 1, ps: 1}, per_machine: 2", "pool: {machines: 2}"),
        ("framework: tensorflow, roles: {master: 1, worker: 1, ps: 1}", ""),
        ("framework: tensorflow, roles: {worker: 2, ps: 1}, env: {N: '{{rank}}'}", ""),
        ("framework: mpi, launcher_options: [--tag-output]", "pool: {workers: 9}"),
        ("framework: plain, timeout: 60, silence: 10", ""),
        ("roles: {worker: 3}", ""),
        ("per_machine: gpu, env: {A: '${env:HOME}'}", "pool: {provider: ssh, hosts: [a, b]}"),
        ("launcher: torchrun", "pool: {workers: {min: 2, max: 4}, machines: 2}"),
        ("framework: plain, env: {RANK: '0'}, port: 65535, tensorboard: logs", ""),
        ("outputs: ['*.pt', 'logs/**'], data: set, epochs: 3, code: .", "setup: [{pip: numpy}]"),
    ] {
        let text = format!("name: a\nscript: {{file: a.py, {keys}}}\n{rest}");
        let source = JobSource::parse("r.yaml", text.as_bytes(), &[]);
        let source = source.unwrap_or_else(|d| panic!("{d}\n{text}"));
        let written = to_yaml(source.recipe());
        let again = JobSource::parse("r.yaml", written.as_bytes(), &[]);
        let again = again.unwrap_or_else(|d| panic!("{d}\n{written}"));
        assert_eq!(again.recipe(), source.recipe(), "{written}");
    }
}

#[test]
fn recipes_are_told_from_those_of_networks() {
    let script = b"name: a\nscript: {file: a.py}\n";
    let said = Source::parse("r.yaml", script, &[]).unwrap_err().to_string();
    assert!(said.contains("this recipe runs a script: it has a `script`"), "{said}");
    assert!(said.contains("hint: `planaria run` reads it"), "{said}");
    assert!(said.contains("r.yaml:2:1") && !said.contains("missing key"), "{said}");
    let network = b"name: a\ndata: {train: digits}\nmodel: {preset: mlp}\n";
    let said = JobSource::parse("r.yaml", network, &[]).unwrap_err().to_string();
    assert!(said.contains("this recipe trains a network: it has a `model`"), "{said}");
    assert!(said.contains("hint: `planaria train` reads it"), "{said}");
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = dir.join("is-job.yaml");
    for (text, expect) in
        [(&script[..], JobKind::Script), (&network[..], JobKind::Train), (b"[", JobKind::Train)]
    {
        std::fs::write(&path, text).unwrap();
        assert_eq!(JobKind::of_file(&path, &[]), expect);
    }
    std::fs::write(&path, "name: a\n").unwrap();
    assert_eq!(JobKind::of_file(&path, &["script.file=a.py".into()]), JobKind::Script);
    assert_eq!(JobKind::of_file(&dir.join("no-such.yaml"), &[]), JobKind::Train);
}

#[test]
fn roles_fit_the_framework() {
    check_script(
        "framework: pytorch, roles: {worker: 2, ps: 1}",
        "1: `framework: pytorch` has no role `ps` // its roles: `worker`",
    );
    check_script(
        "framework: tensorflow, roles: {cheif: 1, worker: 2}",
        "1: `framework: tensorflow` has no role `cheif` // did you mean `chief`?",
    );
    check_script(
        "framework: tensorflow, roles: {ps: 1}",
        "1: parameter servers need workers, which compute // add `worker: 2` to `roles`",
    );
    check_script(
        "framework: plain, roles: {ps: 1, evaluator: 1}",
        "roles: every role is a service, so the job would never end // add `worker: 1`",
    );
    check_script(
        "framework: tensorflow, roles: {chief: 2, worker: 1}",
        "2: `script.roles.chief` is 2, but there is one chief // write `chief: 1`",
    );
    check_script(
        "framework: tensorflow, roles: {chief: 1, master: 1, worker: 1}",
        "1: `chief` and `master` are two names of one process // leave one of them out",
    );
    check_script(
        "framework: jax, launcher_options: --verbose",
        "--verbose: `script.launcher_options` is for `mpirun` and `torchrun` // write \
         `framework: mpi` or `launcher: torchrun`, or leave it out",
    );
    check_script(
        "framework: tensorflow, roles: {evaluator: 3, worker: 1}",
        "3: `script.roles.evaluator` is 3, but there is one // write `evaluator: 1`",
    );
    check_script(
        "roles: {a-b: 1, worker: 1}",
        "roles: a role cannot be called `a-b` // use letters, digits and `_`",
    );
    check_script(
        "roles: {actor: 0, worker: 1}",
        "0: `script.roles.actor` must be from 1 to 4096, but is 0 // leave out roles that have no process",
    );
}

#[test]
fn processes_are_counted_once() {
    check(
        "roles: {worker: 2}",
        "pool: {workers: 3}",
        "3: `pool.workers` is 3, but `script.roles.worker` is 2 // leave one of them out",
    );
    check(
        "roles: {actor: 2}",
        "pool: {workers: 3}",
        "3: `pool.workers` is 3, but `script.roles` has no `worker` // add `worker: 3` to `roles`, or leave `workers` out",
    );
    check(
        "per_machine: gpu",
        "pool: {workers: 3}",
        "3: `pool.workers` is 3, but `script.per_machine` says how many workers there are // leave one of them out",
    );
    check("per_machine: 2", "pool: {workers: 4, machines: 2}", "");
    check_script(
        "per_machine: 2, roles: {worker: 2}",
        "2: `script.roles.worker` says how many workers there are, and so does `script.per_machine` // leave one of them out",
    );
    check_script(
        "per_machine: gpus",
        "gpus: `script.per_machine` cannot be `gpus` // did you mean `gpu`?",
    );
    check_script(
        "roles: {worker: 4096, actor: 1}",
        "script: the job has 4097 processes, but 4096 at most are run // ask for fewer workers, or fewer on each machine",
    );
}

#[test]
fn options_of_networks_are_refused() {
    check(
        "",
        "pool: {servers: 1, threads: 2, machines: 2, slots: 2}",
        "1: `pool.servers` is for networks that Planaria trains itself // parameter servers are a role: `script: {roles: {chief: 1, worker: 2, ps: 1}}`\n\
         2: `pool.threads` is for networks that Planaria trains itself // set a variable such as `OMP_NUM_THREADS` in `script.env`\n\
         2: `pool.slots` is for networks that Planaria trains itself // `script.per_machine` says how many workers each machine has",
    );
    check(
        "framework: pytorch",
        "pool: {workers: {min: 1, max: 2}}",
        "workers: only `launcher: torchrun` goes on with fewer workers than there were // write `workers: 2`, or `launcher: torchrun` in `script`",
    );
}

#[test]
fn launchers_start_what_they_can() {
    check_script(
        "framework: tensorflow, launcher: torchrun",
        "torchrun: `torchrun` starts PyTorch, but the framework is `tensorflow` // leave it out, or write `framework: pytorch`",
    );
    check_script(
        "launcher: torchrun, args: ['--n={{machines}}', '--rank={{rank}}']",
        "'--rank={{rank: `{{rank}}` is not known before `torchrun` starts workers // the script finds it in its variables: `RANK`, `WORLD_SIZE`, `LOCAL_RANK`",
    );
    check_script(
        "framework: mpi, args: ['{{world_size}}']",
        "'{{world_size: `{{world_size}}` is not known before `mpirun` starts workers // the script finds it in its variables: `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE`",
    );
}

#[test]
fn fields_of_arguments_are_known() {
    check_script(
        "args: ['--ps={{ps_hosts}}']",
        "'--ps={{ps_hosts: arguments have no field `ps_hosts` // there is no role `ps`; `script: {roles: {ps: 1, worker: 2}}` has one",
    );
    check_script(
        "args: ['{{indx}}', '{{epochs}}', '{{data}}', '{{x']",
        "'{{indx: arguments have no field `indx` // did you mean `index`?\n\
         '{{epochs: arguments have no field `epochs` // set `script.epochs` too\n\
         '{{data: arguments have no field `data` // set `script.data` too\n\
         '{{x': `{{` without `}}` // write a field such as `{{index}}`; `{{{{` stands for `{{` itself",
    );
    check_script(
        "args: ['--key=${env:KEY}']",
        "'--key=${env: references are looked up in `env`: arguments are visible to every user // write `env: {TOKEN: \"${env:TOKEN}\"}`",
    );
}

#[test]
fn variables_are_the_scripts_own() {
    check_script(
        "framework: pytorch, env: {RANK: '0'}",
        "'0': `RANK` is set for each process as the framework wants it // leave it out",
    );
    check_script(
        "framework: tensorflow, env: {TF_CONFIG: x, RANK: '0'}",
        "x: `TF_CONFIG` is set for each process as the framework wants it // leave it out",
    );
    check_script(
        "per_machine: gpu, env: {CUDA_VISIBLE_DEVICES: '0'}",
        "'0': `CUDA_VISIBLE_DEVICES` is set for each process as the framework wants it // leave it out",
    );
    check_script(
        "env: {A-B: x}",
        "x: a variable cannot be called `A-B` // use letters, digits and `_`, such as `WANDB_API_KEY`",
    );
    check_script(
        "env: {KEY: 'x${env:KEY}'}",
        "'x${env: `KEY`: text comes before the reference // a reference stands alone: `${env:NAME}` or `file:PATH`",
    );
}

#[test]
fn paths_are_where_they_can_be() {
    check_script(
        "outputs: ['*.pt', /tmp/x, '../x', 'a[b', '']",
        "/tmp/x: the pattern `/tmp/x` is not relative to the code's folder // write a pattern such as `*.pt` or `logs/**`\n\
         '../x': the pattern `../x` holds `..` // write a pattern such as `*.pt` or `logs/**`\n\
         'a[b': the pattern `a[b` has a bracket without its other // write a pattern such as `*.pt` or `logs/**`\n\
         '': the pattern `` is empty // write a pattern such as `*.pt` or `logs/**`",
    );
    check_script(
        "outputs: ~/x",
        "~/x: the pattern `~/x` is not relative to the code's folder // write a pattern such as `*.pt` or `logs/**`",
    );
    check_script(
        "tensorboard: /logs",
        "/logs: `script.tensorboard` is `/logs`, which is not inside of the code's folder // write a folder such as `logs`",
    );
    check_script(
        "python: -V",
        "-V: `script.python` cannot be `-V` // write `python3`, `/…` or `~/…`",
    );
    let notebook = summary("{name: a, script: {file: a.ipynb}}");
    assert!(notebook.contains("is a notebook: `a.ipynb` // make a script of it"), "{notebook}");
    let empty = summary("{name: a, script: {file: ''}}");
    assert!(empty.contains("`script.file` is empty"), "{empty}");
}

#[test]
fn ports_fit_below_the_last() {
    check(
        "port: 65534, roles: {worker: 4, ps: 2}",
        "pool: {machines: 2}",
        "65534: `script.port` is 65534, but a machine may have 3 processes, and ports end at 65535 // choose a smaller one, or leave it out",
    );
    check("port: 65533, roles: {worker: 4, ps: 2}", "pool: {machines: 2}", "");
}

#[test]
fn the_examples_are_sound() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/scripts");
    let mut found = 0;
    for entry in std::fs::read_dir(folder).expect("examples").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            found += 1;
            let job = JobSource::load(&path, &[]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
            // Found beside the recipe, from wherever it is run.
            let file = &job.recipe().script.file;
            assert!(std::path::Path::new(file).is_file(), "{file}");
        }
    }
    assert!(found >= 8, "{found} recipes");
}
