//! `planaria data`: public data sets, listed and fetched.

use crate::cli;
use crate::commands::print;
use planaria_control::fetching::{SETS, Set, default_folder};
use planaria_control::talk::{Progress, Talk};
use planaria_runs::failure::Result;
use planaria_text::number::{bytes, counted};

pub fn run(what: &cli::Data, talk: Talk) -> Result<()> {
    match what {
        cli::Data::List => print(&list()),
        cli::Data::Get(options) => get(options, talk),
    }
}

fn list() -> String {
    let line = |set: &Set| format!("{:<14} {:>9}  {}\n", set.name, bytes(set.bytes()), set.about);
    SETS.iter().map(line).collect()
}

fn get(options: &cli::DataGet, talk: Talk) -> Result<()> {
    let set = Set::named(&options.name)?;
    let folder = options.to.clone().unwrap_or_else(|| default_folder(set));
    set.get(&folder, options.from.as_deref(), talk)?;
    let path = folder.display();
    let files = counted(set.files().len() as u64, "file");
    let text = format!("{path} has {}: {files}; `planaria init {path}` writes a recipe", set.name);
    Progress::new(talk).note(&text);
    print(&format!("{path}\n"))
}
