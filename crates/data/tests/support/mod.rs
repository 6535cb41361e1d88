//! Small data sets on disk, for the tests of this crate.

#![expect(dead_code, reason = "each test binary uses its own share of this module")]

use flate2::{Compression, write::GzEncoder};
use planaria_recipe::sections::{Augment, Data, Format, Normalize, Part};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A `data` section with everything at its default and nothing held out.
pub fn data(train: impl AsRef<Path>) -> Data {
    Data {
        train: train.as_ref().to_str().unwrap().into(),
        test: None,
        validation: None,
        format: Format::Auto,
        table: None,
        examples: None,
        normalize: Normalize::default(),
        augment: Augment::default(),
    }
}

/// A held-out part of its own.
pub fn path(path: impl AsRef<Path>) -> Option<Part> {
    Some(Part::Path(path.as_ref().to_str().unwrap().into()))
}

/// An idx file's bytes.
pub fn idx(kind: u8, dimensions: &[u32], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind, dimensions.len() as u8];
    dimensions.iter().for_each(|d| bytes.extend(d.to_be_bytes()));
    bytes.extend(values);
    bytes
}

/// CIFAR-10 records with labels 0, 1, … and pixels that tell record, plane and place.
pub fn cifar(labels: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (record, label) in labels.iter().enumerate() {
        bytes.push(*label);
        for plane in 0..3 {
            bytes.extend((0..1024).map(|i| (record * 50 + plane * 80 + i % 7) as u8));
        }
    }
    bytes
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn xz(bytes: &[u8]) -> Vec<u8> {
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// A folder with files.
pub fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

/// The folder of real data `name` in `PLANARIA_DATA`, else in `../shared/data` beside the
/// workspace. Nothing, with a message, where it is missing.
pub fn real(name: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let base = std::env::var_os("PLANARIA_DATA")
        .map_or_else(|| workspace.join("../shared/data"), PathBuf::from);
    let folder = base.join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(
        std::env::var_os("PLANARIA_REQUIRE_DATA").is_none(),
        "`{}` is required here but missing",
        folder.display()
    );
    #[expect(clippy::disallowed_macros, reason = "a skipped test says so")]
    {
        println!("skipped: needs shared/data");
    }
    None
}
