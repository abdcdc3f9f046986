//! The dice: SplitMix64, the same on every machine.

/// Random numbers that a seed decides.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice of a seed; nearby seeds have nothing in common.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// One of `0..count`; 0 if there are none.
    pub fn below(&mut self, count: usize) -> usize {
        (self.bits() % count.max(1) as u64) as usize
    }

    /// One of `from..=to`.
    pub fn between(&mut self, from: u32, to: u32) -> u32 {
        from + self.below((to.saturating_sub(from) + 1) as usize) as u32
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.between(0, 99) < percent
    }

    /// One of these; there must be one.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A number around 0, with a standard deviation of 1.
    pub fn noise(&mut self) -> f64 {
        let uniform = |bits: u64| (bits >> 11) as f64 / (1_u64 << 53) as f64;
        (0..12).map(|_| uniform(self.bits())).sum::<f64>() - 6.0
    }

    /// A seed for other dice.
    pub fn seed(&mut self) -> u64 {
        self.bits() >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all() {
        let draw = |seed| {
            let mut dice = Dice::new(seed);
            (0..50).map(|_| dice.between(1, 6)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!((1..=6).all(|face| draw(7).contains(&face)));
    }

    #[test]
    fn bounds_hold() {
        let mut dice = Dice::new(1);
        assert!((0..1000).all(|_| dice.below(3) < 3 && dice.between(5, 5) == 5));
        assert!(!dice.percent(0) && dice.percent(100));
        assert_eq!(dice.below(0), 0);
        let noise: Vec<f64> = (0..10_000).map(|_| dice.noise()).collect();
        let mean_of = |numbers: &mut dyn Iterator<Item = f64>| numbers.sum::<f64>() / 10_000.0;
        let (mean, square) = (mean_of(&mut noise.iter().copied()), mean_of(&mut noise.iter().map(|n| n * n)));
        assert!(mean.abs() < 0.05 && (square - 1.0).abs() < 0.05, "{mean} {square}");
    }
}
