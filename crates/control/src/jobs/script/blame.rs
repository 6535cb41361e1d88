//! What the last lines of a process that failed tell: whether it would fail again, where it failed, and
//! whether another process is to blame. Pure.

use crate::jobs::script::layout::{MPIRUN, TORCHRUN};
use crate::jobs::script::policy::Why;
use planaria_fleet::ending::Ending;
use planaria_text::figures::without_rank;

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

/// Words by which launchers refuse their own arguments.
const REFUSALS: [&str; 6] = [
    "unknown option",
    "unrecognized option",
    "unrecognized argument",
    "invalid option",
    "unknown argument",
    "unrecognised option",
];

/// One that has written more lines since an exception went on after it.
const AFTER_MAX: usize = 10;

/// Whose failure a process that failed tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    /// Its own: an exception that says nothing of others.
    Own,
    /// Another's, which is gone.
    OfOthers,
    /// It has said nothing.
    Unknown,
}

/// Whose failure the last lines of a process tell of.
pub fn words(lines: &[String]) -> Words {
    let plain: Vec<&str> = lines.iter().map(|line| without_rank(line)).collect();
    match raised(&plain).filter(|raised| raised.lines_after <= AFTER_MAX) {
        Some(raised) if is_of_others(raised.exception) => Words::OfOthers,
        // An exception that comes of being ended.
        Some(raised) if is_of_ending(raised.exception) => Words::Unknown,
        Some(_) => Words::Own,
        None if is_left_alone(lines) => Words::OfOthers,
        None => Words::Unknown,
    }
}

/// The last exception that lines tell of.
struct Raised<'l> {
    before: &'l [&'l str],
    frame: &'l str,
    exception: &'l str,
    /// Lines that were written since.
    lines_after: usize,
}

fn raised<'l>(lines: &'l [&'l str]) -> Option<Raised<'l>> {
    let begins = lines.iter().rposition(|line| line.starts_with("Traceback (most recent"))?;
    let (before, traceback) = lines.split_at(begins);
    let is_frame = |line: &&str| line.starts_with("  File \"") && line.contains(", line ");
    let frame = traceback.iter().rposition(is_frame)?;
    let is_exception = |line: &&str| !line.is_empty() && !line.starts_with(' ');
    let rest = &traceback[frame + 1..];
    let at = rest.iter().position(is_exception)?;
    let (frame, exception) = (traceback[frame].trim(), rest[at]);
    Some(Raised { before, frame, exception, lines_after: rest.len() - at - 1 })
}

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
        let Raised { before, frame, exception, .. } = raised(&lines)?;
        if is_of_others(exception) {
            return None;
        }
        let last = || before.iter().rev().find(|line| !line.trim().is_empty());
        let before = reached.or_else(|| last().map(|line| (*line).to_owned()));
        Some(Self { at: format!("{frame}: {exception}"), before })
    }
}

/// Whether a process failed because another was gone, by the last line that it wrote.
pub fn is_left_alone(lines: &[String]) -> bool {
    lines.iter().rev().find(|line| !line.trim().is_empty()).is_some_and(|line| is_of_others(line))
}

fn is_of_ending(exception: &str) -> bool {
    ["KeyboardInterrupt", "SystemExit", "SignalException"]
        .iter()
        .any(|name| exception.contains(name))
}

fn is_of_others(line: &str) -> bool {
    let line = line.to_lowercase();
    OF_OTHERS.iter().any(|word| line.contains(word))
}

/// Why a process in a role would fail every time, where its last lines tell.
pub fn hopeless(role: &str, ending: Ending, lines: &[String]) -> Option<Why> {
    let last = lines.iter().rev().find(|line| !line.trim().is_empty())?;
    let is_about = |names: &[&str]| names.iter().any(|name| last.starts_with(name));
    match ending {
        Ending::Code(0) | Ending::Signal(_) | Ending::MachineLost | Ending::OutOfMemory { .. } => {
            None
        }
        Ending::Code(_) if is_about(&["ModuleNotFoundError:", "ImportError:"]) => {
            Some(Why::MissingModule)
        }
        Ending::Code(_) if is_about(&["SyntaxError:", "IndentationError:", "TabError:"]) => {
            Some(Why::NotPython)
        }
        Ending::Code(2) if last.contains(": error: ") => Some(Why::WrongArguments),
        Ending::Code(_) if is_refused(role, lines) => Some(Why::WrongArguments),
        Ending::Code(_) => None,
    }
}

/// Whether a launcher has refused its own arguments, before it started anything.
fn is_refused(role: &str, lines: &[String]) -> bool {
    let refuses = |line: &String| {
        let line = line.to_lowercase();
        let names = [MPIRUN, TORCHRUN, "mpiexec"].iter().any(|name| line.contains(name));
        names && REFUSALS.iter().any(|words| line.contains(words))
    };
    [MPIRUN, TORCHRUN].contains(&role) && lines.iter().any(refuses)
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
            let found = hopeless("worker", Ending::Code(code), &last(line));
            assert_eq!(found.is_some(), is_hopeless, "{line}");
        }
        assert_eq!(hopeless("worker", Ending::Signal(9), &last("ImportError: x")), None);
    }

    #[test]
    fn a_launcher_that_refuses_its_arguments_is_not_tried_again() {
        let said = "mpirun: Error: unknown option \"--nosuch\"\nType 'mpirun --help' for usage.";
        let why = Some(Why::WrongArguments);
        assert_eq!(hopeless(MPIRUN, Ending::Code(1), &lines(said)), why);
        assert_eq!(hopeless("worker", Ending::Code(1), &lines(said)), None, "a script may say so");
        let fifth = "An unrecognized option was included on the mpirun command line:\n  nosuch";
        assert_eq!(hopeless(MPIRUN, Ending::Code(213), &lines(fifth)), why);
        assert_eq!(hopeless(MPIRUN, Ending::Code(1), &lines("rank 1 fails: unknown option")), None);
    }

    #[test]
    fn words_tell_whose_failure_it_is() {
        let of = |last| words(&traceback("epoch 3", last));
        assert_eq!(of("ValueError: 1"), Words::Own);
        assert_eq!(of("ConnectionError: [Errno 104] Connection reset by peer"), Words::OfOthers);
        assert_eq!(of("KeyboardInterrupt"), Words::Unknown);
        assert_eq!(words(&lines("epoch 3\nterminate: Connection closed by peer")), Words::OfOthers);
        assert_eq!(words(&lines("epoch 3")), Words::Unknown);
        let mut caught = traceback("epoch 3", "ValueError: 1");
        caught.extend((4..20).map(|epoch| format!("epoch {epoch}")));
        assert_eq!(words(&caught), Words::Unknown, "it went on");
    }
}
