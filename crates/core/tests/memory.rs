//! Memory of a volume: bytes per extent for the map and for every preset's statistics, as counted by the allocator. The code's own figures
//! are only compared with these. `cargo test -p isotherm-core --test memory -- --nocapture` prints the table.

use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{PRESETS, build};
use isotherm_core::{ExtentId, Nanos, TierId};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Number of bytes that this thread has allocated and not freed.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn change(by: impl FnOnce(usize) -> usize) {
    // While a thread ends, its counter may not exist any more.
    let _ = HELD.try_with(|h| h.set(by(h.get())));
}

// SAFETY: every call is passed to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        change(|n| n.wrapping_add(layout.size()));
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        change(|n| n.wrapping_sub(layout.size()));
        // SAFETY: `p` came from `alloc` above with this layout.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const EXTENTS: u32 = 200_000;
/// The lab's default share of the fast tier.
const FAST: u32 = EXTENTS / 10;

/// Presets for which map and statistics may take 16 bytes per extent, with a tenth of the volume on the fast tier. The others have ghosts
/// or counters for each extent and may take 24. The memory of a plan in progress is additional.
const PLAIN: [&str; 18] = [
    "bcache-like",
    "clock",
    "dss-lru",
    "dss-lru-s",
    "fifo",
    "greendm",
    "greendm-cache",
    "hot-dst-frequency",
    "hot-dst-recency",
    "hot-dst-wsclock",
    "linear",
    "lru",
    "mylinear",
    "opencas-like",
    "raf",
    "sieve",
    "two-q",
    "w-tinylfu",
];
fn geometry() -> Geometry {
    let m = |tier, slots| Member {
        tier: TierId(tier),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    };
    Geometry::new(16, 12, EXTENTS, vec![m(0, FAST), m(1, EXTENTS + 64)]).expect("a valid shape")
}

/// Bytes per extent after every extent was accessed and many were accessed again: as counted, according to the code's own figure, and for
/// bitmaps of valid blocks.
fn measure(name: &str) -> (f64, f64, f64) {
    let before = HELD.with(Cell::get);
    let policy = build(name, std::iter::empty()).expect("presets build");
    let mut e = NullEngine::new(geometry(), policy);
    let mut at = 0;
    let mut touch = |e: &mut NullEngine<_>, x: u32| {
        at += 2;
        let request = (u64::from(x) << 16, 65_536);
        e.access(
            Nanos::from_millis(at),
            ExtentId(x),
            x.is_multiple_of(5),
            0,
            request,
        );
    };
    for x in 0..EXTENTS {
        touch(&mut e, x);
    }
    let mut random = isotherm_core::random::SplitMix64::new(7);
    for _ in 0..EXTENTS {
        let s = random.draw();
        let (a, b) = (s >> 33, s >> 20 & 0xffff);
        touch(&mut e, ((a % u64::from(EXTENTS)) * b / 65_536) as u32);
    }
    let held = HELD.with(Cell::get) - before;
    let bitmaps = e.space().map.bytes().1;
    let each = |n: usize| n as f64 / f64::from(EXTENTS);
    (each(held - bitmaps), each(e.bytes()), each(bitmaps))
}

#[test]
fn an_extent_costs_few_bytes() {
    let mut over = Vec::new();
    println!("{:<26}{:>8}{:>8}{:>9}", "preset", "held", "said", "bitmaps");
    for p in PRESETS {
        let (held, said, bitmaps) = measure(p.name);
        println!("{:<26}{held:>8.2}{said:>8.2}{bitmaps:>9.2}", p.name);
        let bar = if PLAIN.contains(&p.name) { 16.0 } else { 24.0 };
        if held > bar {
            over.push(format!("{}: {held:.2} bytes an extent, over {bar}", p.name));
        }
        // The figure in `stats` must be correct, except for queues and parts of fixed size.
        if (held - said).abs() > 0.6 {
            over.push(format!("{}: holds {held:.2}, says {said:.2}", p.name));
        }
    }
    assert!(over.is_empty(), "{}", over.join("\n"));
}

/// The last column of the table of plain caches in docs/policies.md: smallest and largest number of bytes per fast slot.
fn documented() -> Vec<(String, f64, f64)> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policies.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let table = page.split("| own memory per fast slot |").nth(1);
    let rows = table.expect("the table").lines().skip(2);
    let row = |line: &str| {
        let name = line.split('`').nth(1).expect("a name").to_owned();
        let cell = line.trim_end_matches(" |").rsplit(" | ").next();
        let cell = cell.and_then(|c| c.strip_suffix(" bytes"));
        let (least, most) = cell.map_or(("", ""), |c| c.split_once(" to ").unwrap_or((c, c)));
        let number = |text: &str| text.parse().expect("N bytes, or N to M bytes");
        (name, number(least), number(most))
    };
    rows.take_while(|l| l.starts_with('|')).map(row).collect()
}

/// Tables whose sizes are powers of two make the memory per slot depend on the number of slots. The numbers of slots here cover one
/// doubling, with both ends of each step.
#[test]
fn the_page_gives_the_memory_of_a_cached_extent() {
    let steps = [
        49_151, 49_152, 54_611, 54_614, 65_536, 65_537, 80_000, 98_302,
    ];
    let mut wrong = Vec::new();
    for (name, least, most) in documented() {
        let each = steps.map(|slots| {
            let policy = build(&name, std::iter::empty()).expect("a preset");
            let e = NullEngine::two_tiers(slots, 2 * slots, policy);
            e.policy().bytes() as f64 / f64::from(slots)
        });
        let low = each.into_iter().fold(f64::MAX, f64::min);
        let high = each.into_iter().fold(0.0, f64::max);
        println!("{name:<12}{low:>8.2}{high:>8.2}");
        // A range is given in whole bytes; a single figure may have one decimal.
        let tolerance = if least < most { 0.5 } else { 0.051 };
        if (low - least).abs() > tolerance || (high - most).abs() > tolerance {
            wrong.push(format!(
                "{name}: {low:.2} to {high:.2}, the page says {least} to {most}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
