//! Checks whether the superblocks that were found form one volume: which superblock is the newest, which members are absent, and which
//! session was the last.

use super::error::OpenError;
use super::session::Session;
use super::superblock::{Follow, State, Superblock, SuperblockError};
use crate::units::MemberId;
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
pub(super) fn agree(
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
        if usize::from(sb.index) != i || !same_shape(sb, &newest) {
            return Err(OpenError::MemberList(m));
        }
        if sb.generation == newest.generation {
            if sb.epoch != newest.epoch {
                return Err(OpenError::Diverged(m));
            }
        } else if !begun && preceded(sb, &newest) {
            // This member is at the previous session, which is the last one that counts.
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
    Ok((newest, missing, Session { closed, ..session }))
}

/// Whether two superblocks describe the same volume. Everything that is fixed at creation must be equal; hints, names and policy may
/// differ.
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

/// Whether `sb` belongs to the last session that wrote before the one of `newest`, or to a session after that which got no further than the
/// state *preparing*.
fn preceded(sb: &Superblock, newest: &Superblock) -> bool {
    let before = (newest.prev_generation, newest.prev_epoch);
    (sb.generation, sb.epoch) == before
        || (sb.state == State::Preparing && (sb.prev_generation, sb.prev_epoch) == before)
}
