//! Recovery: loads the newest complete checkpoint, then replays the journal. Blocks that are damaged on the primary are read from the
//! mirror.

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

/// Number of blocks that are read at a time.
pub(super) const CHUNK: usize = 256;

/// The last session that may have written to the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) epoch: u64,
    pub(super) first_seq: u64,
    /// The guarantee that the session gave about its metadata.
    pub(super) follow: Follow,
    /// Whether the member that carried metadata in this session has everything that was acknowledged, so that a missing block means damage.
    pub(super) sole: bool,
    /// If the session ended cleanly: the sequence number of the next journal block.
    pub(super) closed: Option<u64>,
}

impl Session {
    /// Whether this block may be part of the journal. That it fits into the chain is not sufficient. A block of an earlier session may have
    /// been torn; a torn write of a later session to the same place may have the same bytes there and so complete it. So, from the first
    /// block of a session on, only blocks of its epoch count.
    pub(super) fn allows(&self, h: &journal::BlockHeader) -> bool {
        h.seq < self.first_seq || h.epoch == self.epoch
    }
}

/// The copy of an extent according to its last record: the slot, and the state of the blocks.
struct Copy {
    slot: Slot,
    dirty: Blocks,
    clean: Blocks,
}

/// A set of blocks of an extent, stored in little memory, because there may be millions of these while a volume is opened.
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
    /// Copies according to the records so far. They are added to the map only at the end, because while records are applied, two extents
    /// may temporarily have a copy in the same slot.
    copies: BTreeMap<u32, Copy>,
    pub(super) tip: Tip,
    pub(super) checkpoint: Header,
    pub(super) time: Nanos,
    /// Whether the last session stated that the mirror may lack acknowledged changes.
    pub(super) lazy: bool,
    /// The values of members' counters in checkpoint and journal.
    pub(super) counters: Known,
    /// Damaged blocks of the checkpoint, each with its member and its index.
    pub(super) bad: Vec<(MemberId, u32)>,
    /// Blocks of the checkpoint that no member has.
    pub(super) gaps: Vec<u32>,
    /// Extents of which these blocks may have had records, as ranges with exclusive ends.
    lost: Vec<(u32, u32)>,
    /// Extents for which the journal has a record, if records of the checkpoint are lost.
    restated: BTreeSet<u32>,
    /// Whether the primary's ring contains no complete block, although it was in use and no needed block is known to be missing.
    pub(super) void: bool,
    /// First and last extent of the records of the checkpoint block that was applied last.
    stated: Option<(u32, u32)>,
}

/// The sources and settings of recovery.
#[derive(Clone, Copy)]
pub(super) struct From<'a> {
    pub(super) sb: &'a Superblock,
    /// The layout as created.
    pub(super) layout: Layout,
    pub(super) session: Session,
    /// Primary and mirror, as far as they are present.
    pub(super) sources: &'a [MemberId],
    /// Every journal block up to this number was durable ([`super::evidence`]).
    pub(super) flushed: u64,
    /// Whether every member that carried metadata in the last session is present. Then journal blocks may be used as proof that earlier
    /// blocks were durable.
    pub(super) whole: bool,
    /// Whether to continue if records of the checkpoint are damaged on all members.
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
    // The loss of records is accepted only if no older checkpoint can be used without a loss.
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
                // The error of the newest checkpoint is the most useful one. If the loss was accepted, it is the error of that attempt.
                Err(e) if why.is_none() || (accept && h.number == highest) => why = Some(e),
                Err(_) => {}
            }
        }
    }
    Err(why.unwrap_or(OpenError::NoCheckpoint))
}

/// The checkpoint headers that were found, newest first. Of two equal headers, the one of the first source is kept.
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
    /// The extents whose records are lost and not repeated in the journal.
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

/// Adds the copies to the map. (After a crash only the dirty blocks of a copy are used. For the others it is unknown whether they still
/// equal the home: see `apply`.)
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
        // Before the slot can be allocated again, a later record that does not name it must be durable.
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
            // Clean blocks are valid only if exactly that session was the last one and was closed, because later writes to the homes would
            // not have been recorded here.
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

/// Reads and applies the data blocks of a checkpoint, each from the first source that has it complete.
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
    // The start of a range of extents whose records are lost, and the last extent of the blocks before it.
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
                // The large read failed. Each block is read alone, so that one bad sector does not make its neighbours unreadable.
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
    /// Notes that the checkpoint's records of extents `from..to` are lost.
    fn gap(&mut self, from: u32, to: u32) {
        if from < to {
            self.lost.push((from, to));
        }
        self.restated.clear();
    }
}
