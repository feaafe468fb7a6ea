//! Flash has failed under an engine ([`crate::Engine::has_lost_cache`]): what only flash has goes to the disks, as far as flash gives it back.
//!
//! ```text
//! flush flash, so that what is read there is what was written ─► dirty data home ─► flush ─► marks name what is lost, or nothing
//! ```
//! Then the volume can be opened without flash ([`super::open::Mode::Degraded`]); what is lost becomes a list ([`super::lost`]). A crash at any
//! moment is one of the engine: flash counts as long as it is there, and what the marks name is lost without it.

use super::degraded::dirty_parts;
use super::mark::{self, Cover};
use super::mutants::broken;
use super::{Media, MediaError, Superblock};
use crate::mutants::Mutant;
use crate::units::{MemberId, Slot};
use crate::volume::Space;
use crate::volume::lost::LostPart;
use crate::volume::regions::Regions;
use alloc::vec::Vec;

/// What has become of the data that only flash had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Number of bytes that were written to the disks.
    pub bytes: u64,
    /// What is lost.
    pub lost: Vec<LostPart>,
}

/// Does what the module says, through `piece`. `space` is the engine's, and no operation is in progress. If not `trusted`, a flush of flash
/// has failed, so what it holds may be older than what was answered: then all dirty data is lost.
///
/// # Errors
/// A disk fails. Then the volume is as after any failed round.
pub fn salvage<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    space: &Space,
    trusted: bool,
    piece: &mut [u8],
) -> Result<Salvaged, MediaError> {
    let mut dirty: Vec<(MemberId, LostPart)> = Vec::new();
    for s in (0..space.geo.tier_slots(space.geo.slowest()).start).map(Slot) {
        if let Some((e, _)) = space.map.copied_in(s).filter(|_| space.map.is_dirty_in(s)) {
            let flash = space.geo.locate(s).0;
            dirty.extend(dirty_parts(space, e).into_iter().map(|p| (flash, p)));
        }
    }
    let mut flash: Vec<MemberId> = dirty.iter().map(|d| d.0).collect();
    flash.sort_unstable();
    flash.dedup();
    flash.retain(|&m| trusted && media.flush(m).is_ok());
    if broken(media, Mutant::SalvageMarksFirst) {
        name(media, sb, space, &[])?;
    }
    let mut done = Salvaged::default();
    for (m, part) in dirty {
        if flash.contains(&m) {
            rescue(media, space, part, piece, &mut done)?;
        } else {
            done.lost.push(part);
        }
    }
    // What was written past flash must be as durable as what was on it.
    if !broken(media, Mutant::SalvageUnflushed) {
        for m in sb.disks() {
            media.flush(m)?;
        }
    }
    let named = if broken(media, Mutant::SalvageForgetsLost) {
        &[]
    } else {
        &done.lost[..]
    };
    name(media, sb, space, named)?;
    Ok(done)
}

/// Writes the marks: they name what is lost.
fn name<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    space: &Space,
    lost: &[LostPart],
) -> Result<(), MediaError> {
    let mut set = Regions::default();
    let shift = space.map.regions().extents_shift();
    for p in lost {
        set.add(p.0.0 >> shift);
    }
    for m in sb.disks() {
        mark::write(media, sb, m, Cover::Covered, set, space.lost.head(m))?;
    }
    Ok(())
}

/// Copies dirty blocks home. If they cannot be read together, each block is read alone.
fn rescue<M: Media + ?Sized>(
    media: &mut M,
    space: &Space,
    (e, from, to): LostPart,
    piece: &mut [u8],
    done: &mut Salvaged,
) -> Result<(), MediaError> {
    let (map, geo) = (&space.map, &space.geo);
    let Some((copy, home)) = map.copy(e).zip(map.home(e)) else {
        return Ok(());
    };
    let (copy, home) = (geo.locate(copy), geo.locate(home));
    let mut at_once = (piece.len() as u32 >> geo.block_shift).max(1);
    let mut b = from;
    while b < to {
        let n = at_once.min(to - b);
        let at = u64::from(b) << geo.block_shift;
        let part = &mut piece[..(n << geo.block_shift) as usize];
        if media.read(copy.0, copy.1 + at, part).is_ok() {
            media.write(home.0, home.1 + at, part)?;
            done.bytes += part.len() as u64;
        } else if n > 1 {
            at_once = 1;
            continue;
        } else {
            done.lost.push((e, b, b + 1));
        }
        b += n;
    }
    Ok(())
}
