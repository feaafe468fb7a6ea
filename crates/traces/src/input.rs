//! Provides the bytes of a trace through one reused buffer and decompresses them.
//!
//! Memory is the buffer (1 MiB, growing only for a longer line, at most `LINE_MAX`) plus the decoder's window.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::error::{Bad, Place, TraceError};

/// Normal size of the buffer in bytes.
const BUFFER: usize = 1 << 20;
/// No trace has a longer line: an FIU record with 128 hashes has 4 KiB.
const LINE_MAX: usize = 4 << 20;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const BZIP2_MAGIC: &[u8] = b"BZh";
/// The mark with which Windows programs begin text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
/// Most memory that an xz dictionary may ask for, in KiB: twice what `xz -9` uses.
const XZ_KIB: u32 = 128 << 10;

/// An open, decompressed trace.
pub(crate) struct Input {
    pub(crate) path: PathBuf,
    inner: Box<dyn Read + Send>,
    buf: Vec<u8>,
    start: usize,
    end: usize,
    /// Uncompressed offset of `buf[start]`.
    at: u64,
    eof: bool,
}

impl Input {
    /// Opens `path`. The compression is recognised by its magic number, not by the file name. A byte-order mark at the start of text is
    /// skipped.
    pub(crate) fn open(path: &Path) -> Result<Input, TraceError> {
        let fail = |source| TraceError::Open {
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(fail)?;
        let mut head = [0u8; 6];
        let got = read_full(&mut file, &mut head).map_err(fail)?;
        let head = &head[..got];
        let whole = std::io::Cursor::new(head.to_vec()).chain(file);
        let inner: Box<dyn Read + Send> = if head.starts_with(&ZSTD_MAGIC) {
            Box::new(zstd::stream::read::Decoder::new(whole).map_err(fail)?)
        } else if head.starts_with(&GZIP_MAGIC) {
            Box::new(flate2::read::MultiGzDecoder::new(BufReader::with_capacity(
                1 << 16,
                whole,
            )))
        } else if head.starts_with(BZIP2_MAGIC) {
            Box::new(bzip2::read::MultiBzDecoder::new(whole))
        } else if head.starts_with(&XZ_MAGIC) {
            let whole = BufReader::with_capacity(1 << 16, whole);
            Box::new(lzma_rust2::XzReader::new_mem_limit(whole, true, XZ_KIB))
        } else {
            Box::new(whole)
        };
        let mut input = Input::from_reader(path, inner);
        input.fill(BYTE_ORDER_MARK.len())?;
        let unread = input.unread();
        // Binary records, which hold NUL bytes, may begin with the same three bytes.
        if unread.starts_with(BYTE_ORDER_MARK) && memchr::memchr(0, unread).is_none() {
            input.consume(BYTE_ORDER_MARK.len());
        }
        Ok(input)
    }

    pub(crate) fn from_reader(path: &Path, inner: Box<dyn Read + Send>) -> Input {
        Input {
            path: path.to_owned(),
            inner,
            buf: vec![0; BUFFER],
            start: 0,
            end: 0,
            at: 0,
            eof: false,
        }
    }

    /// Uncompressed offset of the next unread byte.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The bytes that are buffered and unread.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// Marks `n` buffered bytes as read.
    pub(crate) fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.end - self.start);
        self.start += n;
        self.at += n as u64;
    }

    /// Tries to have at least `want` unread bytes in the buffer. Fewer remain only at the end of the trace.
    pub(crate) fn fill(&mut self, want: usize) -> Result<(), TraceError> {
        if self.end - self.start >= want || self.eof {
            return Ok(());
        }
        self.buf.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buf.len() < want {
            self.buf.resize(want.next_power_of_two(), 0);
        }
        while self.end < want && !self.eof {
            match self.inner.read(&mut self.buf[self.end..]) {
                Ok(0) => self.eof = true,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let at = self.at + self.end as u64;
                    return Err(TraceError::Read {
                        path: self.path.clone(),
                        at,
                        source,
                    });
                }
            }
        }
        Ok(())
    }

    /// Makes sure that the buffer holds a whole line, or all that is left. Returns false at the end of the trace.
    pub(crate) fn fill_line(&mut self) -> Result<bool, TraceError> {
        let mut want = 1;
        loop {
            self.fill(want)?;
            let unread = self.unread();
            if unread.is_empty() {
                return Ok(false);
            }
            if self.eof || memchr::memchr(b'\n', unread).is_some() {
                return Ok(true);
            }
            if unread.len() >= LINE_MAX {
                let bad = Bad::text(format!("a line of at most {LINE_MAX} bytes"), unread);
                return Err(TraceError::Bad {
                    path: self.path.clone(),
                    place: Place::Byte(self.at),
                    bad: Box::new(bad),
                });
            }
            want = unread.len() + 1;
        }
    }
}

impl Input {
    /// The next line, without its line feed, for looking ahead where speed does not matter.
    pub(crate) fn line(&mut self) -> Result<Option<&[u8]>, TraceError> {
        if !self.fill_line()? {
            return Ok(None);
        }
        let unread = self.unread();
        let len = memchr::memchr(b'\n', unread).unwrap_or(unread.len());
        let used = (len + 1).min(unread.len());
        self.consume(used);
        Ok(Some(&self.buf[self.start - used..self.start - used + len]))
    }
}

/// Reads until `buf` is full or the input ends. A result below the length of `buf` means the end.
fn read_full(r: &mut impl Read, buf: &mut [u8]) -> std::io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match r.read(&mut buf[n..]) {
            Ok(0) => break,
            Ok(k) => n += k,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}
