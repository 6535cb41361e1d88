//! Messages about a machine's set-up while it goes on: the steps that take long.
//!
//! Owns when to show one. Never does a step.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How long a step may take before it is shown.
const MOMENT: Duration = Duration::from_secs(2);

/// Does the set-up of a machine, which says when a step begins (with its title) and when it has ended,
/// and tells of steps in it that take long.
pub fn followed<T>(
    machine: &str,
    tell: &(dyn Fn(String) + Sync),
    work: impl FnOnce(&dyn Fn(Option<&str>)) -> T,
) -> T {
    let (steps, begun) = channel::<Option<String>>();
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
        let done = work(&|step| drop(steps.send(step.map(str::to_owned))));
        drop(steps);
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn only_what_takes_long_is_told() {
        let told = Mutex::new(Vec::new());
        let tell = |note: String| told.lock().unwrap().push(note);
        followed("h1", &tell, |on_step| {
            on_step(Some("step 1: quick"));
            on_step(None);
            on_step(Some("step 2: pip torch"));
            std::thread::park_timeout(MOMENT + Duration::from_millis(500));
            on_step(None);
        });
        let told = told.into_inner().unwrap();
        assert_eq!(told, ["h1: step 2: pip torch… (logs/setup-h1.log)"]);
    }
}
