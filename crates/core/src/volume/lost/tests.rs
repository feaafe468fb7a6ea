//! Tests of the lists.

use super::*;

/// Two disks of 300 and 700 extents of 16 blocks, in regions of 16 extents.
fn two() -> LostBlocks {
    let mut l = LostBlocks::new(4, 16, 12);
    l.add_disk(MemberId(1), 0..300, 1);
    l.add_disk(MemberId(2), 300..1000, 1);
    l
}

/// Writes these blocks of an extent of 16.
fn write(l: &mut LostBlocks, e: u64, from: u64, to: u64) -> bool {
    l.written(&(e * 16 + from..e * 16 + to), false)
}

fn regions(all: &[u32]) -> Regions {
    let mut set = Regions::default();
    for &r in all {
        set.add(r);
    }
    set
}

fn lose_all<const N: usize>(l: &mut LostBlocks, m: u8, extents: [(u32, u32); N]) {
    let marked = [(MemberId(m), extents.map(|(a, z)| a..z).to_vec())];
    l.lose(None, &marked, 9, How::default());
}

fn lose(l: &mut LostBlocks, parts: &[LostPart]) {
    l.lose(Some(parts), &[], 9, How::default());
}

/// What a list is when it is read again; `without`: the page in this place cannot be read.
fn read_again(l: &LostBlocks, empty: &LostBlocks, m: MemberId, without: Option<u32>) -> LostBlocks {
    let mut again = empty.clone();
    again.set_list(m, &l.head(m));
    for (at, chunk, words) in l.of(m).unwrap().pages() {
        if without == Some(at) {
            again.lacks_pages(m);
        } else {
            assert!(again.set_page(m, (at, chunk), words, &[]));
        }
    }
    again.count();
    again
}

#[test]
fn what_is_written_is_not_lost_any_more() {
    let mut l = two();
    assert!(l.is_empty() && !l.any(ExtentId(5), 0, 16));
    lose_all(&mut l, 1, [(0, 16), (288, 304)]);
    // Of region 18, extents 288 to 304, twelve are on the disk.
    assert_eq!(l.blocks(), (16 + 12) * 16);
    assert!(l.any(ExtentId(299), 15, 16) && !l.any(ExtentId(300), 0, 16));
    assert!(write(&mut l, 1, 2, 5) && !write(&mut l, 1, 3, 4));
    assert!(!l.any(ExtentId(1), 2, 5) && l.any(ExtentId(1), 4, 6));
    assert_eq!(
        l.ranges(12, 9),
        [
            (0, 18 << 12),
            (21 << 12, 256 << 12),
            (4608 << 12, 4800 << 12)
        ]
    );
    assert_eq!(l.ranges(12, 1).len(), 1);
    assert!(write(&mut l, 1, 0, 16) && l.is_open(ExtentId(1)));
    let mut taken = Vec::new();
    l.take_changed(|d, at, chunk, _| taken.push((d.member, at, chunk)));
    assert_eq!(taken, [(MemberId(1), 0, 0)]);
    assert!(!l.any_changed() && l.is_open(ExtentId(1)));
    l.settled();
    assert!(!l.is_open(ExtentId(1)) && l.is_open(ExtentId(2)));
}

#[test]
fn exact_losses_leave_the_rest_of_their_regions() {
    let mut l = two();
    lose(&mut l, &[(ExtentId(310), 3, 7)]);
    assert_eq!((l.blocks(), l.head(MemberId(2)).pages), (4, 1));
    assert_eq!(l.ranges(0, 9), [(310 * 16 + 3, 310 * 16 + 7)]);
    lose_all(&mut l, 2, [(304, 320)]);
    lose(&mut l, &[(ExtentId(320), 0, 1)]);
    assert_eq!(l.blocks(), 16 * 16 + 1);
    // Each list is in the other place than the one before.
    assert_eq!(
        (l.head(MemberId(2)).place, l.head(MemberId(1))),
        (1, ListHead::default())
    );
    assert!(write(&mut l, 320, 0, 16));
    l.count();
    assert_eq!(l.head(MemberId(2)).regions, regions(&[19]));
    l.accept();
    assert!(l.is_empty() && l.head(MemberId(2)).regions.is_empty());
}

/// A disk of 2^20 extents of 256 blocks, in regions of 4096; with room for `most` pages.
fn large(most: u32) -> LostBlocks {
    let mut l = LostBlocks::new(12, 20, 12);
    l.add_disk(MemberId(0), 0..1 << 20, most);
    l
}

#[test]
fn pages_come_back_as_they_were() {
    let (mut l, m) = (large(1024), MemberId(0));
    lose_all(&mut l, 0, [(0, 4096), (200 << 12, 201 << 12)]);
    for e in (0..4096).step_by(3) {
        assert!(l.written(&(e * 256 + 7..e * 256 + 200), false));
    }
    let again = read_again(&l, &large(1024), m, None);
    assert_eq!((again.blocks(), again.head(m)), (l.blocks(), l.head(m)));
    assert_eq!(again.ranges(12, 2000), l.ranges(12, 2000));
}

#[test]
fn a_page_that_is_not_there_may_be_of_any_listed_chunk() {
    let (mut l, m) = (large(1024), MemberId(0));
    // Two blocks of region 3, far from each other, and one of region 7.
    let parts = [(3 << 12, 0, 2), ((3 << 12) + 4000, 5, 6), (7 << 12, 1, 2)];
    lose(&mut l, &parts.map(|(e, a, z)| (ExtentId(e), a, z)));
    assert_eq!((l.blocks(), l.head(m).pages), (4, 3));
    let mut again = read_again(&l, &large(1024), m, Some(2));
    // Both regions, without the blocks of the two chunks that have pages.
    let has = |e: u32, b| again.any(ExtentId(e), b, b + 1);
    assert!(has(3 << 12, 0) && !has(3 << 12, 2) && has(7 << 12, 1) && has(7 << 12, 2));
    assert!(has((3 << 12) + 2000, 9) && !has(2 << 12, 9) && !has(4 << 12, 9));
    let known: u64 = 2 * PAGE_BITS - 3;
    let both: u64 = 2 << 20;
    // The first chunk that has a page begins before its region.
    assert!(again.blocks() > both - known && again.blocks() < both);
    let (bytes, ranges) = (again.blocks() << 12, again.ranges(12, 99));
    assert_eq!(ranges.iter().map(|r| r.1 - r.0).sum::<u64>(), bytes);
    // It is made anew, with all pages.
    let before = again.head(m);
    lose(&mut again, &[]);
    assert_eq!(again.ranges(12, 99), ranges);
    assert_ne!(again.head(m).place, before.place);
    let third = read_again(&again, &large(1024), m, None);
    assert_eq!(third.ranges(12, 99), ranges);
}

#[test]
fn damaged_sectors_lose_what_is_listed() {
    let (mut l, m) = (two(), MemberId(1));
    lose(&mut l, &[(ExtentId(20), 3, 7)]);
    let mut again = two();
    again.set_list(m, &l.head(m));
    for (at, chunk, words) in l.of(m).unwrap().pages() {
        assert!(again.set_page(m, (at, chunk), words, core::slice::from_ref(&(0..62))));
        assert!(
            !again.set_page(m, (at, chunk), words, &[]) && !again.set_page(m, (at, 1), words, &[])
        );
    }
    again.count();
    assert_eq!(again.ranges(0, 9), [(16 * 16, 32 * 16)]);
}

/// Lists with less room than their chunks need.
#[test]
fn a_list_that_does_not_fit_has_larger_granules() {
    let m = MemberId(0);
    // All of the disk: 2^28 blocks, 8457 chunks. 34 pages need granules of 2^8 blocks, an extent; fewer pages larger ones.
    for (most, shift) in [(8457, 0), (8456, 1), (34, 8), (33, 9), (17, 9)] {
        let mut l = large(most);
        lose_all(&mut l, 0, [(0, 1 << 20)]);
        assert_eq!(
            (l.head(m).shift, l.blocks()),
            (shift, 1 << 28),
            "{most} pages"
        );
        assert!(l.head(m).pages <= most);
    }
    // One block in each of three chunks, and room for two.
    let mut l = large(2);
    let parts = [0, 300, 5000].map(|e| (ExtentId(e), 17, 18));
    lose(&mut l, &parts);
    let (shift, grain) = (l.head(m).shift, 1 << l.head(m).shift);
    assert!(shift > 0 && l.blocks() == 3 * grain);
    let again = read_again(&l, &large(2), m, None);
    assert_eq!(again.ranges(12, 9), l.ranges(12, 9));
    for e in [0, 300, 5000] {
        let at = e * 256 + 17;
        assert!(l.any(ExtentId(e as u32), 17, 18));
        assert!(!l.written(&(at..at + 1), false) && l.any(ExtentId(e as u32), 17, 18));
        let granule = at / grain * grain..(at / grain + 1) * grain;
        assert!(l.cuts((ExtentId(e as u32), 17, 18), &(at..at + 1)));
        assert!(!l.cuts((ExtentId(e as u32), 17, 18), &granule));
    }
    let at = 5000 * 256 + 17;
    assert!(l.written(&(at / grain * grain..(at / grain + 1) * grain), false));
    assert_eq!(l.blocks(), 2 * grain);
    // Now it fits as it is, but what was lost as a whole stays so.
    lose(&mut l, &[]);
    assert_eq!((l.head(m).shift, l.blocks()), (0, 2 * grain));
    assert_eq!(l.head(m).pages, 2);
}

/// A granule of several extents is written by one request, up to the end of the disk.
#[test]
fn a_granule_may_have_several_extents() {
    let mut l = LostBlocks::new(12, 14, 12);
    l.add_disk(MemberId(0), 0..64_003, 1);
    lose(&mut l, &[0, 64_002].map(|e| (ExtentId(e), 3, 4)));
    // 256 012 blocks of four in an extent: granules of sixteen, of which the last one has twelve.
    assert_eq!((l.head(MemberId(0)).shift, l.blocks()), (4, 16 + 12));
    assert!(l.any(ExtentId(3), 0, 1) && !l.any(ExtentId(4), 0, 1));
    assert!(l.cuts((ExtentId(2), 0, 4), &(4..16)) && !l.cuts((ExtentId(2), 0, 4), &(0..16)));
    assert!(!l.written(&(1..16), false) && l.written(&(0..16), false));
    assert!(l.is_open(ExtentId(3)) && !l.any(ExtentId(3), 0, 4));
    assert!(l.written(&(256_000..256_012), false) && l.is_empty());
}

/// With smaller logical blocks, a granule is lost and written as a whole.
#[test]
fn a_part_of_a_granule_is_neither_lost_nor_written_alone() {
    assert_eq!(
        [unit_shift(16, 9), unit_shift(12, 9), unit_shift(16, 12)],
        [12, 9, 12]
    );
    let mut l = LostBlocks::new(4, 16, 9);
    l.add_disk(MemberId(1), 0..300, 1);
    let (e, first) = (ExtentId(3), 3 * 128);
    lose(&mut l, &[(e, 9, 17)]);
    assert_eq!(
        (l.blocks(), l.ranges(9, 9)),
        (16, alloc::vec![((first + 8) * 512, (first + 24) * 512)])
    );
    assert!(l.any(e, 8, 9) && l.any(e, 23, 24) && !l.any(e, 0, 8) && !l.any(e, 24, 128));
    let cuts = |a, z| l.cuts((e, a, z), &(first + u64::from(a)..first + u64::from(z)));
    assert!(cuts(9, 24) && cuts(8, 17) && !cuts(8, 24) && !cuts(3, 8) && !cuts(24, 27));
    let mut write = |a: u64, z: u64| l.written(&(first + a..first + z), false);
    assert!(!write(9, 16) && write(3, 17));
    assert!(!l.any(e, 8, 16) && l.any(e, 16, 24) && l.is_open(e));
    assert!(l.written(&(first + 16..first + 24), false) && l.is_empty());
}
