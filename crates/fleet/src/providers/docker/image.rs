//! The image of a machine where none is given: the program, its loader, its libraries, and the few
//! files without which nothing runs.
//!
//! Owns what is in it and where. Never talks to an engine.

use super::tar::Archive;
use crate::program::Program;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The kind of a program header that names the loader.
const PT_INTERP: u32 = 3;
/// Program headers that are read at most.
const HEADERS_MAX: u16 = 256;
/// Longest path of a loader, in bytes.
const LOADER_BYTES_MAX: u64 = 4096;

/// Where the program is on a machine.
pub fn program_path(program: &Program) -> String {
    format!("/.planaria/{}/planaria", program.sha256)
}

/// What a program cannot start without.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// What loads it; nothing where it brings all it needs.
    pub loader: Option<PathBuf>,
    /// What is loaded with it.
    pub libraries: BTreeSet<PathBuf>,
}

impl Needs {
    /// Of this file. Its loader is asked which libraries it would load.
    pub fn of(program: &Path) -> io::Result<Self> {
        let Some(loader) = loader(&mut File::open(program)?)? else { return Ok(Self::default()) };
        let listed = Command::new(&loader)
            .arg("--list")
            .arg(program)
            .stdin(Stdio::null())
            .output()
            .map_err(|why| io::Error::new(why.kind(), format!("`{}`: {why}", loader.display())))?;
        if !listed.status.success() {
            let said = String::from_utf8_lossy(&listed.stderr).trim().to_owned();
            return Err(io::Error::other(format!("`{}`: {said}", loader.display())));
        }
        let libraries = libraries(&String::from_utf8_lossy(&listed.stdout))?;
        Ok(Self { loader: Some(loader), libraries })
    }

    /// As words: what an image must have to run the program.
    pub fn words(&self) -> String {
        let Some(loader) = &self.loader else { return "nothing but a kernel".into() };
        let name = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        let own = name(loader);
        let names: Vec<String> =
            self.libraries.iter().map(name).filter(|name| *name != own).collect();
        format!("`{}` and {}", loader.display(), names.join(", "))
    }

    /// Folders that the libraries are in.
    pub fn folders(&self) -> BTreeSet<&Path> {
        self.libraries.iter().filter_map(|library| library.parent()).collect()
    }
}

/// The program alone, for an image that has the rest.
pub fn program_files(program: &Program) -> io::Result<Archive> {
    let mut files = Archive::default();
    files.file_at(&program_path(program), 0o755, &program.path)?;
    Ok(files)
}

/// All of an image.
pub fn image_files(program: &Program, needs: &Needs) -> io::Result<Archive> {
    let mut files = program_files(program)?;
    files.folder("/tmp", 0o1777)?;
    files.folder("/root", 0o700)?;
    files.bytes_at("/etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n".to_vec())?;
    files.bytes_at("/etc/group", 0o644, b"root:x:0:\n".to_vec())?;
    files.bytes_at("/etc/nsswitch.conf", 0o644, b"hosts: files dns\n".to_vec())?;
    // A loader may be listed among the libraries.
    let needed: BTreeSet<&PathBuf> = needs.loader.iter().chain(&needs.libraries).collect();
    for path in needed {
        let place = path.to_str().ok_or_else(|| invalid("a library's path is no text"))?;
        files.file_at(place, 0o755, path)?;
    }
    Ok(files)
}

/// The loader that an ELF file names.
fn loader(file: &mut (impl Read + Seek)) -> io::Result<Option<PathBuf>> {
    let mut head = [0; 64];
    file.read_exact(&mut head)?;
    // 64 bits, little end first: all that this program is built for.
    if head[..6] != *b"\x7fELF\x02\x01" {
        return Err(invalid("the program is no 64-bit ELF file"));
    }
    let (offset, size, count) = (u64_at(&head, 32), u16_at(&head, 54), u16_at(&head, 56));
    if size < 56 || count > HEADERS_MAX {
        return Err(invalid("the program's headers make no sense"));
    }
    for number in 0..u64::from(count) {
        let mut header = [0; 56];
        let place = number.checked_mul(size.into()).and_then(|at| at.checked_add(offset));
        file.seek(SeekFrom::Start(place.ok_or_else(|| invalid("a header beyond the end"))?))?;
        file.read_exact(&mut header)?;
        if u32::from_le_bytes([header[0], header[1], header[2], header[3]]) != PT_INTERP {
            continue;
        }
        file.seek(SeekFrom::Start(u64_at(&header, 8)))?;
        let mut name = Vec::new();
        file.take(u64_at(&header, 32).min(LOADER_BYTES_MAX)).read_to_end(&mut name)?;
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let name = std::str::from_utf8(name).map_err(|_| invalid("its loader is no text"))?;
        return Ok(Some(name.into()));
    }
    Ok(None)
}

/// The paths in what a loader lists: `libc.so.6 => /lib/libc.so.6 (0x…)`.
fn libraries(listed: &str) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for line in listed.lines() {
        if line.contains("not found") {
            return Err(invalid(&format!("a library is missing here: {}", line.trim())));
        }
        let path = line.split_whitespace().rev().find(|word| word.starts_with('/'));
        found.extend(path.map(PathBuf::from));
    }
    Ok(found)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    #[test]
    fn this_program_needs_its_loader_and_libc() {
        let needs = Needs::of(&std::env::current_exe().unwrap()).unwrap();
        let loader = needs.loader.clone().expect("tests are linked dynamically");
        assert!(loader.is_file(), "{loader:?}");
        let is_libc = |path: &PathBuf| path.to_string_lossy().contains("libc.");
        assert!(needs.libraries.iter().any(is_libc), "{needs:?}");
        assert!(needs.libraries.iter().all(|path| path.is_file()), "{needs:?}");
        assert!(needs.words().contains("libc"), "{}", needs.words());
    }

    #[test]
    fn a_missing_library_is_an_error() {
        let listed = "\tlinux-vdso.so.1 (0x1)\n\tlibx.so => /opt/x y (0x2)\n\t/lib64/ld.so (0x3)\n";
        let expect = ["/lib64/ld.so", "/opt/x"].map(PathBuf::from);
        assert_eq!(libraries(listed).unwrap(), BTreeSet::from(expect));
        assert!(libraries("\tlibx.so => not found\n").is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 6..400)) {
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            let _ = loader(&mut Cursor::new(bytes));
        }
    }
}
