//! A folder of Unix sockets: those by which `ssh` shares a connection, and a gate's.
//!
//! Owns one folder, for this user only, with a short name: a socket's path has 104 bytes at most, and
//! `ssh` adds some. Those of processes that were killed are removed by the next.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// What the folders' names begin with; the process and a number follow.
const NAME: &str = "planaria-sockets-";
/// Longest temporary folder in which the sockets' names stay short enough.
const TEMPORARY_BYTES_MAX: usize = 44;

/// Folders that this process has made.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A folder of sockets, made when the first is needed and removed with this.
#[derive(Debug, Default)]
pub struct SocketFolder {
    folder: Mutex<Option<PathBuf>>,
    count: AtomicU32,
}

impl SocketFolder {
    /// A path at which there is nothing yet.
    pub fn next(&self) -> io::Result<PathBuf> {
        let mut folder = self.folder.lock().expect("no thread panics with the folder");
        if folder.is_none() {
            *folder = Some(make()?);
        }
        let folder = folder.as_ref().expect("it was put there just now");
        Ok(folder.join(self.count.fetch_add(1, Ordering::Relaxed).to_string()))
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        if let Some(folder) =
            self.folder.get_mut().expect("no thread panics with the folder").take()
        {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

fn make() -> io::Result<PathBuf> {
    let mut within = std::env::temp_dir();
    if within.as_os_str().len() > TEMPORARY_BYTES_MAX {
        within = "/tmp".into();
    }
    tidy(&within);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = within.join(format!("{NAME}{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&folder) {
            // Another's, or of a process that had this one's number.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {}
            made => return made.map(|()| folder),
        }
    }
}

/// Removes this user's folders whose process is gone.
fn tidy(within: &Path) {
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(within).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next());
        let Some(process) = process.and_then(|number| number.parse::<u32>().ok()) else { continue };
        let is_ours = entry.metadata().is_ok_and(|about| about.is_dir() && about.uid() == user);
        if is_ours && !Path::new(&format!("/proc/{process}")).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
