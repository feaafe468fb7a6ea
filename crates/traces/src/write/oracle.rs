//! oracleGeneral: requests are split into objects of one block each, with the record number of each object's next access.
//!
//! That number is known only later, so it is filled in at the end. Memory is 8 bytes per access and a table of objects. Record numbers
//! count from 0. The last access to an object has -1.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};

use super::sink::Target;
use super::{Encode, Refusal, WriteOptions, Written, moves_data, note_extras, only_device_0};
use crate::format::Format;
use crate::formats::oracle::SIZE;
use crate::record::{Flags, Op, Record};

/// Records patched at a time.
const PATCH: usize = 4096;

pub(super) struct Oracle {
    file: BufWriter<File>,
    block_bytes: u64,
    /// Record → number of the next access to its object.
    next: Vec<i64>,
    /// Object → its last record.
    last: HashMap<u64, usize>,
}

impl Oracle {
    pub(super) fn create(target: &Target, options: &WriteOptions) -> io::Result<Oracle> {
        if options.block_bytes == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "objects of 0 bytes",
            ));
        }
        Ok(Oracle {
            file: BufWriter::new(target.create()?),
            block_bytes: u64::from(options.block_bytes),
            next: Vec::new(),
            last: HashMap::new(),
        })
    }
}

impl Encode for Oracle {
    fn encode(&mut self, r: &Record, _: &[String], written: &mut Written) -> Result<(), Refusal> {
        only_device_0(r, Format::Oracle)?;
        if !moves_data(r.op) || r.len == 0 {
            written.dropped += 1;
            return Ok(());
        }
        note_extras(r, Flags::NONE, &mut written.lost);
        if r.op == Op::Write {
            written.lost.insert("op");
        }
        if !r.time.0.is_multiple_of(1_000_000_000) {
            written.lost.insert("time below 1 s");
        }
        let Ok(seconds) = u32::try_from(r.time.0 / 1_000_000_000) else {
            return Err(Refusal::Cannot(
                "its time does not fit 32 bits of seconds".to_owned(),
            ));
        };
        for object in r.offset / self.block_bytes..=(r.end() - 1) / self.block_bytes {
            let number = self.next.len();
            if let Some(before) = self.last.insert(object, number) {
                self.next[before] = number as i64;
            }
            self.next.push(-1);
            let mut record = [0u8; SIZE];
            record[..4].copy_from_slice(&seconds.to_le_bytes());
            record[4..12].copy_from_slice(&object.to_le_bytes());
            record[12..16].copy_from_slice(&(self.block_bytes as u32).to_le_bytes());
            self.file.write_all(&record)?;
        }
        written.requests += 1;
        Ok(())
    }

    fn finish(self: Box<Self>, _: &[String]) -> io::Result<()> {
        let mut file = self
            .file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        let mut chunk = vec![0; PATCH * SIZE];
        file.seek(SeekFrom::Start(0))?;
        for next in self.next.chunks(PATCH) {
            let chunk = &mut chunk[..next.len() * SIZE];
            file.read_exact(chunk)?;
            for (record, n) in chunk.chunks_exact_mut(SIZE).zip(next) {
                record[16..].copy_from_slice(&n.to_le_bytes());
            }
            file.seek(SeekFrom::Current(-(chunk.len() as i64)))?;
            file.write_all(chunk)?;
        }
        Ok(())
    }
}
