//! Hosts as their owners keep them: a clock that is off, packages that come from somewhere.

use crate::hosts::Hosts;
use crate::support::pooled::{
    EPOCHS, ends_well, expected, hosts_are_clean, ssh, weights, workspace,
};

/// Where Debian puts it.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

#[test]
fn a_clock_that_is_off_is_told_of_and_changes_nothing() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    if !std::path::Path::new(FAKETIME).exists() {
        assert!(std::env::var_os("PLANARIA_REQUIRE_HOSTS").is_none(), "install libfaketime");
        return;
    }
    // Whatever root starts on the host lives in another hour; sshd does not.
    hosts.on(
        2,
        &format!(
            "printf '#!/bin/sh\\nLD_PRELOAD={FAKETIME} FAKETIME=-90m exec /bin/sh \"$@\"\\n' \
             >/usr/local/bin/late && chmod 755 /usr/local/bin/late && \
             sed -i 's,^\\(root:.*\\):/bin/sh$,\\1:/usr/local/bin/late,' /etc/passwd"
        ),
    );
    let one = workspace(&ssh(&hosts, "h1, h2", 2), EPOCHS, "");
    let training = one.start(&["train", "pool.yaml", "--json"], &[]);
    assert_eq!(weights(&ends_well(&one, training)), expected());
    let said = one.said();
    let told: Vec<&str> = said.lines().filter(|line| line.contains("its clock is")).collect();
    assert_eq!(told.len(), 1, "{said}");
    assert!(told[0].contains("h2: its clock is 5") && told[0].contains(" s behind"), "{said}");
    assert!(said.contains("on h2 ("), "it trains all the same: {said}");
    hosts_are_clean(&hosts, &[1, 2], &one.run());
}

/// The same for programs of several threads.
const FAKETIME_THREADS: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

#[test]
fn clocks_that_jump_by_days_hang_nothing() {
    if !std::path::Path::new(FAKETIME_THREADS).exists() {
        assert!(std::env::var_os("PLANARIA_REQUIRE_HOSTS").is_none(), "install libfaketime");
        return;
    }
    // All clocks of all processes, the monotonic one too, say what is in this file.
    for (first, second) in [("+10d", "-10d"), ("-10d", "+10d")] {
        let one = workspace("{workers: 2, servers: 1}", EPOCHS, "");
        one.put("clock", "+0");
        let clock = one.path("clock").display().to_string();
        let all = [
            ("LD_PRELOAD", FAKETIME_THREADS),
            ("FAKETIME_TIMESTAMP_FILE", &clock),
            ("FAKETIME_NO_CACHE", "1"),
        ];
        let mut training = one.start(&["train", "pool.yaml", "--json"], &all);
        one.reaches(&mut training, 2);
        one.put("clock", first);
        one.reaches(&mut training, 20);
        one.put("clock", second);
        assert_eq!(weights(&ends_well(&one, training)), expected(), "{first}, then {second}");
    }
}

/// A repository of one package, in a folder of the host; nothing else is known there.
const REPOSITORY: &str = r#"
set -e
mkdir -p /srv/repo/pack/DEBIAN /srv/repo/pack/usr/bin
cd /srv/repo
fields='Package: greeter
Version: 1.0
Architecture: all
Maintainer: tests <tests@localhost>
Description: says hello
'
printf '%s' "$fields" >pack/DEBIAN/control
printf '#!/bin/sh\necho hello from a package\n' >pack/usr/bin/greeter
chmod 755 pack/usr/bin/greeter
dpkg-deb --root-owner-group -b pack greeter.deb >/dev/null
{ printf '%s' "$fields"; printf 'Filename: ./greeter.deb\nSize: %s\nSHA256: %s\n' \
  "$(stat -c %s greeter.deb)" "$(sha256sum greeter.deb | cut -d' ' -f1)"; } >Packages
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /var/lib/apt/lists/*
echo 'deb [trusted=yes] file:/srv/repo ./' >/etc/apt/sources.list
"#;

#[test]
fn packages_are_installed_on_hosts_once() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    for host in 1..=2 {
        hosts.on(host, REPOSITORY);
    }
    let setup = "setup: [{apt: [greeter]}, {check: 'greeter | grep -q package'}]";
    let one = workspace(&ssh(&hosts, "h1, h2", 2), EPOCHS, setup);
    let training = one.start(&["train", "pool.yaml", "--json"], &[]);
    assert_eq!(weights(&ends_well(&one, training)), expected());
    for host in 1..=2 {
        assert_eq!(hosts.on(host, "greeter"), "hello from a package");
        let log = std::fs::read_to_string(one.run().join(format!("logs/setup-h{host}.log")));
        assert!(log.expect("a log").contains("Setting up greeter (1.0)"));
    }
    hosts_are_clean(&hosts, &[1, 2], &one.run());

    // The step was done already; what it needs may be gone.
    hosts.on(1, "rm /srv/repo/greeter.deb");
    hosts.on(2, "rm /srv/repo/greeter.deb");
    let again = workspace(&ssh(&hosts, "h1, h2", 2), EPOCHS, setup);
    let training = again.start(&["train", "pool.yaml", "--json"], &[]);
    assert_eq!(weights(&ends_well(&again, training)), expected());
    let log = std::fs::read_to_string(again.run().join("logs/setup-h1.log")).expect("a log");
    assert!(!log.contains("Setting up greeter"), "{log}");

    let wrong = workspace(&ssh(&hosts, "h1, h2", 2), 3, "setup: [{apt: [no-such-package]}]");
    let output = wrong.start(&["train", "pool.yaml"], &[]).end();
    assert_eq!(output.status.code(), Some(1), "{}", wrong.said());
    let said = wrong.said();
    assert!(
        said.contains("step 1 `apt no-such-package`") && said.contains("Unable to locate"),
        "{said}"
    );
    hosts_are_clean(&hosts, &[1, 2], &wrong.run());
}
