//! The machines of a pool and what is done on them first, as `planaria plan` shows them.
//!
//! Pure. Never reaches a machine.

use planaria_recipe::pool::{Named, Pool};
use planaria_recipe::setup::Step;
use planaria_recipe::words::listed;
use planaria_text::number::counted;
use serde_json::{Value, json};
use std::fmt::Write;

/// Lines for people; nothing where processes live beside the command.
pub(super) fn text(pool: &Pool, setup: &[Step]) -> String {
    if !pool.has_machines() {
        return String::new();
    }
    let slots = counted(pool.slot_count() as u64, "worker");
    format!("machines    {}; up to {slots} on each\n{}", machines(pool), steps(pool, setup))
}

/// What is done on them first, in order.
pub(super) fn steps(pool: &Pool, setup: &[Step]) -> String {
    let (mut text, hosts) = (String::new(), pool.named());
    for (i, step) in setup.iter().enumerate() {
        let label = if i == 0 { "setup" } else { "" };
        let _ = writeln!(text, "{label:<12}{}. {} on {}", i + 1, step.title(), on(step, &hosts));
    }
    text
}

/// The same as data.
pub(super) fn document(pool: &Pool, setup: &[Step]) -> Value {
    if !pool.has_machines() {
        return Value::Null;
    }
    let hosts = pool.named();
    let named = |host: &Named| json!({"name": host.name, "groups": host.groups});
    let steps = setup.iter().map(|step| match hosts.is_empty() {
        true => json!({"step": step.title(), "on": step.groups()}),
        false => {
            json!({"step": step.title(), "on": step.groups(), "machines": names(step, &hosts)})
        }
    });
    json!({
        "provider": provider(pool),
        "count": pool.machine_count(),
        "slots": pool.slot_count(),
        "hosts": hosts.iter().map(named).collect::<Vec<_>>(),
        "setup": steps.collect::<Vec<_>>(),
    })
}

/// How many, of what, and their names where they have any.
pub(super) fn machines(pool: &Pool) -> String {
    let supplies = pool.supplies().filter(|supply| supply.has_machines());
    let described: Vec<String> = supplies
        .map(|supply| supply.provider.describe(supply.machine_count(pool.workers)))
        .collect();
    described.join(", and ")
}

/// The providers' names.
fn provider(pool: &Pool) -> String {
    let supplies = pool.supplies().filter(|supply| supply.has_machines());
    supplies.map(|supply| supply.provider.name()).collect::<Vec<_>>().join(", ")
}

/// Where a step is done: a group's name where the machines are not known yet.
fn on(step: &Step, hosts: &[Named]) -> String {
    let names = names(step, hosts);
    let groups = step.groups().join(", ");
    match names.len() {
        0 => groups,
        all if all == hosts.len() => "all".into(),
        _ => format!("{groups}: {}", listed(names)),
    }
}

fn names(step: &Step, hosts: &[Named]) -> Vec<String> {
    hosts.iter().filter(|h| step.is_for(&h.groups)).map(|h| h.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_recipe::{Recipe, Source};

    fn recipe(pool_and_setup: &str) -> Recipe {
        let text =
            format!("name: a\ndata: {{train: digits}}\nmodel: {{preset: mlp}}\n{pool_and_setup}");
        match Source::parse("r.yaml", text.as_bytes(), &[]) {
            Ok(source) => source.recipe().clone(),
            Err(mistakes) => panic!("{mistakes}"),
        }
    }

    #[test]
    fn machines_and_steps_are_shown() {
        let ssh = recipe(
            "pool:\n  provider: ssh\n  workers: 6\n  machines: 3\n  hosts: [node1, {name: node2, groups: [server]}, node3, node4]\n\
             setup:\n  - {apt: [libgomp1, python3]}\n  - {on: worker, pip: numpy}\n  - {on: server, run: tune}",
        );
        let expect = "\
machines    3 by ssh (1 spare): node1, node2 (server), node3, node4; up to 2 workers on each
setup       1. apt libgomp1 python3 on all
            2. pip numpy on worker: node1, node3, node4
            3. run tune on all
";
        let text = |recipe: &Recipe| text(&recipe.pool, &recipe.setup);
        assert_eq!(text(&ssh), expect);
        let steps = &document(&ssh.pool, &ssh.setup)["setup"];
        assert_eq!(steps[1]["machines"], json!(["node1", "node3", "node4"]));
        let docker = recipe(
            "pool: {provider: docker, image: x, workers: 3}\nsetup: [{on: worker, check: 'true'}]",
        );
        let expect = "\
machines    3 containers of x; up to 1 worker on each
setup       1. check true on worker
";
        assert_eq!(text(&docker), expect);
        assert_eq!(text(&recipe("pool: {workers: 3}")), "");
        assert_eq!(document(&Pool::default(), &[]), Value::Null);
    }
}
