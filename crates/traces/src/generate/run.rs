//! How generators run: a trait for what fills batches of records, and the adapters from file-level workloads to it.

use std::collections::VecDeque;

use crate::layout::{FileSystem, LayoutError};
use crate::record::Record;

/// The random numbers of all generators: small, fast, the same on every machine.
pub(super) type Rng = rand_pcg::Pcg64Mcg;

/// Makes records whose times do not fall.
pub(crate) trait Generate: Send {
    /// Appends records until `out` holds `max` or the workload ends. Returns whether there may be more.
    fn fill(&mut self, out: &mut Vec<Record>, max: usize) -> Result<bool, LayoutError>;
}

/// A workload that makes any number of records per step.
pub(super) trait Steps: Send {
    /// Does the next step and returns whether there are more. After the last step no record is left in memory.
    fn step(&mut self, out: &mut Vec<Record>) -> Result<bool, LayoutError>;
}

/// A workload of file operations.
pub(super) trait FileSteps: Send {
    /// The file system it works on.
    fn fs(&mut self) -> &mut FileSystem;

    /// Does the next few operations and returns whether there are more.
    fn step(&mut self) -> Result<bool, LayoutError>;
}

impl<W: FileSteps> Steps for W {
    fn step(&mut self, out: &mut Vec<Record>) -> Result<bool, LayoutError> {
        let more = FileSteps::step(self)?;
        if !more {
            // At the end, cached data is written to the disk.
            self.fs().sync();
        }
        self.fs().drain(out);
        Ok(more)
    }
}

/// Runs a workload. Records that were made but not yet asked for wait here.
pub(super) struct Stepped<W> {
    workload: W,
    waiting: VecDeque<Record>,
    scratch: Vec<Record>,
    more: bool,
}

impl<W: Steps> Stepped<W> {
    pub fn new(workload: W) -> Stepped<W> {
        Stepped {
            workload,
            waiting: VecDeque::new(),
            scratch: Vec::new(),
            more: true,
        }
    }

    /// The next record, if there is one.
    fn peek(&mut self) -> Result<Option<Record>, LayoutError> {
        while self.waiting.is_empty() && self.more {
            self.more = self.workload.step(&mut self.scratch)?;
            self.waiting.extend(self.scratch.drain(..));
        }
        Ok(self.waiting.front().copied())
    }
}

impl<W: Steps> Generate for Stepped<W> {
    fn fill(&mut self, out: &mut Vec<Record>, max: usize) -> Result<bool, LayoutError> {
        while out.len() < max {
            if self.peek()?.is_none() {
                return Ok(false);
            }
            let n = self.waiting.len().min(max - out.len());
            out.extend(self.waiting.drain(..n));
        }
        Ok(true)
    }
}

/// Two workloads on two devices at the same time. Records are in order of time; on ties the first workload goes first.
pub(super) struct Beside<A, B>(pub Stepped<A>, pub Stepped<B>);

impl<A: Steps, B: Steps> Generate for Beside<A, B> {
    fn fill(&mut self, out: &mut Vec<Record>, max: usize) -> Result<bool, LayoutError> {
        while out.len() < max {
            let (a, b) = (self.0.peek()?, self.1.peek()?);
            let from = match (a, b) {
                (None, None) => return Ok(false),
                (Some(a), Some(b)) if b.time < a.time => &mut self.1.waiting,
                (Some(_), _) => &mut self.0.waiting,
                (None, Some(_)) => &mut self.1.waiting,
            };
            out.extend(from.pop_front());
        }
        Ok(true)
    }
}

/// A workload that makes single requests, each of them cheap.
pub(super) trait Requests: Send {
    /// The number of requests that remain.
    fn left(&self) -> u64;

    /// Makes the next request. Only called while some are left.
    fn next(&mut self) -> Record;
}

/// Runs a workload of single requests. The loop is compiled for it: no dynamic call per record.
pub(super) struct Single<W>(pub W);

impl<W: Requests> Generate for Single<W> {
    fn fill(&mut self, out: &mut Vec<Record>, max: usize) -> Result<bool, LayoutError> {
        let n = self.0.left().min((max - out.len()) as u64);
        out.extend((0..n).map(|_| self.0.next()));
        Ok(self.0.left() > 0)
    }
}
