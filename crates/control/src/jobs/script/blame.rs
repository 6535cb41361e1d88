//! What the last lines of a process that failed tell: whether it would fail again, where it failed, and
//! whether another process is to blame. Pure.

use crate::jobs::script::policy::Why;
use planaria_fleet::ending::Ending;
use planaria_runs::figures::without_rank;

/// Words of failures that come of another process being gone: where such a one fails tells nothing.
const OF_OTHERS: [&str; 17] = [
    "abort",
    "barrier",
    "broken pipe",
    "cancel",
    "collective",
    "connect",
    "gloo",
    "nccl",
    "peer",
    "process group",
    "rendezvous",
    "reset",
    "socket",
    "store",
    "timed out",
    "timeout",
    "unavailable",
];

/// Where a process failed, and how far it had come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Python's words: file, line and exception.
    at: String,
    /// The last line before them.
    before: Option<String>,
}

impl Place {
    /// Where Python says that a process failed; nothing where it failed because another process was gone.
    /// `reached` is how far it had come by its figures, where it tells any.
    pub fn of(lines: &[String], reached: Option<String>) -> Option<Self> {
        let lines: Vec<&str> = lines.iter().map(|line| without_rank(line)).collect();
        let begins = lines.iter().rposition(|line| line.starts_with("Traceback (most recent"))?;
        let (before, traceback) = lines.split_at(begins);
        let is_frame = |line: &&str| line.starts_with("  File \"") && line.contains(", line ");
        let frame = traceback.iter().rposition(is_frame)?;
        let is_exception = |line: &&&str| !line.is_empty() && !line.starts_with(' ');
        let exception = traceback[frame + 1..].iter().find(is_exception)?;
        if is_of_others(exception) {
            return None;
        }
        let last = || before.iter().rev().find(|line| !line.trim().is_empty());
        let before = reached.or_else(|| last().map(|line| (*line).to_owned()));
        Some(Self { at: format!("{}: {exception}", traceback[frame].trim()), before })
    }
}

/// Whether a process failed because another was gone, by the last line that it wrote.
pub fn is_left_alone(lines: &[String]) -> bool {
    lines.iter().rev().find(|line| !line.trim().is_empty()).is_some_and(|line| is_of_others(line))
}

fn is_of_others(line: &str) -> bool {
    let line = line.to_lowercase();
    OF_OTHERS.iter().any(|word| line.contains(word))
}

/// Why a process would fail every time, where its last line tells.
pub fn hopeless(ending: Ending, lines: &[String]) -> Option<Why> {
    let last = lines.iter().rev().find(|line| !line.trim().is_empty())?;
    let is_about = |names: &[&str]| names.iter().any(|name| last.starts_with(name));
    match ending {
        Ending::Code(0) | Ending::Signal(_) | Ending::MachineLost => None,
        Ending::Code(_) if is_about(&["ModuleNotFoundError:", "ImportError:"]) => {
            Some(Why::MissingModule)
        }
        Ending::Code(_) if is_about(&["SyntaxError:", "IndentationError:", "TabError:"]) => {
            Some(Why::NotPython)
        }
        Ending::Code(2) if last.contains(": error: ") => Some(Why::WrongArguments),
        Ending::Code(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn traceback(before: &str, last: &str) -> Vec<String> {
        lines(&format!(
            "{before}\n[rank1]: Traceback (most recent call last):\n[rank1]:   File \"train.py\", \
             line 12, in main\n[rank1]:     x = data[9]\n[rank1]: {last}\nsome warning at the end"
        ))
    }

    #[test]
    fn a_place_is_told_unless_another_process_is_to_blame() {
        let place = |before, last| Place::of(&traceback(before, last), None);
        let first = place("epoch 3", "IndexError: list index out of range");
        assert_eq!(
            first.as_ref().map(|place| &*place.at),
            Some("File \"train.py\", line 12, in main: IndexError: list index out of range")
        );
        assert_eq!(first, place("epoch 3", "IndexError: list index out of range"));
        assert_ne!(
            first,
            place("epoch 4", "IndexError: list index out of range"),
            "it got further"
        );
        for of_others in [
            "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:5",
            "torch.distributed.DistBackendError: NCCL communicator was aborted",
            "UnavailableError: failed",
        ] {
            assert_eq!(place("", of_others), None, "{of_others}");
        }
        assert_eq!(Place::of(&lines("killed"), None), None);
    }

    #[test]
    fn figures_tell_how_far_it_came() {
        let of = |before, reached: &str| {
            Place::of(&traceback(before, "ValueError: 1"), Some(reached.to_owned()))
        };
        assert_eq!(of("step 1, 3.1 ms", "1"), of("step 1, 3.2 ms", "1"));
        assert_ne!(of("", "1"), of("", "2"));
    }

    #[test]
    fn what_would_fail_every_time_is_not_tried_again() {
        let last = |line: &str| vec!["Traceback".to_owned(), line.to_owned(), String::new()];
        for (line, code, is_hopeless) in [
            ("ModuleNotFoundError: No module named 'torch'", 1, true),
            ("train.py: error: unrecognized arguments: --x", 2, true),
            ("SyntaxError: invalid syntax", 1, true),
            ("RuntimeError: connection reset", 1, false),
            ("ValueError: ImportError: x", 1, false),
        ] {
            let found = hopeless(Ending::Code(code), &last(line));
            assert_eq!(found.is_some(), is_hopeless, "{line}");
        }
        assert_eq!(hopeless(Ending::Signal(9), &last("ImportError: x")), None);
    }
}
