//! The round that makes changes durable: docs/on-disk-format.md, 7.2 (first write), 7.4 (FLUSH), 7.5 (FUA), 7.6 (discard and reuse), 7.8
//! (move) and 7.10 (mirror lag).
//!
//! ```text
//!  snapshot ─► flush data devices ─► write records ─► flush metadata ─► reply, flip moves, free slots
//! ```
//! The volume has two extents and two members with one slot each: the fast one carries the primary, the slow one the mirror. The journal is
//! never so long that it wraps. A write takes effect when it ends. A device writes what is in its cache to the medium at any time and in any
//! order ([`Action::Reaches`], [`Action::BlockReaches`]); so what the media hold in a state is what a loss of power in that state leaves.

mod state;

use state::{Block, Data, Move, Owner, Slot, State, Step, TWO, Write};
use stateright::{Model, Property};

/// The members, as indices.
const FAST: usize = 0;
const SLOW: usize = 1;

rules! {
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

/// The model.
#[derive(Clone, Debug)]
pub struct Round {
    /// Number of requests and moves.
    pub requests: u8,
    /// Number of rounds.
    pub rounds: usize,
    /// The rule that is taken out.
    pub without: Option<Rule>,
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
            Owner::Quarantined(_) if self.lacks(Rule::ReuseBeforeDurable) => true,
            Owner::Extent(_) | Owner::Quarantined(None) => false,
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

    fn issue(&self, s: &mut State, (extent, slot): (usize, usize), fua: bool) {
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
            Action::Write { extent, slot, fua } => self.issue(&mut s, (extent, slot), fua),
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
