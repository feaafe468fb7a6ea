//! What the model of rounds consists of, and what recovery makes of it.

/// Number of extents, and of slots: slot *i* is on member *i*.
pub(super) const TWO: usize = 2;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Data {
    /// What it held before the volume was made.
    Old,
    /// The data of an extent, as of its change with this number.
    Of(usize, u8),
}

/// A slot: on the medium, in the device's cache, and for the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub(super) medium: Data,
    pub(super) cache: Option<Data>,
    /// What the flush in progress will have made durable when it ends.
    pub(super) covered: Option<Data>,
    pub(super) owner: Owner,
}

impl Slot {
    /// The device writes what its cache has to the medium.
    pub(super) fn reaches(&mut self) {
        self.medium = self.cache.take().unwrap_or(self.medium);
        self.covered = None;
    }
    /// The flush of the device ends. What was written since it began may be in the cache only.
    pub(super) fn is_flushed(&mut self) {
        if let Some(data) = self.covered.take() {
            self.medium = data;
            self.cache = self.cache.filter(|&c| c != data);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    Free,
    Extent(usize),
    /// Given up; free when this block of the journal is durable on primary and mirror (`None`: in a round to come).
    Quarantined(Option<usize>),
}

/// A block of the journal on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Block {
    Missing,
    Cached,
    Medium,
}

/// What a record states of an extent: its home. `None`: the block has no record of it.
pub(super) type Record = Option<Option<usize>>;

/// A write that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Write {
    pub(super) extent: usize,
    pub(super) slot: usize,
    pub(super) version: u8,
    pub(super) fua: bool,
    /// Whether it is durable by itself (7.5).
    pub(super) through: bool,
}

/// A move that has written its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Move {
    pub(super) extent: usize,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Idle,
    FlushingData,
    FlushingMetadata,
}

/// A state of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) requests: u8,
    pub(super) slots: [Slot; TWO],
    /// The records of each block, and where it is: on the primary (0) and the mirror (1).
    pub(super) journal: Vec<[Record; TWO]>,
    pub(super) at: Vec<[Block; 2]>,
    /// Number of blocks that the engine knows to be durable on primary and mirror.
    pub(super) flushed: [usize; 2],
    /// The map in memory, and the extents of which a record is due.
    pub(super) home: [Option<usize>; TWO],
    /// Whether the home has data: a write of it has ended.
    pub(super) valid: [bool; TWO],
    pub(super) due: [bool; TWO],
    pub(super) write: Option<Write>,
    pub(super) moving: Option<Move>,
    /// The members with writes that no flush has covered, as the engine knows it.
    pub(super) unflushed: [bool; TWO],
    pub(super) step: Step,
    pub(super) flushing: [bool; TWO],
    pub(super) mirrored: bool,
    /// Whether the round in progress carries the move.
    pub(super) moves: bool,
    /// The changes that a request waits to be durable, by extent: for the next round, and in the round in progress.
    pub(super) waiting: [u8; TWO],
    pub(super) serving: [u8; TWO],
    /// The last change of each extent that was issued, the last that has ended, and the last that was acknowledged as durable.
    pub(super) issued: [u8; TWO],
    pub(super) ended: [u8; TWO],
    pub(super) acknowledged: [u8; TWO],
    /// The changes that were discards, a bit each.
    pub(super) discards: [u8; TWO],
    /// For "must be reachable": a move was flipped, a slot was given to a second extent.
    pub(super) flipped: bool,
    pub(super) reused: bool,
}

impl State {
    /// What a record of the extent states now: an extent that has no valid block has no home.
    pub(super) fn stated(&self, extent: usize) -> Option<usize> {
        self.home[extent].filter(|_| self.valid[extent])
    }
    /// Whether the last record of the extent in the journal states that.
    pub(super) fn is_recorded(&self, extent: usize) -> bool {
        let last = self.journal.iter().rev().find_map(|b| b[extent]);
        last == Some(self.stated(extent))
    }
    /// What a read of the slot returns.
    pub(super) fn contents(&self, slot: usize) -> Data {
        let slot = &self.slots[slot];
        slot.cache.unwrap_or(slot.medium)
    }
    /// Number of blocks of the journal on the medium, up to the first that is missing, if those of the primary from `damaged` on are lost.
    pub(super) fn end_of_journal(&self, damaged: usize) -> usize {
        let is_there = |(n, at): (usize, &[Block; 2])| {
            (at[0] == Block::Medium && n < damaged) || at[1] == Block::Medium
        };
        self.at
            .iter()
            .enumerate()
            .take_while(|&b| is_there(b))
            .count()
    }
    /// What recovery shows of an extent after a loss of power, from the blocks before `end`; `None`: zeros.
    pub(super) fn recovered(&self, extent: usize, end: usize) -> Option<Data> {
        let last = self.journal[..end].iter().rev().find_map(|b| b[extent]);
        last.flatten().map(|slot| self.slots[slot].medium)
    }
    pub(super) fn is_foreign(&self, extent: usize, end: usize) -> bool {
        let shown = self.recovered(extent, end);
        shown.is_some_and(|d| !matches!(d, Data::Of(e, _) if e == extent))
    }
    /// Whether recovery shows the last acknowledged change of the extent, or a later one.
    pub(super) fn is_kept(&self, extent: usize) -> bool {
        let least = self.acknowledged[extent];
        match self.recovered(extent, self.end_of_journal(usize::MAX)) {
            Some(Data::Of(_, version)) => version >= least,
            Some(Data::Old) => false,
            None => least == 0 || self.discards[extent] >> least != 0,
        }
    }
    pub(super) fn make_stale(&mut self, extent: usize, forgets: bool) {
        if let Some(m) = self
            .moving
            .as_mut()
            .filter(|m| m.extent == extent && !forgets)
        {
            m.stale = true;
        }
    }
}
