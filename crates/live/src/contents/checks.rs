//! Signatures that need more than a magic number: short ones, ones whose place depends on the size, ones that occur several times.

use super::window::Window;

/// The name of a found format, and the offset of its signature.
pub(super) type Hit = (String, u64);

/// Runs every check.
pub(super) fn all(w: &Window) -> Vec<Hit> {
    let mut hits = Vec::new();
    let mut one = |what: &str, at: u64| hits.push((what.to_owned(), at));
    ext(w, &mut one);
    md(w, &mut one);
    zfs(w, &mut one);
    swap(w, &mut one);
    small_file_systems(w, &mut one);
    boot_sector(w, &mut one);
    labels(w, &mut one);
    postgres(w, &mut one);
    innodb(w, &mut one);
    hits
}

fn le16(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
fn le32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}
fn be16(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}
fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// `struct ext4_super_block` at 1024: the magic number has only two bytes, so the fields beside it are checked, too.
fn ext(w: &Window, one: &mut dyn FnMut(&str, u64)) {
    let Some(b) = w.get(1024, 264) else { return };
    if le16(b, 0x38) != 0xef53 || le32(b, 0x18) > 6 || le32(b, 0) == 0 && le32(b, 0x60) & 8 == 0 {
        return;
    }
    let (compat, incompat) = (le32(b, 0x5c), le32(b, 0x60));
    let what = if incompat & 8 != 0 {
        "an ext journal device"
    } else if incompat & (0x40 | 0x80 | 0x200) != 0 {
        "an ext4 file system"
    } else if compat & 4 != 0 {
        "an ext3 file system"
    } else {
        "an ext2 file system"
    };
    one(what, 1024 + 0x38);
}

/// Linux software RAID. Version 1 at 0 (1.1), 4096 (1.2) and near the end (1.0); version 0.90 near the end, in the byte order of the
/// machine that wrote it.
fn md(w: &Window, one: &mut dyn FnMut(&str, u64)) {
    let sectors = w.bytes() / 512;
    let last = (sectors >= 32).then(|| (sectors - 16) / 8 * 8 * 512);
    for (version, at) in [("1.1", Some(0)), ("1.2", Some(4096)), ("1.0", last)] {
        let Some(b) = at.and_then(|at| w.get(at, 8)) else {
            continue;
        };
        if le32(b, 0) == 0xa92b_4efc && le32(b, 4) == 1 {
            one(
                &format!("an md RAID member (version {version})"),
                at.unwrap_or(0),
            );
        }
    }
    let Some(at) = (w.bytes() / 65536).checked_sub(1).map(|n| n * 65536) else {
        return;
    };
    if let Some(b) = w.get(at, 8)
        && ((le32(b, 0) == 0xa92b_4efc && le32(b, 4) == 0)
            || (be32(b, 0) == 0xa92b_4efc && be32(b, 4) == 0))
    {
        one("an md RAID member (version 0.90)", at);
    }
}

/// Uberblocks in the second half of each of the four labels: two at the start, two at the end.
fn zfs(w: &Window, one: &mut dyn FnMut(&str, u64)) {
    const LABEL: u64 = 256 << 10;
    let end = w.bytes() / LABEL * LABEL;
    let ends = [end.checked_sub(2 * LABEL), end.checked_sub(LABEL)];
    for label in [Some(0), Some(LABEL)].into_iter().chain(ends).flatten() {
        let found = (LABEL / 2..LABEL).step_by(1024).find(|at| {
            w.get(label + at, 8).is_some_and(|b| {
                [b"\x0c\xb1\xba\0\0\0\0\0", b"\0\0\0\0\0\xba\xb1\x0c"]
                    .contains(&&[b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])
            })
        });
        if let Some(at) = found {
            one("a ZFS pool member", label + at);
        }
    }
}

/// The last ten bytes of the first page, for any page size of the machine that wrote it.
fn swap(w: &Window, one: &mut dyn FnMut(&str, u64)) {
    for page in [4096u64, 8192, 16384, 32768, 65536] {
        let Some(b) = w.get(page - 10, 10) else {
            continue;
        };
        let suspended: [&[u8]; 4] = [b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"LINHIB0001"];
        if b == b"SWAPSPACE2" || b == b"SWAP-SPACE" {
            one("a swap area", page - 10);
        } else if suspended.iter().any(|s| b.starts_with(s)) {
            one("a suspended system's memory", page - 10);
        }
    }
}

/// Formats with a magic number of two bytes each, and a field that must be valid.
fn small_file_systems(w: &Window, one: &mut dyn FnMut(&str, u64)) {
    let Some(b) = w.get(1024, 64) else { return };
    // HFS Plus: version 4 or 5 after the magic number. HFS: a volume bitmap and an allocation block of whole sectors.
    if (&b[..2] == b"H+" && be16(b, 2) == 4) || (&b[..2] == b"HX" && be16(b, 2) == 5) {
        one("an HFS+ file system", 1024);
    } else if &b[..2] == b"BD" && be32(b, 20) != 0 && be32(b, 20).is_multiple_of(512) {
        one("an HFS file system", 1024);
    }
    // NILFS2: revision 2 before the magic number.
    if le16(b, 6) == 0x3434 && le32(b, 0) == 2 {
        one("a NILFS2 file system", 1030);
    }
    let minix = match (le16(b, 16), le16(b, 24)) {
        (0x137f | 0x138f | 0x2468 | 0x2478, _) => Some(1040).filter(|_| le16(b, 0) != 0),
        (_, 0x4d5a) => Some(1048).filter(|_| le32(b, 0) != 0 && le16(b, 28) >= 1024),
        _ => None,
    };
    if let Some(at) = minix {
        one("a Minix file system", at);
    }
}

/// Sectors that end with 55 AA: FAT by its fields, a partition table by its entries, or another kind of boot sector.
fn boot_sector(w: &Window, one: &mut dyn FnMut(&str, u64)) {
    let Some(b) = w.get(0, 512) else { return };
    let signed = b[510] == 0x55 && b[511] == 0xaa;
    let named = [&b[3..11]]
        .iter()
        .any(|n| [&b"NTFS    "[..], b"EXFAT   ", b"-FVE-FS-"].contains(n));
    if named {
        return;
    }
    let jump = matches!(b[0], 0xeb | 0xe9);
    let kind =
        b[0x36..0x3b] == *b"FAT12" || b[0x36..0x3b] == *b"FAT16" || b[0x52..0x57] == *b"FAT32";
    let (sector, cluster) = (le16(b, 11), b[13]);
    let fields = matches!(sector, 512 | 1024 | 2048 | 4096)
        && cluster.is_power_of_two()
        && le16(b, 14) != 0
        && matches!(b[16], 1 | 2)
        && b[21] >= 0xf0;
    if fields && (kind || (jump && signed)) {
        return one("a FAT file system", 0);
    }
    if !signed {
        return;
    }
    let entries: Vec<&[u8]> = b[446..510].chunks(16).collect();
    let used = |e: &&&[u8]| e[4] != 0 && le32(e, 12) != 0;
    let sane = entries.iter().all(|e| matches!(e[0], 0 | 0x80));
    if sane && entries.iter().any(|e| used(&e)) {
        one("an MBR partition table", 510);
    } else if b[..440].iter().any(|&x| x != 0) {
        one("a boot sector", 510);
    }
}

/// Disk labels of other systems.
fn labels(w: &Window, one: &mut dyn FnMut(&str, u64)) {
    if let Some(b) = w.get(0, 1024)
        && &b[..2] == b"ER"
        && &b[512..514] == b"PM"
    {
        one("an Apple partition map", 0);
    }
    if let Some(b) = w.get(0, 512)
        && be16(b, 508) == 0xdabe
        && b.chunks(2).fold(0, |sum, c| sum ^ be16(c, 0)) == 0
    {
        one("a Sun disk label", 508);
    }
}

/// PostgreSQL: a page of a relation by the fields of its header, the control file and a WAL segment by their versions.
fn postgres(w: &Window, one: &mut dyn FnMut(&str, u64)) {
    let Some(b) = w.get(0, 48) else { return };
    let (lower, upper, special) = (le16(b, 12), le16(b, 14), le16(b, 16));
    let ordered = (24..=upper).contains(&lower) && upper <= special && special <= 8192;
    if le16(b, 18) == 8192 | 4 && le16(b, 10) <= 7 && ordered {
        one("a PostgreSQL table or index", 18);
    }
    if (800..3000).contains(&le32(b, 8)) && (200_000_000..220_000_000).contains(&le32(b, 12)) {
        one("a PostgreSQL control file", 8);
    }
    if b[1] == 0xd1 && le16(b, 2) & 2 != 0 && le32(b, 36) == 8192 && le32(b, 32).is_power_of_two() {
        one("a PostgreSQL write-ahead log", 0);
    }
}

/// InnoDB: page 0 of a tablespace has a type of its own, and states its space twice.
fn innodb(w: &Window, one: &mut dyn FnMut(&str, u64)) {
    let Some(b) = w.get(0, 64) else { return };
    let header = be32(b, 4) == 0 && be16(b, 24) == 8;
    if header && be32(b, 34) == be32(b, 38) && be32(b, 46) != 0 && be32(b, 50) != 0 {
        one("an InnoDB tablespace", 24);
    }
}
