//! What a folder here holds, as git would see it.
//!
//! Owns which files belong to a script: what git ignores does not, nor what `.planariaignore` names,
//! nor `.git`, `__pycache__`, virtual environments and what the caller leaves out. `.gitignore` counts
//! also where there is no repository; those above the folder only inside of one, as with git. A file
//! that is ignored stays here even where it was added to a repository all the same. Never writes.

use super::{Bundle, Entry, What, hash_file, leads_inside, size};
use ignore::{DirEntry, WalkBuilder};
use planaria_recipe::words::counted;
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// Files, folders and links there may be.
pub const ENTRIES_MAX: usize = 100_000;
/// From here on a folder is large, and a warning asks whether all of it is meant.
pub const LARGE_BYTES: u64 = 256 << 20;
/// The same by number.
pub const LARGE_FILES: usize = 20_000;
/// A link that leads elsewhere is followed to as much as this; more is data.
const FOLLOWED_BYTES_MAX: u64 = 256 << 20;
const FOLLOWED_FILES_MAX: usize = 10_000;
/// How many of the largest are named.
const NAMED: usize = 10;

/// Why a folder cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum Unlisted {
    /// Something in it cannot be read.
    #[error("cannot read `{path}`: {why}")]
    Unreadable { path: String, why: String },
    /// Something in it is no file.
    #[error(
        "`{path}` is {what} and cannot go to machines; remove it, or name it in `.planariaignore`"
    )]
    Special { path: String, what: &'static str },
    /// A name that is not UTF-8.
    #[error("the name of `{path}` is not UTF-8; rename it, or name it in `.planariaignore`")]
    Name {
        /// As far as it can be written.
        path: String,
    },
    #[error(
        "there are more than {most} files in `{folder}`, most of them in {where_}; name what the \
         script does not need in `.gitignore` or `.planariaignore`"
    )]
    TooMany {
        folder: String,
        /// How many may be.
        most: usize,
        /// The folders in it with the most.
        where_: String,
    },
    /// A file was written while it was read.
    #[error("`{path}` changed while it was read; try again when nothing writes to it")]
    Changed { path: String },
}

/// A folder whose files are known, though not what is in them.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The folder, without links.
    pub root: PathBuf,
    /// What was left out that may be missed, in words.
    pub notes: Vec<String>,
    items: BTreeMap<String, Item>,
}

#[derive(Debug, Clone)]
struct Item {
    mode: u32,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    File { from: PathBuf, bytes: u64 },
    Folder,
    Link { to: String },
}

/// A folder with all hashes.
#[derive(Debug, Clone)]
pub struct Code {
    pub root: PathBuf,
    /// What goes to machines.
    pub bundle: Bundle,
}

impl Listing {
    /// Lists a folder. What is in `leave_out` (folders of runs) does not belong to it.
    pub fn read(folder: &Path, leave_out: &[PathBuf]) -> Result<Self, Unlisted> {
        Self::read_up_to(ENTRIES_MAX, folder, leave_out)
    }

    pub(super) fn read_up_to(
        most: usize,
        folder: &Path,
        leave_out: &[PathBuf],
    ) -> Result<Self, Unlisted> {
        let unreadable = |e: std::io::Error| Unlisted::Unreadable {
            path: folder.display().to_string(),
            why: e.to_string(),
        };
        let root = fs::canonicalize(folder).map_err(unreadable)?;
        let left_out: Vec<PathBuf> =
            leave_out.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
        let mut listing = Self { root: root.clone(), notes: Vec::new(), items: BTreeMap::new() };
        for entry in walk(&root, left_out).build() {
            let entry = entry.map_err(|e| unwalked(&root, &e))?;
            if entry.depth() == 0 {
                continue;
            }
            listing.add(&entry)?;
            if listing.items.len() > most {
                return Err(listing.too_many(folder, most));
            }
        }
        listing.tell_dangling();
        listing.drop_full_folders();
        Ok(listing)
    }

    pub fn files(&self) -> usize {
        self.lengths().count()
    }

    /// Length of all files together.
    pub fn bytes(&self) -> u64 {
        self.lengths().map(|(_, bytes)| bytes).sum()
    }

    /// The ten largest files, the largest first.
    pub fn largest(&self) -> Vec<(String, u64)> {
        largest(self.lengths().map(|(path, bytes)| (path.to_owned(), bytes)))
    }

    /// Whether a path, relative to the folder, belongs to it.
    pub fn holds(&self, path: &str) -> bool {
        self.items.contains_key(path)
    }

    /// Whether a path, relative to the folder, is a file there, or one elsewhere that a link leads to.
    pub fn sends(&self, path: &str) -> bool {
        self.items.get(path).is_some_and(|item| matches!(item.kind, Kind::File { .. }))
    }

    /// Whether a path, relative to the folder, is a folder that belongs to it.
    pub fn has_folder(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let first = self.items.range(below.clone()..).next();
        first.is_some_and(|(item, _)| item.starts_with(&below))
            || self.items.get(path).is_some_and(|item| matches!(item.kind, Kind::Folder))
    }

    /// What to say of a folder that is large; nothing of any other.
    pub fn warning(&self) -> Option<String> {
        let (files, bytes) = (self.files(), self.bytes());
        if bytes < LARGE_BYTES && files < LARGE_FILES {
            return None;
        }
        let list = |named: Vec<(String, u64)>, write: fn(u64) -> String| {
            let words = named.iter().map(|(path, n)| format!("`{path}` ({})", write(*n)));
            words.collect::<Vec<_>>().join(", ")
        };
        let mut said = format!(
            "`{}` holds {}, {}, and all of it goes to every machine",
            self.root.display(),
            counted(files, "file"),
            size(bytes)
        );
        if bytes >= LARGE_BYTES {
            said += &format!("; the largest: {}", list(self.largest(), size));
        }
        let folders = self.by_folder(|bytes| bytes);
        if bytes >= LARGE_BYTES && !folders.is_empty() {
            said += &format!("; by folder: {}", list(folders, size));
        }
        if files >= LARGE_FILES {
            let counts = self.by_folder(|_| 1);
            said += &format!("; the most are in {}", list(counts, |n| counted(n as usize, "file")));
        }
        said += "; name what the script does not need in `.gitignore` or `.planariaignore`";
        Some(said)
    }

    /// Reads every file once. `progress` is told how many bytes were read so far, and of how many.
    pub fn hash(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Code, Unlisted> {
        let (mut bundle, total, mut done) = (Bundle::default(), self.bytes(), 0);
        for (path, item) in &self.items {
            let what = match &item.kind {
                Kind::Folder => What::Folder,
                Kind::Link { to } => What::Link { to: to.clone() },
                Kind::File { from, bytes } => {
                    let unreadable = |e: std::io::Error| Unlisted::Unreadable {
                        path: from.display().to_string(),
                        why: e.to_string(),
                    };
                    let (hash, read) = hash_file(from).map_err(unreadable)?;
                    // A log may have grown since the folder was listed; one that still does is told.
                    let now = fs::metadata(from).map_err(unreadable)?.len();
                    if read != *bytes && read != now {
                        return Err(Unlisted::Changed { path: from.display().to_string() });
                    }
                    bundle.sources.entry(hash).or_insert_with(|| (from.clone(), read));
                    done += read;
                    progress(done, total);
                    What::File { hash, bytes: read }
                }
            };
            let (path, mode) = (path.clone(), item.mode);
            bundle.entries.push(Entry { path, mode, mtime_ns: None, what });
        }
        Ok(Code { root: self.root.clone(), bundle })
    }

    fn add(&mut self, entry: &DirEntry) -> Result<(), Unlisted> {
        let shown = || entry.path().display().to_string();
        let path = entry.path().strip_prefix(&self.root).ok().and_then(Path::to_str);
        let Some(path) = path.map(str::to_owned) else {
            return Err(Unlisted::Name { path: shown() });
        };
        let unreadable =
            |e: std::io::Error| Unlisted::Unreadable { path: shown(), why: e.to_string() };
        let meta = fs::symlink_metadata(entry.path()).map_err(unreadable)?;
        let kind = if meta.is_dir() {
            Kind::Folder
        } else if meta.is_file() {
            Kind::File { from: entry.path().to_path_buf(), bytes: meta.len() }
        } else if meta.is_symlink() {
            let Some(kind) = self.link(&path, entry.path()) else { return Ok(()) };
            kind
        } else {
            return Err(Unlisted::Special { path: shown(), what: special(&meta) });
        };
        let meta = if let Kind::File { from, .. } = &kind {
            fs::metadata(from).map_err(unreadable)?
        } else {
            meta
        };
        self.items.insert(path, Item { mode: meta.permissions().mode() & 0o777, kind });
        Ok(())
    }

    /// A link stays one where it leads to something inside; a small file elsewhere is taken as it is.
    fn link(&mut self, path: &str, link: &Path) -> Option<Kind> {
        let Ok(target) = fs::canonicalize(link) else {
            self.notes.push(format!("`{path}` is a link that leads nowhere, and stays here"));
            return None;
        };
        if let Ok(inside) = target.strip_prefix(&self.root) {
            let told = fs::read_link(link).ok().and_then(|to| to.to_str().map(str::to_owned));
            let to = told.filter(|to| leads_inside(path, to)).or_else(|| relative(path, inside))?;
            return Some(Kind::Link { to });
        }
        match fs::metadata(&target) {
            Ok(meta) if meta.is_file() && meta.len() <= FOLLOWED_BYTES_MAX => {
                Some(Kind::File { from: target, bytes: meta.len() })
            }
            Ok(meta) if meta.is_dir() && self.follow(path, &target) => Some(Kind::Folder),
            _ => {
                let target = target.display();
                self.notes.push(format!(
                    "`{path}` is a link that leads out of the folder, to `{target}`, and stays here: \
                     it is no file or folder of at most {}; `script.data` brings more to machines",
                    size(FOLLOWED_BYTES_MAX)
                ));
                None
            }
        }
    }

    /// Takes in what is in a folder elsewhere, as if it were here; not where that is too much.
    fn follow(&mut self, path: &str, target: &Path) -> bool {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for entry in walk(target, Vec::new()).follow_links(true).build() {
            // A link that leads into a circle or nowhere is an error here, and is left out.
            let Some(entry) = entry.ok().filter(|entry| entry.depth() > 0) else { continue };
            let Ok(meta) = fs::metadata(entry.path()) else { continue };
            let inner = entry.path().strip_prefix(target).ok().and_then(Path::to_str);
            let Some(inner) = inner.filter(|_| meta.is_file()) else { continue };
            bytes += meta.len();
            if bytes > FOLLOWED_BYTES_MAX || found.len() >= FOLLOWED_FILES_MAX {
                return false;
            }
            let kind = Kind::File { from: entry.path().to_path_buf(), bytes: meta.len() };
            let item = Item { mode: meta.permissions().mode() & 0o777, kind };
            found.push((format!("{path}/{inner}"), item));
        }
        self.items.extend(found);
        true
    }

    /// Tells of links to what is in the folder and does not belong to it.
    fn tell_dangling(&mut self) {
        let dangling = self.items.iter().filter(|(path, item)| {
            let target = fs::canonicalize(self.root.join(path)).ok();
            let inside = target.as_deref().and_then(|target| target.strip_prefix(&self.root).ok());
            let is_there = inside.and_then(Path::to_str).is_some_and(|inside| {
                inside.is_empty() || self.holds(inside) || self.has_folder(inside)
            });
            matches!(item.kind, Kind::Link { .. }) && !is_there
        });
        let notes: Vec<String> = dangling
            .map(|(path, _)| {
                format!(
                    "`{path}` is a link to what does not go to machines; nothing is behind it there"
                )
            })
            .collect();
        self.notes.extend(notes);
    }

    /// Folders with something in them need not be named.
    fn drop_full_folders(&mut self) {
        let mut full = std::collections::BTreeSet::new();
        for path in self.items.keys() {
            full.extend(path.match_indices('/').map(|(at, _)| path[..at].to_owned()));
        }
        self.items.retain(|path, item| !matches!(item.kind, Kind::Folder) || !full.contains(path));
    }

    fn lengths(&self) -> impl Iterator<Item = (&str, u64)> {
        self.items.iter().filter_map(|(path, item)| match item.kind {
            Kind::File { bytes, .. } => Some((path.as_str(), bytes)),
            _ => None,
        })
    }

    /// The largest of the folders at the top, by what is counted of each file.
    fn by_folder(&self, count: fn(u64) -> u64) -> Vec<(String, u64)> {
        let mut folders: BTreeMap<&str, u64> = BTreeMap::new();
        for (path, bytes) in self.lengths() {
            let top = path.split_once('/').map_or(".", |(top, _)| top);
            *folders.entry(top).or_default() += count(bytes);
        }
        largest(folders.into_iter().map(|(path, n)| (path.to_owned(), n)))
    }

    fn too_many(&self, folder: &Path, most: usize) -> Unlisted {
        let named = self.by_folder(|_| 1);
        let words = named.iter().take(3).map(|(path, n)| format!("`{path}` ({n})"));
        Unlisted::TooMany {
            folder: folder.display().to_string(),
            most,
            where_: words.collect::<Vec<_>>().join(", "),
        }
    }
}

impl Code {
    /// Lists a folder and reads every file.
    pub fn read(folder: &Path, leave_out: &[PathBuf]) -> Result<Self, Unlisted> {
        Listing::read(folder, leave_out)?.hash(&mut |_, _| {})
    }
}

fn walk(root: &Path, left_out: Vec<PathBuf>) -> WalkBuilder {
    let mut walk = WalkBuilder::new(root);
    walk.standard_filters(false).git_ignore(true).git_global(true).git_exclude(true);
    walk.require_git(false).add_custom_ignore_filename(".planariaignore");
    // Without a repository there is no end to what lies above: a home folder may ignore everything.
    walk.parents(root.ancestors().any(|folder| folder.join(".git").exists()));
    walk.filter_entry(move |entry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let name = entry.file_name();
        // In a worktree `.git` is a file.
        let is_own = entry.depth() > 0
            && (name == ".git" || (is_folder && name == "__pycache__") || is_environment(entry));
        !is_own && !left_out.iter().any(|path| path == entry.path())
    });
    walk
}

fn is_environment(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir()) && entry.path().join("pyvenv.cfg").is_file()
}

fn unwalked(root: &Path, error: &ignore::Error) -> Unlisted {
    let (mut path, mut inner) = (root.display().to_string(), error);
    loop {
        match inner {
            ignore::Error::WithPath { path: at, err } => {
                path = at.display().to_string();
                inner = err;
            }
            ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
                inner = err;
            }
            _ => return Unlisted::Unreadable { path, why: inner.to_string() },
        }
    }
}

fn special(meta: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = meta.file_type();
    if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// The way from where a link is to something in the same folder.
fn relative(path: &str, inside: &Path) -> Option<String> {
    let up = "../".repeat(path.split('/').count() - 1);
    let parts = inside.components().filter(|part| matches!(part, Component::Normal(_)));
    let down: PathBuf = parts.collect();
    let way = format!("{up}{}", down.to_str()?);
    Some(if way.is_empty() { ".".to_owned() } else { way })
}

fn largest(of: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = of.collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all.truncate(NAMED);
    all
}
