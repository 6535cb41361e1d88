//! Who listens where, who can read the secret, and what strangers can do: nothing.

use crate::live::{Live, figures, logs, place, until};
use crate::resuming::undisturbed;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// Addresses that a process listens on, from the system's tables: address in hexadecimal, and port.
pub fn listening(pid: u32) -> Vec<(String, u16)> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let own: BTreeSet<String> = links
        .filter_map(|e| fs::read_link(e.path()).ok())
        .filter_map(|to| {
            let to = to.to_str()?.to_owned();
            Some(to.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let mut found = Vec::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let listens = fields[3] == "0A" || table.starts_with("udp");
            if listens && own.contains(fields[9]) {
                let (address, port) = fields[1].split_once(':').unwrap();
                found.push((address.to_owned(), u16::from_str_radix(port, 16).unwrap()));
            }
        }
    }
    found
}

/// The control file, once it is there.
pub fn control(run: &Path) -> Value {
    until("the control file", || {
        serde_json::from_slice(&fs::read(run.join("control.json")).ok()?).ok()
    })
}

fn all_files(folder: &Path, see: &mut impl FnMut(&Path, Vec<u8>)) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => all_files(&entry.path(), see),
            kind if kind.is_file() => {
                see(&entry.path(), fs::read(entry.path()).unwrap_or_default())
            }
            _ => {}
        }
    }
}

#[test]
fn only_this_machine_is_listened_to_and_the_secret_stays_hidden() {
    let place = place();
    let mut live = Live::train(&place, &["--set", "train.epochs=1000"]);
    live.reach(1, 10);
    let control = control(&live.run);
    let mode = fs::metadata(live.run.join("control.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = control["secret"].as_str().unwrap().to_owned();
    assert_eq!(secret.len(), 64);
    let processes = live.processes();
    assert_eq!(processes.len(), 6);
    for process in &processes {
        let ports = listening(process.pid);
        assert!(ports.iter().all(|(address, _)| address == "0100007F"), "{process:?} {ports:?}");
        let expected = usize::from(process.role != "worker");
        assert_eq!(ports.len(), expected, "{process:?} {ports:?}");
        for file in ["cmdline", "environ"] {
            let text = fs::read(format!("/proc/{}/{file}", process.pid)).unwrap();
            assert!(!contains(&text, secret.as_bytes()), "{process:?} {file}");
        }
    }
    // The command holds the coordinator's port, so that no other program takes it meanwhile.
    let coordinator = processes.iter().find(|process| process.role == "coordinator").unwrap();
    assert_eq!(listening(live.pid()), listening(coordinator.pid));
    live.signal("TERM");
    let output = live.end();
    assert_eq!(output.status.code(), Some(130));
    assert!(!contains(&output.stderr, secret.as_bytes()));
    assert!(!live.run.join("control.json").exists());
    let mut seen = 0;
    all_files(&live.run, &mut |path, content| {
        seen += 1;
        assert!(!contains(&content, secret.as_bytes()), "{}", path.display());
    });
    assert!(seen > 5, "{seen}");
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|w| w == part)
}

#[test]
fn strangers_change_nothing_and_leave_a_line_for_their_address() {
    let place = place();
    let more = ["--set", "train.epochs=60"];
    let expected = undisturbed(&place, &more);
    let mut live = Live::train(&place, &more);
    live.reach(1, 5);
    let door = |role: &str, index: &str| listening(live.process(role, index).pid)[0].1;
    let mut visits = 0;
    let mut open = Vec::new();
    for port in [door("coordinator", ""), door("server", "0"), door("server", "1")] {
        let knock = || TcpStream::connect(("127.0.0.1", port)).expect("the run is under way");
        let mut hello = b"PLNR\x01\x00".to_vec();
        hello.extend([7; 32]);
        let proof = [&hello[..], &[9; 32]].concat();
        for said in [
            &b"\xff\xfe garbage \x00\x01 that is long enough to be a hello......"[..],
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n",
            &hello[..20],
            &proof,
            b"",
        ] {
            let mut stream = knock();
            // It may have been turned away already.
            let _ = stream.write_all(said).and_then(|()| stream.shutdown(Shutdown::Write));
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut answer = Vec::new();
            // It may also be reset.
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.len() <= 46, "a stranger hears a hello at most: {}", answer.len());
            visits += 1;
        }
        // Silent ones stay.
        open.extend((0..100).map(|_| knock()));
    }
    let output = live.end();
    assert!(output.status.success(), "{}", crate::binary::talk(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(figures(&report), figures(&expected));
    let refused = |(_, log): &(String, String)| log.matches("refused a connection").count();
    let lines: Vec<usize> = logs(&live.run).iter().map(refused).filter(|n| *n > 0).collect();
    // One of those who are no planaria, one of another version; and their counts, ten and a hundred.
    assert_eq!(lines.len(), 3, "{:?}", logs(&live.run));
    assert!(lines.iter().all(|lines| (2..=4).contains(lines)), "{lines:?} for {visits} visits");
}
