//! Disks of the slowest tier that are emptied (`files disk drain`), and files that move so that all are equally full (`files disk balance`).
//!
//! What was ordered is stored with the pins, so that the next mount goes on after a crash. Files move as all others do. Links, pipes and
//! devices, which the mover does not know, are made anew on another disk and put in place of the old ones by one intent. A disk is *empty* when
//! it has neither of them, and no directory that is nowhere else: then the next mount may leave it out.

use crate::catalogue::{Catalogue, Kind, NodeId, ROOT};
use crate::layout::Layout;
use crate::mover::{Outcome, Why};
use crate::mutants::{Mutant, broken};
use crate::names::{Key, Stage, Wanted};
use crate::settings::{Refused, refuse};
use crate::store::Store;
use crate::sync::lock;
use crate::tree::Tier;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A disk this near to the aim of a balance, in parts of its size, is left alone.
const NEAR: u64 = 100;
/// Maximum time for which the last look at an empty disk waits for changes in progress.
const LAST_LOOK: Duration = Duration::from_secs(5);
/// If others have left files on a disk that is being emptied, it is read again after this time.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// A disk, its used and all bytes.
type Room = (Tier, u64, u64);

/// The disks of the slowest tier, if there are several.
fn several(layout: Layout) -> Result<std::ops::Range<Tier>, Refused> {
    if layout.has_several() {
        return Ok(layout.disks_of(layout.slowest()));
    }
    refuse("the slowest tier has one disk: add another one first (`isotherm files disk add`)")
}

impl Store {
    /// Goes on with what an earlier mount was told. Ids of disks that are no part of the tree any more are forgotten,
    /// and so is that a disk was empty if it has files now.
    pub(crate) fn go_on_emptying(&self) -> Result<(), Refused> {
        let drains = lock(&self.placement.policy).settings.drains.clone();
        let is_here =
            |id: &str| (0..self.roots.len() as Tier).any(|d| self.tiers.id_of(d) == Some(id));
        let filled = |id: &str| {
            let mut disks = 0..self.roots.len() as Tier;
            let disk = disks.find(|d| self.tiers.id_of(*d) == Some(id));
            disk.is_some_and(|d| !self.is_absent(d) && !self.names_on(d).is_empty())
        };
        let now: BTreeMap<String, bool> = (drains.iter())
            .filter(|(id, _)| is_here(id))
            .map(|(id, empty)| (id.clone(), *empty && !filled(id)))
            .collect();
        if now != drains {
            self.change_settings(|s| s.drains = now)?;
        }
        self.tiers
            .drain_only(|id| is_here(id) && drains.contains_key(id));
        Ok(())
    }
    /// The number of a disk of the slowest tier, given as such or by its path.
    fn disk_called(&self, name: &str) -> Result<Tier, Refused> {
        let mut disks = several(self.layout())?;
        let real = std::fs::canonicalize(name);
        let is = |d: &Tier| {
            let path = &self.root(*d).path;
            name.parse() == Ok(*d)
                || name == self.tier_name(*d)
                || real.as_ref().is_ok_and(|r| r == path)
        };
        let all: Vec<String> = disks
            .clone()
            .map(|d| format!("{d} ({})", self.tier_name(d)))
            .collect();
        disks.find(is).ok_or_else(|| {
            Refused(format!(
                "{name}: is none of the disks of the slowest tier: {}",
                all.join(", ")
            ))
        })
    }
    /// From now on a disk gets no files, and those that it has move to the others of its tier. Durable when this returns.
    ///
    /// # Errors
    /// A message in words: there is no such disk, it does not answer, or the others have no space.
    pub fn order_drain(&self, name: &str) -> Result<(), Refused> {
        let disk = self.disk_called(name)?;
        let shown = self.tier_name(disk);
        let Some(id) = self.tiers.id_of(disk).map(str::to_owned) else {
            return refuse(format!(
                "{shown}: has no id yet: free some space there and mount again"
            ));
        };
        for (is, what) in [
            (self.is_absent(disk), "is missing: mount with it first"),
            (
                self.is_read_only(disk),
                "is read-only: its files cannot leave it",
            ),
        ] {
            if is {
                return refuse(format!("{shown}: {what}"));
            }
        }
        let others = several(self.layout())?.filter(|d| *d != disk && self.tiers.takes_files(*d));
        let others: Vec<Tier> = others.collect();
        if others.is_empty() {
            return refuse(format!("{shown}: no other disk of its tier takes files"));
        }
        let dev = |d: Tier| self.root(d).dev;
        let mut seen = Vec::new();
        let apart = others.iter().filter(|d| {
            let new = !seen.contains(&dev(**d));
            seen.push(dev(**d));
            new
        });
        let free: u64 = apart.map(|d| self.tiers.own_room(*d).0).sum();
        let bytes = self.bytes_on[usize::from(disk)].load(Ordering::Relaxed);
        // Within one file system the files take their own place.
        if free < bytes && !others.iter().any(|d| dev(*d) == dev(disk)) {
            return refuse(format!(
                "{shown}: its files take {bytes} bytes, and the other disks of its tier have {free} free: delete or move some, or add a disk"
            ));
        }
        self.change_settings(|s| {
            s.drains.entry(id).or_insert(false);
        })?;
        self.follow_drains();
        Ok(())
    }
    /// A disk that was being emptied, or is empty, takes files again.
    ///
    /// # Errors
    /// A message in words: it was not being emptied.
    pub fn end_drain(&self, name: &str) -> Result<(), Refused> {
        let disk = self.disk_called(name)?;
        let id = self.tiers.id_of(disk).unwrap_or_default().to_owned();
        if !self.tiers.is_draining(disk) {
            return refuse(format!("{}: is not being emptied", self.tier_name(disk)));
        }
        self.change_settings(|s| {
            s.drains.remove(&id);
        })?;
        self.follow_drains();
        Ok(())
    }
    fn follow_drains(&self) {
        let drains = lock(&self.placement.policy).settings.drains.clone();
        self.tiers.drain_only(|id| drains.contains_key(id));
    }
    /// Whether a disk was found empty.
    pub(crate) fn is_empty(&self, disk: Tier) -> bool {
        let id = self.tiers.id_of(disk).unwrap_or_default();
        lock(&self.placement.policy).settings.drains.get(id) == Some(&true)
    }
    /// The files, links, pipes and devices on a disk.
    pub(crate) fn names_on(&self, disk: Tier) -> Vec<NodeId> {
        let cat = self.cat();
        let on = cat.all().filter(|(_, n)| {
            let named = n.kind != Kind::Alias && n.kind != Kind::Free && n.links() > 0;
            let counts = n.is_file() || !broken(Mutant::DrainFilesOnly);
            named && counts && n.tier == disk && n.kind != Kind::Dir
        });
        on.map(|(node, _)| node).collect()
    }
    /// The directories that are on no disk that stays.
    fn dirs_only_on_drained(&self) -> Vec<NodeId> {
        let gone = self.tiers.draining().fold(0u16, |all, d| all | 1 << d);
        let cat = self.cat();
        let dirs = cat.all().filter(|(node, n)| {
            n.kind == Kind::Dir && *node != ROOT && n.links() > 0 && n.on() & !gone == 0
        });
        dirs.map(|(node, _)| node).collect()
    }
    /// Moves files off the disks that are being emptied, and evens out how full the others are, until `until`. Returns the number of files
    /// that have moved.
    pub fn tend_disks(&self, until: Option<Instant>) -> usize {
        let mut done = 0;
        for disk in self.tiers.draining() {
            done += self.empty(disk, until);
        }
        let aim = lock(&self.placement.policy).settings.balance;
        done + aim.map_or(0, |aim| self.even_out(aim, until))
    }
    fn is_over(&self, until: Option<Instant>) -> bool {
        self.placement.is_stopped() || until.is_some_and(|u| Instant::now() >= u)
    }
    fn empty(&self, disk: Tier, until: Option<Instant>) -> usize {
        if !self.is_healthy(disk) {
            return 0;
        }
        let (mut done, tier) = (0, self.layout().slowest());
        let left = self.names_on(disk);
        if left.is_empty() != self.is_empty(disk) {
            self.look_last(disk);
        }
        for node in &left {
            if self.is_over(until) {
                return done;
            }
            // It was moved back by somebody who ended the drain.
            if !self.tiers.is_draining(disk) || self.placement.failed_recently(*node) {
                continue;
            }
            let (on, needs, is_file) = {
                let cat = self.cat();
                let Some(n) = cat.get(*node) else { continue };
                let on = cat.parent(*node).map_or(0, |dir| cat.dir_on(dir));
                (on, n.facts.needs(), n.is_file())
            };
            let to = self.disk_for(tier, on, needs);
            let outcome = if to == disk {
                Outcome::Refused(Why::Missing)
            } else if is_file {
                self.move_file(*node, to)
            } else {
                self.move_special(*node, to)
            };
            done += usize::from(outcome == Outcome::Done);
            self.tell_of_failure(*node, to, outcome);
        }
        done
    }
    /// After a move: one that failed is not tried again for a while.
    fn tell_of_failure(&self, node: NodeId, to: Tier, outcome: Outcome) {
        let why = match outcome {
            Outcome::Done | Outcome::Refused(Why::Gone) => return,
            Outcome::Refused(why) => why.words().to_owned(),
            Outcome::Failed(e) | Outcome::Stuck(e) => e.to_string(),
        };
        self.placement.failed(node);
        let path = self.cat().shown_path(node);
        self.say(&format!(
            "{path}: stays on its disk, not on {}: {why}",
            self.tier_name(to)
        ));
    }
    /// Whether a disk has nothing that others have put there and that is not shown: whoever takes the disk away would lose it. Says what it has.
    fn others_left_nothing(&self, disk: Tier) -> bool {
        if broken(Mutant::TrustNames) {
            return true;
        }
        if !self.tiers.may_read_whole(disk, READ_AGAIN) {
            return false;
        }
        let shown = self.tier_name(disk);
        let there = match crate::scan::read(&[self.root(disk)]) {
            Ok((there, _)) => there,
            Err(e) => {
                self.say(&e.0);
                return false;
            }
        };
        let known = self.cat();
        let is_here = |path: &[u8]| {
            known
                .find(path)
                .and_then(|n| known.get(n))
                .is_some_and(|n| n.tier == disk)
        };
        let mut others = there.all().filter(|n| n.1.kind != Kind::Dir);
        let others = others.find_map(|n| there.path(n.0).filter(|path| !is_here(path)));
        drop(known);
        if let Some(path) = &others {
            self.say(&format!(
                "{shown}: is not empty: others have put files there that are not shown, such as {}: delete them, or show them by `isotherm files check --repair`",
                String::from_utf8_lossy(path)
            ));
        }
        others.is_none()
    }
    /// The disk has no files any more, or has some again: stores that. The directories that only it has are made on another one first.
    fn look_last(&self, disk: Tier) {
        let made = self.dirs_only_on_drained().into_iter().try_for_each(|dir| {
            let _claim = self.names.claim(|cat, all| all.path(cat, dir))?;
            let on = {
                let cat = self.cat();
                cat.parent(dir).map_or(0, |above| cat.dir_on(above))
            };
            let to = self.disk_for(self.layout().slowest(), on, 0);
            self.ensure_dir(dir, to)?;
            rustix::fs::syncfs(&self.root(to).fd)
        });
        let shown = self.tier_name(disk);
        if let Err(e) = made {
            let line =
                format!("{shown}: a directory that only it has cannot be made elsewhere: {e}");
            // This is tried each second.
            let said = lock(&self.said).last() == Some(&line);
            if !said {
                self.say(&line);
            }
            return;
        }
        let Some(id) = self.tiers.id_of(disk).map(str::to_owned) else {
            return;
        };
        if !self.is_empty(disk) && !self.others_left_nothing(disk) {
            return;
        }
        // A file may be on its way there since before the drain. No change is in progress while this is held.
        let everything = |_: &Catalogue, all: &mut Wanted| all.alone(Key::Path(ROOT));
        let all = self.names.claim_within(Stage::First, LAST_LOOK, everything);
        let is_empty = self.names_on(disk).is_empty() && self.dirs_only_on_drained().is_empty();
        if all.is_none() || is_empty == self.is_empty(disk) {
            return;
        }
        let stored = self.change_settings(|s| {
            if let Some(empty) = s.drains.get_mut(&id) {
                *empty = is_empty;
            }
        });
        match (stored, is_empty) {
            (Ok(()), true) => self.say(&format!(
                "{shown}: is empty: the next mount may leave it out, and its directories may be deleted then"
            )),
            (Ok(()), false) => self.say(&format!("{shown}: has files again, which move away")),
            (Err(e), _) => self.say(&e.0),
        }
    }
    /// Files move until no disk of the slowest tier is fuller than `aim` per cent; without it, until all are equally full. Durable when this
    /// returns.
    ///
    /// # Errors
    /// A message in words: there is nothing to even out, or too much for that aim.
    pub fn order_balance(&self, aim: Option<u8>) -> Result<(), Refused> {
        let rooms = self.rooms();
        if several(self.layout()).is_ok() && rooms.len() < 2 {
            return refuse(
                "fewer than two disks of the slowest tier take files, each on a file system of its own",
            );
        }
        several(self.layout())?;
        let (used, all) = rooms.iter().fold((0u128, 0u128), |sum, (_, used, all)| {
            (sum.0 + u128::from(*used), sum.1 + u128::from(*all))
        });
        let together = (used * 100).div_ceil(all.max(1)) as u8;
        if let Some(aim) = aim.filter(|aim| *aim < together) {
            return refuse(format!(
                "the disks are {together} % full together, so not all can be at {aim} %: --to {together} or more"
            ));
        }
        self.change_settings(|s| s.balance = Some(aim.unwrap_or(together)))
    }
    /// No files move any more because of a balance.
    ///
    /// # Errors
    /// A message in words: that cannot be stored.
    pub fn end_balance(&self) -> Result<(), Refused> {
        self.change_settings(|s| s.balance = None)
    }
    /// Used and all bytes of the disks of the slowest tier that take files, one of each file system.
    fn rooms(&self) -> Vec<Room> {
        let disks =
            crate::disk::apart(&self.roots, self.layout().disks_of(self.layout().slowest()));
        let disks = disks.filter(|d| self.tiers.takes_files(*d));
        let room = |d: Tier| {
            let (free, all) = self.tiers.own_room(d);
            (d, all.saturating_sub(free), all)
        };
        disks.map(room).collect()
    }
    fn even_out(&self, aim: u8, until: Option<Instant>) -> usize {
        let bytes = |all: u64| (u128::from(all) * u128::from(aim) / 100) as u64;
        let over = |(_, used, all): &Room| used.saturating_sub(bytes(*all));
        let under = |(_, used, all): &Room| bytes(*all).saturating_sub(*used);
        let is_over = |room: &Room| over(room) > room.2 / NEAR;
        let mut full = self.rooms();
        full.retain(is_over);
        full.sort_by_key(|room| Reverse(over(room)));
        let mut done = 0;
        for (from, ..) in &full {
            for w in self.coldest(*from, u64::MAX) {
                if self.is_over(until) {
                    return done;
                }
                let rooms = self.rooms();
                if !rooms.iter().any(|room| room.0 == *from && is_over(room)) {
                    break;
                }
                let needs = self.cat().get(w.node).map_or(0, |n| n.facts.needs());
                // The other one does not become fuller than the aim, so this comes to an end.
                let to = rooms.into_iter().max_by_key(under);
                let Some(to) = to.filter(|r| r.0 != *from && under(r) >= needs) else {
                    continue;
                };
                let outcome = self.move_file(w.node, to.0);
                done += usize::from(outcome == Outcome::Done);
                self.tell_of_failure(w.node, to.0, outcome);
            }
        }
        if done == 0 && !self.is_over(until) {
            let how = if full.is_empty() {
                "no disk of the slowest tier is"
            } else {
                "nothing more can move, and some disks are still"
            };
            let stored = self.end_balance();
            self.say(&stored.map_or_else(|e| e.0, |()| format!("balance: {how} above {aim} %")));
        }
        done
    }
}
