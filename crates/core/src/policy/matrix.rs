//! The migration matrix over three tiers and more (OODT III-C; docs/policy-rules.md section 4): the tier of each unit, and the order in
//! which the cells are executed.
//!
//! The fastest tier takes the units of highest worth. The others are ranked again for the next tier, without the weight of reads,
//! and so on. On ties, units that are already on the tier stay; then the lower number comes first. A plan examines every unit
//! that has a score, so it costs O(n log n). Over two tiers the plan is incremental instead (`interval.rs`).
//!
//! Demotions come before promotions, into the slowest tier first. If full tiers exchange units with each other, one of the units is moved
//! to the slowest tier in the meantime, which costs one move more than the matrix contains.

use super::View;
use crate::collector::Collector;
use crate::units::TierId;
use crate::volume::UnitId;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// One entry of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    from: u8,
    extent: UnitId,
}

/// The moves of one migration, in order.
pub fn plan(view: &View<'_>, collector: &dyn Collector) -> VecDeque<(UnitId, TierId)> {
    let tiers = view.tiers();
    let mut left: Vec<(UnitId, u8)> = (0..view.units())
        .map(UnitId)
        .filter(|&e| collector.rank(view, e).0 > 0)
        .filter_map(|e| view.home(e).map(|s| (e, view.tier_of(s).0)))
        .collect();
    let mut to: Vec<Vec<Cell>> = vec![Vec::new(); usize::from(tiers)];
    for t in 0..tiers {
        let slots = view.positions(TierId(t)).len();
        let worth = |e| {
            if t == 0 {
                collector.rank(view, e).0
            } else {
                collector.lower_worth(view, e)
            }
        };
        left.sort_by_cached_key(|&(e, at)| (core::cmp::Reverse(worth(e)), at != t, e));
        let n = if t + 1 == tiers { left.len() } else { slots };
        for (extent, from) in left.drain(..n.min(left.len())) {
            if from != t {
                to[usize::from(t)].push(Cell { from, extent });
            }
        }
    }
    order(to, (0..tiers).map(|t| view.free(TierId(t))).collect())
}

/// Sorts these moves (extent, from, to) so that every target has a free slot. Moves for which no slot becomes free are left out.
pub fn in_order(
    view: &View<'_>,
    moves: impl Iterator<Item = (UnitId, TierId, TierId)>,
) -> VecDeque<(UnitId, TierId)> {
    let tiers = view.tiers();
    let mut to: Vec<Vec<Cell>> = vec![Vec::new(); usize::from(tiers)];
    for (extent, from, target) in moves {
        let from = from.0;
        to[usize::from(target.0)].push(Cell { from, extent });
    }
    order(to, (0..tiers).map(|t| view.free(TierId(t))).collect())
}

/// Sorts the moves of a matrix, given by target, so that every target has a free slot.
fn order(mut to: Vec<Vec<Cell>>, mut free: Vec<u32>) -> VecDeque<(UnitId, TierId)> {
    let slowest = to.len() - 1;
    let mut out = VecDeque::new();
    for cells in &mut to {
        cells.sort_unstable_by(|a, b| b.cmp(a)); // processed from the end: by tier, then by address
    }
    loop {
        let before = out.len();
        for down in [true, false] {
            for t in (0..=slowest).rev() {
                let (mut now, rest) = core::mem::take(&mut to[t])
                    .into_iter()
                    .partition::<Vec<_>, _>(|c| (usize::from(c.from) < t) == down);
                to[t] = rest;
                while free[t] > 0
                    && let Some(c) = now.pop()
                {
                    free[t] -= 1;
                    free[usize::from(c.from)] += 1;
                    out.push_back((c.extent, TierId(t as u8)));
                }
                to[t].append(&mut now);
            }
        }
        if out.len() > before {
            continue;
        }
        // Full tiers exchange units: one unit goes to the slowest tier for the time being.
        let aside = (0..slowest).find_map(|t| {
            to[t]
                .iter()
                .rposition(|c| usize::from(c.from) < t)
                .map(|i| (t, i))
        });
        let Some((t, i)) = aside.filter(|_| free[slowest] > 0) else {
            return out;
        };
        let c = &mut to[t][i];
        free[slowest] -= 1;
        free[usize::from(c.from)] += 1;
        out.push_back((c.extent, TierId(slowest as u8)));
        c.from = slowest as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(from: u8, e: u32) -> Cell {
        Cell {
            from,
            extent: UnitId(e),
        }
    }

    #[test]
    fn demotions_first_then_promotions() {
        // 0 → 2: unit 7; 1 → 0: unit 5; 2 → 1: units 3 and 9. Tiers 0 and 1 are full.
        let to = vec![
            vec![cell(1, 5)],
            vec![cell(2, 9), cell(2, 3)],
            vec![cell(0, 7)],
        ];
        let want = [(7, 2), (5, 0), (3, 1)];
        let got: Vec<_> = order(to, vec![0, 0, 2])
            .iter()
            .map(|m| (m.0.0, m.1.0))
            .collect();
        assert_eq!(got, want, "the second has no slot and is left out");
    }

    #[test]
    fn full_tiers_are_exchanged_through_a_free_slot_elsewhere() {
        // 0 → 1: unit 1; 1 → 0: unit 2. Only the slowest tier has a free slot.
        let to = vec![vec![cell(1, 2)], vec![cell(0, 1)], vec![]];
        let got: Vec<_> = order(to, vec![0, 0, 1])
            .iter()
            .map(|m| (m.0.0, m.1.0))
            .collect();
        assert_eq!(got, [(1, 2), (2, 0), (1, 1)]);
    }
}
