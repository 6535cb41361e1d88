//! A command on this machine, with an end to it.
//!
//! Owns its processes: a group of their own, of which none is left when the command has ended, when
//! time is up, when the result is not wanted any more, or when the thread that started it ends.

use crate::ending::Ending;
use crate::messages::TaskOutcome;
use crate::process::{Signal, end_with_parent, signal_group, wait_without_reaping};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often it is checked whether the result is still wanted.
const TICK: Duration = Duration::from_millis(50);
/// How long output is waited for after the command has ended: another may hold its pipe.
const DRAIN: Duration = Duration::from_secs(1);

enum News {
    Output(Vec<u8>),
    Ended(Ending),
    /// Nothing more will be written.
    Silent,
    /// Time is up.
    Late,
}

/// Runs a command, its output as it comes. An error is one of starting it.
pub fn run(
    command: &mut Command,
    within: Duration,
    is_cancelled: &dyn Fn() -> bool,
    output: &mut dyn FnMut(&[u8]),
) -> std::io::Result<TaskOutcome> {
    let (reading, writing) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writing.try_clone()?).stderr(writing).process_group(0);
    end_with_parent(command);
    let child = command.spawn()?;
    // Ours must be closed, or the pipe never ends.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let group = child.id();
    let (say, news) = channel();
    watch(reading, child, &say)?;
    let (still_here, gone) = channel::<()>();
    let alarm = move || {
        if gone.recv_timeout(within) == Err(RecvTimeoutError::Timeout) {
            let _ = say.send(News::Late);
        }
    };
    std::thread::Builder::new().name("command-alarm".into()).spawn(alarm)?;
    let outcome = follow(&news, is_cancelled, output);
    drop(still_here);
    if outcome == TaskOutcome::TimedOut {
        // It was started here and has not been seen to end.
        signal_group(group, Signal::KILL);
        while let Ok(News::Output(bytes)) = news.recv_timeout(DRAIN) {
            output(&bytes);
        }
    }
    Ok(outcome)
}

fn watch(
    mut reading: impl Read + Send + 'static,
    mut child: Child,
    say: &Sender<News>,
) -> std::io::Result<()> {
    let (ended, written) = (say.clone(), say.clone());
    let read = move || {
        let mut piece = vec![0; 8192];
        while let Ok(bytes @ 1..) = reading.read(&mut piece) {
            if written.send(News::Output(piece[..bytes].to_vec())).is_err() {
                return;
            }
        }
        let _ = written.send(News::Silent);
    };
    let wait = move || {
        // The group keeps its number until its leader is reaped; what is left of it would hold the
        // pipe open.
        wait_without_reaping(child.id());
        signal_group(child.id(), Signal::KILL);
        if let Ok(status) = child.wait() {
            let _ = ended.send(News::Ended(status.into()));
        }
    };
    std::thread::Builder::new().name("command-wait".into()).spawn(wait)?;
    std::thread::Builder::new().name("command-read".into()).spawn(read)?;
    Ok(())
}

fn follow(
    news: &Receiver<News>,
    is_cancelled: &dyn Fn() -> bool,
    output: &mut dyn FnMut(&[u8]),
) -> TaskOutcome {
    let (mut status, mut is_silent) = (None, false);
    while !is_cancelled() {
        match (news.recv_timeout(if status.is_some() { DRAIN } else { TICK }), status) {
            (Ok(News::Output(bytes)), _) => output(&bytes),
            (Ok(News::Ended(ended)), _) => status = Some(ended),
            (Ok(News::Silent), _) => is_silent = true,
            (Ok(News::Late), None) => break,
            (Err(RecvTimeoutError::Timeout), None) => {}
            (_, Some(_)) => is_silent = true,
            (Err(RecvTimeoutError::Disconnected), None) => break,
        }
        if let (Some(status), true) = (status, is_silent) {
            return match status.exit_code() {
                0 => TaskOutcome::Done,
                code => TaskOutcome::Failed(code),
            };
        }
    }
    TaskOutcome::TimedOut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(text: &str, within: Duration, is_cancelled: bool) -> (TaskOutcome, String) {
        let mut written = Vec::new();
        let mut output = |bytes: &[u8]| written.extend_from_slice(bytes);
        let mut command = Command::new("sh");
        let outcome =
            run(command.args(["-c", text]), within, &|| is_cancelled, &mut output).unwrap();
        (outcome, String::from_utf8_lossy(&written).into_owned())
    }

    #[test]
    fn commands_end_and_are_ended() {
        let long = Duration::from_secs(20);
        let short = Duration::from_millis(300);
        assert_eq!(sh("echo a; echo b >&2", long, false), (TaskOutcome::Done, "a\nb\n".into()));
        assert_eq!(sh("exit 7", long, false).0, TaskOutcome::Failed(7));
        assert_eq!(sh("kill -9 $$", long, false).0, TaskOutcome::Failed(137));
        assert_eq!(sh("echo a; sleep 60", short, false), (TaskOutcome::TimedOut, "a\n".into()));
        assert_eq!(sh("while :; do echo y; done", short, false).0, TaskOutcome::TimedOut);
        assert_eq!(sh("sleep 60", long, true).0, TaskOutcome::TimedOut);
        // What it leaves behind ends with it.
        assert_eq!(sh("sleep 3 & echo a", long, false), (TaskOutcome::Done, "a\n".into()));
    }
}
