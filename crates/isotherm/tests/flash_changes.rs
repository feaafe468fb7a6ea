//! The flash of a cache volume is taken out, given, enlarged and replaced at random moments under a writer, all of it or one device of several,
//! with changes of policy between, and server and command are killed in the middle of it. After each, everything that was flushed must be there. `ISOTHERM_CHANGES=100` (or
//! `make soak-changes`) is the long form.

mod common;

use common::peer::wait_for;
use common::writer::{BLOCK, Held, Writer, checked};
use common::{Place, Served};
use isotherm_hostile::Rng;
use serde_json::{Value, json};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const POLICIES: [&str; 4] = [
    "benefit",
    "lru",
    "dss-lru",
    "lru,write-mode=write-through-all",
];
/// The way to make a change of which nobody serves the volume.
const OFFLINE: u64 = 3;
const NAMES: [&str; 3] = ["f", "g", "h"];

/// A number from the environment.
fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The names of the present flash, according to the server.
fn flash(place: &Place) -> Vec<String> {
    let now = place.json("status v", "status");
    let members = now["members"].as_array().expect("members");
    let flash = members[..members.len() - 1].iter();
    let name = |m: &Value| {
        let path = m["path"].as_str().expect("a path");
        path.rsplit('/').next().expect("a name").to_owned()
    };
    (flash.filter(|m| m["removed"] != json!(true)).map(name)).collect()
}

/// A change that fits a volume with this flash, and the words of it for the log.
fn change(place: &Place, rng: &mut Rng, flash: &[String], how: u64) -> String {
    let mib = 12 + rng.below(30);
    let free: Vec<_> = (NAMES.iter())
        .filter(|n| flash.iter().all(|f| f != *n))
        .collect();
    let Some(new) = free.get(rng.below(free.len().max(1) as u64) as usize) else {
        return format!("cache v remove {}", flash[rng.below(3) as usize]);
    };
    // A name is used again: sometimes with what is left there, sometimes anew.
    let with_size = if rng.one_in(2) || !place.path(new).exists() {
        let _ = fs::remove_file(place.path(new));
        format!("{new}:{mib}M")
    } else {
        String::from(**new)
    };
    let Some(first) = flash.first() else {
        return format!("cache v add {with_size} --force");
    };
    match rng.below(8) {
        0 => String::from("cache v remove"),
        1 | 2 => format!("cache v add {with_size} --force"),
        3 | 4 => {
            let one = &flash[rng.below(flash.len() as u64) as usize];
            format!("cache v remove {one}")
        }
        5 if flash.len() == 1 => {
            let file = fs::OpenOptions::new().write(true).open(place.path(first));
            let grown = file.and_then(|f| Ok((f.metadata()?.len() + (6 << 20), f)));
            let grown = grown.and_then(|(to, f)| f.set_len(to));
            grown.expect("enlarged");
            String::from("cache v resize")
        }
        // Flash that is present is copied, which a served volume refuses.
        6 if how == OFFLINE && flash.len() == 1 => {
            format!("replace v {with_size} --member 0 --force")
        }
        6 if how != OFFLINE => String::from("clean v"),
        _ => {
            let policy = POLICIES[rng.below(POLICIES.len() as u64) as usize];
            format!("set v policy={policy}")
        }
    }
}

/// Starts a command whose end nobody may live to see.
fn start(place: &Place, call: &str) -> Child {
    let mut command: Command = place.command(call);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the program starts")
}

/// Serves the volume after whatever has happened: nothing may be missing.
fn serve(place: &Place, log: &str) -> Served {
    let served = place.serve("v --nbd unix:n");
    let now: Value = place.json("status v", "status");
    assert_eq!(now["degraded"], json!(false), "{log}: {now}");
    served
}

#[test]
fn flushed_data_survives_changes_and_kills() {
    let seed = asked("ISOTHERM_SEED").unwrap_or(1);
    let changes = asked("ISOTHERM_CHANGES").unwrap_or(8);
    println!("ISOTHERM_SEED={seed}");
    let mut rng = Rng::new(seed ^ 0xf1a5);
    let place = Place::in_memory();
    let made = place.json("create v --fast f:24M --slow s:48M --policy lru", "create");
    let size = made["volume_bytes"].as_u64().expect("a size");
    let mut held = vec![Held::default(); size as usize / BLOCK];
    let (mut written, mut kills) = (0, 0);
    let mut served = serve(&place, "new");
    for round in 0..changes {
        let writer = Writer::start(&place, held, seed.wrapping_add(round) << 8 | 1);
        std::thread::sleep(Duration::from_millis(rng.below(400)));
        let how = rng.below(OFFLINE + 1);
        let call = change(&place, &mut rng, &flash(&place), how);
        let after = Duration::from_millis(rng.below(300));
        let log = format!("ISOTHERM_SEED={seed}, round {round}: `{call}`, {how}, {after:?}");
        println!("{log}");
        let n;
        match how {
            // The command ends, under the writer.
            0 => {
                let out = place.run(&call);
                let said = String::from_utf8_lossy(&out.stderr).into_owned();
                assert!(out.status.success(), "{log}: {said}");
                assert!(!writer.has_ended(), "{log}: a write failed");
                (held, n) = writer.stop();
            }
            // The server is killed in the middle of it.
            1 | 2 => {
                let mut client = start(&place, &call);
                std::thread::sleep(after);
                served.kill();
                client.wait().expect("waited");
                (held, n) = writer.stop();
                served = serve(&place, &log);
                kills += 1;
            }
            // Nobody serves, and the command itself is killed.
            _ => {
                served.kill();
                (held, n) = writer.stop();
                let mut client = start(&place, &call);
                std::thread::sleep(after);
                let _ = client.kill();
                client.wait().expect("waited");
                served = serve(&place, &log);
                kills += 2;
            }
        }
        written += n;
        held = checked(&place, &held);
    }
    println!("{changes} changes, {kills} kills, {written} writes");
    wait_for("the end of moves", || {
        place.run("stop v").status.success().then_some(())
    });
    assert_eq!(served.end().0, Some(0));
    for check in ["check v", "check v --data"] {
        let found = place.json(check, "check");
        assert_eq!(found["ok"], json!(true), "{check}: {found}");
    }
}
