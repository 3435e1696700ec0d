//! `Math.random`: children of one zygote share every source of randomness, so each run brings its own seed.
//!
//! xoshiro256++ (Blackman and Vigna, public domain), its state spread from the seed by splitmix64. Not for secrets; a
//! program has no use for any.

/// The generator.
pub(super) struct Random([u64; 4]);

impl Random {
    /// A generator for one run.
    pub(super) fn new(seed: &[u8; 16]) -> Self {
        let (halves, _) = seed.as_chunks::<8>();
        let mut streams = [u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1])];
        let mut state = [0; 4];
        for (index, word) in state.iter_mut().enumerate() {
            let counter = &mut streams[index % 2];
            *counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = *counter;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *word = mixed ^ (mixed >> 31);
        }
        if state == [0; 4] {
            state[0] = 1;
        }
        Self(state)
    }

    /// The next number in [0, 1), with all 53 bits.
    pub(super) fn next(&mut self) -> f64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        #[allow(clippy::cast_precision_loss)] // 53 bits are exact
        let fraction = (result >> 11) as f64;
        fraction / 9_007_199_254_740_992.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_that_differ_in_one_bit_give_other_numbers() {
        let mut one = Random::new(&[7; 16]);
        let mut seed = [7; 16];
        seed[15] ^= 1;
        let mut other = Random::new(&seed);
        let first: Vec<f64> = (0..8).map(|_| one.next()).collect();
        let second: Vec<f64> = (0..8).map(|_| other.next()).collect();
        assert!(first.iter().zip(&second).all(|(a, b)| a.to_bits() != b.to_bits()));
        assert!(first.iter().all(|number| (0.0..1.0).contains(number)));
    }
}
