//! `train.method: coded`: what is accepted, what follows, and what is said of mistakes.

use planaria_recipe::train::{LinearPrecision, Method};
use planaria_recipe::{DataFacts, Shape, Source, to_yaml};

const TABLE: DataFacts = DataFacts { input: Shape::Vector(20), classes: Some(2), examples: 1003 };

fn recipe(train: &str, model: &str) -> String {
    format!(
        "name: a\ndata: {{train: a.csv, format: csv, table: {{label: y}}}}\nmodel: {model}\n\
         train: {train}\n"
    )
}

const SVM: &str = "{method: coded, loss: squared_hinge, coded: {threshold: 4, machines: 8}}";
const DENSE: &str = "{layers: [{Dense: {units: 1}}]}";

/// Mistakes as `line:column message // hint`, one to a line.
fn summary(text: &str, sets: &[&str]) -> String {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    let planned = Source::parse_and_plan("r.yaml", text.as_bytes(), &sets, |_| Ok(TABLE));
    let list = planned.err().map(|d| d.list).unwrap_or_default();
    let line = |d: &planaria_recipe::Diagnostic| {
        let hint = d.hint.as_ref().map(|h| format!(" // {h}")).unwrap_or_default();
        format!("{}:{} {}{hint}", d.line, d.column, d.message)
    };
    list.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check(train: &str, model: &str, expect: &str) {
    let found = summary(&recipe(train, model), &[]);
    assert!(found.contains(expect) && found.lines().count() == 1, "{train} {model}:\n{found}");
}

#[test]
fn a_batch_that_is_left_out_is_all_examples() {
    let text = recipe(SVM, DENSE);
    let source = Source::parse("r.yaml", text.as_bytes(), &[]).unwrap_or_else(|d| panic!("{d}"));
    let plan = source.plan(&TABLE).unwrap();
    assert_eq!((plan.recipe.train.batch, plan.steps_per_epoch), (1003, 1));
    let code = plan.recipe.train.code().unwrap();
    assert_eq!((code.threshold, code.machines, code.precision), (4, 8, LinearPrecision::F64));
    // As it is written into a run's folder it comes back.
    let again = Source::parse("r.yaml", to_yaml(&plan.recipe).as_bytes(), &[]).unwrap();
    assert_eq!(again.plan(&TABLE).unwrap().recipe, plan.recipe);

    let small = Source::parse("r.yaml", text.as_bytes(), &["train.batch=100".into()]).unwrap();
    // 251 places of each of four blocks, 25 in a step.
    assert_eq!(small.plan(&TABLE).unwrap().steps_per_epoch, 11);
    assert_eq!(small.recipe().train.method, Method::Coded);
}

#[test]
fn there_are_no_servers() {
    let found = |sets: &[&str]| summary(&recipe(SVM, DENSE), sets);
    let why = "but `method: coded` has none: its coordinator holds the parameters // leave it out";
    let one = found(&["pool.servers=1"]);
    assert!(one.ends_with(&format!("`pool.servers` is 1, {why}")), "{one}");
    let two = found(&["pool.workers=8", "pool.servers=2"]);
    assert!(two.ends_with(&format!("`pool.servers` is 2, {why}")), "{two}");
    assert_eq!(found(&["pool.workers=8", "pool.servers=0"]), "");
}

#[test]
fn models_that_are_linear() {
    for (train, model) in [
        (SVM, DENSE),
        ("{method: coded, loss: hinge, coded: {threshold: 1, machines: 1}}", DENSE),
        ("{method: coded, loss: mse, l2: 0.1, coded: {threshold: 2, machines: 32}}", DENSE),
        (
            "{method: coded, loss: binary_cross_entropy, class_weights: {\"1\": 3.5, \"0\": 1}, \
             coded: {threshold: 2, machines: 4, precision: exact, scale: 64}}",
            "{layers: [{Dense: {units: 1, activation: sigmoid, use_bias: false}}]}",
        ),
        (
            "{method: coded, batch: 64, coded: {threshold: 2, machines: 4, precision: f32}}",
            "{layers: [Flatten, {Dense: {units: 2}}]}",
        ),
    ] {
        assert_eq!(summary(&recipe(train, model), &[]), "", "{train} {model}");
    }
}

#[test]
fn mistakes_have_places_and_remedies() {
    let coded = |rest: &str| SVM.replace("coded: {threshold: 4, machines: 8}", rest);
    check("{method: coded, loss: mse}", DENSE, "4:17 `method: coded` needs to know its code //");
    check("{coded: {threshold: 1, machines: 1}}", "{preset: mlp}", "`train.coded` is for `method:");
    check("{l2: 0.1}", "{preset: mlp}", "`train.l2` is for `method: coded` // set `weight_decay`");
    check("{class_weights: {a: 2}}", "{preset: mlp}", "`train.class_weights` is for");
    check(
        &coded("coded: {threshold: 9, machines: 8}"),
        DENSE,
        "a threshold of 9 workers cannot be met: `train.coded.machines` is 8 // set `machines` to 9",
    );
    check(
        &coded("batch: 3, coded: {threshold: 4, machines: 8}"),
        DENSE,
        "a batch of 3 is too small: it takes rows of each of 4 blocks",
    );
    check(SVM, "{preset: mlp}", "3:17 `method: coded` trains linear models, but `preset`");
    check(
        SVM,
        "{layers: [{Dense: {units: 8}}, {Dense: {units: 1}}]}",
        "nothing follows the dense layer // write `layers: [{Dense: {units: 1}}]`",
    );
    check(SVM, "{layers: [Dropout: {rate: 0.1}, {Dense: {units: 1}}]}", "a single `Dense` layer");
    check(SVM, "{layers: [{Dense: {units: 1, activation: relu}}]}", "the layer has an activation");
    check(SVM, "{layers: [{Dense: {units: 2}}]}", "has 1 output, but the layer has 2 units");
    check(
        &coded("redundancy: 1, coded: {threshold: 4, machines: 8}"),
        DENSE,
        "`train.redundancy` is for `method: sync` // leave it out, or use `method: sync`",
    );
    check(
        &coded("coded: {threshold: 4, machines: 8, scale: 2}"),
        DENSE,
        "`train.coded.scale` is for `precision: exact`",
    );
    check(
        &coded("class_weights: {\"1\": 0}, coded: {threshold: 4, machines: 8}"),
        DENSE,
        "the weight of label `1` must be above 0, but is 0",
    );
    for (workers, expect) in [
        (9, "`pool` has 9 workers, but the code has 8 machines // set `workers: 8`"),
        (3, "`pool` has 3 workers, but with fewer than 4 a coded run waits"),
    ] {
        let found = summary(&recipe(SVM, DENSE), &[&format!("pool.workers={workers}")]);
        assert!(found.contains(expect), "{found}");
    }
    assert_eq!(summary(&recipe(SVM, DENSE), &["pool.workers={min: 1, max: 8}"]), "");
}
