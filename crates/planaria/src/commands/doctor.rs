//! `planaria doctor`: what works here for each provider, and what providers still hold.

use crate::cli;
use crate::commands::{print, runs_in};
use crate::doctor::leaks::{self, Found, Left};
use crate::doctor::{here, text, trial};
use planaria_control::talk::{Progress, Talk, patiently};
use planaria_recipe::AnySource;
use planaria_runs::failure::{Exit, Failure, Result, plain};
use planaria_text::number::counted;
use serde_json::json;

/// Looks and prints; exit code 1 where something that was asked for does not work, or is left.
pub fn run(options: &cli::Doctor, talk: Talk) -> Result<Option<Exit>> {
    let recipe = match &options.recipe {
        Some(path) => Some(AnySource::load(path, &options.sets)?),
        None => None,
    };
    match options.leaks {
        true => find_leaks(options, recipe.as_ref(), talk),
        false => examine(options, recipe.as_ref(), talk),
    }
}

fn examine(options: &cli::Doctor, recipe: Option<&AnySource>, talk: Talk) -> Result<Option<Exit>> {
    let mut blocks = patiently(talk, "looking at this machine", here::look);
    let mut works = true;
    if let Some(recipe) = recipe {
        let tried = patiently(talk, "trying machines", || match recipe {
            AnySource::Train(source) => trial::recipe(source.recipe()),
            AnySource::Script(source) => trial::job(source),
        })?;
        works = tried.works();
        blocks.push(tried);
    }
    print(&match options.json {
        true => to_json(&json!({ "works": works, "blocks": blocks })),
        false => plain(&text(&blocks)),
    })?;
    Ok((!works).then_some(Exit::Failed))
}

fn find_leaks(
    options: &cli::Doctor,
    recipe: Option<&AnySource>,
    talk: Talk,
) -> Result<Option<Exit>> {
    let dir = &options.dir;
    runs_in(dir)?;
    let pool = recipe.map(AnySource::pool);
    let mut found = patiently(talk, "asking providers", || leaks::look(dir, pool))?;
    if !options.json {
        print(&plain(&listed(&found)))?;
    }
    if options.fix {
        let mut progress = Progress::new(talk);
        leaks::fix(&mut found, &mut |word| progress.note(word));
    }
    if options.json {
        print(&to_json(&found))?;
    }
    let left = || found.leaks.iter().filter(|left| !left.fixed);
    match (options.fix, left().next()) {
        (_, None) => Ok(None),
        (false, Some(_)) => Ok(Some(Exit::Failed)),
        (true, Some(_)) => Err(unfixed(left())),
    }
}

/// What was found, as people read it.
fn listed(found: &Found) -> String {
    let mut text = match found.leaks.len() {
        0 => format!("no leaks; asked: {}\n", found.asked.join(", ")),
        count => format!("{}:\n", counted(count as u64, "leak")),
    };
    let width = found.leaks.iter().map(|left| left.what.chars().count()).max().unwrap_or(0);
    for Left { what, remove, .. } in &found.leaks {
        text += &format!("  {what:<width$}  remove: {remove}\n");
    }
    for what in &found.at_work {
        text += &format!("at work for a run that is not in this folder, and left alone: {what}\n");
    }
    for one in &found.not_asked {
        text += &format!("could not be asked: {}: {}\n  {}\n", one.machine, one.why, one.hint);
    }
    text
}

/// The failure of leaks that could not be fixed.
fn unfixed<'a>(left: impl Iterator<Item = &'a Left>) -> Failure {
    let lines = left.map(|left| {
        let why: Vec<String> = left
            .kept
            .iter()
            .map(|one| format!("\n    {}: {}\n      {}", one.machine, one.why, one.hint))
            .collect();
        format!("  {}{}", left.what, why.concat())
    });
    let lines: Vec<String> = lines.collect();
    let count = counted(lines.len() as u64, "leak");
    Failure::failed(format!("{count} could not be removed\n{}", lines.join("\n")))
}

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain values have string keys only") + "\n"
}
