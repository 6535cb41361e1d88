//! The bridge that containers are on, where it is one of this machine.
//!
//! Owns the remark on one whose hardware address changes with its containers. Never changes it.

use planaria_store::hash::sha256;
use std::fs;
use std::path::Path;

/// Where the kernel tells of network devices.
pub const DEVICES: &str = "/sys/class/net";
/// `addr_assign_type` of a device whose address was given to it, and stays.
const GIVEN: &str = "3";

/// What people should know of a bridge, by the kernel's word in `devices`; nothing where it is in order, or
/// of another machine.
pub fn remark(devices: &Path, bridge: &str) -> Option<String> {
    let read = |name: &str| fs::read_to_string(devices.join(bridge).join(name)).ok();
    let (kind, address) = (read("addr_assign_type")?, read("address")?);
    (kind.trim() != GIVEN).then(|| {
        format!(
            "warning: the hardware address of the engine's bridge `{bridge}` is that of a container, and \
             changes when that one goes: others then reach this machine only after up to half a minute; \
             `ip link set {bridge} address {}` keeps it",
            lasting(bridge, address.trim())
        )
    })
}

/// An address that may be given to a bridge: its own where that is one of those for local use, else one
/// that follows from its name.
fn lasting(bridge: &str, address: &str) -> String {
    let first = address.split(':').next().and_then(|byte| u8::from_str_radix(byte, 16).ok());
    // The bit for local use is set, that of groups is not.
    if first.is_some_and(|first| first & 0b11 == 0b10) {
        return address.to_owned();
    }
    let hash = sha256(bridge.as_bytes());
    format!("02:42:{:02x}:{:02x}:{:02x}:{:02x}", hash[0], hash[1], hash[2], hash[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_with_the_address_of_a_container_is_told_of() {
        let devices = tempfile::tempdir().unwrap();
        assert_eq!(remark(devices.path(), "docker0"), None, "it is elsewhere");
        fs::create_dir(devices.path().join("docker0")).unwrap();
        let put = |name: &str, text: &str| {
            fs::write(devices.path().join("docker0").join(name), text).unwrap();
        };
        put("address", "02:42:ac:11:00:02\n");
        put("addr_assign_type", "3\n");
        assert_eq!(remark(devices.path(), "docker0"), None);
        put("addr_assign_type", "1\n");
        let said = remark(devices.path(), "docker0").unwrap();
        assert!(said.contains("`ip link set docker0 address 02:42:ac:11:00:02`"), "{said}");
        // Of a bridge without containers, or with a card on it.
        for address in ["00:00:00:00:00:00\n", "00:1b:21:3a:00:02\n", "33:33:00:00:00:01\n"] {
            put("address", address);
            let said = remark(devices.path(), "docker0").unwrap();
            assert!(said.contains("address 02:42:") && !said.contains(address.trim()), "{said}");
        }
    }
}
