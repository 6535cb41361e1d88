//! Whether the data is on the hosts of a pool, as `planaria plan` shows it.
//!
//! Asks machines that are there before a run, all at the same time and not for long; the program
//! is delivered to them as a run would. Machines that are made first are not asked. Compares counts and
//! sizes; contents are compared by `planaria doctor` and by the run.

use planaria_control::data_there::Look;
use planaria_control::jobs::pooling::read;
use planaria_control::program;
use planaria_data::Facts;
use planaria_fleet::many;
use planaria_fleet::program::Program;
use planaria_fleet::provider::{Fault, Machine, Provider, Tag};
use planaria_fleet::providers::{self, Purpose};
use planaria_recipe::Recipe;
use planaria_recipe::words::listed;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long hosts may take to answer; one that has not got the program yet is sent it.
const WITHIN: Duration = Duration::from_secs(15);

/// What is known of the data on a machine.
pub(super) struct There {
    machine: String,
    /// What is missing or different, or why it is not known.
    found: Found,
    /// Whether a step of the set-up may bring it.
    may_come: bool,
}

enum Found {
    Same,
    Wrong(String),
    Unknown(String),
}

/// Looks on all hosts; nothing where there are none, or workers read no files.
pub(super) fn look(recipe: &Recipe, facts: &Facts) -> Vec<There> {
    let Some(look) = Look::new(recipe, facts) else { return Vec::new() };
    let program = || read(&program::find(None).ok()?).ok();
    let Some(program) = program().filter(|_| !recipe.pool.named().is_empty()) else {
        return Vec::new();
    };
    let (look, may_come) = (Arc::new(look), !recipe.setup.is_empty());
    let mut there = Vec::new();
    for supply in recipe.pool.supplies().filter(|supply| !supply.provider.named().is_empty()) {
        let purpose = Purpose { program: Some(program.clone()), ..Purpose::default() };
        let Ok(provider) = providers::make(&supply.provider, purpose) else { continue };
        there.extend(ask(&look, provider, &program, may_come, supply.provider.named().len()));
    }
    there
}

fn ask(
    look: &Arc<Look>,
    provider: Arc<dyn Provider>,
    program: &Program,
    may_come: bool,
    count: usize,
) -> Vec<There> {
    let run = Tag::new(&format!("plan-{}", std::process::id())).expect("letters and digits");
    let machines: Vec<Machine> =
        (0..count as u32).filter_map(|number| provider.plan(&run, number)).collect();
    let names: Vec<String> = machines.iter().map(|machine| machine.name.clone()).collect();
    let mut found: Vec<Option<Found>> = names.iter().map(|_| None).collect();
    let (look, program) = (look.clone(), program.clone());
    let work = move |machine: &Machine| look.ask(&*provider, &run, machine, &program, WITHIN);
    many::each(machines, WITHIN, work, |number, result| {
        found[number] = Some(match result {
            Some(Ok(None)) => Found::Same,
            Some(Ok(Some(wrong))) => Found::Wrong(wrong),
            Some(Err(Fault { what, .. })) => Found::Unknown(what),
            None => Found::Unknown(format!("no answer within {} s", WITHIN.as_secs())),
        });
    });
    let there = names.into_iter().zip(found);
    let there =
        there.filter_map(|(machine, found)| Some(There { machine, found: found?, may_come }));
    there.collect()
}

/// Lines for people.
pub(super) fn text(there: &[There]) -> String {
    let same = there.iter().filter(|one| matches!(one.found, Found::Same));
    let same: Vec<String> = same.map(|one| one.machine.clone()).collect();
    let mut lines = Vec::new();
    if !same.is_empty() {
        lines.push(format!("the same on {}, by count and size", listed(same)));
    }
    for There { machine, found, may_come } in there {
        lines.push(match found {
            Found::Same => continue,
            Found::Wrong(what) if *may_come => {
                format!("not on {machine} yet, unless a set-up step brings it: {what}")
            }
            Found::Wrong(what) => format!("NOT ON {machine}: {what}"),
            Found::Unknown(why) => {
                format!("not looked for on {machine}: {}", why.lines().next().unwrap_or_default())
            }
        });
    }
    let label = |number: usize| if number == 0 { "data there" } else { "" };
    let lines = lines.iter().enumerate();
    lines.map(|(number, line)| format!("{:<12}{line}\n", label(number))).collect()
}

/// The same as data.
pub(super) fn document(there: &[There]) -> Value {
    let one = |there: &There| match &there.found {
        Found::Same => json!({"machine": there.machine, "is_there": true}),
        Found::Wrong(what) => json!({"machine": there.machine, "is_there": false, "why": what}),
        Found::Unknown(why) => json!({"machine": there.machine, "is_there": null, "why": why}),
    };
    there.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_without_the_data_are_named() {
        let one = |machine: &str, found| There { machine: machine.into(), found, may_come: false };
        let there = [
            one("h1", Found::Same),
            one("h2", Found::Wrong("`/d/x` is missing".into())),
            one("h3", Found::Unknown("no answer within 15 s".into())),
        ];
        let expect = "\
data there  the same on h1, by count and size
            NOT ON h2: `/d/x` is missing
            not looked for on h3: no answer within 15 s
";
        assert_eq!(text(&there), expect);
        assert_eq!(document(&there)[1]["is_there"], json!(false));
        assert_eq!(text(&[]), "");
    }
}
