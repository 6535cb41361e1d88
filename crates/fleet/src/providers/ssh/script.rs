//! What runs on a machine before anything of ours is there: small POSIX scripts.
//!
//! Owns their text and the lines they answer with. They go through standard input, so that it does
//! not matter which shell a user has; nothing secret is in them.

use crate::program::Program;
use crate::provider::Tag;
use crate::setup::plays;
use crate::shell::quoted;

const DELIVERY: &str = include_str!("delivery.sh");
const CENSUS: &str = include_str!("census.sh");
const REMOVAL: &str = include_str!("removal.sh");
/// What every line of a script begins with; others are a login's greetings.
const MARK: &str = "planaria: ";

/// The command that reads a script of so many bytes from standard input and runs it, in the words of
/// in any shell that the user has. What follows the script is the script's.
pub fn reading(script: &str) -> String {
    format!("exec sh -c 'eval \"$(head -c {})\"' planaria", script.len())
}

/// The same for a script that becomes the host of a run: it is known by the run's name from the
/// beginning, so that [`removal`] finds it also while it looks for the program.
pub fn reading_host(script: &str, run: &Tag) -> String {
    format!("{} host {}", reading(script), quoted(run.as_str()))
}

/// Delivers the program where it is missing and becomes the host of a run.
pub fn host(program: &Program, run: &Tag) -> String {
    let mut script = delivery(program);
    script += &format!(
        "run={}\nwhy=$(mkdir -p \"$folder/runs/$run\" 2>&1) || fail folder \"$why\"\n\
         printf 'planaria: ready\\n'\nexec \"$file\" agent host \"$run\"\n",
        quoted(run.as_str())
    );
    script
}

/// Delivers the program where it is missing and runs it, for so many seconds at most.
pub fn command(program: &Program, arguments: &[&str], seconds: u64) -> String {
    let words: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
    let words = words.join(" ");
    let mut script = delivery(program);
    script += &format!(
        "printf 'planaria: ready\\n'\n\
         if command -v timeout >/dev/null 2>&1; then timeout -k 2 {seconds} \"$file\" {words}\n\
         else \"$file\" {words}\nfi\n\
         printf '\\nplanaria: ended %s\\n' \"$?\"\n"
    );
    script
}

/// Says which runs there are.
pub fn census() -> String {
    CENSUS.to_owned()
}

/// Ends the host of a run and removes its folder.
pub fn removal(run: &Tag) -> String {
    format!("run={}\n{}{REMOVAL}", quoted(run.as_str()), plays::ENDING)
}

fn delivery(program: &Program) -> String {
    let Program { sha256, bytes, build, .. } = program;
    format!("sha={}\nbytes={bytes}\nbuild={}\n{DELIVERY}", quoted(sha256), quoted(build))
}

/// A line of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// The program has to be sent.
    Missing(Facts),
    /// It could not be delivered: the kind, and what was said.
    Fault(String, String),
    /// The program takes over.
    Ready,
    /// There is a folder of a run.
    Folder(Tag),
    /// There is a host of a run.
    Host(Tag),
    /// All runs have been said.
    Counted,
    /// All of the run is gone.
    Removed,
    /// What could not be removed.
    Kept(String),
}

/// What a machine is, for a program that has to run on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub system: String,
    pub arch: String,
    /// Room where the program goes, if known.
    pub free_bytes: Option<u64>,
    /// `glibc 2.36`, `musl`, `unknown`.
    pub libc: String,
}

/// Understands a line, if it is one of a script.
pub fn read(line: &str) -> Option<Line> {
    let said = line.trim_end().strip_prefix(MARK)?;
    let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
    let line = match word {
        "missing" => Line::Missing(facts(rest)?),
        "fault" => {
            let (kind, what) = rest.split_once(' ').unwrap_or((rest, ""));
            Line::Fault(kind.to_owned(), what.trim().to_owned())
        }
        "ready" => Line::Ready,
        // A name that leads elsewhere is not a run's.
        "folder" => Line::Folder(Tag::new(rest)?),
        "host" => Line::Host(Tag::new(rest)?),
        "counted" => Line::Counted,
        "removed" => Line::Removed,
        "kept" => Line::Kept(rest.to_owned()),
        _ => return None,
    };
    Some(line)
}

fn facts(words: &str) -> Option<Facts> {
    let mut words = words.splitn(4, ' ');
    let (system, arch) = (words.next()?.to_owned(), words.next()?.to_owned());
    let free_bytes = words.next()?.parse::<u64>().ok().map(|kib| kib.saturating_mul(1024));
    Some(Facts { system, arch, free_bytes, libc: words.next()?.to_owned() })
}

/// What a command wrote, and the code it ended with, where it came to its end.
pub fn ended(output: &[u8]) -> Option<(&[u8], i32)> {
    const LAST: &[u8] = b"\nplanaria: ended ";
    let at = output.windows(LAST.len()).rposition(|bytes| bytes == LAST)?;
    let code = std::str::from_utf8(&output[at + LAST.len()..]).ok()?;
    Some((&output[..at], code.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn lines_are_understood_or_greetings() {
        let facts = |free_bytes, libc: &str| {
            let (system, arch, libc) = ("Linux".into(), "x86_64".into(), libc.into());
            Some(Line::Missing(Facts { system, arch, free_bytes, libc }))
        };
        for (line, expect) in [
            ("Welcome to Debian!\n", None),
            ("planaria: unheard of\n", None),
            ("planaria: ready\n", Some(Line::Ready)),
            (
                "planaria: missing Linux x86_64 1000 glibc 2.36\n",
                facts(Some(1_024_000), "glibc 2.36"),
            ),
            ("planaria: missing Linux x86_64 unknown musl\r\n", facts(None, "musl")),
            ("planaria: missing Linux\n", None),
            (
                "planaria: fault folder no: way\n",
                Some(Line::Fault("folder".into(), "no: way".into())),
            ),
            ("planaria: folder ../x\n", None),
            ("planaria: folder a-1\n", Some(Line::Folder(Tag::new("a-1").expect("a name")))),
        ] {
            assert_eq!(read(line), expect, "{line}");
        }
    }

    #[test]
    fn the_end_of_a_command_is_told_from_what_it_wrote() {
        assert_eq!(ended(b"hello\n\nplanaria: ended 3\n"), Some((&b"hello\n"[..], 3)));
        assert_eq!(ended(b"\nplanaria: ended 0\n"), Some((&b""[..], 0)));
        assert_eq!(ended(b"\nplanaria: ended 1\n\nplanaria: ended 137\n").map(|e| e.1), Some(137));
        assert_eq!(ended(b"cut off"), None);
        assert_eq!(ended(b"\nplanaria: ended x"), None);
    }

    /// A host whose controller is gone before it has its program makes no folder after all was removed.
    #[test]
    fn a_host_that_is_about_to_begin_is_removed_too() {
        let home = tempfile::tempdir().expect("a folder");
        let run = Tag::new("removed-1").expect("a name");
        let start = |words: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", words]).env("HOME", home.path()).process_group(0);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a shell")
        };
        let script = "read -r word; mkdir -p \"$HOME/.cache/planaria/runs/removed-1\"\n";
        let mut late = start(&reading_host(script, &run));
        let mut pipe = late.stdin.take().expect("a pipe");
        pipe.write_all(script.as_bytes()).expect("it reads");
        let line = format!("/proc/{}/cmdline", late.id());
        while !std::fs::read_to_string(&line).expect("it lives").contains("removed-1\0") {
            std::thread::yield_now();
        }
        let script = removal(&run);
        let mut removing = start(&reading(&script));
        let stdin = removing.stdin.as_mut().expect("a pipe");
        stdin.write_all(script.as_bytes()).expect("it reads");
        assert!(removing.wait().expect("it ends").success());
        // Where it had lived on, it would go on now.
        drop(pipe);
        assert!(!late.wait().expect("it ends").success());
        assert!(!home.path().join(".cache/planaria/runs/removed-1").exists());
    }
}
