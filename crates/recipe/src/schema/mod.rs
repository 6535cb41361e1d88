//! The JSON Schema of recipes, as the types give it.
//!
//! Owns what editors are told on top of the types: shorthands, readable defaults, and which keys of
//! `pool` go with which provider (the checker's rules know that by themselves). The files in
//! `types/` are made from the types by `tests`, which also finds them out of date: a program
//! that reads them is built sooner than one that makes them.

use crate::check::kind_of;
use crate::choice::{Choices, all_defaults};
use serde_json::{Map, Value, json};
use std::sync::OnceLock;

/// What a test has made of the types, read when it is first asked for.
struct Made {
    text: &'static str,
    value: OnceLock<Value>,
}

static TRAINING: Made = Made::new(include_str!("types/training.json"));
static SCRIPTS: Made = Made::new(include_str!("types/scripts.json"));
static PROVIDERS: Made = Made::new(include_str!("types/providers.json"));

impl Made {
    const fn new(text: &'static str) -> Self {
        Self { text, value: OnceLock::new() }
    }

    fn value(&self) -> &Value {
        self.value.get_or_init(|| self.text.parse().expect("a test has made it"))
    }
}

/// The schema that editors complete recipes from; docs/recipe.schema.json is a copy.
pub fn schema() -> Value {
    for_editors(of_training(), of_scripts())
}

fn for_editors(training: &Value, scripts: &Value) -> Value {
    let draft = training["$schema"].clone();
    let (mut training, mut job) = (readable(training.clone()), readable(scripts.clone()));
    let mut defs = Map::new();
    for schema in [&mut training, &mut job] {
        schema.as_object_mut().map(|map| map.remove("$schema"));
        if let Some(Value::Object(own)) = schema.as_object_mut().and_then(|map| map.remove("$defs"))
        {
            defs.extend(own);
        }
    }
    let words = "What to learn, from what, and how; read by `planaria train`.";
    training["description"] = json!(words);
    job["description"] = json!("A script to run on machines; read by `planaria run`.");
    json!({
        "$schema": draft,
        "title": "Planaria recipe",
        "description": "A network to train, or a script to run.",
        "type": "object",
        "if": { "required": ["script"] },
        "then": job,
        "else": training,
        "$defs": defs,
    })
}

fn readable(mut schema: Value) -> Value {
    let plain = schema.clone();
    if let Some(defs) = schema["$defs"].as_object_mut() {
        defs.values_mut().for_each(|def| add_shorthand(def, &plain));
        defs.values_mut().for_each(add_providers);
    }
    shorten_defaults(&mut schema, false);
    schema
}

/// The schema of training recipes as the types give it; what the checker walks.
pub(crate) fn of_training() -> &'static Value {
    TRAINING.value()
}

/// The same of scripts' recipes.
pub(crate) fn of_scripts() -> &'static Value {
    SCRIPTS.value()
}

/// For each provider the keys of `pool` that it has.
pub(crate) fn keys_of_providers() -> Vec<(String, Vec<String>)> {
    let Value::Object(providers) = PROVIDERS.value() else { return Vec::new() };
    let keys = |keys: &Value| keys.as_array().into_iter().flatten().filter_map(text).collect();
    providers.iter().map(|(name, own)| (name.clone(), keys(own))).collect()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Keys of `pool` that belong to other providers than the one it names must be empty.
fn add_providers(def: &mut Value) {
    let provider = def["properties"]["provider"].clone();
    if !provider.is_object() {
        return;
    }
    let all = keys_of_providers();
    let case = |(name, own): &(String, Vec<String>)| {
        let others = all.iter().flat_map(|(_, keys)| keys).filter(|key| !own.contains(key));
        let empty: Map<String, Value> =
            others.map(|key| (key.clone(), json!({ "type": "null" }))).collect();
        let mut is_named = json!({ "properties": { "provider": { "const": name } } });
        // The default is meant where none is named.
        if provider["default"] != *name {
            is_named["required"] = json!(["provider"]);
        }
        json!({ "if": is_named, "then": { "properties": empty } })
    };
    def["allOf"] = all.iter().map(case).collect();
}

/// A name alone, or a name without a value, stands for every default.
fn add_shorthand(def: &mut Value, root: &Value) {
    let Some(cases) = def["oneOf"].as_array().cloned() else { return };
    let Some(choices) = Choices::of(&cases.iter().collect::<Vec<_>>()) else { return };
    let optional = |options: &Value| {
        let name = options["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/"));
        all_defaults(name.map_or(options, |n| &root["$defs"][n]))
    };
    let names: Vec<&str> =
        choices.tagged.iter().filter(|(_, o)| optional(o)).map(|(n, _)| *n).collect();
    let Some(list) = def["oneOf"].as_array_mut().filter(|_| !names.is_empty()) else { return };
    for case in list.iter_mut().filter(|c| kind_of(c).0 == "object") {
        let Some(properties) = case["properties"].as_object_mut() else { continue };
        let optional = properties.iter_mut().filter(|(name, _)| names.contains(&name.as_str()));
        for (_, options) in optional {
            *options = json!({ "anyOf": [options.clone(), { "type": "null" }] });
        }
    }
    list.push(json!({
        "description": "The name alone takes every default.",
        "type": "string",
        "enum": names,
    }));
}

/// Writes single-precision defaults the short way: 0.1, not 0.10000000149011612.
fn shorten_defaults(value: &mut Value, in_default: bool) {
    match value {
        Value::Number(n) if in_default && n.is_f64() => {
            let wide = n.as_f64().unwrap_or(0.0);
            let single = wide as f32;
            if f64::from(single) == wide {
                let short = single.to_string().parse().unwrap_or(wide);
                *value = json!(short);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|v| shorten_defaults(v, in_default)),
        Value::Object(map) => {
            map.iter_mut().for_each(|(k, v)| shorten_defaults(v, in_default || k == "default"));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
