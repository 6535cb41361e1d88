//! Plain files, opened to be read: what else may have a file's name keeps no reader waiting.
//!
//! A pipe is read for as long as nothing writes to it, and a device may have no end. Commands read
//! what lies in a run's folder through here, and say of such a thing that it is no file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// Opens a plain file, at once, and refuses anything else.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{}` is no plain file; move it away", path.display()),
        )),
    }
}

/// All that is in a plain file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The same as text.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, file) = (folder.path().join("pipe"), folder.path().join("file"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::fs::write(&file, "words").unwrap();
        assert_eq!(
            (read(&file).unwrap(), read_text(&file).unwrap()),
            (b"words".into(), "words".into())
        );
        for path in [&pipe, folder.path(), Path::new("/dev/zero")] {
            let refused = read(path).unwrap_err().to_string();
            assert!(
                refused.contains(&format!("`{}` is no plain file", path.display())),
                "{refused}"
            );
        }
        assert_eq!(read(&folder.path().join("no")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
