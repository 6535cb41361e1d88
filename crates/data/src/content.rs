//! A 128-bit mark of a file's unpacked content, by which a resumed run knows its data again.
//!
//! Quick enough to be taken while reading (four independent chains of one multiplication for each
//! eight bytes). It guards against mistakes, not against an attacker.

/// Odd constants with about as many ones as zeros (SplitMix64's and PCG's).
const FACTORS: [u64; 4] =
    [0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB, 0xD134_2543_DE82_EF95];

/// What has been read so far. Every piece counts with its length, so the same content must be read
/// in the same pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    chains: [u64; 4],
}

impl Content {
    pub fn new() -> Self {
        Self { chains: FACTORS }
    }

    /// Takes in the next piece.
    pub fn add(&mut self, piece: &[u8]) {
        let mut chains = self.chains;
        // For a given chain each step maps words to chains one to one: a changed word always shows.
        let mut take = |block: [u64; 4]| {
            for ((chain, word), factor) in chains.iter_mut().zip(block).zip(FACTORS) {
                *chain = (*chain ^ word).wrapping_mul(factor).rotate_left(29);
            }
        };
        let words = |block: &[u8; 32]| {
            let words = block.as_chunks::<8>().0;
            [words[0], words[1], words[2], words[3]].map(u64::from_le_bytes)
        };
        let (blocks, rest) = piece.as_chunks::<32>();
        blocks.iter().for_each(|block| take(words(block)));
        let mut last = [0; 32];
        last[..rest.len()].copy_from_slice(rest);
        take(words(&last));
        take([piece.len() as u64; 4]);
        self.chains = chains;
    }

    /// The mark of all pieces.
    pub fn mark(&self) -> u128 {
        let finish = |x: u64| {
            let x = (x ^ (x >> 30)).wrapping_mul(FACTORS[1]);
            let x = (x ^ (x >> 27)).wrapping_mul(FACTORS[2]);
            x ^ (x >> 31)
        };
        let [a, b, c, d] = self.chains.map(finish);
        u128::from(a.wrapping_add(c.rotate_left(17))) << 64
            | u128::from(b.wrapping_add(d.rotate_left(17)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(bytes: &[u8]) -> u128 {
        let mut content = Content::new();
        content.add(bytes);
        content.mark()
    }

    #[test]
    fn every_changed_byte_and_length_shows() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut marks = vec![mark(&bytes)];
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            marks.push(mark(&changed));
            marks.push(mark(&bytes[..at]));
        }
        marks.push(mark(&[bytes.as_slice(), &[0]].concat()));
        let count = marks.len();
        marks.sort_unstable();
        marks.dedup();
        assert_eq!(marks.len(), count);
    }

    #[test]
    fn it_never_changes() {
        // Checkpoints hold marks.
        assert_eq!(format!("{:032x}", mark(b"planaria")), "c020079262bdec5bddf84bd79dd4f025");
    }
}
