//! Adoption: a disk that holds data becomes a disk of a cache volume in place, so that byte 0 of the volume is what byte 0 of the disk was.
//!
//! ```text
//! head ─► stash ─► mark *releasing*, with the checksum of the stash ─► second superblock ─► bytes 4096 … of the head ─► first block
//!    ─► mark *covered*
//! ```
//! Each step is durable before the next one begins. Until the second superblock is there, the disk is what it was; from then on, until
//! the mark says *covered*, the disk is one whose release was interrupted, and [`super::release::uncover`] gives it back.

use super::mark::{self, Cover};
use super::mutants::broken;
use super::recover::CHUNK;
use super::superblock::Superblock;
use super::{BLOCK, Media, MediaError, release};
use crate::mutants::Mutant;
use crate::units::MemberId;
use crate::volume::lost::ListHead;
use crate::volume::regions::Regions;
use alloc::vec;

/// Sets the head of a disk aside, in its stash, and states that. `sb` is the volume's superblock, as it will be.
///
/// # Errors
/// The device fails. Its data is as before, or [`super::release::uncover`] gives it back.
pub(super) fn set_aside<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    m: MemberId,
) -> Result<(), MediaError> {
    let (head, stash) = (sb.head_bytes(), sb.stash(m).at);
    let mut buf = vec![0; CHUNK * BLOCK];
    let mut at = 0;
    while at < head {
        let part = (head - at).min(buf.len() as u64) as usize;
        media.read(m, at, &mut buf[..part])?;
        media.write(m, stash + at, &buf[..part])?;
        at += part as u64;
    }
    media.flush(m)?;
    let early = broken(media, Mutant::AdoptBeforeMark);
    if !early {
        release::begin(media, sb, m)?;
    }
    // Without it, nothing takes the disk for a member, and it is as it was.
    let own = Superblock {
        index: m.0,
        ..sb.clone()
    };
    media.write(m, sb.copy_offset(m), &own.encode())?;
    media.flush(m)?;
    // What is recognised behind the first block must not be taken for a file system.
    buf.fill(0);
    let mut at = BLOCK as u64;
    while at < head {
        let part = (head - at).min(buf.len() as u64) as usize;
        media.write(m, at, &buf[..part])?;
        at += part as u64;
    }
    media.flush(m)?;
    if early {
        release::begin(media, sb, m)?;
    }
    Ok(())
}

/// The volume's superblock is at the start of a disk: from now on its first bytes are the volume's.
///
/// # Errors
/// The device fails.
pub(super) fn cover<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    m: MemberId,
) -> Result<(), MediaError> {
    let none = Regions::default();
    mark::write(media, sb, m, Cover::Covered, none, ListHead::default()).map(drop)
}
