//! What is said where a machine cannot be had by ssh: one fault that names it and what to do, soon.

use crate::hosts::Hosts;
use crate::talk::{Host, LONG, program, run};
use planaria::clock::Stopwatch;
use planaria_fleet::program::Program;
use planaria_fleet::provider::{Fault, Provider, Remedy};
use planaria_fleet::providers::ssh::{HostKeys, Settings, Ssh};
use std::process::Command;

/// The fault of the first machine, which must come within so many seconds.
#[track_caller]
fn fault(settings: Settings, program: &Program, seconds: f64) -> Fault {
    let (provider, run) = (Ssh::new(settings), run("fault"));
    let machine = provider.plan(&run, 0).expect("a machine");
    let watch = Stopwatch::start();
    let Err(fault) = provider.open(&run, &machine, program) else { panic!("it was opened") };
    assert!(watch.seconds() < seconds, "{:.1} s: {fault}", watch.seconds());
    assert_eq!(fault.machine, machine.name, "{fault}");
    fault
}

#[track_caller]
fn says(fault: &Fault, remedy: Remedy, what: &[&str], hint: &str) {
    for word in what {
        assert!(fault.what.contains(word), "`{word}` in: {fault}");
    }
    let hinted = fault.hint.as_deref().unwrap_or("");
    assert!(hinted.contains(hint), "`{hint}` in: {hinted}");
    assert_eq!(fault.remedy, remedy, "{fault}");
}

#[test]
fn wrong_keys() {
    let Some(hosts) = Hosts::up(1, &[]) else { return };
    let wrong = hosts.path("wrong");
    let mut make = Command::new("ssh-keygen");
    make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&wrong);
    assert!(make.status().expect("ssh-keygen starts").success());
    let mut settings = hosts.spelled_out(1);
    settings.hosts[0].key = Some(wrong.display().to_string());
    let found = fault(settings.clone(), &program(), 10.0);
    let whom = format!("root@{}", hosts.address(1));
    let key = wrong.display().to_string();
    says(
        &found,
        Remedy::Replace,
        &["does not let us in", &whom, &key, "Permission denied"],
        "ssh-copy-id",
    );

    settings.hosts[0].key = Some("/nonexistent/key".into());
    let found = fault(settings.clone(), &program(), 1.0);
    says(&found, Remedy::Replace, &["there is no key `/nonexistent/key`"], "`key`");
    assert_eq!(Ssh::new(settings).check(), Err(found));
}

#[test]
fn host_keys_that_are_unknown_or_changed() {
    let Some(hosts) = Hosts::up(1, &[]) else { return };
    let known = hosts.path("other_hosts");
    std::fs::write(&known, "").expect("a file");
    let unknown = Settings { known_hosts: Some(known.clone()), ..hosts.spelled_out(1) };
    let found = fault(unknown.clone(), &program(), 10.0);
    says(&found, Remedy::Replace, &["host key is not known"], "ssh-keyscan");
    says(&found, Remedy::Replace, &[], "host_keys: accept-new");

    let other = std::fs::read_to_string(hosts.path("key.pub")).expect("a key");
    std::fs::write(&known, format!("{} {other}", hosts.address(1))).expect("a file");
    let found = fault(unknown.clone(), &program(), 10.0);
    let remove = format!("-R {}", hosts.address(1));
    says(&found, Remedy::Replace, &["HOST KEY HAS CHANGED", "SHA256:"], &remove);
    // Hints follow the user's configuration.
    let config = std::fs::read_to_string(hosts.path("ssh_config")).expect("a file");
    let ours = hosts.path("known_hosts").display().to_string();
    let config = config.replace(&ours, &known.display().to_string());
    std::fs::write(hosts.path("other_config"), config).expect("a file");
    let by_name = Settings { config: Some(hosts.path("other_config")), ..hosts.settings() };
    let found = fault(by_name, &program(), 10.0);
    let remove_there = format!("-f {} -R {}", known.display(), hosts.address(1));
    says(&found, Remedy::Replace, &["HOST KEY HAS CHANGED"], &remove_there);
    // One who takes new keys does not take this one.
    let accept = Settings { host_keys: HostKeys::AcceptNew, ..unknown };
    let found = fault(accept, &program(), 10.0);
    says(&found, Remedy::Replace, &["HOST KEY HAS CHANGED"], &remove);
}

#[test]
fn hosts_that_are_not_there() {
    let Some(hosts) = Hosts::up(1, &[]) else { return };
    let there = hosts.spelled_out(1);
    let mut settings = there.clone();
    settings.hosts[0].host = hosts.address(150);
    let found = fault(settings, &program(), 8.0);
    says(&found, Remedy::Retry, &["cannot be reached", &hosts.address(150)], "up");

    let mut settings = there.clone();
    settings.hosts[0].port = Some(23);
    let found = fault(settings, &program(), 8.0);
    says(&found, Remedy::Retry, &["refuses connections", "port 23"], "`port`");

    let mut settings = there.clone();
    settings.hosts[0].host = "no-such-host.invalid".into();
    let found = fault(settings, &program(), 30.0);
    assert!(found.what.contains("`no-such-host.invalid` is not known"), "{found}");

    let mut settings = there.clone();
    settings.hosts[0].jump = Some(hosts.address(150));
    let found = fault(settings, &program(), 12.0);
    says(&found, Remedy::Retry, &["through", &hosts.address(150)], "");

    hosts.tell("cut", 1);
    let found = fault(there, &program(), 8.0);
    says(&found, Remedy::Retry, &["cannot be reached"], "firewall");
}

#[test]
fn a_client_that_is_not_there() {
    let Some(hosts) = Hosts::up(1, &[]) else { return };
    let settings = Settings { client: "/nonexistent/ssh".into(), ..hosts.spelled_out(1) };
    let found = fault(settings.clone(), &program(), 1.0);
    says(&found, Remedy::Fix, &["`/nonexistent/ssh` does not start"], "openssh-client");
    let checked = Ssh::new(settings).check().expect_err("no client");
    assert_eq!((checked.machine.as_str(), checked.remedy), ("ssh", Remedy::Fix));
    Ssh::new(hosts.spelled_out(1)).check().expect("a client");
}

#[test]
fn full_disks() {
    let Some(hosts) = Hosts::up(1, &[]) else { return };
    hosts.on(1, "mount -t tmpfs -o size=2m tmpfs /root");
    let found = fault(hosts.settings(), &program(), 10.0);
    says(&found, Remedy::Replace, &["disk is full", "MiB are free"], "make room");
    // Where it cannot be seen before, it is seen on the way.
    hosts.on(1, "mv /usr/bin/df /usr/bin/df.away");
    let found = fault(hosts.settings(), &program(), 20.0);
    says(&found, Remedy::Replace, &["disk is full", "No space left"], "make room");
    assert_eq!(hosts.on(1, "find .cache/planaria/bin -type f"), "", "nothing is left of it");
    hosts.on(1, "mount -o remount,ro /root");
    let found = fault(hosts.settings(), &program(), 10.0);
    says(&found, Remedy::Replace, &["cannot write to the home folder", "Read-only"], "writable");
}

#[test]
fn hosts_that_answer_and_then_hang() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    // In the middle of a delivery.
    hosts.on(1, "printf '#!/bin/sh\\nexec sleep 1000\\n' >/usr/local/bin/sha256sum");
    hosts.on(1, "chmod 755 /usr/local/bin/sha256sum");
    let patient = Settings { answer_seconds: 2, ..hosts.settings() };
    let found = fault(patient.clone(), &program(), 15.0);
    says(&found, Remedy::Retry, &["answered and then hung", "2 s"], "log in by hand");
    // Right after the login.
    hosts.on(
        1,
        "sed -i 's,^\\(root:.*\\):/bin/sh$,\\1:/bin/hang,' /etc/passwd; \
                 printf '#!/bin/sh\\nexec sleep 1000\\n' >/bin/hang; chmod 755 /bin/hang",
    );
    let found = fault(patient, &program(), 10.0);
    says(&found, Remedy::Retry, &["did not answer within 6 s"], "log in by hand");

    // Once it is open.
    let mut second = hosts.settings();
    second.hosts.remove(0);
    let (provider, run) = (Ssh::new(second), run("hang"));
    let machine = provider.plan(&run, 0).expect("a machine");
    let host = Host::meet(provider.open(&run, &machine, &program()).expect("a channel"));
    let pid = host.hello.pid;
    let stop = format!("kill -STOP $(sed -n 's/^PPid:.//p' /proc/{pid}/status)");
    hosts.on(2, &stop);
    let watch = Stopwatch::start();
    host.ends(LONG);
    assert!(watch.seconds() < 25.0, "{:.1} s", watch.seconds());
    drop(host);
    provider.destroy(&run, &machine).expect("destroyed by another connection");
    assert_eq!(provider.leaks().expect("leaks"), []);
    // What it was is a zombie, whose parent is the one that was stopped.
    let state = format!("sed -n 's/^State:.//p' /proc/{pid}/status 2>/dev/null || true");
    assert!(!hosts.on(2, &state).starts_with(['R', 'S', 'D']));
}

#[test]
fn machines_that_cannot_run_the_program() {
    let Some(hosts) = Hosts::up(1, &[]) else { return };
    let pretend = |name: &str, says: &str| {
        let text = format!("#!/bin/sh\\necho {says}\\n");
        let file = format!("/usr/local/bin/{name}");
        hosts.on(1, &format!("printf '{text}' >{file}; chmod 755 {file}"));
        move |hosts: &Hosts| hosts.on(1, &format!("rm {file}"))
    };
    let back = pretend("getconf", "glibc 2.3");
    let found = fault(hosts.settings(), &program(), 10.0);
    says(&found, Remedy::Replace, &["has glibc 2.3,", "needs glibc 2."], "static build");
    back(&hosts);

    let folder = tempfile::tempdir().expect("a folder");
    let foreign = folder.path().join("foreign");
    let mut bytes = std::fs::read(program().path).expect("the binary can be read");
    bytes[18] = if bytes[18] == 183 { 62 } else { 183 };
    std::fs::write(&foreign, &bytes).expect("a file");
    let foreign = Program::read(&foreign, planaria::BUILD).expect("a program");
    let found = fault(hosts.settings(), &foreign, 10.0);
    says(&found, Remedy::Replace, &["the machine is Linux", "built for Linux"], "build planaria");

    // What only shows when it is tried.
    let broken = folder.path().join("broken");
    std::fs::write(&broken, "#!/bin/sh\necho 'libgone.so: no such file' >&2\nexit 127\n")
        .expect("a file");
    let broken = Program::read(&broken, planaria::BUILD).expect("a program");
    let found = fault(hosts.settings(), &broken, 10.0);
    says(
        &found,
        Remedy::Replace,
        &["does not run there (exit code 127)", "libgone.so"],
        "static build",
    );
    let other = folder.path().join("other");
    std::fs::write(&other, "#!/bin/sh\necho other\n").expect("a file");
    let other = Program::read(&other, planaria::BUILD).expect("a program");
    let found = fault(hosts.settings(), &other, 10.0);
    says(&found, Remedy::Replace, &["build `other`"], "remove");

    let back = pretend("uname", "sparc");
    let found = fault(hosts.settings(), &program(), 10.0);
    says(&found, Remedy::Replace, &["the machine is sparc sparc"], "build planaria");
    back(&hosts);
    assert_eq!(hosts.on(1, "find .cache/planaria/bin -type f"), "", "nothing is left of it");
}
