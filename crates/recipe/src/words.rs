//! Counts and lists in words, for messages and plans.

/// Names that are listed one by one.
const NAMES_MAX: usize = 16;

/// `1 host`, `3 hosts`.
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Names with commas between; of many, how many more there are.
pub fn listed(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMES_MAX);
    names.truncate(NAMES_MAX);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
