//! Requests that are in a trace twice: a driver that puts a request back and issues it again, or a tracer at two levels of one device.

use std::collections::VecDeque;

use crate::record::Record;

/// Requests among which a repetition is looked for.
const NEAR: usize = 64;
/// A repetition comes within this time, in nanoseconds.
const SOON: u64 = 1_000_000;
/// The share of repetitions above which the trace is doubted: one of so many. Rewriting a block in memory takes longer, and few programs ask
/// twice for the same data at once.
const DOUBTED: u64 = 20;
/// With fewer requests than this, the share says nothing.
const FEW: u64 = 100;

/// Counts requests that equal one just before them.
#[derive(Default)]
pub(crate) struct Repeats {
    recent: VecDeque<Record>,
    all: u64,
    repeated: u64,
    /// Whether some time is no whole second: a clock of seconds says nothing about what comes soon.
    fine: bool,
}

impl Repeats {
    pub(crate) fn add(&mut self, r: &Record) {
        let same = |o: &Record| {
            (o.offset, o.len, o.op, o.device) == (r.offset, r.len, r.op, r.device)
                && r.time.since(o.time).0 <= SOON
        };
        self.all += 1;
        self.fine |= !r.time.0.is_multiple_of(1_000_000_000);
        self.repeated += u64::from(self.recent.iter().rev().any(same));
        if self.recent.len() == NEAR {
            self.recent.pop_front();
        }
        self.recent.push_back(*r);
    }

    /// The doubt, in a sentence, if many requests of a trace with times are repeated.
    pub(crate) fn doubted(&self, timed: bool) -> Option<String> {
        let many = self.all >= FEW && self.repeated * DOUBTED >= self.all;
        (timed && self.fine && many).then(|| {
            format!(
                "{} of {} requests repeat one just before them, with the same operation, place and size within 1 ms: a driver may have issued them again, or two levels of the system were traced.",
                self.repeated, self.all
            )
        })
    }
}
