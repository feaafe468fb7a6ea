//! The location of a file's data on its device (`FS_IOC_FIEMAP`).

use rustix::ioctl::{Opcode, Updater, ioctl};
use std::fs::File;
use std::io;

const FS_IOC_FIEMAP: Opcode = 0xc020_660b;
const LAST: u32 = 1;
/// Flags of pieces that are not on the device (yet), or not in the form in which they are read: unknown, delayed, encoded, inline, and
/// shared tails.
const NOT_THERE: u32 = 2 | 4 | 8 | 0x200 | 0x400;
const AT_ONCE: usize = 128;
/// Most pieces of one file. Further pieces keep their present class.
const PIECES_MAX: usize = 1 << 20;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Piece {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved2: [u32; 3],
}

#[repr(C)]
struct Ask {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    pieces: [Piece; AT_ONCE],
}

/// Pieces of the file as (first byte on the device of its file system, bytes), in the order of the file. Data that is not on the device
/// (holes, inline data, data that was not written back yet) is omitted.
///
/// # Errors
/// The file system does not support it (`EOPNOTSUPP`), or it fails.
pub fn extents(file: &File) -> io::Result<Vec<(u64, u64)>> {
    let mut all: Vec<(u64, u64)> = Vec::new();
    let mut start = 0;
    loop {
        let mut ask = Ask {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped: 0,
            count: AT_ONCE as u32,
            reserved: 0,
            pieces: [Piece::default(); AT_ONCE],
        };
        // SAFETY: `Ask` is a `struct fiemap` followed by space for `count` pieces, as the kernel requires.
        unsafe { ioctl(file, Updater::<FS_IOC_FIEMAP, Ask>::new(&mut ask))? };
        let got = &ask.pieces[..(ask.mapped as usize).min(AT_ONCE)];
        for p in got.iter().filter(|p| p.flags & NOT_THERE == 0) {
            match all.last_mut() {
                Some(last) if last.0 + last.1 == p.physical => last.1 += p.length,
                _ => all.push((p.physical, p.length)),
            }
        }
        let Some(last) = got.last() else {
            return Ok(all);
        };
        let next = last.logical.saturating_add(last.length);
        if last.flags & LAST != 0 || next <= start || all.len() >= PIECES_MAX {
            return Ok(all);
        }
        start = next;
    }
}
