//! `planaria plan`: what a recipe would do, without doing it.
//!
//! Looks at headers and labels of the data only. Never writes a file.

use crate::cli;
use crate::commands::{
    check_output, cluster_size, data_facts, finding, memory_bytes, print, training_threads,
};
use crate::failure::{Failure, Result};
use crate::traces::number::{bytes, grouped};
use planaria_data::{Facts, peek};
use planaria_recipe::Source;
use serde_json::{Value, json};
use std::fmt::Write;

/// Prints the plan.
pub fn run(options: &cli::Plan) -> Result<()> {
    let (mut broken, mut facts) = (None, None);
    let planned = Source::load_and_plan(&options.recipe.recipe, &options.recipe.sets, |recipe| {
        let seen = finding(peek(&recipe.data, recipe.seed), recipe, &mut broken)?;
        Ok(data_facts(facts.insert(seen)))
    });
    let (source, plan) =
        planned.map_err(|mistakes| broken.unwrap_or_else(|| Failure::user(&mistakes)))?;
    let facts = facts.expect("a plan is made from the data's facts");
    check_output(&source)?;
    let memory_bytes =
        memory_bytes(&plan, training_threads(None, &plan), cluster_size(None, &plan));
    if !options.json {
        let memory = format!("memory      about {} for training\n", bytes(memory_bytes));
        return print(&format!("{plan}{memory}{}", data_text(&facts)));
    }
    // By way of text: a single-precision number in a `Value` would show the digits of a double.
    let text = serde_json::to_string(&plan).expect("a plan has string keys only");
    let mut document: Value = serde_json::from_str(&text).expect("it was just written");
    document["memory_bytes"] = json!(memory_bytes);
    document["data"] = data_json(&facts);
    print(&format!("{document:#}\n"))
}

fn data_text(facts: &Facts) -> String {
    let mut text = format!(
        "parts       {} for training, {} for validation, {} for test\n",
        grouped(facts.train),
        grouped(facts.validation),
        grouped(facts.test)
    );
    for (i, file) in facts.files.iter().enumerate() {
        let label = if i == 0 { "files" } else { "" };
        let _ = writeln!(text, "{label:<12}{} ({})", file.path.display(), bytes(file.bytes));
    }
    text
}

fn data_json(facts: &Facts) -> Value {
    let files: Vec<Value> = facts
        .files
        .iter()
        .map(|file| json!({"path": file.path.display().to_string(), "bytes": file.bytes}))
        .collect();
    json!({
        "train": facts.train,
        "validation": facts.validation,
        "test": facts.test,
        "files": files,
    })
}
