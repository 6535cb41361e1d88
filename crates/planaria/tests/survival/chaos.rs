//! `chaos` by the real binary, on processes that have agents' names and do nothing.

use crate::binary::{Place, talk};
use planaria::run_dir::RunDir;
use planaria_protocol::event::{Started, What};
use planaria_protocol::journal::{self, Journal};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A run that this process holds, with agents that wait for ever.
struct Stage {
    place: Place,
    run: RunDir,
    agents: Vec<Child>,
}

impl Stage {
    /// Runs of one process are told apart by their names.
    fn new(name: &str) -> Self {
        let place = Place::new();
        let run = RunDir::create(&place.path().join("runs"), name, 0).unwrap();
        run.write("recipe.yaml", b"name: net\n").unwrap();
        let started = What::Started(Started {
            run_id: run.id(),
            recipe: "net".into(),
            version: String::new(),
            recipe_sha256: String::new(),
            step: 0,
            epochs: 1,
            steps_per_epoch: 10,
            examples: 10,
            parameters: 1,
            classification: true,
            workers: 3,
            servers: 1,
            shards: 3,
            batch: 1,
            digest: (0..10).collect(),
        });
        let mut journal = Journal::open(&run.file(journal::FILE), 1).unwrap();
        journal.record(0.0, 1e9, started).unwrap();
        let made = Command::new("mkfifo").arg(run.file("agent")).status().unwrap();
        assert!(made.success());
        let mut stage = Self { place, run, agents: Vec::new() };
        let id = stage.run.id();
        for words in ["worker 0", "worker 1", "worker 2", "server 0", "coordinator"] {
            stage.add(&format!("agent {words} {id}"));
        }
        // One of another run, and one that is no agent.
        stage.add("agent worker 7 net-another");
        stage.add(&format!("agent train {id}"));
        stage
    }

    fn add(&mut self, arguments: &str) {
        // It takes its first argument for a file, which is a pipe without a writer.
        let agent = Command::new("cat")
            .arg0("planaria")
            .args(arguments.split(' '))
            .current_dir(self.run.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.agents.push(agent);
    }

    fn chaos(&self, options: &[&str]) -> Output {
        let base = ["chaos", self.run.path().to_str().unwrap()];
        self.place.run(&[&base[..], options].concat())
    }

    /// Which agents live.
    fn living(&mut self) -> Vec<bool> {
        self.agents.iter_mut().map(|agent| agent.try_wait().unwrap().is_none()).collect()
    }

    fn stopped(&self) -> Vec<u32> {
        let is_stopped = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat[stat.rfind(')').unwrap() + 2..].starts_with('T')
        };
        self.agents.iter().map(Child::id).filter(is_stopped).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn only_those_that_were_meant_are_killed() {
    let mut stage = Stage::new("killed");
    let options = ["--every", "20ms", "--for", "2s", "--seed", "7", "--json"];
    let output = stage.chaos(&options);
    assert!(output.status.success(), "{}", talk(&output));
    assert_eq!(stage.living(), [false, false, false, true, true, true, true], "workers alone");
    let told = lines(&output);
    assert_eq!((&told[0]["event"], &told[0]["seed"]), (&"begun".into(), &7.into()));
    let deeds: Vec<&Value> = told.iter().filter(|l| l["event"] == "deed").collect();
    assert_eq!(deeds.len(), 3);
    for deed in deeds {
        let worker: usize = deed["agent"].as_str().unwrap()[7..].parse().unwrap();
        assert_eq!(deed["pid"], stage.agents[worker].id());
    }
    let last = told.last().unwrap();
    assert_eq!((&last["deeds"]["kill"], &last["state"]), (&3.into(), &"running".into()));

    // However short the time, one fault is injected.
    let output = stage.chaos(&["--target", "coordinator", "--for", "1ms"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(
        text.contains("  killed coordinator (process ") && text.contains("1 fault injected"),
        "{text}"
    );
    assert_eq!(stage.living(), [false, false, false, true, false, true, true]);
}

#[test]
fn the_same_seed_gives_the_same_sequence() {
    let run = || {
        let stage = Stage::new("seeded");
        let output = stage.chaos(&[
            "--kill", "any", "--pause", "10ms", "--every", "1ms", "--for", "1s", "--seed", "3",
            "--json",
        ]);
        let told = lines(&output).into_iter().filter(|l| l["event"] == "deed").take(2);
        told.map(|l| (l["fault"].clone(), l["agent"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn ctrl_c_lets_everything_go_on() {
    let mut stage = Stage::new("held");
    let path = stage.run.path().to_str().unwrap().to_owned();
    let mut chaos = stage
        .place
        .command(&["chaos", &path, "--pause", "1h", "--slow", "1h", "--every", "5ms"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..1000 {
        if stage.stopped().len() == 5 {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let pid = chaos.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
    assert_eq!(chaos.wait().unwrap().code(), Some(0));
    assert_eq!(stage.stopped(), [0; 0]);
    assert!(stage.living().iter().all(|lives| *lives));
}

#[test]
fn what_cannot_be_hit_is_refused() {
    let mut stage = Stage::new("refused");
    for (options, expect) in [
        (&["--target", "worker-99"][..], "there are coordinator, server-0, worker-0, worker-1"),
        (&["--kill", "server", "--target", "worker-1"], "`kill server` only affects servers"),
        (&["--slow", "--target", "server-0"], "only affects workers"),
        (&["--slow", "--target", "coordinator"], "only affects workers"),
        (&["--drop", "5%", "--target", "coordinator"], "only affects workers and servers"),
    ] {
        let output = stage.chaos(options);
        assert_eq!(output.status.code(), Some(2), "{}", talk(&output));
        assert!(talk(&output).contains(expect), "{}", talk(&output));
    }
    assert!(stage.living().iter().all(|lives| *lives));
}

#[test]
fn it_ends_in_time_where_nothing_can_be_done() {
    let stage = Stage::new("nothing");
    // There is no coordinator to ask for it.
    let output = stage.chaos(&["--drop", "5%", "--for", "100ms", "--json"]);
    let last = lines(&output).pop().unwrap();
    assert_eq!((&last["deeds"], &last["steps"]), (&serde_json::json!({}), &0.into()));
    assert!(last["seconds"].as_f64() < Some(5.0), "{last}");
}

#[test]
fn what_chaos_does_not_understand_is_said() {
    let place = Place::new();
    for (arguments, expect) in [
        (&["--every", "3s..1s"][..], "ends before it begins"),
        (&["--every", "often"], "is not a time"),
        (&["--every", "0s"], "is no time at all"),
        (&["--pause", "0s"], "is no time at all"),
        (&["--target", "foo"], "`worker-2`, `server-0` or `coordinator`"),
        (&["--drop", "150%"], "is not a share"),
        (&["--kill", "everyone"], "possible values: worker, server, coordinator, any"),
    ] {
        let output = place.run(&[&["chaos", "x"], arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(talk(&output).contains(expect), "{}", talk(&output));
    }
}
