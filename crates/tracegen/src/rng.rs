//! The simulation's dice: xorshift, the same on every machine.

#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..10).for_each(|_| {
            rng.bits();
        });
        rng
    }

    /// 64 random bits, not all zero.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Uniform in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with this mean: the time to the next of independent events.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// True with this probability.  One of 0 draws nothing, so that an option that is off changes nothing.
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }
}
