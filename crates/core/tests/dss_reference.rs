//! `dss-lru` and `dss-lru-s` against a naive reading of policy-specs section 8.

mod reference;

use reference::{
    Counts, Draw, Naive, Touch, Work, compare, counts, engine, fast_slots, random, touch,
};

#[derive(Clone, Copy)]
struct Entry {
    unit: u32,
    priority: u8,
}

struct Dss {
    selective: bool,
    slots: usize,
    low: usize,
    high: usize,
    rate: usize,
    /// Least recently used first, all priorities in one list each.
    clean: Vec<Entry>,
    dirty: Vec<Entry>,
    active: bool,
    counts: Counts,
}

/// DSS Table 3, and what section 5.7 does with databases.
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

/// The first of the lowest priority.
fn head(list: &[Entry]) -> Option<usize> {
    let lowest = list.iter().map(|e| e.priority).max()?;
    list.iter().position(|e| e.priority == lowest)
}

impl Dss {
    fn new(selective: bool, slots: usize, rate: usize) -> Dss {
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

#[test]
fn equal_decisions_on_random_work() {
    for (name, selective) in [("dss-lru", false), ("dss-lru-s", true)] {
        for seed in 0..60 {
            let mut draw = Draw::new(seed);
            let units = 2 + draw.below(150) as u32;
            let fast = fast_slots(&mut draw, units);
            let rate = [1, 1, 3][draw.below(3) as usize];
            let work = random(
                &mut draw,
                &Work {
                    units,
                    requests: 1500,
                    writes: [0, 30, 70, 100][seed as usize % 4],
                    classes: [&[0][..], &[0, 1, 7, 8, 12, 13, 18, 25], &[5, 9, 14]]
                        [seed as usize % 3],
                    gaps: &[0, 1_000],
                },
            );
            let params = [("sync_per_access", f64::from(rate))];
            let mut ours = engine(name, &params, units, &[fast, units]);
            let mut naive = Dss::new(selective, fast as usize, rate as usize);
            let what = format!("{name}, seed {seed}, F {fast} of {units}, rate {rate}");
            compare(&what, &mut ours, &mut naive, &work);
        }
    }
}

fn io(unit: u32, write: bool, class: u8) -> Touch {
    Touch {
        now: 0,
        unit,
        write,
        class,
        offset: u64::from(unit) << 12,
        bytes: 4096,
        first: true,
    }
}

/// Worked by hand. F = 3: low = 1, high = 2.
#[test]
fn dss_lru_golden() {
    let mut e = engine("dss-lru", &[], 8, &[3, 8]);
    let mut at = |unit, write, hit| assert_eq!(touch(&mut e, &io(unit, write, 0)), hit, "{unit}");
    at(0, true, false); // dirty: 0
    at(1, true, false); // dirty: 0 1
    at(0, false, true); // dirty: 1 0
    at(2, false, false); // clean: 2
    at(3, true, false); // 2 is reused; dirty: 1 0 3. Free list 0 < 1: awake; 1 is cleaned: free list 1 < 2, still awake
    at(1, false, true); // clean: 1; 0 is cleaned: 2 entries, asleep. clean: 1 0
    at(4, false, false); // 1 is reused: clean: 0 4
    at(1, false, false); // 0 is reused: clean: 4 1
    at(3, false, true); // dirty: 3
    let c = counts(&e);
    assert_eq!((c.fetches, c.evictions, c.writebacks), (6, 3, 2));
}

/// Worked by hand. F = 3: low = 1, high = 2. Classes: 7 journal (priority 0), 14 a large file (7), 8 a small one (1).
#[test]
fn dss_lru_s_golden() {
    let mut e = engine("dss-lru-s", &[], 8, &[3, 8]);
    let mut at = |unit, write, class, hit| {
        assert_eq!(touch(&mut e, &io(unit, write, class)), hit, "{unit}");
    };
    at(0, false, 7, false); // clean 0: 0
    at(1, false, 14, false); // clean 7: 1
    at(2, true, 14, false); // dirty 7: 2
    at(3, true, 8, false); // reuses 1, the lowest priority, though 0 is older. dirty 1: 3
    at(4, true, 8, false); // reuses 0. Free list 0: awake; 2 (priority 7) is cleaned; 1 < 2: awake
    at(5, false, 14, false); // bypasses. Then 3 is cleaned (of 3 and 4, priority 1): 2 entries, asleep
    at(5, false, 14, false); // now it may: reuses 2 (priority 7 before 1)
    at(5, false, 7, true); // filed anew as journal
    at(6, false, 8, false); // reuses 3 (priority 1), not 5
    at(5, false, 7, true);
    let c = counts(&e);
    assert_eq!((c.fetches, c.evictions, c.writebacks), (7, 4, 2));
}
