//! What the user says figures look like: a name and an expression for each, searched for in every line.
//!
//! The first group of an expression is the figure; one without a group is refused, as the words around a
//! number are no number. Expressions take time in proportion to the line, whatever they are, and a bounded
//! amount of memory.

use super::{Told, number};
use regex_automata::meta::{Config, Regex};
use regex_automata::util::captures::Captures;
use regex_automata::util::syntax;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that an expression may take once it is compiled.
const EXPRESSION_BYTES_MAX: usize = 1 << 20;
/// Bytes of a line that are searched.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What is said of an expression that does not say where the number is.
const NO_GROUP: &str = "it has no group around the number";

/// Names and expressions of figures.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Vec<(String, Regex)>>);

impl Metrics {
    /// Compiles expressions; what is wrong is told with the name.
    pub fn new(expressions: &BTreeMap<String, String>) -> Result<Self, (String, String)> {
        let limit = Config::new().nfa_size_limit(Some(EXPRESSION_BYTES_MAX));
        let compile = |(name, text): (&String, &String)| {
            // Of bytes: `\\d` and `\\w` are ASCII's, which takes no tables.
            let bytes = syntax::Config::new().unicode(false).utf8(false);
            let built = Regex::builder().configure(limit.clone()).syntax(bytes).build(text);
            let wrong = |e: regex_automata::meta::BuildError| {
                let why = e.syntax_error().map_or_else(|| e.to_string(), ToString::to_string);
                let last = why.lines().last().unwrap_or_default();
                (name.clone(), last.trim_start_matches("error: ").to_owned())
            };
            let regex = built.map_err(wrong)?;
            match regex.captures_len() {
                0 | 1 => Err((name.clone(), NO_GROUP.to_owned())),
                _ => Ok((name.clone(), regex)),
            }
        };
        Ok(Self(Arc::new(expressions.iter().map(compile).collect::<Result<_, _>>()?)))
    }

    /// The figures that a line has by them.
    pub(super) fn read(&self, line: &str) -> Told {
        let mut end = line.len().min(LINE_BYTES_MAX);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        let line = &line[..end];
        let find = |(name, regex): &(String, Regex)| {
            let mut captures: Captures = regex.create_captures();
            regex.captures(line, &mut captures);
            let span = captures.get_group(1)?;
            Some((name.clone(), number(line.get(span.range())?.trim())?))
        };
        self.0.iter().filter_map(find).collect()
    }
}
