//! Members are identified by their superblocks; paths are only hints.

mod common;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use common::Place;
use common::loop_device::LoopDevice;
use common::peer::{FLUSH, Peer};
use isotherm_core::MemberId;
use isotherm_core::store::{BLOCK, Superblock};
use serde_json::json;

const MIB: u64 = 1 << 20;

fn sparse(place: &Place, name: &str, bytes: u64) {
    let file = fs::File::create(place.path(name)).expect("created");
    file.set_len(bytes).expect("sized");
}

fn flush(peer: &mut Peer) {
    peer.ask(FLUSH, 0, 0).expect("sent");
    assert_eq!(peer.answer().expect("answered"), 0);
}

/// Serves the volume, checks that the first bytes are those of the last call, and writes others. Returns standard error.
fn used(place: &Place, was: u8, will_be: u8) -> String {
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    for at in [0, 20 * MIB, 40 * MIB] {
        assert_eq!(peer.read(at, 4096).expect("read"), [was; 4096], "at {at}");
        peer.write(at, &[will_be; 4096]).expect("written");
    }
    flush(&mut peer);
    drop(peer);
    served.signal("TERM");
    let (code, stderr) = served.end();
    assert_eq!(code, Some(0), "{stderr}");
    stderr
}

fn rewrite(place: &Place, change: impl Fn(String) -> String) {
    let text = fs::read_to_string(place.path("v.toml")).expect("read");
    let new = change(text.clone());
    assert_ne!(new, text, "nothing changed");
    fs::write(place.path("v.toml"), new).expect("written");
}

/// Every user can read the number of a volume, and may be able to attach a device.
#[test]
fn a_device_that_only_states_the_number_of_the_volume_does_not_block_it() {
    let place = Place::in_memory();
    sparse(&place, "f", 16 * MIB);
    sparse(&place, "s", 64 * MIB);
    let over = |name: &str| LoopDevice::over(&place, &[], name);
    let (Some(f), Some(s)) = (over("f"), over("s")) else {
        return;
    };
    place.ok(&format!(
        "create v --fast {} --slow {} --policy greendm",
        f.0, s.0
    ));
    used(&place, 0, 1);
    place.away("x");
    place.ok("create away/w --fast away/x:16M --slow away/y:64M --policy greendm");
    let read = |name: &str| {
        let mut block = [0; BLOCK];
        let file = fs::File::open(place.path(name)).expect("opened");
        file.read_exact_at(&mut block, 0).expect("read");
        Superblock::decode(&block).expect("a superblock")
    };
    let mut forged = read("away/x");
    (forged.uuid, forged.generation) = (read("f").uuid, 1 << 40);
    let file = OpenOptions::new().write(true).open(place.path("away/x"));
    let file = file.expect("opened");
    for at in [0, forged.copy_offset(MemberId(0))] {
        file.write_all_at(&forged.encode(), at).expect("written");
    }
    file.sync_all().expect("written");
    let Some(other) = over("away/x") else {
        return;
    };
    let said = used(&place, 1, 2);
    let words = format!("{}: states the number of this volume", other.0);
    assert!(said.contains(&words), "{said}");
    assert_eq!(place.json("check v", "check")["ok"], json!(true));
}

/// A volume of one member, and one whose devices all have other names, tell a forged member by its owner: any user may be able to attach a
/// loop device over a file of his own. Root's copy is still refused, because it may be the member.
#[test]
fn what_another_user_attaches_blocks_no_volume() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: files of other users need root");
    }
    for (shape, renamed) in [("", false), ("", true), ("--fast f:16M", true)] {
        let place = Place::in_memory();
        let policy = if shape.is_empty() {
            "linear"
        } else {
            "greendm"
        };
        place.ok(&format!("create v {shape} --slow s:64M --policy {policy}"));
        used(&place, 0, 1);
        // The worst: a copy of the member, of a later session.
        place.away("x");
        fs::copy(place.path("s"), place.path("away/x")).expect("copied");
        let names: Vec<&str> = ["f", "s"]
            .into_iter()
            .filter(|n| place.path(n).exists())
            .collect();
        let over = |name: &str| LoopDevice::over(&place, &[], name);
        let Some(devices) = names.iter().map(|n| over(n)).collect::<Option<Vec<_>>>() else {
            return;
        };
        rewrite(&place, |text| {
            let named = |text: String, (n, d): (&&str, &LoopDevice)| {
                let now = if renamed {
                    format!("/dev/gone-{n}")
                } else {
                    d.0.clone()
                };
                text.replace(place.path(n).to_str().expect("text"), &now)
            };
            names.iter().zip(&devices).fold(text, named)
        });
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(place.path("away/x"));
        let file = file.expect("opened");
        let mut block = [0; BLOCK];
        file.read_exact_at(&mut block, 0).expect("read");
        let mut forged = Superblock::decode(&block).expect("a superblock");
        forged.generation = 1 << 40;
        let at = MemberId(forged.index);
        for at in [0, forged.copy_offset(at)] {
            file.write_all_at(&forged.encode(), at).expect("written");
        }
        file.sync_all().expect("written");
        let Some(other) = over("away/x") else {
            return;
        };
        let why = place.fails("serve v --nbd unix:n");
        assert!(
            why.contains("is a copy or a snapshot") || why.contains(&other.0),
            "{why}"
        );
        std::os::unix::fs::chown(place.path("away/x"), Some(65534), None).expect("given");
        let is_left_out = |said: String| {
            let words = format!("{}: states to be member", other.0);
            assert!(said.contains(&words), "{shape}, {renamed}: {said}");
        };
        is_left_out(used(&place, 1, 2));
        // He gives the name to a file of root's, or takes it away.
        fs::rename(place.path("away/x"), place.path("away/y")).expect("renamed");
        fs::write(place.path("away/root"), "").expect("written");
        std::os::unix::fs::symlink("root", place.path("away/x")).expect("linked");
        is_left_out(used(&place, 2, 3));
        fs::remove_file(place.path("away/y")).expect("removed");
        is_left_out(used(&place, 3, 4));
        assert_eq!(place.json("check v", "check")["ok"], json!(true));
    }
}

#[test]
fn names_that_were_swapped_lead_to_the_same_members() {
    let place = Place::in_memory();
    place.ok("create v --fast f:16M --slow s:64M --policy greendm");
    used(&place, 0, 1);
    // Disks that change places: every name exists and shows the other member.
    for (from, to) in [("f", "x"), ("s", "f"), ("x", "s")] {
        fs::rename(place.path(from), place.path(to)).expect("renamed");
    }
    let said = used(&place, 1, 2);
    assert!(
        said.contains("member 0 is ") && said.contains("member 1 is "),
        "{said}"
    );
    assert_eq!(place.json("check v", "check")["ok"], json!(true));
    let status = place.json("status v", "status");
    let path = |i: usize| {
        status["members"][i]["path"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    };
    assert!(
        path(0).ends_with("/s") && path(1).ends_with("/f"),
        "{status}"
    );
    // In addition, the lines of the description are in another order.
    rewrite(&place, |t| {
        let parts: Vec<&str> = t.split("[[members]]").collect();
        [parts[0], parts[2], parts[1]].join("\n[[members]]")
    });
    used(&place, 2, 3);
}

#[test]
fn members_that_moved_are_found_near_the_description_and_where_they_were() {
    let place = Place::in_memory();
    fs::create_dir(place.path("a")).expect("made");
    fs::create_dir(place.path("a/disks")).expect("made");
    place.ok("create a/v --fast a/disks/f:16M --slow a/disks/s:64M --policy greendm");
    // The directory above has another name, so the paths in the description do not exist.
    fs::rename(place.path("a"), place.path("b")).expect("renamed");
    let status = place.json("status b/v", "status");
    assert_eq!(status["degraded"], json!(false), "{status}");
    let served = place.serve("b/v --nbd unix:n");
    let path = place.json("status b/v", "status")["members"][1]["path"].clone();
    assert!(
        path.as_str().is_some_and(|p| p.ends_with("/b/disks/s")),
        "{path}"
    );
    assert_eq!(served.terminate(), Some(0));
    // Each member has another name and place: one is beside the description, one beside its old place.
    fs::rename(place.path("b/disks/f"), place.path("b/quick")).expect("renamed");
    fs::create_dir(place.path("a")).expect("made");
    fs::create_dir(place.path("a/disks")).expect("made");
    fs::rename(place.path("b/disks/s"), place.path("a/disks/big")).expect("renamed");
    assert_eq!(place.json("check b/v", "check")["ok"], json!(true));
    let served = place.serve("b/v --nbd unix:n");
    served.signal("TERM");
    let (code, said) = served.end();
    assert_eq!(code, Some(0));
    assert!(
        said.contains("/b/quick now") && said.contains("/a/disks/big now"),
        "{said}"
    );
    // `find` without arguments examines the files in this directory; a description that is made from its output must work.
    let text = place.ok("find b/quick a/disks/big");
    assert!(text.contains("# volume v"));
    // The keys have the order of a description in JSON, too.
    let io = text.split_once("[io]\n").expect("a part").1;
    let keys = io.lines().map_while(|l| Some(l.split_once(" = ")?.0));
    let json = place.json("find b/quick a/disks/big", "find");
    let io = json[0]["description"]["io"].as_object().expect("keys");
    assert!(io.len() > 1 && io.keys().eq(keys), "{text}{json}");
}

#[test]
fn a_copy_beside_is_told_from_the_member_or_refused() {
    let place = Place::in_memory();
    place.ok("create v --fast f:16M --slow s:64M --policy greendm");
    used(&place, 0, 1);
    fs::copy(place.path("s"), place.path("s.bak")).expect("copied");
    // A user who copied a member may have meant either of both.
    for command in ["check v", "status v", "serve v --nbd unix:n"] {
        let why = place.fails(command);
        assert!(
            why.contains("/s and ") && why.contains("/s.bak are both member 1"),
            "{command}: {why}"
        );
    }
    let why = place.fails("find f s s.bak");
    assert!(why.contains("one is a copy"), "{why}");
    // Where nobody names devices, another volume is found all the same.
    place.ok("create w --fast a:16M --slow b:64M");
    let out = place.run("find");
    let (found, said) = [out.stdout, out.stderr]
        .map(|o| String::from_utf8_lossy(&o).into_owned())
        .into();
    assert!(
        found.contains("# volume w") && !found.contains("/s.bak"),
        "{found}"
    );
    assert!(said.contains("one is a copy"), "{said}");
    // A second name for the same bytes is no copy.
    fs::create_dir(place.path("kept")).expect("made");
    fs::rename(place.path("s.bak"), place.path("kept/s.bak")).expect("renamed");
    fs::hard_link(place.path("s"), place.path("s.too")).expect("linked");
    used(&place, 1, 2);
    fs::remove_file(place.path("s.too")).expect("removed");
    // An old copy must not be taken for the member that the description names.
    fs::rename(place.path("kept/s.bak"), place.path("s.bak")).expect("renamed");
    let said = used(&place, 2, 3);
    assert!(said.contains("s.bak: an old copy"), "{said}");
    // The copy is older than the rest of the volume and must never be used instead.
    fs::rename(place.path("s"), place.path("elsewhere")).expect("renamed");
    let said = used(&place, 3, 4);
    assert!(
        said.contains("/elsewhere now") && said.contains("s.bak: an old copy"),
        "{said}"
    );
    fs::create_dir(place.path("away")).expect("made");
    fs::rename(place.path("elsewhere"), place.path("away/s")).expect("renamed");
    let why = place.fails("serve v --nbd unix:n");
    assert!(why.contains("/s: does not exist"), "{why}");
    fs::rename(place.path("away/s"), place.path("elsewhere")).expect("renamed");
    // Two members of the same age, and the description names neither of them.
    fs::copy(place.path("elsewhere"), place.path("twin")).expect("copied");
    for command in ["check v", "status v", "serve v --nbd unix:n"] {
        let why = place.fails(command);
        assert!(
            why.contains("/elsewhere and ") && why.contains("/twin are both member 1"),
            "{command}: {why}"
        );
    }
    fs::remove_file(place.path("twin")).expect("removed");
    used(&place, 4, 5);
}

#[test]
fn an_unreadable_superblock_is_not_passed_over_for_a_copy() {
    let place = Place::in_memory();
    place.ok("create v --slow s:64M --policy linear");
    used(&place, 0, 1);
    fs::create_dir(place.path("kept")).expect("made");
    fs::copy(place.path("s"), place.path("kept/s.bak")).expect("copied");
    let whole = fs::read(place.path("s")).expect("read");
    let copies: Vec<usize> = (0..whole.len() / 4096)
        .filter(|b| whole[b * 4096..].starts_with(b"ISOTHERM"))
        .collect();
    assert_eq!(copies.len(), 2);
    let file = OpenOptions::new()
        .write(true)
        .open(place.path("s"))
        .expect("opened");
    for block in &copies {
        file.write_all_at(&[0xff], (block * 4096 + 100) as u64)
            .expect("written");
    }
    fs::rename(place.path("kept/s.bak"), place.path("s.bak")).expect("renamed");
    let why = place.fails("serve v --nbd unix:n");
    assert!(why.contains("/s: ") && why.contains("superblock"), "{why}");
    fs::remove_file(place.path("s.bak")).expect("removed");
    // One superblock is enough.
    file.write_all_at(&whole[copies[1] * 4096..][..4096], copies[1] as u64 * 4096)
        .expect("written");
    used(&place, 1, 2);
}

#[test]
fn a_device_and_its_clone_are_refused_a_loop_device_over_the_member_is_not() {
    let place = Place::in_memory();
    sparse(&place, "i", 64 * MIB);
    let Some(first) = LoopDevice::over(&place, &[], "i") else {
        return;
    };
    place.ok(&format!("create v --slow {} --policy linear", first.0));
    used(&place, 0, 1);
    // The same bytes through a second loop device, and through the file's own name beside the description.
    let Some(second) = LoopDevice::over(&place, &[], "i") else {
        return;
    };
    used(&place, 1, 2);
    drop(second);
    fs::copy(place.path("i"), place.path("clone")).expect("copied");
    let Some(clone) = LoopDevice::over(&place, &[], "clone") else {
        return;
    };
    for command in ["check v", "status v", "serve v --nbd unix:n"] {
        let why = place.fails(command);
        assert!(
            why.contains(&first.0) && why.contains(&clone.0) && why.contains("both member 0"),
            "{command}: {why}"
        );
    }
    let why = place.fails(&format!("find {} {}", first.0, clone.0));
    assert!(why.contains("one is a copy"), "{why}");
    drop(clone);
    fs::remove_file(place.path("clone")).expect("removed");
    used(&place, 2, 3);
    // The device is attached again under another name; the old name shows something else.
    let old = first.0.clone();
    drop(first);
    sparse(&place, "other", 64 * MIB);
    let other = LoopDevice::over(&place, &[], "other");
    let Some(new) = LoopDevice::over(&place, &[], "i") else {
        return;
    };
    let said = used(&place, 3, 4);
    if other.as_ref().is_some_and(|o| o.0 == old) {
        assert!(said.contains(&new.0) || said.contains("/i now"), "{said}");
    }
}

#[test]
fn who_uses_a_device_is_said() {
    let place = Place::in_memory();
    sparse(&place, "i", 64 * MIB);
    let Some(node) = LoopDevice::over(&place, &[], "i") else {
        return;
    };
    place.ok(&format!("create v --slow {} --policy linear", node.0));
    let served = place.serve("v --nbd unix:n");
    let by = format!("device in use by process {} (isotherm)", served.child.id());
    let again = place.fails("serve v --nbd unix:m");
    assert!(
        again.contains("v: this volume is served already") && again.contains(&by),
        "{again}"
    );
    let other = place.fails(&format!("create w --slow {} --force", node.0));
    assert!(
        other.contains(&by) && !other.contains("served already"),
        "{other}"
    );
    assert_eq!(served.terminate(), Some(0));
    fs::create_dir(place.path("m")).expect("made");
    let made = place.tool("mkfs.ext4", &["-q", "-F", &node.0]);
    if !made.status.success() || !place.tool("mount", &[&node.0, "m"]).status.success() {
        println!("the rest is skipped: no mounts here");
        return;
    }
    let mounted = place.fails(&format!("create w --slow {} --force", node.0));
    common::unmount(&place.path("m"));
    let at = format!("(mounted at {})", place.path("m").display());
    assert!(mounted.contains(&at), "{mounted}");
}

#[test]
fn a_device_without_a_medium_is_a_member_that_is_missing() {
    // Another test may get the loop device as soon as it has no file.
    for _ in 0..5 {
        let place = Place::in_memory();
        for name in ["away/f", "s"] {
            fs::create_dir_all(place.path("away")).expect("made");
            sparse(&place, name, 64 * MIB);
        }
        let Some(node) = LoopDevice::over(&place, &[], "away/f") else {
            return;
        };
        let fast = node.0.clone();
        place.ok(&format!("create v --fast {fast} --slow s --policy greendm"));
        drop(node);
        let out = place.run("status v");
        let shown = format!("/sys/block/{}/loop", fast.trim_start_matches("/dev/"));
        if fs::exists(&shown).unwrap_or(true) {
            continue;
        }
        let text = [out.stdout, out.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(
            text.contains("missing") && !text.contains("damaged"),
            "{text}"
        );
        return;
    }
    println!("skipped: other tests took the loop device each time");
}

#[test]
fn what_a_user_may_not_read_is_not_called_damaged_or_missing() {
    let place = Place::in_memory();
    place.ok("create v --fast f:64M --slow s:64M --policy greendm");
    // The description may be read, the members (mode 0600) may not.
    place.tool("chmod", &["755", "."]);
    let as_nobody = |call: &str| {
        let program = env!("CARGO_BIN_EXE_isotherm");
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", program];
        let words: Vec<&str> = user.into_iter().chain(call.split_whitespace()).collect();
        place.tool("setpriv", &words)
    };
    if !as_nobody("--version").status.success() {
        println!("skipped: this process may not run the program as another user");
        return;
    }
    for call in ["check v", "status v", "serve v --nbd unix:n"] {
        let out = as_nobody(call);
        let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        assert!(
            out.status.code() == Some(1)
                && text.contains("permission denied: run this as root")
                && !text.contains("damaged")
                && !text.contains("missing"),
            "`{call}`: {text}"
        );
    }
}

/// What `export` prints makes a volume of the same kind, on other devices.
#[test]
fn an_exported_description_makes_the_same_again() {
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:64M --extent 16K --policy arc");
    let served = place.serve("v --nbd unix:n");
    place.ok("set v dirty_age_s=600");
    assert_eq!(served.terminate(), Some(0));
    let text = place.ok("export v");
    assert!(!text.contains("uuid"), "{text}");
    let text = text.replace("/f\"", "/f2\"").replace("/s\"", "/s2\"");
    fs::create_dir(place.path("d")).expect("made");
    fs::write(place.path("d/like.toml"), text).expect("written");
    place.ok("create d/w --config d/like.toml");
    let kept = |volume: &str| -> Vec<String> {
        let text = place.ok(&format!("export {volume}"));
        let own = |l: &&str| !l.starts_with("path =") && !l.starts_with("name =");
        text.lines().filter(own).map(str::to_owned).collect()
    };
    assert_eq!(kept("v"), kept("d/w"));
    assert!(kept("v").iter().any(|l| l == "dirty_age_s = 600.0"));
    assert!(place.fails("export x").contains("x.toml"));
}
