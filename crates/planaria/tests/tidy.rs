//! Keeps the house in order: which crate may use which, what each dependency is for, and how
//! source files are written. Every finding names the file or crate and what to do about it.

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Who may use whom, in the order data flows; a crate may use anything named after its own name.
const ARROWS: &[(&str, &[&str])] = &[
    ("planaria-recipe", &[]),
    ("planaria-numerics", &["planaria-recipe"]),
    ("planaria-learn", &["planaria-recipe", "planaria-numerics"]),
    ("planaria-store", &[]),
    ("planaria-data", &["planaria-recipe", "planaria-numerics", "planaria-store"]),
    ("planaria-protocol", &["planaria-recipe", "planaria-numerics", "planaria-store"]),
    ("planaria-fleet", &["planaria-recipe", "planaria-store", "planaria-protocol"]),
    (
        "planaria-coordinator",
        &[
            "planaria-recipe",
            "planaria-numerics",
            "planaria-learn",
            "planaria-store",
            "planaria-protocol",
        ],
    ),
    (
        "planaria-worker",
        &[
            "planaria-recipe",
            "planaria-numerics",
            "planaria-learn",
            "planaria-data",
            "planaria-protocol",
        ],
    ),
    (
        "planaria-sim",
        &[
            "planaria-recipe",
            "planaria-numerics",
            "planaria-learn",
            "planaria-data",
            "planaria-protocol",
            "planaria-fleet",
            "planaria-coordinator",
            "planaria-worker",
        ],
    ),
    (
        "planaria-runs",
        &["planaria-recipe", "planaria-numerics", "planaria-learn", "planaria-protocol"],
    ),
    (
        "planaria-control",
        &[
            "planaria-recipe",
            "planaria-numerics",
            "planaria-learn",
            "planaria-store",
            "planaria-data",
            "planaria-protocol",
            "planaria-fleet",
            "planaria-coordinator",
            "planaria-worker",
            "planaria-runs",
        ],
    ),
    (
        "planaria",
        &[
            "planaria-recipe",
            "planaria-numerics",
            "planaria-learn",
            "planaria-data",
            "planaria-protocol",
            "planaria-fleet",
            "planaria-coordinator",
            "planaria-worker",
            "planaria-runs",
            "planaria-control",
        ],
    ),
];

/// Crates whose top-level modules still import each other in a circle. Only ever made shorter.
const CYCLES_LEFT: &[&str] =
    &["control", "coordinator", "data", "fleet", "protocol", "recipe", "sim", "worker"];

/// A file past about 500 lines wants two names; past this it does not get in.
const FILE_LINES_MAX: usize = 600;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "manager", "managers", "misc"];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[test]
fn crates_point_one_way() {
    report(arrows(&metadata()));
}

#[test]
fn modules_point_one_way() {
    let crates = root().join("crates");
    let mut found = Vec::new();
    for entry in fs::read_dir(&crates).expect("there are crates").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let sources = rust_files(&entry.path().join("src"));
        let texts = sources.iter().map(|path| {
            let inside = path.strip_prefix(entry.path().join("src")).expect("found there");
            (inside.to_path_buf(), read(path))
        });
        let cycle = cycle(&imports(texts));
        match (cycle, CYCLES_LEFT.contains(&&*name)) {
            (Some(modules), false) => found.push(format!(
                "crate `{name}`: modules import each other in a circle: {}; move what both need \
                 below both",
                modules.join(" -> ")
            )),
            (None, true) => found.push(format!(
                "crate `{name}` has no circle of modules any more: take it out of CYCLES_LEFT \
                 (crates/planaria/tests/tidy.rs)"
            )),
            _ => {}
        }
    }
    report(found);
}

#[test]
fn every_dependency_is_justified() {
    let text = read(&root().join("ARCHITECTURE.md"));
    report(justifications(&metadata(), &text));
}

#[test]
fn licences_and_sources_are_allowed() {
    let allowed = quoted_list(&read(&root().join("deny.toml")), "allow");
    assert!(!allowed.is_empty(), "deny.toml has no `allow` list of licences");
    report(licences(&metadata(), &allowed));
}

#[test]
fn sources_are_in_house_style() {
    let mut found = Vec::new();
    for path in rust_files(&root().join("crates")) {
        let name = path.strip_prefix(root()).expect("found under the root").to_path_buf();
        found.extend(style(&name, &read(&path)));
    }
    report(found);
}

#[test]
fn rules_catch_what_they_are_for() {
    let check = |path: &str, text: &str, expect: &str| {
        let found = style(Path::new(path), text).join("\n");
        assert!(found.contains(expect), "{path}: expected `{expect}` in {found:?}");
    };
    check("crates/x/src/a.rs", "fn f() {}\n", "opens with `//!`");
    check("crates/x/src/io_utils.rs", "//! .\n", "says nothing");
    check("crates/x/src/common/mod.rs", "//! .\n", "says nothing");
    check("crates/x/src/a.rs", concat!("//! .\n#[", "allow(dead_code)]\n"), "a.rs:2: write");
    check("crates/x/src/a.rs", concat!("//! .\nfn f() { todo", "!() }\n"), "a.rs:2: unfinished");
    check("crates/x/src/a.rs", &"//! .\n".repeat(FILE_LINES_MAX + 1), "601 lines");

    let files = |texts: &[(&str, &str)]| {
        let file = |(path, text): &(&str, &str)| (PathBuf::from(path), (*text).to_owned());
        imports(texts.iter().map(file).collect::<Vec<_>>().into_iter())
    };
    let circle = files(&[
        ("a/mod.rs", "//! .\nuse crate::{b::X, c};\n"),
        ("b.rs", "use crate::c::Y;\n"),
        ("c.rs", "fn f() { crate::a::g() }\n"),
    ]);
    assert_eq!(cycle(&circle).unwrap(), ["a", "b", "c", "a"]);
    let straight = files(&[
        ("a.rs", "use crate::b::X;\n"),
        ("b.rs", "// crate::a\n#[cfg(test)]\nmod tests { use crate::a::Y; }\n"),
        ("b/tests.rs", "use crate::a::Y;\n"),
    ]);
    assert_eq!(cycle(&straight), None);

    let allowed = ["MIT".to_string(), "Zlib".to_string()];
    for (expression, expect) in [
        ("MIT", true),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only/MIT", true),
        ("MIT AND GPL-3.0-only", false),
        ("(MIT OR GPL-3.0-only) AND Zlib", true),
        ("Apache-2.0 WITH LLVM-exception", false),
        ("", false),
    ] {
        assert_eq!(licence_allowed(expression, &allowed), expect, "{expression}");
    }
}

/// Which top-level modules of a crate use which others, from `crate::` paths outside of tests.
fn imports(files: impl Iterator<Item = (PathBuf, String)>) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in files {
        let first = path.components().next().expect("a file has a name");
        let module = Path::new(first.as_os_str()).file_stem().expect("a name").to_string_lossy();
        let is_test =
            path.components().any(|c| c.as_os_str().to_string_lossy().starts_with("tests"));
        if ["lib", "main"].contains(&&*module) || is_test {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code = lines.collect::<Vec<_>>().join("\n");
        let used = found.entry(module.to_string()).or_default();
        used.extend(code.split("crate::").skip(1).flat_map(leading));
        used.remove(&*module);
    }
    let all: BTreeSet<String> = found.keys().cloned().collect();
    // `crate::BUILD` and what `lib.rs` re-exports are no modules.
    found.values_mut().for_each(|used| used.retain(|name| all.contains(name)));
    found
}

/// The modules that a path after `crate::` begins with: `a::B` has one, `{a, b::C}` two.
fn leading(path: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(list) = path.strip_prefix('{') else { return vec![word(path)] };
    let (mut depth, mut start, mut words) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                words.push(word(&list[start..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                words.push(word(&list[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    words
}

/// Modules each of which uses the next, and the last the first; nothing where there are none.
fn cycle(uses: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk<'a>(
        uses: &'a BTreeMap<String, BTreeSet<String>>,
        at: &'a str,
        way: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<Vec<String>> {
        if let Some(start) = way.iter().position(|module| *module == at) {
            let circle = way[start..].iter().chain([&at]);
            return Some(circle.map(|module| (*module).to_owned()).collect());
        }
        if !done.contains(at) {
            way.push(at);
            let found = uses[at].iter().find_map(|next| walk(uses, next, way, done));
            way.pop();
            done.insert(at);
            return found;
        }
        None
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|module| walk(uses, module, &mut Vec::new(), &mut done))
}

fn arrows(metadata: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let ours: BTreeSet<&str> = ours(metadata).map(|p| text(p, "name")).collect();
    for package in self::ours(metadata) {
        let name = text(package, "name");
        let Some((_, allowed)) = ARROWS.iter().find(|(n, _)| *n == name) else {
            found.push(format!(
                "crate `{name}` has no place in ARROWS (crates/planaria/tests/tidy.rs)"
            ));
            continue;
        };
        for dependency in list(package, "dependencies").map(|d| text(d, "name")) {
            if ours.contains(dependency) && !allowed.contains(&dependency) {
                found.push(format!(
                    "crate `{name}` must not use `{dependency}` (allowed: {allowed:?})"
                ));
            }
        }
    }
    found
}

fn justifications(metadata: &Value, architecture: &str) -> Vec<String> {
    let table: BTreeSet<&str> = architecture
        .lines()
        .skip_while(|line| !line.starts_with("## Dependencies"))
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let used: BTreeSet<&str> = ours(metadata)
        .flat_map(|package| list(package, "dependencies"))
        .filter(|dependency| dependency["path"].is_null())
        .map(|dependency| text(dependency, "name"))
        .collect();
    let missing = used.difference(&table).map(|name| {
        format!("dependency `{name}` has no line in ARCHITECTURE.md, \"Dependencies\": say what it is for, or do without it")
    });
    let stale = table.difference(&used).map(|name| {
        format!("ARCHITECTURE.md, \"Dependencies\", explains `{name}`, which no crate uses")
    });
    missing.chain(stale).collect()
}

fn licences(metadata: &Value, allowed: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for package in list(metadata, "packages") {
        let (name, version) = (text(package, "name"), text(package, "version"));
        let expression = package["license"].as_str().unwrap_or("");
        if !licence_allowed(expression, allowed) {
            found.push(format!(
                "`{name}` {version} has licence `{expression}`, which deny.toml does not allow"
            ));
        }
        if package["source"].as_str().is_some_and(|source| source != CRATES_IO) {
            found.push(format!("`{name}` {version} does not come from crates.io"));
        }
    }
    found
}

fn style(path: &Path, text: &str) -> Vec<String> {
    let shown = path.display();
    let mut found = Vec::new();
    let in_src = path.components().any(|c| c.as_os_str() == "src");
    if in_src && !text.starts_with("//!") {
        found.push(format!(
            "{shown}:1: opens with `//!` saying what it owns and what it never does"
        ));
    }
    for part in path.components().filter_map(|c| Path::new(c.as_os_str()).file_stem()?.to_str()) {
        if part.split('_').any(|word| EMPTY_NAMES.contains(&word)) {
            found.push(format!("{shown}: `{part}` says nothing; name what it holds"));
        }
    }
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        found.push(format!(
            "{shown}: {lines} lines, more than {FILE_LINES_MAX}; find two names for it"
        ));
    }
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        let silent = [concat!("#[", "allow("), concat!("#![", "allow(")];
        if silent.iter().any(|attribute| code.starts_with(attribute)) {
            found.push(format!(
                "{shown}:{number}: write `#[expect(lint, reason = \"…\")]` instead of `allow`"
            ));
        }
        let unfinished = [concat!("todo", "!("), concat!("unimplemented", "!(")];
        if unfinished.iter().any(|macro_call| code.contains(macro_call)) {
            found.push(format!("{shown}:{number}: unfinished"));
        }
    }
    found
}

/// Whether an SPDX expression can be met from `allowed` (`/` is an old spelling of OR).
fn licence_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let result = any_of(&mut words, allowed);
    result && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut result = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        result |= all_of(words, allowed);
    }
    result
}

fn all_of(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut result = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        result &= one(words, allowed);
    }
    result
}

fn one(words: &mut Words<'_>, allowed: &[String]) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let result = any_of(words, allowed);
        return words.next_if_eq(&")").is_some() && result;
    }
    let Some(name) = words.next() else { return false };
    let name = match words.next_if_eq(&"WITH").and_then(|_| words.next()) {
        Some(exception) => format!("{name} WITH {exception}"),
        None => name.to_string(),
    };
    allowed.contains(&name)
}

/// The strings of `key = [ "…", … ]` in a TOML file.
fn quoted_list(toml: &str, key: &str) -> Vec<String> {
    toml.lines()
        .skip_while(|line| !line.starts_with(&format!("{key} = [")))
        .take_while(|line| !line.starts_with(']'))
        .filter_map(|line| line.trim().strip_prefix('"')?.split('"').next())
        .map(String::from)
        .collect()
}

/// Packages of this machine's build, ours and others'. Packages that only other platforms build
/// may not be on this machine, so they are left out.
fn metadata() -> Value {
    let version = run(Command::new("rustc").arg("-vV"));
    let host =
        version.lines().find_map(|l| l.strip_prefix("host: ")).expect("rustc names its host");
    let arguments = ["metadata", "--format-version=1", "--locked", "--filter-platform", host];
    let text = run(Command::new(env!("CARGO")).args(arguments).current_dir(root()));
    serde_json::from_str(&text).expect("cargo metadata writes JSON")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?} does not start: {e}"));
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("cargo and rustc write UTF-8")
}

fn ours(metadata: &Value) -> impl Iterator<Item = &Value> {
    list(metadata, "packages").filter(|package| package["source"].is_null())
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().unwrap_or_else(|| panic!("metadata has no list `{key}`")).iter()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("metadata has no text `{key}`"))
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for path in entries.map(|entry| entry.expect("readable folder entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn report(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}
