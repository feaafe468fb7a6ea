//! Times in the past, in the explanations of policies.

use crate::units::Nanos;
use core::fmt;

/// A duration, as the time in the past at which something happened: `3.2 s ago`, `2 h 5 min ago`.
pub(crate) struct Ago(pub Nanos);

impl fmt::Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds < 90.0 {
            return write!(f, "{seconds:.1} s ago");
        }
        let minutes = (seconds / 60.0 + 0.5) as u64;
        match (minutes / 1440, minutes / 60 % 24, minutes % 60) {
            (0, 0, m) => write!(f, "{m} min ago"),
            (0, h, m) => write!(f, "{h} h {m} min ago"),
            (d, h, _) => write!(f, "{d} d {h} h ago"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ago;
    use crate::units::Nanos;
    use alloc::string::ToString;

    #[test]
    fn units_grow_with_the_time() {
        for (ms, text) in [
            (0, "0.0 s ago"),
            (3210, "3.2 s ago"),
            (89_900, "89.9 s ago"),
            (90_000, "2 min ago"),
            (3_599_000, "1 h 0 min ago"),
            (7_500_000, "2 h 5 min ago"),
            (86_400_000, "1 d 0 h ago"),
            (86_400_000 * 400, "400 d 0 h ago"),
        ] {
            assert_eq!(Ago(Nanos::from_millis(ms)).to_string(), text);
        }
    }
}
