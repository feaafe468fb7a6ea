//! Workloads that are designed to make a cache slower than the disk, from a seed. They are those of `bench/benefit/adversary.py`, smaller.

use isotherm_core::Nanos;
use isotherm_lab::sim::Memory;
use isotherm_traces::{Op, Record};

/// All kinds of workloads.
pub const KINDS: [Kind; 6] = [
    Kind::Scan,
    Kind::Once,
    Kind::Thrash,
    Kind::Burst,
    Kind::Write,
    Kind::Shift,
];

/// The kind of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Repeated reads from the first block to the last.
    Scan,
    /// Reads, and in some cases as many writes, at random places.
    Once,
    /// Repeated accesses to the same blocks, which are a little more than a tenth of all.
    Thrash,
    /// Many simultaneous requests, then none for seconds.
    Burst,
    /// Writes at random places.
    Write,
    /// Four of five requests go to a hot set, which moves every minute.
    Shift,
}

/// A xorshift generator. The tests have their own, because pages and tests name cases by their seeds, so its numbers must never change.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(n)) >> 64) as u64
    }
    fn of(&mut self, list: &[u64]) -> u64 {
        list[self.below(list.len() as u64) as usize]
    }
    /// An exponentially distributed number with this mean.
    fn gap(&mut self, mean: f64) -> f64 {
        let x = (self.below(1 << 40) + 1) as f64 / (1u64 << 40) as f64;
        -x.ln() * mean
    }
}

/// 3000 requests of a kind. The same seed gives the same requests.
pub fn case(kind: Kind, seed: u64) -> Memory {
    let mut r = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // The first numbers are skipped, because those of similar seeds are similar.
    for _ in 0..8 {
        let _ = r.below(2);
    }
    let size = r.of(&[4096, 4096, 8192, 16384]);
    let blocks = (r.of(&[256, 1024, 4096]) << 20) / size;
    let rate = r.of(&[20, 60, 120, 200, 400]) as f64;
    let group = match kind {
        Kind::Burst => r.of(&[200, 1000]),
        _ => r.of(&[1, 1, 50, 500]),
    };
    let writes = match kind {
        Kind::Scan => 0,
        Kind::Once => r.of(&[0, 50]),
        Kind::Write => 100,
        _ => r.of(&[0, 10, 30, 70]),
    };
    let width = (blocks / r.of(&[9, 20, 100])).max(1);
    let (mut now, mut minute, mut hot) = (0.0, 0, r.below(blocks));
    let records = (0..3000u64).map(|i| {
        if i % group == 0 {
            now += r.gap(group as f64 / rate);
        }
        if (now / 60.0) as u64 != minute {
            (minute, hot) = ((now / 60.0) as u64, r.below(blocks));
        }
        let block = match kind {
            Kind::Scan => i % blocks,
            Kind::Thrash => i % (blocks / 9).clamp(1, 700) * 7919 % blocks,
            Kind::Shift if r.below(5) > 0 => (hot + r.below(width)) % blocks,
            _ => r.below(blocks),
        };
        let op = if r.below(100) < writes {
            Op::Write
        } else {
            Op::Read
        };
        let time = Nanos((now * 1e9) as u64 + i % group * 10_000);
        Record::new(time, op, block * size, size as u32)
    });
    Memory::new("case", records.collect())
}
