//! The kinds of data, one file for each, and the choice between them. A new format is a new file
//! here, a variant of [`Found`] and a line in each function below.

pub mod cifar10;
pub mod digits;
pub mod idx;

use crate::budget::Memory;
use crate::error::Error;
use crate::files;
use crate::source::{DataFile, Source, Target};
use planaria_recipe::sections::Format;
use planaria_recipe::shape::Shape;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a source is opened for; it decides which files of a folder are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// To learn from.
    Train,
    /// To judge each epoch by.
    Validation,
    /// To judge the result by.
    Test,
}

/// A source that was found but not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Drawn digits: seed, first number, how many.
    Digits(u64, u64, u64),
    /// A pair of idx files.
    Idx(idx::Pair),
    Cifar10(Vec<PathBuf>),
}

/// What a source holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub len: u64,
    /// Shape of one.
    pub shape: Shape,
    /// What is learned of each.
    pub target: Target,
    /// The files behind it.
    pub files: Vec<DataFile>,
}

/// Finds the files of `path` that hold a role's examples.
pub fn find(path: &str, format: Format, role: Role) -> Result<Found, Error> {
    let path = Path::new(path);
    files::check(path)?;
    let format = match format {
        Format::Auto => guess(path)?,
        other => other,
    };
    match format {
        Format::Cifar10 if !files::exists(path) => Err(absent(path)),
        Format::Cifar10 => cifar10::locate(path, role).map(Found::Cifar10),
        Format::Idx | Format::Auto => idx::locate(path, role).map(Found::Idx),
        Format::Csv | Format::Libsvm => Err(Error::setting(format!(
            "`{}` is a table: its columns are known only beside the recipe's training rows",
            path.display()
        ))),
    }
}

impl Found {
    /// Reads the source once, and keeps of it what `memory` has room for.
    pub fn open(&self, memory: &Memory) -> Result<Arc<dyn Source>, Error> {
        Ok(match self {
            Self::Digits(seed, first, len) => {
                Arc::new(digits::Digits::within(*seed, *first, *len, memory))
            }
            Self::Idx(pair) => Arc::new(idx::Idx::open(pair, memory)?),
            Self::Cifar10(paths) => Arc::new(cifar10::Cifar10::open(paths, memory)?),
        })
    }

    /// What the source holds, by headers and labels; inputs are not read.
    pub fn peek(&self) -> Result<Summary, Error> {
        Ok(match self {
            Self::Digits(_, _, len) => Summary {
                len: *len,
                shape: digits::SHAPE,
                target: Target::Class { classes: 10 },
                files: Vec::new(),
            },
            Self::Idx(pair) => {
                let (idx::Summary { len, shape, target }, files) = idx::peek(pair)?;
                Summary { len, shape, target, files }
            }
            Self::Cifar10(paths) => Summary {
                len: cifar10::count(paths)?,
                shape: cifar10::SHAPE,
                target: Target::Class { classes: 10 },
                files: paths.iter().map(|p| files::data_file(p)).collect::<Result<_, _>>()?,
            },
        })
    }
}

/// The format of a file or folder, by names first and by content where the names say nothing.
fn guess(path: &Path) -> Result<Format, Error> {
    let names = if files::is_folder(path) {
        files::names(path)?
    } else if files::exists(path) {
        path.file_name().and_then(|n| n.to_str()).map(String::from).into_iter().collect()
    } else {
        return Err(absent(path));
    };
    if names.iter().any(|n| idx::is_name(n)) {
        return Ok(Format::Idx);
    }
    if names.iter().any(|n| cifar10::is_name(n)) {
        return Ok(Format::Cifar10);
    }
    if files::is_folder(path) {
        let message = format!(
            "holds no data of a known format (idx: `*-images-idx3-ubyte`, CIFAR-10: \
             `data_batch_*.bin`, each also .gz or .xz); {}",
            files::listing(&names)
        );
        return Err(Error::missing(path, message));
    }
    if idx::looks_like(path) {
        return Ok(Format::Idx);
    }
    if cifar10::count(&[path.into()]).is_ok() {
        return Ok(Format::Cifar10);
    }
    if names.iter().any(|n| is_table_name(n)) {
        let message = "looks like a table; write `table: {label: …}` with the name or number of \
                       the column that is learned";
        return Err(Error::missing(path, message));
    }
    Err(Error::missing(path, "is of no known format (idx, CIFAR-10 binary, csv, libsvm)"))
}

/// Whether a name is one that tables have.
fn is_table_name(name: &str) -> bool {
    let name = files::unpacked_name(name);
    name.ends_with(".csv") || name.ends_with(".tsv")
}

/// A path that does not exist, with what is near it.
pub(crate) fn absent(path: &Path) -> Error {
    let nearest = path.ancestors().skip(1).find(|p| files::is_folder(p));
    let message = match nearest.filter(|p| !p.as_os_str().is_empty()) {
        Some(folder) => {
            let names = files::names(folder).unwrap_or_default();
            format!("does not exist; `{}` does: {}", folder.display(), files::listing(&names))
        }
        None => "does not exist (`digits` needs no files)".into(),
    };
    Error::missing(path, message)
}
