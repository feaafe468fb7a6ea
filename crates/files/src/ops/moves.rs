//! Moves of files: whether a file may move, one move or copy of a file at a time, and the progress. `driver.rs` carries out the steps.

use super::data::growth;
use super::driver::Driver;
use crate::catalogue::NodeId;
use crate::copies::EVICT_BYTES;
use crate::live::Live;
use crate::mover::{Move, Outcome, Why};
pub use crate::placement::Moving;
use crate::placement::Wanted;
use crate::store::Store;
use crate::sync::lock;
use crate::tiers::{Kind, Tiers};
use crate::tree::{Id, Tier};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Store {
    /// Runs `work`, a move or a copy of a file, unless another move or copy of the same file is in progress.
    pub(crate) fn exclusively(
        &self,
        node: NodeId,
        work: impl FnOnce(&Arc<Live>) -> Outcome,
    ) -> Outcome {
        if self.is_stuck() {
            return Outcome::Failed(Errno::IO);
        }
        if !self.placement.moving.nodes().insert(node) {
            return Outcome::Refused(Why::Busy);
        }
        let outcome = self.in_use(node, work);
        self.placement.moving.nodes().remove(&node);
        outcome.unwrap_or_else(|e| match e {
            Errno::NOENT | Errno::STALE => Outcome::Refused(Why::Gone),
            e => Outcome::Failed(e),
        })
    }
    fn in_use(
        &self,
        node: NodeId,
        work: impl FnOnce(&Arc<Live>) -> Outcome,
    ) -> Result<Outcome, Errno> {
        // A request may have waited for long: the file may be gone.
        let n = self.cat().get(node).map(|n| (n.tier, n.is_file()));
        let (tier, _) = n.filter(|n| n.1).ok_or(Errno::NOENT)?;
        let wait = self.waits_for(tier, node, Kind::Move);
        let live = self.live(node)?;
        drop(wait);
        let outcome = work(&live);
        self.release(&live);
        Ok(outcome)
    }
    /// Moves a file to another disk, now.
    pub fn move_file(&self, node: NodeId, to: Tier) -> Outcome {
        let outcome = self.exclusively(node, |live| self.move_exclusively(node, to, live));
        if outcome == Outcome::Done && to > 0 {
            // Its disk was just written.
            self.copies.heads.want(node, 0);
        }
        self.placement.count(outcome);
        outcome
    }
    fn move_exclusively(&self, node: NodeId, to: Tier, live: &Arc<Live>) -> Outcome {
        let outcome = self.drive(node, to, live);
        *lock(&self.placement.moving.progress) = None;
        if let Outcome::Stuck(e) = outcome {
            let why = format!("a move to {} failed ({e})", self.tier_name(to));
            self.names.mark_stuck(&self.tiers, &why);
        }
        outcome
    }
    fn drive(&self, node: NodeId, to: Tier, live: &Live) -> Outcome {
        let (id, from, paths) = match self.movable(node, to) {
            Ok(found) => found,
            Err(outcome) => return outcome,
        };
        // A copy belongs to the file at its present home. At its new home the file needs no copy, or a new one.
        self.drop_copy(node);
        self.names.used_by(&self.tiers, node, 0);
        let number = self.names.number();
        let driver = Driver::new(self, live, (from, to), &paths[0], number);
        let step = Move::new(number, id, paths, from, to);
        let shown = self.cat().lasting(node);
        driver.run(if shown > 0 {
            step.numbered(shown)
        } else {
            step
        })
    }
    /// The identity, tier and names of a file that can move to `to`; else the outcome of the attempt. There is at least one name.
    fn movable(&self, node: NodeId, to: Tier) -> Result<(Id, Tier, Vec<Vec<u8>>), Outcome> {
        let (id, from, paths, needs) = {
            let cat = self.cat();
            let n = cat.get(node).ok_or(Outcome::Refused(Why::Gone))?;
            (n.facts.id, n.tier, cat.paths(node), n.facts.needs())
        };
        if from == to {
            return Err(Outcome::Done);
        }
        if self.is_absent(from) || self.is_absent(to) {
            return Err(Outcome::Refused(Why::Missing));
        }
        if self.is_read_only(from) || self.is_read_only(to) {
            return Err(Outcome::Refused(Why::ReadOnly));
        }
        if paths.is_empty() {
            return Err(Outcome::Refused(Why::Gone));
        }
        // Only the end of the move can be sure, but until then its bytes would be copied in vain.
        if self.stays(node) {
            return Err(Outcome::Refused(Why::Passthrough));
        }
        if self.free_for(from, to) < needs.saturating_add(self.kept_for_kernel(to)) {
            return Err(Outcome::Refused(Why::Full));
        }
        Ok((id, from, paths))
    }
    /// Whether a file cannot move at this moment, because the kernel itself reads or writes it.
    pub(crate) fn stays(&self, node: NodeId) -> bool {
        let live = self.open.get(node);
        live.is_some_and(|l| l.had_passthrough.load(Ordering::SeqCst))
    }
    /// Before a write through this program: if it needs space that is kept for the files that the kernel itself writes on the same disk, the
    /// file moves to another one. Those cannot.
    pub(crate) fn give_way(&self, live: &Live, offset: u64, bytes: u64) {
        let (tier, grows) = {
            let held = live.hold();
            let Ok(home) = held.backing() else { return };
            if self.kernel_writes(home.tier).handles() == 0 {
                return;
            }
            (home.tier, growth(&home.fd, offset, bytes))
        };
        let kept = self.kept_for_kernel(tier);
        let free = self.root(tier).room().map_or(0, |r| r.0);
        let fits = kept == 0 || free >= grows.saturating_add(kept);
        if grows == 0 || fits || self.placement.failed_recently(live.node) {
            return;
        }
        if !self.spill(live.node, tier, self.beyond(tier)) {
            self.placement.failed(live.node);
        }
    }
    /// The disk of a file became full while it was written: moves it to the first of these disks that has space. Returns true if it is worth
    /// trying again.
    pub(crate) fn spill(
        &self,
        node: NodeId,
        from: Tier,
        disks: impl IntoIterator<Item = Tier>,
    ) -> bool {
        for to in disks {
            loop {
                let now = (self.open)
                    .get(node)
                    .and_then(|l| l.hold().backing().ok().map(|b| b.tier));
                if now != Some(from) {
                    return true;
                }
                match self.move_file(node, to) {
                    Outcome::Done => return true,
                    Outcome::Refused(Why::Busy)
                        if self.placement.moving.nodes().contains(&node) =>
                    {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    _ => break,
                }
            }
        }
        false
    }
    /// The coldest files of a disk that can move, of so many bytes together.
    pub(crate) fn coldest(&self, tier: Tier, bytes: u64) -> Vec<Wanted> {
        let stays = |node| self.stays(node);
        self.placement.overflow(&self.cat(), tier, bytes, stays)
    }
    /// Whether a file may be pushed to another disk. One of the same tier keeps its reserve, so that no file is pushed to and fro.
    fn may_push(&self, node: NodeId, from: Tier, to: Tier) -> bool {
        if self.layout().tier_of(from) != self.layout().tier_of(to) {
            return true;
        }
        let needs = self.cat().get(node).map_or(0, |n| n.facts.needs());
        let (free, all) = self.room(to);
        let kept = self.kept_for_kernel(to) + Tiers::reserve(all);
        free >= needs.saturating_add(kept)
    }
    /// A disk is full, and the file that is written there cannot move: moves others to other disks of the tier or to slower tiers, the
    /// coldest first, but to none of `full`, one bit each. Returns true if it is worth trying again.
    pub(crate) fn push_out(&self, from: Tier, full: u16) -> bool {
        if !self.layout().can_leave(from) {
            return false;
        }
        while !self.placement.is_stopped() {
            let bytes = EVICT_BYTES.min(self.room(from).1 / 16);
            let coldest = self.coldest(from, bytes);
            if coldest.is_empty() {
                return false;
            }
            let mut done = false;
            for w in coldest {
                let mut others = self.beyond(from).into_iter();
                let moved = others.any(|to| {
                    full & (1 << to) == 0
                        && self.may_push(w.node, from, to)
                        && self.move_file(w.node, to) == Outcome::Done
                });
                if !moved && self.placement.moving.nodes().contains(&w.node) {
                    // Another thread moves it.
                    std::thread::sleep(Duration::from_millis(10));
                    return true;
                }
                self.correct(&w, moved);
                done |= moved;
            }
            if done {
                return true;
            }
        }
        false
    }
}
