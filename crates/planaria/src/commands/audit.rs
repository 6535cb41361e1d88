//! `planaria audit`: whether a run read every example exactly once per epoch.

use crate::cli;
use crate::commands::print;
use planaria_control::detached;
use planaria_control::jobs::{about::Command, permit};
use planaria_control::talk::Talk;
use planaria_runs::audit::{Verdict, page};
use planaria_runs::evidence::audit_run;
use planaria_runs::failure::{Exit, Result};
use planaria_runs::run_dir::find_or_newest;

/// Audits, prints, and says what to exit with.
pub fn run(options: &cli::Audit, talk: Talk) -> Result<Option<Exit>> {
    let folder = find_or_newest(options.run.as_deref())?;
    permit(&folder, Command::Audit)?;
    detached::refresh(&folder, talk);
    let audit = audit_run(&folder)?;
    if options.json {
        let text = serde_json::to_string_pretty(&audit).expect("an audit has string keys only");
        print(&(text + "\n"))?;
    } else {
        print(&page::text(&audit, &folder.display().to_string()))?;
    }
    Ok(match audit.verdict {
        Verdict::Yes => None,
        Verdict::Incomplete => Some(Exit::Unproven),
        Verdict::No | Verdict::BeforeAudits => Some(Exit::Failed),
    })
}
