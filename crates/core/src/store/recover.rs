//! Recovery: the newest whole checkpoint, then the journal. What one copy lacks is taken from the other, block by block.

use super::checkpoint::{self, Header};
use super::counter::{self, Known};
use super::error::OpenError;
use super::heal::{Part, Repair, broken};
use super::journal::{self, BlockHeader, Tip};
use super::layout::RING_MIN;
use super::open::Report;
use super::record::{self, Entry};
use super::superblock::{Follow, State, Superblock};
use super::{BLOCK, HEADER, Layout, Media};
use crate::engine::Mutant;
use crate::units::{ExtentId, MemberId, Nanos, Slot};
use crate::volume::Space;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// Blocks read in one go.
pub(super) const CHUNK: usize = 256;

/// The last session that may have written to the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) epoch: u64,
    pub(super) first_seq: u64,
    /// What its metadata promises.
    pub(super) follow: Follow,
    /// Whoever carried metadata in it wrote whatever it acknowledged: a gap is damage.
    pub(super) sole: bool,
    /// It ended cleanly, and this journal number would have been the next.
    pub(super) closed: Option<u64>,
}

impl Session {
    /// May this block be part of the journal? Not by its place in the chain alone: the torn remains of a block that an
    /// earlier session lost can be completed by a torn write of a later session to the same place, where both have the
    /// same bytes. From a session's first number on, only its own epoch counts.
    pub(super) fn allows(&self, h: &journal::BlockHeader) -> bool {
        h.seq < self.first_seq || h.epoch == self.epoch
    }
}

/// The last record of an extent's copy: its slot, and what may be said of each block.
struct Copy {
    slot: Slot,
    dirty: Vec<bool>,
    clean: Vec<bool>,
}

/// What the devices say the volume is.
pub(super) struct Loaded {
    pub(super) highest: u64,
    pub(super) space: Space,
    /// Copies as recorded so far, beside the map until the end: while records are applied, two extents may seem to have
    /// theirs in one slot.
    copies: BTreeMap<u32, Copy>,
    pub(super) tip: Tip,
    pub(super) checkpoint: Header,
    pub(super) time: Nanos,
    /// The session says that the mirror may lag behind what it acknowledged.
    pub(super) lazy: bool,
    /// What checkpoint and journal say of members' counters.
    pub(super) counters: Known,
    /// Blocks of the checkpoint that are damaged, and on which member.
    pub(super) bad: Vec<(MemberId, u32)>,
    /// Those that nobody has.
    pub(super) gaps: Vec<u32>,
    /// Extents that they may have told of: from each to before the second.
    lost: Vec<(u32, u32)>,
    /// Of these, what the journal tells anyway.
    restated: BTreeSet<u32>,
    /// Nothing of the primary's ring is left, and nothing that was in it is missing.
    pub(super) void: bool,
    /// First and last extent of the records applied since somebody asked.
    stated: Option<(u32, u32)>,
}

/// What recovery reads, and what it goes by.
#[derive(Clone, Copy)]
pub(super) struct From<'a> {
    pub(super) sb: &'a Superblock,
    /// As created.
    pub(super) layout: Layout,
    pub(super) session: Session,
    /// Who of primary and mirror is there.
    pub(super) sources: &'a [MemberId],
    /// Every journal block up to this number was durable ([`super::evidence`]).
    pub(super) flushed: u64,
    /// What journal blocks say of others was true of somebody who is there.
    pub(super) whole: bool,
    /// Go on without what no copy of the checkpoint tells.
    pub(super) accept_loss: bool,
}

/// Load the newest checkpoint that is whole, if need be put together from primary and mirror, and replay the journal from it; older
/// ones come next.
pub(super) fn load<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    report: &mut Report,
) -> Result<Loaded, OpenError> {
    let candidates = candidates(media, from);
    let highest = candidates.iter().map(|c| c.0.number).max().unwrap_or(0);
    let mut why = None;
    // A loss is accepted only if no older checkpoint will do without one.
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
                // The newest says most plainly what is wrong, with a loss accepted if that is asked for.
                Err(e) if why.is_none() || (accept && h.number == highest) => why = Some(e),
                Err(_) => {}
            }
        }
    }
    Err(why.unwrap_or(OpenError::NoCheckpoint))
}

/// Headers found, newest first; of equals, the primary's.
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
    /// Extents of which nobody knows where they were.
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

/// Give the extents the copies that count. (The state of a session that crashed is known by its dirty blocks alone: of the
/// others nobody can tell whether they are still what the home holds. See `apply`.)
fn place_copies(loaded: &mut Loaded) -> Result<(), OpenError> {
    let space = &mut loaded.space;
    for (e, c) in core::mem::take(&mut loaded.copies) {
        let e = ExtentId(e);
        if !space.slots.take(c.slot) {
            return Err(OpenError::BadRecord(TWICE));
        }
        space.map.add_empty_copy(e, c.slot);
        for (b, (&dirty, &clean)) in (0u32..).zip(c.dirty.iter().zip(&c.clean)) {
            if dirty {
                space.map.copy_dirty(e, b, b + 1);
            } else if clean && space.map.all_valid(e, b, b + 1) {
                space.map.copy_validate(e, b, b + 1);
            }
        }
        // It takes a record to contradict this one before the slot may be somebody else's.
        space.map.set_recorded(c.slot, c.dirty.contains(&true));
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
            // Clean blocks count only if that very session was the last and closed: whatever wrote to the homes since did
            // not tell of them.
            let mutant = cfg!(feature = "mutants") && c.epoch == record::ANY_EPOCH;
            let trusted = (was_clean && (c.epoch == sb.epoch || any_epoch)) || mutant;
            let copy = Copy {
                slot,
                dirty: (0..blocks).map(|b| c.dirty.has(b)).collect(),
                clean: (0..blocks).map(|b| trusted && c.clean.has(b)).collect(),
            };
            if copy.dirty.contains(&true) || copy.clean.contains(&true) {
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

/// The data blocks of a checkpoint, each from the first source that has it whole.
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
    // Where an unknown stretch of extents begins, and the last extent known.
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
                // One bad sector must not hide its neighbours.
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
    /// Of extents `from` to before `to` the checkpoint does not tell. What was read of them before the gap was known is kept.
    fn gap(&mut self, from: u32, to: u32) {
        if from < to {
            self.lost.push((from, to));
        }
        self.restated.clear();
    }
}

/// Reads the ring in order of sequence numbers, in large pieces.
struct RingReader {
    member: MemberId,
    buf: Vec<u8>,
    from: u64,
    count: u64,
}

impl RingReader {
    fn new(member: MemberId) -> RingReader {
        RingReader {
            member,
            buf: vec![0; CHUNK * BLOCK],
            from: 0,
            count: 0,
        }
    }
    /// The block where `seq` lies, whatever is in it; `None` if the device fails there.
    fn block<M: Media + ?Sized>(
        &mut self,
        media: &mut M,
        layout: &Layout,
        seq: u64,
    ) -> Option<&[u8]> {
        if seq < self.from || seq >= self.from + self.count {
            let ring = u64::from(layout.area.ring_blocks);
            self.from = seq;
            self.count = (ring - seq % ring).min(CHUNK as u64);
            let buf = &mut self.buf[..self.count as usize * BLOCK];
            if media
                .read(self.member, layout.area.ring_offset(seq), buf)
                .is_err()
            {
                self.count = 0;
                // One bad sector must not hide its neighbours.
                media
                    .read(
                        self.member,
                        layout.area.ring_offset(seq),
                        &mut self.buf[..BLOCK],
                    )
                    .ok()?;
                self.count = 1;
            }
        }
        let at = (seq - self.from) as usize * BLOCK;
        Some(&self.buf[at..at + BLOCK])
    }
}

/// Is a block with this header the next of the journal?
fn continues<M: Media + ?Sized>(media: &M, from: &From<'_>, tip: &Tip, h: &BlockHeader) -> bool {
    let chained = tip.accepts(h)
        || (broken(media, Mutant::IgnoreChain)
            && h.seq == tip.next_seq
            && h.prev_epoch.unwrap_or(h.epoch) == tip.epoch);
    chained && (from.session.allows(h) || broken(media, Mutant::AllowLostSession))
}

fn replay<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    loaded: &mut Loaded,
    report: &mut Report,
) -> Result<(), OpenError> {
    let ring = u64::from(from.layout.area.ring_blocks);
    let mut readers: Vec<RingReader> = from.sources.iter().map(|&m| RingReader::new(m)).collect();
    let start = loaded.tip.next_seq;
    let any_epoch = broken(media, Mutant::TrustOldClean);
    // Numbers that the first source lacks, and up to where all were durable there.
    let (mut lacked, mut proven) = (Vec::new(), from.flushed);
    'blocks: while loaded.tip.next_seq < start + ring {
        for (k, r) in readers.iter_mut().enumerate() {
            let Some(b) = r.block(media, &from.layout, loaded.tip.next_seq) else {
                continue;
            };
            let h = journal::decode(b, &from.sb.uuid);
            let Some(h) = h.filter(|h| continues(media, from, &loaded.tip, h)) else {
                continue;
            };
            report.journal_records +=
                apply(from.sb, loaded, &b[HEADER..], report.was_clean, any_epoch)?;
            loaded.tip = loaded.tip.after(&h);
            loaded.lazy |= h.lazy && h.epoch == from.session.epoch;
            report.journal_blocks += 1;
            report.from_mirror += u64::from(r.member != from.layout.primary);
            if from.whole {
                proven = proven.max(h.last_flushed);
            }
            if k > 0 {
                lacked.push(h.seq);
            }
            continue 'blocks;
        }
        break;
    }
    report.proven = proven;
    no_hole(media, from, &mut readers, loaded.tip.next_seq, proven)?;
    no_doubt(media, from, &mut readers[0], loaded, &lacked, proven)?;
    // A round that only the mirror has is no damage: power was lost in the middle of it.
    let damaged = lacked.iter().filter(|&&s| s <= proven).count() as u64;
    if damaged > 0 {
        report.repairs.push(Repair {
            member: from.sources[0],
            part: Part::Journal,
            blocks: damaged,
        });
    }
    if lacked.iter().any(|&s| s > proven) && broken(media, Mutant::RefuseMirrorAhead) {
        return Err(OpenError::JournalHole { seq: lacked[0] });
    }
    Ok(())
}

/// Above the end lies a torn tail, or nothing. If anybody says that the block at the end was durable, it is damage.
fn no_hole<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    readers: &mut [RingReader],
    end: u64,
    proven: u64,
) -> Result<(), OpenError> {
    if broken(media, Mutant::PassHole) {
        return Ok(());
    }
    let hole = Err(OpenError::JournalHole { seq: end });
    if end <= proven {
        return hole;
    }
    let session = from.session;
    let ring = u64::from(from.layout.area.ring_blocks);
    // (On the mirror alone only after a clean close: it lags, so a torn tail there may lie below what the primary had flushed.)
    for r in readers.iter_mut().filter(|r| {
        r.member == from.layout.primary
            || from.whole
            || from.sb.state == State::Clean
            || session.sole
    }) {
        let primary = r.member == from.layout.primary;
        for seq in end..end + ring {
            let Some(b) = r.block(media, &from.layout, seq) else {
                continue;
            };
            // (A mirror that became the only one may hold more of the session before than the chain up to here.)
            let counts = |h: &BlockHeader| primary || h.epoch == session.epoch;
            let later = journal::decode(b, &from.sb.uuid)
                .is_some_and(|h| h.seq > end && h.last_flushed >= end && counts(&h));
            if later {
                return hole;
            }
        }
    }
    Ok(())
}

/// The journal ends where neither copy goes on. That is the truth only if the primary's end is to be seen: the newest block that was
/// durable there for certain must be whole, or nobody knows what stood behind it.
fn no_doubt<M: Media + ?Sized>(
    media: &mut M,
    from: &From<'_>,
    primary: &mut RingReader,
    loaded: &mut Loaded,
    lacked: &[u64],
    proven: u64,
) -> Result<(), OpenError> {
    let (start, end) = (loaded.checkpoint.start.next_seq, loaded.tip.next_seq);
    if from.sources.len() < 2 || primary.member != from.layout.primary {
        return Ok(());
    }
    let newest = proven.min(end - 1);
    let area = &from.layout.area;
    let doubtful = if newest >= start {
        lacked.contains(&newest)
    } else {
        // Nothing is proven since the checkpoint. But the ring was in use before, and no crash leaves nothing of it.
        loaded.void = start > 1
            && area.ring_blocks >= RING_MIN
            && !(end..end + u64::from(area.ring_blocks)).any(|seq| {
                primary
                    .block(media, &from.layout, seq)
                    .is_some_and(|b| journal::decode(b, &from.sb.uuid).is_some())
            });
        // It may have been found so when the session began.
        loaded.void && from.sb.void_at != end
    };
    let doubtful = doubtful && from.session.closed != Some(end);
    if doubtful && !broken(media, Mutant::PassHole) {
        return Err(OpenError::JournalEnd { seq: end });
    }
    Ok(())
}
