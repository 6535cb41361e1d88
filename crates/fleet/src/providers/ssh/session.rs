//! One call of `ssh`, from its start to what it is for.
//!
//! Owns the talk with a machine before the host takes over, and how long each part of it may take.
//! Each talk has a thread of its own, so that one that hangs can be given up: it ends with `ssh`.

use super::needs;
use super::script::{self, Line};
use crate::carrier::{Carrier, End};
use crate::channel::StderrTail;
use crate::program::Program;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

/// Most bytes of greetings before a machine comes to the point.
const GREETINGS_BYTES_MAX: u64 = 64 << 10;
/// Most bytes that are kept of what a command writes.
const OUTPUT_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a program that are sent at a time.
const BLOCK_BYTES: usize = 256 << 10;

/// Why a talk came to nothing.
#[derive(Debug)]
pub enum Trouble {
    /// `ssh` did not start.
    Start(io::Error),
    /// It ended, or what it carries did; standard error says why.
    Ended,
    /// Nothing came for this long; whether anything had come before.
    Silence(Duration, bool),
    /// The program cannot run on the machine.
    Mismatch(needs::Mismatch),
    /// The machine could not take it: the kind, and what it said.
    Undelivered(String, String),
    /// The program's file cannot be read here.
    Program(io::Error),
}

/// A machine on which the program has taken over.
pub struct Opened {
    pub writing: ChildStdin,
    /// From it; what was read ahead is still in it.
    pub reading: BufReader<ChildStdout>,
    pub stderr_tail: StderrTail,
    pub end: End,
}

/// How long a machine may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until it has said something.
    pub connecting: Duration,
    /// Until the next, or until more bytes have gone.
    pub waiting: Duration,
}

enum News<T> {
    /// Something has moved.
    Alive,
    Done(Result<T, Trouble>),
}

/// Sends a script that delivers the program and makes way for it. `greeted`: waits until the program
/// has said something.
pub fn open(
    carrier: Carrier,
    script: String,
    program: &Program,
    patience: Patience,
    greeted: bool,
) -> Result<Opened, Trouble> {
    let Carrier { stdin, stdout, stderr_tail, end } = carrier;
    let program = program.clone();
    let talk = move |alive: &dyn Fn()| {
        let (mut writing, mut reading) = (stdin, BufReader::new(stdout));
        begin(&mut writing, &mut reading, &script, &program, alive)?;
        if greeted && reading.fill_buf().map_or(true, <[u8]>::is_empty) {
            return Err(Trouble::Ended);
        }
        Ok((writing, reading))
    };
    let (writing, reading) = within(&end, patience, talk)?;
    Ok(Opened { writing, reading, stderr_tail, end })
}

/// Sends a script and hears all that it writes.
pub fn ask(carrier: Carrier, script: String, patience: Patience) -> Result<Vec<u8>, Trouble> {
    let Carrier { stdin, stdout, end, .. } = carrier;
    let talk = move |_: &dyn Fn()| {
        let mut writing = stdin;
        // One that ends early says why on the other stream.
        let _ = writing.write_all(script.as_bytes());
        drop(writing);
        let mut said = Vec::new();
        stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut said).map_err(|_| Trouble::Ended)?;
        Ok(said)
    };
    within(&end, patience, talk)
}

/// Sends a command its input and hears all that it writes.
pub fn feed(opened: Opened, input: Vec<u8>, patience: Patience) -> Result<Vec<u8>, Trouble> {
    let Opened { mut writing, reading, end, .. } = opened;
    let talk = move |_: &dyn Fn()| {
        // At the same time, or both could wait for each other.
        let send = move || {
            let _ = writing.write_all(&input);
        };
        Builder::new().name("input".into()).spawn(send).map_err(Trouble::Start)?;
        let mut said = Vec::new();
        reading.take(OUTPUT_BYTES_MAX).read_to_end(&mut said).map_err(|_| Trouble::Ended)?;
        Ok(said)
    };
    within(&end, patience, talk)
}

/// Runs a talk on a thread, and ends `ssh` where nothing moves for too long.
fn within<T: Send + 'static>(
    end: &End,
    patience: Patience,
    talk: impl FnOnce(&dyn Fn()) -> Result<T, Trouble> + Send + 'static,
) -> Result<T, Trouble> {
    let (tell, news): (Sender<News<T>>, Receiver<News<T>>) = channel();
    let work = move || {
        let alive = || {
            let _ = tell.send(News::Alive);
        };
        let done = talk(&alive);
        // The receiver is gone where it was given up.
        let _ = tell.send(News::Done(done));
    };
    if let Err(why) = Builder::new().name(format!("talk-{}", end.pid())).spawn(work) {
        end.kill();
        return Err(Trouble::Start(why));
    }
    let (mut wait, mut has_spoken) = (patience.connecting, false);
    loop {
        match news.recv_timeout(wait) {
            Ok(News::Alive) => (wait, has_spoken) = (patience.waiting, true),
            Ok(News::Done(Ok(done))) => return Ok(done),
            Ok(News::Done(Err(trouble))) => {
                // All that it said has been heard when it has ended.
                end.wait(Duration::from_secs(2));
                end.kill();
                return Err(trouble);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let has_ended = !end.is_running();
                end.kill();
                end.wait(Duration::from_secs(2));
                return Err(if has_ended {
                    Trouble::Ended
                } else {
                    Trouble::Silence(wait, has_spoken)
                });
            }
        }
    }
}

/// The talk until the program takes over.
fn begin(
    writing: &mut ChildStdin,
    reading: &mut BufReader<ChildStdout>,
    script: &str,
    program: &Program,
    alive: &dyn Fn(),
) -> Result<(), Trouble> {
    // Where this fails the end of what is read says so.
    let _ = writing.write_all(script.as_bytes());
    let mut sent = false;
    loop {
        let line = line(reading)?;
        alive();
        match line {
            Line::Ready => return Ok(()),
            Line::Missing(facts) if !sent => {
                let needs = needs::of(program);
                needs::compare(&needs, program, &facts).map_err(Trouble::Mismatch)?;
                send(writing, program, alive)?;
                sent = true;
            }
            Line::Fault(kind, what) => return Err(Trouble::Undelivered(kind, what)),
            _ => return Err(Trouble::Ended),
        }
    }
}

/// The next line that is one of ours.
fn line(reading: &mut BufReader<ChildStdout>) -> Result<Line, Trouble> {
    let mut left = GREETINGS_BYTES_MAX;
    while left > 0 {
        let mut bytes = Vec::new();
        let read = reading.take(left).read_until(b'\n', &mut bytes).map_err(|_| Trouble::Ended)?;
        if read == 0 {
            return Err(Trouble::Ended);
        }
        left -= read as u64;
        if let Some(line) = script::read(&String::from_utf8_lossy(&bytes)) {
            return Ok(line);
        }
    }
    Err(Trouble::Ended)
}

/// Sends the program's bytes. A machine that does not take them all says why.
fn send(writing: &mut ChildStdin, program: &Program, alive: &dyn Fn()) -> Result<(), Trouble> {
    let mut file = File::open(&program.path).map_err(Trouble::Program)?;
    let (mut block, mut left) = (vec![0; BLOCK_BYTES], program.bytes);
    while left > 0 {
        let most = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = file.read(&mut block[..most]).map_err(Trouble::Program)?;
        if read == 0 {
            let changed = io::Error::other("its file has become shorter");
            return Err(Trouble::Program(changed));
        }
        if writing.write_all(&block[..read]).is_err() {
            return Ok(());
        }
        left -= read as u64;
        alive();
    }
    Ok(())
}
