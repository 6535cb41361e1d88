//! `planaria agent host RUN`: the one process of a controller on a machine of its pool.
//!
//! Owns what the machine is; the work is in [`planaria_fleet::host::serve`]. Its standard input and
//! output are the channel, so nothing else may write to them.

use crate::clock::{self, SystemClock};
use crate::failure::{Context, Failure, Result};
use crate::memory;
use planaria_fleet::host::serve::{self, Setting};
use planaria_fleet::host::tasks::user_home;
use planaria_fleet::host::words::{Hello, VERSION};
use planaria_fleet::local::OWN;
use planaria_fleet::program::FOLDER;
use planaria_fleet::provider::is_name;
use std::ffi::{CStr, CString};
use std::fs::read_to_string;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Serves a controller until it is gone.
pub fn run(run: &str) -> Result<()> {
    if !is_name(run) {
        return Err(Failure::user(format!("`{run}` cannot be the name of a run")));
    }
    let home = user_home().join(FOLDER);
    std::fs::create_dir_all(&home).context(|| format!("cannot create `{}`", home.display()))?;
    let hello = hello(&home);
    let setting = Setting { program: OWN.into(), run: run.to_owned(), home, hello };
    let served = serve::run(setting, std::io::stdin(), std::io::stdout(), &SystemClock::start());
    served.context(|| "cannot serve as a host".into())
}

fn hello(home: &Path) -> Hello {
    let (controller, own) = ssh_connection();
    let others = interfaces().into_iter().filter(|address| Some(address) != own.as_ref());
    let addresses = own.iter().cloned().chain(others).collect();
    Hello {
        version: VERSION,
        build: crate::BUILD.into(),
        pid: std::process::id(),
        hostname: read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().into(),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        memory_bytes: memory::total_bytes().unwrap_or(0),
        disk_free_bytes: disk_free_bytes(home).unwrap_or(u64::MAX),
        unix_seconds: clock::unix_seconds(),
        addresses,
        controller: controller.or_else(gateway),
        folder: String::new(),
    }
}

/// The addresses of both ends, as sshd tells them: `client port server port`.
fn ssh_connection() -> (Option<String>, Option<String>) {
    let text = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let words: Vec<&str> = text.split(' ').collect();
    let address = |word: Option<&&str>| word?.parse::<IpAddr>().ok().map(|a| a.to_string());
    (address(words.first()), address(words.get(2)))
}

/// The IPv4 addresses of this machine that others may reach.
pub fn interfaces() -> Vec<String> {
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
fn gateway() -> Option<String> {
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
