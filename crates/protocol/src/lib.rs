//! The protocol, checked apart from the code: small models of what `docs/on-disk-format.md` says, each to be read beside that page.
//!
//! A model has a state, the actions that lead from a state to others (also those of devices that lose, reorder and tear what was not
//! flushed, and of servers that die or pause), and properties. `stateright` visits **every** state that the actions reach within the size
//! that the model states. A property that holds there holds in all of these states, in all orders of events. (States are told apart by hashes
//! of 64 bits. The probability that two of two million are taken for one is about 10⁻⁷.)
//!
//! Each model has rules, with the names of the mutants that take them out of the engine (`crates/core/src/mutants.rs`) or of the server
//! (`crates/live/src/mutants.rs`). Without one of its rules a model must break a property: so the rule is needed, and the model sees why.
//!
//! | model | the format page |
//! |---|---|
//! | [`round`] | FLUSH, FUA, discard, move: 7.2, 7.4 to 7.6, 7.8, 7.10 |
//! | [`kept`] | records that are kept for the next server: 7.4 |
//! | [`journal`] | journal, mirror, recovery and damage: 3, 7.10, 7.11, 7.19 |
//! | [`sessions`] | superblocks, counters, opening, members that come and go: 2, 7.11, 7.16 |
//! | [`adopt`] | adoption and release of a disk that holds data: 1 (disks of a cache volume), 7.20, 7.21 |
//! | [`stamp`] | the activity stamp: 2, and `docs/serving.md` (two servers) |

/// The rules of a model that can be taken out, and the list of them.
macro_rules! rules {
    ($($rule:ident),+ $(,)?) => {
        /// The rules that can be taken out; the names are those of the mutants.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Rule {
            $($rule),+
        }
        /// All rules of this model.
        pub const RULES: &[Rule] = &[$(Rule::$rule),+];
    };
}

pub mod adopt;
pub mod journal;
pub mod kept;
pub mod round;
pub mod sessions;
pub mod stamp;

use stateright::{Checker, HasDiscoveries, Model};
use std::fmt::Debug;
use std::hash::Hash;

/// What an exploration found.
#[derive(Debug)]
pub struct Explored {
    /// Number of different states.
    pub states: usize,
    /// Number of actions on the longest way to a state that was first reached on that way.
    pub depth: usize,
    /// The property that does not hold, and the shortest sequence of actions that breaks it.
    pub broken: Option<(&'static str, Vec<String>)>,
    /// What must be reachable, and is not: then the exploration says nothing.
    pub missed: Vec<&'static str>,
}

/// Visits every state of a model, in the order of their distance from the first one, or those up to the first one in which a property does not hold.
pub fn explore<M>(model: &M) -> Explored
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let mut explored = visit(model.clone(), usize::MAX);
    // The first sequence that is found need not be the shortest.
    while let Some((_, actions)) = &explored.broken {
        let Some(shorter) = visit(model.clone(), actions.len() + 1).broken else {
            break;
        };
        explored.broken = Some(shorter);
    }
    explored
}

/// Visits the states that are less than `depth` states away from the first one.
fn visit<M>(model: M, depth: usize) -> Explored
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let end = HasDiscoveries::AnyFailures;
    let checker = model.checker().finish_when(end).target_max_depth(depth);
    let checker = checker.spawn_bfs().join();
    let mut explored = Explored {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        broken: None,
        missed: Vec::new(),
    };
    for property in checker.model().properties() {
        let fails = property.expectation.discovery_is_failure();
        match checker.discovery(property.name) {
            Some(path) if fails => {
                let actions = path.into_actions();
                let words = actions.iter().map(|a| format!("{a:?}")).collect();
                explored.broken.get_or_insert((property.name, words));
            }
            None if !fails => explored.missed.push(property.name),
            _ => {}
        }
    }
    explored
}
