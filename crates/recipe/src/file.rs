//! A recipe's bytes, and what its paths mean.
//!
//! Owns reading (bounded; standard input and pipes once, however often a command asks) and the one
//! rule for relative paths: from the current directory, or else from the recipe's folder. Never
//! parses.

use crate::diagnostic::{Diagnostics, Mistake, Span, Texts};
use crate::yaml::FILE_BYTES_MAX;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The first character of the file.
pub(crate) const START: Span = Span { text: 0, line: 1, column: 1, length: 1 };
/// Names of standard input; all but the first are the system's.
const STDIN: [&str; 4] = ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];

/// What has been read that cannot be read twice.
static READ_ONCE: Mutex<BTreeMap<PathBuf, Vec<u8>>> = Mutex::new(BTreeMap::new());

/// What messages call a recipe.
pub(crate) fn name(path: &Path) -> String {
    if is_stdin(path) { "<stdin>".into() } else { path.display().to_string() }
}

/// What came from standard input, for a process that shall read the same there; nothing where the
/// recipe is not from there or could not be read.
pub fn from_stdin(path: &Path) -> Option<Vec<u8>> {
    is_stdin(path).then(|| bytes(path).ok()).flatten()
}

/// Whether a recipe comes from standard input.
pub fn is_stdin(path: &Path) -> bool {
    STDIN.iter().any(|name| path == Path::new(name))
}

/// Reads at most the bound, however long the file claims to be.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Diagnostics> {
    let fail = |span: Span, message: String, hint: Option<String>| {
        let texts = Texts::new(&name(path), "", &[]);
        Err(texts.render(vec![Mistake::new(span, message, hint)]))
    };
    let claimed = std::fs::metadata(path).map_or(0, |m| m.len());
    if claimed > FILE_BYTES_MAX as u64 && !is_stdin(path) {
        let (message, hint) = too_large(Some(claimed));
        return fail(START, message, Some(hint));
    }
    bytes(path).or_else(|error| {
        let is_url = path.to_str().is_some_and(|text| text.contains("://"));
        let hint = is_url.then(|| "it is a URL; download it first, and give its path".to_owned());
        fail(Span::default(), format!("the recipe cannot be read: {error}"), hint)
    })
}

pub(crate) fn too_large(bytes: Option<u64>) -> (String, String) {
    let size = bytes
        .map_or("more than 1 MiB".into(), |b| format!("{:.1} MiB", b as f64 / f64::from(1 << 20)));
    (
        format!("the recipe is {size} long, but at most 1 MiB is read"),
        "is this a data file? A recipe names it under `data.train`".to_owned(),
    )
}

/// The path that a recipe in the folder `beside` means by `path`: one that is absolute, or leads
/// somewhere from the current directory, as it is; else from the recipe's folder, where it leads
/// somewhere from there.
pub(crate) fn meant(path: &str, beside: Option<&Path>) -> Option<String> {
    let relative = Path::new(path);
    if relative.is_absolute() || path.contains("://") || relative.exists() {
        return None;
    }
    let there = beside?.join(relative);
    there.exists().then(|| there.to_str().map(str::to_owned)).flatten()
}

/// The folder that a recipe is in; nothing where that is the current directory, or there is no file.
pub(crate) fn folder(path: &Path) -> Option<&Path> {
    path.parent().filter(|folder| !folder.as_os_str().is_empty() && !is_stdin(path))
}

/// A pipe has its bytes once, but more than one step of a command asks for them.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let is_plain = |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.is_file());
    if !is_stdin(path) {
        let is_stream = path.exists() && !path.is_dir() && !is_plain(path);
        if !is_stream {
            return bounded(File::open(path)?);
        }
    }
    // A panic while it was held has left whole values.
    let mut kept = READ_ONCE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bytes) = kept.get(path) {
        return Ok(bytes.clone());
    }
    let read = match is_stdin(path) {
        true => bounded(io::stdin().lock())?,
        false => bounded(File::open(path)?)?,
    };
    kept.insert(path.into(), read.clone());
    Ok(read)
}

fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_looked_for_here_and_then_beside_the_recipe() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("only-there.csv"), "").unwrap();
        let beside = Some(folder.path());
        let there = folder.path().join("only-there.csv").display().to_string();
        assert_eq!(meant("only-there.csv", beside), Some(there));
        // Tests run in the crate's folder.
        std::fs::write(folder.path().join("Cargo.toml"), "").unwrap();
        for path in ["Cargo.toml", "nowhere.csv", "/nowhere.csv", "s3://a/only-there.csv"] {
            assert_eq!(meant(path, beside), None, "{path}");
        }
        assert_eq!(meant("only-there.csv", None), None);
    }

    #[test]
    fn a_pipe_is_read_once_and_given_twice() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let writer = {
            let pipe = pipe.clone();
            std::thread::spawn(move || std::fs::write(pipe, "name: a\n").unwrap())
        };
        assert_eq!(read(&pipe).unwrap(), b"name: a\n");
        writer.join().unwrap();
        assert_eq!(read(&pipe).unwrap(), b"name: a\n");
    }
}
