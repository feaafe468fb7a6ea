//! Fast division by a number that is known in advance.

/// A divisor with its reciprocal. A division then needs only two multiplications and has the exact result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor {
    by: u64,
    /// (2⁶⁴ − 1) / `by`, rounded down.
    reciprocal: u64,
}

impl Divisor {
    /// The divisor `by`; 0 counts as 1.
    #[must_use]
    pub const fn new(by: u64) -> Divisor {
        let by = if by == 0 { 1 } else { by };
        Divisor {
            by,
            reciprocal: u64::MAX / by,
        }
    }
    /// The divisor as a number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.by
    }
    /// Quotient and remainder. Because the reciprocal is at least 2⁶⁴ / `by` − 1, the estimate is the quotient or one less.
    #[inline]
    #[must_use]
    pub fn div_rem(self, n: u64) -> (u64, u64) {
        let estimate = ((u128::from(n) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = n - estimate * self.by;
        let more = u64::from(rest >= self.by);
        (estimate + more, rest - more * self.by)
    }
}

impl Default for Divisor {
    fn default() -> Divisor {
        Divisor::new(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divisor_divides() {
        let mut random = crate::random::SplitMix64::new(3);
        let known = [
            1,
            2,
            3,
            7,
            512,
            8_333_333,
            1_049_600,
            u64::from(u32::MAX),
            u64::MAX - 1,
            u64::MAX,
        ];
        let drawn: [u64; 200] = core::array::from_fn(|i| random.draw() >> (i % 64));
        for by in known.into_iter().chain(drawn).map(|by| by.max(1)) {
            let d = Divisor::new(by);
            let agrees = |n: u64| assert_eq!(d.div_rem(n), (n / by, n % by), "{n} / {by}");
            [0, 1, by - 1, by, by.wrapping_add(1), by.wrapping_mul(2)]
                .into_iter()
                .chain([u64::MAX, u64::MAX - 1, u64::MAX / 2])
                .for_each(agrees);
            (0..200).for_each(|_| agrees(random.draw() >> random.below(64)));
        }
        assert_eq!(Divisor::new(0), Divisor::default());
    }
}
