//! Checkpoints: the whole map, in one of two regions that are used in turn.
//!
//! A region is one header block, then data blocks. The header is written last, after a flush, so a region is valid only if all of it is
//! durable. Data blocks hold the same records as the journal.
//!
//! ```text
//! header: 0 magic "ISOC" │ 4 version │ 8 uuid │ 24 number │ 32 start seq │ 40 epoch │ 48 prev crc │ 52 blocks │ 56 time │ 64 crc
//!         80 rows │ 96 rows of members' counters (see `counter.rs`)
//! data:   0 magic "ISOD" │ 4 index   │ 8 uuid │ 24 number │ …                                               60 crc │ 64 records
//! ```
//! `start seq` with `epoch` and `prev crc` is the [`Tip`] of the journal when the checkpoint began; replay continues from there.

use super::codec::{id_at, put, seal, sealed, u16_at, u32_at, u64_at};
use super::counter::{Known, known_at, put_known};
use super::journal::Tip;
use super::superblock::COUNT_MAX;
use super::{BLOCK, HEADER};
use crate::units::Nanos;
use crate::volume::geometry::MEMBERS_MAX;

const HEADER_MAGIC: [u8; 4] = *b"ISOC";
const DATA_MAGIC: [u8; 4] = *b"ISOD";
const VERSION: u32 = 2;
const HEADER_CRC: usize = 64;
const DATA_CRC: usize = 60;
const ROWS_AT: usize = 96;

/// The content of a checkpoint's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number of the checkpoint, which grows by one each time. Even and odd numbers are in different regions.
    pub number: u64,
    /// The journal's tip when the checkpoint began.
    pub start: Tip,
    /// Number of data blocks.
    pub blocks: u32,
    /// Engine time when the checkpoint began.
    pub time: Nanos,
}

impl Header {
    /// The region of this checkpoint.
    pub fn region(number: u64) -> u8 {
        (number % 2) as u8
    }
    /// Encodes the header as a block, with the known values of members' counters.
    pub fn encode(&self, uuid: &[u8; 16], counters: &Known) -> [u8; BLOCK] {
        let mut b = [0; BLOCK];
        put(&mut b, 0, &HEADER_MAGIC);
        put(&mut b, 4, &VERSION.to_le_bytes());
        put(&mut b, 8, uuid);
        put(&mut b, 24, &self.number.to_le_bytes());
        put(&mut b, 32, &self.start.next_seq.to_le_bytes());
        put(&mut b, 40, &self.start.epoch.to_le_bytes());
        put(&mut b, 48, &self.start.crc.to_le_bytes());
        put(&mut b, 52, &self.blocks.to_le_bytes());
        put(&mut b, 56, &self.time.0.to_le_bytes());
        let rows = counters.len().min(MEMBERS_MAX) as u16;
        put(&mut b, 80, &rows.to_le_bytes());
        put_known(&mut b, ROWS_AT, counters);
        seal(&mut b, HEADER_CRC);
        b
    }
    /// Decodes a block, if it is a complete header of this volume.
    pub fn decode(b: &[u8], uuid: &[u8; 16]) -> Option<Header> {
        if b[..4] != HEADER_MAGIC || u32_at(b, 4) != VERSION || id_at(b, 8) != *uuid {
            return None;
        }
        sealed(b, HEADER_CRC)?;
        // Later sums with these numbers must not overflow, whatever the block contains. Sequence numbers and checkpoint numbers start at 1.
        let counts = [u64_at(b, 24), u64_at(b, 32)];
        if !counts.iter().all(|n| (1..=COUNT_MAX).contains(n)) || u64_at(b, 56) > COUNT_MAX {
            return None;
        }
        Header::counters(b)?;
        Some(Header {
            number: u64_at(b, 24),
            start: Tip {
                next_seq: u64_at(b, 32),
                epoch: u64_at(b, 40),
                crc: u32_at(b, 48),
            },
            blocks: u32_at(b, 52),
            time: Nanos(u64_at(b, 56)),
        })
    }
}

impl Header {
    /// The values of members' counters in a header block.
    pub fn counters(b: &[u8]) -> Option<Known> {
        known_at(b, ROWS_AT, usize::from(u16_at(b, 80)))
    }
}

/// Completes data block `index` of checkpoint `number`: writes its header and checksum. Its records begin at byte 64.
pub fn seal_data(b: &mut [u8], uuid: &[u8; 16], number: u64, index: u32) {
    b[..HEADER].fill(0);
    put(b, 0, &DATA_MAGIC);
    put(b, 4, &index.to_le_bytes());
    put(b, 8, uuid);
    put(b, 24, &number.to_le_bytes());
    seal(b, DATA_CRC);
}

/// Whether `b` is data block `index` of checkpoint `number`, and complete.
pub fn is_data(b: &[u8], uuid: &[u8; 16], number: u64, index: u32) -> bool {
    b[..4] == DATA_MAGIC
        && u32_at(b, 4) == index
        && id_at(b, 8) == *uuid
        && u64_at(b, 24) == number
        && sealed(b, DATA_CRC).is_some()
}
