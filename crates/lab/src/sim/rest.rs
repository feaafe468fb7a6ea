//! A pause between the warm-up and what counts, in which what the warm-up set off ends.

/// The pause.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    /// How long it lasts, nanoseconds; 0: there is none, or it is over.
    left: u64,
    /// When it is over, once it has begun.
    end: Option<u64>,
}

impl Rest {
    /// For so many seconds.
    pub fn of(seconds: f64) -> Rest {
        Rest {
            left: (seconds * 1e9) as u64,
            end: None,
        }
    }

    /// Until when no request may come. It begins when nothing of the warm-up is in flight any more.
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
