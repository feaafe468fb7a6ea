//! Carries out moves of files: takes the locks, opens the descriptors, and updates the catalogue around the state machine in
//! [`crate::mover`].

use crate::catalogue::NodeId;
use crate::disk::{Disk, facts_of};
use crate::live::{Backing, Live, State};
use crate::mover::{Answer, Call, Move, Outcome, Step, Why, carry_out};
use crate::store::Store;
use crate::tree::{TEMPS, Tier, join};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Files that are being moved, and the progress.
#[derive(Debug, Default)]
pub struct Moving {
    nodes: Mutex<HashSet<NodeId>>,
    /// The most recent move in progress: path, bytes copied, total bytes.
    pub progress: Mutex<Option<(String, u64, u64)>>,
}

impl Moving {
    fn nodes(&self) -> std::sync::MutexGuard<'_, HashSet<NodeId>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The progress of the move in progress.
    pub fn now(&self) -> Option<(String, u64, u64)> {
        let now = self.progress.lock();
        now.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

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
        // The node's number must not be given to another file in the meantime.
        let there = self.cat_mut().hold(node);
        let outcome = if there {
            self.in_use(node, work)
        } else {
            Outcome::Refused(Why::Gone)
        };
        if there {
            self.cat_mut().let_go(node);
        }
        self.placement.moving.nodes().remove(&node);
        outcome
    }
    fn in_use(&self, node: NodeId, work: impl FnOnce(&Arc<Live>) -> Outcome) -> Outcome {
        let live = match self.live(node) {
            Ok(live) => live,
            Err(Errno::NOENT | Errno::STALE) => return Outcome::Refused(Why::Gone),
            Err(e) => return Outcome::Failed(e),
        };
        let outcome = work(&live);
        self.release(&live);
        outcome
    }
    /// Moves a file to another tier, now.
    pub fn move_file(&self, node: NodeId, to: Tier) -> Outcome {
        let outcome = self.exclusively(node, |live| self.move_exclusively(node, to, live));
        self.placement.count(outcome);
        outcome
    }
    fn move_exclusively(&self, node: NodeId, to: Tier, live: &Arc<Live>) -> Outcome {
        let outcome = self.drive(node, to, live);
        let mut progress = self.placement.moving.progress.lock();
        if let Ok(p) = &mut progress {
            **p = None;
        }
        drop(progress);
        if let Outcome::Stuck(e) = outcome {
            self.mark_stuck(&format!("a move to {} failed ({e})", self.tier_name(to)));
        }
        outcome
    }
    #[expect(clippy::too_many_lines, reason = "to be divided")]
    fn drive(&self, node: NodeId, to: Tier, live: &Arc<Live>) -> Outcome {
        let (id, from, paths, size) = {
            let cat = self.cat();
            let Some(n) = cat.get(node) else {
                return Outcome::Refused(Why::Gone);
            };
            (n.facts.id, n.tier, cat.paths(node), n.facts.size)
        };
        if from == to {
            return Outcome::Done;
        }
        if self.is_absent(from) || self.is_absent(to) {
            return Outcome::Refused(Why::Missing);
        }
        if paths.is_empty() {
            return Outcome::Refused(Why::Gone);
        }
        if self.room(to).0 < size {
            return Outcome::Refused(Why::Full);
        }
        // A copy belongs to the file at its present home. At its new home the file needs no copy, or a new one.
        self.drop_copy(node);
        self.used_by(node, 0);
        let shown = String::from_utf8_lossy(&paths[0]).into_owned();
        let number = self.number();
        let temp = join(TEMPS, format!("m{number}").as_bytes());
        let mut disk = Disk::new(Arc::clone(&self.roots));
        let mut m = Move::new(number, id, paths, from, to);
        let (mut names, mut state, mut changes) = (None, None, 0);
        let mut copy: Option<OwnedFd> = None;
        let mut step = m.start();
        loop {
            let answer = match step {
                Step::Call(call) => {
                    if matches!(call, Call::Create(..)) {
                        changes = Store::changes(live);
                    }
                    if matches!(call, Call::Copy(..))
                        && let Ok(p) = &mut self.placement.moving.progress.lock()
                    {
                        **p = Some((shown.clone(), m.copied(), m.bytes()));
                    }
                    carry_out(&mut disk, &call)
                }
                Step::Freeze => match self.names() {
                    Err(e) => Err(e),
                    Ok(guard) => {
                        names = Some(guard);
                        let s = live.state.write().unwrap_or_else(PoisonError::into_inner);
                        state = Some(s);
                        self.frozen(node, live, changes, to, &temp, &mut copy)
                    }
                },
                Step::Thaw => {
                    (names, state, copy) = (None, None, None);
                    Ok(Answer::Done)
                }
                Step::Swap(_) => {
                    if let (Some(s), Some(fd)) = (&mut state, copy.take()) {
                        let before = s.home.as_ref().and_then(|b| live.facts_of(b).ok());
                        self.swapped(live, before, from, to, &fd);
                        **s = State {
                            home: Some(Backing {
                                tier: to,
                                fd,
                                writable: true,
                            }),
                            copy: None,
                        };
                    }
                    state = None;
                    Ok(Answer::Done)
                }
                Step::End(outcome) => {
                    if outcome == Outcome::Done {
                        live.update_shown_ctime();
                        // Names are still locked, so that no user can change these times in between: that change would be lost.
                        self.dir_times(node, from, to);
                    }
                    drop((names, state));
                    if outcome == Outcome::Done {
                        self.tell_kernel(node);
                        self.room_changed(from);
                        self.room_changed(to);
                    }
                    return outcome;
                }
            };
            step = m.next(answer);
        }
    }
    fn frozen(
        &self,
        node: NodeId,
        live: &crate::live::Live,
        changes: u64,
        to: Tier,
        temp: &[u8],
        copy: &mut Option<OwnedFd>,
    ) -> Result<Answer, Errno> {
        if live
            .had_passthrough
            .load(std::sync::atomic::Ordering::SeqCst)
        {
            return Ok(Answer::Forbidden(Why::Passthrough));
        }
        let paths = self.cat().paths(node);
        if paths.is_empty() {
            return Ok(Answer::Forbidden(Why::Gone));
        }
        *copy = Some(self.roots[usize::from(to)].open_at(temp, OFlags::RDWR, 0)?);
        Ok(Answer::Frozen(paths, Store::changes(live) != changes))
    }
    fn swapped(
        &self,
        live: &crate::live::Live,
        before: Option<crate::tree::Facts>,
        from: Tier,
        to: Tier,
        fd: &OwnedFd,
    ) {
        let node = live.node;
        let facts = facts_of(fd);
        let dirs = {
            let mut cat = self.cat_mut();
            if let Ok(f) = facts {
                cat.replace(node, to, f.id);
                // Users must not see a move as a change of the file.
                let ctime = before.map_or(f.ctime, |b| b.ctime);
                live.show_ctime(f.ctime, ctime);
                cat.set_facts(node, &crate::tree::Facts { ctime, ..f });
            }
            cat.parents(node)
        };
        for d in dirs {
            self.mark_dirs(d, to);
        }
        let bytes = facts.map_or(0, |f| f.blocks * 512);
        let order = std::sync::atomic::Ordering::Relaxed;
        self.bytes_on[usize::from(to)].fetch_add(bytes, order);
        let _ = self.bytes_on[usize::from(from)]
            .fetch_update(order, order, |b| Some(b.saturating_sub(bytes)));
    }
    /// Restores the times of the directories, which a move must not change.
    fn dir_times(&self, node: NodeId, from: Tier, to: Tier) {
        let dirs: Vec<(Vec<u8>, crate::tree::Facts)> = {
            let cat = self.cat();
            let ids = cat.parents(node).into_iter();
            ids.filter_map(|d| Some((cat.path(d)?, cat.get(d)?.facts)))
                .collect()
        };
        let spec = |t: crate::tree::Time| Timespec {
            tv_sec: t.sec,
            tv_nsec: i64::from(t.nsec),
        };
        for (path, f) in dirs {
            let times = Timestamps {
                last_access: spec(f.atime),
                last_modification: spec(f.mtime),
            };
            for tier in [from, to] {
                // Best effort: until the next mount the catalogue has the right times.
                let fd = &self.roots[usize::from(tier)].fd;
                let _ = rustix::fs::utimensat(fd, &path[..], &times, AtFlags::SYMLINK_NOFOLLOW);
            }
        }
    }
    /// The tier of a file became full while it was written: moves it to the next tier with space. Returns true if it is worth trying again.
    pub(crate) fn spill(&self, node: NodeId, from: Tier) -> bool {
        for to in from + 1..self.roots.len() as Tier {
            loop {
                let now = self
                    .lives
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
}
