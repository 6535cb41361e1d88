//! Which files of a work folder match, and their bytes.
//!
//! Owns what patterns mean: `*` and `?` stand for characters of one name, `[…]` for one of them,
//! `{a,b}` for either, `**` for any number of folders; a folder that matches comes with all in it;
//! upper and lower case differ. Patterns are relative. Files as they were laid out are not found:
//! the script did not make them. A link to a file inside is found as that file; links to folders and
//! out of the folder are not followed.

use super::work::WorkFolder;
use super::{is_inside, mtime_ns};
use crate::messages::PIECE_BYTES;
use crate::messages::questions::Found;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Files that are listed at most.
pub const FOUND_MAX: usize = 20_000;
/// Names that are read at most.
const LOOKED_MAX: usize = 1_000_000;
/// Patterns there may be.
const PATTERNS_MAX: usize = 256;
/// Levels of folders.
const DEPTH_MAX: usize = 64;

/// Patterns that files are found by.
#[derive(Debug, Clone)]
pub struct Patterns {
    texts: Vec<String>,
    set: GlobSet,
    /// Folders that everything that can match is in.
    bases: Vec<String>,
}

impl Patterns {
    /// Checked patterns, or what is wrong with one of them.
    pub fn new<T: AsRef<str>>(texts: &[T]) -> Result<Self, String> {
        if texts.len() > PATTERNS_MAX {
            return Err(format!("there are {} patterns, more than {PATTERNS_MAX}", texts.len()));
        }
        let mut set = GlobSetBuilder::new();
        let mut bases = Vec::new();
        for text in texts {
            let text = text.as_ref();
            let plain = text.strip_prefix("./").unwrap_or(text).trim_end_matches('/');
            if !is_inside(plain) {
                return Err(format!(
                    "`{text}` is no pattern for files of the work folder: it must be relative, \
                     and without `..`"
                ));
            }
            for glob in [plain.to_owned(), format!("{plain}/**")] {
                let mut builder = GlobBuilder::new(&glob);
                builder.literal_separator(true).backslash_escape(true);
                let wrong = |e: globset::Error| format!("`{text}` is no pattern: {}", e.kind());
                set.add(builder.build().map_err(wrong)?);
            }
            bases.push(base(plain));
        }
        bases.sort();
        bases.dedup();
        let set = set.build().map_err(|e| e.to_string())?;
        let texts = texts.iter().map(|text| text.as_ref().to_owned()).collect();
        Ok(Self { texts, set, bases: outermost(bases) })
    }

    /// As they were written.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Whether all that a pattern can match is in a folder, or in one below it.
    pub fn are_in(&self, folder: &str) -> bool {
        self.bases.iter().any(|base| {
            base.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Whether a path matches.
    pub fn matches(&self, path: &str) -> bool {
        self.set.is_match(path)
    }
}

/// The folders before the first name with a pattern in it.
fn base(pattern: &str) -> String {
    let parts: Vec<&str> = pattern.split('/').collect();
    let is_plain = |part: &&str| !part.contains(['*', '?', '[', ']', '{', '}', '\\']);
    let plain = parts[..parts.len() - 1].iter().take_while(|part| is_plain(part));
    plain.copied().collect::<Vec<_>>().join("/")
}

/// Without folders that are in others.
fn outermost(sorted: Vec<String>) -> Vec<String> {
    let is_in = |inner: &str, outer: &str| {
        outer.is_empty() || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
    };
    let inner = |base: &String| sorted.iter().any(|other| other != base && is_in(base, other));
    sorted.iter().filter(|base| !inner(base)).cloned().collect()
}

/// Files of a work folder that match, by path, and whether there are more than are told.
pub(super) fn find(
    work: &WorkFolder,
    patterns: &Patterns,
    over: &AtomicBool,
) -> io::Result<(Vec<Found>, bool)> {
    let Ok(root) = fs::canonicalize(&work.folder) else { return Ok((Vec::new(), false)) };
    let now_ns = work.now_ns()?;
    let mut search = Search { work, patterns, over, root, now_ns, looked: 0, found: Vec::new() };
    let whole = patterns.bases.iter().all(|base| {
        // A folder that does not exist yet has nothing in it; one behind a link is not looked at.
        let folder = search.root.join(base);
        let real = fs::canonicalize(&folder).is_ok_and(|real| real == folder);
        !real || search.walk(&folder, 0)
    });
    let mut found = search.found;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok((found, !whole))
}

struct Search<'a> {
    work: &'a WorkFolder,
    patterns: &'a Patterns,
    over: &'a AtomicBool,
    root: PathBuf,
    now_ns: i64,
    looked: usize,
    found: Vec<Found>,
}

impl Search<'_> {
    /// Looks through a folder; false where there is more than can be told. What vanishes meanwhile
    /// is not there.
    fn walk(&mut self, folder: &Path, depth: usize) -> bool {
        if depth > DEPTH_MAX || self.over.load(Ordering::SeqCst) {
            return false;
        }
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            self.looked += 1;
            if self.looked > LOOKED_MAX || self.found.len() >= FOUND_MAX {
                return false;
            }
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            if kind.is_dir() {
                if !self.walk(&path, depth + 1) {
                    return false;
                }
            } else if kind.is_file() || kind.is_symlink() {
                self.look(&path);
            }
        }
        true
    }

    fn look(&mut self, place: &Path) {
        // Names that cannot be written as text are no outputs.
        let path = place.strip_prefix(&self.root).ok().and_then(Path::to_str);
        let Some(path) = path.filter(|path| is_inside(path) && self.patterns.matches(path)) else {
            return;
        };
        if fs::symlink_metadata(place).is_ok_and(|meta| self.work.is_as_laid(path, &meta)) {
            return;
        }
        let real = fs::canonicalize(place).ok().filter(|real| real.starts_with(&self.root));
        let meta = real.and_then(|real| fs::metadata(real).ok()).filter(fs::Metadata::is_file);
        let Some(meta) = meta else { return };
        let mtime_ns = mtime_ns(&meta);
        let age_ns = u64::try_from(self.now_ns.saturating_sub(mtime_ns)).unwrap_or(0);
        let (path, bytes) = (path.to_owned(), meta.len());
        self.found.push(Found { path, bytes, mtime_ns, age_ns });
    }
}

/// A piece of a file; nothing where it is not what it was.
pub(super) fn read(
    folder: &Path,
    path: &str,
    bytes: u64,
    mtime: i64,
    at: u64,
) -> io::Result<Option<Vec<u8>>> {
    if !is_inside(path) {
        return Err(io::Error::other(format!("`{path}` leads out of the work folder")));
    }
    let root = fs::canonicalize(folder)?;
    let Ok(real) = fs::canonicalize(root.join(path)) else { return Ok(None) };
    if !real.starts_with(&root) {
        return Err(io::Error::other(format!("`{path}` leads out of the work folder")));
    }
    let is_same =
        |meta: &fs::Metadata| meta.is_file() && (meta.len(), mtime_ns(meta)) == (bytes, mtime);
    // Before it is opened, which would wait for the other end of a pipe.
    if !fs::metadata(&real).is_ok_and(|meta| is_same(&meta)) {
        return Ok(None);
    }
    let Ok(mut file) = File::open(&real) else { return Ok(None) };
    file.seek(SeekFrom::Start(at))?;
    let mut piece = Vec::new();
    let most = (PIECE_BYTES as u64).min(bytes.saturating_sub(at));
    (&mut file).take(most).read_to_end(&mut piece)?;
    Ok((is_same(&file.metadata()?) && piece.len() as u64 == most).then_some(piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_as_the_manual_says() {
        let table = [
            ("*.pt", "a.pt", true),
            ("*.pt", "b/a.pt", false),
            ("**/*.pt", "a.pt", true),
            ("**/*.pt", "b/c/a.pt", true),
            ("b/**", "b/c/d", true),
            ("b", "b/c/d", true),
            ("b/", "b/c/d", true),
            ("./b", "b", true),
            ("b", "bc", false),
            ("*.keras", "m.keras/weights/w0", true),
            ("{a,b}/*.txt", "b/x.txt", true),
            ("a?.txt", "ab.txt", true),
            ("a?b", "a/b", false),
            ("A.txt", "a.txt", false),
        ];
        for (pattern, path, expect) in table {
            let patterns = Patterns::new(&[pattern]).unwrap();
            assert_eq!(patterns.matches(path), expect, "{pattern} and {path}");
        }
        for bad in ["/etc/*", "../x", "a/../b", "", "/", "[a"] {
            let why = Patterns::new(&[bad]).unwrap_err();
            assert!(why.contains(&format!("`{bad}`")), "{why}");
        }
    }

    #[test]
    fn only_folders_that_can_match_are_looked_at() {
        let bases = |texts: &[&str]| Patterns::new(texts).unwrap().bases;
        assert_eq!(bases(&["out/*.pt", "out/logs/*"]), ["out"]);
        assert_eq!(bases(&["out/*.pt", "output/x/*.pt"]), ["out", "output/x"]);
        assert_eq!(bases(&["out/*.pt", "*.txt"]), [""]);
        assert_eq!(bases(&["out"]), [""]);
    }
}
