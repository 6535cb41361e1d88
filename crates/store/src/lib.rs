//! Where bytes live: files of this machine today, object stores next.
//!
//! # Layout
//!
//! - [`Store`] and [`Object`]: list names, read ranges, write whole objects atomically.
//! - [`stores`]: one folder or file per kind of store, and their registration ([`stores::KINDS`]).
//! - [`Location`]: a path or URL of a recipe, resolved to a store and a name in it.
//! - [`Scratch`]: unnamed files for what does not fit into memory.
//! - [`transfer`]: objects in pieces from one machine to another.
//! - [`durable`]: local files that are whole or absent, also after a power cut.
//! - [`sha256`](hash::sha256) and its [`hash::Hasher`].
//! - [`plain`]: files to be read, and nothing else that may have their names.
//! - [`memory`]: how much of it this process may use.
//!
//! The API blocks and is `Send + Sync`. A store that needs an async runtime hides it inside.
//! Knows nothing of formats, links or runs.
//!
//! # A new store
//!
//! A folder in `stores/` that implements [`Store`] and [`Object`], a line in [`stores::KINDS`], and
//! a test in `tests/conformance.rs` that passes it to the suite.
//!
//! ```
//! use planaria_store::Location;
//! let folder = std::env::temp_dir().join(format!("planaria-store-doc-{}", std::process::id()));
//! let place = Location::parse(&format!("file://{}/greeting", folder.display()))?;
//! place.store.write(&place.name, &mut &b"hello"[..])?;
//! let mut out = [0; 3];
//! place.store.open(&place.name)?.read(2, &mut out)?;
//! assert_eq!(&out, b"llo");
//! # std::fs::remove_dir_all(folder).ok();
//! # Ok::<(), planaria_store::Error>(())
//! ```

pub mod durable;
mod error;
pub mod hash;
mod location;
pub mod memory;
pub mod plain;
mod scratch;
pub mod stores;
pub mod transfer;

pub use error::Error;
pub use location::Location;
pub use scratch::Scratch;

use std::fmt::Debug;
use std::io::Read;
use std::sync::Arc;

/// A place that holds named bytes. Names use `/`; the empty name is the root, a folder.
///
/// `tests/conformance.rs` is this contract as tests.
pub trait Store: Debug + Send + Sync {
    /// What is directly in a folder, sorted by name. [`Error::Missing`] if there is no such folder;
    /// a store without folders has those that its names imply.
    fn list(&self, folder: &str) -> Result<Vec<Entry>, Error>;

    /// What a name leads to; nothing where it leads nowhere.
    fn look(&self, name: &str) -> Result<Option<Found>, Error>;

    /// Opens an object for reading. What was opened stays readable as it was, or reading it fails:
    /// an object that is replaced meanwhile never gives bytes of both.
    fn open(&self, name: &str) -> Result<Arc<dyn Object>, Error>;

    /// Writes all of `from` under a name, replacing what was there. Readers see the old object or
    /// the new one, never a part; a failure leaves the old one. What has been written survives a
    /// power cut.
    fn write(&self, name: &str, from: &mut dyn Read) -> Result<Written, Error>;

    /// Removes an object; one that is not there is no error.
    fn remove(&self, name: &str) -> Result<(), Error>;
}

/// An open object; any thread may read any range at any time.
pub trait Object: Debug + Send + Sync {
    fn bytes(&self) -> u64;

    /// Differs when the content does (an object store's etag).
    fn version(&self) -> &str;

    /// Fills `out` with the bytes from `at` on, all of which must exist.
    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Error>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its last part alone.
    pub name: String,
    pub found: Found,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Folder,
    Object { bytes: u64, version: String },
}

/// What a write made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub bytes: u64,
    pub sha256: [u8; 32],
}
