//! Puts records in the order of their times, within a bounded window.
//!
//! Tracers write a request when it completes, or in a buffer for each processor, so files are nearly sorted. A record that comes later
//! than at most `window` records whose times are larger takes its place before them. One that comes later still is raised by the reader.

use crate::decode::{Decode, Run};
use crate::error::TraceError;
use crate::format::Format;
use crate::record::Record;

/// Records of the window for formats that are not in the order of arrival: some 10 MiB.
pub(crate) const WINDOW: usize = 1 << 16;
/// Records decoded at a time.
const CHUNK: usize = 4096;

/// Whether files in this format are in the order of completion, or of the processors' buffers.
pub(crate) fn is_unsorted(format: Format) -> bool {
    use Format::{Biosnoop, Blkparse, Blktrace, Etw, Iosnoop, Msr, Octf, Systor, Tencent, Wpa};
    matches!(
        format,
        Biosnoop | Blkparse | Blktrace | Etw | Iosnoop | Msr | Octf | Systor | Tencent | Wpa
    )
}

/// The decoder.
pub(crate) struct Sorted {
    inner: Box<dyn Decode>,
    window: usize,
    /// The records that wait, the first `ready` of them in their final order; `next` is the first that was not delivered.
    waiting: Vec<Record>,
    ready: usize,
    next: usize,
    latest: u64,
    more: bool,
    /// An error that follows the records that wait.
    failed: Option<TraceError>,
}

impl Sorted {
    pub(crate) fn boxed(inner: Box<dyn Decode>, window: usize) -> Box<dyn Decode> {
        Box::new(Sorted {
            inner,
            window: window.max(1),
            waiting: Vec::new(),
            ready: 0,
            next: 0,
            latest: 0,
            more: true,
            failed: None,
        })
    }

    /// Fills the window twice, and sorts it. Its first half cannot change any more.
    fn refill(&mut self, run: &mut Run) {
        self.waiting.drain(..self.next);
        self.next = 0;
        let full = 2 * self.window;
        while self.more && self.waiting.len() < full {
            let (from, most) = (self.waiting.len(), full.min(self.waiting.len() + CHUNK));
            match self.inner.decode(&mut self.waiting, most, run) {
                Ok(more) => self.more = more,
                Err(e) => (self.more, self.failed) = (false, Some(e)),
            }
            for r in &self.waiting[from..] {
                run.stats.sorted += u64::from(r.time.0 < self.latest);
                self.latest = self.latest.max(r.time.0);
            }
        }
        // The sort keeps the order of equal times, and takes linear time if hardly any record moves.
        self.waiting.sort_by_key(|r| r.time);
        self.ready = if self.more {
            self.window
        } else {
            self.waiting.len()
        };
    }
}

impl Decode for Sorted {
    fn decode(
        &mut self,
        out: &mut Vec<Record>,
        max: usize,
        run: &mut Run,
    ) -> Result<bool, TraceError> {
        while out.len() < max {
            if self.next == self.ready {
                if !self.more {
                    return self.failed.take().map_or(Ok(false), Err);
                }
                self.refill(run);
                if self.ready == 0 {
                    continue;
                }
            }
            let take = (max - out.len()).min(self.ready - self.next);
            let ready = &self.waiting[self.next..self.next + take];
            out.extend(ready.iter().map(|r| Record {
                device: run.devices.in_order(r.device),
                ..*r
            }));
            self.next += take;
        }
        Ok(true)
    }

    fn header(&self) -> &[u8] {
        self.inner.header()
    }

    fn timed(&self) -> bool {
        self.inner.timed()
    }
}
