//! Reads events files. No input makes it panic. Memory is bounded by the state and one block.

use crate::block::{BlockReader, Kind};
use crate::code::{Call, Decision};
use crate::decode::Decoder;
use crate::numbers::{Bad, Cursor};
use crate::{End, Ending, EventsError, Image, MAGIC, Origin, Standing};
use isotherm_core::Nanos;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Longest text of counters.
const COUNTERS_MAX: usize = 1 << 20;

/// One call and the decisions that it caused.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// From 0.
    pub number: u64,
    /// Engine time.
    pub now: Nanos,
    /// The call of the engine.
    pub call: Call,
    /// The engine's decisions.
    pub decisions: Vec<Decision>,
}

/// Reads one file: first the state from which the engine started, then events with [`Reader::next`].
pub struct Reader<R> {
    blocks: BlockReader<R>,
    origin: Origin,
    image: Image,
    chunk: Vec<u8>,
    decoder: Option<Decoder>,
    decisions: Vec<Decision>,
    events: u64,
    requests: u64,
    time: Nanos,
    end: Option<End>,
}

impl Reader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// The file cannot be read or is not an events file.
    pub fn open(path: &Path) -> Result<Reader<BufReader<File>>, EventsError> {
        Reader::new(BufReader::with_capacity(1 << 18, File::open(path)?))
    }
}

impl<R: Read> Reader<R> {
    /// Reads the state from which the engine started.
    ///
    /// # Errors
    /// The file is not an events file, or it is damaged.
    pub fn new(from: R) -> Result<Reader<R>, EventsError> {
        let mut blocks = BlockReader::new(from)?;
        let (kind, payload) = blocks.next(|_| true)?;
        if kind != Kind::Origin {
            return blocks.damaged("the first block must say how the engine began");
        }
        let origin = match Origin::decode(payload) {
            Ok(origin) => origin,
            Err(what) => return blocks.damaged(what),
        };
        let mut r = Reader {
            blocks,
            origin,
            image: Image::default(),
            chunk: Vec::new(),
            decoder: None,
            decisions: Vec::new(),
            events: 0,
            requests: 0,
            time: Nanos(0),
            end: None,
        };
        // Up to the first events, or the end.
        while r.decoder.is_none() && r.end.is_none() {
            r.next_block()?;
        }
        Ok(r)
    }

    fn next_block(&mut self) -> Result<(), EventsError> {
        let begun = self.decoder.is_some();
        let (kind, payload) = self.blocks.next(|_| true)?;
        let done: Result<(), Bad> = match kind {
            Kind::State if !begun => self.image.decode(payload),
            Kind::Events => Decoder::new(payload, self.events).map(|d| {
                self.decoder = Some(d);
                self.chunk.clear();
                self.chunk.extend_from_slice(payload);
            }),
            Kind::End => decode_end(payload).and_then(|end| {
                // If a count differs, a block is missing that left no other trace.
                if (end.events, end.requests) != (self.events, self.requests) {
                    return Err("it counts other events than there are");
                }
                self.end = Some(end);
                Ok(())
            }),
            _ => Err("of a kind that does not belong here"),
        };
        done.or_else(|what| self.blocks.damaged(what))
    }

    /// How the engine began.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The metadata that was read at opening.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Moves the image out, because it may be large and is used once.
    pub fn take_image(&mut self) -> Image {
        std::mem::take(&mut self.image)
    }

    /// The last block. It is available once [`Reader::next`] has returned `None`.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Events read so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The next call. Its decisions are in [`Reader::decisions`]. `None` after the last call.
    ///
    /// # Errors
    /// The file is damaged or cut.
    pub fn next_call(&mut self) -> Result<Option<(Nanos, Call)>, EventsError> {
        loop {
            if self.end.is_some() {
                return Ok(None);
            }
            let next = match &mut self.decoder {
                Some(d) => d.next(&self.chunk, &mut self.decisions),
                None => Ok(None),
            };
            match next {
                Ok(Some((now, _))) if now < self.time => {
                    return self.blocks.damaged("time goes back");
                }
                Ok(Some((now, call))) => {
                    self.time = now;
                    self.events += 1;
                    self.requests += u64::from(matches!(call, Call::Submit(_)));
                    return Ok(Some((now, call)));
                }
                Ok(None) => self.next_block()?,
                Err(what) => return self.blocks.damaged(what),
            }
        }
    }

    /// The decisions that the last call caused.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// As [`Reader::next_call`], with the decisions in the returned event.
    ///
    /// # Errors
    /// The file is damaged or cut.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Event>, EventsError> {
        Ok(self.next_call()?.map(|(now, call)| Event {
            number: self.events - 1,
            now,
            call,
            decisions: self.decisions.clone(),
        }))
    }
}

fn decode_end(payload: &[u8]) -> Result<End, Bad> {
    let mut c = Cursor::new(payload);
    let ending = Ending::of(c.byte()?).ok_or("an unknown end")?;
    let (events, requests) = (c.number()?, c.number()?);
    let standing = match c.byte()? {
        0 => None,
        1 => {
            let wakes = c.byte()? != 0;
            let at = Nanos(c.number()?);
            Some(Standing {
                next_wake: wakes.then_some(at),
                counters: c.text(COUNTERS_MAX)?,
            })
        }
        _ => return Err("an unknown code"),
    };
    if !c.is_empty() {
        return Err("something stands behind the end");
    }
    Ok(End {
        ending,
        events,
        requests,
        standing,
    })
}

/// A summary of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number of blocks.
    pub blocks: u32,
    /// The last one.
    pub end: End,
}

/// Checks every block of a file without unpacking the events.
///
/// # Errors
/// The file is not an events file, or it is damaged or cut.
pub fn summary(path: &Path) -> Result<Summary, EventsError> {
    let file = BufReader::with_capacity(1 << 18, File::open(path)?);
    let mut blocks = BlockReader::new(file)?;
    loop {
        let (kind, payload) = blocks.next(|k| k == Kind::End)?;
        if kind == Kind::End {
            return match decode_end(payload) {
                Ok(end) => Ok(Summary {
                    blocks: blocks.number,
                    end,
                }),
                Err(what) => blocks.damaged(what),
            };
        }
    }
}

/// Whether a file that begins with `head` claims to be an events file.
pub fn is_events(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}
