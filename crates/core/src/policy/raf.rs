//! `raf` (random access first), **reconstructed**: its paper was not available. The rules are those that OODT II–IV and Loris II–IV
//! describe (docs/policy-rules.md section 6).
//!
//! A request is sequential if it continues one of the last 32 streams or has at least `sequential` bytes. A sequential request makes no
//! copy. A unit that is read at random gets a copy at its second access; the least recently used copy is evicted first. Random writes go to
//! a write share; when it is full, its least recently used copies are written home.
//!
//! | parameter | range | default | unit |
//! |---|---|---|---|
//! | sequential | 512…2³¹ | 65536 | bytes from which a request counts as sequential by itself |
//! | write_share | 0…1 | 0.1 | part of the fast tier for writes; at least one slot, and one for reads where there are two |
//!
//! Memory: 9 bytes per fast slot. Whether an extent had a random access is one of the bits that the volume keeps for it: in a cache volume a
//! first access is forgotten once as many other extents were accessed as flash has slots, but at least 2^20. When not to use it: for data that is read sequentially several times, because it never
//! copies this.

use super::hold::FAST;
use super::shares::Shares;
use super::{Access, Action, Outcome, ParamError, Place, Policy, Uses, View, param};
use crate::collector::Streams;
use crate::volume::{Position, UnitId};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

const READ: u8 = 0;
const WRITE: u8 = 1;
/// The bits of an extent that has had a random access.
const SEEN: u16 = 1;

/// See the module.
#[derive(Clone, Debug)]
pub struct Raf {
    sequential: u32,
    write_share: f64,
    streams: Streams,
    shares: Shares,
}

impl Default for Raf {
    fn default() -> Raf {
        Raf {
            sequential: 65_536,
            write_share: 0.1,
            streams: Streams::default(),
            shares: Shares::default(),
        }
    }
}

/// Number of slots for writes: the share of `f`, at least one, and not all if there are two or more.
pub(super) fn part(f: u32, share: f64) -> u32 {
    let whole = (f64::from(f) * share) as u32;
    whole.clamp(1, f.saturating_sub(1).max(1))
}

impl Policy for Raf {
    fn name(&self) -> &'static str {
        "raf"
    }
    fn uses(&self) -> Uses {
        Uses::Copies
    }
    fn attach(&mut self, view: &mut View<'_>) {
        let f = view.positions(FAST).end;
        let writes = part(f, self.write_share);
        self.shares = Shares::new(view, vec![f - writes, writes]);
        view.forget_stats();
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: UnitId) -> Place {
        Place::Tier(view.slowest())
    }
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        self.shares.arrived(view, extent, position.index());
    }
    fn on_uncopied(&mut self, _view: &mut View<'_>, _extent: UnitId, position: Position) {
        self.shares.remove(position.index());
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let extent = access.extent;
        view.set_last(extent, access.now);
        let continues = self.streams.note(access).0;
        if let Some(s) = access.copy {
            return self.shares.touch(s.index());
        }
        if self.shares.is_coming(extent) {
            return;
        }
        if continues || access.request_bytes >= self.sequential {
            return;
        }
        let second = view.stat(extent) == SEEN;
        view.set_stat(extent, SEEN);
        if !access.write && !second {
            return;
        }
        let share = if access.write { WRITE } else { READ };
        if self.shares.limit(share) == 0 {
            return;
        }
        if !self.shares.make_room(view, share, extent, wanted) {
            return;
        }
        self.shares.expect(extent, share);
        wanted.push(if access.write {
            Action::Allocate { extent, to: FAST }
        } else {
            Action::Fetch { extent, to: FAST }
        });
    }
    fn on_settled(
        &mut self,
        _view: &mut View<'_>,
        action: Action,
        how: Outcome,
        _wanted: &mut Vec<Action>,
    ) {
        if how != Outcome::Done {
            self.shares.failed(action.extent());
        }
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        match key {
            "sequential" => {
                let what = "bytes, a whole number from 512 to 2^31";
                self.sequential = param::whole(value, 512.0, 2_147_483_648.0, what)? as u32;
            }
            "write_share" => {
                self.write_share = param::within(value, 0.0, 1.0, "a part from 0 to 1")?;
            }
            _ => {
                let names = ["sequential", "write_share"];
                return Err(ParamError::Unknown(super::nearest(key, names.into_iter())));
            }
        }
        Ok(())
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("sequential", f64::from(self.sequential)),
            ("write_share", self.write_share),
        ]
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let idle = view.last_words(extent);
        let what = match view.copy(extent) {
            Some(s) if self.shares.of(s.index()) == WRITE => {
                view.either("a copy in the write share", "on the fast tier, in the write share")
            }
            Some(_) => view.either("a copy in the read share", "on the fast tier, in the read share"),
            None if view.stat(extent) == SEEN => view.either(
                "no copy, one random access so far; the next random read makes one",
                "not on the fast tier, one random access so far; the next random read brings it there",
            ),
            None => view.either(
                "no copy and no random access so far",
                "not on the fast tier, no random access so far",
            ),
        };
        format!("{what}; {idle}")
    }
    fn bytes(&self) -> usize {
        self.shares.bytes() + self.streams.bytes()
    }
}
