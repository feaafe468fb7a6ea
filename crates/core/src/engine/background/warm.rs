//! Data that the user wants on flash ([`Engine::warm`]): it is copied in idle time, in the order of addresses.
//!
//! A copy is made as a policy's fetch is made, with the same checks, limits and budgets, and like every clean copy it needs no record: a
//! power loss ends the work, and nothing has to be recovered. Three rules are of its own:
//!
//! - It never evicts: an extent without a copy gets one only in a free slot. Without a free slot only copies that lack blocks are completed.
//! - It begins a batch of copies only if no request has needed the slowest tier for [`QUIET`].
//! - What was lost with earlier flash gets no copy, because it cannot be read (`WarmOfLost`).
//!
//! It ends when another policy takes over, because the new one may have no use for copies, and when flash fails a write. An engine that is
//! opened anew knows nothing about it.
//!
//! [`Engine::warm`]: crate::Engine::warm

use super::sleep::ASK_AGAIN;
use super::{Background, SLOTS_PER_STEP};
use crate::engine::globals::Globals;
use crate::engine::parts::Parts;
use crate::mutants::Mutant;
use crate::policy::{Outcome, Refusal};
use crate::units::{ExtentId, Nanos, TierId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// Largest number of ranges that can be asked for at once: 512 KiB of memory.
pub const WARM_RANGES_MAX: usize = 1 << 16;
/// Time without a request for the slowest tier after which a batch begins. `benefit` cleans after the same time.
const QUIET: Nanos = Nanos::from_millis(50);
/// Delay before the next look, so that a long list does not stall requests.
const NEXT: Nanos = Nanos::from_millis(1);
/// Delay before the next attempt, if nothing can be copied now.
const AGAIN: Nanos = Nanos::from_millis(20);
/// Number of attempts after which an extent that is always in use is left out.
const TRIES: u8 = 50;

/// Reason why nothing can be copied to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmError {
    /// A tiering volume keeps no copies.
    NoCopies,
    /// The write mode is `pass-through`, which makes no copies.
    PassThrough,
    /// A member is missing, or the flash was removed.
    Missing,
    /// The volume is closing, failed, or serves reads only.
    Closed,
    /// It is being done already.
    AtWork,
    /// The ranges are not in order, overlap, are empty, reach beyond the volume, or are more than [`WARM_RANGES_MAX`].
    Ranges,
}

impl fmt::Display for WarmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WarmError::NoCopies => f.write_str(
                "this is a tiering volume, which keeps no copies: its policy moves data to flash itself",
            ),
            WarmError::PassThrough => f.write_str(
                "the write mode is pass-through, which makes no copies: choose another one (`isotherm set VOLUME write-mode=write-back`)",
            ),
            WarmError::Missing => f.write_str(
                "a member of the volume is missing, or its flash was removed: `isotherm status` says which; see `isotherm replace` and `isotherm cache add`",
            ),
            WarmError::Closed => f.write_str("the volume is closing, failed or read-only"),
            WarmError::AtWork => f.write_str(
                "data is being copied to flash already: wait for its end, or end it with `isotherm warm VOLUME --stop`",
            ),
            WarmError::Ranges => write!(
                f,
                "the ranges must be in order, on the volume, and at most {WARM_RANGES_MAX}"
            ),
        }
    }
}

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmEnd {
    /// Every extent was looked at.
    Complete,
    /// The user has ended it.
    Stopped,
    /// Another policy or write mode took over.
    Policy,
    /// Flash failed a write.
    Flash,
    /// The volume is closing or has failed.
    Closed,
}

/// How far the copying is that the user has asked for. All numbers but the time are extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warmed {
    /// When it was asked for.
    pub asked: Nanos,
    /// Those that were asked for.
    pub wanted: u32,
    /// Copied to flash, completely or what was missing of the copy.
    pub copied: u32,
    /// All of it was there, or it has no data.
    pub there: u32,
    /// Left out because the disk cannot read it, or because it was lost with earlier flash.
    pub unreadable: u32,
    /// Left out because flash had no free slot.
    pub full: u32,
    /// Left out because requests used it whenever it was tried.
    pub in_use: u32,
    /// Why it has ended; `None`: it goes on.
    pub end: Option<WarmEnd>,
}

/// The work itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Warming {
    /// What is left, in order, the last range first.
    ranges: Vec<Range<u32>>,
    /// Extents that were in use, with the number of attempts.
    again: VecDeque<(ExtentId, u8)>,
    /// The extents that are being copied, with the number of attempts.
    under_way: Vec<(ExtentId, u8)>,
    /// Time of the next step. `None`: nothing to do, or copies are under way.
    next: Option<Nanos>,
    /// Whether a budget or limit has refused the last copy.
    throttled: bool,
    report: Option<Warmed>,
}

impl Warming {
    fn is_on(&self) -> bool {
        self.report.is_some_and(|r| r.end.is_none())
    }
    fn begin(&mut self, now: Nanos, mut ranges: Vec<Range<u32>>) {
        let wanted = ranges.iter().map(|r| r.end - r.start).sum();
        ranges.reverse();
        let report = Warmed {
            asked: now,
            wanted,
            copied: 0,
            there: 0,
            unreadable: 0,
            full: 0,
            in_use: 0,
            end: None,
        };
        *self = Warming {
            ranges,
            next: Some(now),
            report: Some(report),
            ..Warming::default()
        };
    }
    fn end(&mut self, how: WarmEnd) {
        if self.is_on() {
            let report = self.report.map(|r| Warmed {
                end: Some(how),
                ..r
            });
            *self = Warming {
                report,
                ..Warming::default()
            };
        }
    }
    fn report(&mut self, change: impl FnOnce(&mut Warmed)) {
        if let Some(r) = &mut self.report {
            change(r);
        }
    }
    /// Takes the next extent, with the number of attempts so far. `old`: how many that were in use may be tried again in this step.
    fn take(&mut self, old: &mut usize) -> Option<(ExtentId, u8)> {
        if let Some(range) = self.ranges.last_mut() {
            let e = ExtentId(range.start);
            range.start += 1;
            if range.start >= range.end {
                self.ranges.pop();
            }
            return Some((e, 0));
        }
        *old = old.checked_sub(1)?;
        self.again.pop_front()
    }
    /// An extent is in use: it is tried again, if that is worth it.
    fn in_use(&mut self, e: ExtentId, tries: u8) {
        if tries < TRIES {
            self.again.push_back((e, tries + 1));
        } else {
            self.report(|r| r.in_use += 1);
        }
    }
    /// An extent could not be tried at all.
    fn put_back(&mut self, e: ExtentId, tries: u8) {
        if tries > 0 {
            self.again.push_front((e, tries));
        } else {
            match self.ranges.last_mut() {
                Some(r) if r.start == e.0 + 1 => r.start = e.0,
                _ => self.ranges.push(e.0..e.0 + 1),
            }
        }
    }
}

impl Background {
    /// The time of the next step of the copying that the user has asked for.
    #[inline]
    pub(in crate::engine) fn warm_due(&self) -> Option<Nanos> {
        self.warming.next
    }
    /// How far it is; `None`: nobody has asked.
    pub(in crate::engine) fn warmed(&self) -> Option<Warmed> {
        self.warming.report
    }
    pub(in crate::engine) fn is_warming(&self) -> bool {
        self.warming.is_on()
    }
    pub(in crate::engine) fn begin_warming(&mut self, now: Nanos, ranges: Vec<Range<u32>>) {
        self.warming.begin(now, ranges);
    }
    pub(in crate::engine) fn end_warming(&mut self, how: WarmEnd) {
        self.warming.end(how);
    }
    /// Whether a batch of held work must go on for it.
    pub(super) fn warms_in_batch(&self) -> bool {
        self.warming.is_on() && !self.warming.throttled
    }
    /// Makes the next step due now, if there is one: a batch of background work begins, and this belongs to it.
    pub(super) fn make_warming_due(&mut self, now: Nanos) {
        let w = &mut self.warming;
        w.throttled = false;
        w.next = w.next.map(|t| t.min(now));
    }
}

impl Globals {
    /// A copy that was made because the user asked for it has ended. `writing`: it had come to the write.
    pub(in crate::engine) fn warm_ended(&mut self, e: ExtentId, how: Outcome, writing: bool) {
        let w = &mut self.background.warming;
        let Some(i) = w.under_way.iter().position(|u| u.0 == e) else {
            return;
        };
        let (_, tries) = w.under_way.swap_remove(i);
        match how {
            Outcome::Done => w.report(|r| r.copied += 1),
            Outcome::Failed if writing => return w.end(WarmEnd::Flash),
            Outcome::Failed => w.report(|r| r.unreadable += 1),
            Outcome::Stale | Outcome::Refused(_) => w.in_use(e, tries),
        }
        if w.under_way.is_empty() {
            w.next = Some(self.clock);
        }
    }

    /// The time for which the next batch must wait, because requests need the slowest tier.
    fn until_quiet(&self) -> Option<Nanos> {
        let load = self.space.loads.load(self.space.geo.slowest(), self.clock);
        match load.waiting {
            0 if load.quiet >= QUIET => None,
            0 => Some(QUIET.since(load.quiet)),
            _ => Some(QUIET),
        }
    }
}

impl Parts<'_> {
    /// Begins to copy the next extents that the user wants on flash.
    pub(in crate::engine) fn warm_step(&mut self) {
        let now = self.globals.clock;
        if let Some(wait) = self.globals.until_quiet() {
            self.warming().next = Some(now + wait);
            return;
        }
        // Uses at most half of the buffers, because the policy needs some, too.
        let most = (self.relocation.buffers() / 2).max(1);
        let mut old = self.warming().again.len();
        let mut wait = NEXT;
        self.warming().throttled = false;
        for _ in 0..SLOTS_PER_STEP {
            let Some((e, tries)) = self.warming().take(&mut old) else {
                wait = AGAIN;
                break;
            };
            self.globals.steps += 1;
            if let Err(later) = self.warm_extent(e, tries) {
                wait = later;
                break;
            }
            if self.warming().under_way.len() >= most {
                break;
            }
        }
        let w = self.warming();
        let at_work = !w.under_way.is_empty();
        let left = !w.ranges.is_empty() || !w.again.is_empty();
        w.next = (left && !at_work).then_some(now + wait);
        if !left && !at_work {
            w.end(WarmEnd::Complete);
        }
    }

    /// Begins to copy an extent, or notes why not.
    ///
    /// # Errors
    /// Nothing can be copied now; holds the time to wait.
    fn warm_extent(&mut self, e: ExtentId, tries: u8) -> Result<(), Nanos> {
        let g = &mut *self.globals;
        if g.space.lost.is_open(e) && !g.broken(Mutant::WarmOfLost) {
            self.warming().report(|r| r.unreadable += 1);
            return Ok(());
        }
        let is_full = g.space.map.copy(e).is_none() && g.space.slots.free(TierId(0)) == 0;
        let how = if is_full {
            Err(Refusal::Full)
        } else {
            self.relocation.warm(self.globals, self.durability, e)
        };
        let w = self.warming();
        match how {
            Ok(()) => w.under_way.push((e, tries)),
            Err(Refusal::Pointless) => w.report(|r| r.there += 1),
            Err(Refusal::Full) => w.report(|r| r.full += 1),
            Err(Refusal::Busy) => w.in_use(e, tries),
            Err(why) => {
                w.put_back(e, tries);
                w.throttled = why != Refusal::Asleep;
                let soon = matches!(why, Refusal::Limit | Refusal::MetadataFlush);
                return Err(if soon { AGAIN } else { ASK_AGAIN });
            }
        }
        Ok(())
    }

    fn warming(&mut self) -> &mut Warming {
        &mut self.globals.background.warming
    }
}
