//! The kinds of store, one module each, and where they are registered.

pub mod local;

use crate::{Error, Location};

/// A kind of store as URLs name it.
#[derive(Debug)]
pub struct Kind {
    /// What stands before `://`.
    pub scheme: &'static str,
    /// For the message that lists what there is.
    pub about: &'static str,
    /// Resolves a URL of this scheme.
    pub open: fn(url: &str) -> Result<Location, Error>,
    /// What to look at where nothing is at a URL of this scheme, if there is more to say than that.
    pub missing: fn(url: &str) -> Option<String>,
}

/// Every store there is. A new one is a line here.
pub const KINDS: &[Kind] = &[local::KIND];
