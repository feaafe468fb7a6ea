//! Places of a device that cannot be read, or that have changed by themselves: `check --data` finds them, and `replace` stops at them.

mod common;

use common::Place;
use common::faulty::Faulty;
use common::nbd::{MIB, copy_in, holds, noise};
use isotherm_core::MemberId;
use isotherm_core::store::checkpoint::Header;
use isotherm_core::store::{BLOCK, Superblock, counter, journal};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::FileExt;

/// Writes data to the volume while it is served.
fn filled(place: &Place, data: &[u8]) {
    let served = place.serve("v --nbd unix:n");
    copy_in(place, data);
    holds(place, data);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
}

/// The place of block 5 of the data on a member.
fn place_of(path: &std::path::Path, block: &[u8]) -> u64 {
    let all = fs::read(path).expect("read");
    let found = all.chunks(4096).position(|b| b == block);
    found.expect("the block is there") as u64 * 4096
}

fn data_of(place: &Place) -> (Option<i32>, Value) {
    let out = place.run("check v --data --json");
    let answer: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    common::fits(&answer, "check");
    (out.status.code(), answer)
}

/// What `create --force` overwrites is what the user named, and no more.
#[test]
fn the_description_of_another_volume_is_not_overwritten() {
    let place = Place::new();
    place.ok("create v --slow a:16M --policy linear");
    let before = fs::read_to_string(place.path("v.toml")).expect("read");
    let why = place.fails("create v --slow b:16M --policy linear --force");
    assert!(why.contains("describes another volume"), "{why}");
    assert_eq!(
        fs::read_to_string(place.path("v.toml")).expect("read"),
        before
    );
    assert!(!place.path("b").exists());
    // The volume itself is made anew.
    place.ok("create v --slow a:16M --policy linear --force");
    fs::write(place.path("v.toml"), "name = ").expect("written");
    let why = place.fails("create v --slow a:16M --policy linear --force");
    assert!(why.contains("cannot be read"), "{why}");
}

/// Root needs no advice to be root.
#[test]
fn a_file_that_even_root_may_not_open_is_explained() {
    let place = Place::new();
    place.ok("create v --slow a:16M --policy linear");
    let path = place.path("a");
    let path = path.to_str().expect("text");
    let set = |flag: &str| place.tool("chattr", &[flag, path]).status.success();
    if !rustix::process::geteuid().is_root() || !set("+i") {
        return println!("skipped: no immutable files for this user here");
    }
    let why = place.run("serve v --nbd unix:n");
    set("-i");
    let why = String::from_utf8_lossy(&why.stderr);
    assert!(
        why.contains("immutable") && !why.contains("run this as root"),
        "{why}"
    );
}

#[test]
fn an_unreadable_place_is_found_and_ends_a_replacement() {
    let place = Place::new();
    place.json(
        "create v --fast f:16M --slow s:32M --policy greendm",
        "create",
    );
    let data = noise(1, 30 * MIB);
    filled(&place, &data);
    let (code, whole) = data_of(&place);
    assert_eq!((code, &whole["data"]["lost"]), (Some(0), &json!([])));
    assert_eq!(whole["data"]["read_bytes"], json!(30 * MIB));
    // The data may be on either member.
    let block = &data[20 * MIB + 5 * 4096..][..4096];
    let name = ["f", "s"].into_iter().find(|n| {
        fs::read(place.path(n))
            .expect("read")
            .chunks(4096)
            .any(|b| b == block)
    });
    let name = name.expect("one member has it");
    let at = place_of(&place.path(name), block);
    fs::rename(place.path(name), place.away(name)).expect("moved");
    let toml = fs::read_to_string(place.path("v.toml")).expect("read");
    fs::write(
        place.path("v.toml"),
        toml.replace(&format!("/{name}\""), &format!("/bay/{name}\"")),
    )
    .expect("written");
    let Some(disk) = Faulty::attach(&place.away(name), &place.path("bay"), name) else {
        return;
    };
    disk.spoil(at, at + 4096);
    let (code, answer) = data_of(&place);
    let from = 20 * MIB + 5 * 4096;
    assert_eq!(code, Some(1));
    assert_eq!(
        answer["data"]["lost"],
        json!([{"from": from, "to": from + 4096}]),
        "{answer}"
    );
    let findings = answer["findings"].to_string();
    assert!(
        findings.contains(&format!("the first at byte {at}")),
        "{findings}"
    );
    let member = usize::from(name == "s");
    let why = place.fails(&format!("replace v new:64M --member {member}"));
    assert!(
        why.contains("cannot be read at byte") && why.contains("nothing was replaced"),
        "{why}"
    );
    assert!(!place.path("new").exists());
    // The disk reads again (a sector that was written anew): the same command succeeds.
    disk.come_back(name);
    place.json(&format!("replace v new:64M --member {member}"), "replace");
    drop(disk);
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn data_that_changed_by_itself_is_found_where_it_exists_twice() {
    let place = Place::new();
    place.json(
        "create v --fast f:40M --slow s:32M --policy lru,write-mode=write-through-all",
        "create",
    );
    let data = noise(1, 8 * MIB);
    filled(&place, &data);
    let (code, answer) = data_of(&place);
    assert_eq!((code, &answer["data"]["differing"]), (Some(0), &json!([])));
    assert!(answer["copied_extents"].as_u64() > Some(50), "{answer}");
    let block = &data[3 * MIB..][..4096];
    let at = place_of(&place.path("s"), block);
    let disk = fs::OpenOptions::new()
        .write(true)
        .open(place.path("s"))
        .expect("opened");
    disk.write_all_at(&[!block[0]], at).expect("written");
    let (code, answer) = data_of(&place);
    assert_eq!(code, Some(1));
    let differing = &answer["data"]["differing"][0];
    assert!(
        differing["from"].as_u64() <= Some(3 * MIB as u64)
            && differing["to"].as_u64() > Some(3 * MIB as u64),
        "{answer}"
    );
    // Without --data nothing is read but metadata.
    assert_eq!(place.json("check v", "check")["data"], Value::Null);
}

/// The places of the metadata that the volume uses on one member, with a name for each.
fn structures(disk: &fs::File, index: u8) -> Vec<(String, u64)> {
    let block = |at: u64| {
        let mut b = vec![0; BLOCK];
        disk.read_exact_at(&mut b, at).expect("read");
        b
    };
    let sb = Superblock::decode(&block(0)).expect("a superblock");
    let layout = sb.layout();
    let m = MemberId(index);
    let mut all = vec![
        ("first superblock".to_owned(), 0),
        ("second superblock".to_owned(), sb.copy_offset(m)),
        ("counter 0".to_owned(), counter::offset(0)),
        ("counter 1".to_owned(), counter::offset(1)),
    ];
    if sb.is_disk(m) {
        all.extend([0, 1].map(|n| (format!("mark {n}"), sb.mark_offset(m, n))));
    }
    for c in layout.carriers().filter(|c| c.member == m) {
        let headers = [0u8, 1].map(|r| {
            let at = layout.region_offset(c, r);
            Header::decode(&block(at), &sb.uuid).map(|h| (h.number, h, at))
        });
        let (_, h, at) = headers
            .into_iter()
            .flatten()
            .max_by_key(|h| h.0)
            .expect("a checkpoint");
        all.push(("checkpoint header".to_owned(), at));
        all.extend((0..h.blocks).map(|i| {
            let at = layout.checkpoint_block(c, h.number, i);
            (format!("checkpoint block {i}"), at)
        }));
        let mut tip = h.start;
        loop {
            let at = layout.ring_offset(c, tip.next_seq);
            let Some(j) = journal::decode(&block(at), &sb.uuid).filter(|j| tip.accepts(j)) else {
                break;
            };
            all.push((format!("journal block {}", j.seq), at));
            tip = tip.after(&j);
        }
    }
    all
}

/// `check` reports the damage of each block of metadata on each member, also if everything else is whole, and repairs it.
#[test]
fn every_damaged_block_of_metadata_is_found_alone() {
    let place = Place::in_memory();
    place.ok("create v --fast f:16M --slow s:32M --policy lru");
    let data = noise(3, 8 * MIB);
    filled(&place, &data);
    place.json("check v", "check");
    for (index, name) in ["f", "s"].into_iter().enumerate() {
        let disk = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(place.path(name));
        let disk = disk.expect("opened");
        for (what, at) in structures(&disk, index as u8) {
            let mut torn = vec![0; BLOCK];
            disk.read_exact_at(&mut torn, at).expect("read");
            // One bit in the part that every kind of block checks.
            torn[100] ^= 1;
            disk.write_all_at(&torn, at).expect("written");
            let out = place.run("check v --json");
            let answer: Value = serde_json::from_slice(&out.stdout).expect("JSON");
            let findings = answer["findings"].to_string();
            assert!(
                out.status.code() == Some(1) && findings.contains(&format!("/{name}: ")),
                "{what} of {name}: {findings}"
            );
            let mended = place.json("check v --repair", "check");
            assert_eq!(mended["ok"], json!(true), "{what} of {name}: {mended}");
        }
    }
}
