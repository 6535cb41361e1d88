//! What providers still hold for runs that no process works on.
//!
//! Owns the places to search: the runs of a folder, the places that the recipes of those runs name,
//! and those that providers always look at. What belongs to a live run is no leak; nor is what a
//! host is at work on, which may be for a run of another folder or user.

use planaria_control::detached;
use planaria_control::holdings::{self, Holding, Kept};
use planaria_fleet::many;
use planaria_fleet::pool::giving_back::{DESTROYING, Unwanted, destroy};
use planaria_fleet::provider::{self, Fault, Leak, Tag, is_name};
use planaria_fleet::providers::{self, Purpose};
use planaria_recipe::pool::{Pool, Provider};
use planaria_runs::failure::{Failure, Result};
use planaria_runs::history::Standing;
use planaria_runs::run_dir;
use planaria_runs::run_dir::lock::Holder;
use planaria_runs::run_dir::run_id;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long no answer may come before the rest is given up. Providers bound each request by less.
const ASKING: Duration = Duration::from_secs(120);

#[derive(Default, Serialize)]
pub struct Found {
    /// What is left of runs that have ended.
    pub leaks: Vec<Left>,
    /// What a host is at work on, and is of no run in the folder.
    pub at_work: Vec<String>,
    /// Who was asked.
    pub asked: Vec<String>,
    /// Who could not be asked.
    pub not_asked: Vec<Kept>,
}

/// Something that is left.
#[derive(Serialize)]
pub struct Left {
    /// The run it was for.
    pub run: String,
    /// What it is, in words.
    pub what: String,
    /// The command that removes it.
    pub remove: String,
    /// Whether it was removed since.
    pub fixed: bool,
    /// Why it could not be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
    #[serde(skip)]
    source: Source,
}

/// Who knows of something that is left.
enum Source {
    /// It is written down in this run's folder.
    Run(PathBuf),
    /// Only its provider knows it.
    Provider(Arc<dyn provider::Provider>, Leak),
}

/// Looks everywhere: where the runs of a folder may have left something, and where a recipe's pool
/// is besides.
pub fn look(dir: &Path, besides: Option<&Pool>) -> Result<Found> {
    let folders = if dir.is_dir() { run_dir::list(dir)? } else { Vec::new() };
    let mut found = Found::default();
    let mut pools: Vec<Pool> = besides.into_iter().cloned().collect();
    // Runs that live, and machines of those that do not.
    let (mut live, mut held) = (BTreeSet::new(), BTreeSet::new());
    for folder in &folders {
        let id = run_id(folder);
        let holding = match Holding::of(folder) {
            Ok(holding) => holding,
            Err(Failure { message: why, hint, .. }) => {
                let hint = hint.unwrap_or_else(|| "look at its files".into());
                found.not_asked.push(Kept { machine: id, why, hint });
                continue;
            }
        };
        if holding.holder.is_live() {
            live.insert(id);
        } else if !holding.machines.is_empty() {
            held.extend(holding.machines.iter().map(|m| (id.clone(), m.name.clone())));
            found.leaks.push(of_run(&holding, id));
        }
        // A recipe that cannot be read names no provider to ask.
        pools.extend(holdings::pool(folder));
    }
    // One that was begun meanwhile lives too.
    let begun = |run: &str| is_name(run) && Holder::of(&dir.join(run)).is_ok_and(Holder::is_live);
    for (place, answer) in ask(&pools) {
        let leaks = match answer {
            Ok(leaks) => leaks,
            Err(fault) => {
                found.not_asked.extend(place.is_named.then(|| Kept::of(fault)));
                continue;
            }
        };
        found.asked.push(place.name);
        for leak in leaks {
            let is_held = held.contains(&(leak.run.clone(), leak.machine.name.clone()));
            match leak.busy {
                _ if is_held || live.contains(&leak.run) || begun(&leak.run) => {}
                true => found.at_work.push(format!("{}: {}", place.provider.name(), leak.what)),
                false => found.leaks.push(of_provider(&place.provider, leak)),
            }
        }
    }
    Ok(found)
}

/// Removes what is left, and writes down for each whether that came about.
pub fn fix(found: &mut Found, tell: &mut dyn FnMut(&str)) {
    let (mut strays, mut places) = (Vec::new(), Vec::new());
    for (place, left) in found.leaks.iter_mut().enumerate() {
        match &left.source {
            Source::Run(folder) => match holdings::give_back(folder, false, tell) {
                Ok(account) => (left.fixed, left.kept) = (account.kept.is_empty(), account.kept),
                Err(failure) => {
                    let (why, hint) = (failure.message, failure.hint.unwrap_or_default());
                    left.kept.push(Kept { machine: left.run.clone(), why, hint });
                }
            },
            Source::Provider(provider, leak) => {
                // We give no such names.
                let Some(run) = Tag::new(&leak.run) else { continue };
                let (provider, machine) = (provider.clone(), leak.machine.clone());
                strays.push(Unwanted { provider, run, machine });
                places.push(place);
            }
        }
    }
    destroy(strays, DESTROYING, |number, result| {
        let left = &mut found.leaks[places[number]];
        match result {
            Ok(()) => {
                tell(&format!("removed {}", left.what));
                left.fixed = true;
            }
            Err(fault) => left.kept.push(Kept::of(fault)),
        }
    });
}

fn of_run(holding: &Holding, run: String) -> Left {
    let state = detached::history(&holding.folder).map(|history| history.state);
    let state = state.map_or("its events cannot be read", Standing::text);
    Left {
        what: format!("run {} ({state}) holds {}", holding.folder.display(), holding.names()),
        run,
        remove: format!("planaria down {}", holding.folder.display()),
        fixed: false,
        kept: Vec::new(),
        source: Source::Run(holding.folder.clone()),
    }
}

fn of_provider(provider: &Arc<dyn provider::Provider>, leak: Leak) -> Left {
    Left {
        run: leak.run.clone(),
        what: format!("{}: {}", provider.name(), leak.what),
        remove: "planaria doctor --leaks --fix".into(),
        fixed: false,
        kept: Vec::new(),
        source: Source::Provider(provider.clone(), leak),
    }
}

/// Somewhere that may hold something.
struct Place {
    name: String,
    provider: Arc<dyn provider::Provider>,
    /// Whether a recipe names it: then it is worth a word that it does not answer.
    is_named: bool,
}

/// Asks all places that pools name, each once and all at the same time; and this machine.
fn ask(pools: &[Pool]) -> Vec<(Place, Result<Vec<Leak>, Fault>)> {
    let places = places(pools);
    let asked: Vec<Arc<dyn provider::Provider>> =
        places.iter().map(|place| place.provider.clone()).collect();
    let mut answers = BTreeMap::new();
    many::each(
        asked,
        ASKING,
        |provider| provider.leaks(),
        |number, answer| {
            let late = || {
                let what = format!("no answer within {} s", ASKING.as_secs());
                Err(Fault::retry(places[number].name.clone(), what))
            };
            answers.insert(number, answer.unwrap_or_else(late));
        },
    );
    places.into_iter().zip(answers.into_values()).collect()
}

fn places(pools: &[Pool]) -> Vec<Place> {
    let mut found: BTreeMap<String, (providers::Place, bool)> = BTreeMap::new();
    let mut add = |place: providers::Place, is_named: bool| {
        found.entry(place.id.clone()).or_insert((place, false)).1 |= is_named;
    };
    for place in Provider::all().iter().flat_map(providers::places) {
        if place.is_always_asked {
            add(place, false);
        }
    }
    for supply in pools.iter().flat_map(Pool::supplies) {
        for place in providers::places(&supply.provider) {
            add(place, supply.has_machines());
        }
    }
    let place = |(place, is_named): (providers::Place, bool)| {
        // Settings that cannot be meant lead nowhere.
        let provider = providers::make(&place.settings, Purpose::default()).ok()?;
        Some(Place { name: place.name, provider, is_named })
    };
    found.into_values().filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_asked_once() {
        let pool = |text: &str| serde_json::from_str::<Pool>(text).unwrap();
        let pools = [
            pool(r#"{"provider": "ssh", "hosts": ["a", "b"]}"#),
            Pool::default(),
            pool(r#"{"more": [{"provider": "ssh", "hosts": ["b", "c"]}]}"#),
            pool(r#"{"provider": "docker", "docker": {"socket": "/run/other.sock"}}"#),
        ];
        let places = places(&pools);
        let names: Vec<(&str, bool)> = places.iter().map(|p| (&*p.name, p.is_named)).collect();
        let expect = [
            ("a", true),
            ("b", true),
            ("c", true),
            ("docker", false),
            ("docker at /run/other.sock", true),
            ("local", false),
        ];
        assert_eq!(names, expect);
    }
}
