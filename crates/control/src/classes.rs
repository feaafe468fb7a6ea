//! The contents of a served volume by class, for `classes show`, `stats` and `status`.

use isotherm_answers::{
    ClassFigures, ClassLayout, ClassRanges, ClassRow, ClassSources, Classes, FileSystemKind,
    FoundFileSystem, Promise, RegisteredClasses, SourceFigures, SourceOfClass, Work,
};
use isotherm_classify::{ClassMap, Classifier, Counts, Source, classes};
use isotherm_core::policy::priority;
use isotherm_core::qos::Standing;
use isotherm_core::stats::{CLASSES, ClassCounters, TierWork};
use isotherm_core::{Engine, Nanos, Slot, TierId, World};
use isotherm_live::{Handle, classes as live};
use isotherm_models::cost::Used;
use isotherm_words::qos;
use std::collections::BTreeMap;
use std::ops::Range;

/// Slots of the fastest tier that are examined per call on the engine's thread.
const SLICE: u32 = 2048;

/// Bytes by class.
pub type Bytes = [u64; CLASSES];

/// The contents of the fastest tier.
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    /// Valid bytes of copies and homes, by class.
    pub bytes: Bytes,
    /// Number of these copies and homes.
    pub extents: u64,
    /// How many of them hold valid blocks of several classes.
    pub mixed: u64,
}

impl Contents {
    /// The share of extents of several classes, 0 to 1; `None` if the tier is empty.
    pub fn mixed_share(&self) -> Option<f64> {
        (self.extents > 0).then(|| self.mixed as f64 / self.extents as f64)
    }
}

fn gone() -> String {
    "the volume is closing".to_owned()
}

/// [`contents`] if that is quick, for figures that are asked for often. For a large tier only `classes show` computes them.
///
/// # Errors
/// The volume is closing.
pub fn quick_contents(handle: &Handle) -> Result<Option<Contents>, String> {
    const SLOTS_MAX: usize = 1 << 18;
    let slots = handle.call(|e, _| e.space().geo.tier_slots(TierId(0)).len());
    if slots.ok_or_else(gone)? > SLOTS_MAX {
        return Ok(None);
    }
    contents(handle).map(Some)
}

/// The contents of the fastest tier: valid blocks of its copies and homes.
///
/// # Errors
/// The volume is closing.
pub fn contents(handle: &Handle) -> Result<Contents, String> {
    let mut sum = Contents {
        bytes: [0; CLASSES],
        extents: 0,
        mixed: 0,
    };
    let slots = handle
        .call(|e, _| e.space().geo.tier_slots(TierId(0)))
        .ok_or_else(gone)?;
    let mut at = slots.start;
    while at < slots.end {
        let to = slots.end.min(at + SLICE);
        let map = handle.classes().map().clone();
        sum = handle
            .call(move |e, _| slice(e, &map, at..to, sum))
            .ok_or_else(gone)?;
        at = to;
    }
    Ok(sum)
}

/// Adds the contents of some slots to `sum`.
fn slice(engine: &Engine, map: &ClassMap, slots: Range<u32>, mut sum: Contents) -> Contents {
    let space = engine.space();
    let (shift, block_shift) = (space.geo.extent_shift, space.geo.block_shift);
    let blocks = space.geo.blocks_per_extent();
    for s in slots {
        let Some(e) = space.map.owner(Slot(s)) else {
            continue;
        };
        let is_copy = space.map.copy(e) == Some(Slot(s));
        let start = u64::from(e.0) << shift;
        let (mut b, mut before, mut several) = (0, None, false);
        while b < blocks {
            let (n, valid) = if is_copy {
                space.map.copy_run(e, b, blocks)
            } else {
                space.map.run(e, b, blocks)
            };
            if valid {
                let first = start + (u64::from(b) << block_shift);
                add(
                    map,
                    first,
                    first + (u64::from(n) << block_shift),
                    |class, n| {
                        sum.bytes[usize::from(class)] += n;
                        several |= before.is_some_and(|b| b != class);
                        before = Some(class);
                    },
                );
            }
            b += n;
        }
        sum.extents += u64::from(before.is_some());
        sum.mixed += u64::from(several);
    }
    sum
}

/// Calls `each` with the class of each run of blocks, and its bytes.
fn add(map: &ClassMap, from: u64, to: u64, mut each: impl FnMut(u8, u64)) {
    let mut at = from;
    while at < to {
        let (mark, n) = map.run(at >> 12, (to - at).div_ceil(4096));
        let end = to.min(((at >> 12) + n) << 12);
        each(mark.class(), end - at);
        at = end;
    }
}

/// Bytes of the volume by class.
fn registered(map: &ClassMap) -> Bytes {
    let mut bytes = [0; CLASSES];
    add(map, 0, map.blocks() << 12, |class, n| {
        bytes[usize::from(class)] += n;
    });
    bytes
}

/// Counters by class, under the names of `sim --json`; classes without any are omitted.
pub fn by_class(counters: &[ClassCounters], fast: Option<&Bytes>) -> BTreeMap<u8, ClassFigures> {
    let mut all = BTreeMap::new();
    for (i, c) in counters.iter().enumerate() {
        let fast_bytes = fast.map(|f| f[i]);
        let moves = c.promotions + c.demotions + c.fetches + c.evictions + c.writebacks;
        if c.requests + c.accesses + moves + fast_bytes.unwrap_or(0) == 0 {
            continue;
        }
        all.insert(i as u8, figures(i as u8, c, fast_bytes));
    }
    all
}

fn figures(class: u8, c: &ClassCounters, fast_bytes: Option<u64>) -> ClassFigures {
    let latency = |f: fn(&isotherm_core::stats::Histogram) -> f64| c.latency.as_deref().map(f);
    ClassFigures {
        name: classes::name(class),
        priority: priority(class),
        accesses: c.accesses,
        fast_hits: c.fast_hits,
        fast_hit_ratio: (c.accesses > 0).then(|| c.fast_hits as f64 / c.accesses as f64),
        requests: c.requests,
        bytes: c.bytes_read + c.bytes_written,
        bytes_read: c.bytes_read,
        bytes_written: c.bytes_written,
        latency_mean_s: latency(|h| h.mean().as_secs_f64()),
        latency_p95_s: latency(|h| h.quantile(0.95).as_secs_f64()),
        promotions: c.promotions,
        demotions: c.demotions,
        fetches: c.fetches,
        evictions: c.evictions,
        writebacks: c.writebacks,
        fast_bytes,
        work: used(c.work.as_deref()),
    }
}

/// The work of devices for a class, including moves, under the names of `sim --json`; null if the data sheets do not state it.
pub fn used(work: Option<&TierWork>) -> Work {
    let none = TierWork::default();
    let u = Used::of(work.unwrap_or(&none));
    Work {
        device_time_s: u.device_time_s,
        fast_read_bytes: u.fast_read_bytes,
        fast_write_bytes: u.fast_write_bytes,
        slow_read_bytes: u.slow_read_bytes,
        slow_write_bytes: u.slow_write_bytes,
        energy_j: u.energy_j,
        wear_usd: u.wear_usd,
        cost_usd: u.cost_usd,
    }
}

/// The promises to classes and whether they are kept; empty if there are none.
pub fn promised(engine: &Engine, now: Nanos) -> Vec<Promise> {
    let row = |s: Standing| {
        let rest = s.row.classes == 0;
        Promise {
            row: (!rest).then(|| qos::text(&s.row)),
            classes: if rest {
                "rest".to_owned()
            } else {
                qos::class_text(s.row.classes)
            },
            floor_bytes_per_s: s.row.floor,
            ceiling_bytes_per_s: s.row.ceiling,
            latency_s: s.row.latency.map(Nanos::as_secs_f64),
            share: s.row.share,
            bytes: s.bytes,
            bytes_per_s: s.bytes_per_s,
            held: s.held,
            in_flight: s.in_flight,
            waited_requests: s.waited,
            waited_s: s.waited_time.as_secs_f64(),
            floor_held: s.floor_held,
            latency_held: s.latency_held,
            windows: s.judged,
            windows_missed: s.missed,
        }
    };
    engine.standing(now).into_iter().map(row).collect()
}

/// Which sources the classifier itself uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsedSources {
    /// Classes that come with requests.
    pub front_end: bool,
    /// Guesses about what is being written.
    pub guess: bool,
}

impl UsedSources {
    /// Those of a classifier.
    pub fn of(c: &Classifier) -> UsedSources {
        UsedSources {
            front_end: c.front_end(),
            guess: c.guesses(),
        }
    }
}

/// Whether each source is on, in the order of [`Source::ALL`].
pub type SourcesOn = [bool; Source::ALL.len()];

/// The sources of classes that are on.
pub fn sources_on(handle: &Handle) -> SourcesOn {
    Source::ALL.map(|s| handle.classes().layers().is_on(s))
}

/// The sources of classes, and the number of requests that each has classified.
pub fn sources(on: SourcesOn, counts: &Counts, asked: UsedSources) -> ClassSources {
    let one = |source, on, requests| SourceFigures {
        source,
        on,
        requests,
    };
    let front_end = one(SourceOfClass::FrontEnd, asked.front_end, counts.front_end);
    let own = Source::ALL.into_iter().zip(on).map(|(s, on)| {
        let name = match s {
            Source::Ranges => SourceOfClass::Ranges,
            Source::Database => SourceOfClass::Database,
            Source::Files => SourceOfClass::Files,
            Source::Layout => SourceOfClass::Layout,
        };
        one(name, on, counts.sources[s.index()])
    });
    let guess = one(SourceOfClass::Guess, asked.guess, counts.guessed);
    ClassSources {
        sources: [front_end].into_iter().chain(own).chain([guess]).collect(),
        unclassified_requests: counts.unknown,
        mixed_requests: counts.mixed,
    }
}

/// Everything about classes.
///
/// # Errors
/// The volume is closing.
pub fn show(handle: &Handle) -> Result<Classes, String> {
    let held = contents(handle)?;
    let fast = held.bytes;
    let (counters, counts, asked, rows, qos) = handle
        .call(|e, w| {
            let c = w.classifier();
            let counts = c
                .as_ref()
                .map(|c| (c.counts, UsedSources::of(c)))
                .unwrap_or_default();
            let rows = e.names().into_iter().filter(|n| n.0 == "class");
            let rows: Vec<String> = rows.map(|n| n.1).collect();
            let qos = promised(e, w.now());
            (e.counters().classes.clone(), counts.0, counts.1, rows, qos)
        })
        .ok_or_else(gone)?;
    let map = handle.classes().map();
    let volume = registered(map);
    let row = |figures| ClassRow {
        figures,
        volume_bytes: None,
    };
    let known = by_class(&counters, Some(&fast)).into_iter();
    let mut by_class: BTreeMap<u8, ClassRow> = known.map(|(i, f)| (i, row(f))).collect();
    for (class, n) in (0u8..).zip(volume).filter(|(_, n)| *n > 0) {
        let unused = || {
            let fast_bytes = Some(fast[usize::from(class)]);
            row(figures(class, &ClassCounters::default(), fast_bytes))
        };
        let row = by_class.entry(class).or_insert_with(unused);
        row.volume_bytes = Some(n);
    }
    let (looks, trouble, found) = handle.classes().file_systems();
    let file_systems = found.into_iter().map(|(kind, offset, bytes, block)| {
        let kind = match kind {
            live::FileSystemKind::Ext => FileSystemKind::Ext,
            live::FileSystemKind::Xfs => FileSystemKind::Xfs,
        };
        FoundFileSystem {
            kind,
            offset,
            bytes,
            block_bytes: block,
        }
    });
    let memory_bytes = handle.classes().memory();
    let gib = (map.blocks() << 12) as f64 / f64::from(1 << 30);
    Ok(Classes {
        sources: sources(sources_on(handle), &counts, asked),
        rows,
        qos,
        fast_extents: held.extents,
        mixed_fast_extents: held.mixed,
        mixed_fast_share: held.mixed_share(),
        memory_bytes,
        memory_bytes_per_gib: memory_bytes as f64 / gib.max(1e-9),
        layout: ClassLayout {
            full_looks: looks.full,
            refreshes: looks.refreshes,
            ranges: looks.ranges,
            failed: looks.failed,
            trouble,
            file_systems: file_systems.collect(),
        },
        by_class,
    })
}

/// Registers the classes of ranges on behalf of a source.
///
/// # Errors
/// There is no such source, a class is above 63, or a range is beyond the volume. Then nothing is changed.
pub fn register(
    handle: &Handle,
    source: &str,
    anew: bool,
    ranges: &[(u64, u64, u8)],
) -> Result<RegisteredClasses, String> {
    let source = Source::parse(source)
        .filter(|s| *s != Source::Layout)
        .ok_or_else(|| format!("source `{source}`: use ranges, database or files"))?;
    let bytes = handle.classes().layers().bytes();
    for &(from, n, class) in ranges {
        if class > classes::CLASS_MAX {
            return Err(format!("class {class}: use 0 to {}", classes::CLASS_MAX));
        }
        if from.checked_add(n).is_none_or(|end| end > bytes) {
            return Err(format!(
                "{n} bytes from {from} lie beyond the volume, which has {bytes} bytes"
            ));
        }
    }
    let mut layers = handle.classes().layers();
    if anew {
        layers.clear(source, 0, 12);
    }
    for &(from, n, class) in ranges.iter().filter(|r| r.1 > 0) {
        layers.set(source, from >> 12, (from + n).div_ceil(4096), class);
    }
    drop(layers);
    if handle.classes().settle(handle) {
        Ok(RegisteredClasses {
            source: source.name().to_owned(),
            ranges: ranges.len(),
        })
    } else {
        Err(gone())
    }
}

/// Most ranges in one answer, so that they fit into one line of the control socket.
const RANGES: usize = 16_384;

/// The ranges of one class from a byte on, and the byte at which to continue.
pub fn ranges(handle: &Handle, from: u64) -> ClassRanges {
    let map = handle.classes().map();
    let mut all: Vec<(u64, u64, u8)> = Vec::new();
    let mut at = from >> 12;
    while at < map.blocks() {
        let (mark, n) = map.run(at, map.blocks() - at);
        let (offset, bytes, class) = (at << 12, n << 12, mark.class());
        let full = all.len() == RANGES;
        match all.last_mut() {
            Some(last) if last.2 == class && last.0 + last.1 == offset => last.1 += bytes,
            _ if class == 0 => {}
            _ if full => break,
            _ => all.push((offset, bytes, class)),
        }
        at += n;
    }
    let next = (at < map.blocks()).then_some(at << 12);
    ClassRanges { ranges: all, next }
}

/// Switches a source on or off.
///
/// # Errors
/// No such source, or the volume is closing.
pub fn switch(handle: &Handle, source: &str, on: bool) -> Result<(), String> {
    let set: Option<fn(&mut Classifier, bool)> = match source {
        "front-end" => Some(Classifier::set_front_end),
        "guess" => Some(Classifier::set_guess),
        _ => None,
    };
    if let Some(set) = set {
        let done = handle.call(move |_, w| {
            if let Some(c) = w.classifier() {
                set(c, on);
            }
        });
        return done.ok_or_else(gone);
    }
    let known = Source::parse(source).ok_or_else(|| {
        format!("source `{source}`: there are front-end, ranges, database, files, layout and guess")
    })?;
    handle.classes().layers().switch(known, on);
    if handle.classes().settle(handle) {
        Ok(())
    } else {
        Err(gone())
    }
}
