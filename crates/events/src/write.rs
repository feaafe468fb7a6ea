//! Writes events files.

use crate::block::{BlockWriter, Kind};
use crate::numbers::{put, put_bytes};
use crate::{End, Image, Origin};
use std::io::{self, Write};

/// Writes one file, in order: [`Writer::create`], [`Writer::events`] for each chunk, [`Writer::finish`].
pub struct Writer<W> {
    blocks: BlockWriter<W>,
}

impl<W: Write> Writer<W> {
    /// Writes the state from which the engine started.
    ///
    /// # Errors
    /// `out` fails.
    pub fn create(out: W, origin: &Origin, image: &Image) -> io::Result<Writer<W>> {
        let mut blocks = BlockWriter::new(out)?;
        blocks.write(Kind::Origin, &origin.encode())?;
        image.encode(|payload| blocks.write(Kind::State, payload))?;
        Ok(Writer { blocks })
    }

    /// Writes a chunk of an [`super::Encoder`]. Every chunk must be written, in order.
    ///
    /// # Errors
    /// `out` fails, or a single event is longer than a block can be.
    pub fn events(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.blocks.write(Kind::Events, chunk)
    }

    /// Flushes the buffered data.
    ///
    /// # Errors
    /// `out` fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.blocks.flush()
    }

    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.blocks.bytes
    }

    /// Writes the last block.
    ///
    /// # Errors
    /// `out` fails.
    pub fn finish(mut self, end: &End) -> io::Result<W> {
        let mut out = vec![end.ending.code()];
        put(&mut out, end.events);
        put(&mut out, end.requests);
        out.push(u8::from(end.standing.is_some()));
        if let Some(s) = &end.standing {
            out.push(u8::from(s.next_wake.is_some()));
            put(&mut out, s.next_wake.map_or(0, |w| w.0));
            put_bytes(&mut out, s.counters.as_bytes());
        }
        self.blocks.write(Kind::End, &out)?;
        self.blocks.flush()?;
        Ok(self.blocks.into_inner())
    }
}
