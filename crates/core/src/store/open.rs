//! Creation, opening with recovery, clean closing.

use super::checkpoint::{self, Header};
use super::journal::{self, Tip};
use super::superblock::{State, Superblock, SuperblockError};
use super::{BLOCK, HEADER, Layout, Media, MediaError, record};
use crate::policy::Space;
use crate::units::{MemberId, Nanos};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Blocks read in one go.
const CHUNK: usize = 256;

/// Why a volume cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// A device failed.
    Media(MediaError),
    /// Neither superblock of this member can be used.
    Superblock(MemberId, SuperblockError),
    /// A member is not there.
    Missing(MemberId),
    /// The member belongs to another volume.
    Foreign(MemberId),
    /// The same member of the list was given twice.
    Twice(MemberId),
    /// The member list of this device differs from the others'.
    MemberList(MemberId),
    /// The member last took part in an older session: it missed writes.
    Stale {
        /// Which.
        member: MemberId,
        /// Its generation.
        generation: u64,
        /// The volume's.
        newest: u64,
    },
    /// The member is smaller than the volume says: it was cut short.
    Short {
        /// Which.
        member: MemberId,
        /// Its bytes.
        bytes: u64,
        /// What the volume uses of it.
        needed: u64,
    },
    /// Same generation, different session: two copies of the volume went separate ways.
    Diverged(MemberId),
    /// A journal block that was durable once is gone, and the mirror does not have it.
    JournalHole {
        /// Its sequence number.
        seq: u64,
    },
    /// No checkpoint can be read in full.
    NoCheckpoint,
    /// A record cannot be true.
    BadRecord(&'static str),
}

impl From<MediaError> for OpenError {
    fn from(e: MediaError) -> OpenError {
        OpenError::Media(e)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Media(e) => write!(
                f,
                "member {} failed at byte {}: check the device",
                e.member.0, e.offset
            ),
            OpenError::Superblock(m, SuperblockError::Foreign) => {
                write!(
                    f,
                    "member {} carries no Isotherm superblock: give the device that belongs to the volume",
                    m.0
                )
            }
            OpenError::Superblock(m, SuperblockError::Newer(v)) => {
                write!(
                    f,
                    "member {} was written by format version {v} or uses features this program does not know: use a newer isotherm",
                    m.0
                )
            }
            OpenError::Superblock(m, SuperblockError::Damaged) => {
                write!(
                    f,
                    "both superblocks of member {} are damaged: restore the device, or serve the rest with --read-only",
                    m.0
                )
            }
            OpenError::Superblock(m, SuperblockError::Impossible(what)) => {
                write!(
                    f,
                    "the superblock of member {} is impossible ({what}): restore the device",
                    m.0
                )
            }
            OpenError::Missing(m) => write!(
                f,
                "member {} is missing: attach it, or serve what survives with --read-only",
                m.0
            ),
            OpenError::Foreign(m) => write!(
                f,
                "member {} belongs to another volume: give the device of this one",
                m.0
            ),
            OpenError::Twice(m) => write!(f, "member {} was given twice", m.0),
            OpenError::MemberList(m) => write!(
                f,
                "member {} disagrees about the member list: it was part of another set-up",
                m.0
            ),
            OpenError::Stale {
                member,
                generation,
                newest,
            } => write!(
                f,
                "member {} is of generation {generation}, the volume of {newest}: it missed writes and cannot rejoin; serve the rest with --read-only",
                member.0
            ),
            OpenError::Short {
                member,
                bytes,
                needed,
            } => write!(
                f,
                "member {} has {bytes} bytes, the volume uses {needed}: it was cut short",
                member.0
            ),
            OpenError::Diverged(m) => {
                write!(
                    f,
                    "member {} was written by another session of the same generation: two copies of the volume diverged",
                    m.0
                )
            }
            OpenError::JournalHole { seq } => {
                write!(
                    f,
                    "journal block {seq} was durable and is damaged, and the mirror does not have it: restore the fast device from a backup"
                )
            }
            OpenError::NoCheckpoint => write!(
                f,
                "no checkpoint can be read in full on fast or mirror: restore a device from a backup"
            ),
            OpenError::BadRecord(what) => {
                write!(f, "{what}: the metadata is damaged; run `isotherm check`")
            }
        }
    }
}

impl core::error::Error for OpenError {}

/// What opening found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The last session closed cleanly.
    pub was_clean: bool,
    /// Number of the checkpoint used.
    pub checkpoint: u64,
    /// Records read from it.
    pub checkpoint_records: u64,
    /// Journal blocks replayed.
    pub journal_blocks: u64,
    /// Records in them.
    pub journal_records: u64,
    /// Journal blocks or checkpoints that had to come from the mirror.
    pub from_mirror: u64,
    /// Extents mapped.
    pub mapped: u32,
    /// Members that are not there (degraded, read-only).
    pub missing: Vec<MemberId>,
    /// The map may lack extents that were mapped: unmapped ones must not be read as zeros.
    pub incomplete: bool,
    /// What else is worth saying.
    pub notes: Vec<String>,
}

/// A volume, opened.
#[derive(Debug)]
pub struct Opened {
    /// The map and what follows from it.
    pub space: Space,
    /// Metadata areas.
    pub layout: Layout,
    /// Superblock as written by this session (index 0).
    pub superblock: Superblock,
    /// Where the journal goes on.
    pub tip: Tip,
    /// The checkpoint that the journal starts from.
    pub checkpoint: Header,
    /// Engine time to go on from: later than every time stamp in the map.
    pub time_base: Nanos,
    /// What was found.
    pub report: Report,
}

/// Write a new, empty volume. `sb.index` is ignored. Nothing exists until the last superblock is durable, so a crash leaves
/// members that are refused as incomplete, never half a volume.
pub fn format<M: Media + ?Sized>(media: &mut M, sb: &Superblock) -> Result<(), MediaError> {
    let layout = sb.layout();
    let first = Header {
        number: 1,
        start: Tip {
            next_seq: 1,
            epoch: sb.epoch,
            crc: 0,
        },
        blocks: 0,
        time: Nanos(0),
    };
    for m in core::iter::once(layout.primary).chain(layout.mirror) {
        // Stale metadata of an earlier volume has another UUID; wiping the headers is for tidiness of `check`.
        let zero = [0; BLOCK];
        media.write(m, layout.area.region_offset(0), &zero)?;
        media.write(
            m,
            layout.area.region_offset(Header::region(first.number)),
            &first.encode(&sb.uuid),
        )?;
        media.flush(m)?;
    }
    write_superblocks(media, sb)
}

/// Write `sb` to both places of every member, the first copy durable before the second is touched.
pub fn write_superblocks<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
) -> Result<(), MediaError> {
    for i in 0..sb.members.len() {
        let m = MemberId(i as u8);
        let block = Superblock {
            index: i as u8,
            ..sb.clone()
        }
        .encode();
        media.write(m, 0, &block)?;
        media.flush(m)?;
        media.write(m, sb.copy_offset(m), &block)?;
        media.flush(m)?;
    }
    Ok(())
}

/// The better of a device's two superblocks. `second` may be unreadable when the first is not.
pub fn choose(
    first: Result<Superblock, SuperblockError>,
    second: Result<Superblock, SuperblockError>,
) -> Result<Superblock, SuperblockError> {
    match (first, second) {
        // A crash between the two writes leaves the second one session (or one state) behind.
        (Ok(a), Ok(b)) => {
            let rank = |s: &Superblock| {
                (
                    s.generation,
                    matches!(s.state, State::Active),
                    matches!(s.state, State::Clean),
                )
            };
            Ok(if rank(&b).0 > rank(&a).0 { b } else { a })
        }
        (Ok(a), Err(_)) => Ok(a),
        (Err(SuperblockError::Newer(v)), _) => Err(SuperblockError::Newer(v)),
        (Err(_), Ok(b)) => Ok(b),
        (Err(SuperblockError::Foreign), Err(e)) | (Err(e), Err(_)) => Err(e),
    }
}

/// Check that the superblocks found are one volume. Returns the one to go by, and who is missing.
fn agree(found: &[Option<Superblock>]) -> Result<(Superblock, Vec<MemberId>), OpenError> {
    let newest = found
        .iter()
        .flatten()
        .max_by_key(|s| (s.generation, !matches!(s.state, State::Preparing)))
        .ok_or(OpenError::Missing(MemberId(0)))?
        .clone();
    let mut missing = Vec::new();
    // Until every member says "active", nothing was written under the new epoch: those still at the one before fit.
    let begun = found
        .iter()
        .flatten()
        .any(|s| s.generation == newest.generation && s.state != State::Preparing);
    for i in 0..newest.members.len() {
        let m = MemberId(i as u8);
        let Some(sb) = found.get(i).and_then(Option::as_ref) else {
            missing.push(m);
            continue;
        };
        if sb.uuid != newest.uuid {
            return Err(OpenError::Foreign(m));
        }
        if usize::from(sb.index) != i || !same_shape(sb, &newest) {
            return Err(OpenError::MemberList(m));
        }
        if sb.generation == newest.generation {
            if sb.epoch != newest.epoch {
                return Err(OpenError::Diverged(m));
            }
        } else if begun || !preceded(sb, &newest) {
            return Err(OpenError::Stale {
                member: m,
                generation: sb.generation,
                newest: newest.generation,
            });
        }
    }
    Ok((newest, missing))
}

/// Do two superblocks describe one volume? Everything fixed at creation must be equal; hints, names and policy may differ.
fn same_shape(a: &Superblock, b: &Superblock) -> bool {
    let fixed = |s: &Superblock| (s.extent_shift, s.block_shift, s.extents, s.area);
    fixed(a) == fixed(b)
        && a.members.len() == b.members.len()
        && a.members.iter().zip(&b.members).all(|(a, b)| {
            (a.uuid, a.tier, a.slots, a.data_offset, a.bytes)
                == (b.uuid, b.tier, b.slots, b.data_offset, b.bytes)
        })
}

/// Is `sb` of the last session that wrote before `newest` prepared, or of another that only prepared after that one?
fn preceded(sb: &Superblock, newest: &Superblock) -> bool {
    let before = (newest.prev_generation, newest.prev_epoch);
    (sb.generation, sb.epoch) == before
        || (sb.state == State::Preparing && (sb.prev_generation, sb.prev_epoch) == before)
}

/// How to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All members must be there; a new session of this epoch begins.
    ReadWrite {
        /// A random number, different from every one before.
        epoch: u64,
    },
    /// Nothing is written; missing members are tolerated as long as one with metadata is there.
    ReadOnly,
}

/// Open a volume: check members, load the newest whole checkpoint, replay the journal, begin a session.
/// `found[i]` is the superblock of member i, if that device is there.
pub fn open<M: Media + ?Sized>(
    media: &mut M,
    found: &[Option<Superblock>],
    mode: Mode,
) -> Result<Opened, OpenError> {
    let (sb, missing) = agree(found)?;
    let layout = sb.layout();
    if let (Mode::ReadWrite { .. }, Some(&m)) = (mode, missing.first()) {
        return Err(OpenError::Missing(m));
    }
    let sources: Vec<MemberId> = core::iter::once(layout.primary)
        .chain(layout.mirror)
        .filter(|m| !missing.contains(m))
        .collect();
    if sources.is_empty() {
        return Err(OpenError::Missing(layout.primary));
    }
    // Memory and loops are sized by what the superblock claims; the devices say whether that can be true.
    for (i, entry) in sb.members.iter().enumerate() {
        let member = MemberId(i as u8);
        let there = !missing.contains(&member);
        if let Some(bytes) = media.bytes(member).filter(|&b| there && b < entry.bytes) {
            return Err(OpenError::Short {
                member,
                bytes,
                needed: entry.bytes,
            });
        }
    }
    let mut report = Report {
        was_clean: found.iter().flatten().all(|s| s.state == State::Clean),
        incomplete: sources[0] != layout.primary && sb.state != State::Clean,
        missing,
        ..Report::default()
    };
    if let Mode::ReadWrite { .. } = mode {
        // What recovery reads must not be lost by a power failure after it: a value once read stays.
        for i in 0..sb.members.len() {
            media.flush(MemberId(i as u8))?;
        }
    }
    let loaded = load(media, &sb, layout, &sources, &mut report)?;
    report.mapped = loaded.space.map.mapped();
    let mut sb = Superblock { index: 0, ..sb };
    if let Mode::ReadWrite { epoch } = mode {
        if let Some(mirror) = layout.mirror {
            resync(media, &sb, layout, mirror, &loaded)?;
        }
        // Two steps, so that a crash between members is told from a member that stayed behind.
        // An opening that itself got no further than preparing never counted.
        if found
            .iter()
            .flatten()
            .any(|s| s.generation == sb.generation && s.state != State::Preparing)
        {
            (sb.prev_generation, sb.prev_epoch) = (sb.generation, sb.epoch);
        }
        (sb.generation, sb.epoch) = (sb.generation + 1, epoch);
        for state in [State::Preparing, State::Active] {
            sb.state = state;
            write_superblocks(media, &sb)?;
        }
    }
    let time_base = loaded.time.max(sb.time_base);
    Ok(Opened {
        space: loaded.space,
        layout,
        superblock: sb,
        tip: loaded.tip,
        checkpoint: loaded.checkpoint,
        time_base,
        report,
    })
}

/// Say on every member that the session ended cleanly. The caller has seen [`crate::Engine::is_closed`].
pub fn mark_clean<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    now: Nanos,
) -> Result<(), MediaError> {
    write_superblocks(
        media,
        &Superblock {
            state: State::Clean,
            time_base: now,
            ..sb.clone()
        },
    )
}

struct Loaded {
    space: Space,
    tip: Tip,
    checkpoint: Header,
    time: Nanos,
}

fn load<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    layout: Layout,
    sources: &[MemberId],
    report: &mut Report,
) -> Result<Loaded, OpenError> {
    let mut candidates: Vec<(Header, MemberId)> = Vec::new();
    let mut block = vec![0; BLOCK];
    for &m in sources {
        for region in 0..2 {
            if media
                .read(m, layout.area.region_offset(region), &mut block)
                .is_ok()
                && let Some(h) =
                    Header::decode(&block, &sb.uuid).filter(|h| Header::region(h.number) == region)
            {
                candidates.push((h, m));
            }
        }
    }
    // Newest first; of equals, the primary's.
    candidates.sort_by_key(|(h, m)| (core::cmp::Reverse(h.number), *m != sources[0]));
    let mut why = OpenError::NoCheckpoint;
    for (h, m) in candidates {
        let space = Space::new(sb.geometry().map_err(OpenError::BadRecord)?);
        let mut loaded = Loaded {
            space,
            tip: h.start,
            checkpoint: h,
            time: h.time,
        };
        let mut r = Report {
            from_mirror: u64::from(m != layout.primary),
            ..report.clone()
        };
        let done = read_checkpoint(media, sb, layout, m, &mut loaded, &mut r)
            .and_then(|()| replay(media, sb, layout, sources, &mut loaded, &mut r))
            .and_then(|()| {
                loaded
                    .space
                    .rebuild()
                    .map_err(|_| OpenError::BadRecord("two extents claim one slot"))
            });
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

fn apply(sb: &Superblock, loaded: &mut Loaded, units: &[u8]) -> Result<u64, OpenError> {
    let blocks = 1u32 << (sb.extent_shift - sb.block_shift);
    let slots = loaded.space.geo.slots();
    let (mut at, mut n) = (0, 0);
    while let Some((r, used)) = record::decode(&units[at..]).map_err(OpenError::BadRecord)? {
        record::check(&r, sb.extents, slots, blocks).map_err(OpenError::BadRecord)?;
        loaded.space.map.load(r.extent, r.slot);
        if let Some(v) = r.valid {
            loaded.space.map.import_valid(r.extent, v);
        }
        loaded.space.map.set_stat(r.extent, r.stat);
        loaded.space.map.set_last(r.extent, r.last);
        loaded.time = loaded.time.max(r.last);
        at += used * 16;
        n += 1;
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
            report.checkpoint_records += apply(sb, loaded, &b[HEADER..])?;
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
            if let Some(h) = journal::decode(b, &sb.uuid).filter(|h| loaded.tip.accepts(h)) {
                report.journal_records += apply(sb, loaded, &b[HEADER..])?;
                loaded.tip = loaded.tip.after(&h);
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
        .filter(|r| r.member == layout.primary || sb.state == State::Clean)
    {
        for seq in end..end + ring {
            let Some(b) = r.block(media, &layout, seq) else {
                continue;
            };
            let later =
                journal::decode(b, &sb.uuid).is_some_and(|h| h.seq > end && h.last_flushed >= end);
            if later {
                return Err(OpenError::JournalHole { seq: end });
            }
        }
    }
    Ok(())
}

/// Bring the mirror up to the primary: the checkpoint that the journal starts from, then the journal.
fn resync<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    layout: Layout,
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
        media.write(to, at, &h.encode(&sb.uuid))?;
        media.flush(to)?;
    }
    // A block that only one side has whole is copied to the other. Whole is not enough: a lost session may have left a
    // block of the same number, so both must continue the chain that was replayed.
    let mut wrote = [false; 2];
    let mut other = vec![0; BLOCK];
    let mut tip = h.start;
    for seq in h.start.next_seq..loaded.tip.next_seq {
        let at = layout.area.ring_offset(seq);
        let chained = |b: &[u8]| journal::decode(b, &sb.uuid).filter(|h| tip.accepts(h));
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
