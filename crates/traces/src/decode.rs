//! The two loops that every stream format uses: one over lines, one over records of a fixed size.
//!
//! A format implements one small trait and the loop is compiled for it, so there is one dynamic call per batch and none per record.

use crate::devices::Devices;
use crate::error::{Bad, Place, TraceError};
use crate::input::Input;
use crate::record::Record;
use crate::stats::Stats;
use crate::stats::Sure;

/// Fills batches of records. Times are absolute here; the reader makes them relative.
pub(crate) trait Decode: Send {
    /// Appends records until `out` holds `max` or the trace ends. Returns whether there may be more.
    fn decode(
        &mut self,
        out: &mut Vec<Record>,
        max: usize,
        run: &mut Run,
    ) -> Result<bool, TraceError>;

    /// Text before the first record that must stay with the data (a licence).
    fn header(&self) -> &[u8] {
        &[]
    }

    /// Whether the trace has time stamps. The answer is final once the first record is decoded.
    fn timed(&self) -> bool {
        true
    }
}

/// State that a decoder shares with its reader.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) devices: Devices,
    pub(crate) stats: Stats,
    pub(crate) skip_bad: u64,
    pub(crate) sure: Sure,
    pub(crate) assumed: Vec<String>,
    /// What the content leaves open, so that another reading of it would be as good.
    pub(crate) doubts: Vec<String>,
}

impl Run {
    /// Notes a doubt about how the content is to be read.
    pub(crate) fn doubt(&mut self, what: String) {
        self.sure = Sure::Guess;
        self.doubts.push(what);
    }

    /// Counts a bad record, or returns the error if no more bad records may be skipped.
    pub(crate) fn bad(
        &mut self,
        path: &std::path::Path,
        place: Place,
        bad: Bad,
    ) -> Result<(), TraceError> {
        if self.stats.bad_skipped < self.skip_bad {
            self.stats.bad_skipped += 1;
            return Ok(());
        }
        Err(TraceError::Bad {
            path: path.to_owned(),
            place,
            bad: Box::new(bad),
        })
    }
}

/// The content of a line or a binary record.
pub(crate) enum Item {
    /// A request.
    Request(Record),
    /// An event that is not a request (a completion, a comment of the tracer). It is counted.
    Other,
    /// A blank line, a comment or the line of column names.
    Nothing,
    /// No record follows from here on.
    End,
}

/// A text format with one record per line.
pub(crate) trait LineParser: Send {
    /// Reads one line, without its line feed.
    fn line(&mut self, line: &[u8], devices: &mut Devices) -> Result<Item, Bad>;

    /// See [`Decode::header`].
    fn header(&self) -> &[u8] {
        &[]
    }

    /// See [`Decode::timed`].
    fn timed(&self) -> bool {
        true
    }
}

pub(crate) struct Lines<P> {
    pub(crate) input: Input,
    pub(crate) parser: P,
    pub(crate) number: u64,
    pub(crate) ended: bool,
}

impl<P: LineParser> Lines<P> {
    pub(crate) fn boxed(input: Input, parser: P) -> Box<dyn Decode>
    where
        P: 'static,
    {
        Box::new(Lines {
            input,
            parser,
            number: 0,
            ended: false,
        })
    }
}

impl<P: LineParser> Decode for Lines<P> {
    fn decode(
        &mut self,
        out: &mut Vec<Record>,
        max: usize,
        run: &mut Run,
    ) -> Result<bool, TraceError> {
        while out.len() < max && !self.ended {
            if !self.input.fill_line()? {
                return Ok(false);
            }
            // Takes all whole lines of the buffer in one pass. A last line without a line feed is accepted only at the end of the trace.
            let unread = self.input.unread();
            let (mut used, mut bad) = (0, None);
            while out.len() < max && used < unread.len() {
                let rest = &unread[used..];
                let line = match memchr::memchr(b'\n', rest) {
                    Some(i) => &rest[..i],
                    None if used == 0 => rest,
                    None => break,
                };
                used = (used + line.len() + 1).min(unread.len());
                self.number += 1;
                match self.parser.line(line, &mut run.devices) {
                    Ok(Item::Request(r)) => out.push(r),
                    Ok(Item::Other) => run.stats.other_events += 1,
                    Ok(Item::Nothing) => {}
                    Ok(Item::End) => {
                        self.ended = true;
                        break;
                    }
                    Err(b) => {
                        bad = Some(b);
                        break;
                    }
                }
            }
            self.input.consume(used);
            if let Some(bad) = bad {
                run.bad(&self.input.path, Place::Line(self.number), bad)?;
            }
        }
        Ok(!self.ended)
    }

    fn header(&self) -> &[u8] {
        self.parser.header()
    }

    fn timed(&self) -> bool {
        self.parser.timed()
    }
}

/// A binary format whose records all have the same size.
pub(crate) trait FixedParser: Send {
    /// Bytes of a record.
    const SIZE: usize;
    /// See [`Decode::timed`].
    const TIMED: bool = true;

    /// Reads one record of `SIZE` bytes.
    fn record(&mut self, bytes: &[u8], devices: &mut Devices) -> Result<Item, Bad>;

    /// Appends plain requests, at most `max`, from the front of whole records, and returns their number. It stops before a record that only
    /// the slower [`FixedParser::record`] can interpret.
    fn plain(&mut self, _bytes: &[u8], _max: usize, _out: &mut Vec<Record>) -> usize {
        0
    }
}

pub(crate) struct Fixed<P> {
    pub(crate) input: Input,
    pub(crate) parser: P,
}

impl<P: FixedParser> Fixed<P> {
    pub(crate) fn boxed(input: Input, parser: P) -> Box<dyn Decode>
    where
        P: 'static,
    {
        Box::new(Fixed { input, parser })
    }
}

impl<P: FixedParser> Decode for Fixed<P> {
    fn decode(
        &mut self,
        out: &mut Vec<Record>,
        max: usize,
        run: &mut Run,
    ) -> Result<bool, TraceError> {
        while out.len() < max {
            self.input.fill(P::SIZE)?;
            let (at, mut used, mut bad) = (self.input.at(), 0, None);
            let unread = self.input.unread();
            if unread.len() < P::SIZE {
                if unread.is_empty() {
                    return Ok(false);
                }
                let bad = Bad::value(
                    format!("a record of {} bytes", P::SIZE),
                    format!("{} bytes at the end", unread.len()),
                );
                self.input.consume(unread.len());
                run.bad(&self.input.path, Place::Byte(at), bad)?;
                return Ok(false);
            }
            used += self.parser.plain(unread, max - out.len(), out) * P::SIZE;
            for bytes in unread[used..].chunks_exact(P::SIZE).take(max - out.len()) {
                used += P::SIZE;
                match self.parser.record(bytes, &mut run.devices) {
                    Ok(Item::Request(r)) => out.push(r),
                    Ok(Item::Nothing | Item::End) => {}
                    Ok(Item::Other) => run.stats.other_events += 1,
                    Err(b) => {
                        bad = Some(b);
                        break;
                    }
                }
            }
            self.input.consume(used);
            if let Some(bad) = bad {
                run.bad(
                    &self.input.path,
                    Place::Byte(at + (used - P::SIZE) as u64),
                    bad,
                )?;
            }
        }
        Ok(true)
    }

    fn timed(&self) -> bool {
        P::TIMED
    }
}

/// A little-endian number at an offset of a record. Callers pass offsets below their `SIZE`.
#[inline]
pub(crate) fn le16(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

#[inline]
pub(crate) fn le32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

#[inline]
pub(crate) fn le64(b: &[u8], at: usize) -> u64 {
    u64::from(le32(b, at)) | u64::from(le32(b, at + 4)) << 32
}
