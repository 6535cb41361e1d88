//! `down` and `doctor`, as a user has them: what a run left is found, and given back.

use crate::hosts::Hosts;
use crate::support::engine::Engine;
use crate::support::eventually;
use crate::support::workspace::Workspace;
use serde_json::Value;
use std::fs;
use std::path::Path;

const LOCAL: &str = "{machines: 2, workers: 2}";

fn ssh(hosts: &Hosts) -> String {
    let config = hosts.path("ssh_config");
    format!(
        "{{provider: ssh, hosts: [h1, h2], workers: 2, ssh: {{config: {}, connect_seconds: 4}}}}",
        config.display()
    )
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn json(out: &str) -> Value {
    serde_json::from_str(out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

#[test]
fn what_a_killed_run_held_is_found_and_given_back() {
    let workspace = Workspace::new(LOCAL);
    let training = workspace.train(2);
    let (out, _) = workspace.give(&["doctor", "--leaks"], 0);
    assert!(out.starts_with("no leaks; asked: local"), "what lives is no leak: {out}");
    training.kill();
    let run = workspace.runs().remove(0);
    let id = run.file_name().unwrap().to_string_lossy().into_owned();
    let (out, _) = workspace.give(&["doctor", "--leaks"], 1);
    assert!(out.contains(&format!("run runs/{id} (killed) holds m1, m2")), "{out}");
    assert!(out.contains(&format!("remove: planaria down runs/{id}")), "{out}");
    assert!(out.starts_with("1 leak:"), "each thing is told once: {out}");
    assert_eq!(names_in(&workspace.machines()), [id.as_str()]);
    let (out, said) = workspace.give(&["down"], 0);
    assert!(
        out.is_empty() && said.contains("gave back m1\n") && said.contains("gave back m2\n"),
        "{said}"
    );
    assert!(names_in(&workspace.machines()).is_empty());
    let (_, said) = workspace.give(&["down", &id], 0);
    assert_eq!(said, format!("run runs/{id} holds nothing\n"));
    let (_, said) = workspace.give(&["down", "--all"], 0);
    assert_eq!(said, "no run in `runs` holds anything\n");
    workspace.give(&["doctor", "--leaks"], 0);
    // The run itself has lost nothing.
    let (out, _) = workspace.give(&["status", &id, "--json"], 0);
    assert_eq!(json(&out)["state"], "killed");
}

#[test]
fn what_is_left_of_a_run_without_a_folder_is_fixed() {
    let workspace = Workspace::new(LOCAL);
    let training = workspace.train(2);
    // To somebody in another folder it is at work, and none of theirs.
    fs::create_dir(workspace.path("elsewhere")).unwrap();
    let (out, _) =
        workspace.give(&["doctor", "--leaks", "--fix", "--dir", "elsewhere", "--json"], 0);
    assert_eq!(json(&out)["at_work"].as_array().map(Vec::len), Some(2), "{out}");
    assert_eq!(json(&out)["leaks"], Value::Array(vec![]), "{out}");
    training.kill();
    fs::remove_dir_all(workspace.path("runs")).unwrap();
    eventually("the end of the hosts", || {
        let (out, _) = workspace.give(&["doctor", "--leaks", "--json", "--dir", "elsewhere"], 1);
        json(&out)["leaks"].as_array().map(Vec::len) == Some(2)
    });
    let (out, said) = workspace.give(&["doctor", "--leaks", "--fix"], 0);
    assert!(
        out.contains("2 leaks:") && out.contains("remove: planaria doctor --leaks --fix"),
        "{out}"
    );
    assert_eq!(said.matches("removed local: folder ").count(), 2, "{said}");
    assert!(names_in(&workspace.machines()).is_empty());
    workspace.give(&["doctor", "--leaks"], 0);
}

#[test]
fn a_live_run_is_stopped_first() {
    let workspace = Workspace::new(LOCAL);
    let training = workspace.train(2);
    let run = workspace.runs().remove(0);
    let (out, said) = workspace.give(&["down", "--all", "--json"], 0);
    let given = &json(&out)["runs"][0]["given_back"];
    assert_eq!(given, &serde_json::json!(["m1", "m2"]), "{out} {said}");
    assert!(said.contains("is saving and stops"), "{said}");
    assert_eq!(training.end().status.code(), Some(130));
    assert!(names_in(&workspace.machines()).is_empty());
    assert!(run.join("checkpoints/last").exists());
}

#[test]
fn what_cannot_be_given_back_stays_written_down() {
    let workspace = Workspace::new(LOCAL);
    let other = workspace.path("precious");
    fs::create_dir(&other).unwrap();
    let run = workspace.path("runs/moved-1");
    fs::create_dir_all(&run).unwrap();
    fs::copy(workspace.path("pool.yaml"), run.join("recipe.yaml")).unwrap();
    let machine = serde_json::json!({ "name": "m1", "handle": other, "groups": [] });
    let line = serde_json::json!({ "will": machine }).to_string();
    fs::write(run.join("resources.jsonl"), line + "\n").unwrap();
    for _ in 0..2 {
        let (_, said) = workspace.give(&["down"], 1);
        assert!(
            said.starts_with("error: 1 machine could not be given back\n  m1 of runs/moved-1: "),
            "{said}"
        );
        assert!(said.contains("hint: then try again: `planaria down runs/moved-1`; or,"), "{said}");
        let (_, said) = workspace.give(&["doctor", "--leaks", "--fix"], 1);
        assert!(said.contains("1 leak could not be removed"), "{said}");
    }
    assert!(other.exists(), "nothing but machines is removed");
    fs::write(run.join("recipe.yaml"), "pool: {provider: moon}\n").unwrap();
    let (_, said) = workspace.give(&["down", "moved-1"], 2);
    assert!(said.contains("runs/moved-1/recipe.yaml") && said.contains("moon"), "{said}");
}

#[test]
fn commands_that_cannot_be_meant_are_refused() {
    let workspace = Workspace::new(LOCAL);
    fs::create_dir_all(workspace.path("runs/empty")).unwrap();
    for (words, expect) in [
        (&["down", "nothing"][..], "there is no run `nothing`"),
        (&["down", "empty"], "is not a run: it has no `recipe.yaml`"),
        (&["down", "--all", "--dir", "nowhere"], "there is no folder `nowhere`"),
        (&["down", "--all", "empty"], "cannot be used with"),
        (&["doctor", "--fix"], "--leaks"),
        (&["doctor", "nowhere.yaml"], "nowhere.yaml"),
        (&["doctor", "--leaks", "--dir", "nowhere"], "there is no folder `nowhere`"),
    ] {
        let (_, said) = workspace.give(words, 2);
        assert!(said.contains(expect), "{words:?}: {said}");
    }
}

#[test]
fn doctor_says_what_works_here() {
    let workspace = Workspace::new(LOCAL);
    let (out, said) = workspace.give(&["doctor"], 0);
    for block in ["this machine\n", "\nssh\n", "\ndocker\n", "\nset-up tools\n"] {
        assert!(out.contains(block), "{out}");
    }
    assert!(out.contains("\n  ok       processor") && out.contains(" free in "), "{out}");
    assert!(out.contains("\n  missing  engine") && out.contains("/nonexistent/engine"), "{out}");
    assert!(!out.contains('\x1b') && !said.contains("error"), "{out} {said}");
    let (out, _) = workspace.give(&["doctor", "pool.yaml", "--json"], 0);
    let blocks = json(&out)["blocks"].as_array().cloned().unwrap();
    let tried = &blocks.last().unwrap()["findings"];
    assert_eq!((&tried[0]["what"], &tried[0]["works"]), (&"m1".into(), &true.into()), "{out}");
    assert!(names_in(&workspace.machines()).is_empty(), "what was tried is gone");
    // What was asked for and does not work is an exit code.
    workspace.write("docker.yaml", "{provider: docker, docker: {socket: /nonexistent/engine}}", 1);
    let (out, _) = workspace.give(&["doctor", "docker.yaml"], 1);
    assert!(out.contains("recipe tiny\n  missing  docker"), "{out}");
}

#[test]
fn hosts_are_tried_and_given_back() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let workspace = Workspace::new(&ssh(&hosts));
    let (out, _) = workspace.give(&["doctor", "pool.yaml"], 0);
    assert!(out.contains("\n  ok       h1") && out.contains("2 of 2 would work"), "{out}");
    let training = workspace.train(2);
    training.kill();
    // A host that is switched off cannot be given back, and hides no other.
    hosts.tell("kill", 2);
    let (out, _) = workspace.give(&["doctor", "pool.yaml"], 1);
    assert!(out.contains("\n  ok       h1") && out.contains("\n  missing  h2"), "{out}");
    let (out, _) = workspace.give(&["doctor", "--leaks"], 1);
    assert!(
        out.contains(" (killed) holds h1, h2") && out.contains("could not be asked: h2"),
        "{out}"
    );
    let (_, said) = workspace.give(&["down", "--all"], 1);
    assert!(said.contains("gave back h1\n") && said.contains("\n  h2 of runs/"), "{said}");
    hosts.tell("start", 2);
    let (_, said) = workspace.give(&["down"], 0);
    assert!(said.contains("gave back h2\n") && !said.contains("h1"), "{said}");
    for host in 1..=2 {
        assert_eq!(hosts.on(host, "ls ~/.cache/planaria/runs"), "");
        assert_eq!(hosts.on(host, "pgrep -c planaria || true"), "0");
    }
    // What no folder knows of is found on hosts that recipes of runs name.
    hosts.on(1, "mkdir ~/.cache/planaria/runs/lost-1");
    let (out, _) = workspace.give(&["doctor", "--leaks"], 1);
    assert!(out.contains("ssh: lost-1 on h1 (folder left)"), "{out}");
    workspace.give(&["doctor", "--leaks", "--fix"], 0);
    assert_eq!(hosts.on(1, "ls ~/.cache/planaria/runs"), "");
}

#[test]
fn containers_are_tried_and_given_back() {
    let Some(engine) = Engine::up() else { return };
    let pool = format!(
        "{{provider: docker, machines: 2, workers: 2, address: {}, docker: {{socket: {}}}}}",
        engine.address(),
        engine.socket().display()
    );
    let workspace = Workspace::new(&pool);
    let (out, _) = workspace.give(&["doctor", "pool.yaml"], 0);
    assert!(out.contains("\n  ok       m0"), "{out}");
    let containers = || {
        let listed = engine.docker(&["ps", "-aq"]);
        String::from_utf8_lossy(&listed.stdout).lines().count()
    };
    assert_eq!(containers(), 0, "what was tried is gone");
    workspace.train(2).kill();
    let (out, _) = workspace.give(&["doctor", "--leaks"], 1);
    assert!(out.contains(" (killed) holds m0, m1"), "{out}");
    let (_, said) = workspace.give(&["down"], 0);
    assert!(said.contains("gave back m0\n") && said.contains("gave back m1\n"), "{said}");
    assert_eq!(containers(), 0);
    workspace.give(&["doctor", "--leaks"], 0);
}

/// Processes of this machine with these words.
fn processes_here(words: &str) -> usize {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let line = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    let is_it = |line: &Vec<u8>| String::from_utf8_lossy(line).replace('\0', " ").trim() == words;
    entries.map(line).filter(is_it).count()
}

/// As `ansible-playbook` does, this starts processes that leave its group, and by ssh others that
/// are below nothing of ours.
#[test]
fn what_ansible_has_started_ends_with_the_command() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let workspace = Workspace::new(&ssh(&hosts));
    let config = hosts.path("ssh_config");
    let seconds = 100_000 + std::process::id();
    let (here, there) = (format!("sleep {seconds}"), format!("sleep {}", seconds + 1_000_000));
    let recipe = fs::read_to_string(workspace.path("pool.yaml")).unwrap();
    workspace.put("pool.yaml", &format!("{recipe}\nsetup:\n  - ansible: site.yml\n"));
    workspace.put("site.yml", "[]");
    fs::create_dir(workspace.path("bin")).unwrap();
    let script = format!(
        "#!/bin/sh\neval \"$6\"\nsetsid {here} &\n\
         ssh -F {} \"$4\" \"$ansible_shell_executable -c 'setsid {there} & {there}'\"\n",
        config.display()
    );
    workspace.put("bin/ansible-playbook", &script);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(workspace.path("bin/ansible-playbook"), mode).unwrap();
    let path = format!("{}:{}", workspace.path("bin").display(), std::env::var("PATH").unwrap());
    let count = |host| hosts.on(host, &format!("pgrep -cxf '{there}' || true"));
    let begin = || {
        let training = workspace.start(&["train", "pool.yaml"], &[("PATH", &path)]);
        eventually("both plays are under way", || {
            processes_here(&here) == 2 && count(1) == "2" && count(2) == "2"
        });
        training
    };
    begin().kill();
    eventually("nothing is left", || {
        processes_here(&here) == 0 && count(1) == "0" && count(2) == "0"
    });
    let (_, said) = workspace.give(&["down"], 0);
    assert!(said.contains("gave back h1\n") && said.contains("gave back h2\n"), "{said}");
    // A host that was killed too can end nothing.
    let mut training = begin();
    training.halt();
    for host in [1, 2] {
        hosts.on(host, "pkill -KILL -f '[a]gent host'");
    }
    training.kill();
    assert_eq!((count(1), count(2)), ("2".into(), "2".into()));
    let (_, said) = workspace.give(&["down"], 0);
    assert!(said.contains("gave back h1\n") && said.contains("gave back h2\n"), "{said}");
    assert_eq!((count(1), count(2)), ("0".into(), "0".into()));
    eventually("nothing is left here", || processes_here(&here) == 0);
}
