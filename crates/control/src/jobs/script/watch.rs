//! What is asked of machines while a job runs, on threads of their own: a machine that does not
//! answer holds up no other.
//!
//! Owns the intervals. Never decides what follows from an answer.

use planaria_fleet::files::Outputs;
use planaria_fleet::files::outputs::Round;
use planaria_fleet::messages::questions::Meeting as How;
use planaria_fleet::remote::Remote;
use planaria_protocol::message::Agent;
use planaria_runs::clock::Stopwatch;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::jobs::script::variables::Meeting;

/// Poll interval for whether a process has found the others.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Poll interval for outputs.
const FETCH_EVERY: Duration = Duration::from_secs(5);

/// A process that has not found the others yet.
pub struct Question {
    pub agent: Agent,
    /// Its number in the pool, and on its machine.
    pub process: u32,
    pub pid: u32,
    pub remote: Arc<Remote>,
    /// What it is to do.
    pub meeting: Meeting,
}

/// Asks whether processes have found the others.
pub struct Meetings {
    ask: Sender<Vec<Question>>,
    met: Receiver<(Agent, u32)>,
    is_asking: Arc<AtomicBool>,
}

impl Meetings {
    /// Nothing is asked yet.
    pub fn begin() -> Self {
        let (ask, asked) = channel::<Vec<Question>>();
        let (tell, met) = channel();
        let is_asking = Arc::new(AtomicBool::new(false));
        let asking = is_asking.clone();
        let work = move || {
            while let Ok(questions) = asked.recv() {
                for question in questions {
                    let (port, how) = match question.meeting {
                        Meeting::Listens(port) => (port, How::Listens),
                        Meeting::Connects(port) => (port, How::Connects),
                    };
                    // One that does not answer is lost, or about to be.
                    if question.remote.meets(question.pid, port, how).unwrap_or(false) {
                        let _ = tell.send((question.agent, question.process));
                    }
                }
                std::thread::park_timeout(ASK_EVERY);
                asking.store(false, Ordering::SeqCst);
            }
        };
        // Without the thread no process is ever seen to meet, which is then said.
        let _ = std::thread::Builder::new().name("meetings".into()).spawn(work);
        Self { ask, met, is_asking }
    }

    /// Whether the questions before have been answered.
    pub fn is_free(&self) -> bool {
        !self.is_asking.load(Ordering::SeqCst)
    }

    pub fn ask(&self, questions: Vec<Question>) {
        if !questions.is_empty() {
            self.is_asking.store(true, Ordering::SeqCst);
            let _ = self.ask.send(questions);
        }
    }

    /// Processes that were seen to have found the others, since the last time.
    pub fn take(&self) -> Vec<(Agent, u32)> {
        self.met.try_iter().collect()
    }
}

/// Machines by name, that of the first process first.
pub type Sources = Vec<(String, Arc<Remote>)>;

/// Brings outputs here while the job runs.
pub struct Fetching {
    /// What came back.
    pub outputs: Arc<Mutex<Outputs>>,
    sources: Arc<Mutex<Sources>>,
    rounds: Receiver<Round>,
    over: Sender<()>,
    thread: Option<std::thread::JoinHandle<()>>,
    clock: Stopwatch,
}

impl Fetching {
    /// Begins, if there is anything to fetch. The clock is the same for all that is done with outputs.
    pub fn new(outputs: Outputs, is_wanted: bool, clock: Stopwatch) -> Self {
        let outputs = Arc::new(Mutex::new(outputs));
        let sources: Arc<Mutex<Sources>> = Arc::default();
        let (tell, rounds) = channel();
        let (over, is_over) = channel();
        let (shared, from) = (outputs.clone(), sources.clone());
        let work = move || {
            while is_over.recv_timeout(FETCH_EVERY) == Err(RecvTimeoutError::Timeout) {
                let sources = from.lock().expect("no thread panics with them").clone();
                let machines: Vec<(&str, &Remote)> =
                    sources.iter().map(|(name, remote)| (name.as_str(), &**remote)).collect();
                let mut outputs = shared.lock().expect("no thread panics with them");
                let round = outputs.round(&machines, false, &|| clock.elapsed());
                drop(outputs);
                if tell.send(round).is_err() {
                    return;
                }
            }
        };
        let thread = is_wanted
            .then(|| std::thread::Builder::new().name("outputs".into()).spawn(work).ok())
            .flatten();
        Self { outputs, sources, rounds, over, thread, clock }
    }

    /// From these machines, from now on.
    pub fn from(&self, sources: Sources) {
        *self.sources.lock().expect("no thread panics with them") = sources;
    }

    /// What rounds have brought since the last time.
    pub fn take(&self) -> Vec<Round> {
        self.rounds.try_iter().collect()
    }

    /// Fetches all that is left, once the round under way is over.
    pub fn finish(&mut self, sources: &Sources) -> Round {
        let _ = self.over.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let machines: Vec<(&str, &Remote)> =
            sources.iter().map(|(name, remote)| (name.as_str(), &**remote)).collect();
        let mut outputs = self.outputs.lock().expect("no thread panics with them");
        let round = outputs.round(&machines, true, &|| self.clock.elapsed());
        outputs.end();
        round
    }
}
