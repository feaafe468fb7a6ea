//! The round that makes changes durable: docs/on-disk-format.md, 7.2 (first write), 7.4 (FLUSH), 7.5 (FUA), 7.6 (discard and reuse), 7.8
//! (move) and 7.10 (mirror lag).
//!
//! ```text
//!  snapshot ─► flush data devices ─► write records ─► flush metadata ─► reply, flip moves, free slots
//! ```
//! The volume has two extents and two members with one slot each: the fast one carries the primary, the slow one the mirror. The journal is
//! never so long that it wraps. A write takes effect when it ends. A device writes what is in its cache to the medium at any time and in any
//! order ([`Action::Reaches`], [`Action::BlockReaches`]); so what the media hold in a state is what a loss of power in that state leaves.

use stateright::{Model, Property};

/// Number of extents, and of slots: slot *i* is on member *i*.
const TWO: usize = 2;
/// The members, as indices.
const FAST: usize = 0;
const SLOW: usize = 1;

/// The rules that can be taken out; the names are those of `crates/core/src/mutants.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Rule {
    FlipBeforeFlush,
    ExposeBeforeFlush,
    FlushForgetsFast,
    FlushForgetsSlow,
    SkipJournalFlush,
    ForgetStaleMark,
    SkipPin,
    ReuseBeforeDurable,
    ReuseBeforeMirror,
    ReusePrimaryBeforeMirror,
    SkipMirrorQuietly,
    ForgetFua,
    ServeLateFlush,
    ForgetLateWrite,
}

/// All rules of this model.
pub const RULES: [Rule; 14] = [
    Rule::FlipBeforeFlush,
    Rule::ExposeBeforeFlush,
    Rule::FlushForgetsFast,
    Rule::FlushForgetsSlow,
    Rule::SkipJournalFlush,
    Rule::ForgetStaleMark,
    Rule::SkipPin,
    Rule::ReuseBeforeDurable,
    Rule::ReuseBeforeMirror,
    Rule::ReusePrimaryBeforeMirror,
    Rule::SkipMirrorQuietly,
    Rule::ForgetFua,
    Rule::ServeLateFlush,
    Rule::ForgetLateWrite,
];

/// The model.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Number of requests and moves.
    pub requests: u8,
    /// Number of rounds.
    pub rounds: usize,
    /// The rule that is taken out.
    pub without: Option<Rule>,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Data {
    /// What it held before the volume was made.
    Old,
    /// The data of an extent, as of its change with this number.
    Of(usize, u8),
}

/// A slot: on the medium, in the device's cache, and for the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot {
    medium: Data,
    cache: Option<Data>,
    /// What the flush in progress will have made durable when it ends.
    covered: Option<Data>,
    owner: Owner,
}

impl Slot {
    /// The device writes what its cache has to the medium.
    fn reaches(&mut self) {
        self.medium = self.cache.take().unwrap_or(self.medium);
        self.covered = None;
    }
    /// The flush of the device ends. What was written since it began may be in the cache only.
    fn is_flushed(&mut self) {
        if let Some(data) = self.covered.take() {
            self.medium = data;
            self.cache = self.cache.filter(|&c| c != data);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Free,
    Extent(usize),
    /// Given up; free when this block of the journal is durable on primary and mirror (`None`: in a round to come).
    Quarantined(Option<usize>),
}

/// A block of the journal on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Block {
    Missing,
    Cached,
    Medium,
}

/// What a record states of an extent: its home. `None`: the block has no record of it.
type Record = Option<Option<usize>>;

/// A write that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Write {
    extent: usize,
    slot: usize,
    version: u8,
    fua: bool,
    /// Whether it is durable by itself (7.5).
    through: bool,
}

/// A move that has written its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Move {
    extent: usize,
    from: usize,
    to: usize,
    stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    FlushingData,
    FlushingMetadata,
}

/// A state of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    requests: u8,
    slots: [Slot; TWO],
    /// The records of each block, and where it is: on the primary (0) and the mirror (1).
    journal: Vec<[Record; TWO]>,
    at: Vec<[Block; 2]>,
    /// Number of blocks that the engine knows to be durable on primary and mirror.
    flushed: [usize; 2],
    /// The map in memory, and the extents of which a record is due.
    home: [Option<usize>; TWO],
    /// Whether the home has data: a write of it has ended.
    valid: [bool; TWO],
    due: [bool; TWO],
    write: Option<Write>,
    moving: Option<Move>,
    /// The members with writes that no flush has covered, as the engine knows it.
    unflushed: [bool; TWO],
    step: Step,
    flushing: [bool; TWO],
    mirrored: bool,
    /// Whether the round in progress carries the move.
    moves: bool,
    /// The changes that a request waits to be durable, by extent: for the next round, and in the round in progress.
    waiting: [u8; TWO],
    serving: [u8; TWO],
    /// The last change of each extent that was issued, the last that has ended, and the last that was acknowledged as durable.
    issued: [u8; TWO],
    ended: [u8; TWO],
    acknowledged: [u8; TWO],
    /// The changes that were discards, a bit each.
    discards: [u8; TWO],
    /// For "must be reachable": a move was flipped, a slot was given to a second extent.
    flipped: bool,
    reused: bool,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A write of an extent begins; its first one takes this slot.
    Write {
        /// The extent.
        extent: usize,
        /// Its home, or the one that it gets.
        slot: usize,
        /// Whether it is to be durable when it is answered.
        fua: bool,
    },
    /// The write in progress ends.
    WriteEnds,
    /// A discard of an extent is carried out and answered.
    Discard(usize),
    /// A FLUSH arrives.
    Flush,
    /// A move of an extent to the other slot reads its source and writes its destination.
    Move(usize),
    /// A round begins. It also writes to the mirror.
    Begin {
        /// Whether it does; if the round carries a move, it must.
        mirror: bool,
    },
    /// The flush of a member ends.
    Flushed(usize),
    /// The records are written.
    WriteRecords,
    /// The flush of the journal ends, and with it the round.
    End,
    /// The device writes a slot from its cache to the medium.
    Reaches(usize),
    /// The same for a block of the journal, on the primary (0) or the mirror (1).
    BlockReaches(usize, usize),
}

impl Round {
    fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// Whether the slot can be given to an extent.
    fn is_free(&self, s: &State, slot: usize) -> bool {
        match s.slots[slot].owner {
            Owner::Free => true,
            Owner::Extent(_) => false,
            Owner::Quarantined(_) if self.lacks(Rule::ReuseBeforeDurable) => true,
            Owner::Quarantined(None) => false,
            Owner::Quarantined(Some(block)) => {
                let no_mirror = [Rule::ReusePrimaryBeforeMirror, Rule::ReuseBeforeMirror];
                let mirror = block < s.flushed[1] || self.lacks(no_mirror[slot]);
                block < s.flushed[0] && mirror
            }
        }
    }

    /// Whether a change of the extent may begin. It makes a move of it stale.
    fn may_change(s: &State, extent: usize) -> bool {
        let is_recorded = s.moves && s.moving.is_some_and(|m| m.extent == extent);
        s.requests > 0 && !is_recorded
    }

    fn client_actions(&self, s: &State, actions: &mut Vec<Action>) {
        for extent in 0..TWO {
            if Round::may_change(s, extent) && s.write.is_none() {
                let slots = (0..TWO).filter(|&slot| match s.home[extent] {
                    Some(home) => home == slot,
                    None => self.is_free(s, slot),
                });
                let write = |slot| [false, true].map(|fua| Action::Write { extent, slot, fua });
                actions.extend(slots.flat_map(write));
            }
            let is_written = s.write.is_some_and(|w| w.extent == extent);
            if Round::may_change(s, extent) && s.valid[extent] && !is_written {
                actions.push(Action::Discard(extent));
            }
            // A move does not start during a write of its extent.
            let may_move = s.requests > 0
                && s.moving.is_none()
                && s.valid[extent]
                && (!is_written || self.lacks(Rule::SkipPin));
            if may_move && s.home[extent].is_some_and(|home| self.is_free(s, 1 - home)) {
                actions.push(Action::Move(extent));
            }
        }
        if s.requests > 0 && s.ended != s.acknowledged && s.waiting == [0; TWO] {
            actions.push(Action::Flush);
        }
    }

    fn begin(&self, s: &mut State, mirror: bool) {
        s.step = Step::FlushingData;
        s.mirrored = mirror;
        s.serving = std::mem::take(&mut s.waiting);
        if let Some(m) = s.moving.filter(|m| m.stale) {
            s.slots[m.to].owner = Owner::Free;
            s.moving = None;
        }
        s.moves = s.moving.is_some();
        let mut records = [None; TWO];
        for (extent, record) in records.iter_mut().enumerate() {
            let moved = s.moving.filter(|m| m.extent == extent).map(|m| m.to);
            if std::mem::take(&mut s.due[extent]) || moved.is_some() {
                *record = Some(moved.or(s.stated(extent)));
            }
        }
        let block = s.journal.len();
        s.journal.push(records);
        s.at.push([Block::Missing; 2]);
        for slot in &mut s.slots {
            if slot.owner == Owner::Quarantined(None) {
                slot.owner = Owner::Quarantined(Some(block));
            }
        }
        let needed = std::mem::take(&mut s.unflushed);
        for member in 0..TWO {
            let forgets = [Rule::FlushForgetsFast, Rule::FlushForgetsSlow][member];
            let flips = self.lacks(Rule::FlipBeforeFlush)
                && s.moving.is_some_and(|m| m.to == member)
                && s.serving == [0; TWO];
            let skips = self.lacks(forgets) || self.lacks(Rule::ExposeBeforeFlush) || flips;
            s.flushing[member] = needed[member] && !skips;
            if s.flushing[member] {
                s.slots[member].covered = s.slots[member].cache;
            }
        }
    }

    fn end(&self, s: &mut State) {
        let last = s.journal.len();
        for carrier in 0..2 {
            let skips = self.lacks(Rule::SkipJournalFlush);
            if carrier == 1 && !s.mirrored {
                continue;
            }
            for at in s.at.iter_mut().filter(|_| !skips) {
                at[carrier] = Block::Medium;
            }
            s.flushed[carrier] = last;
        }
        if self.lacks(Rule::SkipMirrorQuietly) {
            s.flushed[1] = last;
        }
        if self.lacks(Rule::ServeLateFlush) {
            let late = std::mem::take(&mut s.waiting);
            (0..TWO).for_each(|e| s.serving[e] = s.serving[e].max(late[e]));
        }
        for (e, served) in std::mem::take(&mut s.serving).into_iter().enumerate() {
            s.acknowledged[e] = s.acknowledged[e].max(served);
        }
        if std::mem::take(&mut s.moves)
            && let Some(m) = s.moving.take()
        {
            s.home[m.extent] = Some(m.to);
            s.slots[m.from].owner = Owner::Quarantined(Some(last - 1));
            s.flipped = true;
        }
        s.step = Step::Idle;
    }

    fn write_ends(&self, s: &mut State, w: Write) {
        if w.through {
            s.slots[w.slot].cache = Some(Data::Of(w.extent, w.version));
            s.slots[w.slot].reaches();
        } else {
            s.slots[w.slot].cache = Some(Data::Of(w.extent, w.version));
            s.unflushed[w.slot] = true;
        }
        s.ended[w.extent] = s.ended[w.extent].max(w.version);
        s.valid[w.extent] = true;
        s.due[w.extent] |= !s.is_recorded(w.extent);
        match (w.fua, w.through || self.lacks(Rule::ForgetFua)) {
            (true, true) => s.acknowledged[w.extent] = w.version,
            (true, false) => s.waiting[w.extent] = w.version,
            _ => {}
        }
    }
}

impl State {
    /// What a record of the extent states now: an extent that has no valid block has no home.
    fn stated(&self, extent: usize) -> Option<usize> {
        self.home[extent].filter(|_| self.valid[extent])
    }
    /// Whether the last record of the extent in the journal states that.
    fn is_recorded(&self, extent: usize) -> bool {
        let last = self.journal.iter().rev().find_map(|b| b[extent]);
        last == Some(self.stated(extent))
    }
    /// What a read of the slot returns.
    fn contents(&self, slot: usize) -> Data {
        let slot = &self.slots[slot];
        slot.cache.unwrap_or(slot.medium)
    }
    /// Number of blocks of the journal on the medium, up to the first that is missing, if those of the primary from `damaged` on are lost.
    fn end_of_journal(&self, damaged: usize) -> usize {
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
    fn recovered(&self, extent: usize, end: usize) -> Option<Data> {
        let last = self.journal[..end].iter().rev().find_map(|b| b[extent]);
        last.flatten().map(|slot| self.slots[slot].medium)
    }
    fn is_foreign(&self, extent: usize, end: usize) -> bool {
        let shown = self.recovered(extent, end);
        shown.is_some_and(|d| !matches!(d, Data::Of(e, _) if e == extent))
    }
    /// Whether recovery shows the last acknowledged change of the extent, or a later one.
    fn is_kept(&self, extent: usize) -> bool {
        let least = self.acknowledged[extent];
        match self.recovered(extent, self.end_of_journal(usize::MAX)) {
            Some(Data::Of(_, version)) => version >= least,
            Some(Data::Old) => false,
            None => least == 0 || self.discards[extent] >> least != 0,
        }
    }
}

impl Model for Round {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let slot = Slot {
            medium: Data::Old,
            cache: None,
            covered: None,
            owner: Owner::Free,
        };
        vec![State {
            requests: self.requests,
            slots: [slot; TWO],
            journal: Vec::new(),
            at: Vec::new(),
            flushed: [0; 2],
            home: [None; TWO],
            valid: [false; TWO],
            due: [false; TWO],
            write: None,
            moving: None,
            unflushed: [false; TWO],
            step: Step::Idle,
            flushing: [false; TWO],
            mirrored: false,
            moves: false,
            waiting: [0; TWO],
            serving: [0; TWO],
            issued: [0; TWO],
            ended: [0; TWO],
            acknowledged: [0; TWO],
            discards: [0; TWO],
            flipped: false,
            reused: false,
        }]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        self.client_actions(s, actions);
        if s.write.is_some() {
            actions.push(Action::WriteEnds);
        }
        match s.step {
            Step::Idle if s.journal.len() < self.rounds => {
                let moves = s.moving.is_some();
                let quarantined = |s: &Slot| matches!(s.owner, Owner::Quarantined(_));
                if moves || s.waiting != [0; TWO] || s.slots.iter().any(quarantined) {
                    actions.push(Action::Begin { mirror: true });
                    actions.extend((!moves).then_some(Action::Begin { mirror: false }));
                }
            }
            Step::Idle => {}
            Step::FlushingData => {
                let left = (0..TWO).filter(|&m| s.flushing[m]);
                actions.extend(left.map(Action::Flushed));
                if s.flushing == [false; TWO] {
                    actions.push(Action::WriteRecords);
                }
            }
            Step::FlushingMetadata => actions.push(Action::End),
        }
        let cached = (0..TWO).filter(|&i| s.slots[i].cache.is_some());
        actions.extend(cached.map(Action::Reaches));
        for (n, at) in s.at.iter().enumerate() {
            let cached = (0..2).filter(|&c| at[c] == Block::Cached);
            actions.extend(cached.map(|c| Action::BlockReaches(c, n)));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut s = last.clone();
        match action {
            Action::Write { extent, slot, fua } => {
                s.requests -= 1;
                s.issued[extent] += 1;
                let known = s.valid[extent] && !s.due[extent] && s.is_recorded(extent);
                let idle = s.step == Step::Idle && s.moving.is_none();
                s.write = Some(Write {
                    extent,
                    slot,
                    version: s.issued[extent],
                    fua,
                    through: fua && known && idle && !self.lacks(Rule::ForgetFua),
                });
                s.home[extent] = Some(slot);
                let owner = std::mem::replace(&mut s.slots[slot].owner, Owner::Extent(extent));
                s.reused |= matches!(owner, Owner::Quarantined(_));
                s.make_stale(extent, self.lacks(Rule::ForgetStaleMark));
            }
            Action::WriteEnds => {
                let w = s.write.take()?;
                self.write_ends(&mut s, w);
            }
            Action::Discard(extent) => {
                s.requests -= 1;
                s.issued[extent] += 1;
                s.ended[extent] = s.issued[extent];
                s.discards[extent] |= 1 << s.issued[extent];
                let slot = s.home[extent].take()?;
                s.valid[extent] = false;
                s.slots[slot].owner = Owner::Quarantined(None);
                s.due[extent] = true;
                s.make_stale(extent, self.lacks(Rule::ForgetStaleMark));
            }
            Action::Flush => {
                s.requests -= 1;
                s.waiting = s.ended;
            }
            Action::Move(extent) => {
                s.requests -= 1;
                let from = s.home[extent]?;
                let (to, data) = (1 - from, s.contents(from));
                s.slots[to].owner = Owner::Extent(extent);
                s.slots[to].cache = Some(data);
                s.unflushed[to] = true;
                s.moving = Some(Move {
                    extent,
                    from,
                    to,
                    stale: false,
                });
            }
            Action::Begin { mirror } => self.begin(&mut s, mirror),
            Action::Flushed(member) => {
                s.flushing[member] = false;
                s.slots[member].is_flushed();
                if self.lacks(Rule::ForgetLateWrite) {
                    s.unflushed[member] = false;
                }
            }
            Action::WriteRecords => {
                for at in &mut s.at {
                    let carriers = if s.mirrored { 2 } else { 1 };
                    for block in at[..carriers].iter_mut().filter(|b| **b == Block::Missing) {
                        *block = Block::Cached;
                    }
                }
                s.step = Step::FlushingMetadata;
            }
            Action::End => self.end(&mut s),
            Action::Reaches(slot) => {
                s.slots[slot].reaches();
            }
            Action::BlockReaches(carrier, n) => s.at[n][carrier] = Block::Medium,
        }
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "no acknowledged change is lost with the power",
                |_, s: &State| (0..TWO).all(|e| s.is_kept(e)),
            ),
            Property::always(
                "recovery shows no bytes of another extent",
                |_, s: &State| {
                    let end = s.end_of_journal(usize::MAX);
                    (0..TWO).all(|e| !s.is_foreign(e, end))
                },
            ),
            // If the medium damages the newest blocks of the primary, or the primary is lost, only the mirror tells which slots changed owner.
            Property::always(
                "neither does it if the primary's newest blocks are lost",
                |_, s: &State| {
                    let ends = (0..s.at.len()).map(|damaged| s.end_of_journal(damaged));
                    ends.into_iter()
                        .all(|end| (0..TWO).all(|e| !s.is_foreign(e, end)))
                },
            ),
            Property::always("a read shows the last write", |_, s: &State| {
                let quiet = |e: usize| s.write.is_none_or(|w| w.extent != e);
                (0..TWO).filter(|&e| quiet(e)).all(|e| {
                    let shown = s.stated(e).map(|slot| s.contents(slot));
                    shown.is_none_or(|d| d == Data::Of(e, s.ended[e]))
                })
            }),
            Property::sometimes("a change is acknowledged on each member", |_, s: &State| {
                s.acknowledged.iter().all(|&v| v > 0) && s.home == [Some(SLOW), Some(FAST)]
            }),
            Property::sometimes("a move is flipped", |_, s: &State| s.flipped),
            Property::sometimes("a slot is used again", |_, s: &State| s.reused),
            Property::sometimes("the mirror lags", |_, s: &State| {
                s.flushed[0] > s.flushed[1] + 1
            }),
        ]
    }
}

impl State {
    fn make_stale(&mut self, extent: usize, forgets: bool) {
        if let Some(m) = self
            .moving
            .as_mut()
            .filter(|m| m.extent == extent && !forgets)
        {
            m.stale = true;
        }
    }
}
