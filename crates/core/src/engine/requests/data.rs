//! The life of a read and of a write.
//!
//! A request is cut at extent borders. Each piece asks the map, lets the policy see the access, passes the gate if something
//! (a move, a waiting discard) holds the extent, and joins a *run*: pieces that lie next to each other on one device become
//! one operation.

use crate::engine::durability::commit::MetaSource;
use crate::engine::requests::gate::Gate;
use crate::engine::{Engine, Mutant, Op, Req, SCAN_BUDGET, Waiter, What};
use crate::io::{BufRef, DeviceOp, Effect, IoError, OpId, OpKind, RequestOp};
use crate::policy::{Access, Place};
use crate::stats::CLASSES;
use crate::units::{ExtentId, MemberId, Nanos, Slot, TierId};
use alloc::vec::Vec;

/// Neighbouring pieces gathered into one device operation.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Run {
    member: MemberId,
    device_offset: u64,
    ext: u32,
    count: u16,
    slot: u32,
    start: u64,
    len: u32,
    fua: bool,
}

/// Runs being gathered: one on each replica, since pieces of a write-through alternate between the two.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Runs {
    pub(in crate::engine) home: Option<Run>,
    pub(in crate::engine) copy: Option<Run>,
}

impl Engine {
    /// Hand out the pieces of `from..to` of a read or write.
    pub(in crate::engine) fn hand_out(
        &mut self,
        now: Nanos,
        r: u32,
        from: u64,
        to: u64,
        out: &mut Vec<Effect>,
    ) {
        let shift = self.space.geo.extent_shift;
        let mut runs = Runs::default();
        let mut at = from;
        while at < to {
            let extent = self.space.geo.extent_at(at);
            let end = to.min((u64::from(extent.0) + 1) << shift);
            let w = Waiter {
                req: r,
                extent,
                from: at,
                to: end,
                touched: false,
            };
            self.piece(now, w, &mut runs, out);
            at = end;
        }
        self.emit_all(r, runs, out);
    }

    fn emit_all(&mut self, r: u32, runs: Runs, out: &mut Vec<Effect>) {
        self.emit(r, runs.copy, out);
        self.emit(r, runs.home, out);
    }

    /// One piece, within one extent.
    fn piece(&mut self, now: Nanos, mut w: Waiter, runs: &mut Runs, out: &mut Vec<Effect>) {
        let req = *self.reqs.at(w.req);
        let write = req.is_write();
        let e = w.extent;
        let mut home = self.space.map.home(e);
        let before = home;
        if home.is_none() && (write || self.params.map_on_read) {
            if self.space.map.is_held(e) && self.gate(&req, &w) == Gate::Wait {
                return self.wait(w);
            }
            self.make_room(now, &req, e, out);
            let mut placed = self.place(now, e);
            if placed.is_none() && self.reclaim(now, out) {
                placed = self.place(now, e);
            }
            match placed {
                Some(s) => home = Some(s),
                // After a failed flush no slot is ever let go of.
                None if self.failed => return self.fail(w.req, IoError::Io),
                None if self.freeing.is_empty()
                    && self.moves.active() == 0
                    && self.space.map.copied() == 0 =>
                {
                    return self.fail(w.req, IoError::NoSpace);
                }
                None => {
                    self.counters.waited += 1;
                    self.reqs.at(w.req).left += 1;
                    return self.starving.push_back(w);
                }
            }
        }
        if home.is_none() {
            self.counters.unmapped_reads += 1;
        } else if !w.touched && !req.reading_edges {
            w.touched = true;
            self.touch(now, &req, e, before, out);
        }
        if self.space.map.is_held(e) {
            match self.gate(&req, &w) {
                Gate::Go => {}
                Gate::Wait => return self.wait(w),
                Gate::FromMove(index) => return self.read_from_move(&req, &w, index, out),
            }
        }
        let Some(slot) = home else {
            return self.read_nothing(&req, &w, w.from, w.to, out);
        };
        match self.space.map.copy(e) {
            Some(copy) if write => self.write_copied(now, &w, (slot, copy), runs, out),
            Some(copy) => self.read_copied(&req, &w, (slot, copy), runs, out),
            None if write => self.write_piece(&w, slot, runs, out),
            None => self.read_piece(&req, &w, slot, runs, out),
        }
    }

    /// Let the policy make room for a first home. What it starts is through later: this extent does not wait for it.
    fn make_room(&mut self, now: Nanos, req: &Req, extent: ExtentId, out: &mut Vec<Effect>) {
        let access = self.access(now, req, extent, None, None);
        let (policy, mut view, wanted) = self.view(now, SCAN_BUDGET);
        policy.make_room(&mut view, &access, wanted);
        if !self.wanted.is_empty() {
            self.try_wanted(now, out);
        }
    }

    /// Give an extent its first home.
    fn place(&mut self, now: Nanos, e: ExtentId) -> Option<Slot> {
        let (policy, mut view, _) = self.view(now, 0);
        let place = policy.first_touch(&mut view, e);
        if let Place::At(seat) = place {
            // On its way to be free: `linear` means this slot and no other, so the extent waits for it.
            if self.freeing.contains(seat.slot()) {
                return None;
            }
        }
        let slot = self.space.take_home(e, place)?;
        let partial = !self.broken(Mutant::ForgetZeroFill) && !self.params.map_on_read;
        self.space.map.map(e, slot, partial);
        if self.params.map_on_read || !partial {
            self.commit.note_home(e, now, self.params.commit_interval);
        }
        self.counters.first_touches += 1;
        self.misplaced(now, slot, false);
        let (policy, mut view, _) = self.view(now, 0);
        policy.on_placed(&mut view, e, slot.into());
        Some(slot)
    }

    /// Let the policy see an access, and start what it wants before the piece goes on: a read that triggers a promotion is
    /// then served from the move's buffer, one disk access instead of two (GreenDM 6.1.3, "serving directly from RAM").
    fn touch(
        &mut self,
        now: Nanos,
        req: &Req,
        extent: ExtentId,
        home: Option<Slot>,
        out: &mut Vec<Effect>,
    ) {
        let access = self.access(now, req, extent, home, self.space.map.copy(extent));
        let tier = access.served().map(|s| self.space.geo.tier_of(s.slot()));
        let c = &mut self.counters;
        c.accesses += 1;
        if let Some(t) = tier {
            c.tier_hits[usize::from(t.0)] += 1;
        }
        let class = &mut c.classes[usize::from(access.class) % CLASSES];
        class.accesses += 1;
        class.fast_hits += u64::from(tier == Some(TierId(0)));
        let told = Access {
            copy: access.copy.filter(|s| self.is_the_policys(s.slot())),
            ..access
        };
        let (policy, mut view, wanted) = self.view(now, SCAN_BUDGET);
        policy.on_access(&mut view, &told, wanted);
        self.policy_due = true;
        if !self.wanted.is_empty() {
            // Served at the home, it wakes the disk whatever the policy wants.
            self.wake_with(home.filter(|_| access.copy.is_none()));
            self.try_wanted(now, out);
            self.wake_with(None);
        }
    }

    /// What a policy is told of a request's touch of an extent.
    #[inline]
    pub(in crate::engine) fn access(
        &self,
        now: Nanos,
        req: &Req,
        extent: ExtentId,
        home: Option<Slot>,
        copy: Option<Slot>,
    ) -> Access {
        Access {
            now,
            extent,
            home: home.map(Slot::into),
            copy: copy.map(Slot::into),
            write: req.is_write(),
            class: self.space.class_of(req.class, extent),
            request_bytes: req.bytes,
            request_offset: req.start,
            first: self.space.geo.extent_at(req.start) == extent,
        }
    }

    /// Queue a piece until something changes.
    pub(in crate::engine) fn wait(&mut self, w: Waiter) {
        self.counters.waited += 1;
        self.reqs.at(w.req).left += 1;
        self.space.map.hold(w.extent, true);
        self.waiting.push_back(w);
    }

    /// Let every waiting piece try again, in order of arrival.
    pub(in crate::engine) fn retry_waiting(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        // Who waits again goes to a new queue: only those in it are ahead of a piece.
        let mut trying = core::mem::take(&mut self.spare_queue);
        core::mem::swap(&mut trying, &mut self.waiting);
        while let Some(w) = trying.pop_front() {
            self.release_hold(w.extent);
            match self.reqs.at(w.req).op {
                RequestOp::Discard | RequestOp::WriteZeroes { keep: false } => {
                    self.discard_piece(now, w, out);
                }
                RequestOp::Write if self.edges.is_queued(w.req) => {
                    self.retry_odd_write(now, w, out);
                }
                _ => {
                    let mut runs = Runs::default();
                    self.piece(now, w, &mut runs, out);
                    self.emit_all(w.req, runs, out);
                }
            }
            self.piece_done(now, w.req, out);
        }
        self.spare_queue = trying;
    }

    /// A slot was freed: let the pieces that wait for one try again, in order of arrival.
    pub(in crate::engine) fn retry_starving(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        self.freed = false;
        for _ in 0..self.starving.len() {
            let Some(w) = self.starving.pop_front() else {
                break;
            };
            let mut runs = Runs::default();
            self.piece(now, w, &mut runs, out);
            self.emit_all(w.req, runs, out);
            self.piece_done(now, w.req, out);
        }
    }

    /// Clear the held mark of `e` unless something still holds it.
    pub(in crate::engine) fn release_hold(&mut self, e: ExtentId) {
        let held = self.moves.of(e).is_some()
            || self.edges.holds(e)
            || self.waiting.iter().any(|w| w.extent == e);
        self.space.map.hold(e, held);
    }

    fn buffer_offset(req: &Req, at: u64) -> u32 {
        (at - req.start) as u32
    }

    /// Unwritten data reads as zeros, unless the map may have lost where it is.
    pub(in crate::engine) fn read_nothing(
        &mut self,
        req: &Req,
        w: &Waiter,
        from: u64,
        to: u64,
        out: &mut Vec<Effect>,
    ) {
        if self.incomplete {
            return self.fail(w.req, IoError::Io);
        }
        out.push(Effect::Zero {
            tag: req.tag,
            offset: Self::buffer_offset(req, from),
            len: (to - from) as u32,
        });
    }

    /// Call `f` for each stretch of a piece whose blocks are all valid (true) or all unwritten (false).
    fn stretches(&mut self, w: &Waiter, mut f: impl FnMut(&mut Engine, u64, u64, bool)) {
        let (base, shift) = (
            u64::from(w.extent.0) << self.space.geo.extent_shift,
            self.space.geo.block_shift,
        );
        let end = ((w.to - base) >> shift) as u32;
        let mut b = ((w.from - base) >> shift) as u32;
        while b < end {
            let (n, valid) = self.space.map.run(w.extent, b, end);
            f(
                self,
                base + (u64::from(b) << shift),
                base + (u64::from(b + n) << shift),
                valid,
            );
            b += n;
        }
    }

    fn read_from_move(&mut self, req: &Req, w: &Waiter, index: u16, out: &mut Vec<Effect>) {
        self.counters.served_from_ram += 1;
        let base = u64::from(w.extent.0) << self.space.geo.extent_shift;
        self.stretches(w, |me, from, to, valid| {
            if valid {
                out.push(Effect::CopyFromMove {
                    index,
                    from: (from - base) as u32,
                    tag: req.tag,
                    to: Self::buffer_offset(req, from),
                    len: (to - from) as u32,
                });
            } else {
                me.read_nothing(req, w, from, to, out);
            }
        });
    }

    fn read_piece(
        &mut self,
        req: &Req,
        w: &Waiter,
        slot: Slot,
        runs: &mut Runs,
        out: &mut Vec<Effect>,
    ) {
        if !self.space.map.is_partial(w.extent) {
            return self.join_run(w, slot, w.from, w.to, false, &mut runs.home, out);
        }
        self.stretches(w, |me, from, to, valid| {
            if valid {
                me.join_run(w, slot, from, to, false, &mut runs.home, out);
            } else {
                me.read_nothing(req, w, from, to, out);
            }
        });
    }

    pub(in crate::engine) fn write_piece(
        &mut self,
        w: &Waiter,
        slot: Slot,
        runs: &mut Runs,
        out: &mut Vec<Effect>,
    ) {
        let mut fua = false;
        if self.reqs.at(w.req).fua {
            // Durable by itself only if every record needed to find it is durable already.
            let (from, to) = self.blocks_of(w);
            // After a failed round either of two records may be the durable one.
            fua = !self.failed
                && self.is_known(w.extent)
                && self.space.map.all_valid(w.extent, from, to);
            self.reqs.at(w.req).needs_round |= !fua;
        }
        self.join_run(w, slot, w.from, w.to, fua, &mut runs.home, out);
    }

    /// Pin the slot and add bytes `from..to` of the volume, which lie in it, to the run.
    #[allow(clippy::too_many_arguments)]
    pub(in crate::engine) fn join_run(
        &mut self,
        w: &Waiter,
        slot: Slot,
        from: u64,
        to: u64,
        fua: bool,
        run: &mut Option<Run>,
        out: &mut Vec<Effect>,
    ) {
        let (member, slot_offset) = self.space.geo.locate(slot);
        if self.members[usize::from(member.0)].missing {
            return self.fail(w.req, IoError::Gone);
        }
        let write = self.reqs.at(w.req).is_write();
        if !(write && self.broken(Mutant::SkipPin)) {
            self.space.pins.pin(slot, write);
        }
        let device_offset =
            slot_offset + (from - (u64::from(w.extent.0) << self.space.geo.extent_shift));
        let len = (to - from) as u32;
        if let Some(r) = run
            && r.member == member
            && r.device_offset + u64::from(r.len) == device_offset
            && r.start + u64::from(r.len) == from
            && r.ext + u32::from(r.count) == w.extent.0
            && r.slot + u32::from(r.count) == slot.0
            && r.fua == fua
            && r.count < u16::MAX
        {
            r.len += len;
            r.count += 1;
            return;
        }
        let new = Run {
            member,
            device_offset,
            ext: w.extent.0,
            count: 1,
            slot: slot.0,
            start: from,
            len,
            fua,
        };
        let full = run.replace(new);
        self.emit(w.req, full, out);
    }

    fn emit(&mut self, r: u32, run: Option<Run>, out: &mut Vec<Effect>) {
        let Some(run) = run else { return };
        let req = self.reqs.at(r);
        req.left += 1;
        let (kind, buf) = match req.op {
            RequestOp::WriteZeroes { .. } => (OpKind::WriteZeroes, BufRef::None),
            _ => (
                if req.is_write() && !req.reading_edges {
                    OpKind::Write
                } else {
                    OpKind::Read
                },
                BufRef::Request {
                    tag: req.tag,
                    offset: Self::buffer_offset(req, run.start),
                },
            ),
        };
        let write = kind != OpKind::Read;
        let what = What::Data {
            req: r,
            write,
            ext: run.ext,
            count: run.count,
            slot: run.slot,
            start: run.start,
            len: run.len,
        };
        let op = DeviceOp {
            id: OpId(0),
            member: run.member,
            kind,
            offset: run.device_offset,
            len: run.len,
            buf,
            fua: run.fua && write,
        };
        self.start(what, op, MetaSource::None, out);
    }

    /// A data operation ended.
    pub(in crate::engine) fn data_done(
        &mut self,
        now: Nanos,
        op: &Op,
        result: Result<(), IoError>,
        out: &mut Vec<Effect>,
    ) {
        let What::Data {
            req,
            write,
            ext,
            count,
            slot,
            start,
            len,
        } = op.what
        else {
            return;
        };
        for i in 0..u32::from(count) {
            let (e, s) = (ExtentId(ext + i), Slot(slot + i));
            if !(write && self.broken(Mutant::SkipPin)) && self.space.pins.unpin(s, write) {
                self.unpinned(s, out);
            }
            if write {
                self.written(now, e, s, (start, len), result.is_ok());
            }
            // A discard or an odd write may have waited for the writers to drain.
            self.retry |= write && self.space.map.is_held(e);
        }
        if write && !(op.op.fua && result.is_ok()) {
            self.members[usize::from(op.op.member.0)].unflushed = true;
        }
        if let Err(e) = result {
            self.fail(req, e);
        }
        self.piece_done(now, req, out);
    }

    /// A device write of bytes `start…` of the volume, as far as they lie in `e`, to its slot `s` ended.
    fn written(&mut self, now: Nanos, e: ExtentId, s: Slot, (start, len): (u64, u32), ok: bool) {
        let (shift, b) = (self.space.geo.extent_shift, self.space.geo.block_shift);
        let base = u64::from(e.0) << shift;
        let from = ((start.max(base) - base) >> b) as u32;
        let to = (((start + u64::from(len)).min(base + (1 << shift)) - base) >> b) as u32;
        if !self.replicas.is_empty() && self.replica_written(now, e, s, (from, to), ok) {
            return;
        }
        // Only now are the blocks valid: a round that starts while the write is in flight must not expose them.
        if ok && self.space.map.home(e) == Some(s) && self.space.map.validate(e, from, to) {
            self.commit.note_home(e, now, self.params.commit_interval);
        }
    }

    /// Note an error; the reply comes when all pieces have ended.
    pub(in crate::engine) fn fail(&mut self, r: u32, error: IoError) {
        self.reqs.at(r).error.get_or_insert(error);
    }

    /// One piece (or the handing-out itself) ended.
    pub(in crate::engine) fn piece_done(&mut self, now: Nanos, r: u32, out: &mut Vec<Effect>) {
        let req = self.reqs.at(r);
        req.left -= 1;
        if req.left > 0 {
            return;
        }
        if req.reading_edges {
            return self.edges_read(now, r, out);
        }
        let req = *req;
        self.drop_edges(r);
        if req.error.is_none() && req.needs_round {
            self.commit.join(r);
        } else {
            self.reply(now, r, req.error.map_or(Ok(()), Err), out);
        }
    }

    /// Answer a request and forget it.
    pub(in crate::engine) fn reply(
        &mut self,
        now: Nanos,
        r: u32,
        result: Result<(), IoError>,
        out: &mut Vec<Effect>,
    ) {
        let req = self.reqs.remove(r);
        let latency = now.since(req.arrived);
        let c = &mut self.counters;
        c.errors += u64::from(result.is_err());
        match req.op {
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
        self.moves.foreground(now, latency, self.params.p99_limit);
        out.push(Effect::Reply {
            tag: req.tag,
            result,
        });
    }

    /// Does the slot survive the loss of the primary? Then the mirror, by which degraded service goes, must know before it is
    /// reused.
    pub(in crate::engine) fn mirror_decides(&self, slot: Slot) -> bool {
        self.commit.has_mirror() && self.space.geo.locate(slot).0 != self.commit.primary()
    }
}
