//! The lists of blocks whose newest data was lost with flash ([`crate::volume::lost`]), on the disks of a cache volume.
//!
//! A disk has room for two lists. The mark ([`super::mark`]) states which of the two places counts, its number, the size of its granules, and
//! how many pages it has. A page has the bits of one chunk, in eight sectors, each of which is complete in itself:
//!
//! ```text
//! 0     4       8         16                                                        512
//! ┌─────┬───────┬─────────┬────────────────────────────────────────────────────────┐
//! │crc 4│index 4│number 8 │ 3968 bits                                              │
//! └─────┴───────┴─────────┴────────────────────────────────────────────────────────┘
//! ```
//! `index` is 8 × chunk + sector. A bit is set if the granule was never lost, or was written since. A sector of another number, or a damaged
//! one, states that all of its granules are lost, as far as the mark lists their regions. If all sectors of a page are damaged, nobody knows
//! its chunk: then that is true for all chunks without a page. So what cannot be read is lost rather than old. While a list is in use, bits are
//! only added, so a torn page is as good as the older or the newer one. A list that is made from another one is in the other place: the older
//! one is whole until the mark names the newer.

use super::codec::{put, seal, sealed, u32_at, u64_at};
use super::mark::{self, Cover, Suspects};
use super::mutants::broken;
use super::{BLOCK, Media, MediaError, OpenError, Superblock};
use crate::mutants::Mutant;
use crate::units::{MemberId, Slot};
use crate::volume::Space;
use crate::volume::lost::{How, ListHead, LostBlocks, LostPart, PAGE_WORDS, Words};
use crate::volume::regions::Regions;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

const SECTOR: usize = 512;
const SECTORS: usize = BLOCK / SECTOR;
const BITS_AT: usize = 16;
const SECTOR_WORDS: usize = (SECTOR - BITS_AT) / 8;
const _: () = assert!(SECTORS * SECTOR_WORDS == PAGE_WORDS, "a page has all words");

/// Encodes the page of a chunk in list `number` to a block.
pub fn encode(number: u64, chunk: u32, words: &Words, block: &mut [u8]) {
    let first = chunk * SECTORS as u32;
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

/// A page as it was read.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    chunk: u32,
    words: Words,
    /// The words of sectors that are damaged, or of another list. No bit is set there.
    damaged: Vec<Range<usize>>,
}

/// Decodes a page of list `number`. `None`: nothing of it is whole.
fn decode(number: u64, block: &[u8]) -> Option<Read> {
    let (mut words, mut damaged, mut chunk) = ([0; PAGE_WORDS], Vec::new(), None);
    let parts = words.chunks_exact_mut(SECTOR_WORDS);
    for ((sector, b), part) in (0u32..).zip(block.chunks_exact(SECTOR)).zip(parts) {
        let index = u32_at(b, 4);
        let own = index / SECTORS as u32;
        if sealed(b, 0).is_none() || u64_at(b, 8) != number || index % SECTORS as u32 != sector {
            let from = sector as usize * SECTOR_WORDS;
            damaged.push(from..from + SECTOR_WORDS);
            continue;
        }
        if *chunk.get_or_insert(own) != own {
            return None;
        }
        for (i, w) in part.iter_mut().enumerate() {
            *w = u64_at(b, BITS_AT + i * 8);
        }
    }
    chunk.map(|chunk| Read {
        chunk,
        words,
        damaged,
    })
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
        lost.add_disk(m, from..from + member.slots, sb.list_pages_of(m));
    }
    for m in sb.disks().filter(|m| !missing.contains(m)) {
        match mark::read(media, sb, m).newest {
            Some(mark) => load_list(media, sb, m, &mark.list, &mut lost),
            None if sb.lists && !accept => return Err(OpenError::ListLost(m)),
            None => {}
        }
    }
    lost.count();
    Ok(lost)
}

/// Reads the list of a disk.
fn load_list<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    m: MemberId,
    list: &ListHead,
    lost: &mut LostBlocks,
) {
    lost.set_list(m, list);
    let mut block = vec![0; BLOCK];
    let room = sb.list_pages_of(m);
    for at in 0..list.pages {
        let is_read = at < room
            && media
                .read(m, sb.list_offset(m, list.place, at), &mut block)
                .is_ok();
        let mut page = decode(list.number, &block).filter(|_| is_read);
        if broken(media, Mutant::DamagedSectorForgotten)
            && let Some(p) = &mut page
        {
            p.damaged.drain(..).for_each(|d| p.words[d].fill(u64::MAX));
        }
        let set = page.is_some_and(|p| lost.set_page(m, (at, p.chunk), &p.words, &p.damaged));
        if !set && !broken(media, Mutant::DamagedPageForgotten) {
            lost.lacks_pages(m);
        }
    }
}

/// What is lost with the flash that is missing.
pub(super) struct New<'a> {
    /// What the marks name, if there is no flash at all.
    pub(super) marked: Vec<Suspects>,
    /// The blocks, if they are known. Then the marks do not matter.
    pub(super) exact: Option<&'a [LostPart]>,
}

impl New<'_> {
    /// Adds it to the lists, of which those that change get `number`. [`renew`] makes them durable.
    pub(super) fn add_to(&self, lost: &mut LostBlocks, number: u64, how: How) {
        lost.lose(self.exact, &self.marked, number, how);
    }
}

/// An extent gets a copy only when nothing of it is lost, and its pages say so. A page that does not is damaged. (But a granule may have other
/// extents, too. Then it stays lost, and its blocks are read only as long as there is the copy.)
pub(super) fn has_copies(space: &mut Space) {
    if space.lost.is_empty() || space.map.copied() == 0 {
        return;
    }
    let blocks = space.geo.blocks_per_extent();
    for s in (0..space.geo.tier_slots(space.geo.slowest()).start).map(Slot) {
        if let Some((e, _)) = space.map.copied_in(s) {
            let first = u64::from(e.0) * u64::from(blocks);
            space
                .lost
                .written(&(first..first + u64::from(blocks)), false);
        }
    }
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
    for (at, chunk, words) in list.pages() {
        encode(list.number, chunk, words, &mut block);
        media.write(m, sb.list_offset(m, list.place, at), &block)?;
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
    let (stated, list) = (mark::read(media, sb, m), lost.head(m));
    let shift = Regions::shift(sb.extents, sb.extent_shift);
    let same = |k: &&mark::Mark| k.set == *set && k.shift == shift && k.list == list;
    if let Some(k) = stated.newest.as_ref().filter(same)
        && stated.damaged == 0
    {
        return Ok(k.number);
    }
    let is_new = list.number != 0 && stated.newest.is_none_or(|k| k.list.number != list.number);
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
        let whole = Read {
            chunk: 3,
            words,
            damaged: Vec::new(),
        };
        assert_eq!(decode(7, &b), Some(whole));
        assert_eq!(decode(8, &b), None);
        for i in (0..BLOCK).step_by(31) {
            let mut c = b;
            c[i] ^= 1;
            let first = i / SECTOR * SECTOR_WORDS;
            let damaged = first..first + SECTOR_WORDS;
            let mut left = words;
            left[damaged.clone()].fill(0);
            let read = decode(7, &c).unwrap();
            assert_eq!((read.chunk, read.words), (3, left), "byte {i}");
            assert_eq!(read.damaged, vec![damaged]);
        }
        // Half of a page of another chunk.
        let mut other = [0; BLOCK];
        encode(7, 4, &words, &mut other);
        other[..SECTOR].copy_from_slice(&b[..SECTOR]);
        assert_eq!(decode(7, &other), None);
    }
}
