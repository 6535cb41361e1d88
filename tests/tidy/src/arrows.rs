//! Which crate may use which.

use crate::{list, metadata, ours, report, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Who may use whom, in the order data flows; a crate may use anything named after its own name.
const ARROWS: &[(&str, &[&str])] = &[
    ("planaria-tidy", &[]),
    ("planaria-recipe", &[]),
    ("planaria-text", &[]),
    ("planaria-numerics", &["planaria-recipe"]),
    ("planaria-learn", &["planaria-recipe", "planaria-numerics", "planaria-store"]),
    ("planaria-store", &[]),
    ("planaria-data", &["planaria-recipe", "planaria-numerics", "planaria-store"]),
    ("planaria-protocol", &["planaria-recipe", "planaria-numerics", "planaria-store"]),
    ("planaria-fleet", &["planaria-recipe", "planaria-store", "planaria-protocol"]),
    (
        "planaria-coordinator",
        // Its log says of an event what every other place says.
        &[
            "planaria-recipe",
            "planaria-numerics",
            "planaria-learn",
            "planaria-store",
            "planaria-protocol",
            "planaria-runs",
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
        &[
            "planaria-recipe",
            "planaria-text",
            "planaria-numerics",
            "planaria-learn",
            "planaria-protocol",
        ],
    ),
    (
        "planaria-control",
        &[
            "planaria-recipe",
            "planaria-text",
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
            "planaria-text",
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

#[test]
fn crates_point_one_way() {
    report(arrows(&metadata()));
}

fn arrows(metadata: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let ours: BTreeSet<&str> = ours(metadata).map(|p| text(p, "name")).collect();
    for package in self::ours(metadata) {
        let name = text(package, "name");
        let Some((_, allowed)) = ARROWS.iter().find(|(n, _)| *n == name) else {
            found.push(format!("crate `{name}` has no place in ARROWS (tests/tidy/src/arrows.rs)"));
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
