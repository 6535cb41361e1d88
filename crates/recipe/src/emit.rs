//! A recipe back to YAML.
//!
//! Owns the layout of resolved recipes. What it writes parses back to an equal one.

use crate::diagnostic::plain;
use crate::node::Kind;
use crate::yaml::resolve;
use serde::Serialize;
use serde_json::Value;

/// Writes a recipe, one layer to a line where it has no layers inside.
pub fn to_yaml(recipe: &impl Serialize) -> String {
    // Through text, because single-precision numbers are shortest there (0.1, not 0.10000000149).
    let value = serde_json::to_string(recipe)
        .and_then(|text| serde_json::from_str(&text))
        .unwrap_or(Value::Null);
    let mut out = String::new();
    block(&value, 0, &mut out);
    out
}

/// A collection over several lines, indented.
fn block(value: &Value, indent: usize, out: &mut String) {
    let pad = "  ".repeat(indent);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                out.push_str(&format!("{pad}{}:", text(key)));
                after_colon(value, indent, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                out.push_str(&format!("{pad}-"));
                match item {
                    item if !nests(item) => out.push_str(&format!(" {}\n", flow(item))),
                    Value::Object(map) if map.len() == 1 => {
                        for (key, value) in map {
                            out.push_str(&format!(" {}:", text(key)));
                            after_colon(value, indent + 1, out);
                        }
                    }
                    item => {
                        out.push('\n');
                        block(item, indent + 1, out);
                    }
                }
            }
        }
        scalar => out.push_str(&format!("{pad}{}\n", flow(scalar))),
    }
}

fn after_colon(value: &Value, indent: usize, out: &mut String) {
    let section = indent == 0 && value.as_object().is_some_and(|m| !m.is_empty());
    if section || nests(value) {
        out.push('\n');
        block(value, indent + 1, out);
    } else {
        out.push_str(&format!(" {}\n", flow(value)));
    }
}

/// Whether a list of collections is somewhere inside, which reads badly on one line.
fn nests(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|i| i.is_object() || i.is_array()),
        Value::Object(map) => map.values().any(nests),
        _ => false,
    }
}

/// A value on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let entries = map.iter().map(|(k, v)| format!("{}: {}", text(k), flow(v)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Value::String(s) => text(s),
        scalar => scalar.to_string(),
    }
}

/// Text, in quotes only where YAML would read something else.
fn text(s: &str) -> String {
    let simple = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    let starts = s.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/' || c == '_')
        || s.starts_with("./")
        || s.starts_with("../");
    if starts && s.chars().all(simple) && matches!(resolve(s), Kind::Str(_)) {
        return s.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in s.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            ' '..='~' => quoted.push(c),
            c if c.is_alphanumeric() && plain(&c.to_string()) == c.to_string() => quoted.push(c),
            c if u32::from(c) > 0xffff => quoted.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}
