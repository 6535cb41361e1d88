//! What works here for each provider, what does not, and what to do about it.
//!
//! Owns the findings and how they are written. Never changes anything but what it made itself, to
//! try machines with, and then destroys.
//!
//! # Layout
//! - [`here`]: this machine; [`trial`]: the machines of a recipe, tried for real; [`python`]: what
//!   scripts need there
//! - [`leaks`]: what providers still hold, and nobody needs

pub mod here;
pub mod leaks;
pub mod python;
pub mod trial;

use planaria_fleet::provider::Fault;
use serde::Serialize;

/// What was found about one thing, such as a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Block {
    /// What about: `ssh`.
    pub name: String,
    /// What was found, in this order.
    pub findings: Vec<Finding>,
}

/// Something that works, or does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub what: String,
    /// Whether it works.
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
}

impl Block {
    /// Whether all of it works.
    pub fn works(&self) -> bool {
        self.findings.iter().all(|finding| finding.works)
    }
}

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
