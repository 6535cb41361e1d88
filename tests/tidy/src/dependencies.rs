//! Each direct dependency has its line in docs/design/dependencies.md, and each line its dependency.

use crate::{list, metadata, ours, read, report, root, text};
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn every_dependency_is_justified() {
    let text = read(&root().join("docs/design/dependencies.md"));
    report(justifications(&metadata(), &text));
}

fn justifications(metadata: &Value, page: &str) -> Vec<String> {
    let table: BTreeSet<&str> = page
        .lines()
        .skip_while(|line| !line.starts_with("# Dependencies"))
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let used: BTreeSet<&str> = ours(metadata)
        .flat_map(|package| list(package, "dependencies"))
        .filter(|dependency| dependency["path"].is_null())
        .map(|dependency| text(dependency, "name"))
        .collect();
    let missing = used.difference(&table).map(|name| {
        format!("dependency `{name}` has no line in docs/design/dependencies.md: say what it is for, or do without it")
    });
    let stale = table
        .difference(&used)
        .map(|name| format!("docs/design/dependencies.md explains `{name}`, which no crate uses"));
    missing.chain(stale).collect()
}
