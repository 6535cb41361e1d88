//! The schema of `pool`'s providers, from the types of their settings, for the test that keeps
//! `types/` up to date.

use crate::pool::providers::{Provider, TAG};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

impl Provider {
    /// For each provider the keys of `pool` that it has.
    pub(crate) fn keys() -> Vec<(&'static str, Vec<String>)> {
        let keys = |schema: &Schema| match schema.get("properties") {
            Some(Value::Object(properties)) => properties.keys().cloned().collect(),
            _ => Vec::new(),
        };
        let schemas = Self::schemas(&mut SchemaGenerator::default()).into_iter();
        schemas.map(|(name, _, schema)| (name, keys(&schema))).collect()
    }
}

/// The name, and beside it the keys of all providers: rules say which belong to which.
impl JsonSchema for Provider {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Provider".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let schemas = Self::schemas(generator);
        let case = |(name, meaning, _): &(&str, &str, Schema)| json!({ "type": "string", "const": name, "description": meaning });
        let mut properties = Map::new();
        let provider = json!({
            "description": "Where machines come from.",
            "oneOf": schemas.iter().map(case).collect::<Vec<_>>(),
            "default": Self::default().name(),
        });
        properties.insert(TAG.to_owned(), provider);
        for (_, _, schema) in schemas {
            if let Some(Value::Object(own)) = schema.get("properties") {
                own.iter().for_each(|(key, schema)| add_key(&mut properties, key, schema));
            }
        }
        let mut schema = Schema::default();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), Value::Object(properties));
        schema
    }
}

/// Adds a provider's key. One that another has too takes what either does, and says what it is for
/// each.
fn add_key(properties: &mut Map<String, Value>, key: &str, schema: &Value) {
    let plain = |schema: &Value| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|map| map.remove("description"));
        (schema, description.and_then(|text| text.as_str().map(str::to_owned)))
    };
    let Some(before) = properties.get_mut(key) else {
        properties.insert(key.to_owned(), schema.clone());
        return;
    };
    let ((old, old_text), (new, new_text)) = (plain(before), plain(schema));
    let mut texts: Vec<String> = old_text.into_iter().chain(new_text).collect();
    texts.dedup();
    let cases = |schema: &Value| match schema["anyOf"].as_array() {
        Some(cases) => cases.clone(),
        None => vec![schema.clone()],
    };
    if old == new {
        *before = old;
    } else {
        let (mut all, more) = (cases(&old), cases(&new));
        let unheard: Vec<Value> = more.into_iter().filter(|case| !all.contains(case)).collect();
        all.extend(unheard);
        *before = json!({ "anyOf": all });
    }
    if !texts.is_empty() {
        before["description"] = json!(texts.join(" "));
    }
}

#[test]
fn equal_keys_take_what_either_provider_does() {
    let mut properties = Map::new();
    let mut add = |schema: Value| {
        add_key(&mut properties, "image", &schema);
        properties["image"].clone()
    };
    let text = json!({ "type": ["string", "null"], "description": "Of a." });
    assert_eq!(add(text.clone()), text);
    assert_eq!(add(text.clone()), text);
    let both = json!({ "type": ["string", "null"], "description": "Of a. Of b." });
    assert_eq!(add(json!({ "type": ["string", "null"], "description": "Of b." })), both);
    let cases = json!([{ "type": ["string", "null"] }, { "type": "integer" }]);
    let any = json!({ "anyOf": cases, "description": "Of a. Of b. Of c." });
    let number = json!({ "type": "integer", "description": "Of c." });
    assert_eq!(add(number), any);
}
