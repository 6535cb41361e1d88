//! The recipe as a tree that knows where each piece was written.
//!
//! Owns the tree's types and finding a key in it. Never checks what the pieces mean.

use crate::diagnostic::{Span, quoted};

/// One value of the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub span: Span,
    pub kind: Kind,
}

/// What a value is, by YAML 1.2's core schema.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    Seq(Vec<Node>),
    Map(Vec<Entry>),
}

/// One key of a mapping and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub key: String,
    pub key_span: Span,
    pub value: Node,
}

impl Node {
    /// Value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|e| &e.value)
    }

    /// An item of a list.
    pub fn item(&self, number: usize) -> Option<&Node> {
        match &self.kind {
            Kind::Seq(items) => items.get(number),
            _ => None,
        }
    }

    /// Key and value.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find(|e| e.key == key),
            _ => None,
        }
    }

    /// Place to point at for this value: a collection's first key rather than all of it.
    pub fn place(&self) -> Span {
        match &self.kind {
            Kind::Map(entries) => entries.first().map_or(self.span, |e| e.key_span),
            _ => self.span,
        }
    }

    /// Place of a dotted path, or of the nearest part of it that was written.
    pub fn place_of(&self, path: &str) -> Span {
        let (mut node, mut span) = (self, self.place());
        for segment in path.split('.').filter(|s| !s.is_empty()) {
            let next = match &node.kind {
                Kind::Map(_) => node.entry(segment).map(|e| (&e.value, e.key_span)),
                Kind::Seq(items) => segment
                    .parse::<usize>()
                    .ok()
                    .and_then(|i| items.get(i))
                    .map(|item| (item, item.place())),
                _ => None,
            };
            let Some((value, key_span)) = next else { return span };
            span = match value.kind {
                Kind::Map(_) | Kind::Seq(_) | Kind::Null => key_span,
                _ => value.span,
            };
            node = value;
        }
        span
    }

    /// The value at a dotted path.
    pub fn find(&self, path: &str) -> Option<&Node> {
        path.split('.').try_fold(self, |node, segment| match &node.kind {
            Kind::Seq(items) => items.get(segment.parse::<usize>().ok()?),
            _ => node.get(segment),
        })
    }

    /// Place of the first value in here that came from a `--set`.
    pub fn overridden(&self) -> Option<Span> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find_map(|e| {
                e.value.overridden().or_else(|| (e.key_span.text > 0).then_some(e.key_span))
            }),
            Kind::Seq(items) => items.iter().find_map(Node::overridden),
            _ => (self.span.text > 0).then_some(self.span),
        }
    }

    /// The value in a message, as in "but is …".
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Null => "empty".into(),
            Kind::Bool(b) => format!("`{b}`"),
            Kind::Int(i) => format!("{i}"),
            Kind::Float(x) => format!("{x:?}"),
            Kind::Str(s) => format!("the text {}", quoted(s)),
            Kind::Seq(_) => "a list".into(),
            Kind::Map(_) => "a mapping".into(),
        }
    }

    /// Levels of nesting, this one included.
    pub fn depth(&self) -> usize {
        1 + match &self.kind {
            Kind::Seq(items) => items.iter().map(Node::depth).max().unwrap_or(0),
            Kind::Map(entries) => entries.iter().map(|e| e.value.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }
}

/// A path in words: `train.epochs`, or layer 3 `Conv2D`, host 2 `port`, counted from 1.
pub(crate) fn title(path: &[String]) -> String {
    if path.is_empty() {
        return "the recipe".into();
    }
    let is_layer = path.len() >= 3 && path[0] == "model" && path[1] == "layers";
    let index = |i: usize| path.get(i).and_then(|s| s.parse::<usize>().ok());
    if !is_layer || index(2).is_none() {
        return listed(path).unwrap_or_else(|| format!("`{}`", path.join(".")));
    }
    let (mut parts, mut label, mut at) = (Vec::new(), "layer".to_owned(), 2);
    while let Some(n) = index(at) {
        parts.push(match path.get(at + 1) {
            Some(name) => format!("{label} {} `{name}`", n + 1),
            None => format!("{label} {}", n + 1),
        });
        at += 2;
        match path.get(at).map(String::as_str) {
            Some(list @ ("layers" | "shortcut")) if index(at + 1).is_some() => {
                label = list.to_owned();
                at += 1;
            }
            Some("branches") if index(at + 2).is_some() => {
                label = format!("branch {} layer", index(at + 1).unwrap_or(0) + 1);
                at += 2;
            }
            _ => break,
        }
    }
    if at < path.len() {
        parts.push(format!("`{}`", path[at..].join(".")));
    }
    parts.join(" › ")
}

/// A path into a list whose items have a word of their own.
fn listed(path: &[String]) -> Option<String> {
    let (word, number, rest) = match path {
        [setup, number, rest @ ..] if setup == "setup" => ("step", number, rest),
        [pool, hosts, number, rest @ ..] if pool == "pool" && hosts == "hosts" => {
            ("host", number, rest)
        }
        [pool, more, _, hosts, number, rest @ ..]
            if pool == "pool" && more == "more" && hosts == "hosts" =>
        {
            ("host", number, rest)
        }
        _ => return None,
    };
    let number = number.parse::<usize>().ok()? + 1;
    Some(match rest {
        [] => format!("{word} {number}"),
        // Keys may be the user's own here, however long.
        rest => format!("{word} {number} {}", quoted(&rest.join("."))),
    })
}
