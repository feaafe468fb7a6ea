//! The lists of blocks whose newest data was lost with flash ([`crate::volume::lost`]), on the disks of a cache volume.
//!
//! A disk has room for two lists, with a bit for each of its blocks: set if the block was written since the list was made. The mark
//! ([`super::mark`]) states which of the two places counts, its number, and which regions are listed at all; only their bits have a meaning.
//! A page has eight sectors, each of which is complete in itself:
//!
//! ```text
//! 0     4       8         16                                                        512
//! ┌─────┬───────┬─────────┬────────────────────────────────────────────────────────┐
//! │crc 4│index 4│number 8 │ 3968 bits                                              │
//! └─────┴───────┴─────────┴────────────────────────────────────────────────────────┘
//! ```
//! A sector of another number, or a damaged one, states that none of its blocks was written. So a new list needs no bytes on the disk, and
//! what cannot be read is lost rather than old. While a list is in use, bits are only added, so a torn page is as good as the older or the
//! newer one. A list that is made from another one is in the other place: the older one is whole until the mark names the newer.

use super::codec::{put, seal, sealed, u32_at, u64_at};
use super::mark::{self, Cover, List, Suspects};
use super::mutants::broken;
use super::{BLOCK, Media, MediaError, OpenError, Superblock};
use crate::mutants::Mutant;
use crate::units::{MemberId, Slot};
use crate::volume::Space;
use crate::volume::lost::{LostBlocks, LostPart, PAGE_BITS, PAGE_WORDS, Words};
use crate::volume::regions::Regions;
use alloc::vec;
use alloc::vec::Vec;

const SECTOR: usize = 512;
const SECTORS: usize = BLOCK / SECTOR;
const BITS_AT: usize = 16;
const SECTOR_WORDS: usize = (SECTOR - BITS_AT) / 8;
const _: () = assert!(SECTORS * SECTOR_WORDS == PAGE_WORDS, "a page has all words");

/// Number of pages of a list of a disk that has this number of slots, each of 2^`blocks_shift` blocks.
pub fn pages_for(slots: u32, blocks_shift: u32) -> u32 {
    (u64::from(slots) << blocks_shift).div_ceil(PAGE_BITS) as u32
}

/// Encodes page `page` of list `number` to a block.
pub fn encode(number: u64, page: u32, words: &Words, block: &mut [u8]) {
    let first = page * SECTORS as u32;
    let parts = words.chunks_exact(SECTOR_WORDS);
    for ((index, b), part) in (first..).zip(block.chunks_exact_mut(SECTOR)).zip(parts) {
        put(b, 4, &index.to_le_bytes());
        put(b, 8, &number.to_le_bytes());
        for (i, w) in part.iter().enumerate() {
            put(b, BITS_AT + i * 8, &w.to_le_bytes());
        }
        seal(b, 0);
    }
}

/// Decodes page `page` of list `number`. Sectors that are damaged, or of another list, have no bits.
pub fn decode(number: u64, page: u32, block: &[u8]) -> Words {
    let mut words = [0; PAGE_WORDS];
    let first = page * SECTORS as u32;
    let parts = words.chunks_exact_mut(SECTOR_WORDS);
    for ((index, b), part) in (first..).zip(block.chunks_exact(SECTOR)).zip(parts) {
        if sealed(b, 0).is_some() && u32_at(b, 4) == index && u64_at(b, 8) == number {
            for (i, w) in part.iter_mut().enumerate() {
                *w = u64_at(b, BITS_AT + i * 8);
            }
        }
    }
    words
}

/// Reads the lists of the disks that are present.
pub(super) fn load<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    space: &Space,
    missing: &[MemberId],
    accept: bool,
) -> Result<LostBlocks, OpenError> {
    let geo = &space.geo;
    let region_shift = space.map.regions().extents_shift();
    let mut lost = LostBlocks::new(region_shift, geo.extent_shift, geo.block_shift);
    let first = geo.tier_slots(geo.slowest()).start;
    for m in sb.disks() {
        let member = &geo.members[usize::from(m.0)];
        let from = member.first_slot - first;
        lost.add_disk(m, from..from + member.slots);
    }
    let mut block = vec![0; BLOCK];
    for m in sb.disks().filter(|m| !missing.contains(m)) {
        let Some(mark) = mark::read(media, sb, m).newest else {
            if sb.lists && !accept {
                return Err(OpenError::ListLost(m));
            }
            continue;
        };
        let List {
            number,
            place,
            regions,
        } = mark.list;
        lost.set_list(m, (number, place), regions);
        for page in lost.pages_of(m) {
            // A page that cannot be read states that nothing was written.
            if media
                .read(m, sb.list_offset(m, place, page), &mut block)
                .is_ok()
            {
                lost.set_page(m, page, &decode(number, page, &block));
            }
        }
    }
    lost.count();
    Ok(lost)
}

/// What is lost with the flash that is missing.
pub(super) struct New<'a> {
    /// What the marks name, if there is no flash at all.
    pub(super) marked: Vec<Suspects>,
    /// The blocks, if they are known. Then the marks do not matter.
    pub(super) exact: Option<&'a [LostPart]>,
}

/// Adds what is lost now to the lists. Those that change get `number` and the other place, which [`renew`] makes durable. (`in_place`: a
/// mutant.)
pub(super) fn add(lost: &mut LostBlocks, new: &New<'_>, number: u64, in_place: bool) {
    let mut changed: Vec<MemberId> = Vec::new();
    match new.exact {
        Some(parts) => {
            for p in parts {
                lost.lose(*p);
                let mut lists = lost.lists().iter();
                changed.extend(lists.find(|d| d.extents.contains(&p.0.0)).map(|d| d.member));
            }
            changed.sort_unstable();
            changed.dedup();
        }
        None => {
            for (m, extents) in new.marked.iter().filter(|s| !s.1.is_empty()) {
                for r in extents {
                    lost.lose_extents(*m, r);
                }
                changed.push(*m);
            }
        }
    }
    lost.count();
    for m in changed {
        lost.renumber(m, number, in_place);
    }
}

/// An extent gets a copy only when nothing of it is lost, and its pages say so. A page that does not is damaged.
pub(super) fn has_copies(space: &mut Space) {
    if space.lost.is_empty() || space.map.copied() == 0 {
        return;
    }
    let blocks = space.geo.blocks_per_extent();
    for s in (0..space.geo.tier_slots(space.geo.slowest()).start).map(Slot) {
        if let Some((e, _)) = space.map.copied_in(s) {
            space.lost.written(e, 0, blocks);
        }
    }
}

/// The list that the mark of a disk states.
pub fn list_of(lost: &LostBlocks, m: MemberId) -> List {
    let list = lost.of(m).filter(|d| !d.regions.is_empty());
    list.map_or(List::default(), |d| List {
        number: d.number,
        place: d.place,
        regions: d.regions,
    })
}

/// Makes the pages of a disk's list durable, before the mark names it. Nothing is written if the mark names it already.
fn write_pages<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    m: MemberId,
    lost: &LostBlocks,
) -> Result<(), MediaError> {
    let Some(list) = lost.of(m) else {
        return Ok(());
    };
    let mut block = vec![0; BLOCK];
    for page in lost.pages_of(m) {
        if let Some(words) = list.words(page) {
            encode(list.number, page, words, &mut block);
            media.write(m, sb.list_offset(m, list.place, page), &block)?;
        }
    }
    media.flush(m)
}

/// Brings the mark of a disk, and its list, to what is said here. Returns the number of the mark.
pub(super) fn renew<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    m: MemberId,
    set: &Regions,
    lost: &LostBlocks,
) -> Result<u64, MediaError> {
    let (stated, list) = (mark::read(media, sb, m), list_of(lost, m));
    let shift = Regions::shift(sb.extents, sb.extent_shift);
    let same = |k: &&mark::Mark| k.set == *set && k.shift == shift && k.list == list;
    if let Some(k) = stated.newest.as_ref().filter(same)
        && stated.damaged == 0
    {
        return Ok(k.number);
    }
    let is_new = stated.newest.is_none_or(|k| k.list.number != list.number);
    let late = broken(media, Mutant::ListBeforePages);
    if is_new && !late {
        write_pages(media, sb, m, lost)?;
    }
    let number = mark::write(media, sb, m, Cover::Covered, *set, list)?;
    if is_new && late {
        write_pages(media, sb, m, lost)?;
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sector_of_a_page_counts_alone() {
        let words: Words = core::array::from_fn(|i| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut b = [0; BLOCK];
        encode(7, 3, &words, &mut b);
        assert_eq!(decode(7, 3, &b), words);
        for (number, page) in [(8, 3), (7, 2)] {
            assert_eq!(decode(number, page, &b), [0; PAGE_WORDS]);
        }
        for i in (0..BLOCK).step_by(31) {
            let mut c = b;
            c[i] ^= 1;
            let mut left = words;
            left[i / SECTOR * SECTOR_WORDS..][..SECTOR_WORDS].fill(0);
            assert_eq!(decode(7, 3, &c), left, "byte {i}");
        }
        assert_eq!([0, 1, 7936, 7937].map(|n| pages_for(n, 2)), [0, 1, 1, 2]);
    }
}
