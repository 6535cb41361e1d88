//! What comes from elsewhere comes from crates.io, under a licence that deny.toml allows.

use crate::{list, metadata, read, report, root, text};
use serde_json::Value;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[test]
fn licences_and_sources_are_allowed() {
    let allowed = quoted_list(&read(&root().join("deny.toml")), "allow");
    assert!(!allowed.is_empty(), "deny.toml has no `allow` list of licences");
    report(licences(&metadata(), &allowed));
}

#[test]
fn licence_expressions_are_read() {
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
