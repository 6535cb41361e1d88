//! `train --detach` on machines, by the real binary: nothing of it is left here, its commands find
//! it all the same, and in the end the network is here and nothing is left there.

use crate::binary::{Place, RECIPE, talk};
use crate::hosts::Hosts;
use crate::support::engine::Engine;
use crate::support::eventually;
use serde_json::Value;
use std::path::Path;
use std::process::Output;

/// Long enough to be seen at work, short enough to be waited for.
const LONGER: [&str; 4] = ["--set", "train.epochs=200", "--set", "data.examples=1500"];
/// A run that goes on until it is stopped.
const ENDLESS: [&str; 4] = ["--set", "train.epochs=100000", "--set", "data.examples=1500"];
/// Looks, a fifth of a second apart, that anything may take.
const LOOKS_MAX: u32 = 900;

/// A folder with a recipe for machines, and a home of its own.
struct Scene {
    place: Place,
}

impl Scene {
    fn new(pool: &str) -> Self {
        let place = Place::new();
        let recipe = format!("{RECIPE}pool: {pool}\n");
        std::fs::write(place.path().join("pool.yaml"), recipe).expect("a recipe");
        std::fs::create_dir(place.path().join("home")).expect("a home");
        Self { place }
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = self.place.command(words);
        command.env("HOME", self.place.path().join("home")).output().expect("the binary runs")
    }

    /// What a command says on stdout, where it succeeds.
    #[track_caller]
    fn said(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", talk(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    #[track_caller]
    fn status(&self, run: &str) -> Value {
        serde_json::from_str(&self.said(&["status", run, "--json"])).expect("JSON")
    }

    /// The weights that a plain run ends with.
    #[track_caller]
    fn expected(&self) -> Value {
        let words = [&["train", "tiny.yaml", "--json", "--set", "output.dir=plain"], &LONGER[..]];
        self.place.json(&words.concat(), 0)["weights_sha256"].clone()
    }

    /// Waits until the run stands so.
    #[track_caller]
    fn wait_until(&self, run: &str, what: &str, is_so: impl Fn(&Value) -> bool) {
        let mut status = Value::Null;
        for _ in 0..LOOKS_MAX {
            status = self.status(run);
            if is_so(&status) {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(200));
        }
        panic!("run {run} is not {what}: {status:#}");
    }

    #[track_caller]
    fn weights(&self) -> Value {
        let report = std::fs::read(self.place.only_run().join("report.json")).expect("a report");
        let report: Value = serde_json::from_slice(&report).expect("JSON");
        report["weights_sha256"].clone()
    }
}

/// Processes of this machine that have a word like this on their command line.
fn processes(word: &Path) -> Vec<String> {
    let word = word.to_str().expect("a plain name");
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(word)).collect()
}

#[test]
fn a_run_on_local_machines_is_left_to_them_and_fetched() {
    let scene = Scene::new("{provider: local, machines: 2, workers: 2, servers: 1}");
    let expected = scene.expected();
    let words = [&["train", "pool.yaml", "--detach"], &LONGER[..]].concat();
    let run = scene.said(&words).trim().to_owned();
    let status = scene.status(&run);
    assert_eq!(status["detached"], "m1", "{status:#}");
    let followed = scene.said(&["logs", &run, "-f"]);
    for expect in ["controller ", "worker-0 ", "worker-1 ", "server-0 "] {
        assert!(followed.contains(expect), "{expect} is missing in {followed}");
    }
    scene.wait_until(&run, "fetched", |s| s["state"] == "completed" && s["detached"].is_null());
    assert_eq!(scene.weights(), expected);
    assert!(scene.place.only_run().join("model.safetensors").exists());
    assert!(scene.place.only_run().join("checkpoints/last").exists());
    let left = std::fs::read_dir(scene.place.path().join("home/.cache/planaria/machines"));
    assert_eq!(left.expect("a folder").count(), 0);
    assert!(scene.place.run(&["audit", &run]).status.success());
}

#[test]
fn what_the_controller_finds_wrong_is_told_and_nothing_is_left() {
    let scene = Scene::new("{provider: local, machines: 2, workers: 2, servers: 1}");
    // Data that is in this folder, and not on the machines.
    let folder = scene.place.path().join("drawn");
    std::fs::create_dir(&folder).expect("a folder");
    let examples = 600_u32;
    let labels = [&[0, 0, 8, 1], &examples.to_be_bytes()[..]].concat();
    let labels = [labels, (0..examples).map(|n| (n % 10) as u8).collect()].concat();
    let size = 28_u32.to_be_bytes();
    let images = [&[0, 0, 8, 3], &examples.to_be_bytes()[..], &size, &size].concat();
    let images = [images, vec![9; 600 * 28 * 28]].concat();
    std::fs::write(folder.join("train-labels-idx1-ubyte"), labels).expect("labels");
    std::fs::write(folder.join("train-images-idx3-ubyte"), images).expect("images");
    let failed = scene.run(&["train", "pool.yaml", "--detach", "--set", "data.train=drawn"]);
    assert_eq!(failed.status.code(), Some(2), "{}", talk(&failed));
    assert!(talk(&failed).contains("drawn"), "{}", talk(&failed));
    let left = std::fs::read_dir(scene.place.path().join("home/.cache/planaria/machines"));
    assert_eq!(left.expect("a folder").count(), 0);
}

#[test]
fn a_run_on_ssh_hosts_needs_no_terminal_and_survives_a_host() {
    let Some(hosts) = Hosts::up(3, &[]) else { return };
    let config = hosts.path("ssh_config");
    let pool = format!(
        "{{provider: ssh, hosts: [h1, h2, h3], workers: 3, servers: 1, ssh: {{config: {}}}}}",
        config.display()
    );
    let scene = Scene::new(&pool);
    let expected = scene.expected();
    let words = [&["train", "pool.yaml", "--detach"], &LONGER[..]].concat();
    let run = scene.said(&words).trim().to_owned();
    assert_eq!(scene.status(&run)["detached"], "h1");
    // The kernel ends them with the command, which takes a moment.
    eventually("no ssh is left", || processes(&config).is_empty());
    hosts.tell("kill", 3);
    for host in 1..=2 {
        let shown = "grep -l 'PRIVATE [K]EY' /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; \
                     find ~/.cache/planaria/runs -type f -perm /077 | xargs -r grep -l 'PRIVATE [K]EY'; \
                     true";
        assert_eq!(hosts.on(host, shown), "", "secrets are for their owner only");
    }
    hosts.tell("start", 3);
    scene.wait_until(&run, "fetched", |s| s["state"] == "completed" && s["detached"].is_null());
    assert_eq!(scene.weights(), expected);
    nothing_is_left(&hosts, 3);
}

/// A run that is left to these hosts, of which another than the first has a copy of a checkpoint;
/// the weights it must come to, and its name.
fn copied(hosts: &Hosts, names: &str, count: u32) -> (Scene, Value, String) {
    let pool = format!(
        "{{provider: ssh, hosts: [{names}], workers: {{min: 1, max: {count}}}, servers: 1, \
         ssh: {{config: {}, connect_seconds: 2}}}}",
        hosts.path("ssh_config").display()
    );
    let scene = Scene::new(&pool);
    let expected = scene.expected();
    let words = [&["train", "pool.yaml", "--detach"], &LONGER[..]].concat();
    let run = scene.said(&words).trim().to_owned();
    let copy = format!("ls ~/.cache/planaria/runs/{run}/copy/checkpoints/*/manifest.json || true");
    eventually("a copy of a checkpoint", || {
        (2..=count).any(|host| hosts.on(host, &copy).contains("manifest.json"))
    });
    (scene, expected, run)
}

/// Its checkpoints have a copy on another machine, from which it goes on.
#[test]
fn a_run_survives_the_machine_of_its_controller() {
    let Some(hosts) = Hosts::up(3, &[]) else { return };
    let (scene, expected, run) = copied(&hosts, "h1, h2, h3", 3);
    hosts.tell("kill", 1);
    let status = scene.run(&["status", &run]);
    let said = talk(&status);
    assert!(said.contains(&format!("`planaria resume runs/{run}`")), "{said}");
    assert!(!said.contains("all of it is here"), "{said}");
    let resumed = scene.run(&["resume", &run]);
    let said = talk(&resumed);
    assert!(resumed.status.success(), "{said}");
    assert!(said.contains("came from another machine"), "{said}");
    assert!(said.contains("goes on after step"), "{said}");
    assert_eq!(scene.weights(), expected);
    let audit = scene.run(&["audit", &run, "--json"]);
    let audit: Value = serde_json::from_slice(&audit.stdout).expect("an audit");
    assert!(audit["processes_lost"].as_u64() > Some(0), "{audit:#}");
    hosts.tell("start", 1);
    scene.run(&["down", &run]);
    nothing_is_left(&hosts, 3);
}

/// Another of its machines takes the controller's place, and no command is needed.
#[test]
fn a_run_goes_on_by_itself_where_its_controller_is_lost() {
    let Some(hosts) = Hosts::up(3, &[]) else { return };
    let (scene, expected, run) = copied(&hosts, "h1, h2, h3", 3);
    hosts.on(1, "pkill -9 planaria; true");
    let said = talk(&scene.run(&["status", &run]));
    assert!(said.contains("another machine goes on with the run"), "{said}");
    scene
        .wait_until(&run, "controlled by h2", |s| s["detached"] == "h2" || s["detached"].is_null());
    let said = scene.said(&["logs", &run, "-f"]);
    assert!(said.contains("goes on after step"), "{said}");
    scene.wait_until(&run, "fetched", |s| s["state"] == "completed" && s["detached"].is_null());
    assert_eq!(scene.weights(), expected);
    let audit = scene.run(&["audit", &run, "--json"]);
    assert!(audit.status.success(), "{}", talk(&audit));
    let audit: Value = serde_json::from_slice(&audit.stdout).expect("an audit");
    assert!(audit["processes_lost"].as_u64() > Some(0), "{audit:#}");
    nothing_is_left(&hosts, 3);
    let aside = std::fs::read_to_string(scene.place.only_run().join("lost-h1/events.jsonl"));
    assert!(aside.expect("what h1 told last").contains("started"));
}

/// Where no machine is left that could, a command that watches does.
#[test]
fn a_run_that_is_watched_goes_on_where_its_controller_is_lost() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let (scene, expected, run) = copied(&hosts, "h1, h2", 2);
    for host in [2, 1] {
        hosts.on(host, "pkill -9 planaria; true");
    }
    let watched = scene.run(&["resume", &run, "--watch"]);
    let said = talk(&watched);
    assert!(watched.status.success(), "{said}");
    assert!(said.contains("has lost its controller on h1"), "{said}");
    assert!(said.contains("goes on after step"), "{said}");
    assert_eq!(scene.weights(), expected);
    nothing_is_left(&hosts, 2);
}

/// Hosts that are listed beyond those that are wanted wait for it.
#[test]
fn a_run_that_is_left_to_its_machines_has_spare_ones() {
    let Some(hosts) = Hosts::up(3, &[]) else { return };
    let pool = format!(
        "{{provider: ssh, hosts: [h1, h2, h3], machines: 2, workers: 2, servers: 1, \
         ssh: {{config: {}}}}}",
        hosts.path("ssh_config").display()
    );
    let scene = Scene::new(&pool);
    let run = scene.said(&[&["train", "pool.yaml", "--detach"], &ENDLESS[..]].concat());
    let run = run.trim();
    let state = |status: &Value, host: &str| status["pool"][host]["state"].clone();
    scene.wait_until(run, "under way", |s| s["step"].as_u64() > Some(0));
    assert_eq!(state(&scene.status(run), "h3"), Value::Null, "it waits");
    scene.said(&["scale", run, "machines=+1", "--json"]);
    scene.wait_until(run, "on three machines", |s| state(s, "h3") == "ready");
    let refused = scene.run(&["scale", run, "machines=4"]);
    assert_eq!(refused.status.code(), Some(2), "{}", talk(&refused));
    let stopped = scene.run(&["stop", run, "--wait"]);
    assert!(stopped.status.success(), "{}", talk(&stopped));
    nothing_is_left(&hosts, 3);
}

#[test]
fn a_run_on_ssh_hosts_is_scaled_and_stopped() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let pool = format!(
        "{{provider: ssh, hosts: [h1, h2], workers: 2, servers: 1, ssh: {{config: {}}}}}",
        hosts.path("ssh_config").display()
    );
    let scene = Scene::new(&pool);
    let run = scene.said(&[&["train", "pool.yaml", "--detach"], &ENDLESS[..]].concat());
    let run = run.trim();
    assert!(scene.said(&["runs"]).contains("running (detached on h1)"));
    let resumed = scene.run(&["resume", run]);
    assert_eq!(resumed.status.code(), Some(2), "{}", talk(&resumed));
    scene.wait_until(run, "under way", |s| s["step"].as_u64() > Some(0));
    let scaled: Value =
        serde_json::from_str(&scene.said(&["scale", run, "workers=1", "--json"])).expect("JSON");
    assert_eq!(scaled["workers"], 1);
    let stopped = scene.run(&["stop", run, "--wait"]);
    assert!(stopped.status.success(), "{}", talk(&stopped));
    assert_eq!(scene.status(run)["state"], "interrupted");
    assert!(scene.place.only_run().join("checkpoints/last/manifest.json").exists());
    nothing_is_left(&hosts, 2);
}

#[test]
fn hosts_that_cannot_reach_each_other_are_refused_and_given_back() {
    let Some(hosts) = Hosts::up(2, &["--isolated"]) else { return };
    let pool = format!(
        "{{provider: ssh, hosts: [h1, h2], workers: 2, servers: 1, ssh: {{config: {}}}}}",
        hosts.path("ssh_config").display()
    );
    let scene = Scene::new(&pool);
    let refused = scene.run(&["train", "pool.yaml", "--detach"]);
    assert_eq!(refused.status.code(), Some(2), "{}", talk(&refused));
    assert!(talk(&refused).contains("h2 cannot reach h1"), "{}", talk(&refused));
    nothing_is_left(&hosts, 2);
}

#[test]
fn a_run_in_containers_is_left_to_them_and_fetched() {
    let Some(engine) = Engine::up() else { return };
    let socket = engine.socket();
    let pool = format!(
        "{{provider: docker, machines: 2, workers: 2, servers: 1, docker: {{socket: {}}}}}",
        Path::new(&socket).display()
    );
    let scene = Scene::new(&pool);
    let expected = scene.expected();
    let words = [&["train", "pool.yaml", "--detach"], &LONGER[..]].concat();
    let run = scene.said(&words).trim().to_owned();
    scene.wait_until(&run, "fetched", |s| s["state"] == "completed" && s["detached"].is_null());
    assert_eq!(scene.weights(), expected);
    let held = std::fs::read_to_string(scene.place.only_run().join("resources.jsonl"));
    assert_eq!(held.expect("a journal").matches("\"gone\"").count(), 2);
}

#[track_caller]
fn nothing_is_left(hosts: &Hosts, count: u32) {
    for host in 1..=count {
        assert_eq!(hosts.on(host, "ls ~/.cache/planaria/runs"), "", "h{host}");
        assert_eq!(hosts.on(host, "pgrep -c planaria || true"), "0", "h{host}");
    }
}
