//! Which files of a folder belong together: `PREFIX-images-idx3-ubyte` and
//! `PREFIX-labels-idx1-ubyte`, with a dot or a dash before `idx`, plain, .gz or .xz.

use super::Pair;
use crate::error::Error;
use crate::files;
use crate::sources::Role;
use std::path::Path;

/// Whether a file's name is one of an idx pair's.
pub fn is_name(name: &str) -> bool {
    prefix(name, "images").is_some() || prefix(name, "labels").is_some()
}

/// The pair that holds a role's examples: an images file with the labels beside it, or the folder's
/// `train-` files for training and `t10k-` or `test-` files for test; validation takes `val` files
/// before test files. A folder that holds one pair without such a prefix serves every role.
pub fn locate(path: &Path, role: Role) -> Result<Pair, Error> {
    if files::is_folder(path) { in_folder(path, role) } else { beside(path) }
}

fn in_folder(folder: &Path, role: Role) -> Result<Pair, Error> {
    let names = files::names(folder)?;
    let images: Vec<(&str, &str)> =
        names.iter().filter_map(|n| Some((prefix(n, "images")?, n.as_str()))).collect();
    let starts: &[&[&str]] = match role {
        Role::Train => &[&["train"]],
        Role::Test => &[&["t10k", "test"]],
        Role::Validation => &[&["val"], &["t10k", "test"]],
    };
    let with = |starts: &[&str]| {
        images.iter().find(|(prefix, _)| starts.iter().any(|s| prefix.starts_with(s)))
    };
    let known =
        |prefix: &str| ["train", "t10k", "test", "val"].iter().any(|s| prefix.starts_with(s));
    let only = || match &images[..] {
        [one] if !known(one.0) => Some(one),
        _ => None,
    };
    let Some((_, name)) = starts.iter().find_map(|s| with(s)).or_else(only) else {
        let wanted: Vec<String> =
            starts.concat().iter().map(|s| format!("`{s}*-images-idx3-ubyte`")).collect();
        let message =
            format!("has no {} (or .gz); {}", wanted.join(" or "), files::listing(&names));
        return Err(Error::missing(folder, message));
    };
    beside(&folder.join(name))
}

/// Finds the labels beside an images file.
fn beside(images: &Path) -> Result<Pair, Error> {
    let name = images.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let folder = match images.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !files::exists(images) {
        let names = files::names(folder).unwrap_or_default();
        let there = if files::is_folder(folder) {
            format!("; in its folder: {}", files::listing(&names))
        } else {
            "; its folder does not exist either".into()
        };
        return Err(Error::missing(images, format!("does not exist{there}")));
    }
    let Some(wanted) = prefix(name, "images") else {
        let message =
            "needs `images` and `idx` in its name, so that its labels can be found beside it";
        return Err(Error::missing(images, message));
    };
    let names = files::names(folder)?;
    match names.iter().find(|n| prefix(n, "labels") == Some(wanted)) {
        Some(labels) => Ok(Pair { images: images.into(), labels: folder.join(labels) }),
        None => {
            let message = format!(
                "has no `{wanted}labels-idx1-ubyte` (or .gz) beside it; {}",
                files::listing(&names)
            );
            Err(Error::missing(images, message))
        }
    }
}

/// What comes before `what` in a name such as `train-images-idx3-ubyte.gz`.
fn prefix<'a>(name: &'a str, what: &str) -> Option<&'a str> {
    let (prefix, rest) = name.split_once(what)?;
    let rest = files::unpacked_name(rest);
    let rest = rest.strip_prefix(['-', '.', '_'])?;
    (rest.starts_with("idx") && !rest.contains('.')).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let check =
            |name: &str, expect: Option<&str>| assert_eq!(prefix(name, "images"), expect, "{name}");
        check("train-images-idx3-ubyte.gz", Some("train-"));
        check("train-images-idx3-ubyte", Some("train-"));
        check("t10k-images.idx3-ubyte", Some("t10k-"));
        check("images-idx4-float.xz", Some(""));
        check("train-images-idx3-ubyte.gz.part", None);
        check("train-images.png", None);
        check("train-labels-idx1-ubyte.gz", None);
    }
}
