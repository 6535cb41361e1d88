//! What a host does besides agents: commands and files of the set-up, trying addresses, ports.
//!
//! Owns the marks of what was done, and every process that a command started, but for daemons: none
//! outlives its task. Each task has a thread of its own, and tells what came of it.

use crate::command;
use crate::guard::Orders;
use crate::guarded::Guards;
use crate::home::at_home;
use crate::made::Made;
use crate::messages::questions::{Ask, Said};
use crate::messages::{FromHost, TaskOutcome};
use crate::provider::is_name;
use crate::setup::plays;
use crate::sockets::ports::Given;
use crate::sockets::table;
use planaria_store::durable::{self, Draft};
use planaria_store::transfer::{Announced, Incoming};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long an address may take to answer.
const REACH_WITHIN: Duration = Duration::from_secs(2);
/// Addresses that are tried at most.
const ADDRESSES_MAX: usize = 32;
/// How long commands may take to end at the end.
const END_WITHIN: Duration = Duration::from_secs(2);
/// Poll interval for that.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Tasks under way.
pub struct Tasks {
    home: PathBuf,
    folder: PathBuf,
    guards: Guards,
    messages: SyncSender<FromHost>,
    files: BTreeMap<u64, Incoming>,
    over: Arc<AtomicBool>,
    /// Shared with the thread of each command under way.
    running: Arc<()>,
    ports: Arc<Mutex<Given>>,
}

/// A piece of a file.
pub struct FilePiece {
    /// Where it goes.
    pub path: String,
    pub mode: u32,
    pub bytes: Vec<u8>,
    /// Whether it is the first.
    pub is_first: bool,
    /// Whether it is the last.
    pub is_last: bool,
}

pub struct ShellCommand {
    /// Left where it ends well.
    pub mark: Option<String>,
    /// For `sh -c`.
    pub command: String,
    /// Variables for it alone.
    pub env: Vec<(String, String)>,
    /// How long it may take.
    pub within: Duration,
}

impl Tasks {
    /// Nothing is under way.
    pub fn new(home: &Path, folder: &Path, guards: Guards, messages: SyncSender<FromHost>) -> Self {
        let (home, folder) = (home.to_path_buf(), folder.to_path_buf());
        Self {
            home,
            folder,
            guards,
            messages,
            files: BTreeMap::new(),
            over: Arc::default(),
            running: Arc::default(),
            ports: Arc::default(),
        }
    }

    /// Tells which of some addresses can be reached: the first of them that answers.
    pub fn reach(&self, addresses: Vec<String>) {
        let messages = self.messages.clone();
        on_thread("reach", move || {
            let address = first_reached(addresses);
            let _ = messages.send(FromHost::Reached { address });
        });
    }

    /// Answers a question about sockets.
    pub fn look(&self, task: u64, ask: Ask) {
        let (messages, ports) = (self.messages.clone(), self.ports.clone());
        on_thread("sockets", move || {
            let given = || ports.lock().expect("no thread panics with the ports");
            let said = match ask {
                Ask::Ports { count, wanted } => {
                    let (free, taken) = given().give(count, &wanted);
                    Said::Ports { free, taken }
                }
                Ask::Release { ports } => {
                    given().release(&ports);
                    Said::Done
                }
                Ask::Meets { pid, port, meeting } => Said::Meets(table::meets(pid, port, meeting)),
                Ask::Peers { pid } => {
                    let (peers, is_busy) = table::peers(pid);
                    Said::Peers { peers, is_busy }
                }
                _ => return,
            };
            let _ = messages.send(FromHost::Said { task, said });
        });
    }

    /// Compares what a step made with its mark, or has the mark say it.
    pub fn made(&self, task: u64, ask: Ask) {
        let (messages, home, folder) =
            (self.messages.clone(), self.home.clone(), self.folder.clone());
        on_thread("made", move || {
            let said = match ask {
                Ask::IsIntact { mark, made } => {
                    Said::Intact(is_intact(&home, &mark, &made, &folder))
                }
                Ask::Seal { mark, made } => match seal(&home, &mark, &made, &folder) {
                    Ok(()) => Said::Done,
                    Err(e) => Said::Failed {
                        why: format!("cannot write the mark of a step: {e}"),
                        is_full: e.kind() == io::ErrorKind::StorageFull,
                    },
                },
                _ => return,
            };
            let _ = messages.send(FromHost::Said { task, said });
        });
    }

    /// Tells whether a mark is there.
    pub fn is_done(&self, task: u64, mark: &str) {
        let outcome = match self.mark(mark) {
            Some(path) if path.exists() => TaskOutcome::Skipped,
            _ => TaskOutcome::Done,
        };
        self.tell(task, outcome);
    }

    /// Writes a piece of a file.
    pub fn put(&mut self, task: u64, piece: FilePiece) {
        let is_last = piece.is_last;
        match self.write(task, piece) {
            Ok(()) if is_last => self.tell(task, TaskOutcome::Done),
            Ok(()) => {}
            Err(e) => {
                self.files.remove(&task);
                self.tell(task, TaskOutcome::Impossible(e.to_string()));
            }
        }
    }

    fn write(&mut self, task: u64, piece: FilePiece) -> io::Result<()> {
        let target = self.target(&piece.path);
        if piece.is_first {
            let parent = target.parent().unwrap_or(Path::new("/"));
            fs::create_dir_all(parent).map_err(|e| about(parent, &e))?;
            let temporary = parent.join(format!(".planaria-{}-{task}", std::process::id()));
            let draft = Draft::at(temporary, &target).map_err(|e| about(&target, &e))?;
            self.files.insert(task, Incoming::new(draft, Announced::default()));
        }
        // Pieces after one that failed have nowhere to go, and that was told.
        let Some(incoming) = self.files.get_mut(&task) else { return Ok(()) };
        let at = incoming.at();
        incoming.take(at, &piece.bytes).map_err(|e| about(&target, &e.into()))?;
        if piece.is_last {
            incoming.file().set_permissions(fs::Permissions::from_mode(piece.mode & 0o7777))?;
            incoming.check()?;
            let Some(incoming) = self.files.remove(&task) else { return Ok(()) };
            incoming.keep().map_err(|e| about(&target, &e))?;
        }
        Ok(())
    }

    /// Runs a command on a thread of its own.
    pub fn run(&self, task: u64, work: ShellCommand) {
        let mark = match &work.mark {
            None => None,
            Some(mark) => match self.mark(mark) {
                Some(path) => Some(path),
                None => {
                    return self
                        .tell(task, TaskOutcome::Impossible(format!("no mark is `{mark}`")));
                }
            },
        };
        if mark.as_ref().is_some_and(|mark| mark.exists()) {
            return self.tell(task, TaskOutcome::Skipped);
        }
        let (messages, over, running) =
            (self.messages.clone(), self.over.clone(), self.running.clone());
        let (folder, guards) = (self.folder.display().to_string(), self.guards.clone());
        on_thread("task", move || {
            let orders = Orders {
                env: work.env,
                // A service that a step started is there for the run; the host ends it.
                leaves_daemons: true,
                ..Orders::command(["/bin/sh", "-c", &work.command], &folder)
            };
            let is_over = || over.load(Ordering::SeqCst);
            let mut pass = |bytes: &[u8]| {
                // A controller that reads nothing must not keep the command from its end.
                let mut output = FromHost::Output { task, bytes: bytes.to_vec() };
                while let Err(TrySendError::Full(back)) = messages.try_send(output) {
                    if is_over() {
                        return;
                    }
                    output = back;
                    std::thread::park_timeout(LOOK_EVERY);
                }
            };
            let ran = command::run(&guards, &orders, work.within, &is_over, &mut pass);
            drop(running);
            let outcome = match ran {
                Err(e) => TaskOutcome::Impossible(e.to_string()),
                Ok(TaskOutcome::Done) => match mark.as_deref().map_or(Ok(()), leave) {
                    Ok(()) => TaskOutcome::Done,
                    Err(e) => TaskOutcome::Impossible(format!("cannot leave its mark: {e}")),
                },
                Ok(outcome) => outcome,
            };
            let _ = messages.send(FromHost::Task { task, outcome });
        });
    }

    /// Ends what is under way.
    pub fn end(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Each command's thread ends its processes.
        for _ in 0..END_WITHIN.as_millis() / LOOK_EVERY.as_millis() {
            if Arc::strong_count(&self.running) == 1 {
                break;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
        plays::end_all(&self.folder);
        self.files.clear();
    }

    fn mark(&self, mark: &str) -> Option<PathBuf> {
        mark_file(&self.home, mark)
    }

    /// `~/x` is in the user's home, `x` in the run's folder here.
    fn target(&self, path: &str) -> PathBuf {
        self.folder.join(at_home(path))
    }

    fn tell(&self, task: u64, outcome: TaskOutcome) {
        // Where the channel is closed no answer is needed.
        let _ = self.messages.send(FromHost::Task { task, outcome });
    }
}

fn mark_file(home: &Path, mark: &str) -> Option<PathBuf> {
    is_name(mark).then(|| home.join("setup").join(mark))
}

/// Whether a mark says that what its step made is there; where it does not, it goes.
fn is_intact(home: &Path, mark: &str, made: &Made, folder: &Path) -> bool {
    let Some(mark) = mark_file(home, mark) else { return false };
    let stamp = made.stamp(&folder.join(at_home(&made.to)));
    let is_intact = fs::read_to_string(&mark).is_ok_and(|sealed| sealed == stamp);
    if !is_intact {
        // One that stays is compared again.
        let _ = fs::remove_file(mark);
    }
    is_intact
}

fn seal(home: &Path, mark: &str, made: &Made, folder: &Path) -> io::Result<()> {
    let no_mark = || io::Error::other(format!("no mark is `{mark}`"));
    let file = mark_file(home, mark).ok_or_else(no_mark)?;
    durable::write(&file, made.stamp(&folder.join(at_home(&made.to))).as_bytes())
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write `{}`: {error}", path.display()))
}

fn leave(mark: &Path) -> io::Result<()> {
    if let Some(folder) = mark.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create(mark)?.sync_all()
}

fn on_thread(name: &str, work: impl FnOnce() + Send + 'static) {
    // Without a thread there is no answer, and the asker gives up in time.
    let _ = std::thread::Builder::new().name(name.into()).spawn(work);
}

fn first_reached(addresses: Vec<String>) -> Option<String> {
    let (found, results) = channel();
    let mut tried = 0;
    for (place, address) in addresses.iter().take(ADDRESSES_MAX).enumerate() {
        let (found, address) = (found.clone(), address.clone());
        tried += 1;
        on_thread("reach", move || {
            let _ = found.send((place, is_reached(&address)));
        });
    }
    drop(found);
    // The preferred one that answers; those after it are not waited for.
    let mut answers: Vec<Option<bool>> = vec![None; tried];
    while let Ok((place, reached)) = results.recv_timeout(2 * REACH_WITHIN) {
        answers[place] = Some(reached);
        let first = answers.iter().position(|answer| *answer != Some(false))?;
        if answers[first] == Some(true) {
            return addresses.into_iter().nth(first);
        }
    }
    let first = answers.iter().position(|answer| *answer == Some(true))?;
    addresses.into_iter().nth(first)
}

fn is_reached(address: &str) -> bool {
    let Ok(mut candidates) = address.to_socket_addrs() else { return false };
    candidates.any(|candidate| TcpStream::connect_timeout(&candidate, REACH_WITHIN).is_ok())
}
