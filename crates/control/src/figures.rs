//! The figures of a served volume: `stats` and `why`. Names are those of `sim --json` where the meaning is the same.

use isotherm_core::engine::{Drain, KeptAwake};
use isotherm_core::policy::REFUSALS;
use isotherm_core::stats::{Histogram, MemberCounters, MoveCounters, Waker};
use isotherm_core::{Engine, ExtentId, MemberId, Nanos, TierId, World};
use isotherm_live::VolumeConfig;
use isotherm_live::loss::Listed;
use isotherm_live::recorder::Driver;
use isotherm_live::world::UringWorld;
use serde_json::{Map, Value, json};

/// The names of moves in `stats`.
pub const KINDS: [&str; 5] = [
    "promotions",
    "demotions",
    "fetches",
    "evictions",
    "writebacks",
];

/// The reason why the volume has failed, or null.
pub fn failure(handle: &isotherm_live::Handle) -> Value {
    handle.failure().map_or(Value::Null, |f| {
        let since = f.at.duration_since(std::time::UNIX_EPOCH);
        json!({
            "reason": f.reason, "member": f.member.as_ref().map(|m| m.0),
            "path": f.member.as_ref().map(|m| m.1.to_string_lossy()), "errno": f.errno,
            "time_unix_s": since.unwrap_or_default().as_secs_f64(),
        })
    })
}

/// All figures. `elapsed` is the time since serving began.
pub fn stats(engine: &Engine, world: &UringWorld, config: &VolumeConfig, elapsed: Nanos) -> Value {
    let c = engine.counters();
    let geo = &engine.space().geo;
    let seconds = elapsed.as_secs_f64();
    let requests = c.reads + c.writes + c.flushes + c.discards;
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
    let ratio = |n: u64| {
        if c.accesses > 0 {
            json!(n as f64 / c.accesses as f64)
        } else {
            Value::Null
        }
    };
    // Energy is reported only if it is known of every member.
    let energies = (0..geo.members.len()).map(|i| energy_j(engine, world, i));
    let energy: Option<f64> = energies.map(|e| e.map(|(j, _)| j)).sum();
    let (members, wear) = members(engine, world, config);
    let tiers: Vec<_> = (0..geo.tiers())
        .map(|t| {
            let slots = geo.tier_slots(TierId(t)).len();
            let hits = c.tier_hits[usize::from(t)];
            json!({
                "tier": t, "slots": slots, "free_slots": engine.space().slots.free(TierId(t)),
                "hits": hits, "hit_ratio": ratio(hits),
            })
        })
        .collect();
    let mut all = json!({
        "volume": config.name, "policy": config.policy, "paced": config.members.iter().any(|m| m.paced.is_some()),
        "extent_bytes": geo.extent_bytes(), "volume_bytes": geo.volume_bytes(),
        "fast_bytes": geo.tier_slots(TierId(0)).len() as u64 * u64::from(geo.extent_bytes()),
        "requests": requests, "reads": c.reads, "writes": c.writes, "flushes": c.flushes, "discards": c.discards,
        "bytes_read": c.bytes_read, "bytes_written": c.bytes_written, "errors": c.errors,
        "fast_hit_ratio": ratio(c.tier_hits[0]), "tiers": tiers,
        "elapsed_s": seconds, "throughput_iops": rate(c.reads + c.writes),
        "throughput_bytes_per_s": rate(c.bytes_read + c.bytes_written),
        "latency_mean_s": whole.mean().as_secs_f64(), "latency_p50_s": whole.quantile(0.5).as_secs_f64(),
        "latency_p95_s": whole.quantile(0.95).as_secs_f64(), "latency_p99_s": whole.quantile(0.99).as_secs_f64(),
        "latency": {
            "read": latency(&c.read_latency), "write": latency(&c.write_latency), "flush": latency(&c.flush_latency),
        },
    });
    let rest = work(engine, world, seconds, energy);
    // One macro call would exceed the compiler's recursion limit.
    for (k, v) in rest.as_object().into_iter().flatten() {
        all[k.as_str()] = v.clone();
    }
    all["wear_eu"] = Value::Object(wear);
    all["members"] = Value::Array(members);
    all
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
) -> (Vec<Value>, Map<String, Value>) {
    let (mut members, mut wear) = (Vec::new(), Map::new());
    let (c, now) = (engine.counters(), world.now());
    for (i, (m, counts)) in config.members.iter().zip(&c.members).enumerate() {
        let path = m.path.display().to_string();
        let (model, energy) = (world.model(i), energy_j(engine, world, i));
        if let Some((_, w)) = &model {
            wear.insert(path.clone(), json!(w.flash_eu.unwrap_or(w.host_eu)));
        }
        members.push(json!({
            "path": path, "tier": m.tier, "paced": m.paced,
            "reads": counts.reads, "writes": counts.writes, "flushes": counts.flushes,
            "bytes_read": counts.bytes_read, "bytes_written": counts.bytes_written,
            "move_bytes_read": counts.move_bytes_read, "move_bytes_written": counts.move_bytes_written,
            "meta_bytes_written": counts.meta_bytes_written, "bytes_discarded": counts.bytes_discarded,
            "spin_downs": counts.spin_downs, "errors": counts.errors,
            "starts_left": engine.start_budget(MemberId(i as u8), now).map(|b| b.left()),
            "kept_awake_by": kept_awake(engine, now, MemberId(i as u8)),
            "sheet": m.sheet, "energy_j": energy.map(|e| e.0), "energy_estimated": energy.map(|e| e.1),
        }));
    }
    (members, wear)
}

/// The engine's work besides answering requests, and its memory.
fn work(engine: &Engine, world: &UringWorld, seconds: f64, energy: Option<f64>) -> Value {
    let c = engine.counters();
    let geo = &engine.space().geo;
    let memory = engine.memory();
    let (moves_active, mirror_lag_blocks, checkpoint) = engine.progress();
    let fast = |f: fn(&MemberCounters) -> u64| -> u64 {
        c.members
            .iter()
            .zip(&geo.members)
            .filter(|(_, m)| m.tier == TierId(0))
            .map(|(c, _)| f(c))
            .sum()
    };
    json!({
        "energy_j": energy, "mean_power_w": energy.filter(|_| seconds > 0.0).map(|j| j / seconds),
        "sleep_batches": c.sleep_batches, "sleep_limits": c.sleep_limits,
        "sleep_postponed": c.sleep_postponed, "wake_waits": c.wake_waits,
        "wear_budget": engine.wear_budget().map(|b| json!({
            "bytes_per_day": b.bytes_per_day, "burst_bytes": b.burst_bytes, "left_bytes": b.left_bytes,
        })),
        "power_budget": engine.power_budget(world.now()).map(|b| json!({
            "limit_w": b.limit_uw as f64 / 1e6, "left_j": b.left_uj as f64 / 1e6,
        })),
        "spin_downs": c.members.iter().map(|m| m.spin_downs).sum::<u64>(),
        "fast_read_bytes": fast(|m| m.bytes_read), "fast_write_bytes": fast(|m| m.bytes_written),
        "accesses": c.accesses,
        "promotions": c.promotions.done, "demotions": c.demotions.done,
        "fetches": c.fetches.done, "evictions": c.evictions.done, "writebacks": c.writebacks.done,
        "migrated_bytes": c.migrated_bytes, "fetched_bytes": c.fetched_bytes, "written_back_bytes": c.written_back_bytes,
        "copies": copies(engine, world.now()),
        "moves": {
            "promotions": moves(&c.promotions), "demotions": moves(&c.demotions), "fetches": moves(&c.fetches),
            "evictions": moves(&c.evictions), "writebacks": moves(&c.writebacks), "active": moves_active,
        },
        "first_touches": c.first_touches, "unmapped_reads": c.unmapped_reads, "served_from_ram": c.served_from_ram,
        "waited": c.waited, "edge_writes": c.edge_writes, "zero_fills": c.zero_fills, "mapped_extents": engine.space().map.mapped(),
        "commit": {
            "rounds": c.rounds, "ahead": c.ahead, "ahead_met": c.ahead_met, "gathered": c.gathered, "kept": c.kept,
            "journal_blocks": c.journal_blocks, "journal_records": c.journal_records,
            "checkpoints": c.checkpoints, "checkpoint": checkpoint, "mirror_lag_blocks": mirror_lag_blocks,
        },
        "buffer_bytes_out": world.buffer_bytes_out(), "in_flight": world.in_flight(),
        "bytes_per_extent": memory.per_extent(geo.extents),
        "memory": {
            "map_bytes": memory.map, "policy_bytes": memory.policy, "bitmap_bytes": memory.bitmaps,
            "other_bytes": memory.other,
        },
    })
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
pub fn sleep(engine: &Engine, now: Nanos, elapsed: Nanos, member: u8, limit: Option<f64>) -> Value {
    let s = engine.sleep(MemberId(member));
    let days = elapsed.as_secs_f64() / 86_400.0;
    let woken = s.last_wake.map(|(at, by)| {
        let (by, offset, bytes) = match by {
            Waker::Request(at, n, false) => ("read", Some(at), Some(n)),
            Waker::Request(at, n, true) => ("write", Some(at), Some(n)),
            Waker::Move => ("move", None, None),
            Waker::Metadata => ("metadata", None, None),
            Waker::Discard => ("discard", None, None),
        };
        json!({"age_s": now.since(at).as_secs_f64(), "by": by, "offset": offset, "bytes": bytes})
    });
    let starts = engine.start_budget(MemberId(member), now).map(|b| {
        json!({"per_day": b.per_day(), "left": b.left(), "next_s": b.next.since(now).as_secs_f64()})
    });
    let pays = engine.sleep_pays(MemberId(member));
    // A rate per day needs more than an hour of data.
    let per_day = (days > 1.0 / 24.0).then(|| s.wakes as f64 / days);
    let budget = limit.unwrap_or(START_STOPS);
    json!({
        "asleep_s": s.asleep_since.map(|at| now.since(at).as_secs_f64()), "wake_ups": s.wakes, "last_wake": woken,
        "wake_ups_per_day": per_day, "start_stop_limit": budget, "start_stop_assumed": limit.is_none(),
        "start_stop_years": per_day.filter(|n| *n > 0.0).map(|n| budget / n / 365.25),
        "starts": starts, "kept_awake_by": kept_awake(engine, now, MemberId(member)),
        "break_even_s": pays.break_even.map(Nanos::as_secs_f64),
        "sleep_saves_w": pays.saved_uw as f64 / 1e6, "sleep_saves_assumed": pays.assumed,
    })
}

/// The budget that keeps a member awake, if one does.
fn kept_awake(engine: &Engine, now: Nanos, member: MemberId) -> Option<&'static str> {
    engine.kept_awake(member, now).map(|by| match by {
        KeptAwake::Starts => "starts",
        KeptAwake::Waits => "waits",
    })
}

/// Parameters of the policy and knobs of the engine. A parameter that is given several times is a list.
pub fn params(engine: &Engine) -> Value {
    let mut all: Map<String, Value> = engine
        .knobs()
        .into_iter()
        .map(|(k, v)| (k.to_owned(), json!(v)))
        .collect();
    for (k, v) in engine.names() {
        match all.get_mut(k) {
            Some(Value::Array(list)) => list.push(json!(v)),
            Some(one) => *one = json!([one.clone(), v]),
            None => drop(all.insert(k.to_owned(), json!(v))),
        }
    }
    Value::Object(all)
}

/// What was lost with flash and is listed: its size, and the first ranges.
pub fn listed(lost: &Listed) -> Value {
    let ranges = lost.ranges.iter();
    let ranges: Vec<Value> = ranges
        .map(|(from, to)| json!({"from": from, "to": to}))
        .collect();
    json!({"bytes": lost.bytes, "granule_bytes": lost.granule, "ranges": ranges})
}

/// The number of copies, what is dirty of them, and the copies that are still to be given up after a change of policy.
pub fn copies(engine: &Engine, now: Nanos) -> Value {
    let (extents, dirty, dirty_bytes) = engine.copies();
    let homes = engine.fast_home_bytes();
    let (draining, left) = match engine.draining() {
        Drain::None => (Value::Null, 0),
        Drain::Copies(n) => (json!("copies"), n),
        Drain::Homes(n) => (json!("homes"), n),
        Drain::Dirty(n) => (json!("dirty"), n),
    };
    let time = engine.cleaning_time();
    let (max, fails) = engine.dirty_limit();
    json!({
        "extents": extents, "dirty_extents": dirty, "dirty_bytes": dirty_bytes,
        "dirty_for_at_most_s": engine.dirty_age(now).map(Nanos::as_secs_f64),
        "cleaning_takes_s": time.map(|t| t.time.as_secs_f64()),
        "cleaning_takes_by": time.map(|t| if t.measured { "measured" } else { "model" }),
        "cleaning_fails": fails, "dirty_max_bytes": max,
        "lost_with_fast_bytes": dirty_bytes + homes,
        "draining": draining, "draining_left": left, "warm": crate::warm::warmed(engine),
    })
}

fn latency(h: &Histogram) -> Value {
    json!({
        "count": h.count(), "mean_s": h.mean().as_secs_f64(), "p50_s": h.quantile(0.5).as_secs_f64(),
        "p95_s": h.quantile(0.95).as_secs_f64(), "p99_s": h.quantile(0.99).as_secs_f64(),
        "max_s": h.max().as_secs_f64(),
    })
}

fn moves(m: &MoveCounters) -> Value {
    let refused: Map<String, Value> = REFUSALS
        .iter()
        .zip(m.refused)
        .map(|(k, v)| ((*k).to_owned(), json!(v)))
        .collect();
    json!({"proposed": m.proposed, "done": m.done, "refused": refused, "stale": m.stale, "failed": m.failed})
}

/// The place of the extent at `offset`, and the reason.
///
/// # Errors
/// `offset` is beyond the volume.
pub fn why(
    engine: &mut Driver,
    now: Nanos,
    config: &VolumeConfig,
    offset: u64,
) -> Result<Value, String> {
    let geo = &engine.space().geo;
    let (bytes, extent_bytes) = (geo.volume_bytes(), geo.extent_bytes());
    if offset >= bytes {
        return Err(format!(
            "byte {offset} lies beyond the volume, which has {bytes} bytes"
        ));
    }
    let extent = geo.extent_at(offset);
    let blocks = geo.blocks_per_extent();
    let e = engine.explain(now, ExtentId(extent.0));
    let member = e
        .place
        .map(|(m, at)| (config.members.get(usize::from(m.0)), at));
    Ok(json!({
        "offset": offset, "extent": extent.0, "extent_bytes": extent_bytes, "mapped": e.slot.is_some(),
        "tier": e.tier.map(|t| t.0), "slot": e.slot.map(|s| s.0),
        "member": member.and_then(|(m, _)| m).map(|m| m.path.to_string_lossy()), "member_offset": member.map(|(_, at)| at),
        "copy": e.copy.map(|(slot, tier, member, at)| json!({
            "tier": tier.0, "slot": slot.0, "member": config.members.get(usize::from(member.0)).map(|m| m.path.to_string_lossy()),
            "member_offset": at, "blocks": e.copied_blocks, "dirty_blocks": e.dirty_blocks,
        })),
        "valid_blocks": e.valid_blocks, "blocks": blocks, "in_flight": e.in_flight, "moving": e.moving,
        "last_access_age_s": e.slot.map(|_| now.since(e.last).as_secs_f64()),
        "policy": engine.policy_name(), "why": e.why,
    }))
}
