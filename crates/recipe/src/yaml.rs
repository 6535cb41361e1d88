//! YAML text to a tree of positioned nodes.
//!
//! Owns the bounds on what a file may ask for (nodes, depth, expanded aliases) and what plain
//! scalars mean. Never knows a recipe's keys.

use crate::diagnostic::{Mistake, Span, lines_of, quoted};
use crate::node::{Entry, Kind, Node};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, StrInput, Tag};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Largest recipe file.
pub(crate) const FILE_BYTES_MAX: usize = 1 << 20;
/// Most values in one recipe, expanded aliases included.
pub(crate) const NODES_MAX: usize = 100_000;
/// Deepest nesting.
pub(crate) const DEPTH_MAX: usize = 64;
/// Duplicate keys are collected up to this many.
const DUPLICATES_MAX: usize = 200;

/// Parses one document. `origin` is where its first character stands.
/// Mistakes that leave a usable tree (duplicate keys) come with it.
pub(crate) fn parse(text: &str, origin: Span) -> (Option<Node>, Vec<Mistake>) {
    let mut builder = Builder::new(origin);
    let outcome = builder.run(text);
    let mut mistakes = builder.mistakes;
    match outcome {
        Ok(()) => (builder.root, mistakes),
        Err(mut mistake) => {
            mistake.span = within(text, origin, mistake.span);
            let tabs = tab_lines(text, origin, mistake.span.line);
            if tabs.is_empty() {
                mistakes.push(mistake)
            } else {
                mistakes.extend(tabs)
            }
            (None, mistakes)
        }
    }
}

/// The end of the last line instead of a place after it, where there is nothing to see.
fn within(text: &str, origin: Span, span: Span) -> Span {
    let lines = lines_of(text.trim_end());
    match lines.last() {
        Some(last) if span.line.saturating_sub(origin.line) >= lines.len() => {
            let shift = if lines.len() == 1 { origin.column - 1 } else { 0 };
            let column = last.chars().count() + 1 + shift;
            Span { line: origin.line + lines.len() - 1, column, ..span }
        }
        _ => span,
    }
}

/// What a plain scalar means in YAML 1.2's core schema.
pub(crate) fn resolve(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "true" | "True" | "TRUE" => return Kind::Bool(true),
        "false" | "False" | "FALSE" => return Kind::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Kind::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Kind::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Kind::Float(f64::NAN),
        _ => {}
    }
    number(text).unwrap_or_else(|| Kind::Str(text.to_owned()))
}

fn number(text: &str) -> Option<Kind> {
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            let sound = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
            let value = i128::from_str_radix(digits, radix).ok().filter(|_| sound);
            return value.map(Kind::Int);
        }
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let first = digits.as_bytes().first()?;
    if !(first.is_ascii_digit() || *first == b'.') || digits == "." {
        return None;
    }
    if digits.bytes().all(|b| b.is_ascii_digit())
        && let Ok(value) = text.parse::<i128>()
    {
        return Some(Kind::Int(value));
    }
    // What is left of Rust's grammar here (digits, point, exponent) is YAML's.
    let sound = digits.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
    text.parse::<f64>().ok().filter(|_| sound).map(Kind::Float)
}

/// A collection that is being filled.
struct Open {
    span: Span,
    anchor: usize,
    map: Option<Filling>,
    items: Vec<Node>,
    nodes_before: usize,
}

/// A mapping that is being filled.
#[derive(Default)]
struct Filling {
    entries: Vec<Entry>,
    seen: BTreeMap<String, Span>,
    waiting: Option<Waiting>,
}

/// A key that waits for its value.
struct Waiting {
    key: String,
    span: Span,
    duplicate: bool,
}

struct Anchored {
    node: Node,
    nodes: usize,
    depth: usize,
}

struct Builder {
    origin: Span,
    root: Option<Node>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Anchored>,
    nodes: usize,
    mistakes: Vec<Mistake>,
}

type Step = Result<(), Mistake>;

impl Builder {
    fn new(origin: Span) -> Self {
        Self {
            origin,
            root: None,
            open: Vec::new(),
            anchors: BTreeMap::new(),
            nodes: 0,
            mistakes: Vec::new(),
        }
    }

    fn run(&mut self, text: &str) -> Step {
        let mut parser = Parser::new(StrInput::new(text));
        let mut documents = 0;
        loop {
            let (event, span) = match parser.next_event() {
                None => return Ok(()),
                Some(Err(error)) => return Err(self.scan_mistake(&error)),
                Some(Ok(event)) => event,
            };
            let span = self.span(span);
            match event {
                Event::StreamEnd => return Ok(()),
                Event::DocumentStart(_) => {
                    documents += 1;
                    if documents > 1 {
                        return Err(Mistake::new(
                            span,
                            "a second document starts here, but a recipe is one document",
                            "remove the `---` and what follows, or make it a file of its own"
                                .to_owned(),
                        ));
                    }
                }
                event => self.take(event, span)?,
            }
        }
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Step {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                refuse_tag(tag, span)?;
                self.spend(1, span)?;
                if self.wants_key() {
                    return self.key(text.into_owned(), span, style);
                }
                let kind = match style {
                    ScalarStyle::Plain => resolve(&text),
                    _ => Kind::Str(text.into_owned()),
                };
                self.finish(Node { span, kind }, anchor, 1)
            }
            Event::SequenceStart(anchor, tag) => self.begin(anchor, tag, span, false),
            Event::MappingStart(anchor, tag) => self.begin(anchor, tag, span, true),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => self.alias(id, span),
            _ => Ok(()),
        }
    }

    /// Whether the innermost collection is a mapping that waits for a key.
    fn wants_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { map: Some(Filling { waiting: None, .. }), .. }))
    }

    fn key(&mut self, key: String, span: Span, style: ScalarStyle) -> Step {
        if key == "<<" && style == ScalarStyle::Plain {
            return Err(Mistake::new(
                span,
                "merge keys (`<<`) are not supported",
                "write the keys out, or use an alias for a whole value".to_owned(),
            ));
        }
        let Some(Open { map: Some(filling), .. }) = self.open.last_mut() else {
            return Ok(());
        };
        let first = filling.seen.get(&key).copied();
        filling.waiting = Some(Waiting { key: key.clone(), span, duplicate: first.is_some() });
        if let Some(first) = first {
            if self.mistakes.len() < DUPLICATES_MAX {
                self.mistakes.push(Mistake::new(
                    span,
                    format!("duplicate key {}", quoted(&key)),
                    format!(
                        "it is already set at line {}, column {}; keep one of them",
                        first.line, first.column
                    ),
                ));
            }
        } else {
            filling.seen.insert(key, span);
        }
        Ok(())
    }

    fn begin(&mut self, anchor: usize, tag: Option<Cow<'_, Tag>>, span: Span, map: bool) -> Step {
        refuse_tag(tag, span)?;
        if self.wants_key() {
            return Err(Mistake::new(
                span,
                "a key must be plain text, not a list or a mapping",
                "braces and brackets that start a value need quotes".to_owned(),
            ));
        }
        self.spend(1, span)?;
        if self.open.len() >= DEPTH_MAX {
            return Err(too_deep(span));
        }
        self.open.push(Open {
            span,
            anchor,
            map: map.then(Filling::default),
            items: Vec::new(),
            nodes_before: self.nodes - 1,
        });
        Ok(())
    }

    fn end(&mut self) -> Step {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let kind = match open.map {
            Some(filling) => Kind::Map(filling.entries),
            None => Kind::Seq(open.items),
        };
        let nodes = self.nodes - open.nodes_before;
        self.finish(Node { span: open.span, kind }, open.anchor, nodes)
    }

    /// Puts a finished value where it belongs. Remembered anchors count as nodes too, so that
    /// nested anchors cannot multiply memory.
    fn finish(&mut self, node: Node, anchor: usize, nodes: usize) -> Step {
        if anchor > 0 {
            self.spend(nodes, node.span)?;
            let depth = node.depth();
            self.anchors.insert(anchor, Anchored { node: node.clone(), nodes, depth });
        }
        self.place(node);
        Ok(())
    }

    fn place(&mut self, node: Node) {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open { map: Some(filling), .. }) => {
                let Some(waiting) = filling.waiting.take() else { return };
                // The first of duplicate keys stays; the others were reported.
                if !waiting.duplicate {
                    let Waiting { key, span: key_span, .. } = waiting;
                    filling.entries.push(Entry { key, key_span, value: node });
                }
            }
            Some(open) => open.items.push(node),
        }
    }

    fn alias(&mut self, id: usize, span: Span) -> Step {
        if self.wants_key() {
            return Err(Mistake::new(span, "an alias cannot be a key", None));
        }
        let Some(anchored) = self.anchors.get(&id) else {
            return Err(Mistake::new(span, "this alias stands inside what it names", None));
        };
        let (nodes, depth) = (anchored.nodes, anchored.depth);
        if self.open.len() + depth > DEPTH_MAX {
            return Err(too_deep(span));
        }
        self.spend(nodes, span)?;
        let node = self.anchors[&id].node.clone();
        self.place(node);
        Ok(())
    }

    fn spend(&mut self, nodes: usize, span: Span) -> Step {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes <= NODES_MAX {
            return Ok(());
        }
        Err(Mistake::new(
            span,
            format!("the recipe grows beyond {NODES_MAX} values here, expanded aliases included"),
            "aliases of aliases multiply; write the values out or use fewer".to_owned(),
        ))
    }

    fn span(&self, span: saphyr_parser::Span) -> Span {
        let mut place = self.at(span.start.line(), span.start.col());
        let same_line = span.end.line() == span.start.line();
        place.length =
            if same_line { span.end.col().saturating_sub(span.start.col()).max(1) } else { 1 };
        place
    }

    fn at(&self, line: usize, col: usize) -> Span {
        let line = line.max(1);
        let shift = if line == 1 { self.origin.column - 1 } else { 0 };
        Span {
            text: self.origin.text,
            line: self.origin.line + line - 1,
            column: col + 1 + shift,
            length: 1,
        }
    }

    fn scan_mistake(&self, error: &ScanError) -> Mistake {
        let span = self.at(error.marker().line(), error.marker().col());
        let hint = match error.info() {
            info if info.contains("mapping values are not allowed") => {
                "is this line indented too far, or does the line above lack its colon?"
            }
            info if info.contains("anchor") => "define it before with `&name`",
            info if info.contains("quoted") || info.contains("escape") => {
                "check the quotes around this text"
            }
            info if info.contains("simple key") => {
                "a key is followed by a colon and a space: `key: value`"
            }
            info if ["flow", "bracket", "recursion"].iter().any(|w| info.contains(w)) => {
                "check that every bracket and brace is closed"
            }
            info if info.contains("unprintable") => "remove this character",
            _ => "check the indentation and the brackets around this place",
        };
        Mistake::new(span, format!("not valid YAML: {}", error.info()), hint.to_owned())
    }
}

fn too_deep(span: Span) -> Mistake {
    Mistake::new(span, format!("nested deeper than {DEPTH_MAX} levels"), None)
}

fn refuse_tag(tag: Option<Cow<'_, Tag>>, span: Span) -> Step {
    match tag {
        None => Ok(()),
        Some(tag) => Err(Mistake::new(
            span,
            format!("tags such as {} have no meaning here", quoted(&tag.to_string())),
            "remove the tag; quotes make a value text".to_owned(),
        )),
    }
}

/// Lines indented with tabs, when the parser stopped at or after one.
fn tab_lines(text: &str, origin: Span, failed_line: usize) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for (i, line) in lines_of(text).iter().enumerate() {
        let indent: Vec<char> = line.chars().take_while(|c| *c == ' ' || *c == '\t').collect();
        let Some(tab) = indent.iter().position(|c| *c == '\t') else { continue };
        if indent.len() == line.chars().count() {
            continue;
        }
        let span = Span {
            text: origin.text,
            line: origin.line + i,
            column: tab + 1,
            length: indent.len() - tab,
        };
        mistakes.push(Mistake::new(
            span,
            "a tab in the indentation",
            "YAML is indented with spaces; replace each tab by two spaces".to_owned(),
        ));
    }
    let to_blame = mistakes.first().is_some_and(|m| m.span.line <= failed_line + 1);
    if to_blame { mistakes } else { Vec::new() }
}
