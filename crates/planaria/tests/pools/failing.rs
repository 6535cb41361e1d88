//! Runs whose machines cannot be had or set up: one clear error within bounds, or the run goes on.

use crate::hosts::Hosts;
use crate::support::engine::{Engine, SYSTEM};
use crate::support::pooled::{
    EPOCHS, docker, ends_well, engine_is_clean, expected, hosts_are_clean, id, is_over, recipe,
    ssh, weights, workspace,
};
use crate::support::workspace::Workspace;
use planaria::clock::Stopwatch;

/// Trains, which must fail with this code within so many seconds; the error and its hint.
#[track_caller]
fn fails(workspace: &Workspace, env: &[(&str, &str)], code: i32, seconds: f64) -> String {
    let watch = Stopwatch::start();
    let output = workspace.start(&["train", "pool.yaml"], env).end();
    let said = workspace.said();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(watch.seconds() < seconds, "{:.1} s: {said}", watch.seconds());
    assert_eq!(said.matches("error: ").count(), 1, "one error: {said}");
    assert!(!said.contains("panicked") && output.stdout.is_empty(), "{said}");
    said[said.find("error: ").expect("an error")..].to_owned()
}

#[test]
fn a_step_that_fails_on_one_host_or_on_all() {
    let Some(hosts) = Hosts::up(3, &[]) else { return };
    let pool = ssh(&hosts, "h1, h2, h3", 3);
    let setup = "setup: [{run: 'echo first; echo last >&2; test \"$(hostname)\" != h2'}]";
    let one = workspace(&pool, EPOCHS, setup);
    let training = one.start(&["train", "pool.yaml", "--json"], &[]);
    assert_eq!(weights(&ends_well(&one, training)), expected());
    let said = one.said();
    for words in ["h2: step 1 `run echo first", "exit code 1", "\n  first\n  last", "setup-h2.log"]
    {
        assert!(said.contains(words), "`{words}`: {said}");
    }
    assert!(!said.contains("on h2 (") && said.contains("on h1 ("), "others train: {said}");
    let run = one.run();
    hosts_are_clean(&hosts, &[1, 2, 3], &run);
    let log = std::fs::read_to_string(run.join("logs/setup-h2.log")).expect("a log");
    assert!(log.contains("first\n") && log.contains("last\n"), "{log}");

    let all = workspace(&pool, 3, "setup: [{run: 'echo last; exit 7'}]");
    let error = fails(&all, &[], 1, 20.0);
    assert!(error.starts_with("error: h"), "{error}");
    for words in ["step 1 `run echo last; exit 7`", "exit code 7", "\n  last", "logs/setup-h"] {
        assert!(error.contains(words), "`{words}`: {error}");
    }
    hosts_are_clean(&hosts, &[1, 2, 3], &all.run());
}

#[test]
fn hosts_that_cannot_be_reached() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let absent = |number| hosts.address(number);
    let pool = ssh(&hosts, &format!("h1, {}, h2", absent(150)), 2);
    let one = workspace(&pool, EPOCHS, "");
    let watch = Stopwatch::start();
    let training = one.start(&["train", "pool.yaml", "--json"], &[]);
    assert_eq!(weights(&ends_well(&one, training)), expected());
    assert!(watch.seconds() < 40.0, "{:.1} s: {}", watch.seconds(), one.said());
    assert!(one.said().contains(&format!("{} cannot be reached", absent(150))), "{}", one.said());
    hosts_are_clean(&hosts, &[1, 2], &one.run());

    let pool = ssh(&hosts, &format!("{}, {}", absent(150), absent(151)), 2);
    let none = workspace(&pool, 3, "");
    let error = fails(&none, &[], 1, 40.0);
    let address = error.strip_prefix("error: ").and_then(|rest| rest.split(':').next());
    let address = address.expect("a machine").to_owned();
    assert!(address == absent(150) || address == absent(151), "{error}");
    assert!(error.contains("cannot be reached") && error.contains("hint: check"), "{error}");
    is_over(&none.run());
    let (_, said) = none.give(&["down", &id(&none.run())], 0);
    assert!(said.ends_with("holds nothing\n"), "{said}");

    let without = workspace(&ssh(&hosts, "h1, h2", 2), 3, "");
    let error = fails(&without, &[("PATH", "/nonexistent")], 2, 5.0);
    assert!(error.contains("`ssh` does not start") && error.contains("openssh-client"), "{error}");
    assert_eq!(without.runs(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_host_that_drops_packets_is_not_waited_for_at_the_end() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    hosts.on(2, "iptables -A INPUT -p tcp --syn --dport 22 -j DROP");
    let pool = ssh(&hosts, "h1, h2", 2).replace("connect_seconds: 2", "connect_seconds: 250");
    let one = workspace(&pool, EPOCHS, "");
    let training = one.start(&["train", "pool.yaml", "--json"], &[]);
    let report = ends_well(&one, training);
    assert_eq!(weights(&report), expected());
    let report: serde_json::Value = serde_json::from_str(&report).expect("a report");
    let given_up = &report["machines_given_up"];
    assert_eq!(given_up[0]["machine"], "h2", "{given_up}");
    assert_eq!(given_up[0]["reason"], "it was not ready when the run ended");
    // Nothing of the run was ever there, and nothing is written down as held.
    is_over(&one.run());
}

#[test]
fn a_step_that_fails_in_every_container() {
    let Some(engine) = Engine::up() else { return };
    engine.import_system("shell");
    let image = format!(
        ", image: shell, docker: {{socket: {}, mounts: ['{SYSTEM}']}}",
        engine.socket().display()
    );
    let pool = format!(
        "{{provider: docker, machines: 2, workers: 2, address: {}{image}}}",
        engine.address()
    );
    let workspace = workspace(&pool, 3, "setup: [{run: 'exit 3'}]");
    let error = fails(&workspace, &[], 1, 60.0);
    for words in
        ["step 1 `run exit 3` ended with exit code 3", "machines in a row went the same way"]
    {
        assert!(error.contains(words), "`{words}`: {error}");
    }
    let run = workspace.run();
    let written = std::fs::read_to_string(run.join("resources.jsonl")).expect("resources");
    let made = written.matches("\"will\"").count();
    assert!((5..=6).contains(&made), "{written}");
    let report = std::fs::read_to_string(run.join("report.json")).expect("a report");
    // Each, and the reason why the run failed.
    assert_eq!(report.matches("ended with exit code 3").count(), made + 1, "{report}");
    engine_is_clean(&engine, &run);
}

#[test]
fn containers_with_less_memory_than_training_takes() {
    let Some(engine) = Engine::up() else { return };
    let pool = docker(&engine, 2, "").replace("docker: {", "docker: {memory_mib: 128, ");
    let large = recipe(&pool, 1, "").replace("units: 32", "units: 20000");
    let short = Workspace::new("{}");
    short.put("pool.yaml", &large);
    let planned = short.give(&["plan", "pool.yaml"], 0).0;
    assert!(planned.contains("but `pool.docker.memory_mib` leaves it 134.2 MB"), "{planned}");
    let error = fails(&short, &[], 1, 120.0);
    for words in [
        "killed for want of memory: limit 128 MiB",
        "in a row",
        "raise `pool.docker.memory_mib`, or lower `train.batch`",
    ] {
        assert!(error.contains(words), "`{words}`: {error}");
    }
    let said = short.said();
    assert!(said.contains("128.0 MiB"), "what a machine may use is told: {said}");
    engine_is_clean(&engine, &short.run());
    // With as much as it takes the same run goes on.
    let file = short.run().join("recipe.yaml");
    let text = std::fs::read_to_string(&file).expect("a recipe");
    let more = text.replace("memory_mib: 128", "memory_mib: 2048");
    assert_ne!(more, text);
    std::fs::write(&file, more).expect("a recipe");
    short.give(&["resume", &id(&short.run())], 0);
    engine_is_clean(&engine, &short.run());
}

#[test]
fn engines_and_images_that_are_not_there() {
    let socket = "{provider: docker, workers: 2, docker: {socket: /nonexistent/engine}}";
    let off = workspace(socket, 3, "");
    let error = fails(&off, &[], 2, 5.0);
    assert!(error.contains("/nonexistent/engine") && error.contains("hint: start it"), "{error}");
    assert_eq!(
        off.runs(),
        Vec::<std::path::PathBuf>::new(),
        "a run that never began leaves no folder"
    );

    let Some(engine) = Engine::up() else { return };
    let workspace = workspace(&docker(&engine, 2, ", image: \"127.0.0.1:1/nothing:1\""), 3, "");
    let error = fails(&workspace, &[], 2, 20.0);
    assert!(error.contains("127.0.0.1:1/nothing:1` is not here and cannot be pulled"), "{error}");
    engine_is_clean(&engine, &workspace.run());
}
