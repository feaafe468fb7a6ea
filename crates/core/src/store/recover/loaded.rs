//! The state of a volume while records of a checkpoint and of the journal are applied to it.

use super::super::checkpoint::Header;
use super::super::counter::{self, Known};
use super::super::error::OpenError;
use super::super::journal::Tip;
use super::super::mutants::broken;
use super::super::record::{self, CleanIf, Entry};
use super::super::report::Report;
use super::super::session::Session;
use super::super::superblock::Superblock;
use super::super::{Carrier, Layout, Media};
use super::copies::{Blocks, Copies, Copy};
use crate::mutants::Mutant;
use crate::units::{ExtentId, Nanos};
use crate::volume::Space;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Number of blocks that are read at a time.
pub(in crate::store) const CHUNK: usize = 256;

/// The state of the volume according to the devices.
pub(in crate::store) struct Loaded {
    pub(in crate::store) highest: u64,
    pub(in crate::store) space: Space,
    /// Copies according to the records so far that are not in the map yet.
    pub(super) copies: Copies,
    pub(in crate::store) tip: Tip,
    pub(in crate::store) checkpoint: Header,
    pub(in crate::store) time: Nanos,
    /// The values of members' counters in checkpoint and journal.
    pub(in crate::store) counters: Known,
    /// Damaged blocks of the checkpoint, each with its place and its index.
    pub(in crate::store) bad: Vec<(Carrier, u32)>,
    /// Blocks of the checkpoint that no member has.
    pub(in crate::store) gaps: Vec<u32>,
    /// Extents of which these blocks may have had records, as ranges with exclusive ends.
    pub(super) lost: Vec<(u32, u32)>,
    /// Extents for which the journal has a record, if records of the checkpoint are lost.
    restated: BTreeSet<u32>,
    /// Whether the primary's ring contains no complete block, although it was in use and no needed block is known to be missing.
    pub(in crate::store) void: bool,
    /// First and last extent of the records of the checkpoint block that was applied last.
    pub(super) stated: Option<(u32, u32)>,
}

/// The sources and settings of recovery.
#[derive(Clone, Copy)]
pub(in crate::store) struct From<'a> {
    pub(in crate::store) sb: &'a Superblock,
    /// The layout as created.
    pub(in crate::store) layout: Layout,
    pub(in crate::store) session: Session,
    /// Primary and mirror, as far as they are present.
    pub(in crate::store) sources: &'a [Carrier],
    /// Every journal block up to this number was durable ([`crate::store::evidence`]).
    pub(in crate::store) flushed: u64,
    /// Whether every member that carried metadata in the last session is present. Then journal blocks may be used as proof that earlier
    /// blocks were durable.
    pub(in crate::store) whole: bool,
    /// Whether to continue if records of the checkpoint are damaged on all members.
    pub(in crate::store) accept_loss: bool,
}

impl Loaded {
    pub(super) fn new(
        from: &From<'_>,
        h: Header,
        highest: u64,
        counters: Known,
    ) -> Result<Loaded, OpenError> {
        Ok(Loaded {
            highest,
            space: Space::new(from.sb.geometry().map_err(OpenError::BadRecord)?),
            copies: Copies::default(),
            tip: h.start,
            checkpoint: h,
            time: h.time,
            counters,
            bad: Vec::new(),
            gaps: Vec::new(),
            lost: Vec::new(),
            restated: BTreeSet::new(),
            void: false,
            stated: None,
        })
    }
    /// The state of a cache volume whose flash is all missing: no copies. Journal numbers begin at `next`.
    pub(in crate::store) fn without_journal(
        from: &From<'_>,
        next: u64,
        time: Nanos,
    ) -> Result<Loaded, OpenError> {
        let none = Header {
            number: 1,
            start: Tip {
                next_seq: next,
                epoch: from.session.epoch,
                crc: 0,
            },
            blocks: 0,
            time,
        };
        let mut loaded = Loaded::new(from, none, none.number, Known::new())?;
        let twice = |_| OpenError::BadRecord("a home twice");
        loaded.space.rebuild().map_err(twice)?;
        Ok(loaded)
    }
    /// The extents whose records are lost and not repeated in the journal.
    pub(super) fn lost_extents(&self) -> Vec<(ExtentId, ExtentId)> {
        let mut out = Vec::new();
        for &(from, to) in &self.lost {
            let mut at = from;
            for &e in self.restated.range(from..to) {
                if e > at {
                    out.push((ExtentId(at), ExtentId(e)));
                }
                at = e + 1;
            }
            if at < to {
                out.push((ExtentId(at), ExtentId(to)));
            }
        }
        out
    }
    /// Notes that the checkpoint's records of extents `from..to` are lost. In a cache volume the records are in the order of the copies' slots,
    /// so the lost ones may be those of any extents.
    pub(super) fn gap(&mut self, from: u32, to: u32) {
        if self.space.geo.is_cache() {
            self.lost = alloc::vec![(0, self.space.geo.extents)];
        } else if from < to {
            self.lost.push((from, to));
        }
        self.restated.clear();
    }
}

/// Which clean blocks of copies count. (An older checkpoint can be used only with the whole journal since then, so it lacks no withdrawal.)
#[derive(Clone, Copy)]
pub(super) struct Trust {
    /// The session ended cleanly.
    pub(super) was_clean: bool,
    /// Of any session, then (a mutant).
    pub(super) any_epoch: bool,
    /// Claims count: [`Superblock::has_claims`], and no member is missing.
    pub(super) claims: bool,
    /// The number of the block of the journal. For a checkpoint: of the last block before it, because a checkpoint may begin where a session
    /// does whose predecessors' claims are void.
    pub(super) at: u64,
}

impl Trust {
    /// At this block of the journal.
    pub(super) fn of<M: Media + ?Sized>(
        media: &M,
        from: &From<'_>,
        report: &Report,
        at: u64,
    ) -> Trust {
        Trust {
            was_clean: report.was_clean,
            any_epoch: broken(media, Mutant::TrustOldClean),
            claims: from.sb.has_claims() && report.missing.is_empty(),
            at,
        }
    }
    fn counts(self, sb: &Superblock, clean_if: CleanIf) -> bool {
        // Without a claim, clean blocks are valid only if exactly that session was the last one and was closed, because later writes to the
        // homes would not have been recorded here.
        let closed = self.was_clean && (clean_if.is_session(sb.epoch) || self.any_epoch);
        let claimed = clean_if.is_session(sb.clean_epoch)
            || (clean_if == CleanIf::Claimed && self.at >= sb.claims_from);
        let mutant = cfg!(feature = "mutants") && clean_if == CleanIf::Any;
        closed || (self.claims && claimed) || mutant
    }
}

/// Applies the records in `units` of one block; returns their number.
pub(super) fn apply(
    sb: &Superblock,
    loaded: &mut Loaded,
    units: &[u8],
    trust: Trust,
) -> Result<u64, OpenError> {
    let blocks = 1u32 << (sb.extent_shift - sb.block_shift);
    loaded.space.map.fetch(record::extents(units, blocks));
    let (mut at, mut n) = (0, 0);
    while let Some((entry, used)) =
        record::decode(&units[at..], blocks).map_err(OpenError::BadRecord)?
    {
        at += used * 16;
        n += 1;
        let r = match entry {
            Entry::Extent(r) => r,
            Entry::Counter { member, value } => {
                counter::learn(&mut loaded.counters, member, value);
                continue;
            }
        };
        let (home, copy) = record::resolve(&r, &loaded.space.geo).map_err(OpenError::BadRecord)?;
        let map = &mut loaded.space.map;
        map.load(r.extent, home);
        match r.valid {
            record::Set::All => {}
            record::Set::Some(v) => map.import_valid(r.extent, v),
            record::Set::None => {
                map.invalidate(r.extent, 0, blocks);
            }
        }
        let copy = r.copy.zip(copy).map(|(c, slot)| {
            let counts = trust.counts(sb, c.clean_if);
            let clean = if counts { c.clean } else { record::Set::None };
            Copy {
                slot,
                stat: r.stat,
                last: r.last,
                dirty: Blocks::of(c.dirty, blocks),
                clean: Blocks::of(clean, blocks),
            }
        });
        loaded.copies.state(&mut loaded.space, r.extent, copy);
        let e = r.extent.0;
        loaded.stated = Some(loaded.stated.map_or((e, e), |s| (s.0, e)));
        if !loaded.lost.is_empty() {
            loaded.restated.insert(e);
        }
        // In a cache volume only copies have statistics on the devices, and they get them when the map has the copies.
        if !r.is_fixed {
            loaded.space.map.set_stat(r.extent, r.stat);
            loaded.space.map.set_last(r.extent, r.last);
        }
        loaded.time = loaded.time.max(r.last);
    }
    Ok(n)
}
