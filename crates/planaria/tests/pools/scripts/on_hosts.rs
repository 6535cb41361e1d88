//! Each on two real sshd hosts: a process is killed on the way, then a whole host is.

use super::kinds::{Kind, MIRRORED, OLD_FLAGS, PARAMETER_SERVERS, PLAIN, TORCH, TORCHRUN};
use crate::hosts::Hosts;
use crate::support::desk::Desk;
use crate::support::eventually;
use crate::support::frameworks::Python;
use crate::support::pooled::hosts_are_clean;

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
fn begins(desk: &Desk, training: &mut crate::support::desk::Training) {
    desk.hears(training, "epoch=1 ");
}

fn a_process_is_killed(kind: &Kind) {
    let Some(python) = Python::find() else { return };
    let Some((hosts, text)) = hosts(&python) else { return };
    let desk = kind.desk(&python, &pool(&text, kind));
    let mut training = desk.start(&["run", "job.yaml", "--json"], &[]);
    begins(&desk, &mut training);
    // A worker: on the second host there is one of each kind.
    let killed = hosts.on(2, &format!("pkill -9 -o -f '{}'; echo $?", kind.victim()));
    assert_eq!(killed, "0", "nobody was killed: {}", desk.said());
    let report = kind.ends_well(&desk, training);
    assert_eq!(report["restarts"].as_u64() > Some(0), kind.restarts, "{}", desk.said());
    hosts_are_clean(&hosts, &[1, 2], &desk.run());
    for host in 1..=2 {
        let left = format!("pgrep -f '{}' || true", kind.process);
        assert_eq!(hosts.on(host, &left), "", "a process is left on h{host}");
    }
}

fn a_host_is_lost(kind: &Kind) {
    let Some(python) = Python::find() else { return };
    let Some((hosts, text)) = hosts(&python) else { return };
    let desk = kind.desk(&python, &pool(&text, kind));
    let mut training = desk.start(&["run", "job.yaml", "--json"], &[]);
    begins(&desk, &mut training);
    hosts.tell("kill", 2);
    desk.hears(&mut training, "h2: lost");
    hosts.tell("start", 2);
    let report = kind.ends_well(&desk, training);
    assert!(report["machines_lost"].as_u64() > Some(0), "{report:#}");
    eventually("the hosts are given back", || {
        hosts.on(2, "pgrep -f 'agent [h]ost' || true").is_empty()
    });
    hosts_are_clean(&hosts, &[1, 2], &desk.run());
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
