//! A real volume over a real store: the task page's commands, word for word, with fio and ext4 above, kills, and the loss of all flash.

mod shell;

use shell::{PRELUDE, S3, able, check, run};
use std::fmt::Write;

const PAGE: &str = include_str!("../../../docs/tasks/object-store.md");

/// The command blocks of the page, with folders of the test in the place of those of a machine.
fn blocks(url: &str, size: &str) -> Vec<String> {
    let mut all = Vec::new();
    for block in PAGE.split("```sh\n").skip(1) {
        let mut text = block.split("```").next().unwrap().to_owned();
        for (page, here) in [
            ("s3://bucket/disk1", url),
            ("/run/isotherm-store/disk1", "$T/here/disk1"),
            ("/run/isotherm/v", "$T/here/mount"),
            ("/var/lib/isotherm-store/disk1", "$V.spool"),
            ("/etc/isotherm/v", "$V"),
            ("/dev/nvme0n1p3", "$T/here/flash"),
            ("100T", size),
        ] {
            text = text.replace(page, here);
        }
        // Faster than anybody would have it.
        let slow = format!("{url}:{size}");
        text = text.replace(
            &slow,
            &format!("{slow} --store order_s=1 --store cache=16M"),
        );
        text = text.replace("--spool ", "--order-s 1 --cache 16M --spool ");
        all.push(text);
    }
    all
}

/// The commands of a block; the last but a server's waits until it serves.
fn with_waits(block: &str) -> String {
    let mut out = String::new();
    for line in block.lines() {
        let Some(command) = line.strip_suffix(" &") else {
            let _ = writeln!(out, "{line}");
            continue;
        };
        let (file, name) = if command.starts_with("isotherm-store") {
            ("disk1/disk", "store")
        } else {
            ("mount/v", "volume")
        };
        let _ = writeln!(
            out,
            "{command} >>$T/{name}.log 2>&1 & {name}=$!\nwait_for test -e $T/here/{file}"
        );
    }
    out
}

/// The commands of servers in a block.
fn servers(block: &str) -> String {
    let lines = block.lines().filter(|l| l.ends_with('&'));
    with_waits(&lines.fold(String::new(), |t, l| t + l + "\n"))
}

const ALL_DIE: &str = r"all_die() {
    p=$(told process); kill -9 $volume $p; wait $volume $p 2>/dev/null || :
    umount -l $T/mnt; umount -l $T/here/mount; umount -l $V.disk 2>/dev/null || umount -l $T/here/disk1
}
";

/// What a life of the volume is made of: `build` makes and serves it, `serve` serves it again, `elsewhere` starts it without all that was
/// local, `flash` gives it flash again.
fn lives([build, serve, elsewhere, flash]: [&str; 4], between: &str) -> String {
    let mut text = PRELUDE.to_owned() + ALL_DIE + build;
    text += "mkfs.ext4 -q -F $T/here/mount/v 512M\nmount -o loop $T/here/mount/v $T/mnt\n";
    text += "fio_ first --do_verify=0\nsync\n";
    text += between;
    // Killed in the middle of uploads; the spool is replayed.
    text += "echo acknowledged >$T/mnt/mark; sync $T/mnt/mark\nall_die\n";
    text += serve;
    text += "mount -o loop $T/here/mount/v $T/mnt\ngrep -q acknowledged $T/mnt/mark\nfio_ first --verify_only\n";
    text += "fio_ second --do_verify=0\nsync\nwait_for waiting\nall_die\n";
    // All that was local is lost.
    text += "mv $T/here $T/lost; mkdir $T/here\n";
    text += elsewhere;
    text += "e2fsck -fy $T/here/mount/v >$T/fsck.log || [ $? -le 1 ]\nmount -o loop $T/here/mount/v $T/mnt\n";
    text += "fio_ first --verify_only\nfio_ second --verify_only\nfio_ third --do_verify=0\numount $T/mnt\n";
    text += "p=$(told process)\ntruncate -s 64M $T/here/flash\n";
    let (stop, replace) = flash.split_once('\n').unwrap();
    let _ = writeln!(text, "{stop}\nwait $volume\nvolume=\n{replace}");
    text
}

/// `isotherm-store` is killed under a load, and the server under another: each goes on by itself.
const KILLS: &str = r"wait_for waiting
grep -q 'store .*nothing waits' $T/status
fio_ killed --do_verify=0 & load=$!
for i in 1 2 3; do sleep 0.7; p=$(told process); kill -9 $p; wait_for another $p; done
wait $load
umount $T/mnt; mount -o loop $T/here/mount/v $T/mnt; fio_ killed --verify_only
p=$(told process); kill -9 $volume; wait $volume || :
umount -l $T/mnt; umount -l $T/here/mount
";

fn one_command(url: &str, size: &str) -> String {
    let blocks = blocks(url, size);
    let [build, status, elsewhere, flash, ..] = &blocks[..] else {
        panic!("{} blocks", blocks.len())
    };
    let serve = servers(build);
    let status = status.trim_end();
    let mut between = format!("wait_for waiting\n{status} >$T/status\n{KILLS}{serve}");
    // The same process goes on, which the new server finds.
    between += "test $p = $(told process)\nmount -o loop $T/here/mount/v $T/mnt\nfio_ first --verify_only\n";
    let parts = [&with_waits(build), &serve, &with_waits(elsewhere), flash];
    lives(parts.map(String::as_str), &between) + "wait_for ended $p\n"
}

fn by_hand(url: &str, size: &str) -> String {
    let blocks = blocks(url, size);
    let [_, _, _, flash, build, elsewhere] = &blocks[..] else {
        panic!("{} blocks", blocks.len())
    };
    let parts = [
        &with_waits(build),
        &servers(build),
        &with_waits(elsewhere),
        flash,
    ];
    let end = "isotherm-store status $V.spool >$T/status\nkill $store; wait $store\nstore=\n";
    lives(
        parts.map(String::as_str),
        "isotherm-store status $V.spool\n",
    ) + end
}

#[test]
fn the_task_page_over_a_directory() {
    let Some(programs) = able() else { return };
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}/objects/prefix", dir.path().display());
    check(&run(&one_command(&url, "2G"), dir.path(), &programs, &[]));
    // Two readers of the store agree: the program, and a page of Python written from the description.
    let read = r"isotherm-store read-out $URL $T/one
python3 $PY $T/objects/prefix $T/two
cmp $T/one $T/two";
    let py = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_out.py").to_owned();
    check(&run(
        &format!("set -e\n{read}"),
        dir.path(),
        &programs,
        &[("URL", url), ("PY", py)],
    ));
}

#[test]
fn the_task_page_by_hand() {
    let Some(programs) = able() else { return };
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}/objects/prefix", dir.path().display());
    check(&run(&by_hand(&url, "2G"), dir.path(), &programs, &[]));
}

#[test]
fn the_task_page_over_s3() {
    let Some(programs) = able() else { return };
    let Some(s3) = S3::start(5977) else { return };
    let dir = tempfile::tempdir().unwrap();
    let script = one_command("s3://bucket/disk1", "1T");
    check(&run(&script, dir.path(), &programs, &s3.variables));
    // Nothing that a person or a log sees holds the secret.
    let grep = std::process::Command::new("grep")
        .args(["-r", "testing-secret-word"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(
        !grep.status.success(),
        "{}",
        String::from_utf8_lossy(&grep.stdout)
    );
}
