//! Units of time in traces, stated or inferred from the numbers.
//!
//! Times with a decimal point are milliseconds, as in DiskSim's manual, or seconds in other texts, and where milliseconds would mean more
//! than 20 000 requests a second. Whole numbers are nanoseconds if each is a multiple of 1 000 or 100 (a clock of microseconds, or that of
//! Windows), or if hardly any two requests are less than 1 000 apart and there are no more than 20 000 a second. Otherwise they are
//! microseconds, unless far fewer requests lie within a millisecond than if they came at random: real requests come in bursts. In the traces
//! that were examined, 9 to 97 % of the gaps are below a millisecond and fewer than 0.1 % are below a microsecond.

use crate::field::{parse_ns, parse_u64};

/// With fewer times than this, the numbers are not conclusive.
pub(crate) const FEW: usize = 16;
/// The number of times that are examined.
pub(crate) const LOOK: usize = 20_000;
/// A unit that implies more requests per second than this is rejected if the next larger unit fits as well. It is some hundred times what a
/// disk serves.
const RATE_DOUBTED: f64 = 20_000.0;

/// The unit of a number that counts time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
}

impl TimeUnit {
    /// The unit in words.
    pub const fn name(self) -> &'static str {
        match self {
            TimeUnit::Nanoseconds => "nanoseconds",
            TimeUnit::Microseconds => "microseconds",
            TimeUnit::Milliseconds => "milliseconds",
            TimeUnit::Seconds => "seconds",
        }
    }

    /// The unit in nanoseconds.
    pub const fn ns(self) -> u64 {
        match self {
            TimeUnit::Nanoseconds => 1,
            TimeUnit::Microseconds => 1_000,
            TimeUnit::Milliseconds => 1_000_000,
            TimeUnit::Seconds => 1_000_000_000,
        }
    }
}

/// A unit that was inferred.
pub(crate) struct Found {
    pub(crate) unit: TimeUnit,
    /// What the numbers show, to be read after "because".
    pub(crate) why: String,
    /// Whether the numbers fit another unit as well.
    pub(crate) open: bool,
}

/// Statistics of the first times of a trace.
#[derive(Default)]
pub(crate) struct Times {
    pub(crate) read: usize,
    points: bool,
    /// At least one time is not a multiple of 1 000; of 100.
    odd: bool,
    odd_100: bool,
    gaps: usize,
    /// The number of gaps below 1 000 units, and of gaps of zero.
    short: usize,
    none: usize,
    last: Option<u64>,
    least: f64,
    most: f64,
}

impl Times {
    /// Adds a time; other text is passed over.
    pub(crate) fn add(&mut self, time: &[u8]) {
        let text = std::str::from_utf8(time).unwrap_or_default();
        let (Some(_), Ok(value)) = (parse_ns(time, 1), text.replace(',', ".").parse::<f64>())
        else {
            return;
        };
        self.points |= time.iter().any(|c| b".,".contains(c));
        self.least = if self.read == 0 {
            value
        } else {
            self.least.min(value)
        };
        self.most = self.most.max(value);
        self.read += 1;
        let Some(whole) = parse_u64(time) else {
            return;
        };
        self.odd |= whole % 1_000 != 0;
        self.odd_100 |= whole % 100 != 0;
        if let Some(last) = self.last.replace(whole) {
            match whole.saturating_sub(last) {
                0 => self.none += 1,
                1..1_000 => (self.gaps, self.short) = (self.gaps + 1, self.short + 1),
                _ => self.gaps += 1,
            }
        }
    }

    /// Requests per second if times have this unit.
    fn rate(&self, unit: TimeUnit) -> f64 {
        self.read as f64 / ((self.most - self.least) * unit.ns() as f64 / 1e9)
    }

    /// Whether times in this unit mean an implausible number of requests per second.
    fn too_many(&self, unit: TimeUnit) -> bool {
        self.read >= FEW && self.rate(unit) > RATE_DOUBTED
    }

    /// The unit of these times; `points` is that of times with a decimal point.
    pub(crate) fn infer(&self, points: TimeUnit) -> Found {
        use TimeUnit::{Microseconds, Milliseconds, Nanoseconds, Seconds};
        let shown = |unit, why: &str| Found {
            unit,
            why: why.to_owned(),
            open: false,
        };
        if self.points {
            return if points == Seconds {
                Found {
                    open: true,
                    ..shown(Seconds, "times have a decimal point")
                }
            } else if self.too_many(Milliseconds) && !self.too_many(Seconds) {
                shown(
                    Seconds,
                    "times have a decimal point, and as milliseconds there would be more than 20 000 requests a second",
                )
            } else {
                shown(points, "times have a decimal point, as in DiskSim's manual")
            };
        }
        if !self.odd {
            return shown(Nanoseconds, "every time is a multiple of 1 000");
        }
        if !self.odd_100 && self.read >= FEW {
            return shown(
                Nanoseconds,
                "every time is a multiple of 100, as Windows' clock in nanoseconds",
            );
        }
        if self.gaps < FEW {
            return shown(Microseconds, "as in most such traces");
        }
        let bursts = self.short * 100 >= self.gaps || self.none * 20 >= self.gaps;
        if !bursts && !self.too_many(Nanoseconds) {
            return shown(
                Nanoseconds,
                "hardly any two requests are less than 1 000 units apart",
            );
        }
        // How many gaps would be below a millisecond if requests came at random.
        let at_random = (1.0 - (-self.rate(Microseconds) / 1e3).exp()) * self.gaps as f64;
        if !bursts && at_random >= FEW as f64 && (self.short as f64) < at_random / 4.0 {
            return shown(
                Nanoseconds,
                "as microseconds fewer requests would be within a millisecond of one another than at random",
            );
        }
        let why = format!(
            "as nanoseconds there would be {:.0} requests a second",
            self.rate(Nanoseconds)
        );
        let burst = self.short as f64 >= 1.5 * at_random;
        Found {
            unit: Microseconds,
            why,
            open: !burst || !self.too_many(Nanoseconds),
        }
    }
}
