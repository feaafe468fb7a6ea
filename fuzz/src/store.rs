//! Damaged volumes: whatever lies on the devices, opening refuses it or serves it, and never panics, hangs or takes
//! memory that the devices do not justify.
//!
//! An input is a recipe: which used volume to start from, how to open it, and edits of eight bytes each. Most edits repair
//! the checksum afterwards; without that no fuzzer gets past it.

use isotherm_core::store::codec::seal;
use isotherm_core::store::counter::Counter;
use isotherm_core::store::open::Mode;
use isotherm_core::store::{BLOCK, Superblock, checkpoint, journal, record};
use isotherm_hostile::disk::Disk;
use isotherm_hostile::image;
use std::sync::OnceLock;

/// Used volumes to start from: created and never used, crashed once, crashed three times.
const LIVES: [u32; 3] = [0, 1, 3];

struct Base {
    disks: Vec<Disk>,
    sb: Superblock,
}

fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        LIVES
            .iter()
            .enumerate()
            .map(|(seed, &lives)| {
                let (disks, sb) = image::used(seed as u64, lives).expect("the base image is sound");
                Base { disks, sb }
            })
            .collect()
    })
}

/// Where the checksum of a block with this magic lies.
fn crc_at(block: &[u8]) -> Option<usize> {
    match &block[..4] {
        b"ISOT" => Some(12),
        b"ISOJ" | b"ISOD" => Some(60),
        b"ISOC" | b"ISON" => Some(64),
        _ => None,
    }
}

/// Values on which sums and shifts break, if they do.
fn interesting(i: u8) -> u64 {
    const V: [u64; 12] = [
        0,
        1,
        2,
        0x7f,
        0xff,
        0xfff,
        0xffff,
        0x7fff_ffff,
        0xffff_ffff,
        0x7fff_ffff_ffff_ffff,
        u64::MAX - 1,
        u64::MAX,
    ];
    V[usize::from(i) % V.len()]
}

/// Change one block; `reseal` makes its checksum right again.
fn edit(disk: &mut Disk, block: usize, change: impl FnOnce(&mut [u8]), reseal: bool) {
    let at = (block * BLOCK) as u64;
    let Some(old) = disk.get(at, BLOCK) else {
        return;
    };
    let mut new = old.to_vec();
    change(&mut new);
    if reseal && let Some(crc) = crc_at(&new) {
        seal(&mut new, crc);
    }
    disk.write_through(at, &new);
}

fn apply(base: &Base, disks: &mut [Disk], e: [u8; 8]) {
    let member = usize::from(e[1]) % disks.len();
    // Superblocks, journal and checkpoints of these small volumes lie in the first blocks.
    let metadata = (base.sb.members[member].data_offset / BLOCK as u64) as usize;
    let block = usize::from(u16::from_le_bytes([e[2], e[3]])) % metadata;
    let offset = usize::from(u16::from_le_bytes([e[4], e[5]])) % BLOCK;
    let value = e[6];
    let put = |b: &mut [u8], width: usize, v: u64| {
        let at = offset.min(BLOCK - width);
        b[at..at + width].copy_from_slice(&v.to_le_bytes()[..width]);
    };
    match e[0] % 9 {
        0 => edit(&mut disks[member], block, |b| b[offset] = value, false),
        1 => edit(&mut disks[member], block, |b| b[offset] = value, true),
        2 => edit(
            &mut disks[member],
            block,
            |b| put(b, 4, interesting(value)),
            true,
        ),
        3 => edit(
            &mut disks[member],
            block,
            |b| put(b, 8, interesting(value)),
            true,
        ),
        4 => {
            let from = (usize::from(value) % metadata * BLOCK) as u64;
            if let Some(data) = disks[member].get(from, BLOCK).map(<[u8]>::to_vec) {
                edit(
                    &mut disks[member],
                    block,
                    |b| b.copy_from_slice(&data),
                    true,
                );
            }
        }
        5 => edit(&mut disks[member], block, |b| b[offset..].fill(value), true),
        6 => {
            // The same in every superblock: members that agree about something impossible.
            let field = offset % 1024;
            let width = [1, 2, 4, 8][usize::from(e[7]) % 4];
            for (i, d) in disks.iter_mut().enumerate() {
                let copy = (base.sb.members[i].data_offset / BLOCK as u64) as usize - 1;
                for block in [0, copy] {
                    let change = |b: &mut [u8]| {
                        let v = if e[7] & 0x80 != 0 {
                            u64::from(value)
                        } else {
                            interesting(value)
                        };
                        b[field..field + width].copy_from_slice(&v.to_le_bytes()[..width]);
                    };
                    edit(d, block, change, true);
                }
            }
        }
        7 => {
            // The same block on primary and mirror: no second opinion.
            for d in disks.iter_mut() {
                edit(d, block, |b| put(b, 8, interesting(value)), true);
            }
        }
        _ => {
            let len = disks[member].len() * usize::from(value) / 256;
            disks[member].cut(len);
        }
    }
}

/// Open the volume that a recipe describes, and read it.
pub fn checkpoint_and_recovery(data: &[u8]) {
    let [which, mode, edits @ ..] = data else {
        return;
    };
    let base = &bases()[usize::from(*which) % LIVES.len()];
    let mut disks = base.disks.clone();
    for e in edits.chunks_exact(8).take(16) {
        apply(base, &mut disks, std::array::from_fn(|i| e[i]));
    }
    let mode = if mode % 2 == 0 {
        Mode::ReadOnly
    } else {
        Mode::ReadWrite { epoch: 77 }
    };
    image::open_and_read(disks, mode).expect("every read is answered");
}

/// Any block as a superblock, as it is and with its checksum repaired.
pub fn superblock(data: &[u8]) {
    let _ = Superblock::decode(data);
    let mut block = bases()[0].sb.encode();
    for (b, d) in block.iter_mut().zip(data) {
        *b ^= d;
    }
    block[..12].copy_from_slice(&bases()[0].sb.encode()[..12]);
    seal(&mut block, 12);
    if let Ok(sb) = Superblock::decode(&block) {
        let geo = sb.geometry().expect("decoded ones have a shape");
        for i in 0..sb.members.len() {
            let m = &sb.members[i];
            assert!(sb.copy_offset(isotherm_core::MemberId(i as u8)) < m.bytes);
        }
        assert!(geo.extents <= geo.slots());
        // What was read is written back the same, or the next session would change the volume.
        let again = Superblock::decode(&sb.encode()).expect("its own encoding");
        assert_eq!(
            (again.area, again.extents, again.generation),
            (sb.area, sb.extents, sb.generation)
        );
    }
}

/// Any block as a journal or checkpoint block.
pub fn journal_block(data: &[u8]) {
    let mut block = vec![0; BLOCK];
    let n = data.len().min(BLOCK);
    block[..n].copy_from_slice(&data[..n]);
    let uuid: [u8; 16] = std::array::from_fn(|i| block[8 + i]);
    let flags = [block[6], block[7]];
    let tip = journal::Tip::default();
    for magic in [b"ISOJ", b"ISOD", b"ISOC", b"ISON"] {
        block[..4].copy_from_slice(magic);
        // A journal block has its flags where the others have the rest of the version.
        let (low, high) = if magic == b"ISOJ" {
            (flags[0], flags[1])
        } else {
            (0, 0)
        };
        block[4..8].copy_from_slice(&[2, 0, low, high]);
        seal(&mut block, crc_at(magic).expect("a magic of ours"));
        if let Some(h) = journal::decode(&block, &uuid) {
            let _ = tip.accepts(&h);
        }
        let _ = checkpoint::is_data(&block, &uuid, 1, 0);
        if let Some(h) = checkpoint::Header::decode(&block, &uuid) {
            let known = checkpoint::Header::counters(&block).expect("decoded with it");
            let again = h.encode(&uuid, &known);
            assert_eq!(checkpoint::Header::decode(&again, &uuid), Some(h));
        }
        if let Some(c) = Counter::decode(&block, &uuid) {
            assert_eq!(Counter::decode(&c.encode(&uuid), &uuid), Some(c));
        }
    }
}

/// Any bytes as records.
pub fn record_decode(data: &[u8]) {
    let geo = bases()[0].sb.geometry().expect("the base has a shape");
    let mut at = 0;
    while let Ok(Some((entry, units))) = record::decode(&data[at..], 8) {
        if let record::Entry::Extent(r) = entry {
            let _ = record::resolve(&r, &geo);
        }
        at += units * 16;
        assert!(units > 0 && at <= data.len());
    }
}
