//! The folder that holds everything one run leaves behind.
//!
//! Owns the names inside it, who may write there (one process at a time) and how runs are found.
//! Never decides what is written, or when.
//!
//! # Layout
//! - [`lock`]: which process works on a run
//! - [`metrics`]: `metrics.jsonl`, the figures along the way; [`quit`]: that it was ended at once

pub mod lock;
pub mod metrics;
pub mod quit;

use crate::clock;
use crate::failure::{Context, Failure, Result};
use lock::Lock;
use planaria_protocol::checkpoint::{CheckpointFolder, Unreadable};
use planaria_protocol::durable;
use planaria_protocol::plain;
use planaria_recipe::{AnySource, JobKind};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Folder that runs are looked for in when only an id is given.
pub const DEFAULT_RUNS: &str = "runs";
/// Folder of a run's checkpoints.
pub const CHECKPOINTS: &str = planaria_protocol::checkpoint::FOLDER;
/// Folder of the logs of its processes.
pub const LOGS: &str = "logs";
/// The recipe that a run works on, every default written out.
pub const RECIPE: &str = "recipe.yaml";
/// How long names stay claimed.
const CLAIMED_SECONDS: u64 = 3600;
/// Runs that a hint names.
const SHOWN_MAX: usize = 5;
/// Runs that may start in the same second under the same name.
const SAME_SECOND_MAX: u32 = 1000;

/// A run's folder, locked for this process while the value lives.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    lock: Lock,
}

impl RunDir {
    /// Makes `runs/<name>-<timestamp>` under `runs`; the folder's creation decides who owns a name.
    pub fn create(runs: &Path, name: &str, unix_seconds: u64) -> Result<Self> {
        let path = Self::new_folder(runs, name, unix_seconds, &|_| true)?;
        Self::furnish(path)
    }

    /// The same without folders for a network, under a name that no other run of this user has that
    /// began in the same second, in whatever folder: machines know runs by their names. `names` is
    /// where names are claimed.
    pub fn create_bare(runs: &Path, name: &str, unix_seconds: u64, names: &Path) -> Result<Self> {
        let claim = |id: &str| claim(names, id);
        let path = Self::new_folder(runs, name, unix_seconds, &claim)?;
        Self::lock(path)
    }

    fn new_folder(
        runs: &Path,
        name: &str,
        unix_seconds: u64,
        claim: &dyn Fn(&str) -> bool,
    ) -> Result<PathBuf> {
        fs::create_dir_all(runs).context(|| format!("cannot create `{}`", runs.display()))?;
        let base = format!("{}-{}", plain_name(name), clock::stamp(unix_seconds));
        for attempt in 1..=SAME_SECOND_MAX {
            let id = if attempt == 1 { base.clone() } else { format!("{base}-{attempt}") };
            if !claim(&id) {
                continue;
            }
            let path = runs.join(id);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(path),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => {
                    return Err(Failure::failed(format!(
                        "cannot create `{}`: {e}",
                        path.display()
                    )));
                }
            }
        }
        Err(Failure::failed(format!("{SAME_SECOND_MAX} runs named `{base}` exist already")))
    }

    /// Makes exactly this folder, which must not exist.
    pub fn create_at(path: PathBuf) -> Result<Self> {
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::create_dir(&path))
            .context(|| format!("cannot create `{}`", path.display()))?;
        Self::furnish(path)
    }

    fn furnish(path: PathBuf) -> Result<Self> {
        for folder in [CHECKPOINTS, "tensorboard"] {
            fs::create_dir(path.join(folder))
                .context(|| format!("cannot create `{}`", path.display()))?;
        }
        Self::lock(path)
    }

    /// Opens the run in this folder, for writing.
    pub fn open(folder: PathBuf) -> Result<Self> {
        Self::lock(folder)
    }

    /// Refuses to go on where another folder is in this one's place, which may be another process'.
    pub fn check(&self) -> Result<()> {
        if !self.lock.is_replaced(&self.path) {
            return Ok(());
        }
        let path = self.path.display();
        let message = format!("`{path}` is another folder than the run began in: it was replaced");
        let hint = "two sessions never write one folder, so this one ends; `planaria resume` goes on \
                    in the folder that is there now, from its newest checkpoint";
        Err(Failure::failed(message).hint(hint))
    }

    fn lock(path: PathBuf) -> Result<Self> {
        let lock = Lock::take(&path)?;
        Ok(Self { path, lock })
    }

    /// The folder's last name.
    pub fn id(&self) -> String {
        run_id(&self.path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file in it, all or nothing.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write(&self.file(name), bytes)
    }

    /// The checkpoints in it.
    pub fn checkpoint_folder(&self, keep: usize) -> CheckpointFolder {
        checkpoint_folder(&self.path, keep)
    }
}

/// Claims a name; whether no other run has. Where nothing can be written it is not asked.
fn claim(names: &Path, id: &str) -> bool {
    let _ = fs::create_dir_all(names);
    for entry in fs::read_dir(names).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|found| found.modified()).map(|at| at.elapsed());
        // Names have the second in them: those of before do not matter.
        if matches!(age, Ok(Ok(age)) if age.as_secs() > CLAIMED_SECONDS) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let claimed = fs::OpenOptions::new().write(true).create_new(true).open(names.join(id));
    !claimed.is_err_and(|e| e.kind() == ErrorKind::AlreadyExists)
}

/// Writes a file, all or nothing.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    durable::write(path, bytes).context(|| format!("cannot write `{}`", path.display()))
}

/// The checkpoints in a run's folder.
pub fn checkpoint_folder(run: &Path, keep: usize) -> CheckpointFolder {
    CheckpointFolder::new(run.join(CHECKPOINTS), keep)
}

/// A checkpoint that cannot be used, with the exit code that follows from it.
pub fn unreadable(error: Unreadable) -> Failure {
    match error {
        Unreadable::Missing(_) => Failure::user(error),
        Unreadable::OtherFormat { .. } => Failure::user(error)
            .hint("use the planaria that wrote it, or start a new run with `planaria train`"),
        Unreadable::Damaged { .. } | Unreadable::NoneWhole(_) | Unreadable::Folder { .. } => {
            Failure::failed(error)
        }
    }
}

/// The folder of the run named by a path, by its id under `runs/`, or by the beginning of one.
pub fn find(run: &str) -> Result<PathBuf> {
    let candidates = [PathBuf::from(run), Path::new(DEFAULT_RUNS).join(run)];
    let Some(path) = candidates.iter().find(|p| p.is_dir()) else {
        if candidates[0].exists() {
            return Err(Failure::user(format!("`{run}` is a file, not the folder of a run"))
                .hint(nearby(&candidates)));
        }
        return begins_with(Path::new(DEFAULT_RUNS), run, &candidates);
    };
    if path.join("recipe.yaml").is_file() {
        return Ok(path.clone());
    }
    Err(Failure::user(format!("`{}` is not a run: it has no `recipe.yaml`", path.display())).hint(
        "name a folder that `planaria train` or `run` made, such as `runs/digits-20250131-120000`",
    ))
}

/// The folder of the run that is named, or of the newest one under `runs/`.
pub fn find_or_newest(run: Option<&str>) -> Result<PathBuf> {
    if let Some(run) = run {
        return find(run);
    }
    let newest = list(Path::new(DEFAULT_RUNS)).unwrap_or_default().into_iter().next();
    newest.ok_or_else(|| {
        Failure::user("there is no run in `runs`")
            .hint("`planaria train RECIPE` and `planaria run` make one; or name a run's folder")
    })
}

/// The one run in `runs` whose name begins so.
fn begins_with(runs: &Path, start: &str, candidates: &[PathBuf]) -> Result<PathBuf> {
    let named = |path: &PathBuf| path.strip_prefix(runs).unwrap_or(path).display().to_string();
    let mut found = list(runs).unwrap_or_default();
    found.retain(|path| !start.is_empty() && named(path).starts_with(start));
    match &found[..] {
        [only] => Ok(only.clone()),
        [] => Err(Failure::user(format!("there is no run `{start}`")).hint(nearby(candidates))),
        several => {
            let count = several.len();
            let shown: Vec<_> = several.iter().take(SHOWN_MAX).map(named).collect();
            let more = if count > SHOWN_MAX { ", …" } else { "" };
            Err(Failure::user(format!("{count} runs begin with `{start}`"))
                .hint(format!("name one of {}{more} (the newest first)", shown.join(", "))))
        }
    }
}

/// The runs in `folder` and in the studies there, newest first.
pub fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut runs = Vec::new();
    for path in folders(folder)? {
        if is_run(&path) {
            runs.push(path);
        } else {
            runs.extend(folders(&path).unwrap_or_default().into_iter().filter(|p| is_run(p)));
        }
    }
    let begun = |path: &PathBuf| path.join(RECIPE).metadata().and_then(|m| m.modified()).ok();
    runs.sort_by_cached_key(|path| std::cmp::Reverse((begun(path), path.clone())));
    Ok(runs)
}

fn is_run(folder: &Path) -> bool {
    folder.join(RECIPE).is_file()
}

fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let read =
        std::fs::read_dir(folder).context(|| format!("cannot read `{}`", folder.display()))?;
    Ok(read.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
}

/// The kind of job of a run; training where its recipe cannot be read.
pub fn kind(folder: &Path) -> JobKind {
    let text = plain::read_text(&folder.join(RECIPE)).unwrap_or_default();
    JobKind::of_resolved(&text)
}

/// The recipe of a run.
pub fn recipe(folder: &Path) -> Result<AnySource> {
    Ok(AnySource::load(&folder.join(RECIPE), &[])?)
}

/// The last name of a run's folder.
pub fn run_id(path: &Path) -> String {
    let full = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    full.file_name().map_or_else(|| "run".into(), |n| n.to_string_lossy().into_owned())
}

fn nearby(candidates: &[PathBuf]) -> String {
    let runs = Path::new(DEFAULT_RUNS);
    let mut found = list(runs).unwrap_or_default();
    found.truncate(SHOWN_MAX);
    if found.is_empty() {
        let looked: Vec<_> = candidates.iter().map(|p| format!("`{}`", p.display())).collect();
        return format!("looked at {}", looked.join(" and "));
    }
    let name = |path: &PathBuf| path.strip_prefix(runs).unwrap_or(path).display().to_string();
    format!("runs here: {}", found.iter().map(name).collect::<Vec<_>>().join(", "))
}

/// A recipe's name as part of a folder's name.
pub fn plain_name(name: &str) -> String {
    let plain: String = name
        .chars()
        .take(100)
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
        .collect();
    let plain = plain.trim_start_matches(['.', '-']);
    if plain.is_empty() { "run".into() } else { plain.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_second_get_names_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let a = RunDir::create(dir.path(), "net", 0).unwrap();
        let b = RunDir::create(dir.path(), "net", 0).unwrap();
        assert_eq!(a.id(), "net-19700101-000000");
        assert_eq!(b.id(), "net-19700101-000000-2");
    }

    #[test]
    fn jobs_of_one_second_have_names_of_their_own_wherever_they_are() {
        let (dir, names) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let create = |folder: &str| {
            let made = RunDir::create_bare(&dir.path().join(folder), "net", 0, names.path());
            made.unwrap().id()
        };
        assert_eq!(
            (create("a"), create("b")),
            ("net-19700101-000000".into(), "net-19700101-000000-2".into())
        );
    }

    #[test]
    fn a_run_has_one_owner() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "net", 0).unwrap();
        run.write("recipe.yaml", b"name: net\n").unwrap();
        let path = run.path().to_str().unwrap().to_owned();
        let refused = RunDir::open(path.clone().into()).unwrap_err();
        assert!(refused.message.contains("in use by another"), "{refused}");
        drop(run);
        RunDir::open(path.clone().into()).unwrap();
    }

    #[test]
    fn names_stay_inside_the_folder() {
        for (name, expect) in
            [("a b/c", "a-b-c"), ("../x", "x"), ("", "run"), ("ünï", "n-"), ("ok_1.2", "ok_1.2")]
        {
            assert_eq!(plain_name(name), expect);
        }
    }
}
