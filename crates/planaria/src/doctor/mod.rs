//! What works here for each provider, what does not, and what to do about it.
//!
//! Owns the findings and how they are written. Never changes anything but what it made itself, to
//! try machines with, and then destroys.
//!
//! # Layout
//! - [`here`]: this machine; [`trial`]: the machines of a recipe, tried for real; [`python`]: what
//!   scripts need there
//! - [`leaks`]: what providers still hold of runs that have ended

pub mod here;
pub mod leaks;
pub mod python;
pub mod trial;

pub use planaria_fleet::finding::{Block, Finding};

/// As people read it: a name for each block, and below it what was found, in columns.
pub fn text(blocks: &[Block]) -> String {
    let whats = blocks.iter().flat_map(|block| &block.findings).map(|one| one.what.chars().count());
    let width = whats.max().unwrap_or(0);
    let mut lines = Vec::new();
    for block in blocks {
        lines.push(block.name.clone());
        for Finding { what, works, said, remedy } in &block.findings {
            let word = if *works { "ok" } else { "missing" };
            let mut said = said.lines();
            let first = said.next().unwrap_or_default();
            lines.push(format!("  {word:<7}  {what:<width$}  {first}"));
            let more = said.chain(remedy.iter().flat_map(|remedy| remedy.lines()));
            lines.extend(more.map(|line| format!("  {:<7}  {:<width$}  {line}", "", "")));
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_stand_in_columns() {
        let blocks = [
            Block { name: "ssh".into(), findings: vec![Finding::ok("client", "OpenSSH 9.2")] },
            Block {
                name: "set-up tools".into(),
                findings: vec![Finding::missing("ansible-playbook", "not found", "install it")],
            },
        ];
        let expect = "\
ssh
  ok       client            OpenSSH 9.2
set-up tools
  missing  ansible-playbook  not found
                             install it
";
        assert_eq!(text(&blocks), expect);
        assert_eq!(blocks.map(|block| block.works()), [true, false]);
    }
}
