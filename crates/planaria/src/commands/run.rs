//! `planaria run`: a user's own script on the machines of a pool.

use crate::cli;
use crate::commands::{detach, print};
use crate::library::script::Script;
use crate::signals;
use planaria_control::jobs::script::run::Finished;
use planaria_control::talk::{Progress, Talk};
use planaria_recipe::{from_stdin, is_stdin};
use planaria_runs::clock::Stopwatch;
use planaria_runs::failure::{Exit, Failure, Result};
use planaria_runs::outcome::Outcome;
use serde_json::json;

/// Runs, prints, and says what to exit with.
pub fn run(options: &cli::Run, talk: Talk, process: Stopwatch) -> Result<Option<Exit>> {
    let talk = detach::talk(options.leaving.detached, talk);
    let is_yaml = options.file.extension().is_some_and(|e| e == "yaml" || e == "yml");
    let is_recipe = is_yaml || is_stdin(&options.file);
    let mut script = match is_recipe {
        true if options.pool.is_some() => {
            return Err(Failure::user("`--pool` is for scripts; a recipe has a `pool` of its own")
                .hint("leave it out, or name the script instead of the recipe"));
        }
        true => Script::from_recipe(&options.file),
        false => Script::new(&options.file),
    };
    if let Some(pool) = &options.pool {
        script = script.pool(pool);
    }
    for (key, value) in sets(options)? {
        script = script.set(&key, &value);
    }
    for set in &options.sets {
        script = script.set_text(set);
    }
    if options.leaving.detach {
        // What is wrong with the recipe is told by the process that is left behind.
        return detach::here(talk, None, from_stdin(&options.file));
    }
    signals::listen(talk);
    if options.leaving.detached {
        script = script.beginning(detach::settle);
    }
    let finished = script.talking(talk, process).start()?;
    conclude(finished, options.json, talk)
}

/// What the options say, as keys of a recipe and their values.
fn sets(options: &cli::Run) -> Result<Vec<(String, String)>> {
    let mut sets: Vec<(&str, serde_json::Value)> = Vec::new();
    let text = |value: &Option<String>| value.as_ref().map(|value| json!(value));
    let values = [
        ("name", text(&options.name)),
        ("script.framework", text(&options.framework)),
        ("script.python", text(&options.python)),
        ("script.tensorboard", text(&options.tensorboard)),
        ("pool.workers", options.workers.map(|n| json!(n))),
        ("script.max_restarts", options.max_restarts.map(|n| json!(n))),
        ("script.launcher", options.torchrun.then(|| json!("torchrun"))),
        ("script.outputs", (!options.outputs.is_empty()).then(|| json!(options.outputs))),
        ("script.args", (!options.args.is_empty()).then(|| json!(options.args))),
        ("script.per_machine", per_machine(options)),
    ];
    sets.extend(values.into_iter().filter_map(|(key, value)| Some((key, value?))));
    if !options.roles.is_empty() {
        sets.push(("script.roles", roles(&options.roles)?));
    }
    // JSON is YAML, and what is quoted stays text.
    Ok(sets.into_iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect())
}

fn per_machine(options: &cli::Run) -> Option<serde_json::Value> {
    let word = options.per_machine.as_ref()?;
    Some(word.parse::<u64>().map_or_else(|_| json!(word), |count| json!(count)))
}

fn roles(words: &[String]) -> Result<serde_json::Value> {
    let mut roles = serde_json::Map::new();
    for word in words {
        let parsed =
            word.split_once('=').and_then(|(role, n)| Some((role, n.parse::<u64>().ok()?)));
        let (role, count) = parsed.ok_or_else(|| {
            Failure::user(format!("`--roles` cannot be `{word}`"))
                .hint("write `chief=1,worker=2,ps=1`")
        })?;
        roles.insert(role.to_owned(), json!(count));
    }
    Ok(roles.into())
}

fn conclude(finished: Finished, json: bool, talk: Talk) -> Result<Option<Exit>> {
    let Finished { report, summary, failure, .. } = finished;
    if json {
        print(&report.to_json())?;
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    Progress::new(talk).note(&summary);
    Ok((report.outcome == Outcome::Interrupted).then_some(Exit::Interrupted))
}
