//! The work folder of a run on its machine: `runs/RUN/work`, where scripts run.
//!
//! Owns what was laid out there (`laid.json` beside it). What the script made or changed is the
//! script's: it is neither removed nor overwritten by what had been laid out before. Never writes
//! through a link.

use super::store::Store;
use super::{
    Entry, Hash, What, about, hash_file, is_inside, leads_inside, make_folder, make_way, mtime_ns,
    set_mtime,
};
use crate::messages::questions::Laying;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A run's work folder.
pub struct WorkFolder {
    run: PathBuf,
    /// Where scripts run.
    pub folder: PathBuf,
    laid: BTreeMap<String, Laid>,
    has_laid: bool,
}

/// A file or link that was laid out, as it was then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Laid {
    what: What,
    mode: u32,
    is_code: bool,
    bytes: u64,
    mtime_ns: i64,
    inode: u64,
}

/// What came of laying out.
#[derive(Debug, PartialEq)]
pub enum Lay {
    Done,
    /// These contents are missing.
    Lacks(Vec<Hash>),
}

impl WorkFolder {
    /// The work folder in a run's folder, with what was laid out before.
    pub fn open(run: &Path) -> Self {
        let laid = fs::read(run.join("laid.json")).ok();
        let laid = laid.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { run: run.to_path_buf(), folder: run.join("work"), laid, has_laid: false }
    }

    /// Lays entries out, if all contents are there.
    pub fn lay(
        &mut self,
        entries: &[Entry],
        how: Laying,
        store: &mut Store,
        over: &AtomicBool,
    ) -> io::Result<Lay> {
        entries.iter().try_for_each(check)?;
        let is_code = how == Laying::Code;
        let needed: Vec<&Entry> = entries.iter().filter(|e| self.needs(e, how)).collect();
        let mut lacks: BTreeSet<Hash> = BTreeSet::new();
        for entry in &needed {
            if let What::File { hash, bytes } = &entry.what
                && !store.has(hash, *bytes)
            {
                lacks.insert(*hash);
            }
        }
        if !lacks.is_empty() {
            return Ok(Lay::Lacks(lacks.into_iter().collect()));
        }
        self.has_laid = true;
        fs::create_dir_all(&self.folder).map_err(|e| about(&self.folder, &e))?;
        if is_code {
            self.remove_others(entries);
        }
        // Links last: nothing is to be laid out through one.
        let (links, others): (Vec<&Entry>, Vec<&Entry>) =
            needed.into_iter().partition(|entry| matches!(entry.what, What::Link { .. }));
        let laid = others.into_iter().chain(links).try_for_each(|entry| {
            if over.load(Ordering::SeqCst) {
                return Err(io::Error::other("the host ends"));
            }
            match self.put(entry, is_code, store)? {
                true => Ok(()),
                false => {
                    if let What::File { hash, .. } = entry.what {
                        lacks.insert(hash);
                    }
                    Ok(())
                }
            }
        });
        // Also after a failure, so that what is there is known to be ours.
        self.save()?;
        laid?;
        Ok(match lacks.is_empty() {
            true => Lay::Done,
            false => Lay::Lacks(lacks.into_iter().collect()),
        })
    }

    /// Takes files off, also those that the script made, and folders that are empty then.
    pub fn take_off(&mut self, paths: &[String]) -> io::Result<()> {
        let Ok(root) = fs::canonicalize(&self.folder) else { return Ok(()) };
        for path in paths {
            if !is_inside(path) {
                return Err(io::Error::other(format!("`{path}` leads out of the work folder")));
            }
            let place = root.join(path);
            // Never through a link: what is behind it is found by its own name.
            let above = place.parent().and_then(|above| fs::canonicalize(above).ok());
            if above.as_deref() != place.parent() {
                continue;
            }
            match fs::remove_file(&place) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(about(&place, &e)),
                _ => {}
            }
            self.laid.remove(path);
            remove_empty(&place, &root);
        }
        self.save()
    }

    /// Whether a file is as it was laid out.
    pub fn is_as_laid(&self, path: &str, meta: &Metadata) -> bool {
        self.laid.get(path).is_some_and(|laid| laid.is_same(meta))
    }

    /// The time by the clock that gives files theirs.
    pub fn now_ns(&self) -> io::Result<i64> {
        let stamp = self.run.join(format!("now-{}", std::process::id()));
        fs::write(&stamp, b"now")?;
        let now = fs::metadata(&stamp).map(|meta| mtime_ns(&meta));
        let _ = fs::remove_file(&stamp);
        now
    }

    /// Removes all of it, if anything was laid out from here.
    pub fn remove(&mut self) {
        if std::mem::take(&mut self.has_laid) {
            // What cannot be removed goes when the machine is given back.
            let _ = fs::remove_dir_all(&self.folder);
            let _ = fs::remove_file(self.run.join("laid.json"));
        }
    }

    /// Whether an entry has to be laid out.
    fn needs(&self, entry: &Entry, how: Laying) -> bool {
        let place = self.folder.join(&entry.path);
        let Ok(meta) = fs::symlink_metadata(&place) else { return true };
        let is_code = how == Laying::Code;
        let laid = self.laid.get(&entry.path);
        if how == Laying::Same {
            return match laid.filter(|laid| laid.is_same(&meta)) {
                Some(laid) => laid.what != entry.what,
                None => !has_content(&place, &entry.what),
            };
        }
        let Some(laid) = laid else {
            // The code goes over what is there; what is only given back does not.
            return is_code && !(meta.is_dir() && entry.what == What::Folder);
        };
        let is_news = laid.what != entry.what || laid.mode != entry.mode;
        is_news && (is_code || laid.is_same(&meta))
    }

    fn put(&mut self, entry: &Entry, is_code: bool, store: &mut Store) -> io::Result<bool> {
        let place = make_way(&self.folder, &entry.path)?;
        match &entry.what {
            What::Folder => return make_folder(&place).map(|()| true),
            What::Link { to } => {
                let new = self.run.join(format!("laying-{}", std::process::id()));
                let _ = fs::remove_file(&new);
                symlink(to, &new).map_err(|e| about(&place, &e))?;
                fs::rename(&new, &place).map_err(|e| about(&place, &e))?;
            }
            What::File { hash, bytes } => {
                let new = self.run.join(format!("laying-{}", std::process::id()));
                let written = self.write(entry, hash, *bytes, &new, store);
                if !matches!(written, Ok(true)) {
                    let _ = fs::remove_file(&new);
                    return written.map_err(|e| about(&place, &e));
                }
                fs::rename(&new, &place).map_err(|e| about(&place, &e))?;
            }
        }
        let meta = fs::symlink_metadata(&place).map_err(|e| about(&place, &e))?;
        let laid = Laid {
            what: entry.what.clone(),
            mode: entry.mode,
            is_code,
            bytes: meta.len(),
            mtime_ns: mtime_ns(&meta),
            inode: meta.ino(),
        };
        self.laid.insert(entry.path.clone(), laid);
        Ok(true)
    }

    fn write(
        &self,
        entry: &Entry,
        hash: &Hash,
        bytes: u64,
        new: &Path,
        store: &mut Store,
    ) -> io::Result<bool> {
        let mut file = File::create(new)?;
        if !store.copy(hash, bytes, &mut file)? {
            return Ok(false);
        }
        if let Some(mtime_ns) = entry.mtime_ns {
            set_mtime(&file, mtime_ns)?;
        }
        file.set_permissions(fs::Permissions::from_mode(entry.mode & 0o777))?;
        Ok(true)
    }

    /// Removes what an earlier code had and this one has not, unless the script changed it.
    fn remove_others(&mut self, entries: &[Entry]) {
        let kept: BTreeSet<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        let gone: Vec<String> = self
            .laid
            .iter()
            .filter(|(path, laid)| laid.is_code && !kept.contains(path.as_str()))
            .map(|(path, _)| path.clone())
            .collect();
        for path in gone {
            let place = self.folder.join(&path);
            let laid = self.laid.remove(&path).expect("it was just there");
            if fs::symlink_metadata(&place).is_ok_and(|meta| laid.is_same(&meta)) {
                let _ = fs::remove_file(&place);
            }
            remove_empty(&place, &self.folder);
        }
    }

    fn save(&self) -> io::Result<()> {
        let text = serde_json::to_vec(&self.laid).map_err(io::Error::other)?;
        let (new, place) = (self.run.join("laid.json.new"), self.run.join("laid.json"));
        fs::write(&new, text).and_then(|()| fs::rename(&new, &place)).map_err(|e| about(&place, &e))
    }
}

impl Laid {
    fn is_same(&self, meta: &Metadata) -> bool {
        (self.bytes, self.mtime_ns, self.inode) == (meta.len(), mtime_ns(meta), meta.ino())
    }
}

/// Removes the folders above a file that it leaves empty: they were there for it.
fn remove_empty(file: &Path, root: &Path) {
    for folder in file.ancestors().skip(1).take_while(|folder| *folder != root) {
        if fs::remove_dir(folder).is_err() {
            break;
        }
    }
}

/// Whether a file, or the one that a link leads to, has the content of an entry.
fn has_content(place: &Path, what: &What) -> bool {
    let What::File { hash, bytes } = what else { return false };
    // Of another length or kind it need not be read; a pipe would never end.
    let may_have = fs::metadata(place).is_ok_and(|meta| meta.is_file() && meta.len() == *bytes);
    may_have && hash_file(place).is_ok_and(|(found, _)| found == *hash)
}

fn check(entry: &Entry) -> io::Result<()> {
    let path = &entry.path;
    if !is_inside(path) {
        return Err(io::Error::other(format!("`{path}` leads out of the work folder")));
    }
    match &entry.what {
        What::Link { to } if !leads_inside(path, to) => {
            Err(io::Error::other(format!("the link `{path}` leads out of the work folder")))
        }
        _ => Ok(()),
    }
}
