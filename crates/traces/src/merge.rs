//! Merges several traces by time: files of one trace, as blktrace writes one per processor, or traces that all begin at time zero.

use crate::decode::{Decode, Run};
use crate::error::TraceError;
use crate::reader::Reader;
use crate::record::Record;

/// Records decoded ahead of each file.
const AHEAD: usize = 1024;

/// Merges decoders by the absolute time of their records. On ties the earlier file goes first.
pub(crate) struct Merge {
    sources: Vec<Source>,
}

/// A file, and the records that are decoded but not yet delivered.
struct Source {
    decoder: Box<dyn Decode>,
    ahead: Vec<Record>,
    next: usize,
    more: bool,
}

impl Source {
    /// The time of the next record; `None` at the end.
    fn peek(&mut self, run: &mut Run) -> Result<Option<u64>, TraceError> {
        while self.next == self.ahead.len() && self.more {
            self.ahead.clear();
            self.next = 0;
            self.more = self.decoder.decode(&mut self.ahead, AHEAD, run)?;
        }
        Ok(self.ahead.get(self.next).map(|r| r.time.0))
    }
}

impl Merge {
    pub(crate) fn new(decoders: Vec<Box<dyn Decode>>) -> Merge {
        let source = |decoder| Source {
            decoder,
            ahead: Vec::with_capacity(AHEAD),
            next: 0,
            more: true,
        };
        Merge {
            sources: decoders.into_iter().map(source).collect(),
        }
    }
}

impl Decode for Merge {
    fn decode(
        &mut self,
        out: &mut Vec<Record>,
        max: usize,
        run: &mut Run,
    ) -> Result<bool, TraceError> {
        while out.len() < max {
            // Each record takes a scan over the heads of all files. There are few processors, so a heap would not pay.
            let mut first: Option<(u64, usize)> = None;
            for (i, source) in self.sources.iter_mut().enumerate() {
                if let Some(time) = source.peek(run)?
                    && first.is_none_or(|(earliest, _)| time < earliest)
                {
                    first = Some((time, i));
                }
            }
            let Some((_, i)) = first else {
                return Ok(false);
            };
            let source = &mut self.sources[i];
            out.push(source.ahead[source.next]);
            source.next += 1;
        }
        Ok(true)
    }

    fn header(&self) -> &[u8] {
        self.sources.first().map_or(&[], |s| s.decoder.header())
    }

    fn timed(&self) -> bool {
        self.sources.iter().all(|s| s.decoder.timed())
    }
}

/// A trace as a source of [`Merge`]: it begins at time zero, and its devices are its own.
pub(crate) struct FromZero {
    reader: Reader,
    name: String,
    /// Device of the trace → device of the merged trace.
    devices: Vec<u32>,
}

impl FromZero {
    /// Devices are called `name:DEVICE`.
    pub(crate) fn boxed(reader: Reader, name: String) -> Box<dyn Decode> {
        Box::new(FromZero {
            reader,
            name,
            devices: Vec::new(),
        })
    }
}

impl Decode for FromZero {
    fn decode(
        &mut self,
        out: &mut Vec<Record>,
        max: usize,
        run: &mut Run,
    ) -> Result<bool, TraceError> {
        let start = out.len();
        if self.reader.read_batch(out, max - start)? == 0 {
            return Ok(false);
        }
        for r in &mut out[start..] {
            while self.devices.len() <= r.device as usize {
                let own = self.devices.len() as u32;
                let label = self.reader.device_name(own);
                let label = format!("{}:{}", self.name, label.unwrap_or_else(|| own.to_string()));
                let device = run.devices.name(label.as_bytes());
                let device = device.map_err(|bad| {
                    TraceError::unsupported(
                        self.reader.path(),
                        format!("more than {}", bad.expected),
                    )
                })?;
                self.devices.push(device);
            }
            r.device = self.devices[r.device as usize];
        }
        Ok(true)
    }
}
