//! The folder of checkpoints: `last`, `best` and the newest few by step.
//!
//! Owns which checkpoint files exist and which one a run goes on from. A checkpoint is written
//! once, as `step-<n>`; `last` and `best` are further names of the same file. Never looks inside
//! the weights.

use crate::failure::{Context, Failure, Result};
use crate::run_dir::checkpoint::Checkpoint;
use crate::run_dir::durable;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder of checkpoints.
#[derive(Debug)]
pub struct Shelf {
    folder: PathBuf,
    keep: usize,
}

/// A checkpoint and the damaged ones that were passed over to find it.
#[derive(Debug)]
pub struct Found {
    /// The newest checkpoint that is whole.
    pub checkpoint: Checkpoint,
    /// Where it was.
    pub path: PathBuf,
    /// One sentence for each damaged file.
    pub damaged: Vec<String>,
}

impl Shelf {
    /// The shelf in `folder`, which keeps `keep` checkpoints besides the best.
    pub fn new(folder: PathBuf, keep: usize) -> Self {
        Self { folder, keep: keep.max(1) }
    }

    /// Adds a checkpoint as `last`, and as `best` too if it is, and lets go of the oldest.
    pub fn add(&self, checkpoint: &Checkpoint, is_best: bool) -> Result<()> {
        let path = self.folder.join(format!("step-{:010}", checkpoint.state.step));
        let put = || -> std::io::Result<()> {
            durable::put(&path, &checkpoint.encode())?;
            durable::alias(&path, &self.folder.join("last"))?;
            if is_best {
                durable::alias(&path, &self.folder.join("best"))?;
            }
            for old in self.steps()?.into_iter().skip(self.keep) {
                // A checkpoint of a later step is left from before a resume; it goes when reached.
                if old < path {
                    fs::remove_file(old)?;
                }
            }
            durable::sync_folder_of(&path)
        };
        put().context(|| format!("cannot write checkpoint `{}`", path.display()))
    }

    /// The newest whole checkpoint: `last`, else the newest by step; nothing if none was written.
    pub fn newest(&self) -> Result<Option<Found>> {
        let mut damaged = Vec::new();
        let mut candidates = vec![self.folder.join("last")];
        candidates
            .extend(self.steps().context(|| format!("cannot read `{}`", self.folder.display()))?);
        candidates.push(self.folder.join("best"));
        for path in candidates {
            match load(&path) {
                Ok(checkpoint) => return Ok(Some(Found { checkpoint, path, damaged })),
                Err(Unreadable::Missing) => {}
                Err(Unreadable::Damaged(why)) => damaged.push(why),
            }
        }
        if damaged.is_empty() {
            return Ok(None);
        }
        Err(Failure::failed(format!("no checkpoint is whole: {}", damaged.join("; "))))
    }

    /// The checkpoint of one name (`last`, `best`).
    pub fn named(&self, name: &str) -> Result<Checkpoint> {
        let path = self.folder.join(name);
        load(&path).map_err(|unreadable| match unreadable {
            Unreadable::Missing => {
                Failure::user(format!("there is no checkpoint `{}`", path.display()))
            }
            Unreadable::Damaged(why) => Failure::failed(why),
        })
    }

    /// Files by step, newest first.
    fn steps(&self) -> std::io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("step-") {
                paths.push(entry.path());
            }
        }
        paths.sort();
        paths.reverse();
        Ok(paths)
    }
}

enum Unreadable {
    Missing,
    Damaged(String),
}

fn load(path: &Path) -> Result<Checkpoint, Unreadable> {
    let bytes = fs::read(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Unreadable::Missing,
        _ => Unreadable::Damaged(format!("checkpoint `{}` cannot be read: {e}", path.display())),
    })?;
    Checkpoint::decode(&bytes).map_err(|why| {
        Unreadable::Damaged(format!("checkpoint `{}` is damaged: {why}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::checkpoint::tests::sample;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn keeps_the_newest_and_the_best() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(dir.path().into(), 2);
        for step in 1..=5 {
            shelf.add(&sample(step), step == 2).unwrap();
        }
        assert_eq!(names(dir.path()), ["best", "last", "step-0000000004", "step-0000000005"]);
        assert_eq!(shelf.named("best").unwrap(), sample(2));
        assert_eq!(shelf.newest().unwrap().unwrap().checkpoint, sample(5));
    }

    #[test]
    fn a_damaged_checkpoint_is_named_and_the_one_before_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(dir.path().into(), 2);
        for step in 1..=2 {
            shelf.add(&sample(step), false).unwrap();
        }
        let last = dir.path().join("last");
        let mut bytes = fs::read(&last).unwrap();
        bytes[40] ^= 1;
        fs::write(&last, bytes).unwrap();
        let found = shelf.newest().unwrap().unwrap();
        assert_eq!(found.checkpoint, sample(1));
        assert_eq!(found.damaged.len(), 2, "`last` and its other name: {:?}", found.damaged);
        assert!(found.damaged[0].contains("last` is damaged"), "{:?}", found.damaged);
    }

    #[test]
    fn an_empty_shelf_is_not_a_damaged_one() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(dir.path().into(), 2);
        assert!(shelf.newest().unwrap().is_none());
        fs::write(dir.path().join("last"), b"PLAN").unwrap();
        let failure = shelf.newest().unwrap_err();
        assert!(failure.message.contains("cut short at 4 bytes"), "{failure}");
    }
}
