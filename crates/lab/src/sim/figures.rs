//! The figures of a run with devices: the differences between two snapshots of all counters.

use std::collections::BTreeMap;

use isotherm_core::stats::{Counters, MemberCounters};
use isotherm_core::{Engine, MemberId, Nanos};
use isotherm_models::{Counters as DeviceCounters, PowerState};

use super::cost;
use super::report::{ClassReport, MemberUsage, MixedCopies, MoveReport, Report, Usage};
use super::setup::{Setup, span_name};
use super::shape::{Drive, Place, Shape};
use super::world::{ClassSum, Mark, Sums, World};
use isotherm_models::cost::Used;

/// The volume that a run has played on.
#[derive(Clone, Copy)]
pub(super) struct Played<'a> {
    pub setup: &'a Setup,
    pub shape: &'a Shape,
    pub drives: &'a [Drive<'a>],
}

/// The two snapshots between which figures count.
#[derive(Clone, Copy)]
pub(super) struct Between<'a> {
    begin: &'a Mark,
    end: &'a Mark,
}

impl<'a> Between<'a> {
    pub fn new(begin: &'a Mark, end: &'a Mark) -> Between<'a> {
        Between { begin, end }
    }

    fn elapsed_s(&self) -> f64 {
        (self.end.now - self.begin.now) as f64 / 1e9
    }

    /// Growth of a counter of the engine.
    fn engine(&self, f: impl Fn(&Counters) -> u64) -> u64 {
        f(&self.end.counters) - f(&self.begin.counters)
    }

    /// Growth of a counter of a member, as the engine counts.
    fn member(&self, i: usize, f: impl Fn(&MemberCounters) -> u64) -> u64 {
        self.engine(|c| f(&c.members[i]))
    }

    /// Growth of a counter of a member's device model.
    fn device(&self, i: usize, f: impl Fn(&DeviceCounters) -> u64) -> u64 {
        f(&self.end.devices[i]) - f(&self.begin.devices[i])
    }

    /// The outcomes of the policy's proposals, by kind of move.
    fn moves(&self) -> BTreeMap<String, MoveReport> {
        let (c, w) = (&self.end.counters, &self.begin.counters);
        [
            ("promotions", &c.promotions, &w.promotions),
            ("demotions", &c.demotions, &w.demotions),
            ("fetches", &c.fetches, &w.fetches),
            ("evictions", &c.evictions, &w.evictions),
            ("writebacks", &c.writebacks, &w.writebacks),
        ]
        .map(|(name, a, b)| (name.to_owned(), MoveReport::new(a, b)))
        .into()
    }

    /// Figures by class, without the classes that no request had.
    fn by_class(&self, sums: &[ClassSum]) -> BTreeMap<String, ClassReport> {
        let (ends, begins) = (&self.end.counters.classes, &self.begin.counters.classes);
        let classes = ends.iter().zip(begins).zip(sums).enumerate();
        classes
            .filter(|(_, (_, sum))| sum.requests > 0)
            .map(|(i, ((a, b), sum))| {
                let class = ClassReport {
                    accesses: a.accesses - b.accesses,
                    fast_hits: a.fast_hits - b.fast_hits,
                    requests: sum.requests,
                    bytes: sum.bytes,
                    time_s: Some(sum.time_ns as f64 / 1e9),
                    used: Some(Used::between(a.work.as_deref(), b.work.as_deref())),
                };
                (i.to_string(), class)
            })
            .collect()
    }
}

impl Played<'_> {
    /// The figures of the run between two snapshots.
    pub fn report(&self, engine: &Engine, world: &World<'_>, between: Between<'_>) -> Report {
        let work = work(&world.sums, between);
        let asleep = engine.is_sleep_aware();
        Report {
            policy: self.setup.policy.to_string(),
            extent_bytes: self.setup.extent_bytes,
            fast_bytes: self.shape.fast_bytes,
            settings: self.setup.settings.iter().cloned().collect(),
            sleep_postponed: asleep.then(|| between.engine(|c| c.sleep_postponed)),
            wake_waits: asleep.then(|| between.engine(|c| c.wake_waits)),
            starts_left: self.starts_left(engine, between),
            power_budget_left_j: engine
                .power_budget(Nanos(between.end.now))
                .map(|b| b.left_uj as f64 / 1e6),
            wear_budget_left_bytes: engine.wear_budget().map(|b| b.left_bytes),
            mixed_copies: MixedCopies::of(engine.space()),
            qos: isotherm_words::qos::items(&self.setup.qos),
            seed: self.setup.seed,
            warm_up: self.setup.warm_up,
            full: self.setup.begin.full,
            digest: world.digest.text(),
            ..self.resources(between, placement(between, work))
        }
    }

    /// For each member with a budget of starts, the number of starts that are left.
    fn starts_left(&self, engine: &Engine, between: Between<'_>) -> BTreeMap<String, f64> {
        let left = |(i, p): (usize, &Place)| {
            let budget = engine.start_budget(MemberId(i as u8), Nanos(between.end.now))?;
            Some((p.name.clone(), budget.left()))
        };
        let members = self.shape.members.iter().enumerate();
        members.filter_map(left).collect()
    }

    /// Adds the resources that were used to `report`.
    fn resources(&self, between: Between<'_>, report: Report) -> Report {
        let usage = self.usage(between);
        let energy_j = usage.host_j + usage.members.values().map(|m| m.energy_j).sum::<f64>();
        let mean_power_w = if usage.elapsed_s > 0.0 {
            energy_j / usage.elapsed_s
        } else {
            0.0
        };
        let of_fast = |f: fn(&MemberCounters) -> u64| {
            let fast = |(i, _): &(usize, &Place)| self.shape.members[*i].tier == 0;
            let members = self.shape.members.iter().enumerate().filter(fast);
            members.map(|(i, _)| between.member(i, f)).sum::<u64>()
        };
        let (c, w) = (&between.end.counters, &between.begin.counters);
        let wear = usage.members.iter().map(|(k, m)| (k.clone(), m.wear_eu));
        Report {
            energy_j: Some(energy_j),
            mean_power_w: Some(mean_power_w),
            spin_downs: Some(between.engine(|c| c.members.iter().map(|m| m.spin_downs).sum())),
            fast_read_bytes: Some(of_fast(|m| m.bytes_read)),
            fast_write_bytes: Some(of_fast(|m| m.bytes_written)),
            wear_eu: Some(wear.collect()),
            own_work: Some(Used::between(Some(&c.own_work), Some(&w.own_work))),
            cost: cost::of(&usage),
            usage: Some(usage),
            ..report
        }
    }

    /// The resources that each member used.
    pub fn usage(&self, between: Between<'_>) -> Usage {
        let elapsed_s = between.elapsed_s();
        let members = self.shape.members.iter().zip(self.drives).enumerate();
        Usage {
            elapsed_s,
            host_w: self.setup.host_w,
            host_j: self.setup.host_w * elapsed_s,
            members: members
                .map(|(i, (p, d))| (p.name.clone(), member_usage(i, p, d, between)))
                .collect(),
        }
    }
}

/// A report with the requests and their latencies.
fn work(sums: &Sums, between: Between<'_>) -> Report {
    let elapsed_s = between.elapsed_s();
    let per_second = |x: f64| if elapsed_s > 0.0 { x / elapsed_s } else { 0.0 };
    let latency = |q: f64| Some(sums.latency.quantile(q).as_secs_f64());
    Report {
        requests: sums.requests,
        reads: sums.reads,
        writes: sums.writes,
        bytes_read: sums.bytes_read,
        bytes_written: sums.bytes_written,
        elapsed_s: Some(elapsed_s),
        throughput_iops: Some(per_second(sums.requests as f64)),
        throughput_bytes_per_s: Some(per_second((sums.bytes_read + sums.bytes_written) as f64)),
        latency_mean_s: Some(sums.latency.mean().as_secs_f64()),
        latency_p50_s: latency(0.5),
        latency_p95_s: latency(0.95),
        latency_p99_s: latency(0.99),
        latency_p999_s: latency(0.999),
        ram_read_bytes: Some(sums.from_moves),
        zero_read_bytes: Some(sums.zeros),
        by_class: between.by_class(&sums.classes),
        ..Report::default()
    }
}

/// Adds the hits and moves to `report`.
fn placement(between: Between<'_>, report: Report) -> Report {
    let accesses = between.engine(|c| c.accesses);
    let hits = between.engine(|c| c.tier_hits[0]);
    let served = hits + between.engine(|c| c.placed_fast);
    let moves = between.moves();
    Report {
        fast_hit_ratio: hits as f64 / accesses.max(1) as f64,
        fast_served_ratio: served as f64 / accesses.max(1) as f64,
        accesses,
        promotions: between.engine(|c| c.promotions.done),
        demotions: between.engine(|c| c.demotions.done),
        fetches: between.engine(|c| c.fetches.done),
        evictions: between.engine(|c| c.evictions.done),
        writebacks: between.engine(|c| c.writebacks.done),
        refused: moves.values().flat_map(|m| m.refused.values()).sum(),
        moves: Some(moves),
        migrated_bytes: between
            .engine(|c| c.migrated_bytes + c.fetched_bytes + c.written_back_bytes),
        sleep_batches: Some(between.engine(|c| c.sleep_batches)),
        sleep_limits: Some(between.engine(|c| c.sleep_limits)),
        ..report
    }
}

fn member_usage(i: usize, p: &Place, d: &Drive<'_>, between: Between<'_>) -> MemberUsage {
    let (end, begin) = (&between.end.devices[i], &between.begin.devices[i]);
    let (wear, worn) = (&between.end.wear[i], &between.begin.wear[i]);
    let seconds = |f: fn(&DeviceCounters) -> u64| between.device(i, f) as f64 / 1e9;
    let elapsed_s = between.elapsed_s();
    let energy_j = end.energy_j() - begin.energy_j();
    let flash = wear.flash_eu.zip(worn.flash_eu);
    MemberUsage {
        preset: d.sheet.name.clone(),
        kind: d.sheet.kind().to_owned(),
        tier: p.tier,
        bytes: d.reach(),
        capacity_bytes: d.sheet.capacity(),
        span: span_name(d.device.options.span),
        energy_j,
        energy_estimate_j: (between.end.estimates[i].zip(between.begin.estimates[i]))
            .map(|(end, begin)| end - begin),
        mean_power_w: if elapsed_s > 0.0 {
            energy_j / elapsed_s
        } else {
            0.0
        },
        wear_eu: wear.host_eu - worn.host_eu,
        flash_wear_eu: flash.map(|(a, b)| a - b),
        write_amplification: amplification(i, between),
        flash: (d.sheet.kind() == "ssd").then(|| d.flash_state().name().to_owned()),
        busy_s: seconds(|c| c.busy_ns),
        standby_s: seconds(|c| c.state_ns[PowerState::Standby as usize]),
        start_stops: between.device(i, |c| c.start_stops),
        reads: between.device(i, |c| c.reads),
        writes: between.device(i, |c| c.writes),
        flushes: between.device(i, |c| c.flushes),
        bytes_read: between.device(i, |c| c.bytes_read),
        bytes_written: between.device(i, |c| c.bytes_written),
        move_bytes_read: between.member(i, |m| m.move_bytes_read),
        move_bytes_written: between.member(i, |m| m.move_bytes_written),
        meta_bytes_written: between.member(i, |m| m.meta_bytes_written),
        seeks: between.device(i, |c| c.seeks),
        seek_distance: between.device(i, |c| c.seek_distance),
    }
}

/// Bytes that the flash programmed per byte written to member `i`; `None` without a flash layer or writes.
fn amplification(i: usize, between: Between<'_>) -> Option<f64> {
    let flash = between.device(i, |c| c.flash_bytes_written);
    let host = between.device(i, |c| c.bytes_written);
    (flash > 0 && host > 0).then(|| flash as f64 / host as f64)
}
