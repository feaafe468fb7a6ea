//! A policy's view of the volume.

use super::Access;
use crate::load::{Cost, Latencies, Load, Loads, MemberLoad};
use crate::units::{MemberId, Nanos, TierId};
use crate::volume::{Position, Quota, Space, UnitId};
use alloc::format;
use alloc::string::String;
use core::ops::Range;

/// The volume as a policy sees it. Everything can be read, but only the policy's own statistics can be written.
pub struct View<'a> {
    space: &'a mut Space,
    now: Nanos,
    moves: u32,
    metadata_flushing: bool,
    budget: u32,
    /// In the view of a quota: the costs and loads of the real tiers, because nothing is measured in the quota.
    loads: Option<&'a Loads>,
}

impl<'a> View<'a> {
    /// A view of `space` at `now`, with `moves` moves in progress. The policy may examine at most `budget` positions in this call.
    pub fn new(
        space: &'a mut Space,
        now: Nanos,
        moves: u32,
        metadata_flushing: bool,
        budget: u32,
    ) -> View<'a> {
        View {
            space,
            now,
            moves,
            metadata_flushing,
            budget,
            loads: None,
        }
    }
    /// An empty quota of the volume, with `grains` grains of the fastest tier.
    pub fn quota(&self, grains: u32) -> Quota {
        Quota::of(self.space, grains)
    }
    /// A view of a quota: with the quota's positions and units, and with the real load of the tiers.
    pub fn within<'b>(&'b self, quota: &'b mut Quota) -> View<'b> {
        View {
            space: quota.space(),
            now: self.now,
            moves: self.moves,
            metadata_flushing: self.metadata_flushing,
            budget: self.budget,
            loads: Some(self.loads()),
        }
    }
    fn loads(&self) -> &Loads {
        self.loads.unwrap_or(&self.space.loads)
    }
    /// Number of positions that this call may still examine. A long scan continues at the next tick, so that it never stalls
    /// I/O. Hit-only runs have no limit.
    pub fn budget(&mut self) -> &mut u32 {
        &mut self.budget
    }
    /// Engine time.
    pub fn now(&self) -> Nanos {
        self.now
    }
    /// Tiers, fastest first.
    #[inline]
    pub fn tiers(&self) -> u8 {
        self.space.geo.tiers()
    }
    /// The slowest tier.
    #[inline]
    pub fn slowest(&self) -> TierId {
        self.space.geo.slowest()
    }
    /// Units are numbered below this.
    #[inline]
    pub fn units(&self) -> u32 {
        self.space.geo.extents
    }
    /// In a cache volume: the number of units without a copy of which a policy should remember anything, so that its memory follows from
    /// the flash. `None` in a tiering volume, whose map has a row for each unit.
    pub fn past_entries(&self) -> Option<u32> {
        self.space.map.past_entries()
    }
    /// Bytes of a unit.
    #[inline]
    pub fn unit_bytes(&self, e: UnitId) -> u64 {
        self.space.bytes_of(e)
    }
    /// Bytes of a grain, in which room is counted: the size of an extent if all units are extents.
    #[inline]
    pub fn grain(&self) -> u32 {
        self.space.geo.extent_bytes()
    }
    /// Room that a unit takes on a tier, in grains: 1 if all units are extents.
    #[inline]
    pub fn weight(&self, e: UnitId) -> u32 {
        self.space.weight(e)
    }
    /// The class of a unit's data, as a classifier registered it; 0 if none did. The class of an access ([`super::Access::class`])
    /// has precedence.
    #[inline]
    pub fn class(&self, e: UnitId) -> u8 {
        self.space.class(e)
    }
    /// Keeps the classes of the data in copies from now on, one class per 4 KiB. This takes one byte per position of the faster tiers, and
    /// more for copies with several classes. Only the classes that the policy itself notes are known.
    pub fn keep_classes(&mut self) {
        self.space.map.keep_classes(self.space.geo.block_shift);
    }
    /// The blocks of its unit that `access` covers; in a store of units of unequal sizes, all blocks.
    pub fn blocks(&self, access: &Access) -> Range<u32> {
        if !self.is_uniform() {
            return 0..u32::MAX;
        }
        let (from, bytes) = self.part(access);
        let shift = self.space.geo.block_shift;
        from >> shift..(from + bytes).div_ceil(1 << shift)
    }
    /// Notes that `blocks` of a unit have `class`, if it has a copy and classes are kept. Other blocks of the copy, if nothing is known
    /// about them, get the class of the unit ([`View::class`]), or `class` if the unit has none.
    pub fn note_class(&mut self, e: UnitId, blocks: Range<u32>, class: u8) {
        let unit = self.class(e);
        let rest = if unit == 0 { class } else { unit };
        self.space.map.note_class(e, blocks, class, rest);
    }
    /// The class with the lowest `rank` among the valid blocks of the copy of a unit. The blocks `coming` count as valid, because they are
    /// being written to it. `None` if nothing is known about these blocks.
    pub fn best_class(&self, e: UnitId, coming: Range<u32>, rank: impl Fn(u8) -> u8) -> Option<u8> {
        self.space.map.best_class(e, coming, rank)
    }
    /// Whether all units take one grain.
    #[inline]
    pub fn is_uniform(&self) -> bool {
        !self.space.is_of_units()
    }
    /// Number of grains that a tier lacks to take a unit.
    #[inline]
    pub fn missing_grains(&self, t: TierId, e: UnitId) -> u32 {
        self.weight(e).saturating_sub(self.free(t))
    }
    /// Whether a unit fits on a tier that is empty.
    #[inline]
    pub fn could_fit(&self, t: TierId, e: UnitId) -> bool {
        self.weight(e) as usize <= self.positions(t).len()
    }
    /// The first byte of the address space of a unit.
    #[inline]
    pub fn start(&self, e: UnitId) -> u64 {
        self.space.start(e)
    }
    /// The unit that holds the byte at `offset`.
    #[inline]
    pub fn unit_at(&self, offset: u64) -> UnitId {
        self.space.unit_at(offset)
    }
    /// The range of table indices of a tier's positions ([`Position::index`]): one per grain.
    #[inline]
    pub fn positions(&self, t: TierId) -> core::ops::Range<u32> {
        self.space.geo.tier_slots(t)
    }
    /// The number of positions on all tiers except the slowest, for a table with one entry per position.
    #[inline]
    pub fn faster_positions(&self) -> u32 {
        self.positions(self.slowest()).start
    }
    /// The position with that index in a table.
    #[inline]
    pub fn position(&self, index: u32) -> Position {
        Position::at(index)
    }
    /// Units on a tier other than the slowest, with their positions, in the order of these.
    pub fn residents(&self, t: TierId) -> impl Iterator<Item = (Position, UnitId)> + '_ {
        let all = self.positions(t).map(Position::at);
        all.filter_map(|s| self.owner(s).map(|e| (s, e)))
    }
    /// Position of a unit's home.
    #[inline]
    pub fn home(&self, e: UnitId) -> Option<Position> {
        self.space.map.home(e).map(Position::from)
    }
    /// Position of a unit's copy on the fastest tier. A copy that a previous policy left on a tier in between is ignored, because no table
    /// has an entry for it.
    #[inline]
    pub fn copy(&self, e: UnitId) -> Option<Position> {
        let slot = self.space.map.copy(e)?;
        (self.space.geo.tier_of(slot) == TierId(0)).then(|| Position::from(slot))
    }
    /// Whether the copy on the fastest tier contains all blocks of its unit that `access` covers. Blocks that were never written do not
    /// matter. False without a copy.
    pub fn holds(&self, access: &Access) -> bool {
        let e = access.extent;
        if self.copy(e).is_none() {
            return false;
        }
        let (from, bytes) = self.part(access);
        let shift = self.space.geo.block_shift;
        let blocks = (from >> shift, (from + bytes).div_ceil(1 << shift));
        self.space.map.copy_serves(e, blocks.0, blocks.1)
    }
    /// The part of its unit that `access` covers: offset from the start of the unit, and number of bytes.
    pub fn part(&self, access: &Access) -> (u32, u32) {
        let (first, size) = (self.start(access.extent), self.unit_bytes(access.extent));
        let (begin, bytes) = (access.request_offset, u64::from(access.request_bytes));
        let from = begin.saturating_sub(first).min(size);
        let end = (begin + bytes).saturating_sub(first).min(size).max(from);
        (from as u32, (end - from) as u32)
    }
    /// Whether the copy is dirty, that is, contains data that the home does not.
    #[inline]
    pub fn is_dirty(&self, e: UnitId) -> bool {
        self.space.map.is_dirty(e)
    }
    /// Of two texts for [`super::Policy::explain`], that for the extents of a volume, or that for files. In a store of files, what is a copy
    /// to a policy may be the file itself, and no file is ever dirty, because a write goes to wherever the file is.
    pub fn either(&self, extents: &'static str, files: &'static str) -> &'static str {
        if self.is_uniform() { extents } else { files }
    }
    /// The unit whose home or copy is in a position of a tier other than the slowest.
    #[inline]
    pub fn owner(&self, s: Position) -> Option<UnitId> {
        self.space.map.owner(s.slot())
    }
    /// The unit whose copy is in a position of a tier other than the slowest, and the position of its home. It costs less than
    /// [`View::owner`] and [`View::copy`] together: the unit's own entry in the map is not read.
    #[inline]
    pub fn copied_in(&self, s: Position) -> Option<(UnitId, Position)> {
        let (e, home) = self.space.map.copied_in(s.slot())?;
        Some((e, home.into()))
    }
    /// Whether a position of a tier other than the slowest contains a dirty copy.
    #[inline]
    pub fn is_dirty_in(&self, s: Position) -> bool {
        self.space.map.is_dirty_in(s.slot())
    }
    /// Number of operations in progress on a position.
    #[inline]
    pub fn in_flight_in(&self, s: Position) -> u32 {
        let (r, w) = self.space.pins.count(s.slot());
        r + w
    }
    /// Tier of a position.
    #[inline]
    pub fn tier_of(&self, s: Position) -> TierId {
        self.space.geo.tier_of(s.slot())
    }
    /// Free room on a tier, in grains.
    #[inline]
    pub fn free(&self, t: TierId) -> u32 {
        self.space.free(t)
    }
    /// Room on a tier that is being freed, in grains.
    #[inline]
    pub fn freeing(&self, t: TierId) -> u32 {
        self.space.slots.freeing(t)
    }
    /// Whether the unit is in use by a move or a waiting request.
    #[inline]
    pub fn is_held(&self, e: UnitId) -> bool {
        self.space.map.is_held(e)
    }
    /// Number of operations in progress on a unit's home and copy (GreenDM 6.1.6).
    pub fn in_flight(&self, e: UnitId) -> u32 {
        let map = &self.space.map;
        let on = |s| {
            let (r, w) = self.space.pins.count(s);
            r + w
        };
        map.home(e).map_or(0, on) + map.copy(e).map_or(0, on)
    }
    /// Number of moves that read or write now. Moves that only wait for their record do not count.
    pub fn moves(&self) -> u32 {
        self.moves
    }
    /// Whether the engine is writing metadata (GreenDM 6.1.3, cancel condition 2).
    pub fn metadata_flushing(&self) -> bool {
        self.metadata_flushing
    }
    /// Costs of a tier's devices: recent measurements, and data-sheet values.
    #[inline]
    pub fn cost(&self, t: TierId) -> &Cost {
        self.loads().cost(t)
    }
    /// The recent durations of operations on a tier for which requests waited.
    #[inline]
    pub fn latencies(&self, t: TierId) -> Latencies {
        self.loads().latencies(t)
    }
    /// Present load of a tier.
    pub fn load(&self, t: TierId) -> Load {
        self.loads().load(t, self.now)
    }
    /// Present load of a member; `None` if there is no such member.
    pub fn member_load(&self, m: MemberId) -> Option<MemberLoad> {
        self.loads().member(m, self.now)
    }
    /// Time of the last access.
    pub fn last(&self, e: UnitId) -> Nanos {
        self.space.map.last(e)
    }
    /// The time since the last access, in words. In a cache volume it may not be known for a unit without a copy.
    pub fn last_words(&self, e: UnitId) -> String {
        let last = self.last(e);
        if last == Nanos(0) && self.past_entries().is_some() && self.copy(e).is_none() {
            return String::from("last access not known");
        }
        format!("last access {}", crate::ago::Ago(self.now.since(last)))
    }
    /// Records an access at `t`.
    pub fn set_last(&mut self, e: UnitId, t: Nanos) {
        self.space.map.set_last(e, t);
    }
    /// The 16 bits of a unit that belong to the policy.
    pub fn stat(&self, e: UnitId) -> u16 {
        self.space.map.stat(e)
    }
    /// Clears the 16 bits of all units that belong to the policy.
    pub fn forget_stats(&mut self) {
        self.space.map.forget_stats();
    }
    /// Sets the 16 bits of a unit that belong to the policy.
    pub fn set_stat(&mut self, e: UnitId, v: u16) {
        self.space.map.set_stat(e, v);
    }
}
