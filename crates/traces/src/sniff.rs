//! Tells the format from the first bytes of the uncompressed content. Names of files are not looked at.
//!
//! Magic numbers and first lines decide at once. Other text is tried with each parser: the one that reads the most
//! requests wins, if it reads more lines than it refuses. Records without magic come last, by plausibility.

use crate::decode::{FixedParser, Item, LineParser};
use crate::devices::Devices;
use crate::format::Format;
use crate::formats::blktrace::Event;
use crate::formats::{
    blkparse, blkreplay, blktrace, blocklist, cloud, disksim, fio, fiu, msr, oracle, spc, tables,
    vscsi,
};
use crate::reader::TimeUnit;

/// Bytes that [`sniff`] wants to see; fewer are fine where the trace is shorter.
pub const SNIFF_BYTES: usize = 64 << 10;

/// Requests that make a parser's case.
const ENOUGH: usize = 64;

/// The format of a trace that begins with `head`, if it is clear. Never panics, whatever the bytes.
pub fn sniff(head: &[u8]) -> Option<Format> {
    if head.starts_with(b"PAR1") {
        return Some(Format::Parquet);
    }
    if crate::events::is_events(head) {
        return Some(Format::Events);
    }
    if blktrace::looks_like(head) {
        return Some(Format::Blktrace);
    }
    // No text holds a NUL, and the binary formats hold many.
    if memchr::memchr(0, head).is_some() {
        binary(head)
    } else {
        text(head)
    }
}

fn text(head: &[u8]) -> Option<Format> {
    let first = head
        .split(|&c| c == b'\n')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    if first == fio::HEADER_V2.as_bytes() {
        return Some(Format::FioV2);
    }
    if first == fio::HEADER_V3.as_bytes() {
        return Some(Format::FioV3);
    }
    let unit = TimeUnit::Microseconds;
    let scores = [
        (Format::Octf, score(head, tables::Octf::default())),
        (Format::Hplajw, score(head, tables::Hplajw::default())),
        (Format::Systor, score(head, tables::Systor::default())),
        (Format::Csv, score(head, tables::Csv::default())),
        (
            Format::Blkreplay,
            score(head, blkreplay::Blkreplay::default()),
        ),
        (Format::Spc, score(head, spc::Spc)),
        (Format::Msr, score(head, msr::Msr)),
        (Format::Alibaba, score(head, cloud::Alibaba)),
        (Format::Tencent, score(head, cloud::Tencent)),
        (
            Format::Blkparse,
            score(
                head,
                blkparse::Blkparse {
                    event: Event::Queued,
                },
            ),
        ),
        (
            Format::Blkparse,
            score(
                head,
                blkparse::Blkparse {
                    event: Event::Issued,
                },
            ),
        ),
        (Format::Fiu, score(head, fiu::Fiu)),
        (Format::DiskSim, score(head, disksim::DiskSim { unit })),
        (Format::Arc, score(head, blocklist::Arc)),
        (
            Format::BlockList,
            score(head, blocklist::BlockList { block_bytes: 1 }),
        ),
    ];
    // The first of equals wins, so the order above is the order of trust.
    scores
        .into_iter()
        .rev()
        .max_by_key(|&(_, n)| n)
        .filter(|&(_, n)| n > 0)
        .map(|(format, _)| format)
}

/// Requests that the parser reads from the first lines; 0 if it refuses more lines than it reads.
fn score<P: LineParser>(head: &[u8], mut parser: P) -> usize {
    let mut devices = Devices::default();
    let (mut good, mut refused) = (0, 0);
    let mut lines = head.split(|&c| c == b'\n').peekable();
    while let Some(line) = lines.next() {
        // The last line of a full head is cut off.
        if lines.peek().is_none() && head.len() >= SNIFF_BYTES {
            break;
        }
        match parser.line(line, &mut devices) {
            Ok(Item::Request(_)) => good += 1,
            Ok(Item::Nothing | Item::Other) => {}
            Ok(Item::End) => break,
            Err(_) => refused += 1,
        }
        if good + refused >= ENOUGH {
            break;
        }
    }
    if good > refused { good } else { 0 }
}

fn binary(head: &[u8]) -> Option<Format> {
    if fits(head, vscsi::Vscsi1) {
        Some(Format::Vscsi1)
    } else if fits(head, vscsi::Vscsi2) {
        Some(Format::Vscsi2)
    } else {
        oracle::looks_like(head).then_some(Format::Oracle)
    }
}

/// Whether the parser reads the first record, and more records than it refuses.
fn fits<P: FixedParser>(head: &[u8], mut parser: P) -> bool {
    let mut devices = Devices::default();
    let mut refused = 0;
    let records = head.chunks_exact(P::SIZE).take(ENOUGH);
    let count = records.len();
    for (i, bytes) in records.enumerate() {
        if parser.record(bytes, &mut devices).is_err() {
            if i == 0 {
                return false;
            }
            refused += 1;
        }
    }
    count > 2 * refused
}
