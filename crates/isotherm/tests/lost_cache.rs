//! A caching volume whose cache device vanishes: it continues without a clean cache, and refuses without a dirty one unless the loss is
//! accepted.

mod common;

use common::Place;
use common::nbd::{MIB, back, begins, copy_in, holds, noise};
use common::peer::{FLUSH, Peer, wait_for};
use isotherm_core::MemberId;
use isotherm_core::store::BLOCK;
use isotherm_core::store::superblock::{State, Superblock};
use serde_json::{Value, json};
use std::os::unix::fs::FileExt;

fn lose(place: &Place) {
    std::fs::rename(place.path("f"), place.away("f")).expect("renamed");
}

fn count(of: &Value, name: &str) -> u64 {
    of.pointer(name)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("{name} in {of}"))
}

#[test]
fn a_volume_goes_on_without_a_clean_cache() {
    let place = Place::new();
    place.json(
        "create v --fast f:16M --slow s:64M --policy lru,write-mode=write-through-all",
        "create",
    );
    let served = place.serve("v --nbd unix:n");
    let data = noise(1, 24 * MIB);
    copy_in(&place, &data);
    holds(&place, &data);
    assert!(count(&place.json("status v", "status"), "/copies/extents") > 0);
    // Without a clean close, the mirror alone must know the flushed data.
    served.kill();
    lose(&place);
    let served = place.serve("v --nbd unix:n");
    let status = place.json("status v", "status");
    assert_eq!(
        (&status["degraded"], &status["missing_members"]),
        (&json!(true), &json!([0]))
    );
    assert_eq!(status["read_only"], json!(false));
    holds(&place, &data);
    let more = noise(2, 30 * MIB);
    copy_in(&place, &more);
    holds(&place, &more);
    served.kill();
    // The old cache is attached again. It missed writes, so it must be left out and not changed.
    std::fs::rename(place.away("f"), place.path("f")).expect("renamed");
    let old = std::fs::read(place.path("f")).expect("read");
    let served = place.serve("v --nbd unix:n");
    holds(&place, &more);
    copy_in(&place, &data);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    assert!(std::fs::read(place.path("f")).expect("read") == old);
    std::fs::remove_file(place.path("f")).expect("removed");
    let status = place.json("status v", "status");
    assert_eq!(
        (&status["degraded"], &status["was_clean"]),
        (&json!(true), &json!(true))
    );
    let served = place.serve("v --nbd unix:n");
    let whole: Vec<u8> = data.iter().chain(&more[data.len()..]).copied().collect();
    holds(&place, &whole);
    assert_eq!(served.terminate(), Some(0));
}

/// What a start leaves on flash that is killed `times` times when it has written there and not yet on the disk.
fn start_killed(place: &Place, times: u64) {
    let flash = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(place.path("f"))
        .expect("opened");
    let mut block = vec![0; BLOCK];
    flash.read_exact_at(&mut block, 0).expect("read");
    let mut sb = Superblock::decode(&block).expect("a superblock");
    (sb.prev_generation, sb.prev_epoch) = (sb.generation, sb.epoch);
    (sb.prev_first_seq, sb.prev_follow) = (sb.first_seq, sb.follow);
    (sb.generation, sb.epoch) = (sb.generation + times, sb.epoch + times);
    sb.state = State::Preparing;
    for at in [0, sb.copy_offset(MemberId(0))] {
        flash.write_all_at(&sb.encode(), at).expect("written");
    }
}

/// Flash whose last session got no further than its beginning, and without which the volume went on, is left out as any other.
#[test]
fn flash_of_a_killed_start_is_left_out() {
    for times in 1..4 {
        let place = Place::new();
        let call = "create v --fast f:16M --slow s:64M --policy lru,write-mode=write-through-all";
        place.json(call, "create");
        let served = place.serve("v --nbd unix:n");
        copy_in(&place, &noise(1, 4 * MIB));
        place.ok("stop v");
        assert_eq!(served.end().0, Some(0));
        start_killed(&place, times);
        let served = place.serve("v --nbd unix:n --without-flash");
        let data = noise(2, 4 * MIB);
        copy_in(&place, &data);
        served.kill();
        let old = std::fs::read(place.path("f")).expect("read");
        for _ in 0..2 {
            let served = place.serve("v --nbd unix:n");
            holds(&place, &data);
            assert_eq!(
                place.json("status v", "status")["missing_members"],
                json!([0])
            );
            place.ok("stop v");
            let (code, said) = served.end();
            assert_eq!(code, Some(0));
            assert!(
                said.contains("was away while the volume was written to"),
                "{said}"
            );
        }
        place.ok("check v");
        assert!(std::fs::read(place.path("f")).expect("read") == old);
        place.ok("replace v f2:16M --member 0");
        assert_eq!(place.json("status v", "status")["degraded"], json!(false));
    }
}

#[test]
fn a_dirty_cache_is_given_up_only_with_consent() {
    let place = Place::new();
    place.json("create v --fast f:16M --slow s:32M --policy lru", "create");
    let served = place.serve("v --nbd unix:n");
    let data = noise(1, 4 * MIB);
    copy_in(&place, &data);
    let dirty = count(&place.json("status v", "status"), "/copies/dirty_bytes");
    assert!(dirty > 0);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    lose(&place);
    let why = place.fails("serve v --nbd unix:n");
    assert!(
        why.contains(&format!("newest data of {dirty} bytes"))
            && why.contains("bytes 0 to ")
            && why.contains("--accept-loss"),
        "{why}"
    );
    // The refused command must have changed nothing.
    std::fs::rename(place.away("f"), place.path("f")).expect("renamed");
    let served = place.serve("v --nbd unix:n");
    begins(&place, &data);
    served.kill();
    lose(&place);
    let why = place.fails("serve v --nbd unix:n");
    assert!(why.contains("--accept-loss"), "{why}");
    assert!(!place.path("f").exists(), "made anew");
    let served = place.serve("v --accept-loss --nbd unix:n");
    // Every block must be as before, or older: here zeros, because it was never written home.
    let now = back(&place);
    for (block, was) in now.chunks(4096).zip(data.chunks(4096)) {
        assert!(block == was || block.iter().all(|b| *b == 0));
    }
    assert!(now[..data.len()] != *data);
    let more = noise(3, 8 * MIB);
    copy_in(&place, &more);
    served.kill();
    // The loss must be accepted only once.
    let served = place.serve("v --nbd unix:n");
    holds(&place, &more);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_tiering_volume_does_not_go_on_without_its_homes() {
    let place = Place::new();
    place.json(
        "create v --fast f:16M --slow s:32M --policy greendm",
        "create",
    );
    let served = place.serve("v --nbd unix:n");
    copy_in(&place, &noise(1, 4 * MIB));
    assert_eq!(served.terminate(), Some(0));
    lose(&place);
    for words in ["serve v --nbd unix:n", "serve v --accept-loss --nbd unix:n"] {
        let why = place.fails(words);
        assert!(
            why.contains("does not exist") && why.contains("--read-only"),
            "{why}"
        );
    }
}

/// The flash is gone, and its name is that of another volume's device by now: the message says how to go on, and that device stays as it is.
#[test]
fn another_volume_has_the_name_of_the_flash() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:32M --policy lru,write-mode=write-through-all");
    place.ok("create w --fast g:16M --slow t:32M");
    let served = place.serve("v --nbd unix:n");
    let data = noise(1, 8 * MIB);
    copy_in(&place, &data);
    served.kill();
    lose(&place);
    std::fs::copy(place.path("g"), place.path("f")).expect("copied");
    let theirs = std::fs::read(place.path("f")).expect("read");
    let why = place.fails("serve v --nbd unix:n");
    assert!(
        why.contains("belongs to volume") && why.contains("--without-flash"),
        "{why}"
    );
    let served = place.serve("v --without-flash --nbd unix:n");
    holds(&place, &data);
    assert_eq!(served.terminate(), Some(0));
    assert!(std::fs::read(place.path("f")).expect("read") == theirs);
}

/// A volume whose flash is gone, with data that only it had, and which goes on without it.
fn with_lost_data(place: &Place) -> common::Served {
    place.json("create v --fast f:16M --slow s:64M --policy lru", "create");
    let served = place.serve("v --nbd unix:n");
    copy_in(place, &noise(1, 4 * MIB));
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    lose(place);
    let why = place.fails("serve v --nbd unix:n");
    assert!(
        why.contains("--without-flash") && why.contains("--accept-loss"),
        "{why}"
    );
    place.serve("v --without-flash --nbd unix:n")
}

/// What is lost is an error until it is written again; then it is as durable as any data. `status`, `check` and `release` name it.
#[test]
fn lost_data_is_an_error_until_it_is_written() {
    let place = Place::new();
    let served = with_lost_data(&place);
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    let lost = |peer: &mut Peer, at: usize| peer.read(at as u64, 1 << 16).is_err();
    assert!(lost(&mut peer, 0) && lost(&mut peer, 3 * MIB));
    let status = place.json("status v", "status");
    let before = count(&status, "/lost/bytes");
    assert!(
        before >= 4 << 20 && status["lost"]["ranges"][0]["from"] == json!(0),
        "{status}"
    );
    assert!(place.ok("status v").contains("--accept-loss"));
    peer.write(0, &noise(2, MIB)).expect("written");
    peer.ask(FLUSH, 0, 0).expect("sent");
    assert_eq!(peer.answer().expect("answered"), 0);
    served.kill();

    let out = place.run("check v --json");
    let checked: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert!(
        checked["findings"].to_string().contains("lost with flash"),
        "{checked}"
    );
    let why = place.fails("release v --yes");
    assert!(why.contains("--accept-loss"), "{why}");
    // Flash that returns is no part of the volume any more.
    std::fs::rename(place.away("f"), place.path("f")).expect("renamed");
    let served = place.serve("v --nbd unix:n");
    begins(&place, &noise(2, MIB));
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    assert!(lost(&mut peer, 2 * MIB));
    let status = place.json("status v", "status");
    assert!(
        count(&status, "/lost/bytes") <= before - (1 << 20),
        "{status}"
    );
    // Other flash may join, and holds copies of what is not lost.
    place.ok("replace v g:16M --member 0 --empty");
    assert!(lost(&mut peer, 2 * MIB));
    begins(&place, &noise(2, MIB));
    std::fs::File::options()
        .write(true)
        .open(place.path("s"))
        .and_then(|s| s.set_len(128 << 20))
        .expect("longer");
    let why = place.fails("grow v");
    assert!(why.contains("--accept-loss"), "{why}");
    let size = count(&status, "/volume_bytes");
    let all = noise(3, usize::try_from(size).expect("fits"));
    copy_in(&place, &all);
    holds(&place, &all);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    assert_eq!(place.json("status v", "status")["lost"]["bytes"], json!(0));
    place.ok("grow v");
    place.ok("release v --yes");
}

/// The older data of the disks is accepted later, and the list is empty.
#[test]
fn lost_data_is_accepted_later() {
    let place = Place::new();
    let served = with_lost_data(&place);
    assert_eq!(served.terminate(), Some(0));
    let served = place.serve("v --accept-loss --nbd unix:n");
    let status = place.json("status v", "status");
    assert_eq!(status["lost"]["bytes"], json!(0));
    // It was never written to the disk.
    holds(&place, &[]);
    let (code, said) = {
        place.ok("stop v");
        served.end()
    };
    assert!(code == Some(0) && said.contains("older data"), "{said}");
    let served = place.serve("v --nbd unix:n");
    holds(&place, &[]);
    assert_eq!(served.terminate(), Some(0));
    place.ok("release v --yes");
}

/// The journal on flash is damaged, so that nobody knows what the copies are. The flash is there, and the volume goes on without it.
#[test]
fn a_volume_goes_on_without_flash_that_is_there() {
    let place = Place::new();
    let made = place.json("create v --fast f:16M --slow s:64M --policy lru", "create");
    let served = place.serve("v --nbd unix:n");
    let data = noise(1, 8 * MIB);
    copy_in(&place, &data);
    // While it is served, nobody else begins.
    let why = place.fails("serve v --without-flash --nbd unix:m");
    assert!(why.contains("served already"), "{why}");
    served.kill();
    // All of the ring, on its two places.
    let extent = count(&made, "/extent_bytes");
    let from = 16_384;
    let to = (16 << 20) - count(&made, "/members/0/slots") * extent - 4096;
    let flash = std::fs::OpenOptions::new()
        .write(true)
        .open(place.path("f"));
    let zeros = vec![0; usize::try_from(to - from).expect("fits")];
    std::os::unix::fs::FileExt::write_all_at(&flash.expect("opened"), &zeros, from)
        .expect("written");
    let why = place.fails("serve v --nbd unix:n");
    assert!(why.contains("--without-flash"), "{why}");
    let served = place.serve("v --without-flash --nbd unix:n");
    let status = place.json("status v", "status");
    assert_eq!(status["missing_members"], json!([0]));
    assert!(count(&status, "/lost/bytes") > 0, "{status}");
    copy_in(&place, &data);
    holds(&place, &data);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    // From now on it is no part of the volume, until it is put in its own place again.
    let served = place.serve("v --nbd unix:n");
    assert_eq!(
        place.json("status v", "status")["missing_members"],
        json!([0])
    );
    holds(&place, &data);
    assert_eq!(served.terminate(), Some(0));

    place.ok("create w --fast wf:16M --slow ws:64M --policy linear");
    let why = place.fails("serve w --without-flash --nbd unix:n");
    assert!(why.contains("no cache volume"), "{why}");
}

/// `serve --on-event`: each state is told once; a program that never ends holds up neither the volume nor its end, and one that others could
/// change is refused.
#[test]
fn a_program_hears_of_each_state_and_holds_up_nothing() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:64M --policy lru,write-mode=write-through-all");
    let (hook, at) = (place.path("hook"), place.path("").display().to_string());
    let program = format!(
        "#!/bin/sh\ncat >{at}/health.$2\necho $$ >{at}/pid.$2\necho \"$*\" >>{at}/told\n[ $2 != well ] || exec sleep 1000\n"
    );
    std::fs::write(&hook, program).expect("written");
    let permit = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&hook, mode).expect("set");
    };
    let call = format!("v --nbd unix:n --on-event {}", hook.display());
    for (mode, word) in [(0o600, "is no program"), (0o722, "chmod go-w")] {
        permit(mode);
        let out = place.run(&format!("serve {call}"));
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            out.status.code() == Some(2) && said.contains(word),
            "{said}"
        );
    }
    permit(0o700);
    lose(&place);
    let served = place.serve(&call);
    let told = || std::fs::read_to_string(place.path("told")).unwrap_or_default();
    wait_for("the loss to be told", || {
        told().ends_with("v degraded\n").then_some(())
    });
    place.ok("cache v remove");
    wait_for("the end of it to be told", || {
        told().ends_with("v well\n").then_some(())
    });
    assert_eq!(told().lines().count(), 2, "{}", told());
    let text = std::fs::read_to_string(place.path("health.degraded")).expect("read");
    let health: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(health["causes"][0]["kind"], json!("missing"), "{health}");
    // It has not ended yet.
    let pid = std::fs::read_to_string(place.path("pid.well")).expect("read");
    assert_eq!(served.terminate(), Some(0));
    let killed = place.tool("kill", &[pid.trim()]);
    assert!(killed.status.success(), "it was waited for");
}

/// A hot spare: the program that hears of the loss gives the volume other flash, without anybody.
#[test]
fn a_spare_takes_the_place_of_lost_flash() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:64M --policy lru,write-mode=write-through-all");
    let hook = place.path("hook");
    let program = env!("CARGO_BIN_EXE_isotherm");
    let text = format!("#!/bin/sh\n[ $2 != degraded ] || exec {program} replace \"$1\" g:24M\n");
    std::fs::write(&hook, text).expect("written");
    let made = place.tool("chmod", &["700", "hook"]);
    assert!(made.status.success());
    lose(&place);
    let served = place.serve(&format!("v --nbd unix:n --on-event {}", hook.display()));
    wait_for("the spare to be used", || {
        let status = place.status();
        let flash = status["members"][0]["path"].as_str()?.ends_with("/g");
        (flash && status["health"]["state"] == json!("well")).then_some(())
    });
    assert_eq!(served.terminate(), Some(0));
}
