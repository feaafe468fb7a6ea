//! The engine: the only owner of map, moves and commits. Events are its input, effects its output.
//!
//! Invariants: a request is answered only when its guarantee holds on the devices (or, for data that is not yet flushed, in their caches).
//! A byte can only be read from the extent to which it was written.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | the entry points |
//! | `due.rs` | work that is due: by time, and at the end of every event |
//! | `requests/` | requests from arrival to reply |
//! | `relocation/` | moves and copies, and their limits |
//! | `durability/` | rounds, checkpoints, records; slots that are given up and not yet free |
//! | `background/` | work that waits while a disk sleeps; data that another policy leaves behind, or that the user wants on flash |
//! | `globals.rs`, `devices.rs` | the state that all of these use; operations in progress |
//! | `slab.rs`, `../by_number.rs` | tables of work in progress: by a number of its own, by the number of an extent or slot |
//! | `accounts.rs`, `meter.rs` | the devices' work by class; their energy |
//! | `contracts.rs` | relations between counters that tests check in every run |
//! | `switch.rs`, `knobs.rs`, `inspect.rs` | change of the policy, change of settings, inspection |
//!
//! Each part is a struct with private fields. `globals.rs` describes which part may use which.

mod accounts;
mod background;
mod contracts;
mod devices;
mod due;
mod durability;
mod globals;
mod inspect;
mod knobs;
mod meter;
mod params;
mod parts;
mod relocation;
mod requests;
mod slab;
mod switch;
mod waiting;
mod wear;

pub use crate::mutants::{IMPLIED, MUTANTS, Mutant};
pub use background::{
    CleaningTime, Drain, KeptAwake, PER_UNIT_MOST, PowerBudget, SleepPays, StartBudget,
    SwitchError, WARM_RANGES_MAX, WarmEnd, WarmError, Warmed, fits,
};
pub use inspect::{Explained, Memory};
pub use knobs::{KNOBS, Knob, is_knob, knob};
pub use params::Params;
pub use relocation::{EndedMove, RecentMoves};
pub use requests::REQUEST_BYTES_MAX;
pub use wear::WearBudget;

use crate::io::{BufRef, DeviceOp, Effect, IoError, OpId, OpKind, Request};
use crate::policy::{Policy, View};
use crate::qos::{Spec, Standing};
use crate::stats::{CLASSES, ClassCounters, Counters, MemberCounters};
use crate::store::Opened;
use crate::units::{ExtentId, Nanos, Slot};
use crate::volume::UnitClasses;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use background::Background;
use devices::{Devices, Op, What};
use durability::{Durability, RoundEnd};
use globals::{Globals, Phase};
use meter::Meter;
use parts::Parts;
use relocation::Relocation;
use requests::Requests;
use waiting::Waiting;
use wear::Wear;

/// Number of slots that a policy may examine in one call, for an access or in the background: about 20 µs.
const SCAN_BUDGET: u32 = 2048;

/// The volume's engine: see the module.
pub struct Engine {
    globals: Globals,
    requests: Requests,
    relocation: Relocation,
    durability: Durability,
}

impl Engine {
    /// An engine for an opened volume.
    pub fn new(mut opened: Opened, mut policy: Box<dyn Policy>, params: Params) -> Engine {
        let clock = opened.time_base;
        prepare(&mut opened, &params);
        let no_limit = u32::MAX;
        opened.space.keep_order(!policy.fixes_places());
        policy.attach(&mut View::new(&mut opened.space, clock, 0, false, no_limit));
        let mut durability = Durability::new(&opened, &params);
        let mut space = opened.space;
        space.map.regions_mut().cover(durability.covered());
        let n = space.geo.members.len();
        let wear = Wear::new(&params, space.geo.extent_bytes(), clock);
        let meter = Meter::new(&params.costs, &space.geo, clock);
        let mut devices = Devices::new(params.pass_discards, wear, meter, clock);
        for &m in &opened.report.missing {
            devices.of(m).missing = true;
        }
        let counters = Counters {
            members: vec![MemberCounters::default(); n],
            classes: vec![ClassCounters::default(); CLASSES],
            ..Counters::default()
        };
        let mut globals = Globals {
            background: Background::new(&params, &*policy, &space, clock),
            space,
            policy,
            proposals: Vec::with_capacity(64),
            policy_due: true,
            counters,
            devices,
            waiting: Waiting::default(),
            phase: Phase::Running,
            failed: false,
            cache_lost: false,
            yield_until: Nanos(0),
            learned: UnitClasses::default(),
            steps: 0,
            clock,
            out: Vec::new(),
            params,
        };
        globals.set_power();
        for &e in &opened.report.dropped {
            durability.note(&globals, e);
        }
        let has_room = opened.superblock.has_room_for_copies();
        Engine {
            requests: Requests::new(&opened.report),
            relocation: Relocation::new(&globals.params, n, has_room),
            durability,
            globals,
        }
    }

    fn parts(&mut self) -> (&mut Requests, Parts<'_>) {
        let parts = Parts {
            globals: &mut self.globals,
            durability: &mut self.durability,
            relocation: &mut self.relocation,
        };
        (&mut self.requests, parts)
    }

    /// Handles an event at `now` with `what`, which also does the work that has become due (`upkeep`).
    #[inline]
    fn event(&mut self, now: Nanos, out: &mut Vec<Effect>, what: impl FnOnce(&mut Engine)) {
        core::mem::swap(&mut self.globals.out, out);
        self.globals.set_time(now);
        what(self);
        core::mem::swap(&mut self.globals.out, out);
    }

    /// A request arrived.
    pub fn submit(&mut self, now: Nanos, req: Request, out: &mut Vec<Effect>) {
        self.event(now, out, |me| {
            let (requests, mut parts) = me.parts();
            requests.arrive(&mut parts, req);
            me.end_event();
        });
    }

    /// A device operation has ended. `result` is the number of transferred bytes, or an error.
    pub fn complete(
        &mut self,
        now: Nanos,
        id: OpId,
        result: Result<u32, IoError>,
        out: &mut Vec<Effect>,
    ) {
        self.event(now, out, |me| {
            if me.completed(id, result) {
                me.end_event();
            }
        });
    }

    /// Handles the end of a device operation. Returns false if the transfer was short and the rest of it was issued.
    fn completed(&mut self, id: OpId, result: Result<u32, IoError>) -> bool {
        let g = &mut self.globals;
        let op = g.devices.ended(id);
        let i = op.member();
        // Metadata writes do not count as use of the device. Otherwise the round that records first touches, one commit interval later,
        // would restart the standby timer of a disk that no request has used since then.
        let background = if g.background.has_sleep_mode() {
            self.relocation.is_background(op.what)
        } else {
            matches!(op.what, What::Round)
        };
        if !background {
            g.devices.members[i].last_used = g.clock;
        }
        let whole = result.map(|n| n >= op.op.len || g.broken(Mutant::TrustShortTransfer));
        let joined = matches!(op.what, What::Move { count: 2.., .. });
        let apart =
            joined && whole != Ok(true) && !(whole == Ok(false) && g.broken(Mutant::TrustTornJoin));
        if whole == Ok(false) && !joined {
            // After a short transfer, the rest is issued again, from the block in which the device stopped. A transfer that did not
            // complete its first block is an error; otherwise it would be repeated for ever.
            let n = result.unwrap_or(0) & !(g.space.geo.block_bytes() - 1);
            if n > 0 && matches!(op.op.kind, OpKind::Read | OpKind::Write) {
                if let What::Data { req, .. } = op.what {
                    debug_assert!(self.requests.is_known(req));
                }
                g.resume(id, &op, n);
                return false;
            }
        }
        g.devices.remove(id);
        g.note_woken(&op);
        let (took, energy_nj) = g.measure(&op);
        self.relocation.learn_join(g, &op, took);
        self.relocation.charge(g, &op, (took, energy_nj));
        let failed = whole.is_err() || (whole == Ok(false) && !joined);
        g.counters.members[i].errors += u64::from(failed);
        if apart {
            self.relocation.repeat_apart(g, &mut self.durability, &op);
            return true;
        }
        let result = match whole {
            Err(e) => Err(e),
            Ok(_) if failed => Err(IoError::Io),
            Ok(_) => Ok(()),
        };
        self.ended(&op, result);
        true
    }

    /// A device operation has ended completely.
    fn ended(&mut self, op: &Op, result: Result<(), IoError>) {
        let (requests, mut p) = self.parts();
        match op.what {
            What::Data { .. } => requests.data_done(&mut p, op, result),
            What::Fill { .. } => Requests::filled(&mut p, op, result),
            What::Move { .. } => p.relocation.moves_done(p.globals, p.durability, op, result),
            What::Round => {
                if op.op.kind == OpKind::Flush && p.globals.broken(Mutant::ForgetLateWrite) {
                    p.globals.devices.members[op.member()].unflushed = false;
                }
                let end = p.durability.round_step(p.globals, &op.op, result);
                self.round_ended(end);
            }
            What::Trim { slot } => {
                // Discards are only hints: a device that refuses one gets no more of them.
                p.globals.devices.members[op.member()].trims &= result.is_ok();
                p.durability.trimmed(p.globals, slot);
            }
            // The disk did not go to sleep.
            What::Standby if result.is_err() => p.globals.set_asleep(op.member(), false),
            What::Standby => {}
        }
    }

    /// Handles the end of a round.
    fn round_ended(&mut self, how: RoundEnd) {
        let (
            requests,
            Parts {
                globals: g,
                durability: d,
                relocation: r,
            },
        ) = self.parts();
        match how {
            RoundEnd::Going => {}
            RoundEnd::Durable { moves_took } => {
                if let Some(time) = moves_took {
                    r.round_took(g.clock, time);
                }
                r.flip_committed(g, d);
                r.write_withdrawn(g, d);
                d.release_durable(g);
                let more = d.serve(g.broken(Mutant::ServeLateFlush), |id| {
                    let latency = requests.reply(g, id, Ok(()));
                    r.note_latency(g, latency);
                });
                d.keep_waiting(g, |g, id| {
                    let latency = requests.reply(g, id, Ok(()));
                    r.note_latency(g, latency);
                });
                if !more {
                    d.consider_wait(g);
                }
            }
            RoundEnd::Failed if g.params.outlives_cache && d.failed_only_on(|m| g.is_cache(m)) => {
                g.cache_lost = true;
            }
            RoundEnd::Failed => self.give_up(),
        }
    }

    /// After a failed round: nothing can be guaranteed any more.
    fn give_up(&mut self) {
        let (
            _,
            Parts {
                globals: g,
                durability: d,
                relocation: r,
            },
        ) = self.parts();
        g.failed = true;
        // No more slots will be freed, so a piece that waits for one is tried again and gets an error.
        g.waiting.slot_freed();
        r.abandon_committing(g, d);
        g.failed = !g.broken(Mutant::ForgetFailedFlush);
        self.dismiss();
        self.globals.waiting.try_all();
    }

    /// Whether flash of a cache volume failed while nothing else did ([`Params::outlives_cache`]). No request is answered from then on, and no
    /// operation begins. The owner waits until those in progress have ended, without passing their ends to this engine, and then begins with
    /// another engine ([`crate::store::salvage`]) or calls [`Engine::go_on_without_guarantee`].
    pub fn has_lost_cache(&self) -> bool {
        self.globals.cache_lost
    }

    /// After [`Engine::has_lost_cache`]: whether a flush of flash failed, so that what is read there may be older than what was answered.
    pub fn has_lost_flush(&self) -> bool {
        self.durability.flush_failed()
    }

    /// After [`Engine::has_lost_cache`]: the same as if the round had failed without that. Requests that wait for it get an error, and reads go on.
    pub fn go_on_without_guarantee(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        self.event(now, out, |me| {
            if core::mem::take(&mut me.globals.cache_lost) {
                me.give_up();
                me.end_event();
            }
        });
    }

    /// Answers the requests that wait for a round, because there will be none. After a failure they get an error. On a read-only volume
    /// they succeed, because nothing was written.
    fn dismiss(&mut self) {
        let (
            requests,
            Parts {
                globals: g,
                durability: d,
                relocation: r,
            },
        ) = self.parts();
        let failed = g.failed && !g.broken(Mutant::ForgetFailedFlush);
        let result = if failed { Err(IoError::Io) } else { Ok(()) };
        d.dismiss(|id| {
            let latency = requests.reply(g, id, result);
            r.note_latency(g, latency);
        });
    }

    /// Makes the volume full from the start: every extent without a home gets one where the policy places first touches, with all of its
    /// blocks valid. Only for a world that keeps no bytes (the lab), before the first request. Nothing of this is recorded in the journal.
    pub fn fill(&mut self) {
        let (_, p) = self.parts();
        for e in (0..p.globals.space.geo.extents).map(ExtentId) {
            if p.globals.space.map.home(e).is_some() {
                continue;
            }
            let (policy, mut view, _) = p.relocation.ask(p.globals, p.durability, 0);
            let place = policy.first_touch(&mut view, e);
            let Some(slot) = p.globals.space.take_home(e, place) else {
                continue;
            };
            p.globals.space.map.map(e, slot, false);
            p.globals.check_place(slot, false);
            let (policy, mut view, _) = p.relocation.ask(p.globals, p.durability, 0);
            policy.on_placed(&mut view, e, slot.into());
        }
    }

    /// A hint that byte `offset` will be requested soon: loads its row of the map into the cache. This helps a caller that knows many
    /// requests in advance, because the misses of their rows then overlap; it does not change the engine's decisions.
    #[inline]
    pub fn expect(&self, offset: u64) {
        let space = &self.globals.space;
        let e = space.geo.extent_at(offset);
        if e.0 < space.geo.extents {
            core::hint::black_box(space.map.fastest(e));
        }
    }

    /// Sets the class of the data in `extent` (0…63; 0: unknown) until the next call for this extent. A class in a request has precedence.
    /// The policy is informed. The class is kept in memory only.
    pub fn reclassify(&mut self, now: Nanos, extent: ExtentId, class: u8, out: &mut Vec<Effect>) {
        self.reclassify_blocks(now, extent, class, &[], out);
    }

    /// As [`Engine::reclassify`], with the classes of the extent's parts: the number of pieces of 4 KiB and their class, from the first piece
    /// on. If the policy keeps the classes of copies, these replace what it knows about the extent's copy; `class` is the best of them.
    /// Without `runs`, or if the policy does not keep them, only `class` counts.
    pub fn reclassify_blocks(
        &mut self,
        now: Nanos,
        extent: ExtentId,
        class: u8,
        runs: &[(u32, u8)],
        out: &mut Vec<Effect>,
    ) {
        self.event(now, out, |me| {
            let space = &mut me.globals.space;
            let changed = space.set_class(extent, class);
            if changed || !runs.is_empty() && space.keeps_classes_of(extent) {
                space.map.set_classes(extent, class, runs);
                let (_, p) = me.parts();
                let (policy, mut view, wanted) =
                    p.relocation.ask(p.globals, p.durability, SCAN_BUDGET);
                policy.on_reclassified(&mut view, extent, class, wanted);
                me.end_event();
            }
        });
    }

    /// Replaces all promises to classes ([`crate::qos`]); call [`Engine::tick`] afterwards. The promises are kept in memory only.
    pub fn promise(&mut self, spec: Spec) {
        self.requests.promise(&self.globals, spec);
    }

    /// The promises to classes; `None`: there are none.
    pub fn promised(&self) -> Option<&Spec> {
        self.requests.promised()
    }

    /// Whether each promise is kept: one entry for each promise, then one for the classes without a promise. Empty if there are no
    /// promises.
    pub fn standing(&self, now: Nanos) -> Vec<Standing> {
        self.requests.standing(now)
    }

    /// Closes the volume: no more requests will come. Completes the requests in progress and writes all state.
    pub fn close(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        self.event(now, out, |me| {
            if me.globals.phase == Phase::Running {
                me.globals.phase = Phase::Closing;
                let (requests, p) = me.parts();
                requests.stop_holding();
                p.relocation.cancel_all(p.globals, p.durability);
                me.end_event();
            }
        });
    }

    /// Whether the volume is closed: nothing is in progress, and everything that can become durable is durable.
    pub fn is_closed(&self) -> bool {
        self.globals.phase == Phase::Closed
    }
    /// Removes a safety rule from a running engine.
    #[cfg(feature = "mutants")]
    pub fn break_rule(&mut self, m: Mutant) {
        self.globals.params.mutant = Some(m);
    }

    /// Whether a flush or metadata write has failed, so that no guarantee can be given any more.
    pub fn has_failed(&self) -> bool {
        self.globals.failed
    }

    /// The bytes of a metadata write in progress.
    pub fn meta(&self, op: &DeviceOp) -> &[u8] {
        match self.globals.devices.get(op.id) {
            Some(o) if op.buf == BufRef::Meta => self.durability.meta_bytes(o.meta(), op.len),
            _ => &[],
        }
    }

    /// The block of the journal for [`Effect::Keep`].
    pub fn kept_block(&self, seq: u64) -> &[u8] {
        self.durability.kept_block(seq)
    }
}

/// Applies the parameters that concern the space: slots that must not be allocated, the costs of tiers.
fn prepare(opened: &mut Opened, params: &Params) {
    let space = &mut opened.space;
    if params.own_slots {
        space.keep_own();
    }
    if let Some(most) = params.partial_max {
        space.map.limit_partial(most);
    }
    space.loads.start_with(&params.costs);
    if params.unread_metadata {
        space.map.index_rows();
    }
    if params.read_only || params.breaks(Mutant::HandOutLost) {
        return;
    }
    for m in &opened.report.missing {
        let m = &space.geo.members[usize::from(m.0)];
        (m.first_slot..m.first_slot + m.slots).for_each(|s| space.slots.withdraw(Slot(s)));
    }
}
