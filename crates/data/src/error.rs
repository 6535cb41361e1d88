//! What can be wrong with data, worded so that the user can fix it.

use std::io;
use std::path::{Path, PathBuf};

/// A failure to open or read data.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another failure, and the recipe key whose data it concerns.
    #[error("{cause}")]
    At {
        /// Such as `data.train`.
        key: &'static str,
        #[source]
        cause: Box<Error>,
    },
    /// A setting that cannot be followed.
    #[error("{message}")]
    Setting {
        /// What is wrong, with the value.
        message: String,
    },
    /// A file or folder that is not there, or holds nothing usable.
    #[error("`{}` {message}", path.display())]
    Missing {
        /// The file or folder.
        path: PathBuf,
        /// What was looked for, and what is there.
        message: String,
    },
    /// A file whose bytes are not what its format asks.
    #[error("{}: {message}", file_name(path))]
    Corrupt {
        path: PathBuf,
        /// What is wrong, with the record.
        message: String,
    },
    /// The system could not read a file.
    #[error("cannot read `{}`: {cause}", path.display())]
    Io {
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The thread that reads ahead could not be started, or ended without a word.
    #[error("reading ahead failed: {message}")]
    Reader { message: String },
}

/// What the caller should do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The user has to change the recipe or the files (exit code 2).
    FixInput,
    /// The machine failed; the same input may work again.
    Retry,
}

impl Error {
    /// What the caller should do.
    pub fn kind(&self) -> Kind {
        match self {
            Self::At { cause, .. } => cause.kind(),
            Self::Setting { .. } | Self::Missing { .. } | Self::Corrupt { .. } => Kind::FixInput,
            Self::Io { cause, .. } => match cause.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::IsADirectory
                | io::ErrorKind::NotADirectory => Kind::FixInput,
                _ => Kind::Retry,
            },
            Self::Reader { .. } => Kind::Retry,
        }
    }

    /// The recipe key whose data failed, such as `data.train`.
    pub fn key(&self) -> Option<&'static str> {
        match self {
            Self::At { key, .. } => Some(key),
            _ => None,
        }
    }

    /// The same failure, said of a recipe key.
    pub(crate) fn at(self, key: &'static str) -> Self {
        match self {
            Self::At { .. } => self,
            cause => Self::At { key, cause: Box::new(cause) },
        }
    }

    pub(crate) fn setting(message: impl Into<String>) -> Self {
        Self::Setting { message: message.into() }
    }

    pub(crate) fn missing(path: &Path, message: impl Into<String>) -> Self {
        Self::Missing { path: path.into(), message: message.into() }
    }

    pub(crate) fn corrupt(path: &Path, message: impl Into<String>) -> Self {
        Self::Corrupt { path: path.into(), message: message.into() }
    }

    pub(crate) fn io(path: &Path, cause: io::Error) -> Self {
        Self::Io { path: path.into(), cause }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
