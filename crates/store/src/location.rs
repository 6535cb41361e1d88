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
        let kind = kind(text).map_err(|scheme| Error::Scheme {
            url: text.into(),
            scheme: scheme.into(),
            known: known(KINDS),
        })?;
        (kind.open)(text)
    }

    /// What to look at where nothing is at a path or URL, if there is more to say than that.
    pub fn missing(text: &str) -> Option<String> {
        kind(text).ok().and_then(|kind| (kind.missing)(text))
    }
}

/// The store of a path or URL; its scheme where there is no such store.
fn kind(text: &str) -> Result<&'static Kind, &str> {
    match text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        None => Ok(&local::KIND),
        Some((scheme, _)) => KINDS.iter().find(|kind| kind.scheme == scheme).ok_or(scheme),
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
    fn only_relative_paths_are_looked_for_from_here() {
        let hint = Location::missing("nowhere/a.csv").unwrap();
        assert!(hint.starts_with("relative paths start at the current directory, `/"), "{hint}");
        assert_eq!(Location::missing("file://nowhere").unwrap(), hint);
        for other in ["/nowhere", "file:///nowhere", "s3://bucket/nowhere", "src"] {
            assert_eq!(Location::missing(other), None, "{other}");
        }
    }

    #[test]
    fn a_pipe_or_a_device_is_no_place_for_data() {
        for text in ["/dev/null", "file:///dev/null", "-"] {
            let refused = Location::parse(text).unwrap_err();
            assert!(refused.to_string().contains(&format!("`{text}` is a pipe")), "{refused}");
            assert!(refused.hint().unwrap().contains("write it to a file first"));
        }
    }

    #[test]
    fn an_unknown_store_is_named_with_those_there_are() {
        let said = Location::parse("s3://bucket/set").unwrap_err().to_string();
        assert!(said.contains("`s3://bucket/set` is a URL, and no store is known"), "{said}");
        assert!(said.contains("`file://` (files of this machine"), "{said}");
        let hint = |url: &str| Location::parse(url).unwrap_err().hint().unwrap();
        assert!(hint("https://a.org/x.csv").contains("`curl -fLO https://a.org/x.csv`"));
        assert!(hint("s3://bucket/set").contains("copy it to this machine first"));
    }
}
