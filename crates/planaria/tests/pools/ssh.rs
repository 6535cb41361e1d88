//! Machines by ssh: real sshd in network namespaces.

use crate::conformance::{Bed, conformance};
use crate::hosts::Hosts;
use crate::support::frameworks::Python;
use crate::talk::{Host, LONG, program, run};
use planaria_fleet::gate::Gate;
use planaria_fleet::provider::{Call, Fault, Machine, Provider, Ran, Tag};
use planaria_fleet::providers::ssh::{self, HostKeys, Settings, Ssh};
use std::io::{Read, Write};
use std::net::TcpListener;

/// Asks the program there which build it is.
fn build(provider: &Ssh, run: &Tag, machine: &Machine) -> Result<Ran, Fault> {
    let arguments = &["agent", "build"];
    let call = Call { program: &program(), arguments, input: b"", within: LONG };
    provider.run(run, machine, &call)
}

fn open(provider: &Ssh, run: &Tag, machine: &Machine) -> Host {
    let opened = provider.open(run, machine, &program());
    Host::meet(opened.unwrap_or_else(|fault| panic!("{fault} ({:?})", fault.hint)))
}

fn only(provider: &Ssh, run: &Tag) -> Machine {
    provider.plan(run, 0).expect("a machine")
}

#[test]
fn ssh_machines_conform() {
    let Some(hosts) = Hosts::up(3, &[]) else { return };
    let (program, settings) = (program(), hosts.settings());
    let number = |machine: &Machine| machine.name[1..].parse().expect("h1, h2, …");
    conformance(&Bed {
        provider: &|| Box::new(Ssh::new(settings.clone())) as Box<dyn Provider>,
        program: &program,
        machines: 3,
        lose: &|machine, _| hosts.tell("kill", number(machine)),
        restore: &|machine| hosts.tell("start", number(machine)),
    });
    for host in 1..=3 {
        assert_eq!(hosts.on(host, "ls ~/.cache/planaria/runs"), "");
        assert_eq!(hosts.on(host, "ls ~/.cache/planaria/bin | wc -l"), "1");
        assert_eq!(hosts.on(host, "pgrep -c planaria || true"), "0");
    }
    assert_eq!(clients_of(&hosts), 0, "no ssh is left");
}

#[test]
fn the_program_goes_to_a_machine_once() {
    let Some(hosts) = Hosts::up(1, &[]) else { return };
    let (provider, run) = (Ssh::new(hosts.settings()), run("once"));
    let machine = only(&provider, &run);
    let file = format!(".cache/planaria/bin/{}/planaria", program().sha256);
    let looks = format!("stat -c '%i %Y %Z %a' {file}");
    open(&provider, &run, &machine).leave();
    let before = hosts.on(1, &looks);
    assert!(before.ends_with(" 700"), "{before}");
    open(&provider, &run, &machine).leave();
    assert_eq!(hosts.on(1, &looks), before);
    // One that was cut off on its way, or damaged since, comes again.
    hosts.on(1, &format!("truncate -s 1000 {file}"));
    open(&provider, &run, &machine).leave();
    assert_eq!(hosts.on(1, &format!("sha256sum <{file}"))[..64], program().sha256);
    // The size alone tells nothing.
    hosts.on(1, &format!("printf X | dd of={file} bs=1 seek=4096 conv=notrunc status=none"));
    open(&provider, &run, &machine).leave();
    assert_eq!(hosts.on(1, &format!("sha256sum <{file}"))[..64], program().sha256);
    hosts.on(1, &format!("rm {file}"));
    open(&provider, &run, &machine).leave();
    assert_eq!(hosts.on(1, "ls -A .cache/planaria/bin/*"), "ok\nplanaria");
}

#[test]
fn several_may_deliver_at_a_time() {
    let Some(hosts) = Hosts::up(1, &[]) else { return };
    std::thread::scope(|scope| {
        for number in 0..3 {
            let settings = hosts.settings();
            scope.spawn(move || {
                let (provider, run) = (Ssh::new(settings), run(&format!("together-{number}")));
                let machine = only(&provider, &run);
                open(&provider, &run, &machine).answers();
                provider.destroy(&run, &machine).expect("destroyed");
            });
        }
    });
    assert_eq!(hosts.on(1, "ls -A .cache/planaria/bin/*"), "ok\nplanaria");
}

#[test]
fn hosts_may_be_spelled_out_and_behind_another() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let run = run("behind");
    let mut settings = hosts.spelled_out(2);
    settings.hosts[0].user = Some("lab".into());
    settings.hosts[0].jump = Some(format!("lab@{}", hosts.address(1)));
    // Only the first host is reached from here.
    let first = hosts.address(1);
    hosts.on(2, &format!("iptables -A INPUT -p tcp --syn --dport 22 ! -s {first} -j DROP"));
    let provider = Ssh::new(settings);
    provider.check().expect("settings that can be meant");
    let machine = only(&provider, &run);
    assert_eq!(machine.handle, format!("lab@{}:22", hosts.address(2)));
    let mut host = open(&provider, &run, &machine);
    host.answers();
    assert!(host.hello.folder.starts_with("/home/lab/.cache/planaria/runs/"), "{:?}", host.hello);
    assert_eq!(host.hello.controller.as_deref(), Some(hosts.address(1).as_str()));
    // Another controller knows no more than what was written down.
    let ran = build(&provider, &run, &machine);
    assert_eq!(ran.expect("it runs").code, 0);
    provider.destroy(&run, &machine).expect("destroyed");
    host.ends(LONG);
}

#[test]
fn greetings_are_passed_over() {
    let Some(hosts) = Hosts::up(1, &[]) else { return };
    let shell =
        "#!/bin/sh\necho Welcome to this machine\necho It has rules >&2\nexec /bin/sh \"$@\"\n";
    hosts.on(1, &format!("printf '%s' '{shell}' >/bin/greeting; chmod 755 /bin/greeting"));
    hosts.on(1, "sed -i 's,^\\(root:.*\\):/bin/sh$,\\1:/bin/greeting,' /etc/passwd");
    assert!(hosts.on(1, "true").starts_with("Welcome"));
    let (provider, run) = (Ssh::new(hosts.settings()), run("greeted"));
    let machine = only(&provider, &run);
    open(&provider, &run, &machine).answers();
    let ran = build(&provider, &run, &machine);
    let ran = ran.expect("it runs");
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), planaria::BUILD);
    provider.destroy(&run, &machine).expect("destroyed");
}

/// Asks a gate for an address, and says hello: what the gate says, and what comes back.
const ASKING: &str = "import socket,sys
s=socket.socket(socket.AF_UNIX); s.settimeout(20)
try: s.connect(sys.argv[1])
except PermissionError: sys.exit(print('denied'))
a=sys.argv[2].encode(); s.sendall(bytes([len(a)])+a)
n=s.recv(1)[0]
if n: sys.exit(print(s.recv(n).decode()))
s.sendall(b'hello'); print(s.recv(5).decode())";

#[test]
fn an_isolated_machine_has_a_tunnel_to_the_run_and_for_its_user_alone() {
    let Some(hosts) = Hosts::up(1, &["--isolated"]) else { return };
    let mut settings = hosts.spelled_out(1);
    settings.hosts[0].user = Some("lab".into());
    let (provider, run) = (Ssh::new(settings), run("tunnel"));
    let machine = only(&provider, &run);
    let mut host = open(&provider, &run, &machine);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a place");
    let other = TcpListener::bind("127.0.0.1:0").expect("a place");
    let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
    let gate = Gate::default();
    let here = gate.open(port(&listener)).expect("a gate");
    let there = format!("{}/gate", host.hello.folder);
    assert_eq!(provider.tunnel(&run, &machine, &there, &here), Ok(true));
    let ask = |user: u32, port: u16| {
        let command = format!(
            "setpriv --reuid {user} --regid {user} --clear-groups python3 -c \"{ASKING}\" \
             {there} 127.0.0.1:{port}"
        );
        hosts.on(1, &command)
    };
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(7777, port(&listener)));
        let (mut link, _) = listener.accept().expect("it comes through");
        let mut said = [0; 5];
        link.read_exact(&mut said).expect("it speaks");
        assert_eq!(&said, b"hello");
        link.write_all(b"there").expect("it hears");
        asking.join().expect("an answer")
    });
    assert_eq!(answer, "there");
    // Another user of that machine gets nothing, and its own user nothing but the run.
    assert_eq!(ask(65534, port(&listener)), "denied");
    let refused = format!("no process of this run listens at `127.0.0.1:{}`", port(&other));
    assert_eq!(ask(7777, port(&other)), refused);
    assert_eq!(hosts.on(1, &format!("stat -c '%a %U' {there}")), "600 lab");
    let listening = hosts.on(1, "grep -c ' 0A ' /proc/net/tcp");
    assert_eq!(listening, "2", "sshd and the host's probe; no port leads here");
    host.answers();
    provider.destroy(&run, &machine).expect("destroyed");
    let gone = provider.tunnel(&run, &machine, &there, &here);
    assert!(gone.is_err(), "no connection, no tunnel");
}

#[test]
fn new_host_keys_are_taken_where_that_is_wished() {
    let Some(hosts) = Hosts::up(1, &[]) else { return };
    let (known, run) = (hosts.path("new_hosts"), run("new"));
    std::fs::write(&known, "").expect("a file");
    let settings = Settings {
        known_hosts: Some(known.clone()),
        host_keys: HostKeys::AcceptNew,
        ..hosts.spelled_out(1)
    };
    let provider = Ssh::new(settings);
    let machine = only(&provider, &run);
    open(&provider, &run, &machine).leave();
    let text = std::fs::read_to_string(known).expect("a file");
    assert!(text.contains("ssh-ed25519"), "{text}");
}

#[test]
fn a_machine_whose_link_is_cut_is_lost_and_found_again() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let (provider, run) = (Ssh::new(hosts.settings()), run("cut"));
    let machine = only(&provider, &run);
    let host = open(&provider, &run, &machine);
    hosts.tell("cut", 1);
    // The client asks every five seconds, three times.
    host.ends(LONG);
    let fault = provider.destroy(&run, &machine).expect_err("out of reach");
    assert_eq!(fault.remedy, planaria_fleet::provider::Remedy::Retry, "{fault}");
    let fault = provider.list(&run).expect_err("out of reach");
    assert_eq!(fault.machine, "h1");
    hosts.tell("heal", 1);
    // Its host may still run there, as it does not know yet.
    provider.destroy(&run, &machine).expect("destroyed");
    assert_eq!(provider.list(&run).expect("a list"), []);
    assert_eq!(hosts.on(1, "pgrep -c planaria || true"), "0");
}

#[test]
fn ansible_is_told_how_to_get_there() {
    let host = ssh::Host {
        user: Some("lab".into()),
        port: Some(2222),
        key: Some("/keys/lab".into()),
        ..ssh::Host::new("10.0.0.2")
    };
    let provider = Ssh::new(Settings { hosts: vec![host.clone()], ..Settings::default() });
    let line = provider.inventory(&ssh::machine(&host));
    let begins =
        "ansible_host=10.0.0.2 ansible_user=lab ansible_port=2222 ansible_ssh_common_args=\"";
    assert!(line.starts_with(begins) && line.contains(" -i /keys/lab"), "{line}");
}

/// Clients of these hosts that still run.
fn clients_of(hosts: &Hosts) -> usize {
    let config = hosts.path("ssh_config").display().to_string();
    let mut count = 0;
    for entry in std::fs::read_dir("/proc").expect("processes").flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        count += usize::from(String::from_utf8_lossy(&line).contains(&config));
    }
    count
}

/// What tests of scripts build on.
#[test]
fn python_of_this_machine_on_hosts() {
    let Some(python) = Python::find() else { return };
    let Some(hosts) = Hosts::up(2, &python.options()) else { return };
    let command = format!("{} -c 'import numpy; print(numpy.ones(3).sum())'", python.program);
    assert_eq!(hosts.on(1, &command).trim(), "3.0");
    hosts.tell("kill", 2);
    hosts.tell("start", 2);
    assert_eq!(hosts.on(2, &command).trim(), "3.0", "also when it is back");
    assert!(hosts.on(2, "getent hosts h1").contains(&hosts.address(1)));
}
