//! The copy of a file to the fastest tier, as a state machine: it returns the next step, the caller carries it out and passes in the result
//! (as in [`crate::mover`]).
//!
//! ```text
//!  look ─► copy to a hidden file ─► FREEZE ─► same as copied? ─► SWAP (from now on reads may use it)
//!             ▲                                  │ no
//!             └──────────────────────────────────┘ (three times, then it is abandoned)
//! ```
//!
//! A *head* is a copy of the first bytes only. It is made in the same way.
//!
//! The file at its home stays authoritative: it keeps its names, and every change is made there first. A copy is made durable only by a
//! clean unmount (`kept.rs`). After a crash, recovery removes all copies, so a copy that the crash left outdated or torn is never read.

use crate::mover::{Answer, CHUNK, Call, Outcome, Step, Why};
use crate::mutants::{Mutant, broken};
use crate::tree::{At, Facts, Id, REG, TYPE, Tier, copy_at};
use rustix::io::Errno;

/// How many times the file is copied if it is written during each copy. Then it is abandoned.
const TRIES: u32 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Look,
    Create,
    Copy,
    Freeze,
    Same,
    Swap,
    /// The copy is removed, and the file is copied again.
    Again,
    /// The copy is removed, and the operation ends.
    Undo,
}

/// See the module.
#[derive(Default)]
pub struct Fetch {
    state: State,
    number: u64,
    from: Tier,
    id: Id,
    name: Vec<u8>,
    facts: Facts,
    /// How many bytes are copied; more than any file has, for a whole copy.
    limit: u64,
    tries: u32,
    outcome: Outcome,
}

impl Fetch {
    /// Copies the file `id` with that name. No other copy of this mount may use the same `number`.
    pub fn new(number: u64, id: Id, name: Vec<u8>, from: Tier) -> Fetch {
        Fetch {
            number,
            id,
            name,
            from,
            limit: u64::MAX,
            ..Fetch::default()
        }
    }
    /// Copies only the first `bytes` bytes.
    #[must_use]
    pub fn head(self, bytes: u64) -> Fetch {
        Fetch {
            limit: bytes,
            ..self
        }
    }
    fn copy_from(&mut self, offset: u64) -> Step {
        let len = (self.limit - offset).min(CHUNK);
        let call = Call::Copy(self.source(), self.copy(), offset, len);
        self.call(State::Copy, call)
    }
    fn source(&self) -> At {
        At::new(self.from, self.name.clone())
    }
    fn copy(&self) -> At {
        copy_at(self.number)
    }
    fn call(&mut self, state: State, call: Call) -> Step {
        self.state = state;
        Step::Call(call)
    }
    /// The first step.
    pub fn start(&mut self) -> Step {
        self.call(State::Look, Call::Stat(self.source()))
    }
    /// The next step, given the result of the last one.
    pub fn next(&mut self, answer: Result<Answer, Errno>) -> Step {
        match (self.state, answer) {
            // If the copy could not be removed, the next mount removes it.
            (State::Undo, _) => Step::End(self.outcome),
            (State::Look | State::Create, Err(e)) => Step::End(outcome(e)),
            (_, Err(e)) => self.give_up(outcome(e)),
            (_, Ok(answer)) => self.succeeded(answer),
        }
    }
    fn succeeded(&mut self, answer: Answer) -> Step {
        match (self.state, answer) {
            (State::Look, Answer::Facts(Some(f))) if f.encrypted => {
                Step::End(Outcome::Refused(Why::Flags))
            }
            (State::Look, Answer::Facts(Some(f))) if f.id == self.id && f.mode & TYPE == REG => {
                self.facts = f;
                let needs = f.needs().min(self.limit);
                self.call(State::Create, Call::Create(self.copy(), needs))
            }
            (State::Look, _) => Step::End(Outcome::Refused(Why::Gone)),
            (State::Create, _) => self.copy_from(0),
            (State::Copy, Answer::Copied(Some(next))) if next < self.limit => self.copy_from(next),
            (State::Copy, _) => {
                self.state = State::Freeze;
                Step::Freeze
            }
            (State::Freeze, Answer::Frozen(names, written)) => {
                let Some(name) = names.into_iter().next() else {
                    return self.give_up(Outcome::Refused(Why::Gone));
                };
                self.name = name;
                if written && !broken(Mutant::TrustOldFetch) {
                    return self.again();
                }
                self.call(State::Same, Call::Stat(self.source()))
            }
            (State::Freeze, Answer::Forbidden(why)) => self.give_up(Outcome::Refused(why)),
            (State::Same, Answer::Facts(Some(now))) if now.id == self.id => {
                let same = (now.size, now.mtime, now.ctime)
                    == (self.facts.size, self.facts.mtime, self.facts.ctime);
                if !same && !broken(Mutant::TrustOldFetch) {
                    return self.again();
                }
                self.state = State::Swap;
                Step::Swap(self.id)
            }
            (State::Swap, _) => Step::End(Outcome::Done),
            (State::Again, Answer::Done) if self.tries < TRIES => self.start(),
            (State::Again, _) => self.give_up(Outcome::Refused(Why::Busy)),
            _ => self.give_up(Outcome::Refused(Why::Gone)),
        }
    }
    /// The file was written meanwhile. The caller thaws it, then the copy is removed.
    fn again(&mut self) -> Step {
        self.tries += 1;
        if self.tries >= TRIES {
            return self.give_up(Outcome::Refused(Why::Busy));
        }
        self.call(State::Again, Call::Unlink(self.copy()))
    }
    fn give_up(&mut self, outcome: Outcome) -> Step {
        self.outcome = outcome;
        self.call(State::Undo, Call::Unlink(self.copy()))
    }
}

fn outcome(e: Errno) -> Outcome {
    match e {
        Errno::NOSPC | Errno::DQUOT => Outcome::Refused(Why::Full),
        Errno::NOENT | Errno::STALE => Outcome::Refused(Why::Gone),
        e => Outcome::Failed(e),
    }
}
