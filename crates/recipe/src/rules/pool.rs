//! What the words of `pool` must mean together.

use super::text;
use crate::diagnostic::{Finding, quoted};
use crate::node::{Kind, Node};
use crate::pool::{
    ALL, Gpus, Host, HostEntry, MACHINES_MAX, Mount, NAME_BYTES_MAX, Pool, Provider, WORKER, is_in,
    is_name,
};
use std::collections::BTreeMap;

/// What belongs to one provider alone.
const OWN: [(&str, Provider); 4] = [
    ("hosts", Provider::Ssh),
    ("ssh", Provider::Ssh),
    ("image", Provider::Docker),
    ("docker", Provider::Docker),
];

pub(super) fn check(pool: &Pool, tree: &Node, found: &mut Vec<Finding>) {
    processes(pool, found);
    belonging(pool, tree, found);
    if pool.provider == Provider::Ssh {
        hosts(pool, tree, found);
    }
    room(pool, tree, found);
    texts(pool, found);
}

fn processes(pool: &Pool, found: &mut Vec<Finding>) {
    let (least, most) = (pool.workers.min(), pool.workers.max());
    if least > most {
        let message = format!("`pool.workers.min` is {least}, but `max` is only {most}");
        let hint = format!("set `min` to {most} or less, or `max` to {least} or more");
        found.push(Finding::new("pool.workers.min", message).hint(hint));
    }
    let who = match most {
        1 if pool.has_machines() => "workers on machines".to_owned(),
        1 => return,
        most => format!("{most} workers"),
    };
    if pool.servers == Some(0) {
        let message = format!("`pool.servers` is 0, but {who} need one to hold the parameters");
        found.push(Finding::new("pool.servers", message).hint("set `servers: 1`, or leave it out"));
    }
}

/// Whether there are no machines, and none were meant: what was unsound has been told of.
pub(super) fn lacks_machines(pool: &Pool, tree: &Node) -> bool {
    let sound = tree.get("pool").is_none_or(|pool| matches!(pool.kind, Kind::Map(_)));
    let is_local = written(tree, "provider").is_none_or(is_provider);
    !pool.has_machines() && sound && is_local && written(tree, "machines").is_none()
}

/// Options that mean nothing with this provider.
fn belonging(pool: &Pool, tree: &Node, found: &mut Vec<Finding>) {
    // An unsound provider has been told of, and is not the default that stands for it.
    if written(tree, "provider").is_some_and(|node| !is_provider(node)) {
        return;
    }
    for (key, owner) in OWN {
        if written(tree, key).is_some() && owner != pool.provider {
            let (owner, provider) = (owner.as_str(), pool.provider.as_str());
            let message = format!(
                "`pool.{key}` belongs to `provider: {owner}`, but the provider is `{provider}`"
            );
            let hint = format!("write `provider: {owner}`, or leave `{key}` out");
            found.push(Finding::new(format!("pool.{key}"), message).hint(hint));
        }
    }
    for key in ["address", "slots"] {
        if written(tree, key).is_some() && lacks_machines(pool, tree) {
            let message = format!("`pool.{key}` is about machines, but `provider: local` has none");
            let hint = format!("add `machines: 2`, write another provider, or leave `{key}` out");
            found.push(Finding::new(format!("pool.{key}"), message).hint(hint));
        }
    }
}

fn hosts(pool: &Pool, tree: &Node, found: &mut Vec<Finding>) {
    let example = "list them, such as `hosts: [node1, lab@10.0.0.2:2222]`";
    match written(tree, "hosts") {
        None => {
            let message = "`provider: ssh` needs `pool.hosts`";
            return found.push(Finding::new("pool.provider", message).hint(example));
        }
        Some(Node { kind: Kind::Seq(items), .. }) if items.is_empty() => {
            return found.push(Finding::new("pool.hosts", "`pool.hosts` is empty").hint(example));
        }
        Some(_) => {}
    }
    if pool.hosts.len() > MACHINES_MAX {
        let message = format!("`pool.hosts` has {} hosts", pool.hosts.len());
        let hint = format!("a pool has {MACHINES_MAX} machines at most");
        return found.push(Finding::new("pool.hosts", message).hint(hint));
    }
    let mut seen = Seen::default();
    for (number, entry) in pool.hosts.iter().enumerate() {
        match entry.spelled_out() {
            Ok(host) => one_host(number, entry, host, &mut seen, found),
            Err(why) => found.push(at(number, "", format!(": {why}")).hint(
                "write a name of `~/.ssh/config`, `user@host:port`, or `{name: …, host: …}`",
            )),
        }
    }
    let sound = seen.names.len() == pool.hosts.len() && !pool.hosts.is_empty();
    if sound && !seen.workers {
        let message = "every host is in `server` alone, so workers have no machine";
        let hint = "add `worker` to the groups of one, or leave its groups out";
        found.push(Finding::new("pool.hosts", message).hint(hint));
    }
}

/// What the hosts before had.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, usize>,
    places: BTreeMap<(String, Option<String>, Option<u16>), usize>,
    workers: bool,
}

fn one_host(n: usize, entry: &HostEntry, host: Host, seen: &mut Seen, found: &mut Vec<Finding>) {
    let before = found.len();
    // What was written as one text has no keys to point at.
    let key = |key: &'static str| match entry {
        HostEntry::Short(_) => "",
        HostEntry::Full(_) => key,
    };
    let mut refuse = |name: &'static str, why: Option<String>| {
        if let Some(why) = why {
            found.push(at(n, key(name), format!(": its {name} {why}")));
        }
    };
    refuse("host", text::host(&host.host));
    refuse("user", host.user.as_deref().and_then(text::user));
    refuse("key", host.key.as_deref().and_then(text::path));
    refuse("jump", host.jump.as_deref().and_then(text::jumps));
    if found.len() == before && !is_name(&host.name) {
        found.push(at(n, key("name"), " cannot be called that").hint(names_hint()));
    }
    for (g, group) in host.groups.iter().enumerate() {
        let place = format!("groups.{g}");
        if group == ALL {
            let message = ": every machine is in `all`";
            found.push(at(n, &place, message).hint("leave it out"));
        } else if !is_name(group) {
            found.push(at(n, &place, " has a group that cannot be called that").hint(names_hint()));
        }
    }
    if found.len() > before {
        return;
    }
    seen.workers |= is_in(WORKER, &host.groups);
    let place = (host.host.clone(), host.user.clone(), host.port);
    if let Some(first) = seen.names.insert(host.name.clone(), n) {
        let message = format!(" has the name of host {}, `{}`", first + 1, host.name);
        found.push(at(n, key("name"), message).hint("give one of them another `name`"));
    } else if let Some(first) = seen.places.insert(place, n) {
        let message = format!(" is the same machine as host {}, `{}`", first + 1, host.host);
        found.push(
            at(n, key("host"), message)
                .hint("list each machine once; `slots` says how many workers it takes"),
        );
    }
}

/// Whether the machines can take the workers.
fn room(pool: &Pool, tree: &Node, found: &mut Vec<Finding>) {
    let hosts_known = !pool.hosts.is_empty() || pool.provider != Provider::Ssh;
    if !pool.has_machines() || !hosts_known {
        return;
    }
    let (machines, hosts) = (pool.machine_count(), pool.hosts.len());
    if pool.provider == Provider::Ssh && machines > hosts {
        let message = format!("`pool.machines` is {machines}, but there are {hosts} hosts");
        let hint = format!("set it to {hosts} or less, or add hosts; leave it out to use all");
        return found.push(Finding::new("pool.machines", message).hint(hint));
    }
    let (workers, slots) = (pool.workers.max(), pool.slot_count());
    if written(tree, "slots").is_some() && machines * slots < workers {
        let message =
            format!("{workers} workers do not fit on {machines} machines with {slots} slots each");
        let hint = format!(
            "set `slots: {}`, or `workers: {}`",
            workers.div_ceil(machines.max(1)),
            machines * slots
        );
        found.push(Finding::new("pool.slots", message).hint(hint));
    }
}

fn texts(pool: &Pool, found: &mut Vec<Finding>) {
    let mut refuse = |key: &str, why: Option<String>| {
        if let Some(why) = why {
            found.push(Finding::new(format!("pool.{key}"), format!("`pool.{key}` {why}")));
        }
    };
    refuse("address", pool.address.as_deref().and_then(text::host));
    refuse("ssh.config", pool.ssh.config.as_deref().and_then(text::path));
    refuse("ssh.known_hosts", pool.ssh.known_hosts.as_deref().and_then(text::path));
    refuse("image", pool.image.as_deref().and_then(text::image));
    refuse("docker.socket", pool.docker.socket.as_deref().and_then(text::path));
    refuse("docker.network", pool.docker.network.as_deref().and_then(text::host));
    mounts(pool, found);
    if let Some(Gpus::All(word)) = &pool.docker.gpus
        && word != "all"
    {
        let message = format!("`pool.docker.gpus` cannot be {}", quoted(word));
        found.push(Finding::new("pool.docker.gpus", message).hint("write a number, or `all`"));
    }
}

/// What containers see of this machine. Whether it is there is for the provider to say.
fn mounts(pool: &Pool, found: &mut Vec<Finding>) {
    let mut targets: Vec<String> = Vec::new();
    for (number, text) in pool.docker.mounts.iter().enumerate() {
        let key = format!("pool.docker.mounts.{number}");
        match Mount::parse(text) {
            Err(why) => {
                let message = format!("the mount {} {why}", quoted(text));
                let hint = "write `/data/images:/data:ro`, say";
                found.push(Finding::new(key, message).hint(hint));
            }
            Ok(mount) if targets.contains(&mount.target) => {
                let message = format!("two mounts lead to `{}`", mount.target);
                found.push(Finding::new(key, message).hint("give one of them another place"));
            }
            Ok(mount) => targets.push(mount.target),
        }
    }
}

fn at(number: usize, key: &str, message: impl AsRef<str>) -> Finding {
    let dotted = if key.is_empty() { String::new() } else { format!(".{key}") };
    let message = format!("host {}{}", number + 1, message.as_ref());
    Finding::new(format!("pool.hosts.{number}{dotted}"), message)
}

/// What names of machines and groups are made of.
fn names_hint() -> String {
    format!(
        "use letters, digits, `-`, `_` and `.`, {NAME_BYTES_MAX} at most, such as `name: node1`"
    )
}

/// What was written at a key of the pool.
fn written<'t>(tree: &'t Node, key: &str) -> Option<&'t Node> {
    tree.get("pool").and_then(|pool| pool.get(key)).filter(|node| node.kind != Kind::Null)
}

fn is_provider(node: &Node) -> bool {
    let known = [Provider::Local, Provider::Ssh, Provider::Docker];
    matches!(&node.kind, Kind::Str(text) if known.iter().any(|p| p.as_str() == text))
}
