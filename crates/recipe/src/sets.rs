//! `--set key=value`: overrides written into the tree before it is checked.
//!
//! Owns the syntax of the argument. The value is YAML (`3`, `[0.5, 0.5]`, `{sgd: {momentum: 0.9}}`)
//! and is checked exactly like the file.

use crate::diagnostic::{Mistake, Span, quoted};
use crate::node::{Entry, Kind, Node};
use crate::yaml::{self, DEPTH_MAX};

/// Most `--set` arguments.
const SETS_MAX: usize = 1000;

/// Applies the arguments in order and returns their mistakes.
pub(crate) fn apply(tree: &mut Node, sets: &[String]) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for (i, set) in sets.iter().enumerate() {
        let origin = Span { text: i + 1, line: 1, column: 1, length: set.chars().count().max(1) };
        if i >= SETS_MAX {
            mistakes.push(Mistake::new(origin, format!("more than {SETS_MAX} `--set`"), None));
            break;
        }
        if let Err(found) = apply_one(tree, set, origin) {
            mistakes.extend(found);
        }
    }
    mistakes
}

fn apply_one(tree: &mut Node, set: &str, origin: Span) -> Result<(), Vec<Mistake>> {
    let usage = "write `--set key=value`, such as `--set train.epochs=3`".to_owned();
    let refuse = |message: &str| vec![Mistake::new(origin, message, usage.clone())];
    if set.len() > yaml::FILE_BYTES_MAX {
        return Err(refuse("this `--set` is longer than a recipe may be"));
    }
    let (key, text) = set.split_once('=').ok_or_else(|| refuse("no `=` in this `--set`"))?;
    let segments = segments(key, origin);
    if segments.iter().any(|(name, _)| name.is_empty()) {
        return Err(refuse("an empty key in this `--set`"));
    }
    if segments.len() > DEPTH_MAX {
        return Err(refuse("this key is nested too deep"));
    }
    let start = Span { column: key.chars().count() + 2, length: 1, ..origin };
    let (value, mistakes) = yaml::parse(text, start);
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let value = value.unwrap_or(Node { span: start, kind: Kind::Null });
    put(tree, &segments, value).map_err(|m| vec![m])
}

/// The dotted key, each part with its place.
fn segments(key: &str, origin: Span) -> Vec<(String, Span)> {
    let mut column = 1;
    key.split('.')
        .map(|name| {
            let length = name.chars().count();
            let span = Span { column, length: length.max(1), ..origin };
            column += length + 1;
            (name.to_owned(), span)
        })
        .collect()
}

fn put(mut node: &mut Node, segments: &[(String, Span)], value: Node) -> Result<(), Mistake> {
    let Some(((last, last_span), parents)) = segments.split_last() else { return Ok(()) };
    for (name, span) in parents {
        node = child(node, name, *span)?;
    }
    let target = child(node, last, *last_span)?;
    *target = value;
    if let Kind::Map(entries) = &mut node.kind {
        // A mistake in this key is now the argument's, not the file's.
        entries.iter_mut().filter(|e| e.key == *last).for_each(|e| e.key_span = *last_span);
    }
    Ok(())
}

/// The named child, made when it is missing.
fn child<'n>(node: &'n mut Node, name: &str, span: Span) -> Result<&'n mut Node, Mistake> {
    open_up(node, name, span);
    let found = node.describe();
    match &mut node.kind {
        Kind::Map(entries) => {
            let at = entries.iter().position(|e| e.key == name).unwrap_or_else(|| {
                let value = Node { span, kind: Kind::Null };
                entries.push(Entry { key: name.to_owned(), key_span: span, value });
                entries.len() - 1
            });
            Ok(&mut entries[at].value)
        }
        Kind::Seq(items) => {
            let count = items.len();
            let refuse = || {
                let hint = format!("this list has {count} items, numbered from 0");
                Mistake::new(span, format!("no item {} in this list", quoted(name)), hint)
            };
            let at = name.parse::<usize>().ok().filter(|n| *n <= count).ok_or_else(refuse)?;
            if at == count {
                items.push(Node { span, kind: Kind::Null });
            }
            Ok(&mut items[at])
        }
        _ => {
            let message = format!("{} cannot be set: the value above it is {found}", quoted(name));
            Err(Mistake::new(span, message, None))
        }
    }
}

/// Makes room for keys: an empty value and the shorthand `sgd` both become mappings.
fn open_up(node: &mut Node, name: &str, span: Span) {
    match &node.kind {
        Kind::Null => node.kind = Kind::Map(Vec::new()),
        Kind::Str(text) if text == name => {
            let value = Node { span, kind: Kind::Map(Vec::new()) };
            let entry = Entry { key: text.clone(), key_span: node.span, value };
            node.kind = Kind::Map(vec![entry]);
        }
        _ => {}
    }
}
