//! A directory joins, and at each single call the process is killed, or from that call on a disk does not answer.

use crate::Place;
use crate::join::{is_whole, numbers, others_are_whole, place};
use isotherm_files::mutants::{Mutant, calls, choose, fault};
use std::process::Command;

/// The process that lets a directory join: with this variable it is one, which says where, and what happens when.
const FAULT: &str = "ISOTHERM_TEST_JOIN_FAULT";
/// The end of a process in which it did not happen.
const NEVER: i32 = 9;

#[test]
fn the_process_that_adds_a_disk() {
    let Ok(how) = std::env::var(FAULT) else {
        return;
    };
    let words: Vec<&str> = how.split(':').collect();
    let mut place = Place::new();
    place.root = words[0].into();
    let (at, gone) = (words[1].parse().unwrap(), words[2]);
    let store = place.open();
    if words[3] == "broken" {
        choose(Some(Mutant::ListFirst));
    }
    fault(at, Some(gone).filter(|g| !g.is_empty()));
    let joined = store.join(&place.root.join("new"));
    let happened = calls() >= at;
    // Whether it joined or not, the others can be used if they are there.
    if gone == "new" {
        others_are_whole(&store);
    }
    drop((joined, store));
    std::process::exit(if happened { 0 } else { NEVER });
}

/// One process with that fault. Returns whether the fault happened.
fn one(at: u64, gone: &str, rule: &str) -> Result<bool, String> {
    let mut place = place();
    drop(place.open());
    let how = format!("{}:{at}:{gone}:{rule}", place.root.display());
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "join_each_call::the_process_that_adds_a_disk"])
        .env(FAULT, how)
        .output()
        .unwrap();
    let code = ended.status.code();
    assert!(matches!(code, None | Some(0 | NEVER)), "{ended:?}");
    let all = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // Without it, the next mount works or says that it must be named.
        let left_out = place.refused(|_| {});
        let is_named = left_out.contains("/new: was part of the last mount and is not named");
        assert!(left_out == "mounted" || is_named, "{left_out}");
        place.named = vec!["d1", "d2", "d3", "new"];
        let store = place.open_as(|_| {}).map_err(|e| e.0).unwrap();
        is_whole(&store);
        let ours = numbers(&store);
        drop(store);
        assert_eq!(numbers(&place.open()), ours);
    }));
    all.map_err(|e| {
        let text = e.downcast_ref::<String>().cloned();
        format!("{gone} {at}: {}", text.unwrap_or_default())
    })?;
    Ok(code != Some(NEVER))
}

/// A kill at each call leaves a directory that is a disk or not, and nothing is lost.
#[test]
fn a_kill_at_each_call_of_a_join_loses_nothing() {
    let mut at = 1;
    while one(at, "", "").unwrap() {
        at += 1;
    }
    println!("{at} calls");
    assert!(at > 20, "{at}");
    let noticed = (1..at).any(|at| one(at, "", "broken").is_err());
    assert!(noticed, "the order of the records does not matter");
}

/// The disk that joins, or the fast tier, goes away meanwhile.
#[test]
fn a_disk_that_goes_away_while_one_joins_loses_nothing() {
    for gone in ["new", "fast"] {
        let mut at = 1;
        while one(at, gone, "").unwrap() {
            at += 3;
        }
        assert!(at > 10, "{at}");
    }
}
