//! Inside a crate too, modules point one way, at every depth: of the modules that lie in one module,
//! none uses another that uses it, however far around.
//!
//! A module and those inside it may use each other: one hands down what all of its parts share, and
//! re-exports what they make.

use crate::{read, report, root, rust_files};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Where a module lies in its crate: `["a", "b"]` is `crate::a::b`.
type Module = Vec<String>;
/// Modules that lie in one module, and which of them use which others.
type Siblings = BTreeMap<String, BTreeSet<String>>;

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
        found.extend(circles(texts).map(|(parent, circle)| {
            let place = [vec![name.clone()], parent].concat().join("::");
            format!(
                "modules in `{place}` use each other in a circle: {}; move what both need below \
                 both",
                circle.join(" -> ")
            )
        }));
    }
    report(found);
}

#[test]
fn circles_are_found() {
    let circle = [
        ("a/mod.rs", "//! .\nuse crate::{b::X, c};\n"),
        ("b.rs", "use crate::c::Y;\n"),
        ("c.rs", "fn f() { crate::a::g() }\n"),
    ];
    assert_eq!(found(&circle), [": a -> b -> c -> a"]);
    let straight = [
        ("a.rs", "use crate::b::X;\n"),
        ("b.rs", "// crate::a\n#[cfg(test)]\nmod tests {\n    use crate::a::Y;\n}\n"),
        ("b/tests.rs", "use crate::a::Y;\n"),
    ];
    assert_eq!(found(&straight), [""; 0]);
}

#[test]
fn circles_of_modules_inside_a_module_are_found() {
    let below = ("a/c.rs", "fn f() { super::b::g() }\n");
    // By the way from the crate's root, in a list of lists, from further inside.
    for text in ["use crate::a::c::X;", "use crate::{a::{self, c::X}, d};", "use super::{c};"] {
        assert_eq!(found(&[("a/b.rs", text), below]), ["a: b -> c -> b"], "{text}");
    }
    let deep = ("a/b/deep.rs", "use super::super::c::X;\n");
    assert_eq!(found(&[("a/b/mod.rs", "//! .\n"), deep, below]), ["a: b -> c -> b"]);
    // What stands below a test of one line counts.
    let late = ("a/b.rs", "#[cfg(test)]\nmod tests;\nuse super::c::X;\n");
    assert_eq!(found(&[late, below]), ["a: b -> c -> b"]);
}

#[test]
fn a_module_and_those_inside_it_may_use_each_other() {
    let files = [
        ("a/mod.rs", "mod b;\npub use b::X;\nuse crate::a::c::Y;\n"),
        ("a/b.rs", "use super::Shared;\nuse crate::a::Shared;\n"),
        ("a/c.rs", "use super::{Shared, b::X};\n"),
        ("lib.rs", "use crate::a::X;\n"),
    ];
    assert_eq!(found(&files), [""; 0]);
}

/// The circles of a crate with these files, each behind where it lies.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let files = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned()));
    let shown = |(parent, circle): (Module, Vec<String>)| {
        format!("{}: {}", parent.join("::"), circle.join(" -> "))
    };
    circles(files).map(shown).collect()
}

/// A circle of each module whose modules have one, behind where that module lies.
fn circles(
    files: impl Iterator<Item = (PathBuf, String)>,
) -> impl Iterator<Item = (Module, Vec<String>)> {
    let uses = uses(files);
    uses.into_iter().filter_map(|(parent, siblings)| Some((parent, cycle(&siblings)?)))
}

/// By module, which of those inside it use which others, from paths outside of tests.
fn uses(files: impl Iterator<Item = (PathBuf, String)>) -> BTreeMap<Module, Siblings> {
    let sources = files.filter(|(path, _)| !is_test(path));
    let code: BTreeMap<Module, String> =
        sources.map(|(path, text)| (module(&path), code(&text))).collect();
    let mut uses: BTreeMap<Module, Siblings> = BTreeMap::new();
    for (user, text) in &code {
        for used in paths(user, text) {
            let shared = user.iter().zip(&used).take_while(|(a, b)| a == b).count();
            let (parent, own) = user.split_at(shared);
            // `crate::BUILD` and what a module re-exports are no modules.
            if let (Some(own), Some(other)) = (own.first(), used.get(shared))
                && code.contains_key(&used[..=shared])
            {
                let siblings = uses.entry(parent.to_vec()).or_default();
                siblings.entry(own.clone()).or_default().insert(other.clone());
                siblings.entry(other.clone()).or_default();
            }
        }
    }
    uses
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests"))
}

/// The module that a file in `src` holds; of no name where it is the crate's root.
fn module(path: &Path) -> Module {
    let part = |part: std::path::Component<'_>| part.as_os_str().to_string_lossy().into_owned();
    let mut names: Module = path.with_extension("").components().map(part).collect();
    names.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
    names
}

/// A file without comments and without what only tests see.
fn code(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = text.lines();
    let mut code = String::new();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("#[cfg(test)]") {
            let is_end = |end: &str| {
                indent(end) == indent(line) && (end.ends_with([';', ',']) || end.trim() == "}")
            };
            lines.by_ref().find(|line| is_end(line));
        } else if !line.trim_start().starts_with("//") {
            code += line;
            code.push('\n');
        }
    }
    code
}

/// Paths in the code of a module that begin with `crate::` or `super::`, from the crate's root.
fn paths(module: &[String], code: &str) -> Vec<Module> {
    let from_root = code.split("crate::").skip(1).flat_map(|rest| listed(rest).0);
    let from_parent = code.match_indices("super::").filter(|(at, _)| !code[..*at].ends_with("::"));
    let from_parent = from_parent.flat_map(|(at, _)| {
        let mut rest = &code[at..];
        let mut base = module;
        while let Some(further) = rest.strip_prefix("super::") {
            rest = further;
            base = base.split_last().map_or(base, |(_, parent)| parent);
        }
        listed(rest).0.into_iter().map(move |path| [base, &path].concat())
    });
    from_root.chain(from_parent).collect()
}

/// The paths that a text begins with (`a::{b, c::D}` is two), and what comes after them.
fn listed(text: &str) -> (Vec<Module>, &str) {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut all = Vec::new();
        loop {
            let (some, after) = listed(rest);
            all.extend(some);
            // What stands between is another name: `as NAME`.
            let end = after.find([',', '}']).unwrap_or(after.len());
            match after[end..].strip_prefix(',') {
                Some(next) => rest = next,
                None => return (all, after[end..].strip_prefix('}').unwrap_or_default()),
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, after) = text.split_at(end);
    if name.is_empty() {
        return (Vec::new(), after);
    }
    let first = vec![name.to_owned()];
    match after.strip_prefix("::") {
        None => (vec![first], after),
        Some(further) => {
            let (inside, after) = listed(further);
            let inside = inside.into_iter().map(|path| [first.clone(), path].concat());
            // Of `a::*` and `a::<T>` the path is `a`.
            let paths: Vec<Module> = inside.collect();
            (if paths.is_empty() { vec![first] } else { paths }, after)
        }
    }
}

/// Modules each of which uses the next, and the last the first; nothing where there are none.
fn cycle(uses: &Siblings) -> Option<Vec<String>> {
    fn walk<'a>(
        uses: &'a Siblings,
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
