//! Compares `greendm` with a naive implementation of docs/policy-rules.md section 3: linear scans, no batches, no optimisation. The
//! decisions on random work must be equal at every access, not only in total.

use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::build;
use isotherm_core::{ExtentId, Nanos, Slot, TierId};
use std::collections::{BTreeMap, BTreeSet};

struct Naive {
    fast: u32,
    pt: u32,
    tw: u64,
    low: u32,
    high: u32,
    home: BTreeMap<u32, u32>,
    owner: BTreeMap<u32, u32>,
    free: BTreeSet<u32>,
    marked: BTreeSet<u32>,
    last: BTreeMap<u32, u64>,
    misses: BTreeMap<u32, u32>,
    hand: u32,
}

impl Naive {
    fn take(&mut self, fast: bool) -> Option<u32> {
        let s = if fast {
            self.free.range(..self.fast).next()
        } else {
            self.free.range(self.fast..).next()
        }
        .copied()?;
        self.free.remove(&s);
        Some(s)
    }
    fn free_fast(&self) -> u32 {
        self.free.range(..self.fast).count() as u32
    }
    fn put(&mut self, e: u32, s: u32) {
        if let Some(old) = self.home.insert(e, s) {
            self.owner.remove(&old);
            self.free.insert(old);
        }
        self.owner.insert(s, e);
        self.misses.insert(e, 0);
        if s < self.fast {
            self.marked.insert(s);
        }
    }
    fn access(&mut self, now: u64, e: u32) {
        match self.home.get(&e).copied() {
            None => {
                let s = self
                    .take(true)
                    .or_else(|| self.take(false))
                    .expect("slots for all");
                self.put(e, s);
            }
            Some(s) if s < self.fast => {
                self.marked.insert(s);
            }
            Some(_) => {
                let near = now - self.last[&e] <= self.tw;
                let n = if near { self.misses[&e] + 1 } else { 1 };
                self.misses.insert(e, n);
                let place = if n >= self.pt { self.take(true) } else { None };
                if let Some(s) = place {
                    self.put(e, s);
                }
            }
        }
        self.last.insert(e, now);
        if self.fast > 1 && self.free_fast() < self.low {
            while self.free_fast() < self.high {
                let Some(victim) = self.victim(now) else {
                    break;
                };
                let e = self.owner[&victim];
                let s = self.take(false).expect("reserve");
                self.put(e, s);
            }
        }
    }
    fn victim(&mut self, now: u64) -> Option<u32> {
        for _ in 0..self.fast {
            let s = self.hand;
            self.hand = (self.hand + 1) % self.fast;
            let Some(e) = self.owner.get(&s) else {
                continue;
            };
            if !self.marked.remove(&s) && now - self.last[e] > self.tw {
                return Some(s);
            }
        }
        let owned = self
            .owner
            .range(..self.fast)
            .filter(|(s, _)| !self.marked.contains(s));
        owned
            .min_by_key(|(s, e)| (self.last[e], **s))
            .map(|(s, _)| *s)
    }
}

#[test]
fn equal_decisions_on_random_work() {
    for seed in 0..60u64 {
        let mut random = isotherm_core::random::SplitMix64::new(seed);
        let mut draw = |n| random.below(n);
        let fast = 1 + draw(90) as u32;
        let extents = fast + 1 + draw(300) as u32;
        let pt = 1 + draw(4) as u32;
        let tw = [1, 5, 60][draw(3) as usize];
        let (low, high) = ((fast / 16).max(1), (fast / 8).max(2).min(fast));
        let member = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: isotherm_core::geometry::Stash::default(),
        };
        let geo = Geometry::new(
            12,
            12,
            extents,
            vec![member(0, fast), member(1, extents + 8)],
        )
        .expect("a valid shape");
        let params = [("PT", f64::from(pt)), ("TW", tw as f64)];
        let mut ours = NullEngine::new(
            geo,
            build("greendm", params.into_iter()).expect("valid parameters"),
        );
        let mut naive = Naive {
            fast,
            pt,
            tw: tw * 1_000_000_000,
            low,
            high,
            home: BTreeMap::new(),
            owner: BTreeMap::new(),
            free: (0..fast + extents + 8).collect(),
            marked: BTreeSet::new(),
            last: BTreeMap::new(),
            misses: BTreeMap::new(),
            hand: 0,
        };
        let mut now = 0;
        for i in 0..4000 {
            now += [0, 1_000, 40_000_000, 900_000_000][draw(4) as usize];
            // Half of the accesses are to a tenth of the extents, and this part moves slowly.
            let hot = draw(2) == 0;
            let x = if hot {
                i / 400 * 7 + draw(u64::from(extents / 10 + 1))
            } else {
                draw(u64::from(extents))
            };
            let e = (x % u64::from(extents)) as u32;
            ours.access(
                Nanos(now),
                ExtentId(e),
                false,
                0,
                (u64::from(e) << 12, 4096),
            );
            naive.access(now, e);
            let got: Vec<_> = (0..extents).map(|e| ours.home(ExtentId(e))).collect();
            let want: Vec<_> = (0..extents)
                .map(|e| naive.home.get(&e).map(|&s| Slot(s)))
                .collect();
            assert_eq!(
                got, want,
                "seed {seed}, access {i} of extent {e}, F {fast}, PT {pt}, TW {tw}"
            );
        }
    }
}
