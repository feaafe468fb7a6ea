//! The move of one file from one tier to another, as a state machine: it returns the next step, the caller carries it out and passes in the
//! result. The state machine does no I/O and holds no lock, so the hostile trees test the same code that moves files.
//!
//! ```text
//!  look ─► copy beside ─► sync ─► FREEZE ─► same as copied? ─► intent ─► names to the copy ─► SWAP ─► old names away ─► sync ─► no intent
//!             ▲                                  │ no
//!             └──────────────────────────────────┘ (three times, then the move is abandoned)
//! ```
//!
//! From FREEZE on, names must not change, and from FREEZE to SWAP the file must not be written; the caller ensures both. Before the intent
//! is written, the move can be abandoned at no cost. Once the intent is durable, recovery finishes the rest (`intent.rs`).

mod steps;

use crate::intent::{Op, chain, dirs_of, encode};
use crate::mutants::{Mutant, broken};
use crate::tree::{At, Facts, INTENTS, Id, REG, TEMPS, TYPE, Tier, join};
use rustix::io::Errno;
use std::collections::VecDeque;
use steps::as_call;
pub use steps::{Answer, CHUNK, Call, Outcome, Step, Why, carry_out};

/// How many times the file is copied if it is written during each copy. Then the move is abandoned.
const TRIES: u32 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Look,
    Create,
    Copy,
    Attributes,
    Number,
    SyncCopy,
    SyncTemps,
    IdOfCopy,
    Freeze,
    Same,
    Writable,
    Removable(usize),
    Clash(usize),
    Parents(usize),
    Chain,
    Intent,
    SyncIntent,
    SyncIntents,
    Place,
    Swap,
    Clean,
    SyncAll,
    EndIntent,
    SyncEnd,
    End,
    /// Abandon the move: first the calls that undo it, then the end.
    Undo,
    Again,
}

/// See the module.
#[derive(Default)]
pub struct Move {
    state: State,
    number: u64,
    from: Tier,
    to: Tier,
    id: Id,
    names: Vec<Vec<u8>>,
    /// The inode number that users see of the file, if it is to last.
    shown: Option<u64>,
    facts: Facts,
    copy: Id,
    copy_size: u64,
    ops: Vec<Op>,
    calls: VecDeque<Call>,
    offset: u64,
    tries: u32,
    frozen: bool,
    intent: bool,
    undo_error: Option<Errno>,
    outcome: Outcome,
}

impl Move {
    /// Moves the file `id` with these names. No other move of this mount may use the same `number`.
    pub fn new(number: u64, id: Id, names: Vec<Vec<u8>>, from: Tier, to: Tier) -> Move {
        Move {
            number,
            from,
            to,
            id,
            names,
            ..Move::default()
        }
    }
    /// Gives the copy the inode number that users see of the file.
    #[must_use]
    pub fn numbered(self, shown: u64) -> Move {
        Move {
            shown: Some(shown),
            ..self
        }
    }
    fn temp(&self) -> At {
        At::new(self.to, join(TEMPS, format!("m{}", self.number).as_bytes()))
    }
    fn intent_at(&self) -> At {
        At::new(0, join(INTENTS, format!("m{}", self.number).as_bytes()))
    }
    fn source(&self) -> At {
        At::new(self.from, self.names.first().cloned().unwrap_or_default())
    }
    /// The file.
    pub(crate) fn id(&self) -> Id {
        self.id
    }
    /// Bytes to copy, known after the first step.
    pub fn bytes(&self) -> u64 {
        self.facts.size
    }
    /// The offset up to which data was copied.
    pub fn copied(&self) -> u64 {
        self.offset
    }
    /// The first step.
    pub fn start(&mut self) -> Step {
        self.state = State::Look;
        Step::Call(Call::Stat(self.source()))
    }
    /// The next step, given the result of the last one.
    pub fn next(&mut self, answer: Result<Answer, Errno>) -> Step {
        match answer {
            Ok(answer) => self.succeeded(answer),
            Err(e) => self.failed(e),
        }
    }
    fn failed(&mut self, e: Errno) -> Step {
        match self.state {
            // The copy is at its place, or may be: recovery does the rest.
            State::Swap | State::Clean | State::SyncAll | State::EndIntent | State::SyncEnd => {
                self.end(Outcome::Stuck(e))
            }
            // It was not created, or is already removed.
            State::Undo | State::Again if e == Errno::NOENT => {
                if self.state == State::Undo {
                    self.undo()
                } else {
                    self.again()
                }
            }
            State::Undo => {
                if self.intent && self.undo_error.is_some() {
                    // It is uncertain whether the copy or the intent was removed.
                    return self.end(Outcome::Stuck(e));
                }
                self.undo_error = Some(e);
                self.undo()
            }
            State::Again => self.end(Outcome::Failed(e)),
            State::Create if e == Errno::EXIST => self.give_up(Outcome::Failed(e)),
            State::Look | State::Same if e == Errno::NOENT => self.refuse(Why::Gone),
            // What is open is not the file any more.
            State::Copy | State::Attributes if e == Errno::STALE => self.refuse(Why::Gone),
            // It was put there since the comparison.
            State::Place if e == Errno::EXIST => self.refuse(Why::Clash),
            _ if e == Errno::NOSPC || e == Errno::DQUOT => self.refuse(Why::Full),
            State::Attributes | State::Parents(_) if e == Errno::OPNOTSUPP || e == Errno::PERM => {
                self.refuse(Why::Attributes)
            }
            _ => self.give_up(Outcome::Failed(e)),
        }
    }
    fn refuse(&mut self, why: Why) -> Step {
        self.give_up(Outcome::Refused(why))
    }
    /// Removes what was created, then ends with this outcome. If the intent may be durable, either it or the copy must be removed with
    /// certainty before the file is written again; otherwise recovery would put an outdated copy into place.
    fn give_up(&mut self, outcome: Outcome) -> Step {
        self.outcome = outcome;
        if self.state == State::Look || self.state == State::Create {
            return self.end(outcome);
        }
        let temp = self.temp();
        self.calls.clear();
        if self.intent {
            for op in &self.ops {
                if let Op::Link(copy, at, to) | Op::Rename(copy, at, to) = op {
                    let new = At::new(at.tier, &to[..]);
                    self.calls.push_back(Call::UnlinkIf(new, *copy));
                }
            }
        }
        self.calls.push_back(Call::Unlink(temp.clone()));
        if self.intent {
            for dir in dirs_of(&self.ops) {
                if dir.tier == self.to {
                    self.calls.push_back(Call::SyncDir(dir));
                }
            }
            self.calls.push_back(Call::SyncDir(temp.parent()));
            self.calls.push_back(Call::Unlink(self.intent_at()));
            self.calls
                .push_back(Call::SyncDir(self.intent_at().parent()));
        }
        self.state = State::Undo;
        self.undo()
    }
    fn undo(&mut self) -> Step {
        match self.calls.pop_front() {
            Some(call) => Step::Call(call),
            None => self.end(self.outcome),
        }
    }
    fn end(&mut self, outcome: Outcome) -> Step {
        self.outcome = outcome;
        self.state = State::End;
        Step::End(outcome)
    }
    fn call(&mut self, state: State, call: Call) -> Step {
        self.state = state;
        Step::Call(call)
    }
    fn succeeded(&mut self, answer: Answer) -> Step {
        match (self.state, answer) {
            (State::Look, Answer::Facts(Some(f))) => self.looked(f),
            (State::Look, _) => self.refuse(Why::Gone),
            (State::Create, _) => {
                self.offset = 0;
                self.call(
                    State::Copy,
                    Call::Copy(self.source(), self.temp(), 0, CHUNK),
                )
            }
            (State::Copy, Answer::Copied(Some(next))) => {
                self.offset = next;
                let call = Call::Copy(self.source(), self.temp(), next, CHUNK);
                self.call(State::Copy, call)
            }
            (State::Copy, _) => {
                self.offset = self.facts.size;
                if broken(Mutant::ForgetAttributes) {
                    return self.call(State::SyncCopy, Call::SyncFile(self.temp()));
                }
                let call = Call::CopyAttributes(self.source(), self.temp());
                self.call(State::Attributes, call)
            }
            (State::Attributes, _) => {
                let shown = self.shown.filter(|_| !broken(Mutant::ForgetNumber));
                match shown {
                    Some(shown) => self.call(State::Number, Call::SetNumber(self.temp(), shown)),
                    None => self.attributes_done(),
                }
            }
            (State::Number, _) => self.attributes_done(),
            (State::SyncCopy, _) if broken(Mutant::SkipTempDirSync) => {
                self.call(State::IdOfCopy, Call::Stat(self.temp()))
            }
            (State::SyncCopy, _) => {
                self.call(State::SyncTemps, Call::SyncDir(self.temp().parent()))
            }
            (State::SyncTemps, _) => self.call(State::IdOfCopy, Call::Stat(self.temp())),
            (State::IdOfCopy, Answer::Facts(Some(f))) => {
                (self.copy, self.copy_size) = (f.id, f.size);
                self.state = State::Freeze;
                Step::Freeze
            }
            (State::Freeze, Answer::Forbidden(why)) => self.refuse(why),
            (State::Freeze, Answer::Frozen(names, written)) => self.frozen(names, written),
            (State::Same, Answer::Facts(f)) => self.compared(f),
            (State::Writable, _) => self.check_removable(0),
            (State::Removable(_), Answer::May(false)) => self.refuse(Why::Flags),
            (State::Removable(i), _) => self.check_removable(i + 1),
            (State::Clash(_), Answer::Facts(Some(_))) => self.refuse(Why::Clash),
            (State::Clash(i), _) => self.check_clash(i + 1),
            (State::Parents(i), _) => self.parents(i + 1),
            (State::Chain, _) => self.chained(),
            (State::Again, _) => self.again(),
            (State::Undo, _) => self.undo(),
            _ => self.after_intent(),
        }
    }
    /// The copy has all attributes.
    fn attributes_done(&mut self) -> Step {
        if broken(Mutant::SkipCopySync) {
            return self.call(State::SyncTemps, Call::SyncDir(self.temp().parent()));
        }
        self.call(State::SyncCopy, Call::SyncFile(self.temp()))
    }
    fn looked(&mut self, f: Facts) -> Step {
        if f.id != self.id || f.mode & TYPE != REG {
            return self.refuse(Why::Gone);
        }
        if f.nlink as usize != self.names.len() && !broken(Mutant::MoveOneName) {
            return self.refuse(Why::Links);
        }
        if (f.immutable || f.encrypted) && !broken(Mutant::IgnoreFlags) {
            return self.refuse(Why::Flags);
        }
        self.facts = f;
        self.call(State::Create, Call::Create(self.temp(), f.needs()))
    }
    fn frozen(&mut self, names: Vec<Vec<u8>>, written: bool) -> Step {
        self.frozen = true;
        self.names = names;
        if self.names.is_empty() {
            return self.refuse(Why::Gone);
        }
        if written && !broken(Mutant::TrustOldCopy) {
            return self.try_again();
        }
        self.call(State::Same, Call::Stat(self.source()))
    }
    /// Whether the source is still what was copied. Its access time does not count.
    fn compared(&mut self, now: Option<Facts>) -> Step {
        let Some(now) = now.filter(|n| n.id == self.id) else {
            return self.refuse(Why::Gone);
        };
        let same = Facts {
            atime: self.facts.atime,
            blocks: self.facts.blocks,
            ..now
        } == self.facts;
        if !same && !broken(Mutant::TrustOldCopy) {
            return self.try_again();
        }
        if now.nlink as usize != self.names.len() && !broken(Mutant::MoveOneName) {
            return self.refuse(Why::Links);
        }
        // The bytes of the copy are not read again: see docs/files.md.
        if self.copy_size != self.facts.size {
            return self.give_up(Outcome::Failed(Errno::IO));
        }
        if broken(Mutant::IgnoreFlags) {
            return self.check_clash(0);
        }
        if broken(Mutant::TrustSource) {
            return self.check_removable(0);
        }
        // The old names go last. If they could not, the move could neither end nor be undone.
        self.call(State::Writable, Call::ProveWritable(self.from))
    }
    /// Whether the old names can be removed: once the new ones are in place, it is too late to find out.
    fn check_removable(&mut self, i: usize) -> Step {
        match self.names.get(i) {
            Some(name) => {
                let at = At::new(self.from, &name[..]);
                self.call(State::Removable(i), Call::MayRemove(at))
            }
            None => self.check_clash(0),
        }
    }
    fn try_again(&mut self) -> Step {
        self.tries += 1;
        if self.tries >= TRIES {
            return self.refuse(Why::Busy);
        }
        self.frozen = false;
        self.calls = VecDeque::from([Call::Unlink(self.temp()), Call::Stat(self.source())]);
        self.state = State::Again;
        Step::Thaw
    }
    fn again(&mut self) -> Step {
        match self.calls.pop_front() {
            Some(call @ Call::Stat(_)) => self.call(State::Look, call),
            Some(call) => Step::Call(call),
            None => self.end(Outcome::Refused(Why::Busy)),
        }
    }
    fn check_clash(&mut self, i: usize) -> Step {
        match self.names.get(i) {
            Some(_) if i > 0 && broken(Mutant::OneClash) => self.parents(0),
            Some(name) => self.call(State::Clash(i), Call::Stat(At::new(self.to, &name[..]))),
            None => self.parents(0),
        }
    }
    fn parents(&mut self, i: usize) -> Step {
        if let Some(name) = self.names.get(i) {
            let at = At::new(self.to, &name[..]);
            return self.call(State::Parents(i), Call::MakeParents(at));
        }

        let names = self.names.iter().map(|n| &n[..]);
        self.calls = chain(self.to, names)
            .into_iter()
            .map(Call::SyncDir)
            .collect();
        if broken(Mutant::UnlinkFirst) {
            self.calls.push_back(Call::Unlink(self.source()));
        }
        self.chained()
    }
    fn chained(&mut self) -> Step {
        match self.calls.pop_front() {
            Some(call) => self.call(State::Chain, call),
            None => self.decide(),
        }
    }
    /// All checks are done: write the intent.
    fn decide(&mut self) -> Step {
        let (temp, names) = (self.temp(), self.names.clone());
        let names = if broken(Mutant::MoveOneName) {
            names[..1].to_vec()
        } else {
            names
        };
        let one = names.len() == 1;
        self.ops = if one {
            vec![Op::Rename(self.copy, temp.clone(), names[0].clone())]
        } else {
            let link = |n: &Vec<u8>| Op::Link(self.copy, temp.clone(), n.clone());
            names.iter().map(link).collect()
        };
        for name in &self.names {
            let old = At::new(self.from, &name[..]);
            self.ops.push(Op::Unlink(self.id, old));
        }
        if !one {
            // This comes last, and only after all new names are durable: until then recovery needs it.
            self.ops.push(Op::Unlink(self.copy, temp));
        }
        if broken(Mutant::SkipIntent) {
            return self.place();
        }
        self.intent = true;
        let call = Call::Write(self.intent_at(), encode(&self.ops));
        self.call(State::Intent, call)
    }
    fn place(&mut self) -> Step {
        let new = self.ops.iter().filter(|op| !matches!(op, Op::Unlink(..)));
        self.calls = new.map(as_call).collect();
        self.state = State::Place;
        self.after_intent()
    }
    fn after_intent(&mut self) -> Step {
        match self.state {
            State::Intent if broken(Mutant::SkipIntentSync) => self.place(),
            State::Intent => self.call(State::SyncIntent, Call::SyncFile(self.intent_at())),
            State::SyncIntent => {
                self.call(State::SyncIntents, Call::SyncDir(self.intent_at().parent()))
            }
            State::SyncIntents => self.place(),
            State::Place => {
                if let Some(call) = self.calls.pop_front() {
                    return Step::Call(call);
                }
                self.state = State::Swap;
                Step::Swap(self.copy)
            }
            State::Swap => {
                let old = self.ops.iter().filter(|op| op.at().tier == self.from);
                self.calls = old.map(as_call).collect();
                self.state = State::Clean;
                self.after_intent()
            }
            State::Clean => {
                if let Some(call) = self.calls.pop_front() {
                    return Step::Call(call);
                }

                let dirs = dirs_of(&self.ops).into_iter();
                let dirs = dirs.filter(|d| !broken(Mutant::ForgetTargetSync) || d.tier != self.to);
                self.calls = dirs.map(Call::SyncDir).collect();
                if let Some(last @ Op::Unlink(..)) = self.ops.last()
                    && last.at().tier == self.to
                {
                    self.calls.push_back(as_call(last));
                    self.calls.push_back(Call::SyncDir(last.at().parent()));
                }
                self.state = State::SyncAll;
                self.after_intent()
            }
            State::SyncAll => match self.calls.pop_front() {
                Some(call) => Step::Call(call),
                None if !self.intent => self.end(Outcome::Done),
                None => self.call(State::EndIntent, Call::Unlink(self.intent_at())),
            },
            State::EndIntent => self.call(State::SyncEnd, Call::SyncDir(self.intent_at().parent())),
            State::SyncEnd => self.end(Outcome::Done),
            _ => self.give_up(Outcome::Failed(Errno::IO)),
        }
    }
}
