//! Checks whether the superblocks that were found form one volume: which superblock is the newest, which members are absent, and which
//! session was the last.

use super::error::OpenError;
use super::mutants::broken;
use super::session::Session;
use super::superblock::{Follow, MemberEntry, State, Superblock, SuperblockError};
use super::{Media, MetaArea};
use crate::mutants::Mutant;
use crate::units::{MemberId, TierId};
use crate::volume::geometry::Kind;
use alloc::vec::Vec;

/// Chooses one of a device's two superblocks: the newer one, or the valid one if the other is not.
pub fn choose(
    first: Result<Superblock, SuperblockError>,
    second: Result<Superblock, SuperblockError>,
) -> Result<Superblock, SuperblockError> {
    prefer(first, second, false)
}

/// [`choose`] with a rule removed, which the test suites must notice.
///
/// # Errors
/// As for [`choose`].
#[cfg(feature = "mutants")]
pub fn choose_under(
    mutant: Option<crate::mutants::Mutant>,
    first: Result<Superblock, SuperblockError>,
    second: Result<Superblock, SuperblockError>,
) -> Result<Superblock, SuperblockError> {
    let first_wins = mutant == Some(crate::mutants::Mutant::PreferFirstSuperblock);
    prefer(first, second, first_wins)
}

fn prefer(
    first: Result<Superblock, SuperblockError>,
    second: Result<Superblock, SuperblockError>,
    first_wins: bool,
) -> Result<Superblock, SuperblockError> {
    match (first, second) {
        // The first one is written before the second. After a crash between the two writes, the second one is a session (or a state) older.
        (Ok(a), Ok(b)) => {
            let rank = |s: &Superblock| {
                (
                    s.generation,
                    matches!(s.state, State::Active),
                    matches!(s.state, State::Clean),
                )
            };
            Ok(if rank(&b).0 > rank(&a).0 && !first_wins {
                b
            } else {
                a
            })
        }
        (Ok(a), Err(_)) => Ok(a),
        (Err(e @ (SuperblockError::Newer(_) | SuperblockError::Older(_))), _)
        | (Err(SuperblockError::Foreign), Err(e))
        | (Err(e), Err(_)) => Err(e),
        (Err(_), Ok(b)) => Ok(b),
    }
}

/// Checks that the superblocks that were found belong to one volume. Returns the newest one, the absent members, and the last session that
/// got further than the state *preparing*.
///
/// A member that was absent in the newest session counts as absent, except for callers that require all members (`all`).
pub(super) fn agree<M: Media + ?Sized>(
    media: &M,
    found: &[Option<Superblock>],
    all: bool,
) -> Result<(Superblock, Vec<MemberId>, Session), OpenError> {
    let newest = newest(media, found).ok_or(OpenError::Missing(MemberId(0)))?;
    let mut missing = Vec::new();
    // Before every member is in the state *active*, nothing is written with the new epoch. So, if no member is active yet, members that are
    // still at the previous epoch are not outdated.
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
        if sb.is_replaced(&newest) {
            if all {
                return Err(OpenError::Replaced(m));
            }
            missing.push(m);
            continue;
        }
        // (An older table may have it in another place.)
        if sb.place_in(&newest) != Some(i) {
            return Err(OpenError::MemberList(m));
        }
        if is_left_out(found.iter().flatten(), sb) && !all {
            missing.push(m);
            continue;
        }
        let changing = !begun && preceded(sb, &newest) && may_follow(sb, &newest);
        if !same_shape(sb, &newest) && !changing {
            return Err(OpenError::MemberList(m));
        }
        // (Of a session that got no further, its epoch says nothing.)
        let wrote = sb.state != State::Preparing;
        let apart = sb.generation == newest.generation && sb.epoch != newest.epoch && wrote;
        if (sb.generation, sb.epoch) == (newest.generation, newest.epoch) {
            // This member is at the newest session.
        } else if !begun && preceded(sb, &newest) {
            // This member is at the previous session, which is the last one that counts, or at another one that wrote nothing.
        } else if apart && !broken(media, Mutant::AdmitDiverged) {
            return Err(OpenError::Diverged(m));
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
    let session = last_session(found, &newest, begun);
    Ok((newest, missing, session))
}

fn newest<M: Media + ?Sized>(media: &M, found: &[Option<Superblock>]) -> Option<Superblock> {
    if broken(media, Mutant::HeedLeftOut) {
        return found.iter().flatten().max_by_key(|s| rank(s)).cloned();
    }
    newest_superblock(found.iter().flatten()).cloned()
}

fn rank(s: &Superblock) -> (u64, bool) {
    (s.generation, !matches!(s.state, State::Preparing))
}

/// The newest of the superblocks of a volume. What a member states counts only up to the first session that began without it: it may know a
/// later one that got no further than *preparing*, whose number that session has, too.
pub fn newest_superblock<'a>(
    found: impl Iterator<Item = &'a Superblock> + Clone,
) -> Option<&'a Superblock> {
    let all = found.clone();
    let counts = |sb: &&Superblock| !is_left_out(all.clone(), sb);
    found.filter(counts).max_by_key(|s| rank(s))
}

/// Whether a session began without the member whose superblock `sb` is, after the last one that may have written there: so say others of
/// `found`. Then it is not a member any more, whatever it says, and nothing is written to it.
pub fn is_left_out<'a>(mut found: impl Iterator<Item = &'a Superblock>, sb: &Superblock) -> bool {
    let last_written = match sb.state {
        State::Preparing => sb.prev_generation,
        State::Active | State::Clean => sb.generation,
    };
    found.any(|o| {
        let place = sb.place_in(o).unwrap_or(sb.index.into());
        o.uuid == sb.uuid
            && o.state != State::Preparing
            && o.is_absent(MemberId(place as u8))
            && o.generation > last_written
    })
}

/// For each place in the newest table of the volume, the index in `found` of the device that is this member. After a change of the members
/// that was cut off, some devices have an older table, in which they have other places.
pub fn in_places(found: &[Option<Superblock>]) -> Vec<Option<usize>> {
    let Some(newest) = newest_superblock(found.iter().flatten()) else {
        return Vec::new();
    };
    let is = |sb: &Option<Superblock>, i| {
        (sb.as_ref()).is_some_and(|sb| sb.uuid == newest.uuid && sb.place_in(newest) == Some(i))
    };
    let places = 0..newest.members.len();
    places
        .map(|i| found.iter().position(|sb| is(sb, i)))
        .collect()
}

/// The last session that got further than *preparing*: that of `newest` if it has `begun`, or the one before it.
fn last_session(found: &[Option<Superblock>], newest: &Superblock, begun: bool) -> Session {
    let session = if begun {
        Session {
            epoch: newest.epoch,
            first_seq: newest.first_seq,
            follow: newest.follow,
            sole: newest.follow == Follow::Exact,
            closed: None,
        }
    } else {
        Session {
            epoch: newest.prev_epoch,
            first_seq: newest.prev_first_seq,
            follow: newest.prev_follow,
            sole: false,
            closed: None,
        }
    };
    // A superblock is set to *clean* only after everything is durable on primary and mirror.
    let ended = |s: &&Superblock| s.epoch == session.epoch && s.state == State::Clean;
    let closed = found.iter().flatten().find(ended).map(|s| s.closed_seq);
    let closed = closed.filter(|&n| n > 0);
    Session { closed, ..session }
}

/// Whether the table of `newest` can be the one after that of `sb`: it differs in members that are gone or have joined since, or the volume has
/// grown.
fn may_follow(sb: &Superblock, newest: &Superblock) -> bool {
    let gone = |id: u16| newest.others.iter().any(|m| m.id == id);
    let same = |a: &MemberEntry, b: &MemberEntry| {
        (a.uuid, a.id, a.tier, a.data_offset) == (b.uuid, b.id, b.tier, b.data_offset)
    };
    let row = |m: &MemberEntry| newest.members.iter().find(|n| n.id == m.id);
    let stays = |m: &MemberEntry| row(m).map_or(gone(m.id), |n| same(m, n));
    let is_new = |n: &MemberEntry| n.id >= sb.next_id;
    let was = |n: &MemberEntry| sb.members.iter().any(|m| m.id == n.id);
    // New flash in the place of all flash has areas of its own size.
    let first = sb.members.first().map_or(0, |m| m.id);
    let new_flash = sb.is_only_flash(MemberId(0)) && gone(first);
    // Flash that has grown has a larger ring, in another place.
    let moved = |m: MemberId| {
        let pair = sb.members.get(usize::from(m.0));
        pair.is_some_and(|a| row(a).is_some_and(|b| a.behind_at < b.behind_at))
    };
    let grown_flash = sb.kind == Kind::Cache
        && sb.area.ring_blocks < newest.area.ring_blocks
        && sb.layout().carriers().all(|c| moved(c.member));
    // With another number of flash devices, too.
    let count = sb.kind == Kind::Cache && sb.members.len().abs_diff(newest.members.len()) == 1;
    sb.table_version + 1 == newest.table_version
        && fixed(sb).0[..3] == fixed(newest).0[..3]
        && (sb.area.ring_blocks == newest.area.ring_blocks || new_flash || grown_flash || count)
        && sb.extents <= newest.extents
        && (sb.members.len() == newest.members.len() || count)
        && sb.members.iter().all(stays)
        && newest.members.iter().all(|n| was(n) || is_new(n))
}

/// Whether two superblocks describe the same volume. Everything that is fixed at creation must be equal; hints, names and policy may
/// differ.
fn same_shape(a: &Superblock, b: &Superblock) -> bool {
    fixed(a) == fixed(b)
        && a.table_version == b.table_version
        && a.members.len() == b.members.len()
        && a.members
            .iter()
            .zip(&b.members)
            .all(|(a, b)| row(a) == row(b))
}

/// The properties of the whole volume that only a change of the member table can change.
fn fixed(s: &Superblock) -> ([u32; 4], MetaArea) {
    (
        [s.extent_shift, s.block_shift, s.logical_shift, s.extents],
        s.area,
    )
}

/// The properties that only a change of the member table can change.
fn row(m: &MemberEntry) -> ([u8; 16], u16, TierId, u32, [u64; 3]) {
    let places = [m.data_offset, m.bytes, m.behind_at];
    (m.uuid, m.id, m.tier, m.slots, places)
}

/// Whether `sb` belongs to the last session that wrote before the one of `newest`, or to a session after that which got no further than the
/// state *preparing*.
fn preceded(sb: &Superblock, newest: &Superblock) -> bool {
    let before = (newest.prev_generation, newest.prev_epoch);
    (sb.generation, sb.epoch) == before
        || (sb.state == State::Preparing && (sb.prev_generation, sb.prev_epoch) == before)
}
