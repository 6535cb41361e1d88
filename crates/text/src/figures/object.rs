//! Figures in a line that is an object: JSON, or as Python prints a dict.

use super::measures::is_measure;
use super::{FIGURES_MAX, Told, number, our_name};
use serde_json::{Map, Value};

/// Objects within objects at most.
const DEPTH_MAX: usize = 4;

/// The numbers of an object, if the line is one and has any.
pub(super) fn figures(line: &str) -> Option<Told> {
    let line = line.trim();
    if !line.starts_with('{') || !line.ends_with('}') {
        return None;
    }
    let (object, is_json) = match serde_json::from_str(line) {
        Ok(object) => (object, true),
        Err(_) => (serde_json::from_str(&from_python(line)).ok()?, false),
    };
    let Value::Object(object) = object else { return None };
    // What tells a TensorFlow process of its cluster is no figure, though it has an index.
    if object.contains_key("cluster") && object.contains_key("task") {
        return None;
    }
    let mut told = Told::new();
    flatten("", &object, DEPTH_MAX, &mut told);
    // Scripts print dicts of settings as well; JSON is written for programs.
    let is_told = |name: &str| is_measure(name) || ["epoch", "step"].contains(&&*our_name(name));
    let is_telling = is_json || told.iter().any(|(name, _)| is_told(name));
    (is_telling && !told.is_empty()).then_some(told)
}

fn flatten(prefix: &str, object: &Map<String, Value>, depth: usize, told: &mut Told) {
    for (name, value) in object {
        if told.len() == FIGURES_MAX {
            return;
        }
        let name = format!("{prefix}{name}");
        match value {
            Value::Number(n) => told.push((name, Some(n.clone()))),
            // Some loggers write figures as text, rounded.
            Value::String(text) => told.extend(number(text).map(|value| (name, value))),
            Value::Object(inner) if depth > 1 => {
                flatten(&format!("{name}."), inner, depth - 1, told);
            }
            _ => {}
        }
    }
}

/// JSON of what Python writes: `'a'` is `"a"`, `None` is `null`, and what is not finite is text.
fn from_python(text: &str) -> String {
    let mut json = String::with_capacity(text.len());
    let mut quote = None;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let mut length = c.len_utf8();
        match quote {
            Some(_) if c == '\\' => {
                length += rest[1..].chars().next().map_or(0, char::len_utf8);
                json.push_str(if &rest[..length] == "\\'" { "'" } else { &rest[..length] });
            }
            Some(open) if c == open => {
                quote = None;
                json.push('"');
            }
            Some(_) if c == '"' => json.push_str("\\\""),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                json.push('"');
            }
            None if c.is_ascii_alphabetic() => {
                length = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
                let word = match &rest[..length] {
                    "None" => "null",
                    "True" => "true",
                    "False" => "false",
                    "NaN" | "nan" | "Infinity" | "inf" => "\"nan\"",
                    word => word,
                };
                if word == "\"nan\"" {
                    // `-inf` is no number either.
                    json.truncate(json.trim_end_matches('-').len());
                }
                json.push_str(word);
            }
            _ => json.push(c),
        }
        rest = &rest[length..];
    }
    json
}
