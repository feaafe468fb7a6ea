//! Recognises the format from the first bytes of the uncompressed content. File names are ignored.
//!
//! Magic numbers and first lines decide at once. Other text is tried with each parser: the parser that reads the most requests wins,
//! provided that it reads more lines than it refuses. Between formats that look alike, the numbers decide. Binary records without a magic
//! number come last and are recognised by plausibility.

use crate::decode::{FixedParser, Item, LineParser};
use crate::devices::Devices;
use crate::error::{Bad, Place};
use crate::format::Format;
use crate::formats::blktrace::Event;
use crate::formats::disksim::Weighed;
use crate::formats::{
    blkparse, blkreplay, blktrace, blocklist, cloud, disksim, etw, fio, fiu, msr, oracle, presets,
    spc, tables, vscsi,
};
use crate::stats::Sure;
use crate::time_unit::TimeUnit;

/// The number of bytes that [`sniff`] asks for. Fewer are enough if the trace is shorter.
pub const SNIFF_BYTES: usize = 64 << 10;

/// Number of requests after which a parser is believed.
const ENOUGH: usize = 64;

/// A format, and how it was found.
#[derive(Clone, Debug)]
pub(crate) struct Guess {
    pub(crate) format: Format,
    pub(crate) sure: Sure,
    /// The assumptions, in whole sentences.
    pub(crate) assumed: Option<String>,
    /// What the numbers leave open, in a sentence.
    pub(crate) doubt: Option<String>,
}

impl Guess {
    pub(crate) fn certain(format: Format) -> Guess {
        Guess {
            format,
            sure: Sure::Certain,
            assumed: None,
            doubt: None,
        }
    }
}

/// The result if no format was found: the format that reads the most lines, and the line that it refuses.
#[derive(Clone, Debug)]
pub(crate) struct Nearest {
    pub(crate) format: Format,
    pub(crate) place: Place,
    pub(crate) bad: Bad,
}

/// The format of a trace that begins with `head`, if it is clear. Never panics, whatever the bytes.
pub fn sniff(head: &[u8]) -> Option<Format> {
    guess(head).ok().map(|guess| guess.format)
}

/// As [`sniff`], with the degree of certainty; as an error, the nearest format if any reads a line.
pub(crate) fn guess(head: &[u8]) -> Result<Guess, Option<Nearest>> {
    if head.starts_with(b"PAR1") {
        return Ok(Guess::certain(Format::Parquet));
    }
    if crate::events::is_events(head) {
        return Ok(Guess::certain(Format::Events));
    }
    if blktrace::looks_like(head) {
        return Ok(Guess::certain(Format::Blktrace));
    }
    // Text never holds a NUL byte, and the binary formats hold many.
    if memchr::memchr(0, head).is_some() {
        let format = binary(head).ok_or(None)?;
        Ok(Guess {
            sure: Sure::Likely,
            ..Guess::certain(format)
        })
    } else {
        text(head)
    }
}

fn text(head: &[u8]) -> Result<Guess, Option<Nearest>> {
    let first = head
        .split(|&c| c == b'\n')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    if first == fio::HEADER_V2.as_bytes() {
        return Ok(Guess::certain(Format::FioV2));
    }
    if first == fio::HEADER_V3.as_bytes() {
        return Ok(Guess::certain(Format::FioV3));
    }
    if let Some(format) = presets::recognise(head) {
        return Ok(Guess::certain(format));
    }
    let mut scores = scores(head);
    // On ties the first one wins, so the order of the table is the order of preference.
    scores.sort_by_key(|(_, score)| std::cmp::Reverse(score.reads()));
    let Some((format, best)) = scores.first().filter(|(_, score)| score.reads() > 0) else {
        return Err(nearest(scores));
    };
    let rival = scores
        .iter()
        .find(|(other, score)| other != format && score.reads() == best.reads());
    let mut guess = Guess::certain(*format);
    if !named_columns(*format) {
        guess.sure = if best.refused > 0 || rival.is_some() {
            Sure::Guess
        } else {
            Sure::Likely
        };
    }
    if best.refused > 0 {
        guess.assumed = Some(format!(
            "Read as {format}, which refuses {} of the first {} lines.",
            best.refused,
            best.good + best.refused
        ));
    } else if let Some((other, _)) = rival.filter(|_| !named_columns(*format)) {
        guess.assumed = Some(format!("Read as {format}; {other} reads it as well."));
    }
    if *format == Format::DiskSim {
        match disksim::examine(head) {
            Some(Weighed::Shown(relative, why)) if relative != *format => {
                guess.format = relative;
                guess.assumed = Some(format!("Read as {relative}, not {format}: {why}."));
            }
            Some(Weighed::Open(doubt)) => guess.doubt = Some(doubt),
            _ => {}
        }
    }
    Ok(guess)
}

/// Formats whose first line names the columns.
fn named_columns(format: Format) -> bool {
    matches!(
        format,
        Format::Octf | Format::Hplajw | Format::Systor | Format::Csv
    )
}

/// Each text format with the result of its parser on `head`, in the order of preference.
fn scores(head: &[u8]) -> Vec<(Format, Score)> {
    let unit = TimeUnit::Microseconds;
    let units = disksim::units(Format::DiskSim);
    let blkparse = |event| score(head, blkparse::Blkparse { event });
    vec![
        (Format::Octf, score(head, tables::Octf::default())),
        (Format::Hplajw, score(head, tables::Hplajw::default())),
        (Format::Systor, score(head, tables::Systor::default())),
        (Format::Csv, score(head, tables::Csv::default())),
        (
            Format::Blkreplay,
            score(head, blkreplay::Blkreplay::default()),
        ),
        (Format::Etw, score(head, etw::Etw::default())),
        (Format::Spc, score(head, spc::Spc)),
        (Format::Msr, score(head, msr::Msr::default())),
        (Format::Alibaba, score(head, cloud::Alibaba)),
        (Format::Tencent, score(head, cloud::Tencent)),
        (Format::Blkparse, blkparse(Event::Queued)),
        (Format::Blkparse, blkparse(Event::Issued)),
        (Format::Fiu, score(head, fiu::Fiu)),
        (
            Format::DiskSim,
            score(head, disksim::DiskSim { unit, units }),
        ),
        (Format::Arc, score(head, blocklist::Arc)),
        (
            Format::BlockList,
            score(head, blocklist::BlockList { block_bytes: 1 }),
        ),
    ]
}

/// The result of a parser on the first lines.
#[derive(Debug, Default)]
struct Score {
    good: usize,
    refused: usize,
    first_bad: Option<(u64, Bad)>,
}

impl Score {
    /// Requests read; 0 if it refuses more lines than it reads.
    fn reads(&self) -> usize {
        if self.good > self.refused {
            self.good
        } else {
            0
        }
    }
}

/// The format that reads the most lines before it refuses one, if any reads at least one.
fn nearest(scores: Vec<(Format, Score)>) -> Option<Nearest> {
    let (format, score) = scores
        .into_iter()
        .filter(|(_, score)| score.good > 0)
        .max_by_key(|(_, score)| score.good)?;
    let (line, bad) = score.first_bad?;
    Some(Nearest {
        format,
        place: Place::Line(line),
        bad,
    })
}

fn score<P: LineParser>(head: &[u8], mut parser: P) -> Score {
    let mut devices = Devices::default();
    let mut score = Score::default();
    let mut lines = head.split(|&c| c == b'\n').zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        // If the head is full, its last line is incomplete.
        if lines.peek().is_none() && head.len() >= SNIFF_BYTES {
            break;
        }
        match parser.line(line, &mut devices) {
            Ok(Item::Request(_)) => score.good += 1,
            Ok(Item::Nothing | Item::Other) => {}
            Ok(Item::End) => break,
            Err(bad) => {
                score.refused += 1;
                score.first_bad.get_or_insert((number, bad));
            }
        }
        if score.good + score.refused >= ENOUGH {
            break;
        }
    }
    score
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
