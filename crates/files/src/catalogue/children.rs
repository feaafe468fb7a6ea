//! The names of a directory in order, as slot numbers in short sorted rows. Comparisons read the names from the slots.

use super::slots::{SlotId, Slots};

/// Maximum number of slot numbers in a row.
const ROW: usize = 128;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Children(Vec<Vec<SlotId>>);

impl Children {
    /// Row and index of a name; the index is `Err` with the place to insert it if the name is not there.
    fn place(&self, slots: &Slots, name: &[u8]) -> (usize, Result<usize, usize>) {
        let before = |row: &Vec<SlotId>| row.last().is_some_and(|l| slots.name(*l) < name);
        let row = self.0.partition_point(before);
        let row = row.min(self.0.len().saturating_sub(1));
        let Some(ids) = self.0.get(row) else {
            return (0, Err(0));
        };
        (row, ids.binary_search_by(|id| slots.name(*id).cmp(name)))
    }
    /// The slot with that name.
    pub(super) fn find(&self, slots: &Slots, name: &[u8]) -> Option<SlotId> {
        let (row, at) = self.place(slots, name);
        let at = at.ok()?;
        self.0.get(row)?.get(at).copied()
    }
    /// Inserts a slot with that name, in place of the slot that had it.
    pub(super) fn insert(&mut self, slots: &Slots, name: &[u8], id: SlotId) {
        let (row, at) = self.place(slots, name);
        match at {
            Ok(at) => self.0[row][at] = id,
            Err(at) => {
                if self.0.is_empty() {
                    self.0.push(Vec::new());
                }
                if self.0[row].len() < ROW {
                    self.0[row].insert(at, id);
                } else if at == ROW {
                    self.0.insert(row + 1, vec![id]);
                } else {
                    let upper = self.0[row].split_off(ROW / 2);
                    self.0.insert(row + 1, upper);
                    let (row, at) = if at <= ROW / 2 {
                        (row, at)
                    } else {
                        (row + 1, at - ROW / 2)
                    };
                    self.0[row].insert(at, id);
                }
            }
        }
    }
    /// Inserts slots with new names, in any order. Afterwards all rows but the last are full, and take no more memory than they need.
    /// Returns the slots whose names were there already.
    pub(super) fn extend(&mut self, slots: &Slots, mut new: Vec<SlotId>) -> Vec<SlotId> {
        new.sort_by(|a, b| slots.name(*a).cmp(slots.name(*b)));
        let mut all = Vec::with_capacity(new.len() + ROW * self.0.len());
        let mut twice = Vec::new();
        let mut old = self.iter().peekable();
        for id in new {
            let name = slots.name(id);
            while let Some(before) = old.next_if(|o| slots.name(*o) <= name) {
                all.push(before);
            }
            if all.last().is_some_and(|l| slots.name(*l) == name) {
                twice.push(id);
            } else {
                all.push(id);
            }
        }
        all.extend(old);
        self.0 = all.chunks(ROW).map(<[SlotId]>::to_vec).collect();
        self.0.shrink_to_fit();
        twice
    }
    /// Removes a name. Returns the slot that had it.
    pub(super) fn remove(&mut self, slots: &Slots, name: &[u8]) -> Option<SlotId> {
        let (row, at) = self.place(slots, name);
        let at = at.ok()?;
        let id = self.0[row].remove(at);
        if self.0[row].is_empty() {
            self.0.remove(row);
        }
        Some(id)
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = SlotId> {
        self.0.iter().flatten().copied()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::Kind;
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn as_a_sorted_map() {
        let (mut slots, mut children) = (Slots::default(), Children::default());
        let mut model: BTreeMap<Vec<u8>, SlotId> = BTreeMap::new();
        let mut random = isotherm_core::random::SplitMix64::new(7);
        for turn in 0..6000 {
            let n = random.draw();
            let name = format!("f{}", if turn < 700 { turn } else { n % 900 }).into_bytes();
            if n & (1 << 40) == 0 || turn < 700 {
                let id = slots.take(Kind::File);
                slots.set_name(id, 0, &name);
                children.insert(&slots, &name, id);
                model.insert(name.clone(), id);
            } else {
                assert_eq!(children.remove(&slots, &name), model.remove(&name));
            }
            assert_eq!(children.find(&slots, &name), model.get(&name).copied());
        }
        let all: Vec<SlotId> = children.iter().collect();
        assert_eq!(all, model.values().copied().collect::<Vec<_>>());
        let mut more = Vec::new();
        for n in (0..500).rev() {
            let name = format!("g{n}").into_bytes();
            let id = slots.take(Kind::File);
            slots.set_name(id, 0, &name);
            more.push(id);
            model.insert(name, id);
        }
        let again = slots.take(Kind::File);
        slots.set_name(again, 0, b"g7");
        more.push(again);
        assert_eq!(children.extend(&slots, more), [again]);
        let all: Vec<SlotId> = children.iter().collect();
        assert_eq!(all, model.values().copied().collect::<Vec<_>>());
        assert!(children.0.iter().all(|r| r.capacity() == r.len()));
        for name in model.keys() {
            children.remove(&slots, name);
        }
        assert!(children.is_empty() && children.find(&slots, b"f1").is_none());
    }
}
