//! What this machine is: its addresses, its way out, and its free space.

use planaria_fleet::sockets;
use std::fs::read_to_string;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;

/// The IPv4 addresses of this machine that others may reach, first the one that it goes out by:
/// bridges of containers come and go.
pub fn interfaces() -> Vec<String> {
    let outward = outward();
    let others = all_interfaces().into_iter().filter(|address| Some(address) != outward.as_ref());
    outward.iter().cloned().chain(others).collect()
}

/// The address that is used towards other networks, if there is a way to any. Nothing is sent.
fn outward() -> Option<String> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    // An address that documents may use (RFC 5737), and no machine has.
    socket.connect(("203.0.113.1", 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then(|| address.to_string())
}

fn all_interfaces() -> Vec<String> {
    let others = |address: &Ipv4Addr| !address.is_loopback() && !address.is_link_local();
    let addresses = sockets::interfaces().into_iter().map(|interface| interface.address);
    addresses.filter(others).map(|address| address.to_string()).collect()
}

/// The machine that leads elsewhere: for a container, the one it runs on.
pub fn gateway() -> Option<String> {
    let table = read_to_string("/proc/net/route").ok()?;
    let line = table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()? == "00000000").then(|| words.next()).flatten()
    })?;
    let address = u32::from_str_radix(line, 16).ok()?;
    Some(Ipv4Addr::from(address.to_le_bytes()).to_string())
}

/// Free space where a folder is.
pub fn disk_free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}
