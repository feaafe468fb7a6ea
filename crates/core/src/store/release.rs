//! Release: the disks of a cache volume become plain disks again, each with its part of the volume, byte for byte.
//!
//! ```text
//! dirty data home ─► marks empty ─► superblocks on flash erased ─► marks *releasing*, with the checksum of the stash ─► for each disk:
//!    is the stash what it was? ─► stash ─► its bytes from 4096 on ─► its first block ─► second superblock erased ─► mark and stash erased
//! ```
//! Each step is durable before the next one begins. Until the marks say *releasing*, the volume can be opened, at last without flash. From
//! then on no opening writes to it, and a release that was interrupted does the same again: the stash is whole until the disk's own first
//! block is, and without a second superblock nothing is taken for a member. An interrupted release finds its disks by the last block of each
//! device. If the second superblock is not there, because the device is larger than the volume needs, that block gets a copy of it first.

use super::grow::dirty_blocks;
use super::layout::HEAD_BLOCKS;
use super::mark::{self, Cover};
use super::mutants::broken;
use super::recover::CHUNK;
use super::{BLOCK, Media, MediaError, OpenError, Opened, Superblock, Transfer};
use crate::crc32c;
use crate::mutants::Mutant;
use crate::units::{MemberId, Slot};
use crate::volume::Space;
use crate::volume::lost::ListHead;
use crate::volume::regions::Regions;
use alloc::vec;
use alloc::vec::Vec;

/// The ranges of dirty data that must be written home, and flushed there, before a release.
pub fn dirty_home(space: &Space) -> Vec<Transfer> {
    let (map, geo) = (&space.map, &space.geo);
    let mut all = Vec::new();
    for s in (0..geo.tier_slots(geo.slowest()).start).map(Slot) {
        let Some((e, home)) = map.copied_in(s).filter(|_| map.is_dirty_in(s)) else {
            continue;
        };
        dirty_blocks(space, e, (s, home), &mut all);
    }
    all
}

/// Copies ranges in their order through `piece`, of whole blocks, and flushes their places. Returns the number of bytes.
///
/// # Errors
/// A device fails.
pub fn carry<M: Media + ?Sized>(
    media: &mut M,
    ranges: &[Transfer],
    piece: &mut [u8],
) -> Result<u64, MediaError> {
    for t in ranges {
        let mut at = 0;
        while at < t.bytes {
            let n = (t.bytes - at).min(piece.len() as u32);
            let part = &mut piece[..n as usize];
            media.read(t.from.0, t.from.1 + u64::from(at), part)?;
            media.write(t.to.0, t.to.1 + u64::from(at), part)?;
            at += n;
        }
    }
    let mut places: Vec<MemberId> = ranges.iter().map(|t| t.to.0).collect();
    places.sort_unstable();
    places.dedup();
    for m in places {
        media.flush(m)?;
    }
    Ok(ranges.iter().map(|t| u64::from(t.bytes)).sum())
}

/// Takes the flash of an opened volume out of it, after the ranges of [`dirty_home`] were written home and flushed. From now on the volume can
/// only be released.
///
/// # Errors
/// A device fails. The volume can be opened, or its release goes on.
pub fn leave_flash<M: Media + ?Sized>(media: &mut M, opened: &Opened) -> Result<(), MediaError> {
    let (sb, none) = (&opened.superblock, Regions::default());
    let disks: Vec<MemberId> = sb.disks().collect();
    for &m in &disks {
        mark::write(media, sb, m, Cover::Covered, none, ListHead::default())?;
    }
    for m in (0..sb.members.len() as u8).map(MemberId) {
        if sb.is_disk(m) || opened.report.missing.contains(&m) {
            continue;
        }
        for at in [sb.copy_offset(m), 0] {
            media.write(m, at, &[0; BLOCK])?;
            media.flush(m)?;
        }
    }
    disks.iter().try_for_each(|&m| begin(media, sb, m))
}

/// States on a disk that its release has begun, after the flash was taken out. If power fails between two disks, this goes on with the others.
///
/// # Errors
/// The device fails. Doing it again goes on.
pub fn begin<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    m: MemberId,
) -> Result<(), MediaError> {
    if let Some(at) = spare_last_block(media, sb, m) {
        let index = m.0;
        let copy = Superblock {
            index,
            ..sb.clone()
        };
        media.write(m, at, &copy.encode())?;
        media.flush(m)?;
    }
    let stated = mark::read(media, sb, m).newest;
    if !stated.is_some_and(|k| k.cover.is_releasing()) {
        let cover = Cover::Releasing(Some(sum_of_stash(media, sb, m)?));
        mark::write(media, sb, m, cover, Regions::default(), ListHead::default())?;
    }
    Ok(())
}

/// The checksum of the stash of a disk.
fn sum_of_stash<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    m: MemberId,
) -> Result<u32, MediaError> {
    let (stash, mut buf) = (sb.stash(m), vec![0; CHUNK * BLOCK]);
    let (mut at, end) = (stash.at, stash.at + stash_bytes(sb, m));
    let mut sum = crc32c::crc32c(&[]);
    while at < end {
        let part = (end - at).min(buf.len() as u64) as usize;
        media.read(m, at, &mut buf[..part])?;
        sum = crc32c::update(sum, &buf[..part]);
        at += part as u64;
    }
    Ok(sum)
}

fn stash_bytes(sb: &Superblock, m: MemberId) -> u64 {
    u64::from(sb.stash(m).slots) << sb.extent_shift
}

/// The last block of a device, if the volume does not use it.
fn spare_last_block<M: Media + ?Sized>(media: &M, sb: &Superblock, m: MemberId) -> Option<u64> {
    let block = BLOCK as u64;
    let last = (media.bytes(m)? / block * block).checked_sub(block)?;
    (last > sb.copy_offset(m)).then_some(last)
}

/// Gives a disk back whose mark says *releasing*. `sb` is its second superblock.
///
/// # Errors
/// The device fails; doing it again goes on. Or the stash has been damaged since the release began; then nothing was written.
pub fn uncover<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    m: MemberId,
) -> Result<(), OpenError> {
    let (stash, block, bytes) = (sb.stash(m), BLOCK as u64, stash_bytes(sb, m));
    let stated = mark::read(media, sb, m).newest.map(|k| k.cover);
    if let Some(Cover::Releasing(Some(sum))) = stated
        && sum_of_stash(media, sb, m)? != sum
        && !broken(media, Mutant::TrustStash)
    {
        return Err(OpenError::DamagedStash {
            member: m,
            at: stash.at,
            bytes,
        });
    }
    let mut buf = vec![0; CHUNK * BLOCK];
    let mut at = block;
    while at < bytes {
        let part = (bytes - at).min(buf.len() as u64) as usize;
        media.read(m, stash.at + at, &mut buf[..part])?;
        media.write(m, at, &buf[..part])?;
        at += part as u64;
    }
    // In a tiny volume, the metadata of the head is longer than what belongs there.
    buf.fill(0);
    while at <= HEAD_BLOCKS * block {
        media.write(m, at, &buf[..BLOCK])?;
        at += block;
    }
    media.flush(m)?;
    media.read(m, stash.at, &mut buf[..BLOCK])?;
    media.write(m, 0, &buf[..BLOCK])?;
    media.flush(m)?;
    buf.fill(0);
    for at in core::iter::once(sb.copy_offset(m)).chain(spare_last_block(media, sb, m)) {
        media.write(m, at, &buf[..BLOCK])?;
    }
    media.flush(m)?;
    // Nothing knows of the rest any more.
    let (mut at, end) = (stash.at, sb.copy_offset(m));
    while at < end {
        let part = (end - at).min(buf.len() as u64) as usize;
        media.write(m, at, &buf[..part])?;
        at += part as u64;
    }
    Ok(media.flush(m)?)
}
