//! What is in the slots of ranges, and which range should be.
//!
//! The engine runs a caching policy over addresses of ranges. Each file has addresses in a row, which are another file's once it is forgotten.
//! The engine has one slot for each slot here, with the same number. What is in a slot may be older than the engine's last decision; it
//! is valid until the slot gets another range.

use crate::catalogue::NodeId;
use crate::mutants::{Mutant, broken};
use crate::policy_state::{class_of_size, policy};
use crate::settings::DEFAULT_POLICY;
use crate::tree::{Facts, Version};
use isotherm_core::engine;
use isotherm_core::geometry::{Kind, Member, Stash};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{Policy, Uses};
use isotherm_core::volume::{Geometry, PAST_FLOOR, Space};
use isotherm_core::{ExtentId, Nanos, TierId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Instant;

/// A range has 2^16 bytes, 64 KiB, as an extent of a volume has by default.
pub(super) const SHIFT: u32 = 16;
/// Maximum number of slots: 256 GiB.
const SLOTS_MAX: u64 = 1 << 22;
/// Addresses of ranges: 64 TiB of large files at the same time. What the engine keeps depends on the number of slots only.
const ADDRESSES: u32 = 1 << 30;
/// Minimum number of addresses of a file.
const ADDRESSES_MIN: u32 = 1 << 8;
/// How many times as many ranges without a slot as there are slots the policy remembers at least, up to [`PAST_FLOOR`].
const REMEMBERED: u32 = 8;

/// What a file has here.
#[derive(Debug)]
struct File {
    /// Its first address, and the number of its addresses.
    first: u32,
    addresses: u32,
    /// The version of the file at home, when it was opened or last changed by this program.
    home: Version,
    /// The slots of its ranges.
    slots: BTreeMap<u32, u32>,
    /// Number of changes that have not ended.
    changing: u32,
    /// A number that no other state of any file has; a change begins and ends with a new one.
    stamp: u64,
    hits: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The range that it has.
    of: Option<(NodeId, u32)>,
    /// Number of calls on it that have not ended.
    pins: u32,
    /// Whether it takes space.
    space: bool,
}

/// A fill of a slot that has begun.
#[derive(Debug)]
pub(super) struct Fill {
    pub(super) slot: u32,
    range: (NodeId, u32),
    stamp: u64,
}

/// What a read finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The range is in this slot, which is pinned.
    There(u32),
    /// The range should be in this slot.
    Wanted(u32),
    /// It is read at home.
    No,
}

pub(super) struct Table {
    engine: NullEngine<Box<dyn Policy>>,
    start: Instant,
    files: HashMap<NodeId, File>,
    /// Those that were used, which are the lowest.
    slots: Vec<Slot>,
    /// Maximum number of slots.
    most: u32,
    /// Slots that may have space and no range.
    unused: Vec<u32>,
    /// Addresses of files that were forgotten: the first one, by their number.
    free: BTreeMap<u32, Vec<u32>>,
    /// The first address that no file had yet.
    next: u32,
    stamp: u64,
    /// The slot at which the next search for one to give up begins.
    hand: u32,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

/// The policy of ranges: that of the mount, or the default one if that keeps no copies, or needs memory for each address.
fn caching(text: &str, geo: &Geometry) -> Option<Box<dyn Policy>> {
    let mut built = [text, DEFAULT_POLICY].into_iter().map(policy);
    built.find_map(|built| {
        let policy = built.ok()?;
        let fits = policy.uses() == Uses::Copies && engine::fits(geo, true, &*policy).is_ok();
        fits.then_some(policy)
    })
}

fn is_in(range: u64) -> u32 {
    u32::try_from(range).unwrap_or(u32::MAX)
}

impl Table {
    /// A table of so many slots; `None` if that is none.
    pub(super) fn new(slots: u64, policy: &str) -> Option<Table> {
        let slots = slots.min(SLOTS_MAX) as u32;
        let member = |tier, slots| Member {
            tier: TierId(tier),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: Stash::default(),
        };
        let members = vec![member(0, slots), member(1, ADDRESSES)];
        let geo = Geometry::new(SHIFT, 12, ADDRESSES, members).ok()?;
        let geo = (slots > 0).then_some(geo)?.of_kind(Kind::Cache).ok()?;
        let policy = caching(policy, &geo)?;
        let space = Space::with_past(geo, PAST_FLOOR.min(slots * REMEMBERED));
        Some(Table {
            engine: NullEngine::over(space, policy),
            start: Instant::now(),
            files: HashMap::new(),
            slots: Vec::new(),
            most: slots,
            unused: Vec::new(),
            free: BTreeMap::new(),
            next: 0,
            stamp: 0,
            hand: 0,
        })
    }
    fn stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }
    /// Addresses for so many ranges: the first one, and their number.
    fn addresses(&mut self, ranges: u64) -> Option<(u32, u32)> {
        let count = u32::try_from(ranges.next_power_of_two()).ok()?;
        let count = count.max(ADDRESSES_MIN);
        if let Some(first) = self.free.get_mut(&count).and_then(Vec::pop) {
            return Some((first, count));
        }
        let end = self.next.checked_add(count).filter(|e| *e <= ADDRESSES)?;
        let first = self.next;
        self.next = end;
        Some((first, count))
    }
    /// See [`super::Ranges::opened`].
    pub(super) fn opened(&mut self, node: NodeId, now: &Facts) -> bool {
        let ranges = now.size >> SHIFT;
        let known = self.files.get(&node);
        let same = known.is_some_and(|f| {
            let unchanged = f.home == now.version() || broken(Mutant::TrustChangedHome);
            unchanged && u64::from(f.addresses) >= ranges
        });
        if same {
            return true;
        }
        self.forget(node);
        let Some((first, addresses)) = self.addresses(ranges) else {
            return false;
        };
        let file = File {
            first,
            addresses,
            home: now.version(),
            slots: BTreeMap::new(),
            changing: 0,
            stamp: self.stamp(),
            hits: 0,
        };
        self.files.insert(node, file);
        true
    }
    /// Tells the policy of an access to bytes of one range of a file. Returns the slot that the range should have.
    fn touch(&mut self, node: NodeId, at: u64, len: u32, write: bool) -> Option<u32> {
        let file = self.files.get(&node)?;
        let index = is_in(at >> SHIFT);
        // Only whole ranges are kept.
        let whole = (at >> SHIFT) < file.home.size >> SHIFT;
        let unit = (index < file.addresses && whole).then(|| ExtentId(file.first + index))?;
        let class = class_of_size(file.home.size);
        let now = Nanos(self.start.elapsed().as_nanos() as u64);
        let place = (u64::from(unit.0) << SHIFT) + (at & ((1 << SHIFT) - 1));
        self.engine.access(now, unit, write, class, (place, len));
        let slot = self.engine.copy(unit)?.0;
        (slot < self.most).then_some(slot)
    }
    /// Where bytes of one range of a file are read.
    pub(super) fn find(&mut self, node: NodeId, at: u64, len: u32) -> Found {
        let wanted = self.touch(node, at, len, false);
        let file = self.files.get_mut(&node);
        let there = file.and_then(|f| {
            let slot = f.slots.get(&is_in(at >> SHIFT)).copied();
            f.hits += u64::from(slot.is_some());
            slot
        });
        match (there, wanted) {
            (Some(slot), _) => {
                self.slots[slot as usize].pins += 1;
                Found::There(slot)
            }
            (None, Some(slot)) => Found::Wanted(slot),
            (None, None) => Found::No,
        }
    }
    /// The slot of a range that is written, which is pinned.
    pub(super) fn find_to_write(&mut self, node: NodeId, at: u64, len: u32) -> Option<u32> {
        self.touch(node, at, len, true);
        let slot = *self.files.get(&node)?.slots.get(&is_in(at >> SHIFT))?;
        self.slots[slot as usize].pins += 1;
        Some(slot)
    }
    /// A call on a slot has ended. If it was `bad`, the range is dropped.
    pub(super) fn unpin(&mut self, slot: u32, bad: bool) {
        self.slots[slot as usize].pins -= 1;
        if bad {
            self.clear(slot);
        }
    }
    /// Takes the range out of a slot.
    fn clear(&mut self, slot: u32) {
        if let Some((node, index)) = self.slots[slot as usize].of.take()
            && let Some(file) = self.files.get_mut(&node)
        {
            file.slots.remove(&index);
        }
        self.unused.push(slot);
    }
    /// Prepares a slot for a range. Returns also whether the slot takes space from now on that it did not take.
    pub(super) fn begin_fill(
        &mut self,
        (node, index): (NodeId, u64),
        slot: u32,
        may_grow: bool,
    ) -> Option<(Fill, bool)> {
        let file = self.files.get(&node).filter(|f| f.changing == 0)?;
        let stamp = file.stamp;
        let range = (node, is_in(index));
        if self.slots.len() <= slot as usize {
            self.slots.resize(slot as usize + 1, Slot::default());
        }
        let at = self.slots[slot as usize];
        let grows = !at.space;
        // Another reader has filled it, or it is in use.
        if at.of == Some(range) || at.pins > 0 || (grows && !may_grow) {
            return None;
        }
        self.clear(slot);
        let at = &mut self.slots[slot as usize];
        (at.pins, at.space) = (1, true);
        Some((Fill { slot, range, stamp }, grows))
    }
    /// A fill has ended. If it was `good` and nothing has happened to the file since it began, the range is there. Returns whether it is.
    pub(super) fn end_fill(&mut self, fill: &Fill, good: bool) -> bool {
        let (slot, (node, index)) = (fill.slot, fill.range);
        self.unpin(slot, false);
        let file = self.files.get(&node);
        let same = file.is_some_and(|f| f.stamp == fill.stamp) || broken(Mutant::TrustOldFill);
        if !good || !same {
            self.unused.push(slot);
            return false;
        }
        let before = self
            .files
            .get_mut(&node)
            .and_then(|f| f.slots.insert(index, slot));
        if let Some(other) = before {
            // Another fill of the same range.
            self.slots[other as usize].of = None;
            self.unused.push(other);
        }
        self.slots[slot as usize].of = Some((node, index));
        true
    }
    /// See [`super::Ranges::begin_change`].
    pub(super) fn begin_change(&mut self, node: NodeId) -> bool {
        let stamp = self.stamp();
        let file = self.files.get_mut(&node);
        file.is_some_and(|f| {
            f.changing += 1;
            f.stamp = stamp;
            true
        })
    }
    /// A change of a file has ended, and it has these attributes now.
    pub(super) fn end_change(&mut self, node: NodeId, now: Option<&Facts>) {
        let stamp = self.stamp();
        let Some(file) = self.files.get_mut(&node) else {
            return;
        };
        file.stamp = stamp;
        file.changing = file.changing.saturating_sub(1);
        match now {
            Some(now) => file.home = now.version(),
            None => self.forget(node),
        }
    }
    /// Drops the ranges of a file that have bytes from `first` on and before `behind`.
    pub(super) fn drop_between(&mut self, node: NodeId, first: u64, behind: u64) {
        let Some(file) = self.files.get(&node).filter(|_| first < behind) else {
            return;
        };
        let indexes = is_in(first >> SHIFT)..=is_in(behind.saturating_sub(1) >> SHIFT);
        let slots: Vec<u32> = file.slots.range(indexes).map(|s| *s.1).collect();
        for slot in slots {
            self.clear(slot);
        }
    }
    /// See [`super::Ranges::times_set`].
    pub(super) fn times_set(&mut self, node: NodeId, before: &Facts, now: &Facts) {
        if let Some(file) = self.files.get_mut(&node)
            && file.home == before.version()
        {
            file.home = now.version();
        }
    }
    /// See [`super::Ranges::closed`].
    pub(super) fn closed(&mut self, node: NodeId, now: Option<&Facts>) {
        let home = self.files.get(&node).map(|f| f.home);
        let same = home == now.map(Facts::version) || broken(Mutant::TrustChangedHome);
        let empty = self.files.get(&node).is_some_and(|f| f.slots.is_empty());
        if !same || empty {
            self.forget(node);
        }
    }
    /// See [`super::Ranges::forget`].
    pub(super) fn forget(&mut self, node: NodeId) {
        let Some(file) = self.files.remove(&node) else {
            return;
        };
        // The policy notices by itself that nobody reads them any more.
        for slot in file.slots.into_values() {
            self.slots[slot as usize].of = None;
            self.unused.push(slot);
        }
        self.free
            .entry(file.addresses)
            .or_default()
            .push(file.first);
    }
    /// Gives so many slots up.
    pub(super) fn give_way(&mut self, mut count: u64) {
        let all = self.slots.len() as u32;
        for _ in 0..all {
            if count == 0 {
                return;
            }
            let slot = self.hand % all;
            self.hand = (slot + 1) % all;
            let at = self.slots[slot as usize];
            if at.space && at.pins == 0 {
                self.clear(slot);
                count -= 1;
            }
        }
    }
    /// The slots whose space can be given back. They are pinned until [`Table::swept`].
    pub(super) fn take_unused(&mut self) -> Vec<u32> {
        let mut all = std::mem::take(&mut self.unused);
        all.sort_unstable();
        all.dedup();
        let slots = &mut self.slots;
        let free = |s: &u32| slots[*s as usize].of.is_none() && slots[*s as usize].space;
        all.retain(free);
        // What is in use now comes again.
        let (busy, unused) = all.into_iter().partition(|s| slots[*s as usize].pins > 0);
        self.unused = busy;
        for slot in &unused {
            let slot: &u32 = slot;
            self.slots[*slot as usize].pins = 1;
        }
        unused
    }
    /// The space of these slots was given back.
    pub(super) fn swept(&mut self, slots: &[u32]) {
        for slot in slots {
            let slot = &mut self.slots[*slot as usize];
            (slot.pins, slot.space) = (0, false);
        }
    }
    /// Memory of the policy, in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.engine.bytes()
    }
    /// The number of ranges of a file, and of reads from them.
    pub(super) fn of(&self, node: NodeId) -> Option<(u64, u64)> {
        let file = self.files.get(&node)?;
        Some((file.slots.len() as u64, file.hits))
    }
    /// The number of files with ranges, that of ranges, and the space that they may take at most.
    pub(super) fn count(&self) -> (usize, u64, u64) {
        let some = self.files.values().filter(|f| !f.slots.is_empty());
        let ranges: usize = self.files.values().map(|f| f.slots.len()).sum();
        let most = u64::from(self.most) << SHIFT;
        (some.count(), ranges as u64, most)
    }
}
