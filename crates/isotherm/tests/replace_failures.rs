//! A replacement whose last steps fail: the volume has its new member all the same.

mod common;

use common::Place;
use common::nbd::{MIB, copy_in, holds, noise};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{lchown, symlink};

/// The description cannot be written: the message says what is done and what is not, the volume can be served, and a repetition of the
/// command completes the rest.
#[test]
fn a_description_that_cannot_be_saved() {
    let place = Place::new();
    place.json(
        "create v --fast f:16M --slow s:64M --policy greendm",
        "create",
    );
    let data = noise(1, 30 * MIB);
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &data);
    assert_eq!(served.terminate(), Some(0));
    let before = fs::read_to_string(place.path("v.toml")).expect("read");
    // Nothing is written through another user's link to a directory of root's.
    let file = place.path("v.toml");
    fs::create_dir(place.path("kept")).expect("made");
    fs::rename(&file, place.path("kept/v.toml")).expect("renamed");
    symlink("kept/v.toml", &file).expect("linked");
    if lchown(&file, Some(65534), Some(65534)).is_err() {
        println!("skipped: only root gives a link away");
        return;
    }
    // A server refuses what it could not enter, before anything is copied.
    let served = place.serve("v --nbd unix:n");
    for call in ["replace v t:64M --member 1", "grow v"] {
        let why = place.fails(call);
        assert!(
            why.contains("nothing was changed, because the description cannot be"),
            "{call}: {why}"
        );
    }
    assert!(!place.path("t").exists());
    assert_eq!(served.terminate(), Some(0));
    let why = place.fails("replace v t:64M --member 1");
    assert!(
        why.contains("the member was replaced, but the description still names")
            && why.contains("/s: ")
            && why.contains("v.toml: "),
        "{why}"
    );
    assert_eq!(
        fs::read_to_string(place.path("v.toml")).expect("read"),
        before
    );
    lchown(&file, Some(0), Some(0)).expect("taken back");
    // The new member lies near, so it is found; the former one is not taken.
    let old = fs::read(place.path("s")).expect("read");
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    let status = place.json("status v", "status");
    assert_eq!(status["degraded"], json!(false), "{status}");
    let more = noise(2, 30 * MIB);
    copy_in(&place, &more);
    assert_eq!(served.terminate(), Some(0));
    assert!(
        fs::read(place.path("s")).expect("read") == old,
        "written to the former member"
    );
    let again = place.json("replace v t --member 1", "replace");
    assert_eq!(again["already"], json!(true), "{again}");
    let now = fs::read_to_string(place.path("v.toml")).expect("read");
    assert!(now.contains("/t\"") && !now.contains("/s\""), "{now}");
    let served = place.serve("v --nbd unix:n");
    holds(&place, &more);
    assert_eq!(served.terminate(), Some(0));
    let check = place.json("check v --data", "check");
    assert_eq!(check["ok"], json!(true), "{check}");
}
