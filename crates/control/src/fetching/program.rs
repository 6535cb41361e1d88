//! The system's programs that fetch and unpack: `curl` or `wget`, and `tar`.
//!
//! Owns their arguments and what their exit codes mean. Every wait of theirs is bounded: a connection
//! by 20 seconds, silence by 60. Never decides what is fetched, or whether it is right.

use crate::talk::Progress;
use planaria_fleet::process::end_with_parent;
use planaria_runs::failure::{Context, Failure, Result};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Poll interval for how much has come.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Shares of a file that are told of.
const SHARES: u64 = 10;
/// Smaller files are there before a share need be told.
const SHARED_BYTES_MIN: u64 = 50 << 20;
/// `curl`: the server cannot go on in the middle of a file, or will not.
const CURL_NO_RANGE: [i32; 3] = [22, 33, 36];
/// `wget`: the server said no.
const WGET_REFUSED: i32 = 8;

/// A program that fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Curl,
    Wget,
}

/// Why a file could not be fetched.
#[derive(Debug)]
pub(super) struct Refusal {
    pub text: String,
    /// Whether it may be for what has come before: from the start it may work.
    pub cannot_go_on: bool,
}

/// Tells how much of a large file has come, a tenth at a time.
pub(super) struct Shares<'p> {
    bytes: u64,
    told: u64,
    progress: &'p mut Progress,
}

impl<'p> Shares<'p> {
    pub fn new(bytes: u64, progress: &'p mut Progress) -> Self {
        Self { bytes, told: 0, progress }
    }

    fn come(&mut self, part: &Path) {
        if self.bytes < SHARED_BYTES_MIN {
            return;
        }
        let come = std::fs::metadata(part).map_or(0, |found| found.len());
        let share = come.saturating_mul(SHARES) / self.bytes;
        if share > self.told && share < SHARES {
            self.told = share;
            self.progress.note(&format!("  {}%", share * 100 / SHARES));
        }
    }
}

impl Program {
    /// The first that is here.
    pub fn find() -> Result<Self> {
        let all = [Self::Curl, Self::Wget];
        all.into_iter().find(|program| program.is_here()).ok_or_else(|| {
            Failure::user("data is fetched by `curl` or `wget`, and neither is on this machine")
                .hint("install one of them, such as with `apt install curl`")
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Wget => "wget",
        }
    }

    fn is_here(self) -> bool {
        let mut command = Command::new(self.name());
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// Fetches a file, going on after what is in `part`; nothing where it did.
    pub fn fetch(self, url: &str, part: &Path, shares: &mut Shares<'_>) -> Result<Option<Refusal>> {
        let mut command = Command::new(self.name());
        match self {
            Self::Curl => command
                .args(["--fail", "--location", "--silent", "--show-error", "--retry", "2"])
                .args(["--proto", "=http,https,ftp", "--connect-timeout", "20"])
                .args(["--speed-limit", "1", "--speed-time", "60"])
                .args(["--max-filesize", &shares.bytes.to_string()])
                .args(["--noproxy", "localhost,127.0.0.1", "--continue-at", "-", "--output"])
                .arg(part)
                .arg(url),
            Self::Wget => command
                .args(["--no-verbose", "--tries=3", "--connect-timeout=20", "--read-timeout=60"])
                .args(["--continue", "--output-document"])
                .arg(part)
                .arg(url),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // Two commands must not write one file, also where the first was killed.
        end_with_parent(&mut command);
        let name = self.name();
        let mut child = command.spawn().context(|| format!("cannot start `{name}`"))?;
        let status = loop {
            if let Some(status) =
                child.try_wait().context(|| format!("cannot wait for `{name}`"))?
            {
                break status;
            }
            shares.come(part);
            std::thread::park_timeout(LOOK_EVERY);
        };
        if status.success() {
            return Ok(None);
        }
        let said = said(&mut child);
        let why = match (said.lines().last(), status.code()) {
            (Some(line), _) => line.trim().to_owned(),
            (None, Some(code)) => format!("`{name}` exited with {code}"),
            (None, None) => format!("`{name}` was ended by a signal"),
        };
        let cannot_go_on = match self {
            Self::Curl => status.code().is_some_and(|code| CURL_NO_RANGE.contains(&code)),
            Self::Wget => status.code() == Some(WGET_REFUSED),
        };
        Ok(Some(Refusal { text: why, cannot_go_on }))
    }
}

/// Unpacks a packed archive into a folder, without the folder that its files are in.
pub(super) fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    let mut command = Command::new("tar");
    command.arg("-xzf").arg(archive).arg("-C").arg(folder).arg("--strip-components=1");
    end_with_parent(&mut command);
    let ran = command.stdin(Stdio::null()).output();
    let failed = |why: String| {
        let message = format!("`{}` cannot be unpacked: {why}", archive.display());
        Failure::failed(message).hint("`tar` and `gzip` unpack it; are both on this machine?")
    };
    match ran {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(failed(said))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Err(failed("there is no `tar`".into())),
        Err(e) => Err(failed(e.to_string())),
    }
}

/// What a program that has ended said; it says little, so the pipe has held all of it.
fn said(child: &mut Child) -> String {
    let mut text = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        // What cannot be read is not needed.
        let _ = stderr.take(4096).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}
