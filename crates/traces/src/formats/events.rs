//! The requests of an events file (`docs/events-format.md`): those that a live engine received, with the latency of each answer.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use isotherm_core::{Effect, QUIET, RequestOp};

use crate::decode::{Decode, Run};
use crate::error::{Place, TraceError};
use crate::events::{Call, EventsError, Reader};
use crate::field::request;
use crate::record::{Flags, Op, Record};

/// Most requests that may wait for their answer. If there are more, the first one is delivered without a latency.
const WAITING: usize = 65_536;

/// The decoder.
pub(crate) struct Events {
    path: PathBuf,
    reader: Reader<BufReader<File>>,
    /// Requests in order of arrival, with their tags. An answered request is held back until all requests before it are answered.
    waiting: VecDeque<(Option<u32>, Record)>,
    over: bool,
}

fn failed(path: &Path, e: EventsError) -> TraceError {
    match e {
        EventsError::Io(source) => TraceError::Open {
            path: path.to_owned(),
            source,
        },
        e => TraceError::unsupported(path, e.to_string()),
    }
}

impl Events {
    pub(crate) fn open(path: &Path, run: &mut Run) -> Result<Events, TraceError> {
        let reader = Reader::open(path).map_err(|e| failed(path, e))?;
        run.devices
            .preset(std::iter::once(reader.origin().volume.clone()));
        Ok(Events {
            path: path.to_owned(),
            reader,
            waiting: VecDeque::new(),
            over: false,
        })
    }

    /// Reads one more call. Returns false at the end.
    fn step(&mut self, run: &mut Run) -> Result<bool, TraceError> {
        let next = self.reader.next_call();
        let Some((now, call)) = next.map_err(|e| failed(&self.path, e))? else {
            return Ok(false);
        };
        // Reads that the program itself makes for inspection are not part of the load.
        if let Call::Submit(r) = call
            && r.class & QUIET == 0
        {
            let op = match r.op {
                RequestOp::Read => Op::Read,
                RequestOp::Write | RequestOp::WriteZeroes { .. } => Op::Write,
                RequestOp::Flush => Op::Flush,
                RequestOp::Discard => Op::Discard,
            };
            match request(now.0, op, r.offset, r.len) {
                Ok(record) => {
                    let flags = Flags::NONE.with(Flags::FUA, r.fua);
                    let class = r.class & 63;
                    let record = Record {
                        class,
                        flags,
                        ..record
                    };
                    self.waiting.push_back((Some(r.tag.0), record));
                }
                Err(bad) => run.bad(&self.path, Place::Row(self.reader.events() - 1), bad)?,
            }
        }
        for d in self.reader.decisions() {
            let Effect::Reply { tag, .. } = d.effect else {
                continue;
            };
            // A tag is used again once its request is answered, so the answer belongs to the most recent request with the tag.
            if let Some((t, r)) = self.waiting.iter_mut().rev().find(|w| w.0 == Some(tag.0)) {
                *t = None;
                r.latency_ns = Some(now.since(r.time).0);
            }
        }
        Ok(true)
    }
}

impl Decode for Events {
    fn decode(
        &mut self,
        out: &mut Vec<Record>,
        max: usize,
        run: &mut Run,
    ) -> Result<bool, TraceError> {
        while out.len() < max {
            let ready = |w: &(Option<u32>, Record)| w.0.is_none();
            if self.over || self.waiting.len() > WAITING || self.waiting.front().is_some_and(ready)
            {
                match self.waiting.pop_front() {
                    Some((_, r)) => out.push(r),
                    None => return Ok(false),
                }
            } else if !self.step(run)? {
                self.over = true;
            }
        }
        Ok(true)
    }
}
