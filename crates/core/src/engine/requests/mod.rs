//! Requests: reads, writes, discards, from their arrival to their reply.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | arrival; replies |
//! | `admission.rs` | requests that may not begin yet because of promises to classes |
//! | `pieces.rs` | the pieces of a read or write, one per extent: home, policy, gate |
//! | `runs.rs` | neighbouring pieces become one device operation; the end of this operation |
//! | `reads.rs`, `replicas.rs` | the source of each block of a read; reads and writes of extents with a copy |
//! | `gate.rs` | whether a piece may access an extent that is in use; if not, it waits (`engine/waiting.rs`) |
//! | `discard.rs`, `edges.rs` | discards; writes that are not whole blocks |
//! | `fill.rs` | zeros are written if there is no memory for a bitmap |
//! | `rescue.rs` | what flash fails and the home can do |

mod admission;
mod discard;
mod edges;
mod fill;
mod gate;
mod pieces;
mod reads;
mod replicas;
mod rescue;
mod runs;

use super::globals::{Globals, Phase};
use super::parts::Parts;
use super::slab::Slab;
use super::waiting::Waiter;
use crate::io::{Effect, IoError, QUIET, Request, RequestOp, Tag};
use crate::mutants::Mutant;
use crate::stats::CLASSES;
use crate::store::Report;
use crate::units::Nanos;
use admission::Admission;
use alloc::vec::Vec;
use edges::{Edge, drop_edges};
use replicas::Replicas;

/// Largest size of a read or write, in bytes.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// A request being served.
#[derive(Clone, Copy, Debug)]
struct Req {
    tag: Tag,
    op: RequestOp,
    /// Offset of the first byte, rounded down to a block.
    start: u64,
    /// Offset behind the last byte, rounded up to a block.
    end: u64,
    bytes: u32,
    /// Bytes between `start` and the request's own first byte.
    head: u32,
    fua: bool,
    /// Whether the next server must find its data after this one was killed (FUA, or [`crate::engine::Params::kept_writes`]). Then it is
    /// answered only after the records that are needed for this.
    found: bool,
    class: u8,
    arrived: Nanos,
    /// Number of device operations and waiting pieces, plus one while pieces are being processed.
    left: u32,
    error: Option<IoError>,
    /// Whether the reply must wait for a round.
    needs_round: bool,
    /// Whether it is an unaligned write that is still reading its edge blocks.
    reading_edges: bool,
    edges: Edge,
    /// The number of the request on whose behalf this one was made, if any. That request is answered when this one has ended.
    on_behalf: Option<u32>,
}

impl Req {
    /// Offset of the request's own first byte.
    fn offset(&self) -> u64 {
        self.start + u64::from(self.head)
    }
    fn is_write(&self) -> bool {
        !self.reading_edges
            && matches!(
                self.op,
                RequestOp::Write | RequestOp::WriteZeroes { keep: true }
            )
    }
    /// Whether its device operations change what is on a device: those of a write, and those of a discard in a cache volume.
    fn changes_devices(&self) -> bool {
        self.is_write() || self.op == RequestOp::Discard
    }
}

/// See the module.
pub(super) struct Requests {
    list: Slab<Req>,
    replicas: Replicas,
    /// Whether reads of unmapped extents must fail, because the map may be incomplete (degraded service, if the mirror may lag).
    incomplete: bool,
    /// Extents that may have lost their newest data with flash that is absent: reading them is an error. Ranges, ascending.
    suspects: Vec<core::ops::Range<u32>>,
    admission: Admission,
}

impl Requests {
    pub(super) fn new(report: &Report) -> Requests {
        Requests {
            list: Slab::new(1024),
            replicas: Replicas::default(),
            incomplete: report.incomplete,
            suspects: report.suspects.clone(),
            admission: Admission::default(),
        }
    }
    /// Number of requests that are not answered.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }
    /// Whether all requests are answered.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// Whether a request of that number is in progress.
    pub(super) fn is_known(&self, r: u32) -> bool {
        self.list.get(r).is_some()
    }

    /// A request arrived.
    pub(super) fn arrive(&mut self, p: &mut Parts<'_>, req: Request) {
        let g = &mut *p.globals;
        if let Err(error) = admissible(g, &req) {
            g.counters.errors += 1;
            g.out.push(Effect::Reply {
                tag: req.tag,
                result: Err(error),
            });
            return;
        }
        let (start, end) = match req.op {
            // A discard is advisory: it covers only whole blocks.
            RequestOp::Discard => {
                let b = u64::from(g.space.geo.block_bytes());
                let (a, z) = (
                    (req.offset + b - 1) & !(b - 1),
                    (req.offset + u64::from(req.len)) & !(b - 1),
                );
                (a, z.max(a))
            }
            _ => g.space.geo.align(req.offset, u64::from(req.len)),
        };
        if req.op != RequestOp::Read {
            let is_flush = req.op == RequestOp::Flush;
            p.durability
                .request_arrived(g, is_flush, self.list.is_empty());
        }
        let zeroes = matches!(req.op, RequestOp::WriteZeroes { .. });
        let req = as_performed(g, req);
        let fua = req.fua && !(zeroes && g.broken(Mutant::ZeroesForgetFua));
        let fua = fua && !g.broken(Mutant::ForgetFua);
        let kept = g.params.kept_writes && !g.broken(Mutant::ForgetKept);
        let r = self.list.insert(Req {
            tag: req.tag,
            op: req.op,
            start,
            end,
            bytes: req.len,
            head: req.offset.saturating_sub(start) as u32,
            fua,
            found: fua || kept,
            class: req.class,
            arrived: g.clock,
            left: 1,
            error: None,
            needs_round: false,
            reading_edges: false,
            edges: Edge::None,
            on_behalf: None,
        });
        if self.admission.admits(p.globals, r, &req) {
            self.begin(p, r);
        }
    }

    /// Begins a request that the scheduler has admitted.
    fn begin(&mut self, p: &mut Parts<'_>, r: u32) {
        let req = *self.list.at(r);
        let offset = req.offset();
        match req.op {
            RequestOp::Flush => p.durability.join(p.globals, r),
            RequestOp::Write if (req.start, req.end) != (offset, offset + u64::from(req.bytes)) => {
                self.start_unaligned_write(p, r);
            }
            RequestOp::Discard | RequestOp::WriteZeroes { keep: false } => {
                self.list.at(r).needs_round = req.found;
                self.hand_out_discard(p, r);
                self.piece_done(p, r);
            }
            RequestOp::Read | RequestOp::Write | RequestOp::WriteZeroes { keep: true } => {
                self.hand_out(p, r, req.start, req.end);
                self.piece_done(p, r);
            }
        }
    }

    /// Records an error; the reply is sent when all pieces have ended.
    fn fail(&mut self, r: u32, error: IoError) {
        self.list.at(r).error.get_or_insert(error);
    }

    /// One piece of the request (or the processing of its pieces) has ended.
    fn piece_done(&mut self, p: &mut Parts<'_>, r: u32) {
        let req = self.list.at(r);
        req.left -= 1;
        if req.left > 0 {
            return;
        }
        if req.reading_edges {
            return self.edges_read(p, r);
        }
        // Nothing is promised about discarded blocks, so they are not lost any more either.
        if req.error.is_none() && req.changes_devices() {
            p.durability.written(p.globals, (req.start, req.end));
        }
        if let Some(other) = req.on_behalf {
            return self.ended_for(p, r, other);
        }
        let req = *req;
        drop_edges(p, r, &req);
        let waits = req.error.is_none() && req.needs_round;
        if waits && (req.fua || !req.is_write()) {
            p.durability.join(p.globals, r);
        } else if !waits || p.durability.keep(p.globals, r) {
            let latency = self.reply(p.globals, r, req.error.map_or(Ok(()), Err));
            p.relocation.note_latency(p.globals, latency);
        }
    }

    /// Answers a request and removes it. The caller reports the returned duration to [`super::relocation::Relocation::note_latency`].
    pub(super) fn reply(&mut self, g: &mut Globals, r: u32, result: Result<(), IoError>) -> Nanos {
        let req = self.list.remove(r);
        self.admission.ended(g, r, req.op, req.class);
        let latency = g.clock.since(req.arrived);
        let class = g
            .space
            .class_of(req.class, g.space.geo.extent_at(req.start));
        let c = &mut g.counters;
        c.errors += u64::from(result.is_err());
        if req.class & QUIET == 0 {
            c.wake_waits += u64::from(g.background.answered(req.arrived, g.clock));
        }
        match req.op {
            _ if req.class & QUIET != 0 => {}
            RequestOp::Read => {
                c.reads += 1;
                c.bytes_read += u64::from(req.bytes);
                c.read_latency.add(latency);
            }
            RequestOp::Write => {
                c.writes += 1;
                c.bytes_written += u64::from(req.bytes);
                c.write_latency.add(latency);
            }
            RequestOp::Flush => {
                c.flushes += 1;
                c.flush_latency.add(latency);
            }
            RequestOp::Discard | RequestOp::WriteZeroes { .. } => c.discards += 1,
        }
        if matches!(req.op, RequestOp::Read | RequestOp::Write) && req.class & QUIET == 0 {
            let c = &mut c.classes[usize::from(class) % CLASSES];
            c.requests += 1;
            match req.op {
                RequestOp::Read => c.bytes_read += u64::from(req.bytes),
                _ => c.bytes_written += u64::from(req.bytes),
            }
            c.latency.get_or_insert_default().add(latency);
        }
        g.out.push(Effect::Reply {
            tag: req.tag,
            result,
        });
        latency
    }
}

/// The request as the volume performs it. In a cache volume, where every block is somewhere on the disk, zeros that may free space are written,
/// too, because nothing else says that a block reads as zeros. Like a discard they are not an access.
fn as_performed(g: &Globals, req: Request) -> Request {
    if g.space.geo.is_cache() && req.op == (RequestOp::WriteZeroes { keep: false }) {
        return Request {
            op: RequestOp::WriteZeroes { keep: true },
            class: req.class | QUIET,
            ..req
        };
    }
    req
}

fn admissible(g: &Globals, req: &Request) -> Result<(), IoError> {
    if req.op == RequestOp::Flush {
        // A failed flush is permanent: no later flush may succeed.
        return if g.phase == Phase::Closed {
            Err(IoError::Gone)
        } else {
            is_refused_now(g, req.op).map_or(Ok(()), Err)
        };
    }
    let geo = &g.space.geo;
    let end = req
        .offset
        .checked_add(u64::from(req.len))
        .ok_or(IoError::Invalid)?;
    if req.len == 0 || end > geo.volume_bytes() || g.phase != Phase::Running {
        return Err(IoError::Invalid);
    }
    match req.op {
        RequestOp::Read | RequestOp::Write if req.len > REQUEST_BYTES_MAX => {
            return Err(IoError::Invalid);
        }
        RequestOp::WriteZeroes { .. }
            if geo.align(req.offset, u64::from(req.len)) != (req.offset, end) =>
        {
            return Err(IoError::Invalid);
        }
        RequestOp::Read => return Ok(()),
        _ => {}
    }
    if g.params.read_only {
        return Err(IoError::ReadOnly);
    }
    is_refused_now(g, req.op).map_or(Ok(()), Err)
}

/// The error for a request that is refused because a flush or metadata write has failed, so that nothing more can be guaranteed.
fn is_refused_now(g: &Globals, op: RequestOp) -> Option<IoError> {
    let failed = g.failed && !g.broken(Mutant::ForgetFailedFlush);
    (failed && op != RequestOp::Read).then_some(IoError::Io)
}
