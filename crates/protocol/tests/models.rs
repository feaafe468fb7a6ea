//! Every model holds over its stated size, and does not without any of its rules.

use isotherm_core::engine::MUTANTS;
use isotherm_protocol::journal::Rings;
use isotherm_protocol::{Explored, adopt, explore, journal, kept, round, sessions, stamp};
use std::collections::BTreeSet;
use std::fmt::Debug;

/// Explores a model with all of its rules: it must hold, have this many states, and reach all that it must.
fn holds(name: &str, least: usize, explored: &Explored) {
    println!(
        "{name}: {} states, at most {} actions away",
        explored.states,
        explored.depth - 1
    );
    assert!(
        explored.missed.is_empty(),
        "{name}: {:?} was not reached",
        explored.missed
    );
    assert_eq!(explored.broken, None, "{name}");
    assert!(
        explored.states >= least,
        "{name}: {} states",
        explored.states
    );
}

/// Explores a model without each of its rules: a property must break.
fn needs<R: Copy + Debug>(rules: &[R], without: impl Fn(R) -> Explored) {
    let mut needless = Vec::new();
    for &rule in rules {
        let explored = without(rule);
        let Some((property, actions)) = explored.broken else {
            println!("{rule:?}: not found in {} states", explored.states);
            needless.push(rule);
            continue;
        };
        let (n, states) = (actions.len(), explored.states);
        println!(
            "{rule:?}: {property}: found by {n} actions, after {states} states: {}",
            actions.join(", ")
        );
    }
    assert!(needless.is_empty(), "no property needs {needless:?}");
}

fn round(requests: u8, without: Option<round::Rule>) -> Explored {
    explore(&round::Round {
        requests,
        rounds: 3,
        without,
    })
}

#[test]
fn rounds_lose_nothing() {
    holds("rounds", 800_000, &round(4, None));
}

#[test]
fn rounds_need_their_rules() {
    needs(round::RULES, |rule| round(3, Some(rule)));
}

/// Two fast members and few openings, or one and more of them.
fn sessions(members: u8, openings: u8, without: Option<sessions::Rule>) -> Explored {
    let writes = 1;
    explore(&sessions::Sessions {
        members,
        openings,
        writes,
        without,
    })
}

#[test]
fn sessions_of_three_members_use_none_that_missed_writes() {
    holds(
        "sessions of three members",
        1_300_000,
        &sessions(0b111, 3, None),
    );
}

#[test]
fn sessions_of_two_members_use_none_that_missed_writes() {
    holds(
        "sessions of two members",
        900_000,
        &sessions(0b101, 4, None),
    );
}

#[test]
fn sessions_need_their_rules() {
    needs(sessions::RULES, |rule| sessions(0b101, 3, Some(rule)));
}

fn stamp(servers: usize, one_machine: bool, without: Option<stamp::Rule>) -> Explored {
    explore(&stamp::Stamp {
        servers,
        one_machine,
        without,
    })
}

#[test]
fn stamps_exclude_a_second_writer() {
    holds(
        "servers on machines of their own",
        29_000,
        &stamp(3, false, None),
    );
    holds("servers on one machine", 1000, &stamp(3, true, None));
}

#[test]
fn stamps_need_their_rules() {
    needs(stamp::RULES, |rule| {
        stamp(2, rule == stamp::Rule::LiveHasEnded, Some(rule))
    });
}

fn adoption(without: Option<adopt::Rule>) -> Explored {
    explore(&adopt::Adoption {
        adoptions: 3,
        writes: 4,
        without,
    })
}

#[test]
fn adoption_and_release_lose_nothing() {
    holds("adoption and release", 3_000, &adoption(None));
}

#[test]
fn adoption_and_release_need_their_rules() {
    needs(adopt::RULES, |rule| adoption(Some(rule)));
}

fn kept(without: Option<kept::Rule>) -> Explored {
    explore(&kept::Kept {
        writes: 4,
        rounds: 3,
        without,
    })
}

#[test]
fn kept_records_survive_the_server() {
    holds("kept records", 280_000, &kept(None));
}

#[test]
fn kept_records_need_their_rules() {
    needs(kept::RULES, |rule| kept(Some(rule)));
}

fn journal(rings: Rings, without: Option<journal::Rule>) -> Explored {
    // Of a ring that is new, what matters is its first session.
    let (openings, damages) = if rings == Rings::First {
        (2, 2)
    } else {
        (1, 1)
    };
    explore(&journal::Journal {
        blocks: 3,
        openings,
        damages,
        rings,
        without,
    })
}

#[test]
fn recovery_finds_the_journal() {
    holds("journal", 560_000, &journal(Rings::First, None));
    holds("journal in a new ring", 140_000, &journal(Rings::New, None));
    holds(
        "journal in a new ring, synchronous",
        80_000,
        &journal(Rings::NewExact, None),
    );
}

#[test]
fn recovery_needs_its_rules() {
    needs(journal::RULES, |rule| {
        let rings = match rule {
            journal::Rule::DoubtFirstBlocks => Rings::NewExact,
            journal::Rule::TrustLaggingMirror => Rings::New,
            _ => Rings::First,
        };
        journal(rings, Some(rule))
    });
}

/// The rules have the names of the mutants, in the engine or in the server. (Those of the server are a part of a crate that links its front
/// ends, so its list is read as text.)
#[test]
fn rules_are_mutants() {
    let engine = MUTANTS.iter().map(|m| format!("{m:?}"));
    let server = include_str!("../../live/src/mutants.rs").lines();
    let server = server.filter_map(|l| {
        Some(
            l.trim()
                .strip_prefix("LiveMutant::")?
                .trim_end_matches(',')
                .to_owned(),
        )
    });
    let mutants: BTreeSet<String> = engine.chain(server).collect();
    let rules = [
        words(adopt::RULES),
        words(journal::RULES),
        words(kept::RULES),
        words(round::RULES),
        words(sessions::RULES),
        words(stamp::RULES),
    ];
    let rules: Vec<String> = rules.into_iter().flatten().collect();
    println!("{} rules", rules.len());
    let strangers: Vec<_> = rules.iter().filter(|r| !mutants.contains(*r)).collect();
    assert!(strangers.is_empty(), "no mutant is called {strangers:?}");
    assert!(rules.len() >= 12);
}

fn words(rules: &[impl Debug]) -> Vec<String> {
    rules.iter().map(|r| format!("{r:?}")).collect()
}
