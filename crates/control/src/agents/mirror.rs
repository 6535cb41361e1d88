//! `planaria agent mirror FOLDER`: tells what is new in the folder of a detached run.
//!
//! Owns nothing: what is sent, and how, is [`mirror`](crate::detached::mirror)'s. Reads from
//! standard input what the caller has, and writes to standard output.

use crate::agents::host;
use crate::detached::ENDED;
use crate::detached::mirror::{HostState, Question, Told, tell};
use planaria_fleet::host::{serve, succeeding};
use planaria_fleet::messages::write_message;
use planaria_runs::failure::{Context, Result};
use planaria_runs::run_dir::lock::Holder;
use std::io::Write;
use std::path::Path;

/// Tells, in so many bytes at most.
pub fn run(folder: &Path) -> Result<()> {
    let Question { known, is_brief } = host::orders()?;
    // First this: a controller that has said how it ended has written everything before.
    let ended = folder.parent().and_then(|home| std::fs::read_to_string(home.join(ENDED)).ok());
    // And the controller's lock before the files: what is written before it is let go of is told.
    let holder = folder.parent().map(Holder::of).transpose()?;
    let is_live = ended.is_none() && holder.is_some_and(Holder::is_live);
    let state =
        |run| HostState { is_linked: serve::is_linked(run), may_succeed: succeeding::waits(run) };
    let host = folder.parent().map(state).unwrap_or_default();
    let mut stdout = std::io::stdout().lock();
    let mut tell_all = || {
        write_message(&mut stdout, &Told::Run { is_live, ended: ended.clone(), host })?;
        let is_more = match is_brief {
            true => false,
            false => tell(folder, &known, is_live, |word| write_message(&mut stdout, &word))?,
        };
        write_message(&mut stdout, &Told::Over { is_more })?;
        stdout.flush()
    };
    tell_all().context(|| format!("cannot tell of `{}`", folder.display()))
}
