//! A pause between the warm-up and the measured part, in which work that the warm-up caused is completed.

/// The pause.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    /// Remaining length in nanoseconds; 0 if there is no pause or it is over.
    left: u64,
    /// The time of its end, once it has begun.
    end: Option<u64>,
}

impl Rest {
    /// A pause of this many seconds.
    pub fn of(seconds: f64) -> Rest {
        Rest {
            left: (seconds * 1e9) as u64,
            end: None,
        }
    }

    /// The time until which no request may be submitted. The pause begins when no request of the warm-up is in flight any more.
    #[inline]
    pub fn until(&mut self, now: u64, warming: bool, in_flight: usize) -> u64 {
        if self.left == 0 || warming {
            return now;
        }
        if in_flight > 0 {
            return u64::MAX;
        }
        let end = *self.end.get_or_insert(now + self.left);
        if end <= now {
            self.left = 0;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_the_last_reply_and_comes_once() {
        let mut r = Rest::of(2e-9);
        assert_eq!(r.until(5, true, 3), 5);
        assert_eq!(r.until(6, false, 1), u64::MAX);
        assert_eq!((r.until(7, false, 0), r.until(8, false, 0)), (9, 9));
        assert_eq!((r.until(9, false, 0), r.until(10, false, 1)), (9, 10));
    }
}
