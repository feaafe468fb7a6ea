//! A member with data is replaced while the volume is served: it is copied beside the requests.

#[path = "../common/mod.rs"]
mod common;
mod faults;

use common::faulty::{Faulty, Released};
use common::nbd::{MIB, begins, copy_in, holds, noise};
use common::peer::{Peer, wait_for};
use common::writer::{BLOCK, Held, Writer, checked};
use common::{Place, Served};
use serde_json::{Value, json};
use std::fs;
use std::ops::Range;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CREATE: &str = "create v --fast f:16M --slow s:64M --policy lru";

fn sound(place: &Place) {
    let check = place.json("check v", "check");
    assert_eq!(
        (&check["ok"], &check["was_clean"]),
        (&json!(true), &json!(true)),
        "{check}"
    );
}

fn end(place: &Place, served: Served) {
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
}

fn serve(place: &Place) -> Served {
    place.serve("v --nbd unix:n")
}

fn status(place: &Place) -> Value {
    place.json("status v", "status")
}

/// How far the copy is, once it has begun.
fn begun(place: &Place) -> Value {
    wait_for("the copy", || {
        let copy = status(place)["replacing"].clone();
        (copy["pass"].as_u64() >= Some(1)).then_some(copy)
    })
}

/// Begins a command and does not wait for it.
fn start(place: &Place, call: &str) -> Child {
    let mut command = place.command(call);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("started")
}

/// The result of a command that was begun with `--json`, or its error.
fn result(child: Child) -> Result<Value, String> {
    let out = child.wait_with_output().expect("ended");
    if out.status.success() {
        Ok(serde_json::from_slice(&out.stdout).expect("JSON"))
    } else {
        Err(String::from_utf8_lossy(&out.stderr).into_owned())
    }
}

/// A file that is a disk for `Faulty`.
fn disk(place: &Place, name: &str, bytes: u64) -> std::path::PathBuf {
    let backing = place.away(name);
    fs::File::create(&backing)
        .and_then(|f| f.set_len(bytes))
        .expect("made");
    backing
}

/// A client that reads all the time, and measures its longest wait.
struct Prober {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, Duration)>,
}

impl Prober {
    fn start(place: &Place) -> Prober {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let mut peer = Peer::connect(&place.path("n")).expect("connected");
        let thread = std::thread::spawn(move || {
            let (mut reads, mut longest) = (0, Duration::ZERO);
            while !is_over.load(Ordering::Relaxed) {
                let since = Instant::now();
                peer.read((reads % 4096) * 4096, 4096).expect("read");
                longest = longest.max(since.elapsed());
                reads += 1;
            }
            (reads, longest)
        });
        Prober { stop, thread }
    }
    fn stop(self) -> (u64, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

/// Writes and verifies during the copy of a member and the change to the new one; afterwards the old one is away.
fn copied_under_a_writer(create: &str, member: &str, new: &str) {
    let place = Place::new();
    let made = place.json(create, "create");
    let size = made["volume_bytes"].as_u64().expect("a number") as usize;
    let served = serve(&place);
    copy_in(&place, &vec![0; size / 2]);
    let writer = Writer::start(&place, vec![Held::default(); size / BLOCK], 1);
    let prober = Prober::start(&place);
    let made = place.json(&format!("replace v {new} --member {member}"), "replace");
    let after_switch = Instant::now();
    while after_switch.elapsed() < Duration::from_millis(300) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (reads, longest) = prober.stop();
    println!("{member}: longest wait of {reads} reads: {longest:?}; {made}");
    assert_eq!(made["served"], json!(true), "{made}");
    assert!(made["copied_bytes"].as_u64() > Some(0), "{made}");
    let now = status(&place);
    assert_eq!(
        (&now["replacing"], &now["degraded"]),
        (&Value::Null, &json!(false))
    );
    let (held, writes) = writer.stop();
    assert!(writes > 0);
    let held = checked(&place, &held);
    // Another volume can have the former device while this one is served.
    place.json(&format!("create w --slow {member}:16M"), "create");
    end(&place, served);
    fs::remove_file(place.path(member)).expect("removed");
    sound(&place);
    let served = serve(&place);
    let held = checked(&place, &held);
    // All of it is where it should be, also without the cache.
    place.json("check v --data", "check");
    checked(&place, &held);
    end(&place, served);
}

#[test]
fn a_disk_is_copied_under_a_writer() {
    copied_under_a_writer(CREATE, "s", "t:64M");
}

#[test]
fn a_disk_that_takes_all_writes_is_copied_to_a_larger_one() {
    let create = format!("{CREATE},write-mode=write-through-all");
    copied_under_a_writer(&create, "s", "t:100M");
}

#[test]
fn flash_with_data_of_its_own_is_copied() {
    copied_under_a_writer(CREATE, "f", "g:24M");
}

#[test]
fn one_of_two_disks_of_a_tiering_volume_is_copied() {
    let create = "create v --fast f:16M --slow s:48M --slow s2:48M --policy hot-dst-5s";
    copied_under_a_writer(create, "s2", "t:48M");
}

/// A served volume with `mib` MiB of data, and the new disk `d/t`, whose writes at the MiB `late` wait.
fn waiting(seed: u64, mib: usize, late: Range<u64>) -> Option<(Place, Vec<u8>, Served, Faulty)> {
    let place = Place::new();
    place.json(CREATE, "create");
    let data = noise(seed, mib * MIB);
    let served = serve(&place);
    copy_in(&place, &data);
    let backing = disk(&place, "t", 64 << 20);
    let new = Faulty::attach(&backing, &place.path("d"), "t")?;
    new.delay_writes_in(late.start << 20, late.end << 20);
    Some((place, data, served, new))
}

/// The new device holds its writes: requests are answered while the copy waits for it. A second change is refused, `--cancel` gives the copy up,
/// and what it has left on the device is no obstacle.
#[test]
fn requests_go_on_and_a_copy_can_be_given_up() {
    let Some((place, data, served, new)) = waiting(1, 40, 20..40) else {
        return;
    };
    let _released = Released(&new);
    let replace = start(&place, "replace v d/t --member s --json");
    wait_for("a write that waits", || (new.held() > 0).then_some(()));
    let copy = begun(&place);
    assert_eq!(
        (&copy["member"], &copy["pass"]),
        (&json!(1), &json!(1)),
        "{copy}"
    );
    assert!(copy["left_bytes"].as_u64() > Some(0), "{copy}");
    // Nothing waits for the new device.
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    for i in 0..200u64 {
        let at = (i * 37 % 640) << 16;
        peer.write(at, &data[at as usize..][..4096])
            .expect("written");
        assert!(peer.read(at, 4096).expect("read") == data[at as usize..][..4096]);
    }
    drop(peer);
    let text = place.ok("status v");
    assert!(text.contains("is copied to"), "{text}");
    for call in ["replace v u:64M --member s", "grow v", "cache v remove"] {
        let why = place.fails(call);
        assert!(
            why.contains("is being copied to") && why.contains("--cancel"),
            "{call}: {why}"
        );
        assert!(!place.path("u").exists());
    }
    place.ok("set v write-mode=write-through-all");
    let cancel = start(&place, "replace v --cancel --json");
    // The write in progress ends, and nothing more is written.
    std::thread::sleep(Duration::from_millis(200));
    new.go_on();
    let cancelled = result(cancel).expect("given up");
    common::fits(&cancelled, "replace-cancel");
    let why = result(replace).expect_err("given up");
    assert!(
        why.contains("given up") && why.contains("as it was before"),
        "{why}"
    );
    assert_eq!(status(&place)["replacing"], Value::Null);
    assert!(
        place
            .fails("replace v --cancel")
            .contains("no member is being replaced")
    );
    holds(&place, &data);
    // What was left there is known for what it is.
    let made = place.json("create w --slow d/t", "create");
    assert!(made["volume_bytes"].as_u64() > Some(0));
    fs::remove_file(place.path("w.toml")).expect("removed");
    assert!(place.fails("replace v d/t --member s").contains("--force"));
    place.json("replace v d/t --member s --force", "replace");
    holds(&place, &data);
    end(&place, served);
    sound(&place);
    fs::remove_file(place.path("s")).expect("removed");
    let served = serve(&place);
    begins(&place, &data);
    end(&place, served);
}

/// The client leaves: the copy goes on, and the volume has its new member.
#[test]
fn the_copy_goes_on_without_its_client() {
    let Some((place, data, served, new)) = waiting(2, 40, 20..40) else {
        return;
    };
    let _released = Released(&new);
    let mut replace = start(&place, "replace v d/t --member 1");
    wait_for("a write that waits", || (new.held() > 0).then_some(()));
    replace.kill().expect("killed");
    replace.wait().expect("ended");
    new.go_on();
    wait_for("the new member", || {
        let path = status(&place)["members"][1]["path"].as_str()?.to_owned();
        path.ends_with("d/t").then_some(())
    });
    holds(&place, &data);
    end(&place, served);
    sound(&place);
}

/// kill -9 at many moments of copy and change: the volume has its old or its new disk, and everything that was flushed.
#[test]
fn kill_9_during_copy_and_change_loses_nothing() {
    let place = Place::new();
    let made = place.json("create v --fast f:16M --slow s0:64M --policy lru", "create");
    let size = made["volume_bytes"].as_u64().expect("a number") as usize;
    let mut held = vec![Held::default(); size / BLOCK];
    let (mut disk, mut replaced, mut in_copy) = ("s0".to_owned(), 0, 0);
    let served = serve(&place);
    copy_in(&place, &vec![0; size / 2]);
    end(&place, served);
    // A whole copy takes this long here.
    let mut whole = Duration::from_millis(400);
    for round in 0..24u32 {
        let served = serve(&place);
        let writer = Writer::start(&place, held, u64::from(round) + 1);
        std::thread::sleep(Duration::from_millis(30));
        let new = format!("s{}", round + 1);
        let call = format!("replace v {new}:64M --member {disk} --json");
        let since = Instant::now();
        let mut replace = start(&place, &call);
        // Most moments are near the end.
        let share = [20, 60, 80, 90, 95, 98, 100, 103][round as usize % 8];
        while since.elapsed() < whole * share / 100 && matches!(replace.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        served.kill();
        let done = result(replace).is_ok();
        if done {
            whole = whole.min(since.elapsed()).max(Duration::from_millis(50));
        } else if round % 8 > 5 {
            whole = whole * 5 / 4;
        }
        held = writer.stop().0;
        let served = serve(&place);
        held = checked(&place, &held);
        let now = status(&place)["members"][1]["path"]
            .as_str()
            .expect("a path")
            .to_owned();
        assert_eq!(status(&place)["degraded"], json!(false));
        if now.ends_with(&format!("/{new}")) {
            replaced += 1;
            let _ = fs::remove_file(place.path(&disk));
            disk = new;
        } else {
            assert!(
                !done && now.ends_with(&format!("/{disk}")),
                "{round}: {now}"
            );
            in_copy += 1;
            if place.path(&new).exists() && round % 3 == 0 {
                // The copy begins anew on what the attempt has left.
                let made = place.json(&call[..call.len() - 7], "replace");
                assert_eq!(made["served"], json!(true));
                let _ = fs::remove_file(place.path(&disk));
                disk = new;
            } else {
                let _ = fs::remove_file(place.path(&new));
            }
        }
        end(&place, served);
        sound(&place);
    }
    println!("of 24 kills, {in_copy} left the old disk and {replaced} the new one");
    assert!(in_copy > 0, "no kill was in time");
}

/// A recording keeps the change back, and not the copy.
#[test]
fn a_recording_is_waited_for() {
    let Some((place, data, served, new)) = waiting(6, 30, 20..30) else {
        return;
    };
    let _released = Released(&new);
    let replace = start(&place, "replace v d/t --member s --json");
    wait_for("a write that waits", || (new.held() > 0).then_some(()));
    let mut recording = start(&place, "record v --events --out ev");
    wait_for("the recording", || {
        let names = place.names();
        names.iter().any(|n| n.starts_with("ev")).then_some(())
    });
    new.go_on();
    wait_for("the end of the copy", || {
        (status(&place)["replacing"]["waits_for"] == json!("other change")).then_some(())
    });
    holds(&place, &data);
    let _ = recording.kill();
    let _ = recording.wait();
    result(replace).expect("replaced");
    holds(&place, &data);
    end(&place, served);
    sound(&place);
}

/// A stopped volume gives the copy up; a file that was made for it is gone, and the volume is clean.
#[test]
fn a_stop_gives_the_copy_up() {
    let place = Place::new();
    place.json(CREATE, "create");
    let data = noise(7, 40 * MIB);
    let served = serve(&place);
    copy_in(&place, &data);
    let replace = start(&place, "replace v t:64M --member s --rate 2M --json");
    begun(&place);
    end(&place, served);
    let why = result(replace).expect_err("given up");
    assert!(
        why.contains("closing") || why.contains("went away"),
        "{why}"
    );
    sound(&place);
    let description = fs::read_to_string(place.path("v.toml")).expect("read");
    assert!(description.contains("/s\""), "{description}");
    assert!(!place.path("t").exists());
    let served = serve(&place);
    holds(&place, &data);
    end(&place, served);
}
