//! Real children: shell scripts that take the place of the program.

use super::*;
use crate::ending::ANOTHER;
use std::os::unix::fs::PermissionsExt;

/// A program that does what `script` says, given `agent`, role, number and run.
fn fleet(folder: &Path, script: &str) -> Local {
    let program = folder.join("program");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    Local::new(&program, folder)
}

fn start(fleet: &mut Local, agent: Agent) -> u32 {
    loop {
        match fleet.start_with(agent, "run", b"{}".to_vec()) {
            // Another test's child, between fork and exec, still holds the file that was written.
            Err(Error::Start { why, .. }) if why.kind() == ErrorKind::ExecutableFileBusy => {}
            started => return started.unwrap().pid,
        }
    }
}

fn one_exit(fleet: &mut Local) -> Exit {
    let exits = fleet.exits(Duration::from_secs(20));
    assert_eq!(exits.len(), 1, "{exits:?}");
    exits[0]
}

/// Whether a process is there and not only waiting to be waited for.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim().chars().next();
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

#[track_caller]
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    panic!("{what} did not come about");
}

#[test]
fn a_child_is_started_again_under_its_number_and_logs_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = fleet(folder.path(), "echo $*; read line; echo $line; exit 3");
    for round in 1..=3 {
        let pid = start(&mut fleet, Agent::Worker(7));
        let exit = one_exit(&mut fleet);
        assert_eq!((exit.agent, exit.pid, exit.ending), (Agent::Worker(7), pid, Ending::Code(3)));
        assert_eq!(exit.how(), "exit code 3");
        let log = std::fs::read_to_string(folder.path().join("worker-7.log")).unwrap();
        assert_eq!(log, "agent worker 7 run\n{}\n".repeat(round));
    }
}

#[test]
fn only_the_process_that_is_meant_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = fleet(folder.path(), "exec sleep 1000");
    let (worker, server) =
        (start(&mut fleet, Agent::Worker(0)), start(&mut fleet, Agent::Server(0)));
    fleet.kill(Agent::Worker(0), server);
    fleet.kill(Agent::Worker(0), 1);
    fleet.kill(Agent::Worker(0), worker);
    let exit = one_exit(&mut fleet);
    assert_eq!((exit.pid, exit.ending), (worker, Ending::Signal(process::SIGKILL)));
    assert_eq!(fleet.running(), 1);
    // Its number may be another process' by now.
    fleet.kill(Agent::Worker(0), worker);
    fleet.kill_all();
    assert_eq!((fleet.running(), is_alive(server)), (0, false));
}

#[test]
fn a_child_that_ends_well_or_asks_for_another_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = fleet(folder.path(), "[ $2 = server ] && exit 75; exit 0");
    start(&mut fleet, Agent::Server(0));
    let exit = one_exit(&mut fleet);
    assert_eq!((exit.ending, exit.is_well()), (Ending::Code(ANOTHER), false));
    assert_eq!(exit.how(), "exit code 75: it asked for another in its place");
    start(&mut fleet, Agent::Worker(0));
    assert!(one_exit(&mut fleet).is_well());
}

#[test]
fn many_restarts_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = fleet(folder.path(), "exit 1");
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    for _ in 0..10 {
        start(&mut fleet, Agent::Worker(0));
        one_exit(&mut fleet);
    }
    // Other tests of this process open and close files too.
    let before = open();
    for _ in 0..200 {
        start(&mut fleet, Agent::Worker(0));
        one_exit(&mut fleet);
    }
    assert!(fleet.children.is_empty());
    assert!(open() < before + 100, "{} files are open, {before} before", open());
}

#[test]
fn long_orders_do_not_wait_for_a_reader() {
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = fleet(folder.path(), "exec sleep 1000");
    fleet.start_with(Agent::Worker(0), "run", vec![b'x'; 300_000]).unwrap();
    assert_eq!(fleet.running(), 1);
}

/// Not a test: the parent that is killed in the one below.
#[test]
fn parent_that_is_killed() {
    let Some(folder) = std::env::var_os("PLANARIA_TEST_FOLDER") else { return };
    let mut fleet = fleet(Path::new(&folder), "exec sleep 1000");
    let pid = start(&mut fleet, Agent::Worker(0));
    durable_note(Path::new(&folder), pid);
    // Bounded, should the test that waits for it be gone.
    std::thread::park_timeout(Duration::from_secs(60));
}

fn durable_note(folder: &Path, pid: u32) {
    std::fs::write(folder.join("pid.part"), pid.to_string()).unwrap();
    std::fs::rename(folder.join("pid.part"), folder.join("pid")).unwrap();
}

#[test]
fn a_child_that_is_stopped_dies_with_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "local::tests::parent_that_is_killed"])
        .env("PLANARIA_TEST_FOLDER", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let note = folder.path().join("pid");
    eventually("a grandchild", || note.exists());
    let pid: u32 = std::fs::read_to_string(&note).unwrap().parse().unwrap();
    assert!(is_alive(pid));
    process::signal(pid, Signal::STOP);
    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("the end of the grandchild", || !is_alive(pid));
}
