//! Messages about a machine's set-up while it goes on: the steps that take long.
//!
//! Owns when to show one. Never does a step.

use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long a step may take before it is shown.
const MOMENT: Duration = Duration::from_secs(2);

/// Does the set-up of a machine with a log, and tells of steps in it that take long.
pub fn followed<T>(
    machine: &str,
    log: File,
    tell: &(dyn Fn(String) + Sync),
    work: impl FnOnce(&mut dyn Write) -> T,
) -> T {
    let (steps, begun) = channel::<Option<String>>();
    let mut log = Followed { log, line: Vec::new(), steps };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut step: Option<String> = None;
            loop {
                match begun.recv_timeout(MOMENT) {
                    Ok(next) => step = next,
                    Err(RecvTimeoutError::Timeout) => {
                        if let Some(step) = step.take() {
                            tell(format!("{machine}: {step}… (logs/setup-{machine}.log)"));
                        }
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        let done = work(&mut log);
        drop(log);
        done
    })
}

/// A log whose lines tell which step is under way.
struct Followed {
    log: File,
    line: Vec<u8>,
    steps: Sender<Option<String>>,
}

impl Write for Followed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.log.write(bytes)?;
        for byte in &bytes[..written] {
            if *byte != b'\n' {
                // Only what can be a title matters.
                if self.line.len() < 200 {
                    self.line.push(*byte);
                }
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).into_owned();
            self.line.clear();
            if let Some(step) = line.strip_prefix("== step ") {
                let _ = self.steps.send(Some(format!("step {step}")));
            } else if line.starts_with("== ") {
                let _ = self.steps.send(None);
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.log.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn only_what_takes_long_is_told() {
        let told = Mutex::new(Vec::new());
        let log = tempfile::tempfile().unwrap();
        let tell = |note: String| told.lock().unwrap().push(note);
        followed("h1", log, &tell, |log| {
            writeln!(log, "== step 1: quick\n== done in 0.0 s\n== step 2: pip torch").unwrap();
            std::thread::park_timeout(MOMENT + Duration::from_millis(500));
            writeln!(log, "== done").unwrap();
        });
        let told = told.into_inner().unwrap();
        assert_eq!(told, ["h1: step 2: pip torch… (logs/setup-h1.log)"]);
    }
}
