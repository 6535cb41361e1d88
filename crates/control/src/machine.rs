//! What this machine is: its addresses, its way out, and its free space.

use std::ffi::{CStr, CString};
use std::fs::read_to_string;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::ffi::OsStrExt;
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
    let mut found = Vec::new();
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call fills in the list, which is walked and given back below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return found;
    }
    let mut entry = list;
    while !entry.is_null() {
        // SAFETY: every entry of the list is whole until it is given back; an address of this
        // family is a `sockaddr_in`.
        unsafe {
            let address = (*entry).ifa_addr;
            if !address.is_null() && i32::from((*address).sa_family) == libc::AF_INET {
                let address = &*address.cast::<libc::sockaddr_in>();
                let address = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
                if !address.is_loopback() && !address.is_link_local() {
                    found.push(address.to_string());
                }
            }
            entry = (*entry).ifa_next;
        }
    }
    // SAFETY: the list came from `getifaddrs`, and nothing of it is kept.
    unsafe { libc::freeifaddrs(list) };
    found
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
    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    let path: &CStr = &path;
    // SAFETY: all zeros is a valid `statvfs`, and the call only writes to it.
    let found = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut found) == 0).then_some(found)
    }?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}
