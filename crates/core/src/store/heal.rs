//! Repairs of metadata: if a block is damaged in one place and complete in another, this is detected when it is read, reported, and the
//! block is written again.

use super::checkpoint::{self, Header};
use super::error::OpenError;
use super::journal;
use super::mutants::broken;
use super::recover::{CHUNK, Loaded};
use super::report::{Part, Repair};
use super::session::Session;
use super::superblock::Superblock;
use super::{BLOCK, Layout, Media, MediaError};
use crate::mutants::Mutant;
use crate::units::MemberId;
use alloc::vec;
use alloc::vec::Vec;

/// The damaged superblocks of members that are present.
pub(super) fn superblocks<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    missing: &[MemberId],
) -> Vec<Repair> {
    let mut repairs = Vec::new();
    let mut block = vec![0; BLOCK];
    for m in (0..sb.members.len()).map(|i| MemberId(i as u8)) {
        if missing.contains(&m) {
            continue;
        }
        let mut whole = |at| {
            media.read(m, at, &mut block).is_ok()
                && Superblock::decode(&block).is_ok_and(|s| s.uuid == sb.uuid)
        };
        let damaged = [0, sb.copy_offset(m)].map(|at| u64::from(!whole(at)));
        let blocks = damaged[0] + damaged[1];
        if blocks > 0 {
            repairs.push(Repair {
                member: m,
                part: Part::Superblock,
                blocks,
            });
        }
    }
    repairs
}

/// Writes each damaged superblock of a member anew, as the member's other superblock states it. Until this is done, the whole one must not
/// be overwritten: after a crash the member would have none.
pub(super) fn mend_superblocks<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    found: &[Option<Superblock>],
    missing: &[MemberId],
) -> Result<(), MediaError> {
    let mut block = vec![0; BLOCK];
    for (i, own) in found.iter().enumerate() {
        let m = MemberId(i as u8);
        let Some(own) = own.as_ref().filter(|_| !missing.contains(&m)) else {
            continue;
        };
        for at in [0, sb.copy_offset(m)] {
            let whole = media.read(m, at, &mut block).is_ok()
                && Superblock::decode(&block).is_ok_and(|s| s.uuid == own.uuid);
            if !whole {
                media.write(m, at, &own.encode())?;
                media.flush(m)?;
            }
        }
    }
    Ok(())
}

/// Makes primary and mirror equal: the checkpoint from which the journal starts, and the journal, including every damaged block. Returns
/// the number of journal blocks that were written to each of the two.
pub(super) fn resync<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    layout: Layout,
    session: Session,
    loaded: &Loaded,
) -> Result<[u64; 2], OpenError> {
    let both: Vec<MemberId> = core::iter::once(layout.primary)
        .chain(layout.mirror)
        .collect();
    checkpoints(media, sb, layout, &both, loaded)?;
    let mut wrote = [0; 2];
    let Some(mirror) = layout.mirror else {
        return Ok(wrote);
    };
    // A block that is complete on only one of the two is copied to the other. But a session whose blocks were lost may have left a complete
    // block with the same number. So a block counts only if it continues the chain that was replayed.
    let mut buf = vec![0; BLOCK];
    let mut other = vec![0; BLOCK];
    let mut tip = loaded.checkpoint.start;
    let leave = broken(media, Mutant::LeavePrimaryTorn);
    for seq in tip.next_seq..loaded.tip.next_seq {
        let at = layout.area.ring_offset(seq);
        let chained =
            |b: &[u8]| journal::decode(b, &sb.uuid).filter(|h| tip.accepts(h) && session.allows(h));
        let a = media.read(layout.primary, at, &mut buf);
        let a = a.ok().and_then(|()| chained(&buf));
        let b = media.read(mirror, at, &mut other);
        let b = b.ok().and_then(|()| chained(&other));
        if a.is_some() && a != b {
            media.write(mirror, at, &buf)?;
            wrote[1] += 1;
        } else if b.is_some() && a.is_none() && !leave {
            media.write(layout.primary, at, &other)?;
            wrote[0] += 1;
        }
        // Replay has read one of the two. If neither can be read now, a device has failed since.
        let h = a.or(b).ok_or(MediaError {
            member: layout.primary,
            offset: at,
        })?;
        tip = tip.after(&h);
    }
    for (m, w) in [layout.primary, mirror].into_iter().zip(wrote) {
        if w > 0 && !broken(media, Mutant::ResyncWithoutFlush) {
            media.flush(m)?;
        }
    }
    Ok(wrote)
}

/// Makes the checkpoint in use complete on each of `members`.
fn checkpoints<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    layout: Layout,
    members: &[MemberId],
    loaded: &Loaded,
) -> Result<(), OpenError> {
    let h = loaded.checkpoint;
    let header = h.encode(&sb.uuid, &loaded.counters);
    let first = broken(media, Mutant::ResyncHeaderFirst);
    let mut buf = vec![0; CHUNK * BLOCK];
    for &to in members {
        let at = layout.region_offset(to, Header::region(h.number));
        let known = media.read(to, at, &mut buf[..BLOCK]).is_ok()
            && Header::decode(&buf[..BLOCK], &sb.uuid) == Some(h);
        let bad = loaded.bad.iter().any(|b| b.0 == to);
        if known && !bad {
            continue;
        }
        if first && !known {
            media.write(to, at, &header)?;
        }
        let mut i = 0;
        while i < h.blocks {
            let n = (h.blocks - i).min(CHUNK as u32) as usize;
            // If the header is complete, only the blocks that were found damaged are missing.
            if !known || (i..i + n as u32).any(|b| loaded.bad.contains(&(to, b))) {
                let part = &mut buf[..n * BLOCK];
                gather(media, sb, layout, members, loaded, i, part)?;
                media.write(to, at + (1 + u64::from(i)) * BLOCK as u64, part)?;
            }
            i += n as u32;
        }
        media.flush(to)?;
        if !known && !first {
            media.write(to, at, &header)?;
            media.flush(to)?;
        }
    }
    Ok(())
}

/// Reads blocks of the checkpoint in use, from block `first` on, each from a member that has it complete. If no member has a block and its
/// loss was accepted, it is replaced by a block without records.
fn gather<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    layout: Layout,
    members: &[MemberId],
    loaded: &Loaded,
    first: u32,
    part: &mut [u8],
) -> Result<(), OpenError> {
    let h = loaded.checkpoint;
    let place = |m: MemberId, i: u32| layout.checkpoint_block(m, h.number, i);
    for (b, i) in part.chunks_exact_mut(BLOCK).zip(first..) {
        let mut whole = false;
        for &m in members {
            whole = media.read(m, place(m, i), b).is_ok()
                && checkpoint::is_data(b, &sb.uuid, h.number, i);
            if whole {
                break;
            }
        }
        if !whole {
            if !loaded.gaps.contains(&i) {
                return Err(OpenError::Media(MediaError {
                    member: members[0],
                    offset: place(members[0], i),
                }));
            }
            b.fill(0);
            checkpoint::seal_data(b, &sb.uuid, h.number, i);
        }
    }
    Ok(())
}
