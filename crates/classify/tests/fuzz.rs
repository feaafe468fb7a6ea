//! The entry functions of the fuzz targets with seeded inputs: mutated class files, and mutated superblocks and descriptors of a
//! layout that is made here. (`ext_images/` has mutated images of mke2fs.)

#[path = "../../../fuzz/src/classify.rs"]
mod classify;

use isotherm_core::random::SplitMix64;

#[test]
fn class_files_of_all_kinds() {
    let words = [
        "IO class id,IO class name,Eviction priority,Allocation\n",
        "0,unclassified,22,0.00\n",
        "1,metadata&done,0,1.00\n",
        "2,file_size:le:4096",
        "&",
        "|",
        "done",
        ",",
        "\n",
        "lba:ge:18446744073709551615",
        "lba:lt:9",
        "extension:",
        "directory:/a",
        "33",
        "255",
        "-1",
        "0.5",
        "NaN",
        "[[rule]]\nclass = 7\n",
        "glob = \"**\"\n",
        "size_min = 1\n",
        "é",
        "\0",
    ];
    let mut random = SplitMix64::new(7);
    for _ in 0..5_000 {
        let n = random.below(14);
        let text: String = (0..n)
            .map(|_| words[random.below(words.len() as u64) as usize])
            .collect();
        classify::class_file(text.as_bytes());
    }
}

/// A superblock that is accepted; everything after it is zero.
fn image() -> Vec<u8> {
    let mut b = vec![0u8; 1 << 20];
    let sb = &mut b[1024..2048];
    let mut put = |at: usize, v: u32| sb[at..at + 4].copy_from_slice(&v.to_le_bytes());
    put(0, 64);
    put(4, 256);
    put(0x18, 2);
    put(0x20, 32768);
    put(0x24, 32768);
    put(0x28, 64);
    put(0x38, 0xef53);
    put(0x4c, 1);
    put(0x58, 256);
    put(0x60, 0x2c2);
    put(0xfc, 64 << 16);
    // A descriptor: bitmaps, and an inode table of 4 blocks.
    for (at, v) in [(4096, 2u32), (4100, 3), (4104, 4)] {
        b[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }
    // Inodes whose extents and tree blocks are at arbitrary places.
    for i in 0..64usize {
        let at = 4 * 4096 + i * 256;
        b[at..at + 2].copy_from_slice(&0x81a4u16.to_le_bytes());
        b[at + 0x1a] = 1;
        b[at + 0x20..at + 0x24].copy_from_slice(&(0x8_0000u32 * (i as u32 % 2)).to_le_bytes());
        b[at + 0x28..at + 0x2c].copy_from_slice(&[0x0a, 0xf3, 4, 0]);
        b[at + 0x2e] = (i % 6) as u8;
        for e in 0..12 {
            b[at + 0x34 + e * 4] = (i * 13 + e * 7) as u8;
        }
    }
    b
}

#[test]
fn layouts_of_all_kinds() {
    let sound = image();
    let mut random = SplitMix64::new(11);
    classify::layout(&sound);
    for _ in 0..150 {
        let mut b = sound.clone();
        for _ in 0..=random.below(12) {
            let at = match random.below(4) {
                0 => 1024 + random.below(0x260),
                1 => 4096 + random.below(64),
                _ => 4 * 4096 + random.below(16384),
            };
            b[at as usize] = [0, 1, 0x7f, 0xff, random.draw() as u8][random.below(5) as usize];
        }
        let len = b.len() - (random.below(2) as usize) * (random.below(b.len() as u64) as usize);
        classify::layout(&b[..len]);
    }
    for n in [0, 1, 511, 512, 1024, 2047, 2048, 4096] {
        classify::layout(&sound[..n]);
    }
}
