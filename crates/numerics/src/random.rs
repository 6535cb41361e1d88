//! Counter-based random numbers: a draw is a function of its key and its number, so work that is
//! done again, elsewhere or in another order draws the same.
//!
//! The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
//! easy as 1, 2, 3", SC 2011).

/// What a draw is for; different purposes never share numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Starting values of parameters.
    Initialise = 1,
    /// Dropout masks.
    Dropout = 2,
    /// Order of the examples in an epoch.
    Shuffle = 3,
    /// Which examples go to which part.
    Split = 4,
    /// Changes to training examples.
    Augment = 5,
    /// The built-in `digits` data.
    Digits = 6,
    /// Tests and benchmarks.
    Test = 7,
    /// Generator matrices of codes, groups they are judged by, and ring orders.
    Code = 8,
}

/// A stream of random numbers named by (seed, purpose, a, b).
#[derive(Debug, Clone)]
pub struct Stream {
    key: [u32; 2],
    high: [u32; 2],
    next: u64,
    block: [u32; 4],
    left: usize,
}

impl Stream {
    /// The stream for `purpose` under `seed`, told apart by `a` and `b` (epoch and example, or step
    /// and shard).
    pub fn new(seed: u64, purpose: Purpose, a: u64, b: u64) -> Self {
        // The seed is the cipher's key; purpose, a and b are mixed into the upper counter half and
        // the key by one cipher call, so that streams differ in all bits.
        let words = |v: u64| [v as u32, (v >> 32) as u32];
        let [s0, s1] = words(seed);
        let [a0, a1] = words(a);
        let [b0, b1] = words(b);
        let first = philox([a0, a1, purpose as u32, 0x706c_616e], [s0, s1]);
        let mixed = philox([b0, b1, first[0], first[1]], [first[2], first[3]]);
        Self {
            key: [mixed[0], mixed[1]],
            high: [mixed[2], mixed[3]],
            next: 0,
            block: [0; 4],
            left: 0,
        }
    }

    /// The four numbers of block `index`, wherever the stream stands.
    pub fn block(&self, index: u64) -> [u32; 4] {
        philox([index as u32, (index >> 32) as u32, self.high[0], self.high[1]], self.key)
    }

    pub fn next_u32(&mut self) -> u32 {
        if self.left == 0 {
            self.block = self.block(self.next);
            self.next += 1;
            self.left = 4;
        }
        self.left -= 1;
        self.block[3 - self.left]
    }

    /// Next number of 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) | u64::from(self.next_u32()) << 32
    }

    /// Uniform in [0, 1), 24 bits.
    pub fn uniform(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 * (1.0 / 16_777_216.0)
    }

    /// Uniform in [low, high).
    pub fn uniform_in(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.uniform()
    }

    /// Uniform whole number in 0..n, without bias worth speaking of (64-bit multiply). `n` > 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Standard normal (Box and Muller 1958, one of the pair).
    pub fn normal(&mut self) -> f32 {
        let u = 1.0 - f64::from(self.uniform());
        let v = f64::from(self.uniform());
        (libm::sqrt(-2.0 * libm::log(u)) * libm::cos(std::f64::consts::TAU * v)) as f32
    }
}

/// One Philox4x32-10 block.
fn philox(mut c: [u32; 4], mut k: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let p0 = u64::from(c[0]) * 0xD251_1F53;
        let p1 = u64::from(c[2]) * 0xCD9E_8D57;
        c = [
            (p1 >> 32) as u32 ^ c[1] ^ k[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ c[3] ^ k[1],
            p0 as u32,
        ];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_matches_the_published_vectors() {
        // Known answers of the authors' Random123 distribution.
        let ones = u32::MAX;
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([ones; 4], [ones; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn streams_differ_by_every_name_and_repeat_by_name() {
        let draw = |seed, purpose, a, b| Stream::new(seed, purpose, a, b).next_u64();
        let base = draw(1, Purpose::Dropout, 2, 3);
        assert_eq!(base, draw(1, Purpose::Dropout, 2, 3));
        for other in [
            draw(2, Purpose::Dropout, 2, 3),
            draw(1, Purpose::Shuffle, 2, 3),
            draw(1, Purpose::Dropout, 3, 3),
            draw(1, Purpose::Dropout, 2, 4),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn moments_are_right() {
        let mut s = Stream::new(9, Purpose::Test, 0, 0);
        let n = 200_000;
        let (mut u, mut m, mut v) = (0.0, 0.0, 0.0);
        for _ in 0..n {
            u += f64::from(s.uniform());
            let z = f64::from(s.normal());
            m += z;
            v += z * z;
        }
        let n = f64::from(n);
        assert!((u / n - 0.5).abs() < 0.003 && (m / n).abs() < 0.01 && (v / n - 1.0).abs() < 0.015);
    }
}
