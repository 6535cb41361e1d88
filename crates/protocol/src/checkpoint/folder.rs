//! The folder of checkpoints: `last`, `best` and the newest few by step.
//!
//! Owns which checkpoints exist and which one a run goes on from. A checkpoint is written once, as
//! `step-<n>`; `last` and `best` are links to one. A step that is saved again, as after a stop
//! before validation, gets a folder of its own (`step-<n>-2`), so that what `last` leads to is
//! whole at every moment. A save that fails leaves nothing that looks like a checkpoint, and does
//! not touch those before it. Never looks inside the weights.

use super::manifest::{FILE, Manifest};
use super::{Checkpoint, Unreadable, damaged, read, verify};
use crate::durable::{self, Space};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Folders that one step may have: one that is being written, and those that `last` and `best`
/// lead to; more are not waited for.
const SAME_STEP_MAX: u32 = 9;

/// A folder of checkpoints.
#[derive(Debug, Clone)]
pub struct CheckpointFolder {
    folder: PathBuf,
    keep: usize,
    /// What was finished last, here or by a clone.
    newest: Arc<Mutex<Option<PathBuf>>>,
    space: Space,
}

/// A checkpoint and the damaged ones that were passed over to find it.
#[derive(Debug)]
pub struct Found<T> {
    /// The newest checkpoint that is whole.
    pub checkpoint: T,
    /// Where it was.
    pub path: PathBuf,
    /// One sentence for each damaged one.
    pub damaged: Vec<String>,
}

impl CheckpointFolder {
    /// The checkpoints in `folder`, which keeps `keep` checkpoints besides the best.
    pub fn new(folder: PathBuf, keep: usize) -> Self {
        Self { folder, keep: keep.max(1), newest: Arc::default(), space: Space::default() }
    }

    /// On a simulated disk.
    pub fn with_space(self, space: Space) -> Self {
        Self { space, ..self }
    }

    /// The disk it is on.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The name of the checkpoint that was finished last, if something has removed it since; said
    /// once.
    pub fn vanished(&self) -> Option<String> {
        let mut newest = self.newest.lock().expect("no thread panics with a path");
        let gone = newest.take_if(|path| !is_whole(path))?;
        Some(gone.file_name()?.to_string_lossy().into_owned())
    }

    /// An empty folder for the parts of a checkpoint; what an unfinished one left there is gone. A
    /// folder that was deleted is made again.
    pub fn begin(&self, step: u64) -> io::Result<PathBuf> {
        self.space.check()?;
        fs::create_dir_all(&self.folder)?;
        let plain = self.folder.join(format!("step-{step:010}"));
        let more = (2..=SAME_STEP_MAX).map(|n| self.folder.join(format!("step-{step:010}-{n}")));
        for path in [plain].into_iter().chain(more) {
            if is_whole(&path) || path.is_file() {
                continue;
            }
            remove(&path)?;
            fs::create_dir(&path)?;
            return Ok(path);
        }
        Err(io::Error::other(format!("step {step} has too many checkpoints")))
    }

    /// The parts in `folder`, which [`CheckpointFolder::begin`] gave, are all there: makes them a checkpoint,
    /// `last`, and `best` too if it is, and lets go of the oldest. Checkpoints finish in the order
    /// in which they began.
    pub fn finish(&self, folder: &Path, manifest: &Manifest, is_best: bool) -> io::Result<()> {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let finish = || {
            self.space.check()?;
            manifest.write(folder)?;
            if is_best {
                durable::link(name, &self.folder.join("best"))?;
            }
            // Last of all: what it leads to is where a run goes on from.
            durable::link(name, &self.folder.join("last"))?;
            // Nothing older goes before the new names last.
            durable::sync_folder(&self.folder)
        };
        finish().inspect_err(|_| self.abandon(folder))?;
        *self.newest.lock().expect("no thread panics with a path") = Some(folder.to_path_buf());
        // What cannot be let go of now goes with the next: the new one is whole.
        let _ = self.prune(manifest.step);
        Ok(())
    }

    /// Removes what was written of a checkpoint that will not be finished; on a full disk it would
    /// be in the way of the next. What `last` or `best` lead to stays.
    pub fn abandon(&self, folder: &Path) {
        let name = folder.file_name().and_then(|name| name.to_str());
        let leads = |link: &str| durable::linked(&self.folder.join(link)).as_deref() == name;
        if !leads("last") && !leads("best") {
            // Without a manifest it is no checkpoint; the rest goes with the next that is whole.
            let _ = remove(folder);
        }
    }

    /// Lets go of what is neither among the newest few nor linked to. A checkpoint of a later step
    /// is left from before a resume; it goes when it is reached.
    fn prune(&self, step: u64) -> io::Result<()> {
        let linked = |name: &str| durable::linked(&self.folder.join(name));
        let (last, best) = (linked("last"), linked("best"));
        let mut kept = 0;
        for (at, name, path) in self.steps()? {
            let whole = is_whole(&path);
            let held = [&last, &best].into_iter().any(|link| link.as_ref() == Some(&name));
            let again = at == step && last.as_ref() != Some(&name);
            kept += usize::from(whole && !again);
            let surplus = again || !whole || kept > self.keep;
            if at <= step && surplus && !held {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// The newest whole checkpoint: `last`, else the newest by step; nothing if none was written.
    pub fn newest(&self) -> Result<Option<Found<Checkpoint>>, Unreadable> {
        self.find(read)
    }

    /// The manifest of the newest whole checkpoint, whose parts were compared and not kept.
    pub fn newest_manifest(&self) -> Result<Option<Found<Manifest>>, Unreadable> {
        self.find(verify)
    }

    /// The same without a look at the parts, which may be many gigabytes: the reader compares
    /// them then.
    pub fn newest_manifest_alone(&self) -> Result<Option<Found<Manifest>>, Unreadable> {
        self.find(|folder| {
            let manifest = Manifest::read(folder)?;
            manifest.check().map_err(damaged(folder))?;
            Ok(manifest)
        })
    }

    /// The manifest of the newest checkpoint of at most so many steps; its parts are compared where
    /// `is_proven` is to hold. One of more steps may be whole and not linked to when the process that
    /// wrote it was lost: what it holds beyond was told by no event, or was taken back.
    pub fn newest_manifest_until(
        &self,
        steps_max: u64,
        is_proven: bool,
    ) -> Result<Option<Found<Manifest>>, Unreadable> {
        self.find(|folder| {
            let manifest = Manifest::read(folder)?;
            if manifest.step > steps_max {
                return Err(Unreadable::Missing(folder.to_path_buf()));
            }
            manifest.check().map_err(damaged(folder))?;
            if is_proven { verify(folder) } else { Ok(manifest) }
        })
    }

    /// The checkpoint of one name (`last`, `best`).
    pub fn named(&self, name: &str) -> Result<Checkpoint, Unreadable> {
        let path = self.folder.join(name);
        at_its_name(&path, read(&self.resolve(&path)))
    }

    /// The folder of a whole checkpoint of this name, which may come from anywhere: nothing that is
    /// not in the folder of checkpoints has one.
    pub fn folder_of(&self, name: &str) -> Option<PathBuf> {
        let named = step_of(name).is_some() || ["last", "best"].contains(&name);
        let path = named.then(|| self.resolve(&self.folder.join(name)))?;
        is_whole(&path).then_some(path)
    }

    fn find<T>(
        &self,
        load: impl Fn(&Path) -> Result<T, Unreadable>,
    ) -> Result<Option<Found<T>>, Unreadable> {
        let steps = self
            .steps()
            .map_err(|error| Unreadable::Folder { path: self.folder.clone(), error })?;
        let mut candidates = vec![self.folder.join("last")];
        candidates.extend(steps.into_iter().map(|(_, _, path)| path));
        candidates.push(self.folder.join("best"));
        let (mut damaged, mut seen) = (Vec::new(), Vec::new());
        for path in candidates {
            let target = self.resolve(&path);
            // Links lead to folders that have names of their own.
            let place = target.canonicalize().unwrap_or_else(|_| target.clone());
            if seen.contains(&place) {
                continue;
            }
            seen.push(place);
            match at_its_name(&path, load(&target)) {
                Ok(checkpoint) => return Ok(Some(Found { checkpoint, path, damaged })),
                // What was never finished is not a loss; what a link leads to was finished.
                Err(Unreadable::Missing(_)) if path.is_symlink() => {
                    damaged.push(format!("checkpoint `{}` leads nowhere", path.display()));
                }
                Err(Unreadable::Missing(_)) => {}
                Err(error @ Unreadable::Damaged { .. }) => damaged.push(error.to_string()),
                Err(other) => return Err(other),
            }
        }
        if damaged.is_empty() { Ok(None) } else { Err(Unreadable::NoneWhole(damaged)) }
    }

    /// What a file that stands in for a link leads to; the system follows real links by itself.
    fn resolve(&self, path: &Path) -> PathBuf {
        let name = if path.is_file() { durable::linked(path) } else { None };
        name.filter(|name| step_of(name).is_some())
            .map_or_else(|| path.to_path_buf(), |name| self.folder.join(name))
    }

    /// Step, name and path of every checkpoint, whole or not, newest first.
    fn steps(&self) -> io::Result<Vec<(u64, String, PathBuf)>> {
        let mut found = Vec::new();
        let entries = match fs::read_dir(&self.folder) {
            // A folder that was deleted holds nothing.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            found.extend(step_of(&name).map(|step| (step, name, entry.path())));
        }
        found.sort_by(|a, b| b.cmp(a));
        Ok(found)
    }
}

/// The step in `step-<n>` or `step-<n>-<k>`.
fn step_of(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("step-")?;
    let (step, again) = rest.split_once('-').unwrap_or((rest, "2"));
    again.parse::<u32>().ok()?;
    step.parse().ok()
}

fn is_whole(path: &Path) -> bool {
    path.join(FILE).is_file()
}

/// Removes a checkpoint, whole or not; the manifest goes first, so that it stops being one at once.
fn remove(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        return match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
    }
    match fs::remove_file(path.join(FILE)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    fs::remove_dir_all(path)
}

/// Errors name what was asked for.
fn at_its_name<T>(path: &Path, result: Result<T, Unreadable>) -> Result<T, Unreadable> {
    let name = || path.to_path_buf();
    result.map_err(|error| match error {
        Unreadable::Missing(_) => Unreadable::Missing(name()),
        Unreadable::Damaged { why, .. } => Unreadable::Damaged { path: name(), why },
        Unreadable::OtherFormat { found, planaria, .. } => {
            Unreadable::OtherFormat { path: name(), found, planaria }
        }
        other => other,
    })
}
