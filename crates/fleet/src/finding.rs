//! What works on this machine, what does not, and what to do about it: the lines of `doctor`.
//!
//! Owns one line, and asking a program for its version. Never changes anything.

use crate::carrier::Carrier;
use crate::provider::Fault;
use serde::Serialize;
use std::io::{self, Read};
use std::process::Command;
use std::time::Duration;

/// How long a program may take to say which version it is.
const ANSWER: Duration = Duration::from_secs(20);
/// Most bytes that are read of what it says.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// What was found about one thing, such as a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Block {
    pub name: String,
    /// What was found, in this order.
    pub findings: Vec<Finding>,
}

impl Block {
    /// Whether all of it works.
    pub fn works(&self) -> bool {
        self.findings.iter().all(|finding| finding.works)
    }
}

/// Something that works, or does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub what: String,
    pub works: bool,
    /// What it is, or why it does not work.
    pub said: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    /// Something that works.
    pub fn ok(what: impl Into<String>, said: impl Into<String>) -> Self {
        Self { what: what.into(), works: true, said: said.into(), remedy: None }
    }

    /// Something that does not, and what helps.
    pub fn missing(
        what: impl Into<String>,
        said: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = Some(remedy.into()).filter(|remedy| !remedy.is_empty());
        Self { what: what.into(), works: false, said: said.into(), remedy }
    }

    /// A fault as a finding.
    pub fn fault(what: impl Into<String>, fault: Fault) -> Self {
        Self::missing(what, fault.what, fault.hint.unwrap_or_default())
    }

    /// A program that was asked for its version.
    pub fn tool(what: &str, answer: io::Result<Answer>, remedy: &str) -> Self {
        match answer {
            Ok(answer) if answer.is_well => Self::ok(what, answer.first_line()),
            // Versions come first, reasons last.
            Ok(answer) => Self::missing(what, answer.last_line(), remedy),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Self::missing(what, "not found on PATH", remedy)
            }
            Err(e) => Self::missing(what, e.to_string(), remedy),
        }
    }
}

/// What a program said.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether it ended with code 0.
    pub is_well: bool,
    pub said: String,
}

impl Answer {
    pub fn first_line(&self) -> String {
        self.said.lines().next().unwrap_or_default().trim().to_owned()
    }

    fn last_line(&self) -> String {
        self.said.lines().next_back().unwrap_or_default().trim().to_owned()
    }
}

/// Runs a program of this machine that answers at once, and gives what it said.
pub fn ask(program: &str, words: &[&str]) -> io::Result<Answer> {
    let mut command = Command::new(program);
    command.args(words);
    let Carrier { stdin, stdout, stderr_tail, end } = Carrier::start(command)?;
    drop(stdin);
    let Some(ending) = end.wait(ANSWER) else {
        end.kill();
        return Err(io::Error::other(format!("it said nothing for {} s", ANSWER.as_secs())));
    };
    let mut said = Vec::new();
    stdout.take(ANSWER_BYTES_MAX).read_to_end(&mut said)?;
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    let said = if said.is_empty() { stderr_tail.text() } else { said };
    Ok(Answer { is_well: ending.is_well(), said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_say_their_version_or_why_not() {
        let check = |program: &str, words: &[&str], works: bool, expect: &str| {
            let found = Finding::tool("it", ask(program, words), "get it");
            assert_eq!((found.works, &*found.said), (works, expect));
            assert_eq!(found.remedy.is_some(), !works);
        };
        check("echo", &["one\ntwo"], true, "one");
        check("sh", &["-c", "echo where; echo no such module >&2; exit 3"], false, "where");
        check("sh", &["-c", "printf 'where\nno such module' >&2; exit 3"], false, "no such module");
        check("there-is-no-such-program", &[], false, "not found on PATH");
    }
}
