use super::*;
use std::os::unix::fs::FileExt;

/// The formats that are recognised after `fill` has written to a sparse file of `bytes` bytes.
fn seen(bytes: u64, fill: impl Fn(&File)) -> Vec<Content> {
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes).unwrap();
    fill(&file);
    recognise(&Window::read(&file, bytes).unwrap())
}

fn put(file: &File, at: u64, bytes: &[u8]) {
    file.write_all_at(bytes, at).unwrap();
}

#[test]
fn every_magic_number_is_seen_in_its_place_and_erased() {
    // Large enough for every copy of btrfs.
    let bytes = (256 << 30) + (1 << 30) + 12345;
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes).unwrap();
    for (what, at, magic) in table::entries() {
        let at = match *at {
            At::Start(n) => n,
            At::End(n) => bytes - n,
        };
        put(&file, at, magic);
        let window = Window::read(&file, bytes).unwrap();
        let found = recognise(&window);
        assert!(
            found.iter().any(|c| c.what == *what && c.at == at),
            "{what} at {at}: {found:?}"
        );
        window.erase(&file).unwrap();
        assert_eq!(recognise(&Window::read(&file, bytes).unwrap()), []);
    }
}

#[test]
fn zeros_noise_and_text_are_not_recognised() {
    assert_eq!(seen(0, |_| ()), []);
    assert_eq!(seen(1000, |_| ()), []);
    assert_eq!(seen(64 << 20, |_| ()), []);
    assert_eq!(
        seen(100_000, |f| put(f, 0, b"no image at all, just words\n")),
        []
    );
    let mut noise = vec![0; 2 << 20];
    isotherm_core::random::SplitMix64::new(1).fill(&mut noise);
    assert_eq!(seen(2 << 20, |f| put(f, 0, &noise)), []);
}

#[test]
fn short_magic_numbers_need_fields_that_fit() {
    let names = |found: Vec<Content>| found.into_iter().map(|c| c.what).collect::<Vec<_>>();
    // ext: the two bytes of the magic number alone are not enough.
    assert_eq!(seen(1 << 20, |f| put(f, 0x438, b"\x53\xef")), []);
    let ext = |compat: u8, incompat: u8| {
        names(seen(1 << 20, |f| {
            put(f, 1024, &64u32.to_le_bytes());
            put(f, 0x438, b"\x53\xef");
            put(f, 0x45c, &[compat, 0, 0, 0, incompat]);
        }))
    };
    assert_eq!(ext(0, 2), ["an ext2 file system"]);
    assert_eq!(ext(4, 2), ["an ext3 file system"]);
    assert_eq!(ext(4, 0x42), ["an ext4 file system"]);
    // A boot sector with and without partitions; a status byte that no table has.
    let mbr = |status: u8, kind: u8| {
        names(seen(1 << 20, |f| {
            put(
                f,
                446,
                &[status, 0, 2, 0, kind, 0, 0, 0, 1, 0, 0, 0, 255, 7, 0, 0],
            );
            put(f, 510, b"\x55\xaa");
        }))
    };
    assert_eq!(mbr(0x80, 0x83), ["an MBR partition table"]);
    assert_eq!(mbr(0x80, 0), [""; 0]);
    assert_eq!(mbr(0x33, 0x83), [""; 0]);
}

#[test]
fn raid_members_are_seen_where_each_version_puts_its_superblock() {
    let magic = |major: u32| [0xa92b_4efc_u32.to_le_bytes(), major.to_le_bytes()].concat();
    let bytes = (64u64 << 20) + 5 * 512;
    let last = (bytes / 512 - 16) / 8 * 8 * 512;
    for (at, major, version) in [
        (0, 1, "1.1"),
        (4096, 1, "1.2"),
        (last, 1, "1.0"),
        (bytes / 65536 * 65536 - 65536, 0, "0.90"),
    ] {
        let found = seen(bytes, |f| put(f, at, &magic(major)));
        assert_eq!(found.len(), 1, "{version}: {found:?}");
        assert!(found[0].what.contains(&format!("version {version}")) && found[0].at == at);
    }
    let swapped = seen(bytes, |f| {
        put(
            f,
            bytes / 65536 * 65536 - 65536,
            b"\xa9\x2b\x4e\xfc\0\0\0\0",
        );
    });
    assert_eq!(swapped.len(), 1);
}

#[test]
fn pool_labels_at_either_end_and_swap_of_every_page_size() {
    let bytes = (64u64 << 20) + 100_000;
    let end = bytes / (256 << 10) * (256 << 10);
    for label in [0, 256 << 10, end - (512 << 10), end - (256 << 10)] {
        let at = label + (128 << 10) + 5 * 1024;
        let found = seen(bytes, |f| put(f, at, b"\x0c\xb1\xba\0\0\0\0\0"));
        assert_eq!(
            found,
            [Content {
                what: "a ZFS pool member".into(),
                at
            }]
        );
    }
    for page in [4096u64, 8192, 16384, 32768, 65536] {
        let found = seen(bytes, |f| put(f, page - 10, b"SWAPSPACE2"));
        assert_eq!(
            found,
            [Content {
                what: "a swap area".into(),
                at: page - 10
            }]
        );
    }
}

#[test]
fn files_of_databases_are_recognised_by_their_headers() {
    let names = |found: Vec<Content>| found.into_iter().map(|c| c.what).collect::<Vec<_>>();
    let mut page = [0u8; 8192];
    page[12..20].copy_from_slice(&[0x40, 0, 0, 0x1f, 0, 0x20, 4, 0x20]);
    assert_eq!(
        names(seen(1 << 20, |f| put(f, 0, &page))),
        ["a PostgreSQL table or index"]
    );
    let control = [
        7u64.to_le_bytes().to_vec(),
        1300u32.to_le_bytes().to_vec(),
        202_209_061u32.to_le_bytes().to_vec(),
    ]
    .concat();
    assert_eq!(
        names(seen(8192, |f| put(f, 0, &control))),
        ["a PostgreSQL control file"]
    );
    let mut space = [0u8; 64];
    space[25] = 8;
    (space[37], space[41], space[49], space[53]) = (5, 5, 64, 64);
    assert_eq!(
        names(seen(1 << 20, |f| put(f, 0, &space))),
        ["an InnoDB tablespace"]
    );
    space[41] = 6;
    assert_eq!(seen(1 << 20, |f| put(f, 0, &space)), []);
}

/// A disk on which a copy was begun, and that another program took afterwards: a RAID member of version 1.2 leaves the first block alone.
#[test]
fn an_unfinished_copy_hides_nothing_that_came_later() {
    let copy = Unfinished {
        volume: [7; 16],
        member: [9; 16],
        place: isotherm_core::MemberId(1),
        name: "v".into(),
    };
    let begun = seen(64 << 20, |f| put(f, 0, &copy.encode()));
    assert_eq!(begun.len(), 1, "{begun:?}");
    assert_eq!(but_the_copy(begun.clone(), false), begun);
    assert_eq!(but_the_copy(begun, true), []);
    let taken = seen(64 << 20, |f| {
        put(f, 0, &copy.encode());
        put(f, 4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0");
    });
    let left = but_the_copy(taken, true);
    assert!(
        left.len() == 1 && left[0].what.contains("version 1.2"),
        "{left:?}"
    );
}
