//! What a user can get wrong, and what is said: one clear error within bounds, nothing left. These
//! scripts need no framework; the rules of one are followed all the same.

use crate::hosts::Hosts;
use crate::support::pooled::hosts_are_clean;
use crate::support::workspace::Workspace;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// A place with a script and a recipe for it; `pool` ends without its bracket.
fn workspace(script: &str, options: &str, pool: &str) -> Workspace {
    let workspace = Workspace::new("{}");
    workspace.put("train.py", script);
    let script = format!("{{file: train.py, {options}, stop_seconds: 1}}");
    workspace.put("job.yaml", &format!("name: job\nscript: {script}\npool: {pool}}}\n"));
    workspace
}

fn two(hosts: &Hosts) -> String {
    let config = hosts.path("ssh_config").display().to_string();
    format!("{{provider: ssh, hosts: [h1, h2], workers: 2, ssh: {{config: {config}}}")
}

/// Runs to an error with this code; what was said.
#[track_caller]
fn fails(workspace: &Workspace, code: i32) -> String {
    let output = workspace.start(&["run", "job.yaml"], &[]).end();
    let said = workspace.said();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said.matches("error: ").count(), 1, "one error: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[track_caller]
fn contains(said: &str, words: &[&str]) {
    for words in words {
        assert!(said.contains(words), "`{words}`: {said}");
    }
}

/// Whether there is a Python; a test is skipped where there is none.
fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_ok();
    assert!(found || std::env::var_os("PLANARIA_REQUIRE_HOSTS").is_none(), "no python3");
    found
}

#[test]
fn a_module_that_one_host_lacks() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    hosts.on(1, "echo 'x = 1' > /usr/lib/python3/dist-packages/rare_module.py");
    let script = "import time, rare_module\nprint('have it', flush=True)\ntime.sleep(60)\n";
    let workspace = workspace(script, "framework: pytorch", &two(&hosts));
    let said = fails(&workspace, 1);
    let expect = ["error: worker 1 on h2 failed with exit code 1", "No module named 'rare_module'"];
    contains(&said, &expect);
    contains(&said, &["hint: add it to `setup`", "on h2 it is `python3`"]);
    assert!(!said.contains("started again ("), "it would fail every time: {said}");
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
}

#[test]
fn a_host_that_is_given_up_is_told_of_to_the_end() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    hosts.on(1, "touch /root/unfit");
    let config = hosts.path("ssh_config").display().to_string();
    let pool = format!("{{provider: ssh, hosts: [h1, h2], machines: 1, ssh: {{config: {config}}}");
    let workspace = workspace("print('done')\n", "framework: plain", &pool);
    let recipe = fs::read_to_string(workspace.path("job.yaml")).expect("a recipe");
    workspace.put("job.yaml", &format!("{recipe}setup: [{{run: test ! -e /root/unfit}}]\n"));
    let (report, said) = workspace.give(&["run", "job.yaml", "--json"], 0);
    let report: serde_json::Value = serde_json::from_str(&report).expect("a report");
    assert_eq!(report["machines_given_up"][0]["machine"], "h1", "{report}");
    contains(&said, &["\ngiven up: h1: "]);
    let events = fs::read_to_string(workspace.run().join("events.jsonl")).expect("events");
    contains(&events, &["\"given_up\""]);
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
}

#[test]
fn scripts_that_cannot_be() {
    if !has_python() {
        return;
    }
    let wrong = workspace("print('a'\nx = 1\n", "framework: plain", "{workers: 2");
    contains(&fails(&wrong, 2), &["`train.py` is not Python", "train.py:1:6", "was never closed"]);
    let gone = workspace("", "framework: plain", "{workers: 2");
    fs::remove_file(gone.path("train.py")).expect("it is there");
    contains(&fails(&gone, 2), &["there is no script `train.py`", "job.yaml:2"]);
    let field = workspace("x = 1\n", "framework: plain, args: ['{{indx}}']", "{workers: 2");
    contains(&fails(&field, 2), &["no field `indx`", "did you mean `index`?"]);
    let roles = workspace("x = 1\n", "framework: tensorflow, roles: {ps: 1, chief: 1}", "{");
    contains(&fails(&roles, 2), &["parameter servers need workers", "`worker: 2`"]);
    for workspace in [wrong, gone, field, roles] {
        assert!(workspace.runs().is_empty(), "nothing is made: {:?}", workspace.runs());
    }
}

#[test]
fn a_script_that_never_connects() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let script = "import time\nprint('here', flush=True)\ntime.sleep(600)\n";
    let options = "framework: pytorch, connect_seconds: 2";
    let workspace = workspace(script, options, &two(&hosts));
    let said = fails(&workspace, 1);
    contains(&said, &["error: worker 0 on h1: it did not listen on port", "within 2 s"]);
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
    assert_eq!(hosts.on(2, "pgrep -f '[t]rain.py' || true"), "");
}

#[test]
fn a_port_that_is_taken_on_one_machine() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let listens = "import socket, time; s = socket.socket(); s.bind((\"\", 24001)); s.listen(); \
                   time.sleep(100)";
    hosts.on(2, &format!("nohup python3 -c '{listens}' >/dev/null 2>&1 & sleep 0.5"));
    let workspace = workspace("x = 1\n", "framework: pytorch, port: 24001", &two(&hosts));
    let said = fails(&workspace, 2);
    contains(&said, &["error: h2: port 24001 is taken by process", "`python3"]);
    contains(&said, &["leave `script.port` out"]);
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
}

#[test]
fn a_worker_that_fails_when_the_first_is_done() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let script = "import os, sys, time\nif os.environ['RANK'] == '1':\n    time.sleep(1)\n    \
                  print('last words', flush=True)\n    sys.exit(7)\n";
    let workspace = workspace(script, "framework: pytorch", &two(&hosts));
    let said = fails(&workspace, 7);
    contains(
        &said,
        &["worker 1 on h2 failed with exit code 7", "the first process had ended well"],
    );
    contains(&said, &["its last lines:\n  last words", "logs/worker-1.log"]);
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
}

#[test]
fn what_a_failed_script_made_comes_back() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let script = "import os, sys, time\nrank = os.environ['RANK']\n\
                  open('part-' + rank + '.txt', 'w').write('made by ' + rank)\n\
                  open('same.txt', 'w').write('of ' + rank)\ntime.sleep(0.5)\n\
                  sys.exit(3 if rank == '1' else time.sleep(30))\n";
    let options = "framework: pytorch, outputs: '*.txt', max_restarts: 1, connect_seconds: 20";
    let workspace = workspace(script, options, &two(&hosts));
    let said = fails(&workspace, 3);
    contains(&said, &["all processes are started again (restart 1 of 1)"]);
    contains(&said, &["worker 1 on h2 failed with exit code 3 (it was started again once)"]);
    let read = |name: &str| fs::read_to_string(workspace.run().join("outputs").join(name)).ok();
    assert_eq!(read("part-0.txt").as_deref(), Some("made by 0"));
    assert_eq!(read("part-1.txt").as_deref(), Some("made by 1"));
    assert_eq!(read("same.txt").as_deref(), Some("of 0"), "the first process' is preferred");
    assert_eq!(read("h2/same.txt").as_deref(), Some("of 1"));
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
}

#[test]
fn large_folders_and_patterns_that_match_nothing_are_told_of() {
    if !has_python() {
        return;
    }
    let workspace =
        workspace("print('done')\n", "framework: plain, outputs: 'no/*.pt'", "{workers: 1");
    let large = fs::File::create(workspace.path("weights.bin")).expect("a file");
    large.set_len(260 << 20).expect("it can be that long");
    let output = workspace.start(&["run", "job.yaml"], &[]).end();
    let said = workspace.said();
    assert_eq!(output.status.code(), Some(0), "{said}");
    contains(&said, &["weights.bin", ".gitignore", "nothing matches `script.outputs` (`no/*.pt`)"]);
    contains(&said, &["[worker 0] done", "completed: 1 process"]);
}

#[test]
fn secrets_are_in_the_script_alone() {
    let Some(hosts) = Hosts::up(1, &[]) else { return };
    let config = hosts.path("ssh_config").display().to_string();
    let pool = format!("{{provider: ssh, hosts: [h1], ssh: {{config: {config}}}");
    let script = "import os, time\nprint('the key is', os.environ['API_KEY'], flush=True)\n\
                  time.sleep(3)\nprint('over', 'OTHER' in os.environ)\n";
    let options = "framework: plain, env: {API_KEY: '${env:OTHER}'}";
    let workspace = workspace(script, options, &pool);
    let secret = "planted-7f3a9c";
    let mut training = workspace.start(&["run", "job.yaml"], &[("OTHER", secret)]);
    workspace.hears(&mut training, "the key is ***");
    let seen = "grep -la 'planted-7f[3]a9c' /proc/[0-9]*/environ 2>/dev/null | wc -l; \
                grep -la 'planted-7f[3]a9c' /proc/[0-9]*/cmdline 2>/dev/null | wc -l; \
                grep -rl 'planted-7f[3]a9c' /root /tmp 2>/dev/null | wc -l";
    // What the script itself writes is in a log there until the end: without it.
    assert_eq!(hosts.on(1, seen), "1\n0\n0", "the script's own environment, and nowhere else");
    let output = training.end();
    assert_eq!(output.status.code(), Some(0), "{}", workspace.said());
    contains(&workspace.said(), &["over False"]);
    let found =
        Command::new("grep").args(["-r", secret]).arg(workspace.run()).output().expect("grep");
    assert!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
    assert!(!workspace.said().contains(secret));
    for log in fs::read_dir(workspace.run().join("logs")).expect("logs").flatten() {
        let mode = log.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", log.path().display());
    }
}

#[test]
fn an_interrupt_ends_all_of_it_and_brings_outputs_back() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let script = "import os, subprocess, time\nopen('half.txt', 'w').write('half')\n\
                  subprocess.Popen(['sleep', '987'], start_new_session=True)\n\
                  print('under way', flush=True)\ntime.sleep(600)\n";
    let workspace = workspace(script, "framework: plain, outputs: '*.txt'", &two(&hosts));
    let mut training = workspace.start(&["run", "job.yaml"], &[]);
    workspace.hears(&mut training, "[worker 1 · h2] under way");
    workspace.hears(&mut training, "[worker 0 · h1] under way");
    training.interrupt();
    let output = training.end();
    assert_eq!(output.status.code(), Some(130), "{}", workspace.said());
    assert_eq!(fs::read_to_string(workspace.run().join("outputs/half.txt")).expect("it"), "half");
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
    for host in 1..=2 {
        let left = hosts.on(host, "pgrep -f '[t]rain.py|[s]leep 987' || true");
        assert_eq!(left, "", "nothing that came of the script is left");
    }
}

/// A script that does not end when it is asked to, with a child that has left its group.
const STUBBORN: &str = "import signal, subprocess, time\n\
                        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                        subprocess.Popen(['sleep', '986'], start_new_session=True)\n\
                        print('under way', flush=True)\ntime.sleep(600)\n";

#[test]
fn a_killed_process_leaves_nothing_of_the_script() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    for victim in ["agent [t]ask", "agent [h]ost", "[t]rain.py"] {
        let workspace = workspace(STUBBORN, "framework: plain, max_restarts: 0", &two(&hosts));
        let mut training = workspace.start(&["run", "job.yaml"], &[]);
        workspace.hears(&mut training, "[worker 1 · h2] under way");
        workspace.hears(&mut training, "[worker 0 · h1] under way");
        assert_eq!(hosts.on(2, &format!("pkill -9 -f '{victim}'; echo $?")), "0");
        let output = training.end();
        assert_ne!(output.status.code(), Some(0), "{}", workspace.said());
        for host in 1..=2 {
            crate::support::eventually("all of it ends", || {
                hosts.on(host, "pgrep -f '[t]rain.py|[s]leep 986' || true").is_empty()
            });
        }
        if !crate::support::pooled::holds(&workspace.run()).is_empty() {
            workspace.give(&["down", &crate::support::pooled::id(&workspace.run())], 0);
        }
        hosts_are_clean(&hosts, &[1, 2], &workspace.run());
    }
}

#[test]
fn a_checkpoint_that_is_written_all_the_time_outlives_its_machine() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let config = hosts.path("ssh_config").display().to_string();
    let pool = format!("{{provider: ssh, hosts: [h1, h2], machines: 1, ssh: {{config: {config}}}");
    let script = "import os, time\nstart = int(open('at').read()) if os.path.exists('at') else 0\n\
                  print('begins at', start, flush=True)\n\
                  for step in range(start, 100000):\n    \
                  open('new', 'w').write(str(step))\n    os.rename('new', 'at')\n    \
                  time.sleep(0.5)\n    print('step', step, flush=True)\n    \
                  if start and step > start + 3: break\n";
    let workspace = workspace(script, "framework: plain, outputs: at", &pool);
    let mut training = workspace.start(&["run", "job.yaml"], &[]);
    workspace.hears(&mut training, "· h1] step 30");
    hosts.tell("kill", 1);
    let output = training.end();
    let said = workspace.said();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let again = said.rsplit_once("begins at ").expect("it begins again").1;
    let at: u32 = again.lines().next().and_then(|n| n.trim().parse().ok()).expect("a number");
    assert!(at >= 5, "it goes on from what was kept: {said}");
    hosts.tell("start", 1);
    workspace.give(&["down", &crate::support::pooled::id(&workspace.run())], 0);
}

#[test]
fn a_command_that_is_killed_leaves_nothing() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let workspace = workspace(STUBBORN, "framework: plain", &two(&hosts));
    let mut training = workspace.start(&["run", "job.yaml"], &[]);
    workspace.hears(&mut training, "[worker 1 · h2] under way");
    workspace.hears(&mut training, "[worker 0 · h1] under way");
    training.kill();
    for host in 1..=2 {
        crate::support::eventually("all of it ends", || {
            hosts.on(host, "pgrep -f '[t]rain.py|[s]leep 986|agent [h]ost' || true").is_empty()
        });
    }
    workspace.give(&["down", &crate::support::pooled::id(&workspace.run())], 0);
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
}
