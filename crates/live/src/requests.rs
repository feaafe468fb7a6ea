//! Requests in flight: their memory and their callbacks.
//!
//! A write that starts or ends inside a logical block (an *unaligned* write) needs the rest of its first and last block. Its payload lies
//! at its final place in the request's buffer from the start. Whatever the engine reads or zeroes *into* the buffer of such a write goes to
//! a side buffer of two blocks instead, and `Table::patch` copies only the bytes around the payload. So the payload is never copied, and
//! aligned writes have no side buffer at all.
//!
//! ```text
//! buffer  │··pppppp│pppppppp│ppppp···│      p payload, · filled by `patch`
//!              side │hh······│·····ttt│      first and last block as they were
//! ```

use crate::buffers::{Buffer, Memory, Pool};
use crate::inbox::{Done, Submission};
use crate::mutants::{LiveMutant, broken};
use crate::pages::Pages;
use isotherm_classify::Classifier;
use isotherm_core::{Event, IoError, Request, RequestOp, Tag};
use std::sync::Arc;

struct Entry {
    request: Request,
    buf: Option<Buffer>,
    /// Its memory, if that is in the kernel; then there is no `buf`.
    pages: Option<Pages>,
    done: Done,
    side: Option<Memory>,
    /// Whether bytes could not be copied from or into its pages.
    failed: bool,
    /// Number of device operations that use its memory now.
    ops: u32,
    /// First byte and length of a write of which the classifier must be informed when it has ended.
    noted_write: Option<(u64, u32)>,
}

/// The place of a request's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this address.
    Memory(*mut u8),
    /// In a buffer of the ring that is not memory of this process: its number, and the address in it.
    Registered(u16, u64),
}

/// A request that ended, for sources on the engine's own thread.
#[derive(Debug)]
pub struct Ended {
    /// The number with which it came.
    pub ticket: u64,
    /// Its result.
    pub result: Result<(), IoError>,
    /// Its buffer.
    pub buf: Option<Buffer>,
}

pub(crate) struct Table {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    block: usize,
    own: Arc<Pool>,
    ended: Vec<Ended>,
    /// Number of requests that were admitted since the start.
    pub admitted: u64,
    /// Determines the class of a request's data; `None` keeps the class that the front end gave.
    pub classifier: Option<Classifier>,
}

impl Table {
    pub fn new(block: u32, own: Arc<Pool>) -> Table {
        Table {
            entries: Vec::with_capacity(1024),
            free: Vec::with_capacity(1024),
            block: block as usize,
            own,
            ended: Vec::new(),
            admitted: 0,
            classifier: None,
        }
    }

    /// Gives the submission a tag, and the class of its data; `None` if it was invalid and is answered already.
    pub fn admit(&mut self, s: Submission) -> Option<Request> {
        let mut request = self.take_in(s)?;
        self.classify(&mut request);
        Some(request)
    }

    /// Determines the classes of requests that came together ([`Table::take_in`]).
    pub fn classify_all(&mut self, events: &mut [Event]) {
        if let Some(c) = self.classifier.as_ref().filter(|_| events.len() > 1) {
            for event in &*events {
                if let Event::Arrived(r) = event {
                    c.expect(r.offset, r.len);
                }
            }
        }
        for event in events {
            if let Event::Arrived(r) = event {
                self.classify(r);
            }
        }
    }

    /// Determines the class of the data of an admitted request. Before, its class is the one with which it came.
    fn classify(&mut self, r: &mut Request) {
        let Some(c) = &mut self.classifier else {
            r.class &= !0x40;
            return;
        };
        r.class = c.class(r.op, r.offset, r.len, r.class);
        if c.minded() {
            let range = (r.offset, r.len);
            self.entry(r.tag).noted_write = Some(range);
        }
    }

    /// Gives the submission a tag; `None` if it was invalid and is answered already. Its class is still to be determined
    /// ([`Table::classify_all`]).
    pub fn take_in(&mut self, s: Submission) -> Option<Request> {
        let Submission { request: s, done } = s;
        let payload = matches!(s.op, RequestOp::Read | RequestOp::Write);
        let fits = match (&s.buffer, &s.pages) {
            (Some(b), _) => b.len() == s.len as usize && b.head() == s.offset as usize % self.block,
            (None, Some(p)) => {
                let block = self.block as u64;
                p.len() == s.len as usize
                    && s.offset.is_multiple_of(block)
                    && u64::from(s.len).is_multiple_of(block)
            }
            (None, None) => false,
        };
        if payload && !fits {
            self.report(done, Err(IoError::Invalid), s.buffer);
            return None;
        }
        self.admitted += 1;
        let odd = s.buffer.as_ref().is_some_and(|b| b.head() + b.tail() != 0);
        let side = (s.op == RequestOp::Write && odd).then(|| self.own.get_now(2 * self.block));
        let tag = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        let request = Request {
            tag: Tag(tag),
            op: s.op,
            offset: s.offset,
            len: s.len,
            fua: s.fua,
            class: s.class,
        };
        self.entries[tag as usize] = Some(Entry {
            request,
            pages: s.pages.filter(|_| s.buffer.is_none()),
            buf: s.buffer,
            done,
            side,
            failed: false,
            ops: 0,
            noted_write: None,
        });
        Some(request)
    }

    /// The requests that are not answered, as they were admitted.
    pub fn unanswered(&mut self) -> Vec<Request> {
        let mut all: Vec<Request> = self.entries.iter().flatten().map(|e| e.request).collect();
        for r in &mut all {
            self.classify(r);
        }
        all
    }

    fn entry(&mut self, tag: Tag) -> &mut Entry {
        self.entries
            .get_mut(tag.0 as usize)
            .and_then(Option::as_mut)
            .expect("the engine names a request in flight")
    }

    /// Place of bytes `offset…offset + len` of the request's aligned range; with `filling`, the place to which they are to be written.
    pub fn place(&mut self, tag: Tag, offset: u32, len: u32, filling: bool) -> Option<Place> {
        let entry = self.entry(tag);
        let Some(pages) = &entry.pages else {
            return self.address(tag, offset, len, filling).map(Place::Memory);
        };
        let end = offset as usize + len as usize;
        assert!(end <= pages.len(), "outside of the request's pages");
        // Pages are whole blocks, so nothing is ever read into those of a write.
        if filling && entry.request.op == RequestOp::Write {
            return None;
        }
        let (buffer, at) = pages.place(offset);
        Some(Place::Registered(buffer, at))
    }

    fn address(&mut self, tag: Tag, offset: u32, len: u32, filling: bool) -> Option<*mut u8> {
        let block = self.block;
        let entry = self.entry(tag);
        let buf = entry.buf.as_ref()?;
        let (offset, len, covered) = (offset as usize, len as usize, buf.aligned().len());
        assert!(offset + len <= covered, "outside of the request's buffer");
        if !(filling && entry.request.op == RequestOp::Write) || broken(LiveMutant::ReadOverPayload)
        {
            return Some(buf.as_ptr().wrapping_add(offset));
        }
        let side = entry.side.as_ref()?;
        let at = if offset < block {
            offset
        } else {
            block + offset - (covered - block)
        };
        assert!(
            at + len <= 2 * block,
            "only edge blocks of a write are read"
        );
        Some(side.as_ptr().wrapping_add(at))
    }

    /// Copies bytes into the pages of a read. If that fails, the request fails.
    pub fn copy_in(&mut self, tag: Tag, offset: u32, from: &[u8]) {
        let entry = self.entry(tag);
        let copied = entry.pages.as_ref().map(|p| p.copy_in(offset, from));
        entry.failed |= !matches!(copied, Some(Ok(())));
    }

    /// Copies bytes from the pages of a write. If that fails, the request fails, and the result is false.
    pub fn copy_out(&mut self, tag: Tag, offset: u32, to: &mut [u8]) -> bool {
        let entry = self.entry(tag);
        let copied = entry.pages.as_ref().map(|p| p.copy_out(offset, to));
        entry.failed |= !matches!(copied, Some(Ok(())));
        !entry.failed
    }

    /// Copies all bytes of a write from its pages to memory, which is its memory from then on. If that fails, the request fails.
    pub fn leave_pages(&mut self, tag: Tag) {
        let (own, block) = (Arc::clone(&self.own), self.block as u32);
        let entry = self.entry(tag);
        let Some(pages) = entry.pages.take() else {
            return;
        };
        let memory = own.get_now(pages.len());
        let mut buf = Buffer::over(memory, entry.request.offset, pages.len() as u32, block);
        entry.failed |= pages.copy_out(0, &mut buf).is_err();
        entry.buf = Some(buf);
    }

    /// Whether bytes could not be copied from or into the request's pages.
    pub fn has_failed(&mut self, tag: Tag) -> bool {
        self.entry(tag).failed
    }

    /// Counts device operations that use the request's memory: +1 when one begins, -1 when one ends.
    pub fn using(&mut self, tag: Tag, change: i32) {
        let ops = &mut self.entry(tag).ops;
        *ops = ops.checked_add_signed(change).expect("operations end once");
    }

    /// Copies the bytes around the payload from the side buffer.
    pub fn patch(&mut self, tag: Tag) {
        let block = self.block;
        let entry = self.entry(tag);
        let (Some(buf), Some(side)) = (entry.buf.as_mut(), entry.side.as_ref()) else {
            return;
        };
        let (head, tail, covered) = (buf.head(), buf.tail(), buf.aligned().len());
        let last = if covered > block { block } else { 0 };
        let (to, from) = (buf.aligned_mut(), side.bytes());
        to[..head].copy_from_slice(&from[..head]);
        if broken(LiveMutant::PatchHeadOnly) {
            return;
        }
        to[covered - tail..].copy_from_slice(&from[last + block - tail..last + block]);
    }

    /// Called when the request has ended: removes it and calls its callback.
    pub fn reply(&mut self, tag: Tag, result: Result<(), IoError>) {
        let entry = self
            .entries
            .get_mut(tag.0 as usize)
            .and_then(Option::take)
            .expect("a request is answered once");
        assert_eq!(
            entry.ops, 0,
            "answered while a device still uses its memory"
        );
        self.free.push(tag.0);
        if let (Some((offset, len)), Some(c)) = (entry.noted_write, &self.classifier) {
            c.ended(offset, len);
        }
        let result = if entry.failed {
            result.and(Err(IoError::Io))
        } else {
            result
        };
        self.report(entry.done, result, entry.buf);
    }

    fn report(&mut self, done: Done, result: Result<(), IoError>, buf: Option<Buffer>) {
        match done {
            Done::Call(done) => done.call(result, buf),
            Done::Ticket(ticket) => self.ended.push(Ended {
                ticket,
                result,
                buf,
            }),
        }
    }

    /// Ends of requests that came with a ticket.
    pub fn ended(&mut self) -> &mut Vec<Ended> {
        &mut self.ended
    }

    /// Requests in flight.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Number of FLUSHes in flight.
    pub fn flushes(&self) -> usize {
        let entries = self.entries.iter().flatten();
        entries.filter(|e| e.request.op == RequestOp::Flush).count()
    }

    /// Ends every request. No device may use their memory any more.
    pub fn refuse_all(&mut self, error: IoError) {
        for i in 0..self.entries.len() {
            if let Some(entry) = self.entries[i].take() {
                self.free.push(i as u32);
                self.report(entry.done, Err(error), entry.buf);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::IoRequest;

    fn table() -> (Table, Arc<Pool>) {
        let pool = Pool::new(1 << 20);
        (Table::new(512, Arc::clone(&pool)), pool)
    }

    fn write(pool: &Arc<Pool>, offset: u64, len: u32) -> Submission {
        let mut buf = pool.buffer(offset, len, 512);
        buf.fill(9);
        Submission {
            request: IoRequest::write(offset, len, buf),
            done: Done::Ticket(1),
        }
    }

    #[test]
    fn a_write_of_metadata_is_noted_when_it_has_ended() {
        use isotherm_classify::{Layers, Source, Watch, classes};
        let (mut t, pool) = table();
        let mut layers = Layers::new(1 << 20);
        layers.set(Source::Layout, 0, 4, classes::INODES);
        layers.settle(u64::MAX);
        let watch = Arc::new(Watch::default());
        let map = Arc::clone(layers.shared());
        t.classifier = Some(Classifier::new(map, Arc::clone(&watch), 16));
        let inodes = t.admit(write(&pool, 4096, 512)).unwrap();
        let data = t.admit(write(&pool, 65536, 512)).unwrap();
        t.reply(data.tag, Ok(()));
        assert!(!watch.has_news(), "what is under way cannot be read yet");
        t.reply(inodes.tag, Err(IoError::Io));
        let noted = watch.take().unwrap();
        assert_eq!((noted.len(), &noted[0]), (1, &(4096..4608)));
        // The same for requests that came together.
        let some = [write(&pool, 65536, 512), write(&pool, 8192, 512)];
        let mut events = some.map(|s| Event::Arrived(t.take_in(s).unwrap()));
        t.classify_all(&mut events);
        for (event, class) in events.iter().zip([0, classes::INODES]) {
            let Event::Arrived(r) = event else { panic!() };
            assert_eq!(r.class, class);
            t.reply(r.tag, Ok(()));
        }
        let noted = watch.take().unwrap();
        assert_eq!((noted.len(), &noted[0]), (1, &(8192..8704)));
    }

    #[test]
    fn edge_blocks_are_patched_around_the_payload_at_every_alignment() {
        for (offset, len) in [
            (10, 20),
            (500, 24),
            (500, 100),
            (512, 100),
            (100, 412),
            (700, 5000),
            (1, 1022),
        ] {
            let (mut t, pool) = table();
            let r = t.admit(write(&pool, offset, len)).unwrap();
            let covered = t.entry(r.tag).buf.as_ref().unwrap().aligned().len();
            // The device fills first and last block as the engine asks for them, one by one.
            for at in [0, covered - 512] {
                let p = t.address(r.tag, at as u32, 512, true).unwrap();
                let mark = if at == 0 { 1 } else { 2 };
                // SAFETY: `at` gives 512 valid bytes.
                unsafe { p.write_bytes(mark, 512) };
            }
            t.patch(r.tag);
            t.reply(r.tag, Ok(()));
            let b = t.ended().pop().unwrap().buf.unwrap();
            let (head, len) = (b.head(), b.len());
            let tail_mark = if covered == 512 { 1 } else { 2 };
            for (i, &x) in b.aligned().iter().enumerate() {
                let want = if i < head {
                    1
                } else if i < head + len {
                    9
                } else {
                    tail_mark
                };
                assert_eq!(x, want, "{offset}+{len} at {i}");
            }
        }
    }

    #[test]
    fn wrong_submissions_are_answered_at_once() {
        let (mut t, pool) = table();
        let mut s = write(&pool, 0, 512);
        s.request.len = 1024;
        assert!(t.admit(s).is_none());
        let mut s = write(&pool, 0, 512);
        s.request.offset = 100;
        assert!(t.admit(s).is_none());
        let mut s = write(&pool, 0, 512);
        s.request.buffer = None;
        assert!(t.admit(s).is_none());
        assert!(
            t.ended()
                .drain(..)
                .all(|e| e.result == Err(IoError::Invalid))
        );
        assert_eq!(t.len(), 0);
        let a = t.admit(write(&pool, 0, 512)).unwrap();
        let b = t.admit(write(&pool, 512, 512)).unwrap();
        assert_ne!(a.tag, b.tag);
        t.refuse_all(IoError::Gone);
        assert_eq!((t.ended().len(), t.len()), (2, 0));
    }
}
