//! Pools and their set-up: what is read, what is refused and where, and what is written again.

use planaria_recipe::pool::Provider;
use planaria_recipe::pool::providers::ssh::HostKeys;
use planaria_recipe::setup::{Action, SecretSource};
use planaria_recipe::{DataFacts, Shape, Source, to_yaml};

const REST: &str = "data: {train: digits}\nmodel: {preset: mlp}\n";

const WHOLE: &str = include_str!("pooled.yaml");

fn summary(text: &str, sets: &[&str]) -> String {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    let input = Shape::Image { height: 28, width: 28, channels: 1 };
    let facts = DataFacts { input, classes: Some(10), examples: 900 };
    let found = Source::parse_and_plan("r.yaml", text.as_bytes(), &sets, |_| Ok(facts)).err();
    let line = |d: &planaria_recipe::Diagnostic| {
        let hint = d.hint.as_ref().map(|h| format!(" // {h}")).unwrap_or_default();
        format!("{}:{} {}{hint}", d.line, d.column, d.message)
    };
    found.map(|d| d.list).unwrap_or_default().iter().map(line).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check(section: &str, expect: &str) {
    let text = format!("{section}\nname: a\n{REST}");
    assert_eq!(summary(&text, &[]), expect, "for\n{section}");
}

/// A step on a pool that has machines.
#[track_caller]
fn check_step(step: &str, expect: &str) {
    let text = format!("setup:\n- {step}\nname: a\npool: {{machines: 1}}\n{REST}");
    assert_eq!(summary(&text, &[]), expect, "for\n{step}");
}

#[test]
fn a_whole_recipe_is_read_and_written_again() {
    let source = Source::parse("r.yaml", WHOLE.as_bytes(), &[]).unwrap_or_else(|d| panic!("{d}"));
    let recipe = source.recipe();
    let pool = &recipe.pool;
    assert_eq!((pool.machine_count(), pool.slot_count()), (2, 3));
    let Provider::Ssh(settings) = &pool.supply.provider else { panic!("{pool:?}") };
    let ssh = &settings.ssh;
    assert_eq!((ssh.host_keys, ssh.connect_seconds), (HostKeys::AcceptNew, 5));
    let hosts: Vec<_> = settings.hosts.iter().map(|host| host.spelled_out().unwrap()).collect();
    assert_eq!(
        hosts.iter().map(|h| &*h.name).collect::<Vec<_>>(),
        ["node1", "10.0.0.3-2222", "node2"]
    );
    assert_eq!(hosts[2].jump.as_deref(), Some("gate"));
    let steps = &recipe.setup;
    assert!(steps.iter().all(|step| step.action().is_some()));
    assert!(matches!(steps[3].action(), Some(Action::Copy { from: "data/x.bin", to: "~/x.bin" })));
    assert_eq!(steps[3].mode_bits(), Some(0o600));
    let on = |n: usize, host: usize| steps[n].is_for(&hosts[host].groups);
    assert_eq!([on(0, 2), on(1, 2), on(1, 0), on(2, 2), on(3, 2)], [true, false, true, true, true]);
    assert!(matches!(steps[2].env["TOKEN"].source(), Ok(SecretSource::Env("TOKEN"))));
    let resolved = to_yaml(recipe);
    assert!(resolved.contains("${env:TOKEN}") && resolved.contains("file:~/.key"), "{resolved}");
    let again = Source::parse("r.yaml", resolved.as_bytes(), &[]);
    let again = again.unwrap_or_else(|d| panic!("{d}\n{resolved}"));
    assert_eq!(again.recipe(), recipe, "{resolved}");
}

#[test]
fn overrides_make_a_pool() {
    let text = format!("name: a\n{REST}");
    let sets = ["pool.provider=ssh".to_owned(), "pool.hosts=[a,b]".to_owned()];
    let source = Source::parse("r.yaml", text.as_bytes(), &sets).unwrap_or_else(|d| panic!("{d}"));
    assert_eq!(source.recipe().pool.machine_count(), 2);
    assert_eq!(source.recipe().pool.server_count(), 1);
    assert_eq!(
        summary(&text, &["pool.hosts=[a,b]"]),
        "1:6 `pool.hosts` belongs to `provider: ssh`, but the provider is `local` // write `provider: ssh`, or leave `hosts` out"
    );
    assert_eq!(
        summary(&text, &["pool.provider=ssh", "pool.hosts=[a,-b]"]),
        "1:15 host 2: its host starts with `-`"
    );
}

#[test]
fn providers_have_options_of_their_own() {
    check(
        "pool: {provider: docker, image: 'my/image:1', docker: {socket: /run/x, network: n}}",
        "",
    );
    check("pool: {provider: docker, docker: {mounts: ['/d:/d:ro', 'x:/y'], gpus: all}}", "");
    check("pool: {provider: docker, docker: {gpus: 2}}", "");
    check("pool: {provider: docker, image: x}\nsetup: [{run: a}]", "");
    check(
        "pool: {provider: docker}\nsetup: [{run: a}]",
        "2:10 step 1 cannot be done: the image that is built from this program has no shell and no \
         tools // give `pool.image` an image that has what the steps need (`debian:12`, say), or \
         leave the steps out",
    );
    check("pool: {provider: docker, docker: {cpus: 1.5, memory_mib: 512, pids: 200}}", "");
    check(
        "pool: {provider: docker, docker: {memory_mib: 1}}",
        "1:47 `pool.docker.memory_mib` must be a whole number from 64 to 1073741824, but is 1",
    );
    check(
        "pool: {provider: docker, docker: {gpus: some, mounts: [/d, '/d:d', '/a:/b:x', ':/a', '/a:/']}}",
        "1:41 `pool.docker.gpus` cannot be `some` // write a number, or `all`\n\
         1:56 the mount `/d` is not of the form `HERE:THERE` // write `/data/images:/data:ro`, say\n\
         1:60 the mount `/d:d` leads to `d`, which is no absolute path of a container // write `/data/images:/data:ro`, say\n\
         1:68 the mount `/a:/b:x` ends in `x`, which is neither `ro` nor `rw` // write `/data/images:/data:ro`, say\n\
         1:79 the mount `:/a` names nothing here // write `/data/images:/data:ro`, say\n\
         1:86 the mount `/a:/` leads to `/`, which holds all else // write `/data/images:/data:ro`, say",
    );
    check(
        "pool: {provider: docker, docker: {mounts: ['/a:/x', '/b:/x/:ro']}}",
        "1:53 two mounts lead to `/x` // give one of them another place",
    );
    check("pool: {machines: 2, workers: 4, slots: 2, address: 127.0.0.1}", "");
    check(
        "pool: {provider: sssh}",
        "1:18 unknown value `sssh` for `pool.provider` // did you mean `ssh`?",
    );
    check(
        "pool: {provider: ssh}",
        "1:18 `provider: ssh` needs `pool.hosts` // list them, such as `hosts: [node1, lab@10.0.0.2:2222]`",
    );
    check(
        "pool: {provider: ssh, hosts: []}",
        "1:23 `pool.hosts` is empty // list them, such as `hosts: [node1, lab@10.0.0.2:2222]`",
    );
    check(
        "pool: {provider: docker, ssh: {connect_seconds: 5}}",
        "1:26 `pool.ssh` belongs to `provider: ssh`, but the provider is `docker` // write `provider: ssh`, or leave `ssh` out",
    );
    check(
        "pool: {image: a}",
        "1:15 `pool.image` belongs to `provider: docker`, but the provider is `local` // write `provider: docker`, or leave `image` out",
    );
    check(
        "pool: {slots: 2}",
        "1:15 `pool.slots` is about machines, but `provider: local` has none // add `machines: 2`, write another provider, or leave `slots` out",
    );
    check("pool: {provider: docker, image: -v}", "1:33 `pool.image` starts with `-`");
    check("pool: {provider: ssh, hosts: [a], address: 'a b'}", "1:44 `pool.address` holds ` `");
    check(
        "pool: {provider: ssh, hosts: [a], ssh: {host_keys: no}}",
        "1:52 unknown value `no` for `pool.ssh.host_keys` // known values: `strict`, `accept-new`",
    );
    check(
        "pool: {provider: ssh, hosts: [a], ssh: {connect_seconds: 0}}",
        "1:58 `pool.ssh.connect_seconds` must be a whole number from 1 to 300, but is 0",
    );
    check("hosts: [a]", "1:1 unknown key `hosts` // `hosts` belongs in `pool`");
}

#[test]
fn a_pool_has_machines_of_several_providers() {
    let text = format!(
        "name: a\npool: {{provider: ssh, hosts: [a, b], workers: 8, more: [{{provider: docker, machines: 2, image: x}}]}}\n{REST}"
    );
    let source = Source::parse("r.yaml", text.as_bytes(), &[]).unwrap_or_else(|d| panic!("{d}"));
    let pool = &source.recipe().pool;
    assert_eq!((pool.machine_count(), pool.slot_count(), pool.machines_max()), (4, 2, 1024));
    let resolved = to_yaml(source.recipe());
    let again = Source::parse("r.yaml", resolved.as_bytes(), &[]);
    assert_eq!(again.unwrap_or_else(|d| panic!("{d}\n{resolved}")).recipe(), source.recipe());
    check("pool: {workers: 2, more: [{provider: docker, machines: 2}]}", "");
    check(
        "pool: {more: [{provider: docker}, {provider: ssh, hosts: [a, a], image: x}]}",
        "1:26 `pool.more.0` does not say how many machines it has // add `machines: 2`, say\n\
         1:62 host 2 has the name of host 1, `a` // give one of them another `name`\n\
         1:73 `pool.more.1.image` belongs to `provider: docker`, but the provider is `ssh` // write `provider: docker`, or leave `image` out",
    );
    check(
        "pool: {more: [{provider: docker, machines: 2, workers: 3}]}",
        "1:47 unknown key `workers` in `pool.more.0` // `workers` belongs in `pool`",
    );
    check(
        "pool: {provider: ssh, hosts: [{name: a, groups: [server]}], more: [{provider: docker, machines: 1}]}",
        "",
    );
}

#[test]
fn machines_have_room_for_workers() {
    check(
        "pool: {provider: ssh, hosts: [a, b], machines: 3}",
        "1:48 `pool.machines` is 3, but there are 2 hosts // set it to 2 or less, or add hosts; leave it out to use all",
    );
    check(
        "pool: {provider: docker, workers: 6, machines: 2, slots: 2}",
        "1:58 6 workers do not fit on 2 machines with 2 slots each // set `slots: 3`, or `workers: 4`",
    );
    check(
        "pool: {provider: docker, workers: 1, servers: 0}",
        "1:47 `pool.servers` is 0, but workers on machines need one to hold the parameters // set `servers: 1`, or leave it out",
    );
    check(
        "pool: {machines: 0}",
        "1:18 `pool.machines` must be a whole number from 1 to 1024, but is 0",
    );
}

#[test]
fn hosts() {
    let hosts = |list: &str, expect: &str| {
        check(&format!("pool: {{provider: ssh, hosts: [{list}]}}"), expect);
    };
    let names = "use letters, digits, `-`, `_` and `.`, 100 at most, such as `name: node1`";
    hosts("a, b, {name: c, host: a.b}, u@d, 'e:22', '[::1]:22'", "");
    hosts("a, b, a", "1:37 host 3 has the name of host 1, `a` // give one of them another `name`");
    hosts(
        "{name: a, host: h}, {name: b, host: h}",
        "1:67 host 2 is the same machine as host 1, `h` // list each machine once; `slots` says how many workers it takes",
    );
    hosts("{name: a, host: h}, {name: b, host: h, port: 23}", "");
    hosts(
        "'a:x'",
        "1:31 host 1: its port is not a number from 1 to 65535 // write a name of `~/.ssh/config`, `user@host:port`, or `{name: …, host: …}`",
    );
    hosts("-oProxyCommand=x", "1:31 host 1: its host holds `=`");
    hosts("{name: a, host: -o}", "1:47 host 1: its host starts with `-`");
    hosts("{name: ../a, host: h}", &format!("1:38 host 1 cannot be called that // {names}"));
    hosts("{name: a, user: ''}", "1:47 host 1: its user is empty");
    hosts("{name: a, jump: 'b,,c'}", "1:47 host 1: its jump has nothing between two commas");
    hosts(
        "{name: a, port: 70000}",
        "1:47 host 1 `port` must be a whole number from 1 to 65535, but is 70000",
    );
    hosts("{name: a, keys: b}", "1:41 unknown key `keys` in host 1 // did you mean `key`?");
    hosts(
        "{user: a}",
        "1:32 host 1: it has no `name` or `host` // write a name of `~/.ssh/config`, `user@host:port`, or `{name: …, host: …}`",
    );
    hosts("3", "1:31 host 1 must be text or a mapping, but is 3");
    hosts("{name: a, groups: [all]}", "1:50 host 1: every machine is in `all` // leave it out");
    hosts(
        "{name: a, groups: [a b]}",
        &format!("1:50 host 1 has a group that cannot be called that // {names}"),
    );
    hosts(
        "{name: a, groups: [server]}",
        "1:23 every host is in `server` alone, so workers have no machine // add `worker` to the groups of one, or leave its groups out",
    );
}

#[test]
fn steps_do_one_thing() {
    check_step("{apt: x}", "");
    check_step(
        "{name: x}",
        "2:4 step 1 does nothing // add one of `apt`, `pip`, `copy`, `template`, `run`, `ansible`, `check`",
    );
    check_step(
        "{apt: x, pip: y}",
        "2:17 step 1 does 2 things: `apt`, `pip` // start each step with its own `- `",
    );
    check_step("{apt: }", "2:4 step 1 `apt` is empty // write `apt: …`");
    check_step("{atp: x}", "2:4 unknown key `atp` in step 1 // did you mean `apt`?");
    check_step("apt", "2:3 step 1 must be a mapping, but is the text `apt`");
    check_step(
        "{apt: x, venv: ~/v}",
        "2:18 step 1: `venv` belongs to `pip`, not to `apt` // leave `venv` out",
    );
    check_step(
        "{check: x, mode: '0600'}",
        "2:20 step 1: `mode` belongs to `copy` and `template`, not to `check` // leave `mode` out",
    );
    check_step(
        "{copy: x}",
        "2:10 step 1 does not say where `copy` writes // add `to: /…` or `to: ~/…`",
    );
    check(
        "setup: [{apt: x}]",
        "1:1 `setup` is for machines, but `provider: local` has none of its own // add `machines: 1` to `pool` to set this one up, or leave `setup` out",
    );
    check(
        "setup: {apt: x}",
        "1:9 `setup` must be a list, but is a mapping // start each item with `- `",
    );
}

#[test]
fn one_mistake_makes_no_other() {
    check(
        "pool: {provider: sssh, slots: 2, hosts: [a]}\nsetup: [{apt: x}]",
        "1:18 unknown value `sssh` for `pool.provider` // did you mean `ssh`?",
    );
    check(
        "pool: {machines: 0, slots: 2}\nsetup: [{apt: x}]",
        "1:18 `pool.machines` must be a whole number from 1 to 1024, but is 0",
    );
    check(
        "pool: {provider: ssh, hosts: [3]}\nsetup: [{apt: x}]",
        "1:31 host 1 must be text or a mapping, but is 3",
    );
}

#[test]
fn steps_are_for_known_groups() {
    check_step("{on: [worker, server], apt: x}", "");
    check_step(
        "{on: workers, apt: x}",
        "2:8 step 1: no machine is in group `workers` // did you mean `worker`?",
    );
    check_step(
        "{on: [], apt: x}",
        "2:4 step 1 is for no machine // write `on: all`, or leave it out",
    );
}

#[test]
fn what_steps_hold() {
    check_step(
        "{copy: x, to: y}",
        "2:17 step 1: `to` starts with neither `/` nor `~/` // write `to: ~/…` for the user's home there, or an absolute path",
    );
    check_step(
        "{copy: x, to: /a/../b}",
        "2:17 step 1: `to` holds `..` // write `to: ~/…` for the user's home there, or an absolute path",
    );
    check_step(
        "{copy: '', to: /b}",
        "2:10 step 1: the path of `copy` is empty // write a path of this machine",
    );
    check_step(
        "{copy: x, to: /b, mode: '0888'}",
        "2:27 step 1: `mode` must be octal digits, but is `0888` // write `mode: \"0644\"`",
    );
    check_step(
        "{copy: x, to: /b, mode: 0600}",
        "2:27 step 1 `mode` must be text, but is 600 // put it in quotes to make it text",
    );
    check_step(
        "{apt: ['a b']}",
        "2:4 step 1: `a b` cannot be a package // list packages one by one, such as `[libgomp1, python3]`",
    );
    check_step(
        "{apt: []}",
        "2:4 step 1 `apt` lists nothing // list packages, or leave the step out",
    );
    check_step(
        "{pip: --pre}",
        "2:9 step 1: `--pre` cannot be a package // options of pip go into `env`, such as `env: {PIP_INDEX_URL: …}`",
    );
    check_step("{run: ' '}", "2:9 step 1 `run` is empty // write a command for `sh`");
    check_step(
        "{run: 'echo ${env:A}'}",
        "2:9 step 1: references are looked up in `env`, not in `run` // write `env: {TOKEN: \"${env:TOKEN}\"}`, and `$TOKEN` in the command",
    );
    check_step(
        "{run: a, seconds: 0}",
        "2:21 step 1 `seconds` must be a whole number from 1 to 86400, but is 0",
    );
    check_step(
        "{run: a, retries: 11}",
        "2:21 step 1 `retries` must be a whole number from 0 to 10, but is 11",
    );
    check_step(
        "{run: a, env: {1a: b}}",
        "2:22 step 1: a variable cannot be called `1a` // use letters, digits and `_`",
    );
    check_step(
        "{run: a, env: {A: 3}}",
        "2:21 step 1 `env.A` must be text, but is 3 // put it in quotes to make it text",
    );
    check_step(
        "{run: a, env: {A: 'x${env:B}'}}",
        "2:21 step 1 `env.A`: text comes before the reference // a reference stands alone: `${env:NAME}` or `file:PATH`",
    );
    check_step(
        "{template: a, to: /b, values: {run: 1}}",
        "2:39 step 1: field `run` is always there // give yours another name",
    );
    check_step(
        "{template: a, to: /b, values: {a: [1]}}",
        "2:37 step 1 `values.a` must be `true` or `false` or a whole number or a number or text, but is a list",
    );
    check_step(
        "{template: a, to: /b, values: [1]}",
        "2:33 step 1 `values` must be a mapping, but is a list",
    );
}
