//! Requests that may not begin yet, because of what classes are promised ([`crate::qos`]).
//!
//! A held request is admitted, numbered and unanswered, and nothing else: it holds no extent, no slot and no operation. So whoever
//! waits for requests at work never waits for it, and a FLUSH, which covers what was answered before, is not touched by it.

use super::{Requests, is_refused_now};
use crate::engine::ground::{Ground, Parts};
use crate::io::{QUIET, Request, RequestOp};
use crate::qos::{Arrival, Scheduler, Spec, Standing};
use crate::units::{Nanos, TierId};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// It is judged again after half a second, if requests come; without any, moves need not yield for long.
const PRESSED: Nanos = Nanos::from_secs(1);

/// The scheduler, where anything is promised.
#[derive(Debug, Default)]
pub(super) struct Admission {
    scheduler: Option<Box<Scheduler>>,
}

/// Does it move data for somebody outside? Only such requests are scheduled.
fn is_scheduled(op: RequestOp, class: u8) -> bool {
    class & QUIET == 0
        && matches!(
            op,
            RequestOp::Read | RequestOp::Write | RequestOp::WriteZeroes { keep: true }
        )
}

/// The tier that will serve an access of the request, as far as is known before it begins.
fn tier_of(g: &Ground, offset: u64) -> TierId {
    let geo = &g.space.geo;
    let slot = g.space.map.fastest(geo.extent_at(offset));
    slot.map_or(geo.slowest(), |s| geo.tier_of(s))
}

impl Admission {
    /// May the request that arrives begin? Else it comes out of [`Requests::begin_held`].
    #[inline]
    pub(super) fn admits(&mut self, g: &Ground, number: u32, req: &Request) -> bool {
        match &mut self.scheduler {
            None => true,
            Some(s) => schedule(s, g, number, req),
        }
    }

    /// A request is answered.
    #[inline]
    pub(super) fn ended(&mut self, g: &mut Ground, number: u32, op: RequestOp, class: u8) {
        if let Some(s) = &mut self.scheduler
            && is_scheduled(op, class)
        {
            s.ended(g.clock, number);
            press(g, s);
        }
    }
}

/// Somebody is behind what was promised: moves go one at a time meanwhile.
fn press(g: &mut Ground, s: &Scheduler) {
    if s.is_pressed() {
        g.pressed_until = g.clock + PRESSED;
    }
}

fn schedule(s: &mut Scheduler, g: &Ground, number: u32, req: &Request) -> bool {
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
    /// Promise that from now on; requests that are here already are scheduled by it too.
    pub(in crate::engine) fn promise(&mut self, g: &Ground, spec: Spec) {
        match &mut self.admission.scheduler {
            // Those at work are nobody's from then on.
            Some(s) if spec.is_empty() && s.held() == 0 => self.admission.scheduler = None,
            Some(s) => s.replace(spec, g.clock),
            None if spec.is_empty() => {}
            none => {
                let s = Scheduler::new(spec, g.space.geo.tiers(), g.clock);
                *none = Some(Box::new(s));
            }
        }
    }

    /// What is promised.
    pub(in crate::engine) fn promised(&self) -> Option<&Spec> {
        self.admission.scheduler.as_ref().map(|s| s.spec())
    }

    /// How it is kept.
    pub(in crate::engine) fn standing(&self, now: Nanos) -> Vec<Standing> {
        let s = self.admission.scheduler.as_ref();
        s.map_or_else(Vec::new, |s| s.standing(now))
    }

    /// Hold nothing any more: the volume closes.
    pub(in crate::engine) fn hold_nothing(&mut self) {
        if let Some(s) = &mut self.admission.scheduler {
            s.open();
        }
    }

    /// When [`Requests::begin_held`] is due.
    #[inline]
    pub(in crate::engine) fn held_due(&self) -> Option<Nanos> {
        self.admission.scheduler.as_ref().and_then(|s| s.wake())
    }

    /// Begin the requests that may, in the order that the scheduler says.
    pub(in crate::engine) fn begin_held(&mut self, p: &mut Parts<'_>) {
        while let Some(s) = &mut self.admission.scheduler {
            let Some(number) = s.next(p.g.clock) else {
                s.asked();
                press(p.g, s);
                if s.held() == 0 && s.spec().is_empty() {
                    self.admission.scheduler = None;
                }
                return;
            };
            let op = self.list.at(number).op;
            match is_refused_now(p.g, op) {
                // It arrived before that was so.
                Some(error) => {
                    self.fail(number, error);
                    self.piece_done(p, number);
                }
                None => self.begin(p, number),
            }
        }
    }
}
