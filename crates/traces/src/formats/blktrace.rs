//! Linux blktrace, binary: `struct blk_io_trace`, 48 bytes and a payload, in the byte order of the traced machine.
//!
//! ```text
//! 0 u32 magic 0x65617400|7   4 u32 sequence   8 u64 time ns   16 u64 sector   24 u32 bytes   28 u32 action
//! 32 u32 pid   36 u32 device   40 u32 cpu   44 u16 error   46 u16 payload bytes
//! ```
//! A request is its Q (queued) event, or its D (issued) event in a trace without any Q event. Counting both would count each request twice.

use std::path::{Path, PathBuf};

use crate::decode::{Decode, Run};
use crate::devices::Devices;
use crate::error::{Bad, Place, TraceError};
use crate::field::{SECTOR, offset, request};
use crate::foreign::{OCTF_BINARY, is_octf_name};
use crate::input::Input;
use crate::record::{Flags, Op, Record};

const SIZE: usize = 48;
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
/// More processors than Linux has. It bounds the search for missing ones.
const PROCESSORS_MAX: u32 = 8192;

/// Lower half of `action`.
const QUEUED: u32 = 1;
const ISSUED: u32 = 7;

// Bits of the upper half of `action`.
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const SYNC: u32 = 1 << 3;
const PASSTHROUGH: u32 = 1 << 9;
const NOTIFY: u32 = 1 << 10;
const AHEAD: u32 = 1 << 11;
const META: u32 = 1 << 12;
const DISCARD: u32 = 1 << 13;
const FUA: u32 = 1 << 15;

/// The event that represents a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Queued,
    Issued,
}

/// The decoder.
pub(crate) struct Blktrace {
    pub(crate) input: Input,
    pub(crate) event: Event,
}

/// One event, in the machine's byte order.
struct Raw {
    time: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    device: u32,
    payload: usize,
}

/// An event, or the position of a bad one and the reason.
type Parsed = Result<Raw, (u64, Bad)>;

/// Whether `b` begins with the magic number, in either byte order; true for big-endian.
fn big_endian(b: &[u8]) -> Option<bool> {
    let word: [u8; 4] = b.get(..4)?.try_into().ok()?;
    if u32::from_le_bytes(word) & !0xff == MAGIC {
        return Some(false);
    }
    (u32::from_be_bytes(word) & !0xff == MAGIC).then_some(true)
}

/// Whether `head` begins with an event.
pub(crate) fn looks_like(head: &[u8]) -> bool {
    big_endian(head).is_some()
}

impl Raw {
    /// Reads the 48 bytes of `b`.
    fn parse(b: &[u8]) -> Result<Raw, Bad> {
        let Some(big) = big_endian(b) else {
            return Err(Bad::value(
                "magic 0x65617407",
                format!("bytes {:02x?}", &b[..4.min(b.len())]),
            ));
        };
        let u32_at = |at: usize| {
            let word = [b[at], b[at + 1], b[at + 2], b[at + 3]];
            if big {
                u32::from_be_bytes(word)
            } else {
                u32::from_le_bytes(word)
            }
        };
        let u64_at = |at: usize| {
            let (low, high) = if big { (at + 4, at) } else { (at, at + 4) };
            u64::from(u32_at(high)) << 32 | u64::from(u32_at(low))
        };
        let version = u32_at(0) & 0xff;
        if version != VERSION {
            return Err(Bad::value(
                format!("version {VERSION} of the blktrace format"),
                version,
            ));
        }
        let payload = if big {
            u16::from_be_bytes([b[46], b[47]])
        } else {
            u16::from_le_bytes([b[46], b[47]])
        };
        Ok(Raw {
            time: u64_at(8),
            sector: u64_at(16),
            bytes: u32_at(24),
            action: u32_at(28),
            device: u32_at(36),
            payload: usize::from(payload),
        })
    }

    fn is(&self, event: Event) -> bool {
        let want = if event == Event::Queued {
            QUEUED
        } else {
            ISSUED
        };
        let category = self.action >> 16;
        self.action & 0xffff == want && category & (NOTIFY | PASSTHROUGH) == 0
    }

    fn record(&self, devices: &mut Devices) -> Result<Record, Bad> {
        let category = self.action >> 16;
        let has = |bit: u32| category & bit != 0;
        let op = if has(DISCARD) {
            Op::Discard
        } else if self.bytes == 0 && has(FLUSH) {
            Op::Flush
        } else if has(WRITE) {
            Op::Write
        } else {
            Op::Read
        };
        let flags = Flags::NONE
            .with(Flags::PREFLUSH, has(FLUSH))
            .with(Flags::FUA, has(FUA))
            .with(Flags::META, has(META))
            .with(Flags::AHEAD, has(AHEAD))
            .with(Flags::SYNC, has(SYNC));
        // A flush has no address; the kernel writes -1 there.
        let at = if op == Op::Flush {
            0
        } else {
            offset(self.sector, SECTOR)?
        };
        let device = devices.major_minor(
            u64::from(self.device >> 20),
            u64::from(self.device & 0xf_ffff),
        )?;
        Ok(Record {
            device,
            flags,
            ..request(self.time, op, at, self.bytes)?
        })
    }
}

/// Reads the next event and skips its payload. `None` at the end. After a bad event the input is at the place where the next one may be.
fn next_event(input: &mut Input) -> Result<Option<Parsed>, TraceError> {
    input.fill(SIZE)?;
    let at = input.at();
    let unread = input.unread();
    if unread.is_empty() {
        return Ok(None);
    }
    if unread.len() < SIZE {
        let bad = Bad::value(
            format!("an event of {SIZE} bytes"),
            format!("{} bytes at the end", unread.len()),
        );
        input.consume(unread.len());
        return Ok(Some(Err((at, bad))));
    }
    match Raw::parse(&unread[..SIZE]) {
        Ok(raw) => {
            let whole = SIZE + raw.payload;
            input.fill(whole)?;
            let got = input.unread().len().min(whole);
            input.consume(got);
            if got < whole {
                let bad = Bad::value(
                    format!("a payload of {} bytes", raw.payload),
                    format!("{} bytes", got - SIZE),
                );
                return Ok(Some(Err((at, bad))));
            }
            Ok(Some(Ok(raw)))
        }
        Err(bad) => {
            resync(input)?;
            Ok(Some(Err((at, bad))))
        }
    }
}

/// Skips to the next magic number, so that one damaged spot counts as one bad record.
fn resync(input: &mut Input) -> Result<(), TraceError> {
    input.consume(1);
    loop {
        input.fill(SIZE)?;
        let unread = input.unread();
        let found =
            (0..unread.len().saturating_sub(3)).find(|&i| big_endian(&unread[i..]).is_some());
        // Without a magic number, the last three bytes may still be the beginning of one, unless nothing follows them.
        let step = found.unwrap_or(if unread.len() < SIZE {
            unread.len()
        } else {
            unread.len() - 3
        });
        let ended = unread.is_empty();
        input.consume(step);
        if found.is_some() || ended {
            return Ok(());
        }
    }
}

impl Decode for Blktrace {
    fn decode(
        &mut self,
        out: &mut Vec<Record>,
        max: usize,
        run: &mut Run,
    ) -> Result<bool, TraceError> {
        while out.len() < max {
            let at = self.input.at();
            let (at, bad) = match next_event(&mut self.input)? {
                None => return Ok(false),
                Some(Ok(raw)) if !raw.is(self.event) => {
                    run.stats.other_events += 1;
                    continue;
                }
                Some(Ok(raw)) => match raw.record(&mut run.devices) {
                    Ok(r) => {
                        out.push(r);
                        continue;
                    }
                    Err(bad) => (at, bad),
                },
                Some(Err(bad)) => bad,
            };
            run.bad(&self.input.path, Place::Byte(at), bad)?;
        }
        Ok(true)
    }
}

/// Splits the name of a per-processor file into trace and processor: `sda` and 3 for `sda.blktrace.3`, compressed or not.
fn part_of(path: &Path) -> Option<(&str, u32)> {
    let name = path.file_name()?.to_str()?;
    let (base, rest) = name.rsplit_once(".blktrace.")?;
    let processor = rest.split('.').next()?;
    Some((base, processor.parse().ok()?))
}

/// The files of a folder whose names [`part_of`] recognises, by trace and processor.
fn parts(folder: &Path) -> std::io::Result<Vec<(String, u32, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some((base, processor)) = part_of(&path) {
            found.push((base.to_owned(), processor, path));
        }
    }
    found.sort();
    Ok(found)
}

/// The number of files of other processors beside `path`; `None` if its name is not that of one processor's file.
pub(crate) fn of_other_processors(path: &Path) -> Option<usize> {
    let (base, mine) = part_of(path)?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let others = parts(folder).unwrap_or_default();
    let of_this = others.iter().filter(|(b, p, _)| b == base && *p != mine);
    Some(of_this.count())
}

/// The processors below the last one of which no file is among `files`, which are those of one trace.
pub(crate) fn missing_processors(files: &[PathBuf]) -> Vec<u32> {
    let there: Vec<u32> = files
        .iter()
        .filter_map(|f| part_of(f))
        .map(|p| p.1)
        .collect();
    let last = there.iter().copied().max().unwrap_or(0).min(PROCESSORS_MAX);
    (0..last).filter(|p| !there.contains(p)).collect()
}

/// The files of the single trace in `folder`.
///
/// # Errors
/// The folder cannot be read, or it holds no trace or several.
pub(crate) fn in_folder(folder: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let found = parts(folder).map_err(|source| TraceError::Open {
        path: folder.to_owned(),
        source,
    })?;
    let Some((first, _, _)) = found.first() else {
        let octf = std::fs::read_dir(folder).is_ok_and(|mut all| {
            all.any(|entry| entry.is_ok_and(|entry| is_octf_name(&entry.path())))
        });
        let what = if octf {
            OCTF_BINARY
        } else {
            "is a folder without files NAME.blktrace.N: name the trace's files"
        };
        return Err(TraceError::unsupported(folder, what));
    };
    if let Some((other, _, _)) = found.iter().find(|(base, _, _)| base != first) {
        let what = format!(
            "is a folder with several traces, {first} and {other} among them: name the files of one"
        );
        return Err(TraceError::unsupported(folder, what));
    }
    Ok(found.into_iter().map(|(_, _, path)| path).collect())
}

/// Looks for a Q event. A trace that has issued requests only has no such event.
pub(crate) fn find_event(mut input: Input) -> Result<Event, TraceError> {
    while let Some(event) = next_event(&mut input)? {
        if event.is_ok_and(|raw| raw.is(Event::Queued)) {
            return Ok(Event::Queued);
        }
    }
    Ok(Event::Issued)
}
