//! Pins and policies of directories: given by several at once, for any path, also for paths that are gone.

use crate::trouble::Unmount;
use crate::world::{World, run};
use isotherm_files::control::command;
use isotherm_files::fuse::Io;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

fn give(w: &World, path: &[u8], what: &str, value: &[u8]) -> Result<(), Errno> {
    let store = &w.mounted.as_ref().unwrap().store;
    let node = store.cat().find(path).unwrap();
    command(store, node, what, value)
}

fn pins(w: &World) -> serde_json::Value {
    w.ask("", "status")["pins"].clone()
}

/// Every pin is in force and stored, even if eight commands pin sixty files at the same time.
#[test]
fn pins_that_are_given_at_the_same_time_are_all_kept() {
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    let names: Vec<String> = (0..60).map(|n| format!("f{n}")).collect();
    for name in &names {
        fs::write(w.at(name), "x").unwrap();
    }
    let store = Arc::clone(&w.mounted.as_ref().unwrap().store);
    std::thread::scope(|s| {
        for some in names.chunks(8) {
            let store = &store;
            s.spawn(move || {
                for name in some {
                    let node = store.cat().find(name.as_bytes()).unwrap();
                    command(store, node, "pin", b"slow").unwrap();
                }
            });
        }
    });
    drop(store);
    assert_eq!(pins(&w).as_object().unwrap().len(), 60);
    w.unmount();
    w.mount();
    assert_eq!(pins(&w).as_object().unwrap().len(), 60);
}

/// A path is any bytes.
#[test]
fn a_path_that_is_no_text_has_pins_and_policies() {
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    let dir = w.root.join("mnt").join(OsStr::from_bytes(b"d\xff"));
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("f"), "x").unwrap();
    give(&w, b"d\xff", "pin", b"slow").unwrap();
    give(&w, b"d\xff", "policy", b"hot:10").unwrap();
    w.unmount();
    w.mount();
    let status = w.ask("", "status");
    assert_eq!(status["pins"]["/d%FF"], 1, "{status}");
    assert_eq!(status["policies"]["/d%FF"][0], "hot", "{status}");
    let store = Arc::clone(&w.mounted.as_ref().unwrap().store);
    assert_eq!(store.migrate_now(), 1);
    let node = store.cat().find(b"d\xff/f").unwrap();
    let place = isotherm_files::control::answer(&store, node, "where").unwrap();
    let place: serde_json::Value = serde_json::from_slice(&place).unwrap();
    assert_eq!(
        (&place["tier"], &place["pinned_to"]),
        (&1.into(), &1.into())
    );
    drop(store);
    give(&w, b"d\xff", "pin", b"").unwrap();
    give(&w, b"d\xff", "policy", b"").unwrap();
    let status = w.ask("", "status");
    assert_eq!(
        (&status["pins"], &status["policies"]),
        (&serde_json::json!({}), &serde_json::json!({}))
    );
}

/// A pin stays with its path when the directory gets another one, which is said; then it can still be removed.
#[test]
fn a_pin_of_a_path_that_is_gone_can_be_removed() {
    let Some(w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    fs::create_dir_all(w.at("a/b")).unwrap();
    give(&w, b"a/b", "pin", b"slow").unwrap();
    give(&w, b"a/b", "policy", b"hot:10").unwrap();
    fs::rename(w.at("a"), w.at("c")).unwrap();
    let said = w.ask("", "status")["said"].to_string();
    assert!(said.contains("stay with that path"), "{said}");
    assert_eq!(w.ask("c/b", "where")["pinned_to"], serde_json::Value::Null);
    assert_eq!(give(&w, b"", "unpin", b"a/x"), Err(Errno::NODATA));
    give(&w, b"", "unpin", b"a/b").unwrap();
    assert_eq!(give(&w, b"", "unpin", b"a/b"), Err(Errno::NODATA));
    give(&w, b"", "unpolicy", b"a/b").unwrap();
    let status = w.ask("", "status");
    assert_eq!(
        (&status["pins"], &status["policies"]),
        (&serde_json::json!({}), &serde_json::json!({}))
    );
    // The renaming of a directory without any is not worth a line.
    fs::rename(w.at("c"), w.at("d")).unwrap();
    let said = w.ask("", "status")["said"].to_string();
    assert_eq!(said.matches("stay with that path").count(), 1, "{said}");
}

/// An attribute holds at most 64 KiB. With more pins than that, `status` leaves some out and says how many.
#[test]
fn status_answers_however_much_there_is_to_say() {
    let Some(w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    let store = &w.mounted.as_ref().unwrap().store;
    let long = "n".repeat(200);
    store
        .change_settings(|s| {
            for n in 0..500 {
                s.pins.insert(format!("{long}{n}").as_str().into(), 1);
            }
        })
        .unwrap();
    for n in 0..20 {
        store.say(&format!("{}{n}", "d/".repeat(2000)));
    }
    let status = w.ask("", "status");
    assert_eq!(status["state"], "serving");
    let (shown, said) = (
        status["pins"].as_object().unwrap().len(),
        status["said"].as_array().unwrap().len(),
    );
    assert!(shown > 0 && said > 0, "{shown} {said}");
    assert_eq!(status["left_out"], 520 - shown - said);
}

/// A fast tier that is full to the last byte, and a file that should leave it: the pin that says so is stored.
#[test]
fn a_full_tier_can_be_relieved_by_a_pin() {
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    w.unmount();
    run("mount -t tmpfs -o size=4M none fast", &w.root);
    let full = Unmount(w.root.join("fast"));
    w.settings.accept = true;
    w.mount();
    fs::write(w.at("f"), vec![7; 1 << 20]).unwrap();
    run("! dd if=/dev/zero of=fast/filler bs=4k 2>said", &w.root);
    give(&w, b"f", "pin", b"slow").unwrap();
    let store = Arc::clone(&w.mounted.as_ref().unwrap().store);
    assert_eq!(store.migrate_now(), 1);
    assert_eq!(fs::read(w.on("slow", "f")).unwrap(), vec![7; 1 << 20]);
    drop(store);
    w.unmount();
    let stored = fs::read_to_string(w.on("fast", ".isotherm/settings.json")).unwrap();
    assert!(stored.contains("\"f\""), "{stored}");
    drop(full);
}
