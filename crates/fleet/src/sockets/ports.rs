//! Free ports of this machine.
//!
//! Owns those that were given out: each is marked by a name of its own in the machine's network, so
//! that no other host of the same network gives it out too, and the mark is gone with its
//! host. A port is free when it can be bound on all addresses.

use super::table;
use crate::messages::questions::Taken;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Ports that are given out.
const RANGE: RangeInclusive<u16> = 20_000..=32_000;
/// Ports that are tried for each that is asked for.
const TRIES: usize = 400;
/// Ports that may be asked for at a time.
const COUNT_MAX: u16 = 1024;

/// Ports that were given out.
#[derive(Default)]
pub struct Given(BTreeMap<u16, UnixDatagram>);

impl Given {
    /// Of the wanted ports those that are free, then so many others; and those that are taken. Fewer
    /// than were asked for where there are no more.
    pub fn give(&mut self, count: u16, wanted: &[u16]) -> (Vec<u16>, Vec<Taken>) {
        let (mut free, mut taken) = (Vec::new(), Vec::new());
        for port in wanted {
            match self.take(*port) {
                true => free.push(*port),
                false => taken.push(Taken { port: *port, by: self.holder(*port) }),
            }
        }
        let avoided = ephemeral().filter(|range| {
            // Where the system may use all of them for itself there is nothing better.
            RANGE.clone().any(|port| !range.contains(&port))
        });
        let end = free.len() + usize::from(count.min(COUNT_MAX));
        for _ in 0..usize::from(count.min(COUNT_MAX)) * TRIES {
            if free.len() == end {
                break;
            }
            let port = random();
            let is_avoided = avoided.as_ref().is_some_and(|range| range.contains(&port));
            if !is_avoided && !free.contains(&port) && self.take(port) {
                free.push(port);
            }
        }
        (free, taken)
    }

    /// These may be given to others.
    pub fn release(&mut self, ports: &[u16]) {
        for port in ports {
            self.0.remove(port);
        }
    }

    fn take(&mut self, port: u16) -> bool {
        if port == 0 || self.0.contains_key(&port) {
            return false;
        }
        let Ok(mark) = mark(port) else { return false };
        let is_free = is_free(port);
        if is_free {
            self.0.insert(port, mark);
        }
        is_free
    }

    /// Which process has a port. One that was given out counts as ours.
    fn holder(&self, port: u16) -> Option<(u32, String)> {
        table::holder(port).or_else(|| {
            self.0.contains_key(&port).then(|| (std::process::id(), "planaria".to_owned()))
        })
    }
}

/// A name that only one process in this network can have at a time.
fn mark(port: u16) -> io::Result<UnixDatagram> {
    let name = format!("planaria-port-{port}");
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

fn is_free(port: u16) -> bool {
    let (v4, v6) = (Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED);
    let is_taken = |bound: io::Result<TcpListener>| match bound {
        Ok(_) => false,
        // Of addresses that the machine does not have nothing can be taken.
        Err(e) => !matches!(
            e.raw_os_error(),
            Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL | libc::EPROTONOSUPPORT)
        ),
    };
    !is_taken(TcpListener::bind((v4, port))) && !is_taken(TcpListener::bind((v6, port)))
}

/// Ports that the system takes for connections.
fn ephemeral() -> Option<RangeInclusive<u16>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut numbers = text.split_whitespace().map(str::parse);
    Some(numbers.next()?.ok()?..=numbers.next()?.ok()?)
}

/// Any port of the range. Which does not matter, only that hosts do not all begin with the same.
fn random() -> u16 {
    let any = RandomState::new().build_hasher().finish();
    RANGE.start() + (any % u64::from(RANGE.end() - RANGE.start() + 1)) as u16
}
