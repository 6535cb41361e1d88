//! Each on two real sshd hosts: a process is killed on the way, then a whole host is.

use super::kinds::{Kind, MIRRORED, OLD_FLAGS, PARAMETER_SERVERS, PLAIN, TORCH, TORCHRUN};
use crate::hosts::Hosts;
use crate::support::eventually;
use crate::support::frameworks::Python;
use crate::support::pooled::{hosts_are_clean, id};
use crate::support::workspace::Workspace;

/// A pool of two hosts; nothing where there cannot be any.
fn hosts(python: &Python) -> Option<(Hosts, String)> {
    let hosts = Hosts::up(2, &python.options())?;
    let config = hosts.path("ssh_config").display().to_string();
    let pool = format!("{{provider: ssh, hosts: [h1, h2], ssh: {{config: {config}}}");
    Some((hosts, pool))
}

/// With as many workers as the kind has.
fn pool(text: &str, kind: &Kind) -> String {
    let workers = if kind.options.contains("roles") { "" } else { ", workers: 2" };
    format!("{text}{workers}}}")
}

/// Waits until the script has told of its first epoch.
#[track_caller]
fn begins(workspace: &Workspace, training: &mut crate::support::workspace::Training) {
    workspace.hears(training, "epoch=1 ");
}

fn a_process_is_killed(kind: &Kind) {
    let Some(python) = Python::find() else { return };
    let Some((hosts, text)) = hosts(&python) else { return };
    let workspace = kind.workspace(&python, &pool(&text, kind));
    let mut training = workspace.start(&["run", "job.yaml", "--json"], &[]);
    begins(&workspace, &mut training);
    // A worker: on the second host there is one of each kind.
    let killed = hosts.on(2, &format!("pkill -9 -o -f '{}'; echo $?", kind.victim()));
    assert_eq!(killed, "0", "no process was killed: {}", workspace.said());
    let report = kind.ends_well(&workspace, training);
    assert_eq!(report["restarts"].as_u64() > Some(0), kind.restarts, "{}", workspace.said());
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
    for host in 1..=2 {
        let left = format!("pgrep -f '{}' || true", kind.process);
        assert_eq!(hosts.on(host, &left), "", "a process is left on h{host}");
    }
}

fn a_host_is_lost(kind: &Kind) {
    let Some(python) = Python::find() else { return };
    let Some((hosts, text)) = hosts(&python) else { return };
    let workspace = kind.workspace(&python, &pool(&text, kind));
    let mut training = workspace.start(&["run", "job.yaml", "--json"], &[]);
    begins(&workspace, &mut training);
    hosts.tell("kill", 2);
    workspace.hears(&mut training, "h2: lost");
    hosts.tell("start", 2);
    let report = kind.ends_well(&workspace, training);
    assert!(report["machines_lost"].as_u64() > Some(0), "{report:#}");
    eventually("the hosts are given back", || {
        hosts.on(2, "pgrep -f 'agent [h]ost' || true").is_empty()
    });
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
}

impl Kind {
    /// What the process to be killed is found by.
    fn victim(&self) -> &'static str {
        self.process
    }
}

#[test]
fn torch_with_a_process_killed() {
    a_process_is_killed(&TORCH);
}

#[test]
fn torch_with_a_host_lost() {
    a_host_is_lost(&TORCH);
}

#[test]
fn torchrun_with_a_process_killed() {
    a_process_is_killed(&TORCHRUN);
}

#[test]
fn torchrun_with_a_host_lost() {
    a_host_is_lost(&TORCHRUN);
}

#[test]
fn parameter_servers_with_a_process_killed() {
    a_process_is_killed(&PARAMETER_SERVERS);
}

#[test]
fn parameter_servers_with_a_host_lost() {
    a_host_is_lost(&PARAMETER_SERVERS);
}

#[test]
fn mirrored_with_a_process_killed() {
    a_process_is_killed(&MIRRORED);
}

#[test]
fn mirrored_with_a_host_lost() {
    a_host_is_lost(&MIRRORED);
}

#[test]
fn old_flags_with_a_process_killed() {
    a_process_is_killed(&OLD_FLAGS);
}

#[test]
fn old_flags_with_a_host_lost() {
    a_host_is_lost(&OLD_FLAGS);
}

#[test]
fn plain_with_a_process_killed() {
    a_process_is_killed(&PLAIN);
}

#[test]
fn plain_with_a_host_lost() {
    a_host_is_lost(&PLAIN);
}

#[test]
fn jax_finds_its_coordinator() {
    let Some(python) = Python::find() else { return };
    let Some((hosts, text)) = hosts(&python) else { return };
    let kind = Kind {
        file: "jax_data_parallel.py",
        options: "framework: jax",
        process: "[j]ax_data_parallel.py",
        ..TORCH
    };
    let workspace = kind.workspace(&python, &pool(&text, &kind));
    let recipe = std::fs::read_to_string(workspace.path("job.yaml")).expect("a recipe");
    let args = "args: ['--num_processes={{world_size}}', '--process_id={{rank}}', ";
    workspace.put("job.yaml", &recipe.replace("args: [", args));
    let training = workspace.start(&["run", "job.yaml", "--json"], &[]);
    let report = kind.ends_well(&workspace, training);
    assert_eq!(report["restarts"], 0);
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
}

#[test]
fn mpi_starts_its_processes() {
    let Some(python) = Python::find() else { return };
    let Some(hosts) = Hosts::up(1, &python.options()) else { return };
    let config = hosts.path("ssh_config").display().to_string();
    let kind =
        Kind { file: "mpi_sum.py", options: "framework: mpi", process: "[m]pi_sum.py", ..TORCH };
    let pool = format!("{{provider: ssh, hosts: [h1], workers: 2, ssh: {{config: {config}}}}}");
    let workspace = kind.workspace(&python, &pool);
    let training = workspace.start(&["run", "job.yaml", "--json"], &[]);
    let report = kind.ends_well(&workspace, training);
    assert_eq!(report["roles"]["mpirun"], 1);
    hosts_are_clean(&hosts, &[1], &workspace.run());
}

#[test]
fn an_exception_in_one_rank_of_mpi_ends_all() {
    let Some(python) = Python::find() else { return };
    let workspace = Workspace::new("{}");
    let script = "from mpi4py import MPI\nall = MPI.COMM_WORLD\nprint('of %d' % all.size, flush=True)\n\
                  if all.rank == 1:\n    raise ValueError('rank 1 fails')\nall.Barrier()\n";
    workspace.put("train.py", script);
    // More ranks than this machine has cores.
    let ranks = std::thread::available_parallelism().map_or(1, |cores| cores.get()) + 2;
    workspace.put(
        "job.yaml",
        &format!(
            "name: job\npool: {{workers: {ranks}}}\nscript: {{file: train.py, python: {}, \
             launcher_options: [--tag-output], max_restarts: 0, timeout: 120}}\n",
            python.program
        ),
    );
    let output = workspace.start(&["run", "job.yaml"], &[]).end();
    let said = workspace.said();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in
        [&*format!("<stdout>:of {ranks}"), "rank 1 fails", "mpirun 0 failed with exit code 1"]
    {
        assert!(said.contains(words), "`{words}`: {said}");
    }
}

/// Horovod itself cannot be built everywhere; this asks what its gloo controller asks.
const LIKE_HOROVOD: &str = r#"
import os, time, urllib.request, urllib.error
rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
place = "http://%s:%s/global/" % (os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"],
                                  os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
def ask(method, key, body=None):
    for _ in range(200):
        try:
            request = urllib.request.Request(place + key, data=body, method=method)
            return urllib.request.urlopen(request, timeout=5).read().decode()
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise SystemExit("no answer")
ask("PUT", str(rank), ("at " + os.environ["HOROVOD_GLOO_IFACE"]).encode())
print("others:", [ask("GET", str(other)) for other in range(size)], flush=True)
"#;

#[test]
fn processes_of_horovod_have_a_place_to_meet() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let config = hosts.path("ssh_config").display().to_string();
    let workspace = Workspace::new("{}");
    workspace.put("train.py", LIKE_HOROVOD);
    let pool = format!("{{provider: ssh, hosts: [h1, h2], ssh: {{config: {config}}}}}");
    let script = "{file: train.py, framework: horovod}";
    workspace.put("job.yaml", &format!("name: job\nscript: {script}\npool: {pool}\n"));
    workspace.give(&["run", "job.yaml"], 0);
    for worker in 0..2 {
        let log =
            std::fs::read_to_string(workspace.run().join(format!("logs/worker-{worker}.log")));
        assert_eq!(log.expect("a log"), "others: ['at eth0', 'at eth0']\n");
    }
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
}

#[test]
fn a_spare_host_takes_the_place_of_one_that_is_lost() {
    let Some(hosts) = Hosts::up(3, &[]) else { return };
    let config = hosts.path("ssh_config").display().to_string();
    let workspace = Workspace::new("{}");
    let script = "import os, sys, time\nprint('round', os.path.exists('mark.txt'), flush=True)\n\
                  time.sleep(4)\nopen('mark.txt', 'w').write('x')\n\
                  time.sleep(1 if os.environ['RANK'] == '0' else 9)\nprint('done', flush=True)\n";
    workspace.put("train.py", script);
    let pool = format!(
        "{{provider: ssh, hosts: [h1, h2, h3], machines: 2, ssh: {{config: {config}, \
         connect_seconds: 1}}}}"
    );
    let script = "{file: train.py, framework: pytorch, outputs: '*.txt', connect_seconds: 100}";
    workspace.put("job.yaml", &format!("name: job\nscript: {script}\npool: {pool}\n"));
    let mut training = workspace.start(&["run", "job.yaml", "--json"], &[]);
    workspace.hears(&mut training, "[worker 1 · h2] round False");
    hosts.tell("kill", 2);
    workspace.hears(&mut training, "[worker 1 · h3] round ");
    let output = training.end();
    assert_eq!(output.status.code(), Some(0), "{}", workspace.said());
    // What may be on a host that is off stays written down.
    assert!(workspace.said().contains("`planaria down` gives it back"), "{}", workspace.said());
    hosts.tell("start", 2);
    workspace.give(&["down", &id(&workspace.run())], 0);
    hosts_are_clean(&hosts, &[1, 2, 3], &workspace.run());
}

/// Saves all the time, and says where it begins; told of a checkpoint it ends soon.
const SAVES: &str = "import os, time\nstart = int(open('at').read()) if os.path.exists('at') else 0\n\
                     print('begins at', start, flush=True)\n\
                     for step in range(start, 100000):\n    \
                     open('new', 'w').write(str(step))\n    os.rename('new', 'at')\n    \
                     time.sleep(0.2)\n    print('step', step, flush=True)\n    \
                     if start and step > start + 3: break\n";

#[test]
fn after_a_loss_all_ranks_begin_at_the_same_checkpoint() {
    let Some(hosts) = Hosts::up(3, &[]) else { return };
    let config = hosts.path("ssh_config").display().to_string();
    let workspace = Workspace::new("{}");
    workspace.put("train.py", SAVES);
    let pool = format!(
        "{{provider: ssh, hosts: [h1, h2, h3], machines: 2, ssh: {{config: {config}, \
         connect_seconds: 1}}}}"
    );
    let script = "{file: train.py, framework: pytorch, outputs: at, connect_seconds: 100}";
    workspace.put("job.yaml", &format!("name: job\nscript: {script}\npool: {pool}\n"));
    let mut training = workspace.start(&["run", "job.yaml", "--json"], &[]);
    workspace.hears(&mut training, "[worker 1 · h2] step 10");
    hosts.tell("kill", 2);
    let output = training.end();
    assert_eq!(output.status.code(), Some(0), "{}", workspace.said());
    let begins = |rank: u32| begins_at(&workspace, rank);
    assert_eq!(begins(0), begins(1), "{}", workspace.said());
    assert!(begins(0) > 10, "from the one that is left: {}", workspace.said());
    hosts.tell("start", 2);
    workspace.give(&["down", &id(&workspace.run())], 0);
}

/// Saves its part of each epoch under its own name, all ranks within some milliseconds, and says where it
/// begins; told of an epoch it ends soon.
const SHARDS: &str = "import os, time\nname = 'ckpt-' + os.environ['RANK']\n\
                      start = int(open(name).read()) if os.path.exists(name) else 0\n\
                      print('begins at', start, flush=True)\n\
                      for epoch in range(start + 1, 100000):\n    \
                      time.sleep(1 - time.time() % 1)\n    \
                      open('new', 'w').write(str(epoch))\n    os.rename('new', name)\n    \
                      for _ in range(8):\n        \
                      print(epoch, file=open('log-' + os.environ['RANK'], 'a'))\n        \
                      time.sleep(0.04)\n    \
                      print('epoch', epoch, flush=True)\n    \
                      if start and epoch > start + 3: break\n";

#[test]
fn after_a_loss_all_ranks_begin_at_the_same_epoch_of_their_own_files() {
    let Some(hosts) = Hosts::up(4, &[]) else { return };
    let config = hosts.path("ssh_config").display().to_string();
    let workspace = Workspace::new("{}");
    workspace.put("train.py", SHARDS);
    let pool = format!(
        "{{provider: ssh, hosts: [h1, h2, h3, h4], machines: 3, ssh: {{config: {config}, \
         connect_seconds: 1}}}}"
    );
    let script = "{file: train.py, framework: pytorch, outputs: ['ckpt-*', 'log-*'], \
                  connect_seconds: 100}";
    workspace.put("job.yaml", &format!("name: job\nscript: {script}\npool: {pool}\n"));
    let mut training = workspace.start(&["run", "job.yaml", "--json"], &[]);
    workspace.hears(&mut training, "[worker 2 · h3] epoch 19");
    hosts.tell("kill", 3);
    let output = training.end();
    assert_eq!(output.status.code(), Some(0), "{}", workspace.said());
    let begins = [0, 1, 2].map(|rank| begins_at(&workspace, rank));
    assert!(begins[0] > 0 && begins == [begins[0]; 3], "{begins:?}: {}", workspace.said());
    let said = workspace.said();
    assert!(said.contains("h3 was lost with `ckpt-2`: all machines go back"), "{said}");
    assert!(!workspace.run().join(".whole").exists());
    hosts.tell("start", 3);
    workspace.give(&["down", &id(&workspace.run())], 0);
}

/// Where a rank says that it began the last time.
fn begins_at(workspace: &Workspace, rank: u32) -> u32 {
    let log = workspace.run().join(format!("logs/worker-{rank}.log"));
    let log = std::fs::read_to_string(log).expect("a log");
    let last = log.rsplit_once("begins at ").expect("it begins").1;
    last.lines().next().and_then(|n| n.trim().parse().ok()).expect("a number")
}
