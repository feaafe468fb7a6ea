//! `azor`, **reconstructed**: its paper was not available. The rules are those that Loris II–IV and OODT II describe (docs/policy-rules.md
//! section 6).
//!
//! F lines, direct-mapped: unit u may only be in line u mod F. On a miss the newcomer takes the line if the line is free, if the
//! newcomer is metadata and the resident is not, or if both are of the same kind and the newcomer's access count is higher.
//! Write-through: a write updates the copy and the home. A unit counts as metadata if its last access had a metadata class (1…7).
//!
//! Parameters: none. Memory: 4 bytes and 1 bit per extent, 4 bytes per fast slot; a large cache volume refuses it. The lab gives numbers only
//! to extents that are accessed.
//! When not to use it: direct mapping wastes lines if several hot units share a line, and counts never age.

use super::classes::is_metadata;
use super::hold::FAST;
use super::{Access, Action, Outcome, ParamError, Place, Policy, Uses, View, WriteTo};
use crate::bits::Bits;
use crate::volume::{Position, UnitId};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

const NO_HOLDER: u32 = u32::MAX;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Azor {
    /// The unit in each line.
    lines: Vec<u32>,
    counts: Vec<u32>,
    metadata: Bits,
}

impl Azor {
    fn line(&self, e: UnitId) -> usize {
        e.0 as usize % self.lines.len().max(1)
    }
    /// The key by which two units are compared: metadata first, then the access count.
    fn rank(&self, e: u32) -> (bool, u32) {
        (self.metadata.get(e as usize), self.counts[e as usize])
    }
}

impl Policy for Azor {
    fn name(&self) -> &'static str {
        "azor"
    }
    fn uses(&self) -> Uses {
        Uses::Copies
    }
    fn unit_bytes(&self) -> u32 {
        // A counter and a bit.
        5
    }
    fn attach(&mut self, view: &mut View<'_>) {
        let (f, n) = (view.positions(FAST).end, view.units() as usize);
        self.lines = vec![NO_HOLDER; f as usize];
        self.counts = vec![0; n];
        self.metadata = Bits::new(n);
        for e in (0..f).filter_map(|s| view.owner(view.position(s))) {
            let line = self.line(e);
            self.lines[line] = e.0;
        }
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: UnitId) -> Place {
        Place::Tier(view.slowest())
    }
    fn on_copied(&mut self, _view: &mut View<'_>, extent: UnitId, _position: Position) {
        let line = self.line(extent);
        self.lines[line] = extent.0;
    }
    fn on_uncopied(&mut self, _view: &mut View<'_>, extent: UnitId, _position: Position) {
        let line = self.line(extent);
        if self.lines[line] == extent.0 {
            self.lines[line] = NO_HOLDER;
        }
    }
    fn on_discarded(&mut self, _view: &mut View<'_>, extent: UnitId, _position: Position) {
        self.counts[extent.0 as usize] = 0;
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let e = access.extent;
        view.set_last(e, access.now);
        let i = e.0 as usize;
        self.counts[i] = self.counts[i].saturating_add(1);
        self.metadata.fill(i, i + 1, is_metadata(access.class));
        if access.copy.is_some() {
            return;
        }
        let holder = self.lines[self.line(e)];
        if holder != NO_HOLDER {
            if self.rank(e.0) <= self.rank(holder) || view.is_held(UnitId(holder)) {
                return;
            }
            wanted.push(Action::Evict {
                extent: UnitId(holder),
            });
        }
        wanted.push(Action::Fetch {
            extent: e,
            to: FAST,
        });
    }
    fn on_settled(
        &mut self,
        _view: &mut View<'_>,
        _action: Action,
        _how: Outcome,
        _wanted: &mut Vec<Action>,
    ) {
    }
    fn writes_through(&self) -> bool {
        true
    }
    fn write_to(&mut self, _view: &mut View<'_>, _access: &Access) -> WriteTo {
        WriteTo::Both
    }
    fn set(&mut self, _key: &str, _value: f64) -> Result<(), ParamError> {
        Err(ParamError::Unknown(String::new()))
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let idle = view.last_words(extent);
        let kind = |e: u32| match self.rank(e) {
            (true, n) => format!("metadata, {n} accesses"),
            (false, n) => format!("data, {n} accesses"),
        };
        let line = self.line(extent);
        let holder = match self.lines[line] {
            h if h == extent.0 => String::from("it has the line"),
            NO_HOLDER => String::from("nobody has the line: the next access takes it"),
            h => format!(
                "extent {h} has the line ({}); it takes more to get it",
                kind(h)
            ),
        };
        format!("{}, {idle}; line {line}: {holder}", kind(extent.0))
    }
    fn bytes(&self) -> usize {
        (self.lines.len() + self.counts.len()) * 4 + self.metadata.bytes()
    }
}
