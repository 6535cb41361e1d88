//! Files with `{{fields}}`; `{{{{` stands for `{{` itself.
//!
//! Owns the syntax and the filling-in. Pure: what a field stands for is passed in, and an unknown
//! field is found before anything is done.

use std::collections::BTreeMap;

/// A template, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Field(String),
}

impl Template {
    /// Takes a text apart; `known` are the fields there may be. What is wrong names the line.
    pub fn parse(text: &str, known: &[&str]) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let line = text[..text.len() - after.len()].matches('\n').count() + 1;
            if let Some(behind) = after.strip_prefix("{{") {
                pieces.push(Piece::Text(format!("{before}{{{{")));
                rest = behind;
                continue;
            }
            let Some((field, behind)) = after.split_once("}}") else {
                return Err(format!("line {line}: `{{{{` without `}}}}`"));
            };
            let field = field.trim();
            if !known.contains(&field) {
                let field: String = field.chars().filter(|c| !c.is_control()).take(40).collect();
                let list: Vec<String> = known.iter().map(|k| format!("`{k}`")).collect();
                let list = list.join(", ");
                return Err(format!("line {line}: no field `{field}`; there are {list}"));
            }
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(Piece::Field(field.to_owned()));
            rest = behind;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Self(pieces))
    }

    /// With every field filled in. What is filled in is not looked at again.
    pub fn fill(&self, values: &BTreeMap<&str, &str>) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Field(field) => values.get(field.as_str()).copied().unwrap_or("").to_owned(),
        };
        self.0.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_filled_in_once() {
        let values = BTreeMap::from([("machine", "node1"), ("a", "{{machine}}")]);
        let known = ["machine", "a"];
        for (text, expect) in [
            ("", ""),
            ("plain {text} }}", "plain {text} }}"),
            ("{{{{machine}} on {{machine}}", "{{machine}} on node1"),
            ("on {{machine}}: {{ a }}{{a}}\n", "on node1: {{machine}}{{machine}}\n"),
        ] {
            assert_eq!(Template::parse(text, &known).unwrap().fill(&values), expect);
        }
    }

    #[test]
    fn unknown_fields_are_named() {
        for (text, expect) in [
            ("a\n{{b}}", "line 2: no field `b`; there are `machine`, `a`"),
            ("{{}}", "line 1: no field ``; there are `machine`, `a`"),
            ("\n\n{{a", "line 3: `{{` without `}}`"),
        ] {
            assert_eq!(Template::parse(text, &["machine", "a"]).unwrap_err(), expect);
        }
    }
}
