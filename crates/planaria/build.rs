//! Gives every build a name that follows from its sources, so that processes of one run can tell
//! that they are the same program.

use std::path::{Path, PathBuf};

#[expect(clippy::disallowed_macros, reason = "this is how a build script talks to cargo")]
fn main() {
    let crates = Path::new("..");
    println!("cargo:rerun-if-changed=..");
    println!("cargo:rerun-if-changed=../../Cargo.lock");
    let mut files = vec![PathBuf::from("../../Cargo.lock")];
    gather(crates, &mut files);
    files.sort();
    // FNV-1a, 64 bits.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for file in files {
        for byte in std::fs::read(&file).unwrap_or_default() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo:rustc-env=PLANARIA_BUILD={hash:016x}");
    // Every host of a pool gets this program: 30 MB in place of 44 without its symbols. A panic still
    // names its file and line.
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo:rustc-link-arg-bins=-Wl,--strip-all");
    }
}

/// The sources that end up in the program.
fn gather(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if name != "tests" && name != "examples" {
                gather(&path, files);
            }
        } else if path.extension().is_some_and(|e| e == "rs" || e == "toml") {
            files.push(path);
        }
    }
}
