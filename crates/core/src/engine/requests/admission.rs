//! Requests that may not begin yet because of promises to classes ([`crate::qos`]).
//!
//! A held request has a number and is not answered yet, and that is all: it holds no extent, no slot and no operation. So no request in
//! progress ever waits for a held one. A FLUSH is not affected either, because it covers only requests that were answered before it.

use super::{Requests, is_refused_now};
use crate::engine::globals::Globals;
use crate::engine::parts::Parts;
use crate::io::{QUIET, Request, RequestOp};
use crate::qos::{Arrival, Scheduler, Spec, Standing};
use crate::units::{Nanos, TierId};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Time for which moves yield after a promise was found not kept. If requests come, promises are checked every half second, which extends
/// this time; without requests, moves need not yield for long.
const YIELD_TIME: Nanos = Nanos::from_secs(1);

/// The scheduler, if there are promises.
#[derive(Debug, Default)]
pub(super) struct Admission {
    scheduler: Option<Box<Scheduler>>,
}

/// Whether a request transfers data for a client. Only such requests are scheduled.
fn is_scheduled(op: RequestOp, class: u8) -> bool {
    class & QUIET == 0
        && matches!(
            op,
            RequestOp::Read | RequestOp::Write | RequestOp::WriteZeroes { keep: true }
        )
}

/// The tier that will serve an access of the request, as far as is known before it begins.
fn tier_of(g: &Globals, offset: u64) -> TierId {
    let geo = &g.space.geo;
    let slot = g.space.map.fastest(geo.extent_at(offset));
    slot.map_or(geo.slowest(), |s| geo.tier_of(s))
}

impl Admission {
    /// Whether the arriving request may begin. If not, [`Requests::begin_held`] begins it later.
    #[inline]
    pub(super) fn admits(&mut self, g: &Globals, number: u32, req: &Request) -> bool {
        match &mut self.scheduler {
            None => true,
            Some(s) => schedule(s, g, number, req),
        }
    }

    /// A request was answered.
    #[inline]
    pub(super) fn ended(&mut self, g: &mut Globals, number: u32, op: RequestOp, class: u8) {
        if let Some(s) = &mut self.scheduler
            && is_scheduled(op, class)
        {
            s.ended(g.clock, number);
            limit_moves(g, s);
        }
    }
}

/// While a promise is not kept, at most one move is in progress at a time.
fn limit_moves(g: &mut Globals, s: &Scheduler) {
    if s.misses_guarantee() {
        g.yield_until = g.clock + YIELD_TIME;
    }
}

fn schedule(s: &mut Scheduler, g: &Globals, number: u32, req: &Request) -> bool {
    if !is_scheduled(req.op, req.class) {
        return true;
    }
    let tier = tier_of(g, req.offset);
    let write = req.op != RequestOp::Read;
    let cost = g.space.loads.cost(tier);
    let arrival = Arrival {
        number,
        class: g
            .space
            .class_of(req.class, g.space.geo.extent_at(req.offset)),
        tier,
        bytes: req.len,
        work: cost.time(write, false, req.len),
    };
    s.admit(g.clock, arrival)
}

impl Requests {
    /// Sets the promises. Requests that have already arrived are scheduled by them, too.
    pub(in crate::engine) fn promise(&mut self, g: &Globals, spec: Spec) {
        match &mut self.admission.scheduler {
            // From then on, requests in progress are no longer counted.
            Some(s) if spec.is_empty() && s.held() == 0 => self.admission.scheduler = None,
            Some(s) => s.replace(spec, g.clock),
            None if spec.is_empty() => {}
            none => {
                let s = Scheduler::new(spec, g.space.geo.tiers(), g.clock);
                *none = Some(Box::new(s));
            }
        }
    }

    /// The promises.
    pub(in crate::engine) fn promised(&self) -> Option<&Spec> {
        self.admission.scheduler.as_ref().map(|s| s.spec())
    }

    /// Whether each promise is kept.
    pub(in crate::engine) fn standing(&self, now: Nanos) -> Vec<Standing> {
        let s = self.admission.scheduler.as_ref();
        s.map_or_else(Vec::new, |s| s.standing(now))
    }

    /// Releases all held requests, because the volume closes.
    pub(in crate::engine) fn stop_holding(&mut self) {
        if let Some(s) = &mut self.admission.scheduler {
            s.open();
        }
    }

    /// The time at which [`Requests::begin_held`] is due.
    #[inline]
    pub(in crate::engine) fn held_due(&self) -> Option<Nanos> {
        self.admission.scheduler.as_ref().and_then(|s| s.wake())
    }

    /// Begins the requests that may begin, in the order of the scheduler.
    pub(in crate::engine) fn begin_held(&mut self, p: &mut Parts<'_>) {
        while let Some(s) = &mut self.admission.scheduler {
            let Some(number) = s.next(p.globals.clock) else {
                s.asked();
                limit_moves(p.globals, s);
                if s.held() == 0 && s.spec().is_empty() {
                    self.admission.scheduler = None;
                }
                return;
            };
            let op = self.list.at(number).op;
            match is_refused_now(p.globals, op) {
                // When it arrived, there was no reason yet to refuse it.
                Some(error) => {
                    self.fail(number, error);
                    self.piece_done(p, number);
                }
                None => self.begin(p, number),
            }
        }
    }
}
