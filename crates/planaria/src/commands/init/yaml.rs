//! Names and lists as YAML that reads well and can mean nothing else.

use std::fmt::Write;

/// Where lists are broken.
const LINE_CHARS: usize = 100;
/// Words that YAML, or readers of it, take for something else.
const WORDS: [&str; 12] =
    ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity"];

/// Text as a value.
pub fn text(value: &str) -> String {
    let mut letters = value.chars();
    let begins = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let is_plain = begins && letters.all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c));
    match is_plain && !WORDS.contains(&value.to_lowercase().as_str()) {
        true => value.to_owned(),
        // JSON is YAML.
        false => serde_json::Value::from(value).to_string(),
    }
}

/// `key: [a, b, …]`, indented, in as many lines as it takes.
pub fn list(indent: usize, key: &str, values: &[String]) -> String {
    let mut out = format!("{:indent$}{key}: [", "");
    let inner = out.chars().count();
    let mut column = inner;
    for (i, value) in values.iter().enumerate() {
        let comma = if i + 1 < values.len() { "," } else { "]" };
        if column > inner && column + value.chars().count() + 2 > LINE_CHARS {
            let _ = write!(out, "\n{:inner$}", "");
            column = inner;
        } else if i > 0 {
            out.push(' ');
            column += 1;
        }
        let _ = write!(out, "{value}{comma}");
        column += value.chars().count() + 1;
    }
    out + "\n"
}

/// Text in a comment: on one line, and short.
pub fn remark(value: &str) -> String {
    let plain = |c: char| if c.is_control() || c == '`' { '·' } else { c };
    let mut short: String = value.chars().take(40).map(plain).collect();
    if value.chars().nth(40).is_some() {
        short.push('…');
    }
    format!("`{short}`")
}

/// Lines of a comment about so long, indented.
pub fn comment(indent: usize, words: &str) -> String {
    let (mut out, mut line) = (String::new(), format!("{:indent$}#", ""));
    for word in words.split(' ') {
        if line.chars().count() + word.chars().count() + 1 > LINE_CHARS {
            out += &(line + "\n");
            line = format!("{:indent$}#", "");
        }
        line += &format!(" {word}");
    }
    out + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_text() {
        for (name, expect) in [
            ("PAY_0", "PAY_0"),
            ("default.payment", "default.payment"),
            ("2019", "\"2019\""),
            ("No", "\"No\""),
            ("a: b", "\"a: b\""),
            ("x\ny", "\"x\\ny\""),
            ("-", "\"-\""),
            ("", "\"\""),
        ] {
            assert_eq!(text(name), expect);
        }
    }

    #[test]
    fn long_lists_are_broken() {
        let values: Vec<String> = (0..30).map(|i| format!("column_{i}")).collect();
        let list = list(4, "one_hot", &values);
        assert!(list.lines().all(|line| line.chars().count() <= 100), "{list}");
        assert!(list.starts_with("    one_hot: [column_0, column_1,"), "{list}");
        assert!(list.ends_with("column_29]\n") && list.lines().count() > 2, "{list}");
    }
}
