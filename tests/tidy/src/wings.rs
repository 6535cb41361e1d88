//! A wing (a provider, a training method, a store, an engine, a kind of job) is known by its name in
//! its own folder and on its registration lines, and nowhere else: so that another one touches
//! nothing but its own folder and those lines.

use crate::{read, report, root, rust_files};
use std::cmp::Ordering;
use std::path::Path;

/// A seam with wings behind it.
struct Seam {
    /// The folders that have its wings, in whichever crate; the `mod.rs` of each lists them.
    folder: &'static str,
    /// Enums with a variant for each wing.
    enums: &'static [&'static str],
    /// What is in those folders besides wings.
    shared: &'static [&'static str],
}

const PROVIDERS: Seam =
    Seam { folder: "providers", enums: &["Provider", "Choice"], shared: &["several", "dialled"] };
const METHODS: Seam = Seam {
    folder: "methods",
    enums: &["Method", "Command", "Report"],
    // No recipe's method: how a run in one process is driven.
    shared: &["solo"],
};
const STORES: Seam = Seam { folder: "stores", enums: &[], shared: &[] };
const ENGINES: Seam = Seam { folder: "engines", enums: &[], shared: &[] };
const JOBS: Seam =
    Seam { folder: "jobs", enums: &[], shared: &["about", "controller", "pooling", "steps"] };
const SEAMS: [&Seam; 5] = [&PROVIDERS, &METHODS, &STORES, &ENGINES, &JOBS];

struct Wing {
    seam: &'static Seam,
    /// Its module, in every folder of the seam.
    name: &'static str,
    /// The text that recipes or URLs know it by, where the text means nothing else.
    text: Option<&'static str>,
    /// Whether the word means nothing else, so that no message or identifier may have it either.
    is_rare: bool,
    /// More names of its own files and folders.
    own: &'static [&'static str],
    /// Files that list all wings of the kind, with how many lines of them say the name.
    registered: &'static [(&'static str, usize)],
}

const PLAIN: Wing =
    Wing { seam: &PROVIDERS, name: "", text: None, is_rare: false, own: &[], registered: &[] };

const WINGS: &[Wing] = &[
    Wing {
        name: "docker",
        text: Some("docker"),
        is_rare: true,
        registered: &[
            ("crates/recipe/src/pool/providers/mod.rs", 2),
            ("crates/fleet/src/providers/mod.rs", 2),
        ],
        ..PLAIN
    },
    Wing {
        name: "ssh",
        text: Some("ssh"),
        is_rare: true,
        registered: &[
            ("crates/recipe/src/pool/providers/mod.rs", 2),
            ("crates/fleet/src/providers/mod.rs", 2),
        ],
        ..PLAIN
    },
    Wing {
        name: "local",
        text: Some("local"),
        registered: &[
            // The third is the default.
            ("crates/recipe/src/pool/providers/mod.rs", 3),
            ("crates/fleet/src/providers/mod.rs", 2),
        ],
        ..PLAIN
    },
    Wing {
        seam: &METHODS,
        name: "coded",
        text: Some("coded"),
        is_rare: true,
        own: &["coding"],
        registered: &[
            ("crates/recipe/src/train/mod.rs", 3),
            ("crates/recipe/src/train/methods/mod.rs", 3),
            ("crates/recipe/src/rules/methods/mod.rs", 2),
            ("crates/protocol/src/methods/mod.rs", 2),
            ("crates/coordinator/src/methods/mod.rs", 2),
            ("crates/worker/src/methods/mod.rs", 5),
            ("crates/planaria/src/commands/plan/methods/mod.rs", 4),
            // The simulation has a laboratory for each method, and seeds choose one.
            ("crates/sim/src/world/worker/mod.rs", 6),
            // What is still to be asked by another name. Only ever made shorter.
            ("crates/sim/src/faults.rs", 3),
            ("crates/sim/src/lab/mod.rs", 15),
            ("crates/sim/src/lib.rs", 5),
            ("crates/sim/src/main.rs", 5),
            ("crates/sim/src/net.rs", 1),
        ],
    },
    Wing {
        seam: &METHODS,
        name: "sync",
        text: Some("sync"),
        registered: &[
            ("crates/recipe/src/train/methods/mod.rs", 2),
            ("crates/recipe/src/rules/methods/mod.rs", 2),
            ("crates/protocol/src/methods/mod.rs", 2),
            ("crates/coordinator/src/methods/mod.rs", 2),
            ("crates/worker/src/methods/mod.rs", 5),
            ("crates/planaria/src/commands/plan/methods/mod.rs", 4),
            // The simulation of very many workers is of this method.
            ("crates/sim/src/scale.rs", 4),
        ],
        ..PLAIN
    },
    Wing {
        // Its scheme, `file`, is an ordinary word.
        seam: &STORES,
        name: "local",
        registered: &[
            ("crates/store/src/stores/mod.rs", 2),
            // What is no URL is a path of this store.
            ("crates/store/src/location.rs", 1),
        ],
        ..PLAIN
    },
    Wing {
        seam: &ENGINES,
        name: "cpu",
        text: Some("cpu"),
        registered: &[("crates/learn/src/engines/mod.rs", 2), ("crates/learn/src/lib.rs", 1)],
        ..PLAIN
    },
    // Both are also sections of recipes. Each has a command that starts it; the other files that
    // name them are still to ask any kind. Only ever made shorter.
    Wing {
        seam: &JOBS,
        name: "train",
        registered: &[
            ("crates/control/src/jobs/mod.rs", 2),
            ("crates/control/src/agents/coordinator.rs", 1),
            ("crates/control/src/detached/beginning.rs", 1),
            ("crates/planaria/src/commands/evaluate.rs", 1),
            ("crates/planaria/src/commands/status.rs", 1),
            ("crates/planaria/src/library/mod.rs", 5),
            ("crates/planaria/src/library/resuming.rs", 4),
        ],
        ..PLAIN
    },
    Wing {
        seam: &JOBS,
        name: "script",
        registered: &[
            ("crates/control/src/jobs/mod.rs", 2),
            ("crates/planaria/src/commands/run.rs", 1),
            ("crates/planaria/src/doctor/trial.rs", 1),
        ],
        ..PLAIN
    },
];

#[test]
fn wings_are_named_in_their_own_folders_alone() {
    let mut found = Vec::new();
    for path in rust_files(&root().join("crates")) {
        let shown = path.strip_prefix(root()).expect("found under the root");
        if !shown.components().any(|part| part.as_os_str() == "src") {
            continue;
        }
        let text = read(&path);
        found.extend(WINGS.iter().filter_map(|wing| stray(wing, shown, &text)));
        found.extend(unlisted(shown));
    }
    let gone = WINGS
        .iter()
        .flat_map(|wing| wing.registered)
        .filter(|(file, _)| !root().join(file).exists());
    found.extend(gone.map(|(file, _)| format!("{file} is listed in WINGS, and is not there")));
    found.sort();
    found.dedup();
    report(found);
}

#[test]
fn strays_are_found() {
    let registered: &[_] = &[("crates/x/src/providers/mod.rs", 1)];
    let rare = Wing { name: "ssh", is_rare: true, registered, ..PLAIN };
    let plain = Wing { name: "echo", text: Some("echo"), registered, ..PLAIN };
    let check = |wing: &Wing, path: &str, text: &str, is_stray: bool| {
        let found = stray(wing, Path::new(path), text);
        assert_eq!(found.is_some(), is_stray, "{path}: {text}: {found:?}");
    };
    let (pool, list) = ("crates/x/src/pool.rs", "crates/x/src/providers/mod.rs");
    check(&rare, pool, "fn is_ssh() {}\n", true);
    check(&rare, pool, "enum E { SshHost }\n", true);
    check(&rare, pool, "let why = \"an ssh host\";\n", true);
    check(&rare, pool, "// ssh\nlet sshd = 1;\n#[cfg(test)]\nmod ssh {}\n", false);
    check(&rare, "crates/x/src/ssh/mod.rs", "struct Ssh;\n", false);
    check(&rare, list, "mod ssh;\n", false);
    check(&rare, list, "mod ssh;\nfn ssh() {}\n", true);
    check(&rare, list, "mod docker;\n", true);

    for stray in [
        "use crate::providers::echo;\n",
        "use crate::providers::{self, echo};\n",
        "let is_it = matches!(provider, Provider::Echo(_));\n",
        "if name == \"echo\" {}\n",
    ] {
        check(&plain, pool, stray, true);
    }
    for other in [
        "let echo = an_echo(\"an echo\");\n",
        "use crate::providers::echoes;\n",
        "Provider::Echoes => \"echoes\",\n",
        "use crate::stores::echo;\n",
        "// providers::echo\n",
    ] {
        check(&plain, pool, other, false);
    }
    check(&plain, list, "mod echo;\n", false);
    check(&plain, list, "use std::echo::Arc;\n    Echo => echo,\n", false);
    check(&plain, list, "mod echo;\n    Echo => echo,\n", true);
}

/// Why a file in a folder of wings is not known here.
fn unlisted(path: &Path) -> Option<String> {
    let parts = stems(path);
    let (seam, at) = SEAMS.iter().find_map(|seam| {
        let at = parts.iter().position(|part| part == seam.folder)?;
        Some((*seam, at))
    })?;
    let name = parts.get(at + 1).filter(|name| *name != "mod")?;
    let is_wing = |wing: &Wing| wing.seam.folder == seam.folder && wing.name == name;
    let is_known = seam.shared.contains(&name.as_str()) || WINGS.iter().any(is_wing);
    let folder = seam.folder;
    (!is_known).then(|| {
        format!("`{folder}/{name}` is not listed in WINGS: add it (tests/tidy/src/wings.rs)")
    })
}

/// The names of a path's parts, without extensions.
fn stems(path: &Path) -> Vec<String> {
    let stem = |part: std::path::Component<'_>| {
        Path::new(part.as_os_str()).file_stem().map(|stem| stem.to_string_lossy().into_owned())
    };
    path.components().filter_map(stem).collect()
}

/// Why a file may not say the wing's name as it does.
fn stray(wing: &Wing, path: &Path, text: &str) -> Option<String> {
    let parts = stems(path);
    let is_own = parts.iter().any(|part| part == wing.name || wing.own.contains(&part.as_str()));
    let is_test = parts.iter().any(|part| part == "tests" || part.ends_with("_tests"));
    if is_own || is_test {
        return None;
    }
    let is_list = path.ends_with(Path::new(wing.seam.folder).join("mod.rs"));
    let code = text.split("\n#[cfg(test)]").next().unwrap_or_default();
    let names = |(_, line): &(usize, &str)| {
        !line.trim_start().starts_with("//") && wing.is_named(line, is_list)
    };
    let lines: Vec<usize> =
        (1..).zip(code.lines()).filter(names).map(|(number, _)| number).collect();
    let listed = wing.registered.iter().find(|(file, _)| Path::new(file) == path);
    let allowed = listed.map_or(0, |(_, lines)| *lines);
    let (path, name) = (path.display(), format!("{}::{}", wing.seam.folder, wing.name));
    match lines.len().cmp(&allowed) {
        Ordering::Equal => None,
        Ordering::Less => Some(format!(
            "{path}: {} lines name `{name}` and {allowed} are listed: make the list shorter \
             (tests/tidy/src/wings.rs)",
            lines.len()
        )),
        Ordering::Greater => Some(format!(
            "{path}: lines {lines:?} name `{name}`, which only its own folder may (here {allowed} \
             lines): ask for what is meant by a name that every wing of the kind can answer to"
        )),
    }
}

impl Wing {
    /// Whether a line names it: by its path, its variant or its text, in a list of wings by its
    /// module, and by the word alone where that is rare.
    fn is_named(&self, line: &str, is_list: bool) -> bool {
        let (name, folder) = (self.name, self.seam.folder);
        let variant = name[..1].to_uppercase() + &name[1..];
        let imports = line.split_once(&format!("{folder}::{{")).map(|(_, names)| names);
        has(line, &format!("{folder}::{name}"))
            || imports.is_some_and(|names| has(names, name))
            || self.seam.enums.iter().any(|of| has(line, &format!("{of}::{variant}")))
            || self.text.is_some_and(|text| line.contains(&format!("\"{text}\"")))
            || (is_list && has(line, name))
            || (self.is_rare && words(line).any(|word| word == name))
    }
}

/// Whether a line has these identifiers whole, and not as the end of another path.
fn has(line: &str, path: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(path).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + path.len()..]);
        let is_end = before.ends_with("::") && !path.contains("::");
        !is_end && !before.ends_with(is_name) && !after.starts_with(is_name)
    })
}

/// The words of a line, in lower case: `is_sshHost` has three.
fn words(line: &str) -> impl Iterator<Item = String> {
    let mut found: Vec<String> = Vec::new();
    let mut before = ' ';
    for c in line.chars() {
        let begins = !before.is_alphanumeric() || (c.is_uppercase() && !before.is_uppercase());
        if c.is_alphanumeric() {
            if begins {
                found.push(String::new());
            }
            if let Some(word) = found.last_mut() {
                word.extend(c.to_lowercase());
            }
        }
        before = c;
    }
    found.into_iter()
}
