//! The graphics processors of a machine.
//!
//! Owns counting them, as the kernel's driver and its devices tell. Never asks the driver to start.

use std::fs;
use std::path::Path;

/// How many of NVIDIA's there are, for processes of this one's kind: in a container only those that
/// were given to it.
pub fn count() -> u32 {
    count_in(Path::new("/dev"), Path::new("/proc/driver/nvidia/gpus"))
}

fn count_in(devices: &Path, driver: &Path) -> u32 {
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
    };
    let is_number = |name: &String| {
        name.strip_prefix("nvidia").is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let devices = names(devices).iter().filter(|name| is_number(name)).count();
    // The devices are made when they are first used; the driver knows of them before.
    let known = if devices > 0 { devices } else { names(driver).len() };
    u32::try_from(known).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_counted_and_else_what_the_driver_knows() {
        let folder = tempfile::tempdir().unwrap();
        let (devices, driver) = (folder.path().join("dev"), folder.path().join("gpus"));
        assert_eq!(count_in(&devices, &driver), 0);
        for name in ["gpus/0000:01:00.0", "gpus/0000:02:00.0", "dev"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        assert_eq!(count_in(&devices, &driver), 2);
        for name in ["nvidia0", "nvidiactl", "nvidia-uvm", "null"] {
            fs::write(devices.join(name), "").unwrap();
        }
        assert_eq!(count_in(&devices, &driver), 1);
    }
}
