//! The kernel's table of sockets, and which processes they belong to.
//!
//! Owns reading `/proc`. What another user's processes have open cannot be seen without being root.

use crate::messages::questions::{Meeting, Peer, PeerState};
use crate::process;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// Connections of one process that are told at most.
const PEERS_MAX: usize = 4096;
/// Looks at whether a process computes, and the pause between them.
const BUSY_LOOKS: u32 = 4;
const BUSY_EVERY: Duration = Duration::from_millis(15);

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    pub local_port: u16,
    pub remote_port: u16,
    /// Whether a process listens on it.
    pub listens: bool,
    /// How it stands, where it is a connection.
    pub state: Option<PeerState>,
    /// Bytes that have come, and that no process has read.
    pub unread_bytes: u32,
    /// What processes know it by; 0 where none does any more.
    pub inode: u64,
}

/// Whether a process, or one that came of it, has met others on a port.
pub fn meets(root: u32, port: u16, meeting: Meeting) -> bool {
    let family = std::iter::once(root).chain(process::below(root, &process::all()));
    any_meets(family, port, meeting)
}

/// Whether a process that came of this one listens on a port.
pub fn child_listens(port: u16) -> bool {
    let children = process::below(std::process::id(), &process::all());
    any_meets(children.into_iter(), port, Meeting::Listens)
}

fn any_meets(mut family: impl Iterator<Item = u32>, port: u16, meeting: Meeting) -> bool {
    let mut tables: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    family.any(|pid| {
        // Processes may be in networks of their own; those in one network share a table.
        let Ok(network) = fs::read_link(format!("/proc/{pid}/ns/net")) else { return false };
        let network = network.display().to_string();
        let matching = tables.entry(network).or_insert_with(|| {
            let is_met = |socket: &Socket| match meeting {
                Meeting::Listens => socket.listens && socket.local_port == port,
                Meeting::Connects => {
                    socket.state == Some(PeerState::Connected)
                        && [socket.local_port, socket.remote_port].contains(&port)
                }
            };
            sockets(&format!("/proc/{pid}/net"))
                .into_iter()
                .filter(is_met)
                .map(|s| s.inode)
                .collect()
        });
        !matching.is_empty() && inodes(pid).iter().any(|inode| matching.contains(inode))
    })
}

/// Connections of a process and of those that came of it, and whether any of them computes now.
pub fn peers(root: u32) -> (Vec<Peer>, bool) {
    let family: Vec<u32> =
        std::iter::once(root).chain(process::below(root, &process::all())).collect();
    let mut found = Vec::new();
    for &pid in &family {
        let own = inodes(pid);
        let sockets = sockets(&format!("/proc/{pid}/net")).into_iter();
        found.extend(sockets.filter(|socket| own.contains(&socket.inode)).filter_map(|socket| {
            let Socket { local_port, remote_port, unread_bytes, .. } = socket;
            Some(Peer { local_port, remote_port, state: socket.state?, unread_bytes })
        }));
    }
    found.truncate(PEERS_MAX);
    // One that only wakes up for a moment runs at one look, not at all of them.
    let is_busy = (0..BUSY_LOOKS).all(|look| {
        if look > 0 {
            std::thread::park_timeout(BUSY_EVERY);
        }
        family.iter().any(|pid| is_running(*pid))
    });
    (found, is_busy)
}

fn is_running(pid: u32) -> bool {
    // The state stands behind the name, which may have brackets in it.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}

/// The process that listens on a port of this machine, or has it otherwise, and what it is called.
pub fn holder(port: u16) -> Option<(u32, String)> {
    let mut held: Vec<Socket> = sockets("/proc/net")
        .into_iter()
        .filter(|socket| socket.local_port == port && socket.inode != 0)
        .collect();
    held.sort_by_key(|socket| !socket.listens);
    let wanted: BTreeSet<u64> = held.iter().map(|socket| socket.inode).collect();
    if wanted.is_empty() {
        return None;
    }
    let mut pids = process::all().into_iter().map(|one| one.pid);
    let pid = pids.find(|pid| !inodes(*pid).is_disjoint(&wanted))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some((pid, name.trim().to_owned()))
}

fn sockets(folder: &str) -> Vec<Socket> {
    let read = |name| fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
    [read("tcp"), read("tcp6")].iter().flat_map(|text| text.lines().filter_map(parse)).collect()
}

/// `sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …`
pub fn parse(line: &str) -> Option<Socket> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let port = |word: &str| u16::from_str_radix(word.rsplit_once(':')?.1, 16).ok();
    let state = u8::from_str_radix(words.get(3)?, 16).ok()?;
    Some(Socket {
        local_port: port(words.get(1)?)?,
        remote_port: port(words.get(2)?)?,
        // The kernel's `tcp_states.h`: `TCP_LISTEN`, `TCP_ESTABLISHED`, `TCP_SYN_SENT`, `TCP_CLOSE_WAIT`.
        listens: state == 10,
        state: match state {
            1 => Some(PeerState::Connected),
            2 => Some(PeerState::Connecting),
            8 => Some(PeerState::Closed),
            _ => None,
        },
        unread_bytes: u32::from_str_radix(words.get(4)?.split_once(':')?.1, 16).ok()?,
        inode: words.get(9)?.parse().ok()?,
    })
}

/// The sockets that a process has open.
fn inodes(pid: u32) -> BTreeSet<u64> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let number = |link: std::path::PathBuf| {
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    open.filter_map(|entry| number(fs::read_link(entry.path()).ok()?)).collect()
}
