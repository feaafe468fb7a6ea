//! Tests of the lists.

use super::*;

/// Two disks of 300 and 700 extents of 16 blocks, in regions of 16 extents.
fn two() -> LostBlocks {
    let mut l = LostBlocks::new(4, 16, 12);
    l.add_disk(MemberId(1), 0..300);
    l.add_disk(MemberId(2), 300..1000);
    l
}

fn regions(all: &[u32]) -> Regions {
    let mut set = Regions::default();
    for &r in all {
        set.add(r);
    }
    set
}

#[test]
fn what_is_written_is_not_lost_any_more() {
    let mut l = two();
    assert!(l.is_empty() && !l.any(ExtentId(5), 0, 16));
    l.lose_extents(MemberId(1), &(0..16));
    l.lose_extents(MemberId(1), &(288..304));
    l.count();
    // Of region 18, extents 288 to 304, twelve are on the disk.
    assert_eq!(l.blocks(), (16 + 12) * 16);
    assert!(l.any(ExtentId(299), 15, 16) && !l.any(ExtentId(300), 0, 16));
    assert!(l.written(ExtentId(1), 2, 5) && !l.written(ExtentId(1), 3, 4));
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
    assert!(l.written(ExtentId(1), 0, 16) && l.is_open(ExtentId(1)));
    let mut taken = Vec::new();
    l.take_changed(|d, page, _| taken.push((d.member, page)));
    assert_eq!(taken, [(MemberId(1), 0)]);
    assert!(!l.any_changed() && l.is_open(ExtentId(1)));
    l.settled();
    assert!(!l.is_open(ExtentId(1)) && l.is_open(ExtentId(2)));
}

#[test]
fn exact_losses_leave_the_rest_of_their_regions() {
    let mut l = two();
    l.lose((ExtentId(310), 3, 7));
    l.count();
    assert_eq!((l.blocks(), l.pages_of(MemberId(2))), (4, alloc::vec![0]));
    assert_eq!(l.ranges(0, 9), [(310 * 16 + 3, 310 * 16 + 7)]);
    l.lose_extents(MemberId(2), &(304..320));
    l.lose((ExtentId(320), 0, 1));
    l.count();
    assert_eq!(l.blocks(), 16 * 16 + 1);
    assert!(l.written(ExtentId(320), 0, 16));
    l.count();
    assert_eq!(l.of(MemberId(2)).unwrap().regions, regions(&[19]));
    l.accept();
    assert!(l.is_empty() && l.lists().iter().all(|d| d.regions.is_empty()));
}

#[test]
fn pages_come_back_as_they_were() {
    let mut l = LostBlocks::new(12, 20, 12);
    l.add_disk(MemberId(0), 0..1 << 20);
    l.lose_extents(MemberId(0), &(0..4096));
    l.lose_extents(MemberId(0), &(200 << 12..201 << 12));
    l.count();
    for e in (0..4096).step_by(3) {
        assert!(l.written(ExtentId(e), 7, 200));
    }
    let mut again = LostBlocks::new(12, 20, 12);
    again.add_disk(MemberId(0), 0..1 << 20);
    let list = l.of(MemberId(0)).unwrap();
    again.set_list(MemberId(0), (5, 1), list.regions);
    for n in again.pages_of(MemberId(0)) {
        if let Some(words) = list.words(n) {
            again.set_page(MemberId(0), n, words);
        }
    }
    again.count();
    assert_eq!(again.blocks(), l.blocks());
    assert_eq!(again.ranges(12, 2000), l.ranges(12, 2000));
}

/// With smaller logical blocks, a block of the list is lost and written as a whole.
#[test]
fn a_part_of_a_block_is_neither_lost_nor_written_alone() {
    assert_eq!(
        [unit_shift(16, 9), unit_shift(12, 9), unit_shift(16, 12)],
        [12, 9, 12]
    );
    let mut l = LostBlocks::new(4, 16, 9);
    l.add_disk(MemberId(1), 0..300);
    let e = ExtentId(3);
    l.lose((e, 9, 17));
    l.count();
    assert_eq!(
        (l.blocks(), l.ranges(9, 9)),
        (16, alloc::vec![((3 * 128 + 8) * 512, (3 * 128 + 24) * 512)])
    );
    assert!(l.any(e, 8, 9) && l.any(e, 23, 24) && !l.any(e, 0, 8) && !l.any(e, 24, 128));
    assert!(
        l.cuts(e, 9, 24)
            && l.cuts(e, 8, 17)
            && !l.cuts(e, 8, 24)
            && !l.cuts(e, 3, 8)
            && !l.cuts(e, 24, 27)
    );
    assert!(!l.written(e, 9, 16) && l.written(e, 3, 17) && !l.any(e, 8, 16) && l.any(e, 16, 24));
    assert!(l.is_open(e) && l.written(e, 16, 24) && l.is_empty());
}
