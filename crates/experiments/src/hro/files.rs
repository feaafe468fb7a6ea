//! Placement of whole files, as in the paper (Algorithm 2, and HOT of section IV).
//!
//! The engine's units have one size, so its `hro` ranks by f R alone. The term that makes HRO prefer small files, v/s = f R / s^2, has no
//! effect there. This module makes the plan of one midnight for files: counts by Algorithm 1 over the training, then a greedy fill of the
//! SSD. The chosen files get the lowest addresses, and `mylinear` serves those from the SSD.

use std::collections::HashMap;

use isotherm_traces::Record;
use isotherm_traces::generate::FileUse;
use isotherm_traces::layout::{BLOCK, Ino, Owner};

/// The key by which files are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By frequency (HOT).
    Frequency,
    /// By value over size (HRO).
    Value,
}

fn rank(by: By, u: &FileUse) -> f64 {
    let (f, r, s) = (
        u.frequency as f64,
        u.randomness as f64,
        u.size.max(1) as f64,
    );
    match by {
        By::Frequency => f,
        By::Value => f / s * r / s,
    }
}

/// The files that go to an SSD of `bytes`, as indexes in `uses`: best first, taking each file that still fits.
pub fn choose(by: By, uses: &[FileUse], bytes: u64) -> Vec<usize> {
    let mut ranked: Vec<(f64, usize)> = (uses.iter().enumerate())
        .filter(|(_, u)| u.frequency > 0)
        .map(|(i, u)| (rank(by, u), i))
        .collect();
    ranked.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut left = bytes;
    let fits = |&(_, i): &(f64, usize)| {
        let needs = uses[i].size.next_multiple_of(u64::from(BLOCK));
        let fits = needs <= left;
        left -= if fits { needs } else { 0 };
        fits
    };
    ranked.into_iter().filter(fits).map(|x| x.1).collect()
}

/// Moves the blocks of the chosen files, and those from `inodes` on (their inodes), to the lowest addresses. Returns the requests and the
/// number of touched bytes of these blocks. All other blocks keep their order at the addresses above.
pub fn relocate(
    records: &[Record],
    owners: &std::collections::BTreeMap<u64, Owner>,
    chosen: &[Ino],
    inodes: u64,
) -> (Vec<Record>, u64) {
    let chosen: std::collections::BTreeSet<Ino> = chosen.iter().copied().collect();
    let block = u64::from(BLOCK);
    let on_ssd = |b: u64| match owners.get(&b) {
        Some(Owner::File(i) | Owner::Indirect(i)) => chosen.contains(i),
        _ => b >= inodes,
    };
    // Only touched blocks exist in the lab, so only these get an address.
    let mut touched: Vec<u64> = (records.iter().filter(|r| r.len > 0))
        .flat_map(|r| r.offset / block..r.end().div_ceil(block))
        .filter(|&b| on_ssd(b))
        .collect();
    touched.sort_unstable();
    touched.dedup();
    let place: HashMap<u64, u64> = touched.iter().copied().zip(0..).collect();
    let fast = touched.len() as u64 * block;
    let mut out = Vec::with_capacity(records.len());
    for r in records {
        if r.len == 0 {
            out.push(*r);
            continue;
        }
        // A request of one file is split where the SSD's part of the volume begins, and where its blocks are no longer neighbours.
        let mut at = r.offset;
        while at < r.end() {
            let to = |b: u64| place.get(&b).copied();
            let first = at / block;
            let mut end = (first + 1) * block;
            while end < r.end() && to(end / block) == to(first).map(|p| p + (end / block - first)) {
                end += block;
            }
            let end = end.min(r.end());
            let base = to(first).map_or(fast + first * block, |p| p * block);
            out.push(Record {
                offset: base + at % block,
                len: (end - at) as u32,
                ..*r
            });
            at = end;
        }
    }
    (out, fast)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::Nanos;
    use isotherm_traces::Op;

    fn used(size: u64, frequency: u64, randomness: u64) -> FileUse {
        FileUse {
            size,
            frequency,
            randomness,
        }
    }

    #[test]
    fn value_prefers_small_random_files_and_frequency_does_not() {
        let uses = [
            used(65_536, 50, 10),
            used(4096, 20, 20),
            used(8192, 20, 20),
            used(4096, 0, 0),
        ];
        assert_eq!(choose(By::Frequency, &uses, 1 << 20), [0, 1, 2]);
        assert_eq!(choose(By::Value, &uses, 1 << 20), [1, 2, 0]);
        // The large file no longer fits, but the ones after it do.
        assert_eq!(choose(By::Frequency, &uses, 12_288), [1, 2]);
    }

    #[test]
    fn chosen_files_come_first_and_nothing_else_meets_them() {
        let owners = [
            (5, Owner::File(Ino(1))),
            (6, Owner::File(Ino(1))),
            (7, Owner::File(Ino(2))),
        ]
        .into();
        let at = |b: u64, n: u32| Record::new(Nanos(0), Op::Read, b * 4096, n * 4096);
        let (records, fast) = relocate(
            &[at(0, 1), at(6, 1), at(5, 2), at(7, 1), at(100, 1)],
            &owners,
            &[Ino(1)],
            100,
        );
        assert_eq!(fast, 12_288);
        let places: Vec<(u64, u32)> = records
            .iter()
            .map(|r| (r.offset / 4096, r.len / 4096))
            .collect();
        assert_eq!(places, [(3, 1), (1, 1), (0, 2), (10, 1), (2, 1)]);
    }
}
