//! What this machine has: for processes on it, for each provider, and for set-up steps.
//!
//! Inspects it; what a provider needs, the provider says itself. Creates nothing, and waits for
//! nothing longer than some seconds.

use super::{Block, Finding};
use planaria_control::machine::disk_free_bytes;
use planaria_control::memory;
use planaria_fleet::finding::ask;
use planaria_fleet::providers;
use planaria_learn::engines;
use planaria_text::number::{bytes, counted};
use std::path::PathBuf;

/// Free space below which runs will soon fail.
const DISK_BYTES_MIN: u64 = 256 << 20;
/// One block for this machine, one for each provider that needs something, and one for what set-up
/// steps use.
pub fn look() -> Vec<Block> {
    let block = |name: &str, findings| Block { name: name.into(), findings };
    let mut blocks = vec![block("this machine", vec![processor(), memory(), disk()])];
    blocks.extend(providers::needs());
    blocks.push(block("set-up tools", vec![ansible(), venv()]));
    blocks
}

/// The program that plays playbooks.
pub fn ansible() -> Finding {
    let what = "ansible-playbook";
    let remedy = "for `ansible` steps: `apt install ansible`, or `pipx install ansible-core`";
    Finding::tool(what, ask(what, &["--version"]), remedy)
}

fn venv() -> Finding {
    let code = "import sys, venv, ensurepip; print('Python', sys.version.split()[0])";
    let remedy = "for `pip` steps on this machine: `apt install python3-venv`";
    Finding::tool("python3-venv", ask("python3", &["-c", code]), remedy)
}

fn processor() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let sets: Vec<&str> = engines::KINDS.iter().flat_map(|kind| (kind.here)()).collect();
    let sets = sets.join(", ").replace("cpu-", "");
    Finding::ok("processor", format!("{}, {}; {sets}", model(), counted(cores, "core")))
}

/// What the processor calls itself.
fn model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

fn memory() -> Finding {
    let total = memory::usable_bytes().map_or_else(|| "unknown".into(), bytes);
    let free = memory::available_bytes().map(|free| format!(", {} available", bytes(free)));
    Finding::ok("memory", total + &free.unwrap_or_default())
}

fn disk() -> Finding {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let Some(free) = disk_free_bytes(&here) else {
        let said = format!("cannot look at `{}`", here.display());
        return Finding::missing("disk", said, "use a folder that exists");
    };
    let said = format!("{} free in {}", bytes(free), here.display());
    match free < DISK_BYTES_MIN {
        true => Finding::missing("disk", said, "make room: runs and their checkpoints go there"),
        false => Finding::ok("disk", said),
    }
}
