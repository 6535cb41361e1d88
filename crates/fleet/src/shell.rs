//! Words for `sh`.

/// A word that means itself.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A path that means itself, but for `~/` in front.
pub fn path(path: &str) -> String {
    match path.strip_prefix("~/") {
        Some(rest) => format!("\"$HOME\"/{}", quoted(rest)),
        None => quoted(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_themselves() {
        assert_eq!(quoted("a'b $(c)"), r"'a'\''b $(c)'");
        assert_eq!(path("~/a b"), r#""$HOME"/'a b'"#);
        assert_eq!(path("/a"), "'/a'");
    }
}
