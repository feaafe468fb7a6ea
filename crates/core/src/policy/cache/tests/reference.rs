//! Compares each cache with a short, naive reference, access by access.

use super::{access, engine};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// A reference, written from docs/policy-rules.md section 1 with the simplest data structures. `access` returns true if it hit.
trait Naive {
    fn access(&mut self, x: u32) -> bool;
}

fn take(q: &mut VecDeque<u32>, x: u32) -> bool {
    match q.iter().position(|y| *y == x) {
        Some(i) => q.remove(i).is_some(),
        None => false,
    }
}

struct Queue {
    f: usize,
    q: VecDeque<u32>,
    recency: bool,
}
impl Naive for Queue {
    fn access(&mut self, x: u32) -> bool {
        let hit = self.q.contains(&x);
        if hit && !self.recency {
            return true;
        }
        if hit {
            take(&mut self.q, x);
        } else if self.q.len() == self.f {
            self.q.pop_front();
        }
        self.q.push_back(x);
        hit
    }
}

struct Lfu {
    f: usize,
    /// Extent → (count, last access).
    of: BTreeMap<u32, (u64, u64)>,
    clock: u64,
}
impl Naive for Lfu {
    fn access(&mut self, x: u32) -> bool {
        self.clock += 1;
        let was = self.of.get(&x).copied();
        if was.is_none() && self.of.len() == self.f {
            let victim = *self.of.iter().min_by_key(|(_, v)| **v).unwrap().0;
            self.of.remove(&victim);
        }
        self.of.insert(x, (was.map_or(0, |w| w.0) + 1, self.clock));
        was.is_some()
    }
}

/// Figure 4 of the paper line by line, with the trimming at the paper's place.
#[derive(Default)]
struct Arc {
    c: usize,
    p: f64,
    t1: VecDeque<u32>,
    t2: VecDeque<u32>,
    b1: VecDeque<u32>,
    b2: VecDeque<u32>,
}
impl Arc {
    fn replace(&mut self, in_b2: bool) {
        let t1 = self.t1.len() as f64;
        if !self.t1.is_empty() && (t1 > self.p || (in_b2 && (t1 - self.p).abs() == 0.0)) {
            self.b1.extend(self.t1.pop_front());
        } else {
            self.b2.extend(self.t2.pop_front());
        }
    }
}
impl Naive for Arc {
    fn access(&mut self, x: u32) -> bool {
        if take(&mut self.t1, x) || take(&mut self.t2, x) {
            self.t2.push_back(x);
            return true;
        }
        let (l1, l2) = (self.t1.len() + self.b1.len(), self.t2.len() + self.b2.len());
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if self.b1.contains(&x) {
            self.p = (self.p + if b1 >= b2 { 1.0 } else { b2 / b1 }).min(self.c as f64);
            self.replace(false);
            take(&mut self.b1, x);
            self.t2.push_back(x);
            return false;
        }
        if self.b2.contains(&x) {
            self.p = (self.p - if b2 >= b1 { 1.0 } else { b1 / b2 }).max(0.0);
            self.replace(true);
            take(&mut self.b2, x);
            self.t2.push_back(x);
            return false;
        }
        if l1 == self.c {
            if self.t1.len() < self.c {
                self.b1.pop_front();
                self.replace(false);
            } else {
                self.t1.pop_front();
            }
        } else if l1 + l2 >= self.c {
            if l1 + l2 == 2 * self.c {
                self.b2.pop_front();
            }
            self.replace(false);
        }
        self.t1.push_back(x);
        false
    }
}

#[derive(Default)]
struct S3Fifo {
    f: usize,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghost: VecDeque<u32>,
    hits: BTreeMap<u32, u32>,
    evicted: bool,
}
impl S3Fifo {
    fn evict(&mut self, main_most: usize) {
        self.evicted = true;
        loop {
            if self.main.len() > main_most || self.small.is_empty() {
                let Some(x) = self.main.pop_front() else {
                    return;
                };
                match self.hits[&x] {
                    0 => return,
                    h => {
                        self.hits.insert(x, h.min(3) - 1);
                        self.main.push_back(x);
                    }
                }
                continue;
            }
            while let Some(x) = self.small.pop_front() {
                if self.hits[&x] < 2 {
                    self.ghost.push_back(x);
                    if self.ghost.len() > main_most {
                        self.ghost.pop_front();
                    }
                    return;
                }
                self.hits.insert(x, 0);
                self.main.push_back(x);
            }
        }
    }
}
impl Naive for S3Fifo {
    fn access(&mut self, x: u32) -> bool {
        if self.small.contains(&x) || self.main.contains(&x) {
            *self.hits.entry(x).or_default() += 1;
            return true;
        }
        let main_most = self.f - (self.f / 10).max(1);
        let known = take(&mut self.ghost, x);
        while self.small.len() + self.main.len() >= self.f {
            self.evict(main_most);
        }
        self.hits.insert(x, 0);
        let filling = !self.evicted && self.small.len() >= self.f - main_most;
        let to = if known || filling {
            &mut self.main
        } else {
            &mut self.small
        };
        to.push_back(x);
        false
    }
}

#[derive(Default)]
struct Sieve {
    f: usize,
    /// Old to young, with the visited mark.
    q: Vec<(u32, bool)>,
    hand: usize,
}
impl Naive for Sieve {
    fn access(&mut self, x: u32) -> bool {
        if let Some(y) = self.q.iter_mut().find(|y| y.0 == x) {
            y.1 = true;
            return true;
        }
        if self.q.len() == self.f {
            loop {
                self.hand %= self.q.len();
                if !self.q[self.hand].1 {
                    break;
                }
                self.q[self.hand].1 = false;
                self.hand += 1;
            }
            self.q.remove(self.hand);
            // The hand was at the young end: it continues at the old end, even if a newcomer was added at the young end since.
            if self.hand == self.q.len() {
                self.hand = 0;
            }
        }
        self.q.push((x, false));
        false
    }
}

/// A ring of pages with a reference bit each, and a hand. The hand stays where it put the newcomer's predecessor out.
#[derive(Default)]
struct Clock {
    f: usize,
    ring: Vec<(u32, bool)>,
    hand: usize,
}
impl Naive for Clock {
    fn access(&mut self, x: u32) -> bool {
        if let Some(page) = self.ring.iter_mut().find(|p| p.0 == x) {
            page.1 = true;
            return true;
        }
        if self.ring.len() < self.f {
            self.ring.push((x, false));
            return false;
        }
        while self.ring[self.hand].1 {
            self.ring[self.hand].1 = false;
            self.hand = (self.hand + 1) % self.f;
        }
        self.ring[self.hand] = (x, false);
        self.hand = (self.hand + 1) % self.f;
        false
    }
}

/// The paper's full version, line by line.
#[derive(Default)]
struct TwoQ {
    f: usize,
    a1in: VecDeque<u32>,
    a1out: VecDeque<u32>,
    am: VecDeque<u32>,
}
impl TwoQ {
    fn reclaim(&mut self) {
        if self.a1in.len() + self.am.len() < self.f {
            return;
        }
        if self.a1in.len() > (self.f / 4).max(1) || self.am.is_empty() {
            let y = self.a1in.pop_front();
            self.a1out.extend(y);
            if self.a1out.len() > self.f / 2 {
                self.a1out.pop_front();
            }
        } else {
            self.am.pop_front();
        }
    }
}
impl Naive for TwoQ {
    fn access(&mut self, x: u32) -> bool {
        if take(&mut self.am, x) {
            self.am.push_back(x);
            return true;
        }
        if self.a1in.contains(&x) {
            return true;
        }
        let known = take(&mut self.a1out, x);
        self.reclaim();
        if known {
            self.am.push_back(x);
        } else {
            self.a1in.push_back(x);
        }
        false
    }
}

/// HIST of every page that is held or remembered; all of them are looked through.
#[derive(Default)]
struct Lru2 {
    f: usize,
    now: u64,
    /// Extent → (last access but one, last access).
    held: BTreeMap<u32, (u64, u64)>,
    /// Evicted extents and their last access, the last f of them.
    history: VecDeque<(u32, u64)>,
}
impl Naive for Lru2 {
    fn access(&mut self, x: u32) -> bool {
        self.now += 1;
        if let Some(h) = self.held.get_mut(&x) {
            *h = (h.1, self.now);
            return true;
        }
        let known = self.history.iter().position(|h| h.0 == x);
        let last = known
            .and_then(|i| self.history.remove(i))
            .map_or(0, |h| h.1);
        if self.held.len() == self.f {
            let victim = *self.held.iter().min_by_key(|(_, h)| **h).unwrap().0;
            let gone = self.held.remove(&victim).unwrap();
            self.history.push_back((victim, gone.1));
            if self.history.len() > self.f {
                self.history.pop_front();
            }
        }
        self.held.insert(x, (last, self.now));
        false
    }
}

/// S from its bottom to its top; what is neither LIR nor in Q is a ghost.
#[derive(Default)]
struct Lirs {
    f: usize,
    s: VecDeque<u32>,
    q: VecDeque<u32>,
    lir: Vec<u32>,
    /// Ghosts in the order in which they were evicted.
    evicted: VecDeque<u32>,
}
impl Lirs {
    fn prune(&mut self) {
        while let Some(bottom) = self.s.front().copied() {
            if self.lir.contains(&bottom) {
                return;
            }
            self.s.pop_front();
            take(&mut self.evicted, bottom);
        }
    }
    fn make_lir(&mut self, x: u32) {
        self.lir.push(x);
        self.prune();
        if self.lir.len() > self.f - (self.f / 100).max(1) {
            let bottom = self.s.pop_front().unwrap();
            self.lir.retain(|y| *y != bottom);
            self.q.push_back(bottom);
            self.prune();
        }
    }
}
impl Naive for Lirs {
    fn access(&mut self, x: u32) -> bool {
        let (is_lir, is_hir) = (self.lir.contains(&x), self.q.contains(&x));
        // Before the eviction, which may make its ghost the one too many.
        let near = self.s.contains(&x);
        if !is_lir && !is_hir && self.lir.len() + self.q.len() == self.f {
            let y = self.q.pop_front().unwrap();
            if self.s.contains(&y) {
                self.evicted.push_back(y);
            }
            if self.evicted.len() > self.f {
                let oldest = self.evicted.pop_front().unwrap();
                take(&mut self.s, oldest);
            }
        }
        take(&mut self.s, x);
        take(&mut self.evicted, x);
        self.s.push_back(x);
        take(&mut self.q, x);
        if is_lir {
            self.prune();
        } else if near || (!is_hir && self.lir.len() < self.f - (self.f / 100).max(1)) {
            self.make_lir(x);
        } else {
            self.q.push_back(x);
            self.prune();
        }
        is_lir || is_hir
    }
}

fn naive(name: &str, f: usize) -> Box<dyn Naive> {
    match name {
        "clock" => Box::new(Clock {
            f,
            ..Clock::default()
        }),
        "two-q" => Box::new(TwoQ {
            f,
            ..TwoQ::default()
        }),
        "lru-2" => Box::new(Lru2 {
            f,
            ..Lru2::default()
        }),
        "lirs" => Box::new(Lirs {
            f,
            ..Lirs::default()
        }),
        "fifo" | "lru" => Box::new(Queue {
            f,
            q: VecDeque::new(),
            recency: name == "lru",
        }),
        "lfu" => Box::new(Lfu {
            f,
            of: BTreeMap::new(),
            clock: 0,
        }),
        "arc" => Box::new(Arc {
            c: f,
            ..Arc::default()
        }),
        "s3-fifo" => Box::new(S3Fifo {
            f,
            ..S3Fifo::default()
        }),
        _ => Box::new(Sieve {
            f,
            ..Sieve::default()
        }),
    }
}

/// A mixture of skewed, looping and scanning phases over `extents`.
fn trace(seed: u64, extents: u32, len: usize) -> Vec<u32> {
    let mut random = crate::random::SplitMix64::new(seed);
    let n = u64::from(extents);
    let (mut out, mut at) = (Vec::new(), 0u64);
    while out.len() < len {
        let phase = random.below(3);
        let span = 1 + random.below(n);
        for _ in 0..=random.below(200) {
            at += 1;
            out.push(match phase {
                0 => random.below(n) * random.below(n) / n,
                1 => at % span,
                _ => at % n,
            } as u32);
        }
    }
    out.truncate(len);
    out
}

#[test]
fn decisions_are_those_of_the_references() {
    for name in [
        "fifo", "lru", "lfu", "arc", "s3-fifo", "sieve", "clock", "two-q", "lru-2", "lirs",
    ] {
        for (seed, f, extents, len) in [
            (1, 1, 5, 2000),
            (2, 2, 7, 4000),
            (3, 3, 10, 4000),
            (4, 10, 30, 6000),
            (5, 20, 64, 20_000),
            (6, 20, 21, 20_000),
            (7, 100, 500, 20_000),
            (8, 64, 40, 4000), // larger than the data
        ] {
            for round in 0..4 {
                let seed = seed * 100 + round;
                let (mut e, mut n) = (engine(name, f, extents), naive(name, f as usize));
                for (i, x) in trace(seed, extents, len).into_iter().enumerate() {
                    // These caches decide independently of whether an access is a write.
                    let hit = access(&mut e, x, i % 3 == 0);
                    assert_eq!(hit, n.access(x), "{name}, F = {f}, seed {seed}, access {i}");
                }
            }
        }
    }
}
