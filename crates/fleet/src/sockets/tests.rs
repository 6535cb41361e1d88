//! Real sockets of this process and of children.

use super::ports::Given;
use super::table::{meets, parse, peers};
use crate::messages::questions::{Meeting, PeerState, Taken};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[test]
fn lines_of_the_table_are_read() {
    let line = "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 \
                       0 28523 1 0000000000000000 100 0 0 10 0";
    let socket = parse(line).unwrap();
    assert_eq!((socket.local_port, socket.remote_port), (8080, 0));
    assert!(socket.listens && socket.state.is_none());
    assert_eq!(socket.inode, 28523);
    for bad in ["", "sl  local_address rem_address   st", "1: x y z"] {
        assert_eq!(parse(bad), None, "{bad}");
    }
}

#[test]
fn free_ports_can_be_used_and_come_once() {
    let (mut one, mut other) = (Given::default(), Given::default());
    let (mut ports, taken) = one.give(50, &[]);
    assert!(taken.is_empty());
    ports.extend(other.give(50, &[]).0);
    let sorted: std::collections::BTreeSet<u16> = ports.iter().copied().collect();
    assert_eq!(sorted.len(), 100, "no port comes twice, also from another host");
    for port in &ports {
        assert!((20_000..=32_000).contains(port));
        drop(TcpListener::bind(("0.0.0.0", *port)).expect("it is free"));
    }
    let again = other.give(0, &ports[..1]);
    assert!(again.0.is_empty(), "{again:?}");
    one.release(&ports[..1]);
    // For a moment, children that other tests start have its mark too.
    let is_given = (0..200).any(|_| {
        std::thread::park_timeout(Duration::from_millis(10));
        other.give(0, &ports[..1]).0 == ports[..1]
    });
    assert!(is_given, "port {} was released", ports[0]);
}

#[test]
fn it_is_told_who_has_a_port() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (free, taken) = Given::default().give(1, &[port]);
    assert_eq!(free.len(), 1);
    let [Taken { port: told, by: Some((pid, name)) }] = &taken[..] else { panic!("{taken:?}") };
    assert_eq!((*told, *pid), (port, std::process::id()));
    assert!(!name.is_empty());
}

/// A shell whose child has a socket.
struct Family(Child);

impl Family {
    fn start(python: &str) -> (Self, String) {
        let command = format!("python3 -c '{python}'; true");
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Self(child), line.trim().to_owned())
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        // The end of its standard input ends it.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_grandchild_that_listens_has_met() {
    let (family, port) = Family::start(
        "import socket,sys; s=socket.socket(); s.bind((\"127.0.0.1\",0)); s.listen(); \
         print(s.getsockname()[1],flush=True); sys.stdin.read()",
    );
    let (root, port): (u32, u16) = (family.0.id(), port.parse().unwrap());
    assert!(meets(root, port, Meeting::Listens));
    assert!(!meets(root, port, Meeting::Connects), "no process is connected");
    assert!(!meets(root, port.wrapping_add(1), Meeting::Listens));
    let (other, _) = Family::start("print(1,flush=True); import sys; sys.stdin.read()");
    assert!(!meets(other.0.id(), port, Meeting::Listens), "another's socket");
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert!(meets(std::process::id(), port, Meeting::Connects));
    drop(stream);
}

#[test]
fn a_grandchild_that_is_connected_has_met() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (family, _) = Family::start(&format!(
        "import socket,sys; s=socket.create_connection((\"127.0.0.1\",{port})); \
         print(1,flush=True); sys.stdin.read()"
    ));
    assert!(meets(family.0.id(), port, Meeting::Connects));
    assert!(!meets(family.0.id(), port, Meeting::Listens));
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"unheard").unwrap();
    let (theirs, _) = peers(family.0.id());
    let [theirs] = theirs[..] else { panic!("{theirs:?}") };
    assert_eq!((theirs.remote_port, theirs.state), (port, PeerState::Connected));
    assert_eq!(theirs.unread_bytes, 7);
    drop(stream);
    let (theirs, _) = peers(family.0.id());
    assert_eq!(theirs[0].state, PeerState::Closed);
    assert!(!meets(4_000_000_000, port, Meeting::Connects), "there is no such process");
}
