//! The files in `types/`, made from the types of recipes, and the copy for editors in docs/.

mod providers;

use super::for_editors;
use crate::pool::Provider;
use crate::script::Job;
use crate::sections::Recipe;
use schemars::schema_for;
use serde_json::{Map, Value, json};
use std::path::Path;

#[test]
fn the_schemas_are_up_to_date() {
    let providers: Map<String, Value> =
        Provider::keys().into_iter().map(|(name, keys)| (name.to_owned(), json!(keys))).collect();
    let training = Value::from(schema_for!(Recipe));
    let scripts = Value::from(schema_for!(Job));
    // They become one list, in which a name means one thing.
    for (name, own) in training["$defs"].as_object().expect("definitions") {
        let other = &scripts["$defs"][name];
        assert!(other.is_null() || other == own, "`{name}` is two things: rename one of them");
    }
    is_or_becomes("src/schema/types/training.json", &training);
    is_or_becomes("src/schema/types/scripts.json", &scripts);
    is_or_becomes("src/schema/types/providers.json", &Value::Object(providers));
    is_or_becomes("../../docs/recipe.schema.json", &for_editors(&training, &scripts));
}

/// With UPDATE_SCHEMA it is written anew.
fn is_or_becomes(path: &str, made: &Value) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let made = format!("{made:#}\n");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&file, &made).expect("it is writable");
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    let how = "UPDATE_SCHEMA=1 cargo test -p planaria-recipe";
    assert!(committed == made, "{path} is old; run `{how}`");
}

#[test]
fn keys_of_other_providers_are_refused_where_editors_look() {
    let schema = super::schema();
    for def in ["Pool", "Supply"] {
        let cases = schema["$defs"][def]["allOf"].as_array().expect("a case for each provider");
        let keys = |name: &str| {
            let is_of = |case: &&Value| case["if"]["properties"]["provider"]["const"] == name;
            let case = cases.iter().find(is_of).expect("a case for the provider");
            let refused = case["then"]["properties"].as_object().expect("keys");
            let mut refused: Vec<String> = refused.keys().cloned().collect();
            refused.sort();
            (case["if"]["required"] == json!(["provider"]), refused)
        };
        assert_eq!(
            keys("local"),
            (false, ["docker", "hosts", "image", "ssh"].map(Into::into).into())
        );
        assert_eq!(keys("ssh"), (true, ["docker", "image"].map(Into::into).into()));
        assert_eq!(keys("docker"), (true, ["hosts", "ssh"].map(Into::into).into()));
    }
}
