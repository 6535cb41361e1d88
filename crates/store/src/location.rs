//! Paths and URLs as users write them, resolved to a store and a name in it.

use crate::stores::{KINDS, Kind, local};
use crate::{Error, Store};
use std::sync::Arc;

/// A name and the store it is in.
#[derive(Debug, Clone)]
pub struct Location {
    pub store: Arc<dyn Store>,
    pub name: String,
}

impl Location {
    /// Resolves `scheme://…` by the registered stores; everything else is a path of this machine.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let Some((scheme, _)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme))
        else {
            return (local::KIND.open)(text);
        };
        match KINDS.iter().find(|kind| kind.scheme == scheme) {
            Some(kind) => (kind.open)(text),
            None => {
                Err(Error::Scheme { url: text.into(), scheme: scheme.into(), known: known(KINDS) })
            }
        }
    }
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

fn known(kinds: &[Kind]) -> String {
    let listed: Vec<String> =
        kinds.iter().map(|kind| format!("`{}://` ({})", kind.scheme, kind.about)).collect();
    listed.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_file_urls_are_local() {
        for (text, name) in [
            ("/data/mnist", "/data/mnist"),
            ("data/a.csv", "data/a.csv"),
            ("file:///data/a", "/data/a"),
            ("odd name://x", "odd name://x"),
        ] {
            assert_eq!(Location::parse(text).unwrap().name, name);
        }
    }

    #[test]
    fn an_unknown_store_is_named_with_those_there_are() {
        let said = Location::parse("s3://bucket/set").unwrap_err().to_string();
        assert!(said.contains("`s3://bucket/set`: no store is known for `s3://`"), "{said}");
        assert!(said.contains("`file://` (files of this machine"), "{said}");
    }
}
