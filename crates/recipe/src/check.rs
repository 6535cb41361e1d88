//! The recipe's tree against the schema of its types.
//!
//! Owns every structural mistake: unknown and missing keys, wrong types, ranges, unknown names.
//! Walks the JSON Schema that schemars makes, so a new field needs no code here. Never knows what
//! values mean together; that is [`crate::rules`].
//!
//! What is sound is handed on as JSON even when other parts are not, so that later checks can
//! report their mistakes in the same run.

use crate::diagnostic::{Mistake, Span, quoted};
use crate::node::{Entry, Kind, Node, title};
use crate::suggest;
use serde_json::{Map, Value, json};

/// Mistakes after which the rest of a file is not looked at.
const MISTAKES_MAX: usize = 1000;

/// What is left of a tree after the check.
pub(crate) struct Checked {
    /// The sound parts with shorthands written out; `None` when something required is unsound.
    pub value: Option<Value>,
    pub mistakes: Vec<Mistake>,
    /// `model.layers` holds only the layers before the first unsound one.
    pub layers_cut: bool,
}

/// Checks a whole recipe against `schema`.
pub(crate) fn check(tree: &Node, schema: &Value) -> Checked {
    let mut checker =
        Checker { root: schema, path: Vec::new(), mistakes: Vec::new(), layers_cut: false };
    let value = checker.value(tree, schema, tree.place());
    Checked { value, mistakes: checker.mistakes, layers_cut: checker.layers_cut }
}

pub(crate) struct Checker<'s> {
    root: &'s Value,
    path: Vec<String>,
    mistakes: Vec<Mistake>,
    layers_cut: bool,
}

impl<'s> Checker<'s> {
    /// Follows `$ref`s. The bound is for safety: the types' references are one step long.
    pub fn resolve(&self, mut schema: &'s Value) -> &'s Value {
        for _ in 0..8 {
            let Some(name) = schema["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/"))
            else {
                return schema;
            };
            schema = &self.root["$defs"][name];
        }
        schema
    }

    /// Checks one value; `key` is where it was named.
    pub fn value(&mut self, node: &Node, schema: &'s Value, key: Span) -> Option<Value> {
        if self.mistakes.len() >= MISTAKES_MAX {
            return None;
        }
        let schema = self.resolve(schema);
        if let Some(cases) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
            let nullable = cases.iter().any(|c| c["type"] == "null" || kind_of(c).1);
            if nullable && node.kind == Kind::Null {
                return Some(Value::Null);
            }
            let cases: Vec<&Value> =
                cases.iter().filter(|c| c["type"] != "null").map(|c| self.resolve(c)).collect();
            return match cases[..] {
                [only] => self.value(node, only, key),
                _ => self.cases(node, &cases, key),
            };
        }
        let (kind, nullable) = kind_of(schema);
        match (&node.kind, kind) {
            (Kind::Null, _) if nullable => Some(Value::Null),
            (Kind::Map(entries), "object") if schema["additionalProperties"].is_object() => {
                self.free_object(entries, &schema["additionalProperties"])
            }
            (Kind::Map(entries), "object") => self.object(entries, schema, key),
            (Kind::Seq(items), "array") => self.array(node, items, schema),
            (Kind::Str(text), "string") => Some(Value::from(text.as_str())),
            (Kind::Bool(b), "boolean") => Some(Value::from(*b)),
            (Kind::Int(_), "integer" | "number") | (Kind::Float(_), "number") => {
                self.number(node, schema, kind == "integer")
            }
            _ => self.wrong_type(node, schema, key),
        }
    }

    fn object(&mut self, entries: &[Entry], schema: &'s Value, key: Span) -> Option<Value> {
        let mut sound = true;
        let mut object = Map::new();
        let properties = &schema["properties"];
        let known: Vec<&str> = properties
            .as_object()
            .map(|p| p.keys().map(String::as_str).collect())
            .unwrap_or_default();
        let required: Vec<&str> = strings(&schema["required"]);
        for entry in entries {
            let Some(property) = properties.get(&entry.key) else {
                self.unknown_key(entry, &known, schema);
                continue;
            };
            self.path.push(entry.key.clone());
            match self.value(&entry.value, property, entry.key_span) {
                Some(value) => {
                    object.insert(entry.key.clone(), value);
                }
                None if !required.contains(&entry.key.as_str()) => {}
                None => sound &= self.stand_in(&entry.key, &mut object),
            }
            self.path.pop();
        }
        for name in required {
            if entries.iter().any(|e| e.key == name) {
                continue;
            }
            sound &= self.stand_in(name, &mut object);
            // A mistyped key is one mistake, not two.
            let mistyped = |e: &Entry| {
                !known.contains(&e.key.as_str()) && suggest::nearest(&e.key, &known) == Some(name)
            };
            if !entries.iter().take(MISTAKES_MAX).any(mistyped) {
                self.missing_key(name, &properties[name], key);
            }
        }
        sound.then_some(Value::Object(object))
    }

    /// A mapping whose keys are the user's own.
    fn free_object(&mut self, entries: &[Entry], values: &'s Value) -> Option<Value> {
        let mut object = Some(Map::new());
        for entry in entries {
            self.path.push(entry.key.clone());
            let value = self.value(&entry.value, values, entry.key_span);
            self.path.pop();
            match value {
                Some(value) => object.iter_mut().for_each(|o| {
                    o.insert(entry.key.clone(), value.clone());
                }),
                None => object = None,
            }
        }
        object.map(Value::Object)
    }

    /// Puts something harmless where a required value is unsound, so that the rest of the recipe is
    /// still looked at; the mistake itself is reported in any case.
    fn stand_in(&self, name: &str, object: &mut Map<String, Value>) -> bool {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        // While a value is checked its own name is the end of the path.
        let value = match (path.as_slice(), name) {
            (["name"] | [], "name") => json!("unnamed"),
            (["data"] | [], "data") => json!({ "train": "" }),
            (["model"] | [], "model") => json!({}),
            (["data", "train"] | ["data"], "train") => json!(""),
            _ => return false,
        };
        object.insert(name.to_owned(), value);
        true
    }

    fn array(&mut self, node: &Node, items: &[Node], schema: &'s Value) -> Option<Value> {
        let bound = |name: &str| schema[name].as_u64().map(|n| n as usize);
        let short = bound("minItems").is_some_and(|n| items.len() < n);
        let long = bound("maxItems").is_some_and(|n| items.len() > n);
        if short || long {
            let wanted = self.wanted(schema);
            let message = format!("{} must be {wanted}, but has {}", self.title(), items.len());
            return self.mistake(node.span, message, None);
        }
        let is_network = self.path == ["model", "layers"];
        let mut values = Some(Vec::new());
        for (i, item) in items.iter().enumerate() {
            let before = self.mistakes.len();
            self.path.push(i.to_string());
            let value = self.value(item, &schema["items"], item.place());
            self.path.pop();
            let cut = value.is_none() || self.mistakes[before..].iter().any(changes_shape);
            if is_network && (cut || self.layers_cut) {
                self.layers_cut = true;
                continue;
            }
            match value {
                Some(value) => values.iter_mut().for_each(|v| v.push(value.clone())),
                None => values = None,
            }
        }
        values.map(Value::Array)
    }

    fn number(&mut self, node: &Node, schema: &Value, integer: bool) -> Option<Value> {
        let (number, json) = match node.kind {
            Kind::Int(i) => {
                let json = u64::try_from(i).map(Value::from).or(i64::try_from(i).map(Value::from));
                (i as f64, if integer { json.ok() } else { Some(Value::from(i as f64)) })
            }
            Kind::Float(x) => (x, Some(Value::from(x))),
            _ => return None,
        };
        let single = schema["format"] == "float";
        if !number.is_finite() || (single && number.abs() > f64::from(f32::MAX)) {
            let message =
                format!("{} must be a finite number, but is {}", self.title(), node.describe());
            return self.mistake(node.span, message, None);
        }
        let low = schema["minimum"].as_f64();
        let high = schema["maximum"].as_f64();
        if json.is_none() || low.is_some_and(|l| number < l) || high.is_some_and(|h| number > h) {
            let message = format!(
                "{} must be {}, but is {}",
                self.title(),
                range(schema, integer),
                node.describe()
            );
            return self.mistake(node.span, message, None);
        }
        json
    }

    fn unknown_key(&mut self, entry: &Entry, known: &[&str], schema: &'s Value) {
        if self.mistakes.len() >= MISTAKES_MAX {
            return;
        }
        let mut message = format!("unknown key {}", quoted(&entry.key));
        if !self.path.is_empty() {
            message += &format!(" in {}", self.title());
        }
        let hint = match known {
            _ if self.path.is_empty() && elsewhere(&entry.key).is_some() => elsewhere(&entry.key),
            [] => Some(format!("{} has no options", self.title())),
            _ => self
                .home(&entry.key, schema)
                .or_else(|| suggest::hint(&entry.key, known, "known keys")),
        };
        let mut mistake = Mistake::new(entry.key_span, message, hint);
        mistake.concerns = suggest::nearest(&entry.key, known).map(str::to_owned);
        self.mistakes.push(mistake);
    }

    /// Where a key that is known elsewhere belongs: one level down, or in another section.
    fn home(&self, key: &str, schema: &'s Value) -> Option<String> {
        let has = |options: &'s Value| self.resolve(options)["properties"].get(key).is_some();
        let places = |schema: &'s Value| schema["properties"].as_object().into_iter().flatten();
        for (name, property) in places(schema).chain(places(self.root)) {
            if has(property) {
                return Some(format!("`{key}` belongs in `{name}`"));
            }
            let cases = self.resolve(property)["oneOf"].as_array().into_iter().flatten();
            let options = cases.flat_map(|c| c["properties"].as_object().into_iter().flatten());
            if let Some((case, _)) = options.into_iter().find(|(_, o)| has(o)) {
                return Some(format!("write `{name}: {{{case}: {{{key}: …}}}}`"));
            }
        }
        None
    }

    fn missing_key(&mut self, name: &str, property: &'s Value, at: Span) {
        let place = if self.path.is_empty() { "the recipe".into() } else { self.title() };
        let meaning = property["description"].as_str().unwrap_or("required");
        let hint = format!("add `{name}: …`: {}", meaning.trim_end_matches('.'));
        self.mistake::<()>(at, format!("missing key `{name}` in {place}"), Some(hint));
    }

    pub fn wrong_type<T>(&mut self, node: &Node, schema: &'s Value, key: Span) -> Option<T> {
        let wanted = self.wanted(schema);
        self.unwanted(node, &wanted, kind_of(schema).0, key)
    }

    /// Says what was found and what is wanted.
    pub fn unwanted<T>(&mut self, node: &Node, wanted: &str, kind: &str, key: Span) -> Option<T> {
        let span = if node.kind == Kind::Null { key } else { node.place() };
        let message = format!("{} must be {wanted}, but is {}", self.title(), node.describe());
        self.mistake(span, message, type_hint(node, kind))
    }

    /// A schema in words, as in "must be …".
    pub fn wanted(&self, schema: &'s Value) -> String {
        let schema = self.resolve(schema);
        match kind_of(schema).0 {
            "integer" => "a whole number".into(),
            "number" => "a number".into(),
            "string" => "text".into(),
            "boolean" => "`true` or `false`".into(),
            "array" => match schema["maxItems"].as_u64() {
                Some(n) => {
                    let item = self.wanted(&schema["items"]);
                    format!("a list of {n} {}s", item.trim_start_matches("a "))
                }
                None => "a list".into(),
            },
            _ => "a mapping".into(),
        }
    }

    pub fn title(&self) -> String {
        title(&self.path)
    }

    pub fn path(&mut self) -> &mut Vec<String> {
        &mut self.path
    }

    pub fn mistake<T>(&mut self, span: Span, message: String, hint: Option<String>) -> Option<T> {
        let mut mistake = Mistake::new(span, message, hint);
        mistake.concerns = self.path.last().cloned();
        self.mistakes.push(mistake);
        None
    }
}

/// Which command takes recipes with this section, where it is not this one.
fn elsewhere(section: &str) -> Option<String> {
    match section {
        "script" => Some("recipes with a `script` are for `planaria run`".into()),
        "model" | "data" | "train" => {
            Some("a recipe has a `script` to run, or a `model` for `planaria train`".into())
        }
        _ => None,
    }
}

/// The type a schema names, and whether it may be left empty.
pub(crate) fn kind_of(schema: &Value) -> (&str, bool) {
    match &schema["type"] {
        Value::Array(types) => {
            let kind = types.iter().find_map(|t| t.as_str().filter(|t| *t != "null"));
            (kind.unwrap_or("null"), types.iter().any(|t| t == "null"))
        }
        kind => (kind.as_str().unwrap_or("object"), false),
    }
}

pub(crate) fn strings(list: &Value) -> Vec<&str> {
    list.as_array().map(|l| l.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// Whether later layers' shapes cannot be trusted after a mistake.
fn changes_shape(mistake: &Mistake) -> bool {
    !matches!(
        mistake.concerns.as_deref(),
        None | Some(
            "activation"
                | "use_bias"
                | "kernel_initializer"
                | "bias_initializer"
                | "momentum"
                | "epsilon"
                | "rate"
                | "scale"
        )
    )
}

fn range(schema: &Value, integer: bool) -> String {
    let noun = if integer { "a whole number" } else { "a number" };
    let text = |v: &Value| match v.as_f64() {
        Some(x) if x.fract() == 0.0 && x.abs() < 1e15 => format!("{x}"),
        _ => v.to_string(),
    };
    match (&schema["minimum"], &schema["maximum"]) {
        (Value::Null, Value::Null) => format!("{noun} of at most 64 bits"),
        (low, Value::Null) if integer => {
            format!("{noun} from {} to {}", text(low), u64::MAX)
        }
        (low, Value::Null) => format!("{noun} of at least {}", text(low)),
        (Value::Null, high) => format!("{noun} of at most {}", text(high)),
        (low, high) => format!("{noun} from {} to {}", text(low), text(high)),
    }
}

fn type_hint(node: &Node, kind: &str) -> Option<String> {
    match (&node.kind, kind) {
        (Kind::Str(s), "boolean") => match s.to_lowercase().as_str() {
            "yes" | "on" | "y" | "1" | "true" => Some("write `true`".into()),
            "no" | "off" | "n" | "0" | "false" => Some("write `false`".into()),
            _ => None,
        },
        (Kind::Int(0), "boolean") => Some("write `false`".into()),
        (Kind::Int(1), "boolean") => Some("write `true`".into()),
        (Kind::Int(_) | Kind::Float(_) | Kind::Bool(_), "string") => {
            Some("put it in quotes to make it text".into())
        }
        (Kind::Float(x), "integer") if x.fract() == 0.0 && x.abs() < 1e15 => {
            Some(format!("write `{x}`"))
        }
        (Kind::Str(s), "integer" | "number") => {
            let digits = s.replace('_', "");
            let number = !digits.is_empty() && digits.parse::<f64>().is_ok_and(f64::is_finite);
            number.then(|| format!("write `{digits}`, without quotes or underscores"))
        }
        (Kind::Null, "object") => Some("indent its keys below it, or leave it out".into()),
        (Kind::Map(_), "array") => Some("start each item with `- `".into()),
        (Kind::Seq(_) | Kind::Map(_) | Kind::Null, _) => None,
        (_, "array") => Some("put it in brackets: `[…]`".into()),
        _ => None,
    }
}
