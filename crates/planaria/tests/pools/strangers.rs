//! A caller without a certificate of a run on several machines gets nothing and disturbs no
//! process.

use crate::hosts::Hosts;
use crate::support::eventually;
use crate::support::pooled::{
    EPOCHS, ends_well, expected, hosts_are_clean, ssh, weights, workspace,
};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What a stranger hears who says this.
fn plain(address: &str, words: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the run is under way");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time-out");
    // It may be turned away, or reset, at any time.
    let _ = stream.write_all(words);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    heard
}

/// What comes out of a TLS connection that is made so.
fn sealed(address: &str, more: &[&str]) -> Vec<u8> {
    let mut client = Command::new("timeout");
    client.args(["10", "openssl", "s_client", "-quiet", "-connect", address]).args(more);
    let mut client = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs");
    let mut stdin = client.stdin.take().expect("a pipe");
    let _ = stdin.write_all(b"PLNR\x01\x00 let me in, let me in, let me in\n");
    let output = client.wait_with_output().expect("it ends");
    drop(stdin);
    output.stdout
}

fn other_authority(folder: &Path) -> [String; 2] {
    let [key, certificate] = ["key.pem", "cert.pem"].map(|n| folder.join(n).display().to_string());
    let mut make = Command::new("openssl");
    make.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    make.args(["-nodes", "-days", "2", "-subj", "/CN=worker-0"]);
    make.args(["-keyout", &key, "-out", &certificate]).stderr(Stdio::null());
    assert!(make.status().expect("openssl runs").success());
    [key, certificate]
}

#[test]
fn strangers_get_nothing_and_leave_one_line() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let workspace = workspace(&ssh(&hosts, "h1, h2", 2), EPOCHS, "");
    let [key, certificate] = other_authority(&workspace.path("home"));
    let mut training = workspace.start(&["train", "pool.yaml", "--json"], &[]);
    workspace.hears(&mut training, "h1: ready");
    let run = workspace.run();
    let mut address = String::new();
    eventually("the control file", || {
        let text = fs::read(run.join("control.json")).unwrap_or_default();
        let control: Value = serde_json::from_slice(&text).unwrap_or_default();
        address = control["address"].as_str().unwrap_or_default().to_owned();
        !address.is_empty()
    });
    for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PLNR\x01\x00 let me in", b""] {
        let heard = plain(&address, words);
        // An alert of TLS, at most.
        assert!(heard.len() <= 7, "{heard:?}");
    }
    for more in [&[][..], &["-key", &key, "-cert", &certificate], &["-tls1_2"]] {
        assert_eq!(sealed(&address, more), b"", "{more:?}");
    }
    let report = ends_well(&workspace, training);
    assert_eq!(weights(&report), expected());
    let log = fs::read_to_string(run.join("logs/coordinator.log")).expect("a log");
    assert_eq!(log.matches("refused a connection: 127.0.0.1:").count(), 1, "{log}");
    hosts_are_clean(&hosts, &[1, 2], &run);
}
