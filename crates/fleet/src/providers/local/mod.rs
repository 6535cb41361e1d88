//! Machines of this machine: each is a folder, which is the home of its host.
//!
//! Owns the folders and the host processes in them. Nothing is delivered: the program is here. The
//! smallest provider there can be, and the one to begin another from (`docs/providers.md`).

use crate::carrier::{Carrier, End};
use crate::channel::Channel;
use crate::home::{FOLDER, user_home};
use crate::process::{self, Signal};
use crate::program::Program;
use crate::provider::{Call, Fault, Leak, Machine, Made, Notice, Provider, Ran, Tag, is_name};
use crate::providers::{Kind, Place, Purpose};
use planaria_recipe::pool::providers::local as settings;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

/// How long a host may take to say hello.
const HELLO: Duration = Duration::from_secs(20);
/// How long a host may take to end after it was told to.
const ENDING: Duration = Duration::from_secs(3);
/// Poll interval for that.
const LOOK: Duration = Duration::from_millis(20);
/// Most bytes that are kept of what a command writes.
const OUTPUT_BYTES_MAX: u64 = 64 << 20;

/// A file in the home of a machine that is about to go: in how many seconds.
pub const LEAVING: &str = "leaving";

/// Machines in folders below one folder, `RUN/NAME`.
pub struct Local {
    root: PathBuf,
    /// Variables that nothing there inherits.
    hidden: Vec<String>,
}

impl Local {
    /// Machines below a folder, which need not exist yet.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf(), hidden: Vec::new() }
    }

    /// Nothing on its machines is to inherit these variables: they hold secrets.
    #[must_use]
    pub fn hiding(self, hidden: Vec<String>) -> Self {
        Self { hidden, ..self }
    }

    fn run_folder(&self, run: &Tag) -> PathBuf {
        self.root.join(run.as_str())
    }

    /// The machine's home. Handles are read from journals: only one that this provider could have
    /// given leads anywhere.
    fn home(&self, run: &Tag, machine: &Machine) -> Result<PathBuf, Fault> {
        let home = self.run_folder(run).join(&machine.name);
        if is_name(&machine.name) && home.display().to_string() == machine.handle {
            return Ok(home);
        }
        let what = format!("`{}` is no folder of {run}", machine.handle);
        Err(Fault::fix(&machine.name, what, "leave the machines' folders where they are"))
    }

    fn machine(&self, run: &Tag, name: &str) -> Machine {
        let handle = self.run_folder(run).join(name).display().to_string();
        Machine::new(name, handle, Vec::new())
    }

    /// Starts the program in a machine's home.
    fn start(&self, home: &Path, program: &Program, words: &[&str]) -> io::Result<Carrier> {
        let mut command = Command::new(&program.path);
        command.args(words).env("HOME", home).current_dir(home);
        for name in &self.hidden {
            command.env_remove(name);
        }
        Carrier::start(command)
    }
}

impl Kind for Local {
    type Settings = settings::Settings;
    const IS_ALWAYS_ASKED: bool = true;

    fn make(_settings: &Self::Settings, purpose: Purpose) -> Result<Self, Fault> {
        let root = user_home().join(FOLDER).join("machines");
        Ok(Self::new(&root).hiding(purpose.hidden))
    }

    fn places(settings: &Self::Settings) -> Vec<Place<Self::Settings>> {
        vec![Place::new("local", settings.clone())]
    }
}

impl Provider for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn check(&self) -> Result<(), Fault> {
        fs::create_dir_all(&self.root).map_err(|e| unwritable("local", &self.root, &e))
    }

    fn capacity(&self) -> Option<usize> {
        None
    }

    fn is_here(&self, _machine: &Machine) -> bool {
        true
    }

    fn plan(&self, run: &Tag, number: u32) -> Option<Machine> {
        Some(self.machine(run, &format!("m{}", u64::from(number) + 1)))
    }

    fn create(&self, run: &Tag, machine: &Machine) -> Result<Made, Fault> {
        let home = self.home(run, machine)?;
        fs::create_dir_all(&home).map_err(|e| unwritable(&machine.name, &home, &e))?;
        Ok(Made::There)
    }

    fn gives_notice(&self) -> bool {
        true
    }

    /// A machine with a file [`LEAVING`] in its home is about to go, in as many seconds as it says.
    fn notices(&self, run: &Tag) -> Result<Vec<Notice>, Fault> {
        let notice = |machine: Machine| {
            let text = fs::read_to_string(Path::new(&machine.handle).join(LEAVING)).ok()?;
            let within = Duration::from_secs(text.trim().parse().ok()?);
            let why = format!("`{LEAVING}` in its folder says so");
            Some(Notice { machine: machine.name, within, why })
        };
        Ok(self.list(run)?.into_iter().filter_map(notice).collect())
    }

    fn open(&self, run: &Tag, machine: &Machine, program: &Program) -> Result<Channel, Fault> {
        let home = self.home(run, machine)?;
        let started = self.start(&home, program, &["agent", "host", run.as_str()]);
        let Carrier { stdin, stdout, stderr_tail, end } =
            started.map_err(|e| unstarted(machine, &home, &e))?;
        let listen = move || {
            let mut reading = BufReader::new(stdout);
            let is_there = reading.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
            is_there.then_some(reading)
        };
        match within(HELLO, &end, listen) {
            Some(Some(reading)) => Ok(end.channel(Box::new(reading), stdin, stderr_tail)),
            Some(None) => {
                end.wait(ENDING);
                let what = format!("the host ended at once: {}", stderr_tail.text());
                Err(Fault::retry(&machine.name, what))
            }
            None => {
                let what = format!("the host said nothing for {} s", HELLO.as_secs());
                Err(Fault::retry(&machine.name, what))
            }
        }
    }

    fn run(&self, run: &Tag, machine: &Machine, call: &Call<'_>) -> Result<Ran, Fault> {
        let home = self.home(run, machine)?;
        let started = self.start(&home, call.program, call.arguments);
        let Carrier { mut stdin, stdout, stderr_tail, end } =
            started.map_err(|e| unstarted(machine, &home, &e))?;
        let (input, limit) = (call.input.to_vec(), call.within);
        // At the same time as it is heard, or both could wait for each other.
        let feed = move || {
            let _ = stdin.write_all(&input);
        };
        let feeding = Builder::new().name("input".into()).spawn(feed);
        feeding.map_err(|e| unstarted(machine, &home, &e))?;
        let ended = end.clone();
        let hear = move || {
            let mut said = Vec::new();
            stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut said).ok();
            (said, ended.wait(limit))
        };
        let Some((stdout, Some(ending))) = within(limit, &end, hear) else {
            end.kill();
            return Err(call.timed_out(&machine.name));
        };
        Ok(Ran { code: ending.exit_code(), stdout, stderr: stderr_tail.text().into_bytes() })
    }

    fn list(&self, run: &Tag) -> Result<Vec<Machine>, Fault> {
        let folder = self.run_folder(run);
        let names = names(&folder).map_err(|e| unwritable("local", &folder, &e))?;
        Ok(names.iter().map(|name| self.machine(run, name)).collect())
    }

    fn destroy(&self, run: &Tag, machine: &Machine) -> Result<(), Fault> {
        let home = self.home(run, machine)?;
        end_hosts(run, &home);
        let removed = match fs::remove_dir_all(&home) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        // The last one takes the run's folder with it.
        let _ = fs::remove_dir(self.run_folder(run));
        removed.map_err(|e| Fault::retry(&machine.name, format!("`{}`: {e}", home.display())))
    }

    fn leaks(&self) -> Result<Vec<Leak>, Fault> {
        let mut leaks = Vec::new();
        for name in names(&self.root).map_err(|e| unwritable("local", &self.root, &e))? {
            let Some(run) = Tag::new(&name) else { continue };
            for machine in self.list(&run)? {
                let busy = host(&run, Path::new(&machine.handle)).is_some();
                let state = if busy { "host running" } else { "left" };
                let what = format!("folder {} ({state})", machine.handle);
                leaks.push(Leak { run: run.to_string(), what, machine, busy });
            }
        }
        Ok(leaks)
    }

    fn inventory(&self, _machine: &Machine) -> String {
        "ansible_connection=local".to_owned()
    }
}

/// Does something on a thread; nothing where it takes longer, and then the process is ended.
fn within<T: Send + 'static>(
    limit: Duration,
    end: &End,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (tell, told) = channel();
    let work = move || {
        // The receiver is gone where it took too long.
        let _ = tell.send(work());
    };
    let done = match Builder::new().name(format!("talk-{}", end.pid())).spawn(work) {
        Ok(_) => told.recv_timeout(limit),
        Err(_) => Err(RecvTimeoutError::Disconnected),
    };
    if done.is_err() {
        end.kill();
    }
    done.ok()
}

/// The host that wrote its number down, if it lives.
fn host(run: &Tag, home: &Path) -> Option<u32> {
    let file = home.join(FOLDER).join("runs").join(run.as_str()).join("host.pid");
    let number = fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<u32>().ok());
    number.filter(|pid| *pid > 1 && is_host(*pid, run, home))
}

/// Ends the hosts in a home: one, or two where one of them controls a detached run.
fn end_hosts(run: &Tag, home: &Path) {
    let all = process::all().into_iter().map(|one| one.pid);
    for pid in all.filter(|pid| *pid > 1 && is_host(*pid, run, home)) {
        end_host(pid, run, home);
    }
}

/// Ends a host, by its own wish or without.
fn end_host(pid: u32, run: &Tag, home: &Path) {
    for signal in [Signal::TERM, Signal::KILL] {
        // It was just seen to be a host of this run.
        process::signal(pid, signal);
        for _ in 0..ENDING.as_millis() / LOOK.as_millis() {
            if !is_host(pid, run, home) {
                return;
            }
            std::thread::park_timeout(LOOK);
        }
    }
}

/// Whether a process is the run's host in this home: a number that was written down may be another's
/// by now.
fn is_host(pid: u32, run: &Tag, home: &Path) -> bool {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let asked = [&b"agent"[..], b"host", run.as_str().as_bytes()];
    words.windows(3).any(|three| three == asked)
        && fs::read_link(format!("/proc/{pid}/cwd"))
            .is_ok_and(|cwd| fs::canonicalize(home).is_ok_and(|home| cwd.starts_with(home)))
}

/// Names in a folder that can be ours; none where there is no folder.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        names.extend(name.to_str().filter(|name| is_name(name)).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn unwritable(machine: &str, folder: &Path, why: &io::Error) -> Fault {
    let what = format!("cannot use `{}`: {why}", folder.display());
    Fault::fix(machine, what, "check the folder and the space on its disk")
}

fn unstarted(machine: &Machine, home: &Path, why: &io::Error) -> Fault {
    let what = format!("the program does not start in `{}`: {why}", home.display());
    Fault::retry(&machine.name, what)
}
