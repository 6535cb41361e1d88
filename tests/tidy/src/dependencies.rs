//! Each direct dependency has its line in ARCHITECTURE.md, and each line its dependency.

use crate::{list, metadata, ours, read, report, root, text};
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn every_dependency_is_justified() {
    let text = read(&root().join("ARCHITECTURE.md"));
    report(justifications(&metadata(), &text));
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
