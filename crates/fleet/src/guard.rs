//! The guard of a program that is not ours, such as a process of a user's script: an agent that
//! starts it, passes on what it writes, and ends as it ended.
//!
//! Owns that process and all that comes of it, also what has left its group: nothing of it is left
//! when the guard ends. Told through its standard input what to start; the end of that input asks
//! it to end the program, politely first. Never decides whether it is started again.

use crate::ending::Ending;
use crate::home::at_home;
use crate::process::{self, Listed, Signal, die_with, signal_group};
use crate::redact::{Redactor, Secrets};
use crate::sockets::interfaces;
use rustix::process::{Resource, Rlimit};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Poll interval for the end of the script.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Attempts to kill what is left, before it is given up: nothing stops SIGKILL, but a process in
/// a system call takes a moment.
const KILLS_MAX: u32 = 500;
/// Exit code where the program cannot be started at all, as shells have it.
const NOT_FOUND: i32 = 127;

/// What a guard is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// The program and its arguments. One that begins with `~/` is in the user's home.
    pub command: Vec<String>,
    /// The Python among them, wherever it stands. One that begins with `~/` is in the user's home; its
    /// folder is the first on `PATH`, so that what was installed with it is found.
    pub python: String,
    /// Variables, besides those that the guard has.
    pub env: Vec<(String, String)>,
    /// Variables that the script must not have.
    pub without: Vec<String>,
    /// Where it is started: absolute, or `~/…`.
    pub folder: String,
    /// Columns and rows of the terminal that it is to see, if any.
    pub terminal: Option<(u16, u16)>,
    /// Variables that get the name of the interface with this address.
    pub interface: Option<(String, Vec<String>)>,
    /// How long it may take to end when it is asked to.
    pub stop_seconds: u64,
    /// What must not get into the log: it is on this machine's disk.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Whether daemons that it started are left where it ended by itself: those that have made a
    /// session of their own.
    #[serde(default)]
    pub leaves_daemons: bool,
}

impl Orders {
    /// A command in a folder, with nothing left of it.
    pub fn command<const N: usize>(words: [&str; N], folder: &str) -> Self {
        Self {
            command: words.map(str::to_owned).into(),
            env: Vec::new(),
            without: Vec::new(),
            folder: folder.to_owned(),
            terminal: None,
            interface: None,
            stop_seconds: 0,
            python: String::new(),
            secrets: Vec::new(),
            leaves_daemons: false,
        }
    }
}

/// Keeps a process to its end. `life` is asked for its end on a thread of its own.
pub fn run(orders: &Orders, life: impl Read + Send + 'static) -> Ending {
    adopt();
    let (child, written) = match start(orders) {
        Ok(started) => started,
        Err(e) => {
            let what = orders.command.first().map_or("nothing", String::as_str);
            let _ = writeln!(io::stderr(), "planaria: `{what}` cannot be started: {e}");
            return Ending::Code(NOT_FOUND);
        }
    };
    let session = child.id();
    let child = Arc::new(Mutex::new(child));
    let passing = written.and_then(|written| {
        let secrets = Secrets::revealed(&orders.secrets);
        let pass = move || pass_on(written, &secrets);
        std::thread::Builder::new().name("output".into()).spawn(pass).ok()
    });
    let asked = Arc::new(AtomicBool::new(false));
    let listening = asked.clone();
    let listen = move || {
        let _ = io::copy(&mut { life }, &mut io::sink());
        listening.store(true, Ordering::SeqCst);
    };
    if std::thread::Builder::new().name("life".into()).spawn(listen).is_err() {
        asked.store(true, Ordering::SeqCst);
    }
    let status = wait(&child, &asked, Duration::from_secs(orders.stop_seconds));
    let leaves_daemons = orders.leaves_daemons && !asked.load(Ordering::SeqCst);
    end_descendants(leaves_daemons.then_some(session));
    // All that could write is gone; what it wrote is read to the end.
    if let Some(passing) = passing {
        let _ = passing.join();
    }
    status.into()
}

/// Ends this process as another has ended, so that its parent sees the same.
pub fn end_as(ending: Ending) -> ! {
    if let Ending::Signal(signal) = ending {
        // No core file is written of it.
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(Resource::Core, none);
        // SAFETY: the default of a signal runs no code of ours, and ends this process.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
        std::thread::park_timeout(Duration::from_secs(1));
    }
    std::process::exit(ending.exit_code())
}

fn start(orders: &Orders) -> io::Result<(Child, Option<File>)> {
    let Some((program, arguments)) = orders.command.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no command"));
    };
    let mut command = Command::new(at_home(program));
    let python = at_home(&orders.python);
    command.args(arguments.iter().map(|argument| match *argument == orders.python {
        true => python.clone(),
        false => PathBuf::from(argument),
    }));
    put_on_path(&mut command, &python);
    command.current_dir(at_home(&orders.folder)).stdin(Stdio::null());
    for name in &orders.without {
        command.env_remove(name);
    }
    if let Some((address, variables)) = &orders.interface
        && let Some(interface) = interface_of(address)
    {
        command.envs(variables.iter().map(|name| (name, &interface)));
    }
    command.envs(orders.env.iter().map(|(name, value)| (name, value)));
    let mut ours = None;
    let has_terminal = orders.terminal.is_some();
    if let Some(size) = orders.terminal {
        let (master, slave) = terminal(size)?;
        command.stdout(slave.try_clone()?).stderr(slave);
        ours = Some(File::from(master));
    } else if !orders.secrets.is_empty() {
        // Otherwise it writes to the log itself, which nothing can be taken out of.
        let (reading, writing) = io::pipe()?;
        command.stdout(writing.try_clone()?).stderr(writing);
        ours = Some(File::from(OwnedFd::from(reading)));
    }
    let parent = std::process::id();
    // SAFETY: between fork and exec only system calls are made, which allocate nothing.
    unsafe {
        command.pre_exec(move || {
            // A session of its own: signals for its group reach all of it and nothing else.
            rustix::process::setsid()?;
            if has_terminal {
                let _ = rustix::process::ioctl_tiocsctty(rustix::stdio::stdout());
            }
            die_with(parent)
        });
    }
    let child = command.spawn()?;
    Ok((child, ours))
}

/// Puts the folder of a program first on `PATH`, and says so if that is a virtual environment.
fn put_on_path(command: &mut Command, program: &Path) {
    let Some(folder) = program.parent().filter(|_| program.is_absolute()) else { return };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&path));
    // One with a colon in its name cannot be on it.
    let Ok(path) = std::env::join_paths(all) else { return };
    command.env("PATH", path);
    if let Some(home) = folder.parent().filter(|home| home.join("pyvenv.cfg").is_file()) {
        command.env("VIRTUAL_ENV", home);
    }
}

/// A terminal of this size: our end, and the script's.
fn terminal((columns, rows): (u16, u16)) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&slave, size)?;
    Ok((master, slave))
}

/// Passes on what is written to a terminal or a pipe, without secrets, until no process has it open
/// any more.
fn pass_on(mut written: File, secrets: &Secrets) {
    let mut bytes = vec![0; 16 << 10];
    let mut redactor = Redactor::new(secrets);
    // A full disk costs the log, not the script, which must not wait for a reader.
    let mut show = |bytes: &[u8]| {
        let mut stdout = io::stdout();
        let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
    };
    loop {
        match written.read(&mut bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // Reading a terminal whose other end is closed is an error.
            Ok(0) | Err(_) => return redactor.finish(&mut show),
            Ok(read) => redactor.push(&bytes[..read], &mut show),
        }
    }
}

/// Waits for the script; asks it to end once that is asked for.
fn wait(child: &Mutex<Child>, asked: &AtomicBool, patience: Duration) -> ExitStatus {
    let mut waited = None;
    loop {
        let mut held = child.lock().expect("no thread panics with the child");
        match held.try_wait() {
            Ok(Some(status)) => return status,
            Ok(None) => {}
            // No other thread waits for it; as if it had been killed.
            Err(_) => return ExitStatus::from_raw(process::SIGKILL),
        }
        let group = held.id();
        drop(held);
        if asked.load(Ordering::SeqCst) {
            match &mut waited {
                None => {
                    waited = Some(Duration::ZERO);
                    signal_group(group, Signal::TERM);
                    // One that is stopped must be able to hear it.
                    signal_group(group, Signal::CONT);
                }
                Some(passed) if *passed >= patience => {
                    signal_group(group, Signal::KILL);
                    kill(&descendants());
                }
                Some(passed) => *passed += LOOK_EVERY,
            }
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Kills all that is left below this process, or what is of a session, and waits for it.
fn end_descendants(session: Option<u32>) {
    for _ in 0..KILLS_MAX {
        let all = process::all();
        let mut left = process::below(std::process::id(), &all);
        let is_meant = |one: &Listed| session.is_none_or(|session| one.session == session);
        left.retain(|pid| all.iter().any(|one| one.pid == *pid && is_meant(one)));
        kill(&left);
        while process::reap(None) {}
        if left.is_empty() {
            return;
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Kills processes below this one: each keeps its number until this process has waited for it, or its
/// own parent has, which is what the signal asks for anyway.
fn kill(processes: &[u32]) {
    processes.iter().for_each(|pid| process::signal(*pid, Signal::KILL));
}

/// Processes below this one, as the system lists them now.
fn descendants() -> Vec<u32> {
    process::below(std::process::id(), &process::all())
}

/// From here on a process below this one that loses its parent becomes its child, and can be found.
pub(crate) fn adopt() {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Ends what guards that were killed have left behind. A script has a session of its own; all that a
/// host starts itself is in the host's.
pub(crate) fn end_orphans() {
    let own = std::process::id();
    let session = rustix::process::getsid(None).map_or(0, |pid| pid.as_raw_nonzero().get());
    for _ in 0..KILLS_MAX {
        let all = process::all();
        let is_orphan = |one: &&Listed| one.parent == own && one.session != session.unsigned_abs();
        let orphans: Vec<u32> = all.iter().filter(is_orphan).map(|one| one.pid).collect();
        if orphans.is_empty() {
            return;
        }
        for orphan in orphans {
            kill(&process::below(orphan, &all));
            kill(&[orphan]);
            process::reap(Some(orphan));
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// The interface that has an address.
fn interface_of(address: &str) -> Option<String> {
    let address: Ipv4Addr = address.parse().ok()?;
    let mut interfaces = interfaces().into_iter();
    interfaces.find(|interface| interface.address == address).map(|interface| interface.name)
}

/// Reads the orders, which are one line.
pub fn orders(from: &mut impl Read) -> io::Result<Orders> {
    let mut line = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    serde_json::from_slice(&line).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environments_programs_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("bin/python");
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        std::fs::write(folder.path().join("pyvenv.cfg"), "").unwrap();
        let mut command = Command::new("true");
        put_on_path(&mut command, &python);
        let variables: Vec<_> = command.get_envs().collect();
        let [(_, Some(path)), (_, Some(home))] = variables[..] else { panic!("{variables:?}") };
        let first = std::env::split_paths(path).next();
        assert_eq!(first.as_deref(), python.parent());
        assert_eq!(Path::new(home), folder.path());
        let mut command = Command::new("true");
        put_on_path(&mut command, Path::new("python3"));
        assert_eq!(command.get_envs().count(), 0, "it is found as it always was");
    }

    #[test]
    fn interfaces_are_found_by_their_address() {
        assert_eq!(interface_of("127.0.0.1").as_deref(), Some("lo"));
        assert_eq!(interface_of("203.0.113.1"), None);
        assert_eq!(interface_of("::1"), None);
    }
}
