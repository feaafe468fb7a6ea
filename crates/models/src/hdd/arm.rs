//! The choice of the arm's next job, and the work of the buffer in the meantime.

use super::cache::Ahead;
use super::geometry::Place;
use super::{DESTAGE_RUN, DIRTY_RUNS, DestageBy, Dirty, Hdd, JOIN_LOOK, Job, Queued, Running};
use crate::model::ModelOp;

impl Hdd {
    /// The queued command with the shortest positioning time, unless the oldest one has waited too long.
    pub(super) fn choose(&self, t: u64) -> Option<usize> {
        let oldest = self.queue.iter().position(|q| q.op != ModelOp::Standby);
        let Some(oldest) = oldest else {
            return if self.queue.is_empty() { None } else { Some(0) };
        };
        if self.queue.len() == 1 || t.saturating_sub(self.queue[oldest].ready) > self.max_age {
            return Some(oldest);
        }
        let here = self.geometry.turned(t);
        // The nearest command is probably one of the best. Compared with it, most others are ruled out by the duration of their seek alone.
        let mut near = (u32::MAX, oldest);
        for (i, q) in self.queue.iter().enumerate() {
            let distance = self.arm.0.abs_diff(q.place.cylinder);
            if distance < near.0 && q.op != ModelOp::Standby {
                near = (distance, i);
            }
        }
        let mut best = (self.ready_after(&self.queue[near.1], t, here), near.1);
        for (i, q) in self.queue.iter().enumerate() {
            if i == near.1 || q.op == ModelOp::Standby || self.least_after(q, t) > best.0 {
                continue;
            }
            // Of equally good commands the first one is chosen.
            best = best.min((self.ready_after(q, t, here), i));
        }
        Some(best.1)
    }

    /// A time before which `q`'s first byte is neither under the head nor in the buffer: a bound that is quick to find.
    #[inline]
    fn least_after(&self, q: &Queued, t: u64) -> u64 {
        let at = t.max(q.ready);
        if q.held || self.ahead.as_ref().is_some_and(|a| a.may_serve(q.offset)) {
            return at;
        }
        at + self.geometry.least_seek_ns(self.arm.0, q.place.cylinder)
    }

    /// The time until `q`'s first byte can be under the head, or is in the buffer. The platter is at `here` at `t`.
    #[inline]
    fn ready_after(&self, q: &Queued, t: u64, here: u64) -> u64 {
        let at = t.max(q.ready);
        if q.op == ModelOp::Read {
            if q.held {
                return at;
            }
            if let Some(a) = self.ahead_serves(q, at) {
                return a.time_of(&self.geometry, q.offset).max(at);
            }
        }
        let seek = self.reach_ns(q.op, &q.place);
        at + seek + self.geometry.wait_after(here, at - t + seek, q.place.angle)
    }

    /// Moves a command into the queue. Queued commands record whether the buffer holds their data.
    pub(super) fn enqueue(&mut self, mut q: Queued) {
        q.held = q.op == ModelOp::Read && self.segments.holds(q.offset, q.offset + q.len);
        self.queue.push(q);
    }

    /// A range is in the buffer from now on.
    fn remember(&mut self, start: u64, end: u64) {
        let (new, old) = self.segments.add(start, end);
        for q in &mut self.queue {
            let end = q.offset + q.len;
            if q.op != ModelOp::Read {
            } else if new.0 <= q.offset && end <= new.1 {
                q.held = true;
            } else if q.held && old.0 <= q.offset && end <= old.1 {
                q.held = self.segments.holds(q.offset, end);
            }
        }
    }

    /// A range of the buffer is stale from now on.
    fn forget(&mut self, start: u64, end: u64) {
        if self.segments.forget(start, end) {
            for q in self.queue.iter_mut().filter(|q| q.held) {
                q.held = self.segments.holds(q.offset, q.offset + q.len);
            }
        }
    }

    /// Time of the arm movement to `place`, including settling.
    #[inline]
    fn reach_ns(&self, op: ModelOp, place: &Place) -> u64 {
        let seek = self.geometry.seek_ns(self.arm, place);
        // The skew covers a step to the next cylinder including settling, so sequential writes run at the media rate.
        if op == ModelOp::Write && self.arm.0.abs_diff(place.cylinder) > 1 {
            seek + self.write_settle
        } else {
            seek
        }
    }

    fn position(&self, op: ModelOp, place: &Place, at: u64) -> (u64, u64) {
        let seek = self.reach_ns(op, place);
        (seek, self.geometry.rotation_ns(at + seek, place.angle))
    }

    /// The read-ahead in progress, if it has reached `q`'s first byte or is just about to.
    fn ahead_serves(&self, q: &Queued, at: u64) -> Option<Ahead> {
        let a = self.ahead?;
        // A request is mostly far away, and this test is cheap.
        if !a.may_serve(q.offset) {
            return None;
        }
        let reached = a.reached(&self.geometry, at);
        let stopped = reached >= a.limit;
        let serves =
            a.start <= q.offset && q.offset <= reached && (!stopped || q.offset + q.len <= reached);
        serves.then_some(a)
    }

    pub(super) fn begin(&mut self, q: &Queued, t: u64) {
        if q.op == ModelOp::Standby {
            if self.spinning {
                self.stop_ahead(t);
                self.totals.start_stops += 1;
                let begin = t.max(q.ready);
                self.running = Some(Running::spindle(
                    Job::SpinDown,
                    q.id,
                    begin,
                    begin + self.spin_down,
                ));
            } else {
                self.answer(q.id, t.max(q.ready), 0);
            }
            return;
        }
        let at = t.max(q.ready);
        let end = q.offset + q.len;
        if q.op == ModelOp::Read {
            if q.held {
                self.totals.cache_hits += 1;
                self.answer(q.id, at, q.len);
                return;
            }
            if let Some(a) = self.ahead_serves(q, at) {
                self.totals.cache_hits += 1;
                let read = a.time_of(&self.geometry, end);
                if read <= at {
                    self.answer(q.id, at, q.len);
                    self.extend_ahead(end, at);
                } else {
                    let begin = at.max(a.since);
                    // Most of the range may be in the buffer already, but it still has to cross the interface.
                    let finish = read.max(at + self.interface_ns(q.len));
                    let segment = a.start.max(end.saturating_sub(self.segments.bytes_each()));
                    self.running = Some(Running {
                        job: Job::Read,
                        id: q.id,
                        begin,
                        seek_end: begin,
                        finish,
                        end,
                        after: self
                            .geometry
                            .after(&q.place, q.offset, q.len, self.capacity),
                        segment,
                        stream: true,
                    });
                    self.ahead = None;
                }
                return;
            }
        }
        let at = self.stop_ahead(at);
        let job = if q.op == ModelOp::Read {
            Job::Read
        } else {
            Job::Write
        };
        if job == Job::Write {
            self.forget(q.offset, end);
        }
        self.go(job, q.id, q.offset, q.len, &q.place, at);
    }

    fn go(&mut self, job: Job, id: u64, offset: u64, len: u64, place: &Place, at: u64) {
        let op = if job == Job::Read {
            ModelOp::Read
        } else {
            ModelOp::Write
        };
        let (seek, wait) = self.position(op, place, at);
        let distance = self.arm.0.abs_diff(place.cylinder);
        if distance > 0 {
            self.totals.seeks += 1;
            self.totals.seek_distance += u64::from(distance);
        }
        let finish = at + seek + wait + self.geometry.transfer_ns(place, len);
        let end = offset + len;
        self.running = Some(Running {
            job,
            id,
            begin: at,
            seek_end: at + seek,
            finish,
            end,
            after: self.geometry.after(place, offset, len, self.capacity),
            segment: offset,
            stream: job == Job::Read && self.segments.goes_on_at(offset),
        });
    }

    /// Writes back the nearest of the oldest runs. If a FLUSH waits, only runs that it waits for are candidates.
    pub(super) fn begin_destage(&mut self, t: u64) {
        let t = self.stop_ahead(t);
        let flushed = self.flushes.front().map_or(u64::MAX, |f| f.0);
        let here = self.geometry.turned(t);
        let mut best = ((u64::MAX, u64::MAX), 0);
        for (i, d) in self.dirty.iter().take(self.destage_look).enumerate() {
            if d.number > flushed {
                break;
            }
            // As in `choose`: the duration of the seek alone may rule a run out.
            if self.geometry.least_seek_ns(self.arm.0, d.place.cylinder) > best.0.0 {
                continue;
            }
            let seek = self.reach_ns(ModelOp::Write, &d.place);
            let whole = seek + self.geometry.wait_after(here, seek, d.place.angle);
            let cost = match self.destage_by {
                DestageBy::Position => (whole, 0),
                DestageBy::Seek => (seek, whole),
            };
            if cost < best.0 {
                best = (cost, i);
            }
        }
        if let Some(d) = self.dirty.remove(best.1) {
            self.near.remove(d.offset, d.end);
            self.go(Job::Destage, 0, d.offset, d.end - d.offset, &d.place, t);
        }
    }

    /// Ends the read-ahead: the arm leaves, or the range becomes an ordinary segment. Returns when: at `t`, or once the minimum has been
    /// read.
    fn stop_ahead(&mut self, t: u64) -> u64 {
        let mut t = t;
        if let Some(a) = self.ahead.take() {
            // If more commands wait, the drive leaves at once, because reading on would delay each of them.
            if self.queue.len() <= 1 {
                t = t.max(a.time_of(&self.geometry, a.least.min(a.limit)));
            }
            let reached = a.reached(&self.geometry, t);
            self.remember(a.start, reached);
            // In most cases the head is still on the same track.
            if a.place.within + (reached - a.from) >= a.place.track_bytes {
                let p = self.geometry.locate(reached.min(self.capacity - 1));
                self.arm = (p.cylinder, p.track);
            }
        }
        t
    }

    /// A reader has got as far as `end`, so the read-ahead continues to keep the same distance.
    fn extend_ahead(&mut self, end: u64, at: u64) {
        let Some(mut a) = self.ahead else { return };
        let limit = (end + self.read_ahead).min(self.capacity);
        if limit <= a.limit {
            return;
        }
        let reached = a.reached(&self.geometry, at);
        if reached >= a.limit {
            // The read-ahead had stopped, and the platter has turned in the meantime.
            a.place = self.geometry.locate(reached.min(self.capacity - 1));
            a.from = reached;
            a.since = at + self.geometry.rotation_ns(at, a.place.angle);
        }
        a.start = a.start.max(end.saturating_sub(self.segments.bytes_each()));
        a.limit = limit;
        self.ahead = Some(a);
    }

    /// Takes a write into the buffer and answers it, if there is room.
    pub(super) fn cache_write(&mut self, q: &Queued, ready: u64) -> bool {
        let end = q.offset + q.len;
        let joins =
            self.dirty.iter_mut().rev().take(JOIN_LOOK).find(|d| {
                d.offset <= q.offset && q.offset <= d.end && end - d.offset <= DESTAGE_RUN
            });
        let grown = joins.as_ref().map_or(q.len, |d| end.saturating_sub(d.end));
        if self.dirty_bytes + grown > self.dirty_limit {
            return false;
        }
        if let Some(d) = joins {
            self.near.grow(d.offset, d.end, end);
            d.end = d.end.max(end);
        } else if self.dirty.len() < DIRTY_RUNS {
            self.runs += 1;
            self.near.grow(q.offset, q.offset, end);
            self.dirty.push_back(Dirty {
                offset: q.offset,
                end,
                place: self.geometry.locate(q.offset),
                number: self.runs,
            });
        } else {
            return false;
        }
        self.dirty_bytes += grown;
        self.forget(q.offset, end);
        self.drop_ahead_over(q.offset, end);
        self.answer(q.id, ready, 0);
        true
    }

    /// A run is on the platter, so writes that waited for its room enter the buffer.
    pub(super) fn fill_room(&mut self, t: u64) {
        while let Some(q) = self.room.pop_front() {
            if !self.cache_write(&q, t.max(q.ready)) {
                self.room.push_front(q);
                break;
            }
        }
    }

    fn drop_ahead_over(&mut self, offset: u64, end: u64) {
        if self
            .ahead
            .is_some_and(|a| a.start < end && offset < a.limit)
        {
            self.stop_ahead(self.now);
            self.forget(offset, end);
        }
    }
}
