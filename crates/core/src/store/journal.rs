//! The journal: a ring of 4 KiB blocks. Each block contains a batch of records, and the blocks form a chain.
//!
//! ```text
//!  0     4     6      8      24     32          40   48            56        60     62     64
//! ┌─────┬─────┬──────┬──────┬──────┬───────────┬────┬─────────────┬─────────┬──────┬──────┬───────────┐
//! │magic│ver. │flags │ uuid │epoch │prev. epoch│seq │last flushed │prev. crc│ crc  (4)    │ records … │
//! └─────┴─────┴──────┴──────┴──────┴───────────┴────┴─────────────┴─────────┴─────────────┴───────────┘
//! ```
//! A block follows another if three conditions hold. Its sequence number is one higher. It contains the other's checksum as the checksum of
//! the previous block. It has the same epoch, or it is the first block of its epoch and names the other's epoch as the previous one. So
//! blocks that are left from a session whose last blocks were lost can never be taken for a continuation. A round always starts a new
//! block, so a block that was flushed is never rewritten.

use super::codec::{id_at, put, seal_used, sealed, u16_at, u32_at, u64_at};
use super::{BLOCK, HEADER};
use alloc::vec;
use alloc::vec::Vec;

const MAGIC: [u8; 4] = *b"ISOJ";
const VERSION: u16 = 2;
const FIRST_OF_EPOCH: u16 = 1;
const CRC_AT: usize = 60;
/// A kept block is extended only if it has at least this number of bytes left.
const EXTENSION_MIN: usize = 64;

/// The end of a chain: the values that the next block must contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tip {
    /// Sequence number of the next block.
    pub next_seq: u64,
    /// Epoch of the last block.
    pub epoch: u64,
    /// Checksum of the last block.
    pub crc: u32,
}

/// The header of a valid block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Epoch of its session.
    pub epoch: u64,
    /// The previous epoch, if this block is the first one of its epoch.
    pub prev_epoch: Option<u64>,
    /// Sequence number.
    pub seq: u64,
    /// Highest sequence number that was known to be durable when the block was written.
    pub last_flushed: u64,
    /// Checksum of the previous block.
    pub prev_crc: u32,
    /// Its own checksum.
    pub crc: u32,
}

/// Decodes the header of a block, if it is a complete block of this volume.
pub fn decode(b: &[u8], uuid: &[u8; 16]) -> Option<BlockHeader> {
    if b[..4] != MAGIC || u16_at(b, 4) != VERSION || id_at(b, 8) != *uuid {
        return None;
    }
    let crc = sealed(b, CRC_AT)?;
    let flags = u16_at(b, 6);
    Some(BlockHeader {
        epoch: u64_at(b, 24),
        prev_epoch: (flags & FIRST_OF_EPOCH != 0).then(|| u64_at(b, 32)),
        seq: u64_at(b, 40),
        last_flushed: u64_at(b, 48),
        prev_crc: u32_at(b, 56),
        crc,
    })
}

impl Tip {
    /// Whether `h` continues this chain.
    pub fn accepts(&self, h: &BlockHeader) -> bool {
        h.seq == self.next_seq
            && h.prev_crc == self.crc
            && match h.prev_epoch {
                None => h.epoch == self.epoch,
                Some(p) => p == self.epoch,
            }
    }
    /// The tip after `h`.
    #[must_use]
    pub fn after(&self, h: &BlockHeader) -> Tip {
        Tip {
            next_seq: h.seq + 1,
            epoch: h.epoch,
            crc: h.crc,
        }
    }
}

/// The journal blocks in memory: the one that is being filled, and those that are being written or that the mirror lacks. A block stays
/// here until the mirror has it, so the primary is never read to bring the mirror up to date.
#[derive(Clone, Debug)]
pub struct Staging {
    uuid: [u8; 16],
    epoch: u64,
    tip: Tip,
    /// Highest sequence number that is known to be durable on the primary.
    pub last_flushed: u64,
    /// The next sequence number that the primary needs. A round brings it up to date; blocks that are only kept ([`Staging::keep`]) come
    /// after it.
    pub on_primary: u64,
    /// The next sequence number that the mirror needs.
    pub mirrored: u64,
    /// The next sequence number that the keeper needs, unless the primary has it.
    kept: u64,
    /// The block that was completed last, if more records may be added to it: the end of the chain before it, and its bytes in use.
    extensible: Option<(Tip, usize)>,
    blocks: Vec<u8>,
    capacity: u64,
    /// Number of bytes used in the block that is being filled; 0: no block is being filled.
    fill: usize,
    /// Whether nobody will ever read the blocks: see [`Staging::unread`].
    unread: bool,
}

impl Staging {
    /// The staging area of a session with epoch `epoch` that continues at `tip`, with room for `capacity` blocks.
    pub fn new(uuid: [u8; 16], epoch: u64, tip: Tip, capacity: u32) -> Staging {
        Staging {
            uuid,
            epoch,
            tip,
            last_flushed: tip.next_seq - 1,
            on_primary: tip.next_seq,
            mirrored: tip.next_seq,
            kept: tip.next_seq,
            extensible: None,
            blocks: vec![0; capacity as usize * BLOCK],
            capacity: u64::from(capacity),
            fill: 0,
            unread: false,
        }
    }
    /// With `on`, the bytes of blocks are never read, as in the lab, where only their number counts: they are neither filled with zeros nor
    /// given a checksum. Such a chain cannot be recovered.
    #[must_use]
    pub fn unread(mut self, on: bool) -> Staging {
        self.unread = on;
        self
    }
    /// Whether the bytes of blocks are never read.
    pub fn is_unread(&self) -> bool {
        self.unread
    }
    /// The end of the chain, without the block that is being filled.
    pub fn tip(&self) -> Tip {
        self.tip
    }
    /// Number of blocks that the area has room for.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
    /// Whether a block is being filled.
    pub fn is_open(&self) -> bool {
        self.fill > 0
    }
    /// Number of blocks that can be staged before the mirror must be brought up to date.
    pub fn room(&self) -> u64 {
        self.capacity - (self.tip.next_seq - self.mirrored) - u64::from(self.fill > 0)
    }
    /// Number of complete blocks that the mirror lacks.
    pub fn lag(&self) -> u64 {
        self.tip.next_seq - self.mirrored
    }
    fn at(&self, seq: u64) -> usize {
        (seq % self.capacity) as usize * BLOCK
    }
    /// The free rest of the block that is being filled. If no block is being filled, a new one is begun; the caller has checked
    /// [`Staging::room`].
    pub fn rest(&mut self) -> &mut [u8] {
        let at = self.at(self.tip.next_seq);
        if self.fill == 0 {
            if !self.unread {
                self.blocks[at..at + BLOCK].fill(0);
            }
            self.fill = HEADER;
        }
        &mut self.blocks[at + self.fill..at + BLOCK]
    }
    /// Notes that the first `units` units of [`Staging::rest`] were used.
    pub fn advance(&mut self, units: usize) {
        self.fill += units * 16;
    }
    /// Completes the block that is being filled; returns false if there is none.
    pub fn seal(&mut self) -> bool {
        if self.fill == 0 {
            return false;
        }
        let used = core::mem::take(&mut self.fill);
        let seq = self.tip.next_seq;
        if self.unread {
            self.tip = Tip {
                next_seq: seq + 1,
                epoch: self.epoch,
                crc: 0,
            };
            return true;
        }
        let first = self.tip.epoch != self.epoch;
        let at = self.at(seq);
        let b = &mut self.blocks[at..at + BLOCK];
        put(b, 0, &MAGIC);
        put(b, 4, &VERSION.to_le_bytes());
        let flags = if first { FIRST_OF_EPOCH } else { 0 };
        put(b, 6, &flags.to_le_bytes());
        put(b, 8, &self.uuid);
        put(b, 24, &self.epoch.to_le_bytes());
        put(
            b,
            32,
            &(if first { self.tip.epoch } else { 0 }).to_le_bytes(),
        );
        put(b, 40, &seq.to_le_bytes());
        put(b, 48, &self.last_flushed.to_le_bytes());
        put(b, 56, &self.tip.crc.to_le_bytes());
        let crc = seal_used(b, CRC_AT, used);
        self.tip = Tip {
            next_seq: seq + 1,
            epoch: self.epoch,
            crc,
        };
        true
    }
    /// Whether a complete block is not on the primary.
    pub fn has_kept(&self) -> bool {
        self.on_primary < self.tip.next_seq
    }
    /// Whether every complete block is on the primary or in the keeper.
    pub fn is_kept(&self) -> bool {
        self.kept.max(self.on_primary) == self.tip.next_seq
    }
    /// Number of complete blocks that are not on the primary.
    pub fn unwritten(&self) -> u64 {
        self.tip.next_seq - self.on_primary
    }
    /// Opens the last block again, if it was completed by [`Staging::keep`], belongs to no round and has space, so that more records are
    /// added to it. Without new records, [`Staging::keep`] makes the same block of it.
    pub fn extend(&mut self) {
        if self.fill > 0 || self.unread {
            return;
        }
        if let Some((tip, used)) = self.extensible.take() {
            self.tip = tip;
            self.fill = used;
            self.kept = self.kept.min(tip.next_seq);
        }
    }
    /// Completes the block that is being filled, and returns the numbers of the blocks that the keeper needs from now on. The last of them
    /// may be extended later.
    pub fn keep(&mut self) -> core::ops::Range<u64> {
        let (before, used) = (self.tip, self.fill);
        if self.seal() && used + EXTENSION_MIN <= BLOCK {
            self.extensible = Some((before, used));
        }
        let from = self.kept.max(self.on_primary);
        self.kept = self.tip.next_seq;
        from..self.tip.next_seq
    }
    /// A round begins, and all complete blocks belong to it: the last one is not extended any more.
    pub fn round_begins(&mut self) {
        self.extensible = None;
    }
    /// The bytes of staged blocks `from..to`, which must not wrap around the staging ring; see [`Staging::span`].
    pub fn bytes(&self, from: u64, to: u64) -> &[u8] {
        let at = self.at(from);
        &self.blocks[at..at + (to - from) as usize * BLOCK]
    }
    /// The end `x` ≤ `to` of the longest run `from..x` that wraps around neither in the staging ring nor in a ring of `ring` blocks.
    pub fn span(&self, from: u64, to: u64, ring: u64) -> u64 {
        let here = self.capacity - from % self.capacity;
        let there = ring - from % ring;
        to.min(from + here.min(there))
    }
    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_of_two_sessions() {
        let uuid = [9; 16];
        let t0 = Tip {
            next_seq: 1,
            epoch: 5,
            crc: 0,
        };
        let mut s = Staging::new(uuid, 6, t0, 8);
        s.rest()[0] = 3;
        s.advance(1);
        assert!(s.seal() && !s.seal());
        s.rest()[0] = 3;
        s.advance(1);
        s.seal();
        let h1 = decode(s.bytes(1, 2), &uuid).unwrap();
        let h2 = decode(s.bytes(2, 3), &uuid).unwrap();
        assert_eq!(h1.prev_epoch, Some(5));
        assert!(t0.accepts(&h1) && !t0.accepts(&h2));
        let t1 = t0.after(&h1);
        assert!(t1.accepts(&h2));
        // A later session, for which block 2 was lost, writes another block 2. The next block of the first session does not continue it.
        let mut other = Staging::new(uuid, 7, t1, 8);
        other.rest()[0] = 3;
        other.advance(1);
        other.seal();
        let o2 = decode(other.bytes(2, 3), &uuid).unwrap();
        assert!(t1.accepts(&o2));
        assert!(!t1.after(&o2).accepts(&h2));
        assert_eq!(s.room(), 6);
    }

    #[test]
    fn blocks_that_nobody_reads_are_counted_like_others() {
        let tip = Tip {
            next_seq: 1,
            epoch: 6,
            crc: 0,
        };
        let read = Staging::new([9; 16], 6, tip, 8);
        let mut both = [read.clone(), read.unread(true)];
        for units in [1, 252, 3, 100] {
            let counts = both.each_mut().map(|s| {
                let rest = s.rest().len();
                s.advance(units.min(rest / 16));
                let full = units > 99;
                let sealed = full && s.seal();
                (
                    rest,
                    sealed,
                    s.is_open(),
                    s.room(),
                    s.lag(),
                    s.tip().next_seq,
                )
            });
            assert_eq!(counts[0], counts[1]);
        }
        assert!(decode(both[0].bytes(1, 2), &[9; 16]).is_some());
        assert!(decode(both[1].bytes(1, 2), &[9; 16]).is_none());
    }

    #[test]
    fn damage_is_seen() {
        let uuid = [9; 16];
        let mut s = Staging::new(
            uuid,
            6,
            Tip {
                next_seq: 1,
                epoch: 6,
                crc: 0,
            },
            4,
        );
        s.rest()[0] = 3;
        s.advance(1);
        s.seal();
        let b = s.bytes(1, 2).to_vec();
        for i in 0..BLOCK {
            let mut c = b.clone();
            c[i] ^= 1;
            assert!(decode(&c, &uuid).is_none(), "byte {i}");
        }
    }
}
