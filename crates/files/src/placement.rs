//! Decides the tier of each file: the core's policies with files as units, pins, rules and watermarks.
//!
//! The policy runs in the core's null engine (`isotherm_core::null`) over a space with one unit per file. Accesses are passed to it in
//! batches. If the engine then has a file on another tier than the one where it is, it wants a move. A move that does not happen is
//! reported to the engine, so that the two never diverge. Caching presets make their usual decisions; where they want a copy, the file gets
//! one ([`crate::copies`]) if the mount has copies, and is moved if not.

use crate::catalogue::{Catalogue, NodeId};
use crate::copies::Copies;
use crate::layout::Layout;
use crate::mover::Outcome;
use crate::policy_state::{PlacementSettings, PolicyState};
use crate::rules::Rule;
pub use crate::settings::DEFAULT_POLICY as DEFAULT;
use crate::settings::{Refused, Settings, refuse};
use crate::sync::lock;
use crate::tiers::Tiers;
use crate::tree::{Facts, Tier, wall};
use isotherm_answers::files::WantedBy;
use isotherm_core::Nanos;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum number of accesses that wait to be passed to the policy; further ones are counted and dropped.
const RECORDED_MAX: usize = 1 << 16;
/// A file that could not be moved is not tried again for this time.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// An access.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    node: NodeId,
    write: bool,
    offset: u64,
    bytes: u32,
    when: Option<Instant>,
}

impl Access {
    /// An access to that file, now.
    pub fn new(node: NodeId, write: bool, offset: u64, bytes: u32) -> Access {
        Access {
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
    pub why: WantedBy,
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
    /// As answers have it.
    pub fn answer(self) -> isotherm_answers::files::How {
        match self {
            How::Move => isotherm_answers::files::How::Move,
            How::Copy => isotherm_answers::files::How::Copy,
            How::Drop => isotherm_answers::files::How::DropCopy,
        }
    }
}

/// Files that are being moved, and the progress.
#[derive(Debug, Default)]
pub struct Moving {
    nodes: Mutex<HashSet<NodeId>>,
    /// The most recent move in progress: path, bytes copied, total bytes.
    pub progress: Mutex<Option<(String, u64, u64)>>,
}

impl Moving {
    pub(crate) fn nodes(&self) -> MutexGuard<'_, HashSet<NodeId>> {
        lock(&self.nodes)
    }
    /// The progress of the move in progress.
    pub fn now(&self) -> Option<(String, u64, u64)> {
        lock(&self.progress).clone()
    }
}

/// Requests to the thread that moves files.
#[derive(Default)]
struct Requests {
    /// All wanted moves are requested now.
    moves: bool,
    stop: bool,
}

/// See the module.
pub struct Placement {
    recorded: Mutex<Vec<Access>>,
    deleted: Mutex<Vec<NodeId>>,
    /// The policy.
    pub policy: Mutex<PolicyState>,
    /// Which tier each disk belongs to.
    layout: Layout,
    /// Rules; the first one that matches applies.
    pub rules: Vec<Rule>,
    /// Files that are being moved.
    pub moving: Moving,
    /// Accesses that were dropped.
    pub dropped: AtomicU64,
    /// Number of moves that were done, refused, and failed.
    pub done: [AtomicU64; 3],
    /// Reads and writes that this program served.
    pub accesses: AtomicU64,
    /// Whether files are moved automatically.
    pub moves: bool,
    requests: Mutex<Requests>,
    requested: Condvar,
    start: Instant,
    /// Held while pins or policies change.
    pub(crate) changing_settings: Mutex<()>,
}

impl Placement {
    pub(crate) fn new(
        settings: &Settings,
        disks: &Tiers,
        cat: &Catalogue,
    ) -> Result<Placement, Refused> {
        let (layout, tier_bytes) = (disks.layout(), disks.policy_bytes(cat));
        let tiers = layout.tiers();
        let stored = PlacementSettings::load(&disks.roots[0])?;
        if let Some(r) = settings.rules.iter().find(|r| r.tier.of(tiers).is_none()) {
            return refuse(format!("rule {}: there are only {tiers} tiers", r.text));
        }
        Ok(Placement {
            recorded: Mutex::default(),
            deleted: Mutex::default(),
            policy: Mutex::new(PolicyState::new(&settings.policy, stored, tier_bytes, cat)?),
            layout,
            rules: settings.rules.clone(),
            moving: Moving::default(),
            dropped: AtomicU64::new(0),
            done: Default::default(),
            accesses: AtomicU64::new(0),
            moves: settings.moves,
            requests: Mutex::default(),
            requested: Condvar::new(),
            start: Instant::now(),
            changing_settings: Mutex::default(),
        })
    }
    /// Requests all wanted moves now; the thread that moves files wakes up.
    pub fn request_moves(&self) {
        lock(&self.requests).moves = true;
        self.requested.notify_all();
    }
    /// Whether all wanted moves were requested and are not done yet.
    pub fn moves_requested(&self) -> bool {
        lock(&self.requests).moves
    }
    /// The requested moves are done.
    pub(crate) fn moves_carried_out(&self) {
        lock(&self.requests).moves = false;
    }
    /// Stops the thread that moves files; it ends after its current file.
    pub fn stop(&self) {
        lock(&self.requests).stop = true;
        self.requested.notify_all();
    }
    /// Whether it should stop.
    pub fn is_stopped(&self) -> bool {
        lock(&self.requests).stop
    }
    /// Waits for `time`, or until [`Placement::request_moves`] or [`Placement::stop`] is called.
    pub(crate) fn wait(&self, time: Duration) {
        let requests = lock(&self.requests);
        let idle = |o: &mut Requests| !o.moves && !o.stop;
        drop(self.requested.wait_timeout_while(requests, time, idle));
    }
    /// Records an access.
    pub fn record(&self, access: Access) {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        let mut all = lock(&self.recorded);
        if all.len() < RECORDED_MAX {
            all.push(access);
        } else {
            drop(all);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
    pub(crate) fn forget(&self, node: NodeId) {
        lock(&self.deleted).push(node);
    }
    pub(crate) fn count(&self, outcome: Outcome) {
        let at = match outcome {
            Outcome::Done => 0,
            Outcome::Refused(_) => 1,
            Outcome::Failed(_) | Outcome::Stuck(_) => 2,
        };
        self.done[at].fetch_add(1, Ordering::Relaxed);
    }
    fn at(&self, policy: &PolicyState, when: Instant) -> Nanos {
        let since = when.saturating_duration_since(self.start);
        Nanos(since.as_nanos() as u64 + policy.ahead)
    }
    /// The policy's time.
    pub fn now(&self, policy: &PolicyState) -> Nanos {
        self.at(policy, Instant::now())
    }
    /// Passes the recorded accesses to the policy.
    pub fn feed_policy(&self, cat: impl Fn(NodeId) -> Option<(Tier, Facts, Vec<u8>)>) {
        let (deleted, recorded) = (
            std::mem::take(&mut *lock(&self.deleted)),
            std::mem::take(&mut *lock(&self.recorded)),
        );
        // The catalogue is locked before the policy, as everywhere, so neither waits for the other.
        let mut facts: HashMap<NodeId, Option<(Tier, Facts, Vec<u8>)>> = HashMap::new();
        for a in &recorded {
            facts.entry(a.node).or_insert_with(|| cat(a.node));
        }
        let mut policy = lock(&self.policy);
        let policy = &mut *policy;
        let now = self.now(policy);
        for node in deleted {
            policy.forget(now, node);
        }
        let (mut before, wall) = (Nanos(0), wall());
        for a in recorded {
            let Some(Some((tier, facts, path))) = facts.get(&a.node) else {
                continue;
            };
            // Several threads recorded the accesses. The engine's time must not go back.
            let when = self.at(policy, a.when.unwrap_or(self.start)).max(before);
            before = when;
            policy.last.insert(a.node, wall);
            let size = facts.size.max(a.offset + u64::from(a.bytes));
            if policy.unit(a.node).is_none() {
                policy.set_tier(when, a.node, *tier, size, path);
            }
            let Some(unit) = policy.unit(a.node) else {
                continue;
            };
            if policy.engine.space().bytes_of(unit) != size
                && !policy.engine.resize(when, unit, size)
            {
                continue;
            }
            let class = policy.settings.class(path, size);
            policy.engine.reclassify(when, unit, class);
            let start = policy.engine.space().start(unit) + a.offset.min((1 << 40) - 1);
            policy
                .engine
                .access(when, unit, a.write, class, (start, a.bytes));
        }
        let now = self.now(policy).max(before);
        policy.engine.advance(now);
    }
    /// The tier of the nearest pinned path above. A pin from a mount of more tiers is to the slowest.
    fn pin(&self, policy: &PolicyState, path: &[u8]) -> Option<Tier> {
        policy.settings.pin(path).map(|t| self.layout.tier_of(t))
    }
    /// Makes the policy's periodic plan now.
    pub fn plan_now(&self) {
        let mut policy = lock(&self.policy);
        let now = self.now(&policy);
        if let Some(due) = policy.engine.next_wake()
            && due > now
        {
            policy.ahead += due.0 - now.0;
            policy.engine.advance(due);
        }
        policy.decisions_seen = u64::MAX;
    }
    /// The wanted moves and copies, demotions before promotions. With `all`, also those of files that failed recently.
    pub fn wanted(&self, cat: &Catalogue, copies: &Copies, all: bool) -> Vec<Wanted> {
        let mut policy = lock(&self.policy);
        let fixed = !self.rules.is_empty() || !policy.settings.pins.is_empty();
        let decisions = policy.decisions();
        if !all && !fixed && policy.decisions_seen == decisions {
            return Vec::new();
        }
        policy.decisions_seen = decisions;
        let (wall, now) = (wall(), Instant::now());
        policy.retry_at.retain(|_, until| *until > now);
        let mut wanted = Vec::new();
        let tiers = policy.tier_bytes.len();
        // A file may have been deleted while its move was reported.
        let gone: Vec<NodeId> = policy.files().filter(|n| cat.get(*n).is_none()).collect();
        for node in gone {
            let at = self.now(&policy);
            policy.forget(at, node);
        }
        // Without pins and rules, only files that the policy knows can be on the wrong tier.
        let known: Box<dyn Iterator<Item = NodeId>> = if fixed {
            Box::new(cat.all().map(|n| n.0))
        } else {
            Box::new(policy.files())
        };
        for node in known {
            let Some(n) = cat.get(node).filter(|n| n.is_file() && n.links() > 0) else {
                continue;
            };
            let (mut to, mut why) = (policy.wanted_tier(node), WantedBy::Policy);
            let mut copy = copies.on && policy.is_copy(node);
            if fixed && let Some(path) = cat.path(node) {
                let rule = self.rules.iter().find(|r| r.matches(&path, &n.facts, wall));
                if let Some(t) = rule.and_then(|r| r.tier.of(tiers)) {
                    (to, why, copy) = (Some(t), WantedBy::Rule, false);
                }
                if let Some(t) = self.pin(&policy, &path) {
                    (to, why, copy) = (Some(t), WantedBy::Pin, false);
                }
            }
            let copied = copies.has(node);
            let from = self.layout.tier_of(n.tier);
            let ranged = copies.ranges.takes(n.tier, n.facts.size);
            let how = match to {
                // The policy knows it from when it was small.
                Some(to) if to < from && ranged && why == WantedBy::Policy => continue,
                Some(to) if to == from && copied => How::Drop,
                Some(to) if to == from => continue,
                // This also holds if the policy wants the file itself there: a copy that the mount took over was reported to it as a file
                // on tier 0.
                Some(0) if copied && why == WantedBy::Policy => continue,
                Some(0) if copy => How::Copy,
                Some(_) => How::Move,
                None => continue,
            };
            let to = to.unwrap_or(from);
            if !all && policy.retry_at.contains_key(&node) {
                continue;
            }
            wanted.push(Wanted {
                node,
                from,
                to,
                why,
                how,
            });
        }
        wanted.sort_by_key(|w| (w.to < w.from, w.node));
        wanted
    }
    /// The mover searches for wanted moves again, because somebody else has searched.
    pub(crate) fn search_again(&self) {
        lock(&self.policy).decisions_seen = u64::MAX;
    }
    /// The coldest files of a disk that should be emptied by so many bytes: those that must move to the tier below, or from a disk of the
    /// slowest tier to another one. Those for which `stays` is true cannot move.
    pub fn overflow(
        &self,
        cat: &Catalogue,
        tier: Tier,
        mut bytes: u64,
        stays: impl Fn(NodeId) -> bool,
    ) -> Vec<Wanted> {
        let policy = lock(&self.policy);
        let (from, slowest) = (self.layout.tier_of(tier), self.layout.slowest());
        let to = (from + 1).min(slowest);
        let (wall, now) = (wall(), Instant::now());
        let mut files: Vec<(i64, NodeId, u64)> = Vec::new();
        for (node, n) in cat
            .all()
            .filter(|n| n.1.is_file() && n.1.tier == tier && n.1.links() > 0)
        {
            if policy.rests(node, now) {
                continue;
            }
            if from < to
                && let Some(path) = cat.path(node)
            {
                let rule = self.rules.iter().find(|r| r.matches(&path, &n.facts, wall));
                let rule = rule.and_then(|r| r.tier.of(policy.tier_bytes.len()));
                if self.pin(&policy, &path).or(rule) == Some(from) {
                    continue;
                }
            }
            let used = n.facts.atime.sec.max(n.facts.mtime.sec);
            files.push((
                policy.last(node).unwrap_or(used),
                node,
                n.facts.blocks * 512,
            ));
        }
        files.sort_unstable();
        let mut wanted = Vec::new();
        for (_, node, size) in files {
            if bytes == 0 {
                break;
            }
            if stays(node) {
                continue;
            }
            bytes = bytes.saturating_sub(size.max(1));
            wanted.push(Wanted {
                node,
                from,
                to,
                why: WantedBy::Watermark,
                how: How::Move,
            });
        }
        wanted
    }
    /// Tells the policy on which disk a file is now, whether or not a move was carried out. After a move that was not carried out, no other
    /// is tried for a while.
    pub fn report_tier(&self, node: NodeId, tier: Tier, facts: &Facts, path: &[u8], moved: bool) {
        let mut policy = lock(&self.policy);
        let now = self.now(&policy);
        policy.set_tier(now, node, tier, facts.size, path);
        policy.decisions_seen = u64::MAX;
        if !moved {
            policy.retry_at.insert(node, Instant::now() + RETRY_AFTER);
        }
    }
    /// Whether a file could not be moved a short time ago.
    pub(crate) fn failed_recently(&self, node: NodeId) -> bool {
        lock(&self.policy).rests(node, Instant::now())
    }
    /// A file could not be moved: it is not tried again for a while.
    pub(crate) fn failed(&self, node: NodeId) {
        let until = Instant::now() + RETRY_AFTER;
        lock(&self.policy).retry_at.insert(node, until);
    }
    /// Replaces the pins and policies of directories. If the policies differ, the policy starts again without statistics, with each file at
    /// its present place.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn set_settings(&self, new: PlacementSettings, cat: &Catalogue) -> Result<(), Refused> {
        let mut policy = lock(&self.policy);
        if new.policies == policy.settings.policies {
            policy.settings = new;
            policy.decisions_seen = u64::MAX;
            return Ok(());
        }
        let bytes = policy.tier_bytes.clone();
        restart(&mut policy, new, bytes, cat)
    }
    /// A disk has joined: the policy starts again over the space that there is now.
    ///
    /// # Errors
    /// The policy cannot handle so much.
    pub(crate) fn grow(&self, disks: &Tiers, cat: &Catalogue) -> Result<(), Refused> {
        let bytes = disks.policy_bytes(cat);
        let mut policy = lock(&self.policy);
        let settings = policy.settings.clone();
        restart(&mut policy, settings, bytes, cat)
    }
}

/// The policy starts again without statistics, with each file at its present place.
fn restart(
    policy: &mut PolicyState,
    settings: PlacementSettings,
    tier_bytes: Vec<u64>,
    cat: &Catalogue,
) -> Result<(), Refused> {
    let mut next = PolicyState::new(&policy.main, settings, tier_bytes, cat)?;
    next.last = std::mem::take(&mut policy.last);
    next.decisions_seen = u64::MAX;
    *policy = next;
    Ok(())
}
