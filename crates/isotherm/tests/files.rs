//! `mount` and `files`: two directories as one tree, with queries and commands.

mod common;

use common::{Place, unmount};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Number of times that the threads of a process went to sleep.
fn sleeps(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    let status = tasks.filter_map(|t| fs::read_to_string(t.ok()?.path().join("status")).ok());
    let count = |s: String| {
        let line = s
            .lines()
            .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|n| n.trim().parse::<u64>().ok())
    };
    status.filter_map(count).sum()
}

/// Operations on files become a trace that the lab replays.
fn record(place: &Place) {
    let call = "files record mnt --out ops.parquet --json";
    let mut recorder = place.command(call);
    recorder.stdout(std::process::Stdio::piped());
    let recorder = recorder.stderr(std::process::Stdio::piped()).spawn();
    let mut recorder = recorder.expect("starts");
    let mut said = std::io::BufReader::new(recorder.stderr.take().expect("piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).expect("read");
    assert!(line.contains("recording"), "{line}");
    let refused = place.fails("files record mnt --out other.parquet --seconds 1");
    assert!(refused.contains("record"), "{refused}");
    for n in 0..20 {
        let path = place.path(&format!("mnt/recorded-{n}"));
        fs::write(&path, vec![n; 100_000]).expect("written");
        assert_eq!(fs::read(&path).expect("read").len(), 100_000);
    }
    fs::remove_file(place.path("mnt/recorded-0")).expect("removed");
    place.tool("kill", &["-TERM", &recorder.id().to_string()]);
    let out = recorder.wait_with_output().expect("ends");
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    common::fits(&said, "files-record");
    assert_eq!((&said["files"], &said["lost"]), (&20.into(), &0.into()));
    let info = place.json("trace info ops.parquet", "trace-info");
    assert_eq!(info["requests"], said["requests"], "{info}");
    let sim = "sim ops.parquet --policy lru --fast-size 512K --extent 64K";
    let sim = place.json(sim, "sim");
    let writes = sim["writes"].as_u64();
    assert!(writes.is_some_and(|n| n >= 20), "{sim}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn a_mounted_pair_of_directories_answers_and_obeys() {
    let place = Place::new();
    for dir in ["fast", "slow", "mnt"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    let said = place.fails("mount --fast fast --slow nowhere mnt");
    assert!(said.contains("nowhere: this tier is missing"), "{said}");
    let said = place.fails("files status mnt");
    assert!(said.contains("no tiering file system"), "{said}");
    if !Path::new("/dev/fuse").exists() || !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs /dev/fuse and root");
        return;
    }
    let call =
        "mount --fast fast --slow slow --rule *.iso=slow --watermarks 100,100 --no-moves mnt";
    let mut server = place.command(call).spawn().expect("starts");
    let mounted = || {
        fs::read_to_string("/proc/self/mounts")
            .is_ok_and(|m| m.contains(&place.path("mnt").display().to_string()))
    };
    for _ in 0..600 {
        if mounted() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        fs::create_dir(place.path("mnt/d")).expect("made");
        fs::write(place.path("mnt/d/a"), "hello").expect("written");
        fs::write(place.path("mnt/x.iso"), "disc").expect("written");
        assert!(place.path("fast/d/a").exists());
        place.json("files status mnt", "files-status");
        place.ok("files pin mnt/d --to slow");
        let wanted = place.json("files migrate mnt --dry-run", "files-dry-run");
        assert_eq!(wanted["files"], 2, "{wanted}");
        let moved = place.json("files migrate mnt --now", "files-migrate");
        assert_eq!((&moved["done"], &moved["failed"]), (&2.into(), &0.into()));
        assert_eq!(
            fs::read_to_string(place.path("slow/d/a")).expect("moved"),
            "hello"
        );
        assert_eq!(
            fs::read_to_string(place.path("mnt/d/a")).expect("there"),
            "hello"
        );
        assert_eq!(place.json("files where mnt/d/a", "files-where")["tier"], 1);
        assert_eq!(
            place.json("files why mnt/d/a", "files-why")["decided_by"],
            "pin"
        );
        assert_eq!(
            place.json("files why mnt/x.iso", "files-why")["rule"],
            "*.iso=slow"
        );
        place.ok("files policy mnt/d hro --share 30");
        // Wrong usage must be found before the server is asked.
        let refused = place.run("files policy mnt/d hro --share 101");
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("101"));
        place.ok("files unpin mnt/d");
        assert_eq!(place.json("files check mnt", "files-check")["ok"], true);
        assert_eq!(
            place.json("files stats mnt", "files-stats")["moves"]["done"],
            2
        );
        record(&place);
        // While nothing happens, only the thread that moves files wakes up, once a second.
        let (before, since) = (sleeps(server.id()), std::time::Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        let (woke, idle) = (sleeps(server.id()) - before, since.elapsed().as_secs());
        assert!(woke <= 10 * idle, "{woke} wake-ups in {idle} idle seconds");
    }));
    let pid = server.id().to_string();
    place.tool("kill", &["-TERM", &pid]);
    let ended = server.wait().expect("ends");
    if mounted() {
        place.tool("umount", &["-l", &place.path("mnt").display().to_string()]);
    }
    if let Err(e) = work {
        std::panic::resume_unwind(e);
    }
    assert!(ended.success());
    assert_eq!(
        fs::read_to_string(place.path("slow/d/a")).expect("a plain file"),
        "hello"
    );
}

/// Unmounts our file system while another one is mounted below it at the same place: the program must end without touching the other one.
#[test]
fn what_is_mounted_below_stays_when_ours_is_unmounted() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs /dev/fuse and root");
        return;
    }
    let place = Place::new();
    for dir in ["fast", "slow", "mnt"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    let mnt = place.path("mnt").display().to_string();
    place.tool("mount", &["-t", "tmpfs", "below", &mnt]);
    let mounted = |kind: &str| {
        fs::read_to_string("/proc/self/mounts").is_ok_and(|m| m.contains(&format!("{mnt} {kind}")))
    };
    let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for round in 0..5 {
            let call = "mount --fast fast --slow slow --no-moves mnt";
            let mut server = place.command(call).spawn().expect("starts");
            for _ in 0..600 {
                if mounted("fuse") {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            assert!(mounted("fuse"));
            unmount(mnt.as_ref());
            assert!(server.wait().expect("ends").success());
            assert!(mounted("tmpfs"), "round {round}: unmounted as well");
        }
    }));
    place.tool("umount", &["-l", &mnt]);
    if let Err(e) = work {
        std::panic::resume_unwind(e);
    }
}

/// The server is killed: its mount stays behind, dead. Questions say how to be rid of it, and the same command starts again.
#[test]
fn a_killed_server_is_started_again_by_the_same_command() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs /dev/fuse and root");
        return;
    }
    let place = Place::new();
    for dir in ["fast", "slow", "mnt"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    let call = "mount --fast fast --slow slow mnt";
    for n in 0..3 {
        let served = Place::wait_ready(place.command(call), call);
        fs::write(place.path("mnt/f"), [n; 5]).expect("written");
        let open = fs::File::open(place.path("mnt/f")).expect("opened");
        served.kill();
        let said = place.fails("files status mnt");
        assert!(said.contains("umount -l mnt"), "{said}");
        let again = Place::wait_ready(place.command(call), call);
        assert!(place.ok("files status mnt").contains("Serving well"));
        assert_eq!(fs::read(place.path("mnt/f")).expect("read"), [n; 5]);
        drop(open);
        again.signal("TERM");
        let (code, said) = again.end();
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains("mnt: the mount of a server that was killed was removed"),
            "{said}"
        );
    }
}

/// Asks everything as another user, opens files until that is refused, says what came of it, and waits with the files open.
const OTHER: &str = "
import json, os, sys
for n in range(500): open(f'many{n}', 'w').close()
there = [os.open(p, os.O_RDONLY) for p in ['.', 'open']]
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
all = {}
for what in ['status', 'stats', 'where', 'why', 'migrate', 'check', 'pin', 'policy']:
    all[what] = [json.loads(os.getxattr(f, 'user.isotherm.' + what)) for f in there]
try: os.getxattr(there[0], 'user.isotherm.record'); assert False
except PermissionError: pass
kept, refused = [], None
try:
    for n in range(500): kept.append(os.open(f'/proc/self/fd/{there[0]}/many{n}', os.O_RDONLY))
except OSError as e: refused = e.errno
print(json.dumps({'answers': all, 'opened': len(kept), 'refused': refused}), flush=True)
sys.stdin.readline()
";

/// What another user learned: no name, and only so many files.
fn judge(place: &Place, said: &serde_json::Value) {
    assert_eq!(said["refused"], rustix::io::Errno::NFILE.raw_os_error());
    let opened = said["opened"].as_u64().expect("a number");
    assert!((200..400).contains(&opened), "{opened}");
    let (text, path) = (
        said["answers"].to_string(),
        place.path("").display().to_string(),
    );
    for word in ["secret", &path, "isotherm (a move)"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    let answers = &said["answers"];
    for (what, schema) in [
        ("status", "files-status"),
        ("stats", "files-stats"),
        ("where", "files-where"),
        ("why", "files-why"),
        ("migrate", "files-dry-run"),
        ("check", "files-check"),
    ] {
        for answer in answers[what].as_array().expect("answers") {
            common::fits(answer, schema);
        }
    }
    assert_eq!(answers["status"][0]["counts"]["pins"], 1);
    assert_eq!(answers["status"][0]["tiers"][1]["files"], 1);
    assert_eq!(answers["check"][0]["ok"], true);
    assert_eq!(
        place.json("files status mnt", "files-status")["pins"]["secret"],
        1
    );
}

/// Another user asks everything, and opens files until that is refused. He learns no name, and root can still use the mount.
#[test]
fn other_users_learn_counts_and_leave_descriptors() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs /dev/fuse and root");
        return;
    }
    let place = Place::new();
    for dir in ["fast", "slow", "mnt"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    let call = "mount --fast fast --slow slow --rule *.secret=slow --watermarks 100,100 mnt";
    let plain = place.command(call);
    let mut few = std::process::Command::new("sh");
    few.args(["-c", "ulimit -n 400; exec \"$0\" \"$@\""])
        .arg(plain.get_program())
        .args(plain.get_args())
        .current_dir(place.path(""));
    let server = Place::wait_ready(few, call);
    let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        fs::create_dir(place.path("mnt/secret")).expect("made");
        fs::write(place.path("mnt/secret/f"), "text").expect("written");
        fs::write(place.path("mnt/open"), "text").expect("written");
        place.ok("files pin mnt/secret --to slow");
        place.ok("files migrate mnt --now");
        let mut other = std::process::Command::new("python3")
            .args(["-c", OTHER])
            .current_dir(place.path("mnt"))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("starts");
        let mut said = String::new();
        let out = other.stdout.as_mut().expect("a pipe");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut said).expect("said");
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        // Files are open at the limit of the other user. Root can make and use more.
        for n in 0..20 {
            let path = place.path(&format!("mnt/root-{n}"));
            fs::write(&path, "text").expect("written");
            assert_eq!(fs::read(&path).expect("read"), b"text");
        }
        drop(other.stdin.take());
        other.wait().expect("ends");
        judge(&place, &said);
    }));
    assert_eq!(server.terminate(), Some(0));
    if let Err(e) = work {
        std::panic::resume_unwind(e);
    }
}

/// The paths of all files below a directory, with their contents.
type Tree = std::collections::BTreeMap<String, String>;

fn tree(at: &Path, below: &str, all: &mut Tree) {
    for entry in fs::read_dir(at).expect("listed") {
        let entry = entry.expect("an entry");
        let name = format!("{below}{}", entry.file_name().display());
        if name == ".isotherm" {
            continue;
        }
        if entry.file_type().expect("known").is_dir() {
            tree(&entry.path(), &format!("{name}/"), all);
        } else {
            let text = fs::read_to_string(entry.path()).expect("read");
            all.insert(name, text);
        }
    }
}

/// One change of names, on the mount and in the model. If the mount fails, it may have been done or not.
fn change(mnt: &Path, model: &mut Tree, n: u64, random: u64) -> std::io::Result<()> {
    let mut names: Vec<String> = model.keys().cloned().collect();
    let old = names.swap_remove(random as usize / 8 % names.len());
    let of = |dir: &str| format!("{dir}/");
    let dir = old.split('/').next().unwrap_or_default().to_owned();
    let new = format!("{dir}/n{n}");
    match random % 8 {
        0 | 1 if names.len() > 20 => {
            model.remove(&old);
            fs::remove_file(mnt.join(&old))
        }
        0..3 => {
            model.insert(new.clone(), format!("content {n}"));
            fs::write(mnt.join(new), format!("content {n}"))
        }
        3 | 4 => {
            let to = format!("{}/n{n}", names[0].split('/').next().unwrap_or_default());
            let text = model.remove(&old).unwrap_or_default();
            model.insert(to.clone(), text);
            fs::rename(mnt.join(old), mnt.join(to))
        }
        5 => {
            let over = &names[random as usize / 64 % names.len()];
            let text = model.remove(&old).unwrap_or_default();
            model.insert(over.clone(), text);
            fs::rename(mnt.join(old), mnt.join(over))
        }
        _ => {
            let to = format!("d{n}");
            let moved = std::mem::take(model).into_iter();
            let moved = moved.map(|(p, t)| match p.strip_prefix(&of(&dir)) {
                Some(rest) => (format!("{to}/{rest}"), t),
                None => (p, t),
            });
            *model = moved.collect();
            fs::rename(mnt.join(dir), mnt.join(to))
        }
    }
}

/// kill -9 in the middle of renames of files and directories, while everything moves between the fast tier and three disks. The next mount
/// names the disks in another order. All names and contents are those of before or after the change that was cut off.
#[test]
fn three_disks_in_any_order_survive_kills() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::getuid().is_root() {
        println!("SKIPPED: needs /dev/fuse and root");
        return;
    }
    let place = Place::new();
    for dir in ["fast", "a", "b", "c", "mnt"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    let (mnt, mut random) = (
        place.path("mnt"),
        isotherm_core::random::SplitMix64::new(42),
    );
    let orders = [
        "a --slow b --slow c",
        "c --slow a --slow b",
        "b --slow c --slow a",
    ];
    let mut model = Tree::new();
    for round in 0..9 {
        let call = format!(
            "mount --fast fast --slow {} --watermarks 100,100 --chaos {round} mnt",
            orders[round % 3]
        );
        let served = Place::wait_ready(place.command(&call), &call);
        if round == 0 {
            for n in 0..30 {
                fs::create_dir_all(mnt.join(format!("d{}", n % 3))).expect("made");
                let path = format!("d{}/f{n}", n % 3);
                fs::write(mnt.join(&path), format!("content {n}")).expect("written");
                model.insert(path, format!("content {n}"));
            }
        }
        let mut served = Some(served);
        std::thread::scope(|scope| {
            let pid = served.take();
            let killer = scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(300 + 100 * round as u64));
                pid.map(common::Served::kill)
            });
            let mut before = model.clone();
            for n in 0.. {
                let number = 1000 * (round as u64 + 1) + n;
                if let Err(e) = change(&mnt, &mut model, number, random.draw()) {
                    let killed = [rustix::io::Errno::NOTCONN, rustix::io::Errno::CONNABORTED];
                    let known = killed.map(|k| Some(k.raw_os_error()));
                    assert!(known.contains(&e.raw_os_error()), "{e}");
                    break;
                }
                before.clone_from(&model);
            }
            // Its calls end before the process does.
            let _ = killer.join();
            // Only the last change is in doubt: both states are possible, and a new file may be empty.
            (before, model) = (std::mem::take(&mut model), before);
            model = settle(&place, &call, [before, model.clone()]);
        });
    }
    // Each file is on one disk.
    let mut found = Vec::new();
    for disk in ["fast", "a", "b", "c"] {
        let mut on = Tree::new();
        tree(&place.path(disk), "", &mut on);
        found.extend(on);
    }
    found.sort();
    assert_eq!(found, model.into_iter().collect::<Vec<_>>());
}

/// Mounts once without moves, and returns the state that is there, which must be one of two.
fn settle(place: &Place, call: &str, [after, before]: [Tree; 2]) -> Tree {
    let call = call.split(" --chaos").next().unwrap_or_default();
    let call = format!("{call} --no-moves mnt");
    let served = Place::wait_ready(place.command(&call), &call);
    let mut now = Tree::new();
    tree(&place.path("mnt"), "", &mut now);
    let check = place.json("files check mnt", "files-check");
    assert_eq!(check["ok"], true, "{check}");
    for (question, schema) in [("status", "files-status"), ("stats", "files-stats")] {
        let answer = place.json(&format!("files {question} mnt"), schema);
        let disks = answer["tiers"][1]["disks"].as_array().map(Vec::len);
        assert_eq!(disks, Some(3), "{answer}");
    }
    let first = format!("files where mnt/{}", now.keys().next().expect("a file"));
    assert_eq!(place.json(&first, "files-where")["names"], 1);
    let half = now
        .iter()
        .find(|(p, t)| t.is_empty() && !before.contains_key(*p));
    if let Some(half) = half.map(|h| h.0.clone()) {
        assert!(after.contains_key(&half), "{half}");
        fs::remove_file(place.path("mnt").join(&half)).expect("removed");
        now.remove(&half);
    }
    served.signal("TERM");
    let (code, said) = served.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        now == after || now == before,
        "{now:?}\n{before:?}\n{after:?}"
    );
    now
}
