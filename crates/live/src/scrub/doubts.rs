//! Extents about which the first look raised a doubt. They are read again until it is cleared or confirmed.

use super::look::{Look, look};
use super::verdict::{Judged, Runs, judge};
use super::{Ended, Scrub};
use crate::loss::Ranges;
use isotherm_core::ExtentId;
use std::time::Duration;

/// Doubts that are collected before they are resolved.
const MANY: usize = 4096;
/// Rounds through all doubts, and looks at each extent in a round.
const ROUNDS: u32 = 12;
const LOOKS: u32 = 3;
/// Longest pause between two rounds.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Doubts(Vec<(ExtentId, (usize, usize))>);

impl Doubts {
    /// Adds blocks `span` of an extent.
    pub fn add(&mut self, e: ExtentId, span: (usize, usize)) {
        self.0.push((e, span));
    }

    pub fn are_many(&self) -> bool {
        self.0.len() >= MANY
    }
}

/// The outcome of another look.
enum Again {
    Cleared,
    Confirmed,
    Unsure,
}

/// Whether nothing was written to the only extent of two looks in between: see the module `scrub`.
fn is_settled(before: &Look, after: &Look) -> bool {
    let (b, a) = (&before.placed[0], &after.placed[0]);
    before.engine == after.engine
        && b.at_rest
        && a.at_rest
        && !a.moved
        && b.home_writes == a.home_writes
}

impl Scrub<'_> {
    /// Reads all doubtful extents again.
    pub(super) fn resolve_doubts(&mut self) -> Result<(), Ended> {
        let mut doubts = std::mem::take(&mut self.doubts.0);
        let mut pause = Duration::from_millis(20);
        for round in 0..ROUNDS {
            if doubts.is_empty() {
                return Ok(());
            }
            if round > 0 {
                self.state.nap(pause)?;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            let mut unsure = Vec::new();
            for (e, span) in doubts {
                if !self.is_resolved(e, span)? {
                    unsure.push((e, span));
                }
            }
            doubts = unsure;
        }
        for (e, (from, to)) in doubts {
            let base = u64::from(e.0) << self.handle.extent_shift();
            let block = self.block()?;
            let range = (base + from as u64 * block, base + to as u64 * block);
            self.found.not_compared.push(range);
        }
        Ok(())
    }

    fn block(&self) -> Result<u64, Ended> {
        let block = self.handle.call(|e, _| e.space().geo.block_bytes());
        block.map(u64::from).ok_or(Ended::Closed)
    }

    fn is_resolved(&mut self, e: ExtentId, span: (usize, usize)) -> Result<bool, Ended> {
        for _ in 0..LOOKS {
            match self.again(e, span)? {
                Again::Cleared | Again::Confirmed => return Ok(true),
                Again::Unsure => {}
            }
        }
        Ok(false)
    }

    /// Reads blocks of an extent once more. What is confirmed becomes a finding.
    fn again(&mut self, e: ExtentId, span: (usize, usize)) -> Result<Again, Ended> {
        let before = self.when_due(&[e], 1 << self.handle.extent_shift())?;
        if before.placed[0].home.is_none() {
            return Ok(Again::Cleared);
        }
        let read = self.reader.one(&before, span, self.state);
        self.state.nap(Duration::ZERO)?;
        let after = look(self.handle, &[e], before.moves)?;
        self.found.read = self.state.progress().read;
        let (b, a) = (&before.placed[0], &after.placed[0]);
        let Some(read) = read.filter(|_| b.is_where(a)) else {
            return Ok(Again::Unsure);
        };
        let judged = judge(b, a, &self.reader.halves(0, &read), after.block);
        if judged.is_well() {
            return Ok(Again::Cleared);
        }
        if !judged.differing.is_empty() && !is_settled(&before, &after) {
            return Ok(Again::Unsure);
        }
        self.confirm(e, &judged, &after);
        Ok(Again::Confirmed)
    }

    fn confirm(&mut self, e: ExtentId, judged: &Judged, look: &Look) {
        let base = u64::from(e.0) << self.handle.extent_shift();
        let block = look.block as u64;
        let add = |to: &mut Ranges, runs: &Runs| {
            let range = |r: &(usize, usize)| (base + r.0 as u64 * block, base + r.1 as u64 * block);
            to.extend(runs.iter().map(range));
        };
        add(&mut self.found.lost, &judged.lost);
        add(&mut self.found.differing, &judged.differing);
        for bad in &judged.bad {
            self.report_bad(e, bad, &look.devices);
        }
    }
}
