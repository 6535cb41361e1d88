//! The user's home on a machine, and our folder in it.

use std::path::PathBuf;

/// The folder, in the home of a machine's user, for all that is ours there: `bin/SHA256/planaria`,
/// `setup/HASH` (a step that was done), `files/` (contents by hash), `runs/RUN/` (removed when the run
/// gives the machine back).
pub const FOLDER: &str = ".cache/planaria";

/// The home of the user this runs as.
pub fn user_home() -> PathBuf {
    std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// A path as it is, or in the user's home where it begins with `~/`.
pub fn at_home(path: &str) -> PathBuf {
    match path.strip_prefix("~/") {
        Some(rest) => user_home().join(rest),
        None => PathBuf::from(path),
    }
}
