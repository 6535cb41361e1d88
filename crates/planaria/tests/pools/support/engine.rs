//! A real Docker engine for one test: own folder, socket, bridge and cgroup; gone afterwards.

use super::{eventually, skip};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Where engines of tests have their folders, so that what a killed test left can be found.
const FOLDERS: &str = "/tmp/planaria-engines";
/// What containers of [`Engine::import_system`] must be given.
pub const SYSTEM: &str = "/usr:/usr:ro";
/// Bridges get addresses from here: `10.211.NUMBER.1/24`.
const NETWORK: &str = "10.211";

static STARTED: AtomicU32 = AtomicU32::new(0);

/// An engine, until it is dropped.
pub struct Engine {
    daemon: Option<Child>,
    folder: PathBuf,
    bridge: String,
    subnet: u32,
}

impl Engine {
    /// Starts one; nothing, with a word why, where that cannot be done.
    #[track_caller]
    pub fn up() -> Option<Self> {
        // SAFETY: only asks.
        if unsafe { libc::geteuid() } != 0 {
            skip("only root can start a Docker engine");
            return None;
        }
        for needed in ["dockerd", "docker", "ip"] {
            if !is_here(needed) {
                skip(&format!(
                    "there is no `{needed}` (Debian: `apt-get install docker.io iproute2`)"
                ));
                return None;
            }
        }
        prune();
        let (process, number) = (std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let name = format!("{process}-{number}");
        let folder = Path::new(FOLDERS).join(&name);
        fs::create_dir_all(&folder).expect("a folder for the engine");
        let (subnet, bridge) = new_bridge(process + number);
        let mut engine = Self { daemon: None, folder, bridge, subnet };
        engine.raise_bridge();
        engine.start();
        Some(engine)
    }

    /// Starts the daemon, also again after it was killed.
    pub fn start(&mut self) {
        assert!(self.daemon.is_none(), "one at a time");
        let at = |name: &str| self.folder.join(name).display().to_string();
        let log = File::options().create(true).append(true).open(self.log()).expect("a log");
        let mut command = Command::new("dockerd");
        command
            .args(["--data-root", &at("data"), "--exec-root", &at("exec")])
            .args(["--pidfile", &at("pid"), "--host", &format!("unix://{}", at("sock"))])
            .args(["--bridge", &self.bridge, "--cgroup-parent", &self.cgroup()])
            .args(["--containerd-namespace", &format!("planaria-{}", self.subnet)])
            .args(["--containerd-plugins-namespace", &format!("planaria-{}-p", self.subnet)])
            // Containers talk to each other and to this machine over the bridge, and to nothing
            // else.
            .args(["--iptables=false", "--ip6tables=false", "--ip-masq=false"])
            .args(["--ip-forward=false", "--userland-proxy=false"])
            .env_remove("DOCKER_HOST")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log twice"))
            .stderr(log);
        let die_with_the_test = || {
            // SAFETY: may be called between fork and exec, and touches no memory.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            Ok(())
        };
        // SAFETY: as above.
        unsafe { command.pre_exec(die_with_the_test) };
        let _ = fs::remove_file(self.socket());
        self.daemon = Some(command.spawn().expect("dockerd starts"));
        let socket = self.socket();
        let log = self.log();
        let daemon = self.daemon.as_mut().expect("just started");
        eventually("an engine that answers", || {
            let ended = daemon.try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "{ended:?}: {}", fs::read_to_string(&log).unwrap_or_default());
            UnixStream::connect(&socket).is_ok()
        });
        assert!(self.docker(&["version"]).status.success());
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("sock")
    }

    /// The address of this machine that containers reach.
    pub fn address(&self) -> String {
        format!("{NETWORK}.{}.1", self.subnet)
    }

    /// The engine's own client, to its end.
    pub fn docker(&self, arguments: &[&str]) -> Output {
        Command::new("docker")
            .args(["-H", &format!("unix://{}", self.socket().display())])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("the docker client runs")
    }

    /// The same, which must do its work; what it printed.
    #[track_caller]
    pub fn docker_ok(&self, arguments: &[&str]) -> String {
        let output = self.docker(arguments);
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "docker {arguments:?}: {talk}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Makes an image of files of this machine, at their own places.
    #[track_caller]
    pub fn import(&self, image: &str, files: &[&str]) {
        let tar = self.folder.join("image.tar");
        done(Command::new("tar").args(["-c", "-h", "-P", "-f"]).arg(&tar).args(files));
        let tar = tar.display().to_string();
        self.docker_ok(&["import", &tar, image]);
    }

    /// Makes an image without programs of its own: they are those of this machine, whose `/usr` its
    /// containers must be given ([`SYSTEM`]). A few kilobytes, so nothing is copied.
    #[track_caller]
    pub fn import_system(&self, image: &str) {
        let root = self.folder.join("system");
        for folder in ["etc", "tmp", "root", "usr", "proc", "sys", "dev", "var/tmp", "run"] {
            fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        for open in ["tmp", "var/tmp"] {
            let mode = fs::Permissions::from_mode(0o1777);
            fs::set_permissions(root.join(open), mode).expect("its mode");
        }
        // The engine puts a program of its own into `/sbin`, and cannot write to `/usr`.
        fs::create_dir_all(root.join("sbin")).expect("a folder");
        for name in ["bin", "lib", "lib64"] {
            symlink(format!("usr/{name}"), root.join(name)).expect("a link");
        }
        // Who is who, where libraries are, and which of several programs a name means.
        for name in ["passwd", "group", "nsswitch.conf", "ld.so.cache", "alternatives", "openmpi"] {
            let of_this_machine = Path::new("/etc").join(name);
            if of_this_machine.exists() {
                done(Command::new("cp").arg("-a").arg(of_this_machine).arg(root.join("etc")));
            }
        }
        let [place, tar] = [root, self.folder.join("image.tar")].map(|p| p.display().to_string());
        done(Command::new("tar").args(["-c", "-C", &place, "-f", &tar, "."]));
        self.docker_ok(&["import", &tar, image]);
        fs::remove_dir_all(place).expect("it can be removed");
    }

    /// Makes an image of a file, for another processor.
    #[track_caller]
    pub fn import_for(&self, image: &str, arch: &str) {
        self.import(image, &["/etc/hostname"]);
        let (folder, tar) = (self.folder.join("image"), self.folder.join("image.tar"));
        fs::create_dir(&folder).expect("a folder");
        let [place, archive] = [&folder, &tar].map(|path| path.display().to_string());
        self.docker_ok(&["save", "--output", &archive, image]);
        done(Command::new("tar").args(["-x", "-C", &place, "-f", &archive]));
        for entry in fs::read_dir(&folder).expect("the image").flatten() {
            if let Ok(text) = fs::read_to_string(entry.path()) {
                let text =
                    ["amd64", "arm64"].iter().fold(text, |text, own| text.replace(own, arch));
                fs::write(entry.path(), text).expect("it can be written");
            }
        }
        done(Command::new("tar").args(["-c", "-C", &place, "-f", &archive, "."]));
        self.docker_ok(&["load", "--input", &archive]);
        fs::remove_dir_all(folder).expect("it can be removed");
    }

    /// Kills the daemon, as a crash would.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("it runs");
        daemon.kill().expect("a child can be killed");
        daemon.wait().expect("a child can be waited for");
        // Its containerd dies with it. Where no parent reaps that one, the next daemon would take
        // the zombie for alive.
        let _ = fs::remove_file(self.folder.join("exec/containerd/containerd.pid"));
    }

    /// Where it keeps what it knows of containers, and what they write.
    pub fn containers(&self) -> PathBuf {
        self.folder.join("data/containers")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn cgroup(&self) -> String {
        format!("/{}", self.bridge)
    }

    fn raise_bridge(&self) {
        let address = format!("{}/24", self.address());
        // A bridge without an address of its own takes that of a container, and another when that goes:
        // the others would talk to the old one until their kernels ask again, which may take half a
        // minute. Engines give bridges that they make an address, too.
        let hardware = format!("02:70:6c:00:00:{:02x}", self.subnet);
        ip(&["link", "set", &self.bridge, "address", &hardware]);
        ip(&["addr", "add", &address, "dev", &self.bridge]);
        ip(&["link", "set", &self.bridge, "up"]);
        // Another engine, or a firewall, may drop what one container says to another.
        passage("-I", &self.bridge);
        fs::write(self.folder.join("bridge"), &self.bridge).expect("a note");
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            let lines: Vec<&str> = log.lines().rev().take(15).collect();
            let _ = writeln!(std::io::stderr(), "the engine's log, newest first: {lines:#?}");
        }
        if let Some(mut daemon) = self.daemon.take() {
            // SAFETY: sends a signal to a child that was not waited for.
            unsafe { libc::kill(daemon.id() as libc::pid_t, libc::SIGTERM) };
            for _ in 0..300 {
                if daemon.try_wait().is_ok_and(|ended| ended.is_some()) {
                    break;
                }
                std::thread::park_timeout(Duration::from_millis(50));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        clear(&self.folder);
    }
}

/// Whether there is such a program.
fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Removes what tests left whose process is gone.
fn prune() {
    for entry in fs::read_dir(FOLDERS).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.split('-').next().unwrap_or_default().to_owned();
        if !is_alive(&process) {
            clear(&entry.path());
        }
    }
}

/// Whether a process is there, and not only waiting to be waited for.
fn is_alive(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Removes all that belongs to an engine's folder: processes, mounts, bridge, cgroups, files.
fn clear(folder: &Path) {
    for _ in 0..100 {
        let left = processes_of(folder);
        if left.is_empty() {
            break;
        }
        for process in left {
            // SAFETY: sends a signal to a process whose command line names this engine's folder.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let inside = |line: &&str| {
        line.split(' ').nth(4).is_some_and(|place| Path::new(place).starts_with(folder))
    };
    for line in mounts.lines().rev().filter(inside) {
        let place = line.split(' ').nth(4).unwrap_or_default();
        let _ = Command::new("umount").args(["-l", place]).stderr(Stdio::null()).status();
    }
    if let Ok(bridge) = fs::read_to_string(folder.join("bridge")) {
        passage("-D", &bridge);
        let _ = Command::new("ip").args(["link", "del", &bridge]).stderr(Stdio::null()).status();
        let root = Path::new("/sys/fs/cgroup");
        for hierarchy in fs::read_dir(root).into_iter().flatten().flatten() {
            clear_cgroup(&hierarchy.path().join(&bridge));
        }
        clear_cgroup(&root.join(&bridge));
    }
    let _ = fs::remove_dir_all(folder);
}

/// Ends what is in a cgroup of an engine's, and removes it.
fn clear_cgroup(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            clear_cgroup(&entry.path());
        }
    }
    for _ in 0..100 {
        for line in fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default().lines() {
            if let Ok(process) = line.parse::<libc::pid_t>() {
                // SAFETY: sends a signal to a process of a container of this engine.
                unsafe { libc::kill(process, libc::SIGKILL) };
            }
        }
        if !folder.exists() || fs::remove_dir(folder).is_ok() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Processes that name the folder: the daemon's helpers, which outlive it when it is killed.
fn processes_of(folder: &Path) -> Vec<libc::pid_t> {
    let name = folder.display().to_string();
    let own = std::process::id() as libc::pid_t;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(process) = entry.file_name().to_string_lossy().parse::<libc::pid_t>() else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if process != own && String::from_utf8_lossy(&line).contains(&format!("{name}/")) {
            found.push(process);
        }
    }
    found
}

/// A new bridge and its number: making it reserves it.
#[track_caller]
fn new_bridge(first: u32) -> (u32, String) {
    for more in 0..200 {
        let number = (first + more) % 200 + 1;
        let bridge = format!("pl{number}d");
        let mut add = Command::new("ip");
        add.args(["link", "add", &bridge, "type", "bridge"]).stderr(Stdio::null());
        if add.status().expect("`ip` runs").success() {
            return (number, bridge);
        }
    }
    panic!("no bridge could be made");
}

#[track_caller]
fn ip(arguments: &[&str]) {
    done(Command::new("ip").args(arguments));
}

/// Runs a command, which must do its work.
#[track_caller]
fn done(command: &mut Command) {
    let status = command.stdin(Stdio::null()).status().expect("it runs");
    assert!(status.success(), "{command:?}");
}

/// Lets frames pass from one port of a bridge to another, or no longer does. Where there is no
/// firewall they pass anyway.
fn passage(change: &str, bridge: &str) {
    let rule = [change, "FORWARD", "-i", bridge, "-o", bridge, "-j", "ACCEPT"];
    let _ = Command::new("iptables").args(rule).stderr(Stdio::null()).status();
}
