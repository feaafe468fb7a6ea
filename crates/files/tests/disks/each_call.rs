//! A disk is emptied, or a directory joins, and at each single call the process is killed, or from that call on a disk does not answer.

use crate::empty::{ALL, filled};
use crate::{Place, find, join, read};
use isotherm_files::check::check;
use isotherm_files::mutants::{Mutant, calls, choose, fault};
use isotherm_files::store::Store;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

/// With this variable a process is one to which that happens: it says where, at which call, which disk goes away, which rule is removed.
const FAULT: &str = "ISOTHERM_TEST_FAULT";
/// The end of a process in which it did not happen.
const NEVER: i32 = 9;

/// In such a process: opens its mount, and does `work` with the fault. Without the rule, if that is to be removed.
fn with_fault(rule: Mutant, work: impl FnOnce(&Place, Store, &str)) {
    let Ok(how) = std::env::var(FAULT) else {
        return;
    };
    let words: Vec<&str> = how.split(':').collect();
    let mut place = Place::new();
    place.root = words[0].into();
    let (at, gone) = (words[1].parse().unwrap(), words[2]);
    let store = place.open();
    if words[3] == "broken" {
        choose(Some(rule));
    }
    fault(at, Some(gone).filter(|g| !g.is_empty()));
    work(&place, store, gone);
    std::process::exit(if calls() >= at { 0 } else { NEVER });
}

/// One such process, which is that test of this module, and what must be so after it. Returns whether the fault happened.
fn one(
    test: &str,
    place: &mut Place,
    (at, gone, rule): (u64, &str, &str),
    after: impl FnOnce(&mut Place),
) -> Result<bool, String> {
    let how = format!("{}:{at}:{gone}:{rule}", place.root.display());
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("each_call::{test}")])
        .env(FAULT, how)
        .output()
        .unwrap();
    let code = ended.status.code();
    assert!(matches!(code, None | Some(0 | NEVER)), "{ended:?}");
    catch_unwind(AssertUnwindSafe(|| after(place))).map_err(|e| {
        let text = e.downcast_ref::<String>().cloned();
        format!("{gone} {at}: {}", text.unwrap_or_default())
    })?;
    Ok(code != Some(NEVER))
}

/// A kind of such a process, with its check.
type One = fn(u64, &str, &str) -> Result<bool, String>;

/// A kill at each call loses nothing, and one of each `step` does without the rule.
fn kill_at_each(one: One, least: u64, step: usize) {
    let mut at = 1;
    while one(at, "", "").unwrap() {
        at += 1;
    }
    println!("{at} calls");
    assert!(at > least, "{at}");
    let noticed = (1..at)
        .step_by(step)
        .any(|at| one(at, "", "broken").is_err());
    assert!(noticed, "the rule is not needed");
}

/// A disk goes away at one of each `step` calls.
fn go_away(one: One, disks: &[&str], least: u64, step: u64) {
    for gone in disks {
        let mut at = 1;
        while one(at, gone, "").unwrap() {
            at += step;
        }
        assert!(at > least, "{at}");
    }
}

#[test]
fn the_process_that_empties_a_disk() {
    with_fault(Mutant::SkipIntent, |_, store, _| {
        // Whether it is refused does not matter: what is there matters.
        let _ = store.order_drain("1");
        for _ in 0..3 {
            store.tend_disks(None);
        }
    });
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

fn drained(at: u64, gone: &str, rule: &str) -> Result<bool, String> {
    let mut place = filled();
    let store = place.open();
    let before = seen(&store);
    drop(store);
    let test = "the_process_that_empties_a_disk";
    one(test, &mut place, (at, gone, rule), |place| {
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
    })
}

#[test]
fn a_kill_at_each_call_of_a_drain_loses_nothing() {
    kill_at_each(drained, 100, 3);
}

#[test]
fn a_disk_that_goes_away_during_a_drain_loses_nothing() {
    go_away(drained, &["d1", "d2", "fast"], 50, 5);
}

#[test]
fn the_process_that_adds_a_disk() {
    with_fault(Mutant::ListFirst, |place, store, gone| {
        let _ = store.join(&place.root.join("new"));
        // Whether it joined or not, the others can be used if they are there.
        if gone == "new" {
            join::others_are_whole(&store);
        }
    });
}

fn joined(at: u64, gone: &str, rule: &str) -> Result<bool, String> {
    let mut place = join::place();
    drop(place.open());
    let test = "the_process_that_adds_a_disk";
    one(test, &mut place, (at, gone, rule), |place| {
        // Without it, the next mount works or says that it must be named.
        let left_out = place.refused(|_| {});
        let is_named = left_out.contains("/new: was part of the last mount and is not named");
        assert!(left_out == "mounted" || is_named, "{left_out}");
        place.named = vec!["d1", "d2", "d3", "new"];
        let store = place.open_as(|_| {}).map_err(|e| e.0).unwrap();
        join::is_whole(&store);
        let ours = join::numbers(&store);
        drop(store);
        assert_eq!(join::numbers(&place.open()), ours);
    })
}

/// A kill at each call leaves a directory that is a disk or not, and nothing is lost.
#[test]
fn a_kill_at_each_call_of_a_join_loses_nothing() {
    kill_at_each(joined, 20, 1);
}

/// The disk that joins, or the fast tier, goes away meanwhile.
#[test]
fn a_disk_that_goes_away_while_one_joins_loses_nothing() {
    go_away(joined, &["new", "fast"], 10, 3);
}
