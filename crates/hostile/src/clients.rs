//! The requests of clients, and checks of the answers.

use super::run::{Run, Shape};
use super::truth::{self, CELL, Change, Expect};
use super::world::Hostile;
use isotherm_core::geometry::Kind;
use isotherm_core::{Engine, Request, RequestOp, Tag};
use std::collections::BTreeMap;

/// A request in flight.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    Read {
        from: usize,
        head: usize,
        expect: Expect,
    },
    Change {
        from: usize,
        to: usize,
        version: u64,
        fua: bool,
    },
    Flush {
        moment: u64,
    },
}

impl Run {
    /// Makes the next request, unless a request in progress excludes it.
    #[expect(clippy::too_many_lines, reason = "one scenario")]
    pub(super) fn request(
        &mut self,
        world: &mut Hostile,
        tag: Tag,
        volume: u64,
    ) -> Option<(Request, Pending)> {
        let cells = (volume / CELL as u64) as usize;
        let flush = |tag| Request {
            tag,
            op: RequestOp::Flush,
            offset: 0,
            len: 0,
            fua: false,
            class: 0,
        };
        let kind = self.rng.below(20);
        if kind < 2 {
            world.give(tag, 0, 0, None);
            return Some((
                flush(tag),
                Pending::Flush {
                    moment: self.truth.moment(),
                },
            ));
        }
        // Most requests touch a small, hot part of the volume. They are whole blocks, unaligned cells, or several extents.
        let span = if self.rng.one_in(2) { cells / 4 } else { cells };
        let (mut from, mut len) = match self.rng.below(6) {
            0 => (
                self.rng.below(span as u64) as usize,
                1 + self.rng.below(20) as usize,
            ),
            1 => (
                self.rng.below(span as u64 / 64) as usize * 64,
                64 * (1 + self
                    .rng
                    .below(if self.s.shape == Shape::Large { 120 } else { 3 })
                    as usize),
            ),
            _ => (
                self.rng.below(span as u64 / 8) as usize * 8,
                8 * (1 + self.rng.below(6) as usize),
            ),
        };
        from = from.min(cells - 1);
        len = len.min(cells - from);
        let mut to = from + len;
        let (offset, bytes) = ((from * CELL) as u64, (len * CELL) as u32);
        let (head, aligned) = (from % 8 * CELL, (to.div_ceil(8) * 8 - from / 8 * 8) * CELL);
        let mut req = Request {
            tag,
            op: RequestOp::Read,
            offset,
            len: bytes,
            fua: false,
            class: 0,
        };
        if kind < 8 {
            world.give(tag, aligned, head, None);
            return Some((
                req,
                Pending::Read {
                    from,
                    head,
                    expect: self.truth.expect(from, to),
                },
            ));
        }
        let zero = kind >= 17;
        if zero {
            // A discard applies only to the whole blocks in its range; the expectations are cut in the same way.
            (from, to) = (from.div_ceil(8) * 8, to / 8 * 8);
            if from >= to {
                return None;
            }
            req.op = match kind {
                17 => RequestOp::WriteZeroes { keep: true },
                18 => RequestOp::WriteZeroes { keep: false },
                _ => RequestOp::Discard,
            };
            if kind != 19 {
                (req.offset, req.len) = ((from * CELL) as u64, ((to - from) * CELL) as u32);
            }
        } else {
            req.op = RequestOp::Write;
        }
        // Some writes race with other writes of the same cells.
        let race = !zero && self.truth.may_race(from, to) && self.rng.one_in(2);
        if self.truth.is_busy(from, to) && !race {
            return None;
        }
        // (A write that is durable by itself raises no counter, and the scenarios with older copies rely on the counters of rounds.)
        req.fua = self.rng.one_in(6) && req.op != RequestOp::Discard && !self.s.rollback;
        let change = match req.op {
            RequestOp::Discard if self.sb.kind == Kind::Cache => Change::Forget,
            _ if zero => Change::Zero,
            _ => Change::Write,
        };
        let version = self.truth.issue(from, to, change);
        let payload = (!zero).then(|| {
            (from..to)
                .flat_map(|c| truth::content(c, version))
                .collect()
        });
        world.give(tag, aligned, head, payload);
        Some((
            req,
            Pending::Change {
                from,
                to,
                version,
                fua: req.fua,
            },
        ))
    }

    /// Whether a request may fail on healthy devices: it reads what was lost, perhaps the rest of a block that it writes in part. (A read is
    /// of whole blocks.)
    fn may_fail(&self, p: &Pending) -> bool {
        match p {
            Pending::Read { from, expect, .. } => {
                let (a, z) = (from / 8 * 8, (from + expect.len()).next_multiple_of(8));
                let around = self.truth.expect(a, z);
                self.truth.may_fail(*from, expect) || self.truth.may_fail(a, &around)
            }
            Pending::Change { from, to, .. } => {
                let mut blocks = from / 8 * 8..to.next_multiple_of(8);
                blocks.any(|c| self.truth.was_lost(c))
            }
            Pending::Flush { .. } => false,
        }
    }

    /// Checks the answers that have arrived.
    pub(super) fn settle(
        &mut self,
        engine: &Engine,
        world: &mut Hostile,
        flying: &mut BTreeMap<Tag, Pending>,
    ) -> Result<(), String> {
        for (tag, result) in world.take_replies() {
            let data = world.take(tag);
            self.counts.answered += 1;
            let d = &mut self.counts.digest;
            *d = (*d ^ u64::from(tag.0) ^ (u64::from(result.is_ok()) << 40))
                .wrapping_mul(0x100_0000_01b3)
                .rotate_left(7);
            let Some(p) = flying.remove(&tag) else {
                return Err(format!("{tag:?} answered twice"));
            };
            let faulty = self.s.faults.data_errors > 0
                || self.s.faults.meta_errors > 0
                || self.s.faults.short > 0;
            if let (Err(e), false) = (result, faulty || self.may_fail(&p)) {
                return Err(format!("{p:?} failed with {e:?} on healthy devices"));
            }
            match p {
                Pending::Read { from, head, expect } => {
                    if result.is_ok() {
                        self.truth.check_read(from, &expect, &data[head..])?;
                    }
                }
                Pending::Change {
                    from,
                    to,
                    version,
                    fua,
                } => {
                    self.truth.answered(from, to, version, result.is_ok());
                    if fua && result.is_ok() {
                        self.truth.forced(from, to);
                    }
                }
                Pending::Flush { moment } => match result {
                    Ok(()) => self.truth.flushed(moment),
                    Err(_) if !engine.has_failed() => {
                        return Err(String::from("a flush failed, but the volume did not"));
                    }
                    Err(_) => {}
                },
            }
        }
        Ok(())
    }
}
