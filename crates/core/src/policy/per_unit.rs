//! A value for each unit that a policy has seen.
//!
//! In a tiering volume, whose map has a row for each unit anyway, and in a small cache volume there is a value for every unit. In a larger
//! cache volume the memory follows from the flash: each unit with a copy has its value in a table of the fast positions; units without one
//! are in a table of bounded size ([`Past`]), which forgets those that were used longest ago. The policy reports which units have copies
//! ([`PerUnit::copied`], [`PerUnit::uncopied`]).

use super::View;
use crate::volume::{Past, Position, UnitId};
use alloc::vec;
use alloc::vec::Vec;

/// See the module. The default value is that of a unit of which nothing is known.
#[derive(Clone, Debug)]
pub enum PerUnit<T> {
    /// By unit.
    Units(Vec<T>),
    /// By position for units with a copy, and a table of those without.
    Copies(Vec<T>, Past<T>),
}

impl<T> Default for PerUnit<T> {
    fn default() -> PerUnit<T> {
        PerUnit::Units(Vec::new())
    }
}

impl<T: Copy + Default + PartialEq> PerUnit<T> {
    /// Nothing is known of any unit.
    pub fn new(view: &View<'_>) -> PerUnit<T> {
        let units = view.units();
        match view.past_entries() {
            Some(entries) if entries < units => {
                PerUnit::bounded(units, view.faster_positions(), entries)
            }
            _ => PerUnit::Units(vec![T::default(); units as usize]),
        }
    }
    fn bounded(units: u32, positions: u32, entries: u32) -> PerUnit<T> {
        let copied = vec![T::default(); positions as usize];
        PerUnit::Copies(copied, Past::new(units, entries))
    }
    /// The value of a unit whose copy is in this position, if it has one.
    #[inline]
    pub fn get(&self, e: UnitId, copy: Option<Position>) -> T {
        match (self, copy) {
            (PerUnit::Units(all), _) => all[e.0 as usize],
            (PerUnit::Copies(copied, _), Some(at)) => copied[at.index() as usize],
            (PerUnit::Copies(_, past), None) => past.get(e).unwrap_or_default(),
        }
    }
    /// The values of several units with copies, or with homes in these positions of a tiering volume. The reads are independent of one
    /// another, so that their cache misses overlap.
    #[inline]
    pub fn get_all(&self, units: impl Iterator<Item = (UnitId, Position)>, values: &mut [T]) {
        let values = values.iter_mut().zip(units);
        match self {
            PerUnit::Units(all) => values.for_each(|(v, (e, _))| *v = all[e.0 as usize]),
            PerUnit::Copies(copied, _) => {
                values.for_each(|(v, (_, at))| *v = copied[at.index() as usize]);
            }
        }
    }
    /// Sets the value of a unit whose copy is in this position, if it has one.
    #[inline]
    pub fn set(&mut self, e: UnitId, copy: Option<Position>, value: T) {
        match (self, copy) {
            (PerUnit::Units(all), _) => all[e.0 as usize] = value,
            (PerUnit::Copies(copied, _), Some(at)) => copied[at.index() as usize] = value,
            (PerUnit::Copies(_, past), None) => past.put(e, value),
        }
    }
    /// The unit has a copy in this position from now on.
    #[inline]
    pub fn copied(&mut self, e: UnitId, at: Position) {
        if let PerUnit::Copies(copied, past) = self {
            copied[at.index() as usize] = past.take(e).unwrap_or_default();
        }
    }
    /// The copy of the unit in this position is gone.
    #[inline]
    pub fn uncopied(&mut self, e: UnitId, at: Position) {
        if let PerUnit::Copies(copied, past) = self {
            let value = core::mem::take(&mut copied[at.index() as usize]);
            if value != T::default() {
                past.put(e, value);
            }
        }
    }
    /// Forgets a unit that has no copy.
    pub fn forget(&mut self, e: UnitId) {
        match self {
            PerUnit::Units(all) => all[e.0 as usize] = T::default(),
            PerUnit::Copies(_, past) => {
                past.take(e);
            }
        }
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            PerUnit::Units(all) => all.capacity() * size_of::<T>(),
            PerUnit::Copies(copied, past) => copied.capacity() * size_of::<T>() + past.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// While the table of the past has room for all units, both forms know the same.
    #[test]
    fn both_forms_know_the_same() {
        const UNITS: u32 = 500;
        let mut bounded = PerUnit::bounded(UNITS, 20, UNITS);
        let mut plain = PerUnit::Units(vec![0; UNITS as usize]);
        let mut held = [None; 20];
        let mut random = SplitMix64::new(4);
        for turn in 1..50_000u32 {
            let e = UnitId(random.below(UNITS.into()) as u32);
            let at = held.iter().position(|h| *h == Some(e));
            let copy = at.map(|i| Position::at(i as u32));
            assert_eq!(bounded.get(e, copy), plain.get(e, copy));
            let i = random.below(20) as usize;
            match (random.below(4), held[i]) {
                (0, Some(old)) => {
                    held[i] = None;
                    bounded.uncopied(old, Position::at(i as u32));
                    plain.uncopied(old, Position::at(i as u32));
                }
                (0, None) if copy.is_none() => {
                    held[i] = Some(e);
                    bounded.copied(e, Position::at(i as u32));
                    plain.copied(e, Position::at(i as u32));
                }
                (1, _) => {
                    bounded.set(e, copy, turn);
                    plain.set(e, copy, turn);
                }
                _ => {}
            }
        }
    }
}
