//! A command on this machine, with an end to it.
//!
//! Owns how long it may take. A guard keeps its processes, of which none is left when time is up, when
//! the result is not wanted any more, or when this process is gone.

use crate::ending::Ending;
use crate::guard::Orders;
use crate::guarded::{Guarded, Guards};
use crate::messages::TaskOutcome;
use std::io::Read;
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Poll interval for whether the result is still wanted.
const TICK: Duration = Duration::from_millis(50);
/// How long output is waited for after the command has ended: another may hold its pipe.
const DRAIN: Duration = Duration::from_secs(1);
/// How long its guard may take to end what is left of it; then that goes on without this process.
const ENDING: Duration = Duration::from_secs(6);

enum News {
    Output(Vec<u8>),
    Ended(Ending),
    /// Nothing more will be written.
    Silent,
    Late,
}

/// Runs a command, its output as it comes. An error is one of starting its guard.
pub fn run(
    guards: &Guards,
    orders: &Orders,
    within: Duration,
    is_cancelled: &dyn Fn() -> bool,
    output: &mut dyn FnMut(&[u8]),
) -> std::io::Result<TaskOutcome> {
    let (reading, writing) = std::io::pipe()?;
    let Guarded { child, life } = guards.start(orders, writing)?;
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
    // Its guard ends what is left of it.
    drop(life);
    if outcome == TaskOutcome::TimedOut {
        loop {
            match news.recv_timeout(ENDING) {
                Ok(News::Output(bytes)) => output(&bytes),
                Ok(News::Late | News::Silent) => {}
                Ok(News::Ended(_)) | Err(_) => break,
            }
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
    use crate::guarded::tests::guards;

    fn sh(text: &str, within: Duration, is_cancelled: bool) -> (TaskOutcome, String) {
        let mut written = Vec::new();
        let mut output = |bytes: &[u8]| written.extend_from_slice(bytes);
        let orders = Orders { leaves_daemons: true, ..Orders::command(["sh", "-c", text], "/") };
        let outcome = run(&guards(), &orders, within, &|| is_cancelled, &mut output).unwrap();
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
