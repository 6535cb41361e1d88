//! `planaria plan`: what a recipe would do, without doing it.
//!
//! Looks at headers and labels of the data only, here and on hosts that are there already; a method
//! that may refuse examples looks at them too. Never writes a file here.

mod hosts;
mod machines;
mod methods;
mod script;

use crate::cli;
use crate::commands::print;
use crate::library::processes;
use planaria_control::memory;
use planaria_control::size::{cluster_size, idle_workers, memory_bytes, training_threads};
use planaria_control::survey::{check_output, data_facts, finding, label_remark, mistaken};
use planaria_data::Facts;
use planaria_protocol::launch::Size;
use planaria_recipe::{JobKind, Plan, Source};
use planaria_runs::failure::Result;
use planaria_text::number::{bytes, grouped};
use planaria_worker::features;
use serde_json::{Value, json};
use std::fmt::Write;

/// Prints the plan.
pub fn run(options: &cli::Plan) -> Result<()> {
    match JobKind::of_file(&options.recipe.recipe, &options.recipe.sets) {
        JobKind::Train => train(options),
        JobKind::Script => script::run(options),
    }
}

fn train(options: &cli::Plan) -> Result<()> {
    let (mut broken, mut facts, mut remark) = (None, None, None);
    let planned = Source::load_and_plan(&options.recipe.recipe, &options.recipe.sets, |recipe| {
        let seen = finding(features::peek(recipe), recipe, &mut broken)?;
        remark = label_remark(recipe, &seen);
        Ok(data_facts(facts.insert(seen)))
    });
    let (source, plan) = planned
        .map_err(|mistakes| broken.unwrap_or_else(|| mistaken(&mistakes, remark.clone())))?;
    let facts = facts.expect("a plan is made from the data's facts");
    check_output(&source, &source.recipe().output.dir)?;
    let (threads, size) = (training_threads(None, &plan), cluster_size(None, &plan));
    let idle = idle_workers(&plan, size);
    let memory_bytes = memory_bytes(&plan, threads, size);
    let short = short_of_memory(&plan, memory_bytes, size);
    if short.is_none() {
        methods::check_examples(&plan)?;
    }
    let costs = methods::costs(&plan)?;
    if !options.json {
        let costs = costs.map(|costs| costs.text).unwrap_or_default();
        let processes = format!("processes   {}\n", processes(&plan, size, threads));
        let idle = idle.map_or_else(String::new, |(_, text)| format!("warning     {text}\n"));
        let shares = size.map(|size| methods::shares(&plan, size)).unwrap_or_default();
        let memory = format!("memory      about {} for training\n", bytes(memory_bytes));
        let remark = remark.map(|remark| format!("warning     {remark}\n")).unwrap_or_default();
        let memory = memory + &short.map_or_else(String::new, |short| format!("{short}\n"));
        let machines = machines::text(&plan.recipe.pool, &plan.recipe.setup);
        let there = hosts::text(&hosts::look(&plan.recipe, &facts));
        return print(&format!(
            "{plan}{costs}{processes}{shares}{idle}{machines}{memory}{}{remark}{there}",
            data_text(&facts)
        ));
    }
    // By way of text: a single-precision number in a `Value` would show the digits of a double.
    let text = serde_json::to_string(&plan).expect("a plan has string keys only");
    let mut document: Value = serde_json::from_str(&text).expect("it was just written");
    document["memory_bytes"] = json!(memory_bytes);
    document["memory_short"] = json!(short);
    document["processes"] = processes_json(&plan, size, threads);
    document["workers_idle"] = json!(idle.map_or(0, |(workers, _)| workers));
    document["data"] = data_json(&facts);
    document["data"]["warning"] = json!(remark);
    if let Some(costs) = costs {
        let (key, costs) = costs.document;
        document[key] = costs;
    }
    if plan.recipe.pool.has_machines() {
        document["machines"] = machines::document(&plan.recipe.pool, &plan.recipe.setup);
        document["machines"]["data"] = hosts::document(&hosts::look(&plan.recipe, &facts));
    }
    print(&format!("{document:#}\n"))
}

/// Warns where this machine, or one of the pool's, has not the memory that a plan takes on it.
fn short_of_memory(plan: &Plan, needed: u64, size: Option<Size>) -> Option<String> {
    let (message, hint) = match size.filter(|_| plan.recipe.pool.has_machines()) {
        Some(size) => memory::machine_shortage(plan, size)?,
        None => {
            let (message, hint) = memory::shortage(plan, needed, memory::available_bytes())?;
            (message, hint.to_owned())
        }
    };
    Some(format!("warning     {message}; {hint}"))
}

fn processes_json(plan: &Plan, size: Option<Size>, threads: usize) -> Value {
    match size {
        None => json!({"workers": 0, "servers": 0, "threads": threads}),
        Some(size) => json!({
            "workers": size.workers,
            "workers_min": size.workers_min,
            "servers": size.servers,
            "threads": size.threads,
            "shards": methods::first_shards(plan, size),
            "workers_per_shard": (plan.recipe.train.redundancy + 1).min(size.workers as usize),
        }),
    }
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
