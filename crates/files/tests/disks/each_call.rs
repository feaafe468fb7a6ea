//! A disk is emptied, and at each single call the process is killed, or from that call on a disk does not answer.

use crate::empty::{ALL, filled};
use crate::{Place, find, read};
use isotherm_files::check::check;
use isotherm_files::mutants::{Mutant, calls, choose, fault};
use isotherm_files::store::Store;
use std::collections::BTreeMap;
use std::process::Command;

/// The process that empties the disk `d1`: with this variable it is one, which says where, and what happens when.
const FAULT: &str = "ISOTHERM_TEST_FAULT";
/// The end of a process in which it did not happen.
const NEVER: i32 = 9;

#[test]
fn the_process_that_empties_a_disk() {
    let Ok(how) = std::env::var(FAULT) else {
        return;
    };
    let words: Vec<&str> = how.split(':').collect();
    let mut place = Place::new();
    place.root = words[0].into();
    let (at, gone) = (words[1].parse().unwrap(), words[2]);
    if words[3] == "broken" {
        choose(Some(Mutant::SkipIntent));
    }
    let store = place.open();
    fault(at, Some(gone).filter(|g| !g.is_empty()));
    // Whether it is refused does not matter: what is there matters.
    let _ = store.order_drain("1");
    for _ in 0..3 {
        store.tend_disks(None);
    }
    let happened = calls() >= at;
    drop(store);
    std::process::exit(if happened { 0 } else { NEVER });
}

/// What users see of all files: number, kind, names, bytes.
fn seen(store: &Store) -> BTreeMap<&'static str, (u64, u32, u32, Vec<u8>)> {
    let one = |path: &'static str| {
        let node = find(store, path);
        let facts = store.facts(node).unwrap();
        let number = store.cat().lasting(node);
        let bytes = read(store, path).unwrap_or_default();
        (path, (number, facts.mode, facts.nlink, bytes))
    };
    ALL.into_iter().chain(["other"]).map(one).collect()
}

/// One process with that fault. Returns whether the fault happened.
fn one(at: u64, gone: &str, rule: &str) -> Result<bool, String> {
    let place = filled();
    let store = place.open();
    let before = seen(&store);
    drop(store);
    let how = format!("{}:{at}:{gone}:{rule}", place.root.display());
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "each_call::the_process_that_empties_a_disk"])
        .env(FAULT, how)
        .output()
        .unwrap();
    let code = ended.status.code();
    assert!(matches!(code, None | Some(0 | NEVER)), "{ended:?}");
    let all = std::panic::catch_unwind(|| {
        let store = place.open();
        assert_eq!(seen(&store), before);
        store.order_drain("1").unwrap();
        for _ in 0..3 {
            store.tend_disks(None);
        }
        assert_eq!(seen(&store), before, "emptied");
        let check = check(&store, false);
        assert_eq!(check["ok"], true, "{check}");
        for path in ALL.iter().filter(|p| **p != "nothing") {
            assert!(!place.has(&format!("d1/{path}")), "{path} is still there");
        }
    });
    all.map_err(|e| {
        let text = e.downcast_ref::<String>().cloned();
        format!("{gone} {at}: {}", text.unwrap_or_default())
    })?;
    Ok(code != Some(NEVER))
}

#[test]
fn a_kill_at_each_call_of_a_drain_loses_nothing() {
    let mut at = 1;
    while one(at, "", "").unwrap() {
        at += 1;
    }
    println!("{at} calls");
    assert!(at > 100, "{at}");
    let noticed = (1..at).step_by(3).any(|at| one(at, "", "broken").is_err());
    assert!(noticed, "no intent is needed");
}

#[test]
fn a_disk_that_goes_away_during_a_drain_loses_nothing() {
    for gone in ["d1", "d2", "fast"] {
        let mut at = 1;
        while one(at, gone, "").unwrap() {
            at += 5;
        }
        assert!(at > 50, "{at}");
    }
}
