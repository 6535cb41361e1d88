//! A machine's network interfaces.

use std::ffi::CStr;
use std::net::Ipv4Addr;

/// An interface and one of its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub address: Ipv4Addr,
}

/// All interfaces that have an IPv4 address.
pub fn interfaces() -> Vec<Interface> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call fills in the list, which is walked and given back below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Vec::new();
    }
    let (mut entry, mut found) = (list, Vec::new());
    while !entry.is_null() {
        // SAFETY: every entry of the list is whole until it is given back; an address of this
        // family is a `sockaddr_in`, and a name ends with a zero.
        unsafe {
            let address = (*entry).ifa_addr;
            if !address.is_null() && i32::from((*address).sa_family) == libc::AF_INET {
                let address = &*address.cast::<libc::sockaddr_in>();
                let address = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
                let name = CStr::from_ptr((*entry).ifa_name).to_string_lossy().into_owned();
                found.push(Interface { name, address });
            }
            entry = (*entry).ifa_next;
        }
    }
    // SAFETY: the list came from `getifaddrs`, and nothing of it is kept.
    unsafe { libc::freeifaddrs(list) };
    found
}
