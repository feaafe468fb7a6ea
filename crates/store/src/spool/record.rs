//! The bytes of the spool's files: heads, records, and the blocks in them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::extent_map::Place;
use crate::layout::BLOCK;

/// Bytes of a head; everything in a file begins at a multiple of it.
pub(super) const HEAD: usize = 64;
const FILE_MAGIC: &[u8; 8] = b"ISOSPOOL";
const RECORD_MAGIC: &[u8; 8] = b"ISOWRITE";
/// Largest number of blocks of data in a record: no request has more.
pub const RECORD_BLOCKS: u64 = 1 << 14;

/// Where the newest content of a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// It is zeros.
    Zero,
    /// In a record.
    Data {
        /// Number of the file.
        file: u32,
        /// Offset of the record in it.
        record: u64,
        /// Blocks of the record.
        blocks: u32,
        /// Number of the block in the record.
        index: u32,
    },
}

impl Place for Local {
    fn advance(self, blocks: u64) -> Local {
        match self {
            Local::Zero => Local::Zero,
            Local::Data {
                file,
                record,
                blocks: all,
                index,
            } => Local::Data {
                file,
                record,
                blocks: all,
                index: index + blocks as u32,
            },
        }
    }
    fn joins(self, blocks: u64, next: Local) -> bool {
        self.advance(blocks) == next
    }
}

pub(super) struct Head {
    pub spool: [u8; 16],
    pub store: [u8; 16],
    pub manifest: u64,
    pub life: [u8; 12],
}

pub(super) struct Record {
    pub zero: bool,
    pub start: u64,
    pub blocks: u64,
    pub sequence: u64,
    pub durable: u64,
    pub sums_crc: u32,
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// 16 random bytes.
///
/// # Errors
/// The system gives none.
pub fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if got == bytes.len() {
        Ok(bytes)
    } else {
        Err(io::Error::other("no random numbers"))
    }
}

/// A random id, 32 hexadecimal digits.
///
/// # Errors
/// As [`random`].
pub fn random_id() -> io::Result<String> {
    Ok(hex(&random()?))
}

fn sealed(head: &mut [u8; HEAD]) {
    let crc = crc32fast::hash(&head[..60]);
    head[60..].copy_from_slice(&crc.to_le_bytes());
}

fn is_sealed(head: &[u8]) -> bool {
    head.len() >= HEAD && crc32fast::hash(&head[..60]).to_le_bytes() == head[60..HEAD]
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

pub(super) fn sums_bytes(blocks: u64) -> u64 {
    (blocks * 4).next_multiple_of(64)
}

impl Head {
    pub fn encode(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(FILE_MAGIC);
        head[8..24].copy_from_slice(&self.spool);
        head[24..40].copy_from_slice(&self.store);
        head[40..48].copy_from_slice(&self.manifest.to_le_bytes());
        head[48..60].copy_from_slice(&self.life);
        sealed(&mut head);
        head
    }

    pub fn decode(head: &[u8]) -> Option<Head> {
        if !is_sealed(head) || &head[..8] != FILE_MAGIC {
            return None;
        }
        Some(Head {
            spool: head[8..24].try_into().ok()?,
            store: head[24..40].try_into().ok()?,
            manifest: word(head, 40),
            life: head[48..60].try_into().ok()?,
        })
    }
}

impl Record {
    /// The id is in each head, because a disk may hold a spool as data.
    pub fn encode(&self, id: &[u8; 16]) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(RECORD_MAGIC);
        head[45..60].copy_from_slice(&id[..15]);
        for (at, word) in [self.start, self.blocks, self.sequence, self.durable]
            .into_iter()
            .enumerate()
        {
            head[8 + at * 8..16 + at * 8].copy_from_slice(&word.to_le_bytes());
        }
        head[40..44].copy_from_slice(&self.sums_crc.to_le_bytes());
        head[44] = u8::from(self.zero);
        sealed(&mut head);
        head
    }

    pub fn decode(head: &[u8], id: &[u8; 16]) -> Option<Record> {
        if !is_sealed(head) || &head[..8] != RECORD_MAGIC || head[45..60] != id[..15] {
            return None;
        }
        let record = Record {
            zero: head[44] == 1,
            start: word(head, 8),
            blocks: word(head, 16),
            sequence: word(head, 24),
            durable: word(head, 32),
            sums_crc: u32::from_le_bytes(head[40..44].try_into().ok()?),
        };
        (record.zero || record.blocks <= RECORD_BLOCKS).then_some(record)
    }

    /// Bytes of the record in the file.
    pub fn len(&self) -> u64 {
        HEAD as u64
            + if self.zero {
                0
            } else {
                sums_bytes(self.blocks) + self.blocks * BLOCK
            }
    }

    /// Whether the checksums and the blocks after the head are whole.
    pub fn is_whole(&self, file: &File, at: u64) -> bool {
        if self.zero {
            return true;
        }
        let mut rest = vec![0; (self.len() - HEAD as u64) as usize];
        if file.read_exact_at(&mut rest, at + HEAD as u64).is_err() {
            return false;
        }
        let (sums, blocks) = rest.split_at(sums_bytes(self.blocks) as usize);
        crc32fast::hash(sums) == self.sums_crc
            && blocks
                .chunks(BLOCK as usize)
                .zip(sums.chunks(4))
                .all(|(block, sum)| crc32fast::hash(block).to_le_bytes() == sum)
    }
}

/// Reads `to.len()` bytes, whole blocks from `local` on, and checks them.
///
/// # Errors
/// I/O, or the blocks are not what was written.
pub fn read(file: &File, local: Local, to: &mut [u8]) -> io::Result<()> {
    let Local::Data {
        record,
        blocks,
        index,
        ..
    } = local
    else {
        to.fill(0);
        return Ok(());
    };
    let data = record + HEAD as u64 + sums_bytes(u64::from(blocks));
    file.read_exact_at(to, data + u64::from(index) * BLOCK)?;
    let mut sums = vec![0; to.len() / BLOCK as usize * 4];
    file.read_exact_at(&mut sums, record + HEAD as u64 + u64::from(index) * 4)?;
    let whole = to
        .chunks(BLOCK as usize)
        .zip(sums.chunks(4))
        .all(|(block, sum)| crc32fast::hash(block).to_le_bytes() == sum);
    if whole {
        Ok(())
    } else {
        Err(io::Error::other(
            "a block of the spool has a wrong checksum",
        ))
    }
}

pub(super) fn place(file: u32, at: u64, record: &Record) -> Local {
    if record.zero {
        return Local::Zero;
    }
    Local::Data {
        file,
        record: at,
        blocks: record.blocks as u32,
        index: 0,
    }
}

pub(super) fn record_at(file: &File, at: u64, id: &[u8; 16]) -> Option<Record> {
    let mut head = [0; HEAD];
    file.read_exact_at(&mut head, at).ok()?;
    Record::decode(&head, id)
}

/// The highest number of a durable write that a record after byte `at` knows of. Everything in a spool begins at multiples of 64.
pub(super) fn durable_after(file: &File, at: u64, bytes: u64, id: &[u8; 16]) -> u64 {
    let mut rest = vec![0; (bytes - at) as usize];
    let Ok(()) = file.read_exact_at(&mut rest, at) else {
        return u64::MAX;
    };
    let records = rest
        .chunks_exact(HEAD)
        .filter_map(|head| Record::decode(head, id));
    records.map(|r| r.durable).max().unwrap_or(0)
}
