//! The disk of a simulated machine: a folder in memory for events, checkpoints and records, which are
//! written by their own code; and what may go wrong with all of it.

use crate::faults::Plan;
use crate::fuse::Fuse;
use planaria_coordinator::parameters::region::{Backing, Shared};
use planaria_protocol::checkpoint::{self, CheckpointFolder};
use planaria_protocol::durable::Space;
use planaria_protocol::journal;

use std::fs;
use std::path::{Path, PathBuf};

/// The boot that everything happens in.
pub const BOOT: &str = "simulated";

pub struct Disk {
    folder: tempfile::TempDir,
    /// Whether it takes anything.
    pub space: Space,
    /// What servers keep.
    shared: Shared,
    keep: usize,
}

impl Disk {
    /// An empty one.
    pub fn new(plan: &Plan) -> Self {
        let memory = Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.expect("a temporary folder can be made");
        let disk =
            Self { folder, space: Space::simulated(), shared: Shared::default(), keep: plan.keep };
        disk.make();
        disk
    }

    fn make(&self) {
        for folder in [self.checkpoints(), self.state()] {
            fs::create_dir_all(folder).expect("a temporary folder can be written");
        }
    }

    /// The folder of the run.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file of events.
    pub fn events(&self) -> PathBuf {
        self.folder.path().join(journal::FILE)
    }

    /// The folder of checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.folder.path().join(checkpoint::FOLDER)
    }

    /// The folder of what is kept.
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The folder of a worker's machine.
    pub fn machine(&self, worker: u32) -> PathBuf {
        self.folder.path().join("machines").join(worker.to_string())
    }

    pub fn checkpoint_folder(&self) -> CheckpointFolder {
        CheckpointFolder::new(self.checkpoints(), self.keep).with_space(self.space.clone())
    }

    /// Where a server that starts now keeps its values.
    /// Every write to it burns the fuse of its process.
    pub fn backing(&self, fuse: Fuse) -> Backing {
        if self.space.check().is_err() {
            return Backing::Memory;
        }
        Backing::Shared(self.shared.watched(move || fuse.burn()))
    }

    /// A session begins, perhaps with what one before it has kept.
    pub fn begin_session(&mut self, goes_on: bool) {
        if !goes_on {
            self.lose_kept();
        }
        self.make();
    }

    /// What is kept is gone.
    pub fn lose_kept(&mut self) {
        self.shared = Shared::default();
        // What is not there needs no removing.
        let _ = fs::remove_dir_all(self.state());
        let _ = fs::remove_dir_all(self.folder.path().join("machines"));
        self.make_state();
    }

    fn make_state(&self) {
        fs::create_dir_all(self.state()).expect("a temporary folder can be written");
    }

    /// Everything is as it should be.
    pub fn mend(&mut self) {
        self.space.fill(false);
        self.make();
    }

    /// Deletes all checkpoints and their folder.
    pub fn delete_checkpoints(&mut self) {
        // As above.
        let _ = fs::remove_dir_all(self.checkpoints());
    }

    /// Changes a byte of a file of the newest checkpoint, or cuts it off there; `pick` says which.
    /// False if there is none.
    pub fn damage(&mut self, pick: u64, tears: bool) -> bool {
        let newest = fs::read_link(self.checkpoints().join("last"));
        let Ok(newest) = newest else { return false };
        let folder = self.checkpoints().join(newest);
        let Ok(read) = fs::read_dir(&folder) else { return false };
        let mut files: Vec<PathBuf> = read.flatten().map(|entry| entry.path()).collect();
        files.sort();
        if files.is_empty() {
            return false;
        }
        damage(&files[(pick % files.len() as u64) as usize], pick, tears)
    }

    /// Damages the record that was written last.
    pub fn damage_record(&mut self, pick: u64) -> bool {
        let path = self.state().join(planaria_coordinator::record::FILE);
        damage(&path, pick, false)
    }

    /// A text without the name of the folder, which is not the same twice.
    pub fn nameless(&self, text: &str) -> String {
        text.replace(&self.folder.path().display().to_string(), "")
    }
}

fn damage(path: &Path, pick: u64, tears: bool) -> bool {
    let Ok(mut bytes) = fs::read(path) else { return false };
    if bytes.is_empty() {
        return false;
    }
    let at = (pick / 7 % bytes.len() as u64) as usize;
    if tears {
        bytes.truncate(at);
    } else {
        bytes[at] ^= 0x10;
    }
    fs::write(path, bytes).is_ok()
}
