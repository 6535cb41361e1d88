//! How source files are written, as far as a line can tell.

use crate::{read, report, root, rust_files};
use std::path::Path;

/// A file past about 500 lines wants two names; past this it does not get in.
const FILE_LINES_MAX: usize = 600;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "manager", "managers", "misc"];

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
