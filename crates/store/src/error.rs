//! Why bytes could not be found, read or written.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{url}` is a URL, and no store is known for `{scheme}://`; there are {known}")]
    Scheme { url: String, scheme: String, known: String },
    #[error("`{name}` is a pipe or a device, and data is read more than once, in any order")]
    Stream { name: String },
    #[error("`{name}` does not exist")]
    Missing { name: String },
    #[error("cannot {verb} `{name}`: {cause}")]
    Io {
        /// `read`, `write`, `list` or `remove`.
        verb: &'static str,
        name: String,
        #[source]
        cause: io::Error,
    },
    #[error("`{name}` changed while it was read: {what}")]
    Changed { name: String, what: String },
}

impl Error {
    pub fn io(verb: &'static str, name: impl ToString, cause: io::Error) -> Self {
        let name = name.to_string();
        match cause.kind() {
            io::ErrorKind::NotFound => Self::Missing { name },
            _ => Self::Io { verb, name, cause },
        }
    }
}

impl Error {
    /// What to do about it, where that can be said.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Scheme { url, scheme, .. } if ["http", "https", "ftp"].contains(&&scheme[..]) => {
                Some(format!(
                    "download it first, such as with `curl -fLO {url}`, and give its path"
                ))
            }
            Self::Scheme { .. } => Some(
                "copy it to this machine first, with that store's own tool, and give its path"
                    .into(),
            ),
            Self::Stream { .. } => Some("write it to a file first, and give its path".into()),
            _ => None,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { cause, .. } => cause,
            Error::Missing { .. } => Self::new(io::ErrorKind::NotFound, error),
            Error::Scheme { .. } => Self::new(io::ErrorKind::Unsupported, error),
            Error::Stream { .. } => Self::new(io::ErrorKind::InvalidInput, error),
            Error::Changed { .. } => Self::other(error),
        }
    }
}
