//! Checks whether the superblocks that were found form one volume: which superblock is the newest, which members are absent, and which
//! session was the last.

use super::error::OpenError;
use super::recover::Session;
use super::superblock::{Follow, State, Superblock, SuperblockError};
use crate::units::MemberId;
use alloc::vec::Vec;

/// The better one of a device's two superblocks. `second` may be unreadable if the first is valid.
pub fn choose(
    first: Result<Superblock, SuperblockError>,
    second: Result<Superblock, SuperblockError>,
) -> Result<Superblock, SuperblockError> {
    prefer(first, second, false)
}

/// [`choose`] with a rule removed, for tests of the tests.
///
/// # Errors
/// As for [`choose`].
#[cfg(feature = "mutants")]
pub fn choose_under(
    mutant: Option<crate::engine::Mutant>,
    first: Result<Superblock, SuperblockError>,
    second: Result<Superblock, SuperblockError>,
) -> Result<Superblock, SuperblockError> {
    let first_wins = mutant == Some(crate::engine::Mutant::PreferFirstSuperblock);
    prefer(first, second, first_wins)
}

fn prefer(
    first: Result<Superblock, SuperblockError>,
    second: Result<Superblock, SuperblockError>,
    first_wins: bool,
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

/// Checks that the superblocks that were found are one volume. Returns the newest one, the absent members, and the last session that got
/// further than preparing.
///
/// A member that the newest session ran without counts as absent, except for callers that require all members.
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
    // Until every member says "active", nothing was written under the new epoch. So members that are still at the previous epoch fit.
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
    // A member whose superblock says "clean" got this state after everything was durable on primary and mirror.
    let ended = |s: &&Superblock| s.epoch == session.epoch && s.state == State::Clean;
    let closed = found.iter().flatten().find(ended).map(|s| s.closed_seq);
    let closed = closed.filter(|&n| n > 0);
    Ok((newest, missing, Session { closed, ..session }))
}

/// Whether two superblocks describe one volume. Everything that is fixed at creation must be equal; hints, names and policy may differ.
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

/// Whether `sb` is of the last session that wrote before `newest` prepared, or of another session that only prepared after that one.
fn preceded(sb: &Superblock, newest: &Superblock) -> bool {
    let before = (newest.prev_generation, newest.prev_epoch);
    (sb.generation, sb.epoch) == before
        || (sb.state == State::Preparing && (sb.prev_generation, sb.prev_epoch) == before)
}
