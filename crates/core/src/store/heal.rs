//! Repairs of metadata: if a block is damaged in one place and complete in another, this is detected when it is read, reported, and the
//! block is written again.

use super::checkpoint::{self, Header};
use super::error::OpenError;
use super::journal;
use super::mutants::broken;
use super::recover::{CHUNK, Loaded};
use super::report::{Part, Repair};
use super::session::Session;
use super::superblock::{MAGIC, Superblock};
use super::{BLOCK, Carrier, Layout, Media, MediaError};
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
) -> Result<(), OpenError> {
    let mut block = vec![0; BLOCK];
    for (i, own) in found.iter().enumerate() {
        let m = MemberId(i as u8);
        let Some(own) = own.as_ref().filter(|_| !missing.contains(&m)) else {
            continue;
        };
        for at in [0, sb.copy_offset(m)] {
            let there = media.read(m, at, &mut block).is_ok();
            let whole = there && Superblock::decode(&block).is_ok_and(|s| s.uuid == own.uuid);
            let taken = at == 0 && sb.is_disk(m) && is_known_content(&block);
            if there && !whole && taken && !broken(media, Mutant::MendOverFileSystem) {
                return Err(OpenError::Overwritten(m));
            }
            if !whole {
                media.write(m, at, &own.encode())?;
                media.flush(m)?;
            }
        }
    }
    Ok(())
}

/// Whether a block is the first one of a file system, a partition table or the like: such a disk was taken for something else, or was given
/// back to what is on it.
fn is_known_content(block: &[u8]) -> bool {
    let at = |offset: usize, magic: &[u8]| block[offset..].starts_with(magic);
    if at(0, &MAGIC) {
        // A torn superblock, whatever its other bytes look like.
        return false;
    }
    at(1080, &[0x53, 0xef])
        || at(0, b"XFSB")
        || at(0, b"LUKS\xba\xbe")
        || at(512, b"LABELONE")
        || at(512, b"EFI PART")
        || at(510, &[0x55, 0xaa])
        || at(4086, b"SWAPSPACE2")
        || at(3, b"NTFS    ")
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
    let both: Vec<Carrier> = layout.carriers().collect();
    if both.is_empty() {
        return Ok([0; 2]);
    }
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
        let [p, m] = [layout.primary, mirror].map(|c| (c.member, layout.ring_offset(c, seq)));
        let chained =
            |b: &[u8]| journal::decode(b, &sb.uuid).filter(|h| tip.accepts(h) && session.allows(h));
        let a = media.read(p.0, p.1, &mut buf);
        let a = a.ok().and_then(|()| chained(&buf));
        let b = media.read(m.0, m.1, &mut other);
        let b = b.ok().and_then(|()| chained(&other));
        if a.is_some() && a != b {
            media.write(m.0, m.1, &buf)?;
            wrote[1] += 1;
        } else if b.is_some() && a.is_none() && !leave {
            media.write(p.0, p.1, &other)?;
            wrote[0] += 1;
        }
        // Replay has read one of the two. If neither can be read now, a device has failed since.
        let h = a.or(b).ok_or(MediaError {
            member: p.0,
            offset: p.1,
        })?;
        tip = tip.after(&h);
    }
    for (c, w) in [layout.primary, mirror].into_iter().zip(wrote) {
        if w > 0 && !broken(media, Mutant::ResyncWithoutFlush) {
            media.flush(c.member)?;
        }
    }
    Ok(wrote)
}

/// Makes the checkpoint in use complete on each of `carriers`.
fn checkpoints<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    layout: Layout,
    carriers: &[Carrier],
    loaded: &Loaded,
) -> Result<(), OpenError> {
    let h = loaded.checkpoint;
    let header = h.encode(&sb.uuid, &loaded.counters);
    let first = broken(media, Mutant::ResyncHeaderFirst);
    let mut buf = vec![0; CHUNK * BLOCK];
    for &c in carriers {
        let (to, at) = (c.member, layout.region_offset(c, Header::region(h.number)));
        let known = media.read(to, at, &mut buf[..BLOCK]).is_ok()
            && Header::decode(&buf[..BLOCK], &sb.uuid) == Some(h);
        let bad = loaded.bad.iter().any(|b| b.0 == c);
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
            if !known || (i..i + n as u32).any(|b| loaded.bad.contains(&(c, b))) {
                let part = &mut buf[..n * BLOCK];
                gather(media, sb, layout, carriers, loaded, i, part)?;
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
    carriers: &[Carrier],
    loaded: &Loaded,
    first: u32,
    part: &mut [u8],
) -> Result<(), OpenError> {
    let h = loaded.checkpoint;
    let place = |c: Carrier, i: u32| layout.checkpoint_block(c, h.number, i);
    for (b, i) in part.chunks_exact_mut(BLOCK).zip(first..) {
        let mut whole = false;
        for &c in carriers {
            whole = media.read(c.member, place(c, i), b).is_ok()
                && checkpoint::is_data(b, &sb.uuid, h.number, i);
            if whole {
                break;
            }
        }
        if !whole {
            if !loaded.gaps.contains(&i) {
                return Err(OpenError::Media(MediaError {
                    member: carriers[0].member,
                    offset: place(carriers[0], i),
                }));
            }
            b.fill(0);
            checkpoint::seal_data(b, &sb.uuid, h.number, i);
        }
    }
    Ok(())
}
