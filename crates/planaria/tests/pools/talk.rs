//! What the tests of providers share: the program, and a host at the other end of a channel.

use planaria::clock::Stopwatch;
use planaria_fleet::channel::{Channel, StderrTail};
use planaria_fleet::messages::{FromHost, Hello, ToHost, read_message, write_message};
use planaria_fleet::program::Program;
use planaria_fleet::provider::Tag;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest that anything in these tests may take.
pub const LONG: Duration = Duration::from_secs(40);

/// The binary under test.
pub fn program() -> Program {
    let path = Path::new(env!("CARGO_BIN_EXE_planaria"));
    Program::read(path, planaria::BUILD).expect("the binary can be read")
}

/// A run that no other test has.
pub fn run(name: &str) -> Tag {
    Tag::new(&format!("{name}-{}", std::process::id())).expect("a name")
}

/// Nothing once it was hung up.
type Writing = Arc<Mutex<Option<Box<dyn Write + Send>>>>;

/// A host that has said hello, and is told that somebody is there.
pub struct Host {
    pub hello: Hello,
    words: Receiver<FromHost>,
    writing: Writing,
    closing: Arc<dyn Fn() + Send + Sync>,
    pub stderr_tail: StderrTail,
}

impl Host {
    /// Waits for its hello.
    #[track_caller]
    pub fn meet(over: Channel) -> Self {
        let Channel { mut reading, writing, closing, stderr_tail } = over;
        let (tell, words) = channel();
        std::thread::spawn(move || {
            while let Ok(Some(word)) = read_message::<FromHost>(&mut reading) {
                if tell.send(word).is_err() {
                    return;
                }
            }
        });
        let first = words.recv_timeout(LONG);
        let Ok(FromHost::Hello(hello)) = first else {
            panic!("no hello: {first:?}, beside it `{}`", stderr_tail.text());
        };
        let writing = Arc::new(Mutex::new(Some(writing)));
        stay(writing.clone());
        Self { hello, words, writing, closing, stderr_tail }
    }

    /// Whether it does what it is told.
    #[track_caller]
    pub fn answers(&mut self) {
        let word = ToHost::Done { task: 7, mark: "none".into() };
        let mut writing = self.writing.lock().expect("no panic");
        write_message(writing.as_mut().expect("it is open"), &word).expect("the host takes words");
        drop(writing);
        let heard = |word: &FromHost| matches!(word, FromHost::Task { task: 7, .. });
        self.hear(heard);
    }

    /// Waits for a word.
    #[track_caller]
    fn hear(&self, is_it: impl Fn(&FromHost) -> bool) {
        for _ in 0..100 {
            match self.words.recv_timeout(LONG) {
                Ok(word) if is_it(&word) => return,
                Ok(_) => {}
                Err(e) => panic!("no answer ({e}), beside it `{}`", self.stderr_tail.text()),
            }
        }
        panic!("other words only");
    }

    /// Waits for the end of the channel.
    #[track_caller]
    pub fn ends(&self, within: Duration) {
        let watch = Stopwatch::start();
        while watch.elapsed() < within {
            match self.words.recv_timeout(within) {
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => panic!("the channel is open, and nothing comes"),
                Ok(_) => {}
            }
        }
        panic!("the channel does not end");
    }

    /// Hangs up, and waits for it to end by itself.
    #[track_caller]
    pub fn leave(self) {
        *self.writing.lock().expect("no panic") = None;
        self.ends(LONG);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        (self.closing)();
        if let Ok(mut writing) = self.writing.lock() {
            *writing = None;
        }
    }
}

/// A host that hears nothing for long ends itself.
fn stay(writing: Writing) {
    std::thread::spawn(move || {
        loop {
            std::thread::park_timeout(Duration::from_secs(1));
            let mut writing = writing.lock().expect("no panic");
            let told = writing.as_mut().is_some_and(|to| write_message(to, &ToHost::Alive).is_ok());
            if !told {
                return;
            }
        }
    });
}
