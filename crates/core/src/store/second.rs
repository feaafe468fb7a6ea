//! The search for the second superblock of a device, whose place depends on the table of members.

use super::counter::{self, Counter};
use super::superblock::{Superblock, SuperblockError};
use super::{BLOCK, agree};
use crate::units::MemberId;
use alloc::vec::Vec;

/// Last place that a search through all places examines, in MiB.
const SEARCH_MIB: u64 = 1024;

/// A device as this search reads it: fills the block with the bytes at an offset.
///
/// # Errors
/// [`SuperblockError::Unreadable`] if it cannot be read there, [`SuperblockError::Foreign`] if it ends before.
pub type ReadBlock<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> Result<(), SuperblockError>;

/// Reads the superblock at an offset of a device.
///
/// # Errors
/// The bytes there cannot be read, or are no superblock that can be used.
pub fn superblock_at(read: ReadBlock<'_>, offset: u64) -> Result<Superblock, SuperblockError> {
    let mut block = [0; BLOCK];
    read(offset, &mut block)?;
    Superblock::decode(&block)
}

/// The places of second superblocks according to these superblocks, in ascending order. While the table of members changes, the devices
/// have different tables, so those of all of them count.
pub fn second_places<'a>(tables: impl Iterator<Item = &'a Superblock>) -> Vec<u64> {
    let all =
        |sb: &'a Superblock| (0..sb.members.len() as u8).map(move |i| sb.copy_offset(MemberId(i)));
    let mut places: Vec<u64> = tables.flat_map(all).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// The second superblock of a device whose first one is `first`. A whole first one states the place. Otherwise the device's own counters
/// state it, because they are written before any superblock with a new table. If both are damaged, too, it is the newest one that is found
/// at `places` ([`second_places`] of the other members) or in the last block of the device, whose size is `bytes`; and with `anywhere`, if it
/// is not there either, the first one that ends at a multiple of 1 MiB, which takes about a thousand reads.
///
/// # Errors
/// None was found: [`SuperblockError::Foreign`], or the reason why the one at the known place cannot be used.
pub fn second_superblock(
    read: ReadBlock<'_>,
    first: &Result<Superblock, SuperblockError>,
    (places, bytes): (&[u64], Option<u64>),
    anywhere: bool,
) -> Result<Superblock, SuperblockError> {
    if let Ok(sb) = first {
        return superblock_at(read, sb.copy_offset(MemberId(sb.index)));
    }
    let mut told = Err(SuperblockError::Foreign);
    for place in by_counters(read) {
        told = own_at(read, place);
        if told.is_ok() {
            return told;
        }
    }
    let mut best = told;
    let block = BLOCK as u64;
    let last = bytes.and_then(|n| (n / block * block).checked_sub(block));
    for &place in places.iter().chain(&last) {
        best = match (best, own_at(read, place)) {
            (Ok(a), Ok(b)) => agree::choose(Ok(a), Ok(b)),
            (Ok(a), Err(_)) | (Err(_), Ok(a)) => Ok(a),
            (Err(SuperblockError::Foreign), Err(e)) | (Err(e), Err(_)) => Err(e),
        };
    }
    if best.is_err() && anywhere {
        let mut all = (1..=SEARCH_MIB).map(|mib| own_at(read, (mib << 20) - BLOCK as u64));
        return all.find(Result::is_ok).unwrap_or(best);
    }
    best
}

/// The superblock at `place`, if it states itself that it belongs there. Otherwise it is part of the data, or is left from an earlier use
/// of the device.
fn own_at(read: ReadBlock<'_>, place: u64) -> Result<Superblock, SuperblockError> {
    let sb = superblock_at(read, place)?;
    if sb.copy_offset(MemberId(sb.index)) == place {
        Ok(sb)
    } else {
        Err(SuperblockError::Foreign)
    }
}

/// The places of the second superblock according to the counters on the device, that of the newer one first.
fn by_counters(read: ReadBlock<'_>) -> Vec<u64> {
    let mut block = [0; BLOCK];
    let mut found: Vec<Counter> = (0..2)
        .filter_map(|value| {
            read(counter::offset(value), &mut block).ok()?;
            Counter::decode_any(&block).filter(|c| c.copy_offset > 0)
        })
        .collect();
    found.sort_by_key(|c| core::cmp::Reverse(c.value));
    found.iter().map(|c| c.copy_offset).collect()
}
