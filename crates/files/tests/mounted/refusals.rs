//! Tiers that are refused, and the messages.

use crate::trouble::Unmount;
use crate::world::{World, run};
use isotherm_files::fuse::Io;
use isotherm_files::mover::Outcome;
use std::fs;

/// The message about a tier that cannot be one names it, the reason and the remedy.
#[test]
fn a_refusal_of_a_tier_says_what_helps() {
    let Some(w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    fs::create_dir(w.at("inner")).unwrap();
    run(
        "mkdir fast2 readonly blocked mnt2; mount -t tmpfs -o ro none readonly; echo >blocked/.isotherm",
        &w.root,
    );
    let readonly = Unmount(w.root.join("readonly"));
    let say = |tier: std::path::PathBuf| {
        let settings = isotherm_files::store::Settings {
            tiers: vec![w.root.join("fast2"), tier],
            ..Default::default()
        };
        match isotherm_files::store::Store::open(&settings) {
            Ok(_) => "served".into(),
            Err(e) => e.0,
        }
    };
    let mnt = w.root.join("mnt").display().to_string();
    for (tier, reason, remedy) in [
        (w.at("inner"), &*mnt, "name a directory of the disk below"),
        (w.root.join("readonly"), "is read-only", "remount,rw"),
        (w.root.join("blocked"), "not a directory", "move it away"),
    ] {
        let said = say(tier.clone());
        let starts = said.starts_with(&tier.display().to_string());
        assert!(
            starts && said.contains(reason) && said.contains(remedy),
            "{said}"
        );
    }
    drop(readonly);
}

/// The directory of a tier gets another name while it is mounted, and another directory its old one: the mount goes on with the first one,
/// puts nothing into the second one, and `check` says what has happened.
#[test]
fn a_tier_that_is_renamed_is_served_on_and_said() {
    let Some(mut w) = World::new(|_| {}, Io::Cached) else {
        return;
    };
    fs::write(w.at("f"), "f").unwrap();
    fs::rename(w.root.join("slow"), w.root.join("away")).unwrap();
    fs::create_dir(w.root.join("slow")).unwrap();
    assert_eq!(w.send("f", 1), Outcome::Done);
    assert_eq!(fs::read(w.on("away", "f")).unwrap(), b"f");
    assert_eq!(fs::read(w.at("f")).unwrap(), b"f");
    assert_eq!(fs::read_dir(w.root.join("slow")).unwrap().count(), 0);
    assert_eq!(w.ask("", "check")["ok"], true);
    let said = w.ask("", "status")["said"].to_string();
    assert!(
        said.contains("does not lead to the tier any more"),
        "{said}"
    );
    w.unmount();
    fs::remove_dir(w.root.join("slow")).unwrap();
    fs::rename(w.root.join("away"), w.root.join("slow")).unwrap();
    w.mount();
    assert_eq!(fs::read(w.at("f")).unwrap(), b"f");
}
