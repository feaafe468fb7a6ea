//! The valid blocks of extents that are partly valid.
//!
//! A small volume has one flat bit set with a bit per block. In a large one this would be gigabytes (3 GB for 100 TB in extents of 1 MiB),
//! almost all of it for extents that are fully valid or unmapped. Therefore, in a large volume, an extent has a bitmap only while it is
//! partly valid:
//!
//! ```text
//! extent ─► number of its bitmap (a tree of the extents that have one) ─► chunk of 1024 bitmaps, allocated when the first of them is
//! needed
//! ```
//! So each partly valid extent needs its bitmap and about 28 bytes. Their number is bounded: see [`Valid::most`].

use crate::bits::Bits;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Largest flat bit set, in bits: 32 MiB.
const FLAT_MAX: usize = 1 << 28;
/// Number of bytes that a large volume may use for bitmaps even if it has few extents.
const RESERVE_MIN: u64 = FLAT_MAX as u64 / 8;
/// Memory of a bitmap in addition to its bits: 20 bytes in the tree (8 bytes in a node that is two thirds full, and a share of the nodes
/// above), and up to 8 bytes in the list of free numbers after the bitmap was removed.
const BESIDE: u64 = 28;
const CHUNK: usize = 1024;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Valid {
    blocks: usize,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Flat(Bits),
    Sparse(Sparse),
}

#[derive(Clone, Debug)]
struct Sparse {
    numbers: BTreeMap<u32, u32>,
    chunks: Vec<Bits>,
    free: Vec<u32>,
    /// Number of bits from one bitmap to the next.
    stride: usize,
}

impl Sparse {
    fn new(blocks: usize) -> Sparse {
        Sparse {
            numbers: BTreeMap::new(),
            chunks: Vec::new(),
            free: Vec::new(),
            stride: blocks.next_multiple_of(64),
        }
    }
    /// Chunk and first bit of the bitmap of `e`, which must have one.
    fn place(&self, e: u32) -> (usize, usize) {
        let n = self.numbers.get(&e).expect("a partial extent has a bitmap");
        let n = *n as usize;
        (n / CHUNK, n % CHUNK * self.stride)
    }
    fn add(&mut self, e: u32) {
        if self.numbers.contains_key(&e) {
            return;
        }
        if self.free.is_empty() {
            let first = (self.chunks.len() * CHUNK) as u32;
            self.chunks.push(Bits::new(CHUNK * self.stride));
            self.free.extend((first..first + CHUNK as u32).rev());
        }
        let n = self.free.pop().expect("just filled");
        self.numbers.insert(e, n);
    }
    fn remove(&mut self, e: u32) {
        if let Some(n) = self.numbers.remove(&e) {
            self.free.push(n);
        }
    }
}

impl Valid {
    pub(super) fn new(extents: usize, blocks: usize) -> Valid {
        Valid::with_limit(extents, blocks, FLAT_MAX)
    }
    fn with_limit(extents: usize, blocks: usize, flat_max: usize) -> Valid {
        let flat = extents.checked_mul(blocks).filter(|&n| n <= flat_max);
        let kind = match flat {
            // With one block per extent, an extent is partial only for a moment. The bit is kept all the same, because it takes only 1/8
            // byte.
            Some(n) => Kind::Flat(Bits::new(n)),
            None => Kind::Sparse(Sparse::new(blocks)),
        };
        Valid { blocks, kind }
    }
    /// The largest number of extents that may be partly valid at the same time, out of `extents` with `blocks` blocks each. In a small
    /// volume this is the number of all extents (with at most 32 MiB of bitmaps). In a large one their bitmaps may take one byte per extent
    /// of the volume, or 32 MiB if that is more: 95 MB for 100 TB in extents of 1 MiB, which is enough for 1.6 million partly valid
    /// extents.
    pub(super) fn most(extents: u64, blocks: u64) -> u64 {
        if is_small(extents, blocks) {
            return extents;
        }
        let each = BESIDE + blocks.next_multiple_of(64) / 8;
        (extents.max(RESERVE_MIN) / each).min(extents)
    }
    /// Memory in bytes of this structure for a map with these numbers: without partly valid extents, and with the largest number of them.
    pub(super) fn estimate(extents: u64, blocks: u64) -> (u64, u64) {
        if is_small(extents, blocks) {
            let flat = extents * blocks / 8;
            return (flat, flat);
        }
        let each = BESIDE + blocks.next_multiple_of(64) / 8;
        (0, Valid::most(extents, blocks) * each)
    }
    /// Begins the bitmap of an extent that becomes partly valid. Initially all of its blocks are valid (`on`), or none is.
    pub(super) fn begin(&mut self, e: u32, on: bool) {
        if let Kind::Sparse(s) = &mut self.kind {
            s.add(e);
        }
        self.fill(e, 0, self.blocks as u32, on);
    }
    /// Ends the bitmap of an extent that is fully valid, or has no home any more.
    pub(super) fn end(&mut self, e: u32) {
        if let Kind::Sparse(s) = &mut self.kind {
            s.remove(e);
        }
    }
    fn place(&self, e: u32) -> (&Bits, usize) {
        match &self.kind {
            Kind::Flat(bits) => (bits, e as usize * self.blocks),
            Kind::Sparse(s) => {
                let (chunk, base) = s.place(e);
                (&s.chunks[chunk], base)
            }
        }
    }
    fn place_mut(&mut self, e: u32) -> (&mut Bits, usize) {
        match &mut self.kind {
            Kind::Flat(bits) => (bits, e as usize * self.blocks),
            Kind::Sparse(s) => {
                let (chunk, base) = s.place(e);
                (&mut s.chunks[chunk], base)
            }
        }
    }
    /// Sets or clears blocks of an extent; returns whether anything changed. This and the next four functions are for an extent that has a
    /// bitmap: after `begin` and before `end`.
    pub(super) fn fill(&mut self, e: u32, from: u32, to: u32, on: bool) -> bool {
        let (bits, b) = self.place_mut(e);
        bits.fill(b + from as usize, b + to as usize, on)
    }
    pub(super) fn is_all(&self, e: u32, on: bool) -> bool {
        let (bits, b) = self.place(e);
        bits.all(b, b + self.blocks, on)
    }
    pub(super) fn run(&self, e: u32, from: u32, to: u32) -> (u32, bool) {
        let (bits, b) = self.place(e);
        let on = bits.get(b + from as usize);
        (bits.run(b + from as usize, b + to as usize, on) as u32, on)
    }
    pub(super) fn export(&self, e: u32, out: &mut [u8]) {
        let (bits, b) = self.place(e);
        bits.export(b, self.blocks, out);
    }
    pub(super) fn import(&mut self, e: u32, bytes: &[u8]) {
        let blocks = self.blocks;
        let (bits, b) = self.place_mut(e);
        bits.import(b, blocks, bytes);
    }
    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        match &self.kind {
            Kind::Flat(bits) => bits.bytes(),
            Kind::Sparse(s) => {
                let chunks: usize = s.chunks.iter().map(Bits::bytes).sum();
                chunks + s.free.capacity() * 4 + s.numbers.len() * 20
            }
        }
    }
}

/// Whether the volume is so small that one flat bit set is used.
fn is_small(extents: u64, blocks: u64) -> bool {
    extents.saturating_mul(blocks) <= FLAT_MAX as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn sparse_agrees_with_flat() {
        let (extents, blocks) = (1000, 200);
        let mut flat = Valid::with_limit(extents, blocks, usize::MAX);
        let mut sparse = Valid::with_limit(extents, blocks, 0);
        let mut begun = vec![false; extents];
        let mut random = crate::random::SplitMix64::new(5);
        let mut most = 0;
        for step in 0..30_000 {
            let seed = random.draw();
            let e = (seed >> 33) as u32 % extents as u32;
            let (x, y) = ((seed >> 11) as u32 % 200, (seed >> 20) as u32 % 200);
            let (from, to) = (x.min(y), x.max(y) + 1);
            let on = seed >> 60 & 1 == 1;
            match (begun[e as usize], seed >> 61) {
                (false, _) => {
                    flat.begin(e, on);
                    sparse.begin(e, on);
                    begun[e as usize] = true;
                }
                // Phases of 3000 steps, so that chunks and bitmaps are allocated and freed.
                (true, 0..=5) if step / 3000 % 2 == 1 => {
                    flat.end(e);
                    sparse.end(e);
                    begun[e as usize] = false;
                }
                (true, 6) => {
                    let bytes: Vec<u8> = (0..25).map(|i| (seed >> (i % 50)) as u8).collect();
                    flat.import(e, &bytes);
                    sparse.import(e, &bytes);
                }
                (true, _) => {
                    assert_eq!(flat.fill(e, from, to, on), sparse.fill(e, from, to, on));
                }
            }
            if begun[e as usize] {
                assert_eq!(flat.run(e, from, to), sparse.run(e, from, to));
                assert_eq!(flat.is_all(e, on), sparse.is_all(e, on));
                let (mut a, mut b) = ([0; 25], [0; 25]);
                flat.export(e, &mut a);
                sparse.export(e, &mut b);
                assert_eq!(a, b);
            }
            most = most.max(sparse.bytes());
        }
        for e in 0..extents as u32 {
            sparse.end(e);
        }
        let Kind::Sparse(s) = &sparse.kind else {
            panic!("sparse");
        };
        assert!(s.numbers.is_empty() && s.free.len() == s.chunks.len() * CHUNK);
        assert!(sparse.bytes() < most);
    }

    #[test]
    fn a_volume_of_a_hundred_terabytes_costs_little_before_anything_is_partial() {
        let (extents, blocks) = (95_400_000, 256);
        let v = Valid::new(extents, blocks);
        assert!(v.bytes() < 4 << 20, "{}", v.bytes());
        let (least, most) = Valid::estimate(extents as u64, blocks as u64);
        assert!(least < 4 << 20 && most < 96_000_000, "{most}");
        assert!((1_500_000..1_700_000).contains(&Valid::most(extents as u64, blocks as u64)));
        assert_eq!(Valid::estimate(1000, 16), (2000, 2000));
        assert_eq!(Valid::most(1000, 16), 1000);
    }

    /// With the largest number of partial extents, as far from one another as possible, the bound holds.
    #[test]
    fn bitmaps_stay_within_their_reserve() {
        let (extents, blocks) = (1 << 22, 256);
        let mut v = Valid::new(extents, blocks);
        let (_, bound) = Valid::estimate(extents as u64, blocks as u64);
        let most = Valid::most(extents as u64, blocks as u64) as usize;
        assert!(most < extents && bound <= RESERVE_MIN);
        for i in 0..most {
            // A permutation: neighbours in time are far apart.
            let e = (i * 2_654_435_761) as u32 % extents as u32;
            v.begin(e, false);
            v.fill(e, 7, 8, true);
        }
        assert!(v.bytes() as u64 <= bound, "{} of {bound}", v.bytes());
    }
}
