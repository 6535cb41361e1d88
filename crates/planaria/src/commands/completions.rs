//! `planaria completions` and `planaria man`: what shells and `man` know of the command line.
//!
//! Both follow from [`Cli`]; nothing about commands is written here.

use crate::cli::{self, Cli};
use crate::commands::print;
use clap::CommandFactory;
use clap_complete::generate;
use planaria_runs::failure::{Context, Failure, Result};

/// The name that is completed.
const NAME: &str = "planaria";

/// Prints what a shell completes commands by.
pub fn completions(options: &cli::Completions) -> Result<()> {
    let mut script = Vec::new();
    let mut command = shown();
    match options.shell {
        cli::Shell::Bash => generate(clap_complete::Shell::Bash, &mut command, NAME, &mut script),
        cli::Shell::Zsh => generate(clap_complete::Shell::Zsh, &mut command, NAME, &mut script),
        cli::Shell::Fish => generate(clap_complete::Shell::Fish, &mut command, NAME, &mut script),
    }
    print(&String::from_utf8_lossy(&script))
}

/// Prints a page for `man`: of the program, or of one command.
pub fn man(options: &cli::Man) -> Result<()> {
    let mut program = shown();
    program.build();
    let command = match &options.command {
        None => program,
        Some(name) => page_of(&program, name)?,
    };
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command).render(&mut page);
    rendered.context(|| "cannot write the page".into())?;
    print(&String::from_utf8_lossy(&page))
}

fn page_of(program: &clap::Command, name: &str) -> Result<clap::Command> {
    let Some(command) = program.find_subcommand(name) else {
        let names: Vec<&str> = program.get_subcommands().map(clap::Command::get_name).collect();
        return Err(Failure::user(format!("there is no command `{name}`"))
            .hint(format!("commands are {}", names.join(", "))));
    };
    Ok(command.clone())
}

/// The command line without what only our own processes use.
fn shown() -> clap::Command {
    let whole = Cli::command();
    let commands: Vec<clap::Command> =
        whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let globals: Vec<clap::Arg> = whole.get_arguments().cloned().collect();
    let mut shown = clap::Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .subcommand_required(true)
        .args(globals)
        .subcommands(commands);
    if let Some(about) = whole.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(after) = whole.get_after_help() {
        shown = shown.after_help(after.clone());
    }
    shown
}
