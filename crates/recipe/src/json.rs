//! Parts of a recipe as JSON, for what other crates write down or hash.
//!
//! Compiled here, once and unoptimised: derived code for these types is large, and each crate that
//! called `serde_json` on them would compile it again (a fifth of `learn`).

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
use serde_json::Value;

/// A part of a recipe that can be written as JSON.
pub trait Json: Sized {
    fn to_json(&self) -> String;

    fn from_json(text: &str) -> Result<Self, String>;
}

/// Says beside a type that it is such a part.
macro_rules! json {
    ($($part:ty),*) => {$(
        impl $crate::json::Json for $part {
            fn to_json(&self) -> String {
                serde_json::to_string(self).expect("a recipe has string keys only")
            }

            fn from_json(text: &str) -> Result<Self, String> {
                serde_json::from_str(text).map_err(|e| e.to_string())
            }
        }
    )*};
}

pub(crate) use json;

/// For `#[serde(with = "planaria_recipe::json")]` in types that hold a part of a recipe.
pub fn serialize<P: Json, S: Serializer>(part: &P, serializer: S) -> Result<S::Ok, S::Error> {
    // Through text, because single-precision numbers are shortest there.
    let value: Value = serde_json::from_str(&part.to_json()).expect("it was just written");
    value.serialize(serializer)
}

/// See [`serialize`].
pub fn deserialize<'de, P: Json, D: Deserializer<'de>>(deserializer: D) -> Result<P, D::Error> {
    let value = Value::deserialize(deserializer)?;
    P::from_json(&value.to_string()).map_err(D::Error::custom)
}
