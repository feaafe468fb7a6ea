//! Classes of data: the administrator's rows, and the measured worth of each class (`reuse.rs`).
//!
//! *Rows* (`class=1-7+pin`, the form of `dss-lru-s`) hold whatever worth says: `pin`, `min` and `max` restrict which copies may be evicted,
//! and `admit` decides on misses. Without a row, worth decides. `priority` only counts with `w_class`.
//!
//! *Worth*: what up to two accesses are worth is multiplied by the factor of the class. An extent that was used more often has shown its
//! own worth, and the factor does not change what exceeds two accesses.
//!
//! All of this begins with the first access that has a class. Until then nothing is allocated, and no decision differs.

use super::reuse::Reuse;
use super::without::Part;
use super::{Benefit, FAST, Order};
use crate::policy::class_table::{Admit, ClassTable, FORM, Row};
use crate::policy::{Access, ParamError, View};
use crate::volume::{Position, UnitId};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Range;

const CLASSES: usize = crate::stats::CLASSES;
/// The mark of a slot without a copy.
const NO_COPY: u8 = CLASSES as u8;

/// What a row says about a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// It is copied if it is worth it.
    ByWorth,
    /// It is copied if there is a slot for it.
    Copied,
    /// It is not copied.
    Refused,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    table: ClassTable,
    /// Whether rows pin or limit classes.
    limits: bool,
    /// For each fast slot: the class of its copy, or [`NO_COPY`]. Empty until a class is known, if no rows limit classes.
    by_slot: Vec<u8>,
    /// Number of copies of each class.
    held: [u32; CLASSES + 1],
    /// Copies that were proposed, for accesses to these blocks. Only used if rows limit classes.
    coming: Vec<Proposed>,
    reuse: Reuse,
}

/// The blocks of a unit that were accessed, and their class.
#[derive(Clone, Debug)]
struct Proposed {
    unit: UnitId,
    blocks: Range<u32>,
    class: u8,
}

impl Default for Classes {
    fn default() -> Classes {
        Classes {
            table: ClassTable::by_worth(),
            limits: false,
            by_slot: Vec::new(),
            held: [0; CLASSES + 1],
            coming: Vec::new(),
            reuse: Reuse::default(),
        }
    }
}

impl Classes {
    pub fn row(&self, class: u8) -> &Row {
        self.table.row(class)
    }
    /// Adds a row. The policy must not be attached yet.
    pub fn set(&mut self, row: &str) -> Result<(), ParamError> {
        let done = self.table.set(row);
        self.limits = self.table.counts();
        done
    }
    /// The rows in the form in which they were given.
    pub fn names(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.table.texts().iter().map(|t| ("class", t.clone()))
    }
    /// Whether a class is known, or limited.
    #[inline]
    pub fn is_active(&self) -> bool {
        !self.by_slot.is_empty()
    }
    /// The class of the copy in a fast slot; 0 if nothing is known.
    #[inline]
    pub fn in_slot(&self, slot: Position) -> u8 {
        let class = self.by_slot.get(slot.index() as usize);
        class.map_or(0, |c| *c % NO_COPY)
    }
    /// Records the class of the copy in a fast slot.
    fn note(&mut self, slot: Position, class: u8) {
        if let Some(old) = self.by_slot.get_mut(slot.index() as usize) {
            self.held[usize::from(*old)] -= 1;
            *old = class;
            self.held[usize::from(class)] += 1;
        }
    }
    /// Classes of a lower rank stay longer.
    fn rank(&self, class: u8) -> u8 {
        let row = self.table.row(class);
        if row.pin { 0 } else { row.priority + 1 }
    }
    /// A share of the fast slots.
    fn share(&self, percent: u8) -> u32 {
        (self.by_slot.len() as u64 * u64::from(percent) / 100) as u32
    }
    /// Whether a class may grow to its minimum: it holds less, and another one has copies that may leave. Then its new copies do not take
    /// the places of its own, or it would reach the minimum by chance only.
    fn grows(&self, class: u8) -> bool {
        let min = |c: u8| self.share(self.table.row(c).min);
        let held = |c: u8| self.held[usize::from(c)];
        let gives = |c: u8| c != class && !self.table.row(c).pin && held(c) > min(c);
        held(class) < min(class) && (0..CLASSES as u8).any(gives)
    }
    /// Whether a copy of `class` may be evicted for a new copy of class `newcomer`. `None`: the slot is needed for something else.
    #[inline]
    pub fn may_leave(&self, class: u8, newcomer: Option<u8>) -> bool {
        !self.limits || self.rows_let_leave(class, newcomer)
    }
    fn rows_let_leave(&self, class: u8, newcomer: Option<u8>) -> bool {
        let row = self.table.row(class);
        if row.pin || newcomer == Some(class) {
            return !row.pin && !self.grows(class);
        }
        let is_full = newcomer.is_some_and(|n| self.is_full(n, 0));
        self.held[usize::from(class)] > self.share(row.min) && !is_full
    }
    /// Whether a class has its maximum number of copies, if `coming` copies of it are in progress.
    fn is_full(&self, class: u8, coming: u32) -> bool {
        let most = self.table.row(class).max;
        self.limits
            && most < 100
            && self.held[usize::from(class) % CLASSES] + coming >= self.share(most)
    }
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        let coming = self.coming.capacity() * size_of::<Proposed>();
        self.by_slot.capacity() + coming + self.reuse.bytes()
    }
}

impl Benefit {
    /// The volume is known. Existing copies have the classes that are registered for their extents.
    pub(super) fn attach_classes(&mut self, view: &mut View<'_>) {
        if self.classes.limits {
            view.keep_classes();
        }
        let is_known = view.residents(FAST).any(|(_, e)| view.class(e) != 0);
        if self.classes.limits || is_known {
            self.activate_classes(view);
        }
    }
    /// From now on the classes of copies are known. Existing copies have the classes that are registered for their extents.
    fn activate_classes(&mut self, view: &mut View<'_>) {
        let slots = self.fast_slots;
        self.classes.by_slot = vec![NO_COPY; slots as usize];
        self.classes.held[usize::from(NO_COPY)] = slots;
        let copied = |(s, e): &(Position, UnitId)| view.copy(*e) == Some(*s);
        let residents: Vec<_> = view.residents(FAST).filter(copied).collect();
        for (slot, e) in residents {
            let class = view.class(e) % NO_COPY;
            Order::set_class(view, e, class);
            self.classes.note(slot, class);
        }
    }
    /// Notes the class of an access, which continues a stream if `goes_on`, and perhaps begins a trial.
    pub(super) fn note_class(&mut self, view: &mut View<'_>, access: &Access, goes_on: bool) {
        let (e, class) = (access.extent, access.class % NO_COPY);
        if !self.classes.is_active() {
            if class == 0 {
                return;
            }
            self.activate_classes(view);
        }
        Order::set_class(view, e, class);
        let copied = access.copy.filter(|c| view.tier_of(*c) == FAST);
        if let Some(slot) = copied {
            let blocks = view.blocks(access);
            let coming = if access.write { blocks.clone() } else { 0..0 };
            let class = self.class_of_copy(view, e, (blocks, class), coming);
            self.classes.note(slot, class);
        }
        let clock = self.scores.clock();
        if self.classes.reuse.is_due(clock) && self.learns_classes() {
            let value = Benefit::share_saved(view, access, goes_on);
            let (window, scores) = (self.fast_slots, &self.scores);
            let entry = |e| scores.entry(e, view.copy(e));
            let last_use = |e| Some(entry(e)).filter(|n| n.0 > 0).map(|n| n.1);
            self.classes
                .reuse
                .begin((e, class), clock, window, value, last_use);
        }
    }
    /// The class of a copy after its `blocks` were accessed under `class`: if rows limit classes, the best class of its valid blocks,
    /// otherwise that of the access. The blocks `coming` are being written.
    fn class_of_copy(
        &self,
        view: &mut View<'_>,
        e: UnitId,
        (blocks, class): (Range<u32>, u8),
        coming: Range<u32>,
    ) -> u8 {
        if !self.classes.limits {
            return class;
        }
        view.note_class(e, blocks, class);
        let best = view.best_class(e, coming, |c| self.classes.rank(c));
        best.unwrap_or(class) % NO_COPY
    }
    /// A copy was proposed for an access.
    pub(super) fn expect_class(&mut self, view: &View<'_>, access: &Access) {
        if self.classes.limits {
            self.classes.coming.push(Proposed {
                unit: access.extent,
                blocks: view.blocks(access),
                class: access.class % NO_COPY,
            });
        }
    }
    /// A proposal for this extent ended.
    pub(super) fn settle_class(&mut self, e: UnitId) {
        self.classes.coming.retain(|p| p.unit != e);
    }
    /// A copy was made. It has the class of the access for which it was made.
    pub(super) fn note_copied_class(&mut self, view: &mut View<'_>, e: UnitId, slot: Position) {
        if !self.classes.is_active() {
            return;
        }
        let mut class = Order::class(view, e);
        let known = self.classes.coming.iter().position(|p| p.unit == e);
        if let Some(i) = known {
            let p = self.classes.coming.swap_remove(i);
            class = self.class_of_copy(view, e, (p.blocks.clone(), p.class), p.blocks);
        }
        self.classes.note(slot, class);
    }
    /// A copy was given up.
    pub(super) fn note_uncopied_class(&mut self, slot: Position) {
        self.classes.note(slot, NO_COPY);
    }
    /// The class of an extent, or of blocks of its copy, changed without an access. This takes effect with the next decision.
    pub(super) fn note_new_class(&mut self, view: &mut View<'_>, e: UnitId, class: u8) {
        let (class, copy) = (class % NO_COPY, view.copy(e));
        if !self.classes.is_active() {
            if class == 0 || copy.is_none() {
                return;
            }
            self.activate_classes(view);
        }
        Order::set_class(view, e, class);
        if let Some(slot) = copy {
            let best = view.best_class(e, 0..0, |c| self.classes.rank(c));
            self.classes.note(slot, best.unwrap_or(class) % NO_COPY);
        }
    }
    /// Whether the measured worth of classes counts. With weights that give the order of another policy it does not.
    fn learns_classes(&self) -> bool {
        self.has(Part::Classes) && self.settings.order == Order::default()
    }
    /// The time that a copy of an extent saves if its access is repeated, nanoseconds: the extent's share of the time that the fast device
    /// saves on the whole request.
    fn share_saved(view: &View<'_>, access: &Access, goes_on: bool) -> u64 {
        let (fast, slow) = (view.cost(FAST), view.cost(view.slowest()));
        let bytes = access.request_bytes;
        let saved = slow.time(false, goes_on, bytes).0;
        let saved = saved.saturating_sub(fast.time(false, goes_on, bytes).0);
        saved / Order::units_of(view, access)
    }
    /// The worth of one access, to which the factor of a class applies; 0: factors do not count.
    #[inline]
    pub(super) fn one_access(&self, view: &View<'_>) -> u64 {
        if self.classes.is_active() && self.learns_classes() {
            self.value_saved(view)
        } else {
            0
        }
    }
    /// The worth of an extent from its score, by the measured worth of its class and by the weights. `one`: [`Benefit::one_access`].
    #[inline]
    pub(super) fn worth_in_order(
        &self,
        view: &View<'_>,
        score: u64,
        e: UnitId,
        (class, one): (u8, u64),
    ) -> u64 {
        let worth = if one > 0 {
            self.classes.reuse.weigh(score, class, one)
        } else {
            score
        };
        let priority = |class| self.classes.row(class).priority;
        self.settings.order.worth(view, worth, e, priority)
    }
    /// The class of a candidate in `slot`, which may be a home.
    #[inline]
    pub(super) fn class_at(&self, view: &View<'_>, e: UnitId, slot: Position, homes: bool) -> u8 {
        if homes && self.classes.is_active() {
            self.class_of(view, e)
        } else {
            self.classes.in_slot(slot)
        }
    }
    /// Adds a row for classes. The copies are counted by the table, so the table of a policy in use cannot change; a new policy is built
    /// instead.
    pub(super) fn set_class_row(&mut self, row: &str) -> Result<(), ParamError> {
        if self.fast_slots > 0 {
            return Err(ParamError::Range(FORM));
        }
        self.classes.set(row)
    }
    /// The class of an extent: that of its copy, otherwise that of its last access.
    pub(super) fn class_of(&self, view: &View<'_>, e: UnitId) -> u8 {
        match view.copy(e) {
            Some(slot) => self.classes.in_slot(slot),
            None => Order::class(view, e),
        }
    }
    /// What the row of its class says about a miss.
    pub(super) fn class_rule(&self, class: u8) -> Rule {
        let row = self.classes.row(class);
        match row.admit {
            Admit::ByWorth if row.pin => Rule::Copied,
            Admit::Always => Rule::Copied,
            Admit::Calm if self.is_mostly_dirty() => Rule::Refused,
            Admit::ByWorth | Admit::Calm => Rule::ByWorth,
            Admit::Never => Rule::Refused,
        }
    }
    /// Whether a new copy of this class needs the slot of another: flash is full, or the class has its maximum.
    pub(super) fn needs_victim(&self, view: &View<'_>, class: u8) -> bool {
        let most = self.classes.row(class).max;
        if view.free(FAST) == 0 || most == 100 {
            return view.free(FAST) == 0;
        }
        let pending = self.pending_copies.iter();
        let coming = pending.filter(|e| Order::class(view, **e) == class % NO_COPY);
        self.classes.is_full(class, coming.count() as u32)
    }
    /// Whether the rows keep the copy of `e` on flash.
    pub(super) fn is_pinned(&self, view: &View<'_>, e: UnitId) -> bool {
        self.classes.limits && self.classes.row(self.class_of(view, e)).pin
    }
    /// The part of the class in the worth of an extent, in words; empty if no class is known.
    pub(super) fn explain_class(&self, view: &View<'_>, e: UnitId) -> String {
        if !self.classes.is_active() {
            return String::new();
        }
        let class = self.class_of(view, e);
        let row = self.classes.row(class);
        let mut text = match self.classes.reuse.compare(class) {
            Some((factor, mean)) if self.learns_classes() => format!(
                "; its class {class} counts {factor:.2} times: a copy of that class saves {:.3} ms, of any class {:.3} ms",
                factor * mean as f64 / 1e6,
                mean as f64 / 1e6
            ),
            _ => format!("; its class is {class}"),
        };
        text.push_str(match self.class_rule(class) {
            Rule::ByWorth => "",
            Rule::Copied => ", its misses are always copied",
            Rule::Refused => ", its misses are not copied",
        });
        if row.pin {
            text.push_str(", its copies are pinned");
        }
        if row.min > 0 || row.max < 100 {
            let held = self.classes.held[usize::from(class)];
            let (all, min, max) = (self.fast_slots, row.min, row.max);
            // To write to a text does not fail.
            let _ = write!(
                text,
                ", it has {held} of {all} fast slots ({min} to {max} per cent)"
            );
        }
        text
    }
}
