//! How much memory this process may use, and how often the system has ended processes for want of
//! it.
//!
//! Owns how the machine, its control groups (both versions) and resource limits are read. A limit
//! on a group holds for all its processes together, as on those of a container. Never allocates
//! what it counts.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// What the system would still give to this process; nothing where it does not tell.
pub fn available_bytes() -> Option<u64> {
    System::read().available_bytes()
}

/// The most that this process may use: the least of the machine's memory and every limit.
pub fn usable_bytes() -> Option<u64> {
    System::read().usable_bytes()
}

/// How many processes of this process' control group were ended for want of memory.
pub fn kills() -> Option<u64> {
    System::read().kills()
}

/// A control group that this process is in, or one above it.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    folder: PathBuf,
    names: &'static Names,
}

/// What a version of control groups calls its files, and fields in them.
#[derive(Debug, PartialEq, Eq)]
struct Names {
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Pages of files, which the system takes back before it ends a process.
    cached: [&'static str; 2],
    kills: &'static str,
}

const FIRST: Names = Names {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
    kills: "memory.oom_control",
};
const SECOND: Names = Names {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    cached: ["inactive_file", "active_file"],
    kills: "memory.events",
};

/// What the system tells of memory.
struct System<F> {
    file: F,
    /// The innermost group of each version first.
    groups: Vec<Group>,
}

impl System<fn(&Path) -> Option<String>> {
    fn read() -> Self {
        Self::new(|path| read_to_string(path).ok())
    }
}

impl<F: Fn(&Path) -> Option<String>> System<F> {
    fn new(file: F) -> Self {
        let groups = groups(&file(Path::new("/proc/self/cgroup")).unwrap_or_default());
        Self { file, groups }
    }

    fn text(&self, path: &str) -> String {
        (self.file)(Path::new(path)).unwrap_or_default()
    }

    fn usable_bytes(&self) -> Option<u64> {
        let machine = field(&self.text("/proc/meminfo"), "MemTotal:", 1024);
        let limits = self.text("/proc/self/limits");
        let own = ["Max address space", "Max data size"].map(|label| field(&limits, label, 1));
        let groups = self.groups.iter().map(|group| self.number(group, group.names.limit));
        [machine].into_iter().chain(own).chain(groups).flatten().min()
    }

    fn available_bytes(&self) -> Option<u64> {
        let memory = self.text("/proc/meminfo");
        let swap = field(&memory, "SwapFree:", 1024).unwrap_or(0);
        let machine = field(&memory, "MemAvailable:", 1024).map(|free| free.saturating_add(swap));
        let limit = field(&self.text("/proc/self/limits"), "Max address space", 1);
        let used = field(&self.text("/proc/self/status"), "VmSize:", 1024).unwrap_or(0);
        let own = limit.map(|limit| limit.saturating_sub(used));
        let groups = self.groups.iter().map(|group| self.left_in(group));
        [machine, own].into_iter().chain(groups).flatten().min()
    }

    /// What a group's limit leaves to it.
    fn left_in(&self, group: &Group) -> Option<u64> {
        let limit = self.number(group, group.names.limit)?;
        let used = self.number(group, group.names.used).unwrap_or(0);
        let statistics = (self.file)(&group.folder.join("memory.stat")).unwrap_or_default();
        let cached = group.names.cached.iter().filter_map(|name| word(&statistics, name)).sum();
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    }

    fn kills(&self) -> Option<u64> {
        let kills =
            |group: &Group| word(&(self.file)(&group.folder.join(group.names.kills))?, "oom_kill");
        self.groups.iter().find_map(kills)
    }

    fn number(&self, group: &Group, name: &str) -> Option<u64> {
        // `max` where there is no limit.
        (self.file)(&group.folder.join(name))?.trim().parse().ok()
    }
}

/// The groups of a process from its `/proc/self/cgroup`, each with those above it.
fn groups(own: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut add = |group: &str, names: &'static Names| {
        for folder in Path::new(group.trim_start_matches('/')).ancestors() {
            let group = Group { folder: Path::new(names.root).join(folder), names };
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
    };
    for line in own.lines() {
        match line.splitn(3, ':').collect::<Vec<_>>()[..] {
            ["0", "", group] => add(group, &SECOND),
            [_, kinds, group] if kinds.split(',').any(|kind| kind == "memory") => {
                add(group, &FIRST);
            }
            _ => {}
        }
    }
    // In a container, a group's own path may not be there, and its files are at the root.
    add("", &FIRST);
    add("", &SECOND);
    groups
}

/// The first number after a label; nothing where there is a word (`unlimited`) instead.
fn field(text: &str, label: &str, unit_bytes: u64) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    number.checked_mul(unit_bytes)
}

/// The number after a whole word.
fn word(text: &str, name: &str) -> Option<u64> {
    let number = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &[(&str, &str)] = &[
        ("/proc/meminfo", "MemTotal:  1000 kB\nMemAvailable:  600 kB\nSwapFree:  10 kB\n"),
        ("/proc/self/status", "VmSize:  100 kB\n"),
    ];

    /// Usable and available bytes, and kills, of a machine with these files besides its own.
    #[track_caller]
    fn check(files: &[(&str, &str)], expect: (Option<u64>, Option<u64>, Option<u64>)) {
        let system = System::new(|path: &Path| {
            let mut all = files.iter().chain(MACHINE);
            all.find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
        });
        let found = (system.usable_bytes(), system.available_bytes(), system.kills());
        assert_eq!(found, expect, "{files:?}");
    }

    #[test]
    fn a_machine_without_limits() {
        check(&[], (Some(1_024_000), Some(624_640), None));
        check(
            &[("/proc/meminfo", ""), ("/proc/self/limits", "Max address space unlimited x")],
            (None, None, None),
        );
    }

    #[test]
    fn limits_of_the_process() {
        let limits = "Max data size             307200    unlimited  bytes\n\
                      Max address space         409600    unlimited  bytes\n";
        check(&[("/proc/self/limits", limits)], (Some(307_200), Some(307_200), None));
    }

    #[test]
    fn groups_of_the_first_version() {
        let own = ("/proc/self/cgroup", "5:hugetlb,memory:/jobs/7\n1:name=x:/y\n0::/\n");
        let unlimited = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        check(
            &[
                own,
                unlimited,
                ("/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "400000\n"),
                ("/sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "390000\n"),
                (
                    "/sys/fs/cgroup/memory/jobs/memory.stat",
                    "inactive_file 1\ntotal_inactive_file 100000\ntotal_active_file 5000\n",
                ),
                (
                    "/sys/fs/cgroup/memory/jobs/7/memory.oom_control",
                    "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
                ),
                ("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill 9\n"),
            ],
            (Some(400_000), Some(115_000), Some(3)),
        );
        // In a container, its group's files are at the root.
        check(
            &[
                own,
                ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n"),
                ("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill 1\n"),
            ],
            (Some(500_000), Some(500_000), Some(1)),
        );
    }

    #[test]
    fn groups_of_the_second_version() {
        let events = "low 0\nmax 7\noom 2\noom_kill 2\noom_group_kill 0\n";
        check(
            &[
                ("/proc/self/cgroup", "0::/system.slice/a.service\n"),
                ("/sys/fs/cgroup/system.slice/a.service/memory.max", "max\n"),
                ("/sys/fs/cgroup/system.slice/a.service/memory.events", events),
                ("/sys/fs/cgroup/system.slice/memory.max", "300000\n"),
                ("/sys/fs/cgroup/system.slice/memory.current", "200000\n"),
                ("/sys/fs/cgroup/system.slice/memory.stat", "anon 5\ninactive_file 50000\n"),
            ],
            (Some(300_000), Some(150_000), Some(2)),
        );
        check(
            &[
                ("/proc/self/cgroup", "0::/\n"),
                ("/sys/fs/cgroup/memory.max", "200000\n"),
                ("/sys/fs/cgroup/memory.events", events),
            ],
            (Some(200_000), Some(200_000), Some(2)),
        );
    }
}
