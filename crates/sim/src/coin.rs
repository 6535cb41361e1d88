//! Chance that follows from a seed.

use std::time::Duration;

/// Splitmix64.
#[derive(Debug, Clone)]
pub struct Coin(u64);

impl Coin {
    /// One that always falls the same way.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must not be neighbouring states.
        let mut coin = Self(seed ^ 0x5DEE_CE66_D1CE_4E5B);
        coin.number();
        Self(coin.number() ^ seed.rotate_left(32))
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.number() % n.max(1)
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Whether something happens that does once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A time between these.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_micros() as u64;
        least + Duration::from_micros(self.below(span + 1))
    }

    /// About so long.
    pub fn about(&mut self, time: Duration) -> Duration {
        self.between(time.mul_f64(0.6), time.mul_f64(1.4))
    }
}
