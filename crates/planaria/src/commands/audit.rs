//! `planaria audit`: whether a run read every example exactly once per epoch.

use crate::audit::evidence::audit_run;
use crate::audit::page;
use crate::cli;
use crate::cluster::detached;
use crate::commands::print;
use crate::failure::{Exit, Result};
use crate::progress::Style;
use crate::run_dir::find;
use crate::scripts;

/// Audits, prints, and says what to exit with.
pub fn run(options: &cli::Audit, style: Style) -> Result<Option<Exit>> {
    let folder = find(&options.run)?;
    scripts::refuse(&folder, "which examples it read, only the script knows", |path| {
        format!("`planaria logs {path}` prints all that it wrote")
    })?;
    detached::refresh(&folder, style);
    let audit = audit_run(&folder)?;
    if options.json {
        let text = serde_json::to_string_pretty(&audit).expect("an audit has string keys only");
        print(&(text + "\n"))?;
    } else {
        print(&page::text(&audit, &folder.display().to_string()))?;
    }
    Ok((!audit.exactly_once).then_some(Exit::Failed))
}
