//! Colours of a character, as a terminal's escapes set them.
//!
//! Owns what of `ESC [ … m` is kept: colours and weight. Blinking and hiding are not.

/// Colours of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Style {
    /// A bit for each of the numbers in [`WEIGHTS`].
    weights: u8,
    text: Colour,
    ground: Colour,
}

/// Bold, faint, italic, underlined, inverse, struck out.
const WEIGHTS: [u16; 6] = [1, 2, 3, 4, 7, 9];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Colour {
    #[default]
    Usual,
    Numbered(u8),
    Mixed(u8, u8, u8),
}

impl Style {
    /// As it is after an escape with these parameters.
    pub(super) fn apply(&mut self, parameters: &str) {
        let numbers: Vec<u16> =
            parameters.split([';', ':']).map(|n| n.parse().unwrap_or(0)).collect();
        let mut rest = numbers.as_slice();
        while let [first, after @ ..] = rest {
            rest = after;
            match *first {
                0 => *self = Self::default(),
                22 => self.weights &= !0b11,
                n @ (23 | 24 | 27 | 29) => self.weights &= !bit(n - 20),
                n @ (30..=37 | 90..=97) => self.text = basic(n, 30),
                n @ (40..=47 | 100..=107) => self.ground = basic(n, 40),
                39 => self.text = Colour::Usual,
                49 => self.ground = Colour::Usual,
                38 => (self.text, rest) = extended(rest),
                48 => (self.ground, rest) = extended(rest),
                n => self.weights |= bit(n),
            }
        }
    }

    /// What sets exactly these colours.
    pub(super) fn escape(self) -> String {
        let mut codes = vec!["0".to_owned()];
        codes.extend(WEIGHTS.iter().filter(|n| self.weights & bit(**n) != 0).map(u16::to_string));
        codes.extend(self.text.code(30));
        codes.extend(self.ground.code(40));
        format!("\x1b[{}m", codes.join(";"))
    }
}

impl Colour {
    fn code(self, base: u16) -> Option<String> {
        match self {
            Self::Usual => None,
            Self::Numbered(n @ 0..=7) => Some(format!("{}", base + u16::from(n))),
            Self::Numbered(n @ 8..=15) => Some(format!("{}", base + 52 + u16::from(n))),
            Self::Numbered(n) => Some(format!("{};5;{n}", base + 8)),
            Self::Mixed(r, g, b) => Some(format!("{};2;{r};{g};{b}", base + 8)),
        }
    }
}

/// The bit of a weight; none for other numbers.
fn bit(number: u16) -> u8 {
    WEIGHTS.iter().position(|n| *n == number).map_or(0, |at| 1 << at)
}

/// One of sixteen: the bright ones are 60 further.
fn basic(number: u16, base: u16) -> Colour {
    let n = number - base;
    Colour::Numbered(if n < 8 { n as u8 } else { (n - 60 + 8) as u8 })
}

/// What follows 38 or 48: `5;n` or `2;r;g;b`.
fn extended(rest: &[u16]) -> (Colour, &[u16]) {
    let byte = |n: u16| n.min(255) as u8;
    match rest {
        [5, n, rest @ ..] => (Colour::Numbered(byte(*n)), rest),
        [2, r, g, b, rest @ ..] => (Colour::Mixed(byte(*r), byte(*g), byte(*b)), rest),
        _ => (Colour::Usual, &[]),
    }
}
