//! Creation of a volume, opening with recovery, and clean closing.

pub use super::found::{Loss, Mode};

use super::adopt;
use super::checkpoint::Header;
use super::counter::{self, Counter, Known};
use super::degraded;
use super::error::OpenError;
use super::evidence;
use super::found::{Found, look};
use super::heal;
use super::journal::Tip;
use super::layout::STAMP_AT;
use super::lost::{self, New};
use super::mark::{self, Cover};
use super::mutants::broken;
use super::recover::Loaded;
use super::report::Report;
use super::superblock::{Follow, State, Superblock};
use super::{BLOCK, Layout, Media, MediaError};
use crate::geometry::Kind;
use crate::mutants::Mutant;
use crate::units::{MemberId, Nanos};
use crate::volume::Space;
use crate::volume::lost::{How, ListHead, LostPart};
use crate::volume::regions::Regions;
use alloc::string::ToString;
use alloc::vec::Vec;

/// An opened volume.
#[derive(Debug)]
pub struct Opened {
    /// The map, and the state that is derived from it.
    pub space: Space,
    /// The members with metadata, and the metadata areas.
    pub layout: Layout,
    /// The superblock as this session has written it (with index 0).
    pub superblock: Superblock,
    /// The end of the journal.
    pub tip: Tip,
    /// The checkpoint from which the journal starts.
    pub checkpoint: Header,
    /// The highest number in any checkpoint header that was found, even if the checkpoint itself is damaged. Later checkpoints must have
    /// higher numbers.
    pub highest_checkpoint: u64,
    /// The known values of members' counters, all of which are durable.
    pub counters: Known,
    /// The engine time from which to continue. No time stamp in the map is later.
    pub time_base: Nanos,
    /// The marks of the disks of a cache volume that are present, if a session has begun: number, and marked regions.
    pub marks: Vec<(MemberId, u64, Regions)>,
    /// The findings.
    pub report: Report,
}

/// Writes a new, empty volume. `sb.index` is ignored. The volume exists only when the last superblock is durable. After a crash before
/// that, its members are refused as incomplete.
pub fn format<M: Media + ?Sized>(media: &mut M, sb: &Superblock) -> Result<(), MediaError> {
    format_members(media, sb)?;
    for m in sb.disks() {
        mark::write(
            media,
            sb,
            m,
            Cover::Covered,
            Regions::default(),
            ListHead::default(),
        )?;
    }
    superblocks_of_new(media, sb)
}

/// As [`format`], for a cache volume that shows what its disks hold. After a crash, each disk holds that as before, is one that
/// [`super::release::uncover`] gives back, or belongs to the volume.
pub fn format_kept<M: Media + ?Sized>(media: &mut M, sb: &Superblock) -> Result<(), MediaError> {
    // The second superblock is written twice, with the same bytes: so the second time tears nothing.
    let new = of_new(sb);
    let sb = if broken(media, Mutant::AdoptInOtherBytes) {
        sb
    } else {
        &new
    };
    for m in sb.disks() {
        adopt::set_aside(media, sb, m)?;
    }
    format_members(media, sb)?;
    let early = broken(media, Mutant::CoverBeforeSuperblock);
    if !early {
        superblocks_of_new(media, sb)?;
    }
    for m in sb.disks() {
        adopt::cover(media, sb, m)?;
    }
    if early {
        superblocks_of_new(media, sb)?;
    }
    Ok(())
}

/// The metadata of all members, without superblocks and marks.
fn format_members<M: Media + ?Sized>(media: &mut M, sb: &Superblock) -> Result<(), MediaError> {
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
    for c in layout.carriers() {
        // Metadata of an earlier volume has another UUID and would be ignored. The headers are overwritten only so that `check` does not
        // report them.
        let zero = [0; BLOCK];
        let m = c.member;
        media.write(m, layout.region_offset(c, 0), &zero)?;
        media.write(
            m,
            layout.region_offset(c, Header::region(first.number)),
            &first.encode(&sb.uuid, &Known::new()),
        )?;
        media.flush(m)?;
    }
    for i in 0..sb.members.len() {
        let m = MemberId(i as u8);
        media.write(m, STAMP_AT, &[0; BLOCK])?;
        for value in [0, FIRST_COUNTER] {
            let counter = Counter::of(sb, m, value, 0, &Known::new());
            media.write(m, counter::offset(value), &counter.encode(&sb.uuid))?;
        }
        media.flush(m)?;
    }
    Ok(())
}

fn superblocks_of_new<M: Media + ?Sized>(media: &mut M, sb: &Superblock) -> Result<(), MediaError> {
    write_superblocks(media, &of_new(sb))
}

/// The superblock of a new volume, with the counters as its members have them.
fn of_new(sb: &Superblock) -> Superblock {
    let mut sb = sb.clone();
    sb.members
        .iter_mut()
        .for_each(|m| m.counter = FIRST_COUNTER);
    sb
}

/// Counters begin with this value, and the other block has the value before it. So a block that is not complete is always a damaged one.
pub(super) const FIRST_COUNTER: u64 = 1;

/// Writes `sb` to both places of every member that is not absent.
pub fn write_superblocks<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
) -> Result<(), MediaError> {
    for m in (0..sb.members.len()).map(|i| MemberId(i as u8)) {
        if !sb.is_absent(m) {
            write_superblock(media, sb, m)?;
        }
    }
    Ok(())
}

/// Writes `sb` to both places of member `m`. The first copy is durable before the second is written.
pub(super) fn write_superblock<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    m: MemberId,
) -> Result<(), MediaError> {
    let forget = broken(media, Mutant::ForgetAbsent);
    let block = Superblock {
        index: m.0,
        absent: if forget { 0 } else { sb.absent },
        ..sb.clone()
    }
    .encode();
    media.write(m, 0, &block)?;
    if !broken(media, Mutant::SuperblocksTogether) {
        media.flush(m)?;
    }
    media.write(m, sb.copy_offset(m), &block)?;
    media.flush(m)
}

/// Opens a volume: checks members, loads the newest complete checkpoint, replays the journal, begins a session. `found[i]` is the
/// superblock of member i, if that device is present.
pub fn open<M: Media + ?Sized>(
    media: &mut M,
    found: &[Option<Superblock>],
    mode: Mode,
) -> Result<Opened, OpenError> {
    open_after_loss(media, found, mode, None)
}

/// As [`open`]. `exact`: the blocks whose newest data was lost with the flash that is missing, if the caller knows them better than the marks
/// of the disks, which name whole regions ([`super::salvage`]).
pub fn open_after_loss<M: Media + ?Sized>(
    media: &mut M,
    found: &[Option<Superblock>],
    mode: Mode,
    exact: Option<&[LostPart]>,
) -> Result<Opened, OpenError> {
    let mut f = look(media, found, mode)?;
    let loss = match mode {
        Mode::Degraded { loss, .. } => Some(loss),
        _ => None,
    };
    let accept = loss == Some(Loss::Accepted);
    let mut loaded = f.load(media, accept)?;
    loaded.space.lost = lost::load(media, &f.sb, &loaded.space, &f.report.missing, accept)?;
    let (created, layout, session) = (f.created, f.layout, f.session);
    let exact_records = layout.has_journal
        && (layout.primary == created.primary
            || f.clean_somewhere
            || session.follow == Follow::Exact);
    let marked = degraded::judge(media, &f.sb, &loaded, layout, exact_records, &mut f.report);
    let unsure = f.report.unsure;
    let mut dropped = Vec::new();
    if let Some(loss) = loss {
        degraded::allow(&f.sb, loss, &mut f.report)?;
        dropped = degraded::drop_lost(&mut loaded.space, &mut f.report);
    }
    degraded::forget_clean(&mut loaded.space, &f.report.missing);
    f.report.mapped = loaded.space.map.mapped();
    let words = f.report.repairs.iter().map(ToString::to_string);
    f.report.notes.extend(words);
    let mut marks = Vec::new();
    if let Some(epoch) = mode.epoch() {
        if f.sb.kind == Kind::Cache {
            if unsure && !layout.has_journal {
                // One block of a mark would be enough from now on.
                mark_all(media, &f)?;
            }
            let exact = if layout.has_journal {
                Some(&dropped[..])
            } else {
                exact
            };
            let new = New { marked, exact };
            let how = How {
                in_place: broken(media, Mutant::RelistInPlace),
                inward: broken(media, Mutant::CoarseInward),
                keeps_damaged: broken(media, Mutant::DamagedListKept),
            };
            if accept {
                f.report.accepted = loaded.space.lost.blocks();
                loaded.space.lost.accept();
            } else {
                new.add_to(&mut loaded.space.lost, epoch, how);
            }
            lost::has_copies(&mut loaded.space);
            f.sb.lists = !loaded.space.lost.is_empty();
        }
        begin(media, &mut f, &loaded, found, exact_records, epoch)?;
        // Not before: while the members that are absent may still come back, the marks are the only trace of their data.
        marks = renew_marks(media, &f.sb, &loaded.space)?;
    }
    let time_base = loaded.time.max(f.sb.time_base);
    Ok(Opened {
        space: loaded.space,
        layout: if mode.epoch().is_some() {
            layout
        } else {
            created
        },
        superblock: Superblock { index: 0, ..f.sb },
        tip: loaded.tip,
        checkpoint: loaded.checkpoint,
        highest_checkpoint: loaded.highest,
        counters: f.evidence.known,
        time_base,
        marks,
        report: f.report,
    })
}

/// The marks of disks whose damaged blocks may have named any region name all of them.
fn mark_all<M: Media + ?Sized>(media: &mut M, f: &Found) -> Result<(), OpenError> {
    for m in f.sb.disks().filter(|m| !f.report.missing.contains(m)) {
        let newest = mark::read(media, &f.sb, m).newest;
        let list = newest.map_or(ListHead::default(), |k| k.list);
        mark::write(media, &f.sb, m, Cover::Covered, Regions::all(), list)?;
    }
    Ok(())
}

/// Repairs damaged parts, makes primary and mirror equal, and records on every member that a session of this epoch has begun.
fn begin<M: Media + ?Sized>(
    media: &mut M,
    f: &mut Found,
    loaded: &Loaded,
    found: &[Option<Superblock>],
    exact: bool,
    epoch: u64,
) -> Result<(), OpenError> {
    let (sb, layout, session) = (&mut f.sb, f.layout, f.session);
    f.evidence.mend(media, sb)?;
    if !broken(media, Mutant::OverwriteLastSuperblock) {
        heal::mend_superblocks(media, sb, found, &f.report.missing)?;
    }
    heal::resync(media, sb, layout, session, loaded)?;
    // The superblocks are written in two steps. So a crash between the members can be distinguished from a member that missed a session. A
    // session that got no further than the state *preparing* does not count.
    let generation = sb.generation;
    let closed = sb.epoch;
    let mut there = found
        .iter()
        .flatten()
        .filter(|s| s.generation == generation);
    if there.any(|s| s.state != State::Preparing) {
        (sb.prev_generation, sb.prev_epoch, sb.prev_first_seq) =
            (sb.generation, sb.epoch, sb.first_seq);
    }
    sb.prev_follow = if exact { Follow::Exact } else { session.follow };
    sb.follow = guarantee(sb.kind, layout);
    sb.absent = f.report.missing.iter().fold(0, |s, m| s | 1 << m.0);
    (sb.generation, sb.epoch, sb.first_seq) = (generation + 1, epoch, loaded.tip.next_seq);
    sb.copies |= sb.has_room_for_copies();
    sb.closed_seq = 0;
    sb.void_at = if loaded.void { loaded.tip.next_seq } else { 0 };
    carry_claims(sb, loaded, &f.report, closed);
    set_counters(sb, &f.evidence.known);
    let at_once = broken(media, Mutant::ActiveAtOnce);
    for state in [State::Preparing, State::Active] {
        if at_once && state == State::Preparing {
            continue;
        }
        sb.state = state;
        write_superblocks(media, sb)?;
    }
    Ok(())
}

/// States which claims count from now on that copies are clean. `closed` is the epoch of the last session. If it ended cleanly, what it states
/// about clean copies are claims.
fn carry_claims(sb: &mut Superblock, loaded: &Loaded, report: &Report, closed: u64) {
    let all = sb.kind == Kind::Cache && report.missing.is_empty();
    if all && report.was_clean {
        (sb.clean_epoch, sb.claims_from) = (closed, loaded.tip.next_seq);
    } else if !all || !sb.has_claims() {
        (sb.clean_epoch, sb.claims_from) = (0, loaded.tip.next_seq);
    }
}

/// Brings the marks of all disks to what the map says.
pub(super) fn renew_marks<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    space: &Space,
) -> Result<Vec<(MemberId, u64, Regions)>, OpenError> {
    let mut marks = Vec::new();
    let set = space.map.regions().dirty();
    for m in sb.disks().filter(|m| !sb.is_absent(*m)) {
        let number = lost::renew(media, sb, m, &set, &space.lost)?;
        marks.push((m, number, set));
    }
    Ok(marks)
}

/// What a session with this layout guarantees about its metadata. In a cache volume no member alone has records that another one lacks: its
/// mirror is synchronous, or on the same member.
pub(super) fn guarantee(kind: Kind, layout: Layout) -> Follow {
    if kind == Kind::Cache || layout.mirror.is_none() {
        Follow::Exact
    } else {
        Follow::Lags
    }
}

fn set_counters(sb: &mut Superblock, known: &Known) {
    for m in &mut sb.members {
        let value = known.iter().find(|k| k.0 == m.id).map_or(0, |k| k.1);
        m.counter = m.counter.max(value);
    }
}

/// The values of a closed engine that are written to the superblocks: see [`crate::Engine::closing`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The sequence number of the next journal block.
    pub next_seq: u64,
    /// The known values of members' counters.
    pub counters: Known,
}

/// Records on every member that the session ended cleanly. The caller has checked [`crate::Engine::is_closed`].
pub fn mark_clean<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    closing: &Closing,
    now: Nanos,
) -> Result<(), MediaError> {
    let mut known = closing.counters.clone();
    // Each counter is raised once more, so that a member that is restored from an image of before this moment is recognised.
    evidence::raise_all(media, sb, closing.next_seq - 1, &mut known)?;
    let mut sb = Superblock {
        state: State::Clean,
        time_base: now,
        closed_seq: closing.next_seq,
        ..sb.clone()
    };
    set_counters(&mut sb, &known);
    write_superblocks(media, &sb)
}
