//! What pieces of text may be: addresses, paths, names. What goes to another program as one of its
//! arguments must not look like an option of it.

/// Longest path.
const PATH_BYTES_MAX: usize = 4096;
/// Longest address or name of a host.
const HOST_BYTES_MAX: usize = 255;
/// Longest name of a user.
const USER_BYTES_MAX: usize = 64;

/// Why this cannot be an address or the name of a host.
pub(crate) fn host(text: &str) -> Option<String> {
    letters(text, HOST_BYTES_MAX, "-_.:%")
}

/// Why this cannot be a user.
pub(crate) fn user(text: &str) -> Option<String> {
    letters(text, USER_BYTES_MAX, "-_.@+\\$")
}

/// Why this cannot be a list of hosts to go through.
pub(crate) fn jumps(text: &str) -> Option<String> {
    letters(text, 1024, "-_.:%@[],").or_else(|| {
        let mut hops = text.split(',');
        hops.find_map(|hop| match hop {
            "" => Some("has nothing between two commas".to_owned()),
            _ if hop.starts_with('-') => Some("has a host that starts with `-`".to_owned()),
            _ => None,
        })
    })
}

/// Why this cannot be a reference to an image.
pub(crate) fn image(text: &str) -> Option<String> {
    letters(text, HOST_BYTES_MAX, "-_.:/@")
}

/// Why this cannot be a path here.
pub(crate) fn path(text: &str) -> Option<String> {
    common(text, PATH_BYTES_MAX)
}

/// Why this cannot be a path on a machine.
pub(crate) fn remote_path(text: &str) -> Option<String> {
    if let Some(why) = path(text) {
        return Some(why);
    }
    let inside = text.strip_prefix("~/").or_else(|| text.strip_prefix('/'));
    match inside {
        None => Some("starts with neither `/` nor `~/`".into()),
        Some(rest) if rest.split('/').any(|part| part == "..") => Some("holds `..`".into()),
        Some(rest) if rest.trim_matches('/').is_empty() => Some("names no file".into()),
        Some(_) => None,
    }
}

fn letters(text: &str, bytes_max: usize, others: &str) -> Option<String> {
    let wrong = |c: &char| !c.is_ascii_alphanumeric() && !others.contains(*c);
    common(text, bytes_max).or_else(|| match text.chars().find(wrong) {
        Some(c) => Some(format!("holds `{c}`")),
        None if text.starts_with('-') => Some("starts with `-`".into()),
        None => None,
    })
}

fn common(text: &str, bytes_max: usize) -> Option<String> {
    match text {
        "" => Some("is empty".into()),
        _ if text.len() > bytes_max => Some(format!("is longer than {bytes_max} bytes")),
        _ if text.chars().any(char::is_control) => Some("holds a control character".into()),
        _ => None,
    }
}
