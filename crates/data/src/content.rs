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
    /// Of the piece that is being taken in: its last bytes that fill no block, and its length.
    rest: [u8; 32],
    length: u64,
}

impl Content {
    pub fn new() -> Self {
        Self { chains: FACTORS, rest: [0; 32], length: 0 }
    }

    /// Takes in a whole piece.
    pub fn add(&mut self, piece: &[u8]) {
        self.extend(piece);
        self.end();
    }

    /// Takes in the next bytes of a piece.
    pub fn extend(&mut self, mut bytes: &[u8]) {
        let held = (self.length % 32) as usize;
        self.length += bytes.len() as u64;
        if held > 0 {
            let (first, others) = bytes.split_at(bytes.len().min(32 - held));
            self.rest[held..held + first.len()].copy_from_slice(first);
            if held + first.len() < 32 {
                return;
            }
            take(&mut self.chains, words(&self.rest));
            bytes = others;
        }
        let (blocks, rest) = bytes.as_chunks::<32>();
        let mut chains = self.chains;
        blocks.iter().for_each(|block| take(&mut chains, words(block)));
        self.chains = chains;
        self.rest[..rest.len()].copy_from_slice(rest);
    }

    /// Ends a piece.
    pub fn end(&mut self) {
        let held = (self.length % 32) as usize;
        self.rest[held..].fill(0);
        take(&mut self.chains, words(&self.rest));
        take(&mut self.chains, [self.length; 4]);
        self.length = 0;
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

/// For a given chain each step maps words to chains one to one: a changed word always shows.
fn take(chains: &mut [u64; 4], block: [u64; 4]) {
    for ((chain, word), factor) in chains.iter_mut().zip(block).zip(FACTORS) {
        *chain = (*chain ^ word).wrapping_mul(factor).rotate_left(29);
    }
}

fn words(block: &[u8; 32]) -> [u64; 4] {
    let words = block.as_chunks::<8>().0;
    [words[0], words[1], words[2], words[3]].map(u64::from_le_bytes)
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
    fn a_piece_may_come_in_parts() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for size in [1, 7, 31, 32, 33, 64, 999] {
            let mut content = Content::new();
            bytes.chunks(size).for_each(|part| content.extend(part));
            content.end();
            assert_eq!(content.mark(), mark(&bytes), "{size}");
        }
    }

    #[test]
    fn it_never_changes() {
        // Checkpoints hold marks.
        assert_eq!(format!("{:032x}", mark(b"planaria")), "c020079262bdec5bddf84bd79dd4f025");
    }
}
