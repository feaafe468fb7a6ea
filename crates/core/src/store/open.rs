//! Creation, opening with recovery, clean closing.

use super::checkpoint::Header;
use super::counter::{self, Counter, Known};
use super::degraded;
use super::journal::Tip;
use super::layout::STAMP_AT;
use super::recover::{Session, load, resync};
use super::superblock::{Follow, State, Superblock, SuperblockError};
use super::{BLOCK, Layout, Media, MediaError};
use crate::units::{ExtentId, MemberId, Nanos};
use crate::volume::Space;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Why a volume cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// A device failed.
    Media(MediaError),
    /// Neither superblock of this member can be used.
    Superblock(MemberId, SuperblockError),
    /// It has features that this program may read past, but not write past.
    ReadOnlyFeatures,
    /// A member is not there.
    Missing(MemberId),
    /// A member is not there, and data had its home on it.
    LostHomes {
        /// Which.
        member: MemberId,
        /// Extents.
        extents: u32,
    },
    /// A member is not there, and the survivors may not know of everything: the mirror was not told in time.
    Unsure(MemberId),
    /// A member is not there, and it held, or may have held, writes that nobody else has.
    LostWrites {
        /// Which.
        member: MemberId,
        /// Extents known to be concerned.
        extents: u32,
    },
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
            OpenError::Superblock(m, SuperblockError::Older(v)) => {
                write!(
                    f,
                    "member {} is of format version {v}, which this program no longer reads: copy the data out with the isotherm that made it (before format version 2), then create the volume anew",
                    m.0
                )
            }
            OpenError::ReadOnlyFeatures => write!(
                f,
                "the volume has features that only a newer isotherm may write to: use that, or serve it with --read-only"
            ),
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
            OpenError::LostHomes { member, extents } => write!(
                f,
                "member {} is missing, and {extents} extents have their home on it: attach it, or serve what survives with --read-only",
                member.0
            ),
            OpenError::Unsure(m) => write!(
                f,
                "member {} is missing, and the others may not know of all that was written: attach it, or serve what survives with --read-only",
                m.0
            ),
            OpenError::LostWrites { member, extents } => write!(
                f,
                "member {} is missing, and it held the newest data of {extents} extents or more: attach it, or go on without these writes with --accept-loss",
                member.0
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

impl OpenError {
    /// The member that it is about, if it is about one.
    pub fn member(&self) -> Option<MemberId> {
        match self {
            OpenError::Media(e) => Some(e.member),
            OpenError::Superblock(m, _)
            | OpenError::Missing(m)
            | OpenError::LostHomes { member: m, .. }
            | OpenError::LostWrites { member: m, .. }
            | OpenError::Unsure(m)
            | OpenError::Foreign(m)
            | OpenError::Twice(m)
            | OpenError::MemberList(m)
            | OpenError::Stale { member: m, .. }
            | OpenError::Diverged(m) => Some(*m),
            _ => None,
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
    /// Members that are not there (degraded).
    pub missing: Vec<MemberId>,
    /// Extents whose home is on one of them.
    pub lost_homes: u32,
    /// Extents whose newest data is known to have been in a copy on one of them.
    pub lost_writes: u32,
    /// There may have been more such copies than the survivors know of.
    pub unsure: bool,
    /// The survivors know every home: what they do not know to be mapped is not.
    pub knows_homes: bool,
    /// Extents that lost their newest data, which somebody accepted; no record says so yet.
    pub dropped: Vec<ExtentId>,
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
    /// The highest number in any checkpoint header found, readable in full or not: no later one may repeat it.
    pub highest_checkpoint: u64,
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
        lazy: None,
    };
    for m in core::iter::once(layout.primary).chain(layout.mirror) {
        // Stale metadata of an earlier volume has another UUID; wiping the headers is for tidiness of `check`.
        let zero = [0; BLOCK];
        media.write(m, layout.area.region_offset(0), &zero)?;
        media.write(
            m,
            layout.area.region_offset(Header::region(first.number)),
            &first.encode(&sb.uuid, &Known::new()),
        )?;
        media.flush(m)?;
    }
    for (i, entry) in sb.members.iter().enumerate() {
        let m = MemberId(i as u8);
        media.write(m, STAMP_AT, &[0; BLOCK])?;
        for value in [0, FIRST_COUNTER] {
            let counter = Counter {
                member: entry.id,
                uuid: entry.uuid,
                value,
                epoch: sb.epoch,
                last_flushed: 0,
                copy_offset: sb.copy_offset(m),
                known: Known::new(),
            };
            media.write(m, counter::offset(value), &counter.encode(&sb.uuid))?;
        }
        media.flush(m)?;
    }
    let mut sb = sb.clone();
    sb.members
        .iter_mut()
        .for_each(|m| m.counter = FIRST_COUNTER);
    write_superblocks(media, &sb)
}

/// Counters begin here, with the value before in the other block: a block that is not whole was damaged.
const FIRST_COUNTER: u64 = 1;

/// Write `sb` to both places of every member that is not absent, the first copy durable before the second is touched.
pub fn write_superblocks<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
) -> Result<(), MediaError> {
    for i in 0..sb.members.len() {
        let m = MemberId(i as u8);
        if sb.is_absent(m) {
            continue;
        }
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
        (Err(e @ (SuperblockError::Newer(_) | SuperblockError::Older(_))), _)
        | (Err(SuperblockError::Foreign), Err(e))
        | (Err(e), Err(_)) => Err(e),
        (Err(_), Ok(b)) => Ok(b),
    }
}

/// Check that the superblocks found are one volume. Returns the one to go by, who is missing, and the last session that
/// got further than preparing.
///
/// A member that the newest session went without is as good as missing, except to who insists on having all.
fn agree(
    found: &[Option<Superblock>],
    all: bool,
) -> Result<(Superblock, Vec<MemberId>, Session), OpenError> {
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
        } else if !begun && preceded(sb, &newest) {
            // At the session before, which is the last that counts.
        } else if newest.is_absent(m) && !all {
            missing.push(m);
        } else {
            return Err(OpenError::Stale {
                member: m,
                generation: sb.generation,
                newest: newest.generation,
            });
        }
    }
    let session = if begun {
        Session {
            epoch: newest.epoch,
            first_seq: newest.first_seq,
            follow: newest.follow,
            sole: newest.follow == Follow::Exact,
        }
    } else {
        Session {
            epoch: newest.prev_epoch,
            first_seq: newest.prev_first_seq,
            follow: newest.prev_follow,
            sole: false,
        }
    };
    Ok((newest, missing, session))
}

/// Do two superblocks describe one volume? Everything fixed at creation must be equal; hints, names and policy may differ.
fn same_shape(a: &Superblock, b: &Superblock) -> bool {
    let fixed = |s: &Superblock| {
        (
            s.extent_shift,
            s.block_shift,
            s.extents,
            s.area,
            s.table_version,
        )
    };
    fixed(a) == fixed(b)
        && a.members.len() == b.members.len()
        && a.members.iter().zip(&b.members).all(|(a, b)| {
            (a.uuid, a.id, a.tier, a.slots, a.data_offset, a.bytes)
                == (b.uuid, b.id, b.tier, b.slots, b.data_offset, b.bytes)
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
    /// As `ReadWrite`, but members may be missing if nothing is lost with them: no homes, and no copy that holds more than
    /// the home does, as far as the survivors know, who must know enough.
    Degraded {
        /// A random number, different from every one before.
        epoch: u64,
        /// Go on although copies that held more than the home are gone: what the home has is the truth from now on.
        accept_loss: bool,
    },
    /// Nothing is written; missing members are tolerated as long as one with metadata is there.
    ReadOnly,
}

impl Mode {
    /// The epoch of the session that begins, if one does.
    fn epoch(self) -> Option<u64> {
        match self {
            Mode::ReadWrite { epoch } | Mode::Degraded { epoch, .. } => Some(epoch),
            Mode::ReadOnly => None,
        }
    }
}

/// Open a volume: check members, load the newest whole checkpoint, replay the journal, begin a session.
/// `found[i]` is the superblock of member i, if that device is there.
pub fn open<M: Media + ?Sized>(
    media: &mut M,
    found: &[Option<Superblock>],
    mode: Mode,
) -> Result<Opened, OpenError> {
    let (sb, missing, session) = agree(found, matches!(mode, Mode::ReadWrite { .. }))?;
    if sb.is_read_only() && mode != Mode::ReadOnly {
        return Err(OpenError::ReadOnlyFeatures);
    }
    if let (Mode::ReadWrite { .. }, Some(&m)) = (mode, missing.first()) {
        return Err(OpenError::Missing(m));
    }
    let created = sb.layout();
    let layout = created
        .without(&missing)
        .ok_or(OpenError::Missing(created.primary))?;
    let sources: Vec<MemberId> = core::iter::once(layout.primary)
        .chain(layout.mirror)
        .collect();
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
    let there = || {
        found
            .iter()
            .flatten()
            .filter(|s| s.generation == sb.generation)
    };
    let mut report = Report {
        was_clean: there().count() + missing.len() == sb.members.len()
            && there().all(|s| s.state == State::Clean),
        missing,
        ..Report::default()
    };
    if mode.epoch().is_some() {
        // What recovery reads must not be lost by a power failure after it: a value once read stays.
        for m in (0..sb.members.len()).map(|i| MemberId(i as u8)) {
            if !report.missing.contains(&m) {
                media.flush(m)?;
            }
        }
    }
    let mut loaded = load(media, &sb, created, session, &sources, &mut report)?;
    let exact = layout.primary == created.primary
        || there().any(|s| s.state == State::Clean)
        || session.follow == Follow::Exact;
    degraded::judge(&sb, &loaded, session, exact, &mut report);
    if let Mode::Degraded { accept_loss, .. } = mode {
        degraded::allow(&sb, accept_loss, &mut report)?;
        degraded::drop_lost(&mut loaded.space, &mut report);
    }
    degraded::forget_clean(&mut loaded.space, &report.missing);
    report.mapped = loaded.space.map.mapped();
    let mut sb = Superblock { index: 0, ..sb };
    if let Some(epoch) = mode.epoch() {
        if let Some(mirror) = layout.mirror {
            resync(media, &sb, layout, session, mirror, &loaded)?;
        }
        // Two steps, so that a crash between members is told from a member that stayed behind.
        // An opening that itself got no further than preparing never counted.
        if there().any(|s| s.state != State::Preparing) {
            (sb.prev_generation, sb.prev_epoch, sb.prev_first_seq) =
                (sb.generation, sb.epoch, sb.first_seq);
        }
        sb.prev_follow = if exact { Follow::Exact } else { session.follow };
        sb.follow = if layout.mirror.is_some() {
            Follow::Mirror
        } else {
            Follow::Exact
        };
        sb.absent = report.missing.iter().fold(0, |s, m| s | 1 << m.0);
        (sb.generation, sb.epoch, sb.first_seq) = (sb.generation + 1, epoch, loaded.tip.next_seq);
        sb.copies |= sb.has_room_for_copies();
        sb.closed_seq = 0;
        for state in [State::Preparing, State::Active] {
            sb.state = state;
            write_superblocks(media, &sb)?;
        }
    }
    let time_base = loaded.time.max(sb.time_base);
    Ok(Opened {
        space: loaded.space,
        layout: if mode.epoch().is_some() {
            layout
        } else {
            created
        },
        superblock: sb,
        tip: loaded.tip,
        checkpoint: loaded.checkpoint,
        highest_checkpoint: loaded.highest,
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
