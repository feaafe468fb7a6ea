//! Whether the model of the journal accepts what a volume did: each event must be an action of the model, in a state in which the model has it.
//!
//! What a device has written from its cache by the time of a loss of power is not in a log. So all possibilities are followed
//! ([`Action::Reaches`]), until an opening tells how many blocks were there.

use super::{Action, Journal, Model, PRIMARY, State, Step};
use std::collections::HashSet;

/// An event of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write of this block to the primary begins. It states which blocks were durable there.
    Write {
        /// Its number.
        seq: u64,
        /// The field `last flushed` of its header.
        last_flushed: u64,
    },
    /// A write of the blocks that the mirror lacks, up to this one, begins.
    Mirror {
        /// The number of the last one.
        seq: u64,
    },
    /// All of these writes are durable.
    End,
    /// Power fails.
    PowerFails,
    /// The volume was opened, and its journal ends before this number.
    Opened {
        /// The number of the next block.
        next_seq: u64,
    },
}

/// Follows a log from the creation of a volume on. Returns the number of states that are possible at its end.
///
/// # Errors
/// The model does not accept an event: its place in the log, and what it is.
pub fn accept(log: &[Event]) -> Result<usize, String> {
    let blocks = log
        .iter()
        .filter(|e| matches!(e, Event::Write { .. }))
        .count();
    let openings = log
        .iter()
        .filter(|e| matches!(e, Event::Opened { .. }))
        .count();
    let model = Journal {
        blocks,
        openings: openings as u8,
        damages: 0,
        rings: super::Rings::First,
        without: None,
    };
    let mut states: HashSet<State> = model.init_states().into_iter().collect();
    for (place, &event) in log.iter().enumerate() {
        states = states.iter().flat_map(|s| model.follow(s, event)).collect();
        if states.is_empty() {
            return Err(format!("event {place} is none of the model: {event:?}"));
        }
    }
    Ok(states.len())
}

impl Journal {
    /// The states to which this action leads, if the model has it here.
    fn act(&self, s: &State, action: Action) -> Option<State> {
        let mut actions = Vec::new();
        self.actions(s, &mut actions);
        self.next_state(s, action)
            .filter(|_| actions.contains(&action))
    }

    fn follow(&self, s: &State, event: Event) -> Vec<State> {
        let one = match event {
            Event::Write { seq, last_flushed } => {
                let stated = last_flushed as usize <= s.flushed[PRIMARY];
                let next = self.act(s, Action::Write).filter(|_| stated);
                next.filter(|next| next.chain.len() == seq as usize)
            }
            Event::Mirror { seq } => {
                let all = s.chain.len() == seq as usize;
                self.act(s, Action::Mirror).filter(|_| all)
            }
            Event::End => self.act(s, Action::End),
            Event::PowerFails => return self.power_fails(s),
            Event::Opened { next_seq } => {
                let read = self.act(s, Action::Open);
                let read = read.filter(|r| r.step == Step::Resyncing);
                let read = read.filter(|r| r.chain.len() + 1 == next_seq as usize);
                read.and_then(|r| self.act(&r, Action::Begin))
            }
        };
        one.into_iter().collect()
    }

    /// All that a loss of power may leave.
    fn power_fails(&self, s: &State) -> Vec<State> {
        let (mut all, mut todo) = (HashSet::from([s.clone()]), vec![s.clone()]);
        while let Some(s) = todo.pop() {
            let mut actions = Vec::new();
            self.actions(&s, &mut actions);
            actions.retain(|a| matches!(a, Action::Reaches(..)));
            for next in actions.into_iter().filter_map(|a| self.next_state(&s, a)) {
                if all.insert(next.clone()) {
                    todo.push(next);
                }
            }
        }
        let cut = |s: &State| self.act(s, Action::PowerFails);
        all.iter().filter_map(cut).collect()
    }
}
