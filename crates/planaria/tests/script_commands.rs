//! Commands around a script's run, by the real binary and a script of the system's Python.

mod binary;

use binary::{Place, talk};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Tells figures, draws a bar, leaves a file; told to wait, it goes on until it is ended.
const SCRIPT: &str = r#"
import sys, time
index = int(sys.argv[1])
for step in range(3):
    print(f"step={step} loss={1 / (step + 1):.2f}", flush=True)
for done in range(0, 101, 50):
    sys.stdout.write(f"\r{done}%")
    sys.stdout.flush()
print()
open(f"result-{index}.txt", "w").write("done")
if "fail" in sys.argv:
    print("about to fail", flush=True)
    sys.exit(7)
while "wait" in sys.argv:
    time.sleep(0.1)
"#;
const RECIPE: &str = "
pool: {workers: 2}
script:
  file: work.py
  framework: plain
  args: ['{{index}}']
  env: {KEY: '${env:SCRIPT_COMMANDS_KEY}'}
  outputs: result-*.txt
  max_restarts: 0
";
/// Looks, a twentieth of a second apart, that something may take.
const LOOKS_MAX: u32 = 1200;

/// A folder with the script and its recipe; nothing where there is no Python. Names differ: runs of
/// one name that begin in the same second would share a machine's folder.
fn place(name: &str) -> Option<Place> {
    let python = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
    if !python.is_ok_and(|status| status.success()) {
        return None;
    }
    let place = Place::new();
    std::fs::write(place.path().join("work.py"), SCRIPT).expect("a script");
    let recipe = format!("name: {name}{RECIPE}");
    std::fs::write(place.path().join("work.yaml"), recipe).expect("a recipe");
    Some(place)
}

fn run(place: &Place, arguments: &[&str]) -> Output {
    let mut command = place.command(arguments);
    command.env("SCRIPT_COMMANDS_KEY", "very-secret").output().expect("the binary runs")
}

#[track_caller]
fn said(place: &Place, arguments: &[&str], code: i32) -> String {
    let output = run(place, arguments);
    assert_eq!(output.status.code(), Some(code), "{}", talk(&output));
    String::from_utf8_lossy(&output.stdout).into_owned() + &talk(&output)
}

#[track_caller]
fn document(place: &Place, arguments: &[&str]) -> Value {
    let output = run(place, arguments);
    assert!(output.status.success(), "{}", talk(&output));
    serde_json::from_slice(&output.stdout).expect("one document")
}

#[track_caller]
fn holds(text: &str, all: &[&str]) {
    for expect in all {
        assert!(text.contains(expect), "`{expect}` is missing in\n{text}");
    }
    for nonsense in ["step 0", "0/0", "resume", "very-secret", "report.html"] {
        assert!(!text.contains(nonsense), "`{nonsense}` is in\n{text}");
    }
}

fn name(folder: &Path) -> String {
    folder.file_name().expect("a name").to_string_lossy().into_owned()
}

#[test]
fn a_run_that_is_over_is_told_of() {
    let Some(place) = place("over") else { return };
    let report = document(&place, &["run", "work.yaml", "--json"]);
    assert_eq!((&report["outcome"], &report["outputs"]), (&"completed".into(), &2.into()));
    let run = name(&place.only_run());

    let status = said(&place, &["status"], 0);
    holds(
        &status,
        &[
            "state      completed\n",
            "script     work.py (plain), recipe over\n",
            "processes  2 processes on this machine: worker 0, worker 1\n",
            "figures    step 2 · loss 0.33\n",
            "/outputs: 2 files, 8 B",
            "next       its files are in ",
        ],
    );
    let told = place.json(&["status", &run, "--json"], 0);
    assert_eq!(told["state"], "completed");
    assert_eq!(told["script"]["processes"][1]["process"], "worker-1");
    assert_eq!(told["script"]["figures"]["step"], 2);

    let listed = said(&place, &["runs"], 0);
    holds(&listed, &[&run, "over", "completed", "0.33"]);
    assert_eq!(place.json(&["runs", "--json"], 0)[0]["workers"], 2);

    let logs = said(&place, &["logs", &run], 0);
    holds(&logs, &["[worker 0] step=0 loss=1.00\n", "[worker 1] 100%\n"]);
    assert!(!logs.contains("50%"), "{logs}");
    let one = said(&place, &["logs", &run, "worker-1", "--tail", "1"], 0);
    assert_eq!(one, "100%\n");
    holds(&said(&place, &["logs", &run, "ps-0"], 2), &["no process `ps-0`", "worker-0, worker-1"]);

    holds(&said(&place, &["down", &run], 0), &["holds nothing"]);
    holds(&said(&place, &["stop", &run], 2), &["is not running: it has completed"]);
    for (arguments, expect) in [
        (&["scale", &run, "workers=3"][..], "recipe.yaml --workers 3"),
        (&["audit", &run], "planaria logs"),
        (&["scale", &run, "workers=3"], "hint: it has ended; "),
        (&["chaos", &run], "hint: it has ended, and has no processes"),
        (&["evaluate", &run, "--data", "digits"], "/outputs"),
    ] {
        holds(&said(&place, arguments, 2), &["is a script's: ", expect]);
    }
    let refused = said(&place, &["resume", &run], 2);
    let again = format!("planaria run runs/{run}/recipe.yaml");
    assert!(refused.contains(&again), "{refused}");
    // As it says.
    let recipe = format!("runs/{run}/recipe.yaml");
    assert_eq!(document(&place, &["run", &recipe, "--json"])["outcome"], "completed");
}

#[test]
fn figures_that_only_another_process_tells_are_in_the_report_too() {
    let Some(place) = place("other") else { return };
    let second = "import sys\nif sys.argv[1] == '1':\n    print('step=3 loss=0.25')\n";
    std::fs::write(place.path().join("second.py"), second).expect("a script");
    let report =
        document(&place, &["run", "work.yaml", "--json", "--set", "script.file=second.py"]);
    assert_eq!((&report["figures"]["step"], &report["figures"]["loss"]), (&3.into(), &0.25.into()));
    let status = place.json(&["status", "--json"], 0);
    assert_eq!(status["script"]["figures"], report["figures"]);
}

#[test]
fn a_live_run_is_followed_and_stopped() {
    let Some(place) = place("live") else { return };
    let args = "script.args=['{{index}}', wait]";
    let mut command = place.command(&["run", "work.yaml", "--set", args]);
    command.env("SCRIPT_COMMANDS_KEY", "very-secret");
    let mut live = command.stderr(Stdio::null()).spawn().expect("the binary runs");
    let bar = "[worker 1] 100%";
    let run = (0..LOOKS_MAX).find_map(|_| {
        std::thread::park_timeout(Duration::from_millis(50));
        let run = name(&std::fs::read_dir(place.path().join("runs")).ok()?.next()?.ok()?.path());
        let logs = place.run(&["logs", &run]);
        let logs = String::from_utf8_lossy(&logs.stdout).into_owned();
        // Both, as either may be the last to begin.
        (logs.contains("[worker 0] 100%") && logs.contains(bar)).then_some(run)
    });
    let run = run.expect("both draw their bars within a minute");
    let status = said(&place, &["status", &run], 0);
    holds(&status, &["state      running, process", "-f follows it; planaria stop"]);
    let mut follow = place.command(&["logs", &run, "-f"]);
    let follow = follow.stdout(Stdio::piped()).spawn().expect("the binary runs");
    let stopped = said(&place, &["stop", &run, "--wait"], 0);
    assert!(stopped.contains("ends its processes, brings outputs back and stops"), "{stopped}");
    assert!(stopped.contains("stopped; run it once more with: planaria run runs/"), "{stopped}");
    live.wait().expect("it ends");
    let followed = follow.wait_with_output().expect("it ends with the run");
    let followed = String::from_utf8_lossy(&followed.stdout).into_owned();
    holds(&followed, &["[worker 0] step=2 loss=0.33\n", bar]);
    let status = said(&place, &["status", &run], 0);
    holds(&status, &["state      interrupted\n", "/outputs: 2 files", "recipe.yaml runs it once"]);
    holds(&said(&place, &["stop", &run], 2), &["it was interrupted", "runs it once more"]);
    holds(&said(&place, &["down", "--all"], 0), &["holds anything"]);
}

/// Runs a script of its own in a place; what was said.
#[track_caller]
fn ran(place: &Place, script: &str, more: &[&str], code: i32) -> String {
    std::fs::write(place.path().join("work.py"), script).expect("a script");
    let mut arguments = vec!["run", "work.yaml"];
    more.iter().for_each(|set| arguments.extend(["--set", set]));
    said(place, &arguments, code)
}

/// Connects its processes; then the first waits for an answer that the second does not give.
const DEADLOCK: &str = r#"
import socket, sys, time
index, address, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if index == 0:
    with socket.create_server((address, port)) as server:
        other, _ = server.accept()
    other.sendall(b"gradient")
    print("waits for an answer", flush=True)
    other.recv(1)
while True:
    try:
        other = socket.create_connection((address, port))
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
print("waits for nothing", flush=True)
time.sleep(600)
"#;

#[test]
fn a_deadlock_is_diagnosed() {
    let Some(place) = place("deadlock") else { return };
    let args = "script.args=['{{index}}', '{{master_addr}}', '{{master_port}}']";
    let silent = ran(&place, DEADLOCK, &[args, "script.silence=2", "script.stop_seconds=0"], 1);
    holds(
        &silent,
        &[
            "no process wrote anything for 2 s (`script.silence`); look at worker 1 first",
            "worker 0: waits, connected to worker 1; it wrote last: waits for an answer",
            "worker 1: waits, connected to worker 0, has not read 8 bytes from worker 0; it wrote \
             last: waits for nothing",
        ],
    );
    let report = std::fs::read_to_string(place.only_run().join("report.json")).expect("a report");
    holds(&report, &["\"process\": \"worker-1\"", "has not read 8 bytes"]);
}

#[test]
fn time_and_failures_that_repeat_are_bounded() {
    let Some(place) = place("bounded") else { return };
    let waits = "import sys, time\ntime.sleep(600 if sys.argv[1] == '0' else 0)\n";
    let index = "script.args=['{{index}}']";
    let late = ran(&place, waits, &[index, "script.timeout=1", "script.stop_seconds=0"], 1);
    holds(&late, &["the job was not done after 1 s (`script.timeout`); look at worker 1 first"]);
    holds(&late, &["worker 1: has ended well; it wrote last: nothing"]);
    let fails = "print('again', flush=True)\nx = [][3]\n";
    let failed = ran(&place, fails, &["script.max_restarts=3", "pool.workers=1"], 1);
    holds(&failed, &["IndexError", "it failed there before", "restart 1 of 3"]);
    assert!(!failed.contains("restart 2 of 3"), "{failed}");
}

#[test]
fn a_burst_before_the_end_is_kept() {
    let Some(place) = place("burst") else { return };
    let burst = "import sys\nsys.stdout.write(('x' * 999 + '\\n') * 3000)\nprint('the end')\n";
    let said = ran(&place, burst, &["script.args=[]", "pool.workers=1"], 0);
    assert_eq!(said.matches("[worker 0] xxx").count(), 3000, "every line is shown");
    holds(&said, &["[worker 0] the end\n"]);
    let log = std::fs::read(place.only_run().join("logs/worker-0.log")).expect("a log");
    assert_eq!(log.len(), 3_000_008);
}

#[test]
fn a_large_burst_before_the_end_takes_little_memory() {
    let Some(place) = place("flood") else { return };
    // 200 MB, of which the last line counts as much as the first.
    let flood = "import sys\nline = 'x' * 999 + '\\n'\nfor _ in range(1000):\n    \
                 sys.stdout.write(line * 200)\nprint('the end')\n";
    std::fs::write(place.path().join("work.py"), flood).expect("a script");
    let sets = ["--quiet", "--set", "script.args=[]", "--set", "pool.workers=1"];
    let mut command = place.command(&[&["run", "work.yaml"][..], &sets].concat());
    command.env("SCRIPT_COMMANDS_KEY", "very-secret");
    let mut child = command.stdout(Stdio::null()).spawn().expect("the binary runs");
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0;
    let ended = loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak_kib = peak_kib.max(kib.unwrap_or(0));
        match child.try_wait().expect("it is our child") {
            Some(ended) => break ended,
            None => std::thread::park_timeout(Duration::from_millis(20)),
        }
    };
    assert!(ended.success(), "{ended}");
    let log = std::fs::metadata(place.only_run().join("logs/worker-0.log")).expect("a log");
    assert_eq!(log.len(), 200_000_008, "nothing is dropped");
    assert!(peak_kib > 0 && peak_kib < 150 * 1024, "the command took {peak_kib} KiB");
}

#[test]
fn a_process_that_left_early_is_named() {
    let Some(place) = place("early") else { return };
    let script = "import sys, time\nif sys.argv[1] == '0':\n    time.sleep(1)\n    \
                  raise ConnectionError('Connection closed by peer')\n";
    let args = "script.args=['{{index}}', '{{master_addr}}']";
    let failed = ran(&place, script, &[args], 1);
    holds(
        &failed,
        &["worker 1 ended well while others needed it; worker 0 failed with exit code 1"],
    );
}

/// The first fails, and its connections close; the second ends because of that, and does so first.
const BROKEN: &str = r#"
import socket, sys, time, traceback
index, address, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if index == 0:
    with socket.create_server((address, port)) as server:
        other, _ = server.accept()
    try:
        raise ValueError("a wrong value")
    except ValueError:
        traceback.print_exc()
    other.close()
    time.sleep(600)
while True:
    try:
        other = socket.create_connection((address, port))
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
if not other.recv(1):
    raise ConnectionError("Connection closed by peer")
"#;

#[test]
fn the_process_that_failed_by_itself_is_named() {
    let Some(place) = place("blamed") else { return };
    let args = "script.args=['{{index}}', '{{master_addr}}', '{{master_port}}']";
    let failed = ran(&place, BROKEN, &[args, "script.max_restarts=1"], 1);
    holds(
        &failed,
        &[
            "worker 0 failed with exit code 1: all processes are started again (restart 1 of 1)",
            "error: worker 0 failed with exit code 1 (it failed there before",
            "ValueError: a wrong value",
        ],
    );
    assert!(!failed.contains("worker 1 failed"), "{failed}");
    let status = said(&place, &["status"], 0);
    let reason = status.lines().find(|line| line.starts_with("reason")).expect("a reason");
    assert!(reason.ends_with("so it is not started again)"), "{reason}");
}

#[test]
fn a_run_that_failed_says_whose_fault_it_was() {
    let Some(place) = place("failing") else { return };
    let args = "script.args=['{{index}}', fail]";
    let failed = said(&place, &["run", "work.yaml", "--set", args, "--set", "pool.workers=1"], 7);
    holds(&failed, &["worker 0 failed with exit code 7", "about to fail"]);
    let status = said(&place, &["status"], 0);
    holds(
        &status,
        &[
            "state      failed\n",
            "reason     worker 0 failed with exit code 7",
            "           about to fail\n",
            " worker-0 prints all that it wrote; once that is put right, planaria run",
        ],
    );
}

#[test]
fn a_plan_checks_all_and_creates_nothing() {
    let Some(place) = place("planned") else { return };
    let plan = said(&place, &["plan", "work.yaml", "--set", "setup=[{run: 'true'}]"], 0);
    holds(
        &plan,
        &[
            "script      work.py (plain)\n",
            "processes   2 processes on this machine: worker 0, worker 1\n",
            "command     python3 work.py 0 (worker 0)\n",
            "variables   PYTHONUNBUFFERED, KEY\n",
            "outputs     result-*.txt\n",
            "done when   all are done\n",
            "restarts    none: a process that fails ends the job\n",
            "setup       1. run true on all\n",
        ],
    );
    let told = document(&place, &["plan", "work.yaml", "--json"]);
    assert_eq!(told["command"], serde_json::json!(["python3", "work.py", "0"]));
    assert_eq!(told["processes"][1]["machine"], "m1");
    assert_eq!(told["code"]["files"], 3);
    let hosts = "pool={provider: ssh, hosts: [node1, node2], workers: 3}";
    let args = "script.args=['{{worker_hosts}}']";
    let spread = said(&place, &["plan", "work.yaml", "--set", hosts, "--set", args], 0);
    holds(
        &spread,
        &[
            "3 processes on 2 by ssh: node1, node2\n",
            "            node1: worker 0, worker 1\n            node2: worker 2\n",
            "node1:50000,node1:50001,node2:50000 (worker 0; addresses and ports are examples)\n",
        ],
    );
    for (set, expect) in [
        ("script.file=none.py", "there is no script `none.py`"),
        ("script.data=none", "`none` cannot be read"),
        ("script.env={A: '${env:NO_SUCH_VARIABLE_HERE}'}", "NO_SUCH_VARIABLE_HERE"),
        ("script.args=['{{indx}}']", "did you mean `index`?"),
        ("setup=[{copy: none, to: '~/x'}]", "none"),
    ] {
        let wrong = said(&place, &["plan", "work.yaml", "--set", set], 2);
        assert!(wrong.contains(expect), "{wrong}");
    }
    std::fs::write(place.path().join("work.py"), "def broken(:\n").expect("a script");
    holds(&said(&place, &["plan", "work.yaml"], 2), &["is not Python", "work.py:1:"]);
    assert!(!place.path().join("runs").exists());
}

#[test]
fn commands_for_networks_and_scripts_are_told_apart() {
    let Some(place) = place("apart") else { return };
    let train = said(&place, &["train", "work.yaml"], 2);
    holds(&train, &["this recipe runs a script", "hint: `planaria run` reads it", "1 mistake"]);
    let other = said(&place, &["run", "tiny.yaml"], 2);
    holds(&other, &["this recipe trains a network", "hint: `planaria train` reads it"]);
}

#[test]
fn a_doctor_looks_for_python() {
    let Some(place) = place("examined") else { return };
    let well = said(&place, &["doctor", "work.yaml"], 0);
    holds(&well, &["recipe examined\n", "work.py (plain); ", "; Python 3"]);
    let missing =
        said(&place, &["doctor", "work.yaml", "--set", "script.python=no-such-python"], 1);
    holds(&missing, &["there is no `no-such-python`", "`script.python`"]);
}

#[test]
fn a_detached_script_outlives_its_command() {
    let Some(place) = place("left") else { return };
    let left = run(&place, &["run", "work.yaml", "--detach"]);
    assert!(left.status.success(), "{}", talk(&left));
    let name = String::from_utf8(left.stdout.clone()).expect("a name").trim().to_owned();
    assert!(name.starts_with("left-") && talk(&left).contains("goes on by itself"), "{name}");
    for _ in 0..LOOKS_MAX {
        let status = place.json(&["status", &name, "--json"], 0);
        if status["state"] == "completed" && status["pid"].is_null() {
            assert!(place.only_run().join("outputs").is_dir());
            let log = said(&place, &["logs", &name, "-f"], 0);
            assert_eq!(log.matches("[worker 0] step=1 ").count(), 1, "each line once: {log}");
            return;
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    panic!("{name} does not end");
}
