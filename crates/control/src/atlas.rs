//! The placement of data on a served volume, for display: the cells of a map, and recent moves.
//!
//! The engine's thread is asked for a few thousand extents at a time, so that a map delays a request no longer than another request does.

use isotherm_answers::{Cells, EndedMove, MoveList, MoveUnderWay};
use isotherm_core::policy::{Action, Outcome};
use isotherm_core::{Engine, ExtentId, Nanos, TierId};
use isotherm_live::Handle;
use isotherm_live::recorder::Driver;

/// Extents per call on the engine's thread: about 40 µs.
const PER_VISIT: u64 = 4096;
/// Maximum number of extents that are examined for one map. In a larger range, an evenly spaced subset is examined.
const EXAMINED_MAX: u64 = 131_072;
/// Maximum number of cells of a map.
pub const CELLS_MAX: u32 = 131_072;
/// Maximum number of moves in one answer.
const MOVES: usize = 40;
/// Maximum number of moves in one answer with an explanation.
const EXPLAINED: usize = 16;
/// A week, in the unit of ages (2^20 ns), is 2^29.1: the coldest level.
const OLDEST: u64 = 466;

/// Digits of cells, 0 to 63, as in base64 for URLs.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// A cell without data.
const NOTHING: u8 = b'.';
const COPY: u8 = 8;
const DIRTY: u8 = 16;
const HELD: u8 = 32;

/// The extents that are examined for each cell.
#[derive(Clone, Copy, Debug)]
struct Grid {
    from: u64,
    to: u64,
    cells: u64,
    step: u64,
}

impl Grid {
    fn new(from: u64, to: u64, cells: u32) -> Grid {
        let n = to - from;
        Grid {
            from,
            to,
            cells: u64::from(cells).min(n),
            step: n.div_ceil(EXAMINED_MAX),
        }
    }
    /// The first extent of a cell, and the one after its last.
    fn of(&self, cell: u64) -> (u64, u64) {
        let n = self.to - self.from;
        let at =
            |c: u64| self.from + (u128::from(c) * u128::from(n) / u128::from(self.cells)) as u64;
        (at(cell), at(cell + 1))
    }
}

/// Counters over all cells.
#[derive(Clone, Debug, Default)]
struct Sums {
    looked: u64,
    mapped: u64,
    by_tier: [u64; 8],
    copies: u64,
    dirty: u64,
    held: u64,
}

/// How recently an extent was used: 63 is now, 0 is a week ago or never. The scale is logarithmic.
fn warmth(now: Nanos, last: Nanos) -> u64 {
    if last == Nanos(0) {
        return 0;
    }
    let age = (now.since(last).0 >> 20) + 1;
    let exponent = u64::from(age.ilog2());
    let fraction = if exponent >= 4 {
        (age >> (exponent - 4)) & 15
    } else {
        (age << (4 - exponent)) & 15
    };
    63 - (63 * (exponent * 16 + fraction).min(OLDEST)) / OLDEST
}

/// Examines cells from `cell` on, up to the limit of one call. Returns the next cell.
fn examine(
    engine: &Engine,
    now: Nanos,
    grid: &Grid,
    mut cell: u64,
    (place, heat, sums): (&mut Vec<u8>, &mut Vec<u8>, &mut Sums),
) -> u64 {
    let space = engine.space();
    let (map, geo) = (&space.map, &space.geo);
    let mut left = PER_VISIT;
    while cell < grid.cells && left > 0 {
        let (from, to) = grid.of(cell);
        let (mut tiers, mut flags, mut warm, mut mapped) = ([0u64; 8], 0, 0, 0);
        for e in (from..to)
            .step_by(grid.step as usize)
            .map(|e| ExtentId(e as u32))
        {
            left = left.saturating_sub(1);
            sums.looked += 1;
            let Some(slot) = map.fastest(e) else { continue };
            mapped += 1;
            tiers[usize::from(geo.tier_of(slot).0) & 7] += 1;
            warm += warmth(now, map.last(e));
            if map.copy(e).is_some() {
                flags |= COPY;
                sums.copies += 1;
                if map.is_dirty(e) {
                    flags |= DIRTY;
                    sums.dirty += 1;
                }
            }
            if map.is_held(e) {
                flags |= HELD;
                sums.held += 1;
            }
        }
        sums.mapped += mapped;
        for (sum, n) in sums.by_tier.iter_mut().zip(tiers) {
            *sum += n;
        }
        // The tier of most extents; on ties the faster one.
        let most = tiers.iter().copied().max().unwrap_or(0);
        let tier = tiers.iter().position(|n| *n == most).unwrap_or(0) as u8;
        let digit = |n: u64| DIGITS[(n & 63) as usize];
        place.push(if mapped == 0 {
            NOTHING
        } else {
            digit(u64::from(tier | flags))
        });
        heat.push(warm.checked_div(mapped).map_or(NOTHING, digit));
        cell += 1;
    }
    cell
}

/// Extents `from..to` in at most `cells` cells. A cell has the tier from which most of its extents are read, marks, and how recently they
/// were used.
///
/// # Errors
/// The volume is closing, or there are no such extents.
pub fn map(handle: &Handle, from: u64, to: u64, cells: u32) -> Result<Cells, String> {
    let gone = || "the volume is closing".to_owned();
    let (extents, bytes, tiers) = handle
        .call(|e, _| {
            let geo = &e.space().geo;
            (u64::from(geo.extents), geo.extent_bytes(), geo.tiers())
        })
        .ok_or_else(gone)?;
    let to = to.min(extents);
    if from >= to || cells == 0 || cells > CELLS_MAX {
        return Err(format!(
            "extents {from} to {to} in {cells} cells: the volume has {extents} extents, and a map at most {CELLS_MAX} cells"
        ));
    }
    let grid = Grid::new(from, to, cells);
    let (mut place, mut heat, mut sums) = (Vec::new(), Vec::new(), Sums::default());
    let mut next = 0;
    while next < grid.cells {
        let visit = move |e: &mut Driver, w: &mut isotherm_live::world::UringWorld| {
            let now = isotherm_core::World::now(w);
            let (mut p, mut h, mut s) = (Vec::new(), Vec::new(), sums);
            let next = examine(e, now, &grid, next, (&mut p, &mut h, &mut s));
            (next, p, h, s)
        };
        let (n, p, h, s) = handle.call(visit).ok_or_else(gone)?;
        (next, sums) = (n, s);
        place.extend(p);
        heat.extend(h);
    }
    let text = |v: Vec<u8>| String::from_utf8(v).unwrap_or_default(); // these bytes are ASCII digits
    Ok(Cells {
        from,
        to,
        extents,
        extent_bytes: bytes,
        cells: grid.cells,
        step: grid.step,
        looked: sums.looked,
        mapped: sums.mapped,
        by_tier: sums.by_tier[..usize::from(tiers)].to_vec(),
        copies: sums.copies,
        dirty: sums.dirty,
        held: sums.held,
        place: text(place),
        heat: text(heat),
    })
}

/// The name of a move, and its target tier.
fn words(action: Action, up: bool) -> (&'static str, Option<TierId>) {
    match action {
        Action::Move { to, .. } if up => ("promotion", Some(to)),
        Action::Move { to, .. } => ("demotion", Some(to)),
        Action::Fetch { to, .. } | Action::FetchPart { to, .. } => ("fetch", Some(to)),
        Action::Allocate { to, .. } => ("allocation", Some(to)),
        Action::Clean { .. } => ("write-back", None),
        Action::Evict { .. } => ("eviction", None),
    }
}

/// Recent moves, newest first, and moves in progress, with the policy's present explanation for their extents.
pub fn moves(engine: &mut Driver, now: Nanos) -> MoveList {
    let bytes = u64::from(engine.space().geo.extent_bytes());
    let ended: Vec<_> = engine
        .recent_moves()
        .newest()
        .take(MOVES)
        .copied()
        .collect();
    let mut asked: Vec<(ExtentId, String)> = Vec::new();
    let mut why = |engine: &mut Driver, e: ExtentId| {
        if let Some((_, text)) = asked.iter().find(|a| a.0 == e) {
            return Some(text.clone());
        }
        (asked.len() < EXPLAINED).then(|| {
            let text = engine.explain(now, e).why;
            asked.push((e, text.clone()));
            text
        })
    };
    let under_way = (engine.moving().into_iter().take(MOVES))
        .map(|(e, action)| {
            let (kind, to) = words(action, isotherm_core::TierId(0) == to_of(action));
            MoveUnderWay {
                kind,
                offset: u64::from(e.0) * bytes,
                to: to.map(|t| t.0),
            }
        })
        .collect();
    let mut list = Vec::new();
    for m in ended {
        let (kind, to) = words(m.action, m.up);
        let e = m.action.extent();
        let how = match m.how {
            Outcome::Done => "done",
            Outcome::Stale => "overtaken",
            Outcome::Failed => "failed",
            Outcome::Refused(_) => "refused",
        };
        list.push(EndedMove {
            age_s: now.since(m.at).as_secs_f64(),
            kind,
            offset: u64::from(e.0) * bytes,
            to: to.map(|t| t.0),
            own: m.own,
            how,
            why: why(engine, e),
        });
    }
    MoveList {
        ended: list,
        under_way,
        count: engine.recent_moves().count(),
        extent_bytes: bytes,
    }
}

/// The target tier of a move in progress; the slowest tier if the action does not state one.
fn to_of(action: Action) -> TierId {
    match action {
        Action::Move { to, .. }
        | Action::Fetch { to, .. }
        | Action::FetchPart { to, .. }
        | Action::Allocate { to, .. } => to,
        Action::Clean { .. } | Action::Evict { .. } => TierId(u8::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warmth_falls_from_now_to_a_week() {
        let now = Nanos::from_secs(2_000_000);
        let of = |age_s: u64| warmth(now, Nanos::from_secs(2_000_000 - age_s));
        assert_eq!((of(0), warmth(now, Nanos(0))), (63, 0));
        assert_eq!(of(700_000), 0);
        let all: Vec<u64> = (0..600_000).step_by(7).map(of).collect();
        assert!(all.is_sorted_by(|a, b| a >= b) && all.iter().all(|w| *w < 64));
        assert!((38..50).contains(&of(1)) && of(60) < of(1) && of(86_400) < of(3600));
    }

    #[test]
    fn cells_cover_every_extent_once() {
        for (from, to, cells) in [
            (0, 10, 3),
            (5, 6, 100),
            (0, 1 << 20, 1000),
            (7, 100_007, 131_072),
        ] {
            let g = Grid::new(from, to, cells);
            assert_eq!((g.of(0).0, g.of(g.cells - 1).1), (from, to));
            assert!((1..g.cells).all(|c| g.of(c).0 == g.of(c - 1).1 && g.of(c).1 > g.of(c).0));
            let looked: u64 = (0..g.cells)
                .map(|c| (g.of(c).1 - g.of(c).0).div_ceil(g.step))
                .sum();
            assert!(looked <= EXAMINED_MAX + g.cells && (g.step > 1 || looked == to - from));
        }
    }
}
