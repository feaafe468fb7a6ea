//! The figures of a served volume: `stats`, and parts of `status`. Names are those of `sim --json` where the meaning is the same.

use isotherm_answers::{
    CleaningTimeBy, Commit, Copies, DataCheck, Draining, Failure, FrontEnd, Health, KeptAwakeBy,
    LastWake, Latencies, Latency, Level, Lost, MemberFigures, Memory, MoveCounts, Moves, Param,
    Params, PowerBudget, Range, Sleep, Starts, Stats, Tier, WearBudget, WokenBy,
};
use isotherm_core::engine::{Drain, KeptAwake};
use isotherm_core::policy::REFUSALS;
use isotherm_core::stats::{Histogram, MemberCounters, MoveCounters, Waker};
use isotherm_core::{Engine, MemberId, Nanos, TierId, World};
use isotherm_live::VolumeConfig;
use isotherm_live::loss::Listed;
use isotherm_live::world::UringWorld;
use std::collections::BTreeMap;

use crate::classes::{self, UsedSources};

/// The reason why the volume has failed.
pub fn failure(handle: &isotherm_live::Handle) -> Option<Failure> {
    handle.failure().map(|f| {
        let since = f.at.duration_since(std::time::UNIX_EPOCH);
        Failure {
            reason: f.reason.clone(),
            member: f.member.as_ref().map(|m| m.0 as u64),
            path: (f.member.as_ref()).map(|m| m.1.to_string_lossy().into_owned()),
            errno: f.errno,
            time_unix_s: since.unwrap_or_default().as_secs_f64(),
        }
    })
}

/// What the engine's thread does not know, for [`stats`].
pub struct Beside {
    /// The description.
    pub config: VolumeConfig,
    /// The time since serving began.
    pub elapsed: Nanos,
    /// Why the volume has failed.
    pub failure: Option<Failure>,
    /// How it is.
    pub health: Health,
    /// Bytes that may be written to the fastest tier.
    pub wear_limit_bytes: Option<f64>,
    /// The front ends.
    pub front_ends: Vec<FrontEnd>,
    /// Checks of the data.
    pub data_check: DataCheck,
    /// The content of the fastest tier by class, if it was asked for.
    pub fast: Option<classes::Contents>,
    /// Which sources of classes are on.
    pub sources: classes::SourcesOn,
}

impl Beside {
    /// For an engine without a server: nothing is wrong, and nothing limits it.
    pub fn alone(config: VolumeConfig, elapsed: Nanos) -> Beside {
        Beside {
            config,
            elapsed,
            failure: None,
            health: Health {
                state: Level::Well,
                sentence: "Serving well.".to_owned(),
                causes: Vec::new(),
            },
            wear_limit_bytes: None,
            front_ends: Vec::new(),
            data_check: DataCheck {
                running: None,
                last: None,
            },
            fast: None,
            sources: classes::SourcesOn::default(),
        }
    }
}

/// All figures.
#[expect(
    clippy::too_many_lines,
    reason = "one table: a line for each figure of the answer"
)]
pub fn stats(engine: &Engine, world: &mut UringWorld, beside: Beside) -> Stats {
    let classifier = world.classifier();
    let of = classifier.map(|c| (c.counts, UsedSources::of(c)));
    let (counts, asked) = of.unwrap_or_default();
    let world = &*world;
    let c = engine.counters();
    let geo = &engine.space().geo;
    let config = &beside.config;
    let seconds = beside.elapsed.as_secs_f64();
    let mut whole = Histogram::default();
    for h in [&c.read_latency, &c.write_latency, &c.flush_latency] {
        whole.merge(h);
    }
    let rate = |n: u64| {
        if seconds > 0.0 {
            n as f64 / seconds
        } else {
            0.0
        }
    };
    let ratio = |n: u64| (c.accesses > 0).then(|| n as f64 / c.accesses as f64);
    // Energy is reported only if it is known of every member.
    let energies = (0..geo.members.len()).map(|i| energy_j(engine, world, i));
    let energy: Option<f64> = energies.map(|e| e.map(|(j, _)| j)).sum();
    let (members, wear_eu) = members(engine, world, config);
    let memory = engine.memory();
    let fast = |f: fn(&MemberCounters) -> u64| fast(engine, f);
    Stats {
        volume: config.name.clone(),
        policy: config.policy.clone(),
        paced: config.members.iter().any(|m| m.paced.is_some()),
        extent_bytes: u64::from(geo.extent_bytes()),
        volume_bytes: geo.volume_bytes(),
        fast_bytes: geo.tier_slots(TierId(0)).len() as u64 * u64::from(geo.extent_bytes()),
        requests: c.reads + c.writes + c.flushes + c.discards,
        reads: c.reads,
        writes: c.writes,
        flushes: c.flushes,
        discards: c.discards,
        bytes_read: c.bytes_read,
        bytes_written: c.bytes_written,
        errors: c.errors,
        fast_hit_ratio: ratio(c.tier_hits[0]),
        tiers: (0..geo.tiers()).map(|t| tier(engine, t)).collect(),
        elapsed_s: seconds,
        throughput_iops: rate(c.reads + c.writes),
        throughput_bytes_per_s: rate(c.bytes_read + c.bytes_written),
        latency_mean_s: whole.mean().as_secs_f64(),
        latency_p50_s: whole.quantile(0.5).as_secs_f64(),
        latency_p95_s: whole.quantile(0.95).as_secs_f64(),
        latency_p99_s: whole.quantile(0.99).as_secs_f64(),
        latency: Latencies {
            read: latency(&c.read_latency),
            write: latency(&c.write_latency),
            flush: latency(&c.flush_latency),
        },
        energy_j: energy,
        mean_power_w: energy.filter(|_| seconds > 0.0).map(|j| j / seconds),
        sleep_batches: c.sleep_batches,
        sleep_limits: c.sleep_limits,
        sleep_postponed: c.sleep_postponed,
        wake_waits: c.wake_waits,
        wear_budget: engine.wear_budget().map(|b| WearBudget {
            bytes_per_day: b.bytes_per_day,
            burst_bytes: b.burst_bytes,
            left_bytes: b.left_bytes,
        }),
        power_budget: engine.power_budget(world.now()).map(|b| PowerBudget {
            limit_w: b.limit_uw as f64 / 1e6,
            left_j: b.left_uj as f64 / 1e6,
        }),
        spin_downs: c.members.iter().map(|m| m.spin_downs).sum(),
        fast_read_bytes: fast(|m| m.bytes_read),
        fast_write_bytes: fast(|m| m.bytes_written),
        accesses: c.accesses,
        promotions: c.promotions.done,
        demotions: c.demotions.done,
        fetches: c.fetches.done,
        evictions: c.evictions.done,
        writebacks: c.writebacks.done,
        migrated_bytes: c.migrated_bytes,
        fetched_bytes: c.fetched_bytes,
        written_back_bytes: c.written_back_bytes,
        copies: copies(engine, world.now()),
        moves: moves(engine),
        first_touches: c.first_touches,
        unmapped_reads: c.unmapped_reads,
        served_from_ram: c.served_from_ram,
        waited: c.waited,
        edge_writes: c.edge_writes,
        zero_fills: c.zero_fills,
        mapped_extents: engine.space().map.mapped(),
        commit: commit(engine),
        buffer_bytes_out: world.buffer_bytes_out() as u64,
        in_flight: world.in_flight() as u64,
        bytes_per_extent: memory.per_extent(geo.extents),
        memory: Memory {
            map_bytes: memory.map as u64,
            policy_bytes: memory.policy as u64,
            bitmap_bytes: memory.bitmaps as u64,
            other_bytes: memory.other as u64,
        },
        wear_eu,
        members,
        failure: beside.failure,
        health: beside.health,
        wear_limit_bytes: beside.wear_limit_bytes,
        front_ends: beside.front_ends,
        data_check: beside.data_check,
        by_class: classes::by_class(&c.classes, beside.fast.as_ref().map(|f| &f.bytes)),
        mixed_fast_share: beside.fast.and_then(|f| f.mixed_share()),
        own_work: classes::used(Some(&c.own_work)),
        qos: classes::promised(engine, world.now()),
        classes: classes::sources(beside.sources, &counts, asked),
    }
}

fn tier(engine: &Engine, t: u8) -> Tier {
    let c = engine.counters();
    let hits = c.tier_hits[usize::from(t)];
    Tier {
        tier: t,
        slots: engine.space().geo.tier_slots(TierId(t)).len() as u64,
        free_slots: engine.space().slots.free(TierId(t)) as u64,
        hits,
        hit_ratio: (c.accesses > 0).then(|| hits as f64 / c.accesses as f64),
    }
}

/// A counter of the members of the fastest tier, added up.
fn fast(engine: &Engine, f: fn(&MemberCounters) -> u64) -> u64 {
    let (members, geo) = (&engine.counters().members, &engine.space().geo);
    let of_tier = members.iter().zip(&geo.members);
    of_tier
        .filter(|(_, m)| m.tier == TierId(0))
        .map(|(c, _)| f(c))
        .sum()
}

fn commit(engine: &Engine) -> Commit {
    let c = engine.counters();
    let (_, mirror_lag_blocks, checkpoint) = engine.progress();
    Commit {
        rounds: c.rounds,
        ahead: c.ahead,
        ahead_met: c.ahead_met,
        gathered: c.gathered,
        kept: c.kept,
        journal_blocks: c.journal_blocks,
        journal_records: c.journal_records,
        checkpoints: c.checkpoints,
        checkpoint,
        mirror_lag_blocks,
    }
}

/// The energy of a member, joules, and whether it is an estimate by the data sheet; else it is that of the model that paces the member.
fn energy_j(engine: &Engine, world: &UringWorld, member: usize) -> Option<(f64, bool)> {
    let modelled = world.model(member).map(|(c, _)| (c.energy_j(), false));
    modelled.or_else(|| {
        let joules = engine.energy_j(MemberId(member as u8), world.now())?;
        Some((joules, true))
    })
}

/// The figures of each member, and the wear of modelled members, by path.
fn members(
    engine: &Engine,
    world: &UringWorld,
    config: &VolumeConfig,
) -> (Vec<MemberFigures>, BTreeMap<String, f64>) {
    let (mut members, mut wear) = (Vec::new(), BTreeMap::new());
    let (c, now) = (engine.counters(), world.now());
    for (i, (m, counts)) in config.members.iter().zip(&c.members).enumerate() {
        let path = m.path.display().to_string();
        let (model, energy) = (world.model(i), energy_j(engine, world, i));
        if let Some((_, w)) = &model {
            wear.insert(path.clone(), w.flash_eu.unwrap_or(w.host_eu));
        }
        members.push(MemberFigures {
            path,
            tier: m.tier,
            paced: m.paced.clone(),
            reads: counts.reads,
            writes: counts.writes,
            flushes: counts.flushes,
            bytes_read: counts.bytes_read,
            bytes_written: counts.bytes_written,
            move_bytes_read: counts.move_bytes_read,
            move_bytes_written: counts.move_bytes_written,
            meta_bytes_written: counts.meta_bytes_written,
            bytes_discarded: counts.bytes_discarded,
            spin_downs: counts.spin_downs,
            errors: counts.errors,
            starts_left: (engine.start_budget(MemberId(i as u8), now)).map(|b| b.left()),
            kept_awake_by: kept_awake(engine, now, MemberId(i as u8)),
            sheet: m.sheet.clone(),
            energy_j: energy.map(|e| e.0),
            energy_estimated: energy.map(|e| e.1),
            drives: None,
        });
    }
    (members, wear)
}

/// The limits of the members' lives. They are read once, because that parses data sheets.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes that may be written to the fastest tier, if known.
    pub written: Option<f64>,
    /// By member: the number of start-stop cycles that it is specified for, if its sheet states it.
    pub start_stops: Vec<Option<f64>>,
}

/// The limit for a disk without a data sheet: the lowest limit in the sheets of disks.
pub const START_STOPS: f64 = 50_000.0;

impl Limits {
    /// As far as the description and the data sheets state them.
    pub fn of(config: &VolumeConfig) -> Limits {
        let members = 0..config.members.len();
        Limits {
            written: config.wear_limit_bytes(),
            start_stops: members.map(|m| config.start_stop_limit(m)).collect(),
        }
    }
}

/// The standby state of a member, for `status`. `standby_s` is the setting in the description; `limit` is the number of start-stop cycles
/// that it is specified for.
pub fn sleep(engine: &Engine, now: Nanos, elapsed: Nanos, member: u8, limit: Option<f64>) -> Sleep {
    let member = MemberId(member);
    let s = engine.sleep(member);
    let days = elapsed.as_secs_f64() / 86_400.0;
    let last_wake = s.last_wake.map(|(at, by)| {
        let (by, offset, bytes) = match by {
            Waker::Request(at, n, false) => (WokenBy::Read, Some(at), Some(n)),
            Waker::Request(at, n, true) => (WokenBy::Write, Some(at), Some(n)),
            Waker::Move => (WokenBy::Move, None, None),
            Waker::Metadata => (WokenBy::Metadata, None, None),
            Waker::Discard => (WokenBy::Discard, None, None),
        };
        LastWake {
            age_s: now.since(at).as_secs_f64(),
            by,
            offset,
            bytes,
        }
    });
    let pays = engine.sleep_pays(member);
    // A rate per day needs more than an hour of data.
    let per_day = (days > 1.0 / 24.0).then(|| s.wakes as f64 / days);
    let budget = limit.unwrap_or(START_STOPS);
    Sleep {
        asleep_s: s.asleep_since.map(|at| now.since(at).as_secs_f64()),
        wake_ups: s.wakes,
        last_wake,
        wake_ups_per_day: per_day,
        start_stop_limit: budget,
        start_stop_assumed: limit.is_none(),
        start_stop_years: (per_day.filter(|n| *n > 0.0)).map(|n| budget / n / 365.25),
        starts: engine.start_budget(member, now).map(|b| Starts {
            per_day: b.per_day(),
            left: b.left(),
            next_s: b.next.since(now).as_secs_f64(),
        }),
        kept_awake_by: kept_awake(engine, now, member),
        break_even_s: pays.break_even.map(Nanos::as_secs_f64),
        sleep_saves_w: pays.saved_uw as f64 / 1e6,
        sleep_saves_assumed: pays.assumed,
    }
}

/// The budget that keeps a member awake, if one does.
fn kept_awake(engine: &Engine, now: Nanos, member: MemberId) -> Option<KeptAwakeBy> {
    engine.kept_awake(member, now).map(|by| match by {
        KeptAwake::Starts => KeptAwakeBy::Starts,
        KeptAwake::Waits => KeptAwakeBy::Waits,
    })
}

/// Parameters of the policy and knobs of the engine. A parameter that is given several times is a list.
pub fn params(engine: &Engine) -> Params {
    let knobs = engine.knobs().into_iter();
    let mut all: Params = knobs
        .map(|(k, v)| (k.to_owned(), Param::Number(v)))
        .collect();
    for (k, v) in engine.names() {
        let value = match all.remove(k) {
            Some(Param::Names(list)) => Param::Names(list.into_iter().chain([v]).collect()),
            Some(Param::Name(first)) => Param::Names(vec![first, v]),
            _ => Param::Name(v),
        };
        all.insert(k.to_owned(), value);
    }
    all
}

/// What was lost with flash and is listed: its size, and the first ranges.
pub fn listed(lost: &Listed) -> Lost {
    let ranges = lost.ranges.iter().map(|&(from, to)| Range { from, to });
    Lost {
        bytes: lost.bytes,
        granule_bytes: lost.granule,
        ranges: ranges.collect(),
    }
}

/// The number of copies, what is dirty of them, and the copies that are still to be given up after a change of policy.
pub fn copies(engine: &Engine, now: Nanos) -> Copies {
    let (extents, dirty_extents, dirty_bytes) = engine.copies();
    let (draining, draining_left) = match engine.draining() {
        Drain::None => (None, 0),
        Drain::Copies(n) => (Some(Draining::Copies), n),
        Drain::Homes(n) => (Some(Draining::Homes), n),
        Drain::Dirty(n) => (Some(Draining::Dirty), n),
    };
    let time = engine.cleaning_time();
    let (dirty_max_bytes, cleaning_fails) = engine.dirty_limit();
    Copies {
        extents,
        dirty_extents,
        dirty_bytes,
        dirty_for_at_most_s: engine.dirty_age(now).map(Nanos::as_secs_f64),
        cleaning_takes_s: time.map(|t| t.time.as_secs_f64()),
        cleaning_takes_by: time.map(|t| {
            if t.measured {
                CleaningTimeBy::Measured
            } else {
                CleaningTimeBy::Model
            }
        }),
        cleaning_fails,
        dirty_max_bytes,
        lost_with_fast_bytes: dirty_bytes + engine.fast_home_bytes(),
        draining,
        draining_left,
        warm: crate::warm::warmed(engine),
    }
}

fn latency(h: &Histogram) -> Latency {
    Latency {
        count: h.count(),
        mean_s: h.mean().as_secs_f64(),
        p50_s: h.quantile(0.5).as_secs_f64(),
        p95_s: h.quantile(0.95).as_secs_f64(),
        p99_s: h.quantile(0.99).as_secs_f64(),
        max_s: h.max().as_secs_f64(),
    }
}

fn moves(engine: &Engine) -> Moves {
    let one = |m: &MoveCounters| {
        let refused = REFUSALS.iter().zip(m.refused);
        MoveCounts {
            proposed: m.proposed,
            done: m.done,
            refused: refused.map(|(k, v)| ((*k).to_owned(), v)).collect(),
            stale: m.stale,
            failed: m.failed,
        }
    };
    let c = engine.counters();
    Moves {
        promotions: one(&c.promotions),
        demotions: one(&c.demotions),
        fetches: one(&c.fetches),
        evictions: one(&c.evictions),
        writebacks: one(&c.writebacks),
        active: engine.progress().0,
    }
}
