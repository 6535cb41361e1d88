//! What the words of `pool` must mean together.

use crate::diagnostic::Finding;
use crate::node::{Kind, Node};
use crate::pool::providers::Place;
use crate::pool::{MACHINES_MAX, Pool, Provider, Supply};
use crate::text;
use crate::words::counted;

pub(super) fn check(pool: &Pool, tree: &Node, found: &mut Vec<Finding>) {
    processes(pool, found);
    about_machines(pool, tree, found);
    let node = tree.get("pool");
    supply(&pool.supply, pool, "pool".into(), node, found);
    let more = node.and_then(|pool| pool.get("more"));
    for (number, one) in pool.more.iter().enumerate() {
        let node = more.and_then(|more| more.item(number));
        supply(one, pool, format!("pool.more.{number}"), node, found);
    }
    room(pool, tree, found);
    if let Some(why) = pool.address.as_deref().and_then(text::host) {
        found.push(Finding::new("pool.address", format!("`pool.address` {why}")));
    }
}

fn processes(pool: &Pool, found: &mut Vec<Finding>) {
    let (least, most) = (pool.workers.min(), pool.workers.max());
    if least > most {
        let message = format!("`pool.workers.min` is {least}, but `max` is only {most}");
        let hint = format!("set `min` to {most} or less, or `max` to {least} or more");
        found.push(Finding::new("pool.workers.min", message).hint(hint));
    }
}

/// Whether there are no machines, and none were meant: an unsound `pool` is reported elsewhere.
pub(super) fn lacks_machines(pool: &Pool, tree: &Node) -> bool {
    let sound = tree.get("pool").is_none_or(|pool| matches!(pool.kind, Kind::Map(_)));
    let is_sound = written(tree, "provider").is_none_or(is_provider);
    let unsaid = |key: &str| written(tree, key).is_none();
    !pool.has_machines() && sound && is_sound && unsaid("machines") && unsaid("more")
}

/// Options about machines where there are none.
fn about_machines(pool: &Pool, tree: &Node, found: &mut Vec<Finding>) {
    for key in ["address", "slots"] {
        if written(tree, key).is_some() && lacks_machines(pool, tree) {
            let name = pool.supply.provider.name();
            let message =
                format!("`pool.{key}` is about machines, but `provider: {name}` has none");
            let hint = format!("add `machines: 2`, write another provider, or leave `{key}` out");
            found.push(Finding::new(format!("pool.{key}"), message).hint(hint));
        }
    }
}

/// The machines of one provider.
fn supply(
    supply: &Supply,
    pool: &Pool,
    path: String,
    node: Option<&Node>,
    found: &mut Vec<Finding>,
) {
    let is_only = pool.more.is_empty();
    let mut at = Place { path, node, machines: supply.machines, is_only, found };
    // An unsound provider is reported elsewhere, and the default that stands for it was not meant.
    if at.written("provider").is_some_and(|node| !is_provider(node)) {
        return;
    }
    let provider = supply.provider.name();
    for (key, owners) in supply.provider.keys_of_others() {
        if at.written(&key).is_none() {
            continue;
        }
        let owners: Vec<_> = owners.iter().map(|name| format!("`provider: {name}`")).collect();
        let owners = owners.join(" or ");
        let message =
            format!("`{}` belongs to {owners}, but the provider is `{provider}`", at.key(&key));
        at.add(&key, message, format!("write {owners}, or leave `{key}` out"));
    }
    // The first may be this machine, without any of its own.
    let is_beside = at.path == "pool" && !supply.has_machines();
    if !is_only && !is_beside && at.written("machines").is_none() {
        let is_made = supply.provider.machines_max().is_none();
        if is_made {
            let message = format!("`{}` does not say how many machines it has", at.path);
            at.add("provider", message, "add `machines: 2`, say");
        }
    }
    supply.provider.check(&mut at);
}

/// Whether the machines can take the workers.
fn room(pool: &Pool, tree: &Node, found: &mut Vec<Finding>) {
    let is_within = |supply: &Supply| {
        let count = supply.machine_count(pool.workers);
        supply.provider.machines_max().is_none_or(|max| (1..=max).contains(&count))
    };
    if !pool.has_machines() || !pool.supplies().all(is_within) {
        return;
    }
    let (machines, workers, slots) = (pool.machine_count(), pool.workers.max(), pool.slot_count());
    if machines > MACHINES_MAX {
        let message = format!("`pool` has {machines} machines in all");
        let hint = format!("a pool has {MACHINES_MAX} machines at most");
        found.push(Finding::new("pool.more", message).hint(hint));
    }
    if written(tree, "slots").is_some() && machines * slots < workers {
        let message = format!(
            "{workers} workers do not fit on {} with {} each",
            counted(machines, "machine"),
            counted(slots, "slot")
        );
        let hint = format!(
            "set `slots: {}`, or `workers: {}`",
            workers.div_ceil(machines.max(1)),
            machines * slots
        );
        found.push(Finding::new("pool.slots", message).hint(hint));
    }
}

/// What was written at a key of the pool.
fn written<'t>(tree: &'t Node, key: &str) -> Option<&'t Node> {
    tree.get("pool").and_then(|pool| pool.get(key)).filter(|node| node.kind != Kind::Null)
}

fn is_provider(node: &Node) -> bool {
    matches!(&node.kind, Kind::Str(text) if Provider::is_name(text))
}
