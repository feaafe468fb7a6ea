//! Recovery: the newest complete checkpoint, then the journal. Blocks that one copy lacks are taken from the other copy.

mod replay;

use super::checkpoint::{self, Header};
use super::counter::{self, Known};
use super::error::OpenError;
use super::heal::{Part, Repair, broken};
use super::journal::{self, Tip};
use super::open::Report;
use super::record::{self, Entry};
use super::superblock::{Follow, Superblock};
use super::{BLOCK, HEADER, Layout, Media};
use crate::engine::Mutant;
use crate::units::{ExtentId, MemberId, Nanos, Slot};
use crate::volume::Space;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use replay::replay;

/// Blocks that are read at a time.
pub(super) const CHUNK: usize = 256;

/// The last session that may have written to the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) epoch: u64,
    pub(super) first_seq: u64,
    /// The guarantee of its metadata.
    pub(super) follow: Follow,
    /// The member that carried metadata in it wrote everything that it acknowledged, so a gap is damage.
    pub(super) sole: bool,
    /// If it ended cleanly: the next journal number.
    pub(super) closed: Option<u64>,
}

impl Session {
    /// Whether this block may be part of the journal. Its place in the chain alone is no proof: the torn remains of a block that an earlier
    /// session lost can be completed by a torn write of a later session to the same place, if both have the same bytes. From a session's
    /// first number on, only blocks of its own epoch count.
    pub(super) fn allows(&self, h: &journal::BlockHeader) -> bool {
        h.seq < self.first_seq || h.epoch == self.epoch
    }
}

/// The last record of an extent's copy: its slot, and the state of its blocks.
struct Copy {
    slot: Slot,
    dirty: Blocks,
    clean: Blocks,
}

/// A stored set of blocks of an extent. There may be millions of these while a volume is opened.
enum Blocks {
    None,
    All,
    Some(Box<[u8]>),
}

impl Blocks {
    fn of(set: record::Set<'_>, blocks: u32) -> Blocks {
        match set {
            record::Set::None => Blocks::None,
            record::Set::All => Blocks::All,
            record::Set::Some(_) if !(0..blocks).any(|b| set.has(b)) => Blocks::None,
            record::Set::Some(bits) => Blocks::Some(bits.into()),
        }
    }
    fn is_none(&self) -> bool {
        matches!(self, Blocks::None)
    }
    fn has(&self, b: u32) -> bool {
        match self {
            Blocks::None => false,
            Blocks::All => true,
            Blocks::Some(bits) => record::Set::Some(bits).has(b),
        }
    }
}

/// The state of the volume according to the devices.
pub(super) struct Loaded {
    pub(super) highest: u64,
    pub(super) space: Space,
    /// Copies as recorded so far. They are kept beside the map until the end, because two extents may temporarily seem to have a copy in
    /// the same slot while records are applied.
    copies: BTreeMap<u32, Copy>,
    pub(super) tip: Tip,
    pub(super) checkpoint: Header,
    pub(super) time: Nanos,
    /// Whether the session says that the mirror may lag behind what it acknowledged.
    pub(super) lazy: bool,
    /// The values of members' counters in checkpoint and journal.
    pub(super) counters: Known,
    /// Damaged blocks of the checkpoint, each with its member.
    pub(super) bad: Vec<(MemberId, u32)>,
    /// Blocks that no member has.
    pub(super) gaps: Vec<u32>,
    /// Extents of which these blocks may have had records, as ranges with exclusive ends.
    lost: Vec<(u32, u32)>,
    /// Those of these extents for which the journal has a record.
    restated: BTreeSet<u32>,
    /// Whether the primary's ring has no block left, although nothing that was in it is missing.
    pub(super) void: bool,
    /// First and last extent of the records that were applied since the last query.
    stated: Option<(u32, u32)>,
}

/// The sources of recovery, and its settings.
#[derive(Clone, Copy)]
pub(super) struct From<'a> {
    pub(super) sb: &'a Superblock,
    /// The layout as created.
    pub(super) layout: Layout,
    pub(super) session: Session,
    /// Those of primary and mirror that are present.
    pub(super) sources: &'a [MemberId],
    /// Every journal block up to this number was durable ([`super::evidence`]).
    pub(super) flushed: u64,
    /// Whether the statements of journal blocks about other members refer to members that are present.
    pub(super) whole: bool,
    /// Whether to continue without records that no copy of the checkpoint has.
    pub(super) accept_loss: bool,
}

/// Loads the newest checkpoint that is complete, combined from primary and mirror if needed, and replays the journal from it. If that
/// fails, older checkpoints are tried.
pub(super) fn load<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    report: &mut Report,
) -> Result<Loaded, OpenError> {
    let candidates = candidates(media, from);
    let highest = candidates.iter().map(|c| c.0.number).max().unwrap_or(0);
    let mut why = None;
    // A loss is accepted only if no older checkpoint works without a loss.
    for accept in [false, true] {
        if accept && !from.accept_loss {
            break;
        }
        for (h, m, counters) in &candidates {
            let mut loaded = Loaded::new(from, *h, highest, counters.clone())?;
            let mut r = Report {
                from_mirror: u64::from(*m != from.layout.primary),
                ..report.clone()
            };
            match attempt(media, from, accept, &mut loaded, &mut r) {
                Ok(()) => {
                    *report = r;
                    return Ok(loaded);
                }
                // The error of the newest checkpoint is the most useful one, with a loss accepted if that was requested.
                Err(e) if why.is_none() || (accept && h.number == highest) => why = Some(e),
                Err(_) => {}
            }
        }
    }
    Err(why.unwrap_or(OpenError::NoCheckpoint))
}

/// The headers that were found, newest first; on ties the primary's.
fn candidates<M: Media + ?Sized>(media: &mut M, from: &From<'_>) -> Vec<(Header, MemberId, Known)> {
    let mut candidates: Vec<(Header, MemberId, Known)> = Vec::new();
    let mut block = vec![0; BLOCK];
    for &m in from.sources {
        for region in 0..2 {
            let at = from.layout.area.region_offset(region);
            if media.read(m, at, &mut block).is_ok()
                && let Some(h) = Header::decode(&block, &from.sb.uuid)
                    .filter(|h| Header::region(h.number) == region)
                && !candidates.iter().any(|c| c.0 == h)
            {
                let known = Header::counters(&block).unwrap_or_default();
                candidates.push((h, m, known));
            }
        }
    }
    candidates.sort_by_key(|(h, m, _)| (core::cmp::Reverse(h.number), *m != from.sources[0]));
    candidates
}

impl Loaded {
    fn new(from: &From<'_>, h: Header, highest: u64, counters: Known) -> Result<Loaded, OpenError> {
        Ok(Loaded {
            highest,
            space: Space::new(from.sb.geometry().map_err(OpenError::BadRecord)?),
            copies: BTreeMap::new(),
            tip: h.start,
            checkpoint: h,
            time: h.time,
            lazy: h.lazy == Some(from.session.epoch),
            counters,
            bad: Vec::new(),
            gaps: Vec::new(),
            lost: Vec::new(),
            restated: BTreeSet::new(),
            void: false,
            stated: None,
        })
    }
    /// Extents whose home is unknown.
    fn lost_extents(&self) -> Vec<(ExtentId, ExtentId)> {
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
}

fn attempt<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    accept: bool,
    loaded: &mut Loaded,
    report: &mut Report,
) -> Result<(), OpenError> {
    read_checkpoint(media, from, accept, loaded, report)?;
    replay(media, from, loaded, report)?;
    report.lost_extents = loaded.lost_extents();
    let twice = |_| OpenError::BadRecord(TWICE);
    loaded.space.rebuild().map_err(twice)?;
    place_copies(loaded)
}

const TWICE: &str = "two extents claim one slot";

/// Gives the extents their valid copies. (After a crash only the dirty blocks of a copy are known: for the others it is unknown whether
/// they still equal the home. See `apply`.)
fn place_copies(loaded: &mut Loaded) -> Result<(), OpenError> {
    let space = &mut loaded.space;
    for (e, c) in core::mem::take(&mut loaded.copies) {
        let e = ExtentId(e);
        if !space.slots.take(c.slot) {
            return Err(OpenError::BadRecord(TWICE));
        }
        space.map.add_empty_copy(e, c.slot);
        let blocks = space.geo.blocks_per_extent();
        let mut b = 0;
        while b < blocks {
            let (dirty, clean) = (c.dirty.has(b), c.clean.has(b));
            let alike = |x: &u32| (c.dirty.has(*x), c.clean.has(*x)) == (dirty, clean);
            let mut to = b + (b..blocks).take_while(alike).count() as u32;
            if dirty {
                space.map.copy_dirty(e, b, to);
            } else if clean {
                let (n, valid) = space.map.run(e, b, to);
                to = b + n;
                if valid {
                    space.map.copy_validate(e, b, to);
                }
            }
            b = to;
        }
        // A later record must contradict this one before the slot may be given to another extent.
        space.map.set_recorded(c.slot, !c.dirty.is_none());
    }
    Ok(())
}

fn apply(
    sb: &Superblock,
    loaded: &mut Loaded,
    units: &[u8],
    was_clean: bool,
    any_epoch: bool,
) -> Result<u64, OpenError> {
    let blocks = 1u32 << (sb.extent_shift - sb.block_shift);
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
        if let Some((c, slot)) = r.copy.zip(copy) {
            // Clean blocks are valid only if that very session was the last one and was closed, because later writes to the homes did not
            // record them.
            let mutant = cfg!(feature = "mutants") && c.epoch == record::ANY_EPOCH;
            let trusted = (was_clean && (c.epoch == sb.epoch || any_epoch)) || mutant;
            let clean = if trusted { c.clean } else { record::Set::None };
            let copy = Copy {
                slot,
                dirty: Blocks::of(c.dirty, blocks),
                clean: Blocks::of(clean, blocks),
            };
            if !copy.dirty.is_none() || !copy.clean.is_none() {
                loaded.copies.insert(r.extent.0, copy);
            } else {
                loaded.copies.remove(&r.extent.0);
            }
        } else if !loaded.copies.is_empty() {
            loaded.copies.remove(&r.extent.0);
        }
        let e = r.extent.0;
        loaded.stated = Some(loaded.stated.map_or((e, e), |s| (s.0, e)));
        if !loaded.lost.is_empty() {
            loaded.restated.insert(e);
        }
        loaded.space.map.set_stat(r.extent, r.stat);
        loaded.space.map.set_last(r.extent, r.last);
        loaded.time = loaded.time.max(r.last);
    }
    Ok(n)
}

/// The data blocks of a checkpoint, each from the first source that has it complete.
fn read_checkpoint<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    accept: bool,
    loaded: &mut Loaded,
    report: &mut Report,
) -> Result<(), OpenError> {
    let (h, area, uuid) = (loaded.checkpoint, from.layout.area, &from.sb.uuid);
    if h.blocks >= area.region_blocks {
        return Err(OpenError::NoCheckpoint);
    }
    let base = area.region_offset(Header::region(h.number)) + BLOCK as u64;
    let mut buf = vec![0; CHUNK * BLOCK];
    let any_epoch = broken(media, Mutant::TrustOldClean);
    // The start of an unknown range of extents, and the last known extent.
    let (mut gap, mut last) = (None, None);
    let mut i = 0;
    while i < h.blocks {
        let n = (h.blocks - i).min(CHUNK as u32);
        let buf = &mut buf[..n as usize * BLOCK];
        let read = media
            .read(from.sources[0], base + u64::from(i) * BLOCK as u64, buf)
            .is_ok();
        for b in buf.chunks_exact_mut(BLOCK) {
            let at = base + u64::from(i) * BLOCK as u64;
            let mut whole = read && checkpoint::is_data(b, uuid, h.number, i);
            for (k, &m) in from.sources.iter().enumerate() {
                if whole {
                    break;
                }
                // One bad sector must not make its neighbours unreadable.
                whole = (k > 0 || !read)
                    && media.read(m, at, b).is_ok()
                    && checkpoint::is_data(b, uuid, h.number, i);
                if !whole {
                    loaded.bad.push((m, i));
                }
                report.from_mirror += u64::from(whole && k > 0);
            }
            if whole {
                loaded.stated = None;
                report.checkpoint_records +=
                    apply(from.sb, loaded, &b[HEADER..], report.was_clean, any_epoch)?;
                if let Some((first, end)) = loaded.stated {
                    if let Some(start) = gap.take() {
                        loaded.gap(start, first);
                    }
                    last = Some(end);
                }
            } else {
                loaded.gaps.push(i);
                gap.get_or_insert(last.map_or(0, |e| e + 1));
            }
            i += 1;
        }
    }
    if let Some(start) = gap {
        loaded.gap(start, from.sb.extents);
    }
    if let Some(&(first, end)) = loaded.lost.first().filter(|_| !accept) {
        return Err(OpenError::CheckpointLost {
            number: h.number,
            first: ExtentId(first),
            end: ExtentId(end),
        });
    }
    report.checkpoint = h.number;
    for &m in from.sources {
        let blocks = loaded.bad.iter().filter(|b| b.0 == m).count() as u64;
        if blocks > 0 {
            let part = Part::Checkpoint;
            report.repairs.push(Repair {
                member: m,
                part,
                blocks,
            });
        }
    }
    Ok(())
}

impl Loaded {
    /// The checkpoint has no records of extents `from` to before `to`. Records that were read before the gap was known are kept.
    fn gap(&mut self, from: u32, to: u32) {
        if from < to {
            self.lost.push((from, to));
        }
        self.restated.clear();
    }
}
