//! Playbooks, played from this machine.
//!
//! Owns the inventory that is made for a run and the call of `ansible-playbook`, which a guard keeps.
//! Never reaches a machine by itself: the words of the inventory are the provider's.

use super::files::Content;
use crate::command;
use crate::guard::Orders;
use crate::guarded::Guards;
use crate::messages::TaskOutcome;
use crate::provider::{Fault, Machine};
use planaria_recipe::pool::{SERVER, WORKER, is_in};
use planaria_store::hash::Hasher;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a playbook reads beside it, as Ansible looks for it.
const BESIDE: [&str; 6] = ["roles", "group_vars", "host_vars", "files", "templates", "tasks"];

/// A playbook, and what it comes to.
#[derive(Debug, Clone)]
pub(super) struct Playbook {
    path: PathBuf,
    /// Over the playbook and the folders beside it that belong to it.
    pub hash: [u8; 32],
}

impl Playbook {
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut hash = Hasher::new();
        hash.update(Content::read(path, None)?.hash);
        let folder = path.parent().unwrap_or(Path::new(""));
        for name in BESIDE {
            let inside = folder.join(name);
            if inside.is_dir() {
                hash.update(name);
                hash.update(Content::read(&inside, None)?.hash);
            }
        }
        Ok(Self { path: path.to_path_buf(), hash: hash.finish() })
    }
}

/// An inventory of machines, each with its provider's words, in their groups.
pub fn inventory(machines: &[(Machine, String)]) -> String {
    let mut text = String::new();
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (machine, words) in machines {
        let _ = writeln!(text, "{} {}", machine.name, words.replace(['\n', '\r'], " "));
        let roles = [WORKER, SERVER].into_iter().filter(|role| is_in(role, &machine.groups));
        let named = machine.groups.iter().map(String::as_str);
        for group in roles.chain(named.filter(|group| ![WORKER, SERVER].contains(group))) {
            groups.entry(group).or_default().push(&machine.name);
        }
    }
    for (group, names) in groups {
        let _ = write!(text, "\n[{group}]\n{}\n", names.join("\n"));
    }
    text
}

/// What one call needs.
pub(super) struct Call<'a> {
    pub machine: &'a str,
    pub machines: &'a [(Machine, String)],
    /// Folder for the inventory, and the program to call.
    pub folder: &'a Path,
    pub program: &'a str,
    /// What keeps the program.
    pub guards: &'a Guards,
    /// Marks what it starts on a machine that it reaches by ssh.
    pub shell: Option<&'a str>,
    pub env: &'a [(String, String)],
    pub within: Duration,
    pub is_cancelled: &'a dyn Fn() -> bool,
}

/// Plays a playbook for one machine.
pub(super) fn play(
    playbook: &Playbook,
    call: &Call<'_>,
    output: &mut dyn FnMut(&[u8]),
) -> Result<TaskOutcome, Fault> {
    let written = fs::create_dir_all(call.folder).and_then(|()| {
        let path = call.folder.join(format!("inventory-{}.ini", call.machine));
        fs::write(&path, inventory(call.machines)).map(|()| path)
    });
    let path = written.map_err(|e| {
        let what = format!("the inventory cannot be written to `{}`: {e}", call.folder.display());
        Fault::fix(call.machine, what, "make room there")
    })?;
    if !is_there(call.program) {
        return Err(Fault::fix(
            call.machine,
            "the set-up has an `ansible` step, but there is no `ansible-playbook` here",
            "install it on this machine: `pip install ansible-core`",
        ));
    }
    let (inventory, site) = (path.to_string_lossy(), playbook.path.to_string_lossy());
    let words = [call.program, "-i", &inventory, "--limit", call.machine, "--", &site];
    let mut orders = Orders::command(words, ".");
    if let Some(shell) = call.shell {
        let shell = ["-e".to_owned(), format!("ansible_shell_executable={shell}")];
        orders.command.splice(5..5, shell);
    }
    let own = [("ANSIBLE_NOCOLOR", "1"), ("ANSIBLE_RETRY_FILES_ENABLED", "0")];
    orders.env = own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    orders.env.extend(call.env.iter().cloned());
    command::run(call.guards, &orders, call.within, call.is_cancelled, output).map_err(|e| {
        let what = format!("`ansible-playbook` cannot be started: {e}");
        Fault::fix(call.machine, what, "try it by hand")
    })
}

/// Whether a program can be found, by its path or on `PATH`.
fn is_there(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    program.contains('/') && Path::new(program).exists()
        || std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

/// Whether Ansible reaches a machine by ssh, which is what it does unless it is told otherwise.
pub(super) fn is_remote(machines: &[(Machine, String)], machine: &str) -> bool {
    let mut words = machines.iter().filter(|(known, _)| known.name == machine);
    words.any(|(_, words)| !words.contains("ansible_connection="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inventories_name_groups() {
        let machine = |name: &str, groups: &[&str]| {
            Machine::new(name, name, groups.iter().map(|g| (*g).to_owned()).collect())
        };
        let machines = [
            (machine("node1", &[]), "ansible_host=10.0.0.1".to_owned()),
            (machine("node2", &["server", "big"]), "ansible_port=22".to_owned()),
        ];
        let expect = "\
node1 ansible_host=10.0.0.1
node2 ansible_port=22

[big]
node2

[server]
node1
node2

[worker]
node1
";
        assert_eq!(inventory(&machines), expect);
    }

    #[test]
    fn roles_belong_to_a_playbook() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("site.yml");
        fs::write(&path, "[]").unwrap();
        let hash = || Playbook::read(&path).unwrap().hash;
        let first = hash();
        fs::create_dir_all(folder.path().join("roles/a")).unwrap();
        let second = hash();
        assert_ne!(first, second);
        fs::write(folder.path().join("roles/a/main.yml"), "x").unwrap();
        assert_ne!(hash(), second);
        fs::write(folder.path().join("other"), "x").unwrap();
    }
}
