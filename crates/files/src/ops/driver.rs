//! One move from its first step to its last: the calls on the real trees, and the locks and descriptors that are held meanwhile.

use crate::catalogue::NodeId;
use crate::disk::{Disk, facts_of};
use crate::live::{Backing, Freeze, Live, State};
use crate::mover::{Answer, Call, Move, Outcome, Step, Why, carry_out};
use crate::names::{Claim, Key};
use crate::store::Store;
use crate::sync::lock;
use crate::tiers::Kind;
use crate::tree::{At, Facts, TEMPS, Tier, join};
use rustix::fd::OwnedFd;
use rustix::fs::Timestamps;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum time that a move waits for changes in its directories, to restore the times of these.
const TIMES_WAIT: Duration = Duration::from_secs(1);

/// What a move or a copy of a file holds while nobody may change the file.
pub(super) struct Stopped<'a> {
    store: &'a Store,
    live: &'a Live,
    /// The copy, before it gets the file's names if it is moved.
    temp: At,
    /// Number of changes of the file when its copy was begun.
    changes: u64,
    /// The claim of the file and its names; held from the freeze to the end.
    names: Option<Claim<'a>>,
    /// The lock on the file's descriptors, which stops readers and writers; held from the freeze to the swap.
    pub(super) state: Option<Freeze<'a>>,
    /// The descriptor of the copy, from the freeze to the swap.
    pub(super) copy: Option<OwnedFd>,
}

impl<'a> Stopped<'a> {
    pub(super) fn new(store: &'a Store, live: &'a Live, temp: At) -> Stopped<'a> {
        Stopped {
            store,
            live,
            temp,
            changes: 0,
            names: None,
            state: None,
            copy: None,
        }
    }
    /// Before a call: records the number of changes of the file when its copy is created.
    pub(super) fn note(&mut self, call: &Call) {
        if matches!(call, Call::Create(..)) {
            self.changes = self.live.changes();
        }
    }
    /// After a call: an error of a device counts for its tier.
    pub(super) fn count(&self, disk: &Disk, call: &Call, answer: &Result<Answer, Errno>) {
        if let (Err(e), Some(tier)) = (answer, disk.blamed(call)) {
            let (tiers, node) = (&self.store.tiers, self.live.node);
            self.store.names.device_error_of(tiers, tier, node, *e);
        }
    }
    /// Stops changes of names and of the file.
    pub(super) fn freeze(&mut self, disk: &Disk) -> Result<Answer, Errno> {
        let (store, node) = (self.store, self.live.node);
        self.names = Some(store.names.claim(|cat, all| all.all_names(cat, node))?);
        self.state = Some(self.live.freeze());
        if self.live.had_passthrough.load(Ordering::SeqCst) {
            return Ok(Answer::Forbidden(Why::Passthrough));
        }
        let paths = store.cat().paths(node);
        if paths.is_empty() {
            return Ok(Answer::Forbidden(Why::Gone));
        }
        self.copy = Some(disk.target(&self.temp)?);
        let written = self.live.changes() != self.changes;
        Ok(Answer::Frozen(paths, written))
    }
    /// Lets everybody go on.
    pub(super) fn thaw(&mut self) {
        (self.state, self.names, self.copy) = (None, None, None);
    }
}

/// Carries out the steps of one move.
pub(super) struct Driver<'a> {
    store: &'a Store,
    live: &'a Live,
    from: Tier,
    to: Tier,
    /// The path that the progress shows.
    shown: String,
    stopped: Stopped<'a>,
}

impl<'a> Driver<'a> {
    /// A move of the file in use from one tier to another. `path` is one of its names; the copy is called by `number`.
    pub fn new(
        store: &'a Store,
        live: &'a Live,
        (from, to): (Tier, Tier),
        path: &[u8],
        number: u64,
    ) -> Driver<'a> {
        Driver {
            store,
            live,
            from,
            to,
            shown: String::from_utf8_lossy(path).into_owned(),
            stopped: Stopped::new(
                store,
                live,
                At::new(to, join(TEMPS, format!("m{number}").as_bytes())),
            ),
        }
    }

    /// Carries out all steps.
    pub fn run(mut self, mut m: Move) -> Outcome {
        let mut disk = Disk::new(self.store.roots.clone());
        disk.copy_from(self.live.hold().fd().ok(), m.id());
        let lasting = Arc::clone(self.store.names.lasting());
        disk.number_with(Box::new(move |fast, tier, fd, id, number| {
            lasting.give(fast, tier, fd, id, number)
        }));
        let mut step = m.start();
        loop {
            let slower = self.from.max(self.to);
            let wait = (self.store).waits_for(slower, self.live.node, Kind::Move);
            let answer = match step {
                Step::Call(call) => {
                    self.note(&call, &m);
                    if matches!(call, Call::Create(..))
                        && let Err(e) = self.settle()
                    {
                        step = m.next(Err(e));
                        continue;
                    }
                    let answer = if let Call::MakeParents(at) = &call {
                        self.make_parents(&mut disk, at)
                    } else {
                        carry_out(&mut disk, &call)
                    };
                    if let (Call::UnlinkIf(at, _), Ok(Answer::Removed(false))) = (&call, &answer) {
                        self.store.say(&format!(
                            "{}: made underneath on {} while the file of that name moved: it was left there",
                            String::from_utf8_lossy(&at.path),
                            self.store.tier_name(at.tier)
                        ));
                    }
                    self.stopped.count(&disk, &call, &answer);
                    answer
                }
                Step::Freeze => self.stopped.freeze(&disk),
                Step::Thaw => {
                    self.stopped.thaw();
                    Ok(Answer::Done)
                }
                Step::Swap(_) => {
                    self.swap();
                    Ok(Answer::Done)
                }
                Step::End(outcome) => {
                    self.end(outcome);
                    return outcome;
                }
            };
            drop(wait);
            step = m.next(answer);
        }
    }

    /// What was written to the file is on its device before it is copied. If it is not, the file stays: what is read there now may be older
    /// than what was written. The kernel says so once, to the descriptor that the move would close, so it is kept for the users' syncs.
    fn settle(&self) -> Result<(), Errno> {
        let held = self.live.hold();
        let done = (self.live.syncs).carry_out(|| rustix::fs::fdatasync(held.fd()?));
        let (tiers, node) = (&self.store.tiers, self.live.node);
        done.map_err(|e| self.store.names.device_error_of(tiers, self.from, node, e))
    }

    /// Creates the directories above a path. Their attributes must not change meanwhile.
    fn make_parents(&self, disk: &mut Disk, at: &At) -> Result<Answer, Errno> {
        let dir = self.store.cat().find(&at.parent().path);
        let _claim = dir.map(|dir| self.store.names.claim_missing(dir, at.tier));
        let made = carry_out(disk, &Call::MakeParents(at.clone()));
        (self.store.names).dirs_made(&self.store.tiers, &at.path, at.tier);
        made
    }

    /// Before a call: records the number of changes of the file when its copy is created, and shows the progress of the copying.
    fn note(&mut self, call: &Call, m: &Move) {
        self.stopped.note(call);
        if matches!(call, Call::Copy(..)) {
            let now = (self.shown.clone(), m.copied(), m.bytes());
            *lock(&self.store.placement.moving.progress) = Some(now);
        }
    }

    /// From here on, the copy is the file, and writers continue.
    fn swap(&mut self) {
        let mut state = self.stopped.state.take();
        let Some((state, fd)) = state.as_mut().zip(self.stopped.copy.take()) else {
            return;
        };
        let home = state.state.home.as_ref();
        let before = home.and_then(|b| self.live.facts_of(b).ok());
        self.enter(before, &fd);
        let ranged = facts_of(&fd).is_ok_and(|now| {
            let ranges = &self.store.copies.ranges;
            // What was read since the move began is of the other file.
            ranges.forget(self.live.node);
            ranges.opened(&self.store.tiers, self.live.node, self.to, &now)
        });
        *state.state = State {
            home: Some(Backing {
                tier: self.to,
                fd,
                writable: true,
            }),
            copy: None,
            ranged,
        };
    }

    /// Enters the new location into the catalogue and into the bytes of the tiers. `before` are the attributes at the old location.
    fn enter(&self, before: Option<Facts>, fd: &OwnedFd) {
        let node = self.live.node;
        let facts = facts_of(fd);
        if let Ok(f) = facts {
            let mut cat = self.store.cat_mut();
            cat.replace(node, self.to, f.id);
            // Users must not see a move as a change of the file.
            let ctime = before.map_or(f.ctime, |b| b.ctime);
            self.live.show_ctime(f.ctime, ctime);
            cat.set_facts(node, &Facts { ctime, ..f });
        }
        let blocks = facts.map_or(0, |f| f.blocks);
        self.store.count_bytes(self.to, 0, blocks);
        self.store.count_bytes(self.from, blocks, 0);
    }

    /// Releases the locks. After a move that was done, nobody sees that it changed directories, and the kernel is told.
    fn end(&mut self, outcome: Outcome) {
        let mut moved = None;
        if outcome == Outcome::Done {
            let id = self.store.cat().get(self.live.node).map(|n| n.facts.id);
            moved = id.zip(self.live.update_shown_ctime());
            let disks = [self.from, self.to];
            self.store.restore_dir_times(self.live.node, disks);
        }
        self.stopped.thaw();
        if let Some((id, (now, before))) = moved {
            // A file that has changed meanwhile has another change time, for which this says nothing.
            let fast = &self.store.roots[0];
            (self.store.names)
                .lasting()
                .moved(fast, self.to, id, now, before);
        }
        if outcome == Outcome::Done {
            let shown = self.store.names.shown_number(self.live.node);
            self.store.open.tell_kernel(shown);
            self.store.room_changed(self.from);
            self.store.room_changed(self.to);
        }
    }
}

impl Store {
    /// Restores the times of a file's directories on the disks of its move, which a move must not change.
    pub(super) fn restore_dir_times(&self, node: NodeId, disks: [Tier; 2]) {
        // They are claimed so that no user changes these times in between: that change would be lost. This is best effort, like the rest:
        // until the next mount the catalogue has the right times.
        let claim = self.names.claim_more(TIMES_WAIT, |cat, all| {
            for dir in cat.parents(node) {
                all.alone(Key::Times(dir));
                all.alone(Key::Node(dir));
            }
        });
        if claim.is_none() {
            return;
        }
        let dirs: Vec<(Vec<u8>, Facts)> = {
            let cat = self.cat();
            let ids = cat.parents(node).into_iter();
            ids.filter_map(|d| Some((cat.path(d)?, cat.get(d)?.facts)))
                .collect()
        };
        for (path, f) in dirs {
            let times = Timestamps {
                last_access: f.atime.into(),
                last_modification: f.mtime.into(),
            };
            for tier in disks {
                let dir = self.root(tier).directory(&path);
                let _ = dir.and_then(|fd| rustix::fs::futimens(fd, &times));
            }
        }
    }
}
