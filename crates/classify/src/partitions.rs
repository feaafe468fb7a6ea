//! Finds the places on a volume where file systems may begin: its first byte and the first byte of each partition (MBR, GPT).

use crate::ext::Bytes;

/// Most partitions that are used.
pub const PARTITIONS_MAX: usize = 12;

fn u32_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]))
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u32_at(b, at) | u32_at(b, at + 4) << 32
}

/// The places of possible file systems in ascending order, beginning with the start of the volume. A partition table that is damaged or
/// unreadable has no partitions.
pub fn starts(from: &mut dyn Bytes, bytes: u64) -> Vec<u64> {
    let mut all = vec![0];
    let mut first = [0; 512];
    if from.read(0, &mut first).is_ok() && first[510..] == [0x55, 0xaa] {
        let entries = first[446..510].chunks_exact(16);
        let used: Vec<(u8, u64)> = entries
            .filter(|e| e[4] != 0)
            .map(|e| (e[4], u32_at(e, 8)))
            .collect();
        if used.iter().any(|e| e.0 == 0xee) {
            all.extend(
                gpt(from, 512)
                    .or_else(|| gpt(from, 4096))
                    .unwrap_or_default(),
            );
        } else {
            all.extend(used.iter().map(|e| e.1 * 512));
        }
    }
    all[1..].sort_unstable();
    all.dedup();
    all.retain(|s| *s < bytes);
    all.truncate(PARTITIONS_MAX + 1);
    all
}

fn gpt(from: &mut dyn Bytes, sector: u64) -> Option<Vec<u64>> {
    let mut head = [0; 512];
    from.read(sector, &mut head).ok()?;
    let (table, n, size) = (u64_at(&head, 72), u32_at(&head, 80), u32_at(&head, 84));
    if &head[..8] != b"EFI PART" || !(128..=4096).contains(&size) || n > 1024 {
        return None;
    }
    let mut entries = vec![0; (n * size) as usize];
    from.read(table.checked_mul(sector)?, &mut entries).ok()?;
    let used = entries.chunks_exact(size as usize);
    used.filter(|e| e[..16] != [0; 16])
        .map(|e| u64_at(e, 32).checked_mul(sector))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_and_nonsense_is_none() {
        let mut disk = vec![0u8; 1 << 20];
        let at = |d: &Vec<u8>| starts(&mut &d[..], 1 << 20);
        assert_eq!(at(&disk), [0]);
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        disk[446 + 4] = 0x83;
        disk[446 + 8] = 63;
        disk[462 + 4] = 0x83;
        disk[462 + 8..462 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(at(&disk), [0, 63 * 512], "one lies beyond the end");
        disk[446 + 4] = 0xee;
        assert_eq!(at(&disk), [0], "no GPT where there should be one");
        disk[512..520].copy_from_slice(b"EFI PART");
        disk[512 + 72] = 2;
        disk[512 + 80] = 4;
        disk[512 + 84] = 128;
        disk[1024] = 1;
        disk[1024 + 32] = 40;
        assert_eq!(at(&disk), [0, 40 * 512]);
        disk[1024 + 32..1024 + 40].fill(0xff);
        assert_eq!(at(&disk), [0]);
    }
}
