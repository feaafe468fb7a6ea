//! An implementation of docs/policy-rules.md, section 3, last paragraph, line by line.

use crate::reference::{Counts, Naive, Touch};
use std::collections::{BTreeMap, VecDeque};

pub struct Cache {
    pt: u32,
    tw: u64,
    low: usize,
    high: usize,
    limit: usize,
    slots: Vec<Option<u32>>,
    marked: Vec<bool>,
    last: BTreeMap<u32, u64>,
    misses: BTreeMap<u32, u32>,
    queue: VecDeque<u32>,
    hand: usize,
    counts: Counts,
}

impl Cache {
    pub fn new(slots: usize, pt: u32, tw: u64) -> Cache {
        let small = slots < 1024;
        Cache {
            pt,
            tw,
            low: if small { (slots / 16).max(1) } else { 64 },
            high: if small {
                (slots / 8).max(2).min(slots)
            } else {
                128
            },
            limit: (slots / 8).max(1),
            slots: vec![None; slots],
            marked: vec![false; slots],
            last: BTreeMap::new(),
            misses: BTreeMap::new(),
            queue: VecDeque::new(),
            hand: 0,
            counts: Counts::default(),
        }
    }
    fn free(&self) -> usize {
        self.slots.iter().filter(|s| s.is_none()).count()
    }
    fn victim(&mut self, now: u64) -> Option<usize> {
        for _ in 0..self.slots.len() {
            let s = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(e) = self.slots[s] else { continue };
            if self.marked[s] {
                self.marked[s] = false;
            } else if now - self.last[&e] > self.tw {
                return Some(s);
            }
        }
        (0..self.slots.len())
            .filter(|&s| self.slots[s].is_some() && !self.marked[s])
            .min_by_key(|&s| (self.last[&self.slots[s].expect("owned")], s))
    }
}

impl Naive for Cache {
    fn access(&mut self, t: &Touch) -> bool {
        let at = self.slots.iter().position(|s| *s == Some(t.unit));
        if let Some(s) = at {
            self.marked[s] = true;
            if t.write && !self.queue.contains(&t.unit) {
                self.queue.push_back(t.unit);
            }
        } else {
            let near = self.last.get(&t.unit).is_some_and(|l| t.now - l <= self.tw);
            let n = self.misses.entry(t.unit).or_default();
            *n = if near { *n + 1 } else { 1 };
            if *n >= self.pt
                && let Some(s) = self.slots.iter().position(Option::is_none)
            {
                *n = 0;
                self.slots[s] = Some(t.unit);
                self.marked[s] = true;
                self.counts.fetches += 1;
            }
        }
        self.last.insert(t.unit, t.now);
        while self.queue.len() > self.limit {
            self.queue.pop_front();
            self.counts.writebacks += 1;
        }
        if self.slots.len() > 1 && self.free() < self.low {
            while self.free() < self.high {
                let Some(s) = self.victim(t.now) else { break };
                let e = self.slots[s].take().expect("owned");
                self.counts.evictions += 1;
                if let Some(i) = self.queue.iter().position(|x| *x == e) {
                    self.queue.remove(i);
                    self.counts.writebacks += 1;
                }
            }
        }
        at.is_some()
    }
    fn counts(&self) -> Counts {
        self.counts
    }
}
