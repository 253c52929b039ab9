//! Chance with a seed, so that every run can be repeated (xoshiro256++, Blackman and Vigna 2019).

/// A generator of random numbers; the same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    state: [u64; 4],
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        // SplitMix64 spreads the seed, as the authors advise: neighbouring seeds give unrelated runs.
        let mut mix = seed;
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut word = mix;
            word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            word ^ (word >> 31)
        });
        Self { state }
    }

    pub(crate) fn next(&mut self) -> u64 {
        let state = &mut self.state;
        let sum = state[0].wrapping_add(state[3]);
        let result = sum.rotate_left(23).wrapping_add(state[0]);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// Above 0, at most 1.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 * UNIT
    }

    /// Exponentially distributed with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// From 0 to below `n`; the bias of the product is below n / 2^64.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

/// 2^-53: one step of the fraction of an f64.
const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moments_are_those_of_the_distributions() {
        let mut dice = Dice::new(7);
        let (mut unit, mut exponential) = (0.0, 0.0);
        for _ in 0..100_000 {
            unit += dice.unit();
            exponential += dice.exponential();
        }
        assert!((unit / 1e5 - 0.5).abs() < 0.005);
        assert!((exponential / 1e5 - 1.0).abs() < 0.015);
        assert!((0..1000).all(|_| dice.below(3) < 3));
    }

    #[test]
    fn a_seed_is_a_run() {
        let numbers = |seed| {
            let mut dice = Dice::new(seed);
            (0..4).map(|_| dice.next()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
    }
}
