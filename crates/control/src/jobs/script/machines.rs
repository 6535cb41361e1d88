//! The machines of a job: raised and set up as for training, and given the script's folder.
//!
//! Owns where that folder is on each of them. Never starts a process there.

use crate::jobs::pooling::{Need, Pooling};
use crate::jobs::script::layout::Seat;
use crate::jobs::script::prepare::Prepared;
use planaria_fleet::files::size;
use planaria_fleet::home::FOLDER;
use planaria_fleet::local::Local;
use planaria_fleet::pool::{Pool, Reach, ReadyMachine};
use planaria_fleet::provider::{LOOPBACK, Machine};
use planaria_fleet::remote::Remote;
use planaria_fleet::sites::Sites;
use planaria_runs::failure::Result;
use planaria_runs::run_dir::{LOGS, RunDir};
use planaria_text::number::counted;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The machines of a job.
pub struct Machines {
    pub sites: Sites,
    /// Whether all of them are this machine.
    pub are_here: bool,
    placed: Arc<Mutex<Placed>>,
}

#[derive(Default)]
struct Placed {
    /// By machine, where the script's folder is there.
    folders: BTreeMap<String, String>,
    notes: Vec<String>,
}

impl Machines {
    /// Raises nothing yet, and reports all faults that show before.
    pub fn new(prepared: &Prepared, run: &RunDir, program: &Path) -> Result<Self> {
        let job = &prepared.job;
        let are_here = job.pool.is_here();
        let placed: Arc<Mutex<Placed>> = Arc::default();
        let (code, places) = (prepared.code.clone(), placed.clone());
        let last = move |machine: &Machine, remote: &Remote, _: &(dyn Fn(String) + Sync)| {
            let sent = remote.lay_out(&code, &mut |_, _| {})?;
            let mut places = places.lock().expect("no thread panics with it");
            if sent.bytes_sent > 0 && !are_here {
                let files = counted(sent.contents_sent as u64, "file");
                let bytes = size(sent.bytes_sent);
                places.notes.push(format!("{}: {files} sent, {bytes}", machine.name));
            }
            places.folders.insert(machine.name.clone(), sent.folder);
            Ok(())
        };
        let pooling = Pooling::new(Need {
            folder: run.path(),
            program,
            pool: &job.pool,
            steps: &prepared.setup,
            hidden: job.variables(),
            machine_count: job.machine_count(),
            worker_count: job.worker_count(),
            machines: None,
            is_detached: false,
            reach: Reach::EachOther,
            last: Some(Box::new(last)),
        })?;
        let (pool, _) = pooling.pool();
        // No process of a script is this command's own child.
        let sites = Sites::new(Local::new(program, &run.file(LOGS)), Some(pool));
        Ok(Self { sites, are_here, placed })
    }

    pub fn pool(&self) -> &Pool {
        self.sites.pool().expect("a script has a pool")
    }

    /// Messages about files since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.placed.lock().expect("no thread panics with it").notes)
    }

    /// Where the script's folder is on a machine.
    pub fn folder(&self, machine: &str) -> Option<String> {
        self.placed.lock().expect("no thread panics with it").folders.get(machine).cloned()
    }
}

/// A machine as the layout sees it.
pub fn seat(standing: &ReadyMachine, are_here: bool) -> Seat {
    let hello = &standing.remote.hello;
    let address = if are_here { LOOPBACK.to_owned() } else { standing.route.advertise.clone() };
    Seat {
        number: standing.number,
        name: standing.machine.name.clone(),
        address,
        cores: hello.cores,
        gpus: hello.gpus,
        groups: standing.machine.groups.clone(),
        home: home(&hello.folder).display().to_string(),
    }
}

/// All that is ours on a machine, from the run's folder in it.
fn home(folder: &str) -> PathBuf {
    let is_ours = |path: &&Path| path.ends_with(FOLDER);
    let ours = Path::new(folder).ancestors().find(is_ours);
    ours.unwrap_or(Path::new("/tmp")).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_is_found_from_below() {
        let folder = "/home/lab/.cache/planaria/runs/x-1/host-77";
        assert_eq!(home(folder), Path::new("/home/lab/.cache/planaria"));
    }
}
