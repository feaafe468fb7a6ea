//! An implementation of docs/policy-rules.md, section 8, line by line.

use crate::reference::{Counts, Naive, Touch};

#[derive(Clone, Copy)]
struct Entry {
    unit: u32,
    priority: u8,
}

pub struct Dss {
    selective: bool,
    slots: usize,
    low: usize,
    high: usize,
    rate: usize,
    /// Least recently used first, one list for all priorities.
    clean: Vec<Entry>,
    dirty: Vec<Entry>,
    active: bool,
    counts: Counts,
}

/// The priorities of DSS Table 3, and those of section 5.7 for databases.
fn priority(class: u8) -> u8 {
    match class {
        1..=7 | 19..=24 => 0,
        8 => 1,
        9 => 2,
        10 => 3,
        11 => 4,
        12 => 5,
        13 => 6,
        14 => 7,
        15 => 8,
        16 => 9,
        17 => 10,
        18 => 11,
        _ => 12,
    }
}

/// The first entry of the lowest priority.
fn head(list: &[Entry]) -> Option<usize> {
    let lowest = list.iter().map(|e| e.priority).max()?;
    list.iter().position(|e| e.priority == lowest)
}

impl Dss {
    pub fn new(selective: bool, slots: usize, rate: usize) -> Dss {
        Dss {
            selective,
            slots,
            low: (slots / 10).max(1),
            high: (slots / 5).max(2),
            rate,
            clean: Vec::new(),
            dirty: Vec::new(),
            active: false,
            counts: Counts::default(),
        }
    }
    fn free_list(&self) -> usize {
        self.slots - self.dirty.len()
    }
    fn serve(&mut self, t: &Touch) -> bool {
        let entry = Entry {
            unit: t.unit,
            priority: if self.selective { priority(t.class) } else { 0 },
        };
        if let Some(i) = self.dirty.iter().position(|e| e.unit == t.unit) {
            self.dirty.remove(i);
            self.dirty.push(entry);
            return true;
        }
        if let Some(i) = self.clean.iter().position(|e| e.unit == t.unit) {
            self.clean.remove(i);
            let list = if t.write {
                &mut self.dirty
            } else {
                &mut self.clean
            };
            list.push(entry);
            return true;
        }
        let large = t.class == 0 || (13..=18).contains(&t.class);
        if self.selective && self.active && large {
            return false;
        }
        if self.clean.len() + self.dirty.len() == self.slots {
            let Some(i) = head(&self.clean) else {
                return false;
            };
            self.clean.remove(i);
            self.counts.evictions += 1;
        }
        self.counts.fetches += 1;
        let list = if t.write {
            &mut self.dirty
        } else {
            &mut self.clean
        };
        list.push(entry);
        false
    }
}

impl Naive for Dss {
    fn access(&mut self, t: &Touch) -> bool {
        let hit = self.serve(t);
        if self.free_list() < self.low {
            self.active = true;
        }
        for _ in 0..self.rate {
            if !self.active {
                break;
            }
            let Some(i) = head(&self.dirty) else { break };
            let e = self.dirty.remove(i);
            self.clean.push(e);
            self.counts.writebacks += 1;
            if self.free_list() >= self.high {
                self.active = false;
            }
        }
        hit
    }
    fn counts(&self) -> Counts {
        self.counts
    }
}
