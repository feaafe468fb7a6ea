//! Generations, epochs and counters; members that come and go: docs/on-disk-format.md, section 2, 7.11 (recovery) and 7.16 (going on without a
//! cache).
//!
//! ```text
//!  opening:  agree ─► mend superblocks ─► *preparing* on all ─► *active* on all ─► serve
//!  a write:  raise the counters ─► data, and the values of the counters, on all ─► acknowledged
//! ```
//! A cache volume with two fast members (0, 1) and a disk (2). Every write goes to all members of the session, so that each of the fast ones
//! may be missing. Each step is durable before the next one begins, but power may fail in the middle of one. A member that is missing in an
//! opening may be there again in the next one, and a member may be replaced by an older copy of itself that was made between two writes.
//!
//! With five openings in a row, four of which are cut off, one invariant does not hold: a member that missed nothing may be refused.

use stateright::{Model, Property};

/// Number of members.
const MEMBERS: usize = 3;
const DISK: usize = 2;

rules! {
    SuperblocksTogether,
    OverwriteLastSuperblock,
    ActiveAtOnce,
    ForgetAbsent,
    HealRollback,
    NeverRaise,
    NameBeforeRaise,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Sessions {
    /// The members that exist, a bit each; the disk must be one of them.
    pub members: Set,
    /// Number of openings.
    pub openings: u8,
    /// Number of writes.
    pub writes: u8,
    /// The rule that is taken out.
    pub without: Option<Rule>,
}

/// A superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Superblock {
    generation: u8,
    epoch: u8,
    /// Generation and epoch of the last session that got past *preparing*.
    prev: (u8, u8),
    active: bool,
    /// The members that are missing in this session.
    absent: Set,
}

impl Superblock {
    /// Generation and epoch of the last session, up to this one, that may have written.
    fn wrote(self) -> (u8, u8) {
        if self.active {
            (self.generation, self.epoch)
        } else {
            self.prev
        }
    }
}

/// A set of members, a bit each.
pub type Set = u8;

fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..MEMBERS).filter(move |m| set >> m & 1 == 1)
}

/// What is on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Member {
    /// The two superblocks; `None`: torn.
    places: [Option<Superblock>; 2],
    /// The last write that it has.
    data: u8,
    counter: u8,
    /// The values of counters that it states.
    known: [u8; MEMBERS],
}

impl Member {
    /// The superblock that counts.
    fn superblock(&self) -> Option<Superblock> {
        let rank = |s: &Superblock| (s.generation, s.active);
        let [first, second] = self.places;
        // `max_by_key` takes the last of two that are equal.
        second.into_iter().chain(first).max_by_key(rank)
    }
}

/// A step that is durable when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Write a superblock to these places (a bit each) of a member.
    Superblock {
        member: usize,
        places: u8,
        superblock: Superblock,
    },
    /// Raise the member's counter to this value.
    Raise(usize, u8),
    /// Write data to a member, with the values of all counters.
    Write {
        member: usize,
        data: u8,
        known: [u8; MEMBERS],
    },
    Acknowledge(u8),
}

/// A session that is being opened, or serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Session {
    used: Set,
    known: [u8; MEMBERS],
    todo: Vec<Step>,
}

/// A state of the members, and of the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    members: [Member; MEMBERS],
    session: Option<Session>,
    /// An older copy of a member, and the members that are older copies of themselves.
    copy: Option<(usize, Member)>,
    old: Set,
    openings: u8,
    written: u8,
    acknowledged: u8,
    /// How the last opening ended.
    last: Opening,
}

/// The outcome of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Opening {
    None,
    Begun { used: Set, left_out: Set },
    Refused(Refusal),
}

/// Why an opening is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Refusal {
    Diverged,
    Stale,
    RolledBack,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The volume is opened with the members of this set, a bit each.
    Open(u8),
    /// A client writes.
    Write,
    /// The next step of the server ends.
    Step,
    /// Power fails. Of the step in progress, each of two places has what it had before (0), the new block (1), or a torn one (2).
    PowerFails([u8; 2]),
    /// A copy of a member is made.
    Copy(usize),
    /// The copy takes the member's place.
    PutBack,
}

impl Sessions {
    fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// The members of `present` that a session uses, and those that it leaves out; with the superblock that counts.
    fn agree(&self, s: &State, present: Set) -> Result<(Superblock, Set, Set), Refusal> {
        let found: Vec<(usize, Superblock)> = members(present)
            .filter_map(|m| Some((m, s.members[m].superblock()?)))
            .collect();
        // What a member states counts only up to the first session that began without it.
        let began_without = |&(m, sb): &(usize, Superblock)| {
            let without = |o: &Superblock| o.active && o.absent >> m & 1 == 1;
            found
                .iter()
                .any(|(_, o)| without(o) && o.generation > sb.wrote().0)
        };
        let (out, counting): (Vec<_>, Vec<_>) = found.iter().copied().partition(began_without);
        let mut left_out = out.iter().fold(0, |set, (m, _)| set | 1 << m);
        let rank = |&&(_, sb): &&(usize, Superblock)| (sb.generation, sb.active);
        let &(_, newest) = counting.iter().max_by_key(rank).ok_or(Refusal::Stale)?;
        let mut used = 0;
        for &(m, sb) in &counting {
            let own = (sb.generation, sb.epoch);
            // A session that got no further than *preparing* wrote nothing.
            let follows = own == newest.prev || (!sb.active && sb.prev == newest.prev);
            if own == (newest.generation, newest.epoch) || (!newest.active && follows) {
                used |= 1 << m;
            } else if newest.absent >> m & 1 == 1 {
                left_out |= 1 << m;
            } else if sb.generation == newest.generation {
                return Err(Refusal::Diverged);
            } else {
                return Err(Refusal::Stale);
            }
        }
        let known = State::known(s, used);
        let is_old = |m: usize| s.members[m].counter < known[m];
        if members(used).any(is_old) && !self.lacks(Rule::HealRollback) {
            return Err(Refusal::RolledBack);
        }
        Ok((newest, used, left_out))
    }

    fn open(&self, s: &State, present: Set) -> Result<(Session, Set), Refusal> {
        let (newest, used, left_out) = self.agree(s, present)?;
        let absent = self.members & !used;
        let preparing = Superblock {
            generation: newest.generation + 1,
            epoch: s.openings + 1,
            prev: newest.wrote(),
            active: false,
            absent: if self.lacks(Rule::ForgetAbsent) {
                0
            } else {
                absent
            },
        };
        let active = Superblock {
            active: true,
            ..preparing
        };
        let mut todo = Vec::new();
        // A torn superblock is written anew before the whole one is overwritten.
        for m in members(used).filter(|_| !self.lacks(Rule::OverwriteLastSuperblock)) {
            let places = s.members[m].places;
            let torn = (0..2).find(|&p| places[p].is_none());
            if let Some((torn, superblock)) = torn.and_then(|p| Some((p, places[1 - p]?))) {
                todo.push(Step::Superblock {
                    member: m,
                    places: 1 << torn,
                    superblock,
                });
            }
        }
        let together = self.lacks(Rule::SuperblocksTogether);
        let places: &[u8] = if together { &[0b11] } else { &[0b01, 0b10] };
        let at_once = self.lacks(Rule::ActiveAtOnce);
        let states = [preparing, active].into_iter().skip(usize::from(at_once));
        for superblock in states {
            for member in members(used) {
                todo.extend(places.iter().map(|&places| Step::Superblock {
                    member,
                    places,
                    superblock,
                }));
            }
        }
        let session = Session {
            used,
            known: State::known(s, used),
            todo,
        };
        Ok((session, left_out))
    }

    /// The steps of a write.
    fn write(&self, session: &mut Session, data: u8) {
        let mut raises = Vec::new();
        for m in members(session.used).filter(|_| !self.lacks(Rule::NeverRaise)) {
            session.known[m] += 1;
            raises.push(Step::Raise(m, session.known[m]));
        }
        let known = session.known;
        let mut writes: Vec<Step> = (members(session.used))
            .map(|member| Step::Write {
                member,
                data,
                known,
            })
            .collect();
        if self.lacks(Rule::NameBeforeRaise) {
            std::mem::swap(&mut raises, &mut writes);
        }
        session.todo.extend(raises.into_iter().chain(writes));
        session.todo.push(Step::Acknowledge(data));
    }
}

impl State {
    /// The highest values that these members state of all counters.
    fn known(&self, used: Set) -> [u8; MEMBERS] {
        let mut known = [0; MEMBERS];
        for m in members(used) {
            known[m] = known[m].max(self.members[m].counter);
            (0..MEMBERS).for_each(|i| known[i] = known[i].max(self.members[m].known[i]));
        }
        known
    }

    /// Carries out a step. `outcome`: what becomes of each of the two places of a superblock, as in [`Action::PowerFails`].
    fn carry_out(&mut self, step: Step, outcome: [u8; 2]) {
        match step {
            Step::Superblock {
                member,
                places,
                superblock,
            } => {
                for (place, how) in outcome.into_iter().enumerate() {
                    if places >> place & 1 == 1 && how > 0 {
                        self.members[member].places[place] = (how == 1).then_some(superblock);
                    }
                }
            }
            Step::Raise(m, value) => self.members[m].counter = value,
            Step::Write {
                member,
                data,
                known,
            } => {
                self.members[member].data = data;
                self.members[member].known = known;
            }
            Step::Acknowledge(data) => self.acknowledged = data,
        }
    }

    /// Whether the volume is closed, or serves and no write is in progress.
    fn is_quiet(&self) -> bool {
        self.session.as_ref().is_none_or(|s| s.todo.is_empty())
    }

    /// Whether one of these members proves what was acknowledged. Nothing can tell that all of them are older copies.
    fn is_provable(&self, present: Set) -> bool {
        members(present & !self.old).any(|m| self.members[m].data >= self.acknowledged)
    }
}

impl Model for Sessions {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let superblock = Superblock {
            generation: 1,
            epoch: 0,
            prev: (0, 0),
            active: true,
            absent: 0,
        };
        let member = Member {
            places: [Some(superblock); 2],
            data: 0,
            counter: 1,
            known: [1; MEMBERS],
        };
        vec![State {
            members: [member; MEMBERS],
            session: None,
            copy: None,
            old: 0,
            openings: 0,
            written: 0,
            acknowledged: 0,
            last: Opening::None,
        }]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        match &s.session {
            None if s.openings < self.openings => {
                let sets = (0..=self.members)
                    .filter(|set| set >> DISK & 1 == 1 && set & !self.members == 0);
                actions.extend(sets.filter(|&set| s.is_provable(set)).map(Action::Open));
            }
            None => {}
            Some(session) if session.todo.is_empty() => {
                actions.extend((s.written < self.writes).then_some(Action::Write));
                actions.push(Action::PowerFails([0, 0]));
            }
            Some(session) => {
                actions.push(Action::Step);
                let places = match session.todo[0] {
                    Step::Superblock { places, .. } => places,
                    _ => 0,
                };
                let outcomes = |place: u8| if places >> place & 1 == 1 { 0..3 } else { 0..1 };
                let all = outcomes(0).flat_map(|a| outcomes(1).map(move |b| [a, b]));
                actions.extend(all.map(Action::PowerFails));
            }
        }
        if s.copy.is_none() && s.is_quiet() {
            // (The fast members are alike.)
            actions.extend([0, DISK].map(Action::Copy));
        }
        if s.session.is_none() && s.copy.is_some_and(|(m, copy)| s.members[m] != copy) {
            actions.push(Action::PutBack);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut s = last.clone();
        match action {
            Action::Open(present) => {
                s.last = match self.open(&s, present) {
                    Ok((session, left_out)) => {
                        let used = session.used;
                        s.session = Some(session);
                        Opening::Begun { used, left_out }
                    }
                    Err(why) => Opening::Refused(why),
                };
                s.openings += 1;
            }
            Action::Write => {
                s.written += 1;
                self.write(s.session.as_mut()?, s.written);
            }
            Action::Step => {
                let step = s.session.as_mut()?.todo.remove(0);
                s.carry_out(step, [1, 1]);
            }
            Action::PowerFails(outcome) => {
                let todo = s.session.take()?.todo;
                if let Some(&step @ Step::Superblock { .. }) = todo.first() {
                    s.carry_out(step, outcome);
                }
            }
            Action::Copy(m) => s.copy = Some((m, s.members[m])),
            Action::PutBack => {
                let (m, copy) = s.copy?;
                s.members[m] = copy;
                s.old |= 1 << m;
            }
        }
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn begun(s: &State) -> (Set, Set) {
            match s.last {
                Opening::Begun { used, left_out } => (used, left_out),
                _ => (0, 0),
            }
        }
        fn refused(s: &State, why: Refusal) -> bool {
            s.last == Opening::Refused(why)
        }
        vec![
            Property::always(
                "no member is used that missed an acknowledged write",
                |_, s: &State| {
                    let has_all = |m: usize| s.members[m].data >= s.acknowledged;
                    s.session.is_none() || members(begun(s).0).all(has_all)
                },
            ),
            Property::always(
                "no opening is refused unless a member is an older copy",
                |_, s: &State| s.old != 0 || !matches!(s.last, Opening::Refused(_)),
            ),
            Property::always("a whole superblock is on each member", |_, s: &State| {
                s.members.iter().all(|m| m.superblock().is_some())
            }),
            Property::sometimes("the volume goes on without fast members", |_, s: &State| {
                s.acknowledged > 0 && begun(s).0 == 1 << DISK
            }),
            Property::sometimes("a member that missed writes is left out", |_, s: &State| {
                s.acknowledged > 0 && begun(s).1 != 0
            }),
            Property::sometimes("a member returns that missed nothing", |_, s: &State| {
                let generation = |m: usize| s.members[m].superblock().map(|sb| sb.generation);
                begun(s).0 & 1 == 1 && generation(0) < generation(DISK)
            }),
            Property::sometimes("an older copy is refused by its counter", |_, s: &State| {
                refused(s, Refusal::RolledBack)
            }),
            Property::sometimes(
                "an older copy is refused by its generation",
                |_, s: &State| refused(s, Refusal::Stale),
            ),
        ]
    }
}
