//! One mistake hides no other, and none is reported twice.

use planaria_recipe::sections::Part;
use planaria_recipe::{DataFacts, Finding, Recipe, Shape, Source};

/// Stands for the data crate: it minds shares and paths as that does.
fn survey(recipe: &mut Recipe) -> Result<DataFacts, Vec<Finding>> {
    let mut held_out = 0.0;
    for (key, part) in
        [("data.test", &recipe.data.test), ("data.validation", &recipe.data.validation)]
    {
        match part {
            Some(Part::Share(share)) => held_out += share,
            Some(Part::Path(path)) => return Err(vec![Finding::new(key, format!("no `{path}`"))]),
            None => {}
        }
    }
    if held_out >= 1.0 {
        return Err(vec![Finding::new("data", "none is left")]);
    }
    let input = Shape::Image { height: 28, width: 28, channels: 1 };
    Ok(DataFacts { input, classes: Some(10), examples: 900 })
}

#[track_caller]
fn check(text: &str, sets: &[&str], expect: &[&str]) {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    let found = Source::parse_and_plan("r.yaml", text.as_bytes(), &sets, survey);
    let found = found.err().map(|d| d.list).unwrap_or_default();
    let said: Vec<String> =
        found.iter().map(|d| format!("{}:{}:{} {}", d.file, d.line, d.column, d.message)).collect();
    assert_eq!(said.len(), expect.len(), "{said:#?}");
    for (said, expect) in said.iter().zip(expect) {
        assert!(said.contains(expect), "{expect:?} is not in {said:?}");
    }
}

const MISFIT: &str =
    "model: {layers: [{Conv2D: {filters: 3, kernel_size: 99}}, Flatten, {Dense: {units: 10}}]}";

#[test]
fn a_missing_or_mistyped_section_hides_nothing() {
    let kernel = "kernel 99 does not fit";
    check(&format!("data: {{train: digits}}\n{MISFIT}"), &[], &["missing key `name`", kernel]);
    check(
        &format!("nmae: a\ndata: {{train: digits}}\n{MISFIT}"),
        &[],
        &["unknown key `nmae`", kernel],
    );
    check(
        &format!("name: [a]\ndata: {{train: digits}}\n{MISFIT}"),
        &[],
        &["`name` must be", kernel],
    );
    check(
        "name: a\ndata: {train: digits, test: nowhere}",
        &[],
        &["missing key `model`", "no `nowhere`"],
    );
    check(
        "name: a\ndata: {train: digits, test: nowhere}\nmodel: 3",
        &[],
        &["no `nowhere`", "`model` must be"],
    );
    check("name: /\nmodel: {preset: mlp}", &[], &["missing key `data`", "`name` names a folder"]);
    check(
        "name: a\ndata: {test: 7}\nmodel: {preset: mlp}",
        &[],
        &["missing key `train`", "must be a share"],
    );
}

#[test]
fn unsound_shares_are_told_once_and_hide_no_shape() {
    for (shares, said) in [
        ("test: 0.5, validation: 0.6", "take 1.1 of the examples"),
        ("validation: 7", "must be a share above 0"),
        ("examples: many", "must be a whole number"),
    ] {
        let text = format!("name: a\ndata: {{train: digits, {shares}}}\n{MISFIT}");
        check(&text, &[], &[said, "kernel 99 does not fit"]);
    }
}

#[test]
fn a_misfit_made_by_a_set_points_at_it() {
    let text = "name: a\ndata: {train: digits}\nmodel: {layers: [{Conv2D: {filters: 3, kernel_size: 3}}, Flatten, {Dense: {units: 10}}]}";
    let set = "model.layers.0.Conv2D.kernel_size=99";
    check(text, &[set], &["--set model.layers.0.Conv2D.kernel_size=99:1:35 layer 1"]);
    check(text, &[], &[]);
}
