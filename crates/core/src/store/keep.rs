//! Blocks of the journal that outlived a killed server in memory: see `engine/durability/keep.rs`.

use super::mutants::broken;
use super::superblock::{State, Superblock};
use super::{BLOCK, Media, MediaError, journal};
use crate::mutants::Mutant;
use crate::units::MemberId;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// What a killed server left in its keeper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The number of its session.
    pub epoch: u64,
    /// The blocks, by sequence number. Blocks that are older than the journal on the primary may be among them.
    pub blocks: BTreeMap<u64, Vec<u8>>,
}

/// Writes kept blocks to the journal, where recovery finds them. Call it before [`super::open()`], and only if the members were not without
/// power since the server was killed. A crash meanwhile does no harm: the same call is repeated, or, if power was lost, the journal has the
/// first of these blocks or none. `found[i]` is the superblock of member i, if that device is present.
///
/// Returns the number of blocks that were written. It is 0 if the members have begun another session since, or ended this one, or if the
/// primary of the session is missing.
///
/// # Errors
/// A device fails.
pub fn restore<M: Media + ?Sized>(
    media: &mut M,
    found: &[Option<Superblock>],
    kept: &Kept,
) -> Result<u64, MediaError> {
    let newest = found.iter().flatten().max_by_key(|s| s.generation);
    let Some(sb) = newest.filter(|s| s.epoch == kept.epoch && s.state == State::Active) else {
        return Ok(0);
    };
    let absent: Vec<MemberId> = members(sb).filter(|m| sb.is_absent(*m)).collect();
    let there = |m: MemberId| found.get(usize::from(m.0)).is_some_and(Option::is_some);
    let Some(layout) = sb
        .layout()
        .without(&absent)
        .filter(|l| there(l.primary.member))
    else {
        return Ok(0);
    };
    // The records expose data that may still be in the write caches of the devices.
    if !broken(media, Mutant::RestoreBeforeFlush) {
        for m in members(sb).filter(|m| there(*m) && !sb.is_absent(*m)) {
            media.flush(m)?;
        }
    }
    let mut written = 0;
    let mut there = vec![0; BLOCK];
    for (&seq, block) in &kept.blocks {
        let ours = journal::decode(block, &sb.uuid);
        if ours.is_none_or(|h| h.seq != seq || h.epoch != kept.epoch) {
            continue;
        }
        let (m, at) = (
            layout.primary.member,
            layout.ring_offset(layout.primary, seq),
        );
        if media.read(m, at, &mut there).is_ok() {
            // A block of an earlier session may have the same number: that session lost the block before it.
            let yields = u64::from(broken(media, Mutant::RestoreYieldsToOld));
            let later = journal::decode(&there, &sb.uuid).is_some_and(|h| h.seq + yields > seq);
            if later || there == *block {
                continue;
            }
        }
        media.write(m, at, block)?;
        written += 1;
    }
    if written > 0 {
        media.flush(layout.primary.member)?;
    }
    Ok(written)
}

fn members(sb: &Superblock) -> impl Iterator<Item = MemberId> {
    (0..sb.members.len()).map(|i| MemberId(i as u8))
}
