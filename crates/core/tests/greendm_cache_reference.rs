//! `greendm-cache` against a naive reading of policy-specs section 3, last paragraph.

mod reference;

use reference::{Counts, Draw, Naive, Touch, Work, counts, engine, fast_slots, random, touch};
use std::collections::{BTreeMap, VecDeque};

struct Cache {
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
    fn new(slots: usize, pt: u32, tw: u64) -> Cache {
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

#[test]
fn equal_decisions_on_random_work() {
    for seed in 0..60 {
        let mut draw = Draw::new(seed);
        let units = 2 + draw.below(if seed % 10 == 0 { 1500 } else { 200 }) as u32;
        let fast = fast_slots(&mut draw, units);
        let (pt, tw) = (
            1 + draw.below(3) as u32,
            [1, 10, 60][draw.below(3) as usize],
        );
        let work = random(
            &mut draw,
            &Work {
                units,
                requests: 1500,
                writes: [0, 30, 70, 100][seed as usize % 4],
                classes: &[0],
                gaps: &[0, 1_000, 40_000_000, 900_000_000, 11_000_000_000],
            },
        );
        let params = [("PT", f64::from(pt)), ("TW", tw as f64)];
        let mut ours = engine("greendm-cache", &params, units, &[fast, units]);
        let mut naive = Cache::new(fast as usize, pt, tw * 1_000_000_000);
        // A full fast tier refuses pre-fetches, as it should: so refusals are not looked at here.
        for (i, t) in work.iter().enumerate() {
            let what = format!("seed {seed}, access {i}, {t:?}, F {fast} of {units}, {params:?}");
            assert_eq!(touch(&mut ours, t), naive.access(t), "{what}");
            assert_eq!(counts(&ours), naive.counts(), "{what}");
        }
    }
}

/// Worked by hand. F = 4: LT = 1, HT = 2, write-back queue max(1, 4/8) = 1; PT = 1.
#[test]
fn golden() {
    let mut e = engine("greendm-cache", &[], 12, &[4, 12]);
    let mut at = |s: u64, unit: u32, write| {
        let t = Touch {
            now: s * 1_000_000_000,
            unit,
            write,
            class: 0,
            offset: u64::from(unit) << 12,
            bytes: 4096,
            first: true,
        };
        touch(&mut e, &t)
    };
    assert!(!at(0, 0, true)); // a write miss goes to the home; 1 = PT: copied, clean
    assert!(!at(1, 1, false));
    assert!(at(2, 0, true)); // to the copy: queue [0]
    assert!(at(3, 1, true)); // queue [0, 1] is over 1: 0 is written home
    assert!(at(4, 1, true)); // one entry an extent
    assert!(!at(5, 2, false)); // one slot is left, not under LT
    assert!(!at(6, 3, false)); // none is left: a fruitless turn, then the oldest, 0 (2 s) and 1 (4 s, written home)
    assert!(at(7, 2, false));
    assert!(!at(8, 1, false));
    let c = counts(&e);
    assert_eq!((c.fetches, c.evictions, c.writebacks), (5, 2, 2));
}
