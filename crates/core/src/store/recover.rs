//! Recovery: the newest whole checkpoint, then the journal; then primary and mirror are made equal.

use super::checkpoint::{self, Header};
use super::counter::{self, Known};
use super::journal::{self, Tip};
use super::open::{OpenError, Report};
use super::record::{self, Entry};
use super::superblock::{Follow, State, Superblock};
use super::{BLOCK, HEADER, Layout, Media, MediaError};
use crate::units::{ExtentId, MemberId, Nanos, Slot};
use crate::volume::Space;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Blocks read in one go.
const CHUNK: usize = 256;

/// The last session that may have written to the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) epoch: u64,
    pub(super) first_seq: u64,
    /// What its metadata promises.
    pub(super) follow: Follow,
    /// Whoever carried metadata in it wrote whatever it acknowledged: a gap is damage.
    pub(super) sole: bool,
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
}

/// Load the newest checkpoint that is whole and replay the journal from it; older ones, and the mirror's, come next.
pub(super) fn load<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    layout: Layout,
    session: Session,
    sources: &[MemberId],
    report: &mut Report,
) -> Result<Loaded, OpenError> {
    let mut candidates: Vec<(Header, MemberId, Known)> = Vec::new();
    let mut block = vec![0; BLOCK];
    for &m in sources {
        for region in 0..2 {
            if media
                .read(m, layout.area.region_offset(region), &mut block)
                .is_ok()
                && let Some(h) =
                    Header::decode(&block, &sb.uuid).filter(|h| Header::region(h.number) == region)
            {
                candidates.push((h, m, Header::counters(&block).unwrap_or_default()));
            }
        }
    }
    // Newest first; of equals, the primary's.
    candidates.sort_by_key(|(h, m, _)| (core::cmp::Reverse(h.number), *m != sources[0]));
    let highest = candidates.iter().map(|c| c.0.number).max().unwrap_or(0);
    let mut why = OpenError::NoCheckpoint;
    for (h, m, counters) in candidates {
        let space = Space::new(sb.geometry().map_err(OpenError::BadRecord)?);
        let mut loaded = Loaded {
            highest,
            space,
            copies: BTreeMap::new(),
            tip: h.start,
            checkpoint: h,
            time: h.time,
            lazy: h.lazy == Some(session.epoch),
            counters,
        };
        let mut r = Report {
            from_mirror: u64::from(m != layout.primary),
            ..report.clone()
        };
        let done = read_checkpoint(media, sb, layout, m, &mut loaded, &mut r)
            .and_then(|()| replay(media, sb, layout, session, sources, &mut loaded, &mut r))
            .and_then(|()| {
                loaded
                    .space
                    .rebuild()
                    .map_err(|_| OpenError::BadRecord(TWICE))
            })
            .and_then(|()| place_copies(&mut loaded));
        match done {
            Ok(()) => {
                *report = r;
                return Ok(loaded);
            }
            Err(e) => why = e,
        }
    }
    Err(why)
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
            let trusted = (was_clean && c.epoch == sb.epoch) || mutant;
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
        loaded.space.map.set_stat(r.extent, r.stat);
        loaded.space.map.set_last(r.extent, r.last);
        loaded.time = loaded.time.max(r.last);
    }
    Ok(n)
}

fn read_checkpoint<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    layout: Layout,
    from: MemberId,
    loaded: &mut Loaded,
    report: &mut Report,
) -> Result<(), OpenError> {
    let h = loaded.checkpoint;
    if h.blocks >= layout.area.region_blocks {
        return Err(OpenError::NoCheckpoint);
    }
    let base = layout.area.region_offset(Header::region(h.number)) + BLOCK as u64;
    let mut buf = vec![0; CHUNK * BLOCK];
    let mut i = 0;
    while i < h.blocks {
        let n = (h.blocks - i).min(CHUNK as u32);
        let buf = &mut buf[..n as usize * BLOCK];
        media.read(from, base + u64::from(i) * BLOCK as u64, buf)?;
        for b in buf.chunks_exact(BLOCK) {
            if !checkpoint::is_data(b, &sb.uuid, h.number, i) {
                return Err(OpenError::NoCheckpoint);
            }
            report.checkpoint_records += apply(sb, loaded, &b[HEADER..], report.was_clean)?;
            i += 1;
        }
    }
    report.checkpoint = h.number;
    Ok(())
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

fn replay<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    layout: Layout,
    session: Session,
    sources: &[MemberId],
    loaded: &mut Loaded,
    report: &mut Report,
) -> Result<(), OpenError> {
    let ring = u64::from(layout.area.ring_blocks);
    let mut readers: Vec<RingReader> = sources.iter().map(|&m| RingReader::new(m)).collect();
    let start = loaded.tip.next_seq;
    'blocks: while loaded.tip.next_seq < start + ring {
        for r in &mut readers {
            let from_mirror = r.member != layout.primary;
            let Some(b) = r.block(media, &layout, loaded.tip.next_seq) else {
                continue;
            };
            if let Some(h) =
                journal::decode(b, &sb.uuid).filter(|h| loaded.tip.accepts(h) && session.allows(h))
            {
                report.journal_records += apply(sb, loaded, &b[HEADER..], report.was_clean)?;
                loaded.tip = loaded.tip.after(&h);
                loaded.lazy |= h.lazy && h.epoch == session.epoch;
                report.journal_blocks += 1;
                report.from_mirror += u64::from(from_mirror);
                continue 'blocks;
            }
        }
        break;
    }
    // Above the end lies a torn tail, or nothing. If a later block says that this one was durable, it is damage.
    let end = loaded.tip.next_seq;
    // (On the mirror only after a clean close: it lags, so a torn tail there may lie below what the primary had flushed.)
    for r in readers
        .iter_mut()
        .filter(|r| r.member == layout.primary || sb.state == State::Clean || session.sole)
    {
        let primary = r.member == layout.primary;
        for seq in end..end + ring {
            let Some(b) = r.block(media, &layout, seq) else {
                continue;
            };
            // (A mirror that became the only one may hold more of the session before than the chain up to here.)
            let counts = |h: &journal::BlockHeader| primary || h.epoch == session.epoch;
            let later = journal::decode(b, &sb.uuid)
                .is_some_and(|h| h.seq > end && h.last_flushed >= end && counts(&h));
            if later {
                return Err(OpenError::JournalHole { seq: end });
            }
        }
    }
    Ok(())
}

/// Bring the mirror up to the primary: the checkpoint that the journal starts from, then the journal.
pub(super) fn resync<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    layout: Layout,
    session: Session,
    mirror: MemberId,
    loaded: &Loaded,
) -> Result<(), OpenError> {
    let h = loaded.checkpoint;
    let at = layout.area.region_offset(Header::region(h.number));
    let mut buf = vec![0; CHUNK * BLOCK];
    for (from, to) in [(layout.primary, mirror), (mirror, layout.primary)] {
        media.read(to, at, &mut buf[..BLOCK])?;
        if Header::decode(&buf[..BLOCK], &sb.uuid) == Some(h) {
            continue;
        }
        let mut i = 0;
        while i < h.blocks {
            let n = (h.blocks - i).min(CHUNK as u32) as usize;
            let offset = at + (1 + u64::from(i)) * BLOCK as u64;
            media.read(from, offset, &mut buf[..n * BLOCK])?;
            media.write(to, offset, &buf[..n * BLOCK])?;
            i += n as u32;
        }
        media.flush(to)?;
        media.write(to, at, &h.encode(&sb.uuid, &loaded.counters))?;
        media.flush(to)?;
    }
    // A block that only one side has whole is copied to the other. Whole is not enough: a lost session may have left a
    // block of the same number, so both must continue the chain that was replayed.
    let mut wrote = [false; 2];
    let mut other = vec![0; BLOCK];
    let mut tip = h.start;
    for seq in h.start.next_seq..loaded.tip.next_seq {
        let at = layout.area.ring_offset(seq);
        let chained =
            |b: &[u8]| journal::decode(b, &sb.uuid).filter(|h| tip.accepts(h) && session.allows(h));
        let a = media.read(layout.primary, at, &mut buf[..BLOCK]);
        let a = a.ok().and_then(|()| chained(&buf[..BLOCK]));
        let b = media.read(mirror, at, &mut other);
        let b = b.ok().and_then(|()| chained(&other));
        if a.is_some() && a != b {
            media.write(mirror, at, &buf[..BLOCK])?;
            wrote[1] = true;
        } else if b.is_some() && a.is_none() {
            media.write(layout.primary, at, &other)?;
            wrote[0] = true;
        }
        // Replay saw one of them; if neither can be read now, the device fails.
        let h = a.or(b).ok_or(MediaError {
            member: layout.primary,
            offset: at,
        })?;
        tip = tip.after(&h);
    }
    for (m, w) in [layout.primary, mirror].into_iter().zip(wrote) {
        if w {
            media.flush(m)?;
        }
    }
    Ok(())
}
