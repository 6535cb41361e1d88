//! Text with colours: how wide it is on a terminal, cut there, and without them.
//!
//! Owns what a column is. The only escapes in such text are colours (`ESC [ … m`); text
//! from elsewhere is made so first. Never writes anywhere.

/// What takes all colours away.
pub const RESET: &str = "\x1b[0m";

/// What is between the parts of a line.
pub const DOT: &str = " · ";

/// What lines that say how things stand begin with, and its colour.
const LABELS: [(&str, &str); 3] = [("error:", "1;31"), ("warning:", "33"), ("hint:", "36")];

/// Text whose lines have a colour on what they begin with, where that is `error:`, `warning:` or
/// `hint:`.
pub fn labelled(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        let start = line.len() - line.trim_start_matches(' ').len();
        let (blanks, rest) = line.split_at(start);
        let label = LABELS.iter().find(|(label, _)| rest.starts_with(label));
        match label {
            Some((label, code)) => {
                format!("{blanks}{}{}", paint(code, label), &rest[label.len()..])
            }
            None => line.to_owned(),
        }
    });
    lines.collect()
}

/// Text in a colour, given by its number (`36`).
pub fn paint(code: &str, text: &str) -> String {
    format!("\x1b[{code}m{text}{RESET}")
}

/// Columns that text takes.
pub fn width(text: &str) -> usize {
    pieces(text).map(|piece| piece.columns()).sum()
}

/// Text without colours.
pub fn bare(text: &str) -> String {
    if !text.contains('\x1b') {
        return text.to_owned();
    }
    pieces(text).filter_map(|piece| piece.shown()).collect()
}

/// At most so many columns of text; colours end where it is cut.
pub fn cut(text: &str, columns: usize) -> String {
    let (mut taken, mut cut, mut coloured) = (0, String::new(), false);
    for piece in pieces(text) {
        taken += piece.columns();
        if taken > columns {
            if coloured {
                cut.push_str(RESET);
            }
            return cut;
        }
        match piece {
            Piece::Shown(c) => cut.push(c),
            Piece::Colour(escape) => {
                coloured = !matches!(escape, "\x1b[0m" | "\x1b[m");
                cut.push_str(escape);
            }
        }
    }
    cut
}

/// Text without colours in at most so many columns: what does not fit is left out in the middle.
pub fn shortened(text: &str, columns: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    let wide = |chars: &[char]| chars.iter().map(|c| self::columns(*c)).sum::<usize>();
    if wide(&all) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let (mut head, mut tail) = (all.len(), all.len());
    while head > 0 && wide(&all[..head]) > room.div_ceil(2) {
        head -= 1;
    }
    while tail > head && wide(&all[tail - 1..]) <= room - wide(&all[..head]) {
        tail -= 1;
    }
    let ellipsis = if columns == 0 { "" } else { "…" };
    let [head, tail] = [&all[..head], &all[tail..]].map(|part| part.iter().collect::<String>());
    format!("{head}{ellipsis}{tail}")
}

/// Parts in one line of fewer than `columns` characters; those of the lowest rank go first.
pub fn fit(mut parts: Vec<(u8, String)>, columns: usize) -> String {
    loop {
        let line = parts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(DOT);
        // The last column stays free: some terminals wrap when it is written.
        if line.chars().count() < columns || parts.is_empty() {
            return line;
        }
        let least = parts.iter().map(|(rank, _)| *rank).min();
        parts.retain(|(rank, _)| Some(*rank) != least);
    }
}

/// Columns that a character takes: none for marks over others, two for those of East Asia and
/// pictures (after Unicode's East Asian Width, by blocks).
pub fn columns(c: char) -> usize {
    match u32::from(c) {
        0x20..=0x7e => 1,
        0x300..=0x36f | 0x200b..=0x200f | 0x20d0..=0x20ff | 0xfe00..=0xfe0f | 0xfeff => 0,
        0x1100..=0x115f | 0x231a..=0x231b | 0x23e9..=0x23f3 | 0x2614..=0x2615 => 2,
        0x26a1 | 0x26bd..=0x26be | 0x2705 | 0x270a..=0x270b | 0x2728 | 0x274c | 0x2753..=0x2757 => {
            2
        }
        0x2b1b..=0x2b1c | 0x2b50 | 0x2b55 | 0x2e80..=0x303e | 0x3041..=0xa4cf => 2,
        0xa960..=0xa97c | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f => 2,
        0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1f64f | 0x1f680..=0x1faff => 2,
        0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// A character, or an escape that changes colours.
enum Piece<'a> {
    Shown(char),
    Colour(&'a str),
}

impl Piece<'_> {
    fn columns(&self) -> usize {
        self.shown().map_or(0, columns)
    }

    fn shown(&self) -> Option<char> {
        match self {
            Self::Shown(c) => Some(*c),
            Self::Colour(_) => None,
        }
    }
}

fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let colour = rest.starts_with("\x1b[").then(|| rest.find('m')).flatten();
        let end = colour.map_or(first.len_utf8(), |at| at + 1);
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(if colour.is_some() { Piece::Colour(piece) } else { Piece::Shown(first) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_loses_its_middle() {
        for (columns, expect) in
            [(9, "abcdefghi"), (8, "abcd…ghi"), (5, "ab…hi"), (2, "a…"), (1, "…"), (0, "")]
        {
            assert_eq!(shortened("abcdefghi", columns), expect, "{columns}");
        }
        assert_eq!(shortened("漢字漢字", 6), "漢…字");
    }

    #[test]
    fn only_what_begins_a_line_is_a_label() {
        let text = "error: no error: here\n  --> a.yaml:1:2\n\nhint: mend it\nwarning:";
        assert_eq!(
            labelled(text),
            "\x1b[1;31merror:\x1b[0m no error: here\n  --> a.yaml:1:2\n\n\
             \x1b[36mhint:\x1b[0m mend it\n\x1b[33mwarning:\x1b[0m"
        );
        assert_eq!(bare(&labelled(text)), text);
    }

    #[test]
    fn colours_take_no_columns() {
        let text = format!("a{}漢é", paint("1;36", "bc"));
        assert_eq!((width(&text), bare(&text).as_str()), (6, "abc漢é"));
        assert_eq!(width("e\u{301}█━"), 3);
        for (columns, expect) in [
            (0, ""),
            (1, "a\x1b[1;36m\x1b[0m"),
            (2, "a\x1b[1;36mb\x1b[0m"),
            (4, "a\x1b[1;36mbc\x1b[0m"),
            (5, "a\x1b[1;36mbc\x1b[0m漢"),
            (99, text.as_str()),
        ] {
            assert_eq!(cut(&text, columns), expect, "{columns}");
        }
    }
}
