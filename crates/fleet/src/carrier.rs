//! A process of this machine whose standard streams are a channel: `ssh`, or a host itself.
//!
//! Owns its start, its end and what it says on standard error. Never knows what is said on the
//! channel. None outlives this process: the kernel kills what is left.

use crate::channel::{Channel, StderrTail};
use crate::ending::Ending;
use crate::process::{self, Signal, end_with_parent, wait_without_reaping};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::Builder;
use std::time::Duration;

/// How long to wait for the last of standard error once the process has ended: something that it
/// started may hold it open.
const STDERR_WITHIN: Duration = Duration::from_millis(500);

/// A process that was started.
pub struct Carrier {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr_tail: StderrTail,
    /// How it ends, and is ended.
    pub end: End,
}

/// The end of a process; its streams may be held elsewhere.
#[derive(Debug, Clone)]
pub struct End(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pid: u32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Once it is waited for; then its number may be another's.
    ending: Option<Ending>,
    /// Whether its standard error is at its end.
    is_silent: bool,
}

impl Carrier {
    /// Starts a command with pipes to all its streams, in a session of its own: it has no terminal
    /// to ask on, and Ctrl-C does not reach it.
    pub fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        end_with_parent(&mut command);
        let own_session = || Ok(rustix::process::setsid().map(drop)?);
        // SAFETY: between fork and exec only a system call is made, which allocates nothing.
        unsafe { command.pre_exec(own_session) };
        let mut child = spawn(command)?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(io::Error::other("a process without streams"));
        };
        let stderr_tail = StderrTail::default();
        let end = End(Arc::new(Shared {
            pid: child.id(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }));
        end.watch(child, stderr, stderr_tail.clone())?;
        Ok(Self { stdin, stdout, stderr_tail, end })
    }

    /// The channel that its streams are, from here on.
    pub fn into_channel(self) -> Channel {
        let Self { stdin, stdout, stderr_tail, end } = self;
        end.channel(Box::new(stdout), stdin, stderr_tail)
    }
}

impl End {
    pub fn pid(&self) -> u32 {
        self.0.pid
    }

    /// Ends it at once; more than once is no error.
    pub fn kill(&self) {
        let state = self.0.state.lock().expect("no thread panics with a state");
        if state.ending.is_none() {
            // The child has not been waited for, so the number is still its own.
            process::signal(self.0.pid, Signal::KILL);
        }
    }

    /// How it has ended, waiting for it at most so long, and then a moment for the rest of its standard error.
    pub fn wait(&self, within: Duration) -> Option<Ending> {
        let state = self.0.state.lock().expect("no thread panics with a state");
        let waiting = |state: &mut State| state.ending.is_none();
        let ended = self.0.changed.wait_timeout_while(state, within, waiting);
        let (state, _) = ended.expect("no thread panics with a state");
        state.ending?;
        let talking = |state: &mut State| !state.is_silent;
        let silent = self.0.changed.wait_timeout_while(state, STDERR_WITHIN, talking);
        silent.expect("no thread panics with a state").0.ending
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.0.state.lock().expect("no thread panics with a state").ending.is_none()
    }

    /// A channel of these streams that this ends.
    pub fn channel(
        &self,
        reading: Box<dyn Read + Send>,
        writing: ChildStdin,
        stderr_tail: StderrTail,
    ) -> Channel {
        let end = self.clone();
        let closing = Arc::new(move || end.kill());
        Channel { reading, writing: Box::new(writing), closing, stderr_tail }
    }

    /// Two threads that last as long as the process: one reads its standard error, one waits for its end.
    fn watch(&self, child: Child, stderr: ChildStderr, words: StderrTail) -> io::Result<()> {
        let (pid, shared) = (child.id(), self.0.clone());
        let wait = move || {
            let mut child = child;
            wait_without_reaping(pid);
            let mut state = shared.state.lock().expect("no thread panics with a state");
            state.ending = Some(child.wait().map_or(Ending::Signal(0), Ending::from));
            shared.changed.notify_all();
        };
        let shared = self.0.clone();
        let read = move || {
            read_stderr(stderr, &words);
            shared.state.lock().expect("no thread panics with a state").is_silent = true;
            shared.changed.notify_all();
        };
        let waiting = Builder::new().name(format!("wait-{pid}")).spawn(wait);
        if let Err(error) = waiting {
            process::kill_and_reap(pid);
            return Err(error);
        }
        Builder::new()
            .name(format!("stderr-{pid}"))
            .spawn(read)
            .map(drop)
            .inspect_err(|_| self.kill())
    }
}

fn read_stderr(mut stderr: ChildStderr, words: &StderrTail) {
    let mut piece = [0; 4096];
    loop {
        match stderr.read(&mut piece) {
            Ok(0) => return,
            Ok(read) => words.add(&piece[..read]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

struct Order {
    command: Command,
    answer: SyncSender<io::Result<Child>>,
}

/// The thread that starts all carriers: the kernel kills a child when the *thread* that started it
/// ends, and those that open channels end when they are open.
static STARTING: Mutex<Option<Sender<Order>>> = Mutex::new(None);

fn spawn(command: Command) -> io::Result<Child> {
    let (answer, answered) = sync_channel(1);
    {
        let mut starting = STARTING.lock().expect("no thread panics with the orders");
        if starting.is_none() {
            *starting = Some(starter()?);
        }
        let gone = |_| io::Error::other("the thread that starts processes has ended");
        let orders = starting.as_ref().expect("it was put there just now");
        orders.send(Order { command, answer }).map_err(gone)?;
    }
    answered.recv().map_err(io::Error::other)?
}

fn starter() -> io::Result<Sender<Order>> {
    let (orders, ordered) = channel::<Order>();
    let start = move || {
        process::hear_of_children();
        for mut order in ordered {
            let _ = order.answer.send(order.command.spawn());
        }
    };
    Builder::new().name("carriers".into()).spawn(start)?;
    Ok(orders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn shell(text: &str) -> Carrier {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        Carrier::start(command).expect("sh starts")
    }

    #[test]
    fn carries_until_its_input_ends() {
        let carrier = shell("cat; echo bye >&2; exit 3");
        let (end, words) = (carrier.end.clone(), carrier.stderr_tail.clone());
        let mut channel = carrier.into_channel();
        channel.writing.write_all(b"hello").expect("it reads");
        drop(channel.writing);
        let mut heard = String::new();
        channel.reading.read_to_string(&mut heard).expect("it writes");
        assert_eq!(heard, "hello");
        assert_eq!(end.wait(Duration::from_secs(10)), Some(Ending::Code(3)));
        assert_eq!(words.text(), "bye");
    }

    #[test]
    fn is_ended_from_outside_more_than_once() {
        let carrier = shell("sleep 100");
        assert_eq!(carrier.end.wait(Duration::from_millis(1)), None);
        assert!(carrier.end.is_running());
        let end = carrier.end.clone();
        let channel = carrier.into_channel();
        (channel.closing)();
        assert_eq!(end.wait(Duration::from_secs(10)), Some(Ending::Signal(process::SIGKILL)));
        (channel.closing)();
    }

    #[test]
    fn outlives_the_thread_that_asked_for_it() {
        let starting = std::thread::spawn(|| shell("cat"));
        let carrier = starting.join().expect("no panic");
        assert_eq!(carrier.end.wait(Duration::from_millis(200)), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let error = Carrier::start(Command::new("/nonexistent/ssh")).map(drop);
        assert_eq!(error.map_err(|e| e.kind()), Err(io::ErrorKind::NotFound));
    }
}
