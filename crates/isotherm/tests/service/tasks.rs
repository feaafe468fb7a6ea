//! The task pages (`docs/tasks`), word for word: every command on them is run, with files in the place of devices, a directory in the place
//! of `/`, and a shell function in the place of `systemctl`. Messages that pages quote must be messages of the program.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Place;
use crate::common::peer::Peer;
use crate::machine::{Machine, has, has_loops};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn page(name: &str) -> String {
    std::fs::read_to_string(docs().join(format!("tasks/{name}.md"))).expect("the page")
}

/// The code blocks of type `sh`, in order.
fn blocks(page: &str) -> Vec<String> {
    let (mut all, mut open): (Vec<String>, Option<String>) = (Vec::new(), None);
    for line in page.lines() {
        let bare = line.trim_start();
        match &mut open {
            None if bare == "```sh" => open = Some(String::new()),
            Some(_) if bare == "```" => all.extend(open.take()),
            Some(text) => {
                let _ = writeln!(text, "{bare}"); // into a string
            }
            None => {}
        }
    }
    all
}

/// A name on the pages, and its stand-in in this test; longer names first.
const STAND_INS: [(&str, &str); 20] = [
    ("/dev/isotherm/", "$T/dev/"),
    ("/dev/nvme0n1p3", "$T/fast.img"),
    ("/dev/nvme1n1p3", "$T/fast2.img"),
    ("/dev/nvme2n1p3", "$T/fast3.img"),
    ("/dev/sdc", "$T/slow2.img"),
    ("/dev/sdd", "$T/full.img"),
    ("/dev/sde1", "$T/tail.img"),
    ("/dev/sda", "$T/slow.img"),
    ("/dev/sdb", "$T/slow.img"),
    ("/dev/old", "$T/old.img"),
    ("/etc/isotherm/", "$T/etc/"),
    ("/etc/fstab", "$T/fstab"),
    ("/mnt/new", "$T/mnt/new"),
    ("/srv2", "$T/mnt/srv2"),
    ("/srv", "$T/mnt/srv"),
    ("/ssd", "$T/ssd"),
    ("/disk", "$T/disk"),
    ("/pool", "$T/mnt/pool"),
    ("/dev/isotherm", "$T/dev"),
    // The full trace takes a minute.
    ("gen:postmark", "gen:postmark,scale=0.02"),
];

fn with_stand_ins(text: &str) -> String {
    let mut text = text.to_owned();
    for (page, here) in STAND_INS {
        // Between the characters of a file name, it is a part of another path.
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(page) {
            out += &rest[..at];
            let inside = out.chars().next_back().is_some_and(char::is_alphanumeric);
            out += if inside { page } else { here };
            rest = &rest[at + page.len()..];
        }
        text = out + rest;
    }
    text
}

/// The parts of a machine that the pages take for granted, for the shell.
const PRELUDE: &str = r#"set -eu
sudo() { "$@"; }
wait_until() { n=0; until "$@"; do n=$((n + 1)); [ $n -lt 900 ] || { echo "waited in vain: $*" >&2; cat "$T"/*.log >&2; exit 9; }; command sleep 0.1; done; }
systemctl() {
    case "$*" in
    "enable --now isotherm@"* | "start isotherm@"*)
        for unit; do :; done
        rm -f "$T/ready"
        (exec isotherm serve "$T/etc/${unit#isotherm@}" --loop >"$T/ready" 2>>"$T/serve.log") &
        wait_until grep -q ready "$T/ready" ;;
    "disable --now isotherm@"* | "stop isotherm@"*)
        for unit; do :; done
        isotherm stop "${unit#isotherm@}"
        wait_until isotherm_is_down "${unit#isotherm@}" ;;
    daemon-reload) ;;
    *) echo "systemctl $*: not known here" >&2; exit 9 ;;
    esac
}
# What a page has just unmounted is in use for a moment more if another test makes a mount namespace, which begins with a copy of all mounts.
isotherm() {
    case "$1" in stop | release | adopt | create | replace) ;; *) command isotherm "$@"; return ;; esac
    tries=0
    until command isotherm "$@" 2>"$T/said"; do
        refused=$?
        { grep -qE "in use|mounted" "$T/said" && [ $((tries += 1)) -lt 100 ]; } || { cat "$T/said" >&2; return $refused; }
        command sleep 0.1
    done
    cat "$T/said" >&2
}
isotherm_is_down() { isotherm status "$T/etc/$1" --json | grep -q '"state": "stopped"'; }
# `mount DIR` looks into the fstab of the page.
mount() {
    for last; do :; done
    device=$(awk -v d="$last" '$2 == d { print $1 }' "$T/fstab" 2>/dev/null | tail -n 1)
    case "$*" in
    *"$T/dev/"*|*".img "*) command mount "$@" ;;
    *) command mount "-onoatime" "$T/dev/${device#/dev/isotherm/}" "$last" ;;
    esac
}
# Pages wait for a mount that way; a loaded machine may take longer.
sleep() { wait_until mountpoint -q "$T/mnt/pool"; }
mkdir -p "$T/mnt" "$T/dev"
truncate -s 64M "$T/fast.img"
truncate -s 256M "$T/slow.img"
"#;

/// The last commands, after success and failure: nothing stays mounted or served. After a failure a server may refuse to stop, because its
/// volume is in use; a test that waited for it would hang, and nobody would see why the page failed.
const END: &str = r#"
end() {
    failed=$?
    for m in srv srv2 new pool; do ! mountpoint -q "$T/mnt/$m" || command umount -l "$T/mnt/$m" || :; done
    for s in "$T"/run/*.sock; do [ ! -e "$s" ] || command isotherm stop "$(basename "$s" .sock)" >/dev/null 2>&1 || :; done
    [ $failed = 0 ] || kill -9 $(jobs -p) 2>/dev/null || :
    wait
    return $failed
}
trap end EXIT
"#;

fn run(m: &Machine, before: &str, blocks: &[String]) {
    let mut script = String::from(PRELUDE) + END + before;
    for block in blocks {
        for line in block.lines().filter(|l| !l.is_empty()) {
            // Those are suites of this tree, which `make test` runs.
            match line.strip_prefix("cargo test -p ") {
                Some(suite) => assert!(is_suite(suite), "{line}"),
                None => {
                    let _ = writeln!(script, "{}", with_stand_ins(line)); // into a string
                }
            }
        }
    }
    let file = m.0.path("page.sh");
    std::fs::write(&file, &script).expect("written");
    let mut shell = Command::new("bash");
    m.set(&mut shell);
    let program = Path::new(env!("CARGO_BIN_EXE_isotherm"));
    let path = std::env::var("PATH").unwrap_or_default();
    let here = program.parent().expect("a directory").display();
    let out = shell
        .arg("-x")
        .arg(&file)
        .current_dir(m.0.path("away"))
        .env(
            "T",
            m.0.path("").display().to_string().trim_end_matches('/'),
        )
        .env("PATH", format!("{here}:{path}"))
        .output()
        .expect("bash runs");
    let trace = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        print!("{}{trace}", String::from_utf8_lossy(&out.stdout));
        // The trace goes on with the end of the shell.
        let page = trace.split("+ end").next().unwrap_or_default().trim_end();
        let last: Vec<&str> = page.lines().rev().take(4).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        panic!("the page fails with {}:\n{}", out.status, last.join("\n"));
    }
}

/// `isotherm-core`, `isotherm-core --test golden`: whether there is such a package or test program.
fn is_suite(words: &str) -> bool {
    let mut words = words.split_whitespace();
    let package = words.next().unwrap_or_default();
    let crates = docs()
        .join("../crates")
        .join(package.trim_start_matches("isotherm-"));
    match (words.next(), words.next()) {
        (None, None) => crates.join("Cargo.toml").exists(),
        (Some("--test"), Some(test)) => {
            crates.join(format!("tests/{test}.rs")).exists()
                || crates.join(format!("tests/{test}/main.rs")).exists()
        }
        _ => false,
    }
}

/// As [`Machine`], in memory, because volumes of 256 MiB are made and filled.
fn machine() -> Machine {
    let place = Place::in_memory();
    for dir in ["etc", "away", "mnt"] {
        std::fs::create_dir(place.path(dir)).expect("made");
    }
    Machine(place)
}

#[test]
fn pages_about_volumes_run_word_for_word() {
    if !has_loops() {
        return;
    }
    for name in ["speed-up-a-disk", "nas-whose-disks-sleep", "database"] {
        let all = blocks(&page(name));
        assert!(all.len() >= 3, "{name}");
        run(&machine(), "", &all);
    }
    // In the end the disk is a plain one again, with its file system.
    let mut all = blocks(&page("life-of-a-volume"));
    assert!(all.len() >= 5);
    all.push(r#"e2fsck -fn "$T/slow.img""#.to_owned());
    run(&machine(), "truncate -s 64M \"$T/fast2.img\"\n", &all);
    // All commands there concern a volume that is not served, and its devices.
    let scripts = docs().join("../scripts").display().to_string();
    let before = format!(
        "mkdir \"$T/mnt/new\"\nln -s {scripts} scripts\n{}",
        r#"isotherm create "$T/etc/v" --fast "$T/fast.img" --slow "$T/slow.img" --policy lru >/dev/null"#
    );
    let mut all = blocks(&page("when-something-broke"));
    all.push(r#"test "$(stat -c %s "$T/mnt/new/v.img")" -gt 200000000; test "$(head -c 8 "$T/slow.img")" != ISOTHERM"#.to_owned());
    run(&machine(), &format!("{before}\n"), &all);
}

#[test]
fn replacing_a_device_runs_word_for_word() {
    if !has_loops() {
        return;
    }
    let m = machine();
    // A volume in service with data on it, whose flash fails. At the end the data must be there.
    let before = r#"isotherm create "$T/etc/v" --fast "$T/fast.img" --slow "$T/slow.img" --policy lru,write-mode=write-through-all >/dev/null
systemctl start isotherm@v
mkfs.ext4 -q "$T/dev/v"
mkdir "$T/mnt/srv"
command mount "$T/dev/v" "$T/mnt/srv"
cp -r /usr/share/doc/bash "$T/mnt/srv/"
umount "$T/mnt/srv"
isotherm stop v
wait_until isotherm_is_down v
rm "$T/fast.img"
truncate -s 64M "$T/fast2.img"
truncate -s 128M "$T/fast3.img"
truncate -s 400M "$T/slow2.img"
systemctl start isotherm@v
"#;
    let after = r#"test "$(blockdev --getsize64 "$T/dev/v")" -gt 390000000
command mount "$T/dev/v" "$T/mnt/srv"
diff -r /usr/share/doc/bash "$T/mnt/srv/bash"
umount "$T/mnt/srv"
isotherm check "$T/etc/v" 2>/dev/null && exit 8
isotherm stop v
wait_until isotherm_is_down v
isotherm check "$T/etc/v"
"#;
    let mut all = blocks(&page("replace-a-device"));
    assert!(all.len() >= 3);
    all.push(after.to_owned());
    run(&m, before, &all);
}

#[test]
fn adopting_a_disk_runs_word_for_word() {
    if !has_loops() {
        return;
    }
    // A file system with room behind it. At the end it is mounted from its own device.
    let before = r#"mkfs.ext4 -q -b 4096 "$T/slow.img" 240M
mkdir "$T/mnt/srv"
command mount -o loop "$T/slow.img" "$T/mnt/srv"
cp -r /usr/share/doc/bash "$T/mnt/srv/"
truncate -s 64M "$T/fast2.img"
truncate -s 8M "$T/tail.img"
mkdir "$T/mnt/srv2"
fill "$T/full.img"
command mount -o loop "$T/full.img" "$T/mnt/srv2"
cp -r /usr/share/doc/bash "$T/mnt/srv2/"
"#;
    // XFS fills its device, if there is a mkfs.xfs.
    let xfs = has("mkfs.xfs");
    let (fill, check) = if xfs {
        (
            "truncate -s 320M \"$1\"; mkfs.xfs -q -s size=4096 \"$1\"",
            "xfs_repair -n",
        )
    } else {
        println!("no mkfs.xfs: ext4 takes its place");
        (
            "truncate -s 250M \"$1\"; mkfs.ext4 -q -b 4096 \"$1\"",
            "e2fsck -fn",
        )
    };
    let before = format!("fill() {{ {fill}; }}\n{before}");
    let after = format!(
        r#"for m in srv srv2; do diff -r /usr/share/doc/bash "$T/mnt/$m/bash"; done
test ! -e "$T/etc/v.toml"
test ! -e "$T/etc/w.toml"
umount "$T/mnt/srv" "$T/mnt/srv2"
e2fsck -fn "$T/slow.img"
{check} "$T/full.img"
"#
    );
    let mut all = blocks(&page("adopt-a-disk"));
    assert!(all.len() >= 3);
    all.push(after);
    run(&machine(), &before, &all);
}

#[test]
fn moving_over_runs_word_for_word() {
    if !has_loops() || !has("rsync") {
        return;
    }
    let text = page("move-over");
    // What is special about bcache and LVM is run where they are: scripts/vm-move-over.
    let (first, others) = text.split_once("## From bcache").expect("recipes");
    let (_, second) = others.split_once("## From mergerfs").expect("the last one");
    let old = r#"truncate -s 64M "$T/old.img"
mkfs.ext4 -q "$T/old.img"
mkdir -p "$T/mnt/srv"
command mount -o loop "$T/old.img" "$T/mnt/srv"
cp -r /usr/share/doc/bash "$T/mnt/srv/"
ln "$T/mnt/srv/bash/copyright" "$T/mnt/srv/hard"
"#;
    run(&machine(), old, &blocks(first));
    if !has("mergerfs") {
        return;
    }
    let pool = r#"mkdir -p "$T/ssd/a" "$T/disk/a" "$T/mnt/pool"
echo fast >"$T/ssd/a/one"
echo slow >"$T/disk/a/two"
mergerfs -o category.create=ff "$T/ssd:$T/disk" "$T/mnt/pool"
"#;
    let m = machine();
    run(&m, pool, &blocks(second));
    // Every file is whole, in one branch.
    let found = |name: &str| {
        ["ssd", "disk"].map(|b| std::fs::read_to_string(m.0.path(b).join("a").join(name)).ok())
    };
    assert!(
        found("one").contains(&Some("fast\n".into()))
            && found("two").contains(&Some("slow\n".into()))
    );
}

#[test]
fn pages_about_the_lab_run_word_for_word() {
    let m = machine();
    m.create("v");
    let nbd = m.0.path("n").display().to_string();
    let served = m.serve(&format!("v --nbd unix:{nbd}"));
    // `what-if` needs some requests.
    let mut peer = Peer::connect(&m.0.path("n")).expect("connects");
    for i in 0..6000 {
        peer.read(i % 50 * 4096, 4096).expect("read");
    }
    for name in ["size-before-you-buy", "add-a-policy"] {
        run(&m, "trap - EXIT\n", &blocks(&page(name)));
    }
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn messages_that_pages_quote_are_ones_that_there_are() {
    let mut sources = String::new();
    let mut dirs = vec![docs().join("../crates")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("listed").flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tasks.rs") {
                sources += &std::fs::read_to_string(path).expect("text");
            }
        }
    }
    let mut quoted = 0;
    for line in page("when-something-broke")
        .lines()
        .filter(|l| l.starts_with("| `"))
    {
        let said = line.split('|').nth(1).expect("a column");
        for part in said.split('`').skip(1).step_by(2) {
            assert!(sources.contains(part), "nothing says `{part}`");
            quoted += 1;
        }
    }
    assert!(quoted >= 20, "{quoted}");
}

#[test]
fn commands_that_need_root_begin_with_sudo() {
    let open_to_all = ["isotherm fstab ", "isotherm files "];
    let (mut plain, mut asked) = (Vec::new(), 0);
    let pages = std::fs::read_dir(docs().join("tasks")).expect("listed");
    for path in pages.flatten().map(|p| p.path()) {
        let text = std::fs::read_to_string(&path).expect("text");
        let all = blocks(&text).concat();
        // The name of a volume of the machine: the part of the path after /etc/isotherm/ on these pages.
        for line in all.lines().filter(|l| l.contains("isotherm ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let of_volume = ["v", "w", "nas", "db"].iter().any(|v| words.contains(v));
            if !of_volume || open_to_all.iter().any(|c| line.starts_with(c)) {
                continue;
            }
            asked += 1;
            if !line.starts_with("sudo ") {
                plain.push(format!("{}: {line}", path.display()));
            }
        }
    }
    assert!(asked > 10 && plain.is_empty(), "{asked}: {plain:#?}");
}

/// In the middle of the use of a volume, which then cannot be stopped in order.
#[test]
fn a_page_that_fails_says_where_and_ends() {
    if !has_loops() {
        return;
    }
    let page = r#"isotherm create "$T/etc/v" --fast "$T/fast.img" --slow "$T/slow.img" >/dev/null
systemctl start isotherm@v
exec 9<"$T/dev/v"
grep nothing /dev/null
"#;
    let failed = std::panic::catch_unwind(|| run(&machine(), "", &[page.to_owned()]));
    let why = failed.expect_err("grep finds nothing");
    let why = why.downcast_ref::<String>().expect("a sentence");
    assert!(why.ends_with("+ grep nothing /dev/null"), "{why}");
}

#[test]
fn stand_ins_take_whole_names() {
    assert_eq!(
        with_stand_ins("mount -o ro /dev/old /srv # /x/srv/srv2"),
        "mount -o ro $T/old.img $T/mnt/srv # /x/srv/srv2"
    );
    assert_eq!(with_stand_ins("/dev/isotherm/v"), "$T/dev/v");
    assert_eq!(
        blocks("a\n```sh\nx\n```\n   ```sh\n   y\n   ```\n```text\nz\n```\n"),
        ["x\n", "y\n"]
    );
}
