//! Secrets taken out of what commands write, as it comes.
//!
//! Owns the search, also over the borders of pieces. Never knows where secrets come from.

/// Shown in place of a secret.
const MASK: &[u8] = b"***";
/// Shorter secrets are found everywhere; to mask them would say what they are.
const SECRET_BYTES_MIN: usize = 4;
/// Lines of a secret this long are masked by themselves too: keys are printed line by line.
const LINE_BYTES_MIN: usize = 8;

/// The texts to take out.
#[derive(Clone, Default)]
pub struct Secrets(Vec<Vec<u8>>);

impl Secrets {
    /// Those that are long enough, and the lines of those that have several.
    pub fn new<'a>(secrets: impl Iterator<Item = &'a str>) -> Self {
        let mut texts = Vec::new();
        for text in secrets {
            texts.extend((text.len() >= SECRET_BYTES_MIN).then(|| text.as_bytes().to_vec()));
            let lines = text.lines().map(str::trim).filter(|line| line.len() >= LINE_BYTES_MIN);
            texts.extend(lines.map(|line| line.as_bytes().to_vec()));
        }
        texts.sort();
        texts.dedup();
        Self(texts)
    }

    /// The texts, for a process that redacts what it passes on; orders carry them, and nothing else.
    pub fn reveal(&self) -> Vec<String> {
        self.0.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }

    /// Those of [`Secrets::reveal`].
    pub fn revealed(texts: &[String]) -> Self {
        Self(texts.iter().map(|text| text.as_bytes().to_vec()).collect())
    }

    /// A whole text without them.
    pub fn redact(&self, text: &str) -> String {
        let mut shown = Vec::new();
        let mut redactor = Redactor::new(self);
        redactor.push(text.as_bytes(), &mut |bytes| shown.extend_from_slice(bytes));
        redactor.finish(&mut |bytes| shown.extend_from_slice(bytes));
        String::from_utf8_lossy(&shown).into_owned()
    }
}

/// A stream without secrets. Holds back no more than what could be the beginning of one.
pub struct Redactor<'s> {
    secrets: &'s Secrets,
    held: Vec<u8>,
    /// Bytes from here that belong to a secret.
    covered: usize,
}

impl<'s> Redactor<'s> {
    pub fn new(secrets: &'s Secrets) -> Self {
        Self { secrets, held: Vec::new(), covered: 0 }
    }

    pub fn push(&mut self, bytes: &[u8], show: &mut dyn FnMut(&[u8])) {
        if self.secrets.0.is_empty() {
            return show(bytes);
        }
        self.held.extend_from_slice(bytes);
        self.pass(false, show);
    }

    pub fn finish(&mut self, show: &mut dyn FnMut(&[u8])) {
        self.pass(true, show);
    }

    fn pass(&mut self, is_last: bool, show: &mut dyn FnMut(&[u8])) {
        let mut out = Vec::with_capacity(self.held.len());
        let mut at = 0;
        while at < self.held.len() {
            let rest = &self.held[at..];
            let begins = |secret: &&Vec<u8>| secret.len() > rest.len() && secret.starts_with(rest);
            if !is_last && self.secrets.0.iter().any(|secret| begins(&secret)) {
                break;
            }
            let found = self.secrets.0.iter().filter(|secret| rest.starts_with(secret));
            let longest = found.map(Vec::len).max().unwrap_or(0);
            if longest > 0 && self.covered == 0 {
                out.extend_from_slice(MASK);
            }
            self.covered = self.covered.max(longest);
            match self.covered {
                0 => out.push(rest[0]),
                _ => self.covered -= 1,
            }
            at += 1;
        }
        self.held.drain(..at);
        if !out.is_empty() {
            show(&out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secrets(texts: &[&str]) -> Secrets {
        Secrets(texts.iter().map(|t| t.as_bytes().to_vec()).collect())
    }

    fn in_pieces(secrets: &Secrets, text: &[u8], sizes: &[usize]) -> Vec<u8> {
        let mut shown = Vec::new();
        let mut redactor = Redactor::new(secrets);
        let (mut rest, mut sizes) = (text, sizes.iter().cycle());
        while !rest.is_empty() {
            let size = (*sizes.next().unwrap()).clamp(1, rest.len());
            redactor.push(&rest[..size], &mut |bytes| shown.extend_from_slice(bytes));
            rest = &rest[size..];
        }
        redactor.finish(&mut |bytes| shown.extend_from_slice(bytes));
        shown
    }

    #[test]
    fn secrets_are_masked_wherever_pieces_end() {
        for (texts, text, expect) in [
            (&["hunter2"][..], "pass hunter2 ok", "pass *** ok"),
            (&["hunter2"], "hunter hunter", "hunter hunter"),
            (&["hunter2"], "hhunter2hunter2", "h***\u{0}"),
            (&["aab"], "aaab", "a***"),
            (&["abcd", "abcdefgh"], "abcdefg abcdefgh", "***efg ***"),
            (&["abcX", "cXYZ"], "-abcXYZ-", "-***-"),
            (&[], "anything", "anything"),
        ] {
            let secrets = secrets(texts);
            // Two side by side are two masks.
            let expect = expect.replace('\u{0}', "***");
            for size in 1..text.len() {
                let shown = in_pieces(&secrets, text.as_bytes(), &[size]);
                assert_eq!(String::from_utf8_lossy(&shown), expect, "pieces of {size}");
            }
            assert_eq!(secrets.redact(text), expect);
        }
    }

    #[test]
    fn nothing_else_is_held_back() {
        let secrets = secrets(&["hunter2"]);
        let mut shown = Vec::new();
        let mut redactor = Redactor::new(&secrets);
        redactor.push(b"working...", &mut |bytes| shown.extend_from_slice(bytes));
        assert_eq!(shown, b"working...");
        redactor.push(b"hunt", &mut |bytes| shown.extend_from_slice(bytes));
        assert_eq!(shown, b"working...");
        redactor.push(b"ing", &mut |bytes| shown.extend_from_slice(bytes));
        assert_eq!(shown, b"working...hunting");
    }

    proptest! {
        #[test]
        fn no_secret_is_left(text in "[ab]{0,60}", secret in "[ab]{4,6}", sizes in proptest::collection::vec(1usize..9, 1..5)) {
            let shown = in_pieces(&secrets(&[&secret]), text.as_bytes(), &sizes);
            let shown = String::from_utf8(shown).unwrap();
            prop_assert!(!shown.contains(&secret), "{shown}");
            prop_assert_eq!(shown.contains('*'), text.contains(&secret));
        }
    }
}
