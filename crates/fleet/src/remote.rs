//! A machine's host, as its controller sees it.
//!
//! Owns the channel: a thread reads it, another writes it. News of agents goes to the pool; answers
//! to tasks go to the threads that wait for them ([`Hands`]). Never waits without an end.

use crate::channel::{Channel, StderrTail};
use crate::made::Made;
use crate::messages::questions::{Ask, Said};
use crate::messages::{
    AgentNews, FromHost, Hello, Next, PIECE_BYTES, TaskOutcome, ToHost, VERSION, read_message,
    write_message,
};
use crate::provider::Fault;
use crate::setup::{Command, Hands};
use planaria_store::transfer::{Announced, Outgoing};
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a host may take to say hello once its channel is open.
const HELLO_WITHIN: Duration = Duration::from_secs(20);
/// How long it may take to say which address it reaches.
const REACH_WITHIN: Duration = Duration::from_secs(10);
/// How long it may take to detach.
const DETACH_WITHIN: Duration = Duration::from_secs(5);
/// Poll interval for that.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a file's last piece may take to be written.
const PUT_WITHIN: Duration = Duration::from_secs(300);
/// How long it may take to look for a mark.
const MARK_WITHIN: Duration = Duration::from_secs(30);
/// What a command's answer may take longer than the command.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Words that may wait to be written: files wait for room, agents' orders hardly ever do.
const MESSAGES_MAX: usize = 64;

/// What a host told.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    Agent(AgentNews),
    /// The channel has ended, and what was said last beside it.
    Gone(String),
}

pub struct Remote {
    machine: String,
    session: u64,
    /// What the machine is.
    pub hello: Hello,
    messages: SyncSender<ToHost>,
    tasks: Arc<Mutex<BTreeMap<u64, Sender<Answer>>>>,
    next_task: AtomicU64,
    reached: Mutex<Receiver<Option<String>>>,
    heard: Arc<AtomicU64>,
    said_bye: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    detached: Mutex<Receiver<u16>>,
    is_closed: AtomicBool,
    is_let_go: AtomicBool,
    closing: Arc<dyn Fn() + Send + Sync>,
    stderr_tail: StderrTail,
}

enum Answer {
    Output(Vec<u8>),
    Over(TaskOutcome),
    Said(Said),
}

/// A question that waits for its answer.
pub(crate) struct Asked(u64, Receiver<Answer>);

impl Remote {
    /// Waits for the host's hello. `tell` is called for all that it tells, from a thread.
    pub fn meet(
        machine: &str,
        over: Channel,
        build: &str,
        tell: impl Fn(Told) + Send + 'static,
    ) -> Result<Self, Fault> {
        let Channel { mut reading, mut writing, closing, stderr_tail } = over;
        let (greet, greeted) = channel_of_one();
        let tasks = Arc::new(Mutex::new(BTreeMap::new()));
        let heard = Arc::new(AtomicU64::new(0));
        let said_bye = Arc::new(AtomicBool::new(false));
        let is_over = Arc::new(AtomicBool::new(false));
        let (reach, reached) = std::sync::mpsc::channel();
        let (detach, detached) = std::sync::mpsc::channel();
        let listening = Listening {
            tasks: tasks.clone(),
            heard: heard.clone(),
            said_bye: said_bye.clone(),
            is_over: is_over.clone(),
            reach,
            detach,
            stderr_tail: stderr_tail.clone(),
        };
        let listen = move || {
            match read_message::<FromHost>(&mut reading) {
                Ok(Some(FromHost::Hello(hello))) => {
                    let _ = greet.send(Ok(hello));
                }
                Ok(_) => return drop(greet.send(Err("it closed the channel".to_owned()))),
                Err(e) => return drop(greet.send(Err(e.to_string()))),
            }
            listening.listen(&mut reading, &tell);
        };
        let (messages, written) = sync_channel(MESSAGES_MAX);
        let closes = closing.clone();
        let talk = move || {
            // The end of this thread closes the channel's writing half, which ends the host.
            while let Ok(message) = written.recv() {
                let is_last = message == ToHost::End;
                if write_message(&mut writing, &message).is_err() {
                    return closes();
                }
                if is_last {
                    return;
                }
            }
        };
        let fault = |what: String| Fault::retry(machine, what);
        start("host-in", listen).and_then(|()| start("host-out", talk)).map_err(fault)?;
        let hello = match greeted.recv_timeout(HELLO_WITHIN) {
            Ok(Ok(hello)) => hello,
            Ok(Err(why)) => {
                closing();
                let said = stderr_tail.text();
                let said = if said.is_empty() { why } else { said };
                return Err(fault(format!("planaria did not start on it: {said}")));
            }
            Err(_) => {
                closing();
                let within = HELLO_WITHIN.as_secs();
                return Err(fault(format!("planaria said nothing on it for {within} s")));
            }
        };
        if hello.version != VERSION || hello.build != build {
            closing();
            let what = format!("it runs build {}, not {build}", hello.build);
            return Err(Fault::replace(machine, what, "remove `~/.cache/planaria` on it"));
        }
        let machine = machine.to_owned();
        let (next_task, reached) = (AtomicU64::new(0), Mutex::new(reached));
        static SESSIONS: AtomicU64 = AtomicU64::new(0);
        Ok(Self {
            machine,
            session: SESSIONS.fetch_add(1, Ordering::Relaxed),
            hello,
            messages,
            tasks,
            next_task,
            reached,
            heard,
            said_bye,
            is_over,
            detached: Mutex::new(detached),
            is_closed: AtomicBool::new(false),
            is_let_go: AtomicBool::new(false),
            closing,
            stderr_tail,
        })
    }

    /// Messages received so far: where it stands still, the host does not answer.
    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Whether the host has said goodbye, with nothing left on its machine.
    pub fn has_said_bye(&self) -> bool {
        self.said_bye.load(Ordering::SeqCst)
    }

    /// Sends a message, if there is room for it: a host that takes none is about to be lost.
    pub fn say(&self, message: ToHost) -> bool {
        self.messages.try_send(message).is_ok()
    }

    /// Ends the channel at once.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        if !self.is_let_go.load(Ordering::SeqCst) {
            (self.closing)();
        }
    }

    /// Has the host become another process that needs no channel, with these orders; says on which
    /// port that is called, where others call it. From then on nothing ends it from here.
    pub fn detach(&self, orders: Vec<u8>, next: Next) -> Result<u16, Fault> {
        let detached = self.detached.lock().expect("no thread panics with the answers");
        self.send(ToHost::Detach { orders, next })?;
        let port = detached.recv_timeout(REACH_WITHIN).map_err(|_| self.gone())?;
        self.is_let_go.store(true, Ordering::SeqCst);
        // Its last message: after it, it only becomes the other process.
        for _ in 0..DETACH_WITHIN.as_millis() / LOOK_EVERY.as_millis() {
            if self.has_said_bye() {
                return Ok(port);
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
        Err(self.gone())
    }

    /// Whether it is not needed any more.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// The first of these addresses that the machine can reach.
    pub fn reach(&self, addresses: Vec<String>) -> Result<Option<String>, Fault> {
        let reached = self.reached.lock().expect("no thread panics with the answers");
        self.messages.send(ToHost::Reach { addresses }).map_err(|_| self.gone())?;
        reached.recv_timeout(REACH_WITHIN).map_err(|_| self.gone())
    }

    /// The machine's name.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// A number that no other channel of this process has: a machine that comes again has another.
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// A number that nothing else of this channel has.
    pub(crate) fn number(&self) -> u64 {
        self.next_task.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks something that has one answer.
    pub(crate) fn ask(&self, ask: Ask) -> Result<Asked, Fault> {
        let (task, answers) = self.task();
        self.send(ToHost::Ask { task, ask })?;
        match self.is_over.load(Ordering::SeqCst) {
            true => Err(self.gone()),
            false => Ok(Asked(task, answers)),
        }
    }

    /// Waits for the answer.
    pub(crate) fn wait(&self, asked: Asked, within: Duration) -> Result<Said, Fault> {
        let Asked(task, answers) = asked;
        match answers.recv_timeout(within) {
            Ok(Answer::Said(said)) => Ok(said),
            _ => {
                self.tasks.lock().expect("no thread panics with the tasks").remove(&task);
                Err(self.gone())
            }
        }
    }

    fn gone(&self) -> Fault {
        let said = self.stderr_tail.text();
        let what = if said.is_empty() { "it does not answer".to_owned() } else { said };
        Fault::retry(&self.machine, what)
    }

    fn task(&self) -> (u64, Receiver<Answer>) {
        let task = self.next_task.fetch_add(1, Ordering::Relaxed);
        let (answer, answers) = channel();
        self.tasks.lock().expect("no thread panics with the tasks").insert(task, answer);
        (task, answers)
    }

    fn send(&self, message: ToHost) -> Result<(), Fault> {
        self.messages.send(message).map_err(|_| self.gone())
    }

    /// Waits for a task's end.
    fn outcome(
        &self,
        answers: &Receiver<Answer>,
        within: Duration,
        output: &mut dyn FnMut(&[u8]),
    ) -> Result<TaskOutcome, Fault> {
        loop {
            match answers.recv_timeout(within) {
                Ok(Answer::Output(bytes)) => output(&bytes),
                Ok(Answer::Over(outcome)) => return Ok(outcome),
                Ok(Answer::Said(_)) => return Err(self.gone()),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(self.gone());
                }
            }
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.close();
    }
}

impl Hands for &Remote {
    fn is_done(&mut self, mark: &str) -> Result<bool, Fault> {
        let (task, answers) = self.task();
        self.send(ToHost::Done { task, mark: mark.to_owned() })?;
        Ok(self.outcome(&answers, MARK_WITHIN, &mut |_| {})? == TaskOutcome::Skipped)
    }

    fn is_intact(&mut self, mark: &str, made: &Made) -> Result<bool, Fault> {
        let (mark, made) = (mark.to_owned(), made.clone());
        let asked = self.ask(Ask::IsIntact { mark, made })?;
        Ok(self.wait(asked, MARK_WITHIN)? == Said::Intact(true))
    }

    fn seal(&mut self, mark: &str, made: &Made) -> Result<(), Fault> {
        let (mark, made) = (mark.to_owned(), made.clone());
        let asked = self.ask(Ask::Seal { mark, made })?;
        match self.wait(asked, MARK_WITHIN)? {
            Said::Failed { why, .. } => {
                Err(Fault::replace(&self.machine, why, "is the disk full?"))
            }
            _ => Ok(()),
        }
    }

    fn put(&mut self, path: &str, mode: u32, bytes: &mut dyn Read) -> Result<(), Fault> {
        let (task, answers) = self.task();
        let unread = |e: std::io::Error| Fault::fix(&self.machine, format!("`{path}`: {e}"), "");
        let mut stream = Outgoing::new(bytes, Announced::default());
        while !stream.is_over() {
            let is_first = stream.at() == 0;
            let piece = stream.next(PIECE_BYTES).map_err(|e| unread(e.into()))?;
            let (path, is_last) = (path.to_owned(), stream.is_over());
            self.send(ToHost::Put { task, path, mode, piece, is_first, is_last })?;
        }
        match self.outcome(&answers, PUT_WITHIN, &mut |_| {})? {
            TaskOutcome::Impossible(why) => Err(Fault::replace(
                &self.machine,
                why,
                "is the disk full, or is it another user's?",
            )),
            _ => Ok(()),
        }
    }

    fn run(
        &mut self,
        command: &Command<'_>,
        output: &mut dyn FnMut(&[u8]),
    ) -> Result<TaskOutcome, Fault> {
        let (task, answers) = self.task();
        self.send(ToHost::Do {
            task,
            mark: command.mark.map(str::to_owned),
            command: command.text.to_owned(),
            env: command.env.to_vec(),
            seconds_max: command.within.as_secs(),
        })?;
        self.outcome(&answers, command.within + ANSWER_WITHIN, output)
    }
}

/// What the reading thread needs.
struct Listening {
    tasks: Arc<Mutex<BTreeMap<u64, Sender<Answer>>>>,
    heard: Arc<AtomicU64>,
    said_bye: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    reach: Sender<Option<String>>,
    detach: Sender<u16>,
    stderr_tail: StderrTail,
}

impl Listening {
    fn listen(self, reading: &mut dyn Read, tell: &dyn Fn(Told)) {
        let why = loop {
            match read_message(reading) {
                Ok(Some(message)) => self.take(message, tell),
                Ok(None) => break "the connection has ended".to_owned(),
                Err(e) => break format!("the connection broke: {e}"),
            }
        };
        // Threads that wait for a task are let go, and none begins to.
        self.is_over.store(true, Ordering::SeqCst);
        self.tasks.lock().expect("no thread panics with the tasks").clear();
        let said = self.stderr_tail.text();
        tell(Told::Gone(if said.is_empty() { why } else { said }));
    }

    fn take(&self, message: FromHost, tell: &dyn Fn(Told)) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        match message {
            FromHost::Agent(news) => tell(Told::Agent(news)),
            FromHost::Reached { address } => drop(self.reach.send(address)),
            FromHost::Detaching { port } => drop(self.detach.send(port)),
            FromHost::Output { task, bytes } => self.answer(task, Answer::Output(bytes)),
            FromHost::Task { task, outcome } => {
                self.answer(task, Answer::Over(outcome));
                self.tasks.lock().expect("no thread panics with the tasks").remove(&task);
            }
            FromHost::Said { task, said } => {
                self.answer(task, Answer::Said(said));
                self.tasks.lock().expect("no thread panics with the tasks").remove(&task);
            }
            FromHost::Bye => self.said_bye.store(true, Ordering::SeqCst),
            FromHost::Alive | FromHost::Hello(_) => {}
        }
    }

    fn answer(&self, task: u64, answer: Answer) {
        let tasks = self.tasks.lock().expect("no thread panics with the tasks");
        if let Some(waiting) = tasks.get(&task) {
            // The asker may have given up.
            let _ = waiting.send(answer);
        }
    }
}

fn channel_of_one<T>() -> (SyncSender<T>, Receiver<T>) {
    sync_channel(1)
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map(drop).map_err(|e| format!("cannot start a thread: {e}"))
}
