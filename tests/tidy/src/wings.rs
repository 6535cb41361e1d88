//! A wing (a provider, a training method, a store, an engine, a kind of job) is known by its name in
//! its own folder and on its registration lines, and nowhere else: so that another one touches
//! nothing but its own folder and those lines.

use crate::{read, report, root, rust_files};
use std::cmp::Ordering;
use std::path::Path;

struct Wing {
    /// The word that only its own files say, as identifiers and messages spell it; a path of modules
    /// where the word alone means other things too.
    name: &'static str,
    /// Names of its own files and folders, in whichever crate.
    own: &'static [&'static str],
    /// Files that list all wings of the kind, with how many lines of them say the name.
    registered: &'static [(&'static str, usize)],
}

const WINGS: &[Wing] = &[
    Wing {
        name: "docker",
        own: &["docker"],
        registered: &[
            ("crates/recipe/src/pool/providers/mod.rs", 2),
            ("crates/fleet/src/providers/mod.rs", 2),
        ],
    },
    Wing {
        name: "ssh",
        own: &["ssh"],
        registered: &[
            ("crates/recipe/src/pool/providers/mod.rs", 2),
            ("crates/fleet/src/providers/mod.rs", 2),
        ],
    },
    Wing {
        name: "coded",
        own: &["coded", "coding"],
        registered: &[
            ("crates/recipe/src/train/mod.rs", 3),
            ("crates/recipe/src/train/methods/mod.rs", 7),
            ("crates/recipe/src/rules/methods/mod.rs", 2),
            ("crates/protocol/src/methods/mod.rs", 4),
            ("crates/coordinator/src/methods/mod.rs", 2),
            ("crates/worker/src/methods/mod.rs", 5),
            ("crates/planaria/src/commands/plan/methods/mod.rs", 3),
            // The simulation has a laboratory for each method, and seeds choose one.
            ("crates/sim/src/world/worker/mod.rs", 6),
            // What is still to be asked by another name. Only ever made shorter.
            ("crates/sim/src/faults.rs", 3),
            ("crates/sim/src/lab/mod.rs", 15),
            ("crates/sim/src/lib.rs", 5),
            ("crates/sim/src/main.rs", 5),
            ("crates/sim/src/net.rs", 1),
            ("crates/sim/src/verdict.rs", 2),
        ],
    },
    Wing {
        name: "Method::Sync",
        own: &["sync"],
        registered: &[
            ("crates/recipe/src/train/mod.rs", 1),
            ("crates/recipe/src/rules/methods/mod.rs", 1),
            ("crates/coordinator/src/methods/mod.rs", 1),
            ("crates/worker/src/methods/mod.rs", 1),
            ("crates/planaria/src/commands/plan/methods/mod.rs", 2),
        ],
    },
    // The simulation of very many workers is of this method.
    Wing { name: "methods::sync", own: &["sync"], registered: &[("crates/sim/src/scale.rs", 1)] },
    Wing { name: "providers::local", own: &["local"], registered: &[] },
    Wing { name: "stores::local", own: &["local"], registered: &[] },
    Wing { name: "engines::cpu", own: &["cpu"], registered: &[("crates/learn/src/lib.rs", 1)] },
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
    }
    let gone = WINGS
        .iter()
        .flat_map(|wing| wing.registered)
        .filter(|(file, _)| !root().join(file).exists());
    found.extend(gone.map(|(file, _)| format!("{file} is listed in WINGS, and is not there")));
    report(found);
}

#[test]
fn strays_are_found() {
    let wing = Wing { name: "ssh", own: &["ssh"], registered: &[("crates/x/src/mod.rs", 1)] };
    let check = |path: &str, text: &str, is_stray: bool| {
        let found = stray(&wing, Path::new(path), text);
        assert_eq!(found.is_some(), is_stray, "{path}: {found:?}");
    };
    check("crates/x/src/pool.rs", "fn is_ssh() {}\n", true);
    check("crates/x/src/pool.rs", "enum E { SshHost }\n", true);
    check("crates/x/src/pool.rs", "let why = \"an ssh host\";\n", true);
    check("crates/x/src/pool.rs", "// ssh\nlet sshd = 1;\n#[cfg(test)]\nmod ssh {}\n", false);
    check("crates/x/src/ssh/mod.rs", "struct Ssh;\n", false);
    check("crates/x/src/mod.rs", "mod ssh;\n", false);
    check("crates/x/src/mod.rs", "mod ssh;\nfn ssh() {}\n", true);
    check("crates/x/src/mod.rs", "mod docker;\n", true);
}

/// Why a file may not say the wing's name as it does.
fn stray(wing: &Wing, path: &Path, text: &str) -> Option<String> {
    let stem = |part: std::path::Component<'_>| {
        Path::new(part.as_os_str()).file_stem().map(|stem| stem.to_string_lossy().into_owned())
    };
    let parts: Vec<String> = path.components().filter_map(stem).collect();
    let is_own = parts.iter().any(|part| wing.own.contains(&part.as_str()));
    let is_test = parts.iter().any(|part| part == "tests" || part.ends_with("_tests"));
    if is_own || is_test {
        return None;
    }
    let code = text.split("\n#[cfg(test)]").next().unwrap_or_default();
    let says = |(_, line): &(usize, &str)| {
        !line.trim_start().starts_with("//")
            && match wing.name.contains("::") {
                true => line.contains(wing.name),
                false => words(line).any(|word| word == wing.name),
            }
    };
    let lines: Vec<usize> =
        (1..).zip(code.lines()).filter(says).map(|(number, _)| number).collect();
    let listed = wing.registered.iter().find(|(file, _)| Path::new(file) == path);
    let allowed = listed.map_or(0, |(_, lines)| *lines);
    let (path, name) = (path.display(), wing.name);
    match lines.len().cmp(&allowed) {
        Ordering::Equal => None,
        Ordering::Less => Some(format!(
            "{path}: {} lines say `{name}` and {allowed} are listed: make the list shorter \
             (tests/tidy/src/wings.rs)",
            lines.len()
        )),
        Ordering::Greater => Some(format!(
            "{path}: lines {lines:?} say `{name}`, which only its own folder may (here {allowed} \
             lines): ask for what is meant by a name that every wing of the kind can answer to"
        )),
    }
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
