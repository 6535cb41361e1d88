//! What a program's file says that it needs: a processor, a loader and a version of the C library.
//!
//! Owns the few fields of ELF that say so, and the comparison with what a machine has. What it
//! cannot read it does not judge; that the program runs is tried in any case.

use super::script::Facts;
use crate::program::Program;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest file that is inspected.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Room for the program itself, and for what the run writes first.
const ROOM_BYTES: u64 = 8 << 20;

/// What a program needs, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// The processor, as `uname -m` says it.
    pub arch: Option<String>,
    /// The loader: none where it is linked statically.
    pub loader: Option<String>,
    /// The oldest glibc that has all it asks for.
    pub glibc: Option<(u32, u32)>,
}

/// Why a machine cannot have the program, and what helps.
#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub what: String,
    pub hint: String,
}

/// Reads a program's file.
pub fn of(program: &Program) -> Needs {
    let mut needs = read(&program.path).unwrap_or_default();
    needs.arch.get_or_insert_with(|| program.arch.to_owned());
    needs
}

/// Whether a machine will do, before anything is sent.
pub fn compare(needs: &Needs, program: &Program, facts: &Facts) -> Result<(), Mismatch> {
    let elsewhere = "build planaria on such a machine and give the command from there, or take this \
                     host out of the pool";
    let arch = needs.arch.as_deref().unwrap_or(program.arch);
    if facts.system != "Linux" || !is_arch(arch, &facts.arch) {
        let what = format!(
            "the machine is {} {}, and this program was built for Linux {arch}",
            facts.system, facts.arch
        );
        return Err(Mismatch { what, hint: elsewhere.into() });
    }
    let has = version(facts.libc.strip_prefix("glibc "));
    let older = matches!((has, needs.glibc), (Some(has), Some(needed)) if has < needed);
    let other = facts.libc == "musl" && needs.glibc.is_some();
    if older || other {
        let (major, minor) = needs.glibc.unwrap_or_default();
        let what = format!(
            "the machine has {}, and this program needs glibc {major}.{minor} or newer",
            facts.libc
        );
        let hint = format!(
            "use a static build (`cargo build --release --target {arch}-unknown-linux-musl`), or {elsewhere}"
        );
        return Err(Mismatch { what, hint });
    }
    if let Some(free) = facts.free_bytes.filter(|free| *free < program.bytes + ROOM_BYTES) {
        return Err(full(free, program));
    }
    Ok(())
}

fn full(free: u64, program: &Program) -> Mismatch {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let what = format!(
        "its disk is full: {} MiB are free where the home folder is, and the program needs {} MiB",
        free >> 20,
        mib(program.bytes + ROOM_BYTES)
    );
    Mismatch { what, hint: "make room there, or take this host out of the pool".into() }
}

/// Whether `uname -m` says a processor that Rust calls `arch`.
fn is_arch(arch: &str, uname: &str) -> bool {
    match arch {
        "arm" => uname.starts_with("arm"),
        "x86" => matches!(uname, "i386" | "i486" | "i586" | "i686" | "x86_64"),
        "aarch64" => matches!(uname, "aarch64" | "arm64"),
        "x86_64" => matches!(uname, "x86_64" | "amd64"),
        "powerpc64" => uname.starts_with("ppc64"),
        other => other == uname,
    }
}

fn version(text: Option<&str>) -> Option<(u32, u32)> {
    let mut parts = text?.trim().split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next().flatten().unwrap_or(0)))
}

fn read(path: &Path) -> Option<Needs> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Elf::new(&bytes)?.needs()
}

/// A file of 64 bits, little end first.
struct Elf<'a> {
    bytes: &'a [u8],
    /// Kind, offset, address and length of each segment.
    segments: Vec<(u32, u64, u64, u64)>,
}

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERPRETER: u32 = 3;
const STRINGS: u64 = 5;
const VERSIONS: u64 = 0x6fff_fffe;
const VERSIONS_COUNT: u64 = 0x6fff_ffff;

impl<'a> Elf<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let mut elf = Self { bytes, segments: Vec::new() };
        let (start, each, count) = (elf.u64(0, 32)?, elf.u16(0, 54)?, elf.u16(0, 56)?);
        for number in 0..u64::from(count) {
            let at = start.checked_add(number * u64::from(each))?;
            let (kind, offset) = (elf.u32(at, 0)?, elf.u64(at, 8)?);
            elf.segments.push((kind, offset, elf.u64(at, 16)?, elf.u64(at, 32)?));
        }
        Some(elf)
    }

    fn needs(&self) -> Option<Needs> {
        let arch = match self.u16(0, 18)? {
            62 => Some("x86_64".to_owned()),
            183 => Some("aarch64".to_owned()),
            243 => Some("riscv64".to_owned()),
            _ => None,
        };
        let interpreter = self.segments.iter().find(|(kind, ..)| *kind == INTERPRETER);
        let loader = interpreter.and_then(|(_, offset, ..)| self.text(*offset));
        Some(Needs { arch, loader, glibc: self.glibc() })
    }

    /// The newest of the versions `GLIBC_x.y` that are asked for.
    fn glibc(&self) -> Option<(u32, u32)> {
        let (_, offset, _, length) = *self.segments.iter().find(|(kind, ..)| *kind == DYNAMIC)?;
        let entry = |wanted: u64| {
            let entries = (0..length / 16).map(|n| n * 16);
            let mut found =
                entries.take_while(|at| self.u64(offset, *at).is_some_and(|tag| tag != 0));
            found
                .find(|at| self.u64(offset, *at) == Some(wanted))
                .and_then(|at| self.u64(offset, at + 8))
        };
        let strings = self.offset(entry(STRINGS)?)?;
        let mut file = self.offset(entry(VERSIONS)?)?;
        let mut newest = None;
        for _ in 0..entry(VERSIONS_COUNT)?.min(1000) {
            let mut name = file.checked_add(u64::from(self.u32(file, 8)?))?;
            for _ in 0..self.u16(file, 2)? {
                let text = self.text(strings.checked_add(u64::from(self.u32(name, 8)?))?)?;
                newest = newest.max(version(text.strip_prefix("GLIBC_")));
                name = name.checked_add(u64::from(self.u32(name, 12)?))?;
            }
            file = file.checked_add(u64::from(self.u32(file, 12)?))?;
        }
        newest
    }

    /// Where in the file an address is.
    fn offset(&self, address: u64) -> Option<u64> {
        let inside = |&&(kind, _, start, length): &&(u32, u64, u64, u64)| {
            kind == LOAD && address >= start && address - start < length
        };
        let (_, offset, start, _) = self.segments.iter().find(inside)?;
        offset.checked_add(address - start)
    }

    fn text(&self, at: u64) -> Option<String> {
        let rest = self.bytes.get(usize::try_from(at).ok()?..)?;
        let end = rest.iter().take(4096).position(|byte| *byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok().map(str::to_owned)
    }

    /// The field so far behind a place.
    fn array<const N: usize>(&self, at: u64, behind: u64) -> Option<[u8; N]> {
        let at = usize::try_from(at.checked_add(behind)?).ok()?;
        self.bytes.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    fn u16(&self, at: u64, behind: u64) -> Option<u16> {
        self.array(at, behind).map(u16::from_le_bytes)
    }

    fn u32(&self, at: u64, behind: u64) -> Option<u32> {
        self.array(at, behind).map(u32::from_le_bytes)
    }

    fn u64(&self, at: u64, behind: u64) -> Option<u64> {
        self.array(at, behind).map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Program {
        Program {
            path: "/nonexistent".into(),
            sha256: String::new(),
            bytes: 1 << 20,
            arch: "x86_64",
            build: String::new(),
        }
    }

    fn facts(arch: &str, libc: &str, free_mib: Option<u64>) -> Facts {
        let free_bytes = free_mib.map(|mib| mib << 20);
        Facts { system: "Linux".into(), arch: arch.into(), free_bytes, libc: libc.into() }
    }

    #[test]
    fn this_very_program_needs_what_this_machine_has() {
        let own = std::env::current_exe().expect("a program");
        let needs = read(&own).expect("a file of ELF");
        assert_eq!(needs.arch.as_deref(), Some(std::env::consts::ARCH));
        if cfg!(target_env = "gnu") {
            assert!(needs.loader.expect("a loader").contains("ld-linux"));
            assert!(needs.glibc.expect("a version") >= (2, 2));
        }
    }

    #[test]
    fn bytes_that_are_no_program_are_survived() {
        let own = std::env::current_exe().expect("a program");
        let bytes = std::fs::read(own).expect("it can be read");
        assert!(Elf::new(b"#!/bin/sh").is_none());
        for cut in (0..4096).chain([bytes.len() / 2]) {
            if let Some(elf) = Elf::new(&bytes[..cut]) {
                elf.needs();
            }
        }
        let mut wrong = bytes[..65536.min(bytes.len())].to_vec();
        for at in 16..4096.min(wrong.len()) {
            let kept = std::mem::replace(&mut wrong[at], 0xff);
            if let Some(elf) = Elf::new(&wrong) {
                elf.needs();
            }
            wrong[at] = kept;
        }
    }

    #[test]
    fn machines_are_compared() {
        let needs = Needs { glibc: Some((2, 34)), ..Needs::default() };
        let check = |facts: Facts, expect: &str| match compare(&needs, &program(), &facts) {
            Ok(()) => assert_eq!("", expect, "{facts:?}"),
            Err(found) => assert!(found.what.contains(expect) && !expect.is_empty(), "{found:?}"),
        };
        check(facts("x86_64", "glibc 2.36", Some(100)), "");
        check(facts("x86_64", "glibc 2.34", None), "");
        check(facts("x86_64", "unknown", None), "");
        check(facts("aarch64", "glibc 2.36", None), "is Linux aarch64");
        check(
            facts("x86_64", "glibc 2.28", None),
            "has glibc 2.28, and this program needs glibc 2.34",
        );
        check(facts("x86_64", "musl", None), "has musl");
        check(facts("x86_64", "glibc 2.36", Some(3)), "disk is full: 3 MiB");
        let system = Facts { system: "Darwin".into(), ..facts("x86_64", "unknown", None) };
        check(system, "is Darwin");
        let free = Needs::default();
        assert_eq!(compare(&free, &program(), &facts("x86_64", "musl", None)), Ok(()));
    }
}
