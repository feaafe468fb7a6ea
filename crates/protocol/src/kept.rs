//! Records that are kept for the next server: docs/on-disk-format.md, 7.4 (`kept_writes`).
//!
//! ```text
//!  a write:       its record is put into the last kept block, or a new one, in memory that outlives the server ─► answered
//!  a round:       flush data devices ─► write all blocks that the primary lacks ─► flush ─► acknowledge
//!  after a kill:  flush every member ─► write the kept blocks ─► flush the primary ─► recovery
//! ```
//! Write *n* goes to a place of its own on member *n* mod 2; a record of it exposes that place. The journal is on member 0. An older session,
//! which recovery found lost, has left a block at the place of the second one. As in [`crate::round`], what the media hold in a state is what
//! a loss of power in that state leaves.

use stateright::{Model, Property};

rules! {
    ForgetKept,
    RoundForgetsKept,
    KeptWithoutFlush,
    FuaTrustsKept,
    KeepForgetsRound,
    ExtendTakenBlock,
    RestoreYieldsToOld,
    RestoreBeforeFlush,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Number of writes, at most 8.
    pub writes: u32,
    /// Number of rounds.
    pub rounds: u8,
    /// The rule that is taken out.
    pub without: Option<Rule>,
}

/// A set of writes, a bit each.
type Set = u8;

/// The writes whose places are on this member.
fn on(member: usize) -> Set {
    [0b0101_0101, 0b1010_1010][member]
}

/// What is at the place of a block of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Copy {
    Nothing,
    /// A block of a lost session.
    Old,
    /// The block, with the records of these writes.
    Block(Set),
}

/// A block of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Block {
    records: Set,
    /// Whether the keeper has it.
    kept: bool,
    cache: Option<Set>,
    medium: Copy,
}

impl Block {
    /// What a read of its place returns.
    fn present(self) -> Copy {
        self.cache.map_or(self.medium, Copy::Block)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Serving,
    FlushingData,
    FlushingJournal,
    Killed,
    /// The members were flushed after a kill.
    Flushed,
    /// The kept blocks were written.
    Restored,
    /// The primary was flushed: recovery may begin.
    Ready,
}

/// A state of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    step: Step,
    rounds: u8,
    /// The writes that have ended, those of them that are only in the caches of members, and those that the flush in progress covers.
    ended: Set,
    cached: Set,
    covered: Set,
    /// The writes that no block has a record of.
    pending: Set,
    blocks: Vec<Block>,
    /// Number of blocks that a round has taken.
    taken: usize,
    /// The members whose flush has not ended.
    flushing: [bool; 2],
    /// The writes that requests wait for: for the next round, and in the one in progress.
    waiting: Set,
    serving: Set,
    /// The writes that survive a kill of the server, because they were answered, and those that survive a loss of power.
    answered: Set,
    acknowledged: Set,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A write ends.
    Write {
        /// Whether it is answered only when it is durable.
        fua: bool,
    },
    /// A FLUSH arrives.
    Flush,
    /// A round begins.
    Begin {
        /// Whether it is for moves alone.
        moves: bool,
    },
    /// The flush of a member ends.
    Flushed(usize),
    /// The blocks that the primary lacks are written.
    WriteBlocks,
    /// The journal is flushed, and the round ends.
    End,
    /// The server is killed.
    Kill,
    /// The next step before recovery.
    Restore,
    /// A member writes what it has of a write from its cache to the medium.
    Reaches(u32),
    /// The same for a block of the journal.
    BlockReaches(usize),
}

impl Kept {
    fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// Puts the record of a write into a kept block.
    fn keep(&self, s: &mut State, write: Set) {
        let n = s.blocks.len();
        let least = if self.lacks(Rule::ExtendTakenBlock) {
            0
        } else {
            s.taken
        };
        match s.blocks.last_mut().filter(|b| n > least && b.kept) {
            Some(last) => last.records |= write,
            None => s.push(write, true),
        }
    }

    fn write(&self, s: &mut State, fua: bool) {
        let write = 1 << s.ended.count_ones();
        s.ended |= write;
        s.cached |= write;
        if fua && !self.lacks(Rule::FuaTrustsKept) {
            s.pending |= write;
            s.waiting |= write;
            return;
        }
        if self.lacks(Rule::ForgetKept) {
            s.pending |= write;
        } else {
            self.keep(s, write);
        }
        s.answered |= write;
        s.acknowledged |= if fua { write } else { 0 };
    }

    fn begin(&self, s: &mut State, moves: bool) {
        s.rounds += 1;
        s.step = Step::FlushingData;
        s.serving = std::mem::take(&mut s.waiting);
        if s.pending != 0 {
            // Kept blocks will follow this one, so the keeper needs it as well.
            let records = std::mem::take(&mut s.pending);
            s.push(records, !self.lacks(Rule::KeepForgetsRound));
        }
        s.taken = s.blocks.len();
        let skips = moves && self.lacks(Rule::KeptWithoutFlush);
        s.covered = if skips { 0 } else { s.cached };
        s.flushing = [0, 1].map(|member| s.covered & on(member) != 0);
    }

    fn write_blocks(&self, s: &mut State) {
        let own = s.taken - 1;
        for (n, b) in s.blocks[..s.taken].iter_mut().enumerate() {
            let forgets = self.lacks(Rule::RoundForgetsKept) && n != own;
            if !matches!(b.present(), Copy::Block(_)) && !forgets {
                b.cache = Some(b.records);
            }
        }
        s.step = Step::FlushingJournal;
    }

    fn restore(&self, s: &mut State) {
        let early = self.lacks(Rule::RestoreBeforeFlush);
        match (s.step, early) {
            (Step::Killed, false) | (Step::Flushed, true) => s.cached = 0,
            _ => {}
        }
        if matches!(
            (s.step, early),
            (Step::Flushed, false) | (Step::Killed, true)
        ) {
            for b in s.blocks.iter_mut().filter(|b| b.kept) {
                let yields = b.present() == Copy::Old && self.lacks(Rule::RestoreYieldsToOld);
                if !matches!(b.present(), Copy::Block(_)) && !yields {
                    b.cache = Some(b.records);
                }
            }
        }
        s.step = match s.step {
            Step::Killed => Step::Flushed,
            Step::Flushed => Step::Restored,
            _ => {
                s.blocks.iter_mut().for_each(Block::reaches);
                Step::Ready
            }
        };
    }
}

impl Block {
    fn reaches(&mut self) {
        self.medium = self.cache.take().map_or(self.medium, Copy::Block);
    }
}

impl State {
    fn push(&mut self, records: Set, kept: bool) {
        let left = self.blocks.len() == 1;
        self.blocks.push(Block {
            records,
            kept,
            cache: None,
            medium: if left { Copy::Old } else { Copy::Nothing },
        });
    }

    /// The writes that a replay of the journal exposes.
    fn exposed(&self, at: impl Fn(&Block) -> Copy) -> Set {
        let records = self.blocks.iter().map_while(|b| match at(b) {
            Copy::Block(records) => Some(records),
            _ => None,
        });
        records.fold(0, |set, records| set | records)
    }
}

impl Model for Kept {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            step: Step::Serving,
            rounds: 0,
            ended: 0,
            cached: 0,
            covered: 0,
            pending: 0,
            blocks: Vec::new(),
            taken: 0,
            flushing: [false; 2],
            waiting: 0,
            serving: 0,
            answered: 0,
            acknowledged: 0,
        }]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        let serves = matches!(
            s.step,
            Step::Serving | Step::FlushingData | Step::FlushingJournal
        );
        if serves {
            if s.ended.count_ones() < self.writes {
                actions.extend([false, true].map(|fua| Action::Write { fua }));
            }
            let lacks = s.ended & !s.acknowledged & !s.waiting & !s.serving;
            actions.extend((lacks != 0).then_some(Action::Flush));
            actions.push(Action::Kill);
        }
        match s.step {
            Step::Serving if s.rounds < self.rounds => {
                let due = s.blocks.len() > s.taken || s.pending != 0;
                if due || s.waiting != 0 {
                    actions.push(Action::Begin {
                        moves: s.waiting == 0,
                    });
                }
            }
            Step::FlushingData if s.flushing == [false; 2] => actions.push(Action::WriteBlocks),
            Step::FlushingData => {
                let left = (0..2).filter(|&m| s.flushing[m]);
                actions.extend(left.map(Action::Flushed));
            }
            Step::FlushingJournal => actions.push(Action::End),
            Step::Killed | Step::Flushed | Step::Restored => actions.push(Action::Restore),
            Step::Serving | Step::Ready => {}
        }
        let cached = (0..self.writes).filter(|n| s.cached >> n & 1 == 1);
        actions.extend(cached.map(Action::Reaches));
        let cached = (0..s.blocks.len()).filter(|&n| s.blocks[n].cache.is_some());
        actions.extend(cached.map(Action::BlockReaches));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut s = last.clone();
        match action {
            Action::Write { fua } => self.write(&mut s, fua),
            Action::Flush => s.waiting |= s.ended,
            Action::Begin { moves } => self.begin(&mut s, moves),
            Action::Flushed(member) => {
                s.flushing[member] = false;
                s.cached &= !(s.covered & on(member));
            }
            Action::WriteBlocks => self.write_blocks(&mut s),
            Action::End => {
                s.blocks.iter_mut().for_each(Block::reaches);
                let served = std::mem::take(&mut s.serving);
                s.acknowledged |= served;
                s.answered |= served;
                s.covered = 0;
                s.step = Step::Serving;
            }
            Action::Kill => s.step = Step::Killed,
            Action::Restore => self.restore(&mut s),
            Action::Reaches(n) => s.cached &= !(1 << n),
            Action::BlockReaches(n) => s.blocks[n].reaches(),
        }
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "no acknowledged write is lost with the power",
                |_, s: &State| s.acknowledged & !s.exposed(|b| b.medium) == 0,
            ),
            Property::always(
                "recovery shows no place that was not written",
                |_, s: &State| s.exposed(|b| b.medium) & s.cached == 0,
            ),
            Property::always(
                "no answered write is lost with the server",
                |_, s: &State| {
                    s.step != Step::Ready || s.answered & !s.exposed(|b| b.present()) == 0
                },
            ),
            Property::sometimes("a kept block is written by a round", |_, s: &State| {
                s.step == Step::Serving && s.taken > 1 && s.acknowledged.count_ones() > 1
            }),
            Property::sometimes("kept blocks behind a round are restored", |_, s: &State| {
                s.step == Step::Ready && s.blocks.len() > s.taken && s.taken > 0
            }),
        ]
    }
}
