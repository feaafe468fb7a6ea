//! If one thread changes attributes while another ends its use of the file, the changed attributes are shown afterwards.

use crate::{Pair, size};
use isotherm_files::attributes::SetAttr;
use isotherm_files::names::IfPresent;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_change_is_not_taken_back_by_a_close() {
    let pair = Pair::new();
    let store = pair.store();
    let node = pair.file("f0", b"what is in it");
    let end = AtomicBool::new(false);
    let until = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !end.load(Ordering::SeqCst) {
                    let live = store.live(node).unwrap();
                    store.write(&live, 0, b"What", false).unwrap();
                    store.release(&live);
                }
            });
        }
        let mut turn = 0u32;
        while Instant::now() < until {
            turn += 1;
            let mode = 0o600 | (turn & 0o77);
            let set = SetAttr {
                size: None,
                mode: Some(mode),
                ..size(0)
            };
            store.set_attr(node, &set).unwrap();
            let now = store.facts(node).map(|f| f.mode & 0o777);
            if now != Ok(mode) {
                end.store(true, Ordering::SeqCst);
                panic!("turn {turn}: mode {now:?} instead of {mode:o}");
            }
        }
        end.store(true, Ordering::SeqCst);
    });
    // A file that grew and was renamed at once has its last size.
    for turn in 0..200u64 {
        let (old, new) = (format!("f{turn}"), format!("f{}", turn + 1));
        let live = store.live(node).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                store.write(&live, 20 + turn, b"x", false).unwrap();
                store.release(&live);
            });
            let done = store.rename((0, old.as_bytes()), (0, new.as_bytes()), IfPresent::Refuse);
            assert_eq!(done, Ok(()));
        });
        assert_eq!(store.facts(node).map(|f| f.size), Ok(21 + turn));
        let home = std::fs::metadata(pair.slow(&new)).unwrap();
        let ctime = store.facts(node).unwrap().ctime;
        let there = std::os::unix::fs::MetadataExt::ctime_nsec(&home);
        assert_eq!(i64::from(ctime.nsec), there, "turn {turn}");
    }
}
