//! Decides the tier of each file: the core's policies with files as units, pins, rules and watermarks.
//!
//! The policy runs in the core's null engine (`isotherm_core::null`) over a space with one unit per file. Accesses are passed to it in
//! batches. If the engine then has a file on another tier than the one where it is, it wants a move. A move that does not happen is
//! reported to the engine, so that the two never diverge. Caching presets make their usual decisions; where they want a copy, the file gets
//! one ([`crate::copies`]) if the mount has copies, and is moved if not.

use crate::brain::{Brain, Remembered};
use crate::catalogue::{Catalogue, NodeId};
use crate::copies::Copies;
use crate::disk::Root;
use crate::mover::Outcome;
use crate::moves::Moving;
use crate::rules::Rule;
use crate::store::{Refused, Settings, refuse};
use crate::tree::{Facts, Tier};
use isotherm_core::Nanos;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The default preset.
pub const DEFAULT: &str = "benefit";
/// Maximum number of accesses that wait to be passed to the policy; further ones are counted and dropped.
const SEEN_MAX: usize = 1 << 16;
/// A file that could not be moved is not tried again for this time.
const REST: Duration = Duration::from_secs(30);

/// An access.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    node: NodeId,
    write: bool,
    offset: u64,
    bytes: u32,
    when: Option<Instant>,
}

impl Seen {
    /// An access to that file, now.
    pub fn new(node: NodeId, write: bool, offset: u64, bytes: u32) -> Seen {
        Seen {
            node,
            write,
            offset,
            bytes,
            when: Some(Instant::now()),
        }
    }
}

/// A move that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The node of the file.
    pub node: NodeId,
    /// Its present tier.
    pub from: Tier,
    /// The tier to which it should move.
    pub to: Tier,
    /// The reason.
    pub why: &'static str,
    /// The kind of the move.
    pub how: How,
}

/// The way in which a file gets to another tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It moves.
    Move,
    /// It gets a copy there and stays where it is.
    Copy,
    /// Its copy is dropped; the file is on the tier that is wanted.
    Drop,
}

impl How {
    /// In words, for answers.
    pub fn words(self) -> &'static str {
        match self {
            How::Move => "move",
            How::Copy => "copy",
            How::Drop => "drop copy",
        }
    }
}

/// Orders to the thread that moves files.
#[derive(Default)]
struct Orders {
    /// All wanted moves are requested now.
    hurry: bool,
    stop: bool,
}

/// See the module.
pub struct Placement {
    seen: Mutex<Vec<Seen>>,
    gone: Mutex<Vec<NodeId>>,
    /// The policy.
    pub brain: Mutex<Brain>,
    /// Rules; the first one that matches applies.
    pub rules: Vec<Rule>,
    /// Files that are being moved.
    pub moving: Moving,
    /// Accesses that were dropped.
    pub unheard: AtomicU64,
    /// Number of moves that were done, refused, and failed.
    pub done: [AtomicU64; 3],
    /// Reads and writes that this program served.
    pub accesses: AtomicU64,
    /// Whether files are moved automatically.
    pub moves: bool,
    orders: Mutex<Orders>,
    ordered: Condvar,
    start: Instant,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds since 1970.
pub fn wall() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs() as i64)
}

impl Placement {
    pub(crate) fn new(
        settings: &Settings,
        roots: &Arc<Vec<Root>>,
        cat: &Catalogue,
        quotas: &[Option<u64>],
    ) -> Result<Placement, Refused> {
        let mut on = vec![0u64; roots.len()];
        for (_, n) in cat.all().filter(|n| n.1.is_file()) {
            on[usize::from(n.tier)] += n.facts.size;
        }
        let mut shape = Vec::new();
        for (t, root) in roots.iter().enumerate() {
            let free = root.room().map_or(0, |r| r.0);
            let mut all = on[t] + free;
            if let Some(q) = quotas[t] {
                all = all.min(q.max(on[t]));
            }
            if t + 1 < roots.len() {
                all = all / 100 * u64::from(settings.marks.1);
            }
            shape.push(all.max(on[t]));
        }
        let remembered = crate::remember::load(&roots[0])?;
        let tiers = roots.len();
        if let Some(r) = settings.rules.iter().find(|r| r.tier.of(tiers).is_none()) {
            return refuse(format!("rule {}: there are only {tiers} tiers", r.text));
        }
        Ok(Placement {
            seen: Mutex::default(),
            gone: Mutex::default(),
            brain: Mutex::new(Brain::new(&settings.policy, remembered, shape, cat)?),
            rules: settings.rules.clone(),
            moving: Moving::default(),
            unheard: AtomicU64::new(0),
            done: Default::default(),
            accesses: AtomicU64::new(0),
            moves: settings.moves,
            orders: Mutex::default(),
            ordered: Condvar::new(),
            start: Instant::now(),
        })
    }
    /// Requests all wanted moves now; the thread that moves files wakes up.
    pub fn hurry(&self) {
        lock(&self.orders).hurry = true;
        self.ordered.notify_all();
    }
    /// Whether all wanted moves were requested and are not done yet.
    pub fn is_hurried(&self) -> bool {
        lock(&self.orders).hurry
    }
    /// The requested moves are done.
    pub(crate) fn hurried(&self) {
        lock(&self.orders).hurry = false;
    }
    /// Stops the thread that moves files; it ends after its current file.
    pub fn stop(&self) {
        lock(&self.orders).stop = true;
        self.ordered.notify_all();
    }
    /// Whether it should stop.
    pub fn is_stopped(&self) -> bool {
        lock(&self.orders).stop
    }
    /// Waits for `time`, or until [`Placement::hurry`] or [`Placement::stop`] is called.
    pub(crate) fn rest(&self, time: Duration) {
        let orders = lock(&self.orders);
        let idle = |o: &mut Orders| !o.hurry && !o.stop;
        drop(self.ordered.wait_timeout_while(orders, time, idle));
    }
    /// Records an access.
    pub fn see(&self, seen: Seen) {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        let mut all = lock(&self.seen);
        if all.len() < SEEN_MAX {
            all.push(seen);
        } else {
            drop(all);
            self.unheard.fetch_add(1, Ordering::Relaxed);
        }
    }
    pub(crate) fn forget(&self, node: NodeId) {
        lock(&self.gone).push(node);
    }
    pub(crate) fn count(&self, outcome: Outcome) {
        let at = match outcome {
            Outcome::Done => 0,
            Outcome::Refused(_) => 1,
            Outcome::Failed(_) | Outcome::Stuck(_) => 2,
        };
        self.done[at].fetch_add(1, Ordering::Relaxed);
    }
    fn at(&self, brain: &Brain, when: Instant) -> Nanos {
        let since = when.saturating_duration_since(self.start);
        Nanos(since.as_nanos() as u64 + brain.ahead)
    }
    /// The policy's time.
    pub fn now(&self, brain: &Brain) -> Nanos {
        self.at(brain, Instant::now())
    }
    /// Passes the recorded accesses to the policy.
    pub fn listen(&self, cat: impl Fn(NodeId) -> Option<(Tier, Facts, Vec<u8>)>) {
        let (gone, seen) = (
            std::mem::take(&mut *lock(&self.gone)),
            std::mem::take(&mut *lock(&self.seen)),
        );
        // The catalogue is locked before the policy, as everywhere, so neither waits for the other.
        let mut facts: HashMap<NodeId, Option<(Tier, Facts, Vec<u8>)>> = HashMap::new();
        for s in &seen {
            facts.entry(s.node).or_insert_with(|| cat(s.node));
        }
        let mut brain = lock(&self.brain);
        let brain = &mut *brain;
        let now = self.now(brain);
        for node in gone {
            brain.forget(now, node);
        }
        let (mut before, wall) = (Nanos(0), wall());
        for s in seen {
            let Some(Some((tier, facts, path))) = facts.get(&s.node) else {
                continue;
            };
            // Several threads recorded the accesses. The engine's time must not go back.
            let when = self.at(brain, s.when.unwrap_or(self.start)).max(before);
            before = when;
            brain.last.insert(s.node, wall);
            let size = facts.size.max(s.offset + u64::from(s.bytes));
            if brain.unit(s.node).is_none() {
                brain.meet(when, s.node, *tier, size, path);
            }
            let Some(unit) = brain.unit(s.node) else {
                continue;
            };
            if brain.engine.space().bytes_of(unit) != size && !brain.engine.resize(when, unit, size)
            {
                continue;
            }
            let class = brain.remembered.class(path, size);
            brain.engine.reclassify(when, unit, class);
            let start = brain.engine.space().start(unit) + s.offset.min((1 << 40) - 1);
            brain
                .engine
                .access(when, unit, s.write, class, (start, s.bytes));
        }
        let now = self.now(brain).max(before);
        brain.engine.advance(now);
    }
    /// Makes the policy's periodic plan now.
    pub fn plan_now(&self) {
        let mut brain = lock(&self.brain);
        let now = self.now(&brain);
        if let Some(due) = brain.engine.next_wake()
            && due > now
        {
            brain.ahead += due.0 - now.0;
            brain.engine.advance(due);
        }
        brain.stirred = u64::MAX;
    }
    /// The wanted moves and copies, demotions before promotions. With `all`, also those of files that failed recently.
    pub fn wanted(&self, cat: &Catalogue, copies: &Copies, all: bool) -> Vec<Wanted> {
        let mut brain = lock(&self.brain);
        let fixed = !self.rules.is_empty() || !brain.remembered.pins.is_empty();
        let counted = brain.counted();
        if !all && !fixed && brain.stirred == counted {
            return Vec::new();
        }
        brain.stirred = counted;
        let (wall, now) = (wall(), Instant::now());
        brain.resting.retain(|_, until| *until > now);
        let mut wanted = Vec::new();
        let tiers = brain.shape.len();
        // Without pins and rules, only files that the policy knows can be on the wrong tier.
        let known: Box<dyn Iterator<Item = NodeId>> = if fixed {
            Box::new(cat.all().map(|n| n.0))
        } else {
            Box::new(brain.known())
        };
        for node in known {
            let Some(n) = cat.get(node).filter(|n| n.is_file() && n.links() > 0) else {
                continue;
            };
            let (mut to, mut why) = (brain.belongs(node), "policy");
            let mut copy = copies.on && brain.is_copy(node);
            if fixed && let Some(path) = cat.path(node) {
                let rule = self.rules.iter().find(|r| r.matches(&path, &n.facts, wall));
                if let Some(t) = rule.and_then(|r| r.tier.of(tiers)) {
                    (to, why, copy) = (Some(t), "rule", false);
                }
                if let Some(t) = brain.remembered.pin(&path) {
                    (to, why, copy) = (Some(t), "pin", false);
                }
            }
            let copied = copies.has(node);
            let how = match to {
                Some(to) if to == n.tier && copied => How::Drop,
                Some(to) if to == n.tier => continue,
                // This also holds if the policy wants the file itself there: a copy that the mount took over was reported to it as a file
                // on tier 0.
                Some(0) if copied && why == "policy" => continue,
                Some(0) if copy => How::Copy,
                Some(_) => How::Move,
                None => continue,
            };
            let to = to.unwrap_or(n.tier);
            if !all && brain.resting.contains_key(&node) {
                continue;
            }
            wanted.push(Wanted {
                node,
                from: n.tier,
                to,
                why,
                how,
            });
        }
        wanted.sort_by_key(|w| (w.to < w.from, w.node));
        wanted
    }
    /// The coldest files of a tier that is above its high mark: as many as must move to the tier below to reach the low mark.
    pub fn overflow(&self, cat: &Catalogue, tier: Tier, mut bytes: u64) -> Vec<Wanted> {
        let brain = lock(&self.brain);
        let wall = wall();
        let mut files: Vec<(i64, NodeId, u64)> = Vec::new();
        for (node, n) in cat
            .all()
            .filter(|n| n.1.is_file() && n.1.tier == tier && n.1.links() > 0)
        {
            if brain.resting.contains_key(&node) {
                continue;
            }
            if let Some(path) = cat.path(node) {
                let rule = self.rules.iter().find(|r| r.matches(&path, &n.facts, wall));
                let rule = rule.and_then(|r| r.tier.of(brain.shape.len()));
                if brain.remembered.pin(&path).or(rule) == Some(tier) {
                    continue;
                }
            }
            let used = n.facts.atime.sec.max(n.facts.mtime.sec);
            files.push((brain.last(node).unwrap_or(used), node, n.facts.blocks * 512));
        }
        files.sort_unstable();
        let mut wanted = Vec::new();
        for (_, node, size) in files {
            if bytes == 0 {
                break;
            }
            bytes = bytes.saturating_sub(size.max(1));
            wanted.push(Wanted {
                node,
                from: tier,
                to: tier + 1,
                why: "watermark",
                how: How::Move,
            });
        }
        wanted
    }
    /// Tells the policy on which tier a file is now, whether or not a move was carried out. After a move that was not carried out, no other
    /// is tried for a while.
    pub fn settled(&self, node: NodeId, tier: Tier, facts: &Facts, path: &[u8], moved: bool) {
        let mut brain = lock(&self.brain);
        let now = self.now(&brain);
        brain.meet(now, node, tier, facts.size, path);
        brain.stirred = u64::MAX;
        if !moved {
            brain.resting.insert(node, Instant::now() + REST);
        }
    }
    /// Replaces the pins and policies of directories. If the policies differ, the policy starts again without statistics, with each file at
    /// its present place.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn remember(&self, new: Remembered, cat: &Catalogue) -> Result<(), Refused> {
        let mut brain = lock(&self.brain);
        if new.policies == brain.remembered.policies {
            brain.remembered = new;
            brain.stirred = u64::MAX;
            return Ok(());
        }
        let last = std::mem::take(&mut brain.last);
        let mut next = Brain::new(&brain.main, new, brain.shape.clone(), cat)?;
        next.last = last;
        next.stirred = u64::MAX;
        *brain = next;
        Ok(())
    }
}
