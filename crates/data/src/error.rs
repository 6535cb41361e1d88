//! What can be wrong with data, worded so that the user can fix it.

use planaria_store::Location;
use std::io;
use std::path::{Path, PathBuf};

/// The key of the file that most mistakes are in.
const TRAIN: &str = "data.train";

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
    /// What a recipe says of a table's columns and its file does not have, each at its own key.
    #[error("{}", told(mistakes))]
    Columns { mistakes: Vec<Mistake> },
    /// A path or URL that leads to no store.
    #[error(transparent)]
    Place(planaria_store::Error),
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

/// Something wrong with what a recipe says, at one of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Dotted path of the key, such as `data.table.drop.0`.
    pub key: String,
    pub message: String,
    pub hint: Option<String>,
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
            Self::Setting { .. }
            | Self::Columns { .. }
            | Self::Place(_)
            | Self::Missing { .. }
            | Self::Corrupt { .. } => Kind::FixInput,
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

    /// What to do about it, where there is more to say than the message does.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::At { cause, .. } => cause.hint(),
            Self::Place(cause) => cause.hint(),
            Self::Missing { path, .. } => {
                let hint = path.to_str().and_then(Location::missing)?;
                Some(format!("{hint}; those in a recipe may also start at its folder"))
            }
            Self::Columns { mistakes } => mistakes.iter().find_map(|mistake| mistake.hint.clone()),
            _ => None,
        }
    }

    /// Its mistakes, each at the key of the recipe that is wrong.
    pub fn mistakes(&self) -> Vec<Mistake> {
        let columns = match self {
            Self::Columns { mistakes } => Some((mistakes, None)),
            Self::At { key, cause } => match cause.as_ref() {
                // The columns that a recipe names are those of its training file.
                Self::Columns { mistakes } if *key == TRAIN => Some((mistakes, None)),
                Self::Columns { mistakes } => Some((mistakes, Some(*key))),
                _ => None,
            },
            _ => None,
        };
        let Some((mistakes, file)) = columns else {
            let key = self.key().unwrap_or(TRAIN).to_owned();
            return vec![Mistake { key, message: self.to_string(), hint: self.hint() }];
        };
        let at = |mistake: &Mistake| Mistake {
            key: file.map_or_else(|| mistake.key.clone(), str::to_owned),
            ..mistake.clone()
        };
        mistakes.iter().map(at).collect()
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

fn told(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(|mistake| mistake.message.as_str()).collect::<Vec<_>>().join("; ")
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
