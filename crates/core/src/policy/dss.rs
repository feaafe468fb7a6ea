//! `dss-lru` and `dss-lru-s` (Differentiated Storage Services 4.4; docs/policy-rules.md section 8): a write-back LRU cache with a syncer.
//!
//! A *free list* contains unused entries, then clean ones, least recently used first: its head is reused for a miss. A *dirty list*
//! contains the other entries. If the free list has fewer than `low` entries, the syncer wakes, cleans from the head of the dirty list
//! after every access, and moves each cleaned entry to the tail of the free list, until the free list has `high` entries. With an empty
//! free list an access goes to the slow device and leaves no copy.
//!
//! `dss-lru-s` keeps a dirty and a clean list per priority: entries of the lowest priority are cleaned and reused first, in LRU order
//! within a priority (*selective eviction*; the paper names the dirty lists only, but without clean ones a clean journal block would
//! leave before a dirty movie). While the syncer is active, misses of files over 1 MiB (classes 13…18) and of unclassified
//! requests bypass (*selective allocation*). A hit under another class moves the entry to the list of that class.
//!
//! The paper's entries are blocks of 4 KB. Here an entry may be larger and contain blocks of several classes. It is in the list of the best
//! class among its *valid* blocks, so that a journal block is not evicted because the end of a film beside it was read. In a copy that was
//! allocated by a write, only the blocks that were written are valid, and not their neighbours.
//!
//! | parameter | range | default | unit |
//! |---|---|---|---|
//! | low | 1…slots | max(1, ⌊F/10⌋) | entries on the free list under which the syncer wakes |
//! | high | low…slots | max(2, ⌊F/5⌋) | entries at which it sleeps |
//! | sync_per_access | 1…1024 | 1 | entries cleaned after an access while it is awake (the paper gives no rate) |
//! | sync_batch | 1…128 | 1 | number of entries that it collects before it cleans them together; on a disk each cleaning costs two seeks |
//!
//! `class=ROW` (`dss-lru-s` only, may be repeated) changes priorities, and can pin, limit or exclude classes: see
//! `class_table.rs`. Without it the tables are those of DSS.
//!
//! Memory: 9 bytes per fast slot, and 1 more if a row pins or limits a class. `dss-lru-s` needs 1 more byte per fast slot for the classes
//! of copies, and a byte per 4 KiB for each copy with several classes. When not to use it: without classes, `dss-lru-s` is a `dss-lru` that
//! caches nothing while the syncer works.

use super::class_table::{Admit, ClassTable, FORM};
use super::classes::LOWEST;
use super::hold::{FAST, Passed, leaves, make_room};
use super::{Access, Action, MoveRules, Outcome, ParamError, Place, Policy, Uses, View, param};
use crate::collector::Lists;
use crate::volume::{Position, UnitId};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// One ring for each priority, and one for pinned entries.
const RINGS: u32 = LOWEST as u32 + 2;
const PINNED: u8 = LOWEST + 1;
/// Maximum number of entries that a search for a victim examines, so that a class at its minimum is not skipped without end.
const LOOK: u32 = 64;
const DIRTY: u8 = 1 << 7;
const CLASSES: usize = crate::stats::CLASSES;
/// The class of an unused entry.
const UNUSED: u8 = CLASSES as u8;
/// Maximum number of concurrent moves, and the number of these that may be cleans. The others are left for misses.
const AT_ONCE: u32 = 256;
const CLEANS: u32 = AT_ONCE / 2;

/// The blocks of a unit that were accessed, their class, and [`DIRTY`] if they were written.
#[derive(Clone, Debug)]
struct Part {
    unit: UnitId,
    written: u8,
    class: u8,
    blocks: Range<u32>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Dss {
    selective: bool,
    low: Option<u32>,
    high: Option<u32>,
    per_access: u32,
    batch: u32,
    /// Rings 0…12: clean entries by priority; 13: pinned clean entries; 14…27: the same for dirty entries.
    lists: Lists,
    /// By slot: priority and [`DIRTY`].
    state: Vec<u8>,
    clean: u32,
    active: bool,
    /// Number of entries that the syncer may still clean for the accesses so far. A request of many extents is followed by only one tick.
    owed: u32,
    /// Entries being cleaned.
    cleaning: u32,
    /// Copies that were proposed, for accesses to these parts.
    coming: Vec<Part>,
    table: ClassTable,
    /// Class of each slot's entry. Empty unless the table pins or limits a class.
    class: Vec<u8>,
    /// Number of entries of each class; the last number counts unused entries.
    held: [u32; CLASSES + 1],
}

impl Dss {
    /// Creates `dss-lru`, or `dss-lru-s` if `selective` is true.
    pub fn new(selective: bool) -> Dss {
        Dss {
            selective,
            low: None,
            high: None,
            per_access: 1,
            batch: 1,
            lists: Lists::new(0, 0),
            state: Vec::new(),
            clean: 0,
            active: false,
            owed: 0,
            cleaning: 0,
            coming: Vec::new(),
            table: ClassTable::default(),
            class: Vec::new(),
            held: [0; CLASSES + 1],
        }
    }
    fn watermarks(&self) -> (u32, u32) {
        let f = self.state.len() as u32;
        let low = self.low.unwrap_or((f / 10).max(1));
        (low, self.high.unwrap_or((f / 5).max(2)).max(low))
    }
    /// The priority whose list contains the entries of a class.
    fn file(&self, class: u8) -> u8 {
        if !self.selective {
            return 0;
        }
        let row = self.table.row(class);
        if row.pin { PINNED } else { row.priority }
    }
    /// The class of a copy after an access to some of its blocks: the best class among its valid blocks. `held`: the accessed blocks are
    /// valid, or will be.
    fn class_of_copy(&self, view: &mut View<'_>, part: &Part, held: bool) -> u8 {
        if !self.selective {
            return part.class;
        }
        let (e, blocks) = (part.unit, part.blocks.clone());
        view.note_class(e, blocks.clone(), part.class);
        let coming = if held { blocks } else { 0..0 };
        let best = view.best_class(e, coming, |c| self.rank(c));
        best.unwrap_or(part.class)
    }
    /// Classes of a lower rank stay longer.
    fn rank(&self, class: u8) -> u8 {
        let row = self.table.row(class);
        if row.pin { 0 } else { row.priority + 1 }
    }
    /// Records the new class of a slot's entry.
    fn note_class(&mut self, s: u32, class: u8) {
        if let Some(old) = self.class.get_mut(s as usize) {
            self.held[usize::from(*old)] -= 1;
            *old = class;
            self.held[usize::from(*old)] += 1;
        }
    }
    /// Whether the entry in slot `s` may be evicted to make room for an entry of class `newcomer`.
    fn may_leave(&self, s: u32, newcomer: u8) -> bool {
        let Some(&class) = self.class.get(s as usize) else {
            return true;
        };
        let entries = self.state.len() as u64;
        let bound = |class: u8, percent: fn(&super::class_table::Row) -> u8| {
            entries * u64::from(percent(self.table.row(class))) / 100
        };
        let held = |class: u8| u64::from(self.held[usize::from(class)]);
        class == newcomer
            || held(class) > bound(class, |r| r.min) && held(newcomer) < bound(newcomer, |r| r.max)
    }
    /// Whether a class has its maximum number of entries, so that it may not take an unused one.
    fn is_full(&self, class: u8) -> bool {
        let most = self.state.len() as u64 * u64::from(self.table.row(class).max) / 100;
        if self.class.is_empty() {
            return false;
        }
        let coming = self.coming.iter().filter(|c| c.class == class).count() as u64;
        u64::from(self.held[usize::from(class)]) + coming >= most
    }
    fn take_out(&mut self, s: u32) {
        if self.lists.contains(s) {
            let state = self.state[s as usize];
            self.clean -= u32::from(state & DIRTY == 0 && state != PINNED);
            self.lists.unlink(s);
        }
    }
    /// Appends the entry to the list of that priority and state.
    fn append(&mut self, s: u32, state: u8) {
        self.take_out(s);
        self.state[s as usize] = state;
        let p = u32::from(state & !DIRTY);
        if state & DIRTY == 0 {
            // A pinned entry is on no free list.
            self.clean += u32::from(state != PINNED);
            self.lists.push_tail(p, s);
        } else {
            self.lists.push_tail(RINGS + p, s);
        }
    }
    /// The first dirty entry that is not busy, of the lowest priority that has one; pinned entries are cleaned last.
    fn first_dirty(&self, view: &View<'_>) -> Option<UnitId> {
        let rings = (0..u32::from(PINNED)).rev().chain([u32::from(PINNED)]);
        rings
            .into_iter()
            .find_map(|p| self.first(view, RINGS + p, &[], None))
    }
    /// The first clean entry that may be evicted for an entry of class `newcomer`.
    fn victim(&self, view: &View<'_>, leaving: &[Action], newcomer: u8) -> Option<UnitId> {
        let rings = (0..u32::from(PINNED)).rev();
        let newcomer = (!self.class.is_empty()).then_some(newcomer);
        rings
            .into_iter()
            .find_map(|p| self.first(view, p, leaving, newcomer))
    }
    fn first(
        &self,
        view: &View<'_>,
        ring: u32,
        leaving: &[Action],
        newcomer: Option<u8>,
    ) -> Option<UnitId> {
        let mut at = self.lists.head(ring);
        let mut left = LOOK;
        let mut passed = Passed::default();
        while let Some(s) = at.filter(|_| !passed.is_limit()) {
            if let Some(e) = view
                .owner(view.position(s))
                .filter(|&e| !passed.over(view, e) && !leaves(leaving, e))
            {
                match newcomer {
                    Some(class) if left > 0 && !self.may_leave(s, class) => left -= 1,
                    Some(class) if !self.may_leave(s, class) => return None,
                    _ => return Some(e),
                }
            }
            at = self.lists.next(s);
        }
        None
    }
    fn sync(&mut self, view: &View<'_>, wanted: &mut Vec<Action>) {
        let (low, high) = self.watermarks();
        let mut free = view.free(FAST) + view.freeing(FAST) + self.clean + self.cleaning;
        self.active |= free < low;
        // Cleaning credit does not accumulate while the syncer sleeps.
        if !self.active {
            self.owed = 0;
        }
        if self.owed < self.batch {
            return;
        }
        while self.active && self.owed > 0 && view.moves() + (wanted.len() as u32) < CLEANS {
            let Some(extent) = self.first_dirty(view) else {
                self.owed = 0;
                return;
            };
            if let Some(s) = view.copy(extent) {
                self.take_out(s.index());
            }
            wanted.push(Action::Clean { extent });
            self.owed -= 1;
            self.cleaning += 1;
            free += 1;
            self.active = free < high;
        }
    }
}

impl Policy for Dss {
    fn name(&self) -> &'static str {
        if self.selective {
            "dss-lru-s"
        } else {
            "dss-lru"
        }
    }
    fn uses(&self) -> Uses {
        Uses::Copies
    }
    fn writes_back_on_demand(&self) -> bool {
        true
    }
    fn attach(&mut self, view: &mut View<'_>) {
        let f = view.positions(FAST).end;
        if self.selective {
            view.keep_classes();
        }
        self.lists = Lists::new(f, 2 * RINGS);
        self.state = vec![0; f as usize];
        if self.table.counts() {
            self.class = vec![UNUSED; f as usize];
            self.held[usize::from(UNUSED)] = f;
        }
        for s in 0..f {
            if let Some(e) = view.owner(view.position(s)) {
                let dirty = if view.is_dirty(e) { DIRTY } else { 0 };
                let class = view.class(e);
                self.append(s, self.file(class) | dirty);
                self.note_class(s, class);
            }
        }
    }
    fn move_rules(&self) -> MoveRules {
        // The paper's cache admits a whole request of 512 KB, which is 128 entries at once, while the syncer works. A volume
        // with fewer buffers for moves applies its own limit.
        MoveRules {
            limit: Some(AT_ONCE),
            ..MoveRules::default()
        }
    }
    fn first_touch(&mut self, view: &mut View<'_>, _extent: UnitId) -> Place {
        Place::Tier(view.slowest())
    }
    fn on_copied(&mut self, view: &mut View<'_>, extent: UnitId, position: Position) {
        let known = self.coming.iter().position(|c| c.unit == extent);
        let (written, class) = known.map_or((0, 0), |i| {
            let part = self.coming.swap_remove(i);
            (part.written, self.class_of_copy(view, &part, true))
        });
        self.append(position.index(), self.file(class) | written);
        self.note_class(position.index(), class);
    }
    fn on_uncopied(&mut self, _view: &mut View<'_>, _extent: UnitId, position: Position) {
        self.take_out(position.index());
        self.note_class(position.index(), UNUSED);
    }
    fn on_reclassified(
        &mut self,
        view: &mut View<'_>,
        extent: UnitId,
        class: u8,
        _wanted: &mut Vec<Action>,
    ) {
        // The entry moves to the list of its new class, as after a hit under another class. A class of blocks that are not in the copy
        // does not count, if the classifier told which these are.
        let class = view
            .best_class(extent, 0..0, |c| self.rank(c))
            .unwrap_or(class);
        if let Some(s) = view.copy(extent).filter(|&s| view.tier_of(s) == FAST) {
            let state = self.state[s.index() as usize];
            let file = self.file(class);
            if file != state & !DIRTY {
                self.append(s.index(), file | state & DIRTY);
            }
            self.note_class(s.index(), class);
        }
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        self.owed = self.owed.saturating_add(self.per_access);
        let extent = access.extent;
        let class = access.class % UNUSED;
        view.set_last(extent, access.now);
        let part = Part {
            unit: extent,
            written: if access.write { DIRTY } else { 0 },
            class,
            blocks: view.blocks(access),
        };
        if let Some(s) = access.copy {
            let class = self.class_of_copy(view, &part, access.write);
            self.note_class(s.index(), class);
            let dirty = part.written | (self.state[s.index() as usize] & DIRTY);
            return self.append(s.index(), self.file(class) | dirty);
        }
        let bypass = match self.table.row(class).admit {
            _ if !self.selective => false,
            Admit::Always | Admit::ByWorth => false,
            Admit::Calm => self.active,
            Admit::Never => true,
        };
        if self.coming.iter().any(|c| c.unit == extent) || bypass {
            return;
        }
        if self.is_full(class) {
            // The class may only replace an entry of its own. The slot of that entry is free at the next miss.
            if let Some(extent) = self.victim(view, &[], class) {
                wanted.push(Action::Evict { extent });
            }
            return;
        }
        let head = |leaving: &[Action]| self.victim(view, leaving, class);
        if !make_room(view, extent, wanted, head) {
            return;
        }
        self.coming.push(part);
        wanted.push(if access.write {
            Action::Allocate { extent, to: FAST }
        } else {
            Action::Fetch { extent, to: FAST }
        });
    }
    fn on_settled(
        &mut self,
        view: &mut View<'_>,
        action: Action,
        how: Outcome,
        _wanted: &mut Vec<Action>,
    ) {
        match action {
            Action::Clean { extent } => {
                self.cleaning = self.cleaning.saturating_sub(1);
                if let Some(s) = view.copy(extent) {
                    let p = self.state[s.index() as usize] & !DIRTY;
                    self.append(s.index(), p | if view.is_dirty(extent) { DIRTY } else { 0 });
                }
            }
            Action::Fetch { extent, .. } | Action::Allocate { extent, .. }
                if how != Outcome::Done =>
            {
                self.coming.retain(|c| c.unit != extent);
            }
            _ => {}
        }
    }
    fn tick(&mut self, view: &mut View<'_>, wanted: &mut Vec<Action>) {
        if self.owed > 0 {
            self.sync(view, wanted);
        }
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        let slots = "a whole number of entries, from 1";
        match key {
            "low" => self.low = Some(param::whole(value, 1.0, f64::from(u32::MAX), slots)? as u32),
            "high" => {
                self.high = Some(param::whole(value, 1.0, f64::from(u32::MAX), slots)? as u32);
            }
            "sync_per_access" => {
                let what = "a whole number of entries, 1 to 1024";
                self.per_access = param::whole(value, 1.0, 1024.0, what)? as u32;
            }
            "sync_batch" => {
                let what = "a whole number of entries, 1 to 128";
                self.batch = param::whole(value, 1.0, f64::from(CLEANS), what)? as u32;
            }
            _ => {
                let names = ["low", "high", "sync_per_access", "sync_batch"];
                return Err(ParamError::Unknown(super::nearest(key, names.into_iter())));
            }
        }
        Ok(())
    }
    fn set_name(&mut self, key: &str, name: &str) -> Result<(), ParamError> {
        if key != "class" || !self.selective {
            return Err(ParamError::Unknown(String::from(
                "low, high, sync_per_access, sync_batch or, of dss-lru-s, class",
            )));
        }
        // The entries are sorted by the table, so the table of a policy in use cannot change; a new policy is built instead.
        if !self.state.is_empty() {
            return Err(ParamError::Range(FORM));
        }
        self.table.set(name)
    }
    fn names(&self) -> Vec<(&'static str, String)> {
        let rows = self.table.texts().iter();
        rows.map(|t| ("class", t.clone())).collect()
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        let (low, high) = self.watermarks();
        vec![
            ("low", f64::from(low)),
            ("high", f64::from(high)),
            ("sync_per_access", f64::from(self.per_access)),
            ("sync_batch", f64::from(self.batch)),
        ]
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        let idle = view.last_words(extent);
        let (low, high) = self.watermarks();
        let free = view.free(FAST) + self.clean;
        let syncer = if self.active { "awake" } else { "asleep" };
        let what = match view.copy(extent) {
            None => String::from(view.either(
                "no copy; a miss takes the head of the free list",
                "not on the fast tier; a miss takes the head of the free list",
            )),
            Some(s) => {
                let p = self.state[s.index() as usize];
                let dirty = view.either("dirty", "written");
                let list = if p & DIRTY == 0 { "free" } else { dirty };
                let what = view.either("a copy on", "on the fast tier, on");
                format!("{what} the {list} list, priority {}", p & !DIRTY)
            }
        };
        format!(
            "{what}; {idle}; free list {free} entries, syncer {syncer} (wakes under {low}, sleeps at {high})"
        )
    }
    fn bytes(&self) -> usize {
        self.lists.bytes() + self.state.len() + self.class.len()
    }
}
