//! Blocks: the containers of everything in an events file.
//!
//! ```text
//! 0 "IEVB" │ 4 kind │ 5 zero │ 8 raw length │ 12 stored length │ 16 number │ 20 CRC32C of bytes 0…20 and the payload │ 24 payload
//! ```
//! Numbers are little endian, the payload is one zstd frame.

use crate::{EventsError, MAGIC, VERSION};
use isotherm_core::crc32c;
use std::io::{self, Read, Write};

/// Kinds of block, in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Origin = 1,
    State = 2,
    Events = 3,
    End = 4,
}

const KINDS: [Kind; 4] = [Kind::Origin, Kind::State, Kind::Events, Kind::End];

const MARK: &[u8; 4] = b"IEVB";
const HEADER: usize = 24;
/// Longest payload before compression. One event with the effects of the largest discard fits.
pub(super) const RAW_MAX: usize = 64 << 20;
/// The fastest level; events compress well at every level.
const LEVEL: i32 = 1;

fn word(b: &[u8], at: usize) -> u32 {
    b[at..at + 4]
        .iter()
        .rev()
        .fold(0, |n, x| n << 8 | u32::from(*x))
}

/// Writes blocks.
pub(super) struct BlockWriter<W> {
    out: W,
    number: u32,
    pub(super) bytes: u64,
}

impl<W: Write> BlockWriter<W> {
    pub(super) fn new(mut out: W) -> io::Result<BlockWriter<W>> {
        let mut head = [0; 16];
        head[..8].copy_from_slice(MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let sum = crc32c::crc32c(&head[..12]);
        head[12..].copy_from_slice(&sum.to_le_bytes());
        out.write_all(&head)?;
        Ok(BlockWriter {
            out,
            number: 0,
            bytes: head.len() as u64,
        })
    }

    pub(super) fn write(&mut self, kind: Kind, raw: &[u8]) -> io::Result<()> {
        self.write_code(kind as u8, raw)
    }

    fn write_code(&mut self, kind: u8, raw: &[u8]) -> io::Result<()> {
        if raw.len() > RAW_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "one event is longer than a block of the format can be",
            ));
        }
        let stored = zstd::bulk::compress(raw, LEVEL)?;
        let mut head = [0; HEADER];
        head[..4].copy_from_slice(MARK);
        head[4] = kind;
        head[8..12].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        head[12..16].copy_from_slice(&(stored.len() as u32).to_le_bytes());
        head[16..20].copy_from_slice(&self.number.to_le_bytes());
        let sum = crc32c::update(crc32c::crc32c(&head[..20]), &stored);
        head[20..].copy_from_slice(&sum.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&stored)?;
        self.number += 1;
        self.bytes += (HEADER + stored.len()) as u64;
        Ok(())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub(super) fn into_inner(self) -> W {
        self.out
    }
}

/// Reads blocks in order and refuses a block that differs from what was written.
pub(super) struct BlockReader<R> {
    from: R,
    pub(super) number: u32,
    stored: Vec<u8>,
    raw: Vec<u8>,
}

/// Reads until `buf` is full or the file ends, and returns the number of bytes.
fn fill(from: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match from.read(&mut buf[n..]) {
            Ok(0) => break,
            Ok(m) => n += m,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

impl<R: Read> BlockReader<R> {
    pub(super) fn new(mut from: R) -> Result<BlockReader<R>, EventsError> {
        let mut head = [0; 16];
        let n = fill(&mut from, &mut head)?;
        if !head[..n].starts_with(MAGIC) {
            return Err(EventsError::NotEvents);
        }
        if n < head.len() {
            return Err(EventsError::Cut { blocks: 0 });
        }
        if crc32c::crc32c(&head[..12]) != word(&head, 12) {
            return Err(EventsError::Damaged {
                block: 0,
                what: "the checksum of the first bytes",
            });
        }
        match word(&head, 8) {
            VERSION => Ok(BlockReader {
                from,
                number: 0,
                stored: Vec::new(),
                raw: Vec::new(),
            }),
            v => Err(EventsError::Newer(v)),
        }
    }

    pub(super) fn damaged<T>(&self, what: &'static str) -> Result<T, EventsError> {
        Err(EventsError::Damaged {
            // `number` counts the blocks that were accepted.
            block: self.number.saturating_sub(1),
            what,
        })
    }

    /// The next block. Its payload is decompressed only if `wanted`. A file that ends here was cut, because a complete file ends with a
    /// block that says so.
    pub(super) fn next(
        &mut self,
        wanted: impl Fn(Kind) -> bool,
    ) -> Result<(Kind, &[u8]), EventsError> {
        let cut = EventsError::Cut {
            blocks: self.number,
        };
        let mut head = [0; HEADER];
        if fill(&mut self.from, &mut head)? < HEADER {
            return Err(cut);
        }
        self.number += 1;
        if &head[..4] != MARK || head[5..8] != [0; 3] {
            return self.damaged("no block begins here");
        }
        let (raw, stored) = (word(&head, 8) as usize, word(&head, 12) as usize);
        if raw > RAW_MAX || stored > RAW_MAX + (RAW_MAX >> 4) {
            return self.damaged("an impossible length");
        }
        // The allocation follows the bytes that are present, not the length that the header claims.
        self.stored.clear();
        (&mut self.from)
            .take(stored as u64)
            .read_to_end(&mut self.stored)?;
        if self.stored.len() < stored {
            return Err(cut);
        }
        if crc32c::update(crc32c::crc32c(&head[..20]), &self.stored) != word(&head, 20) {
            return self.damaged("checksum");
        }
        if word(&head, 16) != self.number - 1 {
            return self.damaged("a block is missing before it");
        }
        let Some(kind) = KINDS.into_iter().find(|k| *k as u8 == head[4]) else {
            return self.damaged("of an unknown kind");
        };
        self.raw.clear();
        if wanted(kind) {
            match zstd::bulk::decompress(&self.stored, raw) {
                Ok(bytes) if bytes.len() == raw => self.raw = bytes,
                _ => return self.damaged("its zstd frame"),
            }
        }
        Ok((kind, &self.raw))
    }
}

/// A file of these blocks (kind, payload). It is valid except for the payloads, which may be anything: tests of the reader are made with
/// it.
///
/// # Errors
/// A payload is too long.
pub fn pack(blocks: &[(u8, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let mut w = BlockWriter::new(Vec::new())?;
    for (kind, payload) in blocks {
        w.write_code(*kind, payload)?;
    }
    Ok(w.out)
}

/// The blocks of a file, for a test to change and pack again.
///
/// # Errors
/// The file is not an events file, or it is damaged or cut.
pub fn unpack(bytes: &[u8]) -> Result<Vec<(u8, Vec<u8>)>, EventsError> {
    let mut r = BlockReader::new(bytes)?;
    let mut blocks = Vec::new();
    loop {
        let (kind, payload) = r.next(|_| true)?;
        blocks.push((kind as u8, payload.to_vec()));
        if kind == Kind::End {
            return Ok(blocks);
        }
    }
}
