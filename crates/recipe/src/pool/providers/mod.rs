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
use crate::schema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The key that names the provider.
pub(crate) const TAG: &str = "provider";

/// What one provider knows of its own settings. They are also keys of `pool`, by serde.
pub(crate) trait Settings {
    /// As recipes write it.
    const NAME: &'static str;
    /// What its machines are, for editors.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the schema, which a test makes"))]
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

    /// What of its machines has no shell, without which no step of the set-up can be done.
    fn no_shell(&self) -> Option<&'static str> {
        None
    }

    /// The memory that each of its machines may use, in bytes, and the key that says so.
    fn memory_limit(&self) -> Option<(u64, &'static str)> {
        None
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
        #[derive(Debug, Clone, PartialEq)]
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

            fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let provider = self.name();
                match self {
                    $(Self::$variant(keys) => Written { provider, keys }.serialize(serializer)),*
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
            #[cfg(test)]
            pub(crate) fn schemas(
                generator: &mut schemars::SchemaGenerator,
            ) -> Vec<(&'static str, &'static str, schemars::Schema)> {
                use schemars::JsonSchema;
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

    /// What of its machines has no shell, without which no step of the set-up can be done.
    pub(crate) fn no_shell(&self) -> Option<&'static str> {
        ask!(self, settings => settings.no_shell())
    }

    /// The memory that each of its machines may use, in bytes, and the key that says so.
    pub(crate) fn memory_limit(&self) -> Option<(u64, &'static str)> {
        ask!(self, settings => settings.memory_limit())
    }

    /// What so many of its machines are, as `plan` says it.
    pub fn describe(&self, count: usize) -> String {
        ask!(self, settings => settings.describe(count))
    }

    pub(crate) fn check(&self, at: &mut Place<'_>) {
        ask!(self, settings => settings.check(at));
    }

    /// Keys of `pool` that are for other providers and not for this one, each with those they are
    /// for.
    pub(crate) fn keys_of_others(&self) -> Vec<(String, Vec<String>)> {
        keys_of_others(self.name(), schema::keys_of_providers())
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

/// A provider as recipes write it: its name, and its keys beside it.
#[derive(Serialize)]
struct Written<'a, T> {
    provider: &'static str,
    #[serde(flatten)]
    keys: &'a T,
}

impl Serialize for Provider {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.write(serializer)
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

fn keys_of_others(name: &str, all: Vec<(String, Vec<String>)>) -> Vec<(String, Vec<String>)> {
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (owner, keys) in all {
        keys.into_iter().for_each(|key| owners.entry(key).or_default().push(owner.clone()));
    }
    owners.retain(|_, owners| !owners.iter().any(|owner| owner == name));
    owners.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn providers_are_written_as_they_are_read() {
        for provider in Provider::all() {
            let written = serde_json::to_value(&provider).unwrap();
            assert_eq!(written[TAG], provider.name());
            assert_eq!(serde_json::from_value::<Provider>(written).unwrap(), provider);
        }
        // The name need not be that of the type.
        let keys = local::Settings::default();
        let written = serde_json::to_value(Written { provider: "two-words", keys: &keys }).unwrap();
        assert_eq!(written, json!({ "provider": "two-words" }));
    }

    #[test]
    fn keys_may_have_several_providers() {
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let all = || {
            let all = [("a", keys(&["image", "x"])), ("b", keys(&["image"])), ("c", vec![])];
            all.map(|(owner, keys)| (owner.to_owned(), keys)).to_vec()
        };
        assert_eq!(keys_of_others("a", all()), []);
        assert_eq!(keys_of_others("b", all()), [("x".to_owned(), keys(&["a"]))]);
        let both = [("image".to_owned(), keys(&["a", "b"])), ("x".to_owned(), keys(&["a"]))];
        assert_eq!(keys_of_others("c", all()), both);
    }
}
