//! Pins and policies of directories, which are stored in a file on tier 0; and the thread that moves files.

use crate::mover::{Outcome, Why};
use crate::placement::{How, Wanted};
use crate::policy_state::PlacementSettings;
use crate::settings::Refused;
use crate::store::Store;
use crate::sync::lock;
use crate::tree::Tier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The file in `.isotherm`.
const NAME: &[u8] = b"settings.json";
/// Interval between two checks for wanted moves.
const TURN: Duration = Duration::from_secs(1);
/// Time from the mount to the first save of the slower tiers' names on the fastest tier.
const SAVE_FIRST: Duration = Duration::from_secs(30);
/// Minimum time between two later saves.
const SAVE_AGE: Duration = Duration::from_secs(600);

impl Store {
    /// Changes pins or policies. They are in force and durable when this returns.
    ///
    /// # Errors
    /// A message in words.
    pub fn change_settings(
        &self,
        change: impl FnOnce(&mut PlacementSettings),
    ) -> Result<(), Refused> {
        // Two commands at the same time must not take each other's change back, nor write the same file.
        let _one = lock(&self.placement.changing_settings);
        let before = lock(&self.placement.policy).settings.clone();
        let mut new = before.clone();
        change(&mut new);
        self.placement.set_settings(new.clone(), &self.cat())?;
        self.save_settings(&new).inspect_err(|_| {
            // What is not stored is not in force either. These settings were valid before.
            let _ = self.placement.set_settings(before, &self.cat());
        })
    }
    /// After a directory was renamed: its pins and policies stay with the old path, which the administrator should know.
    pub(crate) fn say_what_stays(&self, from: &[u8], to: &[u8]) {
        let has = lock(&self.placement.policy).settings.has_below(from);
        if has {
            let [from, to] = [from, to].map(String::from_utf8_lossy);
            self.say(&format!(
                "{from}: was renamed to {to}; the pins and policies of {from} stay with that path: `isotherm files unpin` and `isotherm files policy --none` remove them"
            ));
        }
    }
    fn save_settings(&self, new: &PlacementSettings) -> Result<(), Refused> {
        let text = serde_json::to_vec_pretty(new).map_err(|e| Refused(e.to_string()))?;
        let root = &self.roots[0];
        // A pin to a slower tier is what helps a full tier, so it must not fail because of that.
        let stored = root.with_spare(|| self.copies.write_whole(&self.tiers, NAME, &text));
        stored.map_err(|e| Refused(format!("cannot write .isotherm/settings.json: {e}")))
    }
    /// Passes recorded accesses to the policy.
    pub fn feed_policy(&self) {
        self.placement.feed_policy(|node| {
            let facts = self.facts(node).ok()?;
            let cat = self.cat();
            let n = cat.get(node).filter(|n| n.is_file() && n.links() > 0)?;
            // Of large files, ranges are used, not the file.
            let ranged = self.copies.ranges.takes(n.tier, facts.size);
            let n = (!ranged || self.copies.has(node)).then_some(n)?;
            Some((
                self.copies.served_from(node, n.tier),
                facts,
                cat.path(node)?,
            ))
        });
    }
    /// If the fastest tier is above its upper mark, copies are dropped before files are moved away.
    fn evict_to_mark(&self) {
        if self.is_full(0) {
            self.copies.evict(&self.tiers, self.over_mark(0));
        }
    }
    /// All moves that are wanted now: by the policy, rules, pins and watermarks.
    pub fn wanted(&self, all: bool) -> Vec<Wanted> {
        let mut wanted = self.placement.wanted(&self.cat(), &self.copies, all);
        for tier in 0..self.layout().slowest() {
            if self.is_full(tier) {
                let over = self.over_mark(tier);
                let coldest = self.coldest(tier, over);
                wanted.retain(|w| !coldest.iter().any(|c| c.node == w.node));
                wanted.splice(0..0, coldest);
            }
        }
        wanted
    }
    /// The moves that `migrate --dry-run` shows, as if plans were made now. Nothing is moved, and the policy is informed that these moves
    /// did not happen.
    pub fn would_move(&self) -> Vec<Wanted> {
        self.feed_policy();
        self.placement.plan_now();
        let wanted = self.wanted(true);
        for w in &wanted {
            self.correct(w, true);
        }
        wanted
    }
    /// Tells the policy where a file is after a move was tried.
    pub(crate) fn correct(&self, w: &Wanted, moved: bool) {
        if let Ok(known) = self.names.known(w.node) {
            let tier = self.copies.served_from(w.node, known.tier);
            (self.placement).report_tier(w.node, tier, &known.facts, &known.path, moved);
        }
    }
    /// Carries out moves until `until`. Returns the number of moves that were done.
    pub fn carry_out(&self, wanted: &[Wanted], until: Option<Instant>) -> usize {
        let mut done = 0;
        for w in wanted {
            if self.placement.is_stopped() || until.is_some_and(|u| Instant::now() >= u) {
                break;
            }
            // A promotion: never to the slowest tier.
            let fits = |tier: Tier| {
                let needs = self.cat().get(w.node).map_or(0, |n| n.facts.needs());
                let (free, all) = self.room(tier);
                let spare = u128::from(all) * u128::from(100 - self.marks().1.min(100)) / 100;
                free.saturating_sub(spare as u64) >= needs
            };
            let mut to = w.to;
            let outcome = match w.how {
                How::Drop => {
                    self.drop_copy(w.node);
                    Outcome::Done
                }
                _ if w.to < w.from && !fits(w.to) => Outcome::Refused(Why::Full),
                How::Copy => self.fetch(w.node),
                How::Move => {
                    let (on, needs) = {
                        let cat = self.cat();
                        let on = cat.parent(w.node).map_or(0, |dir| cat.dir_on(dir));
                        (on, cat.get(w.node).map_or(0, |n| n.facts.needs()))
                    };
                    to = self.disk_for(w.to, on, needs);
                    self.move_file(w.node, to)
                }
            };
            done += usize::from(outcome == Outcome::Done);
            let why = match outcome {
                Outcome::Failed(e) => Some(e.to_string()),
                Outcome::Refused(why @ Why::Attributes) => Some(why.words().into()),
                _ => None,
            };
            if let Some(why) = why {
                let path = self.cat().path(w.node).unwrap_or_default();
                self.say(&format!(
                    "{}: cannot be moved to {}: {why}",
                    String::from_utf8_lossy(&path),
                    self.tier_name(to)
                ));
            }
            // The policy must learn about moves that watermarks and rules caused, too.
            self.correct(w, outcome == Outcome::Done);
        }
        done
    }
    /// Makes plans now and moves every file that is on the wrong tier. Returns the number of moved files.
    pub fn migrate_now(&self) -> usize {
        self.feed_policy();
        self.placement.plan_now();
        let mut all = 0;
        for _ in 0..8 {
            self.evict_to_mark();
            let done = self.carry_out(&self.wanted(true), None);
            all += done;
            if done == 0 {
                break;
            }
        }
        all
    }
    /// Number of changes that may have changed the names on slower tiers: new nodes, moves.
    fn names_or_places_changed(&self) -> u64 {
        let moved = self.placement.done[0].load(Ordering::Relaxed);
        1 + moved + self.names.changes()
    }
    /// The loop of the thread that moves files, until the file system is unmounted.
    pub fn attend(&self) {
        let mut before = Instant::now();
        let start = before;
        let (mut saved, mut numbers) = (None::<Instant>, 0);
        while !self.placement.is_stopped() {
            self.placement.wait(TURN.saturating_sub(before.elapsed()));
            if self.placement.moves_requested() {
                self.migrate_now();
                self.placement.moves_carried_out();
            }
            if before.elapsed() < TURN {
                continue;
            }
            let age = if saved.is_none() {
                SAVE_FIRST
            } else {
                SAVE_AGE
            };
            let (since, now) = (saved.unwrap_or(start), self.names_or_places_changed());
            if since.elapsed() >= age && numbers != now {
                // A failure is reported at unmount.
                let _ = self.save_names();
                (saved, numbers) = (Some(Instant::now()), now);
            }
            self.try_read_only_tiers();
            self.feed_policy();
            self.make_heads(Instant::now() + TURN);
            self.copies.sweep(&self.tiers);
            self.join_ordered();
            self.tend_disks(Some(Instant::now() + TURN));
            if self.placement.moves {
                self.evict_to_mark();
                let wanted = self.wanted(false);
                self.carry_out(&wanted, Some(Instant::now() + TURN));
            }
            before = Instant::now();
        }
    }
}
