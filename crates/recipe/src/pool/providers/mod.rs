//! Where machines come from: one file for each provider, with its settings and their rules.
//!
//! Owns the list of providers. What only one of them knows (its keys of `pool`, how many machines
//! it has by itself, what `plan` says of it) is in its file. Never reaches a machine; that is the
//! crate `fleet`.
//!
//! # Layout
//! - [`local`]: this machine; [`ssh`]: hosts that are there already; [`docker`]: containers

pub mod docker;
pub mod local;
pub mod ssh;

use crate::diagnostic::Finding;
use crate::node::{Kind, Node};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The key that names the provider.
const TAG: &str = "provider";

/// What one provider knows of its own settings. They are also keys of `pool`, by serde and schemars.
pub(crate) trait Settings {
    /// As recipes write it.
    const NAME: &'static str;
    /// What its machines are, for editors.
    const MEANING: &'static str;

    /// Machines to have where `machines` says so many or nothing.
    fn machine_count(&self, asked: Option<usize>, workers: usize) -> usize;

    /// Whether processes live on machines of its own, rather than beside the command.
    fn has_machines(&self, asked: Option<usize>) -> bool {
        let _ = asked;
        true
    }

    /// Most machines that there can be; nothing where they are made as they are asked for.
    fn machines_max(&self) -> Option<usize> {
        None
    }

    /// Whether its machines are this one.
    fn is_here(&self) -> bool {
        false
    }

    /// Machines that are known before they are had, in order; spare ones last.
    fn named(&self) -> Vec<Named> {
        Vec::new()
    }

    /// What so many of its machines are, as `plan` says it: `3 containers of IMAGE`.
    fn describe(&self, count: usize) -> String;

    /// Finds what is wrong with the settings.
    fn check(&self, at: &mut Place<'_>);
}

/// A machine that is known before it is had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub name: String,
    /// Groups, besides `all`.
    pub groups: Vec<String>,
}

/// Where settings were written, and where mistakes in them go.
pub(crate) struct Place<'a> {
    /// `pool`, or `pool.more.0`.
    pub path: String,
    pub node: Option<&'a Node>,
    /// Machines that were asked for.
    pub machines: Option<usize>,
    /// Whether no other provider has machines for the pool.
    pub is_only: bool,
    pub found: &'a mut Vec<Finding>,
}

impl<'a> Place<'a> {
    /// What was written at a key.
    pub fn written(&self, key: &str) -> Option<&'a Node> {
        self.node.and_then(|node| node.get(key)).filter(|node| node.kind != Kind::Null)
    }

    /// The whole path of a key.
    pub fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    /// A mistake.
    pub fn add(&mut self, key: &str, message: impl Into<String>, hint: impl Into<String>) {
        let key = self.key(key);
        self.found.push(Finding::new(key, message).hint(hint));
    }

    /// A text that cannot be what it is for, where a reason is given.
    pub fn refuse(&mut self, key: &str, why: Option<String>) {
        let key = self.key(key);
        self.found.extend(why.map(|why| Finding::new(&key, format!("`{key}` {why}"))));
    }
}

/// Makes [`Provider`] and all that asks each of them.
macro_rules! providers {
    ($($variant:ident => $module:ident),* $(,)?) => {
        /// Where machines come from, with the settings that belong to it alone.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(tag = "provider", rename_all = "lowercase")]
        pub enum Provider {
            $($variant($module::Settings)),*
        }

        impl Provider {
            /// Every provider, with its settings as they are when nothing is said.
            pub fn all() -> Vec<Self> {
                vec![$(Self::$variant($module::Settings::default())),*]
            }

            /// As recipes write it.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => <$module::Settings as Settings>::NAME),*
                }
            }

            fn of(name: &str, keys: Value) -> Option<serde_json::Result<Self>> {
                match name {
                    $(<$module::Settings as Settings>::NAME => {
                        Some(serde_json::from_value(keys).map(Self::$variant))
                    })*
                    _ => None,
                }
            }

            /// For each provider its name, what it means, and the schema of its own keys.
            fn schemas(generator: &mut SchemaGenerator) -> Vec<(&'static str, &'static str, Schema)> {
                vec![$((
                    <$module::Settings as Settings>::NAME,
                    <$module::Settings as Settings>::MEANING,
                    $module::Settings::json_schema(generator),
                )),*]
            }
        }

        /// Asks the provider's own settings.
        macro_rules! ask {
            ($provider:expr, $settings:ident => $answer:expr) => {
                match $provider { $(Provider::$variant($settings) => $answer),* }
            };
        }
    };
}

providers! {
    Local => local,
    Ssh => ssh,
    Docker => docker,
}

impl Provider {
    /// Machines to have where `machines` says so many or nothing.
    pub fn machine_count(&self, asked: Option<usize>, workers: usize) -> usize {
        ask!(self, settings => settings.machine_count(asked, workers))
    }

    /// Whether processes live on machines of its own, rather than beside the command.
    pub fn has_machines(&self, asked: Option<usize>) -> bool {
        ask!(self, settings => settings.has_machines(asked))
    }

    /// Most machines that there can be; nothing where they are made as they are asked for.
    pub fn machines_max(&self) -> Option<usize> {
        ask!(self, settings => settings.machines_max())
    }

    /// Whether its machines are this one.
    pub fn is_here(&self) -> bool {
        ask!(self, settings => settings.is_here())
    }

    /// Machines that are known before they are had, in order; spare ones last.
    pub fn named(&self) -> Vec<Named> {
        ask!(self, settings => settings.named())
    }

    /// What so many of its machines are, as `plan` says it.
    pub fn describe(&self, count: usize) -> String {
        ask!(self, settings => settings.describe(count))
    }

    pub(crate) fn check(&self, at: &mut Place<'_>) {
        ask!(self, settings => settings.check(at));
    }

    /// By provider, the keys of `pool` that belong to it alone.
    pub(crate) fn own_keys() -> Vec<(&'static str, Vec<String>)> {
        let keys = |schema: &Schema| match schema.get("properties") {
            Some(Value::Object(properties)) => properties.keys().cloned().collect(),
            _ => Vec::new(),
        };
        let schemas = Self::schemas(&mut SchemaGenerator::default()).into_iter();
        schemas.map(|(name, _, schema)| (name, keys(&schema))).collect()
    }

    /// Whether a recipe may write this.
    pub(crate) fn is_name(text: &str) -> bool {
        Self::all().iter().any(|provider| provider.name() == text)
    }
}

impl Default for Provider {
    fn default() -> Self {
        Self::Local(local::Settings::default())
    }
}

impl<'de> Deserialize<'de> for Provider {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let mut keys = Map::deserialize(deserializer)?;
        let name = match keys.remove(TAG) {
            None => Self::default().name().to_owned(),
            Some(Value::String(name)) => name,
            Some(other) => return Err(D::Error::custom(format!("{other} is no provider"))),
        };
        let read = Self::of(&name, Value::Object(keys));
        read.ok_or_else(|| D::Error::custom(format!("unknown provider `{name}`")))?
            .map_err(D::Error::custom)
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
                properties.extend(own.clone());
            }
        }
        let mut schema = Schema::default();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), Value::Object(properties));
        schema
    }
}
