//! Every preset over three and four tiers of modelled devices: it runs to the end, no byte is lost, it uses every tier that it should, and
//! faster tiers hold hotter data.

use isotherm_core::Nanos;
use isotherm_core::policy::PRESETS;
use isotherm_lab::sim::{Device, MemberUsage, Memory, Report, Setup, Tier, TimeMode, run};
use isotherm_lab::size::Size;
use isotherm_traces::{Op, Record};

const EXTENTS: u64 = 600;
/// Tier 0 has 5 % of the size, the middle ones 20 % and 40 %.
const SHARES: [u32; 4] = [50_000, 200_000, 400_000, 1_000_000];
const REQUESTS: u64 = 24_000;

/// 24 extents get 60 % of the accesses, 96 others 30 %, 240 others 9 %, the rest 1 %; 30 % writes. Neighbours differ in heat.
fn work() -> Memory {
    let mut random = isotherm_core::random::SplitMix64::new(1);
    let mut draw = |n| random.below(n);
    let one = |i: u64| {
        // Each extent is touched once before.
        let at = match (i < EXTENTS, draw(100)) {
            (true, _) => i,
            (_, 0..60) => draw(24),
            (_, 60..90) => 24 + draw(96),
            (_, 90..99) => 120 + draw(240),
            _ => 360 + draw(EXTENTS - 360),
        };
        let op = if draw(10) < 3 { Op::Write } else { Op::Read };
        // A multiplier without a common factor with the number of extents scatters them.
        Record::new(Nanos(i), op, at * 277 % EXTENTS * 4096, 4096)
    };
    Memory::new("four heats", (0..REQUESTS).map(one).collect())
}

/// The preset with periods that suit a run of minutes.
fn spec(preset: &str, tiers: usize) -> String {
    match preset {
        "hot-dst-5s" | "hot-dst-80s" | "cache-interval" | "hro" | "hot" => {
            format!("{preset},period=1")
        }
        "oodt" => "oodt,migrate_every=1000".into(),
        // edt compares rates with the prices of slots. With its defaults, a second tier of so few slots serves these extents cheapest; with
        // these rates the fastest tier is cheapest for the hot extents (about 10/s each over a disk, 2/s over a remote store), and the tier
        // in between for the warm ones (a sixth of that).
        "edt" if tiers == 3 => "edt,interval=2,fast_iops=160,slow_iops=40".into(),
        "edt" => "edt,interval=10,fast_iops=80,slow_iops=20".into(),
        "hystor" => "hystor,window=2".into(),
        other => other.into(),
    }
}

fn play(preset: &str, devices: &[&str]) -> Report {
    let policy = spec(preset, devices.len()).parse().expect("a preset");
    let mut setup = Setup::pair(policy, Size::Share(SHARES[0])).expect("sheets");
    let tier = |(d, share): (&&str, &u32)| {
        Tier::new(Device::preset(d).expect("a sheet"), Size::Share(*share))
    };
    setup.tiers = devices.iter().zip(&SHARES).map(tier).collect();
    setup.time = TimeMode::Closed { depth: 4 };
    setup.warm_up = REQUESTS / 2;
    run(&setup, &work()).unwrap_or_else(|e| panic!("{preset} on {devices:?}: {e}"))
}

/// The use that a preset makes of the tiers between the fastest and the slowest, according to docs/policy-rules.md, section 10.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Middle {
    /// Homes that are hotter than those on slower tiers.
    Ranked,
    /// Homes, by address.
    ByAddress,
    /// Homes that came there when they were new or cold, and never return.
    Left,
    /// No homes.
    Unused,
}

fn middle(name: &str, kind: &str) -> Middle {
    match (name, kind) {
        ("linear" | "mylinear", _) => Middle::ByAddress,
        ("cold-dst-plain", _) => Middle::Left,
        // Homes of all sub-policies but cache-ondemand.
        ("type-aware", _) | (_, "tiering") => Middle::Ranked,
        _ => Middle::Unused,
    }
}

/// Bytes that requests read and wrote on each tier, moves and metadata left out.
fn served(r: &Report) -> Vec<u64> {
    let mut members: Vec<&MemberUsage> = r.usage.as_ref().expect("full").members.values().collect();
    members.sort_by_key(|m| m.tier);
    let one = |m: &&MemberUsage| {
        let moved = m.move_bytes_read + m.move_bytes_written + m.meta_bytes_written;
        m.bytes_read + m.bytes_written - moved
    };
    members.iter().map(one).collect()
}

fn check(devices: &[&str]) {
    for p in PRESETS {
        let r = play(p.name, devices);
        let what = format!("{} on {devices:?}", p.name);
        assert_eq!(r.requests, REQUESTS / 2, "{what}");
        let usage = r.usage.as_ref().expect("full");
        let sum = |of: fn(&MemberUsage) -> u64| usage.members.values().map(of).sum::<u64>();
        // A write goes to one place, under write-through to two.
        let written = sum(|m| m.bytes_written - m.move_bytes_written - m.meta_bytes_written);
        assert!(
            (r.bytes_written..=2 * r.bytes_written).contains(&written),
            "{what}"
        );
        let read = sum(|m| m.bytes_read - m.move_bytes_read);
        let elsewhere = r.ram_read_bytes.unwrap_or(0) + r.zero_read_bytes.unwrap_or(0);
        assert_eq!(read + elsewhere, r.bytes_read, "{what}");
        let served = served(&r);
        let last = devices.len() - 1;
        // The bytes served for each slot: those of the tier over the number of its extents.
        let sizes: Vec<u64> = SHARES[..last]
            .iter()
            .map(|s| u64::from(*s) * EXTENTS / 1_000_000)
            .collect();
        println!(
            "{:26} hit {:.3}  bytes by tier {served:?}  up {} down {} copies {} refused {}",
            p.name, r.fast_hit_ratio, r.promotions, r.demotions, r.fetches, r.refused
        );
        let heat = |t: usize| served[t] as f64 / sizes[t] as f64;
        let between = 1..last;
        match middle(p.name, p.kind()) {
            Middle::Unused => {
                for t in between {
                    assert_eq!(served[t], 0, "{what}: tier {t} is used");
                }
                assert!(served[0] > 0, "{what}: no copy was used");
                continue;
            }
            Middle::ByAddress => {
                assert!(served.iter().all(|b| *b > 0), "{what}: {served:?}");
                assert_eq!(r.promotions + r.demotions, 0, "{what}");
                continue;
            }
            Middle::Left => {
                assert!(served.iter().all(|b| *b > 0), "{what}: {served:?}");
                assert_eq!(r.promotions, 0, "{what}");
                continue;
            }
            Middle::Ranked => {}
        }
        for t in between {
            assert!(served[t] > 0, "{what}: tier {t} is not used: {served:?}");
            assert!(
                heat(t) < heat(t - 1),
                "{what}: tier {t} is hotter than the one above"
            );
        }
        // The hottest 24 extents get 60 % of the accesses and fit into the 30 slots of tier 0; a random choice would give 5 %.
        assert!(r.fast_hit_ratio > 0.2, "{what}: {}", r.fast_hit_ratio);
        // The data on the slowest tier must be colder than that on faster tiers. greendm is an exception: it promotes any extent that was
        // missed recently, and its two slowest tiers both hold rarely used data, so it hardly distinguishes between them.
        let rest = EXTENTS - sizes.iter().sum::<u64>();
        let slack = if p.name == "greendm" { 1.5 } else { 1.0 };
        assert!(
            (served[last] as f64 / rest as f64) < slack * heat(last - 1),
            "{what}: the slowest tier is hotter than the one above: {served:?}"
        );
    }
}

#[test]
fn three_tiers() {
    check(&["pcm", "sata-enterprise", "wd5000aaks"]);
}

#[test]
fn four_tiers() {
    check(&["pcm", "sata-enterprise", "wd5000aaks", "remote"]);
}
