//! Inside a crate too, modules point one way.

use crate::{read, report, root, rust_files};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates whose top-level modules still import each other in a circle. Only ever made shorter.
const CYCLES_LEFT: &[&str] = &[];

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
                 (tests/tidy/src/modules.rs)"
            )),
            _ => {}
        }
    }
    report(found);
}

#[test]
fn circles_are_found() {
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
