//! Values that are one of several cases: names, names with options, or different types.
//!
//! Part of the structural check; it exists so that no user ever reads "matches none of oneOf".

use crate::check::{Checker, kind_of, strings};
use crate::diagnostic::{Span, quoted};
use crate::node::{Entry, Kind, Node};
use crate::suggest;
use serde_json::{Map, Value, json};

/// Names a case can have: alone, or with options.
pub(crate) struct Choices<'s> {
    pub bare: Vec<&'s str>,
    pub tagged: Vec<(&'s str, &'s Value)>,
}

impl<'s> Choices<'s> {
    /// The names of an enum's schema; `None` when the cases differ by type instead.
    pub fn of(cases: &[&'s Value]) -> Option<Self> {
        let mut choices = Self { bare: Vec::new(), tagged: Vec::new() };
        for case in cases {
            if let Some(name) = case["const"].as_str() {
                choices.bare.push(name);
            } else if case["enum"].is_array() {
                choices.bare.extend(strings(&case["enum"]));
            } else {
                let properties = case["properties"].as_object().filter(|p| p.len() == 1)?;
                let (name, schema) = properties.iter().next()?;
                if strings(&case["required"]) != [name.as_str()] {
                    return None;
                }
                choices.tagged.push((name, schema));
            }
        }
        Some(choices)
    }

    fn names(&self) -> Vec<&'s str> {
        self.bare.iter().copied().chain(self.tagged.iter().map(|(n, _)| *n)).collect()
    }

    fn options(&self, name: &str) -> Option<&'s Value> {
        self.tagged.iter().find(|(n, _)| *n == name).map(|(_, s)| *s)
    }
}

/// Whether every option has a default, so that the name alone is enough.
pub(crate) fn all_defaults(options: &Value) -> bool {
    kind_of(options).0 == "object"
        && options.get("oneOf").is_none()
        && options.get("anyOf").is_none()
        && strings(&options["required"]).is_empty()
}

impl<'s> Checker<'s> {
    /// Checks a value that is one of several cases.
    pub fn cases(&mut self, node: &Node, cases: &[&'s Value], key: Span) -> Option<Value> {
        let Some(choices) = Choices::of(cases) else { return self.by_type(node, cases, key) };
        match &node.kind {
            Kind::Str(name) if choices.bare.contains(&name.as_str()) => {
                Some(Value::from(name.as_str()))
            }
            Kind::Str(name) => match choices.options(name) {
                Some(options) => self.shorthand(node, name, options),
                None => self.unknown_name(node.span, name, &choices),
            },
            Kind::Map(entries) if !choices.tagged.is_empty() => {
                self.tagged(entries, node, &choices)
            }
            _ => {
                let names = choices.names();
                let wanted = match (self.noun(), choices.tagged.is_empty()) {
                    ("layer", _) => "a layer such as `{Dense: {units: 10}}`".to_owned(),
                    _ => format!("one of {}", suggest::list(&names)),
                };
                self.unwanted(node, &wanted, "choice", key)
            }
        }
    }

    /// Cases that differ by type: a number or a list, a share or a path.
    fn by_type(&mut self, node: &Node, cases: &[&'s Value], key: Span) -> Option<Value> {
        let fits = |case: &&&Value| {
            matches!(
                (&node.kind, kind_of(case).0),
                (Kind::Int(_), "integer" | "number")
                    | (Kind::Float(_), "number")
                    | (Kind::Str(_), "string")
                    | (Kind::Bool(_), "boolean")
                    | (Kind::Seq(_), "array")
                    | (Kind::Map(_), "object")
            )
        };
        if let Some(case) = cases.iter().find(fits) {
            return self.value(node, case, key);
        }
        let wanted: Vec<String> = cases.iter().map(|c| self.wanted(c)).collect();
        self.unwanted(node, &wanted.join(" or "), "cases", key)
    }

    /// A bare name stands for itself with every default.
    fn shorthand(&mut self, node: &Node, name: &str, options: &'s Value) -> Option<Value> {
        let options = self.resolve(options);
        if all_defaults(options) {
            return Some(json!({ name: {} }));
        }
        let needed = strings(&options["required"]);
        let (message, example) = if needed.is_empty() {
            (format!("`{name}` needs a value"), format!("{{{name}: …}}"))
        } else {
            let keys = needed.iter().map(|k| format!("{k}: …")).collect::<Vec<_>>().join(", ");
            let message = format!("`{name}` needs {}", suggest::list(&needed));
            (message, format!("{{{name}: {{{keys}}}}}"))
        };
        let message = format!("{}: {message}", self.title());
        self.mistake(node.span, message, Some(format!("write `{example}`")))
    }

    fn tagged(&mut self, entries: &[Entry], node: &Node, choices: &Choices<'s>) -> Option<Value> {
        let [entry] = entries else { return self.not_one(entries, node, choices) };
        let Some(options) = choices.options(&entry.key) else {
            if choices.bare.contains(&entry.key.as_str()) {
                let message = format!("`{}` has no options", entry.key);
                return self.mistake(
                    entry.key_span,
                    message,
                    Some(format!("write `{}`", entry.key)),
                );
            }
            return self.unknown_name(entry.key_span, &entry.key, choices);
        };
        self.path().push(entry.key.clone());
        let empty = entry.value.kind == Kind::Null && all_defaults(self.resolve(options));
        let value = match empty {
            true => Some(json!({})),
            false => self.value(&entry.value, options, entry.key_span),
        };
        self.path().pop();
        value.map(|v| Value::Object(Map::from_iter([(entry.key.clone(), v)])))
    }

    fn not_one(&mut self, entries: &[Entry], node: &Node, choices: &Choices<'s>) -> Option<Value> {
        let (noun, title) = (self.noun(), self.title());
        let Some(first) = entries.first() else {
            let message = format!("{title} has no name");
            let hint = suggest::hint("", &choices.names(), "known names");
            return self.mistake(node.span, message, hint);
        };
        let names = choices.names();
        let others: Vec<&Entry> = entries.iter().skip(1).collect();
        let second = others.first().map_or(first.key_span, |e| e.key_span);
        let keys: Vec<&str> = entries.iter().take(4).map(|e| e.key.as_str()).collect();
        let stray = !others.iter().any(|e| names.contains(&e.key.as_str()));
        if names.contains(&first.key.as_str()) && stray {
            let message = format!("{} stands beside `{}`, not in it", quoted(keys[1]), first.key);
            let hint = format!("indent the options further than `{}`", first.key);
            return self.mistake(second, format!("{title}: {message}"), Some(hint));
        }
        if !names.contains(&first.key.as_str()) && stray {
            return self.unknown_name(first.key_span, &first.key, choices);
        }
        let message =
            format!("{title} must name one {noun}, but names {}: {}", entries.len(), list(&keys));
        let hint = match noun {
            "layer" => "start each layer with its own `- `",
            _ => "keep one of them",
        };
        self.mistake(second, message, Some(hint.to_owned()))
    }

    fn unknown_name(&mut self, span: Span, name: &str, choices: &Choices<'s>) -> Option<Value> {
        let noun = self.noun();
        let title = self.title();
        let message = match noun {
            "layer" => format!("{title}: unknown layer {}", quoted(name)),
            _ => format!("unknown value {} for {title}", quoted(name)),
        };
        let names = choices.names();
        let key = self.path().last().cloned().unwrap_or_default();
        let hint = suggest::absent(&key, name, &names)
            .or_else(|| suggest::hint(name, &names, &format!("known {noun}s")));
        self.mistake(span, message, hint)
    }

    /// What the choice at this place is called.
    fn noun(&mut self) -> &'static str {
        match self.path().last().map(String::as_str) {
            Some("optimizer") => "optimizer",
            Some("schedule") => "schedule",
            Some(last) if last.parse::<usize>().is_ok() => "layer",
            _ => "value",
        }
    }
}

fn list(keys: &[&str]) -> String {
    keys.iter().map(|k| quoted(k)).collect::<Vec<_>>().join(", ")
}
