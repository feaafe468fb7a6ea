//! The journal on primary and mirror, and its recovery: docs/on-disk-format.md, section 3 (journal), 7.10 (mirror lag), 7.11 (recovery) and
//! 7.19 (damage).
//!
//! ```text
//!  serving:   write the next blocks on the primary, perhaps what the mirror lacks there ─► flush ─► acknowledged
//!  recovery:  flush every member ─► follow the chain on both ─► write what one of them lacks ─► flush ─► a session begins
//! ```
//! A block is two sectors: one with its contents, and padding that is equal in all blocks. A device writes each of them from its cache to the
//! medium at any time. So a block may be torn, and a later torn write may make an earlier block whole again. The journal is never so long that
//! it wraps. Of blocks that something else states to have been durable, the medium may damage some.

pub mod log;

use stateright::{Model, Property};

rules! {
    AllowLostSession,
    RefuseMirrorAhead,
    PassHole,
    LeavePrimaryTorn,
    ResyncWithoutFlush,
    DoubtFirstBlocks,
    TrustLaggingMirror,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Journal {
    /// Number of blocks, of all sessions together.
    pub blocks: usize,
    /// Number of openings.
    pub openings: u8,
    /// Number of blocks that the medium damages.
    pub damages: u8,
    /// What the rings are when the first session begins.
    pub rings: Rings,
    /// The rule that is taken out.
    pub without: Option<Rule>,
}

/// The rings at the begin of the first session, which has a checkpoint there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rings {
    /// Those of a new volume.
    First,
    /// The primary's is new, on a device that took the place of a member, and `void at` says so. All of it may be damaged at once.
    New,
    /// The same, and the mirror is synchronous: it has what was acknowledged.
    NewExact,
}

/// The carriers of the journal.
const PRIMARY: usize = 0;
const MIRROR: usize = 1;

/// The name of a block: its index among all that were ever made.
type Id = u8;

/// A block as it was made. Blocks of two sessions may have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Block {
    seq: usize,
    epoch: u8,
    /// The block before it, which epoch and checksum name.
    prev: Option<Id>,
    last_flushed: usize,
}

/// The place of a block on one carrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Place {
    /// Whose contents are on the medium.
    contents: Option<Id>,
    /// Whether the padding of some block is on the medium.
    padding: bool,
    /// What the device's cache has, and which of its sectors are not on the medium: contents, padding.
    cache: Option<Id>,
    left: [bool; 2],
}

impl Place {
    fn write(&mut self, id: Id) {
        (self.cache, self.left) = (Some(id), [true; 2]);
    }
    fn reaches(&mut self, sector: usize) {
        match sector {
            0 => self.contents = self.cache,
            _ => self.padding = true,
        }
        self.left[sector] = false;
        self.cache = self.cache.filter(|_| self.left != [false; 2]);
    }
    fn flush(&mut self) {
        (0..2)
            .filter(|&i| self.left[i])
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|i| self.reaches(i));
    }
    fn lose(&mut self) {
        (self.cache, self.left) = (None, [false; 2]);
    }
    fn present(self) -> Option<Id> {
        self.cache.or(self.contents.filter(|_| self.padding))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Power has failed, or the server was killed.
    Down,
    /// What a carrier lacked has been written there.
    Resyncing,
    Serving,
    /// Blocks were written that are not flushed.
    InRound,
    /// Damage was found, and the volume is not opened.
    Refused,
}

/// A state of the two carriers, and of the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    step: Step,
    made: Vec<Block>,
    rings: [Vec<Place>; 2],
    /// Of the superblocks: the epoch of the last session, and the number of its first block.
    epoch: u8,
    first_seq: usize,
    /// The blocks of the journal, as recovery found them and the session went on.
    chain: Vec<Id>,
    /// The highest number that was written to the primary and to the mirror, and the highest that is known to be durable there.
    written: [usize; 2],
    flushed: [usize; 2],
    /// The journal as the last session that served has found it, and the blocks of it and of that session that were acknowledged.
    shown: Vec<Id>,
    acknowledged: Vec<Id>,
    damages: u8,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The members are flushed, the journal is read, and each carrier gets what it lacks.
    Open,
    /// These writes are flushed, and a session begins.
    Begin,
    /// A round writes a block on the primary.
    Write,
    /// It writes what the mirror lacks.
    Mirror,
    /// The round ends with a flush.
    End,
    /// A device writes a sector of a block from its cache: the carrier, the number of the block, 0 for its contents and 1 for the padding.
    Reaches(usize, usize, usize),
    /// The server is killed.
    Kill,
    /// Power fails.
    PowerFails,
    /// The medium damages the block of a number on a carrier.
    Damage(usize, usize),
    /// The medium damages all of the primary's ring.
    DamageRing,
}

impl Journal {
    fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// The blocks of the journal; `None` if the volume is refused.
    fn recover(&self, s: &State) -> Option<Vec<Id>> {
        let mut chain: Vec<Id> = Vec::new();
        let (mut lacked, mut proven) = (Vec::new(), s.first_seq - 1);
        loop {
            let seq = chain.len() + 1;
            let counts = |&id: &Id| {
                let b = s.made[usize::from(id)];
                let of_session = seq < s.first_seq || b.epoch == s.epoch;
                b.prev == chain.last().copied()
                    && (of_session || self.lacks(Rule::AllowLostSession))
            };
            let at = |carrier: usize| s.at(carrier, seq).filter(counts);
            let Some(id) = at(PRIMARY).or(at(MIRROR)) else {
                break;
            };
            if at(PRIMARY).is_none() {
                lacked.push(seq);
            }
            proven = proven.max(s.made[usize::from(id)].last_flushed);
            chain.push(id);
        }
        let end = chain.len() + 1;
        let states = |seq| {
            s.at(PRIMARY, seq)
                .map_or(0, |id| s.made[usize::from(id)].last_flushed)
        };
        let hole = end <= proven || (end + 1..=self.blocks).any(|seq| states(seq) >= end);
        // The newest block that was certainly durable tells which ones followed it. If there is none, a ring that was in use is not empty.
        let doubt = if proven > 0 {
            lacked.contains(&proven)
        } else {
            let empty = (1..=self.blocks).all(|seq| s.at(PRIMARY, seq).is_none());
            self.rings != Rings::First && empty && end > 1 && !self.trusts_first_blocks()
        };
        let ahead = lacked.iter().any(|&seq| seq > proven) && self.lacks(Rule::RefuseMirrorAhead);
        let refused = (hole || doubt) && !self.lacks(Rule::PassHole);
        (!refused && !ahead).then_some(chain)
    }

    /// Whether the first blocks of a ring, which was empty when they were written, may be on the mirror alone.
    fn trusts_first_blocks(&self) -> bool {
        let exact = self.rings == Rings::NewExact || self.lacks(Rule::TrustLaggingMirror);
        exact && !self.lacks(Rule::DoubtFirstBlocks)
    }

    fn open(&self, s: &mut State) {
        s.flush(PRIMARY);
        s.flush(MIRROR);
        let Some(chain) = self.recover(s) else {
            s.step = Step::Refused;
            return;
        };
        for carrier in [PRIMARY, MIRROR] {
            for (i, &id) in chain.iter().enumerate() {
                let leaves = carrier == PRIMARY && self.lacks(Rule::LeavePrimaryTorn);
                if s.rings[carrier][i].present() != Some(id) && !leaves {
                    s.rings[carrier][i].write(id);
                }
            }
        }
        s.chain = chain;
        s.step = Step::Resyncing;
    }

    fn write(s: &mut State) {
        let (id, seq) = (s.made.len() as Id, s.chain.len() + 1);
        s.made.push(Block {
            seq,
            epoch: s.epoch,
            prev: s.chain.last().copied(),
            last_flushed: s.flushed[PRIMARY],
        });
        s.chain.push(id);
        s.rings[PRIMARY][seq - 1].write(id);
        s.written[PRIMARY] = seq;
        s.step = Step::InRound;
    }
}

impl State {
    /// The whole block of this number on a carrier.
    fn at(&self, carrier: usize, seq: usize) -> Option<Id> {
        let place = self.rings[carrier].get(seq - 1)?;
        place
            .present()
            .filter(|&id| self.made[usize::from(id)].seq == seq)
    }

    fn flush(&mut self, carrier: usize) {
        self.rings[carrier].iter_mut().for_each(Place::flush);
    }

    /// Whether something else than this block states that it was durable.
    fn is_stated(&self, seq: usize) -> bool {
        let states = |p: &Place| {
            let id = p.contents.filter(|_| p.padding);
            id.is_some_and(|id| self.made[usize::from(id)].last_flushed >= seq)
        };
        seq < self.first_seq || self.rings[PRIMARY].iter().skip(seq).any(states)
    }
}

impl Model for Journal {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            step: Step::Serving,
            made: Vec::new(),
            rings: [PRIMARY, MIRROR].map(|_| vec![Place::default(); self.blocks]),
            epoch: 0,
            first_seq: 1,
            chain: Vec::new(),
            written: [0; 2],
            flushed: [0; 2],
            shown: Vec::new(),
            acknowledged: Vec::new(),
            damages: 0,
        }]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        match s.step {
            Step::Down if s.epoch < self.openings => actions.push(Action::Open),
            Step::Resyncing => actions.push(Action::Begin),
            Step::Serving | Step::InRound => {
                actions.extend((s.made.len() < self.blocks).then_some(Action::Write));
                let lags = s.written[MIRROR] < s.chain.len();
                actions.extend(lags.then_some(Action::Mirror));
                let whole = self.rings != Rings::NewExact || !lags;
                actions.extend((s.step == Step::InRound && whole).then_some(Action::End));
            }
            Step::Refused => return,
            Step::Down => {}
        }
        if s.step == Step::Down {
            for carrier in [PRIMARY, MIRROR] {
                let whole = |&seq: &usize| s.at(carrier, seq).is_some() && s.is_stated(seq);
                let some = (1..=self.blocks)
                    .filter(|_| s.damages < self.damages)
                    .filter(whole);
                actions.extend(some.map(|seq| Action::Damage(carrier, seq)));
            }
            let named = s.at(PRIMARY, 1).is_some() && s.at(MIRROR, 1).is_some();
            if self.rings == Rings::New && named && s.damages < self.damages {
                actions.push(Action::DamageRing);
            }
        } else {
            actions.extend([Action::Kill, Action::PowerFails]);
        }
        for (carrier, ring) in s.rings.iter().enumerate() {
            for (i, place) in ring.iter().enumerate() {
                let left = (0..2).filter(|&sector| place.left[sector]);
                actions.extend(left.map(|sector| Action::Reaches(carrier, i + 1, sector)));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut s = last.clone();
        match action {
            Action::Open => self.open(&mut s),
            Action::Begin => {
                if !self.lacks(Rule::ResyncWithoutFlush) {
                    s.flush(PRIMARY);
                    s.flush(MIRROR);
                }
                s.epoch += 1;
                s.first_seq = s.chain.len() + 1;
                s.written = [s.chain.len(); 2];
                s.flushed = s.written;
                s.shown.clone_from(&s.chain);
                s.step = Step::Serving;
            }
            Action::Write => Journal::write(&mut s),
            Action::Mirror => {
                for (i, &id) in s.chain.iter().enumerate().skip(s.written[MIRROR]) {
                    s.rings[MIRROR][i].write(id);
                }
                s.written[MIRROR] = s.chain.len();
                s.step = Step::InRound;
            }
            Action::End => {
                s.flush(PRIMARY);
                s.flush(MIRROR);
                s.flushed = s.written;
                s.acknowledged.clone_from(&s.chain);
                s.step = Step::Serving;
            }
            Action::Reaches(carrier, seq, sector) => s.rings[carrier][seq - 1].reaches(sector),
            Action::Kill => s.step = Step::Down,
            Action::PowerFails => {
                s.rings.iter_mut().flatten().for_each(Place::lose);
                s.step = Step::Down;
            }
            Action::Damage(carrier, seq) => {
                s.damages += 1;
                s.rings[carrier][seq - 1] = Place::default();
            }
            Action::DamageRing => {
                s.damages = self.damages;
                s.rings[PRIMARY].fill(Place::default());
            }
        }
        if s.step == Step::Down {
            // Nobody is left who knows it.
            (s.chain, s.written, s.flushed) = (Vec::new(), [0; 2], [0; 2]);
        }
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("no acknowledged block is lost", |_, s: &State| {
                s.step != Step::Resyncing || s.chain.starts_with(&s.acknowledged)
            }),
            Property::always(
                "what recovery has shown stays, and nothing else returns",
                |_, s: &State| {
                    let later = |&id: &Id| s.made[usize::from(id)].epoch == s.epoch;
                    s.step != Step::Resyncing
                        || (s.chain.starts_with(&s.shown)
                            && s.chain[s.shown.len()..].iter().all(later))
                },
            ),
            // (A loss of power in the first round of a new ring may look like damage if the mirror lags.)
            Property::always(
                "nothing is refused unless a block is damaged",
                |m: &Journal, s: &State| {
                    s.step != Step::Refused || s.damages > 0 || m.rings == Rings::New
                },
            ),
        ];
        if self.rings != Rings::New {
            all.push(Property::sometimes(
                "a block that only the mirror has is used",
                |_, s: &State| {
                    s.step == Step::Resyncing && s.rings[PRIMARY].iter().any(|p| p.cache.is_some())
                },
            ));
        }
        if self.rings != Rings::NewExact {
            all.push(Property::sometimes("a hole is refused", |_, s: &State| {
                s.step == Step::Refused
            }));
        }
        if self.rings == Rings::First {
            all.push(Property::sometimes(
                "a damaged block is read from the mirror",
                |_, s: &State| {
                    s.step == Step::Resyncing && s.damages > 0 && s.acknowledged.len() > 1
                },
            ));
            all.push(Property::sometimes(
                "two sessions made a block of one number",
                |_, s: &State| {
                    s.made.len() > s.chain.len() && s.epoch > 0 && s.acknowledged.len() > 1
                },
            ));
        }
        all
    }
}
