//! `quit`: that a run's command was told to end at once, by a second signal.
//!
//! Owns the file: there is no time for an event then. A process that ends that way holds its locks and
//! its journal to the last moment, so that without the file it cannot be told from one that was killed.

use planaria_protocol::durable;
use std::fs;
use std::io;
use std::path::Path;

/// Name of the file in a run's folder.
const FILE: &str = "quit";

/// Leaves the file. May wait for the disk.
pub fn write(folder: &Path) -> io::Result<()> {
    durable::write(&folder.join(FILE), b"a second Ctrl-C or signal ended it at once\n")
}

/// Takes away what an earlier session has left: another begins.
pub fn forget(folder: &Path) {
    // Where it cannot be removed, nothing can be written either, and the session says so itself.
    let _ = fs::remove_file(folder.join(FILE));
}

/// Whether the last session ended so.
pub fn is_there(folder: &Path) -> bool {
    folder.join(FILE).is_file()
}
