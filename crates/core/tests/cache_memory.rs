//! The memory of a cache volume follows from its flash. Bytes are counted by the allocator, for every preset that keeps copies.
//! `cargo test -p isotherm-core --test cache_memory -- --nocapture` prints the tables.

use isotherm_core::engine::{self, SwitchError};
use isotherm_core::geometry::{Geometry, Kind, Member};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{PRESETS, Policy, Uses, build};
use isotherm_core::random::SplitMix64;
use isotherm_core::volume::{ExtentMap, Space};
use isotherm_core::{ExtentId, Nanos, Slot, TierId};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Number of bytes that this thread has allocated and not freed, and the largest such number so far. A thread may free what another one
    /// has allocated, so it may be below 0.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

struct Counting;

fn change(by: isize) {
    // While a thread ends, its counter may not exist any more.
    let _ = HELD.try_with(|h| {
        let (held, peak) = h.get();
        let held = held + by;
        h.set((held, peak.max(held)));
    });
}

// SAFETY: every call is passed to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        change(layout.size().cast_signed());
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        change(layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        change(-layout.size().cast_signed());
        // SAFETY: `p` came from `alloc` above with this layout.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that `what` holds at its end, and at its peak.
fn counted<T>(what: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = HELD.with(|h| {
        h.set((h.get().0, h.get().0));
        h.get().0
    });
    let made = what();
    let (held, peak) = HELD.with(Cell::get);
    let bytes = |n: isize| usize::try_from(n - before).unwrap_or(0);
    (made, bytes(held), bytes(peak))
}

/// A cache volume with `fast` slots of 64 KiB on flash, and `extents` on the disk.
fn geometry(fast: u32, extents: u32) -> Geometry {
    let m = |tier, slots| Member {
        tier: TierId(tier),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    };
    let geo = Geometry::new(16, 12, extents, vec![m(0, fast), m(1, extents)]);
    geo.and_then(|g| g.of_kind(Kind::Cache)).expect("a shape")
}

fn preset(name: &str) -> Box<dyn Policy> {
    build(name, std::iter::empty()).expect("presets build")
}

/// The presets that make a cache volume.
fn caching() -> impl Iterator<Item = &'static str> {
    let caching = PRESETS.iter().map(|p| p.name);
    caching.filter(|name| preset(name).uses() == Uses::Copies)
}

fn slots(bytes: u64) -> u32 {
    (bytes >> 16) as u32
}

const TB: u64 = 1_000_000_000_000;
const MIB: usize = 1 << 20;

/// 8 TB behind 64 GB: at most 200 MiB under every preset, of which most keep less than the four that have a counter for each extent; these
/// are refused, with the reason.
#[test]
fn eight_terabytes_behind_64_gigabytes() {
    let (fast, extents) = (slots(64_000_000_000), slots(8 * TB));
    let mut over = Vec::new();
    let mut refused = Vec::new();
    for name in caching() {
        let policy = preset(name);
        if let Err(e) = engine::fits(&geometry(fast, extents), true, &*policy) {
            assert!(matches!(e, SwitchError::PerExtent { .. }), "{name}: {e}");
            refused.push(name);
            continue;
        }
        let (e, held, peak) = counted(|| NullEngine::new(geometry(fast, extents), policy));
        println!("{name:<16} {:>4} MiB fresh", peak / MIB);
        // The engine itself, its buffers and journal are less than 100 MiB (`isotherm/tests/large.rs`).
        if peak > 100 * MIB {
            over.push(format!("{name}: {peak} bytes"));
        }
        assert!(held.abs_diff(e.bytes()) < MIB, "{name}: says {}", e.bytes());
    }
    assert!(over.is_empty(), "{over:?}");
    assert_eq!(
        refused,
        ["azor", "cache-interval", "cache-ondemand", "hystor"]
    );
    let what = engine::fits(&geometry(fast, extents), true, &*preset("hystor"));
    let what = what.expect_err("refused").to_string();
    assert!(
        what.contains("9 bytes") && what.contains("1047 MiB") && what.contains("256 MiB"),
        "{what}"
    );
    // A disk of 1 TB is small enough for all of them.
    let small = geometry(fast, slots(TB));
    assert!(caching().all(|name| engine::fits(&small, true, &*preset(name)).is_ok()));
}

/// The same flash before disks of 2 to 200 TB: the memory is the same, but for 64 bytes in each 65 536 extents.
#[test]
fn the_size_of_the_disk_does_not_matter() {
    for name in caching().filter(|name| preset(name).unit_bytes() == 0) {
        let each = [2 * TB, 20 * TB, 200 * TB].map(|disk| {
            let extents = slots(disk);
            let made = counted(|| NullEngine::new(geometry(1_500_000, extents), preset(name)));
            (extents, made.1)
        });
        let (first, last) = (each[0], each[2]);
        let more = (last.1 - first.1) as f64 / f64::from(last.0 - first.0);
        println!("{name:<16} {each:?} {more:.5} bytes an extent");
        assert!(more < 0.001, "{name}: {more} bytes an extent");
    }
}

/// Bytes per fast slot that are allowed with a copy in each slot, everything remembered and everything known about blocks: 48, and more for
/// some presets with large lists.
const PER_SLOT: f64 = 48.0;
const LARGER: [(&str, f64); 6] = [
    ("arc", 49.0),
    ("greendm-cache", 51.0),
    ("lfu", 54.0),
    ("lirs", 64.0),
    ("lru-2", 73.0),
    ("smq", 51.0),
];

/// Accesses fill the cache and what is remembered of extents without a copy. A fifth of them are writes.
fn fill(fast: u32, policy: Box<dyn Policy>) -> NullEngine<Box<dyn Policy>> {
    let extents = fast * 20;
    // Without a floor, so that the figure holds for a volume of any size.
    let mut e = NullEngine::over(Space::with_past(geometry(fast, extents), 0), policy);
    let mut random = SplitMix64::new(3);
    for at in 0..u64::from(fast) * 6 {
        let x = random.below(u64::from(extents)) * random.below(64) / 64;
        let request = (x << 16, 4096);
        let write = random.below(5) == 0;
        e.access(
            Nanos::from_millis(at),
            ExtentId(x as u32),
            write,
            0,
            request,
        );
    }
    e
}

#[test]
fn a_fast_slot_costs_few_bytes() {
    const FAST: u32 = 60_000;
    let mut over = Vec::new();
    for name in caching().filter(|name| preset(name).unit_bytes() == 0) {
        let (e, held, _) = counted(|| fill(FAST, preset(name)));
        let full = e.space().map.copied();
        // The null world keeps no blocks of copies: two bits for each of 16, and one for each slot.
        let blocks = 2.0 * 16.0 / 8.0 + 0.125;
        let each = held as f64 / f64::from(FAST) + blocks;
        println!("{name:<16} {each:>6.1} bytes a slot, {full} copies");
        let bar = LARGER
            .iter()
            .find(|l| l.0 == name)
            .map_or(PER_SLOT, |l| l.1);
        if each > bar {
            over.push(format!("{name}: {each:.1}"));
        }
        // (`raf` copies an extent at its second random read.)
        assert!(full > FAST / 3, "{name}: {full} copies");
    }
    assert!(over.is_empty(), "{over:?}");
}

/// A generated map of many full slots, with all blocks known: 32 million of them with `ISOTHERM_LARGE=1`, which takes 0.8 GB.
#[test]
fn a_large_full_map() {
    let large = std::env::var_os("ISOTHERM_LARGE").is_some();
    let fast = if large { 32 << 20 } else { 1 << 18 };
    let extents = fast * 20;
    let (map, held, peak) = counted(|| {
        let mut map = ExtentMap::new(&geometry(fast, extents));
        for s in 0..fast {
            // Every extent is another: the factor has no common divisor with their number.
            let e = (u64::from(s) * 1_000_003 % u64::from(extents)) as u32;
            map.add_empty_copy(ExtentId(e), Slot(s));
            map.copy_dirty(ExtentId(e), s % 16, 16);
        }
        map
    });
    assert_eq!((map.copied(), map.dirty()), (fast, fast));
    for s in (0..fast).step_by(1009) {
        let e = map.owner(Slot(s)).expect("a copy");
        assert_eq!(
            (map.copy(e), map.home(e)),
            (Some(Slot(s)), Some(Slot(fast + e.0)))
        );
    }
    let each = peak as f64 / f64::from(fast);
    println!("{fast} slots: {each:.2} bytes a slot, {held} bytes");
    assert!(each < 22.0, "{each}");
    let (least, most) = ExtentMap::estimate(&geometry(fast, extents));
    assert!(least < held as u64 && held as u64 <= most);
}

/// Hits, and the state at the end, of a small volume under a preset that remembers at least `floor` extents without a copy.
fn decisions(name: &str, floor: u32) -> (u64, String) {
    let mut e = NullEngine::over(Space::with_past(geometry(300, 60_000), floor), preset(name));
    let mut random = SplitMix64::new(9);
    let mut digest = 0u64;
    for at in 0..60_000 {
        let x = random.below(2000) * random.below(2000) / 2000 * 29;
        let request = ((x << 16) + random.below(15) * 4096, 4096);
        let class = random.below(20) as u8;
        let write = random.below(4) == 0;
        let hit = e.access(
            Nanos::from_millis(at * 7),
            ExtentId(x as u32),
            write,
            class,
            request,
        );
        digest = digest.wrapping_mul(31).wrapping_add(u64::from(hit));
    }
    (digest, format!("{:?}", e.counters()))
}

/// While the tables have room for what is used, every decision is as if all extents were remembered.
#[test]
fn what_fits_is_remembered_exactly() {
    for name in caching().filter(|name| preset(name).unit_bytes() == 0) {
        let unbounded = decisions(name, u32::MAX);
        assert_eq!(decisions(name, 30_000), unbounded, "{name}");
    }
}
